"""What all pages of `Catalog` share: its options and runtime, and how its tables are located and opened."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from paimon_cli.api.arguments import checks_arguments, option_texts
from paimon_cli.api.runtime import Runtime
from paimon_cli.api.table import Table, check_table_options
from paimon_cli.catalog.metastore.settings import find_metastore, table_argument
from paimon_cli.catalog.table_location import TableLocation, locate_table
from paimon_cli.errors import PaimonError
from paimon_cli.options.option_text import counted
from paimon_cli.storage.catalog_options import split_options
from paimon_cli.storage.redaction import redact

if TYPE_CHECKING:
    from typing_extensions import Self

    from paimon_cli.catalog.metastore.metastore import Metastore, OnDamage
    from paimon_cli.catalog.warehouse_policy import Policies

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

    def __dir__(self) -> list[str]:
        """What is for callers: a notebook proposes no plumbing."""
        return [name for name in super().__dir__() if name != "at"]

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

    def _policies(self) -> Policies:
        """The policies that are about its tables. Raises `UsageError` if the user's own configuration has mistakes in it."""
        from paimon_cli.catalog.metastore.configuration_files import PROFILE
        from paimon_cli.catalog.warehouse_policy import Policies, own_rules

        own = own_rules(self._options.get(PROFILE) or self.runtime.profile)
        return Policies(own, self.runtime.warn, self._metastore.table_seconds)

    def _locate(self, table: str, branch: str | None = None) -> TableLocation:
        location = locate_table(table, self.url, self._options, branch or self.branch)
        argument = None if self._argument is None else self._argument(table)
        return replace(location, allow_unsafe_commit=self._allow_unsafe_commit, argument=argument)

    def _open(self, location: TableLocation) -> Table:
        # a path would do for a table whose catalog is its directories, but go round any other catalog and its lock
        is_named = self._argument is not None or (location.entry is not None and location.entry[0].keeps_entries)
        if location.argument is None and is_named:
            location = replace(location, argument=self._pasted(location.name))
        return Table.at(location, self._table_options, self.runtime)

    def _pasted(self, table: str) -> str:
        """A table of this catalog as an argument of commands: with the flags that find it."""
        if self._argument is not None:
            return self._argument(table)
        return table_argument(table, self.url, self.branch, {**self._options, **self._table_options})

    def table(self, name: str, *, branch: str | None = None) -> Table:
        """Open a table by `db.table` or by its path. Raises `NotFound` if it does not exist."""
        return self._open(self._locate(name, branch))
