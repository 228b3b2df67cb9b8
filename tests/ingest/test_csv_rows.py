"""Rows of CSV files as they are read: cells, numbers of rows, and faults, whatever the sizes of blocks and batches."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import pytest

from paimon_cli.errors import BadInput, PaimonError, UsageError
from paimon_cli.ingest.csv_rows import csv_batches
from paimon_cli.ingest.source_files import SourceSplit
from paimon_cli.ingest.text_form import TextForm
from paimon_cli.pieces import PIECES

Read = tuple[list[tuple[int, Any]], list[int]]


def read(text: str, name: str = "a.csv", by_position: Sequence[str] = (), **form: Any) -> Read:
    """The rows with their numbers from 1, and those of the rows that are refused, as they are told."""
    split = SourceSplit(name, "csv", 0, None, 0, 0, name)
    rows, faults = list[tuple[int, Any]](), list[int]()
    for found in csv_batches(lambda: io.BytesIO(text.encode()), split, TextForm(**form), by_position):
        assert len(found.rows) == found.batch.num_rows <= PIECES.batch_rows
        rows += zip((found.rows + 1).tolist(), found.batch.to_pylist(), strict=True)
        faults += [fault.row for fault in found.faults]
    return rows, faults


def cells(text: str, name: str = "a.csv", by_position: Sequence[str] = (), **form: Any) -> list[Any]:
    """The cells of the rows, in a text for each row, of a file without faults."""
    rows, faults = read(text, name, by_position, **form)
    assert not faults and [number for number, _ in rows] == list(range(1, len(rows) + 1))
    return [{key: None if cell is None else cell.decode() for key, cell in row.items()} for _, row in rows]


@pytest.mark.parametrize("batch", [1, 3, 1000])
@pytest.mark.parametrize("block", [30, 200, 1 << 20])
@pytest.mark.parametrize("header", [True, False])
def test_refused_rows_are_told_once_and_the_others_keep_their_numbers(
    header: bool, block: int, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows with too few or too many cells, and with something behind a closing quote, also as the first, last or only ones of a
    block; with line breaks in cells, and empty lines.
    """
    monkeypatch.setattr(PIECES, "csv_block_bytes", block)
    monkeypatch.setattr(PIECES, "batch_rows", batch)
    kinds = ["{0},x", '{0},"a\nb"', "{0}", "{0},x,y", '{0},"a"b', '"{0}"c,"a""b"', '{0},"a,\n{0}"b', "\n{0},x"]
    good = {0, 1, 7}
    orders = [[0, 2, 0, 3, 4, 0, 5, 6, 7, 1, 1], [0, *([2] * 20), 0, *([4] * 20), 1], [0, 4, 2], [1, 4, 4, 0, 6, 6, 3]]
    for order in orders:
        lines = [kinds[kind].format(number) for number, kind in enumerate(order, 1)]
        text = "\n".join(["k,v", *lines] if header else lines)
        rows, faults = read(text, header=header, columns=() if header else ["k", "v"])
        wrong = [number for number, kind in enumerate(order, 1) if kind not in good]
        assert sorted(faults) == wrong
        assert [number for number, _ in rows] == [number for number, kind in enumerate(order, 1) if kind in good]
        assert [row["k"].decode() for _, row in rows] == [str(number) for number, _ in rows]
        assert {row["v"] for _, row in rows} <= {b"x", b"a\nb"}
        if block == 1 << 20:
            assert faults == wrong, "in their order"


