"""`update` and `delete`: read, change, commit under the data conflict check, and again from the start after a conflict.

The check is what makes a read-modify-write safe: the commit happens only if no other commit wrote to its buckets since they were
read. One task changes one bucket: matching rows are read merged, changed, and written as new level-0 rows. In tables whose merge
engine mixes old and new rows, the effect is checked before anything is written. What becomes of append tables, which have no
level to write to: `append_change`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from paimon_cli.bucket.data_file_writer import DataFileWriter, changelog_writer
from paimon_cli.bucket.stamped_files import DataFileNames, new_stamp
from paimon_cli.commit.committer import Committer
from paimon_cli.commit.data_conflict import BUCKET, OFF
from paimon_cli.commit.deduplication import CommitIdentity
from paimon_cli.errors import BadInput, Refused, UsageError
from paimon_cli.history.live_files import bucket_files, committed_state
from paimon_cli.history.partition_spec import partition_text
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.faults import Tally
from paimon_cli.jobs.append_change import change_files
from paimon_cli.jobs.compact_job import show_level_0
from paimon_cli.jobs.engine import Engine, Progress, Work, phase, run_traced
from paimon_cli.jobs.rescale_job import NumberedSplit, numbered_splits
from paimon_cli.jobs.row_change import HINT, ChangedBucket, RowChange
from paimon_cli.jobs.table_change import (
    MAX_ATTEMPTS,
    NewFiles,
    again_on_conflict,
    check_writable_table,
    identity_of,
    write_files,
)
from paimon_cli.lsm.changelog import Changes
from paimon_cli.lsm.merge_engine import merge_engine
from paimon_cli.lsm.sort_merge import sorted_rows
from paimon_cli.metadata.data_file import SOURCE_APPEND, BucketId, CommitMessage, FileFilter, file_facts
from paimon_cli.metadata.data_file_schema import DELETE, INSERT, SEQUENCE_NUMBER, UPDATE_AFTER, VALUE_KIND, merge_rows
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_layout import POSTPONE_BUCKET
from paimon_cli.metadata.table_mode import CHANGE_ROWS, INPUT, BucketMode
from paimon_cli.options.table_options import DATA_CONFLICT_CHECK
from paimon_cli.read.pruning import Pruning
from paimon_cli.read.scan_plan import Split, plan_scan
from paimon_cli.read.split_reader import read_split
from paimon_cli.sql.clauses import parse_set_clause
from paimon_cli.sql.predicate import Predicate, parse_predicate
from paimon_cli.write.write_plan import Tallies, WritePlan

REMOVING = {
    "partial-update": "partial-update.remove-record-on-delete=true (or partial-update.remove-record-on-sequence-group)",
    "aggregation": "aggregation.remove-record-on-delete=true",
}


@dataclass(frozen=True)
class UpdateRequest:
    """The user's request: a SQL condition, and `column = expression` texts; without any, matching rows are deleted."""

    where: str
    assignments: tuple[str, ...] = ()
    commit_user: str | None = None
    commit_id: int | None = None
    assume_new: bool = False
    max_attempts: int = MAX_ATTEMPTS


