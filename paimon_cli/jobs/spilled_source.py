"""The rows of a merge that come as a stream: in memory if they are few, or in files on local disk, which are mapped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from paimon_cli.bucket.spilled_runs import SpillDirectory
from paimon_cli.datatypes.arrow_types import arrow_type
from paimon_cli.datatypes.data_type import DataField
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.key_index import NO_ROW, RowIndex
from paimon_cli.jobs.merge_source import (
    KnownValues,
    MemorySource,
    MergeSource,
    SourceRows,
    known_values,
    source_fields,
    typed_rows,
)
from paimon_cli.jobs.source_rows import SpilledIndex, StoredRows, batches_of


@dataclass(frozen=True)
class StreamedRows(SourceRows):
    """Rows of a stream, which is read once. `shares_disk`: whether tasks can open files of this machine; asked for many rows."""

    reader: pa.RecordBatchReader
    shares_disk: Callable[[], bool]

    @property
    def columns(self) -> pa.Schema:
        return self.reader.schema

    @contextmanager
    def opened(self, context: TableContext, on: Sequence[str], timezone: str | None) -> Iterator[MergeSource]:
        fields = source_fields(self.columns, context.readable_schema, on)
        schema = pa.schema([pa.field(field.name, arrow_type(field.type)) for field in fields])
        with SpillDirectory() as spill:
            stored = StoredRows.collected(
                schema, _typed(self.reader, fields, timezone), lambda: spill if self.shares_disk() else None
            )
            if stored.path is None:
                yield MemorySource(stored.whole, fields, tuple(on))
                return
            types = {field.name: field.type for field in fields}
            yield SpilledSource(
                stored, fields, tuple(on), SpilledIndex.of(stored, tuple(on), tuple(types[name] for name in on), spill)
            )


def _typed(reader: pa.RecordBatchReader, fields: Sequence[DataField], timezone: str | None) -> Iterator[pa.RecordBatch]:
    row = 0
    for batch in batches_of(reader):
        yield typed_rows(batch, fields, timezone, row)
        row += batch.num_rows


@dataclass(frozen=True)
class SpilledSource(MergeSource):
    """Rows in files of this machine. Only those are read that are needed."""

    stored: StoredRows
    fields: tuple[DataField, ...]
    on: tuple[str, ...]
    hashes: SpilledIndex

    @property
    def row_count(self) -> int:
        return self.stored.num_rows

    @property
    def batch(self) -> pa.RecordBatch:
        return self.stored.whole

    @cached_property
    def index(self) -> RowIndex:
        return self.hashes

    @cached_property
    def known(self) -> Mapping[str, KnownValues]:
        parts = [known_values(batch, self.fields, self.on) for _, batch in self.stored.pieces(self.on)]
        return {name: KnownValues.joined([part[name] for part in parts]) for name in parts[0]}

    @property
    def portions(self) -> Sequence[range]:
        return [range(start, start + batch.num_rows) for start, batch in self.stored.pieces(self.on)]

    def read(self, portion: range) -> pa.RecordBatch:
        return self.stored.read(portion)

    def rows(self, positions: np.ndarray) -> pa.StructArray:
        columns = self.stored.take(positions).columns
        return pa.StructArray.from_arrays(columns, fields=list(arrow_type(self.row_type)), mask=pa.array(positions == NO_ROW))

    def column(self, name: str, positions: np.ndarray) -> pa.Array:
        return self.stored.take(positions, [name]).column(0)
