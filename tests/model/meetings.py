"""What may come between two storage calls of a step: the death of its process, or another whole step by somebody else."""

from __future__ import annotations

import threading
from collections.abc import Callable

from paimon_cli.storage.capabilities import WrappedStorage
from paimon_cli.storage.storage import Storage


class Crash(BaseException):
    """The process of a step has died; no handler of errors runs storage calls after it."""


class Meeting(WrappedStorage):
    """`inner` seen by one step, to which something happens just before its call number `at`."""

    def __init__(self, inner: Storage, at: int, deed: Callable[[], object] | None) -> None:
        """`deed`: the other step; None if the process dies."""
        super().__init__(inner)
        self._at, self._deed = at, deed
        self._calls = 0
        self._lock = threading.Lock()
        self.has_come = False

    def before(self, call: str, path: str) -> None:
        with self._lock:
            self._calls += 1
            is_due = self._calls == self._at
            is_dead = self.has_come and self._deed is None
        if is_dead:
            raise Crash
        if is_due:
            self.has_come = True
            if self._deed is None:
                raise Crash
            self._deed()
