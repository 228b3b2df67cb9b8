"""SQL as the user wrote it: parsed once, with its parameters, and quoted in messages about its parts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import sqlglot
from sqlglot import Dialect, exp
from sqlglot.errors import ParseError, SqlglotError, TokenError

from paimon_cli.errors import UsageError
from paimon_cli.options.option_text import shortened
from paimon_cli.sql.parameters import Sql, names_in, with_values

MAX_DEPTH = 100
"""Levels of nesting, for which Python's stack is large enough wherever an expression is used."""
_REQUIRED = re.compile(r"Required keyword: '\w+' missing")


@dataclass(frozen=True)
class SqlText:
    """SQL as the user wrote it. Messages call it `what`; `prefix` completes it to a statement that sqlglot can parse.

    `params`: the values of parameters; `used`: the names of those that the text has, once it is parsed.
    """

    text: str
    what: str
    prefix: str = ""
    dialect: type[Dialect] = Sql
    params: Mapping[str, Any] = field(default_factory=dict)
    used: set[str] = field(default_factory=set, repr=False, compare=False)
    _parts: dict[int, tuple[exp.Expr, str]] = field(default_factory=dict, repr=False, compare=False)
    """The texts of nodes by their ids, because each value of a long list asks for that of the whole list."""

    @property
    def shown(self) -> str:
        """The text as messages quote it."""
        return shortened(self.text)

    def parsed(self) -> exp.Expr:
        """Parse the text and put the values of its parameters in. Raises `UsageError`, which quotes what cannot be parsed."""
        parsed = self.with_parameters()
        self.used.update(names_in([parsed]))
        return with_values(parsed, self.params, self.what)

    def with_parameters(self) -> exp.Expr:
        """Parse the text and leave its parameters as they are. Raises `UsageError` as `parsed` does."""
        if not self.text.strip():
            raise UsageError(f"cannot read the {self.what}: it is empty")
        try:
            parsed = sqlglot.parse_one(self.prefix + self.text, read=self.dialect)
        except SqlglotError as problem:
            raise UsageError(f"cannot read the {self.what}: {self.shown}", self._where(problem)) from problem
        except RecursionError:
            raise self._too_deep() from None
        if _depth(parsed) > MAX_DEPTH:
            raise self._too_deep()
        return parsed

    def _too_deep(self) -> UsageError:
        return UsageError(
            f"cannot read the {self.what}: {self.shown}",
            f"it is nested too deeply: at most {MAX_DEPTH} levels, where each operator of a chain such as a + b + c is one",
            "AND, OR and || may form chains of any length",
        )

    def part(self, node: exp.Expr) -> str:
        """The node as the user wrote it."""
        if id(node) not in self._parts:
            self._parts[id(node)] = (node, self._part(node))
        return self._parts[id(node)][1]

    def _part(self, node: exp.Expr) -> str:
        spans = [found.meta for found in node.walk() if "start" in found.meta]
        if not spans:
            return sql_of(node)
        begin, end = min(span["start"] for span in spans), max(span["end"] for span in spans) + 1
        whole = self.prefix + self.text
        if isinstance(node, exp.Neg):
            begin = max(whole.rfind("-", 0, begin), 0)
        while whole.count("(", begin, end) > whole.count(")", begin, end) and end < len(whole):
            end += 1
        return whole[begin:end]

    def refused(self, node: exp.Expr, why: str, hint: str = "") -> UsageError:
        """The error for SQL that is not supported."""
        part = self.part(node)
        within = "" if part == self.text.strip() else f" in: {self.shown}"
        return UsageError(f"not supported in the {self.what}: {shortened(part)}{within}", why, hint)

    def _where(self, problem: SqlglotError) -> str:
        if not isinstance(problem, ParseError) or not problem.errors:
            return "a quote is not closed" if isinstance(problem, TokenError) else "it holds nothing but a comment"
        first = problem.errors[0]
        at = f"'{first['highlight']}'"
        position = (first["col"] or 0) - len(self.prefix) - len(first["highlight"] or "") + 1
        if _REQUIRED.match(first["description"] or ""):
            return f"something is missing after {at}" if not first["end_context"] else f"something is missing at {at}"
        if (first["description"] or "").startswith("Expecting"):
            return f"{first['description'].split()[-1]} is missing after {at}"
        return f"unexpected {at} at character {position}"


def _depth(node: exp.Expr) -> int:
    """The nesting of the tree; chains of AND, OR and ||, which are read as lists, count as one level."""
    deepest, waiting = 0, [(node, 1)]
    while waiting:
        node, depth = waiting.pop()
        deepest = max(deepest, depth)
        is_chain = isinstance(node, (exp.And, exp.Or, exp.DPipe))
        waiting += [(part, depth if is_chain and type(part) is type(node) else depth + 1) for part in node.iter_expressions()]
    return deepest


def sql_of(node: exp.Expr) -> str:
    """The node as SQL text, for messages."""
    return node.sql(dialect=Sql)
