"""Publishes a snapshot with put-if-absent, and determines the outcome if the answer of the storage is lost (FORMAT.md, 10.4).

On object stores the answer to a successful put may get lost, so that only the file itself shows what happened.
"""

from __future__ import annotations

import contextlib
import shlex
from enum import Enum, auto

from paimon_cli.errors import BeingDropped, CommitUnknown, DamagedFile, NotFound, PaimonError, Refused, StorageUnavailable
from paimon_cli.history.manifest_reader import SnapshotGone
from paimon_cli.history.schema_history import SchemaHistory
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_layout import TableLayout
from paimon_cli.storage.capabilities import publish_snapshot, remove_empty_directory
from paimon_cli.storage.storage import PutOutcome, Storage, Verified, put_and_verify, what_became

_TRIES = 5


class Fate(Enum):
    """What became of a snapshot whose put has succeeded: it may have come too late."""

    CONTINUES = auto()
    """It continues the history of the table."""
    OUTDATED = auto()
    """Its number had been published, by others, and had expired before the put."""
    ROLLED_BACK = auto()
    """A rollback had removed the snapshot that it was built on."""
    DROPPED = auto()
    """The table had been dropped; another one may have its place."""


def publish(context: TableContext, snapshot: Snapshot, base: Snapshot | None = None) -> bool:
    """Publish a snapshot. Returns true if it is now part of the table's history, false if another commit has its number.

    `base`: the snapshot that it was built on. If a rollback has removed that one, ours is deleted again, and the result is false.
    Raises `CommitUnknown` if the outcome cannot be determined, after which nothing may be deleted. After `StorageUnavailable`,
    `Refused` and `BeingDropped`, the snapshot was not published.

    What an answer means is decided by the file, unless the answer is "created":

    | answer of the put | the file then holds | outcome |
    |---|---|---|
    | created | ours | true |
    | exists | ours | true: an answer was lost |
    | none | ours | true |
    | exists | another commit | false |
    | none | another commit | false |
    | none | nothing | the put is repeated |
    | none, five times | nothing | `CommitUnknown` |

    So is a file that holds the beginning of ours, which may still be growing.
    """
    path, content = context.layout.snapshot(snapshot.id), snapshot.to_json().encode()
    for attempt in range(_TRIES):
        try:
            # Repeating the put is safe until its number has expired: before that, only one of them can succeed.
            if attempt and _has_expired(context, snapshot):
                _expect_shown(context, snapshot)
                return True
            with context.trace.timed("snapshot", file=path.rpartition("/")[2], bytes=len(content)) as facts:
                outcome = publish_snapshot(context.storage, path, content, None if base is None else base.uuid)
                facts["outcome"] = outcome.name.lower()
        except (StorageUnavailable, Refused) as error:
            if attempt:  # this put failed, but an earlier one may have succeeded
                raise _unknown(context, snapshot, f"after a put without a clear answer the storage failed: {error}") from error
            raise
        published = what_became(context.storage, path, content, outcome)
        if published is Verified.THEIRS:
            return False
        if published is Verified.OURS:
            fate = _settled(context, snapshot, base)
            if fate is Fate.CONTINUES:
                return True
            if attempt:  # an earlier put may have succeeded before the drop, or the expiry
                why = was_dropped(context).why if fate is Fate.DROPPED else "its number has expired since the first attempt"
                raise _unknown(context, snapshot, why)
            if fate is Fate.DROPPED:
                raise was_dropped(context)
            return False
        context.clock.sleep(context.options.commit_min_retry_wait * 2**attempt / 1000)
    raise _unknown(context, snapshot, "the storage gave no clear answer and does not show the snapshot file")


def publish_again(context: TableContext, number: int, content: bytes) -> bool:
    """Put a snapshot of this history in its place again: one that was removed, that only a tag holds, or that a branch brings.
    Returns false if another commit has taken its number meanwhile.

    Raises `CommitUnknown` if the storage does not say whether it is there. To repeat the put is safe, because the caller is
    the one who has removed it, and would remove it again if it had to.
    """
    what = f"snapshot {number} of {context.url} may or may not be in place again"
    for attempt in range(_TRIES):
        try:
            published = put_and_verify(context.storage, context.layout.snapshot(number), content)
        except (StorageUnavailable, Refused) as error:
            if attempt:
                raise CommitUnknown(what, f"after a put without a clear answer the storage failed: {error}") from error
            raise
        if published in (Verified.OURS, Verified.THEIRS):
            return published is Verified.OURS
        context.clock.sleep(context.options.commit_min_retry_wait * 2**attempt / 1000)
    look = f"before trying again: paimon-cli snapshots ls {context.layout.argument}"
    raise CommitUnknown(what, "the storage gave no clear answer and does not show the snapshot file", look)


def put_snapshot(storage: Storage, layout: TableLayout, number: int, content: bytes) -> PutOutcome:
    """Create a snapshot file of a table that is not open: the end of its history, or the first snapshot of a copy."""
    return storage.put_if_absent(layout.snapshot(number), content)


