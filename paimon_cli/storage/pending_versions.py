"""Versions of a table that only one process sees: the snapshots of a transaction before its commit."""

from __future__ import annotations

from collections.abc import Callable
from typing import BinaryIO

from paimon_cli.errors import Refused
from paimon_cli.storage.capabilities import WrappedStorage
from paimon_cli.storage.storage import FileStatus, PutOutcome, Storage


class PendingVersions(WrappedStorage):
    """A storage that keeps small files of some paths in memory, and stores all others.

    `is_pending`: the paths that are kept. What the store has there is not shown, so that snapshots of other jobs do not appear.
    `created`: the paths of the files that were stored. Tasks elsewhere get the store itself: they read and write data files only.
    """

    def __init__(self, inner: Storage, is_pending: Callable[[str], bool]) -> None:
        super().__init__(inner)
        self._is_pending = is_pending
        self._kept: dict[str, bytes] = {}
        self.created: list[str] = []

    def __reduce__(self) -> tuple[Callable[[Storage], Storage], tuple[Storage]]:
        return _itself, (self.inner,)

    def read_bytes(self, path: str) -> bytes:
        if not self._is_pending(path):
            return super().read_bytes(path)
        if path not in self._kept:
            raise FileNotFoundError(path)
        return self._kept[path]

    def open_output(self, path: str) -> BinaryIO:
        self.created.append(path)
        return super().open_output(path)

    def write_new(self, path: str, data: bytes) -> None:
        self.created.append(path)
        super().write_new(path, data)

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        if not self._is_pending(path):
            outcome = super().put_if_absent(path, data)
            if outcome is PutOutcome.CREATED:  # otherwise it is, or may be, another job's
                self.created.append(path)
            return outcome
        if path in self._kept:
            return PutOutcome.EXISTS
        self._kept[path] = data
        return PutOutcome.CREATED

    def publish_snapshot(self, path: str, data: bytes, base_uuid: str | None) -> PutOutcome:
        """Keep the snapshot, also where a catalog publishes them."""
        if not self._is_pending(path):
            raise Refused(f"{path} is not published", "the snapshots of a transaction are in memory until its commit")
        return self.put_if_absent(path, data)

    def overwrite(self, path: str, data: bytes) -> None:
        if self._is_pending(path):
            self._kept[path] = data
        else:
            super().overwrite(path, data)

    def exists(self, path: str) -> bool:
        return path in self._kept if self._is_pending(path) else super().exists(path)

    def file_size(self, path: str) -> int:
        return len(self.read_bytes(path)) if self._is_pending(path) else super().file_size(path)

    def list_directory(self, path: str) -> list[FileStatus]:
        stored = [entry for entry in super().list_directory(path) if not self._is_pending(entry.path)]
        kept = [name for name in self._kept if name.rpartition("/")[0] == path.rstrip("/")]
        return stored + [FileStatus(name, name.rpartition("/")[2], len(self._kept[name]), False, 0) for name in kept]

    def first_entries(self, path: str, limit: int) -> list[FileStatus]:
        return self.list_directory(path)[:limit]

    def delete(self, path: str) -> None:
        if self._is_pending(path):
            self._kept.pop(path, None)
        else:
            super().delete(path)


def _itself(storage: Storage) -> Storage:
    return storage
