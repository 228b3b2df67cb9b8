"""Tables of Hive itself, whose files are Parquet or ORC: their columns, partitions and places, as the metastore records them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from paimon_cli.catalog.metastore.hive_client import HiveAddress
from paimon_cli.catalog.metastore.metastore import TableIdentifier, is_absolute, plain_path
from paimon_cli.datatypes.data_type import MAX_NESTING
from paimon_cli.errors import DamagedFile, NotFound, NotSupported
from paimon_cli.options.option_text import shortened
from paimon_cli.pieces import PIECES

_FORMATS = {
    "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat": "parquet",
    "parquet.hive.DeprecatedParquetInputFormat": "parquet",
    "org.apache.hadoop.hive.ql.io.orc.OrcInputFormat": "orc",
}
"""Input formats of Hive -> the format of the files."""
_VIEWS = {"VIRTUAL_VIEW": "a view", "MATERIALIZED_VIEW": "a materialized view"}
_WRITE_ROWS = "let Hive or Spark write its rows into a table of Paimon"
_PLAIN = re.compile(r"(tinyint|smallint|int|bigint|boolean|float|double|date)|((?:var)?char\(\d+\)|decimal\(\d+,\s*\d+\))")
_RENAMED = {
    **{"string": "STRING", "binary": "BYTES", "integer": "INT", "decimal": "DECIMAL(10, 0)"},
    **{"timestamp": "TIMESTAMP(9)", "timestamp with local time zone": "TIMESTAMP(9) WITH LOCAL TIME ZONE"},
}


@dataclass(frozen=True)
class HivePartition:
    """The texts of its partition columns as the metastore has them, and the directory of its files."""

    values: tuple[str, ...]
    url: str


@dataclass(frozen=True)
class HiveTable:
    """A table of Hive. `columns`, `partition_columns`: names and types in SQL, in order. Without partition columns there is one
    partition without values.
    """

    name: str
    columns: tuple[tuple[str, str], ...]
    partition_columns: tuple[tuple[str, str], ...]
    partitions: tuple[HivePartition, ...]


def read_hive_table(address: HiveAddress, identifier: TableIdentifier) -> HiveTable:
    """Ask a metastore for a table. Raises `NotFound` if there is none, and `NotSupported` for views, ACID tables, tables of other
    storage handlers, and files that are neither Parquet nor ORC.
    """
    name = str(identifier)
    with address.connected() as client:
        table = client.get_table(*identifier)
        _check_kind(name, table)
        keys = tuple((column.name, sql_type(name, column)) for column in table.partitionKeys or ())
        columns = tuple((column.name, sql_type(name, column)) for column in table.sd.cols)
        own = _place(name, table.sd)
        partitions = tuple(_partitions(client, identifier)) if keys else (HivePartition((), own),)
    if not partitions:
        hint = "MSCK REPAIR TABLE in Hive registers directories, or adopt the directory of the table"
        raise NotFound(f"the Hive table {name} has no partitions", "the metastore knows none, so it has no rows", hint)
    return HiveTable(name, columns, keys, partitions)


def _partitions(client: Any, identifier: TableIdentifier) -> Iterator[HivePartition]:
    names = iter(sorted(client.get_partition_names(*identifier, -1)))
    while batch := list(islice(names, PIECES.hive_batch_tables)):
        for partition in client.get_partitions_by_names(*identifier, batch):
            what = f"partition {'/'.join(partition.values)} of {identifier}"
            _check_format(what, partition.sd)
            yield HivePartition(tuple(partition.values), _place(what, partition.sd))


def _check_kind(name: str, table: Any) -> None:
    parameters = {key.lower(): value for key, value in (table.parameters or {}).items()}
    if table.tableType in _VIEWS:
        raise NotSupported(f"{name} is {_VIEWS[table.tableType]}", "it has no files of its own", "adopt the tables below it")
    if parameters.get("transactional", "false").lower() == "true":
        why = "its files hold changes of rows, and its delta directories say which count"
        raise NotSupported(f"{name} is an ACID table of Hive", why, _WRITE_ROWS)
    kind = parameters.get("table_type") or parameters.get("spark.sql.sources.provider") or "hive"
    if kind.lower() not in ("hive", "parquet", "orc") or "storage_handler" in parameters:
        why = f"it is a table of {shortened(kind)}, whose own metadata says which files count"
        raise NotSupported(f"{name} is no table of Hive's own files", why, "an Iceberg table is adopted by its directory")
    _check_format(name, table.sd)


def _check_format(what: str, descriptor: Any) -> None:
    found = descriptor.inputFormat or "none"
    if found not in _FORMATS:
        why = f"its input format is {shortened(found)}; only Parquet and ORC files can be adopted"
        raise NotSupported(f"the files of {what} cannot be adopted", why, _WRITE_ROWS)


def _place(what: str, descriptor: Any) -> str:
    location = descriptor.location or ""
    if not is_absolute(location):
        raise DamagedFile(f"the metastore names '{shortened(location)}' as the location of {what}", "it is no absolute place")
    return plain_path(location).rstrip("/")


def sql_type(table: str, column: Any) -> str:
    """The SQL type of a column of Hive. Raises `NotSupported` for a type that Paimon does not have, such as uniontype."""
    try:
        return _sql(column.type.strip(), 0)
    except ValueError:
        why = f"column {column.name} is {shortened(column.type)}"
        raise NotSupported(f"the Hive table {table} has a type that Paimon does not have", why, _WRITE_ROWS) from None


def _sql(text: str, depth: int) -> str:
    plain = text.lower()
    if depth > MAX_NESTING:
        raise ValueError(text)
    if plain in _RENAMED:
        return _RENAMED[plain]
    if _PLAIN.fullmatch(plain):
        return plain.upper()
    kind, mark, inner = text.partition("<")
    if mark and inner.endswith(">"):
        parts = list(_parts(inner[:-1]))
        if kind.lower() == "struct":
            fields = [part.partition(":") for part in parts]
            if all(name and "`" not in name for name, _, _ in fields):
                return f"ROW<{', '.join(f'`{name}` {_sql(t, depth + 1)}' for name, _, t in fields)}>"
        elif (kind.lower(), len(parts)) in (("array", 1), ("map", 2)):
            return f"{kind.upper()}<{', '.join(_sql(part, depth + 1) for part in parts)}>"
    raise ValueError(text)


def _parts(text: str) -> Iterator[str]:
    """The parts between commas that are in no brackets."""
    depth = start = 0
    for position, letter in enumerate(text):
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and not depth:
            yield text[start:position]
            start = position + 1
    yield text[start:]