@pytest.mark.parametrize(
    "text, form, expected",
    [
        ("k,v\n1,a\n", {}, [{"k": "1", "v": "a"}]),
        ("\ufeffk,v\n1,a", {}, [{"k": "1", "v": "a"}]),
        ("\n\r\nk,v\n\n1,a\n\n", {}, [{"k": "1", "v": "a"}]),
        ("\n1,a", {"header": False}, [{"c1": "1", "c2": "a"}]),
        ("1,a", {"header": False}, [{"c1": "1", "c2": "a"}]),
        ("", {}, []),
        ("\n\n", {}, []),
        ("k,v", {}, []),
        (",v\n1,a", {}, [{"c1": "1", "v": "a"}]),
        ("007,v\n010,a", {}, [{"007": "010", "v": "a"}]),
        ("k,k\n1,a", {"columns": ["x", "y"]}, [{"x": "1", "y": "a"}]),
        (
            'k,v\n"",NA\n,"NA"\n-,a',
            {"null_values": ["NA", "-"]},
            [{"k": "", "v": None}, {"k": None, "v": "NA"}, {"k": None, "v": "a"}],
        ),
        ("k;v\n1;a", {"delimiter": ";"}, [{"k": "1", "v": "a"}]),
        ("a;b\n1;2", {"delimiter": ","}, [{"a;b": "1;2"}]),
        ('k,v\n1,a\\,\\"b', {"escape": "\\"}, [{"k": "1", "v": 'a,"b'}]),
        ('k,v\n1,"a', {"quote": ""}, [{"k": "1", "v": '"a'}]),
        ("k,v\n1,'a,''b'", {"quote": "'"}, [{"k": "1", "v": "a,'b"}]),
    ],
)
def test_cells_and_names(text: str, form: Any, expected: list[Any]) -> None:
    assert cells(text, **form) == expected


def test_names_of_a_file_without_header() -> None:
    """Those that the form gives, else those of the table, by position."""
    assert cells("1,a", by_position=["k", "v"], header=False) == [{"k": "1", "v": "a"}]
    assert cells("1,a", by_position=["k", "v"], header=False, columns=["v", "k"]) == [{"v": "1", "k": "a"}]
    for columns in (["k"], ["k", "v", "w"]):
        with pytest.raises(BadInput, match=r"a\.csv has 2 columns, the table has"):
            read("1,a", by_position=columns, header=False)
        with pytest.raises(BadInput, match=r"a\.csv has 2 columns, .*columns names"):
            read("k,v\n1,a", columns=columns)
    for text in ("k,k\n1,a", ",c1\n1,a", "k,k"):
        with pytest.raises(BadInput, match="appears twice"):
            read(text)


@pytest.mark.parametrize("name", ["a.tsv", "a.TAB"])
def test_a_file_of_tabs(name: str) -> None:
    """Its quotes stand beside tabs, and no other character may mean the same."""
    assert read('k\tv\n1\t"a"b\n2\t"a,"\n3\t"a\tb"\n', name) == (
        [(2, {"k": b"2", "v": b"a,"}), (3, {"k": b"3", "v": b"a\tb"})],
        [1],
    )
    assert cells("k,v\n1,a", name, delimiter=",") == [{"k": "1", "v": "a"}]
    for form in ({"quote": "tab"}, {"escape": "tab"}):
        with pytest.raises(UsageError, match="cannot mean two things"):
            read("k\tv\n1\ta\n", name, **form)


@pytest.mark.parametrize(
    "text, form, row, what",
    [
        ('"k,v\n1,a\n2,b\n', {}, 0, "line 1: a quoted cell is never closed"),
        ('k,v\n1,a\n2,"b\n3,c\n', {}, 2, "line 3: a quoted cell is never closed"),
        ('1,a\n2,"b\n3,c\n', {"header": False}, 2, "line 2: a quoted cell is never closed"),
        ('k,v\n1,"b\\"\n3,c\n', {"escape": "\\"}, 1, "line 2: a quoted cell is never closed"),
    ],
)
def test_a_cell_that_takes_the_rest_of_the_file(text: str, form: Any, row: int, what: str) -> None:
    with pytest.raises(BadInput, match=what) as caught:
        read(text, **form)
    assert caught.value.details["faults"][0]["row"] == row


@pytest.mark.parametrize("text", ['"k"a,v\n1,b\n', '"k"a,v', 'k,"v"\'\n1,b', '"k"a,v\n'])
def test_a_header_with_something_behind_a_quote(text: str) -> None:
    with pytest.raises(PaimonError, match=r"cannot read the header of a\.csv"):
        read(text)
