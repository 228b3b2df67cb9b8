"""Paimon's catalog in a Hive metastore (Java HiveCatalog); Hive and Java find its tables too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from paimon_cli.catalog.metastore.hive_client import HiveAddress, HiveLock, user_name
from paimon_cli.catalog.metastore.metastore import (
    Database,
    Metastore,
    OnDamage,
    RegisteredTable,
    TableIdentifier,
    is_absolute,
    listed_properties,
    plain_path,
    readable,
)
from paimon_cli.datatypes.data_type import (
    ArrayType,
    DataField,
    DataType,
    DecimalType,
    MapType,
    MultisetType,
    RowType,
    SpatialType,
    StringType,
    TimestampType,
    VectorType,
)
from paimon_cli.errors import AlreadyExists, DamagedFile, NotFound, NotSupported, UsageError
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.option_text import shortened
from paimon_cli.pieces import PIECES
from paimon_cli.storage.capabilities import directories_of
from paimon_cli.storage.catalog_options import database_and_table, store_options
from paimon_cli.storage.guarded_storage import GuardedStorage
from paimon_cli.storage.storage import Storage
from paimon_cli.storage.threads import cached_property

if TYPE_CHECKING:
    from paimon_cli.maintain.mark_done import DonePartition, PartitionMarks

INPUT_FORMAT = "org.apache.paimon.hive.mapred.PaimonInputFormat"
OUTPUT_FORMAT = "org.apache.paimon.hive.mapred.PaimonOutputFormat"
SERDE, STORAGE_HANDLER = "org.apache.paimon.hive.PaimonSerDe", "org.apache.paimon.hive.PaimonStorageHandler"
EXTERNAL_TABLE, MANAGED_TABLE = "EXTERNAL_TABLE", "MANAGED_TABLE"
_LONGEST_CHAR, _LONGEST_VARCHAR, _LONGEST_COMMENT = 255, 65535, 256
_HIVE_NAMES = {
    "BINARY": "binary",
    "VARBINARY": "binary",
    "BLOB": "binary",
    "TIME": "string",
    "VARIANT": "struct<value:binary,metadata:binary>",
}
"""Hive's types for Paimon types whose name it does not know."""
_NOT_IN_METASTORE = ("metastore.partitioned-table", "metastore.tag-to-partition")


