"""Names that SQL takes for one although they are two: upper and lower case are the same in it, and not in tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from paimon_cli.datatypes.data_type import fields_of
from paimon_cli.errors import NotSupported, UsageError

if TYPE_CHECKING:
    from paimon_cli.metadata.table_schema import TableSchema
    from paimon_cli.sql.changes import MergeInto


def check_columns_differ(table: str, schema: TableSchema) -> None:
    """Raise `NotSupported` for columns, or fields of one column, that differ only in case.

    DuckDB would answer for either with the first of them.
    """
    for names in _groups(schema):
        times = Counter(name.lower() for name in names)
        alike = [name for name in names if times[name.lower()] > 1]
        if alike:
            raise NotSupported(
                f"this statement over {table}, which has {', '.join(alike)}",
                "SQL takes names that differ only in case for one, and would read or change the wrong column",
                "commands and methods take names as they are: read, update, delete, merge; or ALTER TABLE ... RENAME COLUMN",
                table=table,
            )


def _groups(schema: TableSchema) -> Iterator[Sequence[str]]:
    yield schema.field_names
    for column in schema.fields:
        for part in column.type.parts():
            yield [field.name for field in fields_of(part)]


def check_sides_differ(asked: MergeInto) -> None:
    """Raise `UsageError` for a MERGE whose sides have one name: `t.v` would be a column of either."""
    name = asked.names[0]
    if name.lower() == asked.source_name.lower():
        what = f"the table and the source of the MERGE are both called '{name}'"
        why = "upper and lower case are the same in SQL"
        raise UsageError(what, why, "give one of them another name: MERGE INTO a.t USING b.t AS s")
