"""What the tools work on: one warehouse, whose tables are opened by name, in calls that are bounded in time.

A call that hangs in a file system or a library cannot be interrupted; nobody waits for it after its time. A table in which calls
hang is refused until one of them ends, so that it cannot take all threads.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from paimon_cli.api.catalog import Catalog
from paimon_cli.api.runtime import Runtime
from paimon_cli.api.table import Table
from paimon_cli.catalog.metastore.filesystem import FileSystemMetastore
from paimon_cli.catalog.metastore.metastore import Metastore, is_name
from paimon_cli.cli.agents.answers import Places
from paimon_cli.cli.agents.permits import Permits
from paimon_cli.errors import Refused, StorageUnavailable, TookTooLong, UsageError
from paimon_cli.storage.time_bounds import within

Done = TypeVar("Done")
MAX_HANGING = 16
"""Calls that may hang in all tables before each further call is refused."""
MAX_HANGING_IN_TABLE = 2
OpenCatalog = Callable[[Runtime], Catalog]


@dataclass
class Visit:
    """One call of a tool: the catalog as it sees it, its warnings, the tables that it has opened."""

    desk: Desk
    warnings: list[str] = field(default_factory=list)
    tables: set[str] = field(default_factory=set)
    interrupts: list[Callable[[], None]] = field(default_factory=list)
    is_given_up: bool = False

    @property
    def catalog(self) -> Catalog:
        opened = self.desk.open_catalog(Runtime("local", warn=self.warnings.append))
        if isinstance(opened._metastore, FileSystemMetastore) and opened._metastore.warehouse is not None:
            self.desk.places.add(absolute(opened._metastore.warehouse), "WAREHOUSE")
        return opened

    def shown(self, value: Any) -> Any:
        """A value of JSON that is ours, and not cells, without secrets and places."""
        return self.desk.places.hidden(value)

    def table(self, name: str) -> Table:
        """Open a table of the warehouse. Raises `UsageError` for what is not `db.table`, `Refused` for a link out of it."""
        self.desk.register(self, checked_name(name))
        catalog = self.catalog
        opened = catalog.table(name)
        self.desk.places.add(opened.url, name)
        if leads_outside(opened.url, catalog._metastore):
            raise Refused(f"{name} is a link out of the warehouse", "agents see the warehouse only", "copy it: tables clone")
        return opened


@dataclass
class Desk:
    """`open_catalog`: the catalog for a call. `seconds`: the time of a call. `permits`: None if nothing may be changed.

    `places`: those of the warehouse and of the tables that were opened.
    """

    open_catalog: OpenCatalog
    seconds: float
    permits: Permits | None = None
    places: Places = field(default_factory=Places)
    _changed: threading.Lock = field(default_factory=threading.Lock)
    _visits: list[Visit] = field(default_factory=list)

    def answer(self, name: str, work: Callable[[Visit], Done], *, is_bounded: bool = True) -> tuple[Done, list[str]]:
        """The result of one call and its warnings. Raises `TookTooLong` when its time is up, unless it bounds itself."""
        visit = Visit(self)
        if not is_bounded:
            return work(visit), visit.warnings
        with self._changed:
            hanging = sum(other.is_given_up for other in self._visits)
            if hanging >= MAX_HANGING:
                raise StorageUnavailable(
                    f"{name} was not begun", f"{hanging} earlier calls still hang", "restart the server, and check its storage"
                )
            self._visits.append(visit)

        def look() -> Done:
            with self._leaving(visit):
                return work(visit)

        try:
            return within(self.seconds, look, name), visit.warnings
        except TookTooLong as late:
            if late.details.get("table") != name:  # of a table in which others hang, and not of this call
                raise
            visit.is_given_up = True
            for interrupt in visit.interrupts:
                interrupt()
            why = "it asks for much, or its tables or their storage are slow"
            hint = "ask for less: a condition, fewer columns; or ask the operator of the server for more time"
            raise TookTooLong(f"{name} took more than {self.seconds:g} s", why, hint, tool=name) from late

    def register(self, visit: Visit, table: str) -> None:
        """Note that a call opens a table. Raises `TookTooLong` for a table in which others hang."""
        with self._changed:
            hanging = sum(other.is_given_up and table in other.tables for other in self._visits)
            if hanging >= MAX_HANGING_IN_TABLE:
                what = f"{table} still does not answer"
                raise TookTooLong(what, f"{hanging} earlier calls hang in it", "try other tables, and this one later")
            visit.tables.add(table)

    @contextmanager
    def _leaving(self, visit: Visit) -> Iterator[None]:
        try:
            yield
        finally:
            with self._changed:
                self._visits.remove(visit)


def absolute(url: str) -> str:
    """A URL, or a local path from the root on."""
    return url if "://" in url else os.path.abspath(url)


def checked_name(name: str) -> str:
    """The name `db.table`. Raises `UsageError` for anything else: paths, URLs, profiles, branches and views."""
    parts = name.split(".")
    if len(parts) != 2 or not all(map(is_name, parts)) or name.startswith("@"):
        raise UsageError("this is not the name of a table", "tables are named db.table, and not by paths", "call list_tables")
    return name


def check_database_name(name: str) -> None:
    """Raise `UsageError` for what cannot be the name of a database."""
    if not is_name(name) or name.startswith("@"):
        raise UsageError("this is not the name of a database", "it is a plain name, and not a path", "call list_databases")


def leads_outside(url: str, metastore: Metastore) -> bool:
    """Whether the directory of a table in a local warehouse is, by a link, somewhere else."""
    if not isinstance(metastore, FileSystemMetastore) or metastore.warehouse is None or "://" in url:
        return False
    inside = os.path.realpath(metastore.open_directory(metastore.warehouse)[1])
    return os.path.commonpath([inside, os.path.realpath(url)]) != inside
