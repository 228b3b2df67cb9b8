"""`merge`: updates, deletes and inserts rows of a table by the rows of a source, in one commit under the data conflict check.

1. plan at one snapshot, as a write does.
2. change: each task joins its rows of the table with the source (`source_rows`), and changes them as an update does
   (`merge_edit`). It returns which rows of the source have met one.
3. insert the others: they take the write path.
4. commit both. After a conflict, start again.

The rows to insert were computed from what the table does not hold. So the commit is refused, too, if another one has added rows
since then, unless the key of a row says in which bucket it would be.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from paimon_cli.bucket.spilled_runs import SpillDirectory
from paimon_cli.bucket.stamped_files import new_stamp
from paimon_cli.commit.committer import Committer
from paimon_cli.commit.data_conflict import CheckData, check_of_partitions
from paimon_cli.commit.deduplication import CommitIdentity
from paimon_cli.datatypes.type_text import quoted_name
from paimon_cli.errors import UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.python_values import values_of_columns
from paimon_cli.ingest.row_sources import ArrowRows
from paimon_cli.ingest.rows import IncomingRows
from paimon_cli.jobs.append_change import change_files
from paimon_cli.jobs.bucket_change import change_buckets
from paimon_cli.jobs.due_compaction import finished_earlier
from paimon_cli.jobs.engine import Engine, Progress
from paimon_cli.jobs.merge_edit import Clause, MergeEdit, MergeSource, PlannedMerge, joined_schema, source_schema
from paimon_cli.jobs.merge_inserts import rows_to_insert
from paimon_cli.jobs.row_change import ChangedBucket
from paimon_cli.jobs.source_rows import SpillPlace
from paimon_cli.jobs.table_change import (
    NewFiles,
    again_on_conflict,
    check_writable_table,
    compacted_by_writers,
    expiry_noticed,
    identity_of,
    ran_on,
    written_files,
)
from paimon_cli.jobs.update_job import ChangeRequest, UpdateSummary, check_moves, compacted_after, data_check_of
from paimon_cli.jobs.write_job import write_input
from paimon_cli.jobs.write_request import WriteRequest, plan_write, splits_of
from paimon_cli.metadata.data_file import CommitMessage
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_mode import CHANGE_ROWS
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.choices import CompactionMode
from paimon_cli.options.option_text import did_you_mean
from paimon_cli.requests.merging import MergeClause
from paimon_cli.sql.clauses import SetClause, parse_set_clause
from paimon_cli.sql.expressions import columns_within
from paimon_cli.sql.predicate import check_all_used, parse_predicate
from paimon_cli.write.write_plan import WritePlan

ROWS_TO_INSERT = "the rows to insert"
_RETRY_HINT = "raise --max-attempts, or keep other writers away from this table for a while"


class MergeRequest(ChangeRequest):
    """The user's request."""

    on: tuple[str, ...]
    clauses: tuple[MergeClause, ...]
    timezone: str | None = None


@dataclass(frozen=True, repr=False)
class MergeSummary(UpdateSummary):
    """The result. `rows`: how many rows were `inserted`, `updated` or `deleted`; `source_rows`: the rows of the source.

    The other fields are those of an update.
    """

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    source_rows: int = 0


def run_merge(
    context: TableContext, request: MergeRequest, data: pa.RecordBatchReader, engine: Engine, progress: Progress
) -> MergeSummary:
    """Merge the rows in one commit. If it fails, no new file remains.

    Raises `Conflict` if other jobs committed first in all attempts, `BadInput` for a row that cannot be changed or inserted.
    """
    started = context.clock.now_millis()
    context.check(CHANGE_ROWS)
    check_writable_table(context)
    identity = identity_of(context, request.commit_user, request.commit_id, request.assume_new)
    if Committer(context).is_committed(identity):
        return MergeSummary(**finished_earlier(context, request.compaction, engine, progress))
    with SpillDirectory() as spill:
        merge = planned_merge(context.schema, request, data, lambda: spill if engine.shares_disk else None)
        check_moves(context, merge.edit)
        attempt = functools.partial(_attempt, context, merge, identity, engine, progress)
        summary, attempts = again_on_conflict(context, attempt, _RETRY_HINT, request.max_attempts)
    summary = compacted_after(context, request, summary, None, engine, progress)
    return replace(summary, attempts=attempts, conflicts=attempts - 1, **ran_on(engine, context, started))


