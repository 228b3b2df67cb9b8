"""Directories of a storage: what is in them, why one is missing, and empty ones, which are removed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from itertools import islice

from paimon_cli.errors import StorageUnavailable
from paimon_cli.storage.capabilities import HasDirectories, first_entries
from paimon_cli.storage.storage import Storage

MAX_SIMILAR = 10_000
"""The most entries of a directory among which a mistyped name is looked for."""


MAX_EXAMINED = 100
"""The most entries of a directory that are examined to see what it is."""


def first_named(storage: Storage, prefixes: Mapping[str, str]) -> str | None:
    """The path of an entry whose name begins with the prefix of its directory; None if no directory has one."""
    for directory, prefix in prefixes.items():
        for entry in first_entries(storage, directory, MAX_EXAMINED):
            if entry.name.startswith(prefix):
                return entry.path
    return None


NO_DIRECTORY, LEADS_NOWHERE = "there is no such directory", "it is a link whose target does not exist"


def why_missing(storage: Storage, path: str) -> str | None:
    """Why there is no directory at a path, in words; None if there is one, or if the store does not answer."""
    if not storage.is_remote and os.path.islink(path) and not os.path.exists(path):
        return LEADS_NOWHERE
    with contextlib.suppress(StorageUnavailable):
        return None if storage.exists(path) or first_entries(storage, path, 1) else NO_DIRECTORY
    return None


def ancestors(path: str) -> Iterator[str]:
    """The parent directories of a path or URL, nearest first; of a local path also those of its target if it is a link."""
    scheme, separator, rest = path.rpartition("://")
    for start in [rest] if separator else dict.fromkeys((path, os.path.realpath(path))):
        parent = start.rpartition("/")[0]
        while parent:
            yield f"{scheme}{separator}{parent}"
            parent = parent.rpartition("/")[0]


def remove_empty_directories(storage: Storage, path: str) -> None:
    """Remove a directory and those below it, as far as they contain no files; object stores have none."""
    if storage.is_remote or not isinstance(storage, HasDirectories):
        return
    for entry in storage.list_directory(path):
        if entry.is_directory:
            remove_empty_directories(storage, entry.path)
    storage.remove_empty_directory(path)


def only_directory_with(suffix: str) -> str | None:
    """The local directory that holds directories with names of this ending: `.`, or else the only one in it; None for several."""

    def holds(path: str) -> bool:
        try:
            with os.scandir(path) as entries:
                return any(each.name.endswith(suffix) and each.is_dir() for each in islice(entries, MAX_SIMILAR))
        except OSError:
            return False

    if holds("."):
        return "."
    try:
        with os.scandir(".") as entries:
            names = [each.name for each in islice(entries, MAX_EXAMINED) if each.is_dir()]
    except OSError:
        return None
    found = list(filter(holds, names))
    return found[0] if len(found) == 1 else None
