"""Applies a stream of change events to the tables that they name: each batch of the stream is one commit of each table.

1. Tasks decode the messages, and tell the driver which tables and columns there are.
2. The driver creates the tables, and lets them follow their sources.
3. Tasks make the rows of all tables.
4. Each table is written and committed: by a job of Spark if it has many rows, else by the driver, which commits hundreds of small
   tables in the time of a few jobs.

The identity of a commit is (query, number of the batch), so that a batch that Spark repeats takes effect once in each table.
"""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from paimon_cli.api.arguments import checks_call, option_texts, takes
from paimon_cli.api.dead_letters import DeadLetters, bad_event
from paimon_cli.api.ingest_call import IngestCall
from paimon_cli.api.ingest_run import BLOCK_SHARE, IngestRun
from paimon_cli.api.ingest_site import IngestSite
from paimon_cli.api.ingest_target import IngestTarget
from paimon_cli.api.runtime import Runtime
from paimon_cli.api.writing import Writing
from paimon_cli.errors import NotSupported, PaimonError, UsageError
from paimon_cli.ingest.changes.derived_columns import DerivedColumns
from paimon_cli.ingest.changes.event_lines import BadEvent, PositionUnit
from paimon_cli.ingest.changes.table_events import SourceTable
from paimon_cli.ingest.changes.table_reader import MAX_TABLES
from paimon_cli.jobs.spark.submit import check_running, classic_context, send_package
from paimon_cli.options.choices import OnError
from paimon_cli.pieces import PIECES
from paimon_cli.requests.ingesting import IngestOptions
from paimon_cli.spark.event_tasks import (
    EVENTS_SQL,
    MESSAGE_COLUMNS,
    ROWS_SQL,
    Conversion,
    ConvertedRows,
    ConvertingTask,
    DecodingTask,
    rows_of_chunks,
    source_text,
)
from paimon_cli.spark.source_writing import QUERY
from paimon_cli.spark.task_rows import FrameRows
from paimon_cli.spark.writing import AsRows, FrameEngine
from paimon_cli.storage.catalog_options import split_options
from paimon_cli.write.write_plan import WritePlan

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_TYPES = {"value": "binary", "key": "binary", "topic": "string", "partition": "int", "offset": "long"}
_OF_KAFKA = ("topic", "partition", "offset")


class StreamIngest(IngestOptions):
    """A stream of events to apply to the tables of a catalog."""

    _: KW_ONLY
    into: str | None = None
    warehouse: str | None = None
    options: Mapping[str, str] | None = None

    def check(self) -> None:
        given = {"--follow": self.follow, "--interval": self.interval is not None, "--max-rounds": self.max_rounds is not None}
        if chosen := [name for name, is_given in given.items() if is_given]:
            raise UsageError(f"{chosen[0]} is for sources that are read here", "a query has a trigger", "leave it out")
        if self.kafka_conf:
            raise UsageError("--kafka-conf is for topics that are read here", "Spark reads them", "set options of the stream")
        super().check()


@checks_call
@takes(StreamIngest)
def ingest(stream: DataFrame, call: StreamIngest) -> DataStreamWriter:
    """Apply a stream of change events to tables, each event once. Returns a writer, which `start` starts.

    `stream`: a streaming DataFrame with the events in a column `value`, as `format("kafka")` and `format("text")` give them;
    the columns `key`, `topic`, `partition` and `offset` of Kafka are used, too. `into`: a database, whose tables are created as
    needed, or one table. `warehouse`: the `url` of `Catalog`, and `options` its options. The others are those of
    `Catalog.ingest`; `--follow`, `--interval`, `--max-rounds` and `--kafka-conf` are for sources that are not read by Spark.

        events = spark.readStream.format("kafka").options(**{"kafka.bootstrap.servers": "b:9092", "subscribe": "shop"}).load()
        writer = paimon.ingest(events, format="debezium", into="shop", primary_key="id")
        writer.option("checkpointLocation", "/checkpoints/shop").start()

    Each table commits each batch as (`commit_user`, number of the batch); the default user is the id of the query, which over
    Spark Connect is not known: name one there. A table that cannot go on ends the query, after the others have committed the
    batch. Truncations are not supported. Messages of Kafka are applied in the order of their offsets; lines of files in the order
    of the partitions of Spark: let the events of a key be in one file.
    """
    given: object = stream
    if not isinstance(given, DataFrame):
        raise UsageError(f"{type(given).__name__} is not a Spark DataFrame", "this function applies a stream of events")
    check_running(stream.sparkSession)
    if not stream.isStreaming:
        raise UsageError("the DataFrame is no stream", "its rows have no batches", "read it with readStream")
    if "value" not in stream.columns:
        raise UsageError("the stream has no column value", f"it has {', '.join(stream.columns[:20])}", "name the events value")
    if (call.into is None) == (call.database_from is None):
        raise UsageError("name where the events go", "by either --into or --database-from source", "such as into='shop'")
    if call.commit_user is None and classic_context(stream.sparkSession) is None:
        raise UsageError("a commit user is needed", "Spark Connect does not tell which query it is", "give --commit-user")
    DerivedColumns.of(call.computed or (), call.metadata_column or ())
    return stream.writeStream.foreachBatch(EventBatches(call))


