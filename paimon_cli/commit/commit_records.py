"""Records of repeatable commits, for histories that cannot tell whether a commit was made (FORMAT.md, section 10.6).

Other tools do not carry on our record of users in the snapshots (`deduplication`), and snapshots expire. So every process that
makes a repeatable commit has a file of its own, `commit-user/commit-DIGEST-N-UUID`. It is open before the publication and
completed with the id of the snapshot after it.

**The invariant: whoever publishes commit N of user U as snapshot s has a durable file for (U, N) whose `after` is less than s.**

Hence, if the history can be read from snapshot `oldest` on and does not show the commit:

- no file of U for N or a higher identifier: nobody has tried it, so it is new.
- a completed file with a snapshot before `oldest`: it was made, or a later one was.
- an open file whose `after` is at least `oldest` - 1: its snapshot would be visible, so it was not published.
- any other file: unknown.

An example. The latest snapshot is 4, by Flink; earlier ones have expired.

1. `write --commit-user nightly --commit-id 1` finds no file, writes {after: 4}, publishes snapshot 5, and completes the file:
   {after: 4, snapshot: 5}. If it is killed before the publication, or before the completion, a repetition finds the open file:
   snapshots from 5 on show whether the commit was made. Only once 5 has expired nothing can tell.
2. Flink commits 6 to 9, and 8 becomes the oldest snapshot. A repetition finds snapshot 5 in the completed file, before 8: made.
3. nightly commits 2 as snapshot 10, and the table is rolled back to 8. Before snapshot 10 is removed the file of commit 2 is
   opened again, {after: 8}: a crash in between leaves an open file, and the history decides. The file of commit 1 was kept,
   although 2 was higher, because 8 is a version to which the table could be rolled back.

Without the second write a record would still be safe, but every repetition after an expiry would be refused: nothing would tell
a commit that was made from one that was killed.

A file belongs to one process, so that no two overwrite each other, and a process that has published nothing deletes its own. Only
the file of a process that was killed is completed by another one, which finds the commit in the history: both write the same.

Another branch may have begun with, or been taken over from, the history of this one. Its files show that a commit was tried, but
not that this branch has it; one of a higher identifier leaves it unknown, too, because that of a lower one may have been deleted.
`branches create`, `fast-forward` and `tables clone` copy the files of the snapshots that they copy.

A rollback by another tool opens no files: a commit that it removed is unknown, and counts as made once the snapshots after it
have expired. A commit of the same user by another tool has no file: it counts as never tried once it has expired.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from paimon_cli.commit.snapshot_publish import is_same_table
from paimon_cli.errors import BeingDropped, DamagedFile, PaimonError, StorageUnavailable
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_layout import MAIN_BRANCH, TableLayout
from paimon_cli.storage.storage import Storage, remove_empty_directory
from paimon_cli.storage.threads import in_parallel

MAX_OLD_RECORDS, OLD_MILLIS = 1000, 30 * 86_400_000
"""Of the records older than 30 days, only the newest 1,000 are kept. A commit whose record is forgotten counts as new."""
_TIDY_FROM, _MAX_DELETED = 16, 100
"""One in 16 commits deletes needless records, at most 100. Those of its user only if there are more than 16."""
_MAX_READ = 100
"""With more records that could show a commit, it counts as unknown."""
_MAX_BYTES = 4096
_MAX_NAME_LENGTH = 64
_NAME = re.compile(r"commit-([0-9a-f]{64})-([0-9]{1,19})-[0-9a-f-]{36}")


def recorded_name(user: str) -> str:
    """The user's name in records; a digest if it is long, to limit their size."""
    return user if len(user) <= _MAX_NAME_LENGTH else f"sha256:{_digest(user)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


class _File(NamedTuple):
    path: str
    digest: str
    identifier: int
    size: int
    modified_millis: int


@dataclass(frozen=True)
class CommitRecord:
    """One file. `after`: the latest snapshot when it was written. `snapshot`: the published one, None while the file is open."""

    path: str
    user: str
    identifier: int
    after: int = 0
    snapshot: int | None = None

    @property
    def earliest(self) -> int:
        """The first snapshot that may be the commit."""
        return self.after + 1 if self.snapshot is None else self.snapshot

    @property
    def content(self) -> bytes:
        fields: dict[str, object] = {"user": self.user, "identifier": self.identifier, "after": self.after}
        if self.snapshot is not None:
            fields["snapshot"] = self.snapshot
        return json.dumps(fields).encode()

    def write(self, storage: Storage) -> None:
        storage.overwrite(self.path, self.content)

    def rolled_back_to(self, target: int) -> CommitRecord:
        """The record after snapshots above `target` were removed."""
        is_kept = self.snapshot is not None and self.snapshot <= target
        return self if is_kept else replace(self, after=min(self.after, target), snapshot=None)


