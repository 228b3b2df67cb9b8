"""An open catalog: how its tables are found and opened, and which of them a call means."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from paimon_cli.api.opened_table import Runtime
from paimon_cli.api.table import Table, check_table_options
from paimon_cli.catalog.table_location import TableLocation, locate_table
from paimon_cli.errors import UsageError
from paimon_cli.metadata.table_layout import MAIN_BRANCH
from paimon_cli.metastore.settings import find_metastore
from paimon_cli.storage.catalog_options import split_options

if TYPE_CHECKING:
    from typing_extensions import Self

    from paimon_cli.metastore.metastore import Metastore


class OpenedCatalog:
    """What all parts of `Catalog` share: its options, and how its tables are opened."""

    def __init__(
        self,
        url: str | None = None,
        options: Mapping[str, str] | None = None,
        *,
        branch: str | None = None,
        strict_options: bool = False,
        allow_unsafe_commit: bool = False,
        runtime: Runtime | None = None,
    ) -> None:
        self.url, self.branch, self.runtime = url, branch, runtime or Runtime()
        self._options, self._table_options = split_options({key: str(value) for key, value in (options or {}).items()})
        self._allow_unsafe_commit = allow_unsafe_commit
        check_table_options(self._table_options, self.runtime, strict=strict_options)

    @classmethod
    def at(
        cls,
        url: str | None,
        options: Mapping[str, str],
        table_options: Mapping[str, str],
        runtime: Runtime,
        *,
        branch: str | None = None,
        allow_unsafe_commit: bool = False,
    ) -> Self:
        """A catalog whose options are split and checked."""
        catalog = cls(url, options, branch=branch, allow_unsafe_commit=allow_unsafe_commit, runtime=runtime)
        catalog._table_options = dict(table_options)
        return catalog

    @property
    def _metastore(self) -> Metastore:
        """The catalog as it is configured now."""
        return find_metastore(self.url, self._options)

    def _locate(self, table: str, branch: str | None = None) -> TableLocation:
        location = locate_table(table, self.url, self._options, branch or self.branch)
        return replace(location, allow_unsafe_commit=self._allow_unsafe_commit)

    def _open(self, location: TableLocation) -> Table:
        return Table.at(location, self._table_options, self.runtime)

    def table(self, name: str, *, branch: str | None = None) -> Table:
        """A table of this catalog, by `db.table` or by its path. `NotFound`."""
        return self._open(self._locate(name, branch))


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
