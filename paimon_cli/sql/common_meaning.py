"""Which conditions and expressions mean the same to our own SQL as to DuckDB, which runs queries.

An UPDATE or DELETE must change the rows that a SELECT with its condition shows. The two differ, for example, in `/`, in NaN,
in functions of null and in backslashes in LIKE; so only what is listed here is left to our own SQL.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from sqlglot import exp

from paimon_cli.datatypes.data_type import INTEGER_ROOTS, DataType, TimestampType
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.sql.clauses import UPDATE
from paimon_cli.sql.expression_sql import ASSIGNMENT, CONDITION, SqlText, literal_of

_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ)
_NUMBER, _TEXT, _BOOLEAN, _DATE, _TIMESTAMP = "number", "text", "boolean", "date", "timestamp"
_KINDS = {
    **dict.fromkeys((*INTEGER_ROOTS, "DECIMAL"), _NUMBER),
    **dict.fromkeys(("CHAR", "VARCHAR", "STRING"), _TEXT),
    "BOOLEAN": _BOOLEAN,
    "DATE": _DATE,
    "TIMESTAMP": _TIMESTAMP,
}
_NULL = "null"
_ISO_DATE = re.compile(r"(?!0000)\d{4}-\d\d-\d\d")
_ISO_TIMESTAMP = re.compile(r"(?!0000)\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d:\d\d(?:\.(\d{1,6}))?)?")
_PLAIN_NUMBER = re.compile(r"-?\d{1,18}(\.\d{1,18})?")


def condition_means_the_same(sql: str, schema: TableSchema, params: Mapping[str, Any]) -> bool:
    """Whether a condition is TRUE for the same rows in both."""
    return _CommonMeaning(schema).condition(SqlText(sql, CONDITION, params=params).parsed())


def assignments_mean_the_same(texts: Sequence[str], schema: TableSchema, params: Mapping[str, Any]) -> bool:
    """Whether texts of the form `column = expression` assign the same values in both."""
    meaning = _CommonMeaning(schema)
    nodes = [node for text in texts for node in SqlText(text, ASSIGNMENT, UPDATE, params=params).parsed().expressions]
    return all(meaning.assignment(node.expression, schema.field(node.this.name).type) for node in nodes)


class _CommonMeaning:
    """Decides it for the parse trees of one table, in which parameters have their values."""

    def __init__(self, schema: TableSchema) -> None:
        self._schema = schema

    def condition(self, node: exp.Expr) -> bool:
        """Whether a condition is TRUE for the same rows."""
        if isinstance(node, (exp.Paren, exp.Not)):
            return self.condition(node.this)
        if isinstance(node, (exp.And, exp.Or)):
            return all(self.condition(part) for part in node.flatten(unnest=False))
        if isinstance(node, (exp.Boolean, exp.Null)):
            return True
        if isinstance(node, exp.Column):
            return self._kind(node) == _BOOLEAN
        if isinstance(node, _COMPARISONS):
            return self._are_comparable([node.this, node.expression])
        if isinstance(node, exp.Between):
            return not node.args.get("symmetric") and self._are_comparable([node.this, node.args["low"], node.args["high"]])
        if isinstance(node, exp.In):
            is_list = not any(node.args.get(name) for name in ("query", "unnest", "field"))
            return is_list and self._are_comparable([node.this, *node.expressions])
        if isinstance(node, exp.Is):
            return isinstance(node.expression, exp.Null) and self._has_null_test(node.this)
        if isinstance(node, exp.Like):
            pattern = node.expression
            has_pattern = isinstance(pattern, exp.Literal) and pattern.is_string and "\\" not in pattern.this
            return has_pattern and self._kind(node.this) == _TEXT
        return False

    def assignment(self, value: exp.Expr, target: DataType) -> bool:
        """Whether an expression gives the same value to a column of this type."""
        if target.root == "DOUBLE":  # such a number is the nearest DOUBLE in both
            return (literal := literal_of(value)) is not None and _is_short_number(literal.value)
        kind = self._kind(value, target)
        return kind == _NULL or (kind is not None and kind == _KINDS.get(target.root))

    def _has_null_test(self, node: exp.Expr) -> bool:
        """Columns of all types are null in the same rows; a condition must be in brackets, as precedences differ."""
        if isinstance(node, exp.Column):
            return not node.table
        return isinstance(node, exp.Paren) and (self.condition(node) or self._kind(node) is not None)

    def _are_comparable(self, nodes: list[exp.Expr]) -> bool:
        columns = (self._type(column) for node in nodes for column in node.find_all(exp.Column))
        wanted = next((t for t in columns if t is not None), None)
        kinds = {self._kind(node, wanted) for node in nodes} - {_NULL}
        return None not in kinds and len(kinds) <= 1

    def _type(self, column: exp.Column) -> DataType | None:
        found = None if column.table else self._schema.find(column.name)
        return None if found is None else found.type

    def _kind(self, node: exp.Expr, wanted: DataType | None = None) -> str | None:
        """The kind of values that an expression has; None if they may differ. `wanted`: the type that texts are read as."""
        if isinstance(node, exp.Paren):
            return self._kind(node.this, wanted)
        if isinstance(node, exp.Column):
            t = self._type(node)
            return None if t is None else _KINDS.get(t.root)
        if literal_of(node) is not None:
            return _kind_of_literal(node, wanted)
        if isinstance(node, (exp.Add, exp.Sub, exp.Mul)):
            return _NUMBER if self._kind(node.this) == self._kind(node.expression) == _NUMBER else None
        if isinstance(node, exp.DPipe):
            return _TEXT if all(self._kind(part) == _TEXT for part in node.flatten()) else None
        return None


def _is_short_number(value: object) -> bool:
    return value is None or (isinstance(value, Decimal) and len(value.as_tuple().digits) <= 15 and "E" not in str(value))


def _kind_of_literal(node: exp.Expr, wanted: DataType | None) -> str | None:
    literal = literal_of(node)
    assert literal is not None
    value, kind = literal.value, None if wanted is None else _KINDS.get(wanted.root)
    if value is None:
        return _NULL
    if isinstance(value, bool):
        return _BOOLEAN
    if not isinstance(value, (str, bytes)):
        return _NUMBER if _PLAIN_NUMBER.fullmatch(format(value, "f")) else None
    if isinstance(value, bytes):
        return None
    typed = isinstance(node.unnest(), exp.Cast)
    if kind == _DATE and _ISO_DATE.fullmatch(value):
        return _DATE if not typed or literal.keyword == "DATE" else None
    if kind == _TIMESTAMP and isinstance(wanted, TimestampType) and (found := _ISO_TIMESTAMP.fullmatch(value)):
        is_exact = len(found[1] or "") <= wanted.precision
        return _TIMESTAMP if is_exact and (not typed or literal.keyword == "TIMESTAMP") else None
    return _TEXT if not typed and kind in (None, _TEXT) else None
