"""`update` and `delete`: read, change and commit under the data conflict check; start again after a conflict.

The check makes the read-modify-write safe: the commit succeeds only if no other commit wrote to its buckets since they were
read. One task changes one bucket: it reads the matching rows merged, changes them (`row_change`) and writes them to level 0.
Append tables have no levels; see `append_change`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import pyarrow as pa

from paimon_cli.bucket.stamped_files import new_stamp
from paimon_cli.commit.committer import Committer
from paimon_cli.commit.data_conflict import check_place
from paimon_cli.commit.deduplication import CommitIdentity
from paimon_cli.errors import UsageError
from paimon_cli.history.live_files import bucket_files, committed_state
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.tiered_rows import expect_not_tiered
from paimon_cli.ingest.faults import Tally
from paimon_cli.ingest.python_values import values_of_columns
from paimon_cli.jobs.append_change import change_files
from paimon_cli.jobs.bucket_change import change_buckets, unseen_records
from paimon_cli.jobs.due_compaction import DueCompaction, compact_due, compacts_while_changing, finished_earlier, waiting_after
from paimon_cli.jobs.engine import Engine, Progress, Work
from paimon_cli.jobs.row_change import ChangedBucket, Edit, RowEdit, changed_rows
from paimon_cli.jobs.stored_rows import NumberedSplit, numbered_splits
from paimon_cli.jobs.table_change import (
    NewFiles,
    Summary,
    again_on_conflict,
    check_writable_table,
    compacted_by_writers,
    expiry_noticed,
    identity_of,
    ran_on,
    write_files,
    written_files,
)
from paimon_cli.jobs.write_request import strategy_of
from paimon_cli.metadata.data_file import BucketId
from paimon_cli.metadata.snapshot import RowOperation, Snapshot
from paimon_cli.metadata.table_mode import CHANGE_ROWS
from paimon_cli.options.choices import CompactionMode, ConflictCheck
from paimon_cli.read.scan_plan import plan_scan
from paimon_cli.read.split_reader import read_split
from paimon_cli.requests.conditions import Conditional
from paimon_cli.requests.writing import ChangeOptions
from paimon_cli.sql.clauses import parse_set_clause
from paimon_cli.sql.predicate import check_all_used, parse_predicate
from paimon_cli.write.write_plan import LookupAssignment, Tallies, TargetBuckets, WritePlan


class ChangeRequest(ChangeOptions, Conditional):
    """What the requests for an update, a delete and a merge share."""

    @property
    def compaction(self) -> str:
        """Whether the changed buckets are compacted, where triggers ask for it: inline, after the commit, or not at all."""
        return self.compact or CompactionMode.INLINE


class UpdateRequest(ChangeRequest):
    """The user's request: a SQL condition, and assignments `column = expression` or `values` of columns; without any, matching
    rows are deleted.
    """

    where: str
    assignments: tuple[str, ...] = ()
    values: Mapping[str, Any] | None = None


@dataclass(frozen=True, repr=False)
class UpdateSummary(Summary):
    """The result. `rows`: how many matched; `attempts`: how often they were read; `conflicts`: attempts that failed.

    `files`, `size` (bytes): the new data files; `removed_files`: files removed from an append table. `compacted`: number of
    buckets that were compacted; `compaction_lost`: why a compaction failed, although the change is committed;
    `compaction_repeated`: why buckets were compacted once more after the commit, so that readers see the rows. `unseen_records`:
    stored records that the change read although reads do not show them, because they wait for a compaction; `waiting_records`:
    those in the changed buckets that still wait afterwards, None if that cannot be told.
    """

    rows: int = 0
    files: int = 0
    removed_files: int = 0
    size: int = 0
    buckets: int = 0
    snapshots: tuple[Snapshot, ...] = ()
    attempts: int = 0
    conflicts: int = 0
    already_committed: bool = False
    engine: str = ""
    engine_reason: str = ""
    seconds: float = 0.0
    touched: tuple[BucketId, ...] = field(default=(), repr=False)
    is_routed: bool = field(default=False, repr=False)
    """Whether the rows were routed to their buckets as those of a write are, since some have moved to another partition."""
    compacted: int = 0
    compaction_lost: str | None = None
    compaction_repeated: str | None = None
    unseen_records: int = 0
    waiting_records: int | None = 0


Changed = TypeVar("Changed", bound=UpdateSummary)


def run_update(context: TableContext, request: UpdateRequest, engine: Engine, progress: Progress) -> UpdateSummary:
    """Change all rows that match at one snapshot, in one commit on top of it. If it fails, no new file remains.

    Raises `Conflict` if other jobs committed first in all attempts, `BadInput` if a row cannot be changed.
    """
    started = context.clock.now_millis()
    context.check(CHANGE_ROWS)
    check_writable_table(context)
    expect_not_tiered(context, "change rows of")
    seen = context.with_level_0()  # also rows that readers do not see yet: the update comes after them
    identity = identity_of(seen, request.commit_user, request.commit_id, request.assume_new)
    if Committer(seen).is_committed(identity):
        return UpdateSummary(**finished_earlier(context, request.compaction, engine, progress))
    change = edit_of(request, seen)
    hint = "raise --max-attempts, or keep other writers away from these buckets for a while"
    strategy = strategy_of(context, request.commit_id)
    inline = strategy if request.compaction == CompactionMode.INLINE and compacts_while_changing(context) else None
    attempt = functools.partial(_attempt, seen, change, identity, inline, engine, progress)
    summary, attempts = again_on_conflict(seen, attempt, hint, request.max_attempts)
    summary = compacted_after(context, request, summary, inline, engine, progress)
    return replace(summary, attempts=attempts, conflicts=attempts - 1, **ran_on(engine, context, started))


def edit_of(request: UpdateRequest, context: TableContext) -> RowEdit:
    """What the request does to a row. Raises `UsageError` for invalid SQL, `BadInput` for a value that a column cannot hold."""
    readable, new_values = context.readable_schema, None
    if request.assignments or request.values:
        given = values_of_columns(request.values or {}, readable)
        new_values = parse_set_clause(request.assignments, readable, request.params, given)
    where = parse_predicate(request.where, readable, request.params)
    check_all_used(request.params, where.parameters | (new_values.parameters if new_values else frozenset()))
    return RowEdit(where, new_values)


def compacted_after(
    context: TableContext,
    request: ChangeRequest,
    summary: Changed,
    inline: str | None,
    engine: Engine,
    progress: Progress,
) -> Changed:
    """The summary after the compaction that the change still owes: none if its tasks have made it, unless it was dropped and
    readers do not see the rows before another one. Another run that made the same commit meanwhile may die before its own.
    """
    if summary.already_committed:
        return replace(summary, **finished_earlier(context, request.compaction, engine, progress))
    if not summary.snapshots:
        return summary
    due, was_inline = DueCompaction(), inline is not None and not summary.is_routed
    hides = context.mode.awaits_compaction and context.options.lookup_wait and summary.compaction_lost is not None
    if request.compaction != CompactionMode.NONE and (hides or not was_inline):
        due = compact_due(context, summary.touched, engine, progress, strategy_of(context, request.commit_id), request.compaction)
        summary = replace(summary, compaction_lost=due.lost, compaction_repeated=summary.compaction_lost)
    return replace(
        summary,
        snapshots=summary.snapshots + due.snapshots,
        compacted=summary.compacted + due.buckets,
        waiting_records=waiting_after(context, summary.touched, summary.snapshots, due.snapshots),
    )


def data_check_of(context: TableContext) -> str:
    """The granularity of the data conflict check: by bucket if the table's own setting is `off`, which applies only to writes.

    An append table needs no check: the commit verifies that the files and vectors that were read are still current.
    """
    own = context.options.commit_data_conflict_check
    return ConflictCheck.BUCKET if own == ConflictCheck.OFF and context.mode.has_keys else own


def _attempt(
    context: TableContext, change: RowEdit, identity: CommitIdentity, inline: str | None, engine: Engine, progress: Progress
) -> UpdateSummary:
    """Plan at the latest snapshot, change the rows of each bucket, and commit. `inline`: the strategy by which tasks compact."""
    is_routed = check_moves(context, change)
    change_rows: ChangeRows = functools.partial(change_buckets, inline=inline) if context.mode.has_keys else change_files
    if is_routed:
        change_rows = _move_rows
    snapshot = context.snapshots.latest()
    check_place(context, snapshot)
    if snapshot is None:
        context.expect_existing()
        return UpdateSummary()
    new_files = NewFiles(context, new_stamp(context))
    with expiry_noticed(context, snapshot.id), new_files.deleted_on_failure():
        changed = change_rows(context, snapshot, change, new_files.stamp, engine, progress)
    messages = [bucket.message for bucket in changed if bucket.message is not None]
    new_files.delete_repeated(engine, messages)
    if not messages:
        return UpdateSummary()
    operation = RowOperation.DELETE if change.drops_all else RowOperation.UPDATE
    committer = Committer(context, data_check_of(context), operation)
    result = new_files.commit_halves(messages, lambda: committer.commit(messages, identity))
    if result.already_committed:
        return UpdateSummary(already_committed=True)
    return UpdateSummary(
        rows=sum(bucket.rows for bucket in changed),
        **written_files(messages),
        removed_files=sum(len(message.append.removed) for message in messages),
        buckets=len(messages),
        snapshots=result.snapshots,
        touched=tuple(message.bucket_id for message in messages),
        **compacted_by_writers(messages, result, (bucket.compaction_lost for bucket in changed)),
        unseen_records=sum(bucket.unseen_records for bucket in changed),
        is_routed=is_routed,
    )


ChangeRows = Callable[[TableContext, Snapshot, RowEdit, str, Engine, Progress], list[ChangedBucket]]
"""Changes the rows of a snapshot, in new files with this stamp."""


def check_moves(context: TableContext, change: Edit) -> bool:
    """Whether a partition column is set, so that rows move to another partition. Raises `UsageError` if they must not."""
    moving = [name for name in change.set_columns if context.schema.has_movable_rows and name in context.schema.partition_keys]
    engine = context.options.merge_engine
    if moving and not engine.newest_wins:
        raise UsageError(
            f"column '{moving[0]}' cannot be set in a table with merge-engine={engine.name}",
            "a key stays in the partition of its first row",
            "delete the row and write a new one",
            column=moving[0],
        )
    return bool(moving)


@dataclass(frozen=True)
class ChangedRows:
    """The matching rows with their new values: `SplitRows` for a `WritePlan`."""

    context: TableContext
    change: RowEdit

    def read(self, numbered: NumberedSplit, tally: Tally) -> Iterator[pa.RecordBatch]:
        arrival = numbered.first_arrival
        for batch in read_split(self.context, numbered.split, self.context.schema.field_names, self.change.where):
            yield changed_rows(self.context, self.change, batch, arrival)
            arrival += batch.num_rows
            tally.rows += batch.num_rows


def _move_rows(
    context: TableContext, snapshot: Snapshot, change: RowEdit, stamp: str, engine: Engine, progress: Progress
) -> list[ChangedBucket]:
    """Write the changed rows like the input of a write, whose routing deletes them in the partitions that they leave."""
    splits = plan_scan(context, snapshot, change.where).splits
    if not splits:
        return []
    engine.prepare(Work.of(file for split in splits for file in split.files), progress)
    buckets, tallies = bucket_files(context, snapshot), Tallies()
    plan = WritePlan(
        context,
        ChangedRows(context, change),
        numbered_splits(splits),
        TargetBuckets(context.options.bucket),
        LookupAssignment(buckets=buckets, read_at=snapshot.id),
        committed_state(buckets).next_sequences,
        snapshot.id,
        stamp,
    )
    messages = write_files(plan, engine, progress, tallies).messages
    rows = Tally.of(tallies.values()).rows
    unseen = sum(unseen_records(context, split) for split in splits)
    return [ChangedBucket(*((0, m) if number else (rows, m, unseen))) for number, m in enumerate(messages)]
