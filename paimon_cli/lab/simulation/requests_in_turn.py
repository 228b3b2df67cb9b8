"""Concurrent requests of a job without threads: they run one after the other, in an order that is the same in every run.

Each request runs at the time at which an error would show. A read that is ahead of its use runs at once, so that its result is as
old as possible. An upload runs when something waits for it, so that a snapshot that was published without waiting lacks the file.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from paimon_cli.storage.overlapped_storage import UPLOADS
from paimon_cli.storage.threads import Concurrency


class InTurn(Executor):
    """Runs calls in the thread that submits them, or (`late`) in the one that waits for the result of any of them."""

    def __init__(self, *, late: bool) -> None:
        self._late = late
        self._waiting: deque[_Due] = deque()

    def submit(self, fn: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        due = _Due(self, lambda: fn(*arguments, **named))
        self._waiting.append(due)
        if not self._late:
            self.catch_up()
        return due

    def catch_up(self) -> None:
        """Run all calls that wait, oldest first."""
        while self._waiting:
            self._waiting.popleft().run()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        if cancel_futures:
            while self._waiting:
                self._waiting.popleft().cancel()
        elif wait:
            self.catch_up()


class _Due(Future[Any]):
    """The result of a call that runs at the latest when it is waited for."""

    def __init__(self, executor: InTurn, call: Callable[[], Any]) -> None:
        super().__init__()
        self._executor = executor
        self._call = call

    def run(self) -> None:
        """Run the call. What is not an `Exception` ends the process of the job, and is not kept as a result."""
        if not self.set_running_or_notify_cancel():
            return
        try:
            self.set_result(self._call())
        except Exception as error:
            self.set_exception(error)

    def result(self, timeout: float | None = None) -> Any:
        self._executor.catch_up()
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._executor.catch_up()
        return super().exception(0)


IN_TURN = Concurrency(lambda threads, purpose: InTurn(late=purpose.endswith(UPLOADS)), lambda: 0.0)
"""Reads run at once, uploads when they are waited for, and no time passes."""
