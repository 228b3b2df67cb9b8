"""Paimon's JDBC catalog: databases and tables are rows in a SQL database, files are in WAREHOUSE/db.db/table (Java JdbcCatalog).

The SQL tables are those of Java (FORMAT.md, section 14.1), so Java and pypaimon can use the same database.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, Engine, MetaData, Table, delete, insert, inspect, select, update
from sqlalchemy.exc import IntegrityError

from paimon_cli.catalog.metastore.metastore import (
    Database,
    Metastore,
    OnDamage,
    RegisteredTable,
    TableIdentifier,
    listed_properties,
    readable,
)
from paimon_cli.errors import AlreadyExists, StorageUnavailable, UsageError
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.storage.capabilities import remove_empty_directory
from paimon_cli.storage.catalog_options import DatabaseAddress
from paimon_cli.storage.directories import MAX_SIMILAR
from paimon_cli.storage.sql_database import Text, as_stored, checked_text, database_errors, open_database
from paimon_cli.storage.threads import cached_property

CATALOG = "the jdbc catalog"
LOCATION, _EXISTS = "location", "exists"
"""Properties of a database: its directory, and a marker that records an empty database."""
_NEW_NAME = "paimon-cli.new-name"
"""Property of a table while it is renamed: what a repeated rename needs if the first one was killed after the move."""


def _column(name: str, length: int = 255, is_key: bool = True) -> Column[Any]:
    return Column(name, Text(length), primary_key=is_key, nullable=not is_key)


_METADATA = MetaData()
_TABLES = Table("paimon_tables", _METADATA, _column("catalog_key"), _column("database_name"), _column("table_name"))
DATABASE_PROPERTIES = Table(
    "paimon_database_properties",
    _METADATA,
    _column("catalog_key"),
    _column("database_name"),
    _column("property_key"),
    _column("property_value", 1000, False),
)
TABLE_PROPERTIES = Table(
    "paimon_table_properties",
    _METADATA,
    _column("catalog_key"),
    _column("database_name"),
    _column("table_name"),
    _column("property_key"),
    _column("property_value", 1000, False),
)
VIEWS = Table("paimon_views", MetaData(), _column("catalog_key"), _column("database_name"), _column("view_name"))
"""Views of newer Java versions, which share the names of tables. paimon-cli never creates this table."""


def _moved_already() -> None:
    """The move of a rename that goes on after it."""


@dataclass(frozen=True)
class JdbcMetastore(Metastore):
    """A JDBC catalog. `catalog-key` distinguishes catalogs in one database; `sync-all-properties` copies table options."""

    kind = "jdbc"

    def databases(self, on_damage: OnDamage | None = None) -> list[Database]:
        with self._connected() as connection:
            queries = [
                select(as_stored(table.c.database_name)).where(self._of(table)) for table in (_TABLES, DATABASE_PROPERTIES)
            ]
            rows = (value for query in queries for value in connection.scalars(query.distinct()))
            names = set(readable(rows, checked_text, on_damage))
            return readable(sorted(names), partial(self._database, connection), on_damage)

    def database(self, name: str) -> Database:
        with self._connected() as connection:
            self._expect_database(connection, name)
            return self._database(connection, name)

    def create_database(self, name: str) -> None:
        url = self.open_directory(self.directory_of(name))[1]
        with self._connected() as connection:
            properties = {_EXISTS: "true", LOCATION: url}
            try:
                row = {"catalog_key": self._key, "database_name": name}
                rows = [row | {"property_key": key, "property_value": value} for key, value in properties.items()]
                connection.execute(insert(DATABASE_PROPERTIES), rows)
            except IntegrityError:
                raise AlreadyExists(f"database {name} already exists", "the jdbc catalog has it") from None

    def drop_database(self, name: str) -> None:
        storage, root = self.open_directory(self.directory_of(name))
        with self._connected() as connection:
            self._expect_database(connection, name)
            if self._views(connection, name):
                raise UsageError(f"database {name} is not empty", "it has views", "drop them with the engine that created them")
            for table in (_TABLES, DATABASE_PROPERTIES, TABLE_PROPERTIES):
                connection.execute(delete(table).where(self._of(table, name)))
        with contextlib.suppress(StorageUnavailable):  # the catalog has forgotten it, and an empty directory does no harm
            remove_empty_directory(storage, root)

    def tables(self, database: str, on_damage: OnDamage | None = None) -> list[RegisteredTable]:
        with self._connected() as connection:
            self._expect_database(connection, database)
            rows = connection.scalars(select(as_stored(_TABLES.c.table_name)).where(self._of(_TABLES, database)))
            names = sorted(readable(rows, checked_text, on_damage))
        identifiers = [TableIdentifier(database, name) for name in names]
        return readable(identifiers, lambda identifier: RegisteredTable(identifier, self._url(identifier)), on_damage)

    def table(self, identifier: TableIdentifier) -> RegisteredTable:
        with self._connected() as connection:
            if not self._has(connection, identifier):
                self._expect_database(connection, *identifier)
                raise self.no_table(identifier)
        return RegisteredTable(identifier, self._url(identifier))

    def url_of_new_table(self, identifier: TableIdentifier) -> str:
        with self._connected() as connection:
            self._expect_database(connection, identifier.database)
        return self._url(identifier)

    def create_table(self, identifier: TableIdentifier, schema: TableSchema, publish: Callable[[], bool]) -> bool:
        with self._connected() as connection:
            if identifier.table in self._views(connection, identifier.database):
                raise AlreadyExists(f"{identifier} already exists", "it is a view", "choose another name")
            if self._has(connection, identifier):
                return False
        if not publish() and not self.is_unfinished_creation(self._url(identifier), schema):
            with self._connected() as connection:
                if self._has(connection, identifier):
                    return False
            raise self.unknown_files(identifier, self._url(identifier))
        with self._connected() as connection:
            try:
                connection.execute(insert(_TABLES).values(**self._row(identifier)))
            except IntegrityError:
                return False
            self._put_properties(connection, identifier, schema)
        return True

    def drop_table(self, identifier: TableIdentifier, delete_files: Callable[[], None]) -> None:
        """Remove the entry last, so that a drop that was interrupted can be repeated under the same name."""
        delete_files()
        with self._connected() as connection:
            for table in (_TABLES, TABLE_PROPERTIES):
                connection.execute(delete(table).where(self._of(table, *identifier)))

    def rename_table(self, old: TableIdentifier, new: TableIdentifier) -> None:
        """Rename the entry. The directory is moved within the transaction: if that fails, the old name stays. If the transaction
        fails after the move, a repeated rename finishes it.
        """
        old_url, new_url = self.table(old).url, self.url_of_new_table(new)
        if self._is_moved(old, old_url, new, new_url):
            move = _moved_already
        else:
            move = self.mover(old, old_url, new, new_url)
            with self._connected() as connection:
                self._check_new_name(connection, old, new)
                self._forget_new_name(connection, old)
                row = self._row(old) | {"property_key": _NEW_NAME, "property_value": str(new)}
                connection.execute(insert(TABLE_PROPERTIES), row)
        with self._connected() as connection:
            self._check_new_name(connection, old, new)
            connection.execute(delete(TABLE_PROPERTIES).where(self._of(TABLE_PROPERTIES, *new)))
            self._forget_new_name(connection, old)
            try:
                for table in (_TABLES, TABLE_PROPERTIES):
                    named = {"database_name": new.database, "table_name": new.table}
                    connection.execute(update(table).where(self._of(table, *old)).values(**named))
            except IntegrityError:
                raise UsageError(f"cannot rename {old} to {new}", f"{new} exists", "choose another name") from None
            move()

    def _check_new_name(self, connection: Connection, old: TableIdentifier, new: TableIdentifier) -> None:
        if new.table in self._views(connection, new.database):
            raise UsageError(f"cannot rename {old} to {new}", f"{new} is a view", "choose another name")
        if self._has(connection, new):
            raise UsageError(f"cannot rename {old} to {new}", f"{new} exists", "choose another name")

    def _is_moved(self, old: TableIdentifier, old_url: str, new: TableIdentifier, new_url: str) -> bool:
        """Whether an earlier rename has moved the directory, and nothing else."""
        row = TABLE_PROPERTIES.c
        with self._connected() as connection:
            wanted = self._of(TABLE_PROPERTIES, *old) & (row.property_key == _NEW_NAME)
            if connection.scalar(select(row.property_value).where(wanted)) != str(new) or self._has(connection, new):
                return False
        return self.has_schema(new_url) and not self.has_schema(old_url)

    def _forget_new_name(self, connection: Connection, old: TableIdentifier) -> None:
        named = TABLE_PROPERTIES.c.property_key == _NEW_NAME
        connection.execute(delete(TABLE_PROPERTIES).where(self._of(TABLE_PROPERTIES, *old) & named))

    def alter_table(self, identifier: TableIdentifier, old: TableSchema, new: TableSchema) -> list[str]:
        with self._connected() as connection:
            self._put_properties(connection, identifier, new)
        return []

    @property
    def _key(self) -> str:
        return self.options.get("catalog-key", "jdbc")

    @cached_property
    def _address(self) -> DatabaseAddress:
        return DatabaseAddress.of(self.options)

    @cached_property
    def _engine(self) -> Engine:
        return open_database(self._address, CATALOG, in_transactions=True)

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Connection]:
        """One transaction. The first one creates the SQL tables of the catalog, as in Java."""
        with database_errors(self._address, CATALOG), self._engine.begin() as connection:
            if not inspect(connection).has_table(TABLE_PROPERTIES.name):
                _METADATA.create_all(connection)
            yield connection

    def _url(self, identifier: TableIdentifier) -> str:
        return self.directory_below(self.directory_of(identifier.database), identifier)

    def _of(self, table: Table, database: str | None = None, name: str | None = None) -> ColumnElement[bool]:
        """A condition for the rows of this catalog, of one of its databases, or of one of its tables."""
        found: ColumnElement[bool] = table.c.catalog_key == self._key
        if database is not None:
            found &= table.c.database_name == database
        return found if name is None else found & (table.c.table_name == name)

    def _row(self, identifier: TableIdentifier) -> dict[str, str]:
        return {"catalog_key": self._key, "database_name": identifier.database, "table_name": identifier.table}

    def _has(self, connection: Connection, identifier: TableIdentifier) -> bool:
        return connection.execute(select(_TABLES).where(self._of(_TABLES, *identifier))).first() is not None

    def _views(self, connection: Connection, database: str) -> list[str]:
        if not inspect(connection).has_table(VIEWS.name):
            return []
        return list(connection.scalars(select(VIEWS.c.view_name).where(self._of(VIEWS, database))))

    def _expect_database(self, connection: Connection, name: str, wanted: str | None = None) -> None:
        """Raise `NotFound` if there is no such database, in which the table `wanted` is looked for."""
        for table in (DATABASE_PROPERTIES, _TABLES):
            if connection.execute(select(table.c.database_name).where(self._of(table, name)).limit(1)).first() is not None:
                return
        if not self._views(connection, name):
            raise self.no_database(name, wanted)

    def some_names(self, database: str | None = None) -> Iterable[str]:
        """In one more transaction."""
        named = _TABLES.c.database_name if database is None else _TABLES.c.table_name
        wanted = self._of(_TABLES) if database is None else self._of(_TABLES, database)
        queries = [select(named).where(wanted).distinct().limit(MAX_SIMILAR)]
        if database is None:
            properties = DATABASE_PROPERTIES
            queries.append(select(properties.c.database_name).where(self._of(properties)).distinct().limit(MAX_SIMILAR))
        with self._connected() as connection:
            return [name for query in queries for name in connection.scalars(query)]

    def _database(self, connection: Connection, name: str) -> Database:
        """A database with the location that Java shows; its tables are always below the warehouse."""
        row = DATABASE_PROPERTIES.c
        wanted = self._of(DATABASE_PROPERTIES, name) & (row.property_key == LOCATION)
        return Database(name, connection.scalar(select(row.property_value).where(wanted)) or self.directory_of(name))

    def _put_properties(self, connection: Connection, identifier: TableIdentifier, schema: TableSchema) -> None:
        """Replace the properties of an older schema, or of an earlier table with this name."""
        connection.execute(delete(TABLE_PROPERTIES).where(self._of(TABLE_PROPERTIES, *identifier)))
        if self.options.get("sync-all-properties", "true").lower() != "true":
            return
        row = self._row(identifier)
        rows = [row | {"property_key": key, "property_value": value} for key, value in listed_properties(schema).items()]
        if rows:
            connection.execute(insert(TABLE_PROPERTIES), rows)
