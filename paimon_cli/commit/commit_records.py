"""Records of repeatable commits, for histories that cannot tell whether a commit was made (FORMAT.md, section 10.6).

Other tools do not carry on our record of users in the snapshots (`deduplication`), and snapshots expire. So every process that
makes commit N of a user leaves two files in `commit-user/`, whose names say everything: `commit-DIGEST-N-UUID-after-A`
before the publication, A being the latest snapshot, and `commit-DIGEST-N-UUID-made-S` after it, S being the new one. The second
counts only beside the first: then the record is complete, otherwise it is open. Files are never changed. They are empty, unless
the snapshot has properties of its caller, which the first one holds as JSON.

**The invariant: a process that publishes commit N of user U as snapshot S has a durable file for (U, N) with an A less than S.**

Hence, if the history can be read from snapshot `oldest` on and does not show the commit:

- no record of U for N or a higher identifier: no process has tried it, so it is new.
- a complete record with S before `oldest`: it was made, or a later one was.
- an open record with A of at least `oldest` - 1: its snapshot would be visible, so it was not published.
- any other record: unknown.

An example. The latest snapshot is 4, by Flink; earlier ones have expired.

1. `write --commit-user nightly --commit-id 1` finds no record, writes `after-4`, publishes snapshot 5, and writes `made-5`. If it
   is killed before the publication, or before `made-5`, a repetition finds the open record: snapshots from 5 on show whether the
   commit was made. Only once 5 has expired nothing can tell.
2. Flink commits 6 to 9, and 8 becomes the oldest snapshot. A repetition finds `made-5`, before 8: made.
3. nightly commits 2 as snapshot 10, and the table is rolled back to 8. Before snapshot 10 is removed, the record of commit 2 is
   replaced by an open one, `after-8`, with another UUID: should its process write `made-10` only now, that does not count. The
   record of commit 1 was kept, although 2 was higher, because 8 is a version to which the table could be rolled back.

Without the second file a record would still be safe, but every repetition after an expiry would be refused: nothing would tell a
commit that was made from one that was killed.

A process that has published nothing deletes its own record. That of a process that was killed is completed by another one, which
finds the commit in the history.

Another branch may have begun with, or been taken over from, the history of this one. Its records show that a commit was tried,
but not that this branch has it; one of a higher identifier leaves it unknown, too, because that of a lower one may have been
deleted. `branches create`, `fast-forward` and `tables clone` copy the records of the snapshots that they copy.

A rollback by another tool opens no records: a commit that it removed is unknown, and counts as made once the snapshots after it
have expired. A commit of the same user by another tool has no record: it counts as never tried once it has expired.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from paimon_cli.commit.snapshot_publish import is_same_table
from paimon_cli.errors import BeingDropped, PaimonError, StorageUnavailable
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_layout import MAIN_BRANCH, TableLayout
from paimon_cli.storage.capabilities import remove_empty_directory
from paimon_cli.storage.storage import FileStatus, Storage

MAX_OLD_FILES, OLD_MILLIS = 2000, 30 * 86_400_000
"""Of the files older than 30 days, only the newest 2,000 are kept. A commit whose record is forgotten counts as new."""
_TIDY_FROM, _MAX_DELETED = 16, 100
"""One in 16 commits deletes needless files, at most 100. Those of its user only if that has more than 16 records."""
_MAX_NAME_LENGTH = 64
_NAME = re.compile(r"commit-([0-9a-f]{64})-([0-9]{1,19})-([0-9a-f-]{36})-(after|made)-([0-9]{1,19})")


def recorded_name(user: str) -> str:
    """The user's name in properties of snapshots; a digest if it is long, to limit their size."""
    return user if len(user) <= _MAX_NAME_LENGTH else f"sha256:{_digest(user)}"


def _digest(user: str) -> str:
    return hashlib.sha256(user.encode(errors="surrogatepass")).hexdigest()


