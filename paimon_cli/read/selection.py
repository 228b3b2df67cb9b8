"""What a read returns: which columns, which fields inside them, in which order."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa

from paimon_cli.datatypes.data_type import DataField
from paimon_cli.errors import UsageError
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.read.row_order import RowOrder
from paimon_cli.sql.expressions import ColumnValue

NESTED_NAME = "."
_NAME = re.compile(r'\s*(?:(?P<quoted>`(?:[^`]|``)+`|"(?:[^"]|"")+")\s*|(?P<plain>[^,`"\s][^,]*)?)(?:,|$)')


@dataclass(frozen=True)
class Selection:
    """Columns in output order; a field is called as it is typed: `a.b`."""

    values: tuple[ColumnValue, ...]

    @property
    def fields(self) -> tuple[DataField, ...]:
        """Names and types of what is given."""
        named = zip(self.names, self.values, strict=True)
        return tuple(DataField(n, name, value.type.with_nullable(True)) for n, (name, value) in enumerate(named))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(NESTED_NAME.join((value.name, *value.path)) for value in self.values)

    @property
    def columns(self) -> tuple[str, ...]:
        """The table's columns that must be read, each once."""
        return tuple(dict.fromkeys(value.name for value in self.values))

    def of(self, batch: pa.RecordBatch) -> list[pa.Array]:
        return [value.stored(batch) for value in self.values]


def selected(schema: TableSchema, text: str | None) -> Selection:
    """Columns that `text` names (None: all), quoted or not; `a.b` that is no column is a field. Raises UsageError."""
    if text is None:
        return Selection(tuple(ColumnValue(field.name, field.type) for field in schema.fields))
    try:
        names = quoted_names(text)
    except UsageError:
        if NESTED_NAME not in text:
            raise
        names = ()
    if NESTED_NAME in text and not (names and all(map(schema.find, names))):
        from paimon_cli.read.selection_sql import selected_values  # sqlglot takes long to import

        values = selected_values(text, schema)
    else:
        values = tuple(ColumnValue(field.name, field.type) for field in schema.fields_of(names))
    if not values:
        raise UsageError("no columns to read", hint=f"the columns are {', '.join(schema.field_names)}")
    selection = Selection(values)
    if len(set(selection.names)) < len(values):
        raise UsageError("a column is selected twice", ", ".join(selection.names))
    return selection


def parse_order(text: str, schema: TableSchema) -> RowOrder:
    """`a, b DESC NULLS FIRST`, of values as conditions have them. Raises UsageError."""
    from paimon_cli.read.selection_sql import row_order_of  # sqlglot takes long to import

    return row_order_of(text, schema)


def quoted_names(text: str) -> tuple[str, ...]:
    """The same, where a name may stand in backquotes or double quotes (doubled inside), as in a condition; `UsageError`."""
    names: list[str] = []
    place = 0
    while place < len(text):
        found = _NAME.match(text, place)
        if found is None:
            what = f"cannot read the names {text}"
            raise UsageError(what, "names are separated by commas, and quotes must be closed", 'such as id,`last name`,"a,b"')
        if found["quoted"]:
            quote = found["quoted"][0]
            names.append(found["quoted"][1:-1].replace(quote * 2, quote))
        elif found["plain"]:
            names.append(found["plain"].strip())
        place = found.end()
    return tuple(names)
