"""SIGINT and SIGTERM as exceptions, held back while something is done that should not be left half-way."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any


class Terminated(KeyboardInterrupt):
    """SIGTERM: whoever supervises this process asks it to stop."""


class StopSignals:
    """While entered, SIGINT raises `KeyboardInterrupt` and SIGTERM `Terminated` in the main thread, outside of `shield`."""

    def __init__(self) -> None:
        self._depth = 0
        self._waiting: KeyboardInterrupt | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
            self._install()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextlib.contextmanager
    def shield(self) -> Iterator[None]:
        """A signal that comes inside is raised at the end of the outermost shield."""
        if self._before:
            self._install()  # Spark puts a handler of its own in place when it starts
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
        if not self._depth and self._waiting is not None:
            waiting, self._waiting = self._waiting, None
            raise waiting

    def _install(self) -> None:
        for number in self._before:
            signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        stop = Terminated() if number == signal.SIGTERM else KeyboardInterrupt()
        if not self._depth:
            raise stop
        self._waiting = stop
