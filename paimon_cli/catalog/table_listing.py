"""`db ls` and `tables ls`: the databases and tables of a warehouse, a database or any directory (FORMAT.md, section 14.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paimon_cli.catalog.metastore.filesystem import FileSystemMetastore, tables_in
from paimon_cli.catalog.metastore.metastore import DATABASE_SUFFIX, Metastore, OnDamage
from paimon_cli.catalog.open_table import open_table
from paimon_cli.catalog.table_location import TableLocation
from paimon_cli.errors import NotSupported, PaimonError, TookTooLong
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_mode import TableMode
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.table_options import TableOptions
from paimon_cli.storage.redaction import without_login
from paimon_cli.storage.time_bounds import look_at_each

OPENED_AT_ONCE = 16
"""The number of tables opened at a time; on an object store each takes a few slow requests."""


@dataclass(frozen=True)
class DatabaseRow:
    """One database of a warehouse. `path`: its directory, if it has one."""

    database: str
    tables: int
    path: str | None


@dataclass(frozen=True)
class TableRow:
    """One table at its latest snapshot. `records`: counted before merging; `time`: of the latest commit, epoch millis.

    `waiting_records`: those that reads do not show before a compaction; only tables that can have any are searched for them.
    `problem`: why the table cannot be opened, and `problem_code` the code of that error; the other fields are None then.
    """

    table: str
    path: str
    primary_keys: tuple[str, ...] = ()
    partition_keys: tuple[str, ...] = ()
    bucket: str | None = None
    columns: int | None = None
    records: int | None = None
    waiting_records: int | None = None
    snapshot_id: int | None = None
    time: int | None = None
    comment: str | None = None
    problem: str | None = None
    problem_code: str | None = None

    @property
    def is_unanswered(self) -> bool:
        """Whether the table gave no answer in time, so that the listing is not complete."""
        return self.problem_code == TookTooLong.code


def tables_of_database(database: str, metastore: Metastore, on_damage: OnDamage | None = None) -> list[TableLocation]:
    """All tables of a database by name. Raises `NotFound` if the database does not exist.

    `on_damage`: receives the errors of entries of the catalog that are damaged, which are left out; without it they are raised.
    """
    tables = metastore.tables(database, on_damage)
    if not tables:
        metastore.database(database)
    return [TableLocation.of(table, metastore) for table in tables]


def tables_of_warehouse(metastore: Metastore, on_damage: OnDamage | None = None) -> list[TableLocation]:
    """All tables of all databases, named `db.table`. Raises `NotFound` if the warehouse does not exist.

    `on_damage`: as for `tables_of_database`.
    """
    databases = metastore.databases(on_damage)
    return [TableLocation.of(table, metastore) for database in databases for table in metastore.tables(database.name, on_damage)]


def tables_below(directory: str, metastore: Metastore) -> list[TableLocation]:
    """The tables in a directory and in its databases, named by their paths. Raises `NotFound` if it does not exist."""
    catalog = FileSystemMetastore(directory, metastore.storage_options)
    prefix = f"{without_login(directory).rstrip('/')}/"
    found = []
    for subdirectory, url in [("", directory), *((f"{name}{DATABASE_SUFFIX}/", url) for name, url in catalog.databases())]:
        storage, root = catalog.open_directory(url or directory)
        found += [(f"{prefix}{subdirectory}{name}", path) for name, path in tables_in(storage, root, metastore.table_seconds)]
    options = metastore.storage_options
    return [TableLocation(path, name, storage_options=options, metastore=metastore) for name, path in found]


def database_rows(metastore: Metastore, on_damage: OnDamage) -> list[DatabaseRow]:
    """The databases by name, including those without tables. `on_damage`: as for `tables_of_database`."""
    found = metastore.databases(on_damage)
    return [DatabaseRow(name, len(metastore.tables(name, on_damage)), url and without_login(url)) for name, url in found]


def table_rows(locations: Sequence[TableLocation], seconds: float) -> list[TableRow]:
    """One row per table. A table that cannot be opened, or gives no answer in `seconds`, is listed with its problem."""
    found = look_at_each(_table_row, locations, seconds, OPENED_AT_ONCE, lambda location: location.name)
    rows = zip(locations, found, strict=True)
    return [_with_problem(location, row) if isinstance(row, PaimonError) else row for location, row in rows]


def _with_problem(location: TableLocation, error: PaimonError) -> TableRow:
    return TableRow(location.name, without_login(location.url), problem=error.message, problem_code=error.code)


def _table_row(location: TableLocation) -> TableRow:
    table = open_table(location)
    schema, snapshot = table.schemas.latest(), table.snapshot()
    return TableRow(
        table=location.name,
        path=without_login(location.url),
        primary_keys=schema.primary_keys,
        partition_keys=schema.partition_keys,
        bucket=schema.options.get("bucket", "-1"),
        columns=len(schema.fields),
        records=0 if snapshot is None else snapshot.total_record_count,
        waiting_records=_waiting_records(table, schema, snapshot),
        snapshot_id=None if snapshot is None else snapshot.id,
        time=None if snapshot is None else snapshot.time_millis,
        comment=schema.comment,
    )


def _waiting_records(table: TableContext, schema: TableSchema, snapshot: Snapshot | None) -> int | None:
    """How many records wait for a compaction; None for a table that this version cannot read."""
    if not TableMode.of(schema, TableOptions(schema.options)).hides_files:
        return 0
    from paimon_cli.history.waiting_records import waiting_records  # reads manifests, which most listings do not need

    try:
        return waiting_records(table, snapshot)
    except NotSupported:
        return None