@dataclass(frozen=True)
class CommitRecord:
    """The files of one process. `digest`: of its user. `after`: the latest snapshot when it began. `snapshot`: the published one,
    None while the record is open.
    """

    digest: str
    identifier: int
    uuid: str
    after: int
    snapshot: int | None = None

    def paths(self, layout: TableLayout) -> list[str]:
        """The paths of its files, in the order of writing."""
        own = layout.commit_record(f"{self.digest}-{self.identifier}-{self.uuid}")
        return [f"{own}-after-{self.after}", *([] if self.snapshot is None else [f"{own}-made-{self.snapshot}"])]

    def content(self, storage: Storage, layout: TableLayout) -> bytes:
        """What its first file holds, which tells nothing if another process has just deleted it."""
        try:
            return storage.read_bytes(self.paths(layout)[0])
        except FileNotFoundError:
            return b""

    def is_of(self, user: str) -> bool:
        return self.digest == _digest(user)

    @property
    def earliest(self) -> int:
        """The first snapshot that may be the commit."""
        return self.after + 1 if self.snapshot is None else self.snapshot


def is_record(name: str) -> bool:
    """Whether this is the name of a file of a record."""
    return _NAME.fullmatch(name) is not None


def records_of(paths: Iterable[str]) -> list[CommitRecord]:
    """The records that these files make up. A file that completes none is left out, as are others than records."""
    begun, made = dict[tuple[str, int, str], int](), dict[tuple[str, int, str], int]()
    for path in paths:
        match = _NAME.fullmatch(path.rpartition("/")[2])
        if match:
            known, key, number = begun if match[4] == "after" else made, (match[1], int(match[2]), match[3]), int(match[5])
            known[key] = min(number, known.get(key, number))
    return [CommitRecord(*key, after, made.get(key)) for key, after in begun.items()]


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
        records = [record for record in _records(context.storage, context.layout.of_branch(name)) if record.is_of(user)]
        if is_own and is_known and not records:
            return None
        for record in records:
            if record.identifier < identifier:
                continue
            if is_own and record.snapshot is not None and record.after < record.snapshot < oldest:
                return True
            was_not_published = record.snapshot is None and oldest - 1 <= record.after <= latest
            is_unknown |= not was_not_published or (record.identifier > identifier and not is_own)
    return None if is_unknown else False


UNKNOWN_RECORD = CommitRecord("", 0, "", 0)
"""Stands for a record that cannot tell whether its commit was made."""


def last_record(context: TableContext, user: str, oldest: int, latest: int) -> CommitRecord | None:
    """The record of the last commit that the user has made, before snapshot `oldest`, where the history begins; None without one.

    `UNKNOWN_RECORD` if a later one may have been made.
    """
    own = [record for record in _records(context.storage, context.layout) if record.is_of(user)]
    for identifier in sorted({record.identifier for record in own}, reverse=True):
        same = [record for record in own if record.identifier == identifier]
        if made := [record for record in same if record.snapshot is not None and record.after < record.snapshot < oldest]:
            return max(made, key=lambda record: record.snapshot or 0)  # another tool may have rolled back an earlier one
        if not all(record.snapshot is None and oldest - 1 <= record.after <= latest for record in same):
            return UNKNOWN_RECORD
    return None


def properties_of_record(context: TableContext, record: CommitRecord) -> Mapping[str, str] | None:
    """The properties that the commit of a record gave its snapshot; None if they are lost."""
    return _properties_in(record.content(context.storage, context.layout))


def _content_of(properties: Mapping[str, str] | None) -> bytes:
    return json.dumps(properties, ensure_ascii=False, separators=(",", ":")).encode() if properties else b""


def _properties_in(text: bytes) -> Mapping[str, str] | None:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return None
    is_plain = isinstance(content, dict) and all(isinstance(text, str) for text in content.values())
    return content if is_plain else None


