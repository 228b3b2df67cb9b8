"""Small files that never change, kept once they were read: the splits of a bucket share its index files."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

_MOST_BYTES = 64 << 20


class KnownFiles:
    """Reads each file once, also where several threads ask for it at the same time. Pickles without what it holds."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._files: dict[str, Future[bytes]] = {}
        self._size = 0
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return KnownFiles, (self._most_bytes,)

    def content(self, path: str, read: Callable[[], bytes]) -> bytes:
        """What `read` gives for that path, now or when it was first asked for. A failure is not kept."""
        with self._lock:
            known = self._files.get(path)
            is_first = known is None
            if known is None:
                known = self._files[path] = Future()
        if is_first:
            self._read(path, read, known)
        return known.result()

    def _read(self, path: str, read: Callable[[], bytes], known: Future[bytes]) -> None:
        try:
            known.set_result(read())
        except BaseException as failure:
            with self._lock:
                del self._files[path]
            known.set_exception(failure)
            return
        with self._lock:
            self._size += len(known.result())
            while self._size > self._most_bytes and len(self._files) > 1:
                oldest = next((name for name, file in self._files.items() if file.done()), path)
                self._size -= len(self._files.pop(oldest).result())
