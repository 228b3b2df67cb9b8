"""`stage commit` and `stage abort`: the second phase of writes that were staged, alone or several in one snapshot.

One coordinator at a time may commit or abort a stage file. If it dies, the same decision can be repeated.

Several stage files are one commit of one committer, as in a Flink sink, where many writers send their messages to a single
committer. The snapshot names the commits of the writers, so that each of them is recognised if it is repeated alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from paimon_cli.bucket.stamped_files import new_stamp
from paimon_cli.commit.commit_messages import created_files, delete_created_files, files_named_since
from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import CommitIdentity, WriterCommit, commits_in
from paimon_cli.commit.outcome import CommitOutcome, CommitResult
from paimon_cli.errors import Conflict, DamagedFile, Refused, UsageError, cleaning_up
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.due_compaction import compact_due, waiting_after
from paimon_cli.jobs.engine import Engine, Progress
from paimon_cli.jobs.staging.stage_job import StageFile
from paimon_cli.jobs.staging.writer_order import (
    check_disjoint,
    in_writer_order,
    replaced_messages,
    shared_buckets,
    superseded_files,
)
from paimon_cli.jobs.table_change import NewFiles, Summary
from paimon_cli.jobs.write_request import overwritten, strategy_of
from paimon_cli.metadata.data_file import CommitMessage
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.staged_commit import ABORTED, COMMITTED, STAGED, StagedCommit
from paimon_cli.options.choices import WriterOrder
from paimon_cli.storage.deletions import delete_all
from paimon_cli.storage.redaction import shown_name

ALIKE = ("schema_id", "overwrite", "dynamic_overwrite", "static_partition", "version", "data_conflict_check")
"""What stage files that are committed together have in common. Pairs of a static partition mean the same in one version only."""


@dataclass(frozen=True)
class StagedWrite:
    """A stage file and its content."""

    file: StageFile
    staged: StagedCommit

    @staticmethod
    def read(name: str) -> StagedWrite:
        file = StageFile(name)
        return StagedWrite(file, file.read())

    @property
    def commit(self) -> WriterCommit:
        return self.staged.commit_user, self.staged.commit_identifier

    @property
    def messages(self) -> tuple[CommitMessage, ...]:
        return self.staged.messages

    def mark(self, state: str, snapshot_ids: tuple[int, ...] = ()) -> None:
        """Record in the file what became of it."""
        self.file.write(replace(self.staged, state=state, snapshot_ids=snapshot_ids))


@dataclass(frozen=True)
class Together:
    """How staged writes are committed. `order`: whether rows of one bucket that two writers wrote are numbered as the files are
    `given`, or `refuse`d. `identity`: of the committer; default that of the single write, or one that is derived.
    """

    order: str = WriterOrder.REFUSE
    identity: CommitIdentity | None = None

    def identity_of(self, writes: Sequence[StagedWrite]) -> CommitIdentity:
        commits = sorted({write.commit for write in writes})
        if self.identity is not None:
            return replace(self.identity, writers=tuple(commits))
        # They were all written when the last of them had read the table, so no snapshot up to then holds them together.
        newest = max(write.staged.read_snapshot_id or 0 for write in writes)
        if len(writes) == 1:
            return CommitIdentity(*writes[0].commit, newer_than=newest)
        digest = hashlib.sha256(json.dumps(commits).encode()).hexdigest()
        return CommitIdentity(f"stage-{digest[:32]}", 0, newer_than=newest, writers=tuple(commits))


@dataclass(frozen=True, repr=False)
class StageSummary(Summary):
    """The result of committing staged writes. `snapshots`: of the rows, then of the compaction, if there was one.

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
    context: TableContext,
    writes: Sequence[StagedWrite],
    together: Together,
    compaction: str,
    engine: Engine,
    progress: Progress,
) -> StageSummary:
    """Commit staged writes as `commit_staged` does, then compact their buckets: as a writer of the table does, or as requested.

    A repeated call commits nothing, but makes the compaction that an earlier run left out because it died.
    """
    done = commit_staged(context, writes, together, engine, progress)
    touched = {message.bucket_id for write in writes for message in write.messages}
    strategy = strategy_of(context, together.identity_of(writes).identifier)
    due = compact_due(context, touched, engine, progress, strategy, compaction)
    return StageSummary(
        snapshots=done.snapshots + due.snapshots,
        attempts=done.attempts,
        already_committed=done.already_committed,
        compacted=due.buckets,
        compaction_lost=due.lost,
        waiting_records=waiting_after(context, touched, done.snapshots, due.snapshots),
    )


