"""SELECT lists and ORDER BY clauses, read by the reader of conditions and assignments."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.dialects.sqlite import SQLite

from paimon_cli.datatypes.data_type import NestedType
from paimon_cli.errors import UsageError
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.read.row_order import RowOrder, SortKey
from paimon_cli.sql.expression_sql import ExpressionReader, SqlText, is_column
from paimon_cli.sql.expressions import ColumnValue


class NullsLast(SQLite):
    """By default nulls come last, in either direction."""

    NULL_ORDERING = "nulls_are_last"


def selected_values(text: str, schema: TableSchema) -> tuple[ColumnValue, ...]:
    """`a, b.c` as columns and fields. Raises UsageError for anything else."""
    sql = SqlText(text, "list of columns", "SELECT ")
    statement = sql.parsed()
    reader = ExpressionReader(schema, sql)
    if not isinstance(statement, exp.Select) or any(value for name, value in statement.args.items() if name != "expressions"):
        raise UsageError(
            f"cannot read the {sql.what}: {text}", "names separated by commas are expected", "such as id,a.b,`last name`"
        )
    for node in statement.expressions:
        if not is_column(node):
            raise sql.refused(node, "names separated by commas are expected", "such as id,a.b,`last name`")
    return tuple(reader.column(node) for node in statement.expressions)


def row_order_of(text: str, schema: TableSchema) -> RowOrder:
    """`a, b DESC NULLS FIRST, c + d`. Raises UsageError for broken SQL, unknown columns and values without an order."""
    sql = SqlText(text, "order", "SELECT 1 ORDER BY ", NullsLast)
    statement = sql.parsed()
    extra = {name for name, value in statement.args.items() if value} - {"expressions", "order", "kind"}
    order = statement.args.get("order")
    if not isinstance(statement, exp.Select) or extra or order is None:
        raise UsageError(
            f"cannot read the order: {text}", "values separated by commas are expected, each optionally followed by ASC or DESC"
        )
    reader = ExpressionReader(schema, sql)
    keys = []
    for node in order.expressions:
        value = reader.expression(node.this, reader.type_beside(node.this))
        if isinstance(value, ColumnValue) and isinstance(value.type, NestedType):
            raise UsageError(f"{sql.part(node.this)} is nested", "values of its type have no order")
        if not list(value.columns()):
            raise sql.refused(node.this, "it is the same for every row", "order by a column, such as id DESC")
        keys.append(SortKey(value, bool(node.args.get("desc")), bool(node.args.get("nulls_first"))))
    return RowOrder(text, tuple(keys))
