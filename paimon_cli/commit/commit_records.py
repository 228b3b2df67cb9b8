"""Records of repeatable commits beside the snapshots, for histories that cannot tell whether a commit was made (FORMAT.md, 13.3).

Other tools do not carry on our record of users in the snapshots (`deduplication`), and snapshots expire. So every process that
makes a repeatable commit has a file of its own, `commit-user/user-DIGEST/commit-N-UUID`. It is open before the publication and
completed with the id of the snapshot after it.

**The invariant: whoever publishes commit N of user U as snapshot s has a durable file for (U, N) whose `after` is less than s.**

Hence, if the history can be read from snapshot `oldest` on and does not show the commit:

- no file of U for N or a higher identifier: nobody has tried it, so it is new.
- a completed file with a snapshot before `oldest`: it was made, or a later one was.
- an open file whose `after` is at least `oldest` - 1, or a completed one with a later snapshot: its snapshot would be visible, so
  it was not published, or was rolled back.
- any other open file: unknown.

An example. The latest snapshot is 4, by Flink; earlier ones have expired.

1. `write --commit-user nightly --commit-id 1` finds no file, writes {after: 4}, publishes snapshot 5, and completes the file:
   {after: 4, snapshot: 5}. If it is killed before the publication, or before the completion, a repetition finds the open file:
   snapshots from 5 on show whether the commit was made. Only once 5 has expired nothing can tell.
2. Flink commits 6 to 9, and 8 becomes the oldest snapshot. A repetition finds snapshot 5 in the completed file, before 8: made.
3. Snapshot 8 is tagged, nightly commits 2 as snapshot 10, and the table is rolled back to 8. The file of commit 2 is opened
   again, {after: 8}, before snapshot 10 is removed: a crash in between leaves an open file, and the history decides. The file of
   commit 1 was kept, although 2 was higher, because 8 is a version to which the table could be rolled back.

A file belongs to one process, so that no two overwrite each other, and a process that has published nothing deletes its own.
Another branch may have begun with, or been taken over from, the history of this one. Its files count as open ones: they show that
the commit was tried. `branches create` and `fast-forward` copy the completed files of the snapshots that they copy.

A rollback by another tool opens no files: a commit that it removed counts as made once the snapshots after it have expired. A
commit of the same user by another tool has no file: it counts as never tried once it has expired.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from paimon_cli.commit.snapshot_publish import is_same_table
from paimon_cli.errors import BeingDropped, DamagedFile, PaimonError, StorageUnavailable
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_layout import MAIN_BRANCH, TableLayout
from paimon_cli.storage.storage import FileStatus, Storage, remove_empty_directory

_NAME = re.compile(r"commit-([0-9]{1,19})-.+")
_MAX_BYTES = 4096
_TIDY_FROM = 16
"""A commit removes needless files of its user if there are more than this many."""


@dataclass(frozen=True)
class CommitRecord:
    """One file. `after`: the latest snapshot when it was written. `snapshot`: the published one, None while the file is open."""

    path: str
    identifier: int
    after: int = 0
    snapshot: int | None = None

    @property
    def earliest(self) -> int:
        """The first snapshot that may be the commit."""
        return self.after + 1 if self.snapshot is None else self.snapshot

    def write(self, storage: Storage) -> None:
        content: dict[str, int] = {"identifier": self.identifier, "after": self.after}
        if self.snapshot is not None:
            content["snapshot"] = self.snapshot
        storage.overwrite(self.path, json.dumps(content).encode())

    def rolled_back_to(self, target: int) -> CommitRecord:
        """The record after snapshots above `target` were removed."""
        is_kept = self.snapshot is not None and self.snapshot <= target
        return self if is_kept else replace(self, after=min(self.after, target), snapshot=None)


def was_made(context: TableContext, user: str, identifier: int, oldest: int, *, is_known: bool = False) -> bool | None:
    """Whether the commit, or a later one of the user, was made; None if the records cannot tell.

    It is not in the history from snapshot `oldest` on. `is_known`: something else says that the user has committed before; then
    a missing record proves nothing, unless the user has records at all.
    """
    layout, storage = context.layout, context.storage
    own = _files(storage, layout.commit_user(user))
    if is_known and not own:
        return None
    records = _read(storage, own, identifier)
    if any(record.snapshot is not None and record.snapshot < oldest for record in records):
        return True
    for name in {MAIN_BRANCH, *context.branches.directories()} - {context.branch}:
        records += _read(storage, _files(storage, layout.of_branch(name).commit_user(user)), identifier)
    return None if any(record.earliest < oldest for record in records) else False


class CommitIntent:
    """The file of one process for its commit. Does nothing for commits that are never repeated."""

    def __init__(self, context: TableContext, user: str, identifier: int | None) -> None:
        self._context = context
        self._user = user
        self._identifier = identifier
        self._record: CommitRecord | None = None

    def announce(self, latest: Snapshot | None) -> None:
        """Make the intent durable, before a snapshot is published on top of `latest`."""
        after, record = 0 if latest is None else latest.id, self._record
        if self._identifier is None or (record is not None and record.after <= after):
            return
        record = record or self._new()
        self._record = replace(record, after=after)
        self._record.write(self._context.storage)

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
            try:
                is_there = context.snapshots.find(snapshot.id) == snapshot
            except (BeingDropped, DamagedFile):
                is_there = False
            if not is_there and not is_same_table(context):
                _remove(context, self._record.path)
            elif not is_there:
                replace(self._record, snapshot=None).write(context.storage)
            else:
                _tidy(context, self._user)

    def confirm(self, snapshot: Snapshot) -> None:
        """Complete the record of a commit that an earlier run has published as `snapshot`, and died."""
        if self._identifier is not None and self._record is None:
            files = _files(self._context.storage, self._context.layout.commit_user(self._user))
            known = [r for r in _read(self._context.storage, files, self._identifier) if r.identifier == self._identifier]
            if all(record.snapshot != snapshot.id for record in known):
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
        directory = self._context.layout.commit_user(self._user)
        return CommitRecord(f"{directory}/commit-{self._identifier}-{self._context.random.uuid()}", self._identifier)


def open_records_above(context: TableContext, target: int) -> None:
    """Open the records of this branch about snapshots above `target`. Called before these are removed, and again afterwards."""
    for status in context.storage.list_directory(context.layout.commit_user_directory):
        for record in _read(context.storage, _files(context.storage, status.path)):
            opened = record.rolled_back_to(target)
            if opened != record:
                opened.write(context.storage)


def copy_records(storage: Storage, source: TableLayout, target: TableLayout, up_to: int) -> None:
    """Copy the completed records of snapshots up to `up_to` to a branch that contains these snapshots, or builds on them."""
    for status in storage.list_directory(source.commit_user_directory):
        for record in _read(storage, _files(storage, status.path)):
            if record.snapshot is not None and record.snapshot <= up_to:
                path = f"{target.commit_user_directory}/{status.name}/{record.path.rpartition('/')[2]}"
                replace(record, path=path).write(storage)


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


def _tidy(context: TableContext, user: str) -> None:
    files = _files(context.storage, context.layout.commit_user(user))
    if len(files) <= _TIDY_FROM:
        return
    versions = [*context.snapshots.ids(), *(tag.snapshot.id for tag in context.tags.all().values())]
    for record in needless(_read(context.storage, files), versions):
        context.storage.delete(record.path)


def _remove(context: TableContext, path: str) -> None:
    """Delete a file, and the directories that are empty then, as `create` expects an empty one after a drop."""
    context.storage.delete(path)
    for directory in (path.rpartition("/")[0], context.layout.commit_user_directory, context.layout.version_root):
        if not remove_empty_directory(context.storage, directory):
            return


def _files(storage: Storage, directory: str) -> list[FileStatus]:
    return [status for status in storage.list_directory(directory) if _NAME.fullmatch(status.name) and not status.is_directory]


def _read(storage: Storage, files: list[FileStatus], at_least: int = 0) -> list[CommitRecord]:
    """The records of identifiers from `at_least` on. One that cannot be understood counts as open since snapshot 0."""
    found: list[CommitRecord] = []
    for status in files:
        match = _NAME.fullmatch(status.name)
        identifier = int(match[1]) if match else 0
        if identifier < at_least:
            continue
        try:
            content = storage.read_bytes(status.path) if status.size <= _MAX_BYTES else b""
        except FileNotFoundError:
            continue
        found.append(_parsed(CommitRecord(status.path, identifier), content))
    return found


def _parsed(record: CommitRecord, content: bytes) -> CommitRecord:
    try:
        fields = json.loads(content)
    except (ValueError, RecursionError):
        return record
    if not isinstance(fields, dict):
        return record
    after, snapshot = fields.get("after"), fields.get("snapshot")
    if not isinstance(after, int) or after < 0 or fields.get("identifier") != record.identifier:
        return record
    if snapshot is not None and (not isinstance(snapshot, int) or snapshot <= after):
        return record
    return replace(record, after=after, snapshot=snapshot)
