"""Quotes of CSV: cells that are never closed, and text after a closing quote, against Python's own reader in strict mode."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import random
from pathlib import Path

import pytest

from paimon_cli.errors import BadInput
from paimon_cli.ingest.csv_quotes import CheckedQuotes, CsvSyntax, MisquotedRows
from paimon_cli.ingest.faults import AFTER_QUOTE, Tally
from paimon_cli.ingest.inference import columns_of_file
from paimon_cli.ingest.row_sources import FileRows
from paimon_cli.ingest.rows import IncomingRows
from paimon_cli.ingest.text_form import TextForm
from paimon_cli.pieces import PIECES
from tests.ingest.input_files import schema_of, text_file
from tests.nightly import at_night

SCHEMA = schema_of({"id": "STRING", "v": "STRING"})
CUT = 'id,v\n1,"a"\n2,"b\n3,c\n4,d\n'


def _read(path: Path, form: TextForm = TextForm(), *, skips: bool = False) -> tuple[list[tuple[str | None, ...]], Tally]:  # noqa: B008
    source, tally = FileRows((str(path),), form=form), Tally()
    incoming = IncomingRows(SCHEMA, source=source, skips_bad_rows=skips)
    batches = [batch for split in source.plan() for batch in incoming.read(split, tally)]
    return [tuple(row[name] for name in ("id", "v")) for batch in batches for row in batch.to_pylist()], tally


class _Open(Exception):
    pass


def _verdict(text: bytes, syntax: CsvSyntax, block: int) -> tuple[bool, list[int], int | None]:
    """Whether the check finds an open cell, the misquoted rows, and the line of the open cell."""

    def fail() -> None:
        raise _Open

    checked = CheckedQuotes(io.BytesIO(text), syntax, fail)
    is_open = False
    try:
        while checked.read(block):
            pass
    except _Open:
        is_open = True
    rows = MisquotedRows(io.BytesIO(text), syntax)
    numbers = [row.number for row in rows]
    assert checked.is_misquoted == bool(numbers) and is_open == (rows.open_cell is not None)
    return is_open, numbers, rows.open_cell.line if rows.open_cell else None


def _expected(text: str) -> tuple[bool, list[int], int | None]:
    """The same by a plain state machine."""
    state, row, line, width, misquoted, opened = "start", 0, 1, 0, [], None
    for character in [*text, None]:
        if state == "quoted" and character is not None:
            state = "closing" if character == '"' else state
        elif state == "closing" and character == '"':
            state = "quoted"
        else:
            if state == "closing" and character not in (",", "\n", "\r", None) and row not in misquoted:
                misquoted.append(row)
            if character == '"' and state == "start":
                state, opened = "quoted", line
            elif character == ",":
                state = "start"
            elif character in ("\n", "\r"):
                state, row, width = "start", row + (width > 0), -1
            elif character is not None:
                state = "plain"
        line += character == "\n"
        width += 1
    return (True, misquoted, opened) if state == "quoted" else (False, misquoted, None)


@pytest.mark.parametrize("texts", [500, at_night(3000)])
@pytest.mark.parametrize("block", [1, 2, 3, 7, 1 << 20])
def test_random_texts_are_judged_as_by_a_state_machine(block: int, texts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PIECES, "quote_piece_bytes", max(2, block))
    chosen = random.Random(block)
    for _ in range(texts):
        text = "".join(chosen.choices('",\na"" x\r'[: chosen.choice((4, 9, 10))], k=chosen.randrange(14)))
        if "\r" in text:  # its lines are counted by \n alone
            assert _verdict(text.encode(), CsvSyntax('"', ","), block)[:2] == _expected(text)[:2], text
        else:
            assert _verdict(text.encode(), CsvSyntax('"', ","), block) == _expected(text), text


@pytest.mark.parametrize("block", [1, 3, 1 << 20])
def test_escaped_quotes_open_and_close_nothing(block: int) -> None:
    syntax = CsvSyntax('"', ",", "\\")
    assert _verdict(rb'\"a,"b\"c","d\\"' + b"\n", syntax, block) == (False, [], None)
    assert _verdict(rb'a\,"b,c' + b"\n", syntax, block) == (False, [], None)
    assert _verdict(rb'x,"d\"' + b"\n", syntax, block) == (True, [], 1)
    assert _verdict(rb'x,"d\\"e' + b"\n", syntax, block) == (False, [0], None)


@pytest.mark.parametrize(
    ("name", "content", "form"),
    [
        ("a.csv", CUT, TextForm()),
        ("a.tsv", CUT.replace(",", "\t"), TextForm()),
        ("a.csv", CUT.replace('"', "'"), TextForm(quote="'")),
        ("a.csv", CUT.replace(",", ";"), TextForm(delimiter=";")),
        ("a.csv", CUT.encode("utf-16"), TextForm(encoding="utf-16")),
        ("a.csv", b"\xef\xbb\xbf" + CUT.encode(), TextForm()),
        ("a.csv", CUT.removeprefix("id,v\n"), TextForm(header=False)),
        ("a.csv", CUT.replace("\n", "\r\n"), TextForm()),
    ],
)
def test_a_cell_that_is_never_closed_is_refused_with_line_and_text(
    name: str, content: str | bytes, form: TextForm, tmp_path: Path
) -> None:
    line = 3 if form.header else 2
    plain = content if isinstance(content, bytes) else content.encode()
    for path in (text_file(tmp_path, plain, name), tmp_path / f"{name}.gz", tmp_path / f"{name}.bz2"):
        packed = {".gz": gzip.compress(plain), ".bz2": bz2.compress(plain)}
        path.write_bytes(packed.get(path.suffix, plain))
        for skips in (False, True):
            with pytest.raises(BadInput, match=f"line {line}: a quoted cell is never closed") as caught:
                _read(path, form, skips=skips)
            assert "b" in caught.value.why and "\n" not in caught.value.why
            assert caught.value.details["line"] == line and caught.value.details["faults"][0]["row"] == 2
        with pytest.raises(BadInput, match="never closed"):
            columns_of_file(str(path), None, form)


@pytest.mark.parametrize("content", ['"id,v\n1,a\n', 'id,"v\n1,a\n', 'id,"v', "id,v\n" + '1,"' + "x" * 40_000 + "\n"])
def test_an_open_header_and_an_open_cell_longer_than_a_block(
    content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PIECES, "csv_block_bytes", 10_000)
    with pytest.raises(BadInput, match="never closed"):
        _read(text_file(tmp_path, content, "a.csv"))


def test_text_after_a_closing_quote_is_a_fault_of_its_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PIECES, "csv_block_bytes", 500)
    monkeypatch.setattr(PIECES, "batch_rows", 7)
    lines = [
        f'{n},"a\nb" c' if n % 10 == 3 else f"{n}" if n % 10 == 5 else f'{n},5" pipe' if n % 2 else f'{n},"x ""{n}"" \n"'
        for n in range(200)
    ]
    path = text_file(tmp_path, "id,v\n" + "\n\n".join(lines), "a.csv")
    with pytest.raises(BadInput, match="row 4"):
        _read(path)
    rows, tally = _read(path, skips=True)
    assert [int(row[0] or "") for row in rows] == [n for n in range(200) if n % 10 not in (3, 5)]
    assert tally.bad_rows == 40 and [fault.row for fault in tally.first][:4] == [4, 6, 14, 16]
    assert [fault.why.endswith(AFTER_QUOTE) for fault in tally.first][:4] == [True, False, True, False]
    assert tally.first[0].value == '3,"a\nb" c'
    assert rows[0][1] == 'x "0" \n' and rows[1][1] == '5" pipe'
    assert _read(path, TextForm(quote=""), skips=True)[1].bad_rows > 0


@pytest.mark.parametrize("piece", [3, 1 << 18])
def test_texts_are_shown_with_their_escapes(piece: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PIECES, "quote_piece_bytes", piece)
    form = TextForm(escape="\\")
    with pytest.raises(BadInput) as caught:
        _read(text_file(tmp_path, 'id,v\n1,"a\\"c\n2,b\n', "a.csv"), form)
    assert str(caught.value.details["value"]).startswith('"a\\"c\n2,b')
    tally = _read(text_file(tmp_path, 'id,v\n1,"a\\"c" d\n2,b\n', "b.csv"), form, skips=True)[1]
    assert tally.first[0].value == '1,"a\\"c" d'


@pytest.mark.parametrize("piece", [40, 1 << 18])
def test_a_quote_that_takes_many_lines_says_which(piece: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One row of the file, but not one line: whoever skips it must see that."""
    monkeypatch.setattr(PIECES, "quote_piece_bytes", piece)
    lines = ["id,v", "1,a", '2,"5 inch', *(f"{n},b" for n in range(3, 100)), '100,"6 inch', "101,ok", '102,"c" d', "103,e"]
    rows, tally = _read(text_file(tmp_path, "\n".join(lines) + "\n", "a.csv"), skips=True)
    assert [row[0] for row in rows] == ["1", "101", "103"]
    assert [fault.why for fault in tally.first] == [f"it takes the lines 3 to 101: {AFTER_QUOTE}", AFTER_QUOTE]
    assert str(tally.first[0].value).startswith('2,"5 inch\n3,b\n4,b\n') and tally.first[1].value == '102,"c" d'


