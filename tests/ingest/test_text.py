"""CSV and JSON lines: forms of every type, the round trip of printed rows, and the row number of the first fault."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from paimon_cli.datatypes.field_types import parse_type
from paimon_cli.errors import BadInput
from paimon_cli.ingest import text_values
from paimon_cli.ingest.faults import BadCells
from paimon_cli.ingest.row_sources import FileRows
from paimon_cli.ingest.rows import IncomingRows
from paimon_cli.ingest.text_form import TextForm
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.pieces import PIECES
from tests.goldens import GOLDENS, Golden, expected_rows, golden_table
from tests.ingest.input_files import json_file, one_column, read_all, rows_of, schema_of, text_file

TIMESTAMP_LTZ_6 = "TIMESTAMP(6) WITH LOCAL TIME ZONE"
TEXTS = [
    ("BOOLEAN", "true", True),
    ("BOOLEAN", "FALSE", False),
    ("TINYINT", "-128", -128),
    ("BIGINT", "+9223372036854775807", 2**63 - 1),
    ("FLOAT", "0.1", 0.10000000149011612),
    ("DOUBLE", "1e-3", 0.001),
    ("DOUBLE", "NaN", "NaN"),
    ("DOUBLE", "-Infinity", "-Infinity"),
    ("DECIMAL(20, 3)", "-12345678901234567.89", "-12345678901234567.890"),
    ("DECIMAL(5, 1)", "1.5000", "1.5"),
    ("DECIMAL(5, 1)", "1e2", "100.0"),
    ("STRING", " a ", " a "),
    ("STRING", "NULL", "NULL"),
    ("CHAR(2)", "日本", "日本"),
    ("BYTES", "00fFa1", "00ffa1"),
    ("DATE", "0001-01-01", "0001-01-01"),
    ("DATE", "+12024-02-29", "+12024-02-29"),
    ("TIME(3)", "23:59:59.999", "23:59:59.999"),
    ("TIME(0)", "23:59", "23:59:00"),
    ("TIMESTAMP(3)", "2024-01-31T10:20:30.12", "2024-01-31T10:20:30.12"),
    ("TIMESTAMP(3)", "2024-01-31 10:20:30.120000", "2024-01-31T10:20:30.12"),
    ("TIMESTAMP(6)", "1969-12-31T23:59:59.999999", "1969-12-31T23:59:59.999999"),
    ("TIMESTAMP(0)", "2024-01-31", "2024-01-31T00:00:00"),
    ("TIMESTAMP(6)", "+12024-01-31T10:20:30.5", "+12024-01-31T10:20:30.5"),
    (TIMESTAMP_LTZ_6, "2024-01-31T10:20:30.5Z", "2024-01-31T10:20:30.5Z"),
    (TIMESTAMP_LTZ_6, "2024-01-31 10:20:30+05:30", "2024-01-31T04:50:30Z"),
    (TIMESTAMP_LTZ_6, "2024-01-31T22:20-0200", "2024-02-01T00:20:00Z"),
]


@pytest.mark.parametrize(("type_text", "text", "expected"), TEXTS)
def test_forms_of_values(type_text: str, text: str, expected: Any, tmp_path: Path) -> None:
    incoming = IncomingRows(one_column(type_text))
    csv = text_file(tmp_path, f"k,v\n1,\n2,{text}\n", "a.csv")
    assert rows_of(incoming, csv) == [{"k": 1, "v": None}, {"k": 2, "v": expected}]
    lines = json_file(tmp_path, {"k": 1, "v": None}, {"v": text, "k": 2}, {"k": 3})
    assert rows_of(incoming, lines) == [{"k": 1, "v": None}, {"k": 2, "v": expected}, {"k": 3, "v": None}]


BAD_TEXTS = [
    ("BOOLEAN", "1", "true or false"),
    ("TINYINT", "128", "range of TINYINT"),
    ("INT", "0x1F", "whole number"),
    ("INT", "1.0", "whole number"),
    ("INT", "1 ", "whole number"),
    ("BIGINT", "9223372036854775808", "range of BIGINT"),
    ("DOUBLE", "1_0", "not a number"),
    ("FLOAT", "1e39", "range of FLOAT"),
    ("DECIMAL(5, 1)", "1.25", "does not fit"),
    ("DECIMAL(5, 1)", "12345", "does not fit"),
    ("DECIMAL(5, 1)", "abc", "not a number"),
    ("VARCHAR(2)", "日本語", "longer than 2"),
    ("BYTES", "abc", "hex"),
    ("VARBINARY(1)", "0102", "longer than 1 bytes"),
    ("DATE", "2024-1-1", "YYYY-MM-DD"),
    ("DATE", "2023-02-29", "no such day"),
    ("DATE", "+12023-02-29", "not a day of the calendar"),
    ("TIME(0)", "24:00:00", "no such time"),
    ("TIME(0)", "10:00:00.5", "more than 0 digits"),
    ("TIMESTAMP(3)", "2024-01-31T10:20:30.1234", "more than 3 digits"),
    ("TIMESTAMP(3)", "2024-01-31T10:20:60", "no such time"),
    ("TIMESTAMP(3)", "2024-01-31T10:20:30Z", "takes no Z"),
    ("TIMESTAMP(3)", "yesterday", "a timestamp is written"),
    ("TIMESTAMP(3)", "2024-01-31T10:20.5", "a timestamp is written"),
    ("TIMESTAMP(3) WITH LOCAL TIME ZONE", "2024-01-31T10:20:30+24:00", "no such time"),
    ("TIMESTAMP(9) WITH LOCAL TIME ZONE", "2024-01-31T10:20:30+14:60", "no such time"),
    (TIMESTAMP_LTZ_6, "2024-01-31T10:20:30", "needs Z"),
    (TIMESTAMP_LTZ_6, "2024-01-31", "needs Z"),
]


@pytest.mark.parametrize(("type_text", "text", "why"), BAD_TEXTS)
def test_texts_that_are_not_a_value(type_text: str, text: str, why: str, tmp_path: Path) -> None:
    incoming = IncomingRows(one_column(type_text))
    csv = text_file(tmp_path, f"k,v\n1,\n2,{text}\n", "a.csv")
    lines = json_file(tmp_path, {"k": 1}, {"k": 2, "v": text})
    for source in (csv, lines):
        with pytest.raises(BadInput) as caught:
            rows_of(incoming, source)
        assert caught.value.what == f"{source}: row 2, column 'v' cannot take '{text}'"
        assert why in caught.value.why


def test_quotes_nulls_and_order_in_csv(tmp_path: Path) -> None:
    content = '\ufeff"v",k\r\n"",1\r\n,2\r\n"a,""b""\r\nc",3\r\n日本,4'
    rows = rows_of(IncomingRows(one_column("STRING")), text_file(tmp_path, content, "a.csv"))
    assert [row["v"] for row in rows] == ["", None, 'a,"b"\r\nc', "日本"]


def test_another_delimiter(tmp_path: Path) -> None:
    source = text_file(tmp_path, "k\tv\n1\ta,b\n", "a.csv")
    incoming = IncomingRows(one_column("STRING"), source=FileRows(form=TextForm(delimiter="\t")))
    assert rows_of(incoming, source) == [{"k": 1, "v": "a,b"}]


@pytest.mark.parametrize(
    ("content", "what", "why"),
    [
        ("k,v,v\n1,a,b\n", "no usable header", "appears twice"),
        ("k,w\n", "the table has no column 'w'", "k, v"),
        ("k,v\n1,a\n2\n", "row 2", "1 cell, the header has 2"),
        ("k,v\n1,a\n2,b,c\n3,d\n", "row 2", "3 cells"),
        ('k,v\n1,a\n"2,b\n3,c\n', "line 3: a quoted cell is never closed", "would take the rest"),
        ("k,v\nx,a\n2\n", "row 1, column 'k' cannot take 'x'", ""),
        (b"k,v\n1,a\n2,\xff\n", "row 2, column 'v' cannot take '\\xff'", "UTF-8"),
        (b"k,\xff\n1,a\n", "header", ""),
        ("k;v\n1;a\n", "a single column, 'k;v'", "another separator"),
    ],
)
def test_broken_csv(content: str | bytes, what: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        rows_of(IncomingRows(one_column("STRING")), text_file(tmp_path, content, "a.csv"))
    assert what in caught.value.what and why in caught.value.why


def test_row_numbers_hold_beyond_the_first_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PIECES, "csv_block_bytes", 1000)
    monkeypatch.setattr(PIECES, "batch_rows", 7)
    monkeypatch.setattr(PIECES, "json_block_bytes", 1000)
    monkeypatch.setattr(PIECES, "batch_rows", 7)
    incoming = IncomingRows(one_column("STRING"))
    cells = [f'{n},"line\n{n}"' for n in range(500)]
    good = text_file(tmp_path, "k,v\n" + "\n".join(cells), "good.csv")
    rows = read_all(incoming, good)
    assert rows["k"].to_pylist() == list(range(500)) and rows["_SEQUENCE_NUMBER"].to_pylist() == list(range(500))
    for fault, what in (("x,y", "row 401, column 'k' cannot take 'x'"), ("1", "row 401")):
        bad = text_file(tmp_path, "k,v\n" + "\n".join([*cells[:400], fault, *cells[401:]]), "bad.csv")
        with pytest.raises(BadInput, match=what):
            rows_of(incoming, bad)
    lines = [json.dumps({"k": n, "v": "x"}) for n in range(500)]
    assert [row["k"] for row in rows_of(incoming, text_file(tmp_path, "\n".join(lines), "good.json"))] == list(range(500))
    for fault in ('{"k": "x", "v": "y"}', "{"):
        bad = text_file(tmp_path, "\n".join([*lines[:400], fault, *lines[401:]]), "bad.json")
        with pytest.raises(BadInput, match="row 401"):
            rows_of(incoming, bad)


@pytest.mark.parametrize(
    ("line", "column", "why"),
    [
        ("null", "", "not a JSON object but null"),
        ('{"k": ' + "[" * 5000 + "]" * 5000 + "}", "", "its values are nested too deeply"),
        ("[1]", "", "not a JSON object"),
        ('{"k": 2} null', "", "not JSON"),
        ('{"k": 2}{"k": 3}', "", "not JSON"),
        ('{"k": 2', "", "not JSON"),
        ("{'k': 2}", "", "not JSON"),
        ('{"k": 2, "k": 3}', "", "appears twice"),
        ('{"k": 2, "V": "x"}', "", "key 'V' is not a column"),
        ('{"k": 2, "v": 5}', "v", "not a JSON value for"),
        ('{"k": 2, "v": true}', "v", "not a JSON value for"),
        ('{"k": 2, "v": {"a": 1}}', "v", "not a JSON value for"),
        ('{"k": true, "v": "x"}', "k", "not a JSON value for"),
        ('{"k": 2.5, "v": "x"}', "k", "whole number"),
        ('{"k": 1e999999999, "v": "x"}', "k", "whole number"),
        ('{"k": ' + "7" * 5_000 + ', "v": "x"}', "k", "outside the range of INT"),
        ('{"k": 2, "v": ' + "7" * 5_000 + "}", "v", "not a JSON value for"),
        ('{"v": "x"}', "k", "NOT NULL"),
        ('{"k": 2, "v": "\\ud800"}', "v", ""),
    ],
)
def test_broken_json_lines(line: str, column: str, why: str, tmp_path: Path) -> None:
    source = text_file(tmp_path, f'{{"k": 1, "v": "x"}}\n{line}\n{{"k": 3, "v": 5}}\n', "a.json")
    with pytest.raises(BadInput) as caught:
        rows_of(IncomingRows(one_column("STRING")), source)
    assert caught.value.what.startswith(f"{source}: row 2" + (f", column '{column}'" if column else ""))
    assert why in caught.value.why


def test_each_fault_of_json_names_its_own_row(tmp_path: Path) -> None:
    lines = ['{"k": 1}', "{", '{"k": 3, "v": 5}', '{"k": 4}', '{"k": "x"}']
    source = FileRows((str(text_file(tmp_path, "\n".join(lines), "a.json")),))
    (split,) = source.plan()
    tally = IncomingRows(one_column("STRING"), source=source).find_faults(split)
    assert [fault.row for fault in tally.first] == [2, 3, 5] and (tally.rows, tally.bad_rows) == (2, 3)


@pytest.mark.parametrize("block_bytes", [1, 1 << 20])
@pytest.mark.parametrize("line", ['[{"k": 2}]', '\ufeff{"k": 2}', "[1]"])
def test_a_bad_line_is_one_also_where_a_block_begins(
    line: str, block_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the beginning of a file says that it is an array, and only there is a byte order mark none of a line."""
    monkeypatch.setattr(PIECES, "json_block_bytes", block_bytes)
    source = text_file(tmp_path, f'{{"k": 1}}\n{line}\n', "a.json")
    with pytest.raises(BadInput) as caught:
        rows_of(IncomingRows(one_column("STRING")), source)
    assert caught.value.what.startswith(f"{source}: row 2")