class CommitIntents:
    """The records of one process for the commits that its snapshot is to make: (user, identifier) of each, none that is never
    repeated. `properties`: of the snapshot, which the records keep when it has expired.
    """

    def __init__(
        self, context: TableContext, commits: Iterable[tuple[str, int]], properties: Mapping[str, str] | None = None
    ) -> None:
        content = _content_of(properties)
        self._intents = [_Intent(context, user, identifier, content) for user, identifier in commits]

    def announce(self, latest: Snapshot | None) -> None:
        """Make the intents durable, before a snapshot is published on top of `latest`."""
        for intent in self._intents:
            intent.announce(latest)

    def complete(self, snapshot: Snapshot) -> None:
        """Record that the commits are `snapshot`. After a failure a record stays open, and the history decides while it can."""
        for intent in self._intents:
            intent.complete(snapshot)

    def confirm(self, snapshot: Snapshot) -> None:
        """Ensure that complete records show our commits, which another process, or an earlier run that died, published."""
        for intent in self._intents:
            intent.confirm(snapshot)

    def withdraw(self) -> None:
        """Delete the records, because nothing was published. If the storage fails, they stay open."""
        for intent in self._intents:
            intent.withdraw()

    @contextlib.contextmanager
    def withdrawn_on(self, *failures: type[BaseException]) -> Iterator[None]:
        """A context that withdraws the intents after these errors, which mean that no snapshot was published."""
        try:
            yield
        except failures:
            self.withdraw()
            raise


class _Intent:
    """The record of one commit."""

    def __init__(self, context: TableContext, user: str, identifier: int, content: bytes) -> None:
        self._context, self._content = context, content
        self._digest = _digest(user)
        self._identifier = identifier
        self._record: CommitRecord | None = None

    def announce(self, latest: Snapshot | None) -> None:
        after, record = 0 if latest is None else latest.id, self._record
        if record is None or after < record.after:
            # A new file may be stored in the background, beside the manifests: it is durable before the snapshot is.
            self._record = CommitRecord(self._digest, self._identifier, self._context.random.uuid(), after)
            self._context.storage.write_new(self._record.paths(self._context.layout)[0], self._content)
            if record is not None:  # another tool has rolled the table back
                self._context.storage.delete(record.paths(self._context.layout)[0])

    def complete(self, snapshot: Snapshot) -> None:
        if self._record is not None and self._record.snapshot is not None:
            return
        context = self._context
        with contextlib.suppress(PaimonError), context.trace.timed("commit_record", snapshot=snapshot.id):
            opened = self._record or CommitRecord(self._digest, self._identifier, context.random.uuid(), snapshot.id - 1)
            paths = replace(opened, snapshot=snapshot.id).paths(context.layout)
            added = paths[0 if self._record is None else 1 :]
            self._record = replace(opened, snapshot=snapshot.id)
            for path in added:
                context.storage.overwrite(path, self._content if path == paths[0] else b"")
            if not context.storage.is_remote and _was_dropped(context, snapshot):
                self._remove(added)
            elif self._record.uuid.endswith("0"):  # one in 16 commits lists the records
                self._tidy()

    def confirm(self, snapshot: Snapshot) -> None:
        """Complete the record of the run that published it, which tells its properties: another run may have had others. If there
        is none, the own one is completed, or a new one, so that this commit stays acknowledged.
        """
        context, own, found = self._context, self._record, list[tuple[int, CommitRecord]]()
        if own is not None and own.snapshot is not None:
            return
        names, given = _properties_in(self._content) or {}, snapshot.properties or {}
        told = {name: given[name] for name in names if name in given}
        with contextlib.suppress(StorageUnavailable):
            for record in _records(context.storage, context.layout):
                is_kin = (record.digest, record.identifier) == (self._digest, self._identifier) and record != own
                if is_kin and (record.snapshot == snapshot.id or (record.snapshot is None and record.after < snapshot.id)):
                    said = properties_of_record(context, record) or {}
                    if told.items() <= said.items() <= given.items():
                        found.append((len(said), record))
        if any(record.snapshot is not None for _, record in found):
            return self.withdraw()
        most, best = max(found, key=lambda rated: rated[0], default=(0, None))
        if own is None or most > len(told) or self._content != _content_of(told):
            self.withdraw()
            self._record = best
            self._content = _content_of(told)
        self.complete(snapshot)

    def withdraw(self) -> None:
        record = self._record
        if record is None or record.snapshot is not None:
            return
        self._record = None
        with contextlib.suppress(StorageUnavailable):
            self._remove(record.paths(self._context.layout))

    def _remove(self, paths: list[str]) -> None:
        """Delete files, and the directories that are empty then, as `create` expects an empty one after a drop."""
        storage, layout = self._context.storage, self._context.layout
        for path in paths:
            storage.delete(path)
        for directory in (layout.commit_user_directory, layout.version_root):
            if not remove_empty_directory(storage, directory):
                return

    def _tidy(self) -> None:
        """Delete old records, and those of our user that no rollback makes necessary again."""
        context = self._context
        files = _files(context.storage, context.layout)
        own = [record for record in records_of(file.path for file in files) if record.digest == self._digest]
        going = list[str]()
        if len(own) > _TIDY_FROM:
            versions = [*context.snapshots.ids(), *(tag.snapshot.id for tag in context.tags.all().values())]
            going = [path for record in needless(own, versions) for path in record.paths(context.layout)]
        for path in (*going, *_forgotten(files))[:_MAX_DELETED]:
            context.storage.delete(path)


