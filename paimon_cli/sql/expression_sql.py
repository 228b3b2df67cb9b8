"""Parses SQL values into expressions with sqlglot, for conditions, assignments and sort keys alike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal

from sqlglot import exp

from paimon_cli.datatypes.data_type import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DOUBLE,
    STRING,
    TIMESTAMP_ROOTS,
    DataType,
    DecimalType,
    fields_of,
)
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.errors import UsageError
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.option_text import MAX_QUOTED, did_you_mean, shortened
from paimon_cli.sql.expressions import (
    NUMERIC,
    Arithmetic,
    Coalesce,
    ColumnValue,
    Constant,
    Expression,
    Function,
    ValueKind,
    can_become,
)
from paimon_cli.sql.literals import Literal, integer, units_of
from paimon_cli.sql.sql_text import SqlText
from paimon_cli.sql.variant_part import is_variant_get, variant_part

NOT_PLAIN_IN_A_SHELL = frozenset('"$`\\!')
"""Characters that are not what they are in double quotes of a shell."""

TYPED_TEXTS = {
    **{name: name for name in ("DATE", "TIME", "TIMESTAMP")},
    **{name: "TIMESTAMP_LTZ" for name in ("TIMESTAMPLTZ", "TIMESTAMPTZ")},
}


def literal_of(node: exp.Expr) -> Literal | None:
    """The literal of a node, or None if it is not a literal. Raises `UsageError` for X'..' without pairs of hex digits."""
    if isinstance(node, exp.Paren):
        return literal_of(node.this)
    if isinstance(node, exp.Null):
        return Literal(None)
    if isinstance(node, exp.Boolean):
        return Literal(bool(node.this))
    if isinstance(node, exp.Literal):
        return Literal(node.this) if node.is_string else _number(node.this)
    if isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal) and not node.this.is_string:
        return _number("-" + node.this.this)
    if isinstance(node, exp.HexString):
        return Literal(_bytes(node))
    if isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal) and node.this.is_string:
        typed = TYPED_TEXTS.get(node.to.this.value)
        return None if typed is None else Literal(node.this.this, typed)
    return None


def _number(text: str) -> Literal | None:
    try:
        return Literal(Decimal(text))
    except ArithmeticError:
        return None


def _bytes(node: exp.HexString) -> bytes:
    text = str(node.this)
    try:
        return bytes.fromhex(text)
    except ValueError as problem:
        raise UsageError(f"X'{text}' is not a binary value", "expected pairs of hex digits") from problem


OPERATORS: dict[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%"}
TEXT_FUNCTIONS: dict[type[exp.Expr], str] = {exp.Upper: "upper", exp.Lower: "lower"}
ROUNDINGS: dict[type[exp.Expr], str] = {exp.Round: "round", exp.Floor: "floor", exp.Ceil: "ceil"}
ASSIGNMENT, CONDITION = "assignment", "condition"
"""What messages call the text of one assignment of an update, and of a condition."""
MAY_HOLD_TEXTS = (ASSIGNMENT, CONDITION)
TAKES_TEXTS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Between, exp.In, exp.Like)
"""Nodes that compare their left side with values, or assign one to it."""
_SUPPORTED = (
    "a value is a column, a field such as a.b, a literal, NULL, + - * / %, ||, concat, upper, lower, length, coalesce, abs, "
    "round, floor, ceil, variant_get or try_variant_get"
)

TEMPORAL_ROOTS = TIMESTAMP_ROOTS | {"DATE", "TIME"}
_MAX_DIGITS = 38
LARGEST_WHOLE = 2**63 - 1


class ExpressionReader:
    """Builds the expressions of one SQL text on the columns of a schema; kinds are checked here, before any row is read."""

    def __init__(self, schema: TableSchema, sql: SqlText) -> None:
        self._schema = schema
        self.sql = sql

    def expression(self, node: exp.Expr, wanted: DataType) -> Expression:
        """The expression of a node; untyped literals are read as `wanted`. Raises `UsageError`."""
        if isinstance(node, exp.Paren):
            return self.expression(node.this, wanted)
        if is_column(node):
            return self.column(node)
        literal = literal_of(node)
        if literal is not None:
            return constant(literal, wanted)
        if isinstance(node, exp.Neg):
            return Arithmetic("-", Constant(0, BIGINT), self._operand(node.this, node))
        if type(node) in OPERATORS:
            return self._arithmetic(node, OPERATORS[type(node)])
        if isinstance(node, exp.DPipe):
            return self._text_function("concat", list(node.flatten()), node, ValueKind.TEXT)
        if isinstance(node, exp.Concat):
            return self._text_function("concat", node.expressions, node, ValueKind.TEXT)
        if type(node) in TEXT_FUNCTIONS:
            return self._text_function(TEXT_FUNCTIONS[type(node)], [node.this], node, ValueKind.TEXT)
        if isinstance(node, exp.Length):
            return self._text_function("length", [node.this], node, ValueKind.WHOLE)
        if type(node) in ROUNDINGS and not (node.args.get("decimals") or node.args.get("to")):
            return Function(ROUNDINGS[type(node)], (self._operand(node.this, node),), ValueKind.WHOLE)
        if isinstance(node, exp.Abs):
            operand = self._operand(node.this, node)
            return Function("abs", (operand,), operand.kind)
        if isinstance(node, exp.Coalesce):
            return self._coalesce([node.this, *node.expressions], wanted, node)
        return self._variant_part(node)

    def _variant_part(self, node: exp.Expr) -> Expression:
        if not is_variant_get(node):
            raise self.sql.refused(node, _SUPPORTED)
        first = node.expressions[0] if node.expressions else None
        return variant_part(node, self.column(first) if first is not None and is_column(first) else None)

    def column(self, node: exp.Expr) -> ColumnValue:
        """Resolve a column, or a field of a nested column such as `a.b`. Raises `UsageError` for unknown names."""
        names = column_path(node)
        first = self._schema.find(names[0].name)
        if first is None:
            raise self._unknown_column(names[0])
        t = first.type
        for position, name in enumerate(names[1:], start=1):
            inner = {field.name: field.type for field in fields_of(t)}
            if name.name not in inner:
                raise self._unknown_field(names[:position], t, name.name, inner)
            t = inner[name.name]
        return ColumnValue(first.name, t, tuple(name.name for name in names[1:]))

    def literal_type(self, *nodes: exp.Expr) -> DataType:
        """The type that untyped literals next to these nodes are read as: that of the first column in them."""
        for node in nodes:
            for found in node.walk(prune=is_column):
                if is_column(found):
                    return self.column(found).type
        return STRING

    def _unknown_column(self, name: exp.Identifier) -> UsageError:
        names = self._schema.field_names
        meant = did_you_mean(name.name, names)
        why, hint = "the table has no such column", f"{meant}columns: {', '.join(names)}"
        if self._may_be_text(name):
            in_quotes = f"write strings in single quotes: {shortened(text_in_quotes(name.name))}"
            if name.quoted and self.sql.part(name).startswith('"'):
                why, hint = "double quotes enclose column names", in_quotes
            elif not meant:
                right = self._with_texts(name.root())
                whole = f', and all of it in double ones, or a shell removes them: "{right}"' if right else ""
                hint = f"{hint}; {in_quotes}{whole}"
        what = f"no column '{shortened(name.name)}' in the {self.sql.what}: {self.sql.shown}"
        return UsageError(what, why, hint, column=name.name)

    def _may_be_text(self, name: exp.Identifier) -> bool:
        """Whether a name may be a string without its quotes: it is compared with, or assigned to, a column of strings.

        Any other name in quotes would make another condition of it, such as `'nam' <> 'x'`, which holds for every row.
        """
        node = name.parent
        place = node.parent if isinstance(node, exp.Column) and not node.table and self.sql.what in MAY_HOLD_TEXTS else None
        values = [] if place is None else [place.args.get(key) for key in ("expression", "low", "high")] + place.expressions
        if not isinstance(place, TAKES_TEXTS) or not any(value is node for value in values):
            return False
        try:
            return self.expression(place.this, STRING).kind == ValueKind.TEXT and bool(list(place.this.find_all(exp.Column)))
        except UsageError:
            return False

    def _with_texts(self, root: exp.Expr) -> str:
        """The SQL with all names in quotes that may be strings; empty if that does not explain every unknown name."""
        names = self._schema.field_names
        first = [column_path(column)[0] for column in root.find_all(exp.Column) if is_column(column)]
        unknown = [name for name in first if name.name not in names]
        whole = self.sql.prefix + self.sql.text
        for name in sorted(unknown, key=lambda name: int(name.meta["start"]), reverse=True):
            if name.quoted or did_you_mean(name.name, names) or not self._may_be_text(name):
                return ""
            whole = whole[: name.meta["start"]] + text_in_quotes(name.name) + whole[name.meta["end"] + 1 :]
        return in_double_quotes(whole[len(self.sql.prefix) :])

    def _unknown_field(self, names: Sequence[exp.Identifier], t: DataType, field: str, inner: dict[str, DataType]) -> UsageError:
        whole = ".".join(name.name for name in names)
        if inner:
            return UsageError(f"no field '{field}' in {whole}", "the ROW has no such field", f"fields: {', '.join(inner)}")
        hint = f"if the name of a column contains a dot, write `{whole}.{field}`"
        return UsageError(f"{whole} has no fields", f"it is of type {type_to_sql(t.with_nullable(True))}", hint)

    def _arithmetic(self, node: exp.Expr, op: str) -> Expression:
        found = Arithmetic(op, self._operand(node.this, node), self._operand(node.args["expression"], node))
        if op == "%" and found.kind != ValueKind.WHOLE:
            raise UsageError(f"cannot compute {self.sql.part(node)}", "% expects integers")
        return found

    def _operand(self, node: exp.Expr, whole: exp.Expr) -> Expression:
        operand = self.expression(node, BIGINT)
        if operand.kind not in NUMERIC:
            raise UsageError(f"cannot compute {self.sql.part(whole)}", f"{self.sql.part(node)} is not a number")
        return operand

    def _text_function(self, name: str, nodes: Sequence[exp.Expr], whole: exp.Expr, kind: str) -> Expression:
        arguments = tuple(self.expression(node, STRING) for node in nodes)
        for node, argument in zip(nodes, arguments, strict=True):
            if argument.kind != ValueKind.TEXT:
                raise UsageError(f"cannot compute {self.sql.part(whole)}", f"{self.sql.part(node)} is not a string")
        return Function(name, arguments, kind)

    def _coalesce(self, nodes: Sequence[exp.Expr], wanted: DataType, whole: exp.Expr) -> Expression:
        found = Coalesce(tuple(self.expression(node, wanted) for node in nodes))
        common = found.kind
        if not all(can_become(argument.kind, common) for argument in found.arguments):
            kinds = ", ".join(dict.fromkeys(argument.kind for argument in found.arguments))
            raise UsageError(f"cannot compute {self.sql.part(whole)}", f"its arguments are of different kinds: {kinds}")
        return found


def text_in_quotes(text: str) -> str:
    """The text as a string of SQL."""
    return "'" + text.replace("'", "''") + "'"


def in_double_quotes(sql: str) -> str:
    """The SQL if a shell leaves it as it is in double quotes, and if it is short enough to be quoted; else nothing."""
    return sql if len(sql) < MAX_QUOTED and not set(sql) & NOT_PLAIN_IN_A_SHELL else ""


def is_column(node: exp.Expr) -> bool:
    """Whether the node is a reference to a column or a nested field, such as `a`, `a.b` or `a.b.c`."""
    if isinstance(node, exp.Dot):
        return is_column(node.this) and isinstance(node.args["expression"], exp.Identifier)
    return isinstance(node, exp.Column) and isinstance(node.this, exp.Identifier)


def column_path(node: exp.Expr) -> list[exp.Identifier]:
    """The names in a reference to a column or field, outermost first."""
    if isinstance(node, exp.Dot):
        return [*column_path(node.this), node.args["expression"]]
    return [part for part in (node.args.get(key) for key in ("catalog", "db", "table", "this")) if part is not None]


def constant(literal: Literal, wanted: DataType) -> Constant:
    """The constant for a literal. Dates and times must fit `wanted` exactly; other literals have a type of their own."""
    value = literal.value
    if value is None:
        return Constant(None, wanted)
    if isinstance(value, Decimal):
        return _constant_number(value)
    if not isinstance(value, str):
        return Constant(value, BOOLEAN if isinstance(value, bool) else BYTES)
    if wanted.root not in TEMPORAL_ROOTS and not literal.keyword:
        return Constant(value, STRING)
    name, whole = type_to_sql(wanted.with_nullable(True)), integer(wanted)
    if wanted.root not in TEMPORAL_ROOTS or whole is None:
        raise UsageError(f"{literal} is not a valid {name}")
    try:
        units = units_of(literal, wanted)
    except UsageError as problem:
        raise UsageError(f"{literal} is not a valid {name}", hint=problem.hint) from problem
    if units.denominator != 1 or not whole.low <= units <= whole.high:
        raise UsageError(f"{literal} cannot be represented exactly as {name}")
    return Constant(whole.value(int(units)), wanted)


def _constant_number(value: Decimal) -> Constant:
    """The number as BIGINT or DECIMAL if one of them can hold it, else as DOUBLE. NaN and infinity are values of parameters."""
    if not value.is_finite():
        return Constant(float(value), DOUBLE)
    _, digits, exponent = value.as_tuple()
    scale = -int(exponent)
    if scale == 0 and abs(value) <= LARGEST_WHOLE:
        return Constant(int(value), BIGINT)
    if scale >= 0 and max(len(digits), scale) <= _MAX_DIGITS:
        return Constant(value, DecimalType(max(len(digits), scale, 1), scale))
    if math.isinf(float(value)):
        raise UsageError(f"{value} is out of range for every numeric type")
    return Constant(float(value), DOUBLE)


def comparable_kind(left: Expression, right: Expression) -> str | None:
    """The kind as which two values are compared; None if they cannot be compared."""
    if can_become(left.kind, right.kind):
        return right.kind
    return left.kind if can_become(right.kind, left.kind) else None