def test_text_that_is_not_utf8_in_json(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="row 2"):
        rows_of(IncomingRows(one_column("STRING")), text_file(tmp_path, b'{"k":1}\n{"k":2,"v":"\xff"}\n', "a.json"))


NESTED = {
    "a": {"type": "ARRAY", "element": "TIMESTAMP(3)"},
    "m": {"type": "MAP", "key": "STRING", "value": "DECIMAL(6, 2)"},
    "b": {"type": "MULTISET", "element": "STRING"},
    "r": {"type": "ROW", "fields": [{"id": 7, "name": "x", "type": "DOUBLE"}, {"id": 8, "name": "y", "type": "BYTES"}]},
}


def test_natural_json_of_nested_values(tmp_path: Path) -> None:
    natural = {
        "k": 1,
        "a": ["2024-01-31 10:00:00", None],
        "m": {"b": 1.5, "a": None},
        "b": {"z": 2},
        "r": {"x": 1, "y": "0aff"},
    }
    canonical = {
        "k": 1,
        "a": ["2024-01-31T10:00:00", None],
        "m": [["a", None], ["b", "1.50"]],
        "b": [["z", 2]],
        "r": {"x": 1.0, "y": "0aff"},
    }
    incoming = IncomingRows(schema_of({"k": "INT NOT NULL", **NESTED}))
    empty = {"k": 2, "a": [], "m": [], "b": [], "r": {"x": "NaN", "y": None}}
    assert rows_of(incoming, json_file(tmp_path, natural, canonical, empty)) == [canonical, canonical, empty]
    cells = ['""' if value is None else '"' + json.dumps(value).replace('"', '""') + '"' for value in natural.values()]
    csv = text_file(tmp_path, ",".join(natural) + "\n" + ",".join(cells) + "\n2,,,,\n", "a.csv")
    assert rows_of(incoming, csv) == [canonical, {"k": 2, **dict.fromkeys(NESTED)}]


