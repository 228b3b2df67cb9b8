"""Storage in the memory of this process, for tests and simulations."""

from __future__ import annotations

import io
import threading
from dataclasses import dataclass, field
from types import TracebackType
from typing import BinaryIO

from paimon_cli.errors import StorageUnavailable
from paimon_cli.storage.injected import Clock, SystemClock
from paimon_cli.storage.read_bounds import check_size
from paimon_cli.storage.storage import FileStatus, PutOutcome
from paimon_cli.storage.time_bounds import check_time


@dataclass
class _Space:
    """Content and modification time (epoch millis) of each path, and the lock that guards them."""

    files: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)


_spaces: dict[str, _Space] = {}
_spaces_lock = threading.Lock()


class MemoryStorage:
    """`Storage` over paths of any form; directories exist implicitly, as prefixes of paths.

    All storages of the same `space` in a process share their files, so a pickled copy sees them too. A file appears, complete,
    when its writer closes it. As on disk, creating a file that exists raises `StorageUnavailable`.
    """

    is_remote = False

    def __init__(self, space: str = "", clock: Clock | None = None) -> None:
        self._name = space
        self._clock = clock or SystemClock()
        with _spaces_lock:
            self._space = _spaces.setdefault(space, _Space())

    def __reduce__(self) -> tuple[type[MemoryStorage], tuple[str, Clock]]:
        return MemoryStorage, (self._name, self._clock)

    def read_bytes(self, path: str) -> bytes:
        content = self._file(path)[0]
        check_size(path, len(content))
        return content

    def open_input(self, path: str) -> BinaryIO:
        return io.BytesIO(self.read_bytes(path))

    def open_output(self, path: str) -> BinaryIO:
        if self.exists(path):
            raise _already_exists(path)
        return _MemorySink(self, path)

    def write_new(self, path: str, data: bytes) -> None:
        if not self._create(path, data):
            raise _already_exists(path)

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        return PutOutcome.CREATED if self._create(path, data) else PutOutcome.EXISTS

    def overwrite(self, path: str, data: bytes) -> None:
        with self._space.lock:
            self._space.files[path] = (bytes(data), self._clock.now_millis())

    def swap(self, path: str, expected: bytes, data: bytes) -> bool:
        """See `capabilities.SwapsFiles`."""
        with self._space.lock:
            if path not in self._space.files or self._space.files[path][0] != expected:
                return False
            self.overwrite(path, data)
            return True

    def _create(self, path: str, data: bytes) -> bool:
        with self._space.lock:
            if path in self._space.files:
                return False
            self._space.files[path] = (bytes(data), self._clock.now_millis())
            return True

    def exists(self, path: str) -> bool:
        with self._space.lock:
            return path in self._space.files or self._is_directory(path)

    def file_size(self, path: str) -> int:
        return len(self._file(path)[0])

    def list_directory(self, path: str) -> list[FileStatus]:
        check_time()
        prefix = path.rstrip("/") + "/"
        found: dict[str, FileStatus] = {}
        with self._space.lock:
            for name, (data, modified) in self._space.files.items():
                if name.startswith(prefix):
                    child, slash, _ = name[len(prefix) :].partition("/")
                    size = 0 if slash else len(data)
                    found.setdefault(child, FileStatus(prefix + child, child, size, bool(slash), modified))
        return list(found.values())

    def delete(self, path: str) -> None:
        with self._space.lock:
            self._space.files.pop(path, None)

    def delete_directory(self, path: str) -> None:
        prefix = path.rstrip("/") + "/"
        with self._space.lock:
            for name in [name for name in self._space.files if name.startswith(prefix)]:
                del self._space.files[name]

    def _file(self, path: str) -> tuple[bytes, int]:
        with self._space.lock:
            if path not in self._space.files:
                raise FileNotFoundError(path)
            return self._space.files[path]

    def _is_directory(self, path: str) -> bool:
        prefix = path.rstrip("/") + "/"
        return any(name.startswith(prefix) for name in self._space.files)


class _MemorySink(io.BytesIO):
    """A file that appears when it is closed; a `with` block that fails leaves no file."""

    def __init__(self, storage: MemoryStorage, path: str) -> None:
        super().__init__()
        self._storage = storage
        self._path = path

    def close(self) -> None:
        if not self.closed:
            data = self.getvalue()
            super().close()
            self._storage.write_new(self._path, data)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            self.close()
        else:
            super().close()

    def __del__(self) -> None:
        super().close()


def _already_exists(path: str) -> StorageUnavailable:
    return StorageUnavailable(f"the storage refused {path}", "a file of that name exists", path=path)
