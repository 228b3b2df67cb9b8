"""SQL assignments as expressions, every kind checked before a row is read."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from sqlglot import exp

from paimon_cli.datatypes.arrow_types import arrow_field
from paimon_cli.datatypes.data_type import DataField
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.errors import UsageError
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.read.assignment import Assignment
from paimon_cli.read.expression_sql import ExpressionReader
from paimon_cli.read.expressions import NUMERIC, WHOLE, can_become, kind_of
from paimon_cli.read.sql_text import SqlText, sql_of

UPDATE = "UPDATE t SET "


def assignments_of(texts: Sequence[str], schema: TableSchema) -> tuple[Assignment, ...]:
    """Raises UsageError: broken or unsupported SQL, unknown, fixed or repeated columns, kinds that do not fit."""
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
    """Evaluate on no rows: products and quotients of decimals can outgrow every type."""
    nothing = pa.schema([arrow_field(field) for field in schema.fields if field.name in set(assignment.columns())])
    try:
        assignment.expression.evaluate(pa.RecordBatch.from_pylist([], schema=nothing))
    except pa.ArrowInvalid as problem:
        raise UsageError(f"cannot compute {assignment.sql}", str(problem), "its decimals have too many digits") from problem
