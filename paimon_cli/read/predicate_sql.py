"""A SQL condition as our predicate tree. NOT goes down to the leaves, literals into the columns' types."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from sqlglot import exp

from paimon_cli.datatypes.data_type import FLOATING_ROOTS, NESTED_ROOTS, STRING_ROOTS
from paimon_cli.datatypes.field_types import DataType
from paimon_cli.datatypes.values import values_to_arrow
from paimon_cli.errors import UsageError
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.read.conditions import Always, And, Compare, Condition, IsNull, Like, OneOf, Or, Term
from paimon_cli.read.literals import Literal, nonsense, scalar_of, units_of, value_of, whole_number
from paimon_cli.read.sql_text import literal_of, parsed, sql_of

COMPARISONS: dict[type[exp.Expr], str] = {exp.EQ: "=", exp.NEQ: "!=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
MIRRORED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
OPPOSITE = {"=": "!=", "!=": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
FUNCTIONS: dict[type[exp.Expr], str] = {exp.Lower: "lower", exp.Upper: "upper", exp.Length: "length"}
LENGTH_TYPE = DataType("INT")


def condition_of(sql: str, schema: TableSchema) -> Condition:
    """Raises UsageError: broken or unsupported SQL, unknown columns, values that do not fit their column."""
    return _Reader(schema)._condition(parsed(sql, "condition"), False)


def _unsupported(node: exp.Expr) -> UsageError:
    return UsageError(
        f"not supported in a condition: {sql_of(node)}",
        "columns compare with literals by = != < <= > >= IN BETWEEN LIKE IS NULL, joined by AND OR NOT",
    )


class _Reader:
    def __init__(self, schema: TableSchema) -> None:
        self._schema = schema

    def _condition(self, node: exp.Expr, negated: bool) -> Condition:
        """The node, or NOT of it."""
        if isinstance(node, exp.Paren):
            return self._condition(node.this, negated)
        if isinstance(node, exp.Not):
            return self._condition(node.this, not negated)
        if isinstance(node, (exp.And, exp.Or)):
            parts = self._condition(node.this, negated), self._condition(node.args["expression"], negated)
            return And(parts) if isinstance(node, exp.And) != negated else Or(parts)
        if type(node) in COMPARISONS:
            return self._comparison(node, COMPARISONS[type(node)], negated)
        if isinstance(node, exp.Between):
            low = self._compare(node.this, ">=", node.args["low"], negated)
            high = self._compare(node.this, "<=", node.args["high"], negated)
            return Or((low, high)) if negated else And((low, high))
        if isinstance(node, exp.In) and node.expressions:
            return self._one_of(node, negated)
        if isinstance(node, exp.Is):
            return self._is(node, negated)
        if isinstance(node, (exp.Like, exp.Escape)):
            return self._like(node, negated)
        if isinstance(node, exp.Null):
            return Always(False)
        if isinstance(node, exp.Boolean):
            return Always(bool(node.this) != negated)
        if isinstance(node, exp.Column):
            return self._compare(node, "=", exp.true(), negated)
        raise _unsupported(node)

    def _comparison(self, node: exp.Expr, op: str, negated: bool) -> Condition:
        left, right = node.this, node.args["expression"]
        if self._is_term(left):
            return self._compare(left, op, right, negated)
        return self._compare(right, MIRRORED[op], left, negated)

    def _compare(self, term_node: exp.Expr, op: str, literal_node: exp.Expr, negated: bool) -> Condition:
        term, t = self._term(term_node)
        literal = self._literal(literal_node)
        if literal.value is None:
            return Always(False)
        if t.root in FLOATING_ROOTS:
            value = value_of(literal, t)
            return Compare(term, op, value, scalar_of(value, t), negated)
        op = OPPOSITE[op] if negated else op
        whole = whole_number(t)
        if whole is None:
            value = value_of(literal, t)
            return Compare(term, op, value, scalar_of(value, t))
        units = units_of(literal, t)
        if units.denominator != 1 and op in ("=", "!="):
            return Always(False) if op == "=" else IsNull(term, negated=True)
        # Between two whole numbers < and <= mean the same; so do > and >=.
        number = math.ceil(units) if op in ("<", ">=") else math.floor(units)
        if not whole.low <= number <= whole.high:
            holds_always = op == "!=" or (number > whole.high) == (op in ("<", "<="))
            return IsNull(term, negated=True) if holds_always and op != "=" else Always(False)
        value = whole.value(number)
        return Compare(term, op, value, scalar_of(value, t))

    def _one_of(self, node: exp.In, negated: bool) -> Condition:
        term, t = self._term(node.this)
        literals = [self._literal(item) for item in node.expressions]
        if negated and any(literal.value is None for literal in literals):
            return Always(False)
        whole = whole_number(t)
        values = []
        for literal in literals:
            if literal.value is None:
                continue
            if whole is None:
                values.append(value_of(literal, t))
                continue
            units = units_of(literal, t)
            if units.denominator == 1 and whole.low <= units <= whole.high:
                values.append(whole.value(int(units)))
        if not values:
            return IsNull(term, negated=True) if negated else Always(False)
        return OneOf(term, tuple(values), values_to_arrow(values, t), negated)

    def _is(self, node: exp.Is, negated: bool) -> Condition:
        if isinstance(node.expression, exp.Null):
            term, _ = self._term(node.this, any_type=True)
            return IsNull(term, negated)
        if isinstance(node.expression, exp.Boolean):
            # IS TRUE and IS FALSE are never null, so their negation takes the nulls in.
            term, _ = self._term(node.this)
            found = self._compare(node.this, "=", node.expression, negated)
            return Or((found, IsNull(term))) if negated else found
        raise _unsupported(node)

    def _like(self, node: exp.Expr, negated: bool) -> Condition:
        escape = "\\"
        if isinstance(node, exp.Escape):
            given = self._literal(node.expression).value
            if not isinstance(given, str) or len(given) != 1 or not isinstance(node.this, exp.Like):
                raise UsageError("ESCAPE takes one character", hint="LIKE 'a!%%' ESCAPE '!'")
            escape, node = given, node.this
        term, t = self._term(node.this)
        pattern = self._literal(node.expression)
        if pattern.value is None:
            return Always(False)
        if t.root not in STRING_ROOTS or not isinstance(pattern.value, str):
            raise nonsense(pattern, t)
        regex, prefix = _regex(pattern.value, escape)
        return Like(term, regex, prefix, negated != bool(node.args.get("negate")))

    def _is_term(self, node: exp.Expr) -> bool:
        return isinstance(node, exp.Column) or (type(node) in FUNCTIONS and isinstance(node.this, exp.Column))

    def _term(self, node: exp.Expr, *, any_type: bool = False) -> tuple[Term, DataType]:
        """A column or a function of one, with its type."""
        if isinstance(node, exp.Paren):
            return self._term(node.this, any_type=any_type)
        if not self._is_term(node):
            raise _unsupported(node)
        function = FUNCTIONS.get(type(node), "")
        column = node.this if function else node
        if not isinstance(column, exp.Column) or column.table or not column.name:
            raise _unsupported(node)
        t = self._schema.field(column.name).type
        if t.root in NESTED_ROOTS and not any_type:
            raise UsageError(f"column '{column.name}' is nested", "only IS NULL and IS NOT NULL work on nested columns")
        if function and t.root not in STRING_ROOTS:
            raise UsageError(f"{function}({column.name}): the column is no text")
        return Term(column.name, function), LENGTH_TYPE if function == "length" else t

    def _literal(self, node: exp.Expr) -> Literal:
        literal = literal_of(node)
        if literal is None:
            raise _unsupported(node)
        return literal


def _regex(pattern: str, escape: str) -> tuple[str, str]:
    """A LIKE pattern as a regular expression, and the fixed text that it begins with."""
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
