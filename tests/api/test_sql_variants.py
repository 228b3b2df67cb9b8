"""VARIANT columns in queries of DuckDB."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from paimon_cli import Catalog
from paimon_cli.api import sql_variants
from paimon_cli.datatypes.field_types import parse_sql_type
from paimon_cli.datatypes.variant_path import variant_get
from paimon_cli.errors import PaimonError, UsageError

DOCUMENTS = ['{"a": {"b": 5}, "s": "x"}', '{"a": {"b": 7.25}, "o": {"it\'s": [1]}}', "[1]", None]


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    found = Catalog(str(tmp_path / "wh"))
    found.create_table("d.t", columns=["k INT NOT NULL", "v VARIANT"], primary_key=["k"], bucket=1)
    found.table("d.t").write(pa.table({"k": pa.array(range(4), pa.int32()), "v": DOCUMENTS}))
    return found


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("SELECT v FROM d.t WHERE k = 0", ['{"a":{"b":5},"s":"x"}']),
        ("SELECT v ->> '$.s' FROM d.t ORDER BY k", ["x", None, None, None]),
        ("SELECT variant_get(v, '$.a.b', 'INT') + 1 FROM d.t ORDER BY k", [6, 8, None, None]),
        ("SELECT Variant_Get(v, '$.a.b', 'double') AS x FROM d.t ORDER BY x NULLS LAST", [5.0, 7.25, None, None]),
        ("SELECT variant_get(v, '$.o[\"it''s\"][0]', 'string') FROM d.t WHERE k = 1", ["1"]),
        ("SELECT variant_get(variant_get(v, '$.a'), '$.b', 'string') FROM d.t WHERE k = 0", ["5"]),
        ("SELECT try_variant_get(v, '$.s', 'int') FROM d.t WHERE k = 0", [None]),
        ("SELECT count(*) FROM d.t WHERE variant_get(v, '$[0]', 'bigint') = 1", [1]),
        ("SELECT k FROM d.t WHERE v IS NULL", [3]),
        ("SELECT k FROM d.t WHERE v = '[1]'", [2]),
        ("SELECT k FROM d.t WHERE variant_get(v, '$.s') = 'x'", [0]),
        ("SELECT parse_json('{\"n\": [1]}') ->> '$.n[0]'", ["1"]),
        ("SELECT variant_get(parse_json('{\"n\": \"5\"}'), '$.n', 'INT')", [5]),
    ],
)
def test_queries(catalog: Catalog, query: str, found: list[Any]) -> None:
    assert catalog.sql(query).to_arrow().column(0).to_pylist() == found


@pytest.mark.parametrize(
    ("path", "found"), [('$[""]', 5), ("$['a\"b'].x[1]", 7), ("$['~/\"']", 8), ("$['/~']", 9), ("$[''][0]['']", None)]
)
def test_names_that_a_path_of_duckdb_cannot_write(tmp_path: Path, path: str, found: int | None) -> None:
    catalog = Catalog(str(tmp_path / "wh"))
    catalog.create_table("d.t", columns=["v VARIANT"])
    catalog.table("d.t").write(pa.table({"v": [json.dumps({"": 5, 'a"b': {"x": [6, 7]}, '~/"': 8, "/~": 9})]}))
    written = path.replace("'", "''")
    by_query = catalog.sql(
        f"SELECT variant_get(v, '{written}', 'INT') AS x, variant_get(v, '{written}') AS j FROM d.t"
    ).to_arrow()
    assert by_query.to_pylist() == [{"x": found, "j": None if found is None else str(found)}]
    wanted = "IS NULL" if found is None else f"= {found}"
    assert catalog.table("d.t").scan(where=f"variant_get(v, '{written}', 'INT') {wanted}").count() == 1


@pytest.mark.parametrize(
    "call",
    [
        "variant_get(v, k, 'int')",
        "variant_get(v)",
        "variant_get()",
        "variant_get(*)",
        "variant_get(v, 'a', 'int')",
        "variant_get(v, '$.a', 'ARRAY<INT>')",
    ],
)
def test_other_calls_are_refused(catalog: Catalog, call: str) -> None:
    with pytest.raises(UsageError):
        catalog.sql(f"SELECT {call} FROM d.t").to_arrow()


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("SELECT variant_get(v, '$.a' FROM d.t", "yntax error"),
        ("SELECT * FROM (PIVOT d.t ON k USING max(variant_get(v, '$.a')))", "PIVOT without the values"),
    ],
)
def test_queries_that_duckdb_cannot_parse(catalog: Catalog, query: str, error: str) -> None:
    with pytest.raises(PaimonError, match=error):
        catalog.sql(query)


def test_a_part_of_another_type(catalog: Catalog) -> None:
    with pytest.raises(PaimonError, match="x"):
        catalog.sql("SELECT variant_get(v, '$.s', 'int') FROM d.t").to_arrow()


def test_variants_inside_of_other_types(tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path / "wh"))
    catalog.create_table(
        "d.t", columns=["k INT", "r ROW<w VARIANT, x INT>", "a ARRAY<VARIANT>", "m MAP<STRING NOT NULL, VARIANT>"]
    )
    rows = {
        "k": pa.array(range(3), pa.int32()),
        "r": [{"w": '{"n": 5}', "x": 1}, {"w": None, "x": 2}, None],
        "a": [['{"n": 6}', None], [], None],
        "m": pa.array([[("key", '{"n": 7}')], None, []], pa.map_(pa.string(), pa.string())),
    }
    catalog.table("d.t").write(pa.table(rows))
    parts = "variant_get(r.w, '$.n', 'INT'), variant_get(a[1], '$.n', 'INT'), m['key'] ->> '$.n', r.x, len(a)"
    found = [list(row.values()) for row in catalog.sql(f"SELECT {parts} FROM d.t ORDER BY k").to_arrow().to_pylist()]
    assert found == [[5, 6, "7", 1, 2], [None, None, None, 2, 0], [None, None, None, None, None]]
    assert catalog.sql("SELECT a FROM d.t WHERE k = 0").to_arrow().column(0).to_pylist() == [['{"n":6}', None]]


def test_conditions_of_a_merge(catalog: Catalog) -> None:
    """Also where DuckDB computes them, because a value is one of its functions."""
    for value in ("t.v", "json_merge_patch(t.v, '{\"a\": 1}')"):
        merge = "MERGE INTO d.t t USING (SELECT 2 AS k) s ON t.k = s.k WHEN MATCHED AND variant_get(t.v, '$[0]', 'INT') = 1 "
        catalog.sql(f"{merge} THEN UPDATE SET v = {value}")
    assert catalog.sql("SELECT v FROM d.t WHERE k = 2").to_arrow().column(0).to_pylist() == ['{"a":1}']


def test_documents_of_python(tmp_path: Path) -> None:
    """As they are, or as JSON; both may be in one column."""
    catalog = Catalog(str(tmp_path / "wh"))
    table = catalog.create_table("d.t", columns=["k INT NOT NULL", "v VARIANT"], primary_key=["k"], bucket=1)
    documents = [{"n": [1, None, {"ü": True}]}, [1], 7, False, '{"n": 1}', None]
    table.write([{"k": k, "v": document} for k, document in enumerate(documents)])
    table.update(where="k = 1", values={"v": {"value": 2}})
    texts = catalog.sql("SELECT v FROM d.t ORDER BY k").to_arrow().column(0).to_pylist()
    assert [None if text is None else json.loads(text) for text in texts] == [
        documents[0],
        {"value": 2},
        7,
        False,
        {"n": 1},
        None,
    ]
    with pytest.raises(PaimonError, match="v"):
        table.write([{"k": 9, "v": {"n": float("nan")}}])


@pytest.mark.parametrize("value", ["{'size': 1, 'j': 2}", "[{'size': 1}]", "MAP {'a': {'size': 1}}", "array_value(1, 2)"])
def test_fields_that_are_called_size(catalog: Catalog, value: str) -> None:
    """As DuckDB calls the length of an ARRAY among its parts."""
    (found,) = catalog.sql(f"SELECT {value} AS x").to_arrow().column(0).to_pylist()
    assert "1" in str(found)


def test_numbers_of_more_digits_than_python_reads(catalog: Catalog) -> None:
    catalog.table("d.t").write([{"k": 9, "v": {"n": "9" * 5000, "m": "0" * 5000 + "7"}}])
    for name, found in (("n", None), ("m", 7)):
        query = f"SELECT try_variant_get(v, '$.{name}', 'INT') FROM d.t WHERE k = 9"
        assert catalog.sql(query).to_arrow().column(0).to_pylist() == [found]
        where = f"try_variant_get(v, '$.{name}', 'INT') = 7"
        assert catalog.table("d.t").scan(where=where).to_arrow().num_rows == (found is not None)


TYPES = ["INT", "BIGINT", "TINYINT", "DOUBLE", "FLOAT", "DECIMAL(10, 2)", "DECIMAL(38, 18)", "STRING", "BOOLEAN", "DATE"]
TYPES += [
    "TIMESTAMP(0)",
    "TIMESTAMP(3)",
    "TIMESTAMP(6)",
    "TIMESTAMP(9)",
    "TIMESTAMP_LTZ(6)",
    "TIMESTAMP_LTZ(3)",
    "TIMESTAMP(1)",
    "TIME",
    "BYTES",
    "VARCHAR(3)",
]


@pytest.mark.parametrize("t", TYPES)
def test_a_query_and_a_condition_have_the_same_parts(tmp_path: Path, t: str) -> None:
    """Also of values that JSON does not have, and of numbers that JSON of DuckDB rounds."""
    numbers = [
        "1",
        "1.5",
        "1e-42",
        "1e-11",
        "0.00000000001",
        "1e10",
        "1e300",
        "1.999999999999999999999",
        "123456789.12345",
        "-0.0",
    ]
    numbers += ["12345678901234567890.12", "0.30000000000000004", "9223372036854775807", "-9223372036854775808.5", "1767261600"]
    texts = ["5", " 5 ", "5.7", "1e3", "NaN", "inf", "true", "T", "", "null", "2026-01-01", "2026-01-01T10:00:00.1234567Z"]
    texts += [
        "2026-01-01 10:00 Europe/Berlin",
        "12026-01-01",
        'a"\\u0001\u00e9',
        "{",
        "[1]",
        "10:00:00",
        "1.99999999999999999999",
    ]
    others = ["null", "true", "false", "[]", '[1,1e5,"\\u001f",1.10]', '{"b":1.999999999999999999999,"c":{"d":1e-9}}']
    documents = [f'{{"p": {part}}}' for part in [*numbers, *map(json.dumps, texts), *others]]
    documents += ["1", "[1]", '{"q":1}', '{"p": 1.5, "q": 1.99999999999999999999}', '{"p": 5, "q": "12345678901234567890.5"}']
    catalog = Catalog(str(tmp_path / "wh"))
    table = catalog.create_table("d.t", columns=["k INT NOT NULL", "v VARIANT"], primary_key=["k"], bucket=1)
    table.write(pa.table({"k": pa.array(range(len(documents)), pa.int32()), "v": documents}))
    stored = table.scan(order_by="k").to_arrow()["v"].combine_chunks()
    found = variant_get(stored, ("p",), parse_sql_type(t), tries=True)
    queried = catalog.sql(f"SELECT try_variant_get(v, '$.p', '{t}') AS x FROM d.t ORDER BY k").to_arrow()["x"].combine_chunks()
    assert found.null_count < len(documents)
    assert queried.cast(found.type).equals(found) or _bits(queried.cast(found.type)) == _bits(found)
    for where in (f"try_variant_get(v, '$.p', '{t}') IS NOT NULL", "try_variant_get(v, '$.p') = '5'"):
        keys = catalog.sql(f"SELECT k FROM d.t WHERE {where}").to_arrow()["k"].to_pylist()
        assert sorted(keys) == sorted(table.scan(where=where).to_arrow()["k"].to_pylist())


def _bits(values: pa.Array) -> list[str]:
    """NaN equals NaN."""
    return [str(value.as_py()) for value in values]


def test_a_change_takes_the_rows_that_a_query_shows(catalog: Catalog) -> None:
    documents = [{"n": "1e3"}, {"n": " 5 "}, {"n": 1e-42}, {"n": 2**63 - 1}, {"n": "NaN"}]
    catalog.table("d.t").write([{"k": 10 + k, "v": document} for k, document in enumerate(documents)])
    parts = "try_variant_get(v, '$.n', 'INT') = 5 OR try_variant_get(v, '$.n', 'DECIMAL(38, 2)') = 0"
    parts += " OR try_variant_get(v, '$.n', 'TIMESTAMP') IS NOT NULL"
    assert sorted(catalog.sql(f"SELECT k FROM d.t WHERE {parts}").to_arrow()["k"].to_pylist()) == [11, 12]
    assert catalog.table("d.t").scan(where=parts).count() == 2
    catalog.sql(f"DELETE FROM d.t WHERE {parts}")
    assert sorted(catalog.sql("SELECT k FROM d.t WHERE k >= 10").to_arrow()["k"].to_pylist()) == [10, 13, 14]


def test_the_error_of_a_part_is_that_of_a_condition(catalog: Catalog) -> None:
    with pytest.raises(UsageError) as of_query:
        catalog.sql("SELECT k FROM d.t WHERE variant_get(v, '$.s', 'int') = 1").to_arrow()
    with pytest.raises(UsageError) as of_condition:
        catalog.table("d.t").scan(where="variant_get(v, '$.s', 'int') = 1").to_arrow()
    assert of_query.value.what == of_condition.value.what


def test_plain_documents_are_not_made_variants_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That goes document by document, which takes minutes for some millions of them."""
    catalog = Catalog(str(tmp_path / "w"))
    catalog.create_table("d.t", columns=["k INT NOT NULL", "v VARIANT"], primary_key=["k"], bucket=1)
    document = {"u": "12345678-1e5a-4e3f-9e1b-0a0b0c0d0e0f", "f": 1.5, "o": {"t": "a b", "b": 0}, "l": [1, "x"]}
    catalog.table("d.t").write([{"k": 1, "v": document}])
    monkeypatch.setattr(sql_variants, "variants_of_texts", lambda *_, **__: pytest.fail("a document was read"))
    parts = "variant_get(v, '$.f', 'DOUBLE') f, variant_get(v, '$.o', 'STRING') o, variant_get(v, '$.l', 'STRING') l"
    (found,) = catalog.sql(f"SELECT {parts} FROM d.t").to_arrow().to_pylist()
    assert found == {"f": 1.5, "o": '{"b":0,"t":"a b"}', "l": '[1,"x"]'}


