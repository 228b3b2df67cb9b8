"""Finds out what a directory holds: files in partitions, an Iceberg table, or what is not adopted."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from paimon_cli.errors import NotFound, PaimonError, UsageError
from paimon_cli.jobs.adoption.directories import PartitionWalk, expect_no_log
from paimon_cli.jobs.adoption.source import METADATA_SUFFIXES, Source
from paimon_cli.storage.storage import is_directory
from paimon_cli.storage.storage_for_url import storage_for_url

_BUCKET = re.compile(r"bucket-([0-9]+|postpone)")
"""The name of a directory in which Paimon keeps data files."""


def find_source(url: str, storage_options: Mapping[str, Any], threads: int) -> Source:
    """Look for the files at a path or URL. Raises `NotFound` if there are none, `NotSupported` for a Delta or Hudi table, and
    what `iceberg_source` raises; `UsageError` for directories that are no partitions, `BadInput` for odd names.
    """
    directory, chosen = _chosen_metadata(url)
    storage, root = storage_for_url(directory, storage_options, confined=True)
    if _BUCKET.fullmatch(root.rpartition("/")[2]):
        why = "only the snapshots of the table say which files count, and they need them"
        raise UsageError(f"{root} is a bucket of a table of Paimon", why, "paimon-cli tables clone copies it")
    entries = storage.list_directory(root)
    if not entries:
        if storage.exists(root) and not is_directory(storage, root):
            raise UsageError(f"{root} is a file", "a directory of files becomes a table", "name the directory that holds it")
        raise NotFound(f"there are no files in {root}", "it does not exist, or is empty", "name the directory of the files")
    names = {entry.name: entry for entry in entries}
    expect_no_log(root, names.keys() - {"metadata"})
    if names.keys() >= {"schema", "snapshot"}:
        raise UsageError(f"{root} is a table of Paimon already", hint="paimon-cli tables clone copies it")
    if "metadata" in names and names["metadata"].is_directory:
        metadata = [entry.name for entry in storage.list_directory(names["metadata"].path)]
        if _is_iceberg(metadata):
            from paimon_cli.jobs.adoption.iceberg import iceberg_source

            return iceberg_source(storage, root, metadata, chosen)
    if chosen:
        raise NotFound(
            f"{url} is not the metadata of an Iceberg table", "there is no such file", "name the directory of the table"
        )
    _expect_whole(url if "://" in url else root, storage_options)
    return PartitionWalk(storage, root, threads).source(entries)


def _chosen_metadata(url: str) -> tuple[str, str]:
    """The directory of an Iceberg table and the name of its metadata file, if the URL is that of such a file; else URL and ''."""
    above, _, name = url.rpartition("/")
    if name.endswith(METADATA_SUFFIXES) and above.endswith("/metadata"):
        return above.removesuffix("/metadata"), name
    return url, ""


def _expect_whole(url: str, storage_options: Mapping[str, Any]) -> None:
    """Raise `NotSupported` for directories of partitions or data files within a table whose log says which files count."""
    above, name = _split(url)
    while above:
        expect_no_log(above, _logs_in(above, storage_options))
        if "=" not in name and name != "data":
            return
        above, name = _split(above)


def _logs_in(url: str, storage_options: Mapping[str, Any]) -> set[str]:
    """The names in a directory; `metadata` only if it has metadata of Iceberg.

    None of a directory that cannot be listed: it may belong to others, which is no reason to refuse what lies below.
    """
    try:
        storage, root = storage_for_url(url, storage_options, confined=True)
        names = {entry.name for entry in storage.list_directory(root)}
        if "metadata" in names and not _is_iceberg(entry.name for entry in storage.list_directory(f"{root}/metadata")):
            names.remove("metadata")
    except PaimonError:
        return set()
    return names


def _is_iceberg(metadata: Iterable[str]) -> bool:
    return any(name.endswith(METADATA_SUFFIXES) for name in metadata)


def _split(url: str) -> tuple[str, str]:
    """The directory above, and the name in it; '' for what has none."""
    above, _, name = url.rstrip("/").rpartition("/")
    return ("" if above.endswith(("/", ":")) else above), name