def planned_merge(schema: TableSchema, request: MergeRequest, data: pa.RecordBatchReader, place: SpillPlace) -> PlannedMerge:
    """Check the request, and read the source.

    Raises `UsageError` for invalid SQL and columns, `BadInput` for rows of the source that do not fit.
    """
    if not request.clauses:
        raise UsageError("the merge does nothing", "it has no clause", "such as .when_matched_update_all()")
    source = MergeSource.of(data, schema, request.on, request.timezone, place)
    joined, of_source = joined_schema(schema, source), source_schema(schema, source)
    used: set[str] = set()

    def clauses(when: str) -> tuple[Clause, ...]:
        own = of_source if when == "not_matched" else joined
        return tuple(_clause(clause, own, schema, source, request, used) for clause in request.clauses if clause.when == when)

    matched, inserts, unmatched = clauses("matched"), clauses("not_matched"), clauses("not_matched_by_source")
    check_all_used(request.params, used)
    if any(clause.takes_all for clause in request.clauses):
        _check_columns(schema, source, (*matched, *inserts, *unmatched))
    where = parse_predicate("TRUE", schema) if unmatched else source.condition(schema)
    edit = MergeEdit(where, source, matched, unmatched, _fixed(schema, source, request.clauses))
    return PlannedMerge(edit, inserts, place)


def _clause(
    clause: MergeClause, own: TableSchema, schema: TableSchema, source: MergeSource, request: MergeRequest, used: set[str]
) -> Clause:
    """The parsed clause. `own`: the columns that its condition and expressions can read."""
    condition = None if clause.condition is None else parse_predicate(clause.condition, own, request.params)
    new_values: SetClause | None = None
    if clause.action != "delete":
        texts, values = list(clause.assignments), values_of_columns(clause.values or {}, schema)
        if clause.takes_all:
            left_out = {*_stored_by(schema), *source.on} if clause.action == "update" else set[str]()
            names = [field.name for field in source.fields if schema.find(field.name) is not None and field.name not in left_out]
            texts += [f"{quoted_name(name)} = source.{quoted_name(name)}" for name in names]
        elif not texts and not values:
            raise UsageError(f"nothing to {clause.action}", "the clause sets no column", 'such as {"points": "source.points"}')
        new_values = parse_set_clause(texts, own, request.params, values)
        used |= new_values.parameters
    if condition is not None:
        used |= condition.parameters
    return Clause(condition, new_values)


def _check_columns(schema: TableSchema, source: MergeSource, clauses: Sequence[Clause]) -> None:
    """Raise `UsageError` for a column of the source that nothing uses: it is probably misspelt, and would be left out."""
    read = set[str]()
    for clause in clauses:
        conditions = [] if clause.condition is None else [clause.condition.condition]
        values = [] if clause.new_values is None else [item.expression for item in clause.new_values.assignments]
        read |= {column.path[0] if column.path else column.name for column in columns_within((*conditions, *values))}
    own = {field.name for field in source.fields}
    for name in own - read - set(schema.field_names):
        free = [column for column in schema.field_names if column not in own]
        what = f"the table has no column '{name}', which the source has"
        why = "when_matched_update_all and when_not_matched_insert_all take the columns that both have, and no condition reads it"
        raise UsageError(what, why, f"{did_you_mean(name, free)}rename it, or leave it out of the source", column=name)


def _stored_by(schema: TableSchema) -> tuple[str, ...]:
    """The columns whose values decide where a row is stored, so that an update cannot change them."""
    partition_keys = () if schema.has_movable_rows else schema.partition_keys
    return tuple(dict.fromkeys((*schema.primary_keys, *partition_keys, *schema.bucket_key_names)))


def _fixed(schema: TableSchema, source: MergeSource, clauses: Sequence[MergeClause]) -> tuple[str, ...]:
    """The columns of the source that `when_matched_update_all` must not change."""
    if not any(clause.takes_all and clause.action == "update" for clause in clauses):
        return ()
    names = {field.name for field in source.fields}
    return tuple(name for name in _stored_by(schema) if name in names and name not in source.on)


