"""A simulated store and its disk, in which any call may crash, fail or lose its answer."""

from __future__ import annotations

import hashlib
import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, BinaryIO

from paimon_cli.errors import StorageUnavailable
from paimon_cli.lab.simulation.schedule import LOST_ANSWER, LOST_REQUEST, OUTAGE, REFUSAL
from paimon_cli.lab.simulation.script import StorageCall
from paimon_cli.storage.storage import FileStatus, PutOutcome

YOUNG = 1 << 47
"""The modification time of files written during the simulation; that of initial files is 0."""

READ_CALLS = frozenset({"read_bytes", "open_input", "file_size"})
LISTING_CALLS = frozenset({"list_directory", "list_below", "list_page", "list_page_below"})
CHANGE_CALLS = frozenset({"write_new", "copy_object", "put_if_absent", "overwrite", "delete"})
MISSING, NO_ANSWER, TWO_OF_A_NAME = "missing", "no answer", "two files of one name"
"""Answers instead of a result: the file does not exist; an outage; a second file of the same name, which no job may write. The
letters of faults (`schedule`) are such answers too.
"""


class SimDisk:
    """Files by absolute path, and the directories that they imply."""

    def __init__(self, files: Mapping[str, bytes] | None = None) -> None:
        self.files: dict[str, bytes] = {}
        self._old = frozenset(files or ())
        self.makers: dict[str, int] = {}
        """Path -> the actor that wrote the file; initial files have none."""
        self.copied: set[str] = set()
        """The files that the store has copied by itself."""
        self._directories: dict[str, dict[str, bool]] = {}
        for path, data in (files or {}).items():
            self.put(path, data)

    def fork(self) -> SimDisk:
        """An independent copy of the disk."""
        fork = SimDisk.__new__(SimDisk)
        fork.files, fork.makers, fork._old = self.files.copy(), self.makers.copy(), self._old
        fork.copied = self.copied.copy()
        fork._directories = {path: entries.copy() for path, entries in self._directories.items()}
        return fork

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
        """Remove a file; returns whether it existed."""
        if self.files.pop(path, None) is None:
            return False
        parent, _, name = path.rpartition("/")
        del self._directories[parent][name]
        return True

    def look(self, call: StorageCall) -> Any:
        """The answer to a call that changes nothing."""
        operation, path, arguments = call
        if operation in READ_CALLS:
            return self.files.get(path, MISSING)
        if operation == "head":
            return len(self.files[path]) if path in self.files else MISSING
        if operation == "list_page":
            return _page([self._entry(path, *entry) for entry in sorted(self._directories.get(path, {}).items())], *arguments)
        if operation == "list_page_below":
            below = sorted(inside[len(path) + 1 :] for inside in self.files if inside.startswith(path + "/"))
            return _page([self._entry(path, name, False) for name in below], *arguments)
        if operation == "exists":
            return path in self.files
        if operation == "list_directory":
            return tuple(self._entry(path, *entry) for entry in sorted(self._directories.get(path, {}).items()))
        return tuple(inside for inside in self.files if inside.startswith(path + "/"))

    def _entry(self, directory: str, name: str, is_directory: bool) -> Entry:
        path = f"{directory}/{name}"
        if is_directory:
            return name, 0, True, 0
        return name, len(self.files[path]), False, 0 if path in self._old else YOUNG

    def image(self) -> str:
        """A digest of all bytes, equal for equal disks in all processes."""
        digest = hashlib.blake2b(digest_size=16)
        for path, data in sorted(self.files.items()):
            digest.update(f"{path}\0{len(data)}\0".encode() + data)
        return digest.hexdigest()


Entry = tuple[str, int, bool, int]
"""Name, size, whether it is a directory, and modification time."""


def _page(entries: Sequence[Entry], after: str, limit: int) -> tuple[tuple[Entry, ...], bool]:
    """The entries after a name, and whether there are no more."""
    left = [entry for entry in entries if entry[0] > after]
    return tuple(left[:limit]), len(left) <= limit


Ask = Callable[[StorageCall], Any]


class CallStorage(ABC):
    """A `Storage` whose operations are calls by name, with the same results; that of `open_input` is the content."""

    @abstractmethod
    def _call(self, operation: str, path: str, *arguments: Any) -> Any: ...

    def read_bytes(self, path: str) -> bytes:
        return self._call("read_bytes", path)

    def open_input(self, path: str) -> BinaryIO:
        return io.BytesIO(self._call("open_input", path))

    def open_output(self, path: str) -> BinaryIO:
        return NewFile(self.write_new, path)

    def write_new(self, path: str, data: bytes) -> None:
        self._call("write_new", path, data)

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        return self._call("put_if_absent", path, data)

    def overwrite(self, path: str, data: bytes) -> None:
        self._call("overwrite", path, data)

    def exists(self, path: str) -> bool:
        return self._call("exists", path)

    def file_size(self, path: str) -> int:
        return self._call("file_size", path)

    def list_directory(self, path: str) -> list[FileStatus]:
        return self._call("list_directory", path)

    def delete(self, path: str) -> None:
        self._call("delete", path)

    def delete_directory(self, path: str) -> None:
        self._call("delete_directory", path)


class SimStorage(CallStorage):
    """A `Storage` that gets every answer from a callback, and passes it on as a real store would."""

    is_remote = False

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def _call(self, operation: str, path: str, *arguments: Any) -> Any:
        answer = self._ask(StorageCall(operation, path, arguments))
        if answer == MISSING:
            raise FileNotFoundError(path)
        if answer == TWO_OF_A_NAME:
            raise AssertionError(f"two files of one name: {path}")
        if answer == REFUSAL:
            raise StorageUnavailable("the put failed", "nothing was written")
        if answer == NO_ANSWER and operation != "put_if_absent":
            raise StorageUnavailable(f"{operation} failed", "an outage")
        return PutOutcome.UNKNOWN if answer in (LOST_ANSWER, LOST_REQUEST, OUTAGE, NO_ANSWER) else answer

    def file_size(self, path: str) -> int:
        return len(self._call("file_size", path))

    def list_directory(self, path: str) -> list[FileStatus]:
        return [FileStatus(f"{path}/{name}", name, *of_entry) for name, *of_entry in self._call("list_directory", path)]

    def delete_directory(self, path: str) -> None:
        for inside in self._call("list_below", path):
            self.delete(inside)


class NewFile(io.BytesIO):
    """A file that appears on the disk when it is closed; a crashing writer leaves nothing (fault tests cover partial files)."""

    def __init__(self, write_new: Callable[[str, bytes], None], path: str) -> None:
        super().__init__()
        self._write_new = write_new
        self._path = path

    def close(self) -> None:
        if not self.closed:
            data = self.getvalue()
            super().close()
            self._write_new(self._path, data)


class ReadOnly(SimStorage):
    """The store for an observer, which is not part of the schedule."""

    def _call(self, operation: str, path: str, *arguments: Any) -> Any:
        if operation in CHANGE_CALLS:
            raise PermissionError(path)
        return super()._call(operation, path, *arguments)
