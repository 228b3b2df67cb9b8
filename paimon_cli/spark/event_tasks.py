"""Tasks of a stream of change events: they decode its messages, and make rows of the events of each table.

Events and rows are single binary values to Spark, as the chunks of a write are: their types are those of Arrow and of Paimon,
some of which Spark does not have.
"""

from __future__ import annotations

import io
import json
import pickle
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from paimon_cli.api.ingest_places import TableNames
from paimon_cli.api.ingest_rows import KIND_COLUMN, EventTable, PlacedRows
from paimon_cli.api.ingest_schema import EventColumns
from paimon_cli.api.ingest_target import counts_of
from paimon_cli.errors import PaimonError, UsageError
from paimon_cli.ingest.changes.change_rows import has_rows
from paimon_cli.ingest.changes.derived_columns import DerivedColumns
from paimon_cli.ingest.changes.event_decoder import EventDecoder
from paimon_cli.ingest.changes.event_formats import EventFormat
from paimon_cli.ingest.changes.event_lines import BadEvent, EventLines, PositionUnit, in_order_read
from paimon_cli.ingest.changes.table_events import SourceTable, TableEvents, Wanted
from paimon_cli.ingest.changes.table_reader import MAX_TABLES
from paimon_cli.jobs.spark.tasks import called_by_spark
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.pieces import PIECES
from paimon_cli.spark.task_rows import partition_number

EVENTS_SQL = "source string, block long, found binary, events binary"
ROWS_SQL = "target string, size long, found binary, rows binary"
_EVENTS = pa.schema([("source", pa.string()), ("block", pa.int64()), ("found", pa.binary()), ("events", pa.binary())])
_ROWS = pa.schema([("target", pa.string()), ("size", pa.int64()), ("found", pa.binary()), ("rows", pa.binary())])
MESSAGE_COLUMNS = ("value", "key", "topic", "partition", "offset")
"""What a task gets of each message. A stream that is not of Kafka has only values."""


@dataclass(frozen=True)
class FoundEvents:
    """What the driver must know of some events. `columns`: None if their table was not known to the task, which left them out, or
    if they have no rows. `bad`: events then that cannot be applied, of the table or of none that can be told.
    """

    columns: EventColumns | None = None
    truncates: bool = False
    bad: tuple[BadEvent, ...] = ()


@dataclass(frozen=True)
class ConvertedRows:
    """What became of some events. `bad`: those without rows; `failure`: why the table cannot take them at all."""

    counts: Counter[int] = field(default_factory=Counter)
    bad: tuple[BadEvent, ...] = ()
    incomplete: int = 0
    newest_millis: int | None = None
    failure: PaimonError | None = None


def source_text(table: SourceTable) -> str:
    """A table of the source as a value of Spark."""
    return json.dumps(table)


@dataclass(frozen=True)
class DecodingTask:
    """Decodes the messages of a partition. `known`: what the tables want that the driver has met; None to leave one out. `names`:
    says which others the driver has to know.
    """

    format: EventFormat
    known: Mapping[SourceTable, Wanted | None]
    names: TableNames
    block_bytes: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with called_by_spark():
            number, new = partition_number(), set[SourceTable]()

            def wanted(table: SourceTable) -> Wanted | None:
                if table not in self.known and len(new) <= MAX_TABLES and self.names.is_wanted(table):
                    new.add(table)
                return self.known.get(table)

            decoder, told = EventDecoder(self.format, wanted), set[SourceTable]()
            for block, lines in enumerate(_lines_of(batches, number, self.block_bytes)):
                found = decoder.decode(lines)
                for events in found.events:
                    bad = list(events.bad)
                    if events.truncates or has_rows(events, bad):
                        facts, text = FoundEvents(EventColumns.of(events), events.truncates), _pickled(events)
                    else:
                        facts, text = FoundEvents(bad=tuple(in_order_read(bad))), b""
                    yield _one(_EVENTS, source_text(events.table), block, pickle.dumps(facts), text)
                if found.bad:
                    yield _one(_EVENTS, "", block, pickle.dumps(FoundEvents(bad=tuple(in_order_read(found.bad)))), b"")
                for table in sorted(new - told):
                    yield _one(_EVENTS, source_text(table), block, pickle.dumps(FoundEvents()), b"")
                told |= new


class _Pickler(pickle.Pickler):
    """Writes only the values that an array has: Arrow's own way writes all those that a slice shares with others. It compresses
    them, as events may come with their schemas, of which most are the same text.
    """

    def reducer_override(self, value: Any) -> Any:
        if not isinstance(value, pa.Array):
            return NotImplemented
        sink = pa.BufferOutputStream()
        batch = pa.record_batch([value], names=[""])
        with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
            writer.write_batch(batch)
        return _array_of, (sink.getvalue().to_pybytes(),)


def _array_of(text: bytes) -> pa.Array:
    return pa.ipc.open_stream(text).read_next_batch().column(0)


