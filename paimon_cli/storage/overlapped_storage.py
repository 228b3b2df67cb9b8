"""An object storage whose requests overlap: what does not depend on each other takes the time of one trip.

Within a block of `storage.written_behind` a small new file counts as written when it has been handed to a thread. Whatever could
show it, or rely on it, waits first: nothing is published, and the file is not read, listed or deleted, before it has arrived. If
one of the files could not be stored, the next publication raises that, and is not made; where none follows, the end of the block
raises it.

Small files that will be opened soon (`storage.will_open`) are fetched side by side, each by one request.
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

_AT_ONCE = 8
_MOST_BYTES = 64 << 20
"""The most bytes of files that were handed over and have not arrived."""
_MOST_FETCHED = 32 << 20
"""The most bytes of files that were fetched and have not been opened."""


class OverlappedStorage(WrappedStorage):
    """A pickled copy has nothing under way: tasks of other processes wait for what they write."""

    inner: ObjectStorage

    def __init__(self, inner: ObjectStorage) -> None:
        super().__init__(inner)
        self._changed = threading.Lock()
        self._blocks = 0
        self._pool: ThreadPoolExecutor | None = None
        self._sent: dict[str, tuple[int, Future[None]]] = {}
        self._raised: set[str] = set()
        """Files that could not be stored, where the failure has been raised."""
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
    def behind(self) -> Iterator[None]:
        """Hand new files over until the block ends, which waits for them. Blocks may overlap: then they share their failures.

        A failure that no publication has raised is raised here, unless the block ends with another error.
        """
        with self._changed:
            self._blocks += 1
            self._pool = self._pool or ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="paimon-cli-send")
        try:
            yield
            if any(path not in self._raised for path in self._failed()):
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
                if path not in self._fetched and held + size > _MOST_FETCHED:
                    held -= self._forget_all_but(wanted)
                    if held + size > _MOST_FETCHED:
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
        """See `storage.OverlapsRequests`. What failed goes on failing until no block is open: no overlapping job may miss it."""
        failed = self._failed()
        self._raised.update(failed)
        for one in failed.values():
            one.result()

    def _failed(self) -> dict[str, Future[None]]:
        """What could not be stored, after all that was handed over has arrived or failed; only that is kept."""
        self._wait()
        with self._changed:
            self._sent = {path: sent for path, sent in self._sent.items() if not (sent[1].done() and sent[1].exception() is None)}
            return {path: one for path, (_, one) in self._sent.items() if one.done()}

    def before(self, call: str, path: str) -> None:
        """A call waits for the file that it is about, or for all."""
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
            waiting = sum(size for size, one in self._sent.values() if not one.done())
        if pool is None:
            self.inner.write_new(path, data)
        elif waiting > _MOST_BYTES:
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
        """Until all that was handed over has arrived or failed."""
        for _, one in list(self._sent.values()):
            one.exception()
