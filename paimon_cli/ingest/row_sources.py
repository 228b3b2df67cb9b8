"""Where the rows of a write come from: Arrow data in memory, or files of CSV, JSON, Parquet, ORC and Arrow.

CSV follows RFC 4180 or one of its variants. Its cells stay raw text, so that errors can name row and column.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from lzma import LZMAError
from os.path import splitext
from typing import BinaryIO, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from paimon_cli.bucket.orc_file import OrcFile
from paimon_cli.datatypes.data_type import DataField
from paimon_cli.errors import BadInput
from paimon_cli.ingest.faults import Fault
from paimon_cli.ingest.json_rows import Needed, json_batches
from paimon_cli.ingest.source_files import RawRows, SourceSplit, arrow_file, plan_sources
from paimon_cli.ingest.text_blocks import text_stream, uncompressed_name
from paimon_cli.ingest.text_form import DELIMITER_OF_EXTENSION, PLAIN, TextForm
from paimon_cli.storage.storage_for_url import storage_for_url

ARROW = "arrow"
"""Format of the splits of Arrow data in memory."""
ARROW_SPLIT_BYTES = 32 << 20


@runtime_checkable
class RowSource(Protocol):
    """Rows before they are checked against a table. Picklable, so that Spark tasks can read their splits."""

    @property
    def form(self) -> TextForm:
        """How texts of the source are written, and the zone of its times."""
        ...

    @property
    def paths(self) -> Sequence[str]:
        """Local paths or URLs as the user gave them; none for rows in memory."""
        ...

    def plan(self, *, may_be_none: bool = False) -> Sequence[SourceSplit]:
        """Cut the rows into splits, in the order of arrival. `may_be_none`: a source that does not exist has no rows."""
        ...

    def raw_rows(self, split: SourceSplit, columns: Sequence[DataField], needed: Needed) -> Iterator[RawRows]:
        """The rows of one split. `columns` are those that the write can use; `needed` is for formats whose rows have keys."""
        ...


@dataclass(frozen=True)
class FileRows:
    """Rows of files: `paths` are files, directories, globs or '-'. The format follows from the extension unless it is given.

    `storage_options`: of the catalog, for files in an object store.
    """

    paths: tuple[str, ...] = ()
    format: str | None = None
    form: TextForm = PLAIN
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def plan(self, *, may_be_none: bool = False) -> list[SourceSplit]:
        """Raises NotFound, UsageError, or BadInput for a file that is not of its format."""
        return plan_sources(self.paths, self.format, self.storage_options, self.form, may_be_none=may_be_none)

    def raw_rows(self, split: SourceSplit, columns: Sequence[DataField], needed: Needed) -> Iterator[RawRows]:
        storage, path = storage_for_url(split.path, self.storage_options)
        open_source = partial(storage.open_input, path)
        if split.format == "csv":
            names = () if self.form.header else [column.name for column in columns]
            yield from csv_batches(open_source, split, self.form, names)
            return
        with open_source() as stream:
            if split.format == "json":
                text = text_stream(stream, split.path, split.name, self.form.encoding)
                yield from json_batches(text, split, columns, needed)
            else:
                yield from columnar_batches(stream, split)


@dataclass(frozen=True)
class ArrowRows:
    """Rows of an Arrow table in this process. `name` is what messages call it.

    `timezone`: the zone of timestamps that have none, and that in which columns without zone show instants.
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

    def plan(self, *, may_be_none: bool = False) -> list[SourceSplit]:
        """Pieces of about `ARROW_SPLIT_BYTES`; a table without rows is one piece, so that its columns are checked."""
        rows, size = self.table.num_rows, self.table.nbytes
        step = max(1, rows * ARROW_SPLIT_BYTES // max(1, size))
        return [self._split(start, min(step, rows - start), size) for start in range(0, max(1, rows), step)]

    def _split(self, start: int, length: int, size: int) -> SourceSplit:
        share = size * length // max(1, self.table.num_rows)
        return SourceSplit("", ARROW, start, length, start, start, self.name, share, length)

    def raw_rows(self, split: SourceSplit, columns: Sequence[DataField], needed: Needed) -> Iterator[RawRows]:
        row, piece = 0, self.table.slice(split.start, split.length)
        batches = piece.to_batches(max_chunksize=BATCH_ROWS) or [no_rows(piece.schema)]
        for batch in batches:
            yield RawRows(batch, np.arange(row, row + batch.num_rows))
            row += batch.num_rows


BLOCK_BYTES = 8 << 20
"""A CSV row may not be longer."""
BATCH_ROWS = 65536
UNSPEAKABLE = "\ud800"
"""What no text holds that can be encoded: stands for the zeros that UTF-16 has between letters."""
UNREADABLE = (pa.ArrowInvalid, OSError, EOFError, LZMAError)


def csv_batches(
    open_source: Callable[[], BinaryIO], split: SourceSplit, form: TextForm, by_position: Sequence[str] = ()
) -> Iterator[RawRows]:
    """Binary columns with the cells' UTF-8 text; an empty cell is null, a quoted empty one the empty text.

    The first batch has no rows, so that the header is checked even if no rows follow; a file without any text gives no batch.
    `by_position`: the columns of a file without header, unless the form names them. `open_source` is called twice: for the header
    and for the rows. Raises `BadInput` if there is no usable header. Faults are rows with too few or too many cells.
    """
    delimiter = form.delimiter or DELIMITER_OF_EXTENSION.get(splitext(uncompressed_name(split.path))[1].lower(), ",")
    first, is_alone = _first_row(open_source, split, form, delimiter)
    if not first:
        return
    names = _column_names(first, split, form, by_position)
    yield RawRows(pa.RecordBatch.from_arrays([pa.array([], pa.binary()) for _ in names], names=names), np.arange(0))
    if form.header and is_alone:
        return  # Arrow requires a line end after a header
    faulty: list[pacsv.InvalidRow] = []
    row = 0
    for batch in _parsed(open_source, split, form, delimiter, first, faulty):
        numbers = _numbers(row, batch.num_rows, [_data_row(fault, form) for fault in faulty])
        row = int(numbers[-1]) + 1 if len(numbers) else row
        faults = _taken(faulty, split, form, row)
        named = batch.rename_columns(names)
        for start in range(0, max(1, batch.num_rows), BATCH_ROWS):
            yield RawRows(named.slice(start, BATCH_ROWS), numbers[start : start + BATCH_ROWS], faults if start == 0 else ())
    if faulty:
        no_rows = pa.RecordBatch.from_arrays([pa.array([], pa.binary()) for _ in names], names=names)
        yield RawRows(no_rows, np.arange(0), _taken(faulty, split, form, None))


def _numbers(first: int, count: int, left_out: list[int]) -> np.ndarray:
    """Row numbers of the next `count` valid rows."""
    numbers = np.arange(first, first + count + len(left_out))
    return numbers[~np.isin(numbers, left_out)][:count] if left_out else numbers


def _taken(faulty: list[pacsv.InvalidRow], split: SourceSplit, form: TextForm, before: int | None) -> list[Fault]:
    """Remove from `faulty`, which may be ahead of the batches, the faults of rows up to `before`, and return them."""
    due = [fault for fault in faulty if before is None or _data_row(fault, form) < before]
    faulty[:] = faulty[len(due) :]
    return [split.fault(_data_row(fault, form), _cell_count(fault, form), value=fault.text) for fault in due]


def _cell_count(fault: pacsv.InvalidRow, form: TextForm) -> str:
    cells = f"{fault.actual_columns} cell{'' if fault.actual_columns == 1 else 's'}"
    return f"it has {cells}, the {'header' if form.header else 'first row'} has {fault.expected_columns}"


def _data_row(faulty: pacsv.InvalidRow, form: TextForm) -> int:
    """The 0-based data row; pyarrow counts from 1 and includes the header."""
    return int(faulty.number) - (2 if form.header else 1)


def _first_row(open_source: Callable[[], BinaryIO], split: SourceSplit, form: TextForm, delimiter: str) -> tuple[list[str], bool]:
    """The cells of the first row that is not empty, and whether it is the last one."""
    csv.field_size_limit(BLOCK_BYTES)
    quoting = {"quotechar": form.quote} if form.quote else {"quoting": csv.QUOTE_NONE}
    try:
        with open_source() as stream:
            # The text reader looks ahead: bytes of later rows that are not UTF-8 are reported with their row.
            recoded = text_stream(stream, split.path, split.name, form.encoding)
            text = io.TextIOWrapper(recoded, encoding="utf-8-sig", errors="surrogateescape", newline="")
            rows = csv.reader(text, delimiter=delimiter, escapechar=form.escape or None, **quoting)
            names = next((row for row in rows if row), [])
            is_alone = not text.read(1)
            "".join(names).replace("\0", UNSPEAKABLE).encode()
    except UnicodeEncodeError as problem:
        hint = "--encoding utf-16" if "\0" in "".join(names) else "name its encoding, such as --encoding latin1"
        raise BadInput(f"cannot read the header of {split.name}", "it is not UTF-8", hint, source=split.name) from problem
    except (csv.Error, *UNREADABLE) as problem:
        raise BadInput(f"cannot read the header of {split.name}", str(problem), source=split.name) from problem
    return names, is_alone


def _column_names(first: list[str], split: SourceSplit, form: TextForm, by_position: Sequence[str]) -> list[str]:
    separator_hint = _separator_hint(first, form)
    if form.header and not form.columns:
        if separator_hint:
            what, why = f"{split.name} has a single column, '{first[0]}'", "its cells seem to have another separator"
            raise BadInput(what, why, separator_hint, source=split.name, column=first[0])
        names = [name or _name_of_position(number) for number, name in enumerate(first, 1)]
        repeated = next((name for name in names if names.count(name) > 1), None)
        if repeated is not None:
            raise BadInput(
                f"{split.name} has no usable header",
                f"column '{repeated}' appears twice",
                "give each column a name of its own with --columns; if the first row has no names at all: --no-header",
                source=split.name,
            )
        return names
    names = list(form.columns or by_position) or [_name_of_position(number) for number in range(1, len(first) + 1)]
    if len(names) != len(first):
        named = "--columns names" if form.columns else "the table has"
        fitting = ",".join(names[: len(first)]) if len(first) < len(names) else "A,B,..."
        raise BadInput(
            f"{split.name} has {len(first)} column{'' if len(first) == 1 else 's'}, {named} {len(names)}",
            "without a header cells are taken by their position" if not form.header else "each column gets one name",
            separator_hint or f"name all columns of the file: --columns {fitting}",
            source=split.name,
        )
    return names


def _separator_hint(first: list[str], form: TextForm) -> str:
    """A hint if the only cell of the header holds another separator and the user has not set the delimiter."""
    found = next((c for c in ";\t|" if form.delimiter is None and len(first) == 1 and c in first[0]), None)
    spelled = "tab" if found == "\t" else f"'{found}'"
    return "" if found is None else f"--delimiter {spelled}, or --delimiter , if there is only one column"


def _name_of_position(number: int) -> str:
    """The name of a column without a name, such as the index that pandas and R write first."""
    return f"c{number}"


def _parsed(
    open_source: Callable[[], BinaryIO],
    split: SourceSplit,
    form: TextForm,
    delimiter: str,
    first: list[str],
    faulty: list[pacsv.InvalidRow],
) -> Iterator[pa.RecordBatch]:
    """Rows with the right number of cells. The others are recorded in `faulty`, at the latest with the batch that they belong
    to.
    """

    def note(row: pacsv.InvalidRow) -> str:
        faulty.append(row)
        return "skip"

    positions = [f"c{number}" for number in range(len(first))]
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
                    invalid_row_handler=note,
                ),
                convert_options=pacsv.ConvertOptions(
                    column_types={name: pa.binary() for name in (first if form.header else positions)},
                    null_values=["", *form.null_values],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
    except UNREADABLE as problem:
        raise BadInput(f"cannot read {split.name} as CSV", str(problem), source=split.name) from problem


READ_BUFFER_BYTES = 1 << 20


def columnar_batches(stream: BinaryIO, split: SourceSplit) -> Iterator[RawRows]:
    """All columns of the split's rows in file order. Raises `BadInput` for a damaged file."""
    row = 0
    try:
        for batch in _COLUMNAR[split.format](stream, split):
            yield RawRows(batch, np.arange(row, row + batch.num_rows))
            row += batch.num_rows
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as problem:
        raise BadInput(f"cannot read {split.name}", str(problem), source=split.name) from problem


def _parquet(stream: BinaryIO, split: SourceSplit) -> Iterator[pa.RecordBatch]:
    file = pq.ParquetFile(stream, buffer_size=READ_BUFFER_BYTES, pre_buffer=False)  # read-ahead would hold the whole split
    end = file.num_row_groups if split.length is None else split.start + split.length
    if file.metadata.num_rows == 0:
        yield no_rows(file.schema_arrow)
    # Without threads: a fifth less work, and the other cores have batches to sort.
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
    """A batch without rows that shows the columns of an empty source, so that wrong ones are reported."""
    return pa.RecordBatch.from_pylist([], schema=schema)
