"""A simulated store and its disk: every call may be the last one, and may be lost, late or half done."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO, Protocol

from paimon_cli.errors import StorageUnavailable
from paimon_cli.lab.simulation.scenario import Scenario
from paimon_cli.lab.simulation.schedule import CRASH, LOST_REQUEST, OUTAGE, PUT_FAULTS, REFUSAL
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
        """Remove a file; returns whether it existed."""
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
        """A digest of every byte, the same for equal disks in all processes."""
        digest = hashlib.blake2b(digest_size=16)
        for path, data in sorted(self.files.items()):
            digest.update(f"{path}\0{len(data)}\0".encode() + data)
        return digest.hexdigest()


class DiskStorage:
    """The disk as an observer sees it: a read-only `Storage` outside of the schedule, whose reads are not steps."""

    is_remote = False

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


OUTAGE_CALLS = 9
"""Calls that fail after the put that began an outage: all tries of a publication, so that its clean-up finds the storage."""

_CHANGES = frozenset({"write_new", "put_if_absent", "overwrite", "delete"})


class Crash(BaseException):
    """The actor is dead: whatever it still does has no effect."""


class Caller(Protocol):
    """The actor to which a storage belongs."""

    number: int
    dead: bool
    outage: int
    had_outage: bool
    lost_answer: bool

    def wait(self, operation: str, path: str) -> str:
        """Wait for the scheduler before a call that others can notice; returns the fault that affects it."""
        ...

    def pass_by(self) -> str:
        """Continue before a call that no other actor can notice."""
        ...

    def saw(self, operation: str, path: str, result: Any) -> None: ...

    def changed(self, path: str) -> None: ...


class SimStorage:
    """The `Storage` of one actor, with the reduction that the scenario allows."""

    is_remote = False

    def __init__(self, disk: SimDisk, scenario: Scenario, actor: Caller) -> None:
        layout = scenario.layout
        self._disk = disk
        self._actor = actor
        self._files_vanish = scenario.files_vanish
        self._every_call_waits = scenario.every_call_waits
        self._schemas = layout.schema_directory
        self._shared = tuple(f"{d}/" for d in (layout.snapshot_directory, layout.tag_directory, f"{layout.root}/consumer"))

    def _is_shared(self, operation: str, path: str) -> bool:
        if self._every_call_waits or path.startswith(self._shared):
            return True
        if path.startswith(self._schemas):
            return False
        if operation in ("write_new", "open_output"):
            return False
        if operation == "list_directory":
            return True
        mine = self._disk.makers.get(path) == self._actor.number
        return not mine and (self._files_vanish or operation in ("delete", "put_if_absent", "overwrite"))

    def _call(self, operation: str, path: str, effect: Callable[..., Any], *arguments: Any) -> Any:
        actor = self._actor
        if actor.dead:
            raise Crash
        fault = actor.wait(operation, path) if self._is_shared(operation, path) else actor.pass_by()
        if fault == CRASH:
            actor.dead = True
            raise Crash
        if actor.outage:
            actor.outage -= 1
            actor.saw(operation, path, "outage")
            return _no_answer(operation)
        if fault == REFUSAL:
            actor.had_outage = True
            actor.saw(operation, path, fault)
            raise StorageUnavailable("the put failed", "it was not made")
        if fault in PUT_FAULTS:
            return self._put_without_answer(path, fault, *arguments)
        try:
            result = effect(path, *arguments)
        except FileNotFoundError:
            actor.saw(operation, path, None)
            raise
        actor.saw(operation, path, result)
        if operation in _CHANGES and result not in (False, PutOutcome.EXISTS):
            actor.changed(path)
        return result

    def _put_without_answer(self, path: str, fault: str, data: bytes) -> PutOutcome:
        if fault != LOST_REQUEST and self._put_if_absent(path, data) is PutOutcome.CREATED:
            self._actor.changed(path)
        self._actor.lost_answer = True
        if fault == OUTAGE:
            self._actor.outage = OUTAGE_CALLS
            self._actor.had_outage = True
        self._actor.saw("put_if_absent", path, fault)
        return PutOutcome.UNKNOWN

    # the storage protocol

    def read_bytes(self, path: str) -> bytes:
        return self._call("read_bytes", path, self._disk.read)

    def open_input(self, path: str) -> BinaryIO:
        return io.BytesIO(self._call("open_input", path, self._disk.read))

    def open_output(self, path: str) -> BinaryIO:
        return _NewFile(self, path)

    def write_new(self, path: str, data: bytes) -> None:
        self._call("write_new", path, self._write_new, data)

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        return self._call("put_if_absent", path, self._put_if_absent, data)

    def overwrite(self, path: str, data: bytes) -> None:
        self._call("overwrite", path, self._overwrite, data)

    def exists(self, path: str) -> bool:
        return self._call("exists", path, self._disk.files.__contains__)

    def file_size(self, path: str) -> int:
        return len(self._call("file_size", path, self._disk.read))

    def list_directory(self, path: str) -> list[FileStatus]:
        return self._call("list_directory", path, self._disk.listing)

    def delete(self, path: str) -> None:
        self._call("delete", path, self._disk.remove)

    def delete_directory(self, path: str) -> None:
        for inside in self._disk.below(path):
            self.delete(inside)

    # effects on the disk

    def _write_new(self, path: str, data: bytes) -> None:
        if path in self._disk.files:
            raise AssertionError(f"two files of one name: {path}")
        self._disk.put(path, data)
        self._disk.makers[path] = self._actor.number

    def _put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        if path in self._disk.files:
            return PutOutcome.EXISTS
        self._overwrite(path, data)
        return PutOutcome.CREATED

    def _overwrite(self, path: str, data: bytes) -> None:
        self._disk.put(path, data)
        self._disk.makers[path] = self._actor.number


def _no_answer(operation: str) -> PutOutcome:
    if operation == "put_if_absent":
        return PutOutcome.UNKNOWN
    raise StorageUnavailable(f"{operation} failed", "an outage")


class _NewFile(io.BytesIO):
    """A file that appears on the disk when it is closed; a dying writer leaves nothing (the fault tests cover partial files)."""

    def __init__(self, storage: SimStorage, path: str) -> None:
        super().__init__()
        self._storage = storage
        self._path = path

    def close(self) -> None:
        if not self.closed:
            data = self.getvalue()
            super().close()
            self._storage.write_new(self._path, data)