@pytest.mark.parametrize("query", ["CAST('a' || k AS INT)", "error('a' || k)"])
def test_a_failure_that_the_query_has_caught_is_not_its_error(catalog: Catalog, query: str) -> None:
    with pytest.raises(UsageError) as failed:
        catalog.sql(f"SELECT TRY(variant_get(v, '$.s', 'INT')) x, {query} y FROM d.t").to_arrow()
    assert "variant_get" not in failed.value.what and "a" in failed.value.what


@pytest.mark.parametrize("t", ["STRING", "INT", "DOUBLE", "FLOAT", "DECIMAL(10, 2)", "BOOLEAN", "DATE", "TIMESTAMP(3)", "BYTES"])
def test_a_try_takes_what_can_be_no_variant(catalog: Catalog, t: str) -> None:
    """DuckDB takes more for JSON than we do."""
    odd = ["1e999", "NaN", "-Infinity", "1" * 5000, "0." + "1" * 5000, "[1e999]", "[NaN]", '{"b": 1, "b": 2.50}', "[1.5, 2e400]"]
    odd += ["[" * 500 + "]" * 500]
    for path in ("$", "$.a"):
        given = [text if path == "$" else f'{{"a": {part}, "b": {text}}}' for text in odd for part in (text, "1.5")]
        documents = ", ".join(f"('{one}')" for one in given)
        query = f"SELECT try_variant_get(parse_json(d), '{path}', '{t}') FROM (VALUES {documents}) t(d)"
        assert catalog.sql(query).to_arrow().num_rows == len(given)


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("SELECT variant_get(v, '$.n', 'INT'), k FROM d.t", ["variant_get(v, '$.n', 'INT')", "k"]),
        ("SELECT variant_get(v, '$.n', 'INT') AS n FROM d.t", ["n"]),
        ("SELECT max(variant_get(v, '$.n', 'INT')) FROM d.t", ["max(variant_get(v, '$.n', 'INT'))"]),
        ("SELECT x.* FROM (SELECT variant_get(v, '$.n', 'INT') FROM d.t) x", ["variant_get(v, '$.n', 'INT')"]),
        ("SELECT variant_get(v, '$.n', 'INT'), count(*) FROM d.t GROUP BY 1", ["variant_get(v, '$.n', 'INT')", "count_star()"]),
        (
            "SELECT variant_get(variant_get(v, '$.o'), '$.b', 'INT') FROM d.t GROUP BY ALL",
            ["variant_get(variant_get(v, '$.o'), '$.b', 'INT')"],
        ),
        ("SELECT k, (variant_get(v, '$.n', 'INT')) FROM d.t UNION SELECT 1, 2", ["k", "variant_get(v, '$.n', 'INT')"]),
    ],
)
def test_a_column_without_an_alias_is_named_as_it_is_written(catalog: Catalog, query: str, names: list[str]) -> None:
    assert catalog.sql(query).to_arrow().column_names == names


def test_a_text_that_is_no_json(catalog: Catalog) -> None:
    with pytest.raises(UsageError, match="JSON"):
        catalog.sql("SELECT parse_json('{')").to_arrow()
