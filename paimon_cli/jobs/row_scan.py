"""The rows of a read request, planned once and read lazily in this process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from paimon_cli.datatypes.data_type import STRING, DataField
from paimon_cli.errors import DamagedFile, UsageError
from paimon_cli.jobs.process import usable_cores
from paimon_cli.metadata.data_file_schema import KIND_TEXTS, VALUE_KIND
from paimon_cli.options.option_catalog import SCAN
from paimon_cli.read.increments import AUTO, CHANGES, IncrementRange, asked_increment, increment_context, plan_increment
from paimon_cli.read.scan_plan import ScanPlan, Split, plan_scan
from paimon_cli.read.selection import RowOrder, Selection, in_order, parse_order, selected
from paimon_cli.read.split_reader import count_split, in_parts, read_side_by_side, read_split
from paimon_cli.read.time_travel import travel
from paimon_cli.sql.predicate import Predicate, parse_predicate

if TYPE_CHECKING:
    from paimon_cli.catalog.table import CatalogTable
    from paimon_cli.history.table_context import TableContext

ROW_KIND = "rowkind"
"""Name of the kind among the rows shown: Paimon reserves it, so no column of the table is called so."""
KIND_FIELD = DataField(-1, ROW_KIND, STRING)


@dataclass(frozen=True)
class Increment:
    """The changes of the snapshots after `begin`, up to and including `end`."""

    begin: str
    end: str = ""
    mode: str = AUTO


@dataclass(frozen=True)
class ReadRequest:
    """The user's request: column names separated by commas, a SQL predicate, at most one kind of time travel, or an increment."""

    select: str | None = None
    where: str | None = None
    limit: int | None = None
    snapshot: int | None = None
    tag: str | None = None
    as_of: str | None = None
    keep_kinds: bool = False
    increment: Increment | None = None
    order_by: str | None = None


@dataclass(frozen=True)
class RowScan:
    """A planned read, in the order of `order` if given, else by partition, bucket and key."""

    context: TableContext
    plan: ScanPlan
    selection: Selection
    predicate: Predicate | None
    request: ReadRequest
    order: RowOrder | None = None

    @property
    def fields(self) -> tuple[DataField, ...]:
        """The columns of `rows`; with `keep_kinds` the row kind comes first."""
        return (*((KIND_FIELD,) if self.request.keep_kinds else ()), *self.selection.fields)

    def parts(self) -> list[RowScan]:
        """The scan of each split, to be read by one thread of a task. Picklable; limit and order hold only within a part."""
        context = replace(self.context, read_threads=1)
        return [replace(self, context=context, plan=replace(self.plan, splits=(split,))) for split in self.plan.splits]

    def rows(self) -> Iterator[pa.RecordBatch]:
        """The requested rows, row kinds as texts."""
        names = [field.name for field in self.fields]
        for batch in self.batches():
            columns = self.selection.of(batch)
            if self.request.keep_kinds:
                columns = [pa.array(KIND_TEXTS).take(batch.column(VALUE_KIND)), *columns]
            yield pa.RecordBatch.from_arrays(columns, names=names)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows with `physical_columns`, up to the limit."""
        left = self.request.limit
        if self.order is not None:
            yield from in_order(self._everything(), self.order, left)
            return
        if left is None:
            yield from self._everything()
            return
        for split in self.plan.splits:
            for batch in self._read(split):
                yield batch.slice(0, left)
                left -= min(left, batch.num_rows)
                if left == 0:
                    return

    def _everything(self) -> Iterator[pa.RecordBatch]:
        readers = min(usable_cores(), self.context.read_threads)
        return read_side_by_side(in_parts(self.context, self.plan.splits, readers), self._read, readers)

    def _read(self, split: Split) -> Iterator[pa.RecordBatch]:
        """A missing file is no damage if its version has gone while it was read: `NotFound` then."""
        try:
            yield from read_split(self.context, split, self.physical_columns, self.predicate, self.request.keep_kinds)
        except DamagedFile as error:
            snapshot, tag = self.plan.snapshot, self.request.tag
            if snapshot is None or (tag is not None and self.context.tags.content(tag) is not None):
                raise
            raise self.context.manifests.gone_or_damaged(snapshot, error) from error

    @property
    def physical_columns(self) -> tuple[str, ...]:
        """The table columns that are read; with `keep_kinds` followed by `_VALUE_KIND`."""
        ordered = self.order.columns if self.order is not None else ()
        kinds = (VALUE_KIND,) if self.request.keep_kinds else ()
        return tuple(dict.fromkeys((*self.selection.columns, *ordered, *kinds)))

    def count(self) -> int:
        """The number of rows that `batches` would return, reading as little as possible."""
        if self.request.keep_kinds:
            return sum(batch.num_rows for batch in self.batches())
        count = 0
        for split in self.plan.splits:
            count += count_split(self.context, split, self.predicate)
            if self.request.limit is not None and count >= self.request.limit:
                return self.request.limit
        return count


@dataclass(frozen=True)
class FollowedChanges:
    """The changes of the snapshots from `first` on, as they are committed; ends after snapshot `last`, or never."""

    table: CatalogTable
    request: ReadRequest
    first: int
    last: int | None = None
    wait_seconds: float = 1.0

    @property
    def fields(self) -> tuple[DataField, ...]:
        return (KIND_FIELD, *selected(self.table.context.schema, self.request.select).fields)

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Row kinds as texts. NotFound if snapshots expire before they are read."""
        context, number, left = self.table.context, self.first, self.request.limit
        while (self.last is None or number <= self.last) and left != 0:
            latest = context.snapshots.latest_id() or 0
            if latest < number:
                context.clock.sleep(self.wait_seconds)
                continue
            end = latest if self.last is None else min(latest, self.last)
            request = replace(self.request, increment=Increment(str(number - 1), str(end), CHANGES), limit=left)
            for batch in plan_rows(self.table, request).rows():
                left = None if left is None else left - batch.num_rows
                yield batch
            number = end + 1


def plan_rows(table: CatalogTable, request: ReadRequest) -> RowScan:
    """Find the snapshot, check columns and predicate against its schema, and plan. Raises `NotFound` and `UsageError`."""
    table.context.check(SCAN)
    increment = request.increment
    if increment is None and (request.snapshot, request.tag, request.as_of) == (None, None, None):
        increment = _increment_by_option(table.context)
    if increment is None:
        context, snapshot = travel(table.context, request.snapshot, request.tag, request.as_of)
    else:
        if table.read_optimized:
            raise UsageError(f"{table.name} shows no increments", "it is the table's top level alone", "leave $ro out")
        chosen = IncrementRange.of(table.context, increment.begin, increment.end)
        mode = chosen.mode(table.context, increment.mode)
        context = increment_context(table.context, mode)
    selection = selected(context.schema, request.select)
    order = None if request.order_by is None else parse_order(request.order_by, context.schema)
    predicate = None if request.where is None else parse_predicate(request.where, context.schema)
    if increment is None and snapshot is not None and context.mode.merges_postponed and not table.read_optimized:
        from paimon_cli.jobs.postponed_rows import plan_with_waiting_rows  # loads what writes

        context, plan = plan_with_waiting_rows(context, snapshot, predicate)
    elif increment is None:
        plan = plan_scan(context, snapshot, predicate, read_optimized=table.read_optimized)
    else:
        plan = plan_increment(context, chosen, mode, predicate)
    return RowScan(context, plan, selection, predicate, request, order)


def _increment_by_option(context: TableContext) -> Increment | None:
    asked = asked_increment(context)
    return None if asked is None else Increment(*asked)
