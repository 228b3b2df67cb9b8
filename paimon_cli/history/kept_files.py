"""The caches that a process has of immutable files: their content, facts about them, and copies of their keys on local disk.

A service passes its caches of facts and copies from round to round, so that each round reads only new files.
"""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from paimon_cli.pieces import PIECES

if TYPE_CHECKING:
    from paimon_cli.storage.whole_file import ScratchDirectory


class Cacheable(Protocol):
    """A value that can be cached. `size`: the bytes that it takes."""

    @property
    def size(self) -> int: ...


class LruCache:
    """A cache that drops the least recently used values while all together take more than `max_bytes`.

    `on_drop` is called with each value that was dropped or replaced.
    """

    def __init__(self, max_bytes: int, on_drop: Callable[[Any], None] = lambda value: None) -> None:
        self._max_bytes = max_bytes
        self._on_drop = on_drop
        self._values: OrderedDict[Hashable, tuple[Cacheable, int]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, name: Hashable) -> Any:
        """The value with this name; None if it is not in the cache."""
        with self._lock:
            if name not in self._values:
                return None
            self._values.move_to_end(name)
            return self._values[name][0]

    def put(self, name: Hashable, value: Cacheable) -> None:
        with self._lock:
            dropped = [self._values.pop(name)] if name in self._values else []
            self._values[name] = value, value.size
            self._bytes += self._values[name][1] - sum(size for _, size in dropped)
            while self._bytes > self._max_bytes and len(self._values) > 1:
                dropped.append(self._values.popitem(last=False)[1])
                self._bytes -= dropped[-1][1]
        for old, _ in dropped:
            self._on_drop(old)


@dataclass
class KeptFiles:
    """The caches of a process: facts about files and, if `keeps_copies`, copies of parts of them. Pickled without content."""

    keeps_copies: bool = False
    facts: LruCache = field(default_factory=lambda: LruCache(PIECES.kept_fact_bytes))
    copies: LruCache = field(default_factory=lambda: LruCache(PIECES.kept_copy_bytes, lambda copy: copy.remove()))
    _scratch: ScratchDirectory | None = None
    _numbers: Iterator[int] = field(default_factory=itertools.count, repr=False, compare=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return KeptFiles, ()

    def new_copy(self, name: str) -> Path:
        """The path for a new copy, in a directory that is deleted when the process ends. No other copy has it, also where a table
        and its clone have files of one `name`: the content of a copy is read from its file as long as it is in use.
        """
        from paimon_cli.storage.whole_file import ScratchDirectory  # only services need it

        with self._lock:
            if self._scratch is None:
                self._scratch = ScratchDirectory("keys")
            return self._scratch.path / f"{next(self._numbers)}-{name}"


class KnownFiles:
    """Caches the content of files. Each is read once, even if several threads need it at once. Pickled without content."""

    def __init__(self, max_bytes: int | None = None) -> None:
        self._max_bytes = PIECES.kept_content_bytes if max_bytes is None else max_bytes
        self._files: dict[str, Future[bytes]] = {}
        self._size = 0
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return KnownFiles, (self._max_bytes,)

    def content(self, path: str, read: Callable[[], bytes]) -> bytes:
        """The content of a file, as returned by `read` at the first call. Errors are not cached."""
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
            while self._size > self._max_bytes and len(self._files) > 1:
                oldest = next(name for name, file in self._files.items() if file.done())
                self._size -= len(self._files.pop(oldest).result())
