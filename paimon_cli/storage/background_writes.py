"""Writes that threads finish while a job goes on, before it publishes a snapshot: uploads, or syncs of new files to local disk.

Both wait for something slow: a round trip, or a write of the file system's journal. Writes that wait at the same time take about
as long as one of them.

Only a job that will meet a failure may go on before its file is stored. So a thread leaves its writes to others only inside a
block, which lasts until the job has published: in the thread that has opened it, or in `threads.JobThreads` that this one uses.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextvars import ContextVar
from typing import Any

from paimon_cli.storage.threads import thread_pool

_THREADS = 8
_PORTIONS = 4
"""Into how many portions the directories of each thread are divided, so that a slow one does not hold up many."""

Failures = dict[str, Future[None]]
"""Writes that have failed, by path."""
_in_blocks_of: ContextVar[tuple[BackgroundWrites, ...]] = ContextVar("in_blocks_of", default=())


def _for_each(finish: Callable[[str], None], directories: Sequence[str]) -> None:
    for directory in directories:
        finish(directory)


class BackgroundWrites:
    """The writes that a storage has left to threads inside `block`s; outside of blocks there are none. A pickled copy has none.

    `limit`: the sum of the sizes of unfinished writes above which a writer waits for all of them. `finish`: called for each
    directory with new entries, once the writes that have begun are finished.
    """

    def __init__(self, name: str, limit: int, finish: Callable[[str], None] | None = None) -> None:
        self._name = name
        self._limit = limit
        self._finish = finish
        self._changed = threading.Lock()
        self._blocks = 0
        self._pool: Executor | None = None
        self._begun: dict[str, tuple[int, Future[None]]] = {}
        """Size and outcome of each write, by path. Those that failed stay until no block is open."""
        self._directories: set[str] = set()
        """Directories with new entries, for which `finish` has not been called yet."""
        self._raised: set[str] = set()
        """Paths of failures that `settle` has already raised."""

    def __reduce__(self) -> tuple[Any, ...]:
        return BackgroundWrites, (self._name, self._limit, self._finish)

    @contextlib.contextmanager
    def block(self) -> Iterator[None]:
        """See `capabilities.OverlapsWrites`. Blocks of several threads may overlap, and then share failures.

        The end of the block raises a failure that `settle` has not raised, unless the block fails with another error.
        """
        with self._changed:
            self._blocks += 1
            self._pool = self._pool or thread_pool(_THREADS, self._name)
        outside = _in_blocks_of.set((*_in_blocks_of.get(), self))
        try:
            yield
            if not self._raised or self._failures().keys() - self._raised:
                self.settle()
        finally:
            _in_blocks_of.reset(outside)
            self._leave()

    def _leave(self) -> None:
        with self._changed:
            self._blocks -= 1
            if self._blocks:
                return
            self._begin_to_finish()  # The block has not been settled if it failed.
            pool, self._pool = self._pool, None
        assert pool is not None
        pool.shutdown()
        with self._changed:
            if not self._blocks:
                self._begun, self._raised = {}, set()

    def begin(self, path: str, size: int, write: Callable[..., None], *arguments: Any) -> bool:
        """Let a thread call `write`, which stores the new file `path`. Returns False outside of blocks, without calling it."""
        with self._changed:
            if self._pool is None or self not in _in_blocks_of.get():
                return False
            self._forget_stored()
            self._begun[path] = size, self._pool.submit(write, *arguments)
            self._directories.add(os.path.dirname(path))
            unfinished = [(size, write) for size, write in self._begun.values() if not write.done()]
        if sum(size for size, _ in unfinished) > self._limit:
            for _, begun in unfinished:
                begun.exception()
        return True

    def finishes(self, directory: str) -> bool:
        """Whether `finish` will be called for a directory that has a new entry. False outside of blocks."""
        with self._changed:
            is_inside = self._pool is not None and self in _in_blocks_of.get()
            if is_inside:
                self._directories.add(directory)
            return is_inside

    def settle(self) -> None:
        """See `capabilities.OverlapsWrites`. A failure is raised on every call until no block is open: no job misses it."""
        self._raise_failures()
        with self._changed:
            self._begin_to_finish()
        self._raise_failures()

    def unfinished(self, path: str) -> Future[None] | None:
        """The write of a file, if it has begun and is not known to have succeeded."""
        return self._begun.get(path, (0, None))[1]

    def wait(self) -> None:
        """Wait until all writes that have begun have finished or failed."""
        for _, write in list(self._begun.values()):
            write.exception()

    def _begin_to_finish(self) -> None:
        if self._pool is not None and self._finish is not None:
            directories = list(self._directories)
            step = max(1, len(directories) // (_PORTIONS * _THREADS))  # a call for each would cost more than it does
            for start in range(0, len(directories), step):
                portion = directories[start : start + step]
                self._begun |= dict.fromkeys(portion, (0, self._pool.submit(_for_each, self._finish, portion)))
        self._directories = set()

    def _raise_failures(self) -> None:
        failures = self._failures()
        self._raised.update(failures)
        for write in failures.values():
            write.result()

    def _failures(self) -> Failures:
        """The failures, after waiting for all writes that have begun. Successful ones are forgotten."""
        self.wait()
        with self._changed:
            self._forget_stored()
            return {path: write for path, (_, write) in self._begun.items() if write.done()}

    def _forget_stored(self) -> None:
        begun = self._begun.items()
        self._begun = {path: (size, write) for path, (size, write) in begun if not write.done() or write.exception()}
