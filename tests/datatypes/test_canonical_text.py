"""Columns as text: Arrow's result equals that of formatting one value after the other."""

from __future__ import annotations

import json
import random
import sys
import unicodedata
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from paimon_cli.datatypes.arrow_types import arrow_type, values_to_arrow
from paimon_cli.datatypes.canonical_form import canonical_json, canonical_rows, canonical_texts, compact_json, json_texts
from paimon_cli.datatypes.data_type import DataField
from paimon_cli.datatypes.field_types import parse_sql_type
from paimon_cli.datatypes.internal_values import Timestamp
from paimon_cli.datatypes.value_texts import escaped
from paimon_cli.datatypes.variant_building import variant_of
from paimon_cli.options.option_text import json_text
from paimon_cli.pieces import PIECES
from paimon_cli.read.row_text import CsvRows, JsonRows, bounded

BIDI = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
MARKS = "\u061c\u200e\u200f"
CONTROLS = [
    character
    for character in map(chr, range(sys.maxunicode))
    if unicodedata.category(character) == "Cc" or unicodedata.bidirectional(character) in BIDI or character in MARKS
]
"""Each character that controls a terminal, or the direction of text."""


def printed(value: Any) -> str:
    """JSON in which these characters are escaped."""
    text = compact_json(value)
    return text if text.isascii() and "\x7f" not in text else "".join(f"\\u{ord(c):04x}" if c in CONTROLS else c for c in text)


NAN, INF = float("nan"), float("inf")
VALUES: dict[str, list[Any]] = {
    "BOOLEAN": [True, False],
    "TINYINT": [-128, 0, 127],
    "BIGINT": [-(2**63), 2**63 - 1],
    "FLOAT": [0.5, -0.0, 2.0**-20, 16777216.0, NAN],
    "DOUBLE": [
        *(0.0, -0.0, 1.0, 0.1, -2.5, 1e15, 1e16, 123456789012345.6, 999999999999999.9, 1e22, 1e-4, 1e-5, 1.5e-7, 5e-324),
        *(1.7976931348623157e308, NAN, INF, -INF, 10000000000.0, 12345678901.25, 0.00012345),
    ],
    "DECIMAL(38, 10)": [Decimal("0E-10"), Decimal("-0.0000000001"), Decimal("1234567890123456789012345678.0000000000")],
    "STRING": ["", "NULL", 'a "b"', "a,b", "line\nbreak", "\r", "tab\t", "\x00\x1f\x7f", "back\\slash", "ä数😀", *CONTROLS],
    "CHAR(3)": ["a  "],
    "BYTES": [b"", b"\x00\xff", b"abc"],
    "BINARY(2)": [b"\x01\x02"],
    "DATE": [0, -719529, 2932897, 19000],
    "TIME(3)": [0, 86399999, 36000000],
    "TIMESTAMP(3)": [Timestamp(0), Timestamp(-1), Timestamp(253402300800000)],
    "TIMESTAMP(6)": [Timestamp(0, 1000), Timestamp(1700000000123, 456000)],
    "TIMESTAMP(9)": [Timestamp(0, 1)],
    "TIMESTAMP(0) WITH LOCAL TIME ZONE": [Timestamp(1000)],
    "ARRAY<STRING>": [[], ["a", None, 'x"'], ["\x9b", "\u2066ä"]],
    "MAP<STRING, INT>": [[("b", 1), ("a", None)]],
    "ROW<x INT, y DOUBLE>": [(1, NAN), (None, 0.5)],
}


@pytest.mark.parametrize("sql", VALUES)
@pytest.mark.parametrize("with_null", [False, True])
def test_columns_are_what_their_values_are(sql: str, with_null: bool) -> None:
    t = parse_sql_type(sql)
    values = [*VALUES[sql], *([None] if with_null else [])]
    array = values_to_arrow([None, *values, *values], t).slice(1)
    plain = [canonical_json(value, t) for value in values * 2]
    expected = [text if text is None or isinstance(text, str) else compact_json(text) for text in plain]
    assert canonical_texts(array, t).to_pylist() == expected
    texts, unquoted = json_texts(array, t)
    assert [f'"{text}"' if unquoted else text for text in texts.to_pylist()] == list(map(printed, plain))
    assert canonical_texts(array.slice(0, 0), t).to_pylist() == []


