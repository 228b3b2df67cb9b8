"""Rollback: makes an older snapshot the newest one by removing all later ones from the history (Java RollbackHelper)."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field

from paimon_cli.commit.commit_records import open_records_above
from paimon_cli.commit.snapshot_publish import publish_again
from paimon_cli.errors import Conflict, NotFound, UsageError
from paimon_cli.history.points_in_time import tag_holding
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.tags_and_branches import ChangelogHistory
from paimon_cli.maintain.expire_snapshots import point_at_earliest
from paimon_cli.maintain.file_deletion import DeleteFiles
from paimon_cli.maintain.histories import false_neighbour
from paimon_cli.maintain.named_files import FileToDelete
from paimon_cli.maintain.removed_versions import (
    ROLLBACK,
    DiscardedVersions,
    delete_named_first,
    discarded_versions,
    finish_removals,
    needed_up_to,
    record_removal,
    withdrawn_on_conflict,
)
from paimon_cli.maintain.retention import keep_for_backups
from paimon_cli.maintain.tags import tags_above, text_within_tag
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.storage.capabilities import ServesVersions, keep_deleted


@dataclass(frozen=True)
class RollbackPlan:
    """`snapshots`: ids to delete, newest first; `tags` and `changelogs` are deleted with them.

    `restored`: text of the target's snapshot file if it has expired and only a tag holds it. `false_neighbour`: the snapshot with
    the number before it then, if it was built on another; it goes, too (`histories`).
    """

    target: Snapshot
    snapshots: tuple[int, ...]
    tags: tuple[str, ...]
    changelogs: tuple[int, ...]
    restored: bytes | None
    discarded: DiscardedVersions = field(repr=False)
    tag: str | None = None
    """The tag that holds the target if its own file has expired."""
    false_neighbour: int | None = None

    @property
    def removed_ids(self) -> tuple[int, ...]:
        """All snapshots that go."""
        return self.snapshots if self.false_neighbour is None else (*self.snapshots, self.false_neighbour)

    @property
    def is_needless(self) -> bool:
        return not (self.snapshots or self.tags or self.changelogs or self.restored or self.discarded.unfinished)


@dataclass(frozen=True)
class RollbackTarget:
    """A snapshot, and the name of the tag that holds it if its own file has expired."""

    snapshot: Snapshot
    tag: str | None = None


def rollback_target(context: TableContext, snapshot_id: int | None = None, tag: str | None = None) -> RollbackTarget:
    """The snapshot of that id (even if only a tag still holds it), or that of the tag. Raises `NotFound`."""
    if tag is None and snapshot_id is not None:
        found = context.snapshots.in_history(snapshot_id)
        if found is not None:
            return RollbackTarget(found)
        tag = tag_holding(context, snapshot_id)
    if tag is None:
        raise NotFound(f"nothing to roll back to in {context.address}", "neither a snapshot nor a tag was given")
    snapshot = context.tags.get(tag).snapshot
    found = context.snapshots.in_history(snapshot.id)  # an interrupted rollback may have put it below a gap
    return RollbackTarget(snapshot, tag if found is None or found.origin != snapshot.origin else None)


def plan_rollback(context: TableContext, target: RollbackTarget) -> RollbackPlan:
    """Find out what would be deleted, without changes. Raises `UsageError` if the target's number is that of another snapshot."""
    number = target.snapshot.id
    ids = context.snapshots.ids()
    if target.tag is not None and number in ids:
        raise UsageError(
            f"{context.address} cannot be rolled back to tag '{target.tag}'",
            f"it holds another snapshot {number} than the history, which another one has replaced",
            "to have the rows of the tag in a new commit: "
            f"paimon-cli rollback {context.layout.argument} --to {shlex.quote(target.tag)} --as-new",
        )
    going = [i for i in reversed(ids) if i > number]
    tags = tags_above(context, number)
    changelogs = [changelog for changelog in ChangelogHistory(context.storage, context.layout).all() if changelog.id > number]
    held = context.tags.content(target.tag) if target.tag else None
    snapshots = [snapshot for i in going if (snapshot := context.snapshots.find(i)) is not None]
    tagged = {tag.snapshot.origin: tag.snapshot for name in tags if (tag := context.tags.find(name)) is not None}
    whole = [snapshot for snapshot in tagged.values() if snapshot.origin not in {one.origin for one in snapshots}]
    whole += [snapshot for snapshot in snapshots if snapshot.id - 1 not in ids]
    return RollbackPlan(
        target.snapshot,
        tuple(going),
        tuple(tags),
        tuple(changelog.id for changelog in changelogs),
        None if held is None else text_within_tag(context, held),
        discarded_versions(context, ROLLBACK, snapshots, whole, [one for one in changelogs if one.id not in going]),
        target.tag,
        None if target.tag is None else false_neighbour(context, target.snapshot),
    )


def files_removed_by_rollback(context: TableContext, plan: RollbackPlan) -> list[FileToDelete]:
    """All files that the rollback would delete now."""
    layout = context.layout
    return [
        *(FileToDelete(layout.snapshot(number), "snapshot") for number in plan.removed_ids),
        *(FileToDelete(layout.tag(name), "tag") for name in plan.tags),
        *(FileToDelete(layout.changelog(number), "long-lived changelog") for number in plan.changelogs),
        *plan.discarded.files_to_delete(context, needed_up_to(context, plan.target.id)),
    ]


