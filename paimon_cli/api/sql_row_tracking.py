"""The columns of row tracking in queries: they are there if a query names them, but no `*` shows them, as in other engines."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from typing import Any

from paimon_cli.errors import NotSupported
from paimon_cli.metadata.data_file_schema import TRACKING_COLUMNS


def named_tracking_columns(query: str) -> tuple[str, ...]:
    """The columns of row tracking that the text of a query may name."""
    return tuple(name for name in TRACKING_COLUMNS if re.search(rf"(?<!\w){name}(?!\w)", query, re.IGNORECASE))


def hide_from_stars(node: Any, is_tracked: Callable[[dict[str, Any]], bool], columns: Collection[str]) -> None:
    """Let no star of the syntax tree show these columns of the tables of which `is_tracked` is true.

    A star over a subquery shows them: the subquery names them. `NotSupported` for a NATURAL join of two such tables: it would
    compare these columns, too.
    """
    if isinstance(node, dict):
        if node.get("type") == "SELECT_NODE":
            tracked = [table for table in _tables_beside(node["from_table"]) if is_tracked(table)]
            names = {(table["alias"] or table["table_name"]).lower() for table in tracked}
            for star in _stars(node["select_list"]):
                if names and (not star["relation_name"] or star["relation_name"].lower() in names):
                    known = {name.lower() for name in star["exclude_list"]}
                    star["exclude_list"] += [name for name in columns if name.lower() not in known]
        if node.get("ref_type") == "NATURAL" and all(
            any(map(is_tracked, _tables_beside(node[side]))) for side in ("left", "right")
        ):
            why = f"the query names {', '.join(columns)}, which the join would compare, too"
            raise NotSupported("a NATURAL join of tables with row tracking", why, "name the columns: JOIN ... USING (COLUMN)")
        node = list(node.values())
    for part in node if isinstance(node, list) else ():
        hide_from_stars(part, is_tracked, columns)


def _tables_beside(source: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The tables of a FROM clause, without those in subqueries."""
    if source.get("type") == "BASE_TABLE":
        yield source
    elif source.get("type") == "JOIN":
        yield from _tables_beside(source["left"])
        yield from _tables_beside(source["right"])


def _stars(node: Any) -> Iterator[dict[str, Any]]:
    """The stars of an expression, without those in subqueries."""
    if isinstance(node, dict):
        if node.get("class") == "STAR":
            yield node
        node = [] if node.get("class") == "SUBQUERY" else list(node.values())
    for part in node if isinstance(node, list) else ():
        yield from _stars(part)