def test_random_floats_are_as_python_has_them() -> None:
    source = random.Random(5)
    values = [source.choice([1, -1]) * source.random() * 10.0 ** source.randint(-20, 25) for _ in range(5000)]
    values += [float(source.randint(-(10**17), 10**17)) for _ in range(2000)]
    t = parse_sql_type("DOUBLE")
    assert canonical_texts(pa.array(values), t).to_pylist() == [compact_json(value) for value in values]


def _csv_line(row: dict[str, Any]) -> str:
    cells = ["" if v is None else v if isinstance(v, str) else compact_json(v) for v in row.values()]
    empty = [v == "" for v in row.values()]
    quoted = (
        '"' + c.replace('"', '""') + '"' if e or any(s in c for s in ',"\r\n') else c for c, e in zip(cells, empty, strict=True)
    )
    return ",".join(quoted) + "\n"


@pytest.mark.parametrize("rows", [1, 7, 40])
def test_rows_as_csv_and_json_lines(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    source = random.Random(rows)
    fields = [DataField(n, f'c "{n}", {sql}', parse_sql_type(sql)) for n, sql in enumerate(VALUES)]
    columns = [values_to_arrow([source.choice([*VALUES[sql], None]) for _ in range(rows)], parse_sql_type(sql)) for sql in VALUES]
    batch = pa.RecordBatch.from_arrays(columns, names=[field.name for field in fields])
    expected = list(canonical_rows(batch, fields))
    csv, lines = CsvRows(fields), JsonRows(fields)
    monkeypatch.setattr(PIECES, "text_batch_bytes", max(batch.nbytes // 3, 1))
    pieces = list(bounded(batch))
    assert len(pieces) >= min(rows, 3)
    assert b"".join(bytes(csv.rows(piece)) for piece in pieces).decode() == "".join(map(_csv_line, expected))
    assert b"".join(bytes(lines.rows(piece)) for piece in pieces).decode() == "".join(printed(row) + "\n" for row in expected)
    assert csv.head().decode() == _csv_line({field.name: field.name for field in fields})
    assert [json.loads(text) for text in lines.objects(batch).to_pylist()] == json.loads(json.dumps(expected))


def test_rows_without_special_strings_use_the_writer_of_arrow() -> None:
    fields = [DataField(0, "k", parse_sql_type("INT")), DataField(1, "s", parse_sql_type("STRING"))]
    rows = CsvRows(fields)
    for texts, expected in (
        (["a", None], "1,a\n2,\n"),
        (["a", ""], '1,a\n2,""\n'),
        (["a,b", "c"], '1,"a,b"\n2,c\n'),
        (["a", "c"], "1,a\n2,c\n"),
    ):
        batch = pa.RecordBatch.from_arrays([pa.array([1, 2], pa.int32()), pa.array(texts, pa.string())], names=["k", "s"])
        assert bytes(rows.rows(batch)).decode() == expected


@pytest.mark.parametrize("before", ["", "x" * 5_000])
def test_every_character_is_escaped_as_in_json(before: str) -> None:
    """Each alone, so that it is not found for the sake of another; also behind what is looked at first."""
    for code in [*range(0x3000), 0x1F600]:
        assert escaped(pa.array([before, chr(code)]))[1].as_py() == json_text(chr(code))[1:-1]


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("ARRAY<VARIANT>", lambda v: [v, None], "[D,null]"),
        ("ROW<x VARIANT, y INT>", lambda v: {"x": v, "y": 1}, '{"x":D,"y":1}'),
        ("MAP<STRING, VARIANT>", lambda v: [("b", v), ("a", v)], '[["a",D],["b",D]]'),
    ],
)
def test_a_variant_within_another_type_keeps_its_digits(kind: str, value: Any, text: str) -> None:
    digits = "87061691966356355709.35794221546"
    stored, metadata = variant_of(Decimal(digits))
    t = parse_sql_type(kind)
    array = pa.array([value({"value": stored, "metadata": metadata}), None], arrow_type(t))
    assert json_texts(array, t)[0].to_pylist() == [text.replace("D", digits), "null"]
    assert canonical_texts(array, t).to_pylist() == [text.replace("D", digits), None]