def was_made(
    context: TableContext, user: str, identifier: int, oldest: int, latest: int, *, is_known: bool = False
) -> bool | None:
    """Whether the commit, or a later one of the user, was made; None if the records cannot tell.

    It is not in the history from snapshot `oldest` to `latest`. `is_known`: something else says that the user has committed
    before; then a missing record proves nothing, unless the user has records at all.
    """
    is_unknown = False
    for name in (context.branch, *({MAIN_BRANCH, *context.branches.directories()} - {context.branch})):
        is_own = name == context.branch
        files = _files(context.storage, context.layout.of_branch(name), user)
        if is_own and is_known and not files:
            return None
        telling = sorted((file for file in files if file.identifier >= identifier), key=lambda file: -file.identifier)
        is_unknown |= len(telling) > _MAX_READ
        for record in _read(context, telling[:_MAX_READ]):
            if is_own and record.snapshot is not None and record.snapshot < oldest:
                return True
            was_not_published = record.snapshot is None and oldest - 1 <= record.after <= latest
            is_unknown |= not was_not_published or (record.identifier > identifier and not is_own)
    return None if is_unknown else False


class CommitIntent:
    """The file of one process for its commit. Does nothing for commits that are never repeated."""

    def __init__(self, context: TableContext, user: str, identifier: int | None) -> None:
        self._context = context
        self._user = user
        self._identifier = identifier
        self._record: CommitRecord | None = None

    def announce(self, latest: Snapshot | None) -> None:
        """Make the intent durable, before a snapshot is published on top of `latest`."""
        after, record, storage = 0 if latest is None else latest.id, self._record, self._context.storage
        if self._identifier is None or (record is not None and record.after <= after):
            return
        self._record = replace(record or self._new(), after=after)
        if record is None and storage.is_remote:
            # A new object is stored in the background, beside the manifests: it is durable before the snapshot is.
            storage.write_new(self._record.path, self._record.content)
        else:
            self._record.write(storage)  # a crash leaves no part of it

    def complete(self, snapshot: Snapshot) -> None:
        """Record that the commit is `snapshot`. After a failure the file stays open, and the history decides while it can.

        A rollback opens files after it has removed snapshots, so a file that is completed later is opened again here.
        """
        if self._identifier is None or (self._record is not None and self._record.snapshot is not None):
            return
        context, opened = self._context, self._record or replace(self._new(), after=snapshot.id - 1)
        self._record = replace(opened, after=min(opened.after, snapshot.id - 1), snapshot=snapshot.id)
        with contextlib.suppress(PaimonError), context.trace.timed("commit_record", snapshot=snapshot.id):
            self._record.write(context.storage)
            if _is_kept(context, snapshot):
                if self._record.path.endswith("0"):  # of a UUID: one in 16 commits lists the records
                    self._tidy()
            elif is_same_table(context):
                replace(self._record, snapshot=None).write(context.storage)
            else:
                _remove(context, self._record.path)

    def confirm(self, snapshot: Snapshot) -> None:
        """Ensure that a completed record shows our commit, which another process, or an earlier run that died, published.

        The open record of that run is completed. If there is none, the own one is, so that this commit stays acknowledged.
        """
        if self._identifier is None:
            return
        context, own, others = self._context, self._record, list[CommitRecord]()
        with contextlib.suppress(StorageUnavailable):
            files = _files(context.storage, context.layout, self._user)
            same = [file for file in files if file.identifier == self._identifier and (own is None or file.path != own.path)]
            others = list(_read(context, same[:_MAX_READ]))
        if any(record.snapshot == snapshot.id for record in others):
            self.withdraw()
            return
        if own is None:
            self._record = next((record for record in others if record.user and record.after < snapshot.id), None)
            self._record = None if self._record is None else replace(self._record, snapshot=None)
        self.complete(snapshot)

    def withdraw(self) -> None:
        """Delete the file, because nothing was published. If the storage fails, it stays open."""
        record = self._record
        if record is None or record.snapshot is not None:
            return
        self._record = None
        with contextlib.suppress(StorageUnavailable):
            _remove(self._context, record.path)

    @contextlib.contextmanager
    def withdrawn_on(self, *failures: type[BaseException]) -> Iterator[None]:
        """A context that withdraws the intent after these errors, which mean that no snapshot was published."""
        try:
            yield
        except failures:
            self.withdraw()
            raise

    def _new(self) -> CommitRecord:
        assert self._identifier is not None
        name = recorded_name(self._user)
        path = self._context.layout.commit_record(f"{_digest(name)}-{self._identifier}-{self._context.random.uuid()}")
        return CommitRecord(path, name, self._identifier)

    def _tidy(self) -> None:
        """Delete old records, and those of our user that no rollback makes necessary again."""
        context, digest = self._context, _digest(recorded_name(self._user))
        files = _files(context.storage, context.layout)
        own, going = [file for file in files if file.digest == digest], _forgotten(files)
        if len(own) > _TIDY_FROM:
            versions = [*context.snapshots.ids(), *(tag.snapshot.id for tag in context.tags.all().values())]
            going = [record.path for record in needless(list(_read(context, own)), versions)] + going
        for path in going[:_MAX_DELETED]:
            context.storage.delete(path)


def _is_kept(context: TableContext, snapshot: Snapshot) -> bool:
    """Whether our snapshot is in the history, or has expired. A rollback leaves older ones, or another one in its place."""
    try:
        found = context.snapshots.find(snapshot.id)
        if found is not None:
            return found == snapshot
        earliest = context.snapshots.earliest_id()
    except (BeingDropped, DamagedFile):
        return False
    return earliest is not None and earliest > snapshot.id


