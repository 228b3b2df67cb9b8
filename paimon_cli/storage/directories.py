"""What only stores with real directories can do: remove an empty one, make the deletion of names in it last."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from paimon_cli.storage.storage import Storage


@runtime_checkable
class HasDirectories(Protocol):
    """A store whose directories stay when they are empty."""

    def remove_empty_directory(self, path: str) -> bool:
        """True if it is gone; False, and nothing done, if anything is in it."""
        ...


@runtime_checkable
class SyncsDirectories(Protocol):
    """A store that may lose the deletion of a name in a power cut until it is told to keep it."""

    def sync_directory(self, path: str) -> None:
        """Names deleted before stay deleted; a missing directory is no error."""
        ...


def remove_empty_directory(storage: Storage, path: str) -> bool:
    """False where it is not empty, or where directories are only parts of names."""
    return isinstance(storage, HasDirectories) and storage.remove_empty_directory(path)


def keep_deleted(storage: Storage, directory: str) -> None:
    """Before files go that a deleted snapshot or tag in `directory` names: it must not come back without them."""
    if isinstance(storage, SyncsDirectories):
        storage.sync_directory(directory)
