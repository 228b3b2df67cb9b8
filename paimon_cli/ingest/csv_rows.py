"""Reads CSV, by RFC 4180 or one of its variants. Cells stay text, so that a later conversion error can name row and column."""

from __future__ import annotations

import contextlib
import csv
import io
from collections.abc import Callable, Iterator, Sequence
from lzma import LZMAError
from os.path import splitext
from typing import BinaryIO, cast

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from paimon_cli.errors import BadInput, UsageError
from paimon_cli.ingest.csv_quotes import CheckedQuotes, CsvSyntax, MisquotedRow, MisquotedRows
from paimon_cli.ingest.faults import AFTER_QUOTE, Fault, in_one_line, shown
from paimon_cli.ingest.source_files import RawRows, SourceSplit, no_rows
from paimon_cli.ingest.text_blocks import text_stream, uncompressed_name
from paimon_cli.ingest.text_form import DELIMITER_OF_EXTENSION, TextForm
from paimon_cli.pieces import PIECES

NOT_ENCODABLE = "\ud800"
"""A lone surrogate, which no encoding accepts."""
NEVER_CLOSED = "a quoted cell is never closed"
_UNREADABLE = (pa.ArrowInvalid, OSError, EOFError, LZMAError)


def csv_batches(
    open_source: Callable[[], BinaryIO], split: SourceSplit, form: TextForm, by_position: Sequence[str] = ()
) -> Iterator[RawRows]:
    """Binary columns with the cells' UTF-8 text. An empty cell is null, a quoted empty cell is the empty text.

    The first batch has no rows, so that the header is checked even if no rows follow; an empty file yields no batch.
    `by_position`: names for the columns of a file without header, unless the form names them. `open_source` is called twice, for
    the header and for the rows, and once more to find faults of quotes. Raises `BadInput` if there is no usable header, or if a
    quoted cell is never closed. Faults are rows with too few or too many cells, or with something after a closing quote.
    """
    delimiter = form.delimiter or DELIMITER_OF_EXTENSION.get(splitext(uncompressed_name(split.path))[1].lower(), ",")
    if delimiter in (form.quote, form.escape):
        why = f"{split.name} has {delimiter!r} between its cells, which cannot mean two things"
        raise UsageError("--delimiter, --quote and --escape must differ", why)
    quotes = _Quotes(open_source, split, form, delimiter)
    try:
        first_row, is_only_row = _first_row(open_source, split, form, delimiter)
    except BadInput:
        quotes.check_file()  # a header that is never closed may be too long, or hide text of another encoding
        raise
    if not first_row:
        return
    if is_only_row:
        quotes.check_file()
    names = _column_names(first_row, split, form, by_position)
    empty = no_rows(pa.schema([(name, pa.binary()) for name in names]))
    yield RawRows(empty, np.arange(0))
    if form.header and is_only_row:
        return  # Arrow requires a line end after a header
    invalid: list[pacsv.InvalidRow] = []
    next_row = 0
    for batch in _parsed(open_source, split, form, delimiter, first_row, invalid, quotes):
        rows = _valid_row_numbers(next_row, batch.num_rows, [_data_row(row, form) for row in invalid])
        next_row = int(rows[-1]) + 1 if len(rows) else next_row
        faults = _take_faults(invalid, split, form, next_row)
        if misquoted := quotes.faults_in(rows):
            valid = ~np.isin(rows, list(misquoted))
            batch, rows = batch.filter(pa.array(valid)), rows[valid]
            faults = sorted([*faults, *misquoted.values()], key=lambda fault: fault.row)
        named = batch.rename_columns(names)
        for start in range(0, max(1, batch.num_rows), PIECES.batch_rows):
            yield RawRows(
                named.slice(start, PIECES.batch_rows), rows[start : start + PIECES.batch_rows], faults if start == 0 else ()
            )
    if invalid:
        yield RawRows(empty, np.arange(0), _take_faults(invalid, split, form, None))


