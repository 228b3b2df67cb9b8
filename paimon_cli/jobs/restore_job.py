"""`restore`: makes a table of a backup, or adds the state of a backup to an existing table as a new snapshot.

A backup lies where others may write, so it is opened like any table that is not trusted: what it names stays inside of it, and is
read up to the sizes that its metadata says. Files of an existing table are never replaced.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from paimon_cli.catalog.open_table import open_table
from paimon_cli.catalog.table_location import TableLocation
from paimon_cli.errors import DamagedFile, NotFound, Refused, UsageError
from paimon_cli.history.schema_history import SchemaHistory
from paimon_cli.history.snapshot_history import SnapshotHistory
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.tags_and_branches import BranchList
from paimon_cli.jobs.backup_records import BackupRecords
from paimon_cli.jobs.clone_job import copy_as_newest, copy_consumers, copy_into_new, copy_records, copy_snapshot
from paimon_cli.jobs.copy_claim import check_apart, read_claim, what_is_copied
from paimon_cli.jobs.copy_plan import CopiedVersion
from paimon_cli.jobs.engine import Engine, Progress, Work, phase
from paimon_cli.jobs.table_change import again_on_conflict
from paimon_cli.jobs.table_copy import COPIES_PER_READ, TableCopy
from paimon_cli.maintain.needed_files import all_ids
from paimon_cli.maintain.restore_as_new import restore_as_new, whole_difference
from paimon_cli.maintain.retention import consumers
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_layout import MAIN_BRANCH, SNAPSHOT_PREFIX, TableLayout
from paimon_cli.read.time_travel import travel
from paimon_cli.requests.backup import RestoreOptions
from paimon_cli.storage.file_copy import Copied, FileCopy, FileToCopy, tasks_of


@dataclass(frozen=True)
class Restored:
    """What was restored. `restored`: the snapshot of the backup whose rows the table has now, `snapshot`: that of the table which
    has them; None for a table without rows. `snapshots`: how many the table has of the backup. `is_new`: whether it was created.
    `is_continued`: an earlier restore was killed, and `files` and `size` are those of the rest.
    """

    source: str
    table: str
    path: str
    restored: int | None
    snapshot: int | None
    snapshots: int
    files: int
    size: int
    is_new: bool
    engine: str
    is_continued: bool = False


def restore_table(
    backup: TableContext, target: TableLocation, options: RestoreOptions, engine: Engine, progress: Progress
) -> Restored:
    """Restore a version of the backup, or its history. Raises `NotFound` if the backup has no such version, `Refused` if an
    existing table has other schemas.
    """
    version = _chosen(backup, options)
    storage, root = target.open_storage()
    layout = TableLayout(root)
    check_apart(backup, target.name, root)
    if BackupRecords(storage, layout).exist():
        why, hint = "its next run would set aside what is written into it", "restore into a new table, or into the table itself"
        raise UsageError(f"{target.name} is a backup", why, hint)
    if SchemaHistory(storage, layout).ids() and read_claim(storage, layout) is None:
        if options.history:
            hint = "restore into a new table, or leave out --history: the rows become a new snapshot"
            raise UsageError(f"table {target.name} exists", "its history is never replaced", hint)
        return _restore_into(backup, open_table(target), version, engine, progress)
    up_to = version if not options.history or any((options.snapshot, options.tag, options.as_of)) else None

    def copied(copy: TableCopy) -> None:
        _copy_history(up_to, copy) if options.history else copy_snapshot(copy, up_to)

    copy = copy_into_new(backup, target, copied, engine, progress, what_is_copied(backup, options.history, up_to))
    newest = None if version is None else version.id
    branches = (MAIN_BRANCH, *BranchList(storage, layout).names())
    snapshots = sum(len(SnapshotHistory(storage, layout.of_branch(branch)).ids()) for branch in branches)
    sizes, is_continued = (snapshots, copy.tally.files, copy.tally.size), not copy.is_new
    return Restored(
        backup.name, target.name, root, newest, newest, *sizes, is_new=True, engine=engine.name, is_continued=is_continued
    )


def _chosen(backup: TableContext, options: RestoreOptions) -> Snapshot | None:
    """The snapshot to restore; None for a table without snapshots. The table's own options do not decide."""
    if options.snapshot is None and options.tag is None and options.as_of is None:
        return backup.snapshot()
    return travel(backup, options.snapshot, options.tag, options.as_of)[1]


