"""`merge`: updates, deletes and inserts rows of a table by the rows of a source, in one commit under the data conflict check.

1. plan at one snapshot, as a write does.
2. change: each task joins its rows of the table with the source (`merge_source`), and changes them as an update does
   (`merge_edit`). It returns which rows of the source have met one.
3. insert the others (`merge_inserts`): they take the write path.
4. commit both. After a conflict, start again.

The rows to insert were computed from what the table does not hold. So the commit is refused, too, if another one has added rows
since then, unless the key of a row says in which bucket it would be.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from paimon_cli.bucket.stamped_files import new_stamp
from paimon_cli.commit.committer import Committer
from paimon_cli.commit.data_conflict import CheckData, check_of_partitions
from paimon_cli.commit.deduplication import CommitIdentity
from paimon_cli.datatypes.type_text import quoted_name
from paimon_cli.errors import UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.tiered_rows import expect_not_tiered
from paimon_cli.ingest.python_values import values_of_columns
from paimon_cli.ingest.row_sources import ArrowRows, RowSource
from paimon_cli.ingest.rows import IncomingRows
from paimon_cli.jobs.append_change import change_files
from paimon_cli.jobs.bucket_change import change_buckets
from paimon_cli.jobs.due_compaction import finished_earlier
from paimon_cli.jobs.engine import Engine, Progress
from paimon_cli.jobs.merge_edit import Clause, MergeEdit, joined_schema, source_schema
from paimon_cli.jobs.merge_inserts import NewRows, check_new_keys
from paimon_cli.jobs.merge_source import MemorySource, MergeSource, SourceRows
from paimon_cli.jobs.row_change import ChangedBucket
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
from paimon_cli.metadata.data_file_schema import fields_of_star
from paimon_cli.metadata.snapshot import RowOperation, Snapshot
from paimon_cli.metadata.table_mode import CHANGE_ROWS
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.choices import CompactionMode
from paimon_cli.options.option_text import did_you_mean
from paimon_cli.requests.merging import MergeClause
from paimon_cli.sql.clauses import SetClause, parse_set_clause
from paimon_cli.sql.expressions import columns_within
from paimon_cli.sql.predicate import check_all_used, parse_predicate
from paimon_cli.write.write_plan import WritePlan

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


@dataclass(frozen=True)
class PlannedMerge:
    """A merge that was checked against the schema. `inserts`: the clauses for rows of the source that meet no row."""

    edit: MergeEdit
    inserts: tuple[Clause, ...]

    @property
    def source(self) -> MergeSource:
        return self.edit.source


def run_merge(
    context: TableContext, request: MergeRequest, given: SourceRows, engine: Engine, progress: Progress
) -> MergeSummary:
    """Merge the rows in one commit. If it fails, no new file remains.

    Raises `Conflict` if other jobs committed first in all attempts, `BadInput` for a row that cannot be changed or inserted.
    """
    started = context.clock.now_millis()
    if not request.clauses:
        raise UsageError("the merge does nothing", "it has no clause", "such as .when_matched_update_all()")
    context.check(CHANGE_ROWS)
    check_writable_table(context)
    expect_not_tiered(context, "change rows of")
    identity = identity_of(context, request.commit_user, request.commit_id, request.assume_new)
    if Committer(context).is_committed(identity):
        return MergeSummary(**finished_earlier(context, request.compaction, engine, progress))
    planned_merge(
        context, request, MemorySource.of(given.columns.empty_table(), context.readable_schema, request.on, request.timezone)
    )
    with given.opened(context, request.on, request.timezone) as source:
        merge = planned_merge(context, request, source)
        check_moves(context, merge.edit)
        attempt = functools.partial(_attempt, context, merge, identity, engine, progress)
        summary, attempts = again_on_conflict(context, attempt, _RETRY_HINT, request.max_attempts)
    summary = compacted_after(context, request, summary, None, engine, progress)
    return replace(summary, attempts=attempts, conflicts=attempts - 1, **ran_on(engine, context, started))


def planned_merge(context: TableContext, request: MergeRequest, source: MergeSource) -> PlannedMerge:
    """Check the request. Raises `UsageError` for invalid SQL and columns."""
    schema, readable = context.schema, context.readable_schema
    joined, of_source = joined_schema(readable, source), source_schema(schema, source)
    used: set[str] = set()

    def clauses(when: str) -> tuple[Clause, ...]:
        own = of_source if when == "not_matched" else joined
        return tuple(_clause(clause, own, readable, source, request, used) for clause in request.clauses if clause.when == when)

    matched, inserts, unmatched = clauses("matched"), clauses("not_matched"), clauses("not_matched_by_source")
    check_all_used(request.params, used)
    if any(clause.takes_all for clause in request.clauses):
        _check_columns(readable, source, (*matched, *inserts, *unmatched))
    where = parse_predicate("TRUE", readable) if unmatched else source.condition(readable)
    edit = MergeEdit(where, source, matched, unmatched, _fixed(schema, source, request.clauses))
    return PlannedMerge(edit, inserts)


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
            known = {field.name for field in fields_of_star(schema)} - left_out
            names = [field.name for field in source.fields if field.name in known]
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
    for name in own - read - {field.name for field in fields_of_star(schema)} - set(source.on):
        if schema.find(name) is not None:
            what, why = f"nothing reads column '{name}' of the source", "a merge sets no ids and numbers of rows"
            raise UsageError(what, why, "merge on it, or leave it out of the source", column=name)
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
        rows, moved = NewRows.of(merge.source, merge.inserts, context.schema, changed), _moved(changed)
        check_new_keys(context, snapshot, rows, engine, progress)
        inserted, count = _inserted(plan, rows.with_moved(moved), messages, engine, progress)
    summary = _summary(merge, changed, count - moved.num_rows)
    every = [*messages, *inserted]
    if not every:
        return summary
    checks = _checks_of_absence(context, merge, identity, plan, inserted)
    committer = Committer(context, data_check_of(context), RowOperation.MERGE)
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
        source_rows=merge.source.row_count,
        unseen_records=sum(bucket.unseen_records for bucket in changed),
    )


def _changed(
    context: TableContext, snapshot: Snapshot, edit: MergeEdit, stamp: str, engine: Engine, progress: Progress
) -> list[ChangedBucket]:
    seen = context.with_level_0()  # also rows that readers do not see yet, as an update does
    if context.mode.has_keys:
        return change_buckets(seen, snapshot, edit, stamp, engine, progress, inline=None)
    return change_files(seen, snapshot, edit, stamp, engine, progress)


def _inserted(
    plan: WritePlan, rows: RowSource, changed: Sequence[CommitMessage], engine: Engine, progress: Progress
) -> tuple[list[CommitMessage], int]:
    """Write the new rows, numbered above the changed ones. Also returns how many there are."""
    request = WriteRequest(source=rows, compact=CompactionMode.NONE)
    splits = splits_of(plan.context, request)
    if not splits:
        return [], 0
    sequences = dict(plan.first_sequences)
    for message in changed if sequences else ():
        highest = max((file.max_sequence_number for file in message.append.added), default=-1)
        sequences[message.bucket_id] = max(sequences.get(message.bucket_id, 0), highest + 1)
    assert isinstance(plan.incoming, IncomingRows)
    ready = replace(plan, incoming=replace(plan.incoming, source=rows), splits=splits, first_sequences=sequences)
    written, found = write_input(ready, request, engine, progress)
    return written.messages, found.rows


def _moved(changed: Sequence[ChangedBucket]) -> pa.Table:
    """The changed rows that the write path puts into other partitions, and deletes in those that they leave."""
    moved = [pa.Table.from_batches(bucket.moved) for bucket in changed if bucket.moved]
    return pa.concat_tables(moved, promote_options="default") if moved else pa.table({})


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