class _Quotes:
    """The faults of quotes in one file."""

    def __init__(self, open_source: Callable[[], BinaryIO], split: SourceSplit, form: TextForm, delimiter: str) -> None:
        self._open_source, self._split, self._form = open_source, split, form
        self._syntax = CsvSyntax(form.quote, delimiter, form.escape)
        self._checked: CheckedQuotes | None = None
        self._rows: Iterator[MisquotedRow] | None = None
        self._next: MisquotedRow | None = None

    def checked(self, stream: BinaryIO) -> BinaryIO:
        """The text of the file, whose quotes are checked as it is read: reading it raises `BadInput` for an open cell."""
        text = self._text(stream)
        if not self._form.quote:
            return text
        self._checked = CheckedQuotes(text, self._syntax, self._refuse_open_cell)
        return cast(BinaryIO, self._checked)

    def check_rest(self) -> None:
        """Raise `BadInput` if the rest of the text has an open cell, which explains why it cannot be parsed."""
        if self._checked is not None:
            with contextlib.suppress(*_UNREADABLE):
                self._checked.drain()

    def check_file(self) -> None:
        """Raise `BadInput` if the file has an open cell, or something after a closing quote in the header."""
        with self._open_source() as stream:
            self.checked(stream)
            self.check_rest()
        self.faults_in(np.arange(0))

    def faults_in(self, rows: np.ndarray) -> dict[int, Fault]:
        """The faults of these rows, which count from 0 without the header, by row; rows are asked for in ascending order."""
        found: dict[int, Fault] = {}
        if self._checked is None or not self._checked.is_misquoted:
            return found
        if self._rows is None:
            self._rows = self._misquoted()
            self._next = next(self._rows, None)
        end = int(rows[-1]) if len(rows) else -1
        while self._next is not None and self._next.number <= end:
            row = self._next.number
            if row in rows:  # others have too few or too many cells, too
                first, last = self._next.first_line, self._next.last_line
                lines = f"it takes the lines {first} to {last}: " if last > first else ""
                found[row] = self._split.fault(row, lines + AFTER_QUOTE, value=self._next.text)
            self._next = next(self._rows, None)
        return found

    def _misquoted(self) -> Iterator[MisquotedRow]:
        """The misquoted rows, numbered without the header."""
        with self._open_source() as stream:
            for row in MisquotedRows(self._text(stream), self._syntax):
                if row.number < int(self._form.header):
                    what = f"cannot read the header of {self._split.name}"
                    raise BadInput(what, f"{AFTER_QUOTE}: {shown(in_one_line(row.text))}", source=self._split.name)
                yield row._replace(number=row.number - int(self._form.header))

    def _refuse_open_cell(self) -> None:
        with self._open_source() as stream:
            rows = MisquotedRows(self._text(stream), self._syntax)
            for _ in rows:
                pass
        if (cell := rows.open_cell) is None:
            raise BadInput(f"{self._split.name} changed while it was being read", source=self._split.name)
        fault = self._split.fault(cell.row - int(self._form.header), f"line {cell.line}: {NEVER_CLOSED}", value=cell.text)
        raise BadInput(
            f"{self._split.name}: line {cell.line}: {NEVER_CLOSED}",
            f"it begins with {shown(in_one_line(cell.text))} and would take the rest of the file",
            f"close it, and write a quote within a quoted cell twice; if {self._form.quote} is no quote here: --quote none",
            source=self._split.name,
            line=cell.line,
            value=cell.text,
            faults=[fault.record()],
        )

    def _text(self, stream: BinaryIO) -> BinaryIO:
        return text_stream(stream, self._split.path, self._split.name, self._form.encoding)


def _valid_row_numbers(first: int, count: int, invalid: list[int]) -> np.ndarray:
    """The numbers of the next `count` valid rows, from `first` on."""
    numbers = np.arange(first, first + count + len(invalid))
    return numbers[~np.isin(numbers, invalid)][:count] if invalid else numbers


def _take_faults(invalid: list[pacsv.InvalidRow], split: SourceSplit, form: TextForm, end: int | None) -> list[Fault]:
    """Remove the rows before `end` (None: all) from `invalid`, and return their faults. The parser reads ahead of the batches."""
    due = [row for row in invalid if end is None or _data_row(row, form) < end]
    invalid[:] = invalid[len(due) :]
    return [split.fault(_data_row(row, form), _cell_count(row, form), value=row.text) for row in due]


def _cell_count(row: pacsv.InvalidRow, form: TextForm) -> str:
    cells = f"{row.actual_columns} cell{'' if row.actual_columns == 1 else 's'}"
    return f"it has {cells}, the {'header' if form.header else 'first row'} has {row.expected_columns}"


def _data_row(row: pacsv.InvalidRow, form: TextForm) -> int:
    """The number of the data row, from 0; pyarrow counts from 1 and includes the header."""
    return int(row.number) - (2 if form.header else 1)


def _first_row(open_source: Callable[[], BinaryIO], split: SourceSplit, form: TextForm, delimiter: str) -> tuple[list[str], bool]:
    """The cells of the first row that is not empty ([] if there is none), and whether the file ends after it."""
    csv.field_size_limit(PIECES.csv_block_bytes)
    quoting = {"quotechar": form.quote} if form.quote else {"quoting": csv.QUOTE_NONE}
    try:
        with open_source() as stream:
            # The reader looks ahead: bytes of later rows that are not UTF-8 must not fail here, but be reported with their row.
            recoded = text_stream(stream, split.path, split.name, form.encoding)
            text = io.TextIOWrapper(recoded, encoding="utf-8-sig", errors="surrogateescape", newline="")
            # UTF-16 read as UTF-8 has a zero after each letter, which the csv module of Python 3.10 does not accept.
            lines = (line.replace("\0", NOT_ENCODABLE) for line in _first_lines(text))
            rows = csv.reader(lines, delimiter=delimiter, escapechar=form.escape or None, **quoting)
            cells = next((row for row in rows if row), [])
            is_only_row = not text.read(1)
            "".join(cells).encode()
    except UnicodeEncodeError as problem:
        has_zeros = NOT_ENCODABLE in "".join(cells)
        hint = "--encoding utf-16" if has_zeros else "name its encoding, such as --encoding latin1"
        raise BadInput(f"cannot read the header of {split.name}", "it is not UTF-8", hint, source=split.name) from problem
    except (csv.Error, *_UNREADABLE) as problem:
        raise BadInput(f"cannot read the header of {split.name}", str(problem), source=split.name) from problem
    return cells, is_only_row