def replace_snapshot(storage: Storage, layout: TableLayout, number: int, content: bytes) -> None:
    """Write a snapshot file whatever is there: in a new branch, where a fast-forward replaces the history of a table at rest, and
    on a store that no commit is safe on.
    """
    storage.overwrite(layout.snapshot(number), content)


def rewrite_snapshot(storage: Storage, layout: TableLayout, number: int, before: bytes, content: bytes) -> bool:
    """Replace the file of a snapshot that is not the newest one by `content`, which names other files for what is left of the
    same rows. Returns false if its file is gone, or is not `before` any more.

    No committer may build on it: one that has read `before` would name the old files. If an expiry removes the snapshot in the
    same moment, it is removed again.
    """
    path = layout.snapshot(number)
    with contextlib.suppress(FileNotFoundError):
        if storage.read_bytes(path) == before:
            storage.overwrite(path, content)
            if storage.exists(layout.snapshot(number + 1)):
                return True
            storage.delete(path)  # its successor has expired, and so had the snapshot
    return False


def write_latest_hint(context: TableContext, snapshot: Snapshot) -> None:
    """Write the LATEST hint. Readers do not depend on it, so errors are ignored. The next commit of this process builds on it."""
    context.snapshots.remembered(snapshot)
    with contextlib.suppress(StorageUnavailable), context.trace.timed("hint", file="LATEST", snapshot=snapshot.id):
        context.storage.overwrite(context.layout.latest_hint, str(snapshot.id).encode())
        if not context.storage.is_remote and not context.snapshots.exists(snapshot.id):
            # It has expired, so that the hint is outdated, or the table was dropped, where `create` expects an empty directory.
            # On object stores `create` deletes a hint that is left.
            context.storage.delete(context.layout.latest_hint)
            for directory in (context.layout.snapshot_directory, context.layout.root):
                remove_empty_directory(context.storage, directory)


def _settled(context: TableContext, snapshot: Snapshot, base: Snapshot | None) -> Fate:
    """The fate of our snapshot. It is deleted again unless it continues the history."""
    try:
        fate = _fate(context, snapshot, base)
        if fate is not Fate.CONTINUES:
            _withdraw(context, snapshot, fate)
        return fate
    except StorageUnavailable as error:
        raise _unknown(context, snapshot, f"it was published, but then the storage failed: {error}") from error
    except (CommitUnknown, BeingDropped):
        raise
    except PaimonError as error:  # no refusal: the snapshot is there
        raise _unknown(context, snapshot, f"it was published, but then the history could not be read: {error}") from error


def _has_expired(context: TableContext, snapshot: Snapshot) -> bool:
    """Whether our number has been published, by us or others, and has expired. Expiry keeps the newest snapshot."""
    newest = context.snapshots.latest_id()
    return newest is not None and newest > snapshot.id and not context.snapshots.exists(snapshot.id)


def _fate(context: TableContext, snapshot: Snapshot, base: Snapshot | None) -> Fate:
    """What became of our snapshot. Raises `CommitUnknown` if that cannot be told.

    As long as the predecessor exists, our number cannot have expired, because expiry starts with the oldest snapshot.
    """
    before = snapshot.id - 1
    try:
        found = context.snapshots.find(before) if before else None
    except DamagedFile:
        return Fate.CONTINUES  # it exists, but it cannot be read
    if found is not None and (base is None or found == base):
        return Fate.CONTINUES
    newest = context.snapshots.latest_id()
    if (found is not None or newest is None or newest <= snapshot.id) and not is_same_table(context):
        # A drop deletes the schemas before the file that keeps others from publishing (`maintain.end_of_history`), so our put
        # came after that. A new table may have a snapshot with the number of our predecessor.
        return Fate.DROPPED
    if before and (_is_rolled_back(context, before) if found is None else _is_replaced(context, snapshot, before)):
        return Fate.ROLLED_BACK
    if newest is None or newest <= snapshot.id:
        return Fate.CONTINUES
    try:
        successor = context.snapshots.find(snapshot.id + 1)
    except BeingDropped as drop:  # its put came just before the end of the history, or long after it
        raise _unknown(context, snapshot, drop.message) from None
    if successor is None:
        return _fate_below_a_gap(context, snapshot)
    try:
        inherited = {meta.file_name for meta in context.manifests.manifests_of(successor)}
        own = {meta.file_name for meta in context.manifests.manifest_list(snapshot.delta_manifest_list)}
    except (SnapshotGone, DamagedFile):
        if context.storage.exists(context.layout.snapshot(successor.id)):
            why = f"its manifests or the manifests of snapshot {successor.id} cannot be read"
            raise _unknown(context, snapshot, why) from None
        return _fate_below_a_gap(context, snapshot)
    if own <= inherited:
        return Fate.CONTINUES
    raise _unknown(
        context, snapshot, f"snapshot {successor.id} was published meanwhile, and whether it contains this commit is not visible"
    )


