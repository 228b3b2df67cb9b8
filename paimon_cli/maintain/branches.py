"""Creates, renames, deletes and fast-forwards branches, which share data files (FORMAT.md, section 1.5)."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field

from paimon_cli.commit.commit_records import copy_records, open_records_above
from paimon_cli.commit.snapshot_publish import publish_again, replace_snapshot
from paimon_cli.errors import AlreadyExists, Conflict, NotFound, NotSupported, UsageError, cleaning_up
from paimon_cli.history.snapshot_history import SnapshotHistory
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.tags_and_branches import check_branch_name
from paimon_cli.maintain.end_of_history import EndOfHistory
from paimon_cli.maintain.expire_snapshots import point_at_earliest
from paimon_cli.maintain.file_deletion import DeleteFiles
from paimon_cli.maintain.histories import false_neighbour
from paimon_cli.maintain.named_files import FileToDelete
from paimon_cli.maintain.needed_files import all_ids
from paimon_cli.maintain.removed_versions import (
    FAST_FORWARD,
    DiscardedVersions,
    delete_named_first,
    discarded_versions,
    finish_removals,
    needed_up_to,
    record_removal,
    withdrawn_on_conflict,
)
from paimon_cli.maintain.retention import keep_for_backups
from paimon_cli.maintain.rollback import remove_snapshots
from paimon_cli.maintain.tags import snapshot_and_holder, text_within_tag
from paimon_cli.metadata.snapshot import Snapshot, Tag
from paimon_cli.metadata.table_layout import MAIN_BRANCH
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.storage.capabilities import ServesVersions, keep_deleted
from paimon_cli.storage.storage import FileStatus


def create_branch(context: TableContext, name: str, tag: str | None = None, snapshot_id: int | None = None) -> int | None:
    """Create a branch from a tag or a snapshot of the context's branch, or an empty one with its schema.

    Returns the id of its first snapshot, None for an empty branch. Schemas are copied first, so that the branch can be read at
    any moment, if only as an empty one. Raises `UsageError` if the branch exists, `NotFound` if its start does not.
    """
    if tag is not None and snapshot_id is not None:
        raise UsageError("a branch starts at a tag or at a snapshot, not at both")
    check_branch_name(name)
    branches = context.branches
    if name in branches.directories():
        if branches.exists(name):
            raise AlreadyExists(f"branch '{name}' exists", hint="choose another name")
        hint = f"delete the part that exists: paimon-cli branches rm {context.layout.argument} {shlex.quote(name)}"
        raise UsageError(f"branch '{name}' exists in part", "its creation was interrupted", hint)
    layout, storage = context.layout.of_branch(name), context.storage
    start = _start(context, tag, snapshot_id)
    if isinstance(storage, ServesVersions):
        if snapshot_id is not None:
            raise NotSupported("a branch from a snapshot in this catalog", "its server makes branches from tags", "tag it first")
        storage.create_branch(name, tag)
        return None if start is None else start[0].id
    last_schema = context.schema.id if start is None else start[0].schema_id
    for number in context.schemas.ids():
        if number <= last_schema:
            storage.overwrite(layout.schema(number), _schema_text(context, number))
    if start is None:
        return None
    snapshot, text, holder = start
    if tag is not None:
        content = context.tags.content(tag)
        if content is not None and Tag.from_json(content, context.layout.tag(tag)):
            storage.overwrite(layout.tag(tag), content)
    copy_records(context, layout, snapshot.id)
    replace_snapshot(storage, layout, snapshot.id, text)
    # A job that expires the snapshot or deletes the tag reads the branches after deleting that file: see `create_tag`.
    if not storage.exists(holder):
        _delete(context, name)
        raise NotFound(f"the start of branch '{name}' was deleted meanwhile", f"{holder} was deleted")
    return snapshot.id


def remove_branch(context: TableContext, name: str) -> None:
    """Delete the branch; files that only it needed become orphans. Raises `NotFound`, which names the existing branches."""
    branches = context.branches
    if name not in branches.directories():
        raise branches.missing(name)
    if isinstance(context.storage, ServesVersions):
        context.storage.delete_branch(name)
    else:
        _delete(context, name)


def rename_branch(context: TableContext, name: str, new_name: str) -> None:
    """Copy the metadata files of the branch, then delete the old ones. Raises `Conflict` after a commit in the meantime."""
    check_branch_name(new_name)
    branches = context.branches
    if not branches.exists(name):
        raise branches.missing(name)
    if new_name in branches.directories():
        raise AlreadyExists(f"branch '{new_name}' exists")
    old, new = context.layout.of_branch(name).version_root, context.layout.of_branch(new_name).version_root
    copied = _files(context, old)
    for status in sorted(copied, key=_schemas_first):
        context.storage.overwrite(new + status.path.removeprefix(old), context.storage.read_bytes(status.path))
    end = _end(context, name)
    try:
        end.begin(after=SnapshotHistory(context.storage, context.layout.of_branch(new_name)).latest_id() or 0)
        ours = {end.path, context.layout.of_branch(name).latest_hint}
        if {status.path for status in _files(context, old)} - ours != {status.path for status in copied} - ours:
            end.retract()
            raise Conflict(f"branch '{name}' was changed meanwhile")
    except Conflict as meanwhile:
        conflict = Conflict(f"branch '{name}' was not renamed", "another job committed to it meanwhile", "try again")
        with cleaning_up(conflict):
            _delete(context, new_name)
        raise conflict from meanwhile
    _delete(context, name, end)


def _start(context: TableContext, tag: str | None, snapshot_id: int | None) -> tuple[Snapshot, bytes, str] | None:
    """The snapshot, its text, and the path of the file that protects its files from deletion."""
    if tag is None and snapshot_id is None:
        return None
    if tag is not None:
        snapshot, content = context.tags.get(tag).snapshot, context.tags.content(tag)
        if content is None:
            raise NotFound(f"tag '{tag}' was deleted meanwhile")
        return snapshot, text_within_tag(context, content), context.layout.tag(tag)
    text, holder = snapshot_and_holder(context, snapshot_id)
    return Snapshot.from_json(text, holder), text, holder


def _schema_text(context: TableContext, number: int) -> bytes:
    """The text of the schema, if it can be read."""
    path = context.layout.schema(number)
    text = context.storage.read_bytes(path)
    TableSchema.from_json(text, path)
    return text


def _delete(context: TableContext, name: str, end: EndOfHistory | None = None) -> None:
    """End the history, then delete the schemas: without them a branch does not exist, so a crash leaves nothing that looks like
    one. `end`: the end, if it is in place.
    """
    layout = context.layout.of_branch(name)
    if end is None:
        end = _end(context, name)
        end.begin()
    context.storage.delete_directory(layout.schema_directory)
    end.remove_snapshots()
    context.storage.delete_directory(layout.version_root)


def _end(context: TableContext, name: str) -> EndOfHistory:
    return EndOfHistory(context.storage, context.layout.of_branch(name), context.clock, context.random)


def _files(context: TableContext, directory: str) -> list[FileStatus]:
    """All files in the directory tree."""
    files = []
    for status in context.storage.list_directory(directory):
        files += _files(context, status.path) if status.is_directory else [status]
    return files


def _schemas_first(status: FileStatus) -> tuple[int, str]:
    order = ("/schema/", "/tag/", "/changelog/", "/consumer/", "/commit-user/", "/snapshot/")
    return next((rank for rank, part in enumerate(order) if part in status.path), len(order)), status.path


@dataclass(frozen=True)
class FastForwardPlan:
    """What a fast-forward of main to a branch changes.

    `common`: the newest snapshot in both histories, None if there is none. `added`: later snapshots of the branch;
    `discarded_ids`: later snapshots of main. `tags`: those to copy from the branch; `dropped_tags`: those of discarded snapshots.
    `schemas`: those that only the branch has; `dropped_schemas`: those that only main has. `false_neighbour`: main's snapshot
    with the number before the branch's first one, if this was built on another. It goes without its files: numbers that follow
    each other mean that one snapshot was built on the other, to backups, to the expiry of other branches and to streams.
    """

    branch: str
    common: int | None
    added: tuple[int, ...]
    discarded_ids: tuple[int, ...]
    tags: tuple[str, ...]
    dropped_tags: tuple[str, ...]
    schemas: tuple[int, ...]
    dropped_schemas: tuple[int, ...]
    discarded: DiscardedVersions = field(repr=False)
    false_neighbour: int | None = None

    @property
    def is_needless(self) -> bool:
        return not (self.added or self.removed_ids or self.schemas or self.dropped_schemas or self.discarded.unfinished)

    @property
    def discards(self) -> bool:
        return bool(self.removed_ids or self.dropped_schemas)

    @property
    def removed_ids(self) -> tuple[int, ...]:
        """All snapshots of main that go."""
        return self.discarded_ids if self.false_neighbour is None else (self.false_neighbour, *self.discarded_ids)


def plan_fast_forward(main: TableContext, name: str) -> FastForwardPlan:
    """Compare the two histories. Raises `Conflict` if both changed the schema after their newest common snapshot."""
    if main.branch != MAIN_BRANCH:
        raise UsageError("only main can be fast-forwarded", f"the table was opened at branch {main.branch}")
    branch = main.at_branch(name)
    theirs, ours = all_ids(branch), all_ids(main)
    if not theirs:
        raise NotFound(f"branch '{name}' of {main.url} has no snapshots", "there is nothing to fast-forward to")
    common = _common(main, branch, ours, theirs)
    only_ours = [number for number in ours if number > (common or 0) and (common is not None or number >= theirs[0])]
    if only_ours and theirs[-1] == common:
        what = f"branch '{name}' has no snapshots that main lacks"
        raise UsageError(
            what,
            f"main has other commits since snapshot {common}",
            f"to discard those commits: paimon-cli rollback {main.layout.argument} --to {common}",
        )
    schemas, dropped_schemas = _schema_changes(main, branch)
    tags, their_tags = main.tags.all(), branch.tags.names()
    dropped = tuple(name for name, tag in tags.items() if tag.snapshot.id in only_ours and name not in their_tags)
    snapshots = [snapshot for number in only_ours if (snapshot := main.snapshots.find(number)) is not None]
    return FastForwardPlan(
        name,
        common,
        tuple(number for number in theirs if common is None or number > common),
        tuple(only_ours),
        tuple(name for name in their_tags if main.tags.content(name) != branch.tags.content(name)),
        dropped,
        schemas,
        dropped_schemas,
        discarded_versions(main, FAST_FORWARD, snapshots, [snapshot for snapshot in snapshots if snapshot.id - 1 not in ours]),
        false_neighbour(main, branch.snapshots.get(theirs[0])),
    )


def files_removed_by_fast_forward(main: TableContext, plan: FastForwardPlan) -> list[FileToDelete]:
    """All files that a fast-forward removes."""
    snapshots = [FileToDelete(main.layout.snapshot(number), "snapshot") for number in plan.removed_ids]
    if not (plan.discarded_ids or plan.discarded.unfinished):
        return snapshots
    needed = needed_up_to(main, plan.discarded_ids[0] - 1 if plan.discarded_ids else None)
    tags = [FileToDelete(main.layout.tag(name), "tag") for name in plan.dropped_tags]
    return [*snapshots, *tags, *plan.discarded.files_to_delete(main, needed)]


def fast_forward(main: TableContext, plan: FastForwardPlan, delete: DeleteFiles) -> int:
    """Carry out the plan; returns how many files were deleted. Raises `Conflict` after another commit to main."""
    branch = main.at_branch(plan.branch)
    storage = main.storage
    if isinstance(storage, ServesVersions):
        if plan.discarded_ids:
            open_records_above(main, plan.discarded_ids[0] - 1)
            keep_for_backups(main, plan.common or 0)
        storage.fast_forward(plan.branch)
        copy_records(branch, main.layout, all_ids(branch)[-1])
        return 0
    if plan.discarded_ids:
        needed_up_to(main, plan.discarded_ids[0] - 1)  # raises, before anything is changed, if some needed file is unknown
    for number in plan.schemas:
        main.schemas.commit(branch.schemas.get(number))
    if plan.discarded_ids:
        record = record_removal(main, FAST_FORWARD, plan.discarded)
        open_records_above(main, plan.discarded_ids[0] - 1)
        with withdrawn_on_conflict(main, record):
            _take_over(main, branch, plan)
    else:
        record = None
        _go_forward(main, branch, plan)
    if plan.false_neighbour is not None:
        storage.delete(main.layout.snapshot(plan.false_neighbour))
    copy_records(branch, main.layout, all_ids(branch)[-1])
    _take_tags(main, branch, plan)
    for number in plan.dropped_schemas:
        storage.delete(main.layout.schema(number))
    present = all_ids(main)
    storage.overwrite(main.layout.latest_hint, str(present[-1]).encode())
    point_at_earliest(main, present[0])
    for directory in (main.layout.snapshot_directory, main.layout.tag_directory):
        keep_deleted(storage, directory)
    if not (plan.discarded_ids or plan.discarded.unfinished):
        return 0
    count = delete_named_first(plan.discarded.files_to_delete(main, needed_up_to(main)), delete)
    finish_removals(main, record, plan.discarded)
    return count


def _take_tags(main: TableContext, branch: TableContext, plan: FastForwardPlan) -> None:
    for name in plan.tags:
        content = branch.tags.content(name)
        if content is not None and Tag.from_json(content, branch.layout.tag(name)):
            main.storage.overwrite(main.layout.tag(name), content)
    for name in plan.dropped_tags:
        main.storage.delete(main.layout.tag(name))


def _go_forward(main: TableContext, branch: TableContext, plan: FastForwardPlan) -> None:
    """Publish each snapshot of the branch as a commit would."""
    for number in plan.added:
        content = _snapshot_of(branch, number)
        if not publish_again(main, number, content):
            raise Conflict(
                f"main was not fast-forwarded to branch '{plan.branch}' beyond snapshot {number - 1}",
                f"another job committed snapshot {number} to main meanwhile",
                "inspect it, then try again",
                snapshot_id=number,
            )
        main.storage.overwrite(main.layout.latest_hint, str(number).encode())


def _take_over(main: TableContext, branch: TableContext, plan: FastForwardPlan) -> None:
    """Replace main's snapshots by the branch's, newest first: from the first replacement on, main's latest snapshot is the
    branch's.
    """
    newest = plan.added[-1] if plan.added else plan.common or 0
    later = [number for number in reversed(plan.discarded_ids) if number > newest]
    storage = main.storage
    keep_for_backups(main, plan.common or 0)
    storage.overwrite(main.layout.latest_hint, str(plan.common or newest).encode())
    remove_snapshots(main, later, newest)
    for number in reversed(plan.added):
        replace_snapshot(storage, main.layout, number, _snapshot_of(branch, number))
        if number == newest:
            storage.overwrite(main.layout.latest_hint, str(newest).encode())
    for number in plan.discarded_ids:
        if number < newest and number not in plan.added:
            storage.delete(main.layout.snapshot(number))
    keep_for_backups(main, plan.common or 0)  # a backup may have gone on before the snapshots were gone


def _snapshot_of(branch: TableContext, number: int) -> bytes:
    """The text of the branch's snapshot. Raises `DamagedFile` if it is not complete."""
    path = branch.layout.snapshot(number)
    text = branch.storage.read_bytes(path)
    Snapshot.from_json(text, path)
    return text


def _common(main: TableContext, branch: TableContext, ours: Sequence[int], theirs: Sequence[int]) -> int | None:
    """The last snapshot of the unbroken sequence that both histories share. Equal snapshots after a gap come from an interrupted
    fast-forward.
    """
    common = None
    for number in theirs:
        if number in ours and _is_shared(main, branch, number):
            common = number
        elif common is not None or number in ours:
            break
    return common


def _is_shared(main: TableContext, branch: TableContext, number: int) -> bool:
    """Whether both files hold the same commit."""
    ours, theirs = main.snapshots.find(number), branch.snapshots.find(number)
    return ours is not None and theirs is not None and ours.origin == theirs.origin


def _schema_changes(main: TableContext, branch: TableContext) -> tuple[tuple[int, ...], tuple[int, ...]]:
    ours, theirs = main.schemas.ids(), branch.schemas.ids()
    for number in set(ours) & set(theirs):
        if main.schemas.get(number) != branch.schemas.get(number):
            what = f"main cannot be fast-forwarded to branch '{branch.branch}'"
            raise Conflict(what, f"both have a schema {number}, and the two differ", "alter one of them back")
    return tuple(n for n in theirs if n not in ours), tuple(n for n in ours if n > branch.schema.id)
