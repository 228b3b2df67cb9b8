"""The `Storage` protocol: the operations on files that the engine needs.

All promises about commits rest on `put_if_absent` (FORMAT.md, section 1.4); every other operation can be repeated at will.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import BinaryIO, Protocol


class PutOutcome(enum.Enum):
    """Answer of `put_if_absent`. UNKNOWN: the storage gave no clear answer, the object may or may not be ours."""

    CREATED = "created"
    EXISTS = "exists"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class FileStatus:
    """One directory entry: absolute `path`, its last part `name`, size in bytes, modification time in epoch millis."""

    path: str
    name: str
    size: int
    is_directory: bool
    modified_millis: int


class Storage(Protocol):
    """Blocking access to one filesystem by absolute path or URL. Missing files raise `FileNotFoundError`.

    Other failures of the store surface as `StorageUnavailable`.
    """

    def read_bytes(self, path: str) -> bytes:
        """Whole content of a small file (metadata)."""
        ...

    def open_input(self, path: str) -> BinaryIO:
        """Seekable reader of a data file; pyarrow can read from it."""
        ...

    def open_output(self, path: str) -> BinaryIO:
        """Writer of a new, uniquely named file; makes parent directories; durable once `close` returned."""
        ...

    def write_new(self, path: str, data: bytes) -> None:
        """Write a uniquely named file in one go; durable on return."""
        ...

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        """Create `path` with its whole content, only if it does not exist. Never raises for a lost race.

        `StorageUnavailable` and `Refused` mean that nothing was created; where that is not certain, the outcome is `UNKNOWN`.
        """
        ...

    def overwrite(self, path: str, data: bytes) -> None:
        """Replace a hint file atomically for readers; last writer wins."""
        ...

    def exists(self, path: str) -> bool: ...

    def file_size(self, path: str) -> int: ...

    def list_directory(self, path: str) -> list[FileStatus]:
        """Direct entries, in no particular order; empty when the directory is missing."""
        ...

    def delete(self, path: str) -> None:
        """Delete one file; a missing file is no error."""
        ...

    def delete_directory(self, path: str) -> None:
        """Delete a directory and all below it; a missing one is no error."""
        ...