@pytest.mark.parametrize(
    ("column", "value", "why"),
    [
        ("a", ["2024-01-31T10:00:00.1234"], "more than 3 digits"),
        ("a", ["2024-01-31T10:00:00Z"], "takes no Z"),
        ("a", "x", ""),
        ("m", [["a"]], "pairs"),
        ("m", {"a": 12345.5}, ""),
        ("m", [[None, "1"]], ""),
        ("b", {"z": None}, ""),
        ("r", {"x": 1, "z": 2}, "its fields are x, y"),
        ("r", [1, "00"], ""),
        ("r", {"x": 10**400}, "outside the range of DOUBLE"),
        ("m", {"a": 10**400}, "is not a valid DECIMAL(6, 2)"),
    ],
)
def test_nested_values_that_do_not_fit(column: str, value: Any, why: str, tmp_path: Path) -> None:
    row = {"k": 2, **dict.fromkeys(NESTED), column: value}
    with pytest.raises(BadInput) as caught:
        rows_of(IncomingRows(schema_of({"k": "INT NOT NULL", **NESTED})), json_file(tmp_path, {"k": 1}, row))
    assert caught.value.details["row"] == 2 and caught.value.details["column"] == column
    assert why in caught.value.why


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_words_that_are_no_numbers_of_json_are_numbers_of_floats_only(word: str, tmp_path: Path) -> None:
    """Many programs write them. As a VARIANT or STRING they would be kept as a text that nobody has written."""
    columns = {"k": "INT NOT NULL", "d": "DOUBLE", "s": "STRING", "v": "VARIANT", "a": {"type": "ARRAY", "element": "STRING"}}
    incoming = IncomingRows(schema_of(columns))
    taken = rows_of(incoming, text_file(tmp_path, f'{{"k": 1, "d": {word}, "s": "{word}", "v": "{word}"}}', "a.json"))
    assert (taken[0]["d"], taken[0]["s"]) == (word, word)
    for column, value in (("s", word), ("v", word), ("v", f'{{"x": [{word}]}}'), ("a", f"[{word}]")):
        with pytest.raises(BadInput, match=f"column '{column}'"):
            rows_of(incoming, text_file(tmp_path, f'{{"k": 1, "{column}": {value}}}', "a.json"))


