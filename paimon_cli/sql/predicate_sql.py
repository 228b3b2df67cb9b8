"""Parses a SQL condition into a predicate tree.

NOT is pushed down to the leaves, and literals are converted to the types of the columns that they are compared with.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from sqlglot import exp

from paimon_cli.datatypes.arrow_types import values_to_arrow
from paimon_cli.datatypes.data_type import BIGINT, DOUBLE, FLOATING_ROOTS, STRING, DataType, NestedType, VariantType, fields_of
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.errors import UsageError
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.option_text import MAX_QUOTED
from paimon_cli.sql.conditions import Always, And, Compare, Condition, Fails, IsNan, IsNull, Like, OneOf, Or, Related
from paimon_cli.sql.expression_sql import (
    CONDITION,
    ExpressionReader,
    comparable_kind,
    in_double_quotes,
    is_column,
    literal_of,
    text_in_quotes,
)
from paimon_cli.sql.expressions import NUMERIC, ColumnValue, Constant, Expression, Function, ValueKind
from paimon_cli.sql.literals import Literal, integer, scalar_of, units_of, value_of
from paimon_cli.sql.sql_text import SqlText
from paimon_cli.sql.variant_part import VariantPart

_COMPARISONS: dict[type[exp.Expr], str] = {exp.EQ: "=", exp.NEQ: "!=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
MIRRORED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
OPPOSITE = {"=": "!=", "!=": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
TYPED_FUNCTIONS = {"lower": STRING, "upper": STRING, "length": BIGINT}
"""Functions whose result, for a column argument, is compared exactly, like the column itself."""
QUOTES = "write strings, dates and times in single quotes: "
_SUPPORTED = (
    "conditions are = != < <= > >= <=> IN BETWEEN LIKE IS NULL, IS [NOT] DISTINCT FROM, isnan(..), combined by AND OR NOT"
)
NULL_SAFE = (exp.NullSafeEQ, exp.NullSafeNEQ)
CONDITIONS = (*_COMPARISONS, *NULL_SAFE, exp.And, exp.Or, exp.Not, exp.Between, exp.In, exp.Is, exp.IsNan, exp.Like, exp.Escape)
"""Nodes that are TRUE, FALSE or NULL. Columns and literals may be that, too."""

_WITHOUT_QUOTES = re.compile(
    r"\s*(?P<column>\w+)\s*(?P<op><=>|<=|>=|<>|!=|=|<|>|\b(?:not\s+)?(?:like|in)\b)\s*"
    r"(?:\((?P<texts>[^'\"`()]+)\)|(?P<text>[^'\"`()<>=]+))\s*",
    re.IGNORECASE,
)
_CONJUNCTION = re.compile(r"\b(and|or|is|null|between)\b", re.IGNORECASE)
"""Words that divide a condition, so that it does not compare one column with a text that goes on to the end."""


class ParsedCondition(NamedTuple):
    """`warnings`: about comparisons that the user probably did not intend; `parameters`: the names of parameters in the text."""

    condition: Condition
    warnings: tuple[str, ...]
    parameters: frozenset[str]


def condition_of(sql: str, schema: TableSchema, params: Mapping[str, Any] | None = None) -> ParsedCondition:
    """Parse a condition, with these values of its parameters.

    Raises `UsageError` for invalid or unsupported SQL, unknown columns, and values that cannot be compared with their column.
    """
    try:
        return _parsed(sql, schema, params or {})
    except UsageError as error:
        meant = "" if "column" in error.details else _with_quotes(sql, schema)
        if meant:
            error.set_hint(f'write strings in single quotes, and all of it in double ones, or a shell removes them: "{meant}"')
        raise


def _parsed(sql: str, schema: TableSchema, params: Mapping[str, Any]) -> ParsedCondition:
    text = SqlText(sql, CONDITION, params=params)
    reader = _Reader(schema, text)
    condition = reader.condition(text.parsed(), False)
    return ParsedCondition(condition, tuple(dict.fromkeys(reader.warnings)), frozenset(text.used))


def _with_quotes(sql: str, schema: TableSchema) -> str:
    """The comparison of a column with texts whose quotes a shell took, which need not be SQL; empty if it is not that."""
    found = _WITHOUT_QUOTES.fullmatch(sql) if len(sql) < MAX_QUOTED else None
    if found is None or schema.find(found["column"]) is None or _CONJUNCTION.search(sql):
        return ""
    texts = [text.strip() for text in (found["text"] or found["texts"]).split("," if found["texts"] else "\0")]
    if not all(text[:1].isalpha() or text[:1] in ("%", "_") for text in texts):
        return ""
    quoted = ", ".join(map(text_in_quotes, texts))
    right = f"{found['column']} {found['op']} " + (f"({quoted})" if found["texts"] else quoted)
    try:
        _parsed(right, schema, {})
    except UsageError:
        return ""
    return in_double_quotes(right)


class _Reader:
    def __init__(self, schema: TableSchema, sql: SqlText) -> None:
        self._schema = schema
        self._sql = sql
        self._values = ExpressionReader(schema, sql)
        self.warnings: list[str] = []

    def condition(self, node: exp.Expr, negated: bool) -> Condition:
        """The predicate for this SQL node, or its negation."""
        if isinstance(node, exp.Paren):
            return self.condition(node.this, negated)
        if isinstance(node, exp.Not):
            return self.condition(node.this, not negated)
        if isinstance(node, (exp.And, exp.Or)):
            parts = tuple(self.condition(part, negated) for part in node.flatten())
            return And(parts) if isinstance(node, exp.And) != negated else Or(parts)
        if type(node) in _COMPARISONS:
            return self._comparison(node.this, _COMPARISONS[type(node)], node.args["expression"], node, negated)
        if isinstance(node, NULL_SAFE):
            return self._distinct(node, isinstance(node, exp.NullSafeNEQ) != negated)
        if isinstance(node, exp.Between) and not node.args.get("symmetric"):
            low = self._comparison(node.this, ">=", node.args["low"], node, negated)
            high = self._comparison(node.this, "<=", node.args["high"], node, negated)
            return Or((low, high)) if negated else And((low, high))
        if isinstance(node, exp.In) and node.expressions:
            return self._one_of(node, negated)
        if isinstance(node, exp.Is):
            return self._is(node, negated)
        if isinstance(node, exp.IsNan):
            return self._is_nan(node, negated)
        if isinstance(node, (exp.Like, exp.Escape)):
            return self._like(node, negated)
        if isinstance(node, exp.Null):
            return Always(False)
        if isinstance(node, exp.Boolean):
            return Always(bool(node.this) != negated)
        if is_column(node):
            return self._boolean_column(node, negated)
        raise self._sql.refused(node, _SUPPORTED)

    def _comparison(self, left: exp.Expr, op: str, right: exp.Expr, whole: exp.Expr, negated: bool) -> Condition:
        """Compare a column with a literal exactly, in the column's type, so that the comparison can prune; others by kind."""
        if op in ("=", "!=") and (_is_condition(left) or _is_condition(right)):
            return self._truth_values(left, right, (op == "!=") != negated)
        literals = literal_of(left), literal_of(right)
        if literals[0] is not None and literals[1] is None:
            return self._comparison(right, MIRRORED[op], left, whole, negated)
        if literals[0] is None and literals[1] is not None:
            term, t = self._term(left)
            if t is not None:
                return self._compare(term, t, op, literals[1], (left, right), negated)
        return self._related(left, op, right, whole, negated)

    def _truth_values(self, left: exp.Expr, right: exp.Expr, differ: bool) -> Condition:
        """Whether two conditions have the same truth value, or different ones; NULL if one of them is NULL."""
        true, false = ((self.condition(left, n), self.condition(right, n)) for n in (False, True))
        pairs = ((true[0], false[1]), (false[0], true[1])) if differ else (true, false)
        return Or(tuple(map(And, pairs)))

    def _distinct(self, node: exp.Expr, distinct: bool) -> Condition:
        """`a IS [NOT] DISTINCT FROM b`, which is never NULL: two NULLs are not distinct."""
        sides = node.this, node.args["expression"]
        same = self._comparison(sides[0], "=", sides[1], node, False)
        if all((literal := literal_of(side)) is None or literal.value is None for side in sides):
            same = Or((same, And(tuple(map(self._null_test, sides)))))
        return Fails(same) if distinct else same

    def _null_test(self, node: exp.Expr) -> Condition:
        """`node IS NULL`, where the node may be a condition."""
        if _is_condition(node):
            return And((Fails(self.condition(node, False)), Fails(self.condition(node, True))))
        if literal_of(node) is not None:
            return Always(isinstance(node.unnest(), exp.Null))
        return IsNull(self._values.expression(node, self._values.literal_type(node)))

    def _compare(
        self, term: Expression, t: DataType, op: str, literal: Literal, nodes: tuple[exp.Expr, exp.Expr], negated: bool
    ) -> Condition:
        if literal.value is None:
            return Always(False)
        if t.root in FLOATING_ROOTS:
            value = self._converted(value_of, literal, t, nodes)
            self._warn_about_nan(value, *nodes)
            return Compare(term, op, value, scalar_of(value, t), negated)
        op = OPPOSITE[op] if negated else op
        whole = integer(t)
        if whole is None:
            value = self._converted(value_of, literal, t, nodes)
            return Compare(term, op, value, scalar_of(value, t))
        units = self._converted(units_of, literal, t, nodes)
        if units.denominator != 1 and op in ("=", "!="):
            return Always(False) if op == "=" else IsNull(term, negated=True)
        # `units` may lie between two whole numbers: there < and <= are the same, and so are > and >=.
        number = math.ceil(units) if op in ("<", ">=") else math.floor(units)
        if not whole.low <= number <= whole.high:
            holds_always = op == "!=" or (number > whole.high) == (op in ("<", "<="))
            return IsNull(term, negated=True) if holds_always and op != "=" else Always(False)
        value = whole.value(number)
        return Compare(term, op, value, scalar_of(value, t))

    def _converted(
        self, read: Callable[[Literal, DataType], Any], literal: Literal, t: DataType, nodes: tuple[exp.Expr, exp.Expr]
    ) -> Any:
        try:
            return read(literal, t)
        except UsageError as problem:
            left, right = map(self._sql.part, nodes)
            what = f"cannot compare {left} ({type_to_sql(t.with_nullable(True))}) with {right}"
            hint = f"{QUOTES}'{right}'" if isinstance(literal.value, Decimal) and not right.startswith(":") else problem.hint
            raise UsageError(what, hint=hint) from problem

    def _warn_about_nan(self, value: float, left: exp.Expr, right: exp.Expr) -> None:
        if math.isnan(value):
            column = self._sql.part(left)
            warning = (
                f"{column} compared with {self._sql.part(right)}: NaN is neither equal to, less than nor greater than any value"
            )
            self.warnings.append(f"{warning}; isnan({column}) finds it")

    def _related(self, left: exp.Expr, op: str, right: exp.Expr, whole: exp.Expr, negated: bool) -> Condition:
        wanted = self._values.literal_type(left, right)
        sides = [self._values.expression(node, wanted) for node in (left, right)]
        if any(isinstance(side, Constant) and side.value is None for side in sides):
            return Always(False)
        kind = comparable_kind(*sides)
        for node, side in zip((left, right), sides, strict=True):
            self._refuse_nested(node, side)
        if kind is None:
            shown = [f"{self._sql.part(node)} ({side.kind})" for node, side in zip((left, right), sides, strict=True)]
            numbers = [node for node, side in zip((left, right), sides, strict=True) if side.kind in NUMERIC]
            numeric = [self._sql.part(node) for node in numbers if not next(node.find_all(exp.Column), None)]
            hint = f"{QUOTES}'{numeric[0]}'" if numeric else ""
            raise UsageError(f"cannot compare {shown[0]} with {shown[1]}", f"the condition is {self._sql.shown}", hint)
        names = dict.fromkeys(name for side in sides for name in side.columns())
        fields = self._schema.fields_of(names)
        return Related(sides[0], op, sides[1], kind, self._sql.part(whole), fields, negated)

    def _one_of(self, node: exp.In, negated: bool) -> Condition:
        items = node.expressions
        literals = [literal_of(item) for item in items]
        term, t = self._term(node.this) if None not in literals else (None, None)
        if term is None or t is None or t.root in FLOATING_ROOTS:
            parts = tuple(self._comparison(node.this, "=", item, node, negated) for item in items)
            return And(parts) if negated else Or(parts)
        given = [(literal, item) for literal, item in zip(literals, items, strict=True) if literal and literal.value is not None]
        if negated and len(given) < len(items):
            return Always(False)
        whole = integer(t)
        values = []
        for literal, item in given:
            if whole is None:
                values.append(self._converted(value_of, literal, t, (node.this, item)))
                continue
            units = self._converted(units_of, literal, t, (node.this, item))
            if units.denominator == 1 and whole.low <= units <= whole.high:
                values.append(whole.value(int(units)))
        if not values:
            return IsNull(term, negated=True) if negated else Always(False)
        return OneOf(term, tuple(values), values_to_arrow(values, t), negated)

    def _is(self, node: exp.Is, negated: bool) -> Condition:
        if _is_condition(node.this) and isinstance(node.expression, exp.Null):
            is_null = self._null_test(node.this)
            return Fails(is_null) if negated else is_null
        if _is_condition(node.this) and isinstance(node.expression, exp.Boolean):
            found = self.condition(node.this, not node.expression.this)
            return Fails(found) if negated else found
        if isinstance(node.expression, exp.Null):
            return IsNull(self._values.expression(node.this, self._values.literal_type(node.this)), negated)
        if isinstance(node.expression, exp.Boolean):
            # IS TRUE and IS FALSE are never NULL, so their negation matches nulls.
            term, _ = self._term(node.this)
            found = self._comparison(node.this, "=", node.expression, node, negated)
            return Or((found, IsNull(term))) if negated else found
        raise self._sql.refused(node, _SUPPORTED)

    def _is_nan(self, node: exp.IsNan, negated: bool) -> Condition:
        term = self._values.expression(node.this, DOUBLE)
        if term.kind != ValueKind.FLOATING:
            raise UsageError(f"cannot compute {self._sql.part(node)}", f"{self._sql.part(node.this)} is not a FLOAT or DOUBLE")
        return IsNan(term, negated)

    def _like(self, node: exp.Expr, negated: bool) -> Condition:
        escape = "\\"
        if isinstance(node, exp.Escape):
            given = literal_of(node.expression)
            if given is None or not isinstance(given.value, str) or len(given.value) != 1 or not isinstance(node.this, exp.Like):
                raise UsageError("ESCAPE expects a single character", hint="LIKE 'a!%%' ESCAPE '!'")
            escape, node = given.value, node.this
        term = self._values.expression(node.this, STRING)
        pattern = literal_of(node.expression)
        if pattern is None:
            raise self._sql.refused(node.expression, "LIKE expects a pattern in single quotes, such as 'a%'")
        if pattern.value is None:
            return Always(False)
        if term.kind != ValueKind.TEXT or not isinstance(pattern.value, str):
            wrong = node.expression if term.kind == ValueKind.TEXT else node.this
            raise UsageError(f"cannot compute {self._sql.part(node)}", f"{self._sql.part(wrong)} is not a string")
        regex, prefix = _regex(pattern.value, escape)
        return Like(term, regex, prefix, negated != bool(node.args.get("negate")))

    def _boolean_column(self, node: exp.Expr, negated: bool) -> Condition:
        value = self._values.column(node)
        if value.type.root != "BOOLEAN":
            part = self._sql.part(node)
            why = f"its type is {type_to_sql(value.type.with_nullable(True))}; only a BOOLEAN column is a condition by itself"
            raise UsageError(f"{part} is not a condition", why, f"compare it with a value, or write {part} IS NOT NULL")
        return self._comparison(node, "=", exp.true(), node, negated)

    def _term(self, node: exp.Expr) -> tuple[Expression, DataType | None]:
        """The expression of a node, and its type if it is a column or one of `TYPED_FUNCTIONS` applied to a column."""
        term = self._values.expression(node, self._values.literal_type(node))
        self._refuse_nested(node, term)
        if isinstance(term, (ColumnValue, VariantPart)):
            return term, term.type
        if isinstance(term, Function) and isinstance(term.arguments[0], ColumnValue):
            return term, TYPED_FUNCTIONS.get(term.name)
        return term, None

    def _refuse_nested(self, node: exp.Expr, term: Expression) -> None:
        if isinstance(term, ColumnValue) and isinstance(term.type, NestedType):
            fields = [field.name for field in fields_of(term.type)]
            hint = f"compare one of its fields, such as {self._sql.part(node)}.{fields[0]}" if fields else ""
            is_variant = isinstance(term.type, VariantType)
            if is_variant:
                hint = f"compare a part of it, such as variant_get({self._sql.part(node)}, '$.name', 'STRING') = 'x'"
            raise UsageError(
                f"{self._sql.part(node)} is {'a VARIANT' if is_variant else 'nested'}",
                "it can only be tested with IS NULL or IS NOT NULL",
                hint,
            )


def _is_condition(node: exp.Expr) -> bool:
    return isinstance(node.unnest(), CONDITIONS)


def _regex(pattern: str, escape: str) -> tuple[str, str]:
    """Convert a LIKE pattern to a regular expression; also returns its literal prefix."""
    parts: list[str] = []
    prefix: Sequence[str] | None = None
    fixed: list[str] = []
    position = 0
    while position < len(pattern):
        character = pattern[position]
        if character == escape:
            position += 1
            if position == len(pattern):
                raise UsageError(f"LIKE '{pattern}' ends with its escape character")
            character = pattern[position]
        elif character in "%_":
            prefix = fixed[:] if prefix is None else prefix
            parts.append(".*" if character == "%" else ".")
            position += 1
            continue
        fixed.append(character)
        parts.append(re.escape(character))
        position += 1
    return "".join(parts), "".join(fixed if prefix is None else prefix)
