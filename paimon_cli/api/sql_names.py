"""Names that SQL takes for one although they are two: upper and lower case are the same in it, and not in tables."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from paimon_cli.datatypes.data_type import DataType, fields_of
from paimon_cli.errors import NotSupported, UsageError

if TYPE_CHECKING:
    from paimon_cli.metadata.table_schema import TableSchema
    from paimon_cli.sql.changes import MergeInto


def check_columns_differ(table: str, schema: TableSchema, statement: str, *, expands: bool = False) -> None:
    """Raise `NotSupported` for columns that differ only in case, and for fields of a column that do, if the statement reads them.

    DuckDB would answer for either with the first of them. `statement`: as it was written. `expands`: whether it may
    read fields without naming them.
    """
    alike = _alike(schema.field_names)
    for column in schema.fields:
        fields = _alike_fields(column.name, column.type)
        if expands or any(_has_word(statement, path[-1]) for path in fields):
            alike += [".".join(path) for path in fields]
    if alike:
        raise NotSupported(
            f"this statement over {table}, which has {', '.join(alike)}",
            "SQL takes names that differ only in case for one, and would read or change the wrong column",
            "commands and methods take names as they are: read, update, delete, merge; or ALTER TABLE ... RENAME COLUMN",
            table=table,
        )


def _alike(names: Sequence[str]) -> list[str]:
    times = Counter(name.lower() for name in names)
    return [name for name in names if times[name.lower()] > 1]


def _alike_fields(name: str, of_type: DataType, *outer: str) -> list[tuple[str, ...]]:
    """The paths of fields that differ only in case, at any depth of a column."""
    path, fields = (*outer, name), fields_of(of_type)
    found = [(*path, field) for field in _alike([field.name for field in fields])]
    for field in fields:
        found += _alike_fields(field.name, field.type, *path)
    for child in () if fields else of_type.children:
        found += _alike_fields(name, child, *outer)
    return found


def _has_word(statement: str, name: str) -> bool:
    spellings = {name, name.replace('"', '""'), name.replace("'", "''")}
    return any(re.search(rf"(?<!\w){re.escape(one)}(?!\w)", statement, re.IGNORECASE) for one in spellings)


def check_sides_differ(asked: MergeInto) -> None:
    """Raise `UsageError` for a MERGE whose sides have one name: `t.v` would be a column of either."""
    name = asked.names[0]
    if name.lower() == asked.source_name.lower():
        what = f"the table and the source of the MERGE are both called '{name}'"
        why = "upper and lower case are the same in SQL"
        raise UsageError(what, why, "give one of them another name: MERGE INTO a.t USING b.t AS s")
