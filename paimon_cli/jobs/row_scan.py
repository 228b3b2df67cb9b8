"""`read`: the rows of a request, planned once and read lazily in this process.

1. choose a snapshot (`travel`) or the changes between two (`plan_rows`).
2. check columns, predicate and order against its schema.
3. plan: prune files, and cut the rest into splits (`plan_scan`, `plan_increment`).
4. read the splits, merge, filter and project their rows (`RowScan.rows`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from paimon_cli.datatypes.data_type import STRING, DataField
from paimon_cli.errors import DamagedFile, UsageError
from paimon_cli.history.waiting_records import waiting_text
from paimon_cli.jobs.process import usable_cores
from paimon_cli.lsm.sorted_runs import shares
from paimon_cli.metadata.data_file_schema import KIND_TEXTS, VALUE_KIND
from paimon_cli.options.option_catalog import Operation
from paimon_cli.options.option_text import counted
from paimon_cli.read.increments import (
    AUTO,
    CHANGES,
    IncrementRange,
    increment_by_option,
    increment_context,
    plan_increment,
    waiting_changes,
)
from paimon_cli.read.scan_plan import ReadPlan, Split, plan_scan
from paimon_cli.read.selection import RowOrder, Selection, parse_order, rows_in_order, selected
from paimon_cli.read.split_reader import count_split, in_parts, read_in_parallel, read_split
from paimon_cli.read.time_travel import travel
from paimon_cli.requests.reading import ReadOptions
from paimon_cli.sql.predicate import Predicate, check_all_used, parse_predicate

if TYPE_CHECKING:
    from paimon_cli.history.table_context import TableContext
    from paimon_cli.metadata.snapshot import Snapshot

ROW_KIND = "rowkind"
"""The column with the row kind in results. Paimon reserves this name, so that no table has a column of it."""
KIND_FIELD = DataField(-1, ROW_KIND, STRING)


@dataclass(frozen=True)
class Increment:
    """The changes of the snapshots after `begin`, up to and including `end`."""

    begin: str
    end: str = ""
    mode: str = AUTO


class ReadRequest(ReadOptions):
    """What to read: the rows of a version, or the changes of an `increment`.

    `counts_waiting`: whether the plan of a changelog counts the records whose changes wait. Streams do not ask, for each batch.
    `with_newest_schema`: `snapshot` stands for the latest one, which is read with the newest schema, not with its own.
    """

    _: KW_ONLY
    increment: Increment | None = None
    counts_waiting: bool = True
    with_newest_schema: bool = False


@dataclass(frozen=True)
class RowScan:
    """A planned read. Rows come in the order of `order`, or else by partition, bucket and key."""

    context: TableContext
    plan: ReadPlan
    selection: Selection
    predicate: Predicate | None
    request: ReadRequest
    order: RowOrder | None = None

    @property
    def fields(self) -> tuple[DataField, ...]:
        """The columns of `rows`; with `row_kind` the row kind comes first."""
        return (*((KIND_FIELD,) if self.request.row_kind else ()), *self.selection.fields)

    @property
    def is_of_latest(self) -> bool:
        """Whether the latest snapshot was asked for: no older one, and no changes."""
        request = self.request
        return (request.snapshot, request.tag, request.as_of, request.increment) == (None, None, None, None)

    @property
    def waiting_text(self) -> str:
        """What to tell the user about records that wait for a compaction; empty if there are none."""
        waiting, snapshot = self.plan.counts.waiting_records, self.plan.snapshot
        if not waiting or snapshot is None:
            return ""
        if self.context.snapshots.latest_id() == snapshot.id:
            of_changes = self.request.increment is not None
            return waiting_text(self.context.layout.argument, waiting, of_changes=of_changes)
        return f"{counted(waiting, 'stored record')} of snapshot {snapshot.id} waited for a compaction and cannot be read there"

    def partitions_read(self) -> list[str]:
        """The paths of the partitions that are read; one empty path without partitions."""
        return [self.context.partition_path_of(partition).rstrip("/") for partition in self.plan.partitions]

    def parts(self) -> list[RowScan]:
        """The scan in parts, each to be read by one thread of a task. Picklable; limit and order hold only within a part.

        A part has one split or several small ones, because a task costs more than reading a small bucket. A split weighs at least
        `source.split.open-file-cost`, a part at most `source.split.target-size`.
        """
        context, splits = replace(self.context, read_threads=1), tuple(self.plan.splits)
        sizes, options = [split.size for split in splits], context.options
        found = shares(sizes, options.split_open_file_cost, options.split_target_size)
        packs = (splits[share.start : share.stop] for share in found)
        return [replace(self, context=context, plan=replace(self.plan, splits=pack)) for pack in packs]

    def rows(self) -> Iterator[pa.RecordBatch]:
        """The requested rows, row kinds as texts."""
        names = [field.name for field in self.fields]
        for batch in self.batches():
            columns = self.selection.of(batch)
            if self.request.row_kind:
                columns = [pa.array(KIND_TEXTS).take(batch.column(VALUE_KIND)), *columns]
            yield pa.RecordBatch.from_arrays(columns, names=names)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows with `physical_columns`, up to the limit."""
        remaining = self.request.limit
        if self.order is not None:
            yield from rows_in_order(self._all_batches(), self.order, remaining)
            return
        if remaining is None:
            yield from self._all_batches()
            return
        for split in self.plan.splits:
            for batch in self._read(split):
                yield batch.slice(0, remaining)
                remaining -= min(remaining, batch.num_rows)
                if remaining == 0:
                    return

    def _all_batches(self) -> Iterator[pa.RecordBatch]:
        readers = min(usable_cores(), self.context.read_threads)
        return read_in_parallel(in_parts(self.context, self.plan.splits, readers), self._read, readers)

    def _read(self, split: Split) -> Iterator[pa.RecordBatch]:
        with self.of_existing_snapshot():
            yield from read_split(self.context, split, self.physical_columns, self.predicate, self.request.row_kind)

    @contextmanager
    def of_existing_snapshot(self) -> Iterator[None]:
        """A context for reading files of the plan: raises `NotFound` instead of `DamagedFile` if the snapshot has expired."""
        try:
            yield
        except DamagedFile as error:
            snapshot, names = self.plan.snapshot, (self.request.tag, self.request.snapshot, self.request.as_of)
            if snapshot is None or any(isinstance(name, str) and self.context.tags.content(name) is not None for name in names):
                raise
            raise self.context.manifests.gone_or_damaged(snapshot, error) from error

    @property
    def physical_columns(self) -> tuple[str, ...]:
        """The table columns to read; with `row_kind`, `_VALUE_KIND` comes last."""
        ordered = self.order.columns if self.order is not None else ()
        kinds = (VALUE_KIND,) if self.request.row_kind else ()
        return tuple(dict.fromkeys((*self.selection.columns, *ordered, *kinds)))

    def count(self) -> int:
        """The number of rows that `batches` would return, reading as little as possible."""
        if self.request.row_kind:
            return sum(batch.num_rows for batch in self.batches())
        count = 0
        for split in self.plan.splits:
            with self.of_existing_snapshot():
                count += count_split(self.context, split, self.predicate)
            if self.request.limit is not None and count >= self.request.limit:
                return self.request.limit
        return count


