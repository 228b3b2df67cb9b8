"""The interface of a catalog: databases and tables by their names, where they lie, and how their commits are kept apart.

Tables are files wherever they are registered: a catalog says where, and is notified of tables that are created, dropped, renamed
or get a new snapshot.
"""

from __future__ import annotations

import re
import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from paimon_cli.errors import NotFound, NotSupported, Refused, UsageError
from paimon_cli.history.snapshots_and_schemas import SchemaHistory, SnapshotHistory
from paimon_cli.metadata.table_layout import TableLayout
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.storage.catalog_options import store_options
from paimon_cli.storage.storage import Storage, directories_of
from paimon_cli.storage.storage_for_url import storage_for_url

if TYPE_CHECKING:
    from paimon_cli.maintain.mark_done import PartitionMarks

DATABASE_SUFFIX = ".db"
_NAME = re.compile(r"[^./\\$]+")


class TableIdentifier(NamedTuple):
    """The name of a table in a catalog."""

    database: str
    table: str

    def __str__(self) -> str:
        return f"{self.database}.{self.table}"

    @property
    def argument(self) -> str:
        """The name as an argument of a command in a hint."""
        return shlex.quote(str(self))

    @staticmethod
    def parse(name: str) -> TableIdentifier:
        """`db.table`; `UsageError` for anything else."""
        database, dot, table = name.partition(".")
        if not dot or not is_name(database) or not is_name(table):
            raise UsageError(
                f"'{name}' is not the name of a table in a catalog",
                "that is db.table, with exactly one dot",
                "name it as db.table, together with --warehouse",
            )
        return TableIdentifier(database, table)


def is_name(text: str) -> bool:
    """Whether a database or table may be called that."""
    return _NAME.fullmatch(text) is not None


class Database(NamedTuple):
    """A database and its directory, if it has one."""

    name: str
    url: str | None


class RegisteredTable(NamedTuple):
    """A table of a catalog and its directory; `uuid` where the catalog gives tables one."""

    identifier: TableIdentifier
    url: str
    uuid: str | None = None


def plain_path(location: str) -> str:
    """A location as Java writes it: `file:/a` and `file:///a` are the local path `/a`."""
    return f"/{location.removeprefix('file:').lstrip('/')}" if location.startswith("file:") else location


