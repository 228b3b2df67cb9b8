"""`write --stage`: the first of two separate phases of a write, and the file that records what was written for the second one.

`stage_commit` has the second phase.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace

from paimon_cli.commit.commit_messages import created_files, delete_created_files
from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import BATCH_IDENTIFIER, CommitIdentity, fresh_identity
from paimon_cli.errors import (
    CommitUnknown,
    DamagedFile,
    NotFound,
    PaimonError,
    Refused,
    StorageUnavailable,
    UsageError,
    cleaning_up,
    undone_on_failure,
)
from paimon_cli.history.partition_spec import is_null
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.faults import Tally
from paimon_cli.jobs.engine import Engine, Progress
from paimon_cli.jobs.table_change import check_writable_table, identity_of, in_one_half
from paimon_cli.jobs.write_job import work_of, write_input
from paimon_cli.jobs.write_request import WriteRequest, overwritten, plan_write
from paimon_cli.metadata.staged_commit import StagedCommit, check_records
from paimon_cli.options.choices import CompactionMode
from paimon_cli.options.option_text import counted
from paimon_cli.storage.redaction import shown_name
from paimon_cli.storage.storage import PutOutcome, Storage, Verified, is_directory, put_and_verify, what_became
from paimon_cli.storage.storage_for_url import storage_for_url

_MAX_BYTES = 256 << 20
"""The largest stage file: as objects it takes up to ten times as much memory."""


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
            content = storage.read_bytes(path)
        except (FileNotFoundError, DamagedFile) as error:
            if is_directory(storage, path):
                hint = (
                    f"name the files in it, or commit what lands in it: paimon-cli stage commit --watch {shlex.quote(self.name)}"
                )
                raise UsageError(f"{self.name} is not a stage file", "it is a directory", hint) from None
            if isinstance(error, DamagedFile):
                raise
            raise NotFound(f"no file {self.name}", "staged commits are written by `paimon-cli write --stage FILE`") from None
        if len(content) > _MAX_BYTES:
            why = f"it has {len(content):,} bytes, and stage files are read up to {_MAX_BYTES:,} bytes"
            raise DamagedFile(f"{self.name} is too large", why, "write fewer rows or buckets per stage", path=self.name)
        staged = StagedCommit.from_json(content, self.name)
        check_records(staged.messages, self.name)
        return staged

    def write(self, staged: StagedCommit) -> None:
        storage, path = self._location()
        storage.overwrite(path, staged.to_json().encode())

    def create(self, staged: StagedCommit) -> Verified:
        """Write a new file, and tell what is there now. Raises a `PaimonError` if certainly nothing was written."""
        storage, path = self._location()
        content = staged.to_json().encode()
        try:
            return put_and_verify(storage, path, content)
        except Refused:  # a store on which only a single writer of a file is safe, as a stage file has
            try:
                storage.overwrite(path, content)
            except StorageUnavailable:
                return what_became(storage, path, content, PutOutcome.UNKNOWN)
            return Verified.OURS


def stage_write(
    context: TableContext, request: WriteRequest, file: StageFile, engine: Engine, progress: Progress
) -> tuple[StagedCommit, Tally]:
    """Write the data files of a write and record the commit in `file`; also returns the counts of the input.

    If it fails, no data file remains, unless it is not certain that `file` was not written: then somebody may commit it.
    """
    check_writable_table(context)
    if file.exists():
        raise _exists(file)
    identity = _identity(context, request)
    _refuse_repeated(context, identity)
    compacts = request.overwrite and _would_show_nothing(context)
    request = replace(request, compact=CompactionMode.INLINE if compacts else CompactionMode.NONE)
    plan = plan_write(context, request, identity.user)
    engine.prepare(work_of(request.source, plan.splits), progress)
    written, tally = write_input(plan, request, engine, progress)
    messages = in_one_half(context, written.messages) if compacts else written.messages

    def undo() -> None:
        delete_created_files(context, messages)  # no commit has ended: only what a snapshot names stays

    with undone_on_failure(undo):
        _refuse_repeated(context, identity)  # the later commit looks no further back than the snapshot that was read
        if request.overwrite:
            # Rows outside the partition are refused now, not at the commit.
            overwritten(context, messages, request.static_partition, context.options.dynamic_partition_overwrite)
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
        ).with_static_values(_static_values(context, request), context.options.partition_default_name)
    try:
        found = file.create(staged)
        if found is Verified.THEIRS:
            raise _exists(file)
    except PaimonError as failure:  # an interrupt leaves the data files: the file may have been written
        with cleaning_up(failure):
            undo()
        raise
    if found is not Verified.OURS:
        raise _unclear(context, file, staged)
    return staged, tally


def _static_values(context: TableContext, request: WriteRequest) -> dict[str, str | None] | None:
    """The static partition of the write. A null is None, also where the command line wrote the name that stands for it."""
    given = request.static_partition
    return None if given is None else {key: None if is_null(context, text) else text for key, text in given.items()}


def _would_show_nothing(context: TableContext) -> bool:
    """Whether readers would see neither the old rows of an overwrite nor its new ones until its files are compacted.

    So the writers compact them before the commit, as those of a `write` do (`write_job.commit_rows`). A changelog of compactions
    is another snapshot, for streams.
    """
    return context.mode.hides_level_0 and not context.mode.changelog_producer.reports_compactions


def _exists(file: StageFile) -> UsageError:
    return UsageError(f"{file.name} exists", "it may hold a commit that is neither committed nor aborted", "name another file")


def _unclear(context: TableContext, file: StageFile, staged: StagedCommit) -> CommitUnknown:
    """The stage file may be there, or have been there: `stage commit --watch` may have committed it and moved it away."""
    left = [path for _, path in created_files(context, staged.messages)]
    return CommitUnknown(
        f"{file.name} may or may not have been written",
        f"the storage gave no clear answer, so {counted(len(left), 'data file')} that it names cannot be deleted: they may be "
        f"committed. If they are not, `paimon-cli orphans rm {context.layout.argument} --apply` deletes them later",
        f"see whether the file is there: paimon-cli stage show {shlex.quote(file.name)}",
        files=left,
    )


def _refuse_repeated(context: TableContext, identity: CommitIdentity) -> None:
    if Committer(context).is_committed(identity):
        what = f"commit {identity.identifier} of user {shown_name(identity.user)} was already made"
        raise UsageError(what, "there is nothing to stage")


def _identity(context: TableContext, request: WriteRequest) -> CommitIdentity:
    """An identity that can be recognised later: the requested one, or a fresh user with a single commit."""
    if request.commit_user is None and request.commit_id is None:
        return CommitIdentity(fresh_identity(context).user, 0, assume_new=True)
    if request.commit_user is None or request.commit_id in (None, BATCH_IDENTIFIER):
        raise UsageError(
            "a staged commit needs --commit-user and --commit-id, or neither", "they identify the commit if it is repeated"
        )
    return identity_of(context, request.commit_user, request.commit_id, request.assume_new)


def check_stage(context: TableContext, file: StageFile, staged: StagedCommit) -> None:
    """Raise `UsageError` if the write was staged for another table, including an earlier table at the same path, and
    `DamagedFile` if it names buckets that a table with fixed buckets cannot have.
    """
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
    if context.options.bucket > 0 and not all(0 <= message.bucket < message.total_buckets for message in staged.messages):
        why = "it has buckets that the table cannot have: no writer could go on after its commit"
        raise DamagedFile(f"{file.name} does not hold a staged commit", why, "write the rows again", path=file.name)