@dataclass(frozen=True)
class FollowedChanges:
    """The changes of the snapshots from `first` on, as they are committed; ends after snapshot `last`, or never."""

    table: TableContext
    request: ReadRequest
    first: int
    last: int | None = None
    wait_seconds: float = 1.0

    @property
    def fields(self) -> tuple[DataField, ...]:
        return (KIND_FIELD, *selected(self.table.schema, self.request.columns).fields)

    def rows(self) -> Iterator[pa.RecordBatch]:
        """The changes, with row kinds as texts. Raises `NotFound` if snapshots expire before they are read."""
        context, number, remaining = self.table, self.first, self.request.limit
        while (self.last is None or number <= self.last) and remaining != 0:
            latest = context.snapshots.latest_id() or 0
            if latest < number:
                context.clock.sleep(self.wait_seconds)
                continue
            end = latest if self.last is None else min(latest, self.last)
            request = replace(self.request, increment=Increment(str(number - 1), str(end), CHANGES), limit=remaining)
            for batch in plan_rows(self.table, request).rows():
                remaining = None if remaining is None else remaining - batch.num_rows
                yield batch
            number = end + 1


def plan_rows(table: TableContext, request: ReadRequest, parsed: Predicate | None = None) -> RowScan:
    """Plan a read: choose the snapshot or increment, check the request against its schema, and find the splits.

    `parsed`: the condition of the request, which is parsed again only if the schema is another one.
    Raises `NotFound` and `UsageError`.
    """
    table.check(Operation.SCAN)
    increment = request.increment or _increment_by_option(table, request)
    if increment is None:
        context, snapshot = travel(table, request.snapshot, request.tag, request.as_of)
        context = table if request.with_newest_schema else context
    else:
        changes, mode = _range_and_mode(table, increment)
        context = increment_context(table, mode)
    readable = context.readable_schema
    selection = selected(context.schema if request.columns is None else readable, request.columns)
    order = None if request.order_by is None else parse_order(request.order_by, readable)
    predicate = parsed
    if parsed is None or parsed.schema not in (context.schema, readable):
        predicate = None if request.where is None else parse_predicate(request.where, readable, request.params)
    check_all_used(request.params, () if predicate is None else predicate.parameters)
    if increment is None:
        context, plan = _plan_snapshot(table, context, snapshot, predicate)
    else:
        plan = plan_increment(context, changes, mode, predicate)
        if request.counts_waiting:
            plan.counts.waiting_records += waiting_changes(context, changes, mode, predicate)
    return RowScan(context, plan, selection, predicate, request, order)


def _plan_snapshot(
    table: TableContext, context: TableContext, snapshot: Snapshot | None, predicate: Predicate | None
) -> tuple[TableContext, ReadPlan]:
    """The plan for all rows of a snapshot, with postponed rows where reads merge them in; and the context to read it with."""
    if snapshot is not None and context.mode.merges_postponed and not table.place.read_optimized:
        from paimon_cli.jobs.postponed_rows import plan_with_waiting_rows  # loads the write path

        return plan_with_waiting_rows(context, snapshot, predicate)
    return context, plan_scan(context, snapshot, predicate, read_optimized=table.place.read_optimized)


def _range_and_mode(table: TableContext, increment: Increment) -> tuple[IncrementRange, str]:
    if table.place.read_optimized:
        raise UsageError(f"{table.name} shows no increments", "it is the table's top level alone", "leave $ro out")
    changes = IncrementRange.of(table, increment.begin, increment.end)
    return changes, changes.mode(table, increment.mode)


def _increment_by_option(context: TableContext, request: ReadRequest) -> Increment | None:
    """The increment that the table's options select, unless the request travels in time."""
    if (request.snapshot, request.tag, request.as_of) != (None, None, None):
        return None
    selected_by_option = increment_by_option(context)
    return None if selected_by_option is None else Increment(*selected_by_option)
