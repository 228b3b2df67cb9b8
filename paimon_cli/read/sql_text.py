"""SQL that users type, parsed by sqlglot, and the literals in it: what conditions and assignments have in common.

Only the modules whose names have `sql` in them import sqlglot, and they are imported at their first use: sqlglot takes long
to load, and most commands read no SQL.
"""

from __future__ import annotations

import re
from decimal import Decimal

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from paimon_cli.errors import UsageError
from paimon_cli.read.literals import Literal

DIALECT = "sqlite"
"""sqlglot's dialect that takes both "name" and `name` for a column and X'..' for bytes."""

TYPED_TEXTS = {
    **{name: name for name in ("DATE", "TIME", "TIMESTAMP")},
    **{name: "TIMESTAMP_LTZ" for name in ("TIMESTAMPLTZ", "TIMESTAMPTZ")},
}


def parsed(sql: str, what: str, prefix: str = "") -> exp.Expr:
    """The tree of `prefix` and `sql`; UsageError names `what` the text is."""
    try:
        return sqlglot.parse_one(prefix + sql, read=DIALECT)
    except SqlglotError as problem:
        raise UsageError(f"cannot read the {what}: {sql}", _first_line(problem)) from problem


def _first_line(problem: SqlglotError) -> str:
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(problem)).strip()
    text = re.sub(r"Required keyword: '\w+' missing for <class '[\w.]+'>", "something is missing", text)
    return text.splitlines()[0] if text else ""


def sql_of(node: exp.Expr) -> str:
    """The node as text, for messages."""
    return node.sql(dialect=DIALECT)


def literal_of(node: exp.Expr) -> Literal | None:
    """The literal that the node is; None for anything else. UsageError for X'..' without pairs of hex digits."""
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
        raise UsageError(f"X'{text}' is no binary value", "pairs of hex digits are expected") from problem
