"""Creating, renaming and deleting branches; data files are shared, not copied (FORMAT.md, section 1.5)."""

from __future__ import annotations

import shlex

from paimon_cli.errors import Conflict, NotFound, UsageError, cleaning_up
from paimon_cli.history.branch_list import check_branch_name
from paimon_cli.history.table_context import TableContext
from paimon_cli.maintain.tags import snapshot_and_holder
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.metadata.tag import Tag, snapshot_text
from paimon_cli.storage.storage import FileStatus


def create_branch(context: TableContext, name: str, tag: str | None = None, snapshot_id: int | None = None) -> int | None:
    """A branch of a tag or snapshot of the context's branch, else an empty one with its schema. The id of its first snapshot.

    Schemas come first, so that the branch can be read at any moment, if only as an empty one.
    """
    if tag is not None and snapshot_id is not None:
        raise UsageError("a branch starts at a tag or at a snapshot, not at both")
    check_branch_name(name)
    branches = context.branches
    if name in branches.directories():
        if branches.exists(name):
            raise UsageError(f"branch '{name}' exists", hint="choose another name")
        hint = f"paimon-cli branches rm {context.layout.argument} {shlex.quote(name)}"
        raise UsageError(f"branch '{name}' exists in part", "its creation was interrupted", hint)
    layout, storage = context.layout.of_branch(name), context.storage
    start = _start(context, tag, snapshot_id)
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
    storage.overwrite(layout.snapshot(snapshot.id), text)
    # A job that expires the snapshot or deletes the tag reads the branches after deleting that file: see `create_tag`.
    if not storage.exists(holder):
        _delete(context, name)
        raise NotFound(f"the start of branch '{name}' was deleted meanwhile", f"{holder} was deleted")
    return snapshot.id


def remove_branch(context: TableContext, name: str) -> None:
    """Delete the branch; files that only it needed are orphans then. `NotFound` names the branches that there are."""
    branches = context.branches
    if name not in branches.directories():
        raise branches.missing(name)
    _delete(context, name)


def rename_branch(context: TableContext, name: str, new_name: str) -> None:
    """Copy its few metadata files, then delete the old ones. `Conflict` if a commit was made to the branch in the meantime."""
    check_branch_name(new_name)
    branches = context.branches
    if not branches.exists(name):
        raise branches.missing(name)
    if new_name in branches.directories():
        raise UsageError(f"branch '{new_name}' exists")
    old, new = context.layout.of_branch(name).version_root, context.layout.of_branch(new_name).version_root
    copied = _files(context, old)
    for status in sorted(copied, key=_schemas_first):
        context.storage.overwrite(new + status.path.removeprefix(old), context.storage.read_bytes(status.path))
    if {status.path for status in _files(context, old)} != {status.path for status in copied}:
        conflict = Conflict(f"branch '{name}' was not renamed", "another job committed to it meanwhile", "try again")
        with cleaning_up(conflict):
            _delete(context, new_name)
        raise conflict
    _delete(context, name)


def _start(context: TableContext, tag: str | None, snapshot_id: int | None) -> tuple[Snapshot, bytes, str] | None:
    """Snapshot, its text, and the path of the file that keeps its files from being deleted."""
    if tag is None and snapshot_id is None:
        return None
    if tag is not None:
        snapshot, content = context.tags.get(tag).snapshot, context.tags.content(tag)
        if content is None:
            raise NotFound(f"tag '{tag}' was deleted meanwhile")
        return snapshot, snapshot_text(content), context.layout.tag(tag)
    text, holder = snapshot_and_holder(context, snapshot_id)
    return Snapshot.from_json(text, holder), text, holder


def _schema_text(context: TableContext, number: int) -> bytes:
    """As it stands, if it can be read."""
    path = context.layout.schema(number)
    text = context.storage.read_bytes(path)
    TableSchema.from_json(text, path)
    return text


def _delete(context: TableContext, name: str) -> None:
    """Without its schemas a branch does not exist; so a crash leaves nothing that looks like one."""
    layout = context.layout.of_branch(name)
    context.storage.delete_directory(layout.schema_directory)
    context.storage.delete_directory(layout.version_root)


def _files(context: TableContext, directory: str) -> list[FileStatus]:
    found = []
    for status in context.storage.list_directory(directory):
        found += _files(context, status.path) if status.is_directory else [status]
    return found


def _schemas_first(status: FileStatus) -> tuple[int, str]:
    order = ("/schema/", "/tag/", "/changelog/", "/consumer/", "/snapshot/")
    return next((place for place, part in enumerate(order) if part in status.path), len(order)), status.path
