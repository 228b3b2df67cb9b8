"""Structured Streaming: batches that Spark repeats count once, and the snapshots of a table as a stream."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol, cast

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import LongType, StructField, StructType

from paimon_cli import Table, spark
from paimon_cli.errors import NotFound, PaimonError, UsageError
from paimon_cli.metadata.snapshot import APPEND, COMPACT, OVERWRITE
from paimon_cli.read.time_travel import POSITION_OPTIONS
from paimon_cli.spark import stream_reading
from paimon_cli.spark.data_source import PaimonDataSource
from paimon_cli.spark.source_options import SourceOptions
from paimon_cli.spark.source_writing import StreamWriter, stream_writer
from paimon_cli.spark.stream_reading import NOT_OF_STREAMS, PaimonStreamReader
from tests.nightly import at_night
from tests.tables import data_files, live_files, make_table, rows

SUMS_COLUMNS = StructType([StructField("k", LongType(), False), StructField("n", LongType())])
SUMS = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}
TWO_NUMBERS = StructType([StructField("id", LongType()), StructField("n", LongType())])
Rows = list[tuple[Any, ...]]


class Query:
    """Lines of JSON files as a stream into a table, with a checkpoint that survives restarts."""

    def __init__(self, session: SparkSession, folder: Path, table: Table) -> None:
        self.session = session
        self.table = table
        self.source, self.checkpoint = folder / "source", folder / "checkpoint"
        self.source.mkdir()

    def add(self, name: str, *rows: tuple[int, int]) -> None:
        (self.source / name).write_text("".join(f'{{"k": {k}, "n": {n}}}\n' for k, n in rows))

    def run(self, **options: str) -> None:
        """Read all that is there, a file in each batch."""
        stream = self.session.readStream.schema("k long, n long").option("maxFilesPerTrigger", 1).json(str(self.source))
        writer = stream.writeStream.format("paimon").option("checkpointLocation", str(self.checkpoint)).options(**options)
        writer.trigger(availableNow=True).start(self.table.url).awaitTermination()

    def forget_commit(self, batch: int) -> None:
        """As if Spark had died after the table's commit and before its own."""
        (self.checkpoint / "commits" / str(batch)).unlink()
        (self.checkpoint / "commits" / f".{batch}.crc").unlink()

    def lose_batch(self, batch: int) -> None:
        """As if Spark had died after the tasks of the last batch and before the table's commit."""
        self.forget_commit(batch)
        newest = self.table.snapshots()[0]
        assert newest.commit_identifier == batch
        for name in (f"snapshot-{newest.id}", "LATEST"):
            (Path(self.table.url) / "snapshot" / name).unlink()
        self.table.refresh()

    @property
    def sums(self) -> Rows:
        return sorted(zip(*self.table.scan().to_arrow().to_pydict().values(), strict=True))


