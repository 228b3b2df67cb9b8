"""Backups of tables as parts of a catalog: made, listed, verified, restored."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any

from paimon_cli.api.arguments import checks_arguments, takes
from paimon_cli.api.opened_catalog import MAX_NAMED, OpenedCatalog
from paimon_cli.api.table import Table
from paimon_cli.api.table_choice import chosen_tables
from paimon_cli.catalog.metastore.metastore import DATABASE_SUFFIX
from paimon_cli.catalog.table_location import TableLocation, locate_table
from paimon_cli.errors import NotFound, PaimonError, PartialSuccess
from paimon_cli.metadata.table_layout import MAIN_BRANCH, TableLayout
from paimon_cli.options.option_text import counted
from paimon_cli.requests.backup import BackupCall, BackupCheckCall, RestoreOptions
from paimon_cli.requests.compaction import TableChoice

if TYPE_CHECKING:
    from paimon_cli.invariants.violation import Violation
    from paimon_cli.jobs.backup_job import BackupSummary
    from paimon_cli.jobs.restore_job import Restored


class DatabaseBackup(BackupCall):
    """A backup of all tables of a database. `on_done`: called with each result as soon as it is known."""

    _: KW_ONLY
    database: str
    on_done: Callable[[BackupSummary], None] | None = None


class RestoreCall(RestoreOptions):
    """A backup, and the table to restore it into."""

    backup: str | os.PathLike[str]
    table: str | os.PathLike[str]


@dataclass(frozen=True)
class BackupRow:
    """A run of a backup: what it has copied when. `copy`: the path of the copy, for those of a database.

    `first_snapshot` and `last_snapshot`: of all that the copy held after the run; `gaps`: ids between them that it lacks.
    """

    copy: str
    run: int
    time: int
    source: str
    first_snapshot: int | None
    last_snapshot: int | None
    snapshots: int
    tags: int
    branches: int
    files: int
    size: int
    expired: int
    gaps: tuple[str, ...]


@dataclass(frozen=True)
class BackupCheck:
    """What a verification of a copy has found. `is_unfinished`: the last run was interrupted; the next one continues it.

    `snapshots`: how many were checked, of all branches. `violations`: those of `verify`.
    """

    copy: str
    snapshots: int
    branches: int
    is_unfinished: bool
    violations: tuple[Violation, ...]

    @property
    def errors(self) -> int:
        return sum(violation.severity == "error" for violation in self.violations)


@checks_arguments
class Backups(OpenedCatalog):
    """The methods of `Catalog` for backups. A backup is a table, too, in a directory of its own, which any reader can open."""

    @takes(DatabaseBackup)
    def backup(self, call: DatabaseBackup) -> list[BackupSummary]:
        """Copy all tables of a `database` with their histories below `destination`, to DATABASE.db/TABLE; see `Table.backup`.

        `on_done`: called with each result as soon as it is known. A table that fails does not stop the others. Raises
        `PartialSuccess` at the end then, or the error of the only table.
        """
        damaged: list[PaimonError] = []
        choice = TableChoice(database=call.database)
        done: list[BackupSummary] = []
        failed: list[tuple[str, PaimonError]] = []
        for chosen in chosen_tables(choice, self._locate, self._metastore, MAIN_BRANCH, damaged.append):
            try:
                table = self._open(chosen.locate())
                name = chosen.name.rpartition(".")[2]
                below = f"{os.fspath(call.destination).rstrip('/')}/{call.database}{DATABASE_SUFFIX}/{name}"
                done.append(table.backup(below, keep=call.keep, bandwidth=call.bandwidth))
            except PaimonError as error:
                failed.append((chosen.name, error))
            else:
                if call.on_done is not None:
                    call.on_done(done[-1])
        failed += [("an entry of the catalog", error) for error in damaged]
        if failed and not done and len(failed) == 1:
            raise failed[0][1]
        if failed:
            shown = "; ".join(f"{name}: {error.what}" for name, error in failed[:MAX_NAMED])
            raise PartialSuccess(
                f"{counted(len(failed), 'table')} of {call.database} could not be backed up",
                shown,
                "run it again once that is mended; what is copied is not copied again",
                tables=[name for name, _ in failed],
            )
        return done

    def backups(self, destination: str | os.PathLike[str]) -> list[BackupRow]:
        """The runs of the backup at a directory or URL, or of all backups of the databases in it, oldest first.

        Raises `NotFound` if there is none.
        """
        from paimon_cli.jobs.backup_job import gap_texts
        from paimon_cli.jobs.backup_records import BackupRecords

        rows = []
        for name, location in self._copies(destination):
            storage, root = location.open_storage()
            for run in BackupRecords(storage, TableLayout(root)).runs():
                values = {field: getattr(run, field) for field in _SHARED}
                rows.append(BackupRow(copy=name, run=run.number, gaps=gap_texts(run.gaps), **values))
        return rows

    @takes(BackupCheckCall)
    def verify_backup(self, call: BackupCheckCall) -> list[BackupCheck]:
        """Check that the backup at `destination`, or those of the databases in it, are whole: all versions of all branches."""
        from paimon_cli.jobs.backup_records import BackupRecords

        found = []
        for name, location in self._copies(call.destination):
            table = Table.at(location, {}, self.runtime, may_be_damaged=True)
            branches = table.context.branches.names()
            violations: list[Violation] = []
            snapshots = 0
            for branch in (MAIN_BRANCH, *branches):
                one = Table.at(location.at_branch(branch), {}, self.runtime, may_be_damaged=True)
                report = one.verify(call.level, all_snapshots=True)
                snapshots += report.snapshots
                violations += report.violations
            storage, root = location.open_storage()
            is_unfinished = BackupRecords(storage, TableLayout(root)).is_unfinished()
            found.append(BackupCheck(name, snapshots, len(branches), is_unfinished, tuple(violations)))
        return found

    @takes(RestoreCall)
    def restore(self, call: RestoreCall) -> Restored:
        """Make a `table` of a `backup`: at its latest snapshot, at the one that is named, or with its whole `history`.

        In an existing table the rows become a new snapshot, as by `rollback(as_new=True)`. Raises `NotFound` if there is no such
        backup or version.
        """
        from paimon_cli.jobs.restore_job import restore_table

        backup = self._open(self._copy_at(call.backup))
        target = locate_table(os.fspath(call.table), self.url, self._options, is_new=True)
        target = replace(target, allow_unsafe_commit=self._allow_unsafe_commit)
        with self.runtime.engine_running() as engine:
            return restore_table(backup.supported, target, RestoreOptions.of(call), engine, self.runtime.new_progress())

    def _copies(self, destination: str | os.PathLike[str]) -> Iterator[tuple[str, TableLocation]]:
        """The backups at a directory: one, or those of its databases."""
        at = self._copy_at(destination)
        storage, root = at.open_storage()
        if is_backup(storage, root):
            yield at.name, at
            return
        count = 0
        for database in sorted(entry.name for entry in storage.list_directory(root) if entry.is_directory):
            if not database.endswith(DATABASE_SUFFIX):
                continue
            for entry in sorted(storage.list_directory(f"{root}/{database}"), key=lambda entry: entry.name):
                if entry.is_directory and is_backup(storage, entry.path):
                    count += 1
                    name = f"{at.name}/{database}/{entry.name}"
                    yield name, replace(at, url=entry.path, name=name)
        if not count:
            raise NotFound(f"there is no backup at {at.name}", "no run has begun there", "name the DEST of a backup")

    def _copy_at(self, destination: str | os.PathLike[str]) -> TableLocation:
        text = os.fspath(destination)
        return locate_table(text if "/" in text else f"./{text}", self.url, self._options)


_SHARED = ("time", "source", "first_snapshot", "last_snapshot", "snapshots", "tags", "branches", "files", "size", "expired")
"""The fields of a run that its row has, too."""


def is_backup(storage: Any, root: str) -> bool:
    """Whether a directory is a backup, finished or not."""
    from paimon_cli.jobs.backup_records import BackupRecords

    return BackupRecords(storage, TableLayout(root)).exist()
