"""Caches of immutable files that a process keeps: facts about them in memory, and copies of parts on local disk.

A service passes its caches on from round to round, so that each round reads only new files.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from paimon_cli.storage.whole_file import ScratchDirectory

FACT_BYTES, COPY_BYTES = 64 << 20, 4 << 30


class Kept(Protocol):
    """A value that can be cached. `size`: bytes that it takes."""

    @property
    def size(self) -> int: ...


class Keeper:
    """A cache that drops the least recently used values once all take more than `most_bytes`. `dropped` is called with them."""

    def __init__(self, most_bytes: int, dropped: Callable[[Any], None] = lambda value: None) -> None:
        self._most_bytes = most_bytes
        self._dropped = dropped
        self._values: OrderedDict[Hashable, tuple[Kept, int]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, name: Hashable) -> Any:
        """The value of this name; None if it is not in the cache."""
        with self._lock:
            if name not in self._values:
                return None
            self._values.move_to_end(name)
            return self._values[name][0]

    def put(self, name: Hashable, value: Kept) -> None:
        with self._lock:
            gone = [self._values.pop(name)] if name in self._values else []
            self._values[name] = value, value.size
            self._bytes += self._values[name][1] - sum(size for _, size in gone)
            while self._bytes > self._most_bytes and len(self._values) > 1:
                gone.append(self._values.popitem(last=False)[1])
                self._bytes -= gone[-1][1]
        for old, _ in gone:
            self._dropped(old)


@dataclass
class KeptFiles:
    """The caches of a process: facts about files, and if `keeps_copies`, copies of parts of them. Pickled without content."""

    keeps_copies: bool = False
    facts: Keeper = field(default_factory=lambda: Keeper(FACT_BYTES))
    copies: Keeper = field(default_factory=lambda: Keeper(COPY_BYTES, lambda copy: copy.remove()))
    _scratch: ScratchDirectory | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return KeptFiles, ()

    def new_copy(self, name: str) -> Path:
        """The path for a new copy, in a directory that is deleted when the process ends."""
        from paimon_cli.storage.whole_file import ScratchDirectory  # only services need it

        with self._lock:
            if self._scratch is None:
                self._scratch = ScratchDirectory("keys")
        return self._scratch.path / name
