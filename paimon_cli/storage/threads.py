"""Threads: parallel calls, prefetched results, and batches that are read ahead of their use.

Arrow releases Python's global lock while it decodes and merges, so a thread that reads ahead can use a second core.

Concurrent requests to a store run in pools of the current `Concurrency`, which a simulation replaces to decide their order.
"""

from __future__ import annotations

import functools
import math
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property as cached_property
else:

    class cached_property(functools.cached_property):
        """That of Python 3.12. Older ones compute the property of one object at a time, so that a table whose storage hangs
        would let all others hang.
        """

        def __get__(self, instance: Any, owner: Any = None) -> Any:
            if instance is None:
                return self
            values = instance.__dict__
            if self.attrname not in values:
                values[self.attrname] = self.func(instance)
            return values[self.attrname]


from paimon_cli.pieces import PIECES

T = TypeVar("T")
R = TypeVar("R")


IDLE = "paimon-cli-idle"
"""The name of a thread that waits for its next call."""


class _DaemonThread(threading.Thread):
    """A thread that makes one call after the other, of whoever needs a thread: to start one takes ten times as long."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()

    def run(self) -> None:
        while True:
            call = self._calls.get()
            Context().run(call)
            del call  # holds what it has worked on
            self.name = IDLE
            if len(_waiting) >= PIECES.waiting_threads:
                return
            _waiting.append(self)

    def begin(self, call: Callable[[], None]) -> None:
        self._calls.put(call)


_waiting: list[_DaemonThread] = []
"""Threads without a call. One that does not come back, because its store hangs, is not among them, and holds up nobody."""
os.register_at_fork(after_in_child=_waiting.clear)


def begin_thread(call: Callable[[], None], name: str) -> threading.Event:
    """Run `call` in a daemon thread. The event is set at its end."""
    ended = threading.Event()

    def run() -> None:
        try:
            call()
        finally:
            ended.set()

    try:
        thread = _waiting.pop()
    except IndexError:
        thread = _DaemonThread()
        thread.start()
    thread.name = name
    thread.begin(run)
    return ended


class DaemonThreads(Executor):
    """A pool whose threads end with the process, even if they wait for a store that never answers.

    Each call runs by the `Concurrency` of the thread that has submitted it.
    """

    def __init__(self, threads: int, purpose: str = "") -> None:
        self._most, self._name = threads, purpose or "paimon-cli-requests"
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._changed = threading.Lock()
        self._threads: list[threading.Event] = []
        """The ends of its threads."""
        self._is_shut = False

    def submit(self, fn: Callable[..., R], /, *arguments: Any, **named: Any) -> Future[R]:
        future: Future[R] = Future()
        with self._changed:
            if self._is_shut:
                raise RuntimeError("the pool is shut down")
            self._calls.put(_Call(future, concurrency(), partial(fn, *arguments, **named)))
            if not self._idle.acquire(blocking=False) and len(self._threads) < self._most:
                self._begin_thread()
        return future

    def replace_thread(self) -> None:
        """Have one thread more, for one that does not come back."""
        with self._changed:
            self._most += 1
            self._begin_thread()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        with self._changed:
            self._is_shut = True
            with suppress(Empty):  # a thread may take the last call at the same time
                while cancel_futures:
                    if (call := self._calls.get_nowait()) is not None:
                        call.future.cancel()
            self._calls.put(None)
        for thread in self._threads if wait else ():
            thread.wait()

    def _begin_thread(self) -> None:
        self._threads.append(begin_thread(self._run, f"{self._name}_{len(self._threads)}"))

    def _run(self) -> None:
        while True:
            try:
                call = self._calls.get_nowait()
            except Empty:
                self._idle.release()
                call = self._calls.get()
            if call is None:
                self._calls.put(None)  # for the next thread
                return
            call.run()
            del call  # holds the result


@dataclass(frozen=True)
class Concurrency:
    """How concurrent requests run. `new_pool` takes the number of threads and the name of their purpose; `seconds` is a
    clock that never goes back. `ends`: when by this clock the requests are of no use any more (`time_bounds`).
    """

    new_pool: Callable[[int, str], Executor] = DaemonThreads
    seconds: Callable[[], float] = time.monotonic
    ends: float = math.inf

    @property
    def is_threaded(self) -> bool:
        """Whether requests run in threads, and not in an order that a simulation decides."""
        return self.new_pool is THREADS.new_pool


@dataclass(frozen=True)
class _Call:
    """A call of `DaemonThreads`."""

    future: Future[Any]
    by: Concurrency
    call: Callable[[], Any]

    def run(self) -> None:
        if not self.future.set_running_or_notify_cancel():
            return
        _current.set(self.by)
        try:
            result = self.call()
        except BaseException as error:  # raised again where the result is taken
            self.future.set_exception(error)
        else:
            self.future.set_result(result)


THREADS = Concurrency()
_current: ContextVar[Concurrency] = ContextVar("concurrency", default=THREADS)


def concurrency() -> Concurrency:
    """How the concurrent requests of this context run; new threads start with `THREADS`, but for those of a pool for requests."""
    return _current.get()


@contextmanager
def running_by(concurrency: Concurrency) -> Iterator[None]:
    """A context whose concurrent requests run in another way."""
    before = _current.set(concurrency)
    try:
        yield
    finally:
        _current.reset(before)


def thread_pool(threads: int, purpose: str = "") -> Executor:
    """A new pool for concurrent requests."""
    return concurrency().new_pool(threads, purpose and f"paimon-cli-{purpose}")


class JobThreads(ThreadPoolExecutor):
    """A pool for tasks of a job, whose new files are stored like those of the thread that submits them (`background_writes`)."""

    def submit(self, fn: Callable[..., R], /, *arguments: Any, **named: Any) -> Future[R]:
        return super().submit(copy_context().run, fn, *arguments, **named)


def in_parallel(function: Callable[[T], R], items: Iterable[T], threads: int) -> Iterator[R]:
    """Like `map`, but with up to `threads` concurrent calls, for functions that wait for a store. Keeps the order of `items`."""
    if threads < 2:
        yield from map(function, items)
        return
    remaining = iter(items)
    first = list(islice(remaining, PIECES.submitted_calls))
    if len(first) < 2:
        yield from map(function, chain(first, remaining))
        return
    with thread_pool(threads) as pool:
        yield from pool.map(function, first)
        while portion := list(islice(remaining, PIECES.submitted_calls)):
            yield from pool.map(function, portion)


def map_ahead(function: Callable[[T], R], items: Iterable[T], threads: int) -> Generator[R, None, None]:
    """Like `map`, but with up to `threads` concurrent calls, of which as many run ahead of the iteration, for functions that
    compute. Keeps the order of `items`, which are taken by the iterating thread.
    """
    if threads < 2:
        yield from map(function, items)
        return
    with DaemonThreads(threads, "paimon-cli-ahead") as pool:
        begun: deque[Future[R]] = deque()
        for item in items:
            begun.append(pool.submit(function, item))
            if len(begun) > threads:
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()


def together(calls: Sequence[Callable[[], R]]) -> list[R]:
    """Run all calls concurrently and return their results in order. If some fail, the first error is raised once all ended."""
    with thread_pool(len(calls)) as pool:
        futures = [pool.submit(call) for call in calls]
    return [future.result() for future in futures]


class Ahead(Generic[R]):
    """A result computed in the background before it is needed. It is used once, and only within `fresh_seconds`.

    A pickled copy holds no result.
    """

    def __init__(self, fresh_seconds: float = math.inf) -> None:
        self._fresh_seconds = fresh_seconds
        self._begun: tuple[float, Future[R]] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Ahead, (self._fresh_seconds,)

    def begin(self, call: Callable[[], R]) -> None:
        """Run `call` in a thread; `take` returns its result."""
        pool = thread_pool(1)
        self._begun = concurrency().seconds(), pool.submit(call)
        pool.shutdown(wait=False)

    def drop(self) -> None:
        """Forget the result of `begin`."""
        self._begun = None

    def take(self, call: Callable[[], R]) -> R:
        """The result of `begin` if there is a fresh one, otherwise that of `call`."""
        begun, self._begun = self._begun, None
        if begun is None or concurrency().seconds() > begun[0] + self._fresh_seconds:
            return call()
        return begun[1].result()


class Sized(Protocol):
    """An item with a size in bytes, such as a `pyarrow.RecordBatch`."""

    @property
    def nbytes(self) -> int: ...


Item = TypeVar("Item", bound=Sized)


class ReadAhead(Generic[Item]):
    """Iterates over `items` in order while a thread produces up to `max_bytes` ahead, but always at least one item.

    The thread starts immediately. An error of `items` is raised at its place in the iteration. Leaving the `with` block stops
    the thread after its current item.
    """

    def __init__(self, items: Iterator[Item], max_bytes: int) -> None:
        self._items = items
        self._max_bytes = max_bytes
        self._made: deque[Item] = deque()
        self._bytes = 0
        self._failure: BaseException | None = None
        self._ended = False
        self._stopped = False
        self._changed = threading.Condition()
        self._end = begin_thread(self._run, "paimon-cli-reader")

    def __enter__(self) -> ReadAhead[Item]:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._end.wait()

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
        except BaseException as failure:  # raised again in the consuming thread
            self._failure = failure
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def _put(self, item: Item) -> bool:
        """Wait for room and add an item; returns False once the reader has stopped."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or not self._made or self._bytes + item.nbytes <= self._max_bytes)
            self._made.append(item)
            self._bytes += item.nbytes
            self._changed.notify_all()
            return not self._stopped
