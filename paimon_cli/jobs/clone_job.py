"""`tables clone`, and `restore` into a new table: copies one snapshot of a table, file by file, without decoding rows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

from paimon_cli.catalog.table_location import TableLocation
from paimon_cli.catalog.warehouse_trash import check_new_site
from paimon_cli.commit.commit_records import copied_files, records_up_to
from paimon_cli.errors import AlreadyExists, UsageError, undone_on_failure
from paimon_cli.history.schema_history import SchemaHistory
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.copy_claim import CopyClaim, new_lease, read_claim
from paimon_cli.jobs.copy_plan import CopiedVersion
from paimon_cli.jobs.engine import Engine, LocalEngine, NoProgress, Progress
from paimon_cli.jobs.process import usable_cores
from paimon_cli.jobs.table_copy import TableCopy
from paimon_cli.maintain.tags import text_within_tag
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_layout import BACKUP_CONSUMER, CONSUMER_PREFIX, MAIN_BRANCH, TableLayout
from paimon_cli.storage.capabilities import remove_empty_directory


@dataclass(frozen=True)
class ClonedTable:
    """What was copied. `snapshot_id`: the same in both tables; None if the source has no snapshot."""

    source: str
    table: str
    path: str
    snapshot_id: int | None
    files: int
    size: int


def clone_table(context: TableContext, name: str, target: TableLocation) -> ClonedTable:
    """Copy the latest snapshot into a table that does not exist yet, and register it in its catalog."""
    latest = context.snapshots.latest()
    copy = copy_into_new(context, target, lambda copy: copy_snapshot(copy, latest))
    snapshot_id = None if latest is None else latest.id
    return ClonedTable(name, target.name, copy.layout.root, snapshot_id, len(copy.written), copy.tally.size)


def copy_into_new(
    context: TableContext,
    target: TableLocation,
    copy_versions: Callable[[TableCopy], None],
    engine: Engine | None = None,
    progress: Progress | None = None,
    content: dict[str, Any] | None = None,
) -> TableCopy:
    """Copy versions into a table that does not exist yet, and register it in its catalog.

    Schema files are copied last, so that the table becomes visible only when it is complete. After a failure the copies are
    deleted. `content`: what is copied; a copy of the same that was killed is continued then, and stays after a failure.
    """
    if target.branch != MAIN_BRANCH or target.read_optimized:
        raise UsageError(f"cannot copy into {target.name}", "the target must be a table, not a branch or $ro", "name a table")
    if target.metastore is not None and target.identifier is not None and not target.metastore.takes_files:
        raise target.metastore.unsupported("copying into a table", "create the table, then write the rows to it")
    storage, root = target.open_storage()
    claim = CopyClaim(storage, TableLayout(root), content, new_lease(context.random, context.clock))
    claim.look()
    copy = TableCopy(context, storage, claim.layout, engine or LocalEngine(usable_cores()), progress or NoProgress())
    copy.is_new, copy.is_resumed = not claim.is_continued, claim.is_continued
    copy.before = claim.check
    stack = ExitStack()

    def publish() -> bool:
        if not claim.is_continued:
            check_new_site(target, storage, root)
            claim.take()
            stack.callback(remove_empty_directory, storage, root)
        stack.enter_context(claim.held())
        if not claim.is_continued:
            claim.check_empty()
        is_there = (
            claim.is_continued and SchemaHistory(storage, claim.layout).ids()
        )  # the first schema comes when all else is there
        if not is_there:
            copy_versions(copy)
        copy.copy_schemas(context, newest_first=True)
        return True

    def undo() -> None:
        if claim.is_held and not claim.is_continued:
            copy.undo()
            claim.release()

    with stack, undone_on_failure(undo):
        if target.metastore is None or target.identifier is None:
            publish()
        elif not target.metastore.create_table(target.identifier, context.schemas.latest(), publish):
            if not claim.is_continued or read_claim(storage, claim.layout) is None:
                raise AlreadyExists(f"table {target.name} already exists", hint="choose another name")
            publish()  # it was killed after the entry was made
        claim.release()
    return copy


def copy_snapshot(copy: TableCopy, snapshot: Snapshot | None) -> None:
    """Copy a snapshot as the only one of a new table, with the records of the commits that it contains."""
    if snapshot is None:
        return
    copy_records(copy, copy.source, snapshot.id)
    copy_as_newest(copy, copy.source, snapshot)


def copy_as_newest(copy: TableCopy, history: TableContext, snapshot: Snapshot) -> None:
    """Copy a snapshot, or that of a tag, as the newest one of a branch."""
    path, content = history.layout.snapshot(snapshot.id), snapshot.to_json().encode()
    if history.snapshots.find(snapshot.id) != snapshot:  # that of a tag, which may have lost its changelog
        content = text_within_tag(history, content)
    version = CopiedVersion(path, content, Snapshot.from_json(content, path))
    copy.copy_state(history, version, copy.layout.of_branch(history.branch).snapshot(snapshot.id))
    copy.write_hints(history.branch)


def copy_records(copy: TableCopy, history: TableContext, up_to: int) -> None:
    """Copy the records of repeatable commits, which say what snapshot `up_to` contains."""
    layout = copy.layout.of_branch(history.branch)
    there = copy.names(layout.commit_user_directory)
    for record in records_up_to(history, up_to):
        if all(path.rpartition("/")[2] in there for path in record.paths(layout)):
            continue  # nothing to read
        for path, content in copied_files(history, record, layout):
            if path.rpartition("/")[2] not in there:
                copy.put(path, content)


def copy_consumers(copy: TableCopy, history: TableContext) -> None:
    """Copy the progress of streaming readers, which is overwritten in the table, too."""
    directory = copy.layout.of_branch(history.branch).consumer_directory
    for status in history.storage.list_directory(history.layout.consumer_directory):
        name = status.name
        if status.is_directory or not name.startswith(CONSUMER_PREFIX) or name.startswith(f"{CONSUMER_PREFIX}{BACKUP_CONSUMER}"):
            continue
        with suppress(FileNotFoundError):  # its reader has ended
            content = history.storage.read_bytes(status.path)
            exists = name in copy.names(directory)
            if not exists or copy.storage.read_bytes(f"{directory}/{name}") != content:
                copy.put(f"{directory}/{name}", content, replaces=exists)
