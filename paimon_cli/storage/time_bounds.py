"""Bounds the time of a look at one table, where a command looks at many: a table that is slow or hangs costs its own time only.

A look runs in a thread, for which the caller no longer waits once its time is up, because a call that hangs in a file system or
a library cannot be interrupted. A look that was given up ends before the next file that it would read whole or directory that it
would list, or with the process.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Generic, TypeVar

from paimon_cli.errors import PaimonError, TookTooLong
from paimon_cli.storage.catalog_options import TABLE_TIMEOUT
from paimon_cli.storage.threads import DaemonThreads, concurrency, running_by

T = TypeVar("T")
R = TypeVar("R")


class _GivenUp(BaseException):
    """Ends a look that was given up, whatever errors of the table it would put up with."""


def check_time() -> None:
    """End the look of this thread if it was given up; storages call it before they read or list for long."""
    current = concurrency()
    if current.seconds() > current.ends:
        raise _GivenUp


def look_at_each(
    look: Callable[[T], R], items: Iterable[T], seconds: float, at_once: int, name_of: Callable[[T], str]
) -> Iterator[R | PaimonError]:
    """The result of `look` for each item in order, or its `PaimonError`; `TookTooLong` if it took more than `seconds`.

    At most `at_once` looks run at the same time, not counting those that were given up. Where requests do not run in threads,
    nothing hangs and no time passes.
    """
    looks = [_Look(partial(look, item), name_of(item), seconds) for item in items]
    if not concurrency().is_threaded:
        yield from (each.found() for each in looks)
        return
    pool, all_ended = DaemonThreads(at_once, "paimon-cli-looks"), False
    try:
        begun = [pool.submit(each.found) for each in looks]
        answered = []
        for each, future in zip(looks, begun, strict=True):
            answered.append(each.is_answered(future))
            if not answered[-1]:
                pool.replace_thread()
            yield future.result() if answered[-1] else each.too_late()
        all_ended = all(answered)
    finally:
        pool.shutdown(wait=all_ended, cancel_futures=True)


def within(seconds: float, call: Callable[[], R], name: str) -> R:
    """The result of one look at the table called `name`; see `look_at_each`. Without a bound it runs in this thread."""
    if math.isinf(seconds):
        return call()
    (found,) = look_at_each(lambda _: call(), [None], seconds, 1, lambda _: name)
    if isinstance(found, PaimonError):
        raise found
    return found


@dataclass
class _Look(Generic[R]):
    """A look whose time begins when it does, and not while it waits for a thread."""

    look: Callable[[], R]
    name: str
    seconds: float
    ends: float = math.inf
    has_begun: threading.Event = field(default_factory=threading.Event)

    def found(self) -> R | PaimonError:
        current = concurrency()
        self.ends = min(current.ends, current.seconds() + self.seconds)
        self.has_begun.set()
        found: R | PaimonError
        with running_by(replace(current, ends=self.ends)):
            try:
                found = self.look()
            except PaimonError as error:
                found = error
            except _GivenUp:
                return self.too_late()
        return self.too_late() if current.seconds() > self.ends else found

    def is_answered(self, found: Future[R | PaimonError]) -> bool:
        """Wait until it has ended or its time is up. It has begun, or is the next to begin, if those before it are over."""
        if found.done():
            return True
        self.has_begun.wait()
        wait([found], min(threading.TIMEOUT_MAX, max(0.0, self.ends - concurrency().seconds())))
        return found.done()

    def too_late(self) -> TookTooLong:
        return TookTooLong(
            f"{self.name} did not answer in {self.seconds:g} s",
            "its storage hangs or is slow, or its metadata is very large",
            f"if it needs more time: --option {TABLE_TIMEOUT}=10min",
            table=self.name,
        )