def _copy_history(up_to: Snapshot | None, copy: TableCopy) -> None:
    """Copy all versions of all branches, or those that are no younger than `up_to`."""

    def wanted(version: CopiedVersion, is_main: bool) -> bool:
        if up_to is None:
            return True
        return version.snapshot.id <= up_to.id if is_main else version.snapshot.time_millis <= up_to.time_millis

    for branch in (MAIN_BRANCH, *copy.source.branches.names()):
        is_main = branch == MAIN_BRANCH
        history = copy.source if is_main else copy.source.seen_from(branch)
        _check_same_history(copy, history)
        consumers(history)  # raises the error of one that cannot be read: no snapshot of the new table could expire
        if not is_main:
            copy.copy_schemas(history)
        chosen = functools.partial(wanted, is_main=is_main)
        copy.copy_snapshots(history, all_ids(history), chosen)
        if up_to is not None:
            _copy_tagged_state(copy, history, up_to if is_main else None, chosen)
        copy.copy_tags(history, chosen)
        copy.copy_changelogs(history, chosen)
        newest = history.snapshots.latest_id() or 0
        copy_records(copy, history, newest if up_to is None or not is_main else up_to.id)
        copy_consumers(copy, history)


def _copy_tagged_state(
    copy: TableCopy, history: TableContext, up_to: Snapshot | None, wanted: Callable[[CopiedVersion], bool]
) -> None:
    """Copy the newest version of a branch if only a tag has kept it: without its snapshot the new table would show older rows, or
    none. `up_to`: that version, if it was asked for.
    """
    if up_to is None:
        paths = (history.layout.tag(name) for name in history.tags.names())
        tagged = [
            version.snapshot for path in paths if (version := CopiedVersion.read(history.storage, path)) and wanted(version)
        ]
        up_to = max(tagged, key=lambda snapshot: snapshot.id, default=None)
    if up_to is not None and up_to.id > (copy.newest(history.branch) or 0):
        copy_as_newest(copy, history, up_to)


def _check_same_history(copy: TableCopy, history: TableContext) -> None:
    """Raise `Refused` if a restore that was killed has copied snapshots that the backup has otherwise by now."""
    layout = copy.layout.of_branch(history.branch)
    held = copy.numbers(layout.snapshot_directory, SNAPSHOT_PREFIX)
    if not held:
        return
    there = history.snapshots.ids()
    common = [number for number in held if number in set(there)]
    is_same = held[-1:] <= there[-1:] and all(
        copy.storage.read_bytes(layout.snapshot(number)) == history.storage.read_bytes(history.layout.snapshot(number))
        for number in common[-1:]
    )
    if not is_same:
        why = f"its table was rolled back since a restore into {copy.layout.root} began, which was killed"
        raise Refused(f"{history.address} has another history", why, "delete that directory, or restore into another one")


def _restore_into(
    backup: TableContext, table: TableContext, version: Snapshot | None, engine: Engine, progress: Progress
) -> Restored:
    """Commit the rows of the backup as a new snapshot; again if another job commits in the meantime."""
    if version is None:
        raise NotFound(f"{backup.name} has no snapshots", "there is nothing to restore")
    _check_schemas(backup, table)
    copied = [Copied()]

    def copy_files(files: Sequence[FileToCopy]) -> None:
        copied.append(_run(backup, table, files, engine, progress))

    def attempt() -> Snapshot | None:
        latest = table.snapshots.latest()
        found = whole_difference(table, latest, backup, version)
        result = restore_as_new(table, latest, version, found, copy_files)
        return result.snapshots[-1] if result.snapshots else latest

    hint = "stop the writers for a while, or run the command again"
    newest, _ = again_on_conflict(table, attempt, hint)
    files, size = sum(done.files for done in copied), sum(done.size for done in copied)
    snapshot = None if newest is None else newest.id
    return Restored(backup.name, table.name, table.url, version.id, snapshot, 1, files, size, is_new=False, engine=engine.name)


def _run(backup: TableContext, table: TableContext, files: Sequence[FileToCopy], engine: Engine, progress: Progress) -> Copied:
    """Copy files of the backup to their new names in the table, as tasks of the engine."""
    size = sum(file.size or 0 for file in files)
    engine.prepare(Work(size // COPIES_PER_READ, len(files) // COPIES_PER_READ), progress)
    copy = FileCopy(backup.storage, backup.layout.root, table.storage, table.layout.root, replaces=engine.retries_tasks)
    with phase(progress, "Copying files", len(files)) as advance:
        done = engine.run_tasks(functools.partial(FileCopy.copy_all, copy), list(tasks_of(files)), advance)
    if missing := [path for one in done for path in one.missing]:
        path = f"{backup.layout.root}/{missing[0]}"
        raise DamagedFile(f"{path} is missing", "a version of the backup names it", backup.layout.if_damaged, path=path)
    return Copied(sum(one.files for one in done), sum(one.size for one in done))


def _check_schemas(backup: TableContext, table: TableContext) -> None:
    """Raise `Refused` unless the table has all schemas of the backup, by whose ids its files say which columns they have."""
    there = set(table.schemas.ids())
    for number in backup.schemas.ids():
        content = backup.storage.read_bytes(backup.layout.schema(number))
        if number not in there or table.storage.read_bytes(table.layout.schema(number)) != content:
            raise Refused(
                f"{backup.name} cannot be restored into {table.name}",
                f"schema {number} of the backup is not that of the table",
                "restore it into a new table",
            )
