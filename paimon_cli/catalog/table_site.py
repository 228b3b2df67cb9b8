"""Checks of a directory that is not a table, or is to become one: other formats, databases, files, an enclosing table."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from paimon_cli.errors import DamagedFile, StorageUnavailable, UsageError
from paimon_cli.metadata.table_layout import SCHEMA_PREFIX, TableLayout, parse_numbered
from paimon_cli.metastore.metastore import DATABASE_SUFFIX
from paimon_cli.storage.guarded_storage import PROBE_PREFIX
from paimon_cli.storage.storage import FileStatus, Storage, ancestors, first_entries

LOOK = 100
"""Directory entries examined; one is enough to refuse the directory."""
NAMED = 5
"""Directory entries that a message names."""


def check_site(storage: Storage, root: str) -> list[str]:
    """Check `root` before a table is created there: `UsageError` if anything is there, or if `root` lies inside a table.

    The warnings are about directories above that could not be examined.
    """
    found = _foreign(storage, root)
    if found:
        raise UsageError(
            f"{root} is not empty", _content(storage, root, found), "a table needs a directory of its own: choose another path"
        )
    if _is_file(storage, root):
        raise UsageError(f"{root} is a file", "a table is a directory", "choose another path")
    return _check_surroundings(storage, root)


def check_output_place(storage: Storage, path: str) -> None:
    """Check `path` before rows are written to it: `UsageError` inside a table, whose files they could replace."""
    for directory in ancestors(path):
        with contextlib.suppress(StorageUnavailable):
            if is_table(storage, directory):
                raise UsageError(
                    f"{path} lies inside the table {directory}",
                    "only commits write there; other files would be orphans, or replace files of the table",
                    "choose a path outside of it",
                )


def what_lies_at(storage: Storage, root: str) -> str | None:
    """What lies at a path instead of a table, such as `it is a Delta Lake table (_delta_log)`; None for anything unknown."""
    if _is_file(storage, root):
        return "it is a file"
    return _known_as(storage, root, first_entries(storage, root, LOOK))


def is_table(storage: Storage, directory: str) -> bool:
    """Whether the directory holds a Paimon schema."""
    entries = first_entries(storage, TableLayout(directory).schema_directory, LOOK)
    return any(parse_numbered(SCHEMA_PREFIX, entry.name) is not None for entry in entries)


def _foreign(storage: Storage, root: str) -> list[FileStatus]:
    """Entries other than what an earlier attempt to create the table may have left: probes, and a `schema/` without a schema."""
    entries = [entry for entry in first_entries(storage, root, LOOK) if not entry.name.startswith(PROBE_PREFIX)]
    schema_directory = TableLayout(root).schema_directory
    if [entry.path for entry in entries] != [schema_directory]:
        return entries
    begun = first_entries(storage, schema_directory, LOOK)
    is_begun = all(entry.name.startswith(f".{SCHEMA_PREFIX}") and entry.name.endswith(".tmp") for entry in begun)
    return [] if is_begun else entries


def _content(storage: Storage, root: str, entries: Sequence[FileStatus]) -> str:
    known = _known_as(storage, root, entries)
    names = sorted(f"{entry.name}/" if entry.is_directory else entry.name for entry in entries)
    more = f" and {'at least ' if len(entries) == LOOK else ''}{len(names) - NAMED} more" if len(names) > NAMED else ""
    listed = f"it holds {', '.join(names[:NAMED])}{more}"
    return f"{known}; {listed}" if known else listed


def _known_as(storage: Storage, root: str, entries: Sequence[FileStatus]) -> str | None:
    directories = {entry.name for entry in entries if entry.is_directory}
    if "_delta_log" in directories:
        return "it is a Delta Lake table (_delta_log)"
    if ".hoodie" in directories:
        return "it is a Hudi table (.hoodie)"
    if "metadata" in directories and _has_iceberg_metadata(storage, f"{root}/metadata"):
        return "it is an Iceberg table (metadata/*.metadata.json)"
    databases = sorted(name.removesuffix(DATABASE_SUFFIX) for name in directories if name.endswith(DATABASE_SUFFIX))
    if databases:
        return f"it is a warehouse with {_some('database', databases)}"
    tables = [name for name in sorted(directories)[: 2 * NAMED] if is_table(storage, f"{root}/{name}")]
    return f"it is a database directory with {_some('table', tables)}" if tables else None


def _some(noun: str, names: Sequence[str]) -> str:
    shown = ", ".join(names[:NAMED])
    return f"the {noun} {shown}" if len(names) == 1 else f"the {noun}s {shown}{', ...' if len(names) > NAMED else ''}"


def _has_iceberg_metadata(storage: Storage, directory: str) -> bool:
    entries = first_entries(storage, directory, LOOK)
    return any(entry.name.endswith(".metadata.json") or entry.name == "version-hint.text" for entry in entries)


def _is_file(storage: Storage, path: str) -> bool:
    try:
        with storage.open_input(path):
            return True
    except (FileNotFoundError, DamagedFile, StorageUnavailable):  # nothing, or a directory that the store reports as an error
        return False


def _check_surroundings(storage: Storage, root: str) -> list[str]:
    warnings = []
    for directory in ancestors(root):
        try:
            inside = is_table(storage, directory)
        except StorageUnavailable as error:
            warnings.append(f"cannot tell whether {directory} is a table around this one: {error.why or error.what}")
            continue
        if inside:
            raise UsageError(
                f"{root} lies inside the table {directory}",
                "dropping or cleaning up that table would delete this one too",
                "choose a path outside of it",
            )
    return warnings