def _first_lines(text: io.TextIOWrapper) -> Iterator[str]:
    """The lines of a text, as far as a row may go on: a file may have no line end at all, or a quote that nothing closes."""
    left = PIECES.csv_block_bytes
    while line := text.readline(left + 1):
        left -= len(line)
        if left < 0:
            raise csv.Error(f"its first row does not end within {PIECES.csv_block_bytes >> 20} MB: perhaps the file is no CSV")
        yield line


def _column_names(first_row: list[str], split: SourceSplit, form: TextForm, by_position: Sequence[str]) -> list[str]:
    """The name of each column of the file: from the header, from `form.columns`, or by position. Raises `BadInput`."""
    separator_hint = _separator_hint(first_row, form)
    if form.header and not form.columns:
        if separator_hint:
            what, why = f"{split.name} has a single column, '{first_row[0]}'", "its cells seem to have another separator"
            raise BadInput(what, why, separator_hint, source=split.name, column=first_row[0])
        names = [name or _default_name(number) for number, name in enumerate(first_row, 1)]
        repeated = next((name for name in names if names.count(name) > 1), None)
        if repeated is not None:
            raise BadInput(
                f"{split.name} has no usable header",
                f"column '{repeated}' appears twice",
                "give each column a name of its own with --columns; if the first row has no names at all: --no-header",
                source=split.name,
            )
        return names
    names = list(form.columns or by_position) or [_default_name(number) for number in range(1, len(first_row) + 1)]
    if len(names) != len(first_row):
        expected = "--columns names" if form.columns else "the table has"
        example = ",".join(names[: len(first_row)]) if len(first_row) < len(names) else "A,B,..."
        raise BadInput(
            f"{split.name} has {len(first_row)} column{'' if len(first_row) == 1 else 's'}, {expected} {len(names)}",
            "without a header, cells belong to columns by position" if not form.header else "each column needs one name",
            separator_hint or f"name all columns of the file: --columns {example}",
            source=split.name,
        )
    return names


def _separator_hint(first_row: list[str], form: TextForm) -> str:
    """A hint if the only cell of the header holds another separator and the user has not set the delimiter; else ''."""
    if form.delimiter is not None or len(first_row) != 1:
        return ""
    separator = next((character for character in ";\t|" if character in first_row[0]), None)
    if separator is None:
        return ""
    spelling = "tab" if separator == "\t" else f"'{separator}'"
    return f"--delimiter {spelling}, or --delimiter , if there is only one column"


def _default_name(number: int) -> str:
    """The name of the n-th column (from 1) if the file gives it none, as for the index that pandas and R write first."""
    return f"c{number}"


def _parsed(
    open_source: Callable[[], BinaryIO],
    split: SourceSplit,
    form: TextForm,
    delimiter: str,
    first_row: list[str],
    invalid: list[pacsv.InvalidRow],
    quotes: _Quotes,
) -> Iterator[pa.RecordBatch]:
    """Rows with the right number of cells. Other rows are appended to `invalid`, no later than their batch is yielded."""

    def skip(row: pacsv.InvalidRow) -> str:
        invalid.append(row)
        return "skip"

    positions = [f"c{number}" for number in range(len(first_row))]
    read_options = pacsv.ReadOptions(
        use_threads=False, block_size=PIECES.csv_block_bytes, column_names=None if form.header else positions
    )
    parse_options = pacsv.ParseOptions(
        delimiter=delimiter,
        quote_char=form.quote or False,
        escape_char=form.escape or False,
        newlines_in_values=True,
        invalid_row_handler=skip,
    )
    convert_options = pacsv.ConvertOptions(
        column_types={name: pa.binary() for name in (first_row if form.header else positions)},
        null_values=["", *form.null_values],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    with open_source() as stream:
        try:
            yield from pacsv.open_csv(quotes.checked(stream), read_options, parse_options, convert_options)
        except _UNREADABLE as problem:
            quotes.check_rest()
            size = PIECES.csv_block_bytes >> 20
            hint = f"rows of more than {size} MB, with all line breaks of their cells, cannot be read; or the file is no CSV"
            raise BadInput(f"cannot read {split.name} as CSV", in_one_line(str(problem)), hint, source=split.name) from problem
