"""What a process keeps of immutable files for the next time it needs them: facts in memory, and copies on the local disk.

A command keeps what it needs more than once. A service passes it on from round to round, so that a round costs what is new.
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
    """Anything that says how many bytes it takes."""

    @property
    def size(self) -> int: ...


class Keeper:
    """Values by name; those that were not asked for the longest go when they take more than `most_bytes` together."""

    def __init__(self, most_bytes: int, dropped: Callable[[Any], None] = lambda value: None) -> None:
        self._most_bytes = most_bytes
        self._dropped = dropped
        self._values: OrderedDict[Hashable, tuple[Kept, int]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, name: Hashable) -> Any:
        """None for what is not kept, or not any more."""
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
    """Facts about files, and copies of parts of them where `keeps_copies`. Pickles without what it holds."""

    keeps_copies: bool = False
    facts: Keeper = field(default_factory=lambda: Keeper(FACT_BYTES))
    copies: Keeper = field(default_factory=lambda: Keeper(COPY_BYTES, lambda copy: copy.remove()))
    _scratch: ScratchDirectory | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return KeptFiles, ()

    def new_copy(self, name: str) -> Path:
        """Where to put a copy; the directory disappears with the process."""
        from paimon_cli.storage.whole_file import ScratchDirectory  # only services need it

        with self._lock:
            if self._scratch is None:
                self._scratch = ScratchDirectory("keys")
        return self._scratch.path / name
