"""Finds the trash of the warehouse in which a table lies, or lay."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from paimon_cli.catalog.metastore.metastore import DATABASE_SUFFIX, Metastore
from paimon_cli.catalog.table_location import TableLocation
from paimon_cli.catalog.table_site import check_site
from paimon_cli.errors import NotSupported, Refused, UsageError
from paimon_cli.history.snapshot_history import SnapshotHistory
from paimon_cli.history.table_place import TablePlace
from paimon_cli.maintain.trash import Trash
from paimon_cli.metadata.table_layout import TableLayout
from paimon_cli.storage.catalog_options import store_options
from paimon_cli.storage.injected import Clock, RandomSource, SystemClock, SystemRandom
from paimon_cli.storage.storage import Storage
from paimon_cli.storage.storage_for_url import storage_for_url


def trash_of_table(place: TablePlace, root: str, clock: Clock | None = None, random: RandomSource | None = None) -> Trash | None:
    """The trash of the warehouse of a table at `root`; None for a table outside of one: not at WAREHOUSE/DATABASE.db/TABLE."""
    database = root.rpartition("/")[0]
    warehouse, _, name = database.rpartition("/")
    if not name.endswith(DATABASE_SUFFIX) or name == DATABASE_SUFFIX or not warehouse.strip(":/"):
        return None
    return _trash(warehouse, place.storage_options, clock, random)


def check_new_site(location: TablePlace, storage: Storage, root: str) -> list[str]:
    """Check `root` before a table is created there; see `check_site`. Raises `Refused` over the data of a dropped table."""
    try:
        return check_site(storage, root)
    except UsageError:
        trash = trash_of_table(location, root) if SnapshotHistory(storage, TableLayout(root)).is_ended() else None
        if trash is None or trash.at(root) is None:
            raise
        place = shlex.quote(root)
        raise Refused(
            f"{root} holds the data of a dropped table",
            "it is in the trash, and on this store its data stays in place",
            f"bring it back: paimon-cli undrop {place}; or delete it for good: paimon-cli drop {place} --purge",
        ) from None


def trash_of_warehouse(metastore: Metastore) -> Trash:
    """The trash of a warehouse. Raises `NotSupported` without one, or if its server keeps what is dropped."""
    if metastore.warehouse is None:
        raise NotSupported(
            "there is no warehouse whose trash could be shown",
            "neither --warehouse nor PAIMON_WAREHOUSE nor ./paimon.yaml names one",
            "pass --warehouse URI",
        )
    if not metastore.takes_files:
        raise metastore.unsupported("a trash", "its server deletes the files of dropped tables by itself")
    return _trash(metastore.open_directory(metastore.warehouse)[1], metastore.storage_options, None, None)


def needed_trash(location: TableLocation, root: str) -> Trash:
    """The trash in which the table of this place is looked for. Raises `NotSupported` for a place outside of warehouses."""
    if location.entry is not None and not location.entry[0].takes_files:
        raise location.entry[0].unsupported("a trash", "its server deletes the files of dropped tables by itself")
    trash = trash_of_table(location, root)
    if trash is None:
        why = "the trash lies in a warehouse, whose tables are at WAREHOUSE/DATABASE.db/TABLE"
        raise NotSupported(f"{location.name} is not in a warehouse", why, "tables elsewhere are dropped for good")
    return trash


def _trash(warehouse: str, options: Mapping[str, str], clock: Clock | None, random: RandomSource | None) -> Trash:
    own = store_options(options)

    def open_table(url: str) -> Storage:
        return storage_for_url(url, options, confined=True)[0]

    storage, root = storage_for_url(warehouse, own)
    return Trash(storage, root, open_table, clock or SystemClock(), random or SystemRandom())
