"""Rows of every type through the engine, in every format, and back; statistics as they must be."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from paimon_cli.datatypes.data_type import MAX_NESTING
from paimon_cli.datatypes.internal_values import Timestamp, timestamp_text
from paimon_cli.errors import NotSupported
from tests.bucket.canonical_values import values
from tests.tables import compact, make_table, rows, write

ATOMIC_TYPES = """
    BOOLEAN; TINYINT; SMALLINT; INT; BIGINT; FLOAT; DOUBLE; DECIMAL(5, 2); DECIMAL(18, 0); DECIMAL(38, 20); CHAR(3);
    VARCHAR(4); STRING; BINARY(5); BYTES; DATE; TIME(3); TIMESTAMP(0); TIMESTAMP(3); TIMESTAMP(6);
    TIMESTAMP(6) WITH LOCAL TIME ZONE"""
ATOMIC = {f"c{number}": text.strip() for number, text in enumerate(ATOMIC_TYPES.split(";"))}
NESTED = {
    "a": "ARRAY<INT>",
    "b": "ARRAY<CHAR(3) NOT NULL>",
    "c": "MAP<STRING, TIMESTAMP(3)>",
    "d": "MAP<INT NOT NULL, ROW<x DATE, y TIME(0) NOT NULL, z CHAR(2)>>",
    "e": "MULTISET<STRING>",
    "f": "MULTISET<DECIMAL(20, 3)>",
    "g": "ROW<p ARRAY<MAP<STRING, DOUBLE>>, q ROW<r BIGINT NOT NULL, s TIMESTAMP(6) WITH LOCAL TIME ZONE>>",
    "h": "ARRAY<ARRAY<BYTES>>",
}
NANOS = {"a": "TIMESTAMP(9)", "b": "TIMESTAMP(7) WITH LOCAL TIME ZONE", "c": "ARRAY<TIMESTAMP(9)>", "d": "INT"}
KEYS = {"a": "TIMESTAMP(6)", "b": "DECIMAL(20, 2)", "c": "CHAR(3)", "d": "BYTES", "e": "BOOLEAN", "f": "DOUBLE", "g": "TIME(3)"}
FORMATS = ("parquet", "orc", "avro")
CASES = [
    *((columns, file_format) for columns in (ATOMIC, NESTED) for file_format in FORMATS),
    *((NANOS, file_format) for file_format in ("parquet", "orc")),
    *((KEYS, file_format) for file_format in ("orc", "avro")),
]
NAMES = [f"{len(columns)} columns, {file_format}" for columns, file_format in CASES]
QUICK = settings(max_examples=6, phases=[Phase.generate], suppress_health_check=list(HealthCheck), database=None)
"""Shrinking would take minutes: an example writes a table."""


@pytest.mark.parametrize(("columns", "file_format"), CASES, ids=NAMES)
@QUICK
@given(data=st.data())
@pytest.mark.in_part(2)
def test_round_trip(columns: dict[str, str], file_format: str, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        keys = tuple(columns) if columns is KEYS else ("id",)
        types = {"id": "INT", **columns}
        types = {key: f"{text} NOT NULL" if key in keys else text for key, text in types.items()}
        context = make_table(Path(folder) / "t", types, keys, options={"file.format": file_format})
        row = {field.name: values(field.type) for field in context.schema.fields}
        unique = partial(_texts, keys)
        drawn = data.draw(st.lists(st.fixed_dictionaries(row), min_size=1, max_size=5, unique_by=unique))
        if file_format == "orc":
            drawn = list({unique(row): row for row in map(_as_orc_holds_it, drawn)}.values())
        write(context, drawn)
        assert sorted(rows(context), key=unique) == sorted(drawn, key=unique)
        compact(context, strategy="full")
        assert sorted(rows(context), key=unique) == sorted(drawn, key=unique)


def _as_orc_holds_it(row: dict[str, Any]) -> dict[str, Any]:
    """Times before 1970 in whole milliseconds; others are refused."""
    cut = re.sub(r'"(\d{4}-[^"]{14}\.\d{3})\d+(Z?)"', _in_millis, json.dumps(row, ensure_ascii=False))
    return json.loads(cut)


def _in_millis(found: re.Match[str]) -> str:
    if found[1] >= "1970":
        return found[0]
    passed = datetime.fromisoformat(found[1]) - datetime(1970, 1, 1)
    return json.dumps(timestamp_text(Timestamp(passed // timedelta(milliseconds=1), 0)) + found[2])


def _texts(keys: tuple[str, ...], row: dict[str, Any]) -> str:
    return json.dumps([row[key] for key in keys])


LEVELS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "ARRAY": ("ARRAY<{}>", lambda value: [value]),
    "MAP": ("MAP<STRING, {}>", lambda value: [["k", value]]),
    "ROW": ("ROW<f {}>", lambda value: {"f": value}),
    "INT MAP": ("MAP<INT, {}>", lambda value: [[1, value]]),
}


def _nested(kinds: list[str], depth: int) -> tuple[str, Any]:
    """A type that is nested so deep, its levels of these kinds in turn, and a value in canonical form."""
    text, value = "INT", 7
    for level in range(depth):
        template, wrapped = LEVELS[kinds[level % len(kinds)]]
        text, value = template.format(text), wrapped(value)
    return text, value


@pytest.mark.in_part(4)
@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize("kinds", [["ARRAY"], ["MAP"], ["ROW"], ["INT MAP"], ["INT MAP", "ARRAY", "ROW"]], ids="-".join)
def test_the_greatest_depth_is_read_back(kinds: list[str], file_format: str, tmp_path: Path) -> None:
    text, value = _nested(kinds, MAX_NESTING)
    options = {"file.format": file_format, "changelog-producer": "input"}
    context = make_table(tmp_path / "t", {"id": "INT NOT NULL", "v": text}, ["id"], options=options)
    for number in (1, 2):
        write(context, [{"id": number, "v": value}, {"id": 3, "v": None}])
    expected = [{"id": 1, "v": value}, {"id": 2, "v": value}, {"id": 3, "v": None}]
    assert rows(context) == expected
    compact(context)
    assert rows(context) == expected


@pytest.mark.parametrize("kinds", [["ARRAY"], ["MAP"], ["ROW"]], ids="-".join)
def test_deeper_types_are_not_written(kinds: list[str], tmp_path: Path) -> None:
    text, _ = _nested(kinds, MAX_NESTING + 1)
    context = make_table(tmp_path / "t", {"id": "INT NOT NULL", "v": text}, ["id"])
    with pytest.raises(NotSupported, match=r"column 'v'\n?.*nested 31 levels deep"):
        write(context, [{"id": 1, "v": None}])


def test_a_file_of_another_writer_that_is_too_deep_is_not_called_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = make_table(tmp_path / "t", {"id": "INT NOT NULL", "v": _nested(["ARRAY"], 50)[0]}, ["id"])
    with monkeypatch.context() as patched:
        patched.setattr("paimon_cli.bucket.file_encoders.MAX_NESTING", 50)
        write(context, [{"id": 1, "v": None}])
    with pytest.raises(NotSupported, match="column 'v' is nested 50 levels deep"):
        rows(context)
