"""Directories beyond `Storage`: a first look into a big one, those above, removing an empty one, making deletions in it last."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Protocol, runtime_checkable

from paimon_cli.errors import StorageUnavailable
from paimon_cli.storage.storage import FileStatus, Storage


@runtime_checkable
class ListsInPages(Protocol):
    """A store that answers a listing page by page, so that the first entries cost one request."""

    def first_entries(self, path: str, limit: int) -> list[FileStatus]:
        """Some of the direct entries, not more than `limit`."""
        ...


@runtime_checkable
class HasDirectories(Protocol):
    """A store whose directories stay when they are empty."""

    def remove_empty_directory(self, path: str) -> bool:
        """True if it is gone; False, and nothing done, if anything is in it."""
        ...


@runtime_checkable
class SyncsDirectories(Protocol):
    """A store that may lose the deletion of a name in a power cut until its directory is synced."""

    def sync_directory(self, path: str) -> None:
        """Names deleted before stay deleted; a missing directory is no error."""
        ...


def first_entries(storage: Storage, path: str, limit: int) -> list[FileStatus]:
    """Some of the direct entries: all of them if there are fewer than `limit`."""
    if isinstance(storage, ListsInPages):
        return storage.first_entries(path, limit)
    return storage.list_directory(path)[:limit]


def ancestors(path: str) -> Iterator[str]:
    """The directories above a path or URL, the nearest first; of a local path also those where links lead to."""
    scheme, mark, rest = path.rpartition("://")
    for place in [rest] if mark else dict.fromkeys((path, os.path.realpath(path))):
        above = place.rpartition("/")[0]
        while above:
            yield f"{scheme}{mark}{above}"
            above = above.rpartition("/")[0]


def remove_empty_directory(storage: Storage, path: str) -> bool:
    """False where it is not empty, or where directories are only parts of names."""
    return isinstance(storage, HasDirectories) and storage.remove_empty_directory(path)


def keep_deleted(storage: Storage, directory: str) -> None:
    """Before files go that a deleted snapshot or tag in `directory` names: it must not come back without them."""
    if isinstance(storage, SyncsDirectories):
        storage.sync_directory(directory)


def delete_all(storage: Storage, paths: Iterable[str]) -> None:
    """Delete each file. A failure does not stop the others, and is raised at the end."""
    refused: StorageUnavailable | None = None
    for path in paths:
        try:
            storage.delete(path)
        except StorageUnavailable as error:
            refused = refused or error
    if refused is not None:
        raise refused
