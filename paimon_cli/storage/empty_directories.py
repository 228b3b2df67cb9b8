"""Removing directories that are empty, where a store has directories at all."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from paimon_cli.storage.storage import Storage


@runtime_checkable
class HasDirectories(Protocol):
    """A store whose directories stay when they are empty."""

    def remove_empty_directory(self, path: str) -> bool:
        """True if it is gone; False, and nothing done, if anything is in it."""
        ...


def remove_empty_directory(storage: Storage, path: str) -> bool:
    """False where it is not empty, or where directories are only parts of names."""
    return isinstance(storage, HasDirectories) and storage.remove_empty_directory(path)
