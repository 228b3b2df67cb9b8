"""Rows on stdout: aligned cells that say what they are, in every format, batch by batch."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from paimon_cli.cli import text_view
from paimon_cli.cli.command import Call
from paimon_cli.cli.output import OutputFormat
from paimon_cli.cli.results import View
from paimon_cli.cli.row_output import CountedRows, _aligned, _cells, _width, print_rows
from paimon_cli.datatypes.data_type import ArrayType, DataField
from paimon_cli.datatypes.type_text import parse_type_text
from paimon_cli.errors import UsageError

FIELDS = [DataField(0, "n", parse_type_text("BIGINT")), DataField(1, "text\x1b", parse_type_text("STRING"))]


class Batches:
    """Rows of the fields `n` and `text`, in batches of these numbers."""

    def __init__(self, *numbers: Sequence[int]) -> None:
        self.numbers = numbers
        self.fields: Sequence[DataField] = FIELDS

    def rows(self) -> Iterator[pa.RecordBatch]:
        for part in self.numbers:
            columns = [pa.array(part, pa.int64()), pa.array([f"r{n}" for n in part], pa.string())]
            yield pa.RecordBatch.from_arrays(columns, names=["n", "text\x1b"])


def printed(capfd: pytest.CaptureFixture[str], rows: Any, call: Call, **more: Any) -> str:
    print_rows(rows, "t", call, **more)
    return capfd.readouterr().out


def test_rows_of_all_batches_are_shown_and_counted(capfd: pytest.CaptureFixture[str]) -> None:
    rows = CountedRows(Batches([1, 22], [], [333]))
    table = "  n  text\\x1b\n  1  r1\n 22  r22\n333  r333\n3 rows\n"
    assert printed(capfd, rows, Call()) == table and rows.count == 3
    assert printed(capfd, Batches([1, 22], [333]), Call(), at_once=True) == " n  text\\x1b\n 1  r1\n22  r22\n333  r333\n3 rows\n"
    records = "-- 1 --\nn         7\ntext\\x1b  r7\n-- 2 --\nn         8\ntext\\x1b  r8\n2 rows\n"
    for at_once in (False, True):
        assert printed(capfd, Batches([7], [8]), Call(view=View(vertical=True)), at_once=at_once).replace("\n\n", "\n") == records
        assert printed(capfd, Batches(), Call(), at_once=at_once) == "n  text\\x1b\n0 rows\n"


@pytest.mark.parametrize(
    ("output", "text"),
    [
        (OutputFormat.CSV, "text\x1b,n\nr1,1\nr2,2\nr3,3\n"),
        (OutputFormat.NDJSON, "".join(f'{{"text\\u001b":"r{n}","n":{n}}}\n' for n in (1, 2, 3))),
        (OutputFormat.TABLE, "text\\x1b  n\nr1        1\nr2        2\nr3        3\n3 rows\n"),
    ],
    ids=["csv", "ndjson", "table"],
)
def test_chosen_fields_come_in_their_own_order(capfd: pytest.CaptureFixture[str], output: OutputFormat, text: str) -> None:
    assert printed(capfd, Batches([1], [2, 3]), Call(output=output, fields=("text\x1b", "n"))) == text
    for fields in (("n", "none"), ("n", "n")):
        with pytest.raises(UsageError):
            print_rows(Batches([1]), "t", Call(output=output, fields=fields))
    assert "none" not in capfd.readouterr().out


@pytest.mark.parametrize("numbers", [[], [[1]], [[1, 2], [], [3]], [[1], [2], [3, 4]]])
def test_rows_in_json_are_one_document(capfd: pytest.CaptureFixture[str], numbers: list[list[int]]) -> None:
    shown = json.loads(printed(capfd, Batches(*numbers), Call(output=OutputFormat.JSON)))
    assert (shown["kind"], shown["table"]) == ("RowList", "t")
    assert shown["items"] == [{"n": n, "text\x1b": f"r{n}"} for part in numbers for n in part]


@pytest.mark.parametrize("output", [OutputFormat.NDJSON, OutputFormat.CSV, OutputFormat.TABLE])
def test_each_batch_is_shown_before_the_next_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: OutputFormat
) -> None:
    seen: list[bool] = []
    target = tmp_path / "out"

    class Slow(Batches):
        def rows(self) -> Iterator[pa.RecordBatch]:
            for number, batch in enumerate(super().rows(), 1):
                yield batch
                seen.append(f"r{number}" in target.read_text())

    with target.open("w", encoding="utf-8") as stream, monkeypatch.context() as replaced:
        replaced.setattr(sys, "stdout", stream)
        print_rows(Slow([1], [2]), "t", Call(output=output), at_once=True)
    assert seen == [True, True]


def cells(column_type: str, values: list[Any], arrow: pa.DataType | None = None) -> list[str]:
    found: list[str] = _cells(pa.array(values, arrow), DataField(0, "c", parse_type_text(column_type))).to_pylist()
    return found


def test_cells_say_what_they_are_and_steer_no_terminal() -> None:
    assert cells("STRING", ["a", None, "NULL", '"NULL"', "NULLs", ""]) == ["a", "NULL", '"NULL"', '""NULL""', "NULLs", ""]
    assert cells("STRING", ["\x1b[2J", "a\x9bb", "\x07x", "tail\n", "ok é", None]) == [
        "\\x1b[2J",
        "a\\x9bb",
        "\\x07x",
        "tail\\n",
        "ok é",
        "NULL",
    ]
    assert cells("BIGINT", [7, None], pa.int64()) == ["7", "NULL"]
    of_texts = DataField(0, "c", ArrayType(element=parse_type_text("STRING")))
    (nested,) = _cells(pa.array([["a\x9b"]], pa.list_(pa.string())), of_texts).to_pylist()
    assert "\\x9b" in nested and "\x9b" not in nested


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    assert _width("id", pa.array(["1", "22222", ""])) == 5
    assert _width("a title", pa.array(["1"])) == 7 and _width("id", pa.array([], pa.string())) == 2
    assert _width("id", pa.array(["\u65e5\u672c\u8a9e", "a"])) == 6 and _width("\u65e5\u672c", pa.array(["a"])) == 4


@pytest.mark.parametrize(
    ("is_terminal", "right", "shown"),
    [
        (True, False, ["abc  ", "abcde", "abcd…", "\u65e5\u672c…"]),
        (True, True, ["  abc", "abcde", "abcdef", "\u65e5\u672c\u8a9e"]),
        (False, False, ["abc  ", "abcde", "abcdef", "\u65e5\u672c\u8a9e"]),
        (False, True, ["  abc", "abcde", "abcdef", "\u65e5\u672c\u8a9e"]),
    ],
)
def test_only_texts_are_cut_and_only_on_terminals(
    monkeypatch: pytest.MonkeyPatch, is_terminal: bool, right: bool, shown: list[str]
) -> None:
    monkeypatch.setattr(text_view, "is_terminal", lambda: is_terminal)
    texts = ["abc", "abcde", "abcdef"]
    assert _aligned(pa.array(texts), 5, right).to_pylist() == shown[:3]
    assert _aligned(pa.array(["\u65e5\u672c\u8a9e"]), 5, right).to_pylist() == shown[3:]


def test_hidden_columns_are_named_and_take_their_cells_along(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = text_view.Layout((1,), (4,), "hidden: n")
    monkeypatch.setattr(text_view, "laid_out", lambda heads, widths, view: layout)
    assert printed(capfd, Batches([1], [22]), Call()).splitlines()[1:] == ["r1", "r22", "hidden: n", "2 rows"]