@pytest.fixture(params=[2, at_night(-1)], ids=["fixed buckets", "dynamic buckets"])
def query(session: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> Query:
    context = make_table(tmp_path / "t", {"k": "BIGINT NOT NULL", "n": "BIGINT"}, ["k"], bucket=request.param, options=SUMS)
    return Query(session, tmp_path, Table.open(context.url))


def test_a_batch_that_spark_repeats_counts_once(query: Query) -> None:
    """The reproduction of apache/paimon #9666: the entry of the commit log is lost, and the query starts again."""
    query.add("1", (1, 10), (2, 20))
    query.add("2", (1, 1))
    query.run()
    assert query.sums == [(1, 11), (2, 20)]
    query.forget_commit(1)
    query.add("3", (2, 5))
    query.run()
    assert query.sums == [(1, 11), (2, 25)]
    snapshots = query.table.snapshots()
    assert [snapshot.commit_identifier for snapshot in reversed(snapshots)] == [0, 1, 2]
    assert len({snapshot.commit_user for snapshot in snapshots}) == 1
    query.lose_batch(2)
    assert query.sums == [(1, 11), (2, 20)]
    assert data_files(query.table.context) - live_files(query.table.context), "tasks have written it"
    query.run()
    query.table.refresh()
    assert query.sums == [(1, 11), (2, 25)]
    assert [snapshot.commit_identifier for snapshot in reversed(query.table.snapshots())] == [0, 1, 2]
    assert data_files(query.table.context) == live_files(query.table.context)
    assert query.table.verify(level="full").errors == 0


@pytest.mark.nightly
def test_a_repeated_batch_of_an_aggregation_keeps_its_state(session: SparkSession, tmp_path: Path) -> None:
    """Spark ends a query for good if `foreachBatch` does not compute all rows of a batch: their state is not stored."""
    events = Table.open(make_table(tmp_path / "events", {"k": "BIGINT", "n": "BIGINT"}, [], bucket=-1).url)
    totals = Table.open(make_table(tmp_path / "totals", {"k": "BIGINT NOT NULL", "n": "BIGINT"}, ["k"]).url)
    url = totals.url

    def upsert(rows: DataFrame, batch: int) -> None:
        spark.write(rows, url, commit_user="totals", commit_id=batch)

    def run() -> None:
        counted = session.readStream.format("paimon").load(events.url).groupBy("k").agg(F.sum("n").alias("n"))
        writer = counted.writeStream.outputMode("update").foreachBatch(upsert)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        writer.start().awaitTermination()

    events.write(pa.table({"k": [1, 2], "n": [10, 20]}))
    run()
    events.write(pa.table({"k": [2], "n": [1]}))
    run()
    for name in ("1", ".1.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink()
    events.write(pa.table({"k": [2, 3], "n": [4, 5]}))
    run()
    assert totals.scan(order_by="k").to_arrow().to_pydict() == {"k": [1, 2, 3], "n": [10, 25, 5]}
    assert [snapshot.commit_identifier for snapshot in reversed(totals.snapshots())] == [0, 1, 2]


@pytest.mark.parametrize("bucket", [1, -1])
def test_an_abort_after_a_published_commit_deletes_nothing(tmp_path: Path, bucket: int) -> None:
    """Spark calls `abort` with the same messages if `commit` failed, even where it failed after it had published."""
    context = make_table(tmp_path / "t", {"k": "BIGINT NOT NULL", "n": "BIGINT"}, ["k"], bucket=bucket, options=SUMS)

    def task(n: int) -> tuple[StreamWriter, Any]:
        writer = stream_writer(SourceOptions.of({"path": context.url}), SUMS_COLUMNS, overwrite=False)
        assert isinstance(writer, StreamWriter)
        return writer, writer.written(iter([pa.record_batch({"k": [1], "n": [n]})]), "the query")

    writer, message = task(10)
    writer.commit([message], 0)
    writer.abort([message], 0)
    writer.abort([message, None], 0)  # as if a later attempt, of which a task failed, had drawn the same stamp
    writer, message = task(10)
    writer.commit([message], 0)
    writer, message = task(5)
    writer.abort([message, None], 1)
    assert rows(context) == [{"k": 1, "n": 10}]
    assert data_files(context) == live_files(context)


def test_a_bad_row_fails_the_query_and_leaves_no_files(query: Query, session: SparkSession) -> None:
    query.add("1", (1, 10))
    query.run()
    (query.source / "2").write_text('{"n": 1}\n')
    with pytest.raises(PySparkException, match="NOT NULL"):
        query.run()
    assert query.sums == [(1, 10)]
    assert data_files(query.table.context) == live_files(query.table.context)
    with pytest.raises(PySparkException, match="commit_id for a stream"):
        query.run(commit_id="7")


def test_a_named_user_keeps_queries_apart(query: Query, tmp_path: Path) -> None:
    """With a new checkpoint batches count from 0 again: they are not taken for those of the query before."""
    query.add("1", (1, 10))
    query.run(commit_user="loader")
    query.checkpoint = tmp_path / "new-checkpoint"
    query.run(commit_user="loader")
    assert query.sums == [(1, 20)]
    assert all(snapshot.commit_user.startswith("loader-") for snapshot in query.table.snapshots())


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Three rows, one of which was then updated."""
    columns, options = {"id": "BIGINT NOT NULL", "n": "BIGINT"}, {"changelog-producer": "input"}
    table = Table.open(make_table(tmp_path / "t", columns, ["id"], options=options).url)
    table.write(pa.table({"id": [1, 2, 3], "n": [1, 2, 3]}))
    table.write(pa.table({"id": [2], "n": [22]}))
    return table


class Batches(Protocol):
    def __call__(self, table: Table, checkpoint: Path, **options: str) -> list[Rows]:
        """The rows of each batch that is not empty, up to what is there now."""
        ...


def driven(table: Table, checkpoint: Path, **options: str) -> list[Rows]:
    """What Spark asks of a source in a query with `availableNow`, without Spark."""
    source = PaimonDataSource({"path": table.url, **options})
    reader = cast(PaimonStreamReader, source.streamReader(source.schema()))
    reader.prepareForTriggerAvailableNow()
    limit = reader.getDefaultReadLimit()
    begin = json.loads(checkpoint.read_text()) if checkpoint.exists() else reader.initialOffset()
    found: list[Rows] = []
    while (end := reader.latestOffset(begin, limit)) != begin:
        in_tasks = pickle.loads(pickle.dumps((reader, reader.partitions(begin, end))))
        rows = (row for part in in_tasks[1] for batch in in_tasks[0].read(part) for row in batch.to_pylist())
        found.append(sorted(tuple(row.values()) for row in rows))
        begin = end
    checkpoint.write_text(json.dumps(begin))
    return [rows for rows in found if rows]


@pytest.fixture(params=["driven", at_night("spark")])
def batches(request: pytest.FixtureRequest) -> Batches:
    if request.param == "driven":
        return driven
    session: SparkSession = request.getfixturevalue("session")

    def queried(table: Table, checkpoint: Path, **options: str) -> list[Rows]:
        found: list[Rows] = []

        def take(rows: DataFrame, number: int) -> None:
            found.append(sorted(tuple(row) for row in rows.collect()))

        stream = session.readStream.format("paimon").options(**options).load(table.url)
        writer = stream.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()
        return [rows for rows in found if rows]

    return queried


EITHER = (PySparkException, PaimonError)
"""Spark shows an error of the source within one of its own."""
ON_SPARK = pytest.mark.parametrize("batches", ["spark"], indirect=True)
"""The others run on Spark at night."""


@ON_SPARK
def test_a_stream_begins_with_the_table_and_goes_on_with_its_changes(batches: Batches, table: Table, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    assert batches(table, checkpoint) == [[(1, 1), (2, 22), (3, 3)]]
    table.write(pa.table({"id": [4], "n": [4]}))
    table.delete("id = 1")
    assert batches(table, checkpoint) == [[(4, 4)]]
    assert batches(table, checkpoint) == []


@pytest.mark.parametrize("producer", ["lookup", "full-compaction"])
def test_rows_that_await_a_changelog_are_shown_once(batches: Batches, tmp_path: Path, producer: str) -> None:
    """The changelog of a compaction shows them; so the stream, which begins before it, must not."""
    columns, options = {"id": "BIGINT NOT NULL", "n": "BIGINT"}, {"changelog-producer": producer, "write-only": "true"}
    table = Table.open(make_table(tmp_path / "t", columns, ["id"], options=options).url)
    table.write(pa.table({"id": [1, 2], "n": [1, 2]}))
    table.compact()
    table.write(pa.table({"id": [2, 3], "n": [22, 3]}))
    checkpoint, kinds = tmp_path / "checkpoint", {"row_kind": "true"}
    assert batches(table, checkpoint, **kinds) == [[("+I", 1, 1), ("+I", 2, 2)]]
    table.compact()
    assert batches(table, checkpoint, **kinds) == [[("+I", 3, 3), ("+U", 2, 22), ("-U", 2, 2)]]


WAITING = {
    "deletion vectors": (1, {"deletion-vectors.enabled": "true"}),
    "first row": (1, {"merge-engine": "first-row"}),
    "postponed": (-2, {}),
    "postponed, merged": (-2, {"postpone.merge-on-read": "true"}),
}


@pytest.mark.parametrize(
    ("kind", "producer"), [case for case in product(WAITING, ("none", "input", "lookup")) if case != ("first row", "input")]
)
def test_rows_that_reads_hide_are_shown_once(tmp_path: Path, kind: str, producer: str) -> None:
    """They wait for a compaction while the stream begins: with its changelog if it writes one, else at once."""
    bucket, options = WAITING[kind]
    options = {"postpone.batch-write-fixed-bucket": "false", "write-only": "true", "changelog-producer": producer, **options}
    columns = {"id": "BIGINT NOT NULL", "n": "BIGINT"}
    table = Table.open(make_table(tmp_path / "t", columns, ["id"], bucket=bucket, options=options).url)
    shown: list[list[Rows]] = []
    for ids in ([1, 2], [3]):
        table.write(pa.table({"id": ids, "n": ids}), compact="none")
        shown.append(driven(table, tmp_path / "c"))
    table.compact()
    shown.append(driven(table, tmp_path / "c"))
    at_once, with_changelog = [[[(1, 1), (2, 2)]], [[(3, 3)]], []], [[], [], [[(1, 1), (2, 2), (3, 3)]]]
    waits = producer == "lookup" or (bucket == -2 and producer == "input")
    assert shown == (with_changelog if waits else at_once)


def test_starts_row_kinds_and_limits(batches: Batches, table: Table, tmp_path: Path) -> None:
    table.delete("id = 1")
    assert batches(table, tmp_path / "all", row_kind="true") == [[("+I", 2, 22), ("+I", 3, 3)]], "it never showed row 1"
    changes = [[("+I", 1, 1), ("+I", 2, 2), ("+I", 3, 3)], [("+I", 2, 22)], [("-D", 1, 1)]]
    one_by_one = {"start": "1", "row_kind": "true", "maxRowsPerTrigger": "1"}
    assert batches(table, tmp_path / "a", **one_by_one) == changes
    assert batches(table, tmp_path / "b", start="2", row_kind="true", where="id = 2") == [[("+I", 2, 22)]]
    assert batches(table, tmp_path / "c", start="latest") == []
    made = table.snapshots()[1].time
    assert batches(table, tmp_path / "d", start=str(made)) == [[(2, 22)]], "the snapshot of that very moment is read"
    assert batches(table, tmp_path / "f", start=str(made + 1)) == []
    assert batches(table, tmp_path / "e", start="2020-01-01T00:00:00Z") == [[(1, 1), (2, 2), (2, 22), (3, 3)]]
    assert batches(table, tmp_path / "g", start="365 days ago") == [[(1, 1), (2, 2), (2, 22), (3, 3)]]
    table.tags.create("second", snapshot=2)
    assert batches(table, tmp_path / "h", start="second") == [[(2, 22)]], "the snapshot of the tag is read"


def test_compactions_and_overwrites_let_no_batch_grow(tmp_path: Path) -> None:
    """A compaction takes rows away, and an overwrite as many as it adds: neither makes room for further rows."""
    columns, options = {"id": "BIGINT NOT NULL", "n": "BIGINT"}, {"write-only": "true", "streaming-read-overwrite": "true"}
    table = Table.open(make_table(tmp_path / "t", columns, ["id"], options=options).url)

    def write(n: int, **how: Any) -> None:
        table.write(pa.table({"id": [*range(10)], "n": [n] * 10}), **how)

    for n in range(3):
        write(n)
    table.compact(strategy="full")
    for n in range(3, 6):
        write(n)
    write(6, overwrite=True)
    write(7)
    sizes = [len(rows) for rows in driven(table, tmp_path / "c", start="1", row_kind="true", maxRowsPerTrigger="40")]
    assert sum(sizes) >= 70 and max(sizes) <= 40


@ON_SPARK
@pytest.mark.in_part(5)
@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("snapshot", "1", "option snapshot has no meaning for a stream"),
        ("scan.snapshot-id", "1", r"scan.snapshot-id has no meaning for a stream(.|\n)*the options start and consumer"),
        ("changelog-producer", "lookup", r"changelog-producer has no meaning for a stream"),
        ("scan.bounded.watermark", "1", r"scan.bounded.watermark has no meaning for a stream(.|\n)*availableNow"),
        ("start", "earliest", "it must be full, latest, a snapshot id, a tag or a time"),
        ("start", "²", "it must be full, latest, a snapshot id, a tag or a time"),
        ("start", "99", r"no snapshot 99 to start a stream at: the latest snapshot of (.|\n)* is 2\nhint: start=latest"),
        ("maxRowsPerTrigger", "x", "getDefaultReadLimit: paimon_cli.errors.UsageError: option maxRowsPerTrigger is x"),
        ("maxRowsPerTrigger", "0", "option maxRowsPerTrigger is 0: the minimum is 1"),
        ("maxFilesPerTrigger", "1", "use the option maxRowsPerTrigger"),
        ("read.stream.maxRowsPerTrigger", "1", r"unknown option read.stream(.|\n)*the option maxRowsPerTrigger"),
    ],
)
def test_options_that_a_stream_would_ignore(
    batches: Batches, table: Table, tmp_path: Path, option: str, value: str, message: str
) -> None:
    with pytest.raises(EITHER, match=message):
        batches(table, tmp_path / "a", **{option: value})


def test_a_consumer_goes_on_where_another_query_ended(batches: Batches, table: Table, tmp_path: Path) -> None:
    assert batches(table, tmp_path / "a", consumer="sink") == [[(1, 1), (2, 22), (3, 3)]]
    assert [(consumer.name, consumer.next_snapshot) for consumer in table.consumers] == [("sink", 3)]
    for number in (4, 5):
        table.write(pa.table({"id": [number], "n": [number]}))
    table.expire(retain_max=1, retain_min=1, older_than="0 s")
    assert list(table.snapshot_ids()) == [3, 4], "the stream has not read them"
    assert batches(table, tmp_path / "a", consumer="sink") == [[(4, 4), (5, 5)]]
    assert [consumer.next_snapshot for consumer in table.consumers] == [5]
    assert batches(table, tmp_path / "b", consumer="sink") == []


def test_a_start_that_has_expired_is_the_oldest_that_is_left(batches: Batches, table: Table, tmp_path: Path) -> None:
    table.write(pa.table({"id": [4], "n": [4]}))
    table.expire(retain_max=1, retain_min=1, older_than="0 s")
    for number, start in enumerate(("1", "3", "2020-01-01T00:00:00Z")):
        assert batches(table, tmp_path / str(number), start=start) == [[(4, 4)]]
    assert batches(table, tmp_path / "next", start="4") == []


def test_changelogs_that_outlive_their_snapshots_are_read(batches: Batches, tmp_path: Path) -> None:
    options = {"changelog-producer": "input", "changelog.num-retained.min": "10", "changelog.num-retained.max": "20"}
    options |= {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"}
    table = Table.open(make_table(tmp_path / "t", {"id": "BIGINT NOT NULL", "n": "BIGINT"}, ["id"], options=options).url)
    for number in range(4):
        table.write(pa.table({"id": [number], "n": [number]}))
    times = [snapshot.time for snapshot in table.snapshots()]
    table.expire()
    assert list(table.snapshot_ids()) == [4]
    assert batches(table, tmp_path / "a", start="2", maxRowsPerTrigger="1") == [[(1, 1)], [(2, 2)], [(3, 3)]]
    assert batches(table, tmp_path / "b", start="2020-01-01") == [[(0, 0), (1, 1), (2, 2), (3, 3)]]
    assert batches(table, tmp_path / "c", start=str(times[-3])) == [[(2, 2), (3, 3)]]


def test_a_stream_that_is_ahead_of_its_table_says_so(batches: Batches, table: Table, tmp_path: Path) -> None:
    """As Java does: the table was rolled back or created again, and snapshots with the old ids would be taken for read."""
    assert batches(table, tmp_path / "a") == [[(1, 1), (2, 22), (3, 3)]]
    table.rollback(1)
    with pytest.raises(
        (PySparkException, PaimonError), match=r"no snapshot 2 of .*, up to which the stream has read: the latest is 1"
    ):
        batches(table, tmp_path / "a")


@pytest.mark.parametrize("changed", ["rolled back", "created again"])
def test_a_stream_does_not_take_another_commit_with_the_same_id_for_read(
    batches: Batches, table: Table, tmp_path: Path, changed: str
) -> None:
    assert batches(table, tmp_path / "a") == [[(1, 1), (2, 22), (3, 3)]]
    if changed == "rolled back":
        table.rollback(1)
    else:
        table.drop()
        table = Table.create(table.url, columns=["id BIGINT NOT NULL", "n BIGINT"], primary_key="id", bucket=1)
    for number in range(5):
        table.write(pa.table({"id": [number], "n": [50]}))
    with pytest.raises(
        (PySparkException, PaimonError), match=r"no snapshot 2 of .*, up to which (.*) read: another commit has its id"
    ):
        batches(table, tmp_path / "a")


def test_a_checkpoint_without_times_is_continued(table: Table) -> None:
    """Earlier versions of this package stored only snapshot ids."""
    reader = PaimonStreamReader({"path": table.url}, TWO_NUMBERS)
    table.write(pa.table({"id": [4], "n": [4]}))
    end = reader.latestOffset({"snapshot": 1}, ReadMaxRows(1))
    assert end == {"snapshot": 2, "committed": table.snapshot(2).time}
    assert reader.latestOffset({"snapshot": 3}, ReadAllAvailable()) == {"snapshot": 3}


def _drop(table: Table) -> None:
    table.alter.drop_column("n")


def _rename(table: Table) -> None:
    table.alter.rename_column("n", "m")


def _replace(table: Table) -> None:
    table.alter.drop_column("n")
    table.alter.add_column("n STRING")


@pytest.mark.parametrize(
    ("change", "why", "later"),
    [
        (_drop, "no column 'n'", [(4,)]),
        (_rename, "no column 'n'", [(4, None)]),
        (_replace, "column n is read as bigint", [(4, None)]),
    ],
)
def test_a_running_stream_stops_at_a_changed_column_and_a_restarted_one_goes_on(
    batches: Batches, table: Table, tmp_path: Path, change: Callable[[Table], None], why: str, later: Rows
) -> None:
    assert batches(table, tmp_path / "c") == [[(1, 1), (2, 22), (3, 3)]]
    running = PaimonStreamReader({"path": table.url}, TWO_NUMBERS)
    change(table)
    table.refresh()
    table.write(pa.table({"id": [4]}))
    (part,) = running.partitions({"snapshot": 2}, running.latestOffset({"snapshot": 2}, ReadAllAvailable()))
    with pytest.raises(UsageError, match=why):
        list(running.read(part))
    assert batches(table, tmp_path / "c") == [later]


def test_a_stream_begins_with_columns_that_are_newer_than_the_snapshot(table: Table, tmp_path: Path) -> None:
    table.alter.rename_column("n", "m")
    table.alter.add_column("more INT")
    table.alter.alter_column("m", "DOUBLE")
    assert driven(table, tmp_path / "c", where="m > 1 AND more IS NULL") == [[(2, 22.0, None), (3, 3.0, None)]]


def test_a_running_stream_does_not_show_a_column_that_was_added(batches: Batches, table: Table, tmp_path: Path) -> None:
    running = PaimonStreamReader({"path": table.url}, TWO_NUMBERS)
    assert batches(table, tmp_path / "c") == [[(1, 1), (2, 22), (3, 3)]]
    table.alter.add_column("more INT", first=True)
    table.write(pa.table({"more": pa.array([7], pa.int32()), "id": [4], "n": [4]}))
    parts = running.partitions({"snapshot": 2}, {"snapshot": 3})
    assert [row for part in parts for batch in running.read(part) for row in batch.to_pylist()] == [{"id": 4, "n": 4}]
    assert batches(table, tmp_path / "c") == [[(7, 4, 4)]]


def reader_of(table: Table, **options: str) -> PaimonStreamReader:
    return PaimonStreamReader({"path": table.url, **options}, TWO_NUMBERS)


def test_every_option_without_a_meaning_for_streams_is_refused(table: Table) -> None:
    of_table = (*POSITION_OPTIONS, "consumer-id", "scan.bounded", "scan.bounded.watermark", "changelog-producer")
    for key in (*NOT_OF_STREAMS, *of_table):
        with pytest.raises(UsageError, match=f"option {key} has no meaning for a stream"):
            reader_of(table, **{key: "1"}).initialOffset()


def test_where_a_stream_starts(table: Table, tmp_path: Path) -> None:
    def begin(**options: str) -> int:
        return reader_of(table, **options).initialOffset()["snapshot"]

    table.tags.create("first", snapshot=1)
    for number in (3, 4):
        table.write(pa.table({"id": [number], "n": [number]}))
    starts = {"full": -1, "FULL": -1, "latest": 4, "LATEST": 4, "0": 0, "1": 0, "2": 1, "5": 4, "first": 0}
    assert {start: begin(start=start) for start in starts} == starts
    with pytest.raises(NotFound, match="no snapshot 6 to start a stream at"):
        begin(start="6")
    for start in ("tomorrow-ish", "-3", "\N{SUPERSCRIPT TWO}"):
        with pytest.raises(UsageError, match="option start is"):
            begin(start=start)
    table.consumers.reset("a", next_snapshot=2)
    table.consumers.reset("b", next_snapshot=4)
    assert [begin(consumer=name, start="latest") for name in ("a", "b", "c")] == [1, 3, 4]
    table.expire(retain_max=2, retain_min=1)
    assert [begin(start=start) for start in ("1", "3", "first")] == [1, 2, 1], "the consumer keeps snapshot 2"
    empty = Table.create(tmp_path / "empty", columns=["id BIGINT", "n BIGINT"])
    begins = [reader_of(empty, start=start).initialOffset() for start in ("full", "latest", "1")]
    assert begins == [{"snapshot": number} for number in (-1, 0, 0)]
    assert reader_of(empty).latestOffset({"snapshot": -1}, ReadAllAvailable()) == {"snapshot": -1}
    with pytest.raises(NotFound, match="has no snapshots yet"):
        reader_of(empty, start="2").initialOffset()


@pytest.mark.parametrize("most", ["0", "-1"])
def test_a_batch_has_at_least_one_row(table: Table, most: str) -> None:
    with pytest.raises(UsageError, match="the minimum is 1"):
        reader_of(table, maxrowspertrigger=most).getDefaultReadLimit()


def test_a_query_of_what_is_there_ends_there_and_records_what_it_has_read(table: Table) -> None:
    reader, times = reader_of(table, consumer="c"), [row.time for row in reversed(table.snapshots())]
    reader.prepareForTriggerAvailableNow()
    for number in (5, 6):
        table.write(pa.table({"id": [number], "n": [number]}))
    (first,) = reader.partitions({"snapshot": -1}, {"snapshot": 2})
    assert [row["id"] for batch in reader.read(first) for row in batch.to_pylist()] == [1, 2, 3], "not a row of later snapshots"
    assert reader.latestOffset({"snapshot": -1}, ReadMaxRows(1))["snapshot"] == 2, "the first batch has no limit"
    assert [each.name for each in table.consumers] == []
    for begin, end in ((0, 2), (1, 2), (2, 2), (4, 4)):
        assert reader.latestOffset({"snapshot": begin}, ReadAllAvailable())["snapshot"] == end
        assert [(each.name, each.next_snapshot) for each in table.consumers] == [("c", begin + 1)]
    assert reader.reportLatestOffset() == {"snapshot": 4} and len(times) == 2


def test_each_snapshot_is_recognised_by_itself(table: Table) -> None:
    reader = reader_of(table)
    offset = reader.latestOffset({"snapshot": 0}, ReadMaxRows(3))
    assert offset["snapshot"] == 1 and reader.latestOffset(offset, ReadAllAvailable())["snapshot"] == 2
    for wrong in ({"snapshot": 2, "committed": 1}, {"snapshot": 3}, {"snapshot": 3, "committed": 1}):
        with pytest.raises(NotFound, match=f"no snapshot {wrong['snapshot']} of .*, up to which the stream has read"):
            reader.latestOffset(wrong, ReadAllAvailable())


def snapshot_of(number: int, kind: str, delta: int, changelog: int | None = None) -> Any:
    return SimpleNamespace(id=number, commit_kind=kind, delta_record_count=delta, changelog_record_count=changelog)


def test_the_rows_of_a_batch_are_those_that_a_stream_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = [snapshot_of(1, APPEND, 2), snapshot_of(2, OVERWRITE, 0), snapshot_of(3, OVERWRITE, 0, 2)]
    gone += [snapshot_of(4, APPEND, 1, 6)]
    living = [snapshot_of(5, APPEND, 4), snapshot_of(6, COMPACT, 9), snapshot_of(7, COMPACT, -4)]
    living += [snapshot_of(8, APPEND, -5, 3), snapshot_of(9, OVERWRITE, 0)]
    entries = [SimpleNamespace(file=SimpleNamespace(row_count=rows)) for rows in (5, 2)]

    def found(snapshots: list[Any]) -> Any:
        return SimpleNamespace(find={each.id: each for each in snapshots}.get)

    monkeypatch.setattr(stream_reading, "_kept_changelogs", lambda table: found(gone))
    manifests = SimpleNamespace(delta_entries=lambda snapshot: entries)
    table: Any = SimpleNamespace(context=SimpleNamespace(snapshots=found(living), manifests=manifests))
    assert [stream_reading._changes_of(table, each) for each in (*gone, *living)] == [2, 7, 2, 6, 4, 0, 0, 3, 7]
    cases = {(4, 9, 14): 9, (4, 9, 13): 8, (4, 9, 6): 7, (4, 9, 4): 7, (4, 9, 3): 5, (8, 9, 1): 9, (4, 8, 99): 8}
    cases |= {(0, 9, 99): 1, (1, 9, 99): 2, (2, 9, 99): 9, (2, 9, 8): 4, (2, 9, 7): 3}
    assert {case: stream_reading._within(table, *case) for case in cases} == cases