@dataclass
class EventBatches:
    """The function of the query. `seen`: the tables of the source that it has met."""

    call: StreamIngest
    seen: set[SourceTable] = field(default_factory=set)

    def __call__(self, frame: DataFrame, number: int) -> None:
        call = self.call
        context = classic_context(frame.sparkSession)
        user = call.commit_user or (None if context is None else context.getLocalProperty(QUERY))
        if user is None:
            raise UsageError("a commit user is needed", "the batch does not tell its query", "give --commit-user")
        site = IngestSite(Runtime(), call.warehouse, *split_options(option_texts(call.options)))
        of_files = None if call.on_error == OnError.FAIL else call.on_error
        with DeadLetters(of_files, ()) as letters:
            asked = IngestCall.of(call, sources=(), into=call.into, commit_user=user)
            run = IngestRun(site, asked, letters)
            EventBatch(frame, number, run, self.seen).apply()
            run.ended(None)


class EventsEngine(FrameEngine):
    """Writes the rows that `ConvertingTask` has made."""

    def check(self, plan: WritePlan) -> None:
        """They have the types of the table."""

    @property
    def as_rows(self) -> AsRows:
        return rows_of_chunks


@dataclass
class EventBatch:
    """One batch of the stream. `same`: how many bad events of each text it has."""

    frame: DataFrame
    number: int
    run: IngestRun
    seen: set[SourceTable]
    counts: dict[str, Counter[int]] = field(default_factory=dict)
    same: Counter[bytes] = field(default_factory=Counter)

    def apply(self) -> None:
        send_package(self.frame.sparkSession)
        self.engine = FrameEngine(self.frame)
        with self._decoded() as events, _kept(self._converted(events)) as rows:
            sizes = self._checked(rows)
            self._commit(rows, sizes)

    def _messages(self) -> DataFrame:
        """The messages as tasks get them: each partition of a topic together, and in order."""
        names = set(self.frame.columns)
        columns = [
            (F.col(f"`{name}`") if name in names else F.lit(None)).cast(_TYPES[name]).alias(name) for name in MESSAGE_COLUMNS
        ]
        chosen = self.frame.select(*columns)
        if not names.issuperset(_OF_KAFKA):
            return chosen
        return chosen.repartition("topic", "partition").sortWithinPartitions(*_OF_KAFKA)

    @contextmanager
    def _decoded(self) -> Iterator[DataFrame]:
        """The events, decoded for tables that are open and have their columns. New tables let them be decoded once more."""
        messages = self._messages()  # not kept: they are read again only where new tables are met
        while True:
            known = {table: self.run.wanted(table) for table in sorted(self.seen)}
            task = DecodingTask(self.run.format, known, self.run.names, max(1, self.run.memory // BLOCK_SHARE))
            with _kept(messages.mapInArrow(task, EVENTS_SQL)) as events:
                if not self._follow(events):
                    yield events
                    return

    def _follow(self, events: DataFrame) -> bool:
        """Let the tables follow the events. Returns whether there are new tables, so that all must be decoded again."""
        with self.engine.one_job():
            told = events.select("source", "found").collect()
        found = [(source, pickle.loads(text)) for source, text in told]  # of tasks of this job
        by_text = {source_text(table): table for table in self.seen}
        unknown = dict.fromkeys(source for source, _ in found if source and source not in by_text)
        if unknown and len(self.seen) <= MAX_TABLES:  # the first one above the limit ends the query
            self.seen.update(SourceTable(*json.loads(source)) for source in islice(unknown, MAX_TABLES + 1 - len(self.seen)))
            return True
        for source, facts in found:
            self.run.letters.expect_room()
            target = self.run.by_source.get(by_text[source]) if source in by_text else None
            self._refuse(target, facts.bad)
            if target is None or target.failure is not None or facts.columns is None:
                continue
            try:
                if facts.truncates:
                    what = f"{target.name} was emptied by a truncation"
                    raise NotSupported(what, "a batch of Spark is one commit", "empty the table, and skip the event")
                target.expect_one_schema(facts.columns.table)
                target.follow(facts.columns)
            except PaimonError as failure:
                self.run.stop(target, failure)
        return False

    def _refuse(self, target: IngestTarget | None, bad: Sequence[BadEvent]) -> None:
        """Set events without rows apart, or let them stop their table, or the query if their table cannot be told (None)."""
        for event in bad:
            if target is None and self.run.stops:
                raise bad_event(event)
            if target is not None and target.failure is None:
                target.bad_events += 1
                if self.run.stops:
                    self.run.stop(target, bad_event(event))
            if not self.run.stops and (target is None or target.failure is None):
                self._set_apart(event)

    def _converted(self, events: DataFrame) -> DataFrame:
        """The rows of the tables that go on, and have not committed this batch before."""
        conversions = {}
        for source, target in self.run.by_source.items():
            if target is not None and target.failure is None and target.next_id <= self.number and target.schema is not None:
                conversions[source_text(source)] = Conversion(target.name, target.schema, target.sequence, target.derived)
        return events.select("source", "block", "events").mapInArrow(ConvertingTask(conversions), ROWS_SQL)

    def _checked(self, rows: DataFrame) -> dict[str, int]:
        """The bytes of the rows of each table that can commit."""
        with self.engine.one_job():
            told = rows.select("target", "size", "found").collect()
        sizes = dict[str, int]()
        for name, size, text in told:
            target, found = self.run.targets[name], pickle.loads(text)  # of tasks of this job
            if target.failure is None:
                try:
                    self._take(target, found)
                except PaimonError as failure:
                    self.run.stop(target, failure)
            sizes[name] = sizes.get(name, 0) + size
        return {name: size for name, size in sizes.items() if self.run.targets[name].failure is None}

    def _take(self, target: IngestTarget, found: ConvertedRows) -> None:
        """Note what became of some events of a table. Raises the error that stops it."""
        target.bad_events += len(found.bad)
        target.incomplete += found.incomplete
        self.counts.setdefault(target.name, Counter()).update(found.counts)
        target.newest_millis = max(filter(None, (target.newest_millis, found.newest_millis)), default=None)
        if found.failure is not None:
            raise found.failure
        for event in found.bad:
            if self.run.stops:
                raise bad_event(event)
            self._set_apart(event)

    def _set_apart(self, event: BadEvent) -> None:
        """Set a bad event apart, once if the batch is repeated.

        A message has its offset. Rows of files come in other partitions and places of Spark each time: there an event is the n-th
        one of this text in its batch.
        """
        if event.unit == PositionUnit.ROW:
            self.same[event.text] += 1
            event = event._replace(source=f"batch {self.number} of {self.run.user}", position=self.same[event.text])
        self.run.letters.add(event, self.run.format.name)

    def _commit(self, rows: DataFrame, sizes: Mapping[str, int]) -> None:
        self.run.letters.flush()
        small, total = list[str](), 0
        for name in sorted(sizes, key=lambda one: sizes[one]):
            total += sizes[name]
            if total > min(PIECES.collected_bytes, self.run.memory):
                break
            small.append(name)
        for name in sizes:
            self.run.targets[name].next_id = self.number
        if small:
            with self.engine.one_job():
                chosen = rows.where(F.col("target").isin(small)).select("target", "rows").toArrow()
            for name in small:
                of_table = chosen.filter(pa.compute.equal(chosen["target"], name))
                batches = list(rows_of_chunks(of_table.to_batches()))
                if batches:
                    self.run.targets[name].held.append(pa.Table.from_batches(batches))
            self.run.commit()
        for name in sizes.keys() - set(small):
            target = self.run.targets[name]
            try:
                self._write(target, rows.where(F.col("target") == name).select("rows"))
            except PaimonError as failure:
                self.run.stop(target, failure)

    def _write(self, target: IngestTarget, rows: DataFrame) -> None:
        assert target.table is not None
        engine: Any = EventsEngine(rows)
        runtime = replace(target.table.runtime, engine="auto", given_engine=engine)
        table = Writing(target.table.context, runtime)
        table.check_commit()
        done = table._write(target.request(FrameRows(), {}, self.counts[target.name]), None)
        target.snapshots.extend(snapshot.id for snapshot in done.snapshots)


@contextmanager
def _kept(frame: DataFrame) -> Iterator[DataFrame]:
    """The frame, whose rows are computed once."""
    kept = frame.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield kept
    finally:
        kept.unpersist()