@dataclass(frozen=True)
class UpdateSummary:
    """What was done. `rows`: how many matched; `attempts`: how often they were read; `conflicts`: how many attempts failed.

    `files`, `size` (bytes): of new data files; `removed_files`: how many of an append table's files are no longer in it.
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
    compaction_lost: str | None = None
    """Why readers do not see the change yet, where they wait for a compaction and it failed."""


def run_update(context: TableContext, request: UpdateRequest, engine: Engine, progress: Progress) -> UpdateSummary:
    """Change all rows that match at one snapshot, as one commit on top of it. When it fails, no file remains.

    Raises `Conflict` when all attempts were overtaken.
    """
    started = context.clock.now_millis()
    context.check(CHANGE_ROWS)
    check_writable_table(context)
    checked = _under_check(context)
    identity = identity_of(checked, request.commit_user, request.commit_id, request.assume_new)
    if Committer(checked).is_committed(identity):
        lost = show_level_0(context, (), engine, progress)  # it may have crashed before it had compacted
        return UpdateSummary(already_committed=True, engine=engine.name, compaction_lost=lost)
    new_values = parse_set_clause(request.assignments, checked.schema) if request.assignments else None
    change = RowChange(parse_predicate(request.where, checked.schema), new_values)
    hint = "raise --max-attempts, or keep other writers away from these buckets for a while"
    attempt = functools.partial(_attempt, checked, change, identity, engine, progress)
    summary, attempts = again_on_conflict(checked, attempt, hint, request.max_attempts)
    if summary.snapshots:
        summary = replace(summary, compaction_lost=show_level_0(context, summary.touched, engine, progress))
    seconds = (context.clock.now_millis() - started) / 1000
    summary = replace(summary, engine=engine.name, engine_reason=engine.reason, seconds=seconds)
    return replace(summary, attempts=attempts, conflicts=attempts - 1)


def _under_check(context: TableContext) -> TableContext:
    """The context with a data conflict check: by bucket if the table has none or `off`, because that applies to its writers
    only. It sees rows that readers do not see yet, for the update comes after them. In an append table no row replaces another:
    there it is enough that the commit finds the files and vectors that were read.
    """
    context = context.with_level_0()
    if not context.mode.has_keys or context.options.commit_data_conflict_check != OFF:
        return context
    return replace(context, options=context.options.with_overrides({DATA_CONFLICT_CHECK: BUCKET}))


def _attempt(
    context: TableContext, change: RowChange, identity: CommitIdentity, engine: Engine, progress: Progress
) -> UpdateSummary:
    """Plan at the latest snapshot, change the rows of each bucket, commit."""
    new_files = NewFiles(context, new_stamp(context))
    change_rows = _change_buckets if context.mode.has_keys else change_files
    if _moves_rows(context, change):
        change_rows = _move_rows
    with new_files.deleted_on_failure():
        changed = change_rows(context, change, new_files.stamp, engine, progress)
    messages = [bucket.message for bucket in changed if bucket.message is not None]
    new_files.delete_repeated(engine, messages)
    if not messages:
        return UpdateSummary()
    result = new_files.commit(messages, lambda: Committer(context).commit(messages, identity))
    if result.already_committed:
        return UpdateSummary(already_committed=True)
    files = [file for message in messages for file in message.new_files]
    return UpdateSummary(
        rows=sum(bucket.rows for bucket in changed),
        files=len(files),
        removed_files=sum(len(message.deleted_files) for message in messages),
        size=sum(file.file_size for file in files),
        buckets=len(messages),
        snapshots=result.snapshots,
        touched=tuple(message.bucket_id for message in messages),
    )


def _change_buckets(
    context: TableContext, change: RowChange, stamp: str, engine: Engine, progress: Progress
) -> list[ChangedBucket]:
    """Write the changed rows of each bucket to level 0."""
    tasks = plan_update(context, change, stamp)
    if not tasks:
        return []
    engine.prepare(Work.of(file for task in tasks for split in task.splits for file in split.files), progress)
    with phase(progress, "Changing rows", len(tasks)) as done:
        return run_traced(engine, context, functools.partial(update_bucket, change=change), tasks, done)


def _moves_rows(context: TableContext, change: RowChange) -> bool:
    """Whether a partition column is set, so that rows move to another partition."""
    assigned = [assignment.column.name for assignment in change.assignments]
    moving = [name for name in assigned if context.schema.has_movable_rows and name in context.schema.partition_keys]
    engine = context.options.merge_engine
    if moving and engine != "deduplicate":
        raise UsageError(
            f"column '{moving[0]}' cannot be set in a table with merge-engine={engine}",
            "a key stays in the partition where its first row came",
            "delete the row and write another one",
            column=moving[0],
        )
    return bool(moving)


@dataclass(frozen=True)
class ChangedRows:
    """The rows that match, with their new values: `SplitRows` of a `WritePlan`."""

    context: TableContext
    change: RowChange

    def read(self, numbered: NumberedSplit, tally: Tally) -> Iterator[pa.RecordBatch]:
        arrival = numbered.first_arrival
        for batch in read_split(self.context, numbered.split, self.context.schema.field_names, self.change.where):
            yield _changed(self.context, self.change, batch, arrival)
            arrival += batch.num_rows
            tally.rows += batch.num_rows


def _move_rows(context: TableContext, change: RowChange, stamp: str, engine: Engine, progress: Progress) -> list[ChangedBucket]:
    """Write the changed rows like any other input, which deletes them in the partitions that they leave."""
    snapshot = context.snapshots.latest()
    if snapshot is None or not (splits := plan_scan(context, snapshot, change.where).splits):
        return []
    engine.prepare(Work.of(file for split in splits for file in split.files), progress)
    buckets, tallies = bucket_files(context, snapshot), Tallies()
    plan = WritePlan(
        context,
        ChangedRows(context, change),
        numbered_splits(splits),
        context.options.bucket,
        {bucket_id: number + 1 for bucket_id, number in committed_state(buckets).max_sequences.items()},
        snapshot.id,
        stamp,
        lookup_buckets=buckets,
        keys_read_at=snapshot.id,
    )
    messages = write_files(plan, engine, progress, tallies).messages
    rows = Tally.of(tallies.values()).rows
    return [ChangedBucket(0 if number else rows, message) for number, message in enumerate(messages)]


def plan_update(context: TableContext, change: RowChange, stamp: str = "") -> list[UpdateTask]:
    """One task for each bucket of the latest snapshot that may hold matching rows."""
    snapshot = context.snapshots.latest()
    if snapshot is None:
        return []
    _refuse_waiting_rows(context, snapshot, change.where)
    splits: dict[BucketId, list[Split]] = {}
    for split in plan_scan(context, snapshot, change.where).splits:
        splits.setdefault(split.bucket.bucket_id, []).append(split)
    partitions = {partition for partition, _ in splits}
    whole = bucket_files(context, snapshot, FileFilter(partitions.__contains__, {bucket for _, bucket in splits}))
    return [
        UpdateTask(
            *bucket_id,
            whole[bucket_id].total_buckets,
            tuple(parts),
            max(file.max_sequence_number for file in whole[bucket_id].files) + 1,
            snapshot.id,
            stamp,
        )
        for bucket_id, parts in splits.items()
    ]


def _refuse_waiting_rows(context: TableContext, snapshot: Snapshot, where: Predicate) -> None:
    """`Refused` where rows wait in a partition that the condition is about: they are not seen, and would undo the change."""
    if context.mode.bucket_mode is not BucketMode.POSTPONED:
        return
    about = Pruning(context, where)
    for partition, _ in bucket_files(context, snapshot, FileFilter(about.keeps_partition, {POSTPONE_BUCKET})):
        raise Refused(
            f"rows of {partition_text(context, partition) or context.address} wait for their buckets",
            "a change does not see them, and they would replace the rows that it changes",
            f"paimon-cli compact {context.layout.argument}",
        )


@dataclass(frozen=True)
class UpdateTask:
    """One bucket as it was at the snapshot that is read. `first_sequence`: above all sequence numbers of the bucket."""

    partition: bytes
    bucket: int
    total_buckets: int
    splits: tuple[Split, ...]
    first_sequence: int
    read_snapshot_id: int
    file_stamp: str


def update_bucket(context: TableContext, task: UpdateTask, change: RowChange) -> ChangedBucket:
    """Carry out the task. When it fails, its own new files are removed; BadInput names the row that cannot be changed.

    The splits hold whole keys in ascending order, so the changed rows are sorted, one per key, as a file needs them.
    """
    names, bucket_id = DataFileNames(context, task.file_stamp), BucketId(task.partition, task.bucket)
    writer = DataFileWriter(context, bucket_id, level=0, source=SOURCE_APPEND, names=names)
    changelog = changelog_writer(context, bucket_id, 0, task.file_stamp) if context.mode.changelog_producer == INPUT else None
    rows = 0
    try:
        with context.trace.timed("flush", bucket=context.bucket_path(task.partition, task.bucket), level=0) as facts:
            for split in task.splits:
                for batch in read_split(context, split, context.schema.field_names, change.where):
                    changed = _changed(context, change, batch, task.first_sequence + rows)
                    writer.write(changed)
                    if changelog is not None:
                        changelog.write(_changes(context, batch, changed))
                    rows += batch.num_rows
            files, changes = writer.close(), changelog.close() if changelog else ()
            facts |= file_facts("", files)
    except BaseException:
        for opened in (writer, *((changelog,) if changelog else ())):
            opened.abort()
        raise
    if not files:
        return ChangedBucket(0, None)
    place = (task.partition, task.bucket, task.total_buckets)
    message = CommitMessage(*place, new_files=files, changelog_files=changes, read_snapshot_id=task.read_snapshot_id)
    return ChangedBucket(rows, message)


def _changes(context: TableContext, batch: pa.RecordBatch, changed: pa.RecordBatch) -> pa.RecordBatch:
    """What a stream of the table is to see: -U and +U, or -D. Both rows of a pair have the number of the new one."""
    first = int(changed.column(SEQUENCE_NUMBER)[0].as_py())
    before = merge_rows(context.schema, _columns(context, batch), INSERT, first)
    rows = np.arange(batch.num_rows)
    return Changes().rows(before, rows, changed, rows)


def _changed(context: TableContext, change: RowChange, batch: pa.RecordBatch, first_sequence: int) -> pa.RecordBatch:
    """The rows as `merge_schema` has them, with their new values."""
    columns = change.columns(context.schema, batch, lambda row: f"the row with {_key(context, batch, row)}")
    changed = merge_rows(context.schema, columns, change.kind, first_sequence)
    ordered_by = context.options.sequence_fields
    if any(assignment.column.name in ordered_by for assignment in change.assignments):
        _check_winners(context, batch, changed)
    if context.options.merge_engine != "deduplicate":
        check_effect(context, merge_rows(context.schema, _columns(context, batch), INSERT, 0), changed)
    return changed


def _columns(context: TableContext, batch: pa.RecordBatch) -> dict[str, pa.Array]:
    return {name: batch.column(name) for name in context.schema.field_names}


def _check_winners(context: TableContext, before: pa.RecordBatch, after: pa.RecordBatch) -> None:
    """A table's sequence field decides which version of a row wins: an update that lowers it would never be seen."""
    both = pa.concat_batches([merge_rows(context.schema, _columns(context, before), INSERT, 0), after])
    engine = merge_engine(context.schema, context.options)
    kinds = engine.merge(sorted_rows(both, context.schema.trimmed_primary_keys, engine)).column(VALUE_KIND).to_numpy()
    if not (kinds == UPDATE_AFTER).all():
        key = _key(context, before, int(np.argmax(kinds != UPDATE_AFTER)))
        raise BadInput(
            f"the row with {key} would not change",
            f"readers see the version with the greatest {', '.join(engine.sequence_fields)}, and SET lowers it",
            HINT,
        )


