"""What all actors share: a disk in memory, and its rolling digest by which equal states are recognised."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Mapping
from typing import BinaryIO

from paimon_cli.storage.storage import FileStatus, PutOutcome

YOUNG = 1 << 60
"""Modification time of what was written since the beginning; what was there then is as old as time."""


class SimDisk:
    """Files by absolute path, with the directories that follow from them."""

    def __init__(self, files: Mapping[str, bytes] | None = None) -> None:
        self.files: dict[str, bytes] = {}
        self._old = frozenset(files or ())
        self.makers: dict[str, int] = {}
        """Which actor made a file; files of the beginning have no maker."""
        self._directories: dict[str, dict[str, bool]] = {}
        for path, data in (files or {}).items():
            self.put(path, data)

    def read(self, path: str) -> bytes:
        data = self.files.get(path)
        if data is None:
            raise FileNotFoundError(path)
        return data

    def put(self, path: str, data: bytes) -> None:
        if path not in self.files:
            self._enter(path, False)
        self.files[path] = data

    def _enter(self, path: str, is_directory: bool) -> None:
        parent, _, name = path.rpartition("/")
        entries = self._directories.get(parent)
        if entries is None:
            entries = self._directories[parent] = {}
            if parent:
                self._enter(parent, True)
        entries[name] = is_directory

    def remove(self, path: str) -> bool:
        """Whether there was such a file."""
        if self.files.pop(path, None) is None:
            return False
        parent, _, name = path.rpartition("/")
        del self._directories[parent][name]
        return True

    def below(self, directory: str) -> list[str]:
        return [path for path in self.files if path.startswith(directory + "/")]

    def listing(self, directory: str) -> list[FileStatus]:
        return list(self._statuses(directory))

    def _statuses(self, directory: str) -> Iterator[FileStatus]:
        for name, is_directory in sorted(self._directories.get(directory, {}).items()):
            path = f"{directory}/{name}"
            modified = 0 if is_directory or path in self._old else YOUNG
            yield FileStatus(path, name, 0 if is_directory else len(self.files[path]), is_directory, modified)

    def image(self) -> str:
        """A digest of every byte: equal for equal disks, also between processes."""
        digest = hashlib.blake2b(digest_size=16)
        for path, data in sorted(self.files.items()):
            digest.update(f"{path}\0{len(data)}\0".encode() + data)
        return digest.hexdigest()


class DiskStorage:
    """The disk as an onlooker sees it: a read-only `Storage` outside of the schedule, whose reads disturb nobody."""

    def __init__(self, disk: SimDisk) -> None:
        self._disk = disk

    def read_bytes(self, path: str) -> bytes:
        return self._disk.read(path)

    def open_input(self, path: str) -> BinaryIO:
        return io.BytesIO(self._disk.read(path))

    def exists(self, path: str) -> bool:
        return path in self._disk.files

    def file_size(self, path: str) -> int:
        return len(self._disk.read(path))

    def list_directory(self, path: str) -> list[FileStatus]:
        return self._disk.listing(path)

    def open_output(self, path: str) -> BinaryIO:
        raise PermissionError(path)

    def write_new(self, path: str, data: bytes) -> None:
        raise PermissionError(path)

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        raise PermissionError(path)

    def overwrite(self, path: str, data: bytes) -> None:
        raise PermissionError(path)

    def delete(self, path: str) -> None:
        raise PermissionError(path)

    def delete_directory(self, path: str) -> None:
        raise PermissionError(path)