def roll_back(context: TableContext, plan: RollbackPlan, delete: DeleteFiles) -> int:
    """Carry out the plan; returns how many files of the later snapshots were deleted.

    Raises `Conflict` after a commit in the meantime.
    """
    storage, layout, target = context.storage, context.layout, plan.target.id
    if isinstance(storage, ServesVersions):
        open_records_above(context, target)
        keep_for_backups(context, target)
        storage.roll_back(target if plan.tag is None else plan.tag, max(plan.snapshots, default=target))
        return 0
    needed_up_to(context, target)  # raises, before anything is changed, if it is not known which files may be deleted
    open_records_above(context, target)
    if plan.restored is not None:
        _restore_snapshot(context, plan, plan.restored)
    record = record_removal(context, ROLLBACK, plan.discarded)
    keep_for_backups(context, target)
    # A hint below the newest snapshot is harmless, one above it hides the table from Java.
    storage.overwrite(layout.latest_hint, str(target).encode())
    with withdrawn_on_conflict(context, record):
        removed = remove_snapshots(context, plan.snapshots, target)
        if context.snapshots.latest_id() is None:
            # An expiry that was to keep one of the removed snapshots has deleted the target.
            _put_back(context, removed)
            what = f"{context.address} was not rolled back to snapshot {target}"
            raise Conflict(what, "it has expired meanwhile; later snapshots are unchanged", "choose a later one")
    if (context.snapshots.earliest_hint() or 0) > target:  # a rollback that died has restored the target
        point_at_earliest(context, context.snapshots.ids()[0])
    keep_for_backups(context, target)  # a backup may have gone on before the snapshots were gone
    storage.overwrite(layout.latest_hint, str(target).encode())  # a commit just before may have written another id
    for name in plan.tags:
        storage.delete(layout.tag(name))
    _forget_changelogs(context, plan)
    for directory in (layout.snapshot_directory, layout.tag_directory, layout.changelog_directory):
        keep_deleted(storage, directory)
    count = delete_named_first(plan.discarded.files_to_delete(context, needed_up_to(context)), delete)
    finish_removals(context, record, plan.discarded)
    storage.overwrite(layout.latest_hint, str(context.snapshots.latest_id() or target).encode())
    return count


def remove_snapshots(context: TableContext, snapshots: Sequence[int], target: int) -> list[tuple[int, bytes]]:
    """Delete these snapshot files, newest first; returns their ids and contents.

    If a new commit appears above the target, those below it are put back, and `Conflict` is raised. A commit in place of a
    deleted snapshot was built on the one before it; the deleted ones above do not contain its files, so to put them back would
    lose it.
    """
    storage, layout = context.storage, context.layout
    had_target = context.snapshots.exists(target)
    gone: list[tuple[int, bytes]] = []
    for number in snapshots:
        try:
            content = storage.read_bytes(layout.snapshot(number))
            Snapshot.from_json(content, layout.snapshot(number))  # it may have to be put back
        except FileNotFoundError:
            continue
        gone.append((number, content))
        storage.delete(layout.snapshot(number))
    newer = [number for number in context.snapshots.ids() if number > target]
    probed = [gone[0][0] + 1, target + 1] if gone else []
    newer += [number for number in probed if number not in newer and storage.exists(layout.snapshot(number))]
    if not newer:
        return gone
    first = min(newer)
    if had_target and not context.snapshots.exists(target):
        outcome = "older ones have expired"  # with their files
    else:
        _put_back(context, [(number, content) for number, content in gone if number < first])
        is_whole = not gone or first > gone[0][0]
        outcome = (
            "the history is unchanged" if is_whole else f"it follows snapshot {first - 1}, since later ones had been removed"
        )
    raise Conflict(
        f"{context.address} was not rolled back to snapshot {target}",
        f"snapshot {first} was committed meanwhile; {outcome}",
        "stop the writers, then try again",
        snapshot_id=first,
    )


def _put_back(context: TableContext, removed: Sequence[tuple[int, bytes]]) -> None:
    """Publish snapshots again, but for those that have expired meanwhile."""
    earliest = context.snapshots.earliest_hint() or 1
    for number, content in reversed(removed):
        if number >= earliest:
            publish_again(context, number, content)


def _restore_snapshot(context: TableContext, plan: RollbackPlan, text: bytes) -> None:
    """Publish the snapshot that only a tag held: as the oldest one, or in a gap, where it follows what it was built on.

    A false neighbour goes first: a rollback that is killed and repeated finds the snapshot in its place.
    """
    target, wrong = plan.target, plan.false_neighbour
    older = [number for number in context.snapshots.ids() if number < target.id]
    if wrong is not None:
        context.storage.delete(context.layout.snapshot(wrong))
    if not publish_again(context, target.id, text) and context.snapshots.find(target.id) != target:
        raise Conflict(f"snapshot {target.id} of {context.address} could not be restored", "another one has its number now")
    point_at_earliest(context, next((number for number in older if number != wrong), target.id))


def _forget_changelogs(context: TableContext, plan: RollbackPlan) -> None:
    storage, layout = context.storage, context.layout
    for number in reversed(plan.changelogs):
        storage.delete(layout.changelog(number))
    if plan.changelogs:
        left = ChangelogHistory(storage, layout).ids()
        if left:
            storage.overwrite(layout.latest_changelog_hint, str(left[-1]).encode())
        else:
            storage.delete(layout.latest_changelog_hint)
            storage.delete(layout.earliest_changelog_hint)
