"""The columns of row tracking in queries: they are there if a query names them, but no `*` shows them, as in other engines."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from typing import Any

from paimon_cli.errors import NotSupported
from paimon_cli.metadata.data_file_schema import TRACKING_COLUMNS
from paimon_cli.sql.statements import quoted


def named_tracking_columns(query: str) -> tuple[str, ...]:
    """The columns of row tracking that the text of a query may name."""
    return tuple(name for name in TRACKING_COLUMNS if re.search(rf"(?<!\w){name}(?!\w)", query, re.IGNORECASE))


class HiddenColumns:
    """Hides these columns where a query does not name them: in stars, and in tables that are used as values (`SELECT t FROM t`).

    `shown`: of the nodes of tables with row tracking in the syntax tree, by `id`, the other columns. `parsed`: makes a node of
    the text of an expression. A star or value of a subquery shows them: the subquery names them.
    """

    def __init__(self, columns: Collection[str], shown: dict[int, list[str]], parsed: Callable[[str], dict[str, Any]]) -> None:
        self._columns = columns
        self._shown = shown
        self._parsed = parsed

    def hide_in(self, node: Any) -> None:
        """Change the syntax tree. Raises `NotSupported` for a NATURAL join of two such tables, which would compare these columns,
        too, and for a value that may be another source of the query.
        """
        if isinstance(node, dict):
            if node.get("type") == "SELECT_NODE":
                self._hide_in_select(node)
            if node.get("ref_type") == "NATURAL" and all(map(self._is_tracked, (node["left"], node["right"]))):
                why = f"the query names {', '.join(self._columns)}, which the join would compare, too"
                raise NotSupported("a NATURAL join of tables with row tracking", why, "name the columns: JOIN ... USING (COLUMN)")
            node = list(node.values())
        for part in node if isinstance(node, list) else ():
            self.hide_in(part)

    def _is_tracked(self, source: dict[str, Any]) -> bool:
        return any(id(table) in self._shown for table in _sources(source))

    def _hide_in_select(self, select: dict[str, Any]) -> None:
        sources = list(_sources(select["from_table"]))
        tracked = {(source["alias"] or source["table_name"]): source for source in sources if id(source) in self._shown}
        names = {name.lower() for name in tracked}
        if not names:
            return
        for star in _parts(select["select_list"], "STAR"):
            if not star["relation_name"] or star["relation_name"].lower() in names:
                known = {name.lower() for name in star["exclude_list"]}
                star["exclude_list"] += [name for name in self._columns if name.lower() not in known]
        columns = {column.lower() for source in tracked.values() for column in self._shown[id(source)]}
        for value in _parts([part for key, part in select.items() if key not in ("from_table", "cte_map")], "COLUMN_REF"):
            name = value["column_names"][0]
            if len(value["column_names"]) > 1 or name.lower() not in names or name.lower() in columns:
                continue
            if len(tracked) < len(sources):
                why = "it may be a column of another source, and the query names columns that the value would show, too"
                raise NotSupported(f"table {name} as a value beside other sources", why, "name the columns of the table")
            source = next(source for known, source in tracked.items() if known.lower() == name.lower())
            fields = ", ".join(f"{quoted(column)} := {quoted(name)}.{quoted(column)}" for column in self._shown[id(source)])
            alias = value["alias"] or (name if any(value is item for item in select["select_list"]) else "")
            value |= self._parsed(f"struct_pack({fields})") | {"alias": alias}


def _sources(source: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The tables and subqueries of a FROM clause."""
    if source.get("type") == "JOIN":
        yield from _sources(source["left"])
        yield from _sources(source["right"])
    elif source.get("type") != "EMPTY":
        yield source


def _parts(node: Any, kind: str) -> Iterator[dict[str, Any]]:
    """The parts of an expression that are of one class, without those in subqueries."""
    if isinstance(node, dict):
        if node.get("class") == kind:
            yield node
        node = [] if node.get("class") == "SUBQUERY" else list(node.values())
    for part in node if isinstance(node, list) else ():
        yield from _parts(part, kind)
