"""The trash of a catalog: dropped tables, until they are brought back or deleted for good."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from paimon_cli.api.arguments import checks_arguments, takes
from paimon_cli.api.maintenance import Planned
from paimon_cli.api.opened_catalog import MAX_NAMED, OpenedCatalog
from paimon_cli.catalog.table_location import TableLocation, locate_table
from paimon_cli.errors import DamagedFile, NotSupported, PaimonError, PartialSuccess, Refused
from paimon_cli.requests.dropping import EmptyOptions, UndropOptions

if TYPE_CHECKING:
    from paimon_cli.catalog.metastore.metastore import Metastore
    from paimon_cli.maintain.trash import Trash
    from paimon_cli.maintain.trash_entry import TrashEntry


@dataclass(frozen=True)
class TrashRow:
    """A dropped table. `until`: from then on it may be deleted for good.

    `state`: `kept`, `expired` when its time is over, `going` once its deletion has begun, or `damaged` for an entry that
    cannot be read, of which only `id`, `path` and `problem` are known.
    """

    table: str | None
    id: str
    state: Literal["kept", "expired", "going", "damaged"]
    dropped: int | None
    until: int | None
    snapshots: int | None
    files: int | None
    size: int | None
    path: str
    problem: str = ""


@dataclass(frozen=True)
class Undropped:
    """A table that was brought back, and the name that it had."""

    table: str
    dropped_as: str
    path: str
    snapshots: int
    files: int
    size: int


@dataclass(frozen=True)
class EmptiedTrash:
    """What was deleted for good: the tables by name, their files and bytes."""

    table_names: tuple[str, ...]
    tables: int
    files: int
    size: int


class PartlyEmptied(PartialSuccess):
    """Some dropped tables could not be deleted, or there are entries that cannot be read. `emptied`: what was deleted."""

    emptied: EmptiedTrash


NOTHING_EMPTIED = EmptiedTrash((), 0, 0, 0)


@checks_arguments
class TrashCan:
    """The dropped tables of a warehouse, the last one first.

    >>> catalog = Catalog("lake")
    >>> Table.create("shop.orders", columns=["id BIGINT NOT NULL"], primary_key="id", bucket=1, warehouse=catalog.url)
    Table('shop.orders')
    >>> catalog.drop_table("shop.orders").kept > 0
    True
    >>> [row.table for row in catalog.trash]
    ['shop.orders']
    >>> catalog.undrop("shop.orders").table
    'shop.orders'
    >>> len(catalog.trash.ls())
    0
    """

    def __init__(self, metastore: Metastore) -> None:
        self._metastore = metastore

    def __iter__(self) -> Iterator[TrashRow]:
        return iter(self.ls())

    @property
    def _trash(self) -> Trash:
        from paimon_cli.catalog.warehouse_trash import trash_of_warehouse

        return trash_of_warehouse(self._metastore)

    def ls(self) -> list[TrashRow]:
        """The dropped tables, then entries that cannot be read. Raises `NotSupported` without a warehouse directory."""
        trash, damaged = self._trash, list[DamagedFile]()
        rows = _rows(trash, trash.entries(damaged.append))
        return [*rows, *(_damaged_row(error, trash.directory) for error in damaged)]

    @takes(EmptyOptions)
    def plan_empty(self, options: EmptyOptions) -> Planned[list[TrashRow], EmptiedTrash]:
        """Plan to delete all dropped tables for good, or with `expired` some of them. A table that is dropped later stays."""
        from paimon_cli.maintain.trash import empty_trash

        trash = self._trash
        planned = trash.overdue(everything=not options.expired)

        def run() -> EmptiedTrash:
            deleted, failed = empty_trash(trash, planned)
            damaged = list[DamagedFile]()
            trash.entries(damaged.append)
            emptied = _emptied(deleted)
            if failed or damaged:
                raise _partly_emptied(emptied, failed, damaged)
            return emptied

        return Planned(_rows(trash, planned), run)

    @takes(EmptyOptions)
    def empty(self, options: EmptyOptions) -> EmptiedTrash:
        """Delete all dropped tables for good, or with `expired` some of them.

        Raises `PartlyEmptied` at the end if some could not be deleted, or if there are entries that cannot be read, which stay.
        """
        return self.plan_empty(expired=options.expired).run()


def empty_expired(metastore: Metastore, warn: Callable[[str], None]) -> EmptiedTrash:
    """Delete dropped tables whose time is over, where a catalog has a trash. What cannot be deleted stays, with a warning."""
    from paimon_cli.catalog.warehouse_trash import trash_of_warehouse
    from paimon_cli.maintain.trash import empty_trash

    try:
        trash = trash_of_warehouse(metastore)
    except NotSupported:
        return NOTHING_EMPTIED
    deleted: list[TrashEntry] = []
    try:
        deleted, failed = empty_trash(trash, trash.overdue())
        for entry, error in failed:
            warn(f"{entry.table} was not deleted from the trash: {error.message}")
        trash.entries(lambda error: warn(f"an entry of the trash stays: {error.message}"))
    except PaimonError as error:
        warn(f"the trash was not emptied: {error.message}")
    return _emptied(deleted)


def _rows(trash: Trash, entries: Sequence[TrashEntry]) -> list[TrashRow]:
    now = trash.clock.now_millis()
    return [_row(entry, "going" if entry.is_going else "expired" if entry.until <= now else "kept") for entry in entries]


def _row(entry: TrashEntry, state: Literal["kept", "expired", "going"]) -> TrashRow:
    counts = entry.snapshots, entry.files, entry.size
    return TrashRow(entry.table, entry.id, state, entry.dropped, entry.until, *counts, entry.url)


def _damaged_row(error: DamagedFile, directory: str) -> TrashRow:
    path = error.path or directory
    name = path.removeprefix(f"{directory}/").partition("/")[0]
    return TrashRow(None, name, "damaged", None, None, None, None, None, f"{directory}/{name}", error.message)


def _partly_emptied(
    emptied: EmptiedTrash, failed: Sequence[tuple[TrashEntry, PaimonError]], damaged: Sequence[DamagedFile]
) -> PartlyEmptied:
    left = [*(f"{entry.table}: {error.message}" for entry, error in failed), *(error.message for error in damaged)]
    shown = "; ".join(left[:MAX_NAMED]) + ("; ..." if len(left) > MAX_NAMED else "")
    tables, hint = [entry.table for entry, _ in failed], (damaged[0].hint if damaged else "run it again once that is mended")
    of_what = {"tables": tables, "deleted": list(emptied.table_names)}
    error = PartlyEmptied(f"{len(left):,} of the entries of the trash could not be deleted", shown, hint, **of_what)
    error.emptied = emptied
    return error


def _emptied(deleted: Sequence[TrashEntry]) -> EmptiedTrash:
    names = tuple(entry.table for entry in deleted)
    return EmptiedTrash(names, len(names), sum(entry.files for entry in deleted), sum(entry.size for entry in deleted))


@checks_arguments
class DroppedTables(OpenedCatalog):
    """The methods of `Catalog` for dropped tables."""

    @property
    def trash(self) -> TrashCan:
        """The dropped tables of the warehouse."""
        return TrashCan(self._metastore)

    @takes(UndropOptions)
    def undrop(self, options: UndropOptions) -> Undropped:
        """Bring back the `table` of this name, or of this path, that was dropped last, with all it had; or as `new_name`.

        Raises `NotFound` if it is not in the trash, `Refused` if something else is in its place, `NotSupported` outside of
        warehouses and in catalogs whose server deletes files by itself.
        """
        from paimon_cli.catalog.warehouse_trash import needed_trash
        from paimon_cli.storage.catalog_options import database_and_table

        table, new_name = options.table, options.new_name
        old = locate_table(table, self.url, self._options, is_new=True)
        new = old if new_name is None else locate_table(new_name, self.url, self._options, is_new=True)
        root, target = old.open_storage()[1], new.open_storage()[1]
        trash = needed_trash(old, root)
        if needed_trash(new, target).directory != trash.directory:
            why = "that is in another warehouse"
            raise Refused(f"{table} cannot be brought back as {new.name}", why, "name a table in the same one")
        entry = trash.find(".".join(database_and_table(root)), root)
        _bring_back(trash, entry, new, target)
        return Undropped(new.name, entry.table, target, entry.snapshots, entry.files, entry.size)


def _bring_back(trash: Trash, entry: TrashEntry, new: TableLocation, root: str) -> None:
    """Bring the files back, and the entry in the catalog, if it has one."""

    def publish() -> bool:
        trash.give_back(entry, root)
        return True

    if new.entry is None:
        publish()
        return
    metastore, identifier = new.entry
    if metastore.create_table(identifier, trash.schema(entry), publish):
        return
    if metastore.has_schema(new.url):
        why, again = "the catalog has a table of this name by now", f"paimon-cli undrop {shlex.quote(entry.table)} --as NEW"
        raise Refused(f"{new.name} cannot be brought back", why, f"give it another name: {again}")
    publish()  # the drop was interrupted before it removed the entry