def test_rows_with_both_faults_are_listed_once(tmp_path: Path) -> None:
    path = text_file(tmp_path, 'id,v\n1,"a" b,c\n2,b\n3,"x" y\n4,"x"\n', "a.csv")
    rows, tally = _read(path, skips=True)
    assert [row[0] for row in rows] == ["2", "4"] and [fault.row for fault in tally.first] == [1, 3]


def test_a_header_with_text_after_a_quote_is_refused(tmp_path: Path) -> None:
    for content in ('"id"x,v\n1,2\n', '"id"x,v'):
        with pytest.raises(BadInput, match=r"column|header"):
            _read(text_file(tmp_path, content, "a.csv"))
        with pytest.raises(BadInput, match="cannot read the header"):
            columns_of_file(str(tmp_path / "a.csv"))


def test_sound_files_are_read_as_python_reads_them(tmp_path: Path) -> None:
    chosen = random.Random(1)
    for number in range(40):
        rows = [[str(n), "".join(chosen.choices("ab\",\n' ", k=chosen.randrange(1, 8)))] for n in range(50)]
        path = tmp_path / f"{number}.csv"
        with path.open("w", newline="") as file:
            csv.writer(file, lineterminator=chosen.choice(("\n", "\r\n"))).writerows([["id", "v"], *rows])
        assert [list(row) for row in _read(path)[0]] == rows


def test_a_row_that_is_left_out_is_counted_once_however_many_batches_a_block_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PIECES, "batch_rows", 2)
    rows = [f"{number},x" for number in range(8)]
    rows[3:5] = ["3,x,y", '4,"x"y']
    found, tally = _read(text_file(tmp_path, "id,v\n" + "\n".join(rows) + "\n", "a.csv"), skips=True)
    assert [id for id, _ in found] == [*"012567"]
    assert (tally.rows, tally.bad_rows, [fault.row for fault in tally.first]) == (6, 2, [4, 5])