@dataclass(frozen=True)
class HiveMetastore(Metastore):
    """A catalog in a Hive metastore, which records the location of each table."""

    kind = "hive"

    def __post_init__(self) -> None:
        for key, harmless in (("location-in-properties", "false"), ("table.type", "managed")):
            if self.options.get(key, harmless).lower() != harmless:
                raise NotSupported(f"{key}={self.options[key]}", f"in a hive catalog only {harmless} is supported")
        if self.options.get("lock.type", "hive") != "hive":
            raise NotSupported(
                f"lock.type={self.options['lock.type']}", "a hive catalog takes its locks in the metastore", "lock.type=hive"
            )

    @property
    def storage_options(self) -> dict[str, str]:
        return store_options(self.options)

    def databases(self, on_damage: OnDamage | None = None) -> list[Database]:
        with self._address.connected() as client:
            found = (client.get_database(name) for name in sorted(client.get_all_databases()))
            return readable(found, _database, on_damage)

    def database(self, name: str) -> Database:
        with self._address.connected() as client:
            return self._find_database(client, name)

    def create_database(self, name: str) -> None:
        from pymetastore.hive_metastore import ttypes

        _check_lower_case(name)
        url = None if self.warehouse is None else self.open_directory(self.directory_of(name))[1]
        database = ttypes.Database(name=name, locationUri=url, parameters={}, ownerName=user_name(), ownerType=1)
        with self._address.connected() as client:
            if name in client.get_all_databases():
                raise AlreadyExists(f"database {name} already exists", "the hive catalog has it")
            client.create_database(database)

    def drop_database(self, name: str) -> None:
        with self._address.connected() as client:
            self._find_database(client, name)
            left = client.get_all_tables(name)
            if left:
                why = f"it has other tables or views: {', '.join(sorted(left)[:5])}"
                raise UsageError(f"database {name} is not empty", why, "drop them with the engine that created them")
            client.drop_database(name, True, False)

    def tables(self, database: str, on_damage: OnDamage | None = None) -> list[RegisteredTable]:
        with self._address.connected() as client:
            self._find_database(client, database)
            names = iter(sorted(client.get_all_tables(database)))
            found: list[RegisteredTable] = []
            while batch := list(islice(names, PIECES.hive_batch_tables)):
                tables = client.get_table_objects_by_name(database, batch)
                found += readable(filter(_is_paimon, tables), _registered, on_damage)
            return sorted(found)

    def table(self, identifier: TableIdentifier) -> RegisteredTable:
        with self._address.connected() as client:
            return _registered(self._find_table(client, identifier))

    def url_of_new_table(self, identifier: TableIdentifier) -> str:
        with self._address.connected() as client:
            try:
                return _registered(client.get_table(*identifier)).url
            except self._missing:
                url = self._find_database(client, identifier.database).url
        return self.directory_below(url or self.directory_of(identifier.database), identifier)

    def create_table(self, identifier: TableIdentifier, schema: TableSchema, publish: Callable[[], bool]) -> bool:
        _check_lower_case(identifier.table)
        for key in _NOT_IN_METASTORE:
            if schema.options.get(key, "false") != "false":
                raise NotSupported(f"{key}={schema.options[key]}", "partitions are not registered in the Hive metastore")
        with self._address.connected() as client:
            if self._has(client, identifier):
                return False
        url = self.url_of_new_table(identifier)
        entry = self._hive_table(identifier, schema, url)
        if not publish() and not self.is_unfinished_creation(url, schema):
            raise self.unknown_files(identifier, url)
        with self._address.connected() as client:
            client.create_table(entry)
        return True

    def drop_table(self, identifier: TableIdentifier, delete_files: Callable[[], None]) -> None:
        """Remove the entry last, so that a drop that was interrupted can be repeated under the same name."""
        with self._address.connected() as client:
            table = self._find_table(client, identifier)
            if table.tableType == EXTERNAL_TABLE:
                raise NotSupported(
                    f"dropping {identifier}", "it is an external table in Hive, which keeps its files", "drop it in Hive"
                )
        delete_files()
        with self._address.connected() as client:
            client.drop_table(*identifier, False)

    def rename_table(self, old: TableIdentifier, new: TableIdentifier) -> None:
        """Rename the entry. The metastore may move the directory of a managed table itself; otherwise it is moved here."""
        _check_lower_case(new.table)
        with self._address.connected() as client:
            table = self._find_table(client, old)
            old_url = _registered(table).url
            if self._has(client, new):
                raise UsageError(f"cannot rename {old} to {new}", f"{new} exists", "choose another name")
            new_url = f"{self._find_database(client, new.database).url}/{new.table}"
            self.mover(old, old_url, new, new_url)
            table.dbName, table.tableName = new
            client.alter_table(*old, table)
            renamed = client.get_table(*new)
            if renamed.tableType == EXTERNAL_TABLE or not self.has_schema(old_url):
                return
            if directories_of(self.open_directory(old_url)[0]) is not None:
                self.mover(old, old_url, new, new_url)()
                renamed.sd.location = new_url
            else:
                renamed.sd.location = old_url
            client.alter_table(*new, renamed)

    def alter_table(self, identifier: TableIdentifier, old: TableSchema, new: TableSchema) -> list[str]:
        with self._address.connected() as client:
            table = self._find_table(client, identifier)
            removed = listed_properties(old).keys() - listed_properties(new).keys()
            remaining = {key: value for key, value in table.parameters.items() if key not in removed}
            table.parameters = remaining | self._parameters(new)
            with self._refusals() as refusals:
                table.sd.cols = [_column(field) for field in new.fields]
                client.alter_table_with_cascade(*identifier, table, True)
        if not refusals:
            return []
        return [f"the Hive metastore refuses the new columns, so Hive still sees the old ones: {refusals[0]}"]

    def guarded(self, storage: Storage, root: str, identifier: TableIdentifier | None) -> Storage:
        """With `lock.enabled` (default on object stores, as in Java), commits hold the table's lock in the metastore."""
        inner = storage.inner if isinstance(storage, GuardedStorage) else storage
        enabled = self.options.get("lock.enabled", "false" if directories_of(inner) is not None else "true").lower()
        if enabled not in ("true", "false"):
            raise UsageError(f"lock.enabled={enabled}", "allowed: true or false")
        if enabled == "false":
            return storage
        database, table = identifier or database_and_table(root)
        return GuardedStorage(inner, root, HiveLock(self._address, database, table))

    def partition_marks(self, identifier: TableIdentifier, branch: str) -> PartitionMarks:
        """A metastore event, and an additional partition whose name ends in `.done` (Java HiveCatalog).

        In the metastore, branches share the partitions of their table.
        """
        from paimon_cli.maintain.mark_done import DONE_PARTITION, MARK_EVENT

        return {DONE_PARTITION: partial(self._add_done, identifier), MARK_EVENT: partial(self._send_event, identifier)}

    def _add_done(self, identifier: TableIdentifier, done: DonePartition) -> None:
        from pymetastore.hive_metastore import ttypes

        *values, last = done.values.values()
        now = done.now_millis // 1000
        with self._address.connected() as client:
            descriptor = self._find_table(client, identifier).sd
            descriptor.location = f"{self.open_directory(done.url)[1]}.done"
            added = ttypes.Partition([*values, f"{last}.done"], *identifier, now, now, descriptor, {})
            client.add_partitions_req(ttypes.AddPartitionsRequest(*identifier, [added], ifNotExists=True, needResult=False))

    def _send_event(self, identifier: TableIdentifier, done: DonePartition) -> None:
        from pymetastore.hive_metastore import ttypes

        with self._address.connected() as client:
            self._find_table(client, identifier)
            client.markPartitionForEvent(*identifier, dict(done.values), ttypes.PartitionEventType.LOAD_DONE)

    @cached_property
    def _address(self) -> HiveAddress:
        return HiveAddress.of(self.options)

    @property
    def _missing(self) -> type[Exception]:
        from pymetastore.hive_metastore import ttypes

        return ttypes.NoSuchObjectException

    @contextmanager
    def _refusals(self) -> Iterator[list[str]]:
        """Collect the reason if the metastore refuses a change."""
        from pymetastore.hive_metastore import ttypes

        found: list[str] = []
        try:
            yield found
        except (ttypes.InvalidOperationException, ttypes.MetaException) as error:
            found.append(str(error.message).split("\n")[0])
        except NotSupported as error:
            found.append(f"{error.what}: {error.why}")

    def _has(self, client: Any, identifier: TableIdentifier) -> bool:
        """Whether there is a Paimon table with this name. Raises `UsageError` if another table has it."""
        try:
            self._find_table(client, identifier)
        except NotFound:
            return False
        except NotSupported as other:
            raise AlreadyExists(f"{identifier} already exists", other.why, "choose another name") from None
        return True

    def _find_table(self, client: Any, identifier: TableIdentifier) -> Any:
        try:
            table = client.get_table(*identifier)
        except self._missing:
            self._find_database(client, *identifier)
            raise self.no_table(identifier) from None
        if not _is_paimon(table):
            raise NotSupported(f"table {identifier}", "it is a Hive table, not a Paimon table", "read it with Hive or Spark")
        return table

    def _find_database(self, client: Any, name: str, wanted: str | None = None) -> Database:
        """A database, in which the table `wanted` is looked for."""
        try:
            return _database(client.get_database(name))
        except self._missing:
            raise self.no_database(name, wanted) from None

    def some_names(self, database: str | None = None) -> Iterable[str]:
        """Over one more connection."""
        with self._address.connected() as client:
            return list(client.get_all_databases() if database is None else client.get_all_tables(database))

    def _hive_table(self, identifier: TableIdentifier, schema: TableSchema, url: str) -> Any:
        """The entry that Java's HiveCatalog creates for a managed table."""
        from pymetastore.hive_metastore import ttypes

        serde = ttypes.SerDeInfo(serializationLib=SERDE, parameters={})
        columns = [_column(field) for field in schema.fields]
        location = self.open_directory(url)[1]
        descriptor = ttypes.StorageDescriptor(
            cols=columns, location=location, inputFormat=INPUT_FORMAT, outputFormat=OUTPUT_FORMAT, serdeInfo=serde
        )
        parameters = {**self._parameters(schema), "table_type": "PAIMON", "storage_handler": STORAGE_HANDLER}
        return ttypes.Table(
            tableName=identifier.table,
            dbName=identifier.database,
            owner=user_name(),
            retention=2**31 - 1,
            sd=descriptor,
            partitionKeys=[],
            parameters=parameters,
            tableType=MANAGED_TABLE,
        )

    def _parameters(self, schema: TableSchema) -> dict[str, str]:
        comment = {} if schema.comment is None else {"comment": schema.comment}
        if self.options.get("sync-all-properties", "true").lower() == "true":
            return listed_properties(schema) | comment
        listed = ("partition.expiration-time", "data-file.path-directory")
        return {k: v for k, v in schema.options.items() if k.startswith("hive.") or k in listed} | comment


