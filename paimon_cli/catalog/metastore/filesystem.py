"""The catalog of a directory: every table in WAREHOUSE/DATABASE.db/TABLE is registered (Java FileSystemCatalog)."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from paimon_cli.catalog.metastore.metastore import (
    DATABASE_SUFFIX,
    Database,
    Metastore,
    OnDamage,
    RegisteredTable,
    TableIdentifier,
    readable,
)
from paimon_cli.errors import (
    AlreadyExists,
    DamagedFile,
    NoAccess,
    NotFound,
    NotSupported,
    PaimonError,
    StorageUnavailable,
    TookTooLong,
    UsageError,
)
from paimon_cli.history.schema_history import SchemaHistory
from paimon_cli.history.snapshot_history import SnapshotHistory
from paimon_cli.metadata.table_layout import TableLayout
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.option_text import did_you_mean
from paimon_cli.storage.capabilities import directories_of, first_entries, remove_empty_directory
from paimon_cli.storage.directories import MAX_SIMILAR
from paimon_cli.storage.storage import FileStatus, Storage
from paimon_cli.storage.time_bounds import look_at_each

LISTED_AT_ONCE = 16


@dataclass(frozen=True)
class FileSystemMetastore(Metastore):
    """A catalog of directories. Without a `warehouse` it has no names, and tables are found only by their paths.

    `known`: directories that are not checked again when tables are listed, because they contain a schema, or gave no answer.
    """

    known: set[str] = field(default_factory=set, repr=False, compare=False)

    kind = "filesystem"
    keeps_entries = False

    @property
    def has_names(self) -> bool:
        return self.warehouse is not None

    def databases(self, on_damage: OnDamage | None = None) -> list[Database]:
        found = (entry for entry in self._entries() if entry.is_directory and entry.name.endswith(DATABASE_SUFFIX))
        return sorted(readable(found, _database, on_damage))

    def database(self, name: str) -> Database:
        storage, root = self.open_directory(self.directory_of(name))
        if not storage.exists(root) and not storage.list_directory(root):
            self._entries()  # raises if the warehouse does not exist either
            raise self.no_database(name)
        return Database(name, root)

    def _entries(self) -> list[FileStatus]:
        """The content of the warehouse. Raises `NotFound` if it does not exist."""
        storage, root = self.open_directory(self.root_url())
        entries = storage.list_directory(root)
        if not entries and not storage.exists(root):
            above, _, name = root.rpartition("/")
            beside: list[str] = []
            with suppress(StorageUnavailable):
                beside = [entry.name for entry in first_entries(storage, above, MAX_SIMILAR) if entry.is_directory]
            meant = did_you_mean(name, beside)
            hint = f"{meant}check --warehouse, or name a directory"
            raise NotFound(f"nothing exists at {root}", "there is no such directory", hint)
        return entries

    def create_database(self, name: str) -> None:
        storage, root = self.open_directory(self.directory_of(name))
        if storage.exists(root) or storage.list_directory(root):
            raise AlreadyExists(f"database {name} already exists", f"{root} exists")
        directories = directories_of(storage)
        if directories is None:
            raise NotSupported(
                f"cannot create an empty database on {root.partition('://')[0]}",
                "object stores have no empty directories",
                f"create its first table instead: paimon-cli create {shlex.quote(name)}.TABLE -C 'id BIGINT'{self.flags}",
            )
        directories.make_directory(root)

    def drop_database(self, name: str) -> None:
        storage, root = self.open_directory(self.database(name).url or "")
        if storage.list_directory(root) and not remove_empty_directory(storage, root):
            raise UsageError(
                f"database {name} is not empty",
                f"{root} contains files or directories that belong to no table",
                "move them, then try again",
            )
        remove_empty_directory(storage, root)

    def tables(self, database: str, on_damage: OnDamage | None = None) -> list[RegisteredTable]:
        storage, root = self.open_directory(self.directory_of(database))
        found = tables_in(storage, root, self.table_seconds, self.known)
        return [RegisteredTable(TableIdentifier(database, name), url) for name, url in found]

    def table(self, identifier: TableIdentifier) -> RegisteredTable:
        """The directory of the table, without checking that it exists; opening the table does."""
        return RegisteredTable(identifier, self.url_of_new_table(identifier))

    def url_of_new_table(self, identifier: TableIdentifier) -> str:
        return self.directory_below(self.directory_of(identifier.database), identifier)

    def create_table(self, identifier: TableIdentifier, schema: TableSchema, publish: Callable[[], bool]) -> bool:
        return publish()

    def drop_table(self, identifier: TableIdentifier, delete_files: Callable[[], None]) -> None:
        delete_files()

    def rename_table(self, old: TableIdentifier, new: TableIdentifier) -> None:
        old_url, new_url = self.table(old).url, self.table(new).url
        self.mover(old, old_url, new, new_url)()

    def no_files(self, identifier: TableIdentifier, url: str) -> NotFound:
        """The error for a missing table, or for its missing database, whose directory may lack the suffix."""
        beside = f"{self.root_url().rstrip('/')}/{identifier.database}/{identifier.table}"
        try:
            self.database(identifier.database)
        except NotFound as missing:
            if self.has_schema(beside):
                why = f"the directory of a database ends in {DATABASE_SUFFIX}; this table is named by its path"
                return NotFound(missing.what, why, f"name it {shlex.quote(beside)}", **missing.details)
            return self.no_database(*identifier) if "unknown_database" in missing.details else missing
        return self.no_table(identifier)

    def some_names(self, database: str | None = None) -> Iterable[str]:
        storage, root = self.open_directory(self.root_url() if database is None else self.directory_of(database))
        names = [entry.name for entry in first_entries(storage, root, MAX_SIMILAR) if entry.is_directory]
        if database is not None:
            return names
        return [name.removesuffix(DATABASE_SUFFIX) for name in names if name.endswith(DATABASE_SUFFIX)]

    def alter_table(self, identifier: TableIdentifier, old: TableSchema, new: TableSchema) -> list[str]:
        """Nothing to do: the schema file is the only record."""
        return []


def _database(directory: FileStatus) -> Database:
    """Raises `DamagedFile` for a name that the URL of a store cannot have."""
    if "://" in directory.path and "?" in directory.name:
        raise DamagedFile(f"a database at {directory.path} cannot be opened", "names in a store may not contain ?", "rename it")
    return Database(directory.name.removesuffix(DATABASE_SUFFIX), directory.path)


def tables_in(storage: Storage, root: str, seconds: float, known: set[str] | None = None) -> Iterator[tuple[str, str]]:
    """The names and paths of the directories in `root` with a schema, or the rest of a table that has lost its own, by name.

    A directory that gives no answer in `seconds`, or may not be read, is listed too: opening it says why. `known`: see
    `FileSystemMetastore`.
    """

    def has_schema(path: str) -> bool:
        if path in found:
            return True
        layout = TableLayout(path)
        schemas = SchemaHistory(storage, layout)
        ids = schemas.ids()
        if ids[:1] == [0]:
            return True
        if (not ids and schemas.left_without_schema() is None) or schemas.unfinished_copy() is not None:
            return False
        # Where directories cannot be moved, an ended history is what a table in the trash leaves; elsewhere its drop was killed.
        return bool(ids) or directories_of(storage) is not None or not SnapshotHistory(storage, layout).is_ended()

    found = set[str]() if known is None else known
    paths = sorted(f"{root}/{entry.name}" for entry in storage.list_directory(root) if entry.is_directory)
    for path, answer in zip(paths, look_at_each(has_schema, paths, seconds, LISTED_AT_ONCE, str), strict=True):
        if isinstance(answer, PaimonError) and not isinstance(answer, (TookTooLong, NoAccess)):
            raise answer
        if answer:
            found.add(path)
            yield path.removeprefix(f"{root}/"), path
