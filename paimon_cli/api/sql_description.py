"""`DESCRIBE table`: DuckDB sees the columns of a table, but not its keys, and calls every column nullable."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from paimon_cli.metadata.table_schema import TableSchema

_NAME, _NULL, _KEY = "column_name", "null", "key"


def shows_columns(statement: Mapping[str, Any]) -> bool:
    """Whether a parsed statement is a DESCRIBE, which reads no values."""
    shown = statement["node"].get("from_table") or {}
    return shown.get("type") == "SHOW_REF" and shown.get("show_type") == "DESCRIBE"


def describes_a_table(statement: Mapping[str, Any]) -> bool:
    """Whether a parsed statement is a DESCRIBE of one table, with all of its columns."""
    shown = statement["node"].get("from_table") or {}
    query = shown.get("query") or {}
    columns = query.get("select_list") or [{}]
    is_whole = len(columns) == 1 and columns[0].get("type") == "STAR" and query["from_table"].get("type") == "BASE_TABLE"
    return is_whole and shows_columns(statement)


def _is_numbered(given: str, name: str) -> bool:
    """Whether DuckDB means this column: it adds `_1` to one that differs from another only in case."""
    return re.fullmatch(re.escape(name) + r"(_\d+)?", given, re.IGNORECASE) is not None


def with_constraints(rows: pa.RecordBatchReader, schema: TableSchema, names: Sequence[str]) -> pa.RecordBatchReader:
    """The description with what the schema of the table knows: columns that are never null, and the primary key.

    `names`: of the described columns; DuckDB numbers those that differ only in case.
    """
    described = rows.read_all()
    given = described[_NAME].to_pylist()
    if len(given) != len(names) or not all(map(_is_numbered, given, names)):
        names = given  # a star that leaves columns out, or names them anew
    required = {field.name for field in schema.fields if not field.type.nullable} | set(schema.primary_keys)
    texts: dict[str, list[str | None]] = {
        _NAME: list(names),
        _NULL: ["NO" if name in required else "YES" for name in names],
        _KEY: ["PRI" if name in schema.primary_keys else None for name in names],
    }
    for name, values in texts.items():
        place = described.schema.get_field_index(name)
        described = described.set_column(
            place, described.schema.field(place), pa.array(values, described.schema.field(place).type)
        )
    return described.to_reader()