def hive_type(data_type: DataType) -> str:
    """The Hive type of a column, as text (Java HiveTypeUtils). Raises `NotSupported` if Hive has no such type."""
    if isinstance(data_type, StringType):
        longest = _LONGEST_CHAR if data_type.root == "CHAR" else _LONGEST_VARCHAR
        return "string" if data_type.length > longest else f"{data_type.root.lower()}({data_type.length})"
    if isinstance(data_type, DecimalType):
        return f"decimal({data_type.precision},{data_type.scale})"
    if isinstance(data_type, MultisetType):
        return f"map<{hive_type(data_type.element)},int>"
    if isinstance(data_type, MapType):
        return f"map<{hive_type(data_type.key)},{hive_type(data_type.value)}>"
    if isinstance(data_type, ArrayType | VectorType):
        return f"array<{hive_type(data_type.element)}>"
    if isinstance(data_type, RowType):
        return f"struct<{','.join(f'{field.name}:{hive_type(field.type)}' for field in data_type.fields)}>"
    if isinstance(data_type, TimestampType):
        return "timestamp"
    if isinstance(data_type, SpatialType):
        raise NotSupported(f"a column of type {data_type.root} in a hive catalog", "Hive has no such type")
    return _HIVE_NAMES.get(data_type.root, data_type.root.lower())


