"""The sources of rows for a write: Arrow data or JSON in memory, or CSV, JSON, Parquet, ORC and Arrow files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from io import BytesIO
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from paimon_cli.bucket.nanosecond_range import int96_columns, raw_int96, with_far_int96
from paimon_cli.bucket.orc_file import OrcFile
from paimon_cli.bucket.spilled_runs import SpillDirectory
from paimon_cli.datatypes.data_type import DataField
from paimon_cli.errors import BadInput
from paimon_cli.ingest.csv_rows import csv_batches
from paimon_cli.ingest.input_files import CLONE
from paimon_cli.ingest.json_rows import Needed, json_batches
from paimon_cli.ingest.source_files import RawRows, SourceSplit, arrow_file, no_rows, plan_sources
from paimon_cli.ingest.text_blocks import text_stream
from paimon_cli.ingest.text_form import PLAIN, TextForm
from paimon_cli.pieces import PIECES
from paimon_cli.storage.storage_for_url import storage_for_url

ARROW = "arrow"
"""Format of the splits of Arrow data in memory."""


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

    def close(self) -> None:  # noqa: B027
        """Remove temporary files of the source, if it has any. It cannot be read any more."""


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


@lru_cache(maxsize=64)
def _form_in(timezone: str | None) -> TextForm:
    """The form of values in this time zone, which is asked for with each column of each batch."""
    return TextForm(timezone=timezone)


@dataclass(frozen=True)
class ArrowRows(RowSource):
    """Rows of an Arrow table in this process. `name`: for messages.

    `timezone`: converts between timestamps with and without a zone, where the column differs from the data. `spill`: where the
    file of the rows is, which `close` removes; None if they are in memory. Tasks in other processes get the rows.
    """

    table: pa.Table = field(repr=False)
    name: str = "the Arrow data"
    timezone: str | None = None
    spill: SpillDirectory | None = field(default=None, repr=False, compare=False)

    def __reduce__(self) -> tuple[type[ArrowRows], tuple[pa.Table, str, str | None]]:
        return ArrowRows, (self.table, self.name, self.timezone)

    def close(self) -> None:
        if self.spill is not None:
            self.spill.close()

    @property
    def paths(self) -> tuple[str, ...]:
        return ()

    @property
    def form(self) -> TextForm:
        return _form_in(self.timezone)

    def plan(self, *, allow_empty: bool = False) -> list[SourceSplit]:
        """Pieces of about `arrow_split_bytes`; a table without rows is one piece, so that its columns are checked."""
        rows, size = self.table.num_rows, self.table.nbytes
        step = max(1, rows * PIECES.arrow_split_bytes // max(1, size))
        return [self._split(start, min(step, rows - start), size) for start in range(0, max(1, rows), step)]

    def _split(self, start: int, length: int, size: int) -> SourceSplit:
        share = size * length // max(1, self.table.num_rows)
        return SourceSplit("", ARROW, start, length, start, start, self.name, share, length)

    def raw_rows(self, split: SourceSplit, columns: Sequence[DataField], keys: Needed) -> Iterator[RawRows]:
        row, piece = 0, self.table.slice(split.start, split.length)
        # Arrow cannot join dictionaries of nested values, nor those with more values together than their indices can number.
        with suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError):
            piece = piece.combine_chunks()  # each batch is routed and sorted, and many small ones take longer than this copy
        batches = piece.to_batches(max_chunksize=PIECES.batch_rows) or [no_rows(piece.schema)]
        for batch in batches:
            yield RawRows(batch, np.arange(row, row + batch.num_rows))
            row += batch.num_rows


@dataclass(frozen=True)
class JsonObjects(RowSource):
    """Rows as lines of JSON in this process, in the forms that files of JSON may have. `name`: for messages."""

    lines: bytes = field(repr=False)
    name: str = "the rows"

    @property
    def paths(self) -> tuple[str, ...]:
        return ()

    @property
    def form(self) -> TextForm:
        return PLAIN

    def plan(self, *, allow_empty: bool = False) -> list[SourceSplit]:
        return [SourceSplit("", "json", 0, len(self.lines), 0, 0, self.name, len(self.lines))]

    def raw_rows(self, split: SourceSplit, columns: Sequence[DataField], keys: Needed) -> Iterator[RawRows]:
        yield from json_batches(BytesIO(self.lines), split, columns, keys)


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
    file = pq.ParquetFile(
        stream, buffer_size=PIECES.input_buffer_bytes, pre_buffer=False
    )  # pre_buffer would load the whole split
    end = file.num_row_groups if split.length is None else split.start + split.length
    if file.metadata.num_rows == 0:
        yield no_rows(file.schema_arrow)
    groups = list(range(split.start, end))
    # Threads cost a fifth more CPU time, and the other cores are busy sorting.
    batches = file.iter_batches(PIECES.batch_rows, row_groups=groups, use_threads=False)
    doubtful = int96_columns(file.schema, file.schema_arrow.names)
    if not doubtful:
        yield from batches
        return
    again = raw_int96(stream).iter_batches(PIECES.batch_rows, row_groups=groups, columns=doubtful, use_threads=False)
    for batch, raw in zip(batches, again, strict=True):
        yield with_far_int96(batch, raw, doubtful)


def _orc(stream: BinaryIO, split: SourceSplit) -> Iterator[pa.RecordBatch]:
    file = OrcFile(stream)
    if file.nrows == 0:
        yield no_rows(file.schema)
    for number in range(file.nstripes):
        stripe = file.read_stripe(number)
        yield from pa.Table.from_batches([stripe]).to_batches(max_chunksize=PIECES.batch_rows)


def _arrow(stream: BinaryIO, split: SourceSplit) -> Iterator[pa.RecordBatch]:
    schema, batches = arrow_file(stream)
    yield no_rows(schema)
    for batch in batches:
        batch.validate(full=True)  # a damaged file must not reach code that trusts offsets
        for start in range(0, batch.num_rows, PIECES.batch_rows):
            yield batch.slice(start, PIECES.batch_rows)


_COLUMNAR = {"parquet": _parquet, "orc": _orc, "arrow": _arrow}
