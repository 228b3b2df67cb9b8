"""Finds out what a directory holds: files in partitions, an Iceberg table, or what is not adopted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from paimon_cli.errors import NotFound, NotSupported, UsageError
from paimon_cli.jobs.adoption.directories import PartitionWalk
from paimon_cli.jobs.adoption.source import Source
from paimon_cli.storage.storage_for_url import storage_for_url

_FOREIGN = {
    "_delta_log": ("a Delta table", "its log says which files count"),
    ".hoodie": ("a Hudi table", "its timeline says which files count"),
}
_BUCKET = re.compile(r"bucket-([0-9]+|postpone)")
"""The name of a directory in which Paimon keeps data files."""


def find_source(url: str, storage_options: Mapping[str, Any], threads: int) -> Source:
    """Look for the files at a path or URL. Raises `NotFound` if there are none, `NotSupported` for a Delta or Hudi table, and
    what `iceberg_source` raises; `UsageError` for directories that are no partitions, `BadInput` for odd names.
    """
    storage, root = storage_for_url(url, storage_options, confined=True)
    if _BUCKET.fullmatch(root.rpartition("/")[2]):
        why = "only the snapshots of the table say which files count, and they need them"
        raise UsageError(f"{root} is a bucket of a table of Paimon", why, "paimon-cli tables clone copies it")
    entries = storage.list_directory(root)
    if not entries:
        raise NotFound(f"there are no files in {root}", "it does not exist, or is empty", "name the directory of the files")
    names = {entry.name: entry for entry in entries}
    for name, (what, why) in _FOREIGN.items():
        if name in names:
            hint = "let its own engine write the rows into a table of Paimon, or export them as Parquet files"
            raise NotSupported(f"{root} is {what}", f"{why}, and it is not read here", hint)
    if names.keys() >= {"schema", "snapshot"}:
        raise UsageError(f"{root} is a table of Paimon already", hint="paimon-cli tables clone copies it")
    if "metadata" in names and names["metadata"].is_directory:
        metadata = [entry.name for entry in storage.list_directory(names["metadata"].path)]
        if any(name.endswith(".metadata.json") for name in metadata):
            from paimon_cli.jobs.adoption.iceberg import iceberg_source

            return iceberg_source(storage, root, metadata)
    return PartitionWalk(storage, root, threads).source(entries)
