"""`write --stage` and `stage`: a commit in two separate phases, with a file in between that records what was written.

One coordinator at a time may commit or abort a stage file. If it dies, the same decision can be repeated.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

from paimon_cli.commit.commit_messages import created_files, delete_created_files, files_named_since
from paimon_cli.commit.committer import CommitResult, Committer
from paimon_cli.commit.deduplication import BATCH_IDENTIFIER, CommitIdentity, fresh_identity
from paimon_cli.errors import (
    Conflict,
    DamagedFile,
    NotFound,
    Refused,
    StorageUnavailable,
    UsageError,
    cleaning_up,
    undone_on_failure,
)
from paimon_cli.history.partition_spec import pairs_of
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.faults import Tally
from paimon_cli.jobs.due_compaction import DueCompaction, compact_due, waiting_after
from paimon_cli.jobs.engine import Engine, Progress
from paimon_cli.jobs.table_change import Summary, check_writable_table, identity_of
from paimon_cli.jobs.write_job import work_of, write_input
from paimon_cli.jobs.write_request import COMPACTION_AFTER, NO_COMPACTION, WriteRequest, overwritten, plan_write, strategy_of
from paimon_cli.metadata.data_file import CommitMessage
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.staged_commit import ABORTED, COMMITTED, STAGED, StagedCommit, check_records
from paimon_cli.options.table_options import DATA_CONFLICT_CHECK
from paimon_cli.storage.storage import Storage
from paimon_cli.storage.storage_for_url import storage_for_url


@dataclass(frozen=True)
class StageFile:
    """The file that holds a staged commit. `name`: its path or URL, as typed by the user."""

    name: str

    def _location(self) -> tuple[Storage, str]:
        return storage_for_url(self.name)

    def exists(self) -> bool:
        storage, path = self._location()
        return storage.exists(path)

    def read(self) -> StagedCommit:
        """The staged commit. Raises `NotFound`, or `DamagedFile` if the content is not exactly what was written."""
        storage, path = self._location()
        try:
            staged = StagedCommit.from_json(storage.read_bytes(path), self.name)
        except FileNotFoundError:
            raise NotFound(f"no file {self.name}", "staged commits are written by `paimon-cli write --stage FILE`") from None
        check_records(staged.messages, self.name)
        return staged

    def write(self, staged: StagedCommit) -> None:
        storage, path = self._location()
        storage.overwrite(path, staged.to_json().encode())

    def remove(self) -> None:
        """Delete the file after a failure; an unavailable storage is ignored."""
        storage, path = self._location()
        with contextlib.suppress(StorageUnavailable):
            storage.delete(path)


def stage_write(
    context: TableContext, request: WriteRequest, file: StageFile, engine: Engine, progress: Progress
) -> tuple[StagedCommit, Tally]:
    """Write the data files of a write and record the commit in `file`; also returns the counts of the input.

    If it fails, no data file remains.
    """
    check_writable_table(context)
    if file.exists():
        raise UsageError(f"{file.name} exists", "it may hold a commit that is neither committed nor aborted", "name another file")
    identity = _identity(context, request)
    _refuse_repeated(context, identity)
    plan = plan_write(context, replace(request, compaction=NO_COMPACTION), identity.user)
    engine.prepare(work_of(request.source, plan.splits), progress)
    written, tally = write_input(plan, request, engine, progress)
    messages = written.messages

    def undo() -> None:
        file.remove()  # it may exist although writing it failed, and must not name deleted files
        delete_created_files(context, messages)

    with undone_on_failure(undo):
        _refuse_repeated(context, identity)  # the later commit looks no further back than the snapshot that was read
        if request.overwrite:
            overwritten(context, messages, request.static_partition)  # refuses rows outside the partition now, not at the commit
        staged = StagedCommit(
            table=context.address,
            schema_id=context.schema.id,
            schema_time_millis=context.schema.time_millis,
            commit_user=identity.user,
            commit_identifier=identity.identifier,
            read_snapshot_id=plan.read_snapshot_id,
            data_conflict_check=context.options.commit_data_conflict_check,
            messages=tuple(messages),
            overwrite=request.overwrite,
            dynamic_overwrite=request.overwrite and context.options.dynamic_partition_overwrite,
            static_partition=None if request.static_partition is None else pairs_of(context, request.static_partition),
        )
        file.write(staged)
    return staged, tally


def _refuse_repeated(context: TableContext, identity: CommitIdentity) -> None:
    if Committer(context).is_committed(identity):
        raise UsageError(f"commit {identity.identifier} of user {identity.user} was already made", "there is nothing to stage")


def _staged_identity(staged: StagedCommit) -> CommitIdentity:
    """The identity of the commit; committing it raises `Refused` if it was committed before its rows were written."""
    return CommitIdentity(staged.commit_user, staged.commit_identifier, newer_than=staged.read_snapshot_id or 0)


def _identity(context: TableContext, request: WriteRequest) -> CommitIdentity:
    """An identity that can be recognised later: the requested one, or a fresh user with a single commit."""
    if request.commit_user is None and request.commit_id is None:
        return CommitIdentity(fresh_identity(context).user, 0, assume_new=True)
    if request.commit_user is None or request.commit_id in (None, BATCH_IDENTIFIER):
        raise UsageError(
            "a staged commit needs --commit-user and --commit-id, or neither", "they identify the commit if it is repeated"
        )
    return identity_of(context, request.commit_user, request.commit_id, request.assume_new)


@dataclass(frozen=True, repr=False)
class StageSummary(Summary):
    """The result of committing a staged write. `snapshots`: of the rows, then of the compaction, if there was one.

    `compacted`: number of buckets that were compacted; `compaction_lost`: why the compaction failed, although the rows are
    committed; `waiting_records`: stored records in the written buckets that reads do not show before a compaction, None if
    that cannot be told.
    """

    snapshots: tuple[Snapshot, ...] = ()
    attempts: int = 0
    already_committed: bool = False
    compacted: int = 0
    compaction_lost: str | None = None
    waiting_records: int | None = 0


def commit_and_compact(
    context: TableContext, file: StageFile, staged: StagedCommit, compaction: str, engine: Engine, progress: Progress
) -> StageSummary:
    """Commit a staged write as `commit_stage` does, then compact its buckets: as a writer of the table does, or as requested.

    A repeated call commits nothing, but makes the compaction that an earlier run left out because it died.
    """
    done = commit_stage(context, file, staged)
    touched, due = {message.bucket_id for message in staged.messages}, DueCompaction()
    if compaction != NO_COMPACTION:
        strategy, is_requested = strategy_of(context, staged.commit_identifier), compaction == COMPACTION_AFTER
        due = compact_due(context, touched, engine, progress, strategy, is_requested=is_requested)
    return StageSummary(
        snapshots=done.snapshots + due.snapshots,
        attempts=done.attempts,
        already_committed=done.already_committed,
        compacted=due.buckets,
        compaction_lost=due.lost,
        waiting_records=waiting_after(context, touched, done.snapshots, due.snapshots),
    )


def commit_stage(context: TableContext, file: StageFile, staged: StagedCommit) -> CommitResult:
    """Commit a staged write; calling it again commits nothing twice.

    After a conflict the data files are deleted and the stage file is marked as aborted; after any other failure the call can be
    repeated. Raises `Refused` if it was aborted, and the errors of `Committer.commit`.
    """
    if staged.state == ABORTED:
        raise Refused(f"{file.name} was aborted", "its data files were deleted", "write the rows again")
    if _is_published(context, staged):
        if staged.state == STAGED:
            file.write(replace(staged, state=COMMITTED, snapshot_ids=_snapshot_ids(context, staged)))
        return CommitResult(already_committed=True)
    _check_files(context, file, staged)
    try:
        result = _commit(context, staged)
    except Conflict as conflict:
        with cleaning_up(conflict):
            _drop(context, file, staged)
        raise
    ids = tuple(snapshot.id for snapshot in result.snapshots) or _snapshot_ids(context, staged)
    file.write(replace(staged, state=COMMITTED, snapshot_ids=ids))
    return result


def _commit(context: TableContext, staged: StagedCommit) -> CommitResult:
    identity = _staged_identity(staged)
    check = {DATA_CONFLICT_CHECK: staged.data_conflict_check}
    dynamic = {"dynamic-partition-overwrite": str(staged.dynamic_overwrite).lower()}
    context = replace(context, options=context.options.with_overrides({**check, **dynamic}))
    if not staged.overwrite:
        return Committer(context).commit(staged.messages, identity)
    static = None if staged.static_partition is None else dict(pair.split("=", 1) for pair in staged.static_partition)
    covered = overwritten(context, staged.messages, static)
    return Committer(context).overwrite(
        staged.messages, identity, replaced_partitions=covered.matches, read_snapshot_id=staged.read_snapshot_id
    )


def abort_stage(context: TableContext, file: StageFile, staged: StagedCommit) -> int:
    """Abort a staged write: delete its data files and return their number. Raises `Refused` if it was committed."""
    if _is_published(context, staged):
        raise Refused(
            f"{file.name} was committed to {staged.table}",
            "its data files belong to the table now",
            f"to delete rows by a condition: paimon-cli delete {context.layout.argument} -w CONDITION",
        )
    return _drop(context, file, staged)


def check_table(context: TableContext, file: StageFile, staged: StagedCommit) -> None:
    """Raise `UsageError` if the write was staged for another table, including an earlier table at the same path."""
    if context.address != staged.table:
        raise UsageError(f"{file.name} was staged for {staged.table}", f"not for {context.address}")
    try:
        same = context.schemas.get(staged.schema_id).time_millis == staged.schema_time_millis
    except NotFound:
        same = False
    if not same:
        raise UsageError(
            f"{file.name} was staged for another table at {staged.table}",
            f"schema {staged.schema_id}, with which its files were written, does not exist",
            "write the rows again",
        )


def _is_published(context: TableContext, staged: StagedCommit) -> bool:
    """Whether the commit was made, by the state of the file, the commit's identity or (after expiry) the table's data files."""
    if staged.state == COMMITTED or _snapshot_ids(context, staged):
        return True
    created = {name for name, _ in created_files(context, staged.messages)}
    return bool(created & files_named_since(context, _of_unknown_age(staged)))


def _snapshot_ids(context: TableContext, staged: StagedCommit) -> tuple[int, ...]:
    own = (staged.commit_user, staged.commit_identifier)
    found = [s.id for s in context.snapshots.newest_first() if (s.commit_user, s.commit_identifier) == own]
    return tuple(sorted(found))


def _check_files(context: TableContext, file: StageFile, staged: StagedCommit) -> None:
    """Check the files before the commit.

    Raises `DamagedFile` if one is missing or has another size, `Conflict` if the user has made a later commit.
    """
    for path, size in _file_sizes(context, staged):
        try:
            found = context.storage.file_size(path)
        except FileNotFoundError:
            raise DamagedFile(
                f"{path} of {file.name} is missing", "it was deleted, for example as an orphan", "write the rows again", path=path
            ) from None
        if found != size:
            raise DamagedFile(f"{path} of {file.name} is damaged", f"it has {found} bytes, but {size} were written", path=path)
    identity = _staged_identity(staged)
    if Committer(context).is_committed(identity) and not _is_published(context, staged):  # by a twin, a moment ago
        raise Conflict(
            f"user {identity.user} has already committed a higher identifier than {identity.identifier}",
            "the identifiers of a user must increase, so that repeated commits can be recognised",
            "abort it and write the rows again under another identifier",
        )


def _file_sizes(context: TableContext, staged: StagedCommit) -> Iterator[tuple[str, int]]:
    for message in staged.messages:
        for file in message.created_files():
            yield context.data_file_path(message.partition, message.bucket, file), file.file_size
        for index in (*message.new_index_files, *message.compact_new_index_files):
            yield context.layout.index(index.file_name), index.file_size


def _drop(context: TableContext, file: StageFile, staged: StagedCommit) -> int:
    """Mark the stage file as aborted, then delete the data files: an aborted stage is never committed, even if this fails."""
    file.write(replace(staged, state=ABORTED))
    return delete_created_files(context, _of_unknown_age(staged))


def _of_unknown_age(staged: StagedCommit) -> list[CommitMessage]:
    """The messages without `read_snapshot_id`, so that a search for their files covers every snapshot.

    The stage file comes from outside and is not trusted to limit that search.
    """
    return [replace(message, read_snapshot_id=None) for message in staged.messages]
