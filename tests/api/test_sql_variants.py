"""VARIANT columns in queries of DuckDB."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from paimon_cli import Catalog
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
    "call", ["variant_get(v, k, 'int')", "variant_get(v)", "variant_get(v, 'a', 'int')", "variant_get(v, '$.a', 'ARRAY<INT>')"]
)
def test_other_calls_are_refused(catalog: Catalog, call: str) -> None:
    with pytest.raises(UsageError):
        catalog.sql(f"SELECT {call} FROM d.t").to_arrow()


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
