"""Publish a snapshot: put it if its number is free, and find out who won if the answer is not plain (FORMAT.md, section 10.4).

Losing the answer to a successful put is common on object stores, so the file itself is the only witness.
"""

from __future__ import annotations

import contextlib
import shlex

from paimon_cli.errors import CommitUnknown, DamagedFile, NotFound, StorageUnavailable
from paimon_cli.history.manifest_reader import SnapshotGone
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.storage.storage import PutOutcome

_TRIES = 5


def publish(context: TableContext, snapshot: Snapshot, base: Snapshot | None = None) -> bool:
    """True if the snapshot is now part of the table's history, False if its number belongs to somebody else.

    `base`: the one before, on which it was built; if a roll-back has put another in its place, ours is withdrawn (False).

    Raises `CommitUnknown` if the storage does not let us find out; then nothing may be deleted. `StorageUnavailable` and
    `Refused` mean that it was not published.
    """
    path, content = context.layout.snapshot(snapshot.id), snapshot.to_json().encode()
    for attempt in range(_TRIES):
        # Repeating the put is safe: it is the same content for the same number, and only one of them can succeed.
        try:
            with context.trace.timed("snapshot", file=path.rpartition("/")[2], bytes=len(content)) as facts:
                outcome = context.storage.put_if_absent(path, content)
                facts["outcome"] = outcome.name.lower()
        except StorageUnavailable as error:
            if attempt:  # this put was not made, but an earlier one may have been
                raise _unknown(context, snapshot, f"after a put without a clear answer the storage failed: {error}") from error
            raise
        published = content if outcome is PutOutcome.CREATED else _read_back(context, path, content)
        if published is not None and published != content:
            return False
        if published is not None:
            is_ours = _is_in_history(context, snapshot, base)
            if attempt and not is_ours:  # what became of the earlier puts has expired, too
                raise _unknown(context, snapshot, "its number has expired since the first attempt")
            return is_ours
        context.clock.sleep(context.options.commit_min_retry_wait * 2**attempt / 1000)
    raise _unknown(context, snapshot, "the storage gave no clear answer and does not show the snapshot file")


def announce(context: TableContext, snapshot: Snapshot) -> None:
    """Point the LATEST hint at the snapshot. Readers do without it, so a failure is none of the commit."""
    with contextlib.suppress(StorageUnavailable), context.trace.timed("hint", file="LATEST", snapshot=snapshot.id):
        context.storage.overwrite(context.layout.latest_hint, str(snapshot.id).encode())


def _read_back(context: TableContext, path: str, content: bytes) -> bytes | None:
    """What has that name; None if the storage does not say, or shows no more than a beginning of our own content."""
    try:
        published = context.storage.read_bytes(path)
    except (FileNotFoundError, StorageUnavailable):
        return None
    return published if published == content or not content.startswith(published) else None


def _is_in_history(context: TableContext, snapshot: Snapshot, base: Snapshot | None) -> bool:
    try:
        return _continues_history(context, snapshot, base)
    except StorageUnavailable as error:
        raise _unknown(context, snapshot, f"it was published, but then the storage failed: {error}") from error


def _continues_history(context: TableContext, snapshot: Snapshot, base: Snapshot | None) -> bool:
    """False if others took and expired this number while we were slow, so that our file brought a dead number back to life.

    As long as the predecessor is there, nobody has expired our number: expiry goes upwards.
    """
    before = snapshot.id - 1
    try:
        found = context.snapshots.find(before) if before else None
    except DamagedFile:
        return True  # there is one; whose it was cannot be told
    if found is not None:
        return base is None or found == base or _withdrawn(context, snapshot)
    if before and _is_rolled_back(context, before):
        return _withdrawn(context, snapshot)
    newest = context.snapshots.latest_id()
    if newest is None or newest <= snapshot.id:
        return True
    successor = context.snapshots.find(snapshot.id + 1)
    if successor is None:
        return _has_expired_in_its_turn(context, snapshot)
    try:
        inherited = {meta.file_name for meta in context.manifests.manifests_of(successor)}
        own = {meta.file_name for meta in context.manifests.manifest_list(snapshot.delta_manifest_list)}
    except (SnapshotGone, DamagedFile):
        if context.storage.exists(context.layout.snapshot(successor.id)):
            raise _unknown(context, snapshot, f"its manifests or those of snapshot {successor.id} cannot be read") from None
        return _has_expired_in_its_turn(context, snapshot)
    if own <= inherited:
        return True
    raise _unknown(
        context, snapshot, f"snapshot {successor.id} was published meanwhile, and whether it contains this commit is not visible"
    )


def _is_rolled_back(context: TableContext, before: int) -> bool:
    """Expiry leaves no older snapshot than the one that it took; a roll-back does, and says so in its hint."""
    hint = context.snapshots.latest_hint()
    return hint is not None and hint < before and context.storage.exists(context.layout.snapshot(hint))


def _withdrawn(context: TableContext, snapshot: Snapshot) -> bool:
    """Always False: what our snapshot was built on was rolled back while we were slow, so it must not stay."""
    if context.storage.exists(context.layout.snapshot(snapshot.id + 1)):
        raise _unknown(context, snapshot, "the history was rolled back meanwhile, and another commit already builds on this one")
    context.storage.delete(context.layout.snapshot(snapshot.id))
    return False


def _has_expired_in_its_turn(context: TableContext, snapshot: Snapshot) -> bool:
    """Our successor has expired. Expiry would have taken our file before it, unless we put it there behind its back.

    Where our file is gone, too, what is left of the history has to show that it was built on ours: an expiry also removes files
    that came back from the dead.
    """
    path = context.layout.snapshot(snapshot.id)
    if context.storage.exists(path):
        context.storage.delete(path)
        return False
    oldest = context.snapshots.earliest_id()
    left = None if oldest is None else context.snapshots.find(oldest)
    try:
        inherited = set() if left is None else {meta.file_name for meta in context.manifests.manifests_of(left)}
        own = {meta.file_name for meta in context.manifests.manifest_list(snapshot.delta_manifest_list)}
    except (NotFound, DamagedFile):
        own, inherited = {snapshot.delta_manifest_list}, set()
    if own <= inherited:
        return True
    raise _unknown(
        context, snapshot, "it no longer exists, expired or removed as dead, and the remaining snapshots do not show its changes"
    )


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
