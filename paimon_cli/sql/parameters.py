"""Parameters of SQL: `:name` in the parse tree becomes a typed literal. No text is ever put together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sqlglot import TokenType, exp
from sqlglot.dialects.sqlite import SQLite

from paimon_cli.errors import UsageError

_TYPED = {
    datetime: exp.DataType.Type.TIMESTAMP,
    date: exp.DataType.Type.DATE,
    time: exp.DataType.Type.TIME,
}


def _parameter(parser: Any) -> exp.Placeholder | None:
    """`:name`, which keeps its place in the text, so that messages can quote it."""
    colon = parser._prev
    if not parser._match_set(parser.COLON_PLACEHOLDER_TOKENS):
        return None
    name = parser._prev
    placeholder = exp.Placeholder(this=name.text)
    placeholder.meta.update(start=colon.start, end=name.end)
    return placeholder


class Sql(SQLite):
    """The SQLite dialect, which accepts both "name" and `name` for a column, and X'..' for bytes."""

    class Parser(SQLite.Parser):  # type: ignore[misc, valid-type]
        PLACEHOLDER_PARSERS: ClassVar[dict[TokenType, Any]] = {**SQLite.Parser.PLACEHOLDER_PARSERS, TokenType.COLON: _parameter}


def with_values(root: exp.Expr, params: Mapping[str, Any], what: str) -> exp.Expr:
    """The tree of SQL that messages call `what`, with values in place of its parameters.

    Raises `UsageError` for a parameter without a value, and for a value that SQL cannot have.
    """
    for node in list(root.find_all(exp.Placeholder, exp.Parameter)):
        name = node.name if isinstance(node, exp.Placeholder) and isinstance(node.this, str) else ""
        if name not in params:
            text = f":{name}" if name else node.sql()
            hint = f"give it one: --param {name}=VALUE" if name else "parameters are written as :name"
            raise UsageError(f"no value for the parameter {text} in the {what}", hint=hint)
        value = _plain(params[name])
        if is_list(value):
            _bind_list(node, name, [_plain(one) for one in value], what)
            continue
        bound = _literal(name, value)
        bound.meta.update(node.meta)
        if node is root:
            return bound
        node.replace(bound)
    return root


def names_in(roots: Iterable[exp.Expr]) -> frozenset[str]:
    """The names of the parameters in these trees, before they get their values."""
    return frozenset(node.name for root in roots for node in root.find_all(exp.Placeholder))


def _bind_list(node: exp.Expr, name: str, values: list[Any], what: str) -> None:
    """Put a list in the place of `:name` in `IN :name` or `IN (:name)`. In an empty list is no value."""
    parent = node.parent
    if not isinstance(parent, exp.In) or node is parent.this:
        raise UsageError(f"the parameter :{name} is a list in the {what}", "only IN takes a list", f"column IN :{name}")
    literals = [_literal(name, value) for value in values]
    others = [one for one in parent.expressions if one is not node]
    for literal in literals:
        literal.meta.update(node.meta)
    if not literals and not others:
        parent.replace(exp.false()) if parent.parent is not None else parent.set("expressions", [exp.null()])
        return
    parent.set("field", None)
    parent.set("expressions", others + literals)


def _plain(value: Any) -> Any:
    """The value as Python has it, of a scalar of Arrow or numpy."""
    if hasattr(value, "as_py"):
        return value.as_py()
    if isinstance(value, np.datetime64):
        text = str(np.datetime_as_string(value))
        return None if text == "NaT" else _Moment(text)
    if type(value).__name__ in ("NaTType", "NAType"):
        return None
    return value.item() if isinstance(value, np.generic) else value


class _Moment(str):
    """A point in time or a day as text."""


def is_list(value: Any) -> bool:
    """Whether the value of a parameter is a list of values, for IN."""
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes, bytearray, memoryview, Mapping))


def _literal(name: str, value: Any) -> exp.Expr:
    """The node of a literal with this value. Raises `UsageError` for other values."""
    if value is None:
        return exp.null()
    if isinstance(value, (bool, np.bool_)):
        return exp.true() if value else exp.false()
    if isinstance(value, _Moment):
        return _typed(str(value), exp.DataType.Type.TIMESTAMP if "T" in value else exp.DataType.Type.DATE)
    if isinstance(value, str):
        return exp.Literal.string(str(value))
    if isinstance(value, (bytes, bytearray, memoryview)):
        return exp.HexString(this=bytes(value).hex())
    if isinstance(value, (date, time)):
        t = next(t for kind, t in _TYPED.items() if isinstance(value, kind))
        has_zone = isinstance(value, datetime) and value.tzinfo is not None
        return _typed(value.isoformat(), exp.DataType.Type.TIMESTAMPTZ if has_zone else t)
    if isinstance(value, (Integral, Real, Decimal)):
        number = value if isinstance(value, (int, float, Decimal)) else float(value)
        return exp.Literal(this=repr(float(number)) if isinstance(number, float) else str(number), is_string=False)
    raise UsageError(
        f"the parameter :{name} has type {type(value).__name__}",
        "a value is a text, a number, a boolean, a date, a time, bytes, None, or a list of these",
    )


def _typed(text: str, t: Any) -> exp.Expr:
    return exp.Cast(this=exp.Literal.string(text), to=exp.DataType(this=t))
