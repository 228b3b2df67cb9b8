"""Work in threads: calls made in parallel, and batches read ahead of their use.

Arrow decodes and merges outside of Python's lock, so a thread that reads ahead keeps a second core busy.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

PORTION = 1024
"""Number of parallel calls that are started before their results are taken."""

T = TypeVar("T")
R = TypeVar("R")


def in_parallel(function: Callable[[T], R], items: Iterable[T], threads: int) -> Iterator[R]:
    """The results in order, of calls that mostly wait for a store; with less than two threads they are made one by one."""
    if threads < 2:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(threads) as pool:
        left = iter(items)
        while portion := list(islice(left, PORTION)):
            yield from pool.map(function, portion)


def together(calls: Sequence[Callable[[], R]]) -> list[R]:
    """The results of calls that wait for a store, made at the same time; the first error, when all have ended."""
    with ThreadPoolExecutor(len(calls)) as pool:
        begun = [pool.submit(call) for call in calls]
    return [one.result() for one in begun]


class Ahead(Generic[R]):
    """A result that is fetched before it is needed, and returned once, within `fresh_seconds`. Pickles without it."""

    def __init__(self, fresh_seconds: float = math.inf) -> None:
        self._fresh_seconds = fresh_seconds
        self._begun: tuple[float, Future[R]] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Ahead, (self._fresh_seconds,)

    def begin(self, call: Callable[[], R]) -> None:
        pool = ThreadPoolExecutor(1)
        self._begun = time.monotonic(), pool.submit(call)
        pool.shutdown(wait=False)

    def take(self, call: Callable[[], R]) -> R:
        """The result that was begun, or else that of `call`."""
        begun, self._begun = self._begun, None
        if begun is None or time.monotonic() > begun[0] + self._fresh_seconds:
            return call()
        return begun[1].result()


class Sized(Protocol):
    @property
    def nbytes(self) -> int: ...


Item = TypeVar("Item", bound=Sized)


class ReadAhead(Generic[Item]):
    """Iterates over `items` in their order while up to `most_bytes` of them wait to be taken, one at least.

    Starts at once. An error of `items` is raised in the place of the item. Leaving the `with` block ends the thread, at the
    latest when its current item is made.
    """

    def __init__(self, items: Iterator[Item], most_bytes: int) -> None:
        self._items = items
        self._most_bytes = most_bytes
        self._made: deque[Item] = deque()
        self._bytes = 0
        self._failure: BaseException | None = None
        self._ended = False
        self._stopped = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __enter__(self) -> ReadAhead[Item]:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._thread.join()

    def __iter__(self) -> Iterator[Item]:
        while (item := self._take()) is not None:
            yield item

    def _take(self) -> Item | None:
        with self._changed:
            self._changed.wait_for(lambda: self._made or self._ended)
            if not self._made:
                if self._failure is not None:
                    raise self._failure
                return None
            item = self._made.popleft()
            self._bytes -= item.nbytes
            self._changed.notify_all()
            return item

    def _run(self) -> None:
        try:
            for item in self._items:
                if not self._put(item):
                    break
        except BaseException as failure:  # the taker's to handle, whatever it is
            self._failure = failure
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def _put(self, item: Item) -> bool:
        """Add an item when there is room; returns whether more are needed."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or not self._made or self._bytes + item.nbytes <= self._most_bytes)
            self._made.append(item)
            self._bytes += item.nbytes
            self._changed.notify_all()
            return not self._stopped
