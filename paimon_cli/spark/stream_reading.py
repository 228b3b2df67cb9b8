"""`spark.readStream.format("paimon")`: the snapshots of a table as a stream, whose offsets are snapshot ids and their times.

A stream starts with all rows of the table, unless the option `start` says otherwise, and continues with the changes of each
snapshot: the rows of its changelog files, or, in a table without changelog, the rows that the commit added. Deletes and old
values of rows are shown only with the option `row_kind`, which adds a first column `rowkind`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StringType, StructField, StructType

from paimon_cli.api.scan import rows_of_changes, rows_of_latest
from paimon_cli.api.table import Table
from paimon_cli.datatypes.type_text import quoted_name
from paimon_cli.errors import NotFound, UsageError
from paimon_cli.history.points_in_time import version_point
from paimon_cli.history.tags_and_branches import ChangelogHistory
from paimon_cli.jobs.row_scan import ROW_KIND, RowScan
from paimon_cli.jobs.spark.tasks import called_by_spark
from paimon_cli.metadata.snapshot import APPEND, OVERWRITE, Snapshot
from paimon_cli.options.option_text import plain_number
from paimon_cli.read.increments import changelog_level
from paimon_cli.read.time_travel import POSITION_OPTIONS
from paimon_cli.requests.reading import ScanCall
from paimon_cli.spark.source_options import SCAN_OPTIONS, WRITE_OPTIONS, SourceOptions
from paimon_cli.spark.worker_rows import PlannedInTask, check_types, planned, read_partition, split_partitions

FULL, LATEST = "full", "latest"
SNAPSHOT, COMMITTED = "snapshot", "committed"
MERGE_ON_READ = "postpone.merge-on-read"
NOTHING_READ = -1
"""The offset before the first batch, which contains all rows of the table."""
NOT_OF_STREAMS = (*(name for name in SCAN_OPTIONS if name not in ("where", "columns", "row_kind")), *WRITE_OPTIONS)
_ADDED = pa.array(["+I", "+U"])


class PaimonStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are `{"snapshot": N, "committed": T}`: everything up to snapshot N has been read, which was committed at T.

    By T (milliseconds since the epoch) a restarted query recognises the snapshot: ids are used again after a rollback. T is
    missing if snapshot N did not exist when the stream began.
    `start`: `full` (default), `latest`, the id of the first snapshot to read, or a time, from which on all snapshots are read.
    If the first ones have expired, the stream starts at the oldest that is left, as in Java.
    `consumer`: a name under which the table stores the progress, and which keeps unread snapshots from expiring; if it has
    progress, `start` is ignored.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        """Options are checked when they are first used, because Spark hides errors that are raised in this constructor."""
        self._source_options = options
        self._schema = schema
        self._last: int | None = None
        self._recorded: int | None = None
        self._recognised: int | None = None

    @property
    def _options(self) -> SourceOptions:
        options = SourceOptions.of(self._source_options)
        options.refuse(NOT_OF_STREAMS, "a stream")
        options.refuse((*POSITION_OPTIONS, "consumer-id"), "a stream", "the options start and consumer say where a stream begins")
        options.refuse(("scan.bounded", "scan.bounded.watermark"), "a stream", "trigger(availableNow=True) ends the query")
        options.refuse(("changelog-producer",), "a stream", "Table.alter changes it, for later commits")
        return options

    @called_by_spark()
    def initialOffset(self) -> dict[str, int]:
        table = self._options.table()
        known = next((consumer for consumer in table.consumers if consumer.name == self._options.get("consumer")), None)
        return _offset(table, self._start(table) if known is None else known.next_snapshot - 1)

    def _start(self, table: Table) -> int:
        start = self._options.get("start") or FULL
        if start.lower() == FULL:
            return NOTHING_READ
        if start.lower() == LATEST:
            return _latest(table)
        number = plain_number(start) if start.isdigit() else None
        if number is not None and number < MAX_IDS:
            last = _latest(table)
            if number > last + 1:
                why = f"the latest snapshot of {table.name} is {last}" if last else f"{table.name} has no snapshots yet"
                hint = "start=latest reads what is committed from now on"
                raise NotFound(f"no snapshot {start} to start a stream at", why, hint)
            return max(number, _oldest(table)) - 1
        try:
            point = version_point(table.context, start)
        except (NotFound, UsageError) as error:
            why = f"it must be {FULL}, {LATEST}, a snapshot id, a tag or a time"
            raise UsageError(f"option start is {start}", why, error.hint) from error
        if point.millis is not None:
            return _at_time(table, point.millis)
        return max(point.snapshot(table.context).id, _oldest(table)) - 1

    @called_by_spark()
    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._options.get("maxrowspertrigger")
        if most is not None and most < 1:
            raise UsageError(f"option maxRowsPerTrigger is {most}", "the minimum is 1")
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    @called_by_spark()
    def prepareForTriggerAvailableNow(self) -> None:
        self._last = _latest(self._options.table())

    @called_by_spark()
    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        table = self._options.table()
        last = _latest(table) if self._last is None else self._last
        begin = start[SNAPSHOT]
        self._check_history(table, start, last)
        self._record(table, begin)
        if last <= max(begin, 0):
            return start
        if begin == NOTHING_READ or not isinstance(limit, ReadMaxRows):
            return _offset(table, last)
        return _offset(table, _within(table, begin, last, limit.max_rows))

    def _check_history(self, table: Table, start: dict[str, int], last: int) -> None:
        """Raise `NotFound` if the snapshot up to which the stream has read does not exist, or is another one with its id.

        Nothing is known about a snapshot that has expired. Each one is looked up once.
        """
        begin, committed = start[SNAPSHOT], start.get(COMMITTED)
        if begin > last and begin > _latest(table):
            why = f"the latest is {_latest(table)}"
        elif committed is None or begin == self._recognised or _offset(table, begin).get(COMMITTED, committed) == committed:
            self._recognised = begin
            return
        else:
            why = "another commit has its id"
        raise NotFound(
            f"no snapshot {begin} of {table.name}, up to which the stream has read",
            f"{why}: the table was rolled back, or dropped and created again",
            "start the stream with a new checkpoint, and a new consumer if it has one",
        )

    @called_by_spark()
    def reportLatestOffset(self) -> dict[str, int]:
        return {SNAPSHOT: _latest(self._options.table())}

    @called_by_spark()
    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return planned(lambda: self._partitions(start, end))

    def _partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        begin, last = start[SNAPSHOT], end[SNAPSHOT]
        if begin == last:
            return []
        table, where = self._options.table(), self._options.get("where")
        if begin == NOTHING_READ:
            rows = self._whole_table(table, last)
        else:
            rows = rows_of_changes(table, begin + 1, last, self._columns, where)
            check_types(_with_kind(self._schema), rows)
        return [InputPartition(PlannedInTask(last))] if rows is None else split_partitions(rows)

    @property
    def _columns(self) -> list[str]:
        return [quoted_name(name) for name in self._schema.names if name != ROW_KIND]

    def _whole_table(self, table: Table, number: int | None, in_task: bool = False) -> RowScan | None:
        """The rows with which a stream begins: all of a snapshot, but none that a later batch shows (Java: DataTableStreamScan).

        Rows that wait for a compaction are left out if its changelog will show them. Otherwise no batch would, so they are read
        with the others. `in_task`: whether this runs in a task. None if only a task can plan the read.
        """
        context = table.supported
        if context.mode.merges_postponed:
            context = context.with_options({MERGE_ON_READ: "false"})
        call = ScanCall(self._columns, self._options.get("where"), snapshot=number, row_kind=True)
        rows, producer = rows_of_latest(context, call), context.options.changelog_producer
        if rows.plan.counts.waiting_records and not producer.reports_compactions:
            if context.mode.bucket_mode.postpones and not producer.writes_files:
                if not in_task:
                    return None
                context = context.with_options({MERGE_ON_READ: "true"})
            rows = rows_of_latest(context.with_level_0(), call)
        rows = _with_changelog_before(rows)
        check_types(_with_kind(self._schema), rows)
        return rows

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition. The batch with the whole table has no deletes, since nothing was shown before it."""
        shows_kinds = self._options.shows_kinds
        if isinstance(partition.value, PlannedInTask):
            with called_by_spark():
                partition = InputPartition(self._whole_table(self._options.table(), partition.value.snapshot, in_task=True))
        is_whole_table = isinstance(partition.value, RowScan) and partition.value.request.increment is None
        for rows in read_partition(partition, _with_kind(self._schema)):
            if is_whole_table or not shows_kinds:
                rows = rows.filter(pc.is_in(rows.column(ROW_KIND), _ADDED))
            yield rows.select(self._schema.names)

    def _record(self, table: Table, begin: int) -> None:
        """Record in the consumer that everything up to `begin` has been read.

        Spark asks for the end of a batch only once the previous one is complete. It calls `commit` of a source later, when
        there is a next batch, which would leave the snapshots that follow a backlog unprotected.
        """
        consumer = self._options.get("consumer")
        if consumer is not None and begin not in (NOTHING_READ, self._recorded):
            table.consumers.reset(consumer, next_snapshot=begin + 1)
            self._recorded = begin


