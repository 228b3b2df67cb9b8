"""Says of a parsed condition or assignment whether DuckDB gives the same rows and values for it as our own SQL.

A statement must choose the rows that a SELECT with the same condition shows, and those are DuckDB's. The two differ in division,
NaN (here it equals nothing, there itself, and is the greatest number), FLOAT (there the other side is rounded to it, too), the
escape of LIKE, and functions (`concat` of a null). What is not known to be the same counts as different.
"""

from __future__ import annotations

from collections.abc import Collection
from math import isnan

from paimon_cli.datatypes.data_type import INTEGER_ROOTS, STRING_ROOTS
from paimon_cli.sql.clauses import SetClause
from paimon_cli.sql.conditions import Always, And, Compare, Condition, IsNan, IsNull, Like, OneOf, Or, Related
from paimon_cli.sql.expressions import Arithmetic, ColumnValue, Constant, Expression, Given, ValueKind, kind_of

ESCAPE = "\\"
_Place = tuple[str, tuple[str, ...]]
"""A column, and the path of a field in it."""
_ABOVE = (">", ">=")
_SAME_ROOTS = INTEGER_ROOTS | STRING_ROOTS | {"DECIMAL", "DOUBLE", "BOOLEAN", "DATE", "TIMESTAMP"}
"""Types of values that are read and compared in the same way; bytes, times and instants are not known to be."""


def chooses_same_rows(condition: Condition, text: str) -> bool:
    """Whether DuckDB chooses the same rows. `text`: the condition as written."""
    return ESCAPE not in text and _is_same(condition, _never_nan(condition))


def sets_same_values(clause: SetClause) -> bool:
    """Whether DuckDB computes the same values, which need no cast."""
    for item in clause.assignments:
        value = item.expression
        is_null = isinstance(value, Constant) and value.value is None
        is_copy = isinstance(value, ColumnValue) and value.type.with_nullable(True) == item.column.type.with_nullable(True)
        if isinstance(value, Given) or is_null or is_copy:
            continue
        if not _has_same_value(value) or value.kind != kind_of(item.column.type):
            return False
    return True


def _never_nan(condition: Condition) -> set[_Place]:
    """The columns for which the whole condition demands `NOT isnan(column)`."""
    parts: Collection[Condition] = condition.parts if isinstance(condition, And) else (condition,)
    return {
        (part.term.name, part.term.path)
        for part in parts
        if isinstance(part, IsNan) and part.negated and isinstance(part.term, ColumnValue)
    }


def _is_same(condition: Condition, never_nan: Collection[_Place]) -> bool:
    match condition:
        case Always():
            return True
        case And() | Or():
            return all(_is_same(part, never_nan) for part in condition.parts)
        case IsNull() if isinstance(condition.term, ColumnValue):
            return True
        case IsNull() | IsNan() | OneOf() | Like():
            return _has_same_value(condition.term)
        case Compare():
            return _has_same_value(condition.term) and _compares_alike(condition, never_nan)
        case Related():
            sides = condition.left, condition.right
            return condition.kind != ValueKind.FLOATING and all(map(_has_same_value, sides))
        case _:
            return False


def _compares_alike(condition: Compare, never_nan: Collection[_Place]) -> bool:
    term = condition.term
    if term.kind != ValueKind.FLOATING:
        return True
    if not isinstance(term, ColumnValue) or isnan(float(condition.value)):
        return False
    return condition.op not in _ABOVE or (term.name, term.path) in never_nan


def _has_same_value(expression: Expression) -> bool:
    match expression:
        case ColumnValue() | Constant():
            return expression.type.root in _SAME_ROOTS
        case Arithmetic():
            exact = expression.op in ("+", "-", "*") and expression.kind in (ValueKind.WHOLE, ValueKind.DECIMAL)
            return exact and _has_same_value(expression.left) and _has_same_value(expression.right)
        case _:
            return False