def forgotten_records(context: TableContext) -> list[str]:
    """The paths of records of this branch that are older than 30 days, except for the newest 1,000 of these."""
    return _forgotten(_files(context.storage, context.layout))


def _forgotten(files: list[_File]) -> list[str]:
    """By the clock of the storage, which has dated them all. Oldest first."""
    newest_first = sorted(files, key=lambda file: (-file.modified_millis, file.path))
    old = [file.path for file in newest_first if file.modified_millis < newest_first[0].modified_millis - OLD_MILLIS]
    return old[: MAX_OLD_RECORDS - 1 : -1]


def all_records(context: TableContext) -> Iterator[CommitRecord]:
    """The records of all users of this branch."""
    return _read(context, _files(context.storage, context.layout))


@contextlib.contextmanager
def opened_above(context: TableContext, target: int) -> Iterator[None]:
    """A context that removes snapshots above `target`. It opens their records before, as a crash in between must not leave them,
    and again afterwards, as a process whose commit was just removed may have completed its own.
    """
    _open_above(context, target)
    yield
    _open_above(context, target)


def _open_above(context: TableContext, target: int) -> None:
    for record in all_records(context):
        opened = record.rolled_back_to(target)
        if opened != record:
            opened.write(context.storage)


def copy_records(source: TableContext, target: TableLayout, up_to: int) -> None:
    """Copy the completed records of snapshots up to `up_to` to a branch that contains these snapshots, or builds on them."""
    for record in records_up_to(source, target, up_to):
        if record.snapshot is not None:
            record.write(source.storage)


def records_up_to(source: TableContext, target: TableLayout, up_to: int) -> Iterator[CommitRecord]:
    """The records of `source` that a copy of its snapshot `up_to` needs at `target`: that snapshot may contain their commits."""
    for record in all_records(source):
        if record.earliest <= up_to:
            path = target.commit_user_directory + record.path.removeprefix(source.layout.commit_user_directory)
            yield replace(record, path=path)


def needless(records: list[CommitRecord], versions: list[int]) -> list[CommitRecord]:
    """The records of a user that no rollback to one of these snapshots makes necessary again.

    A record is needed as long as it is the highest completed one at some version; an open one, until a rollback undoes no
    higher one.
    """
    done = sorted((r for r in records if r.snapshot is not None), key=lambda r: (r.identifier, -(r.snapshot or 0), r.path))
    found: list[CommitRecord] = []
    next_snapshot: int | None = None
    for record in reversed(done):
        own = record.snapshot or 0
        if next_snapshot is not None and not any(own <= version < next_snapshot for version in versions):
            found.append(record)
        else:
            next_snapshot = own if next_snapshot is None else min(own, next_snapshot)
    lasting = [r.identifier for r in done if r.snapshot is not None and r.snapshot <= min(versions)]
    return found + [r for r in records if r.snapshot is None and r.identifier <= max(lasting, default=-1)]


def _remove(context: TableContext, path: str) -> None:
    """Delete a file, and the directories that are empty then, as `create` expects an empty one after a drop."""
    context.storage.delete(path)
    for directory in (context.layout.commit_user_directory, context.layout.version_root):
        if not remove_empty_directory(context.storage, directory):
            return


def _files(storage: Storage, layout: TableLayout, user: str | None = None) -> list[_File]:
    """The files of all users, or of one."""
    digest, found = None if user is None else _digest(recorded_name(user)), list[_File]()
    for status in storage.list_directory(layout.commit_user_directory):
        match = None if status.is_directory else _NAME.fullmatch(status.name)
        if match and digest in (None, match[1]):
            found.append(_File(status.path, match[1], int(match[2]), status.size, status.modified_millis))
    return found


def _read(context: TableContext, files: list[_File]) -> Iterator[CommitRecord]:
    """The records in those of these files that still exist."""

    def read(file: _File) -> CommitRecord | None:
        try:
            return _parsed(file, context.storage.read_bytes(file.path) if file.size <= _MAX_BYTES else b"")
        except FileNotFoundError:
            return None

    return (record for record in in_parallel(read, files, context.read_threads) if record is not None)


def _parsed(file: _File, content: bytes) -> CommitRecord:
    """The record. One that is damaged, or does not belong to this name, counts as open since snapshot 0."""
    unknown = CommitRecord(file.path, "", file.identifier)
    try:
        fields = json.loads(content)
    except (ValueError, RecursionError):
        return unknown
    if not isinstance(fields, dict):
        return unknown
    user, identifier, after, snapshot = (fields.get(name) for name in ("user", "identifier", "after", "snapshot"))
    if not isinstance(user, str) or _digest(user) != file.digest or type(identifier) is not int or identifier != file.identifier:
        return unknown
    if type(after) is not int or after < 0:
        return unknown
    if snapshot is not None and (type(snapshot) is not int or snapshot <= after):
        return unknown
    return CommitRecord(file.path, user, identifier, after, snapshot)
