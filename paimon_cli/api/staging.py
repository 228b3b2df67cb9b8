"""Commits in two phases: what `Table.write(stage=FILE)` has written is shown, committed or aborted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import KW_ONLY
from typing import TYPE_CHECKING, Any

from paimon_cli.api.arguments import checks_arguments, takes
from paimon_cli.api.opened_table import OpenedTable
from paimon_cli.api.runtime import Runtime
from paimon_cli.errors import UsageError
from paimon_cli.options.choices import CompactionMode
from paimon_cli.requests.writing import StageCommitOptions, StageWatchOptions

if TYPE_CHECKING:
    from paimon_cli.jobs.engine import Engine
    from paimon_cli.jobs.staging.stage_commit import StagedWrite, StageSummary, Together
    from paimon_cli.jobs.staging.stage_watch import CheckpointDone
    from paimon_cli.jobs.write_job import WriteSummary
    from paimon_cli.jobs.write_request import WriteRequest
    from paimon_cli.metadata.staged_commit import StagedCommit


class StageCommit(StageCommitOptions):
    """The staged writes to commit, by their files."""

    file: str | Sequence[str]


class StageWatchCall(StageWatchOptions):
    """The directory in which staged writes land."""

    directory: str
    _: KW_ONLY
    on_checkpoint: Callable[[CheckpointDone], None] | None = None
    shield: Callable[[], AbstractContextManager[Any]] = nullcontext


@checks_arguments
class Stage:
    """Staged commits, each recorded in a file.


    >>> table = example_table()
    >>> table.write(more_rows(), stage="orders.stage").snapshots
    ()
    >>> [snapshot.id for snapshot in table.stage.commit("orders.stage").snapshots]
    [2]
    """

    def __init__(self, table: OpenedTable) -> None:
        self._table = table

    def write(self, request: WriteRequest, file: str) -> WriteSummary:
        """Write only the data files, and record the commit in `file`."""
        from paimon_cli.jobs.staging.stage_job import StageFile, stage_write
        from paimon_cli.jobs.write_job import WriteSummary, origin_of

        runtime = self._table.runtime
        with runtime.engine_running(request.parallelism) as engine:
            staged, found = stage_write(self._table.context, request, StageFile(file), engine, runtime.new_progress())
            engine_name, reason = engine.name, engine.reason
        files = [data_file for message in staged.messages for data_file in message.append.added]
        return WriteSummary(
            rows=sum(data_file.row_count for data_file in files),
            delete_rows=sum(data_file.delete_row_count or 0 for data_file in files),
            files=len(files),
            size=sum(data_file.file_size for data_file in files),
            buckets=len(staged.messages),
            engine=engine_name,
            engine_reason=reason,
            rows_read=found.rows,
            skipped_rows=found.bad_rows,
            bad_cells=found.bad_cells,
            missing_columns=tuple(sorted(found.missing_columns)),
            other_bucket_rows=found.other_bucket_rows,
            unordered_deletes=found.unordered_deletes,
            **origin_of(request.source),
        )

    def show(self, file: str) -> StagedCommit:
        """The staged commit in a file. Raises `UsageError` if it belongs to another table."""
        return self._read(file).staged

    @takes(StageCommit)
    def commit(self, call: StageCommit) -> StageSummary:
        """Commit a staged write, or several in one snapshot; repeating the call commits nothing more.

        `file`: that of the staged write, or several. The identity is the committer's; default that of a single write, or one that
        is derived from those of several.

        After a `Conflict` the data files of a single write are deleted; several stay staged. Raises `Refused` if only some of
        them were committed before.
        """
        from paimon_cli.jobs.staging.stage_commit import Together
        from paimon_cli.jobs.table_change import identity_of

        self._table.check_commit()
        writes = [self._read(name) for name in ([call.file] if isinstance(call.file, str) else call.file)]
        if not writes:
            raise UsageError("no stage file is named", "there is nothing to commit", "name the files of `write --stage`")
        user, number, committer = call.commit_user, call.commit_id, None
        if user is not None or number is not None:
            if user is None or number is None:
                raise UsageError("--commit-user and --commit-id go together", "they identify the commit if it is repeated")
            committer = identity_of(self._table.context, user, number, call.assume_new)
        with self._table.runtime.engine_running() as engine:
            return _commit(self._table, writes, Together(call.order, committer), call.compact, engine)

    @takes(StageWatchCall)
    def watch(self, call: StageWatchCall) -> None:
        """Commit the stage files of this table that land in a directory, in rounds with a pause of `interval` between them, until
        interrupted or for `max_rounds`.

        Each file is a checkpoint; a subdirectory with a file `_SUCCESS` is one of several writers. They are committed once, in
        the order of names, and move to `done` (not if `keep`); those that can never be committed move to `failed`, and raise
        `PartialSuccess` at the end. Names that end in `.tmp`, or begin with `.` or `_`, are ignored. `on_checkpoint` receives
        each checkpoint; `shield` holds signals back. `directory`: a path or URL.
        """
        table = self._table
        watch_directory(call, lambda name: table, table.runtime)

    def abort(self, file: str) -> int:
        """Delete the data files of a staged write; returns their number. Raises `Refused` if it has been committed."""
        from paimon_cli.jobs.staging.stage_commit import abort_stage

        return abort_stage(self._table.context, self._read(file))

    def _read(self, file: str) -> StagedWrite:
        from paimon_cli.jobs.staging.stage_commit import StagedWrite
        from paimon_cli.jobs.staging.stage_job import check_stage

        write = StagedWrite.read(file)
        check_stage(self._table.context, write.file, write.staged)
        return write


def watch_directory(call: StageWatchCall, opened: Callable[[str], OpenedTable], runtime: Runtime) -> None:
    """`Stage.watch` for stage files of several tables, which `opened` opens by name."""
    from paimon_cli.jobs.staging.stage_commit import Together
    from paimon_cli.jobs.staging.stage_job import check_stage
    from paimon_cli.jobs.staging.stage_watch import LandingArea, StageWatch
    from paimon_cli.storage.injected import SystemClock

    tables = dict[str, OpenedTable]()
    with runtime.engine_running() as engine:

        def prepare(writes: Sequence[StagedWrite]) -> Callable[[], StageSummary]:
            name = writes[0].staged.table
            if name in tables:
                tables[name].refresh()
            else:
                tables[name] = opened(name)
            table = tables[name]
            table.check_commit()

            def commit() -> StageSummary:
                for write in writes:
                    check_stage(table.context, write.file, write.staged)
                return _commit(table, writes, Together(call.order), call.compact, engine)

            return commit

        note = call.on_checkpoint or (lambda done: None)
        watch = StageWatch(LandingArea(call.directory), prepare, SystemClock(), note, call.keep, call.shield)
        watch.run((call.interval or 0) / 1000, call.max_rounds)


def _commit(
    table: OpenedTable, writes: Sequence[StagedWrite], together: Together, compact: str | None, engine: Engine
) -> StageSummary:
    from paimon_cli.catalog.open_table import report_hosts
    from paimon_cli.jobs.staging.stage_commit import commit_and_compact
    from paimon_cli.maintain.mark_done import mark_written

    context, runtime = table.context, table.runtime
    result = commit_and_compact(context, writes, together, compact or CompactionMode.INLINE, engine, runtime.new_progress())
    partitions = {message.partition for write in writes for message in write.messages}
    mark_written(context, partitions, runtime.warn, report_hosts(context))
    return result
