"""The sources of rows for a write: Arrow data in memory, or CSV, JSON, Parquet, ORC and Arrow files.

CSV follows RFC 4180 or one of its variants. Its cells stay text here, so that a later conversion error can name row and column.
"""

from __future__ import annotations

import csv
import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from lzma import LZMAError
from os.path import splitext
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from paimon_cli.bucket.orc_file import OrcFile
from paimon_cli.datatypes.data_type import DataField
from paimon_cli.errors import BadInput
from paimon_cli.ingest.faults import Fault
from paimon_cli.ingest.input_files import CLONE
from paimon_cli.ingest.json_rows import Needed, json_batches
from paimon_cli.ingest.source_files import RawRows, SourceSplit, arrow_file, plan_sources
from paimon_cli.ingest.text_blocks import text_stream, uncompressed_name
from paimon_cli.ingest.text_form import DELIMITER_OF_EXTENSION, PLAIN, TextForm
from paimon_cli.storage.storage_for_url import storage_for_url

ARROW = "arrow"
"""Format of the splits of Arrow data in memory."""
ARROW_SPLIT_BYTES = 32 << 20


class RowSource(ABC):
    """Rows before they are checked against a table. Picklable, so that Spark tasks can read their splits."""

    @property
    @abstractmethod
    def form(self) -> TextForm:
        """The syntax of text in the source, and the time zone of its times."""

    @property
    @abstractmethod
    def paths(self) -> Sequence[str]:
        """Local paths or URLs as the user gave them; none for rows in memory."""

    @abstractmethod
    def plan(self, *, allow_empty: bool = False) -> Sequence[SourceSplit]:
        """Cut the rows into splits, in the order of arrival. `allow_empty`: a source without any file has no rows."""

    @abstractmethod
    def raw_rows(self, split: SourceSplit, columns: Sequence[DataField], keys: Needed) -> Iterator[RawRows]:
        """The rows of one split, in order. `columns`: those that a row may have; `keys`: those that a JSON object must have."""


@dataclass(frozen=True)
class FileRows(RowSource):
    """Rows of files. `paths`: files, directories, globs or '-'; their extensions give the format unless `format` does.

    `storage_options`: the catalog's, for files in an object store. `instead`: see `source_files`.
    """

    paths: tuple[str, ...] = ()
    format: str | None = None
    form: TextForm = PLAIN
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    instead: str = CLONE

    def plan(self, *, allow_empty: bool = False) -> list[SourceSplit]:
        """Raises `NotFound`, `UsageError`, or `BadInput` for a file that is not of its format."""
        options, instead = self.storage_options, self.instead
        return plan_sources(self.paths, self.format, options, self.form, allow_empty=allow_empty, instead=instead)

    def raw_rows(self, split: SourceSplit, columns: Sequence[DataField], keys: Needed) -> Iterator[RawRows]:
        storage, path = storage_for_url(split.path, self.storage_options)
        open_source = partial(storage.open_input, path)
        if split.format == "csv":
            names = () if self.form.header else [column.name for column in columns]
            yield from csv_batches(open_source, split, self.form, names)
            return
        with open_source() as stream:
            if split.format == "json":
                text = text_stream(stream, split.path, split.name, self.form.encoding)
                yield from json_batches(text, split, columns, keys)
            else:
                yield from columnar_batches(stream, split)


