"""A storage that numbers the calls of one actor and lets some of them go wrong."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

from paimon_cli.errors import StorageUnavailable
from paimon_cli.storage.storage import FileStatus, PutOutcome, Storage
from tests.faults.fault_kinds import Fault, Kind, cut

NoteCall = Callable[[int, str, str], "Fault | None"]
"""Called with number, name and path of every call; the fault for it, if any."""


class Crash(BaseException):
    """The actor has died."""


def planned(faults: Sequence[Fault]) -> NoteCall:
    """Faults at given calls."""
    by_call = {fault.call: fault for fault in faults}
    return lambda call, name, path: by_call.get(call)


@dataclass
class _Undo:
    """How a change that is not durable yet is taken back: the content that was there before, None for no file."""

    path: str
    before: bytes | None


class FaultStorage:
    """`inner` seen by one actor.

    What a power cut leaves: files whose writer was closed and files put or written in one go are durable, with all that
    happened in their directory before; other deletes and new files may be taken back, each on its own.
    """

    is_remote = False

    def __init__(self, inner: Storage, fault_of: NoteCall, rival: Callable[[], object] | None = None) -> None:
        """`rival` happens once, just before the first put."""
        self.rival = rival
        self._inner = inner
        self._fault_of = fault_of
        self._undos: list[_Undo] = []
        self.calls: list[str] = []
        self.hit: list[Fault] = []
        self.hit_paths: list[str] = []
        self.deleted: list[str] = []
        """Paths of files that this actor's deletes took away; `deleted_before_put` of them before its last put."""
        self.deleted_before_put = 0
        self.open_outputs: set[str] = set()
        self.rival_at: int | None = None
        """The call before which the rival came."""
        self.dead = False
        self.in_outage = False

    # one call

    def call(self, name: str, path: str, effect: Callable[[], Any], torn: Callable[[str], None] | None = None) -> Any:
        if self.dead:
            raise Crash
        fault = self._next_fault(name, path)
        kind = fault.kind if fault else None
        if kind is Kind.CRASH_BEFORE:
            self._die()
        if kind is Kind.OUTAGE:
            self.in_outage = True
        if kind is Kind.FAIL_BEFORE or self.in_outage:
            if name == "put_if_absent" and self.in_outage:
                return PutOutcome.UNKNOWN
            raise StorageUnavailable(f"{name} of {path} failed", "on purpose", path=path)
        if kind is Kind.TORN_WRITE and fault and torn:
            torn(fault.detail)
            self._end_of_torn_write(fault, path)
        if kind is Kind.IGNORED_DELETE or (fault and fault.detail == "nothing"):
            return PutOutcome.UNKNOWN
        result = effect()
        return result if fault is None else self._afterwards(fault, name, path, result)

    def _next_fault(self, name: str, path: str) -> Fault | None:
        fault = None if self.in_outage else self._fault_of(len(self.calls), name, path)
        self.calls.append(name)
        if fault is not None:
            self.hit.append(fault)
            self.hit_paths.append(path)
        return fault

    def _afterwards(self, fault: Fault, name: str, path: str, result: Any) -> Any:
        if fault.kind is Kind.CRASH_AFTER:
            self._die()
        if fault.kind is Kind.POWER_CUT:
            self.cut_power(fault)
            self._die()
        if fault.kind is Kind.FAIL_AFTER:
            raise StorageUnavailable(f"{name} of {path} failed", "the answer was lost", path=path)
        if fault.kind is Kind.LOST_ANSWER:
            return PutOutcome(fault.detail)
        if fault.kind is Kind.STALE_LIST:
            return [] if fault.detail == "all" else sorted(result, key=_by_age)[:-1]
        if fault.kind is Kind.SHORT_READ:
            return cut(result, fault.detail)
        return result

    def _end_of_torn_write(self, fault: Fault, path: str) -> None:
        if fault.detail.endswith("error"):
            raise StorageUnavailable(f"{path} was not written", "no space left", path=path)
        self._die()

    def _die(self) -> None:
        self.dead = True
        raise Crash

    # power

    def end(self, number: int) -> None:
        """The operation is over; a fault for this number, which no call has, is a power cut after it."""
        fault = self._fault_of(number, "", "")
        if fault is not None:
            self.cut_power(fault)
            self.hit.append(fault)
            self.hit_paths.append("")

    def cut_power(self, fault: Fault) -> None:
        """Take back what is not durable: all of it, or (`some`) about half, chosen by the number of the call."""
        kept: set[str] = set()
        for number, undo in enumerate(reversed(self._undos)):
            if undo.path in kept or (fault.detail == "some" and (number * 7 + fault.call) % 3 == 0):
                kept.add(undo.path)
            elif undo.before is None:
                self._inner.delete(undo.path)
            else:
                self._inner.overwrite(undo.path, undo.before)
        self._undos.clear()

    def _can_be_undone(self, path: str) -> None:
        self._undos.append(_Undo(path, self._content(path)))

    def _is_durable(self, path: str) -> None:
        directory = path.rpartition("/")[0]
        self._undos = [undo for undo in self._undos if undo.path.rpartition("/")[0] != directory]

    def _content(self, path: str) -> bytes | None:
        try:
            return self._inner.read_bytes(path)
        except FileNotFoundError:
            return None

    # the protocol

    def read_bytes(self, path: str) -> bytes:
        return self.call("read_bytes", path, lambda: self._inner.read_bytes(path))

    def open_input(self, path: str) -> BinaryIO:
        source = self.call("open_input", path, lambda: self._inner.open_input(path))
        return _Input(self, path, source)  # type: ignore[return-value]

    def open_output(self, path: str) -> BinaryIO:
        def make() -> None:
            self._can_be_undone(path)
            self._inner.write_new(path, b"")

        self.call("open_output", path, make)
        return _Output(self, path)  # type: ignore[return-value]

    def write_new(self, path: str, data: bytes) -> None:
        def write(content: bytes) -> None:
            self._inner.write_new(path, content)
            self._is_durable(path)

        self.call("write_new", path, lambda: write(data), lambda length: write(cut(data, length.split()[0])))

    def finish(self, path: str, data: bytes) -> None:
        """Close a file that `open_output` has begun."""

        def write(content: bytes) -> None:
            self._inner.overwrite(path, content)
            self._is_durable(path)

        self.call("output.close", path, lambda: write(data), lambda length: write(cut(data, length.split()[0])))

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        def put() -> PutOutcome:
            outcome = self._inner.put_if_absent(path, data)
            self._is_durable(path)
            return outcome

        if not self.dead and self.rival_at is None and self.rival is not None:
            self.rival_at = len(self.calls)
            self.rival()
        self.deleted_before_put = len(self.deleted)
        return self.call("put_if_absent", path, put, lambda _: self._leave_temporary(path, data))

    def overwrite(self, path: str, data: bytes) -> None:
        def replace() -> None:
            self._inner.overwrite(path, data)
            self._is_durable(path)

        self.call("overwrite", path, replace, lambda _: self._leave_temporary(path, data))

    def _leave_temporary(self, path: str, data: bytes) -> None:
        directory, _, name = path.rpartition("/")
        self._inner.write_new(f"{directory}/.{name}.{len(self.calls)}.tmp", cut(data, "half"))

    def exists(self, path: str) -> bool:
        return self.call("exists", path, lambda: self._inner.exists(path))

    def file_size(self, path: str) -> int:
        return self.call("file_size", path, lambda: self._inner.file_size(path))

    def list_directory(self, path: str) -> list[FileStatus]:
        return self.call("list_directory", path, lambda: self._inner.list_directory(path))

    def delete(self, path: str) -> None:
        def remove() -> None:
            if self._content(path) is not None:
                self._can_be_undone(path)
                self.deleted.append(path)
                self._inner.delete(path)

        self.call("delete", path, remove)

    def sync_directory(self, path: str) -> None:
        self.call("sync_directory", path, lambda: self._is_durable(f"{path}/"))

    def delete_directory(self, path: str) -> None:
        self.call("delete_directory", path, lambda: self._inner.delete_directory(path))


