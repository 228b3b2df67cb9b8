"""New files of a local file system that are synced to disk in the background, before a snapshot that names them is published.

A journal makes one write of all syncs that wait for the disk together. A small commit that syncs its files one after the other
waits for a write each time, which takes longer than to encode the rows.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

_THREADS = 8
_MAX_WAITING = 64
"""Limit for files that have not been synced, which have open descriptors; a writer above it waits for all of them."""


class DeferredSyncs:
    """The syncs that a storage owes. Outside of `overlapping_writes` blocks there are none. A pickled copy owes none.

    `sync_file` is called with a path and a descriptor, which it closes; `sync_directory` with a path.
    """

    def __init__(self, sync_file: Callable[[str, int], None], sync_directory: Callable[[str], None]) -> None:
        self._sync_file = sync_file
        self._sync_directory = sync_directory
        self._changed = threading.Lock()
        self._blocks = 0
        self._pool: ThreadPoolExecutor | None = None
        self._begun: dict[str, Future[None]] = {}
        """The syncs of files and directories, by path. Those that failed stay until no block is open."""
        self._directories: set[str] = set()
        """Directories to be synced once their files are."""
        self._raised: set[str] = set()
        """Paths of failures that `settle` has already raised."""

    def __reduce__(self) -> tuple[Any, ...]:
        return DeferredSyncs, (self._sync_file, self._sync_directory)

    @contextlib.contextmanager
    def overlapping_writes(self) -> Iterator[None]:
        """Defer syncs inside the block. Blocks of several threads may overlap, and then share failures.

        The end of the block raises a failure that `settle` has not raised, unless the block fails with another error.
        """
        with self._changed:
            self._blocks += 1
            self._pool = self._pool or ThreadPoolExecutor(_THREADS, thread_name_prefix="paimon-cli-sync")
        try:
            yield
            if not self._raised or self._failed().keys() - self._raised:
                self.settle()
        finally:
            with self._changed:
                self._blocks -= 1
                pool, self._pool = (None, self._pool) if self._blocks else (self._pool, None)
            if pool is not None:
                pool.shutdown()
                with self._changed:
                    if not self._blocks:
                        self._begun, self._directories, self._raised = {}, set(), set()

    def takes_file(self, path: str, descriptor: int) -> bool:
        """Whether a new file, whose descriptor may be closed now, and its name will be synced in the background."""
        with self._changed:
            if self._pool is None:
                return False
            self._begun[path] = self._pool.submit(self._sync_file, path, os.dup(descriptor))
            self._directories.add(os.path.dirname(path))
            waiting = [sync for sync in self._begun.values() if not sync.done()]
        if len(waiting) > _MAX_WAITING:
            wait(waiting)
        return True

    def takes_directory(self, path: str) -> bool:
        """Whether a directory that has a new entry will be synced in the background."""
        with self._changed:
            if self._pool is not None:
                self._directories.add(path)
            return self._pool is not None

    def settle(self) -> None:
        """Wait until all new files and their names are on disk. A failure is raised on every call until no block is open, so that
        no job misses it.
        """
        self._raise_failure()
        with self._changed:
            if self._pool is not None:
                directories, self._directories = self._directories, set()
                self._begun |= {path: self._pool.submit(self._sync_directory, path) for path in directories}
        self._raise_failure()

    def _raise_failure(self) -> None:
        failed = self._failed()
        self._raised.update(failed)
        for sync in failed.values():
            sync.result()

    def _failed(self) -> dict[str, Future[None]]:
        """Failed syncs by path, after waiting for all that have begun. Successful ones are forgotten."""
        wait(list(self._begun.values()))
        with self._changed:
            self._begun = {path: sync for path, sync in self._begun.items() if not (sync.done() and sync.exception() is None)}
            return {path: sync for path, sync in self._begun.items() if sync.done()}