def _attempt(
    context: TableContext, merge: PlannedMerge, identity: CommitIdentity, engine: Engine, progress: Progress
) -> MergeSummary:
    """Plan at the latest snapshot, change rows, insert rows, and commit."""
    nothing = WriteRequest(source=ArrowRows(pa.table({})), compact=CompactionMode.NONE)
    plan = plan_write(context, nothing, identity.user, splits=())
    snapshot = None if plan.planned_at is None else context.snapshots.get(plan.planned_at)
    new_files = NewFiles(context, new_stamp(context))
    with expiry_noticed(context, plan.planned_at), new_files.deleted_on_failure():
        changed = [] if snapshot is None else _changed(context, snapshot, merge.edit, new_files.stamp, engine, progress)
        messages = [bucket.message for bucket in changed if bucket.message is not None]
        new_files.delete_repeated(engine, messages)
        rows = rows_to_insert(context, snapshot, merge, changed)
        inserted = _inserted(plan, _with_moved(rows, changed), messages, engine, progress)
    summary = _summary(merge, changed, rows.num_rows)
    every = [*messages, *inserted]
    if not every:
        return summary
    checks = _checks_of_absence(context, merge, identity, plan, inserted)
    committer = Committer(context, data_check_of(context))
    result = new_files.commit_halves(every, lambda: committer.commit(every, identity, also=checks))
    if result.already_committed:
        return MergeSummary(already_committed=True)
    return replace(
        summary,
        **written_files(every),
        removed_files=sum(len(message.append.removed) for message in every),
        buckets=len({message.bucket_id for message in every}),
        snapshots=result.snapshots,
        touched=tuple(dict.fromkeys(message.bucket_id for message in every)),
        **compacted_by_writers(every, result, ()),
        is_routed=True,
    )


def _summary(merge: PlannedMerge, changed: Sequence[ChangedBucket], inserted: int) -> MergeSummary:
    rows, deleted = sum(bucket.rows for bucket in changed), sum(bucket.deleted for bucket in changed)
    return MergeSummary(
        rows=rows + inserted,
        inserted=inserted,
        updated=rows - deleted,
        deleted=deleted,
        source_rows=merge.source.stored.num_rows,
        unseen_records=sum(bucket.unseen_records for bucket in changed),
    )


def _changed(
    context: TableContext, snapshot: Snapshot, edit: MergeEdit, stamp: str, engine: Engine, progress: Progress
) -> list[ChangedBucket]:
    seen = context.with_level_0()  # also rows that readers do not see yet, as an update does
    if context.mode.has_keys:
        return change_buckets(seen, snapshot, edit, stamp, engine, progress, inline=None)
    return change_files(seen, snapshot, edit, stamp, engine, progress)


def _with_moved(rows: pa.Table, changed: Sequence[ChangedBucket]) -> pa.Table:
    """The rows to insert and those that have moved: the write path deletes these in the partitions that they leave."""
    moved = [pa.Table.from_batches(bucket.moved) for bucket in changed if bucket.moved]
    return pa.concat_tables([*([rows] if rows.num_rows else []), *moved], promote_options="default") if moved else rows


def _inserted(
    plan: WritePlan, rows: pa.Table, changed: Sequence[CommitMessage], engine: Engine, progress: Progress
) -> list[CommitMessage]:
    """Write the new rows, numbered above the changed ones."""
    if not rows.num_rows:
        return []
    request = WriteRequest(source=ArrowRows(rows, ROWS_TO_INSERT), compact=CompactionMode.NONE)
    sequences = dict(plan.first_sequences)
    for message in changed if sequences else ():
        highest = max((file.max_sequence_number for file in message.append.added), default=-1)
        sequences[message.bucket_id] = max(sequences.get(message.bucket_id, 0), highest + 1)
    assert isinstance(plan.incoming, IncomingRows)
    ready = replace(
        plan, incoming=replace(plan.incoming, source=request.source), splits=splits_of(request), first_sequences=sequences
    )
    return write_input(ready, request, engine, progress)[0].messages


def _checks_of_absence(
    context: TableContext, merge: PlannedMerge, identity: CommitIdentity, plan: WritePlan, inserted: Sequence[CommitMessage]
) -> list[CheckData]:
    """The check that no other commit has added rows that the new ones would have met."""
    schema, on = context.schema, set(merge.source.on)
    if not inserted or (schema.primary_keys and set(schema.primary_keys) <= on):
        return []
    partitions = {message.partition for message in inserted}
    knows_partition = schema.partition_keys and set(schema.partition_keys) <= on
    meets: Callable[[bytes], bool] = partitions.__contains__ if knows_partition else lambda partition: True
    return [check_of_partitions(context, identity, meets, plan.read_snapshot_id)]