@pytest.mark.parametrize(("t", "number"), [("DOUBLE", "1e999"), ("FLOAT", "1e39"), ("FLOAT", "-3.5e38"), ("FLOAT", "7" * 5_000)])
def test_a_number_in_a_nested_value_does_not_become_infinite(t: str, number: str, tmp_path: Path) -> None:
    incoming = IncomingRows(schema_of({"k": "INT NOT NULL", "a": {"type": "ARRAY", "element": t}}))
    with pytest.raises(BadInput, match="column 'a'") as caught:
        rows_of(incoming, text_file(tmp_path, f'{{"k": 1, "a": [{number}]}}', "a.json"))
    assert caught.value.why == f"it is outside the range of {t}"
    with pytest.raises(BadInput, match="column 'a'") as caught:
        rows_of(incoming, text_file(tmp_path, f"k,a\n1,[{number[:4000]}]\n", "a.csv"))
    assert caught.value.why == f"it is outside the range of {t}"


def test_deletes_and_kinds_in_text(tmp_path: Path) -> None:
    schema = schema_of({"k": "INT NOT NULL", "v": "STRING NOT NULL"})
    keys = [text_file(tmp_path, "k\n1\n", "a.csv"), json_file(tmp_path, {"k": 2})]
    deleted = read_all(IncomingRows(schema, kind=3), *keys)
    assert deleted["k"].to_pylist() == [1, 2] and deleted["v"].to_pylist() == ["", ""]
    assert deleted["_VALUE_KIND"].to_pylist() == [3, 3]
    mixed = [
        text_file(tmp_path, "op,k,v\n+I,1,a\n-D,1,a\n", "b.csv"),
        json_file(tmp_path, {"k": 2, "v": "b", "op": "-U"}, name="b.json"),
    ]
    assert read_all(IncomingRows(schema, kind_column="op"), *mixed)["_VALUE_KIND"].to_pylist() == [0, 3, 1]


