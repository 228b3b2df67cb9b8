"""The steps of an operation: shown by `--trace`, replayed by tests, and dropped otherwise."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

from paimon_cli.storage.clock_and_random import Clock

Facts = dict[str, Any]
"""File names, bytes, rows and the like, as JSON has them."""


@dataclass(frozen=True)
class Step:
    """`millis`: when it ended, since the epoch; `took`: how long it took. `facts` show if it failed."""

    name: str
    millis: int
    took: int
    facts: Facts


class Trace(Protocol):
    """Receives the steps of one call. Part of a table's context, so that a Spark task has its own copy."""

    @property
    def is_on(self) -> bool: ...

    def step(self, name: str, /, **facts: Any) -> None:
        """Record a step whose duration does not matter."""
        ...

    def timed(self, name: str, /, **facts: Any) -> AbstractContextManager[Facts]:
        """Record a step and its duration; the block may add facts that are known only at its end."""
        ...

    def taken(self) -> tuple[Step, ...]:
        """The steps kept so far, which a task returns with its result."""
        ...

    def show(self, steps: Iterable[Step]) -> None:
        """Show the steps that a task has returned."""
        ...


class NoTrace:
    """Drops all steps."""

    is_on = False

    def step(self, name: str, /, **facts: Any) -> None: ...

    def timed(self, name: str, /, **facts: Any) -> AbstractContextManager[Facts]:
        return nullcontext({})

    def taken(self) -> tuple[Step, ...]:
        return ()

    def show(self, steps: Iterable[Step]) -> None: ...


class StepTrace:
    """Reports each step when it ends, from any thread; a pickled copy, as in a Spark task, keeps them for `taken`."""

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