@dataclass(frozen=True)
class Metastore(ABC):
    """A catalog. `options` are its own (`storage.catalog_options`: endpoint, credentials, commit lock).

    `flags`: what a command in a hint needs to find the same catalog, after a blank.
    """

    warehouse: str | None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    flags: str = ""

    kind: ClassVar[str]
    takes_files: ClassVar[bool] = True
    """Whether a new table may be registered with existing files; otherwise the server creates its files."""

    keeps_entries: ClassVar[bool] = True
    """Whether it knows names apart from the files, so that an entry can outlive its table."""

    @property
    def storage_options(self) -> Mapping[str, str]:
        """The options with which the storage of its tables is opened."""
        return self.options

    @property
    def has_names(self) -> bool:
        """Whether `db.table` means a table of this catalog."""
        return True

    @abstractmethod
    def databases(self) -> list[Database]:
        """All databases, in order of their names."""

    @abstractmethod
    def database(self, name: str) -> Database:
        """One database; `NotFound` if there is none of that name."""

    @abstractmethod
    def create_database(self, name: str) -> None:
        """Make a new database; `UsageError` if it exists."""

    @abstractmethod
    def drop_database(self, name: str) -> None:
        """Remove a database without tables."""

    @abstractmethod
    def tables(self, database: str) -> list[RegisteredTable]:
        """The tables of a database in order of their names; `NotFound` if there is no such database."""

    @abstractmethod
    def table(self, identifier: TableIdentifier) -> RegisteredTable:
        """Where a table lies; `NotFound` if the catalog knows that there is none."""

    @abstractmethod
    def place_of_new_table(self, identifier: TableIdentifier) -> str:
        """Where a table of that name would be made; `NotFound` if there is no such database."""

    @abstractmethod
    def create_table(self, identifier: TableIdentifier, schema: TableSchema, publish: Callable[[], bool]) -> bool:
        """Make a table: `publish` writes its schema file, and says whether there was none. False if the table exists."""

    @abstractmethod
    def drop_table(self, identifier: TableIdentifier, delete_files: Callable[[], None]) -> None:
        """Forget a table. `delete_files` deletes what it consists of."""

    @abstractmethod
    def rename_table(self, old: TableIdentifier, new: TableIdentifier) -> None:
        """Give a table another name, and its files the place of that name.

        `Refused` where its directory cannot be moved in one step.
        """

    def change_schema(self, identifier: TableIdentifier, changes: Sequence[Mapping[str, Any]]) -> None:
        """Let the server make the next schema, where it takes no files; `changes` as Paimon's REST interface has them."""
        raise self.unsupported("changing a schema")

    @abstractmethod
    def alter_table(self, identifier: TableIdentifier, old: TableSchema, new: TableSchema) -> list[str]:
        """Take note of a new schema, which has been written. Warnings about what the catalog would not take."""

    def guarded(self, storage: Storage, root: str, identifier: TableIdentifier | None) -> Storage:
        """The storage of a table with the commit hook and the lock of this catalog; without a name the table was given by its
        path.
        """
        return storage

    def partition_marks(self, identifier: TableIdentifier, branch: str) -> PartitionMarks:
        """What marks a partition of a table as done in this catalog."""
        return {}

    def root_url(self, sought: str = "tables") -> str:
        """The URL of the warehouse; `UsageError` that names what is `sought` if there is none."""
        if self.warehouse is None:
            raise UsageError(
                f"no warehouse to look for {sought} in",
                "neither --warehouse nor PAIMON_WAREHOUSE nor ./paimon.yaml names one",
                "pass --warehouse URI, or a path instead of a name",
            )
        return self.warehouse

    def directory_of(self, database: str) -> str:
        """WAREHOUSE/database.db."""
        return f"{self.root_url(f'database {database}').rstrip('/')}/{database}{DATABASE_SUFFIX}"

    def open_directory(self, url: str) -> tuple[Storage, str]:
        """The storage of a directory, to look for databases and tables there."""
        return storage_for_url(url, store_options(self.options))

    def has_schema(self, url: str) -> bool:
        """Whether a table lies at the URL."""
        storage, root = self.open_directory(url)
        return bool(SchemaHistory(storage, TableLayout(root)).ids())

    def was_left_by_a_creation(self, url: str, schema: TableSchema) -> bool:
        """Whether a creation of the same table died between its schema file and its entry."""
        storage, root = self.open_directory(url)
        layout = TableLayout(root)
        history = SchemaHistory(storage, layout)
        if history.ids() != [schema.id] or SnapshotHistory(storage, layout).latest_id() is not None:
            return False
        return replace(history.latest(), time_millis=schema.time_millis) == schema

    def unknown_files(self, identifier: TableIdentifier, url: str) -> UsageError:
        """The error where a new table would lie on top of one that has no entry."""
        return UsageError(
            f"cannot create {identifier}",
            f"{url} holds a table that the {self.kind} catalog does not know",
            "choose another name, or move the directory away",
        )

    def mover(self, old: TableIdentifier, old_url: str, new: TableIdentifier, new_url: str) -> Callable[[], None]:
        """What moves the directory of a table in one step.

        `Refused` where the storage has no such step, `UsageError` if something lies at the new place, `NotFound` if there is no
        table at the old one; nothing is done then.
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
                f"{target} lies on a store that cannot move a directory in one step, and half a table could be left",
                f"copy it, then drop the old one: paimon-cli tables clone {old.argument} {new.argument}{self.flags}",
            )
        return lambda: directories.move_directory(source, target)

    def no_database(self, name: str) -> NotFound:
        return NotFound(
            f"there is no database {name}",
            f"the {self.kind} catalog does not know it",
            f"paimon-cli db create {shlex.quote(name)}{self.flags}",
        )

    def no_table(self, identifier: TableIdentifier) -> NotFound:
        return NotFound(
            f"there is no table {identifier}",
            f"the {self.kind} catalog does not know it",
            f"paimon-cli tables ls {shlex.quote(identifier.database)}{self.flags}",
        )

    def no_files(self, identifier: TableIdentifier, url: str) -> NotFound:
        """The error where an entry has outlived its table."""
        return NotFound(
            f"table {identifier} has lost its files",
            f"the {self.kind} catalog says that it lies at {url}, where there is no table",
            f"restore the files, or remove the entry: paimon-cli drop {identifier.argument}{self.flags}",
        )

    def unsupported(self, work: str, hint: str = "") -> NotSupported:
        return NotSupported(f"{work} is not supported in a {self.kind} catalog", "this version does not do that", hint)


def listed_properties(schema: TableSchema) -> dict[str, str]:
    """The options of a table, and its keys, as catalogs show them (Java `sync-all-properties`)."""
    keys = {"primary-key": schema.primary_keys, "partition": schema.partition_keys, "bucket-key": schema.bucket_key_names}
    return dict(schema.options) | {key: ",".join(names) for key, names in keys.items() if names}
