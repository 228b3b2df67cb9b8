"""Signals that end a process, as exceptions: it can clean up, and hold them back while it does what must not stop half-way."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any


class Terminated(KeyboardInterrupt):
    """SIGTERM: whoever supervises this process asks it to stop."""


def end_as_interrupted() -> None:
    """SIGTERM and SIGHUP raise `KeyboardInterrupt` in the main thread, as Ctrl-C does, unless they are ignored (nohup)."""
    for number in _heeded(signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)


class StopSignals:
    """While entered, signals raise in the main thread, outside of `shield`: SIGTERM `Terminated`, others `KeyboardInterrupt`."""

    def __init__(self) -> None:
        self._depth = 0
        self._waiting: KeyboardInterrupt | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            self._before = {n: signal.getsignal(n) for n in _heeded(signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
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


def _heeded(*numbers: int) -> list[int]:
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