class _Input(io.RawIOBase):
    """Counts the reads of one open file."""

    def __init__(self, storage: FaultStorage, path: str, source: BinaryIO) -> None:
        super().__init__()
        self._storage, self._path, self._source = storage, path, source

    def read(self, size: int | None = -1) -> bytes:
        begin = self._source.tell()
        data: bytes = self._storage.call("input.read", self._path, lambda: self._source.read(-1 if size is None else size))
        self._source.seek(begin + len(data))
        return data

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._source.seek(offset, whence)

    def tell(self) -> int:
        return self._source.tell()

    def close(self) -> None:
        if not self.closed:
            self._source.close()
        super().close()


class _Output(io.RawIOBase):
    """A file in the making: there, and empty, from the beginning; with all its content when it is closed."""

    def __init__(self, storage: FaultStorage, path: str) -> None:
        super().__init__()
        self._storage, self._path, self._data = storage, path, bytearray()
        storage.open_outputs.add(path)

    def write(self, data: Any) -> int:
        piece = bytes(data)
        self._storage.call("output.write", self._path, lambda: self._data.extend(piece))
        return len(piece)

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return len(self._data)

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._storage.open_outputs.discard(self._path)
            self._storage.finish(self._path, bytes(self._data))

    def __del__(self) -> None:
        """Drops the stream; a file that is not closed stays as it is."""


def _by_age(status: FileStatus) -> list[object]:
    """A sort key of the numbered names in a directory: 10 is newer than 9."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", status.name)]