def commit_staged(
    context: TableContext, writes: Sequence[StagedWrite], together: Together, engine: Engine, progress: Progress
) -> CommitResult:
    """Commit staged writes in one snapshot, all or none; calling it again commits nothing twice.

    After a conflict the data files of a single write are deleted, and its stage file is marked as aborted. Several writes stay
    staged, because only one of them may be in the way; after any other failure, too, the call can be repeated. Raises `Refused`
    if one was aborted, or if only some were committed before, and the errors of `Committer.commit`.
    """
    check_alike(writes)
    if published := published_among(context, writes):
        _refuse_some(writes, published)
        ids = _snapshot_ids(context, writes)
        for write in writes:
            if write.staged.state == STAGED:
                write.mark(COMMITTED, ids)
        return CommitResult(outcome=CommitOutcome.DUPLICATE)
    identity = together.identity_of(writes)
    for write in writes:
        _check_files(context, write)
    _check_identity(context, writes, identity)
    result, ordered = _published(context, writes, together, identity, engine, progress)
    ids = tuple(snapshot.id for snapshot in result.snapshots) or _snapshot_ids(context, writes)
    for write, messages in zip(writes, ordered, strict=True):
        StagedWrite(write.file, replace(write.staged, messages=messages)).mark(COMMITTED, ids)
    return result


def _published(
    context: TableContext,
    writes: Sequence[StagedWrite],
    together: Together,
    identity: CommitIdentity,
    engine: Engine,
    progress: Progress,
) -> tuple[CommitResult, list[tuple[CommitMessage, ...]]]:
    """Commit the writes. Also returns their messages, in which files may have been replaced by files with other numbers."""
    staged, first = [write.messages for write in writes], writes[0].staged
    writers = [(write.file.name, write.messages) for write in writes]
    check_disjoint(context, writers, first.data_conflict_check)
    new = NewFiles(context, new_stamp(context))
    with new.deleted_on_failure() if shared_buckets(context, writers) else contextlib.nullcontext():
        ordered = in_writer_order(context, writers, together.order, new.stamp, engine, progress)
    read = [write.staged.read_snapshot_id or 0 for write in writes]

    def publish() -> CommitResult:
        return _commit(context, first, [message for part in ordered for message in part], min(read), identity)

    replaced = replaced_messages(staged, ordered)
    try:
        result = new.commit(replaced, publish) if replaced else publish()
    except Conflict as conflict:
        if len(writes) > 1:
            raise _of_several(conflict) from conflict
        with cleaning_up(conflict):
            _drop(context, writes[0])
        raise
    if result.already_committed:
        if len(published_among(context, writes)) < len(writes):
            raise _later_one(identity)
        return result, staged
    with cleaning_up():
        delete_all(context.storage, superseded_files(context, staged, ordered))
    return result, ordered


def _of_several(conflict: Conflict) -> Conflict:
    """The conflict of several writes, of which nothing was deleted."""
    hint = "nothing was committed or deleted: commit the files one by one, and write the rows of those that are refused again"
    return type(conflict)(conflict.what, conflict.why, hint, **conflict.details)


def _commit(
    context: TableContext,
    staged: StagedCommit,
    messages: Sequence[CommitMessage],
    read_snapshot_id: int,
    identity: CommitIdentity,
) -> CommitResult:
    """Commit messages as one of their stage files says, which are alike in this."""
    committer = Committer(context, staged.data_conflict_check)
    if not staged.overwrite:
        return committer.commit(messages, identity)
    static = staged.static_values(context.options.partition_default_name)
    covered = overwritten(context, messages, static, staged.dynamic_overwrite)
    return committer.overwrite(messages, identity, replaced_partitions=covered.matches, read_snapshot_id=read_snapshot_id or None)


def check_alike(writes: Sequence[StagedWrite]) -> None:
    """Raise `UsageError` if the writes cannot be parts of one commit, `Refused` if one of them was aborted."""
    for write in writes:
        if write.staged.state == ABORTED:
            raise Refused(f"{write.file.name} was aborted", "its data files were deleted", "write the rows again")
    first, owners = writes[0], dict[object, str]()
    for write in writes:
        name, staged = write.file.name, write.staged
        created = {file.file_name for message in write.messages for file in message.created_files()}
        if twice := owners.keys() & {write.commit, *created}:
            raise UsageError(
                f"{owners[twice.pop()]} and {name} are the same write", "its rows would be added twice", "name it once"
            )
        owners |= dict.fromkeys({write.commit, *created}, name)
        for field in ALIKE:
            ours, others = getattr(staged, field), getattr(first.staged, field)
            if ours != others:
                raise UsageError(
                    f"{first.file.name} and {name} cannot be committed together",
                    f"their {field.replace('_', ' ')} differs: {others} and {ours}",
                    "commit them one by one",
                )