def _printable(golden: Golden) -> bool:
    types = json.dumps(golden.schema["fields"])
    return not any(f"TIMESTAMP({p})" in types for p in (7, 8, 9))


@pytest.mark.in_part(3)
@pytest.mark.parametrize("golden", [g for g in GOLDENS if _printable(g)], ids=str)
def test_printed_rows_can_be_written_again(golden: Golden, tmp_path: Path) -> None:
    schema_file = max((golden_table(golden.writer, golden.name, tmp_path) / "schema").iterdir())
    stored = TableSchema.from_json(schema_file.read_text())
    options = {key: value for key, value in stored.options.items() if key != "rowkind.field"}
    schema = TableSchema(0, stored.fields, stored.highest_field_id, stored.partition_keys, stored.primary_keys, options, None, 0)
    rows = expected_rows(golden)
    if rows and set(rows[0]) == set(schema.field_names):
        assert rows_of(IncomingRows(schema), json_file(tmp_path, *rows)) == rows


@pytest.mark.parametrize("type_text", ["TIMESTAMP(0)", "TIMESTAMP(4)", "TIMESTAMP(6)", "TIMESTAMP(3) WITH LOCAL TIME ZONE"])
def test_arrow_reads_times_as_they_are_read_apart(type_text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Arrow's parser takes on its own, and what it does not, ends the same way."""
    clocks = ["", "T10", "T10:20", " 10:20:30", "T24:00:00", "T23:59:60", "T10:20:30.5", "T10:20:30.1234", "T10:20:30.500000"]
    zones = ["", "Z", "z", "+02", "-0530", "+02:00", "+24:00", "+14:60"]
    texts = [day + clock + zone for day in ("2024-02-29", "2023-02-29", "0001-01-01") for clock in clocks for zone in zones]
    t = parse_type(type_text)

    def outcome(text: str) -> Any:
        try:
            return text_values.parse_text(pa.array([text]), t).view(pa.int64()).to_pylist()
        except BadCells as problem:
            return problem.cells

    at_once = [outcome(text) for text in texts]
    monkeypatch.setattr(text_values, "_parsed_directly", lambda *given: None)
    assert at_once == [outcome(text) for text in texts] and len({str(one) for one in at_once}) > 10
