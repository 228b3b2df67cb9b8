"""An opened catalog: how its tables are located and opened, and the choice of tables for a call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from paimon_cli.api.arguments import checks_arguments
from paimon_cli.api.opened_table import Runtime, option_texts
from paimon_cli.api.table import Table, check_table_options
from paimon_cli.catalog.table_location import TableLocation, locate_table
from paimon_cli.errors import NotFound, PaimonError
from paimon_cli.metadata.table_layout import MAIN_BRANCH
from paimon_cli.metastore.settings import find_metastore
from paimon_cli.options.option_text import counted
from paimon_cli.storage.catalog_options import split_options
from paimon_cli.storage.redaction import redact, without_login

if TYPE_CHECKING:
    from typing_extensions import Self

    from paimon_cli.metastore.metastore import Metastore, OnDamage
    from paimon_cli.requests.compaction import TableChoice

MAX_NAMED = 5
"""The most tables, or damaged entries of a catalog, that messages name."""


@checks_arguments
class OpenedCatalog:
    """The base of all parts of `Catalog`: its options, and how its tables are opened."""

    def __init__(
        self,
        url: str | None = None,
        options: Mapping[str, Any] | None = None,
        *,
        branch: str | None = None,
        strict_options: bool = False,
        allow_unsafe_commit: bool = False,
        runtime: Runtime | None = None,
    ) -> None:
        self.url, self.branch, self.runtime = url, branch, runtime or Runtime()
        self._options, self._table_options = split_options(option_texts(options))
        self._allow_unsafe_commit = allow_unsafe_commit
        self._argument: Callable[[str], str] | None = None
        check_table_options(self._table_options, self.runtime, strict=strict_options)

    def __repr__(self) -> str:
        return f"Catalog({'' if self.url is None else repr(redact(self.url, self._options))})"

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
        argument: Callable[[str], str] | None = None,
    ) -> Self:
        """A catalog with options that have already been split and checked.

        `argument`: makes the name of a table the argument of commands in hints, which otherwise name its path.
        """
        catalog = cls(url, options, branch=branch, allow_unsafe_commit=allow_unsafe_commit, runtime=runtime)
        catalog._table_options, catalog._argument = dict(table_options), argument
        return catalog

    @property
    def _metastore(self) -> Metastore:
        """The metastore by the current configuration."""
        return find_metastore(self.url, self._options)

    @contextmanager
    def _warning_of_damage(self) -> Iterator[OnDamage]:
        """What receives damaged entries of the catalog while something is listed, and warns of the first ones afterwards."""
        found: list[PaimonError] = []
        yield found.append
        for error in found[:MAX_NAMED]:
            self.runtime.warn(f"{error.message}; left out; {error.hint}")
        if len(found) > MAX_NAMED:
            self.runtime.warn(f"{counted(len(found) - MAX_NAMED, 'more name')} of the catalog left out")

    def _locate(self, table: str, branch: str | None = None) -> TableLocation:
        location = locate_table(table, self.url, self._options, branch or self.branch)
        argument = None if self._argument is None else self._argument(table)
        return replace(location, allow_unsafe_commit=self._allow_unsafe_commit, argument=argument)

    def _open(self, location: TableLocation) -> Table:
        if location.argument is None and self._argument is not None:
            location = replace(location, argument=self._argument(location.name))
        return Table.at(location, self._table_options, self.runtime)

    def table(self, name: str, *, branch: str | None = None) -> Table:
        """Open a table by `db.table` or by its path. Raises `NotFound` if it does not exist."""
        return self._open(self._locate(name, branch))


class ChosenTable(NamedTuple):
    """A table of a call, by its name without secrets. `locate` may have to ask the catalog where it is."""

    name: str
    locate: Callable[[], TableLocation]

    @staticmethod
    def at(location: TableLocation) -> ChosenTable:
        return ChosenTable(location.name, lambda: location)


def chosen_tables(
    choice: TableChoice, locate: Callable[[str], TableLocation], metastore: Metastore, branch: str | None, on_damage: OnDamage
) -> Iterator[ChosenTable]:
    """The current tables of a choice. Raises `NotFound` for a database that does not exist or has no tables.

    `on_damage`: receives the errors of entries of the catalog that are damaged.
    """
    from paimon_cli.catalog.table_listing import tables_of_database, tables_of_warehouse

    if not choice.is_listed:
        yield from (ChosenTable(without_login(name), partial(locate, name)) for name in choice.tables or ())
        return
    if choice.all_tables:
        found = tables_of_warehouse(metastore, on_damage)
    else:
        found = []
        for name in choice.databases:
            damaged: list[PaimonError] = []
            tables = tables_of_database(name, metastore, damaged.append)
            for error in damaged:
                on_damage(error)
            if not tables and not damaged:
                at = f" at {without_login(metastore.warehouse)}" if metastore.warehouse else ""
                why = f"the {metastore.kind} catalog{at} has none there"
                raise NotFound(f"no tables in database {name}", why, "check --warehouse and the name of the database")
            found += tables
    for location in found:
        if choice.has(location.name.rpartition(".")[2]):
            yield ChosenTable.at(location if branch in (None, MAIN_BRANCH) else location.at_branch(branch))
