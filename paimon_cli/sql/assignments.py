"""The SET clause of an update: `column = expression`, with every type checked before a row is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from paimon_cli.datatypes.arrow_types import arrow_field
from paimon_cli.datatypes.data_type import DataField, DecimalType
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.errors import UsageError
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.sql.expression_sql import ExpressionReader, SqlText, sql_of
from paimon_cli.sql.expressions import NUMERIC, WHOLE, Expression, as_kind, can_become, kind_of


class BadRow(Exception):
    """An expression that cannot be computed for a row; `row` counts from 0 within the batch, `why` as in "overflow"."""

    def __init__(self, row: int, why: str) -> None:
        super().__init__(row, why)
        self.row = row
        self.why = why


@dataclass(frozen=True)
class Assignment:
    """One column and its new value; `sql` is the expression as the user wrote it."""

    column: DataField
    expression: Expression
    sql: str

    def evaluate(self, batch: pa.RecordBatch) -> pa.Array:
        """The new values, of the column's kind but not yet of its width; decimals are rounded half up to its digits.

        All expressions read the values from before the update. Raises `BadRow` for the first row that cannot be computed.
        """
        try:
            return self._evaluate(batch)
        except pa.ArrowInvalid as problem:
            raise BadRow(self._first_bad_row(batch), str(problem)) from problem

    def _evaluate(self, batch: pa.RecordBatch) -> pa.Array:
        t = self.column.type
        values = as_kind(self.expression.evaluate(batch), kind_of(t))
        if kind_of(t) == WHOLE:
            return values.cast(pa.int64())
        if isinstance(t, DecimalType) and values.type.scale > t.scale:
            values = pc.round(values, t.scale, round_mode="half_towards_infinity")
        return values

    def _first_bad_row(self, batch: pa.RecordBatch) -> int:
        """The first row that the expression cannot compute, found by halving."""
        low, high = 0, batch.num_rows
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._computes(batch.slice(low, middle - low)) else (low, middle)
        return low

    def _computes(self, batch: pa.RecordBatch) -> bool:
        try:
            self._evaluate(batch)
        except pa.ArrowInvalid:
            return False
        return True

    def columns(self) -> Iterator[str]:
        """Columns that the expression reads."""
        yield from self.expression.columns()


UPDATE = "UPDATE t SET "


def assignments_of(texts: Sequence[str], schema: TableSchema) -> tuple[Assignment, ...]:
    """Parse the assignments. `UsageError` for broken or unsupported SQL, unknown, fixed or repeated columns, and kinds that do
    not fit.
    """
    found: list[Assignment] = []
    for text in texts:
        sql = SqlText(text, "assignment", UPDATE)
        found += [_assignment(node, sql, schema) for node in _nodes(sql)]
    names = [assignment.column.name for assignment in found]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"column '{name}' is set twice", "a column takes a single new value")
    return tuple(found)


def _nodes(sql: SqlText) -> list[exp.Expr]:
    statement = sql.parsed()
    extra = {name for name, value in statement.args.items() if value} - {"this", "expressions"}
    nodes = list(statement.expressions)
    if extra or not nodes or not all(isinstance(node, exp.EQ) and isinstance(node.this, exp.Column) for node in nodes):
        raise UsageError(
            f"cannot read the assignment: {sql.text}", "the form is column = expression", '--set "points = points + 1"'
        )
    return nodes


def _assignment(node: exp.Expr, sql: SqlText, schema: TableSchema) -> Assignment:
    reader = ExpressionReader(schema, sql)
    column = _target(reader, node.this, schema)
    right = node.args["expression"]
    expression = reader.expression(right, column.type)
    kind, wanted = expression.kind, kind_of(column.type)
    if not can_become(kind, wanted):
        hint = "round(...), floor(...) and ceil(...) make whole numbers" if wanted == WHOLE and kind in NUMERIC else ""
        raise UsageError(f"column '{column.name}' ({type_to_sql(column.type)}) takes no {kind}: {sql.text}", hint=hint)
    assignment = Assignment(column, expression, sql_of(right))
    _check_digits(assignment, schema)
    return assignment


def _target(reader: ExpressionReader, node: exp.Expr, schema: TableSchema) -> DataField:
    value = reader.column(node)
    if value.path:
        raise reader.sql.refused(node, "a field cannot be set separately from its column")
    for keys, what in ((schema.primary_keys, "primary key"), (schema.partition_keys, "partition key")):
        if value.name in keys:
            raise UsageError(
                f"column '{value.name}' cannot be set", f"it belongs to the {what}", "delete the row and write another one"
            )
    return schema.field(value.name)


def _check_digits(assignment: Assignment, schema: TableSchema) -> None:
    """Evaluate on no rows, because products and quotients of decimals can exceed every type."""
    nothing = pa.schema([arrow_field(field) for field in schema.fields if field.name in set(assignment.columns())])
    try:
        assignment.expression.evaluate(pa.RecordBatch.from_pylist([], schema=nothing))
    except pa.ArrowInvalid as problem:
        raise UsageError(f"cannot compute {assignment.sql}", str(problem), "its decimals have too many digits") from problem


@dataclass(frozen=True)
class SetClause:
    """One assignment for each column that is set. It is pickled as its texts."""

    texts: tuple[str, ...]
    schema: TableSchema
    assignments: tuple[Assignment, ...]

    def __reduce__(self) -> tuple[Any, ...]:
        return parse_set_clause, (self.texts, self.schema)


def parse_set_clause(texts: Sequence[str], schema: TableSchema) -> SetClause:
    """Parse texts of the form `column = expression`; each may hold several, separated by commas.

    Expressions: columns, fields (a.b), literals, NULL, + - * / %, ||, concat, upper, lower, length, coalesce, abs, round, floor,
    ceil. `UsageError` for other SQL, unknown columns, values of another type, and key or partition columns.
    """
    return SetClause(tuple(texts), schema, assignments_of(texts, schema))
