"""Recognises the directories of tables by their metadata: those of Paimon, Delta Lake, Hudi and Iceberg."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from paimon_cli.metadata.table_layout import SCHEMA_PREFIX, TableLayout, parse_numbered
from paimon_cli.storage.capabilities import first_entries
from paimon_cli.storage.directories import MAX_EXAMINED
from paimon_cli.storage.storage import FileStatus, Storage

PAIMON, DELTA_LAKE, HUDI, ICEBERG = "Paimon", "Delta Lake", "Hudi", "Iceberg"


class TableDirectory(NamedTuple):
    """The root directory of a table. `marker`: the entry that shows its format."""

    directory: str
    format: str
    marker: str

    def __str__(self) -> str:
        return f"{'an' if self.format == ICEBERG else 'a'} {self.format} table ({self.marker})"


def is_table(storage: Storage, directory: str) -> bool:
    """Whether the directory contains a Paimon schema."""
    entries = first_entries(storage, TableLayout(directory).schema_directory, MAX_EXAMINED)
    return any(parse_numbered(SCHEMA_PREFIX, entry.name) is not None for entry in entries)


def recognised_table(storage: Storage, directory: str, entries: Sequence[FileStatus] | None = None) -> TableDirectory | None:
    """The table whose root this directory is; None if there is none. `entries`: of the directory, if they are known."""
    names = None if entries is None else {entry.name for entry in entries if entry.is_directory}
    for format, (name, marker, is_there) in _MARKERS.items():
        if (names is None or name in names) and is_there(storage, directory):
            return TableDirectory(directory, format, marker)
    return None


def _has_entries(name: str) -> Callable[[Storage, str], bool]:
    return lambda storage, directory: bool(first_entries(storage, f"{directory}/{name}", 1))


def _has_iceberg_metadata(storage: Storage, directory: str) -> bool:
    entries = storage.list_directory(f"{directory}/metadata")
    return any(
        entry.name.endswith((".metadata.json", ".metadata.json.gz")) or entry.name == "version-hint.text" for entry in entries
    )


_MARKERS: dict[str, tuple[str, str, Callable[[Storage, str], bool]]] = {
    PAIMON: ("schema", "schema/schema-*", is_table),
    DELTA_LAKE: ("_delta_log", "_delta_log", _has_entries("_delta_log")),
    HUDI: (".hoodie", ".hoodie", _has_entries(".hoodie")),
    ICEBERG: ("metadata", "metadata/*.metadata.json", _has_iceberg_metadata),
}
"""For each format: the directory that tells it, how messages name it, and the function that looks for it."""
