"""What is injected into an operation: its clock, its source of randomness, and the trace of its steps.

With a clock and random numbers of its own, a test replays any interleaving. `--trace` prints the steps, and tests assert them.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol


class Clock(Protocol):
    """Wall clock in epoch millis; `sleep` takes seconds."""

    def now_millis(self) -> int: ...

    def sleep(self, seconds: float) -> None: ...


_LONGEST_SLEEP = 10**9
"""In seconds, some thirty years: the system refuses pauses of centuries, which a duration of the user may be."""


class SystemClock:
    """The clock of the operating system."""

    def now_millis(self) -> int:
        return time.time_ns() // 1_000_000

    def sleep(self, seconds: float) -> None:
        time.sleep(min(seconds, _LONGEST_SLEEP))


class BelatedClock:
    """A clock that lags another one by a fixed number of milliseconds."""

    def __init__(self, clock: Clock, lag_millis: int) -> None:
        self._clock = clock
        self._lag_millis = lag_millis

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


Facts = dict[str, Any]
"""Details of a step, such as file names, bytes and rows, as JSON-able values."""


@dataclass(frozen=True)
class Step:
    """A finished step. `millis`: epoch millis at its end; `took`: duration in millis. A failed step has the fact `failed`."""

    name: str
    millis: int
    took: int
    facts: Facts


class Trace(Protocol):
    """Receives the steps of one operation. Part of a table's context, so each Spark task has its own copy."""

    @property
    def is_on(self) -> bool: ...

    def step(self, name: str, /, **facts: Any) -> None:
        """Record a step without a duration."""
        ...

    def timed(self, name: str, /, **facts: Any) -> AbstractContextManager[Facts]:
        """Record the block as a step with its duration; the block may add facts to the yielded dict."""
        ...

    def taken(self) -> tuple[Step, ...]:
        """Remove and return the recorded steps, which a task sends back with its result."""
        ...

    def show(self, steps: Iterable[Step]) -> None:
        """Report steps that a task has sent back."""
        ...


class NoTrace:
    """A trace that discards all steps."""

    is_on = False

    def step(self, name: str, /, **facts: Any) -> None: ...

    def timed(self, name: str, /, **facts: Any) -> AbstractContextManager[Facts]:
        return nullcontext({})

    def taken(self) -> tuple[Step, ...]:
        return ()

    def show(self, steps: Iterable[Step]) -> None: ...


class StepTrace:
    """Reports each step to `tell` when it ends; thread-safe. A pickled copy, as in a Spark task, keeps them for `taken`."""

    is_on = True

    def __init__(self, clock: Clock, tell: Callable[[Step], None] | None = None) -> None:
        self._clock = clock
        self._tell = tell
        self._kept: list[Step] = []
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[StepTrace], tuple[Clock]]:
        return StepTrace, (self._clock,)

    def step(self, name: str, /, **facts: Any) -> None:
        self.show([Step(name, self._clock.now_millis(), 0, facts)])

    @contextmanager
    def timed(self, name: str, /, **facts: Any) -> Iterator[Facts]:
        started = self._clock.now_millis()
        try:
            yield facts
        except BaseException as error:
            facts["failed"] = type(error).__name__
            raise
        finally:
            ended = self._clock.now_millis()
            self.show([Step(name, ended, ended - started, facts)])

    def taken(self) -> tuple[Step, ...]:
        with self._lock:
            kept, self._kept = tuple(self._kept), []
        return kept

    def show(self, steps: Iterable[Step]) -> None:
        with self._lock:
            for step in steps:
                if self._tell is None:
                    self._kept.append(step)
                else:
                    self._tell(step)
