"""Lists databases and tables of a warehouse, of a database, or in any directory (FORMAT.md, section 14.1)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from paimon_cli.catalog.table import CatalogTable
from paimon_cli.catalog.table_location import TableLocation, Warehouse, find_warehouse
from paimon_cli.errors import NotFound, PaimonError
from paimon_cli.history.snapshots_and_schemas import SchemaHistory
from paimon_cli.metadata.table_layout import TableLayout
from paimon_cli.storage.storage import FileStatus, Storage
from paimon_cli.storage.storage_for_url import storage_for_url
from paimon_cli.storage.threads import in_parallel

DATABASE_SUFFIX = ".db"
OPENED_AT_ONCE = 16
"""Number of tables opened at a time: on an object store each takes a few slow requests."""


@dataclass(frozen=True)
class DatabaseRow:
    """One database of a warehouse; `path` is its directory."""

    database: str
    tables: int
    path: str


@dataclass(frozen=True)
class TableRow:
    """One table at its latest snapshot; `records` are counted before merging. `problem`: why it cannot be opened.

    `time` is that of the latest commit, in epoch millis.
    """

    table: str
    path: str
    primary_keys: tuple[str, ...] = ()
    partition_keys: tuple[str, ...] = ()
    bucket: str | None = None
    columns: int | None = None
    records: int | None = None
    snapshot_id: int | None = None
    time: int | None = None
    comment: str | None = None
    problem: str | None = None


def tables_of_database(
    database: str, warehouse: str | None = None, options: Mapping[str, str] | None = None
) -> list[TableLocation]:
    """All tables of WAREHOUSE/database.db by name: the directories in it that hold a schema. `NotFound` if there are none."""
    found = find_warehouse(warehouse, options=options)
    storage, root = storage_for_url(found.database_url(database), found.storage_options)
    tables = list(_tables_in(storage, root, f"{database}.", found))
    if not tables:
        raise NotFound(
            f"no tables in database {database}", f"{root} holds none", "check --warehouse and the name of the database"
        )
    return tables


def tables_of_warehouse(warehouse: Warehouse) -> list[TableLocation]:
    """All tables of all databases, named `db.table`; `NotFound` if the warehouse does not exist."""
    storage, root = _opened(warehouse)
    return [
        table
        for entry in _databases(storage, root)
        for table in _tables_in(storage, entry.path, f"{entry.name.removesuffix(DATABASE_SUFFIX)}.", warehouse)
    ]


def tables_below(directory: str, options: Mapping[str, str] | None = None) -> list[TableLocation]:
    """The tables in a directory and in the databases in it, named by their paths; `NotFound` if it does not exist."""
    place = find_warehouse(directory, options=options)
    storage, root = _opened(place)
    prefix = f"{directory.rstrip('/')}/"
    inside = list(_tables_in(storage, root, prefix, place))
    for entry in _databases(storage, root):
        inside += _tables_in(storage, entry.path, f"{prefix}{entry.name}/", place)
    return inside


def database_rows(warehouse: Warehouse) -> list[DatabaseRow]:
    """The databases by name, also those without tables."""
    storage, root = _opened(warehouse)
    rows = []
    for entry in _databases(storage, root):
        tables = sum(1 for _ in _tables_in(storage, entry.path, "", warehouse))
        rows.append(DatabaseRow(entry.name.removesuffix(DATABASE_SUFFIX), tables, entry.path))
    return rows


def table_rows(locations: Iterable[TableLocation]) -> list[TableRow]:
    """A row for each table; a table that cannot be opened is listed with its problem."""
    return list(in_parallel(_table_row, locations, OPENED_AT_ONCE))


def _table_row(location: TableLocation) -> TableRow:
    try:
        table = CatalogTable.open(location)
        schema, snapshot = table.schemas.latest(), table.snapshots.latest()
    except PaimonError as error:
        return TableRow(location.name, location.url, problem=error.message)
    return TableRow(
        table=location.name,
        path=location.url,
        primary_keys=schema.primary_keys,
        partition_keys=schema.partition_keys,
        bucket=schema.options.get("bucket", "-1"),
        columns=len(schema.fields),
        records=0 if snapshot is None else snapshot.total_record_count,
        snapshot_id=None if snapshot is None else snapshot.id,
        time=None if snapshot is None else snapshot.time_millis,
        comment=schema.comment,
    )


def _opened(place: Warehouse) -> tuple[Storage, str]:
    storage, root = storage_for_url(place.root_url(), place.storage_options)
    if not storage.list_directory(root) and not storage.exists(root):
        raise NotFound(f"nothing exists at {root}", "there is no such directory", "check --warehouse, or name a directory")
    return storage, root


def _databases(storage: Storage, root: str) -> Iterator[FileStatus]:
    entries = sorted(storage.list_directory(root), key=lambda entry: entry.name)
    return (entry for entry in entries if entry.is_directory and entry.name.endswith(DATABASE_SUFFIX))


def _tables_in(storage: Storage, root: str, prefix: str, place: Warehouse) -> Iterator[TableLocation]:
    """The directories in `root` that hold a schema, named by `prefix` and their own name."""
    for name in sorted(entry.name for entry in storage.list_directory(root) if entry.is_directory):
        if SchemaHistory(storage, TableLayout(f"{root}/{name}")).ids():
            yield TableLocation(f"{root}/{name}", f"{prefix}{name}", False, place.storage_options)
