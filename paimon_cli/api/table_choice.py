"""The choice of the tables of a call: by name, or by database and pattern."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from paimon_cli.catalog.table_location import TableLocation
from paimon_cli.errors import NotFound, PaimonError, UsageError
from paimon_cli.metadata.table_layout import MAIN_BRANCH
from paimon_cli.storage.redaction import without_login

if TYPE_CHECKING:
    from paimon_cli.metastore.metastore import Metastore, OnDamage


class ChosenTable(NamedTuple):
    """A table of a call, by its name without secrets. `locate` may have to ask the catalog where it is."""

    name: str
    locate: Callable[[], TableLocation]

    @staticmethod
    def at(location: TableLocation) -> ChosenTable:
        return ChosenTable(location.name, lambda: location)


@dataclass(frozen=True)
class TableChoice:
    """A choice of tables: by name, or from `databases` (`every`: all databases).

    Of listed tables, only those are chosen whose full names match a pattern of `include`, if there are any, and none of
    `exclude`.
    """

    tables: Sequence[str] = ()
    databases: Sequence[str] = ()
    every: bool = False
    include: Sequence[re.Pattern[str]] = field(default=())
    exclude: Sequence[re.Pattern[str]] = field(default=())

    @classmethod
    def of(
        cls,
        tables: Sequence[str],
        database: str | Sequence[str] | None,
        every: bool,
        include: Sequence[str],
        exclude: Sequence[str],
    ) -> TableChoice:
        """A choice with compiled patterns. Raises `UsageError` unless exactly one way of choosing is used."""
        databases = () if database is None else (database,) if isinstance(database, str) else tuple(database)
        if bool(tables) + bool(databases) + every != 1:
            raise UsageError(
                "name the tables to compact",
                "either TABLE..., --database DB, or --all-tables",
                "paimon-cli compact ./wh/shop.db/orders",
            )
        if tables and (include or exclude):
            raise UsageError("--include and --exclude need --database or --all-tables", "they select among listed tables")
        return cls(tuple(tables), tuple(dict.fromkeys(databases)), every, _patterns(include), _patterns(exclude))

    @property
    def is_listed(self) -> bool:
        """Whether the tables are found by listing databases, so that they may change over time."""
        return not self.tables

    @property
    def is_single(self) -> bool:
        """Whether it names one table, so that no other one waits for it."""
        return len(self.tables) == 1

    def found(
        self, locate: Callable[[str], TableLocation], metastore: Metastore, branch: str | None, on_damage: OnDamage
    ) -> Iterator[ChosenTable]:
        """The current tables of the choice. Raises `NotFound` for a database that does not exist or has no tables.

        `on_damage`: receives the errors of entries of the catalog that are damaged.
        """
        from paimon_cli.catalog.table_listing import tables_of_database, tables_of_warehouse

        if not self.is_listed:
            yield from (ChosenTable(without_login(name), partial(locate, name)) for name in self.tables)
            return
        if self.every:
            found = tables_of_warehouse(metastore, on_damage)
        else:
            found = []
            for name in self.databases:
                damaged: list[PaimonError] = []
                tables = tables_of_database(name, metastore, damaged.append)
                for error in damaged:
                    on_damage(error)
                if not tables and not damaged:
                    at = f" at {without_login(metastore.warehouse)}" if metastore.warehouse else ""
                    why = f"the {metastore.kind} catalog{at} has none there"
                    raise NotFound(f"no tables in database {name}", why, "check --warehouse and the name of the database")
                found += tables
        for location in filter(self._is_chosen, found):
            yield ChosenTable.at(location if branch in (None, MAIN_BRANCH) else location.at_branch(branch))

    def one_by_one(self) -> list[TableChoice]:
        """This choice in parts, one per database, so that a missing database does not affect the others."""
        return [replace(self, databases=(name,)) for name in self.databases] or [self]

    def _is_chosen(self, location: TableLocation) -> bool:
        name = location.name.rpartition(".")[2]
        is_included = not self.include or any(pattern.fullmatch(name) for pattern in self.include)
        return is_included and not any(pattern.fullmatch(name) for pattern in self.exclude)


def _patterns(texts: Sequence[str]) -> tuple[re.Pattern[str], ...]:
    patterns = []
    for text in texts:
        try:
            patterns.append(re.compile(text))
        except re.error as error:
            raise UsageError(f"'{text}' is not a regular expression", str(error)) from error
    return tuple(patterns)