def _key(context: TableContext, batch: pa.RecordBatch, row: int) -> str:
    cells = ((name, batch.column(name)[row]) for name in context.schema.primary_keys)
    return ", ".join(f"{name} = {cell if cell.is_valid else 'NULL'}" for name, cell in cells)


def check_effect(context: TableContext, before: pa.RecordBatch, after: pa.RecordBatch) -> None:
    """Merge the rows as they are with those to be written: BadInput for the first key that would not get the requested values."""
    engine = merge_engine(context.schema, context.options)
    merged = engine.merge(sorted_rows(pa.concat_batches([before, after]), context.schema.trimmed_primary_keys, engine))
    deletes = int(after.column(VALUE_KIND)[0].as_py()) == DELETE if after.num_rows else False
    if deletes:
        kinds = merged.column(VALUE_KIND).to_numpy()
        wrong = np.flatnonzero(kinds & 1 == 0)
        if len(wrong) or len(kinds) < after.num_rows:
            name = context.options.merge_engine
            hint = f"set {REMOVING[name]}" if name in REMOVING and not context.options.ignore_delete else ""
            raise BadInput(
                f"merge-engine={name} does not delete rows of this table", "the row would remain, without its values", hint
            )
        return
    for name in context.schema.field_names:
        shown, wanted = merged.column(name), after.column(name)
        if not shown.equals(wanted) and (different := _first_difference(shown, wanted)) is not None:
            key = ", ".join(f"{k} = {after.column(k)[different]}" for k in context.schema.primary_keys)
            raise BadInput(
                f"column {name} of the row with {key} would not become {wanted[different]}",
                f"merge-engine={context.options.merge_engine} would show {shown[different]}",
                "nothing was committed; write rows that the merge engine turns into the values you want",
                column=name,
                row=key,
            )


def _first_difference(shown: pa.Array, wanted: pa.Array) -> int | None:
    """By text, so that NaN equals itself."""
    pairs = enumerate(zip(shown.to_pylist(), wanted.to_pylist(), strict=True))
    return next((row for row, (left, right) in pairs if repr(left) != repr(right)), None)