def _with_changelog_before(scan: RowScan) -> RowScan:
    """The scan without files whose rows a later changelog shows, when a compaction reads them (Java's DataTableStreamScan)."""
    lowest = changelog_level(scan.context)
    if lowest == 0:
        return scan
    buckets = ((split, tuple(file for file in split.bucket.files if file.level >= lowest)) for split in scan.plan.splits)
    splits = tuple(replace(split, bucket=replace(split.bucket, files=files)) for split, files in buckets if files)
    return replace(scan, plan=replace(scan.plan, splits=splits))


MAX_IDS = 10**9
"""A `start` from this number on is a time in milliseconds since the epoch, not a snapshot id."""


def _latest(table: Table) -> int:
    return table.context.snapshots.latest_id() or 0


def _offset(table: Table, number: int) -> dict[str, int]:
    snapshot = table.context.snapshots.find(number) if number > 0 else None
    return {SNAPSHOT: number} if snapshot is None else {SNAPSHOT: number, COMMITTED: snapshot.time_millis}


def _oldest(table: Table) -> int:
    """The oldest snapshot whose changes can be read: its changelog may have been kept when it expired."""
    kept = _kept_changelogs(table).ids()[:1]
    return min([*kept, table.context.snapshots.earliest_id() or 1])


def _at_time(table: Table, millis: int) -> int:
    """The last snapshot committed before then. If all that can be read are newer, the one before them."""
    before = table.context.snapshots.at_time(millis - 1)
    kept = _kept_changelogs(table).all() if before is None else [before]
    return max((one.id for one in kept if one.time_millis < millis), default=_oldest(table) - 1)


