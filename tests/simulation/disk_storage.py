"""The simulated disk as an onlooker sees it: reads that disturb nobody."""

from __future__ import annotations

import io
from typing import BinaryIO

from paimon_cli.storage.storage import FileStatus, PutOutcome
from tests.simulation.sim_disk import SimDisk


class DiskStorage:
    """A read-only `Storage` outside of the schedule."""

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
