"""Finds the ledger of a warehouse."""

from __future__ import annotations

from paimon_cli.catalog.metastore.metastore import Metastore
from paimon_cli.catalog.warehouse_policy import name_of_place, warehouse_of_place
from paimon_cli.errors import NotSupported
from paimon_cli.history.table_context import TableContext
from paimon_cli.maintain.ledger import Ledger
from paimon_cli.metadata.table_layout import MAIN_BRANCH
from paimon_cli.storage.catalog_options import store_options
from paimon_cli.storage.injected import Clock, SystemClock
from paimon_cli.storage.redaction import shown_name
from paimon_cli.storage.storage_for_url import storage_for_url


def ledger_of_warehouse(metastore: Metastore, clock: Clock | None = None) -> Ledger:
    """The ledger of a warehouse. Raises `NotSupported` without one, or if a server keeps its files."""
    if metastore.warehouse is None:
        raise NotSupported(
            "there is no warehouse whose ledger could be shown",
            "neither --warehouse nor PAIMON_WAREHOUSE nor ./paimon.yaml names one",
            "pass --warehouse URI",
        )
    if not metastore.takes_files:
        raise metastore.unsupported("a ledger", "its warehouse belongs to a server")
    warehouse = metastore.open_directory(metastore.warehouse)[1]
    storage, root = storage_for_url(warehouse, store_options(metastore.storage_options))
    return Ledger(storage, root, clock or SystemClock())


def ledger_of_table(context: TableContext) -> tuple[Ledger, str] | None:
    """The ledger of the warehouse in which a table is, and the table's name there; None for a table in no warehouse, or whose
    files a server keeps, and for a branch, which no service compacts under that name.
    """
    warehouse = warehouse_of_place(context.place)
    if warehouse is None or context.branch != MAIN_BRANCH:
        return None
    storage, root = storage_for_url(warehouse, context.place.store_options)
    return Ledger(storage, root, context.clock), shown_name(".".join(name_of_place(context.place)))
