"""SQL assignments as expressions, every kind checked before a row is read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal

import pyarrow as pa
from sqlglot import exp

from paimon_cli.datatypes.arrow_types import arrow_field
from paimon_cli.datatypes.data_type import MAX_LENGTH, TIMESTAMP_ROOTS, DataField, DataType
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.errors import UsageError
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.read.assignment import Assignment
from paimon_cli.read.expressions import (
    NUMERIC,
    TEXT,
    WHOLE,
    Arithmetic,
    Coalesce,
    ColumnValue,
    Constant,
    Expression,
    Function,
    can_become,
    kind_of,
)
from paimon_cli.read.literals import Literal, units_of, whole_number
from paimon_cli.read.sql_text import literal_of, parsed, sql_of

OPERATORS: dict[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%"}
TEXT_FUNCTIONS: dict[type[exp.Expr], str] = {exp.Upper: "upper", exp.Lower: "lower"}
ROUNDINGS: dict[type[exp.Expr], str] = {exp.Round: "round", exp.Floor: "floor", exp.Ceil: "ceil"}

STRING = DataType("VARCHAR", length=MAX_LENGTH)
BIGINT = DataType("BIGINT")
DOUBLE = DataType("DOUBLE")
BOOLEAN = DataType("BOOLEAN")
BYTES = DataType("VARBINARY", length=MAX_LENGTH)
TEMPORAL_ROOTS = TIMESTAMP_ROOTS | {"DATE", "TIME"}
MOST_DIGITS = 38
LARGEST_WHOLE = 2**63 - 1


def assignments_of(texts: Sequence[str], schema: TableSchema) -> tuple[Assignment, ...]:
    """Raises UsageError: broken or unsupported SQL, unknown, fixed or repeated columns, kinds that do not fit."""
    reader = _Reader(schema)
    found = [reader.assignment(node, text) for text in texts for node in _nodes(text)]
    names = [assignment.column.name for assignment in found]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"column '{name}' is set twice", "it cannot become two things at once")
    return tuple(found)


def _nodes(text: str) -> list[exp.Expr]:
    statement = parsed(text, "assignment", "UPDATE t SET ")
    extra = {name for name, value in statement.args.items() if value} - {"this", "expressions"}
    nodes = list(statement.expressions)
    if extra or not nodes or not all(isinstance(node, exp.EQ) and isinstance(node.this, exp.Column) for node in nodes):
        raise UsageError(
            f"cannot read the assignment: {text}", "it has the form column = expression", '--set "points = points + 1"'
        )
    return nodes


class _Reader:
    def __init__(self, schema: TableSchema) -> None:
        self._schema = schema

    def assignment(self, node: exp.Expr, text: str) -> Assignment:
        column = self._target(node.this)
        right = node.args["expression"]
        expression = self._expression(right, column.type)
        kind, wanted = expression.kind, kind_of(column.type)
        if not can_become(kind, wanted):
            hint = "round(...), floor(...) and ceil(...) make whole numbers" if wanted == WHOLE and kind in NUMERIC else ""
            raise UsageError(f"column '{column.name}' ({type_to_sql(column.type)}) takes no {kind}: {text}", hint=hint)
        assignment = Assignment(column, expression, sql_of(right))
        self._check_digits(assignment)
        return assignment

    def _target(self, node: exp.Expr) -> DataField:
        column = self._column(node)
        for keys, what in ((self._schema.primary_keys, "primary key"), (self._schema.partition_keys, "partition key")):
            if column.name in keys:
                raise UsageError(
                    f"column '{column.name}' cannot be set", f"it belongs to the {what}", "delete the row and write another one"
                )
        return column

    def _column(self, node: exp.Expr) -> DataField:
        if node.args.get("table") or not node.name:
            raise _unsupported(node)
        return self._schema.field(node.name)

    def _check_digits(self, assignment: Assignment) -> None:
        """Evaluate on no rows: products and quotients of decimals can outgrow every type."""
        nothing = pa.schema([arrow_field(field) for field in self._schema.fields if field.name in set(assignment.columns())])
        try:
            assignment.expression.evaluate(pa.RecordBatch.from_pylist([], schema=nothing))
        except pa.ArrowInvalid as problem:
            raise UsageError(f"cannot compute {assignment.sql}", str(problem), "its decimals have too many digits") from problem

    def _expression(self, node: exp.Expr, wanted: DataType) -> Expression:
        """`wanted` is what a literal without a type of its own is read as."""
        if isinstance(node, exp.Paren):
            return self._expression(node.this, wanted)
        if isinstance(node, exp.Column):
            column = self._column(node)
            return ColumnValue(column.name, kind_of(column.type))
        literal = literal_of(node)
        if literal is not None:
            return _constant(literal, wanted)
        if isinstance(node, exp.Neg):
            return Arithmetic("-", Constant(0, BIGINT), self._operand(node.this, node))
        if type(node) in OPERATORS:
            return self._arithmetic(node, OPERATORS[type(node)])
        if isinstance(node, exp.DPipe):
            return self._text_function("concat", [node.this, node.args["expression"]], node)
        if isinstance(node, exp.Concat):
            return self._text_function("concat", node.expressions, node)
        if type(node) in TEXT_FUNCTIONS:
            return self._text_function(TEXT_FUNCTIONS[type(node)], [node.this], node)
        if type(node) in ROUNDINGS and not (node.args.get("decimals") or node.args.get("to")):
            return Function(ROUNDINGS[type(node)], (self._operand(node.this, node),), WHOLE)
        if isinstance(node, exp.Coalesce):
            return self._coalesce([node.this, *node.expressions], wanted, node)
        raise _unsupported(node)

    def _arithmetic(self, node: exp.Expr, op: str) -> Expression:
        found = Arithmetic(op, self._operand(node.this, node), self._operand(node.args["expression"], node))
        if op == "%" and found.kind != WHOLE:
            raise UsageError(f"cannot compute {sql_of(node)}", "% takes whole numbers")
        return found

    def _operand(self, node: exp.Expr, whole: exp.Expr) -> Expression:
        operand = self._expression(node, BIGINT)
        if operand.kind not in NUMERIC:
            raise UsageError(f"cannot compute {sql_of(whole)}", f"{sql_of(node)} is no number")
        return operand

    def _text_function(self, name: str, nodes: Sequence[exp.Expr], whole: exp.Expr) -> Expression:
        arguments = tuple(self._expression(node, STRING) for node in nodes)
        for node, argument in zip(nodes, arguments, strict=True):
            if argument.kind != TEXT:
                raise UsageError(f"cannot compute {sql_of(whole)}", f"{sql_of(node)} is no text")
        return Function(name, arguments, TEXT)

    def _coalesce(self, nodes: Sequence[exp.Expr], wanted: DataType, whole: exp.Expr) -> Expression:
        found = Coalesce(tuple(self._expression(node, wanted) for node in nodes))
        if not all(can_become(argument.kind, found.kind) for argument in found.arguments):
            kinds = ", ".join(dict.fromkeys(argument.kind for argument in found.arguments))
            raise UsageError(f"cannot compute {sql_of(whole)}", f"its arguments are of several kinds: {kinds}")
        return found


def _constant(literal: Literal, wanted: DataType) -> Constant:
    """Dates and times are read as what is wanted, exactly; anything else has a type of its own."""
    value = literal.value
    if value is None:
        return Constant(None, wanted)
    if isinstance(value, Decimal):
        return _number(value)
    if not isinstance(value, str):
        return Constant(value, BOOLEAN if isinstance(value, bool) else BYTES)
    if wanted.root not in TEMPORAL_ROOTS and not literal.typed:
        return Constant(value, STRING)
    name, whole = type_to_sql(wanted.with_nullable(True)), whole_number(wanted)
    if wanted.root not in TEMPORAL_ROOTS or whole is None:
        raise UsageError(f"{literal} is no {name}")
    try:
        units = units_of(literal, wanted)
    except UsageError as problem:
        raise UsageError(f"{literal} is no {name}", hint=problem.hint) from problem
    if units.denominator != 1 or not whole.low <= units <= whole.high:
        raise UsageError(f"{literal} does not fit {name} exactly")
    return Constant(whole.value(int(units)), wanted)


def _number(value: Decimal) -> Constant:
    """The smallest of BIGINT, DECIMAL and DOUBLE that holds it."""
    _, digits, exponent = value.as_tuple()
    scale = -int(exponent)
    if scale == 0 and abs(value) <= LARGEST_WHOLE:
        return Constant(int(value), BIGINT)
    if scale >= 0 and max(len(digits), scale) <= MOST_DIGITS:
        return Constant(value, DataType("DECIMAL", precision=max(len(digits), scale, 1), scale=scale))
    if math.isinf(float(value)):
        raise UsageError(f"{value} is beyond every type of number")
    return Constant(float(value), DOUBLE)


def _unsupported(node: exp.Expr) -> UsageError:
    return UsageError(
        f"not supported in an assignment: {sql_of(node)}",
        "there are columns, literals, NULL, + - * / %, ||, concat, upper, lower, coalesce, round, floor and ceil",
    )
