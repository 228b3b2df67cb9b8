"""Which table a qualified column of a query is of, where DuckDB has the table under another name than the statement.

DuckDB takes upper and lower case for the same, so that `shop.T.x` would be a column of `shop.t` as well, if that is in reach.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from paimon_cli.errors import UsageError

Sources = tuple[dict[str, Any], ...]
"""The tables and subqueries of one FROM clause."""


@dataclass(frozen=True)
class Renamed:
    """A table that is read by another name. `parts`: of its name in the statement; `view`: its name in DuckDB.

    `is_twin`: the query has another table whose name differs only in case; then its letters count.
    """

    parts: tuple[str, ...]
    view: str
    is_twin: bool


@dataclass
class RenamedTables:
    """Gives tables of a syntax tree other names, and says so where columns are qualified with theirs.

    `renamed`: by the `id` of their nodes; `columns`: likewise, in lower case. Such a table keeps the last part of its name as its
    alias, unless another source within reach has that, too: then its alias is the name of its view.
    """

    renamed: Mapping[int, Renamed]
    columns: Mapping[int, frozenset[str]]
    _hidden: set[int] = field(default_factory=set)
    """The nodes whose alias is their view."""

    def rename_in(self, statement: Any) -> None:
        """Change the syntax tree. Raises `UsageError` for a qualifier that two sources of a FROM clause have."""
        parts = list(_with_scopes(statement, ()))
        for node, scopes in parts:
            if node.get("type") == "SELECT_NODE":
                self._note_equal_names(_sources(node["from_table"]), scopes)
        for node, scopes in parts:
            if node.get("class") == "COLUMN_REF":
                node["column_names"] = self._resolved(node["column_names"], scopes)
            elif node.get("class") == "STAR":
                self._resolve_star(node, scopes)
        for node, _ in parts:
            if (renamed := self.renamed.get(id(node))) is not None:
                node["alias"] = node["alias"] or self._alias(node, renamed)
                node |= {"schema_name": "", "table_name": renamed.view, "at_clause": None}
                node["qualified_name"] = {"path": [renamed.view]}

    def _note_equal_names(self, sources: Sources, scopes: Sequence[Sources]) -> None:
        within_reach = [*sources, *(source for outer in scopes for source in outer)]
        for source in sources:
            for other in within_reach:
                if self._name(source)[-1].lower() == self._name(other)[-1].lower() and not self._are_same(source, other):
                    self._hidden |= {id(node) for node in (source, other) if self._of(node) is not None}

    def _of(self, source: Mapping[str, Any]) -> Renamed | None:
        """What is known of a source that is named as its table is, and not by an alias."""
        return None if source.get("alias") else self.renamed.get(id(source))

    def _alias(self, source: Mapping[str, Any], renamed: Renamed) -> str:
        return renamed.view if id(source) in self._hidden else renamed.parts[-1]

    def _name(self, source: Mapping[str, Any]) -> tuple[str, ...]:
        """What columns of a source are qualified with in the statement."""
        if (renamed := self._of(source)) is not None:
            return renamed.parts
        if source.get("alias") or not source.get("table_name"):
            return (_last_name(source),)
        return tuple(part for part in (source["schema_name"], source["table_name"]) if part)

    def _are_same(self, source: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
        one, two = self._of(source), self._of(other)
        return one == two and (one is not None or self._name(source) == self._name(other))

    def _is_called(self, source: Mapping[str, Any], names: Sequence[str]) -> bool:
        own, renamed = self._name(source)[-len(names) :], self._of(source)
        if renamed is not None and renamed.is_twin and (len(names) > 1 or id(source) in self._hidden):
            return list(own) == list(names)
        return [part.lower() for part in own] == [name.lower() for name in names]

    def _resolved(self, names: list[str], scopes: Sequence[Sources]) -> list[str]:
        """A column as DuckDB is to read it; `names`: its qualifiers, its name, and those of fields."""
        for sources in scopes:
            for length in (2, 1):
                if len(names) <= length:
                    continue
                found = [source for source in sources if self._is_called(source, names[:length])]
                if found:
                    return [*self._qualifier(found, names[:length]), *names[length:]]
            if any(names[0].lower() in self.columns.get(id(source), ()) for source in sources):
                return names  # a field of a column, which comes before the tables of outer queries
        return names

    def _qualifier(self, found: Sequence[dict[str, Any]], names: list[str]) -> list[str]:
        first, *others = found
        renamed = [one for one in map(self._of, found) if one is not None]
        if not renamed:
            return names
        if not all(self._are_same(first, other) for other in others):
            what = f"'{'.'.join(names)}' is the name of two tables in FROM"
            raise UsageError(what, "a column of it could be of either", "give them aliases: FROM a.t AS x JOIN b.t AS y")
        return [self._alias(first, renamed[0])]

    def _resolve_star(self, star: dict[str, Any], scopes: Sequence[Sources]) -> None:
        if star["relation_name"]:
            star["relation_name"] = self._resolved([star["relation_name"], "*"], scopes)[0]
        for column in star.get("qualified_exclude_list") or ():
            qualifiers = [column[part] for part in ("schema", "table") if column.get(part)]
            if qualifiers:
                *schema, table, _ = self._resolved([*qualifiers, column["column"]], scopes)
                column |= {"schema": schema[0] if schema else "", "table": table}


_FIELD_FUNCTIONS = frozenset(
    {"struct_extract", "struct_extract_at", "array_extract", "list_extract", "list_element", "element_at"}
)


def expands_values(statement: Any) -> bool:
    """Whether it reads fields of values that it does not name: by `unnest`, by a star that is of no table, as in `point.*`, or by
    a number, a parameter or an expression.
    """
    for node, scopes in _with_scopes(statement, ()):
        if node.get("class") == "FUNCTION":
            name, of = node["function_name"].lower(), [one["expression"] for one in node["arguments"]]
            if name == "unnest" or (name in _FIELD_FUNCTIONS and not all(map(_is_text, of[1:]))):
                return True
        if node.get("type") == "ARRAY_EXTRACT" and not all(map(_is_text, node["children"][1:])):
            return True
        if node.get("class") == "STAR" and node["relation_name"]:
            names = {_last_name(source).lower() for source in scopes[0]} if scopes else set[str]()
            if node["relation_name"].lower() not in names:
                return True
    return False


def _is_text(expression: Mapping[str, Any]) -> bool:
    """Whether this is a text of the statement, and no number of a field, and nothing computed."""
    return expression["class"] == "CONSTANT" and (expression.get("literal") or {}).get("kind") == "STRING"


def _last_name(source: Mapping[str, Any]) -> str:
    return str(source.get("alias") or source.get("table_name") or "")


def _with_scopes(node: Any, scopes: tuple[Sources, ...]) -> Iterator[tuple[dict[str, Any], tuple[Sources, ...]]]:
    """All parts of a syntax tree, with the FROM clauses that qualifiers in it may mean, the innermost first."""
    if isinstance(node, list):
        for part in node:
            yield from _with_scopes(part, scopes)
    if not isinstance(node, dict):
        return
    yield node, scopes
    inner = scopes
    if node.get("type") == "SELECT_NODE":
        inner = (_sources(node["from_table"]), *scopes)
    elif node.get("class") == "LAMBDA":
        inner = (tuple({"alias": name} for name in lambda_parameters(node)), *scopes)
    for key, part in node.items():
        yield from _with_scopes(part, scopes if key == "cte_map" else inner)


def lambda_parameters(node: Mapping[str, Any]) -> list[str]:
    """The names that a lambda gives to what it gets."""
    left = node["lhs"]
    columns = [left] if left["class"] == "COLUMN_REF" else [one["expression"] for one in left.get("arguments", ())]
    return [str(column["column_names"][0]) for column in columns if column.get("class") == "COLUMN_REF"]


def _sources(source: dict[str, Any] | None) -> Sources:
    if source is None or source.get("type") in (None, "EMPTY"):
        return ()
    if source["type"] == "JOIN":
        return (*_sources(source["left"]), *_sources(source["right"]))
    inner = _sources(source["source"]) if source["type"] == "PIVOT" else ()
    return (*inner, source)


def plain_columns(node: Any, own: frozenset[str] = frozenset()) -> Iterator[str]:
    """The columns of an expression that have no qualifier, without those of subqueries. `own`: the parameters of lambdas."""
    if isinstance(node, list):
        for part in node:
            yield from plain_columns(part, own)
    if not isinstance(node, dict):
        return
    if node.get("class") == "COLUMN_REF" and len(node["column_names"]) == 1 and node["column_names"][0].lower() not in own:
        yield node["column_names"][0]
    elif node.get("class") == "LAMBDA":
        yield from plain_columns(node["expr"], own | {name.lower() for name in lambda_parameters(node)})
    elif node.get("class") == "SUBQUERY":
        yield from plain_columns(node["child"], own)  # of `a IN (SELECT ...)`
    else:
        for part in node.values():
            yield from plain_columns(part, own)