def _pickled(events: TableEvents) -> bytes:
    buffer = io.BytesIO()
    _Pickler(buffer, pickle.HIGHEST_PROTOCOL).dump(events)
    return buffer.getvalue()


def _lines_of(batches: Iterable[pa.RecordBatch], number: int, size: int) -> Iterator[EventLines]:
    """The messages in blocks of about `size` bytes, each of one partition of a topic."""
    held, held_bytes, row = list[pa.RecordBatch](), 0, 0
    for batch in batches:
        held.append(batch)
        held_bytes += batch.nbytes
        if held_bytes >= size:
            yield from _cut(pa.concat_batches(held), number, row)
            row += sum(map(len, held))
            held, held_bytes = [], 0
    if held:
        yield from _cut(pa.concat_batches(held), number, row)


def _cut(batch: pa.RecordBatch, number: int, row: int) -> Iterator[EventLines]:
    value = batch.column("value").cast(pa.large_binary())
    value = value.fill_null(b"null")
    if batch.column("topic").null_count == len(batch):
        yield EventLines(f"partition {number}", value, np.arange(row, row + len(batch)), row + len(batch), PositionUnit.ROW)
        return
    topics, partitions = batch.column("topic").to_pylist(), batch.column("partition").to_numpy(zero_copy_only=False)
    names = np.array([f"{topic}/{one}" for topic, one in zip(topics, partitions, strict=True)], object)
    offsets = batch.column("offset").cast(pa.int64()).to_numpy(zero_copy_only=False)
    cuts = [0, *(np.flatnonzero(names[1:] != names[:-1]) + 1).tolist(), len(names)]
    for begin, end in pairwise(cuts):
        if begin == end:
            continue
        part, keys = offsets[begin:end], batch.column("key").slice(begin, end - begin)
        texts = value.slice(begin, end - begin)
        yield EventLines(str(names[begin]), texts, part, int(part[-1]) + 1, PositionUnit.OFFSET, keys)


@dataclass(frozen=True)
class Conversion:
    """How the events of a table become rows: those of the table with this schema."""

    target: str
    schema: TableSchema
    sequence: str | None
    derived: DerivedColumns

    def table(self) -> EventTable:
        def refuse(*_: Any) -> Any:
            raise UsageError(f"{self.target} does not exist", "it was to be created before its rows were made")

        planned = self.schema
        return EventTable(
            name=self.target,
            keys=planned.primary_keys,
            allows_append=True,
            create=refuse,
            define=refuse,
            is_dry=True,
            sequence=self.sequence,
            derived=self.derived,
            planned=planned,
        )


@dataclass(frozen=True)
class ConvertingTask:
    """Makes rows of the events of each block. `conversions`: by source, for the tables that go on."""

    conversions: Mapping[str, Conversion]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with called_by_spark():
            tables = dict[str, EventTable]()
            rows = (row for batch in batches for row in zip(*(column for column in batch.columns), strict=True))
            for _, of_block in groupby(rows, key=lambda row: row[1].as_py()):
                parts = dict[str, list[bytes]]()
                for source, _, text in of_block:
                    conversion = self.conversions.get(source.as_py())
                    if conversion is None or not len(text.as_buffer()):
                        continue
                    tables.setdefault(conversion.target, conversion.table())
                    parts.setdefault(conversion.target, []).append(text.as_py())
                for target, texts in parts.items():
                    yield _converted(tables[target], target, texts)


def _converted(table: EventTable, target: str, texts: Sequence[bytes]) -> pa.RecordBatch:
    """The rows of the events of a block, perhaps of several tables of the source, in the order in which they were read."""
    bad, before = list[BadEvent](), table.incomplete
    parts = list[PlacedRows]()
    try:
        for text in texts:
            events = pickle.loads(text)  # of a task of this job
            bad += events.bad
            parts.append(table.rows(events, bad))
            if (stop := parts[-1].stop) is not None:
                raise stop.failure
        rows = table.in_order(parts)
    except PaimonError as failure:
        return _one(_ROWS, target, 0, pickle.dumps(ConvertedRows(failure=failure)), b"")
    counts = counts_of(rows)
    rows = rows.set_column(rows.column_names.index(KIND_COLUMN), KIND_COLUMN, rows[KIND_COLUMN].cast(pa.string()))
    found = pickle.dumps(ConvertedRows(counts, tuple(in_order_read(bad)), table.incomplete - before, table.newest_millis))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return _one(_ROWS, target, rows.nbytes, found, sink.getvalue().to_pybytes())


def rows_of_chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows in the last column of what a `ConvertingTask` gave."""
    for batch in batches:
        for text in batch.column(batch.num_columns - 1):
            if text.is_valid and len(text.as_buffer()):
                table = pa.ipc.open_stream(text.as_buffer()).read_all()
                yield from table.combine_chunks().to_batches(max_chunksize=PIECES.batch_rows)


def _one(schema: pa.Schema, *values: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([one], kind) for one, kind in zip(values, schema.types, strict=True)], schema=schema
    )
