"""Which tables a compaction means: named tables, whole databases, or the warehouse."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from paimon_cli.catalog.table_location import TableLocation
from paimon_cli.errors import UsageError
from paimon_cli.metadata.table_layout import MAIN_BRANCH

if TYPE_CHECKING:
    from paimon_cli.metastore.metastore import Metastore


@dataclass(frozen=True)
class TableChoice:
    """Tables by name, or of `databases` (`every`: of all) those whose whole names match a pattern of `include`, and none of
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
        """`UsageError` unless exactly one way of choosing is used."""
        databases = () if database is None else (database,) if isinstance(database, str) else tuple(database)
        if bool(tables) + bool(databases) + every != 1:
            raise UsageError(
                "name the tables to compact",
                "either TABLE..., --database DB, or --all-tables",
                "paimon-cli compact ./wh/shop.db/orders",
            )
        if tables and (include or exclude):
            raise UsageError(
                "--include and --exclude need --database or --all-tables", "they select among the tables found there"
            )
        return cls(tuple(tables), tuple(dict.fromkeys(databases)), every, _patterns(include), _patterns(exclude))

    @property
    def is_listed(self) -> bool:
        """Whether the tables are found by listing databases, so that they come and go."""
        return not self.tables

    def locations(
        self, locate: Callable[[str], TableLocation], metastore: Metastore, branch: str | None
    ) -> Iterator[TableLocation]:
        """The tables as they are listed now. `NotFound` for a database that does not exist, or has no tables."""
        from paimon_cli.catalog.table_listing import tables_of_database, tables_of_warehouse

        if not self.is_listed:
            yield from map(locate, self.tables)
            return
        if self.every:
            found = tables_of_warehouse(metastore)
        else:
            found = [location for name in self.databases for location in tables_of_database(name, metastore)]
        for location in filter(self._is_meant, found):
            yield location if branch in (None, MAIN_BRANCH) else location.at_branch(branch)

    def one_by_one(self) -> list[TableChoice]:
        """The same choice in parts, one for each database: one that is gone does not hide the others."""
        return [replace(self, databases=(name,)) for name in self.databases] or [self]

    def _is_meant(self, location: TableLocation) -> bool:
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
