"""What one run of `maintain` may take: a time, or the bytes that its compactions read."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from paimon_cli.requests.upkeep import Allowance
from paimon_cli.storage.injected import Clock


@dataclass
class Budget:
    """The rest of an allowance. Turns that run side by side reserve their bytes before they read. Thread-safe.

    `ends_millis`: when nothing more begins; `left_bytes`: what may still be read; None: no such limit.
    """

    clock: Clock
    ends_millis: int | None = None
    left_bytes: int | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def of(cls, allowance: Allowance | None, clock: Clock) -> Budget:
        if allowance is None:
            return cls(clock)
        ends = None if allowance.millis is None else clock.now_millis() + allowance.millis
        return cls(clock, ends, allowance.size)

    @property
    def is_over(self) -> bool:
        """Whether the time has passed."""
        return self.ends_millis is not None and self.clock.now_millis() >= self.ends_millis

    @property
    def is_timed(self) -> bool:
        return self.ends_millis is not None

    def reserve(self, size: int) -> int | None:
        """Take this much, or what is left, for a turn; None without a limit."""
        with self._lock:
            if self.left_bytes is None:
                return None
            granted = min(size, self.left_bytes)
            self.left_bytes -= granted
            return granted

    def settle(self, granted: int | None, used: int) -> None:
        """Give back what a turn did not use of its reservation."""
        with self._lock:
            if self.left_bytes is not None and granted is not None:
                self.left_bytes += max(0, granted - used)