def _fate_below_a_gap(context: TableContext, snapshot: Snapshot) -> Fate:
    """The fate of our snapshot if its successor has expired.

    Expiry deletes our file before its successor, so if our file still exists, it is newer. If it is gone, the remaining history
    must show that it was built on our snapshot, because expiry also removes resurrected snapshots.
    """
    if context.storage.exists(context.layout.snapshot(snapshot.id)):
        return Fate.OUTDATED
    _expect_shown(context, snapshot)
    return Fate.CONTINUES


def _is_rolled_back(context: TableContext, before: int) -> bool:
    """Whether a rollback has removed the predecessor `before`: its LATEST hint names an older snapshot that exists.

    An expiry never leaves snapshots that are older than those it deletes. A hint below EARLIEST is outdated: the snapshot that
    it names was put back by a slow writer.
    """
    hint = context.snapshots.latest_hint()
    if hint is None or hint >= before or not context.snapshots.exists(hint):
        return False
    return hint >= (context.snapshots.earliest_hint() or 1)


def _is_replaced(context: TableContext, snapshot: Snapshot, before: int) -> bool:
    """Whether the commit that now has the number `before` took it after a rollback, which leaves older snapshots in place.

    Without older snapshots, `before` may have expired after ours was published, and a slow writer may have put it back: then
    EARLIEST is above it, and our snapshot is valid. Raises `CommitUnknown` if nothing tells which of the two happened.
    """
    if context.snapshots.exists(before - 1):
        return True
    earliest = context.snapshots.earliest_hint()
    if earliest is None or earliest <= before:
        why = f"another commit now has number {before}, after a rollback or in place of an expired snapshot"
        raise _unknown(context, snapshot, why)
    return False


def _withdraw(context: TableContext, snapshot: Snapshot, fate: Fate) -> None:
    """Delete our snapshot, which does not continue the history.

    A rollback that removes ours as well deletes its files, too, so that they cannot be committed again; if it is refused, it puts
    ours back. `CommitUnknown` leaves the files to it.
    """
    path, gone, what = context.layout.snapshot(snapshot.id), "a rollback has removed it", "the history was rolled back meanwhile"
    if fate is Fate.DROPPED:
        gone, what = "the table was dropped or renamed meanwhile", "the table was dropped meanwhile"
    if fate is not Fate.OUTDATED:
        if not _is_there(context, snapshot):
            raise _unknown(context, snapshot, gone)
        if context.storage.exists(context.layout.snapshot(snapshot.id + 1)):
            on = "a commit to a new one already builds" if fate is Fate.DROPPED else "another commit already builds"
            raise _unknown(context, snapshot, f"{what}, and {on} on this one")
    context.storage.delete(path)


def _is_there(context: TableContext, snapshot: Snapshot) -> bool:
    """Whether our snapshot is still in its place, and not that of a new table whose predecessor took ours along."""
    try:
        return context.storage.read_bytes(context.layout.snapshot(snapshot.id)) == snapshot.to_json().encode()
    except FileNotFoundError:
        return False


def is_same_table(context: TableContext) -> bool:
    """Whether the schema that the context has read still exists; a new table at the same place has another one."""
    try:
        schema = SchemaHistory(context.storage, context.layout).find(context.schema.id)
    except DamagedFile:
        return True  # it exists, but it cannot be read
    return schema is not None and schema.time_millis == context.schema.time_millis


def was_dropped(context: TableContext) -> BeingDropped:
    """The error for a commit to a table that no longer exists."""
    return BeingDropped(
        f"nothing was committed to {context.address}",
        "it was dropped while the job ran",
        f"look for it: paimon-cli tables ls {shlex.quote(context.url.rpartition('/')[0])}",
    )


def _expect_shown(context: TableContext, snapshot: Snapshot) -> None:
    """Raise `CommitUnknown` unless the remaining snapshots show that they were built on ours, which is gone."""
    try:
        oldest = context.snapshots.earliest_id()
        remaining = None if oldest is None else context.snapshots.find(oldest)
        inherited = set() if remaining is None else {meta.file_name for meta in context.manifests.manifests_of(remaining)}
        own = {meta.file_name for meta in context.manifests.manifest_list(snapshot.delta_manifest_list)}
    except (NotFound, DamagedFile):
        own, inherited = {snapshot.delta_manifest_list}, set()
    if not own <= inherited:
        why = "it no longer exists, expired or removed as dead, and the remaining snapshots do not show its changes"
        raise _unknown(context, snapshot, why)


def _unknown(context: TableContext, snapshot: Snapshot, why: str) -> CommitUnknown:
    return CommitUnknown(
        f"snapshot {snapshot.id} of {context.url} may or may not have been committed",
        why,
        f"nothing was deleted; before trying again: "
        f"paimon-cli snapshots ls {context.layout.argument} --user {shlex.quote(snapshot.commit_user)}",
        snapshot_id=snapshot.id,
        commit_user=snapshot.commit_user,
        commit_identifier=str(snapshot.commit_identifier),
    )
