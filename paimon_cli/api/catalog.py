"""A catalog as an object: its databases, its tables, their commit locks, and compaction of several tables."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from paimon_cli.api.adoption import Adopting
from paimon_cli.api.arguments import checks_arguments, takes
from paimon_cli.api.backups import Backups
from paimon_cli.api.catalog_health import Examination
from paimon_cli.api.comparison import CompareCall, ComparedVersions
from paimon_cli.api.definition import NewTable, create_defined
from paimon_cli.api.ingestion import Ingesting
from paimon_cli.api.ledger import KeepsLedger
from paimon_cli.api.maintenance import Planned
from paimon_cli.api.opened_catalog import MAX_NAMED
from paimon_cli.api.policy import KeepsPolicy
from paimon_cli.api.runtime import Runtime
from paimon_cli.api.table import Table, TableDropped, plan_drop_of_entry
from paimon_cli.api.trash import DroppedTables
from paimon_cli.catalog.metastore.configuration_files import PROFILE
from paimon_cli.catalog.metastore.metastore import TableIdentifier, is_name, refuse_nul
from paimon_cli.catalog.metastore.settings import SettingRow, find_metastore, read_settings, split_profile
from paimon_cli.catalog.table_location import TableLocation, locate_table
from paimon_cli.errors import NotFound, Refused, UsageError
from paimon_cli.metadata.table_layout import MAIN_BRANCH
from paimon_cli.options.option_text import counted
from paimon_cli.requests.comparison import CompareOptions
from paimon_cli.requests.fields import Point, check_limit
from paimon_cli.requests.reading import SqlCall
from paimon_cli.storage.capabilities import link_target
from paimon_cli.storage.catalog_options import trash_millis

if TYPE_CHECKING:
    from paimon_cli.api.sql_result import SqlResult
    from paimon_cli.catalog.table_definition import TableDefinition
    from paimon_cli.catalog.table_listing import DatabaseRow, TableRow
    from paimon_cli.inspect.lock_report import LockReport, LockRow
    from paimon_cli.jobs.clone_job import ClonedTable
    from paimon_cli.jobs.comparison import Comparison
    from paimon_cli.jobs.restore_job import Restored
    from paimon_cli.storage.lock_table import HeldLock


@dataclass(frozen=True)
class DatabaseDrop:
    """A database to be dropped, and the tables that are dropped with it. `for_good`: some of them do not go to a trash."""

    database: str
    table_names: tuple[str, ...]
    for_good: bool = field(default=False, metadata={"shown": False})


class NewInCatalog(NewTable):
    """A table to create in a catalog."""

    name: str


@checks_arguments
class Catalog(Adopting, Backups, DroppedTables, Ingesting, KeepsLedger, KeepsPolicy, Examination):
    """The tables of a warehouse or of any directory.

    The warehouse is `url`, else `PAIMON_WAREHOUSE`, else the one in `./paimon.yaml`; tables named by paths need none.
    `options`: catalog options (`s3.endpoint`; `profile` selects a profile of that file), and table options, which override
    those stored in each table.


    >>> catalog = Catalog("lake")
    >>> catalog.create_table("shop.orders", columns=["id BIGINT NOT NULL"], primary_key="id", bucket=1)
    Table('shop.orders')
    >>> [(table.table, table.records) for table in catalog.tables()]
    [('shop.orders', 0)]
    >>> [done.state for done in catalog.compact(database="shop")]
    ['nothing to do']
    """

    def tables(
        self, place: str | None = None, *, database: str | None = None, after: str | None = None, limit: int | None = None
    ) -> list[TableRow]:
        """The tables of the warehouse or of `place`, a database or a directory.

        `after`, `limit`: only the first tables by name, or the first ones after this name; the others are not opened.

        A table that cannot be opened, or gives no answer in time (`table-timeout`, an option of the catalog), is listed with
        its problem. Raises `NotFound` if the database or directory does not exist.
        """
        from paimon_cli.catalog.table_listing import table_rows, tables_below, tables_of_database, tables_of_warehouse

        if place is not None and database is not None:
            raise UsageError(f"'{place}' cannot be combined with --database {database}", hint="remove one of them")
        place, options = database or place, self._options
        if place is not None:
            profile, rest = split_profile(place)
            place, options = rest or None, options if profile is None else {**options, PROFILE: profile}
        metastore = find_metastore(self.url, options)
        with self._warning_of_damage() as on_damage:
            if place is None:
                found = tables_of_warehouse(metastore, on_damage)
            elif is_name(place) and metastore.has_names:
                found = tables_of_database(place, metastore, on_damage)
            else:
                found = tables_below(place, metastore)
        if after is not None or limit is not None:
            check_limit(limit)
            by_name = sorted(found, key=lambda location: location.name)
            found = [location for location in by_name if after is None or location.name > after][:limit]
        return table_rows(found, metastore.table_seconds)

    def databases(self) -> list[DatabaseRow]:
        """The databases by name."""
        from paimon_cli.catalog.table_listing import database_rows

        with self._warning_of_damage() as on_damage:
            return database_rows(self._metastore, on_damage)

    def create_database(self, name: str, *, if_not_exists: bool = False) -> bool:
        """Create a database; returns False if it exists and `if_not_exists` is set. Raises `UsageError` otherwise."""
        refuse_nul(name)
        if not is_name(name):
            above, _, last = name.rstrip("/").rpartition("/")
            is_path = bool(above) and is_name(last)
            hint = f"paimon-cli db create {shlex.quote(last)} --warehouse {shlex.quote(above)}" if is_path else ""
            why = "it is a path; a database has a name, in a warehouse" if is_path else "it may not contain . / \\ or $"
            raise UsageError(f"'{name}' is not a valid database name", why, hint)
        metastore = self._metastore
        if if_not_exists:
            with suppress(NotFound):
                metastore.database(name)
                return False
        metastore.create_database(name)
        return True

    def plan_drop_database(self, name: str, *, cascade: bool = False, purge: bool = False) -> Planned[DatabaseDrop, DatabaseDrop]:
        """Plan to drop a database. Raises `UsageError` if it has tables, unless `cascade`.

        Its tables go to the trash, unless `purge`, or where the server of the catalog deletes files by itself.
        """
        from paimon_cli.catalog.warehouse_trash import trash_of_table

        metastore = self._metastore
        url = metastore.database(name).url
        target = None if url is None else link_target(*metastore.open_directory(url))
        if target is not None:
            why = "its tables are in another warehouse, and would be deleted there"
            raise Refused(f"database {name} is a link to {target}", why, "remove the link, or drop the tables where they are")
        tables = [TableLocation.of(table, metastore) for table in metastore.tables(name)]
        if tables and not cascade:
            shown = ", ".join(location.name for location in tables[:MAX_NAMED])
            raise UsageError(
                f"database {name} is not empty",
                f"it has {counted(len(tables), 'table')}: {shown}{', ...' if len(tables) > MAX_NAMED else ''}",
                f"drop them, or delete all of them with it: paimon-cli db drop {shlex.quote(name)} --cascade{metastore.flags}",
            )

        def run() -> DatabaseDrop:
            for location in tables:
                self._plan_drop(location, purge or not metastore.takes_files).run()
            metastore.drop_database(name)
            return plan

        is_kept = not purge and metastore.takes_files and trash_millis(metastore.storage_options) > 0
        for_good = not all(is_kept and trash_of_table(location, location.url) for location in tables)
        plan = DatabaseDrop(name, tuple(location.name for location in tables), for_good)
        return Planned(plan, run)

    def drop_database(self, name: str, *, cascade: bool = False, purge: bool = False) -> DatabaseDrop:
        """Drop a database; with `cascade`, drop its tables first, with `purge` for good; see `plan_drop_database`."""
        return self.plan_drop_database(name, cascade=cascade, purge=purge).run()

    @takes(NewInCatalog)
    def create_table(self, call: NewInCatalog) -> Table:
        """Create a table `name` and open it; see `Table.create`. Raises `AlreadyExists` if it exists, unless `if_not_exists`.

        - `options`: stored in the table, except catalog options. `strict_options`: raise `UsageError` for unknown ones.
        - `form`: a `TextForm`, if `from_file` is CSV or JSON.
        """
        place = {"warehouse": self.url, "allow_unsafe_commit": self._allow_unsafe_commit, "runtime": self.runtime}
        return Table.create(**{**vars(call), "options": {**self._options, **(call.options or {})}, **place})

    def plan_drop_table(self, name: str, *, purge: bool = False) -> Planned[TableDropped, TableDropped]:
        """Plan to drop a table; see `Table.plan_drop`.

        If the files of the table no longer exist, only its entry in the catalog is dropped, and nothing in its
        directory is deleted.
        """
        return self._plan_drop(self._locate(name), purge)

    def drop_table(self, name: str, *, purge: bool = False) -> TableDropped:
        """Move a table to the trash of its warehouse, or with `purge` delete it, and remove its entry in the catalog."""
        return self.plan_drop_table(name, purge=purge).run()

    def _plan_drop(self, location: TableLocation, purge: bool = False) -> Planned[TableDropped, TableDropped]:
        try:
            table = Table.at(location, self._table_options, self.runtime, may_be_damaged=True)
        except NotFound:
            if location.branch != MAIN_BRANCH or (entry := plan_drop_of_entry(location)) is None:
                raise
            return entry
        return table.plan_drop(purge=purge)

    def rename_table(self, old: str, new: str) -> None:
        """Rename a table of the catalog atomically. Stop its writers first.

        Raises `Refused` on stores that cannot move a directory atomically, `UsageError` if the new name is in use.
        """
        (profile, old), (of_new, new) = split_profile(old), split_profile(new)
        if of_new not in (None, profile):
            what = f"@{of_new}/{new} is in another profile"
            raise UsageError(what, "a table keeps its catalog", "tables clone copies it into another one")
        metastore = find_metastore(self.url, self._options if profile is None else {**self._options, PROFILE: profile})
        for name in (old, new):
            if "/" in name:
                raise UsageError(
                    f"'{name}' is a path, and tables are renamed by their names in a catalog",
                    "a catalog names a table db.table",
                    f"a copy may be named by a path: paimon-cli tables clone {shlex.quote(old)} {shlex.quote(new)}",
                )
        if "." not in old and (meant := metastore.similar_table(old)) is not None:
            what = f"'{old}' is not the name of a table in a catalog"
            raise UsageError(what, "a catalog names a table db.table", f"did you mean {meant.argument}?")
        metastore.rename_table(TableIdentifier.parse(old), TableIdentifier.parse(new))

    def clone_table(self, source: str, target: str) -> ClonedTable:
        """Copy the latest snapshot of a table, including its data files, into a new table."""
        from paimon_cli.jobs.clone_job import clone_table

        opened = self._open(self._locate(source))
        location = locate_table(target, self.url, self._options, is_new=True)
        return clone_table(opened.context, opened.name, replace(location, allow_unsafe_commit=self._allow_unsafe_commit))

    def settings(self) -> list[SettingRow]:
        """The configuration of the catalog, with the origin of each value. Secrets are hidden."""
        return read_settings(self.url, self._options).rows()

    @takes(CompareCall)
    def compare(self, call: CompareCall) -> Comparison:
        """Compare the rows of two tables, two versions of a table, or a table and files.

        A side is a table, `table@3` (at a snapshot), `table@nightly` (at a tag), or a file, glob or directory of files. `form`: a
        `TextForm` for CSV and JSON.
        """
        from paimon_cli.api.comparison import compare_sides

        return compare_sides(self, call)

    @takes(CompareOptions)
    def versions(self, call: CompareOptions) -> ComparedVersions:
        """Two versions of one table, for what lies between them: `file_changes()`, `changelog()`; named as for `compare`.

        Raises `UsageError` if the sides are not versions of one table.
        """
        from paimon_cli.api.comparison import compared_versions

        return compared_versions(self, call)

    @takes(SqlCall)
    def sql(self, call: SqlCall) -> SqlResult:
        """Run statements of SQL one after the other, and return what the last one answers.

        `query`: statements, separated by semicolons. Tables are `db.table`, or named by their paths in double quotes.
        DuckDB runs queries; it passes down columns and conditions, by which files are skipped. INSERT, UPDATE, DELETE,
        MERGE INTO and TRUNCATE are one commit each, as the methods of `Table` make it; `summary` of the result is what
        these return. CREATE, ALTER and DROP change definitions, without asking; `USE db` names the database of tables
        without one.

        Without `allow_files`, a query that opens files raises `Refused`. Raises `UsageError` for errors in the SQL, and if
        duckdb is not installed, `NotSupported` for other statements. If one of several statements fails, those before it
        stay committed, and its error says which.

        >>> catalog = Catalog("lake")
        >>> catalog.create_table("shop.items", columns=["id BIGINT NOT NULL", "name STRING"], primary_key="id", bucket=1)
        Table('shop.items')
        >>> catalog.sql("INSERT INTO shop.items VALUES (1, 'a'), (2, 'b')").summary.rows
        2
        >>> catalog.sql("SELECT name FROM shop.items WHERE id = :id", params={"id": 2}).to_arrow().to_pylist()
        [{'name': 'b'}]
        """
        from paimon_cli.api.sql_session import SqlSession

        return SqlSession(self, params=call.params, allow_files=call.allow_files).last(call.query)

    def _create_defined(self, name: str, definition: TableDefinition) -> bool:
        """Create the table of a CREATE TABLE statement; False if it exists, and the statement allows that."""
        location = locate_table(name, self.url, self._options, is_new=True)
        definition = replace(definition, options={**definition.options, **self._table_options})
        created = create_defined(replace(location, allow_unsafe_commit=self._allow_unsafe_commit), definition)
        for warning in created.warnings:
            self.runtime.warn(warning)
        return created.created

    def locks(self, table: str | None = None) -> LockReport:
        """How concurrent commits to a table, or in the warehouse, exclude each other, and the commit locks that are held.

        If only a test can tell, as on S3, two writers race for a probe file, which is removed afterwards.
        """
        from paimon_cli.inspect.lock_report import table_lock, warehouse_locks

        if table is None:
            return warehouse_locks(self._metastore)
        location = self._locate(table)
        context = self._open(location).supported
        return table_lock(location, context.storage, context.layout.root)

    def plan_break_lock(self, table: str, *, even_if_valid: bool = False) -> Planned[HeldLock, LockRow]:
        """Plan to break the commit lock of a table. Raises `Refused` while it is valid, unless `even_if_valid`."""
        from paimon_cli.inspect.lock_report import break_held_lock, breakable_lock

        location = self._locate(table)
        settings, lock = breakable_lock(location, self._open(location).context.layout.root, even_if_valid=even_if_valid)
        return Planned(lock, lambda: break_held_lock(location, settings, lock))

    def break_lock(self, table: str, *, even_if_valid: bool = False) -> LockRow:
        """Break the commit lock of a table whose holder died. Writers take over expired locks by themselves."""
        return self.plan_break_lock(table, even_if_valid=even_if_valid).run()


def restore(
    backup: str | os.PathLike[str],
    table: str | os.PathLike[str],
    *,
    snapshot: Point | None = None,
    tag: str | None = None,
    as_of: Point | None = None,
    history: bool = False,
    warehouse: str | None = None,
    options: Mapping[str, Any] | None = None,
    runtime: Runtime | None = None,
) -> Restored:
    """Make a table of a backup; see `Catalog.restore`. `options`: of the catalog, such as `s3.endpoint`."""
    catalog = Catalog(warehouse, options, runtime=runtime)
    return catalog.restore(backup, table, snapshot=snapshot, tag=tag, as_of=as_of, history=history)
