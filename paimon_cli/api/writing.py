"""Changes to the rows of a table: write, update, delete and truncate."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import KW_ONLY, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from paimon_cli.api.arguments import checks_arguments, takes
from paimon_cli.api.assignments import assignments_of
from paimon_cli.api.maintenance import Planned
from paimon_cli.api.opened_table import OpenedTable, Self
from paimon_cli.api.row_input import is_spark_frame, merge_rows_of, row_source
from paimon_cli.errors import NotSupported, PaimonError, PartialSuccess, UsageError
from paimon_cli.options.choices import CompactionMode, ConflictCheck
from paimon_cli.options.own_options import DATA_CONFLICT_CHECK, DATA_CONFLICT_CHECKS
from paimon_cli.requests.fields import check_choice
from paimon_cli.requests.merging import MergeCall, MergeClause
from paimon_cli.requests.selections import Partitions
from paimon_cli.requests.writing import ChangeCall, DeleteCall, Identity, TruncateCall, UpdateCall, WriteCall

if TYPE_CHECKING:
    from paimon_cli.api.merging import Merge
    from paimon_cli.api.staging import Stage
    from paimon_cli.ingest.text_form import TextForm
    from paimon_cli.jobs.change_plan import ChangePlan
    from paimon_cli.jobs.engine import Engine, Progress
    from paimon_cli.jobs.merge_job import MergeSummary
    from paimon_cli.jobs.metadata_jobs import Dropped
    from paimon_cli.jobs.transaction_job import TransactionSummary
    from paimon_cli.jobs.update_job import UpdateSummary
    from paimon_cli.jobs.write_job import WriteSummary
    from paimon_cli.jobs.write_request import WriteRequest


class TableWrite(WriteCall):
    """A write of data into a table; `Table.write` says what can be given."""

    data: Any
    _: KW_ONLY
    format: str | None = None
    form: TextForm | None = None
    timezone: str | None = None
    on_written: Callable[[WriteSummary], None] | None = None


class DropPartitionCall(Identity):
    """The partitions to drop."""

    partition: Partitions


@checks_arguments
class Writing(OpenedTable):
    """The methods of `Table` that change rows. Each makes one atomic commit, which can be repeated safely with an `Identity`.

    All of them raise `Refused` if the storage does not allow safe commits, `Conflict` if another commit conflicts, and
    `CommitUnknown` if the storage did not confirm whether the commit was published; nothing is deleted then.
    """

    _marks_partitions = True
    """Whether a change marks its partitions as done where the table's options say so. Internal to paimon_cli."""

    @takes(TableWrite)
    def write(self, call: TableWrite) -> WriteSummary:
        """Write rows in one commit.

        - `data`: an Arrow table, one or more record batches or tables, a pandas or polars frame (anything with
        `__arrow_c_stream__`), a polars LazyFrame, a pyarrow Dataset, a list of dicts, or a dict of columns, which must fit in
        memory; or paths of files, another table at its latest snapshot, or a scan (`Table.scan`), which are streamed. A DataFrame
        of Spark is written by its session, as `paimon_cli.spark.write` does. Columns are matched by name.
        - `format`: of files, default by extension. `form`: a `TextForm` for CSV and JSON. `timezone`: for times without an
        offset in columns WITH LOCAL TIME ZONE, and for times with one in other columns.
        - `on_written`: called with the summary when the rows are committed or staged, before a compaction `after` the commit.

        Raises `BadInput` for rows that do not fit.
        """
        if is_spark_frame(call.data):
            return _written_by_spark(self, call)
        checked = self._with_check(call.data_conflict_check)
        checked.check_commit()
        checked._check_compact(call.compact)
        if call.read_snapshot is not None and checked.context.options.commit_data_conflict_check == ConflictCheck.OFF:
            self.runtime.warn("--read-snapshot has no effect while the data conflict check is off")
        from paimon_cli.jobs.table_rows import TableRows
        from paimon_cli.jobs.write_request import WriteRequest

        source, read_snapshot = row_source(call.data, call.format, call.form, call.timezone, self), call.read_snapshot
        if read_snapshot is None and isinstance(source, TableRows) and source.is_of(self.context.layout):
            read_snapshot = source.snapshot_id or 0
        with closing(source):
            request = WriteRequest.of(call, source=source, read_snapshot=read_snapshot)
            if call.stage is not None:
                summary = checked.stage.write(request, call.stage)
                if call.on_written is not None:
                    call.on_written(summary)
                return summary
            return checked._write(request, call.on_written)

    def _check_compact(self, compact: str | None) -> None:
        """Raise `UsageError` for a way of compacting that the table does not allow."""
        if compact in (CompactionMode.INLINE, CompactionMode.ASYNC) and self.context.options.write_only:
            why = "write-only tables leave compaction to a dedicated job"
            raise UsageError(f"--compact {compact} on a write-only table", why, "use --compact after")

    def _write(self, request: WriteRequest, on_written: Callable[[WriteSummary], None] | None) -> WriteSummary:
        from paimon_cli.jobs.write_job import run_write

        progress = self.runtime.new_progress()
        with self.runtime.engine_running(request.parallelism) as engine:
            summary = run_write(self.context, request, engine, progress)
            if on_written is not None:
                on_written(summary)
            if request.compact == CompactionMode.AFTER and summary.touched:
                try:
                    summary = self._compacted(summary, engine, progress)
                except PartialSuccess:  # the rows are committed, and nothing marks their partitions later
                    self._mark_partitions(summary, request.commit_user, request.commit_id)
                    raise
        self._mark_partitions(summary, request.commit_user, request.commit_id)
        return summary

    def _compacted(self, written: WriteSummary, engine: Engine, progress: Progress) -> WriteSummary:
        """The summary with that of a compaction of the written buckets. Raises `PartialSuccess` if the compaction fails."""
        from paimon_cli.jobs.compact_job import run_compact
        from paimon_cli.jobs.compact_request import CompactRequest
        from paimon_cli.jobs.due_compaction import waiting_after

        minor = CompactRequest("minor", bucket=sorted({bucket for _, bucket in written.touched}))
        try:
            compacted = run_compact(self.context, minor, engine, progress)
        except PaimonError as error:
            number, retry = written.snapshots[-1].id, f"run paimon-cli compact {self.context.layout.argument}"
            what = f"the rows are committed as snapshot {number}, but the compaction after it failed"
            raise PartialSuccess(what, str(error), retry, snapshot_id=number) from error
        waiting = waiting_after(self.context, written.touched, written.snapshots, compacted.snapshots)
        return replace(written, compaction=compacted, waiting_records=waiting)

    def _mark_partitions(
        self, done: WriteSummary | UpdateSummary | TransactionSummary, user: str | None, number: int | None
    ) -> None:
        """Mark the written partitions as done, if the table's options say so; a repeated commit marks them again."""
        if not self._marks_partitions or not self.context.options.partition_end_input_to_done:
            return
        from paimon_cli.catalog.open_table import report_hosts
        from paimon_cli.maintain.mark_done import mark_written, partitions_of_commit

        partitions = {bucket_id.partition for bucket_id in done.touched} if done.snapshots else set()
        if done.already_committed:
            from paimon_cli.jobs.table_change import identity_of

            identity = identity_of(self.context, user, number)
            partitions = partitions_of_commit(self.context, identity.user, identity.identifier)
        mark_written(self.context, partitions, self.runtime.warn, report_hosts(self.context))

    def _with_check(self: Self, granularity: str | None) -> Self:
        """The same table with another data conflict check (None: unchanged)."""
        if granularity is None:
            return self
        check_choice(DATA_CONFLICT_CHECK, granularity, DATA_CONFLICT_CHECKS)
        return self.with_options({DATA_CONFLICT_CHECK: granularity})

    @takes(UpdateCall)
    def update(self, call: UpdateCall) -> UpdateSummary:
        """Change the rows that match a condition, in one commit; start again if another commit changes the same buckets.

        Raises `Conflict` after `max_attempts`.
        """
        return self._update(tuple(assignments_of(call.set or ())), call)

    @takes(DeleteCall)
    def delete(self, call: DeleteCall) -> UpdateSummary:
        """Delete the rows that match a condition, in one commit; start again if another commit changes the same buckets."""
        return self._update((), call)

    @takes(UpdateCall)
    def plan_update(self, call: UpdateCall) -> Planned[ChangePlan, UpdateSummary]:
        """Plan an update: read the rows that match, and compute what they would become; nothing is written.

        `run` commits it, or raises `DataConflict` if any other commit was made since the plan.
        """
        return self._planned_update(tuple(assignments_of(call.set or ())), call)

    @takes(DeleteCall)
    def plan_delete(self, call: DeleteCall) -> Planned[ChangePlan, UpdateSummary]:
        """Plan a delete: read the rows that match; nothing is written.

        `run` commits it, or raises `DataConflict` if any other commit was made since the plan.
        """
        return self._planned_update((), call)

    def _planned_update(self, assignments: tuple[str, ...], call: UpdateCall | DeleteCall) -> Planned[ChangePlan, UpdateSummary]:
        from paimon_cli.jobs.change_plan import plan_update
        from paimon_cli.jobs.update_job import UpdateRequest

        self.check_call()
        once = replace(call, max_attempts=1)
        plan = plan_update(self.context, UpdateRequest.of(once, assignments=assignments))
        return Planned(plan, lambda: self.only_on(plan.snapshot_id)._update(assignments, once))

    @takes(TableWrite)
    def plan_write(self, call: TableWrite) -> Planned[ChangePlan, WriteSummary]:
        """Plan a write: check the rows of `data`, and count those whose keys the table has; nothing is written.

        `format`, `form`, `timezone` and `on_written` are those of `write`. `run` commits the rows, or raises `DataConflict` if
        any other commit was made since the plan. Raises `NotSupported` for an overwrite, of which it would not show enough.
        """
        if call.overwrite or call.stage is not None:
            what = "an overwrite" if call.overwrite else "a staged write"
            raise NotSupported(f"{what} cannot be planned", "a plan shows rows that are added, replaced or deleted by key")
        from paimon_cli.jobs.change_plan import plan_rows_to_write
        from paimon_cli.jobs.write_request import WriteRequest

        self.check_call()
        self._check_compact(call.compact)
        request = WriteRequest.of(call, source=row_source(call.data, call.format, call.form, call.timezone, self))
        plan = plan_rows_to_write(self.context, request)
        given = {**vars(call), "data": request.source, "format": None, "form": None, "timezone": None}
        return Planned(plan, lambda: self.only_on(plan.snapshot_id).write(**given))

    @takes(MergeCall)
    def merge(self, call: MergeCall) -> Merge:
        """Merge rows into the table, in one commit: update or delete the rows that meet a row of `source`, insert the others.

        - `source`: data in memory, as `write` takes it, a table or a scan. Both are streamed: a large source goes to a temporary
        file. Columns that have the name of a column of the table get its type; others serve conditions and expressions.
        - `on`: the columns that must be equal: the primary key, or others; in a table with row tracking also `_ROW_ID`. Null
        equals nothing.
        - `timezone`: as in `write`.

        The result has a method for each clause, and `execute`, which commits. Nothing happens before.

        >>> import pyarrow as pa
        >>> news = pa.table({"id": [2, 7], "name": ["B", "g"]})
        >>> merge = example_table().merge(news, on=["id"])
        >>> done = merge.when_matched_update({"name": "source.name"}).when_not_matched_insert_all().execute()
        >>> done.updated, done.inserted
        (1, 1)
        """
        from paimon_cli.api.merging import Merge

        return Merge(self.name, call, self._merge)

    def _merge(self, call: MergeCall, clauses: tuple[MergeClause, ...]) -> MergeSummary:
        from paimon_cli.jobs.merge_job import MergeRequest, run_merge

        checked = self._checked_for_changes(call)
        request = MergeRequest.of(call, on=tuple(call.on or ()), clauses=clauses)
        with checked.runtime.engine_running() as engine:
            rows = merge_rows_of(call.source, checked, engine)
            summary = run_merge(checked.context, request, rows, engine, checked.runtime.new_progress())
        self._mark_partitions(summary, request.commit_user, request.commit_id)
        return summary

    def _checked_for_changes(self, call: ChangeCall) -> Writing:
        """The table with the data conflict check of a call. Raises `UsageError` for options that an update cannot have."""
        checked = self._with_check(call.data_conflict_check)
        checked._check_compact(call.compact)
        if checked.context.mode.has_keys and checked.context.given.get(DATA_CONFLICT_CHECK, "").lower() == ConflictCheck.OFF:
            raise UsageError(
                "update, delete and merge always run with the data conflict check",
                "without it they would undo commits made since their read",
                "remove the option, or use partition, bucket, range or key",
            )
        checked.check_commit()
        return checked

    def _update(self, assignments: tuple[str, ...], call: UpdateCall | DeleteCall) -> UpdateSummary:
        from paimon_cli.jobs.update_job import UpdateRequest, run_update
        from paimon_cli.sql.predicate import parse_predicate

        checked = self._checked_for_changes(call)
        where = call.where or ""
        for warning in parse_predicate(where, checked.context.readable_schema, call.params).warnings:
            self.runtime.warn(warning)
        request = UpdateRequest.of(call, assignments=assignments)
        with self.runtime.engine_running() as engine:
            summary = run_update(checked.context, request, engine, self.runtime.new_progress())
        self._mark_partitions(summary, request.commit_user, request.commit_id)
        return summary

    @takes(TruncateCall)
    def plan_truncate(self, call: TruncateCall) -> Planned[Dropped, Dropped]:
        """Plan to delete all rows of partitions, or of the whole table; the plan counts them."""
        from paimon_cli.jobs.metadata_jobs import plan_drop, run_drop
        from paimon_cli.jobs.table_change import identity_of

        self.check_call()
        context, chosen = self.context, call.partition or ()
        commit = identity_of(context, call.commit_user, call.commit_id, call.assume_new)
        plan = plan_drop(context, chosen, commit)

        def run() -> Dropped:
            self.check_commit()
            return plan if plan.already_committed else run_drop(context, chosen, plan, commit)

        return Planned(plan, run)

    @takes(Identity)
    def truncate(self, identity: Identity) -> Dropped:
        """Delete all rows in one commit. Older snapshots keep them until they expire."""
        return self.plan_truncate(**vars(identity)).run()

    @takes(DropPartitionCall)
    def drop_partition(self, call: DropPartitionCall) -> Dropped:
        """Delete all rows of partitions in one commit. `partition`: such as `{"dt": "2026-11-20"}`, or a list of these; some of
        the keys select all matching partitions.
        """
        if not call.partition:
            raise UsageError("no partition to drop", "all rows would be deleted", "name a partition, or use truncate")
        return self.plan_truncate(**vars(call)).run()

    @property
    def stage(self) -> Stage:
        """Staged commits, written by `write(stage=FILE)`."""
        from paimon_cli.api.staging import Stage

        return Stage(self)


def _written_by_spark(table: Writing, call: TableWrite) -> WriteSummary:
    """The rows of a DataFrame are written where they are. The room `spark` is above this one, and needs PySpark: it is loaded by
    its name.
    """
    if (call.format, call.form, call.timezone) != (None, None, None):
        why = "the rows of a DataFrame have types, and its session has a time zone"
        raise UsageError("format, form and timezone are for other data", why, "leave them out")
    given = {**vars(WriteCall.of(call)), "on_written": call.on_written}
    done: WriteSummary = import_module("paimon_cli.spark").write(call.data, table, **given)
    return done
