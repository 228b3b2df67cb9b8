"""The `Storage` protocol: what the engine requires of a file system or object store.

What only some stores can do is in `capabilities`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from paimon_cli.errors import StorageUnavailable

_TEMPORARY = ".tmp"


def temporary_name(name: str, unique: str) -> str:
    """The name under which a file system without a conditional put holds a file before it is whole: Java's, too."""
    return f".{name}.{unique}{_TEMPORARY}"


class PutOutcome(enum.Enum):
    """Result of `put_if_absent`. UNKNOWN: the storage gave no clear answer, so the object may or may not have been created."""

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

    def is_temporary(self, prefix: str = "") -> bool:
        """Whether it is a `temporary_name` of one that begins with `prefix`: it is being written, or its writer has died."""
        return self.name.startswith(f".{prefix}") and self.name.endswith(_TEMPORARY)


class Storage(Protocol):
    """Blocking access to one file system by absolute path or URL.

    Missing files raise `FileNotFoundError`, all other failures of the store `StorageUnavailable`.
    """

    @property
    def is_remote(self) -> bool:
        """Whether each call is a network round trip, so that concurrent calls take about as long as a single one."""
        ...

    def read_bytes(self, path: str) -> bytes:
        """Read a small file, such as metadata, as a whole. Raises `DamagedFile` for one that is too large (`read_bounds`)."""
        ...

    def open_input(self, path: str) -> BinaryIO:
        """Open a data file as a seekable stream that pyarrow can read."""
        ...

    def open_output(self, path: str) -> BinaryIO:
        """Open a new, uniquely named file for writing, creating parent directories. Durable once `close` has returned, or in
        an `overlapping_writes` block before the next publication.
        """
        ...

    def write_new(self, path: str, data: bytes) -> None:
        """Write a new, uniquely named file. Durable on return, or in an `overlapping_writes` block before the next
        publication.
        """
        ...

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        """Create `path` with `data` atomically, unless it exists; a lost race returns `EXISTS`.

        `StorageUnavailable` and `Refused` mean that nothing was created; if that is uncertain, the outcome is `UNKNOWN`.
        """
        ...

    def overwrite(self, path: str, data: bytes) -> None:
        """Create or replace a small file, such as a hint, atomically for readers; the last writer wins."""
        ...

    def exists(self, path: str) -> bool: ...

    def file_size(self, path: str) -> int: ...

    def list_directory(self, path: str) -> list[FileStatus]:
        """The direct entries, in no particular order; empty if the directory does not exist."""
        ...

    def delete(self, path: str) -> None:
        """Delete a file; a missing file is not an error."""
        ...

    def delete_directory(self, path: str) -> None:
        """Delete a directory and everything below it; a missing directory is not an error."""
        ...


def is_directory(storage: Storage, path: str) -> bool:
    """Whether the path is a directory, or begins the names of other objects."""
    parent, _, name = path.rstrip("/").rpartition("/")
    return any(entry.is_directory and entry.name == name for entry in storage.list_directory(parent or "/"))


class Verified(enum.Enum):
    """What a file holds after an attempt to create it with certain data."""

    OURS = enum.auto()
    """Our data: it was created now, or by an attempt whose answer was lost."""
    THEIRS = enum.auto()
    """Other data: another process has created it."""
    ABSENT = enum.auto()
    """Nothing yet. The storage gave no clear answer, so that the file may still appear."""
    UNCLEAR = enum.auto()
    """It cannot be read, or it is the beginning of our data, which may still be growing."""


def put_and_verify(storage: Storage, path: str, data: bytes) -> Verified:
    """`put_if_absent`, whose answer is not trusted unless it is "created": the file itself shows what happened."""
    return what_became(storage, path, data, storage.put_if_absent(path, data))


def what_became(storage: Storage, path: str, data: bytes, outcome: PutOutcome) -> Verified:
    """What a file holds after a put of `data` that has ended with `outcome`."""
    if outcome is PutOutcome.CREATED:
        return Verified.OURS
    try:
        found = storage.read_bytes(path)
    except FileNotFoundError:
        return Verified.ABSENT
    except StorageUnavailable:
        return Verified.UNCLEAR
    if found == data:
        return Verified.OURS
    return Verified.UNCLEAR if data.startswith(found) else Verified.THEIRS
