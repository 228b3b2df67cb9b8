"""The interface of a catalog: databases and tables by name, their locations, and the locks of their commits.

A table consists of files, wherever it is registered. A catalog records the location, and is notified when a table is created,
altered, dropped or renamed.
"""

from __future__ import annotations

import os
import re
import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from paimon_cli.errors import (
    DamagedFile,
    NotFound,
    NotSupported,
    PaimonError,
    Refused,
    StorageUnavailable,
    TableNotFound,
    UsageError,
)
from paimon_cli.history.schema_history import SchemaHistory
from paimon_cli.history.snapshot_history import SnapshotHistory
from paimon_cli.metadata.table_layout import TableLayout
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.option_text import did_you_mean, nearest
from paimon_cli.storage.capabilities import directories_of
from paimon_cli.storage.catalog_options import store_options, table_seconds
from paimon_cli.storage.directories import MAX_SIMILAR, only_directory_with
from paimon_cli.storage.external_storage import AllowedPlaces
from paimon_cli.storage.storage import Storage
from paimon_cli.storage.storage_for_url import storage_for_url
from paimon_cli.storage.web_address import AllowedHosts

if TYPE_CHECKING:
    from paimon_cli.maintain.mark_done import PartitionMarks

DATABASE_SUFFIX = ".db"
SEARCHED_DATABASES = 20
"""The most databases in which a table is looked for that was named without one."""
OnDamage = Callable[[PaimonError], None]
T = TypeVar("T")
R = TypeVar("R")
_NAME = re.compile(r"[^./\\$\0]+")
_SEPARATORS = frozenset("/\\")


class TableIdentifier(NamedTuple):
    """The name of a table in a catalog."""

    database: str
    table: str

    def __str__(self) -> str:
        return f"{self.database}.{self.table}"

    @property
    def argument(self) -> str:
        """The name as a quoted argument of a command, for hints."""
        return shlex.quote(str(self))

    @staticmethod
    def parse(name: str) -> TableIdentifier:
        """Parse `db.table`. Raises `UsageError` for anything else."""
        refuse_nul(name)
        database, dot, table = name.partition(".")
        if not dot or not is_name(database) or not is_name(table):
            raise UsageError(
                f"'{name}' is not the name of a table in a catalog",
                "it must have exactly one dot",
                "name it as db.table, together with --warehouse",
            )
        return TableIdentifier(database, table)


def is_name(text: str) -> bool:
    """Whether the text is a valid name of a database or table."""
    return _NAME.fullmatch(text) is not None


def refuse_nul(name: str) -> None:
    """Raise `UsageError` for a NUL character, which databases store, but no file system does."""
    if "\0" in name:
        raise UsageError("a name or path holds a NUL character", "no file or directory can have such a name")


class Database(NamedTuple):
    """A database and its directory, if it has one."""

    name: str
    url: str | None


class RegisteredTable(NamedTuple):
    """A table of a catalog and its directory; `uuid`: its id in the catalog, if it has one."""

    identifier: TableIdentifier
    url: str
    uuid: str | None = None


def plain_path(location: str) -> str:
    """A location written by Java as a path: `file:/a` and `file:///a` become `/a`."""
    return f"/{location.removeprefix('file:').lstrip('/')}" if location.startswith("file:") else location


def is_absolute(location: str) -> bool:
    """Whether a location of a catalog means one place, and not another one in each working directory."""
    return location.startswith("/") or "://" in location or location.startswith("file:")