@dataclass(frozen=True)
class ArrowRows(RowSource):
    """Rows of an Arrow table in this process. `name`: for messages.

    `timezone`: converts between timestamps with and without a zone, where the column differs from the data.
    """

    table: pa.Table = field(repr=False)
    name: str = "the Arrow data"
    timezone: str | None = None

    @property
    def paths(self) -> tuple[str, ...]:
        return ()

    @property
    def form(self) -> TextForm:
        return TextForm(timezone=self.timezone)

    def plan(self, *, allow_empty: bool = False) -> list[SourceSplit]:
        """Pieces of about `ARROW_SPLIT_BYTES`; a table without rows is one piece, so that its columns are checked."""
        rows, size = self.table.num_rows, self.table.nbytes
        step = max(1, rows * ARROW_SPLIT_BYTES // max(1, size))
        return [self._split(start, min(step, rows - start), size) for start in range(0, max(1, rows), step)]

    def _split(self, start: int, length: int, size: int) -> SourceSplit:
        share = size * length // max(1, self.table.num_rows)
        return SourceSplit("", ARROW, start, length, start, start, self.name, share, length)

    def raw_rows(self, split: SourceSplit, columns: Sequence[DataField], keys: Needed) -> Iterator[RawRows]:
        row, piece = 0, self.table.slice(split.start, split.length)
        batches = piece.to_batches(max_chunksize=BATCH_ROWS) or [no_rows(piece.schema)]
        for batch in batches:
            yield RawRows(batch, np.arange(row, row + batch.num_rows))
            row += batch.num_rows


BLOCK_BYTES = 8 << 20
"""Also the maximum length of a CSV row."""
BATCH_ROWS = 65536
NOT_ENCODABLE = "\ud800"
"""A lone surrogate, which no encoding accepts."""
UNREADABLE = (pa.ArrowInvalid, OSError, EOFError, LZMAError)


def csv_batches(
    open_source: Callable[[], BinaryIO], split: SourceSplit, form: TextForm, by_position: Sequence[str] = ()
) -> Iterator[RawRows]:
    """Binary columns with the cells' UTF-8 text. An empty cell is null, a quoted empty cell is the empty text.

    The first batch has no rows, so that the header is checked even if no rows follow; an empty file yields no batch.
    `by_position`: names for the columns of a file without header, unless the form names them. `open_source` is called twice, for
    the header and for the rows. Raises `BadInput` if there is no usable header. Faults are rows with too few or too many cells.
    """
    delimiter = form.delimiter or DELIMITER_OF_EXTENSION.get(splitext(uncompressed_name(split.path))[1].lower(), ",")
    first_row, is_only_row = _first_row(open_source, split, form, delimiter)
    if not first_row:
        return
    names = _column_names(first_row, split, form, by_position)
    empty = no_rows(pa.schema([(name, pa.binary()) for name in names]))
    yield RawRows(empty, np.arange(0))
    if form.header and is_only_row:
        return  # Arrow requires a line end after a header
    invalid: list[pacsv.InvalidRow] = []
    next_row = 0
    for batch in _parsed(open_source, split, form, delimiter, first_row, invalid):
        rows = _valid_row_numbers(next_row, batch.num_rows, [_data_row(row, form) for row in invalid])
        next_row = int(rows[-1]) + 1 if len(rows) else next_row
        faults = _take_faults(invalid, split, form, next_row)
        named = batch.rename_columns(names)
        for start in range(0, max(1, batch.num_rows), BATCH_ROWS):
            yield RawRows(named.slice(start, BATCH_ROWS), rows[start : start + BATCH_ROWS], faults if start == 0 else ())
    if invalid:
        yield RawRows(empty, np.arange(0), _take_faults(invalid, split, form, None))


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
    csv.field_size_limit(BLOCK_BYTES)
    quoting = {"quotechar": form.quote} if form.quote else {"quoting": csv.QUOTE_NONE}
    try:
        with open_source() as stream:
            # The reader looks ahead: bytes of later rows that are not UTF-8 must not fail here, but be reported with their row.
            recoded = text_stream(stream, split.path, split.name, form.encoding)
            text = io.TextIOWrapper(recoded, encoding="utf-8-sig", errors="surrogateescape", newline="")
            # UTF-16 read as UTF-8 has a zero after each letter, which the csv module of Python 3.10 does not accept.
            lines = (line.replace("\0", NOT_ENCODABLE) for line in text)
            rows = csv.reader(lines, delimiter=delimiter, escapechar=form.escape or None, **quoting)
            cells = next((row for row in rows if row), [])
            is_only_row = not text.read(1)
            "".join(cells).encode()
    except UnicodeEncodeError as problem:
        has_zeros = NOT_ENCODABLE in "".join(cells)
        hint = "--encoding utf-16" if has_zeros else "name its encoding, such as --encoding latin1"
        raise BadInput(f"cannot read the header of {split.name}", "it is not UTF-8", hint, source=split.name) from problem
    except (csv.Error, *UNREADABLE) as problem:
        raise BadInput(f"cannot read the header of {split.name}", str(problem), source=split.name) from problem
    return cells, is_only_row


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
) -> Iterator[pa.RecordBatch]:
    """Rows with the right number of cells. Other rows are appended to `invalid`, no later than their batch is yielded."""

    def skip(row: pacsv.InvalidRow) -> str:
        invalid.append(row)
        return "skip"

    positions = [f"c{number}" for number in range(len(first_row))]
    try:
        with open_source() as stream:
            yield from pacsv.open_csv(
                text_stream(stream, split.path, split.name, form.encoding),
                read_options=pacsv.ReadOptions(
                    use_threads=False, block_size=BLOCK_BYTES, column_names=None if form.header else positions
                ),
                parse_options=pacsv.ParseOptions(
                    delimiter=delimiter,
                    quote_char=form.quote or False,
                    escape_char=form.escape or False,
                    newlines_in_values=True,
                    invalid_row_handler=skip,
                ),
                convert_options=pacsv.ConvertOptions(
                    column_types={name: pa.binary() for name in (first_row if form.header else positions)},
                    null_values=["", *form.null_values],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
    except UNREADABLE as problem:
        raise BadInput(f"cannot read {split.name} as CSV", str(problem), source=split.name) from problem


READ_BUFFER_BYTES = 1 << 20


def columnar_batches(stream: BinaryIO, split: SourceSplit) -> Iterator[RawRows]:
    """The split's rows in file order, with all columns of the file. Raises `BadInput` for a damaged file."""
    row = 0
    try:
        for batch in _COLUMNAR[split.format](stream, split):
            yield RawRows(batch, np.arange(row, row + batch.num_rows))
            row += batch.num_rows
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as problem:
        raise BadInput(f"cannot read {split.name}", str(problem), source=split.name) from problem


def _parquet(stream: BinaryIO, split: SourceSplit) -> Iterator[pa.RecordBatch]:
    file = pq.ParquetFile(stream, buffer_size=READ_BUFFER_BYTES, pre_buffer=False)  # pre_buffer would load the whole split
    end = file.num_row_groups if split.length is None else split.start + split.length
    if file.metadata.num_rows == 0:
        yield no_rows(file.schema_arrow)
    # Threads cost a fifth more CPU time, and the other cores are busy sorting.
    yield from file.iter_batches(BATCH_ROWS, row_groups=list(range(split.start, end)), use_threads=False)


def _orc(stream: BinaryIO, split: SourceSplit) -> Iterator[pa.RecordBatch]:
    file = OrcFile(stream)
    if file.nrows == 0:
        yield no_rows(file.schema)
    for number in range(file.nstripes):
        stripe = file.read_stripe(number)
        yield from pa.Table.from_batches([stripe]).to_batches(max_chunksize=BATCH_ROWS)


def _arrow(stream: BinaryIO, split: SourceSplit) -> Iterator[pa.RecordBatch]:
    schema, batches = arrow_file(stream)
    yield no_rows(schema)
    for batch in batches:
        batch.validate(full=True)  # a damaged file must not reach code that trusts offsets
        for start in range(0, batch.num_rows, BATCH_ROWS):
            yield batch.slice(start, BATCH_ROWS)


_COLUMNAR = {"parquet": _parquet, "orc": _orc, "arrow": _arrow}


def no_rows(schema: pa.Schema) -> pa.RecordBatch:
    """A batch without rows, so that the columns of an empty source are checked, too."""
    return pa.RecordBatch.from_pylist([], schema=schema)
