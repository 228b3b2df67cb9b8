"""Time and randomness, injected so that tests can replay any interleaving."""

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
    """The clock of the operating system."""

    def now_millis(self) -> int:
        return time.time_ns() // 1_000_000

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class BelatedClock:
    """A clock that lags another one by a fixed number of milliseconds."""

    def __init__(self, clock: Clock, behind_millis: int) -> None:
        self._clock = clock
        self._lag_millis = behind_millis

    def now_millis(self) -> int:
        return self._clock.now_millis() - self._lag_millis

    def sleep(self, seconds: float) -> None:
        self._clock.sleep(seconds)


def local_wall_clock(now_millis: int) -> int:
    """The local wall clock read as if it were UTC, as Java stores creation times (FORMAT.md, section 4.3)."""
    return now_millis + time.localtime(now_millis // 1000).tm_gmtoff * 1000


def local_hour(millis: int) -> int:
    """Hour of the day (0 to 23) of an epoch time in milliseconds, in the local time zone."""
    return time.localtime(millis // 1000).tm_hour


def moment_of_wall_clock(millis: int) -> int:
    """Inverse of `local_wall_clock`, in epoch millis. Years that cannot be converted are returned unchanged."""
    try:
        wall_clock = time.gmtime(millis // 1000)
        return int(time.mktime((*wall_clock[:8], -1))) * 1000 + millis % 1000
    except (OverflowError, ValueError, OSError):
        return millis


class RandomSource(Protocol):
    """Source of unique names and of the jitter of retries."""

    def uuid(self) -> str:
        """A random UUID as lower-case text of 36 characters."""
        ...

    def jitter(self) -> float:
        """A random number in [0, 1)."""
        ...


class SystemRandom:
    """Random UUIDs from the operating system, and jitter from Python's generator."""

    def uuid(self) -> str:
        return str(uuid.uuid4())

    def jitter(self) -> float:
        return random.random()