def _kept_changelogs(table: Table) -> ChangelogHistory:
    return ChangelogHistory(table.context.storage, table.context.layout)


def _within(table: Table, begin: int, last: int, max_rows: int) -> int:
    """The last snapshot of a batch of at most `max_rows` changes after `begin`; a batch has at least one snapshot."""
    rows = 0
    snapshots, kept = table.context.snapshots, _kept_changelogs(table)
    for number in range(begin + 1, last + 1):
        living = snapshots.find(number)
        snapshot = living or kept.find(number) or snapshots.get(number)
        if living is None and snapshot.commit_kind == OVERWRITE and not snapshot.changelog_record_count:
            return max(number - 1, begin + 1)  # its files are gone: what is before it can still be shown
        rows += _changes_of(table, snapshot)
        if rows > max_rows:
            return max(number - 1, begin + 1)
    return last


def _changes_of(table: Table, snapshot: Snapshot) -> int:
    """The most rows that a stream shows of a snapshot.

    The change of the table's count tells it only of appends: a compaction takes rows away, and shows none; an overwrite may take
    as many as it adds, and shows both.
    """
    if snapshot.changelog_record_count:
        return snapshot.changelog_record_count
    if snapshot.commit_kind == OVERWRITE:
        return sum(entry.file.row_count for entry in table.context.manifests.delta_entries(snapshot))
    return max(snapshot.delta_record_count, 0) if snapshot.commit_kind == APPEND else 0


def _with_kind(schema: StructType) -> StructType:
    return schema if ROW_KIND in schema.names else StructType([StructField(ROW_KIND, StringType()), *schema.fields])