def _column(field: DataField) -> Any:
    from pymetastore.hive_metastore import ttypes

    comment = None if field.description is None else " ".join(field.description.splitlines())[:_LONGEST_COMMENT]
    return ttypes.FieldSchema(name=field.name, type=hive_type(field.type), comment=comment)


def _is_paimon(table: Any) -> bool:
    return table.sd is not None and (table.sd.inputFormat, table.sd.outputFormat) == (INPUT_FORMAT, OUTPUT_FORMAT)


def _registered(table: Any) -> RegisteredTable:
    identifier = TableIdentifier(table.dbName, table.tableName)
    location = None if table.sd is None else table.sd.location
    return RegisteredTable(identifier, _checked(location or "", f"table {identifier}"))


def _database(found: Any) -> Database:
    return Database(found.name, _checked(found.locationUri, f"database {found.name}") if found.locationUri else None)


def _checked(location: str, what: str) -> str:
    """The location as a path. Raises `DamagedFile` for one that means another place in each working directory, or none."""
    if is_absolute(location):
        return plain_path(location)
    why = "it is relative, so it would lead to another place from each working directory" if location else "it is empty"
    raise DamagedFile(f"the hive catalog names '{shortened(location)}' as the location of {what}", why, "correct it in Hive")


def _check_lower_case(name: str) -> None:
    if name != name.lower():
        raise UsageError(f"'{name}' has capital letters", "a Hive metastore stores names in lower case", f"use {name.lower()}")