@dataclass(frozen=True)
class Metastore(ABC):
    """A catalog. `options`: catalog options (endpoint, credentials, commit lock; see `storage.catalog_options`).

    `flags`: the flags, each after a space, with which commands in hints find the same catalog. `report_hosts`: where the user
    lets options of tables send reports. `external_places`: where the user lets tables keep data files. `table_seconds`: the time
    of one look at a table, where several are looked at.
    """

    warehouse: str | None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    flags: str = ""
    report_hosts: AllowedHosts = field(default_factory=AllowedHosts)
    external_places: AllowedPlaces = field(default_factory=AllowedPlaces)
    table_seconds: float = table_seconds({})

    kind: ClassVar[str]
    takes_files: ClassVar[bool] = True
    """Whether a new table may be registered with existing files; otherwise the server creates its files."""

    keeps_entries: ClassVar[bool] = True
    """Whether it stores entries apart from the files, so that an entry may remain without its table."""

    @property
    def storage_options(self) -> Mapping[str, str]:
        """The options for opening the storage of its tables."""
        return self.options

    @property
    def has_names(self) -> bool:
        """Whether `db.table` means a table of this catalog."""
        return True

    @abstractmethod
    def databases(self, on_damage: OnDamage | None = None) -> list[Database]:
        """All databases, by name. `on_damage`: as for `readable`."""

    @abstractmethod
    def database(self, name: str) -> Database:
        """One database. Raises `NotFound` if it does not exist."""

    @abstractmethod
    def create_database(self, name: str) -> None:
        """Create a database. Raises `UsageError` if it exists."""

    @abstractmethod
    def drop_database(self, name: str) -> None:
        """Drop an empty database. Raises `UsageError` if it is not empty."""

    @abstractmethod
    def tables(self, database: str, on_damage: OnDamage | None = None) -> list[RegisteredTable]:
        """The tables of a database, by name. Raises `NotFound` if the database does not exist. `on_damage`: as for `readable`."""

    @abstractmethod
    def table(self, identifier: TableIdentifier) -> RegisteredTable:
        """The entry of a table. Raises `NotFound` if the catalog knows that there is none."""

    @abstractmethod
    def url_of_new_table(self, identifier: TableIdentifier) -> str:
        """The URL at which a table with this name would be created. Raises `NotFound` if the database does not exist."""

    @abstractmethod
    def create_table(self, identifier: TableIdentifier, schema: TableSchema, publish: Callable[[], bool]) -> bool:
        """Create a table; returns False if it exists. `publish` writes its schema file, and returns False if there is one."""

    @abstractmethod
    def drop_table(self, identifier: TableIdentifier, delete_files: Callable[[], None]) -> None:
        """Drop a table. `delete_files` deletes its files."""

    @abstractmethod
    def rename_table(self, old: TableIdentifier, new: TableIdentifier) -> None:
        """Rename a table and move its files. Raises `Refused` if its directory cannot be moved atomically."""

    def change_schema(self, identifier: TableIdentifier, changes: Sequence[Mapping[str, Any]]) -> None:
        """Ask the server to create the next schema, if `takes_files` is False. `changes`: as in Paimon's REST API."""
        raise self.unsupported("changing a schema")

    @abstractmethod
    def alter_table(self, identifier: TableIdentifier, old: TableSchema, new: TableSchema) -> list[str]:
        """Update the entry after a new schema was written; returns warnings about changes that the catalog refused."""

    def guarded(self, storage: Storage, root: str, identifier: TableIdentifier | None) -> Storage:
        """The storage of a table, with the commit lock of this catalog. `identifier`: None for a table named by its path."""
        return storage

    def partition_marks(self, identifier: TableIdentifier, branch: str) -> PartitionMarks:
        """The catalog's own ways to mark a partition of a table as done, by the name of the action."""
        return {}

    def root_url(self, wanted: str = "tables", database: str | None = None) -> str:
        """The URL of the warehouse. Raises `UsageError`, which names what is `wanted`, and what is nearby, if there is none."""
        if self.warehouse is None:
            hint, nearby = "pass --warehouse URI, or name a path instead", only_directory_with(DATABASE_SUFFIX)
            if nearby is not None:
                hint = f"did you mean --warehouse {shlex.quote(nearby)}?"
            elif database is not None and os.path.isdir(database):
                hint = f"there is a directory {shlex.quote(database)}: name a table in it by its path, such as ./{database}/TABLE"
            raise UsageError(
                f"no warehouse to look for {wanted} in",
                "neither --warehouse nor PAIMON_WAREHOUSE nor ./paimon.yaml names one",
                hint,
            )
        return self.warehouse

    def directory_of(self, database: str) -> str:
        """The directory WAREHOUSE/DATABASE.db. Raises `DamagedFile` for an entry of the catalog whose directory is elsewhere."""
        return f"{self.root_url(f'database {database}', database).rstrip('/')}/{self._own(database)}{DATABASE_SUFFIX}"

    def directory_below(self, database_url: str, identifier: TableIdentifier) -> str:
        """The directory of a table in that of its database. Raises `DamagedFile` as `directory_of` does."""
        return f"{database_url}/{self._own(identifier.table)}"

    def _own(self, name: str) -> str:
        """The name, unless it leads elsewhere as a part of a path: `../x` may be in the database of a catalog."""
        if name not in ("", ".", "..") and not _SEPARATORS.intersection(name):
            return name
        why = "databases and tables cannot have such a name, and its files would be somewhere else"
        raise DamagedFile(f"the {self.kind} catalog has an entry '{name}'", why, "remove the entry from the catalog's own tables")

    def open_directory(self, url: str) -> tuple[Storage, str]:
        """The storage of a directory and its path there, to look for databases and tables."""
        return storage_for_url(url, store_options(self.options))

    def has_schema(self, url: str) -> bool:
        """Whether there is a table at the URL."""
        storage, root = self.open_directory(url)
        return bool(SchemaHistory(storage, TableLayout(root)).ids())

    def is_unfinished_creation(self, url: str, schema: TableSchema) -> bool:
        """Whether an earlier creation of the same table wrote its schema file, but not its entry."""
        storage, root = self.open_directory(url)
        layout = TableLayout(root)
        history = SchemaHistory(storage, layout)
        if history.ids() != [schema.id] or SnapshotHistory(storage, layout).latest_id() is not None:
            return False
        return replace(history.latest(), time_millis=schema.time_millis) == schema

    def unknown_files(self, identifier: TableIdentifier, url: str) -> UsageError:
        """The error if a table without an entry already exists at the URL of a new table."""
        return UsageError(
            f"cannot create {identifier}",
            f"{url} contains a table that the {self.kind} catalog does not know",
            "choose another name, or move the directory",
        )

    def mover(self, old: TableIdentifier, old_url: str, new: TableIdentifier, new_url: str) -> Callable[[], None]:
        """A function that moves the directory of a table atomically.

        Raises `Refused` if the storage cannot do that, `UsageError` if the new URL is not empty, `NotFound` if there is
        no table at the old URL; nothing is changed then.
        """
        if not self.has_schema(old_url):
            raise self.no_files(old, old_url)
        storage, target = self.open_directory(new_url)
        _, source = self.open_directory(old_url)
        if storage.list_directory(target):
            raise UsageError(f"cannot rename {old} to {new}", f"{target} is not empty", "choose another name")
        directories = directories_of(storage)
        if directories is None:
            raise Refused(
                f"cannot rename {old} to {new}",
                f"{target} is on a store that cannot move a directory atomically, so half a table could be left",
                f"copy it, then drop the old one: paimon-cli tables clone {old.argument} {new.argument}{self.flags}",
            )
        return lambda: directories.move_directory(source, target)

    @abstractmethod
    def some_names(self, database: str | None = None) -> Iterable[str]:
        """Some names of the tables of a database, or of the databases, one of which may have been meant: one look, unchecked."""

    def similar_table(self, name: str) -> TableIdentifier | None:
        """The table that was probably meant by a name without a database; None if no name is similar.

        Only the first databases are searched. What fails is left out: it must not hide the first error.
        """
        tables: dict[str, str] = {}
        for database in names_for_a_hint(self.some_names)[:SEARCHED_DATABASES]:
            tables = dict.fromkeys(names_for_a_hint(partial(self.some_names, database)), database) | tables
        found = nearest(name, filter(is_name, tables))
        return None if found is None else TableIdentifier(tables[found], found)

    def no_database(self, name: str, table: str | None = None) -> NotFound:
        """The error for an unknown database. `table`: the table of it that was looked for."""
        after = "" if table is None else f".{table}"
        return NotFound(
            f"there is no database {name}",
            f"the {self.kind} catalog does not know it",
            f"{did_you_mean(name, names_for_a_hint(self.some_names), after=after)}paimon-cli db ls{self.flags}",
            unknown_database=name,
        )

    def creating(self, name: str) -> str:
        """The command that creates a database, for hints."""
        return f"paimon-cli db create {shlex.quote(name)}{self.flags}"

    def no_table(self, identifier: TableIdentifier) -> NotFound:
        """The error for an unknown table."""
        database, name = identifier
        meant = did_you_mean(name, names_for_a_hint(partial(self.some_names, database)), before=f"{database}.")
        return TableNotFound(
            f"there is no table {identifier}",
            f"the {self.kind} catalog does not know it",
            f"{meant}paimon-cli tables ls {shlex.quote(database)}{self.flags}",
            unknown_table=str(identifier),
        )

    def no_files(self, identifier: TableIdentifier, url: str) -> NotFound:
        """The error for an entry whose table no longer exists."""
        return TableNotFound(
            f"table {identifier} has lost its files",
            f"the {self.kind} catalog names {url}, where there is no table",
            f"restore the files; if they are lost, remove the entry, which deletes no file: "
            f"paimon-cli drop {identifier.argument}{self.flags}",
        )

    def unsupported(self, work: str, hint: str = "") -> NotSupported:
        return NotSupported(f"{work} is not supported", f"this version cannot do that in a {self.kind} catalog", hint)


def readable(entries: Iterable[T], read: Callable[[T], R], on_damage: OnDamage | None) -> list[R]:
    """What `read` makes of each entry of a listing.

    An entry that is damaged, by itself, is given to `on_damage` and left out; without that, its error is raised.
    """
    found = []
    for entry in entries:
        try:
            found.append(read(entry))
        except (DamagedFile, StorageUnavailable) as error:
            if on_damage is None:
                raise
            on_damage(error)
    return found


def names_for_a_hint(listing: Callable[[], Iterable[str]]) -> list[str]:
    """The first names of a listing, one of which may have been meant; none if it fails, which must not hide the first error."""
    try:
        return list(islice(listing(), MAX_SIMILAR))
    except PaimonError:
        return []


def listed_properties(schema: TableSchema) -> dict[str, str]:
    """The options and keys of a table, as catalogs list them (Java `sync-all-properties`)."""
    keys = {"primary-key": schema.primary_keys, "partition": schema.partition_keys, "bucket-key": schema.bucket_key_names}
    return dict(schema.options) | {key: ",".join(names) for key, names in keys.items() if names}
