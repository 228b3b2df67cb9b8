"""Changes to the rows of a table: write, update, delete and truncate."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, time
from numbers import Number
from typing import TYPE_CHECKING, Any

from paimon_cli.api.arguments import checks_arguments
from paimon_cli.api.maintenance import Planned
from paimon_cli.api.opened_table import Identity, OpenedTable, Self, check_names
from paimon_cli.api.row_input import row_source
from paimon_cli.datatypes.type_text import quoted_name
from paimon_cli.errors import PaimonError, PartialSuccess, UsageError
from paimon_cli.options.own_options import DATA_CONFLICT_CHECK, DATA_CONFLICT_CHECKS
from paimon_cli.requests.fields import check_choice, check_positive
from paimon_cli.requests.selections import Buckets, Partitions, bucket_list, partition_list

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from paimon_cli.api.staging import Stage
    from paimon_cli.ingest.text_form import TextForm
    from paimon_cli.jobs.engine import Engine, Progress
    from paimon_cli.jobs.metadata_jobs import Dropped
    from paimon_cli.jobs.update_job import UpdateSummary
    from paimon_cli.jobs.write_job import WriteSummary
    from paimon_cli.jobs.write_request import WriteRequest

INLINE, ASYNC, AFTER, NO_COMPACTION = "inline", "async", "after", "none"
FAIL, SKIP, REFUSE = "fail", "skip", "refuse"
OFF = "off"
_WORDS = {"None": "NULL", "True": "TRUE", "False": "FALSE"}


@checks_arguments
class Writing(OpenedTable):
    """The methods of `Table` that change rows. Each makes one atomic commit, which can be repeated safely with an `Identity`.

    All of them raise `Refused` if the storage does not allow safe commits, `Conflict` if another commit conflicts, and
    `CommitUnknown` if the storage did not confirm whether the commit was published; nothing is deleted then.
    """

    def write(
        self,
        data: Any,
        *,
        op: str = "upsert",
        op_column: str | None = None,
        overwrite: bool = False,
        partition: Mapping[str, Any] | None = None,
        allow_empty: bool = False,
        on_error: str = FAIL,
        missing_columns: str = "null",
        bucket: Buckets | None = None,
        other_buckets: str = REFUSE,
        data_conflict_check: str | None = None,
        read_snapshot: int | None = None,
        stage: str | None = None,
        compact: str | None = None,
        parallelism: int | None = None,
        format: str | None = None,
        form: TextForm | None = None,
        timezone: str | None = None,
        on_written: Callable[[WriteSummary], None] | None = None,
        **identity: Unpack[Identity],
    ) -> WriteSummary:
        """Write rows in one commit.

        `data`: an Arrow table, one or more record batches, a pandas or polars frame (anything with `__arrow_c_stream__`); or
        paths of files, another table at its latest snapshot, or a scan (`Table.scan`), which are streamed and need not fit in
        memory. Columns are matched by name.

        - `op`: `upsert` inserts or replaces rows; `delete` deletes the rows with the same keys. `op_column` instead
        names an input column with the row kind of each row: +I, +U, -U or -D.
        - `overwrite`: replace the existing rows of the partitions that get rows, or of `partition`. Data without rows is an error
          unless `allow_empty`.
        - `on_error`: what to do with rows that do not fit the table: `fail`, `skip`, or the path of a file for the bad cells.
          `missing_columns`: `null` or `error`. `timezone`: for times without an offset in columns
          WITH LOCAL TIME ZONE, and for times with one in other columns.
        - `bucket`: the buckets that this writer owns, in a table with a fixed number of them; for one writer per bucket across
          processes. Rows of `other_buckets` are an error (`refuse`), or left out and counted (`skip`).
        - `data_conflict_check`: `partition`, `bucket`, `range`, `key` or `off`: which other commits since `read_snapshot` raise
          `DataConflict`.
        - `compact`: `inline`, `async`, `after` the commit, or `none`. Default `inline`, or `none` for write-only tables.
        - `stage`: a file. Write only the data files; `table.stage.commit(file)` commits them.
        - `format`: of files, default by extension. `form`: a `TextForm` for CSV and JSON.
        - `on_written`: called with the summary when the rows are committed or staged, before a compaction `after` the commit.

        Raises `BadInput` for rows that do not fit.
        """
        check_positive(parallelism=parallelism)
        check_choice("missing-columns", missing_columns, ("null", "error"))
        check_choice("other-buckets", other_buckets, (REFUSE, SKIP))
        if compact is not None:
            check_choice("compact", compact, (NO_COMPACTION, INLINE, ASYNC, AFTER))
        if stage is not None and compact not in (None, NO_COMPACTION):
            raise UsageError(
                f"--stage cannot be combined with --compact {compact}", "a staged write has nothing to compact before its commit"
            )
        if partition is not None and not overwrite:
            raise UsageError(
                "--partition needs --overwrite", "otherwise each row goes to the partition of its own values", "add --overwrite"
            )
        checked = self.with_check(data_conflict_check)
        checked.check_commit()
        checked._check_compact(compact, (NO_COMPACTION, INLINE, ASYNC, AFTER))
        options = checked.context.options
        if read_snapshot is not None and options.commit_data_conflict_check == OFF:
            self.runtime.warn("--read-snapshot has no effect while the data conflict check is off")
        from paimon_cli.jobs.table_rows import TableRows
        from paimon_cli.jobs.write_request import WriteRequest

        source = row_source(data, format, form, timezone, self)
        if read_snapshot is None and isinstance(source, TableRows) and source.is_of(self.catalog_table.layout):
            read_snapshot = source.snapshot_id or 0
        request = WriteRequest(
            source,
            op=op,
            op_column=op_column,
            overwrite=overwrite,
            static_partition=partition_list(partition)[0] if partition is not None else None,
            read_snapshot=read_snapshot,
            parallelism=parallelism,
            compaction=NO_COMPACTION if compact == AFTER else compact or INLINE,
            missing_are_null=missing_columns == "null",
            on_error=on_error.lower() if on_error.lower() in (FAIL, SKIP) else on_error,
            allow_empty=allow_empty,
            buckets=None if bucket is None else tuple(bucket_list(bucket)),
            other_buckets=other_buckets,
            **identity,
        )
        if stage is not None:
            summary = checked.stage.write(request, stage)
            if on_written is not None:
                on_written(summary)
            return summary
        return checked._write(request, compact == AFTER, on_written)

    def _check_compact(self, compact: str | None, choices: Sequence[str]) -> None:
        """Raise `UsageError` for a way of compacting that is not among the choices, or that the table does not allow."""
        if compact is None:
            return
        check_choice("compact", compact, choices)
        if compact in (INLINE, ASYNC) and self.context.options.write_only:
            why = "write-only tables leave compaction to a dedicated job"
            raise UsageError(f"--compact {compact} on a write-only table", why, "use --compact after")

    def _write(
        self, request: WriteRequest, compact_after: bool, on_written: Callable[[WriteSummary], None] | None
    ) -> WriteSummary:
        from paimon_cli.jobs.write_job import run_write

        progress = self.runtime.new_progress()
        with self.runtime.engine_running(request.parallelism) as engine:
            summary = run_write(self.context, request, engine, progress)
            if on_written is not None:
                on_written(summary)
            if compact_after and summary.touched:
                summary = self._compacted(summary, engine, progress)
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
            number, retry = written.snapshots[-1].id, f"run paimon-cli compact {self.catalog_table.layout.argument}"
            what = f"the rows are committed as snapshot {number}, but the compaction after it failed"
            raise PartialSuccess(what, str(error), retry, snapshot_id=number) from error
        waiting = waiting_after(self.context, written.touched, written.snapshots, compacted.snapshots)
        return replace(written, compaction=compacted, waiting_records=waiting)

    def _mark_partitions(self, done: WriteSummary | UpdateSummary, user: str | None, number: int | None) -> None:
        """Mark the written partitions as done, if the table's options say so; a repeated commit marks them again."""
        if not self.context.options.partition_end_input_to_done:
            return
        from paimon_cli.maintain.mark_done import mark_written, partitions_of_commit

        partitions = {bucket_id.partition for bucket_id in done.touched} if done.snapshots else set()
        if done.already_committed:
            from paimon_cli.jobs.table_change import identity_of

            identity = identity_of(self.context, user, number)
            partitions = partitions_of_commit(self.context, identity.user, identity.identifier)
        mark_written(self.context, partitions, self.runtime.warn, self.catalog_table.report_hosts)

    def with_check(self: Self, granularity: str | None) -> Self:
        """The same table with another data conflict check (None: unchanged)."""
        if granularity is None:
            return self
        check_choice(DATA_CONFLICT_CHECK, granularity, DATA_CONFLICT_CHECKS)
        return self.with_options({DATA_CONFLICT_CHECK: granularity})

    def update(
        self,
        set: str | Sequence[str] | Mapping[str, Any],
        where: str,
        *,
        max_attempts: int = 100,
        data_conflict_check: str | None = None,
        compact: str | None = None,
        **identity: Unpack[Identity],
    ) -> UpdateSummary:
        """Change the rows that match a condition, in one commit; start again if another commit changes the same buckets.

        `set`: `"points = points + 1"`, a list of such assignments, or a mapping of columns to values: texts are SQL
        expressions, so that a text literal is written as `"'open'"`; numbers, booleans, dates, times, bytes and None
        are themselves. `compact`: `inline`, `after` the commit, or `none`; default `inline`, or `none` for write-only tables.
        Raises `Conflict` after `max_attempts`.
        """
        texts = tuple(_assignments(set))
        if not texts:
            raise UsageError("nothing to set", "update needs at least one column", 'such as {"points": "points + 1"}')
        return self._update(texts, where, max_attempts, data_conflict_check, compact, identity)

    def delete(
        self,
        where: str,
        *,
        max_attempts: int = 100,
        data_conflict_check: str | None = None,
        compact: str | None = None,
        **identity: Unpack[Identity],
    ) -> UpdateSummary:
        """Delete the rows that match a condition, in one commit; start again if another commit changes the same buckets.

        `compact`: as for `update`.
        """
        return self._update((), where, max_attempts, data_conflict_check, compact, identity)

    def _update(
        self,
        assignments: tuple[str, ...],
        where: str,
        max_attempts: int,
        data_conflict_check: str | None,
        compact: str | None,
        identity: Identity,
    ) -> UpdateSummary:
        from paimon_cli.jobs.update_job import UpdateRequest, run_update
        from paimon_cli.sql.predicate import parse_predicate

        check_positive(max_attempts=max_attempts)
        checked = self.with_check(data_conflict_check)
        checked._check_compact(compact, (NO_COMPACTION, INLINE, AFTER))
        if checked.context.mode.has_keys and checked.catalog_table.options.get(DATA_CONFLICT_CHECK, "").lower() == OFF:
            raise UsageError(
                "update and delete always run with the data conflict check",
                "without it they would undo commits made since their read",
                "remove the option, or use partition, bucket, range or key",
            )
        checked.check_commit()
        request = UpdateRequest(where, assignments, max_attempts=max_attempts, compaction=compact or INLINE, **identity)
        for warning in parse_predicate(where, checked.context.schema).warnings:
            self.runtime.warn(warning)
        with self.runtime.engine_running() as engine:
            summary = run_update(checked.context, request, engine, self.runtime.new_progress())
        self._mark_partitions(summary, request.commit_user, request.commit_id)
        return summary

    def plan_truncate(self, *, partition: Partitions | None = None, **identity: Unpack[Identity]) -> Planned[Dropped, Dropped]:
        """Plan to delete all rows of partitions, or of the whole table; the plan counts them."""
        from paimon_cli.jobs.metadata_jobs import plan_drop, run_drop
        from paimon_cli.jobs.table_change import identity_of

        check_names(identity, Identity)
        self.check_call()
        context, chosen = self.context, partition_list(partition)
        user, number = identity.get("commit_user"), identity.get("commit_id")
        commit = identity_of(context, user, number, identity.get("assume_new", False))
        plan = plan_drop(context, chosen, commit)

        def run() -> Dropped:
            self.check_commit()
            return plan if plan.already_committed else run_drop(context, chosen, plan, commit)

        return Planned(plan, run)

    def truncate(self, **identity: Unpack[Identity]) -> Dropped:
        """Delete all rows in one commit. Older snapshots keep them until they expire."""
        return self.plan_truncate(**identity).run()

    def drop_partition(self, partition: Partitions, **identity: Unpack[Identity]) -> Dropped:
        """Delete all rows of partitions in one commit; some of the keys select all matching partitions."""
        if not partition:
            raise UsageError("no partition to drop", "all rows would be deleted", "name a partition, or use truncate")
        return self.plan_truncate(partition=partition, **identity).run()

    @property
    def stage(self) -> Stage:
        """Staged commits, written by `write(stage=FILE)`."""
        from paimon_cli.api.staging import Stage

        return Stage(self)


def _assignments(given: str | Sequence[str] | Mapping[str, Any]) -> Iterable[str]:
    """The assignments as `column = expression` texts."""
    if isinstance(given, str):
        return [given]
    if not isinstance(given, Mapping):
        return given
    return [f"{quoted_name(name)} = {_expression(name, value)}" for name, value in given.items()]


def _expression(name: str, value: Any) -> str:
    """A SQL expression as it is, another value as a literal. Raises `UsageError` for values that have no literal."""
    from paimon_cli.sql.literals import Literal

    text = str(value)
    if isinstance(value, str):
        return text
    if isinstance(value, (datetime, date, time)):
        keyword = "TIMESTAMP" if isinstance(value, datetime) else "DATE" if isinstance(value, date) else "TIME"
        return str(Literal(value.isoformat(), keyword))
    if isinstance(value, bytes):
        return str(Literal(value))
    if text in _WORDS:
        return _WORDS[text]
    if not isinstance(value, Number) or not math.isfinite(float(text)):
        why = f"a value is an expression, a number, a boolean, a date, a time, bytes or None, not {type(value).__name__}"
        raise UsageError(f"cannot set column '{name}' to {text}", why)
    return text
