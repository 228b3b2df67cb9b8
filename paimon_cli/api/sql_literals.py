"""Literals in the syntax trees of DuckDB, and those that it would cut without a word."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from paimon_cli.errors import UsageError

MICROS = 6
"""The digits of a second of most types of DuckDB for times."""
_WITH_NANOS = {
    **dict.fromkeys(("TIMESTAMP", "DATETIME", "TIMESTAMP WITHOUT TIME ZONE", "TIMESTAMP_US"), "TIMESTAMP_NS"),
    **dict.fromkeys(("TIMESTAMPTZ", "TIMESTAMP WITH TIME ZONE"), "TIMESTAMPTZ_NS"),
}
"""Type -> the one with nine digits."""
_MORE_DIGITS = re.compile(rf"\.\d{{{MICROS}}}0*[1-9]", re.ASCII)


def literal_text(expression: dict[str, Any]) -> str | None:
    """The text of a literal, as DuckDB 2 writes it, or the value of a string or integer, as DuckDB 1 does; None for others."""
    if "literal" in expression:
        return str(expression["literal"]["text"])
    value = expression.get("value") or {}
    return str(value["value"]) if (value.get("type") or {}).get("id") in ("VARCHAR", "INTEGER", "BIGINT") else None


def refuse_cut_times(tree: Any) -> None:
    """Raise `UsageError` for a literal in a syntax tree of which its type would lose digits: the query would be about another
    time.
    """
    for cast in _casts(tree):
        text, name = literal_text(cast["child"]), _type_name(cast)
        if name in _WITH_NANOS and text is not None and _MORE_DIGITS.search(text):
            what, why = f"{name} has {MICROS} digits of a second", f"it would cut '{text}'"
            raise UsageError(what, why, f"write {_WITH_NANOS[name]} '{text}', or fewer digits")


def _casts(node: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(node, dict):
        if node.get("class") == "CAST":
            yield node
        node = list(node.values())
    if isinstance(node, list):
        for inner in node:
            yield from _casts(inner)


def _type_name(cast: Mapping[str, Any]) -> str:
    """As DuckDB 2 writes it, or as DuckDB 1 does."""
    return str(cast["type_expr"]["type_name"] if "type_expr" in cast else cast["cast_type"]["id"]).upper()
