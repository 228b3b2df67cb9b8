"""Time and randomness, injected so that every interleaving can be replayed in tests."""

from __future__ import annotations

import random
import time
import uuid
from typing import Protocol


class Clock(Protocol):
    """Wall clock in epoch millis; `sleep` takes seconds."""

    def now_millis(self) -> int: ...

    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The machine's own clock."""

    def now_millis(self) -> int:
        return time.time_ns() // 1_000_000

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class BelatedClock:
    """A clock that is behind another by a number of millis."""

    def __init__(self, clock: Clock, behind_millis: int) -> None:
        self._clock = clock
        self._behind = behind_millis

    def now_millis(self) -> int:
        return self._clock.now_millis() - self._behind

    def sleep(self, seconds: float) -> None:
        self._clock.sleep(seconds)


def local_wall_clock(now_millis: int) -> int:
    """The local wall clock read as if it were UTC, as Java stores creation times (FORMAT.md, section 4.3)."""
    return now_millis + time.localtime(now_millis // 1000).tm_gmtoff * 1000


def local_hour(millis: int) -> int:
    """Hour of the day, 0 to 23, at that moment (epoch millis) in this machine's zone."""
    return time.localtime(millis // 1000).tm_hour


def moment_of_wall_clock(millis: int) -> int:
    """The inverse of `local_wall_clock`: epoch millis; the value itself for years that cannot be converted."""
    try:
        shown = time.gmtime(millis // 1000)
        return int(time.mktime((*shown[:8], -1))) * 1000 + millis % 1000
    except (OverflowError, ValueError, OSError):
        return millis


class RandomSource(Protocol):
    """Source of unique names and of the jitter of retries."""

    def uuid(self) -> str:
        """A lower-case UUID text of 36 characters."""
        ...

    def jitter(self) -> float:
        """A number in [0, 1)."""
        ...


class SystemRandom:
    """The operating system's randomness."""

    def uuid(self) -> str:
        return str(uuid.uuid4())

    def jitter(self) -> float:
        return random.random()