def _refuse_some(writes: Sequence[StagedWrite], published: Sequence[StagedWrite]) -> None:
    """Raise `Refused` if some writes, but not all, were committed."""
    left = [write.file.name for write in writes if write not in published]
    if left:
        done = [write.file.name for write in published]
        raise Refused(
            f"{', '.join(done)} {'was' if len(done) == 1 else 'were'} committed before, {', '.join(left)} not",
            "files that are named together become one snapshot or none",
            "leave out those that were committed",
            committed=done,
            staged=left,
        )


def _check_identity(context: TableContext, writes: Sequence[StagedWrite], identity: CommitIdentity) -> None:
    """Raise `Conflict` if a user has made a later commit, so that this one would be taken for a repeated one."""
    for one in dict.fromkeys([*(Together().identity_of([write]) for write in writes), identity]):
        try:
            is_committed = Committer(context).is_committed(one)
        except Refused as refusal:
            refusal.set_hint("look for its rows; if they are not there, abort it and write them again")
            raise
        if is_committed and not published_among(context, writes):  # by a twin, a moment ago
            raise _later_one(one)


def _later_one(identity: CommitIdentity) -> Conflict:
    return Conflict(
        f"user {shown_name(identity.user)} has already committed a higher identifier than {identity.identifier}",
        "the identifiers of a user must increase, so that repeated commits can be recognised",
        "abort it and write the rows again under another identifier",
    )


def abort_stage(context: TableContext, write: StagedWrite) -> int:
    """Abort a staged write: delete its data files and return their number. Raises `Refused` if it was committed."""
    if published_among(context, [write]):
        raise Refused(
            f"{write.file.name} was committed to {write.staged.table}",
            "its data files belong to the table now",
            f"to delete rows by a condition: paimon-cli delete {context.layout.argument} -w CONDITION",
        )
    return _drop(context, write)


def published_among(context: TableContext, writes: Sequence[StagedWrite]) -> list[StagedWrite]:
    """The writes that were committed, by the state of the file, by the commits that snapshots name, or by the data files that
    the table names, after the snapshot has expired.
    """
    made = {commit for snapshot in context.snapshots.newest_first() for commit in commits_in(snapshot)}
    known = [write for write in writes if write.staged.state == COMMITTED or write.commit in made]
    if len(known) == len(writes):
        return known
    named = files_named_since(context, _of_unknown_age(message for write in writes for message in write.messages))
    return [write for write in writes if write in known or named & {name for name, _ in created_files(context, write.messages)}]


def _snapshot_ids(context: TableContext, writes: Sequence[StagedWrite]) -> tuple[int, ...]:
    commits = {write.commit for write in writes}
    return tuple(sorted(s.id for s in context.snapshots.newest_first() if commits & commits_in(s)))


def _check_files(context: TableContext, write: StagedWrite) -> None:
    """Raise `DamagedFile` if a file of the write is missing or has another size."""
    name = write.file.name
    for path, size in _file_sizes(context, write.messages):
        try:
            if size is None:
                context.storage.file_size(path)
                continue
            found = context.storage.file_size(path)
        except FileNotFoundError:
            raise DamagedFile(
                f"{path} of {name} is missing", "it was deleted, for example as an orphan", "write the rows again", path=path
            ) from None
        if found != size:
            raise DamagedFile(f"{path} of {name} is damaged", f"it has {found} bytes, but {size} were written", path=path)


def _file_sizes(context: TableContext, messages: Iterable[CommitMessage]) -> Iterator[tuple[str, int | None]]:
    """The files and their sizes; None for extra files, of which the metadata says none."""
    for message in messages:
        for file in message.created_files():
            path, *extra = context.file_paths(message.partition, message.bucket, file)
            yield path, file.file_size
            yield from ((beside, None) for beside in extra)
        for index in (*message.append.added_indexes, *message.compact.added_indexes):
            yield context.layout.index(index.file_name), index.file_size


def _drop(context: TableContext, write: StagedWrite) -> int:
    """Mark the stage file as aborted, then delete the data files: an aborted stage is never committed, even if this fails."""
    write.mark(ABORTED)
    return delete_created_files(context, _of_unknown_age(write.messages))


def _of_unknown_age(messages: Iterable[CommitMessage]) -> list[CommitMessage]:
    """The messages without `read_snapshot_id`, so that a search for their files covers every snapshot.

    The stage file comes from outside and is not trusted to limit that search.
    """
    return [replace(message, read_snapshot_id=None) for message in messages]
