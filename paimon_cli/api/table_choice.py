"""The tables of a call: those that it names, or the current ones of databases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from paimon_cli.api.opened_catalog import MAX_NAMED
from paimon_cli.catalog.table_location import TableLocation
from paimon_cli.errors import NotFound, PaimonError, StorageUnavailable
from paimon_cli.metadata.table_layout import MAIN_BRANCH
from paimon_cli.requests.compaction import TableChoice
from paimon_cli.storage.redaction import without_login

if TYPE_CHECKING:
    from paimon_cli.catalog.metastore.metastore import Metastore, OnDamage


class ChosenTable(NamedTuple):
    """A table of a call, by its name without secrets. `locate` may have to ask the catalog where it is."""

    name: str
    locate: Callable[[], TableLocation]

    @staticmethod
    def at(location: TableLocation, branch: str | None) -> ChosenTable:
        """A listed table, at the branch of the call."""
        found = location if branch in (None, MAIN_BRANCH) else location.at_branch(branch)
        return ChosenTable(found.name, lambda: found)


def chosen_tables(
    choice: TableChoice, locate: Callable[[str], TableLocation], metastore: Metastore, branch: str | None, on_damage: OnDamage
) -> Iterator[ChosenTable]:
    """The current tables of a choice; a database may have none. Raises `NotFound` for a database that does not exist.

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
            found += tables_of_database(name, metastore, on_damage)
    for location in found:
        if choice.has(location.name.rpartition(".")[2]):
            yield ChosenTable.at(location, branch)


class TableLists:
    """The tables of each part of a choice, listed again in each round; the last ones if the storage does not answer."""

    def __init__(self, found: Callable[[TableChoice], list[TableLocation]], warn: Callable[[str], None]) -> None:
        self._found = found
        self._warn = warn
        self._last: dict[TableChoice, list[TableLocation]] = {}

    def of(self, part: TableChoice) -> list[TableLocation]:
        try:
            self._last[part] = self._found(part)
        except NotFound:
            self._last[part] = []  # the database has no tables at the moment
        except StorageUnavailable as error:
            if part not in self._last:
                raise
            self._warn(f"the tables could not be listed; using the list of the last round: {error}")
        return self._last[part]


class DamageWarnings:
    """Warns of each damaged entry of the catalog, however often it is met, once. `has_met_any`: whether one was met since
    `renew`; it may hide tables.
    """

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._warned_of: set[str] = set()
        self.has_met_any = False

    def renew(self) -> None:
        self.has_met_any = False

    def __call__(self, error: PaimonError) -> None:
        self.has_met_any = True
        if error.message not in self._warned_of and len(self._warned_of) < MAX_NAMED:
            self._warned_of.add(error.message)
            self._warn(f"{error.message}; left out; {error.hint}")
