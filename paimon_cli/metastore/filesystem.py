"""The catalog that is a directory: WAREHOUSE/db.db/table (Java FileSystemCatalog). Whatever lies there is registered."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from paimon_cli.errors import NotFound, NotSupported, UsageError
from paimon_cli.history.snapshots_and_schemas import SchemaHistory
from paimon_cli.metadata.table_layout import TableLayout
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.metastore.metastore import DATABASE_SUFFIX, Database, Metastore, RegisteredTable, TableIdentifier
from paimon_cli.storage.storage import Storage, directories_of, remove_empty_directory
from paimon_cli.storage.threads import in_parallel

LISTED_AT_ONCE = 16


@dataclass(frozen=True)
class FileSystemMetastore(Metastore):
    """Without a `warehouse` it has no names; tables are then found by their paths alone.

    `known`: directories that were seen to hold a schema; those are not checked again when tables are listed.
    """

    known: set[str] = field(default_factory=set, repr=False, compare=False)

    kind = "filesystem"
    keeps_entries = False

    @property
    def has_names(self) -> bool:
        return self.warehouse is not None

    def databases(self) -> list[Database]:
        storage, root = self.open_directory(self.root_url())
        entries = storage.list_directory(root)
        if not entries and not storage.exists(root):
            raise NotFound(f"nothing exists at {root}", "there is no such directory", "check --warehouse, or name a directory")
        found = (entry for entry in entries if entry.is_directory and entry.name.endswith(DATABASE_SUFFIX))
        return sorted(Database(entry.name.removesuffix(DATABASE_SUFFIX), entry.path) for entry in found)

    def database(self, name: str) -> Database:
        storage, root = self.open_directory(self.directory_of(name))
        if not storage.exists(root) and not storage.list_directory(root):
            raise self.no_database(name)
        return Database(name, root)

    def create_database(self, name: str) -> None:
        storage, root = self.open_directory(self.directory_of(name))
        if storage.exists(root) or storage.list_directory(root):
            raise UsageError(f"database {name} already exists", f"{root} is there")
        directories = directories_of(storage)
        if directories is None:
            raise NotSupported(
                f"cannot create an empty database on {root.partition('://')[0]}",
                "directories are only parts of names there, so an empty one does not exist",
                f"create its first table, which makes it: paimon-cli create {shlex.quote(name)}.TABLE -C 'id BIGINT'{self.flags}",
            )
        directories.make_directory(root)

    def drop_database(self, name: str) -> None:
        storage, root = self.open_directory(self.database(name).url or "")
        if storage.list_directory(root) and not remove_empty_directory(storage, root):
            raise UsageError(
                f"database {name} is not empty", f"{root} holds files that belong to no table", "move them away, then try again"
            )
        remove_empty_directory(storage, root)

    def tables(self, database: str) -> list[RegisteredTable]:
        storage, root = self.open_directory(self.directory_of(database))
        return [RegisteredTable(TableIdentifier(database, name), url) for name, url in tables_in(storage, root, self.known)]

    def table(self, identifier: TableIdentifier) -> RegisteredTable:
        """Where it would lie: whether it is there turns out when it is opened."""
        return RegisteredTable(identifier, self.place_of_new_table(identifier))

    def place_of_new_table(self, identifier: TableIdentifier) -> str:
        return f"{self.directory_of(identifier.database)}/{identifier.table}"

    def create_table(self, identifier: TableIdentifier, schema: TableSchema, publish: Callable[[], bool]) -> bool:
        return publish()

    def drop_table(self, identifier: TableIdentifier, delete_files: Callable[[], None]) -> None:
        delete_files()

    def rename_table(self, old: TableIdentifier, new: TableIdentifier) -> None:
        old_url, new_url = self.table(old).url, self.table(new).url
        self.mover(old, old_url, new, new_url)()

    def no_files(self, identifier: TableIdentifier, url: str) -> NotFound:
        """Without files there is no table, because there are no entries; perhaps there is no such database either."""
        try:
            self.database(identifier.database)
        except NotFound as missing:
            return missing
        return self.no_table(identifier)

    def alter_table(self, identifier: TableIdentifier, old: TableSchema, new: TableSchema) -> list[str]:
        """The schema file is all that there is."""
        return []


def tables_in(storage: Storage, root: str, known: set[str] | None = None) -> Iterator[tuple[str, str]]:
    """Names and paths of the directories in `root` that hold a schema, in order of their names."""

    def holds_schema(path: str) -> bool:
        return path in found or bool(SchemaHistory(storage, TableLayout(path)).ids())

    found = set[str]() if known is None else known
    paths = sorted(f"{root}/{entry.name}" for entry in storage.list_directory(root) if entry.is_directory)
    for path, is_table in zip(paths, in_parallel(holds_schema, paths, LISTED_AT_ONCE), strict=True):
        if is_table:
            found.add(path)
            yield path.removeprefix(f"{root}/"), path
