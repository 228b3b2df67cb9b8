"""Finds the ledger of a warehouse."""

from __future__ import annotations

from paimon_cli.catalog.metastore.metastore import Metastore
from paimon_cli.errors import NotSupported
from paimon_cli.maintain.ledger import Ledger
from paimon_cli.storage.catalog_options import store_options
from paimon_cli.storage.injected import Clock, SystemClock
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
