"""An object storage that overlaps independent requests, so that together they take about one round trip.

Inside a `storage.overlapping_writes` block, small new files are uploaded by threads. Operations that could observe such a file
wait for its upload: it cannot be read, listed or deleted earlier, and no snapshot is published before all uploads have finished.
If an upload fails, the next publication raises its error and does not take place. If none follows, the end of the block raises
it.

Small files that will be opened soon (`storage.will_open`) are prefetched in parallel, with one request each.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Container, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, BinaryIO, cast

from paimon_cli.storage.object_storage import ObjectStorage, ObjectUpload
from paimon_cli.storage.ranged_file import WHOLE_BYTES, RangedFile, fetching_threads
from paimon_cli.storage.storage import FileStatus, PutOutcome, WrappedStorage

_UPLOAD_THREADS = 8
_MAX_BYTES = 64 << 20
"""Limit for uploads in progress; a writer above it waits for all of them."""
_MAX_FETCHED = 32 << 20
"""Limit for prefetched files that have not been opened."""


class OverlappedStorage(WrappedStorage):
    """An `ObjectStorage` with background uploads and prefetching. A pickled copy starts without either.

    Equality and hash are those of `inner`, so that both share the result of a probe.
    """

    inner: ObjectStorage

    def __init__(self, inner: ObjectStorage) -> None:
        super().__init__(inner)
        self._changed = threading.Lock()
        self._blocks = 0
        self._pool: ThreadPoolExecutor | None = None
        self._sent: dict[str, tuple[int, Future[None]]] = {}
        self._raised: set[str] = set()
        """Paths of failed uploads whose error a publication has already raised."""
        self._fetched: dict[str, tuple[int, Future[memoryview]]] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OverlappedStorage) and self.inner == other.inner

    def __hash__(self) -> int:
        return hash(self.inner)

    def __repr__(self) -> str:
        return repr(self.inner)

    def __reduce__(self) -> tuple[Any, ...]:
        return OverlappedStorage, (self.inner,)

    @contextlib.contextmanager
    def overlapping_writes(self) -> Iterator[None]:
        """See `storage.OverlapsWrites`. Blocks of several threads may overlap, and then share failures.

        The end of the block raises a failure that no publication has raised, unless the block fails with another error.
        """
        with self._changed:
            self._blocks += 1
            self._pool = self._pool or ThreadPoolExecutor(_UPLOAD_THREADS, thread_name_prefix="paimon-cli-send")
        try:
            yield
            if self._failed().keys() - self._raised:
                self.settle()
        finally:
            with self._changed:
                self._blocks -= 1
                pool, self._pool = (None, self._pool) if self._blocks else (self._pool, None)
            if pool is not None:
                pool.shutdown()
                with self._changed:
                    if not self._blocks:
                        self._sent, self._raised = {}, set()

    def will_open(self, files: Iterable[tuple[str, int]]) -> None:
        """See `storage.will_open`."""
        with self._changed:
            wanted = {path: size for path, size in files if 0 < size <= WHOLE_BYTES and path not in self._sent}
            held = sum(size for size, _ in self._fetched.values())
            for path, size in wanted.items():
                if path not in self._fetched and held + size > _MAX_FETCHED:
                    held -= self._forget_all_but(wanted)
                    if held + size > _MAX_FETCHED:
                        break
                if path not in self._fetched:
                    self._fetched[path] = size, fetching_threads().submit(self.inner.fetch_range, path, 0, size)
                    held += size

    def _forget_all_but(self, wanted: Container[str]) -> int:
        left = [path for path in self._fetched if path not in wanted]
        return sum(self._fetched.pop(path)[0] for path in left)

    def open_sized(self, path: str, size: int) -> BinaryIO:
        self.before("open_input", path)
        with self._changed:
            known, content = self._fetched.pop(path, (0, None))
        file = RangedFile(partial(self.inner.fetch_range, path), size)
        if content is not None and known == size:
            file.hold(content)
        return cast(BinaryIO, file)

    def settle(self) -> None:
        """See `storage.OverlapsWrites`. A failure is raised on every call until no block is open, so that no job misses it."""
        failed = self._failed()
        self._raised.update(failed)
        for upload in failed.values():
            upload.result()

    def _failed(self) -> dict[str, Future[None]]:
        """Failed uploads by path, after waiting for all uploads. Successful ones are forgotten."""
        self._wait()
        with self._changed:
            self._sent = {path: sent for path, sent in self._sent.items() if not (sent[1].done() and sent[1].exception() is None)}
            return {path: upload for path, (_, upload) in self._sent.items() if upload.done()}

    def before(self, call: str, path: str) -> None:
        """Wait for the upload of the file that a call accesses; calls on directories wait for all uploads."""
        if call in ("list_directory", "delete_directory"):
            self._wait()
        elif (sent := self._sent.get(path)) is not None:
            sent[1].exception()

    def honours_condition(self, path: str, data: bytes) -> bool:
        return self.inner.honours_condition(path, data)

    def write_new(self, path: str, data: bytes) -> None:
        with self._changed:
            pool = self._pool
            if pool is not None:
                self._sent[path] = len(data), pool.submit(self.inner.write_new, path, data)
            pending = sum(size for size, upload in self._sent.values() if not upload.done())
        if pool is None:
            self.inner.write_new(path, data)
        elif pending > _MAX_BYTES:
            self._wait()

    def open_output(self, path: str) -> BinaryIO:
        return cast(BinaryIO, ObjectUpload(self.inner, path, self.write_new))

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        self.settle()
        return self.inner.put_if_absent(path, data)

    def overwrite(self, path: str, data: bytes) -> None:
        self.settle()
        self.inner.overwrite(path, data)

    def first_entries(self, path: str, limit: int) -> list[FileStatus]:
        self._wait()
        return self.inner.first_entries(path, limit)

    def _wait(self) -> None:
        """Wait until all uploads have finished or failed."""
        for _, upload in list(self._sent.values()):
            upload.exception()
