"""SQL clauses that commands accept: SET for an update, the SELECT list and ORDER BY for a read.

All types are checked before the first row is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from paimon_cli.datatypes.arrow_types import arrow_field
from paimon_cli.datatypes.data_type import DataField, DecimalType, NestedType, VariantType
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.datatypes.type_text import quoted_name
from paimon_cli.errors import UsageError
from paimon_cli.metadata.data_file_schema import TRACKING_COLUMNS, fields_of_star
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.option_text import shortened
from paimon_cli.sql.expression_sql import ASSIGNMENT, ExpressionReader, is_column
from paimon_cli.sql.expressions import NUMERIC, ColumnValue, Expression, Given, SortKey, ValueKind, as_kind, can_become, kind_of
from paimon_cli.sql.parameters import Sql
from paimon_cli.sql.sql_text import SqlText, sql_of


class BadRow(Exception):
    """An expression cannot be evaluated for a row. `row`: its index in the batch; `why`: the reason, such as "overflow"."""

    def __init__(self, row: int, why: str) -> None:
        super().__init__(row, why)
        self.row = row
        self.why = why


@dataclass(frozen=True)
class SetItem:
    """Assigns an expression to a column; `sql` is the expression as the user wrote it."""

    column: DataField
    expression: Expression
    sql: str

    def evaluate(self, batch: pa.RecordBatch) -> pa.Array:
        """The new values, converted to the column's kind but not yet to its width; decimals are rounded half up to its scale.

        Expressions read the values from before the update. Raises `BadRow` for the first row that cannot be evaluated.
        """
        try:
            return self._evaluate(batch)
        except pa.ArrowInvalid as problem:
            raise BadRow(self._first_bad_row(batch), str(problem)) from problem

    def _evaluate(self, batch: pa.RecordBatch) -> pa.Array:
        t = self.column.type
        values = as_kind(self.expression.evaluate(batch), kind_of(t))
        if kind_of(t) == ValueKind.WHOLE:
            return values.cast(pa.int64())
        if isinstance(t, DecimalType) and values.type.scale > t.scale:
            values = pc.round(values, t.scale, round_mode="half_towards_infinity")
        return values

    def _first_bad_row(self, batch: pa.RecordBatch) -> int:
        """Find the first row that cannot be evaluated, by binary search."""
        low, high = 0, batch.num_rows
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._can_evaluate(batch.slice(low, middle - low)) else (low, middle)
        return low

    def _can_evaluate(self, batch: pa.RecordBatch) -> bool:
        try:
            self._evaluate(batch)
        except pa.ArrowInvalid:
            return False
        return True

    def columns(self) -> Iterator[str]:
        """The columns that the expression reads."""
        yield from self.expression.columns()


UPDATE = "UPDATE t SET "


def parse_set_clause(
    texts: Sequence[str],
    schema: TableSchema,
    params: Mapping[str, Any] | None = None,
    values: Mapping[str, pa.Array] | None = None,
) -> SetClause:
    """Parse strings of the form `column = expression`; each may hold several assignments, separated by commas.

    `params`: the values of parameters, which are written as `:name`. `values`: for other columns the value that all rows get, one
    of the column's type. Expressions: columns, fields (a.b), literals, NULL, + - * / %, ||, concat, upper, lower, length,
    coalesce, abs, round, floor, ceil.

    Raises `UsageError` for invalid or unsupported SQL, for columns that are unknown, cannot be changed or are set twice, and for
    values of a kind that the column cannot hold. Partition columns can be changed if rows may move to another partition.
    """
    found: list[SetItem] = []
    used: set[str] = set()
    for text in texts:
        sql = SqlText(text, ASSIGNMENT, UPDATE, params=params or {}, used=used)
        found += [_assignment(node, sql, schema) for node in _nodes(sql)]
    found += [SetItem(_settable(name, schema), Given(value), "its value") for name, value in (values or {}).items()]
    names = [assignment.column.name for assignment in found]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"column '{name}' is set twice", "each column can be assigned only once")
    return SetClause(tuple(texts), schema, tuple(found), params, values, frozenset(used))


def one_assignment(name: str, expression: str) -> str:
    """`column = expression` for a column and an expression that were given apart.

    Raises `UsageError` if the expression is none, or ends in something else: `1, price = 0` would set another column, too.
    """
    sql = SqlText(f"{quoted_name(name)} = {expression}", ASSIGNMENT, UPDATE)
    if len(_assignments_in(sql.with_parameters(), sql)) > 1:
        what = f"the value of '{name}' is not one expression: {shortened(expression)}"
        raise UsageError(what, "it would set other columns as well", "give each column its own expression")
    return sql.text


def _nodes(sql: SqlText) -> list[exp.Expr]:
    return _assignments_in(sql.parsed(), sql)


def _assignments_in(statement: exp.Expr, sql: SqlText) -> list[exp.Expr]:
    extra = {name for name, value in statement.args.items() if value} - {"this", "expressions"}
    nodes = list(statement.expressions)
    if extra or not nodes or not all(isinstance(node, exp.EQ) and isinstance(node.this, exp.Column) for node in nodes):
        raise UsageError(
            f"cannot read the assignment: {sql.shown}", "the form is column = expression", '--set "points = points + 1"'
        )
    return nodes


def _assignment(node: exp.Expr, sql: SqlText, schema: TableSchema) -> SetItem:
    reader = ExpressionReader(schema, sql)
    column = _target(reader, node.this, schema)
    right = node.args["expression"]
    expression = reader.expression(right, column.type)
    kind, wanted = expression.kind, kind_of(column.type)
    is_json = kind == ValueKind.TEXT and isinstance(column.type, VariantType)
    if not (can_become(kind, wanted) or is_json):
        hint = "round(...), floor(...) and ceil(...) return integers" if wanted == ValueKind.WHOLE and kind in NUMERIC else ""
        what = f"cannot set column '{column.name}' ({type_to_sql(column.type)}) to a value of type {kind}"
        raise UsageError(f"{what}: {sql.shown}", hint=hint)
    assignment = SetItem(column, expression, sql_of(right))
    _check_digits(assignment, schema)
    return assignment


def _target(reader: ExpressionReader, node: exp.Expr, schema: TableSchema) -> DataField:
    value = reader.column(node)
    if value.path:
        raise reader.sql.refused(node, "a field cannot be set separately from its column")
    return _settable(value.name, schema)


def _settable(name: str, schema: TableSchema) -> DataField:
    """The column with this name. Raises `UsageError` if its value decides where the row is stored."""
    if name in TRACKING_COLUMNS:
        why = "each row gets its id and number from a commit, and keeps the id for life"
        raise UsageError(f"column '{name}' cannot be set", why, "leave it out", column=name)
    partition_keys = () if schema.has_movable_rows else schema.partition_keys
    fixed = {"primary key": schema.primary_keys, "partition key": partition_keys, "bucket key": schema.bucket_key_names}
    for what, keys in fixed.items():
        if name in keys:
            raise UsageError(
                f"column '{name}' cannot be set", f"it belongs to the {what}", "delete the row and write another one"
            )
    return schema.field(name)


def _check_digits(assignment: SetItem, schema: TableSchema) -> None:
    """Evaluate on an empty batch: the product or quotient of two decimals may need more digits than any type has."""
    empty = pa.schema([arrow_field(field) for field in schema.fields if field.name in set(assignment.columns())])
    try:
        assignment.expression.evaluate(pa.RecordBatch.from_pylist([], schema=empty))
    except pa.ArrowInvalid as problem:
        raise UsageError(f"cannot compute {assignment.sql}", str(problem), "its decimals have too many digits") from problem


@dataclass(frozen=True)
class SetClause:
    """The assignments of an update, at most one per column. It is pickled as its SQL."""

    texts: tuple[str, ...]
    schema: TableSchema
    assignments: tuple[SetItem, ...]
    params: Mapping[str, Any] | None = None
    values: Mapping[str, pa.Array] | None = None
    parameters: frozenset[str] = frozenset()
    """The names of the parameters in the texts."""

    def __reduce__(self) -> tuple[Any, ...]:
        return parse_set_clause, (self.texts, self.schema, self.params, self.values)


class NullsLast(Sql):
    """The dialect of our SQL, except that nulls sort last by default, both ascending and descending."""

    NULL_ORDERING = "nulls_are_last"


def selected_values(text: str, schema: TableSchema) -> tuple[ColumnValue, ...]:
    """Parse a list of columns and fields such as `a, b.c`, or `*` for all columns. Raises `UsageError` for anything else."""
    sql = SqlText(text, "list of columns", "SELECT ")
    statement = sql.parsed()
    reader = ExpressionReader(schema, sql)
    if not isinstance(statement, exp.Select) or any(value for name, value in statement.args.items() if name != "expressions"):
        raise UsageError(
            f"cannot read the {sql.what}: {shortened(text)}", "expected names separated by commas", "such as id,a.b,`last name`"
        )
    values: list[ColumnValue] = []
    for node in statement.expressions:
        if isinstance(node, exp.Star) and not any(node.args.values()):
            values += (ColumnValue(field.name, field.type) for field in fields_of_star(schema))
        elif is_column(node):
            values.append(reader.column(node))
        else:
            raise sql.refused(node, "expected names separated by commas", "such as id,a.b,`last name`")
    return tuple(values)


def sort_keys(text: str, schema: TableSchema) -> tuple[SortKey, ...]:
    """Parse an ORDER BY list such as `a, b DESC NULLS FIRST, c + d`.

    Raises `UsageError` for invalid SQL, unknown columns and values that cannot be ordered.
    """
    sql = SqlText(text, "order", "SELECT 1 ORDER BY ", NullsLast)
    statement = sql.parsed()
    extra = {name for name, value in statement.args.items() if value} - {"expressions", "order", "kind"}
    order = statement.args.get("order")
    if not isinstance(statement, exp.Select) or extra or order is None:
        raise UsageError(
            f"cannot read the order: {shortened(text)}",
            "expected values separated by commas, each optionally followed by ASC or DESC",
        )
    reader = ExpressionReader(schema, sql)
    keys = []
    for node in order.expressions:
        value = reader.expression(node.this, reader.literal_type(node.this))
        if isinstance(value, ColumnValue) and isinstance(value.type, NestedType):
            raise UsageError(f"{sql.part(node.this)} is nested", "values of nested types cannot be ordered")
        if not list(value.columns()):
            raise sql.refused(node.this, "it is the same for every row", "order by a column, such as id DESC")
        keys.append(SortKey(value, bool(node.args.get("desc")), bool(node.args.get("nulls_first"))))
    return tuple(keys)
