"""SQL that users type, parsed by sqlglot, and the literals in it: what conditions, assignments and sort keys have in common.

Only the modules whose names have `sql` in them import sqlglot, and they are imported at their first use: sqlglot takes long
to load, and most commands read no SQL.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal

import sqlglot
from sqlglot import Dialect, exp
from sqlglot.errors import ParseError, SqlglotError, TokenError

from paimon_cli.errors import UsageError
from paimon_cli.read.literals import Literal

DIALECT = "sqlite"
"""sqlglot's dialect that takes both "name" and `name` for a column and X'..' for bytes."""

REQUIRED = re.compile(r"Required keyword: '\w+' missing")

TYPED_TEXTS = {
    **{name: name for name in ("DATE", "TIME", "TIMESTAMP")},
    **{name: "TIMESTAMP_LTZ" for name in ("TIMESTAMPLTZ", "TIMESTAMPTZ")},
}


@dataclass(frozen=True)
class SqlText:
    """What the user typed; `what` names it in messages, `prefix` is what stands before it when it is parsed."""

    text: str
    what: str
    prefix: str = ""
    dialect: str | type[Dialect] = DIALECT

    def parsed(self) -> exp.Expr:
        """UsageError that quotes the part at which it breaks."""
        if not self.text.strip():
            raise UsageError(f"cannot read the {self.what}: it is empty")
        try:
            return sqlglot.parse_one(self.prefix + self.text, read=self.dialect)
        except SqlglotError as problem:
            raise UsageError(f"cannot read the {self.what}: {self.text}", self._where(problem)) from problem
        except RecursionError as problem:
            raise UsageError(f"cannot read the {self.what}", "it is nested too deeply") from problem

    def part(self, node: exp.Expr) -> str:
        """The node as it was typed."""
        places = [found.meta for found in node.walk() if "start" in found.meta]
        if not places:
            return sql_of(node)
        begin, end = min(place["start"] for place in places), max(place["end"] for place in places) + 1
        whole = self.prefix + self.text
        if isinstance(node, exp.Neg):
            begin = max(whole.rfind("-", 0, begin), 0)
        while whole.count("(", begin, end) > whole.count(")", begin, end) and end < len(whole):
            end += 1
        return whole[begin:end]

    def refused(self, node: exp.Expr, why: str, hint: str = "") -> UsageError:
        """The part is no SQL that is understood here."""
        part = self.part(node)
        place = "" if part == self.text.strip() else f" in: {self.text}"
        return UsageError(f"not supported in the {self.what}: {part}{place}", why, hint)

    def _where(self, problem: SqlglotError) -> str:
        if not isinstance(problem, ParseError) or not problem.errors:
            return "a quote is not closed" if isinstance(problem, TokenError) else ""
        first = problem.errors[0]
        at = f"'{first['highlight']}'"
        position = (first["col"] or 0) - len(self.prefix) - len(first["highlight"] or "") + 1
        if REQUIRED.match(first["description"] or ""):
            return f"something is missing after {at}" if not first["end_context"] else f"something is missing at {at}"
        if (first["description"] or "").startswith("Expecting"):
            return f"{first['description'].split()[-1]} is missing after {at}"
        return f"{at} (character {position}) is not expected there"


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
        raise UsageError(f"X'{text}' is not a binary value", "pairs of hex digits are expected") from problem
