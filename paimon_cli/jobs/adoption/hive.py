"""A table of Hive as a source: the files of its partitions, wherever they are, and what their columns become."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from paimon_cli.catalog.ddl import definition_of
from paimon_cli.catalog.metastore.hive import HiveMetastore
from paimon_cli.catalog.metastore.hive_client import HiveAddress
from paimon_cli.catalog.metastore.hive_tables import HivePartition, HiveTable, read_hive_table
from paimon_cli.catalog.metastore.metastore import Metastore, TableIdentifier
from paimon_cli.datatypes.data_type import DataField, DataType
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.errors import NotFound, NotSupported, UsageError
from paimon_cli.jobs.adoption.source import HIVE_NULL, AdoptedFile, Source
from paimon_cli.sql.column_definitions import parse_column
from paimon_cli.storage.storage_for_url import storage_for_url
from paimon_cli.storage.threads import in_parallel

_THRIFT = re.compile(r"(thrift://[^/]+)/([^/]+)")
_POSITION = re.compile(r"_col(\d+)")
"""The name that Hive gives a column of an ORC file of which only the position counts."""
_STORE = re.compile(r"[a-z0-9+.-]+://[^/]*")
_SMALL = {"TINYINT", "SMALLINT", "INT"}
_FAMILIES = ({"VARCHAR", "CHAR"}, {"TIMESTAMP_WITHOUT_TIME_ZONE", "TIMESTAMP_WITH_LOCAL_TIME_ZONE"}, {"BINARY", "VARBINARY"})
"""Types that have the same values in files, however Hive names them."""


def hive_table_of(source: str, metastore: Metastore) -> tuple[HiveAddress, TableIdentifier] | None:
    """The metastore and the table if a source is `thrift://HOST:PORT/db.table`, or `db.table` in a Hive catalog; else None."""
    if (found := _THRIFT.fullmatch(source)) is not None:
        return HiveAddress.of({"uri": found[1]}, {}), _identifier(found[2])
    if isinstance(metastore, HiveMetastore) and "/" not in source and "." in source.strip("."):
        return HiveAddress.of(metastore.options), _identifier(source)
    return None


def _identifier(text: str) -> TableIdentifier:
    database, mark, table = text.partition(".")
    if not (database and mark and table) or "." in table:
        raise UsageError(f"{text} is no table of a Hive metastore", hint="such as db.table")
    return TableIdentifier(database, table)


def hive_source(address: HiveAddress, identifier: TableIdentifier, store: Mapping[str, Any], threads: int) -> Source:
    """The files of a table of Hive. Raises what `read_hive_table` does; `NotSupported` for partitions in several stores, with one
    location for two, or with directories in them; `NotFound` if there are no files.
    """
    table = read_hive_table(address, identifier)
    _expect_own_places(table)
    root = _common_root(table)
    storage, root = storage_for_url(root, store, confined=True)
    found = list(in_parallel(storage.list_directory, [place.url for place in table.partitions], threads))
    files: list[AdoptedFile] = []
    for place, entries in zip(table.partitions, found, strict=True):
        values = tuple(None if value == HIVE_NULL else value for value in place.values)
        for entry in entries:
            if entry.name.startswith((".", "_")):
                continue
            if entry.is_directory:
                why = "Hive reads directories in a partition only by settings of the session"
                raise NotSupported(f"{entry.path} is a directory in {place.url}", why, "let Hive write the rows into a new table")
            if entry.size:  # Hive leaves empty files for buckets without rows
                files.append(AdoptedFile(entry.path[len(root) + 1 :], entry.size, values))
    if not files:
        raise NotFound(f"the Hive table {table.name} has no files", "its directories are empty", "create an empty table")
    keys, types = tuple(name for name, _ in table.partition_columns), dict(table.partition_columns)
    ordered = tuple(sorted(files, key=lambda file: file.path))
    return Source("hive", storage, root, keys, ordered, types, columns=table.columns, name=f"Hive table {table.name}")


def _expect_own_places(table: HiveTable) -> None:
    """Raise `NotSupported` if two partitions have one location: each of its rows would be in both."""
    first: dict[str, HivePartition] = {}
    for partition in table.partitions:
        other = first.setdefault(posixpath.normpath(partition.url), partition)
        if other is not partition:
            why = f"{'/'.join(other.values)} and {'/'.join(partition.values)} are both in {partition.url}"
            hint = "drop one of them in Hive, or let Hive write the rows into a new table"
            raise NotSupported(f"two partitions of {table.name} have one location", why, hint)


def _common_root(table: HiveTable) -> str:
    """The directory in which all partitions are."""
    urls = [place.url for place in table.partitions]
    stores = {found[0] if (found := _STORE.match(url)) is not None else "" for url in urls}
    if len(stores) > 1:
        why = f"they are in {', '.join(sorted(stores)[:3])}"
        raise NotSupported(f"the partitions of {table.name} are in several stores", why, "copy them into one")
    (store,) = stores
    common = os.path.commonpath([url[len(store) :] or "/" for url in urls])
    if common == "/" and not store:
        raise NotSupported(
            f"the partitions of {table.name} have no directory in common", "they lie in several places of the disk"
        )
    return store + common.rstrip("/")


def renamed_columns(source: Source, stored: Sequence[DataField]) -> dict[str, str]:
    """The names of the columns of files that Hive knows by position only -> those of the table; empty if they have names."""
    positions = [_POSITION.fullmatch(field.name) for field in stored]
    if not source.columns or not all(positions):
        return {}
    names = [name for name, _ in source.columns]
    return {field.name: names[number] for field in stored if (number := int(field.name[4:])) < len(names)}


def hive_fields(source: Source, stored: Sequence[DataField], *, in_place: bool) -> tuple[DataField, ...]:
    """The columns of the new table, with their names in the files. In place the types in the files must agree with Hive's; else
    Hive's types count.

    Raises `NotSupported` for columns that other readers would not find, or would read as another type.
    """
    renamed = renamed_columns(source, stored)
    if renamed and in_place:
        why = "its ORC files have no names of columns, and readers of Paimon go by names"
        raise NotSupported(f"the {source.name} cannot be adopted as it is", why, "write its rows, with --primary-key")
    by_name = {renamed.get(field.name, field.name).lower(): field for field in stored}
    if len(by_name) < len(stored):
        why = "Hive does not tell upper from lower case in names, and some columns of its files differ in nothing else"
        raise NotSupported(f"the {source.name} has other columns than its files", why, "write the files again without them")
    declared = definition_of([parse_column(f"`{name}` {t}") for name, t in source.columns], "the Hive table").fields
    fields = []
    for column in declared:
        file = by_name.pop(column.name.lower(), None)
        if file is None and in_place:
            why = f"column {column.name} of Hive is not in its files, which have been written before it was added"
            raise NotSupported(f"the {source.name} has other columns than its files", why, "write its rows, with --primary-key")
        if file is None:
            fields.append(column)
            continue
        name = renamed.get(file.name, file.name)
        if _is_same(file.type, column.type):
            fields.append(replace(file, name=name))
        elif not in_place:
            fields.append(replace(column, name=name))
        else:
            why = f"column {column.name} is {type_to_sql(file.type)} there, and {type_to_sql(column.type)} in Hive"
            raise NotSupported(f"the files of the {source.name} have another type", why, "write its rows, with --primary-key")
    if by_name:
        why = f"column {next(iter(by_name))} is in its files, and not in Hive"
        raise NotSupported(f"the {source.name} has other columns than its files", why, "add the column in Hive")
    return tuple(fields)


def _is_same(file: DataType, hive: DataType) -> bool:
    """Whether the values in a file are those that Hive means."""
    if type_to_sql(file).lower() == type_to_sql(hive).lower() or (file.root == "INT" and hive.root in _SMALL):
        return True
    return any({file.root, hive.root} <= family for family in _FAMILIES)