def _was_dropped(context: TableContext, snapshot: Snapshot) -> bool:
    """Whether the table was dropped just after its commit. On object stores `create` deletes records that are left."""
    try:
        return not context.snapshots.exists(snapshot.id) and not is_same_table(context)
    except BeingDropped:
        return True


def forgotten_records(context: TableContext) -> list[str]:
    """The files of records of this branch that are older than 30 days, except for the newest 2,000 of these."""
    return _forgotten(_files(context.storage, context.layout))


def _forgotten(files: list[FileStatus]) -> list[str]:
    """By the clock of the storage, which has dated them all. Oldest first."""
    newest_first = sorted(files, key=lambda file: (-file.modified_millis, file.path))
    old = [file.path for file in newest_first if file.modified_millis < newest_first[0].modified_millis - OLD_MILLIS]
    return old[: MAX_OLD_FILES - 1 : -1]


def all_records(context: TableContext) -> list[CommitRecord]:
    """The records of all users of this branch."""
    return _records(context.storage, context.layout)


def open_records_above(context: TableContext, target: int) -> None:
    """Replace the records of this branch about snapshots above `target` by open ones, before these snapshots are removed."""
    storage, layout = context.storage, context.layout
    for record in all_records(context):
        if record.snapshot is None or record.snapshot > target:
            opened = replace(record, uuid=context.random.uuid(), after=min(record.after, target), snapshot=None)
            storage.overwrite(opened.paths(layout)[0], record.content(storage, layout))
            for path in reversed(record.paths(layout)):
                storage.delete(path)


def copy_records(source: TableContext, target: TableLayout, up_to: int) -> None:
    """Copy the complete records of snapshots up to `up_to` to a branch that contains these snapshots, or builds on them.

    What the branch has stays.
    """
    there = {file.path for file in _files(source.storage, target)}
    for record in all_records(source):
        is_there = there.issuperset(record.paths(target))
        if record.snapshot is not None and record.snapshot <= up_to and not is_there:
            for path, content in copied_files(source, record, target):
                if path not in there:
                    source.storage.overwrite(path, content)


def copied_files(source: TableContext, record: CommitRecord, target: TableLayout) -> list[tuple[str, bytes]]:
    """The files of a copy of a record: their paths and what they hold, in the order of writing."""
    begun, *made = record.paths(target)
    return [(begun, record.content(source.storage, source.layout)), *((path, b"") for path in made)]


def records_up_to(source: TableContext, up_to: int) -> list[CommitRecord]:
    """The records that a copy of snapshot `up_to` needs: it may contain their commits."""
    return [record for record in all_records(source) if record.earliest <= up_to]


def needless(records: list[CommitRecord], versions: list[int]) -> list[CommitRecord]:
    """The records of a user that no rollback to one of these snapshots makes necessary again.

    A record is needed as long as it is the highest complete one at some version; an open one, until a rollback undoes no
    higher one.
    """
    done = sorted((r for r in records if r.snapshot is not None), key=lambda r: (r.identifier, -(r.snapshot or 0), r.uuid))
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


def _records(storage: Storage, layout: TableLayout) -> list[CommitRecord]:
    return records_of(file.path for file in _files(storage, layout))


def _files(storage: Storage, layout: TableLayout) -> list[FileStatus]:
    found = storage.list_directory(layout.commit_user_directory)
    return [status for status in found if is_record(status.name) and not status.is_directory]
