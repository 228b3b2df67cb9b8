"""Tracing of the steps of an operation, as printed by `--trace` and asserted by tests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

from paimon_cli.storage.clock_and_random import Clock

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
