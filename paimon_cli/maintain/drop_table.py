"""Dropping a table: its directory goes, in an order that can be repeated after a crash."""

from __future__ import annotations

from paimon_cli.metadata.table_layout import TableLayout
from paimon_cli.storage.storage import Storage


def drop_table(storage: Storage, layout: TableLayout) -> None:
    """Versions first: what a crash leaves is an empty table, not one with dangling names. Its schema goes last."""
    for status in storage.list_directory(layout.branches_directory):
        storage.delete_directory(f"{status.path}/schema")
    for directory in (layout.branches_directory, layout.tag_directory, layout.changelog_directory, layout.snapshot_directory):
        storage.delete_directory(directory)
    for status in storage.list_directory(layout.root):
        if status.path != layout.schema_directory:
            (storage.delete_directory if status.is_directory else storage.delete)(status.path)
    storage.delete_directory(layout.root)
