"""An object storage that overlaps independent requests, so that together they take about one round trip.

Inside a `capabilities.overlapping_writes` block, small new files are uploaded by threads. Operations that could observe such a
file wait for its upload: it cannot be read, listed or deleted earlier, and no snapshot is published before all uploads have
finished. If an upload fails, the next publication raises its error and does not take place. If none follows, the end of the
block raises it.

Small files that will be opened soon (`capabilities.will_open`) are prefetched in parallel, with one request each.
"""

from __future__ import annotations

import threading
from collections.abc import Container, Iterable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, BinaryIO, cast

from paimon_cli.pieces import PIECES
from paimon_cli.storage.background_writes import BackgroundWrites
from paimon_cli.storage.capabilities import WrappedStorage
from paimon_cli.storage.object_storage import ObjectStorage
from paimon_cli.storage.object_upload import ObjectUpload
from paimon_cli.storage.ranged_file import RangedFile, fetching_threads
from paimon_cli.storage.storage import FileStatus, PutOutcome

UPLOADS = "send"
"""The purpose of the pool of uploads."""


class OverlappedStorage(WrappedStorage):
    """An `ObjectStorage` with background uploads and prefetching. A pickled copy starts without either.

    Equality and hash are those of `inner`, so that both share the result of a probe.
    """

    inner: ObjectStorage

    def __init__(self, inner: ObjectStorage) -> None:
        super().__init__(inner)
        self._uploads = BackgroundWrites(UPLOADS, PIECES.sent_bytes)
        self._changed = threading.Lock()
        self._fetched: dict[str, tuple[int, Future[memoryview]]] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OverlappedStorage) and self.inner == other.inner

    def __hash__(self) -> int:
        return hash(self.inner)

    def __repr__(self) -> str:
        return repr(self.inner)

    def __reduce__(self) -> tuple[Any, ...]:
        return OverlappedStorage, (self.inner,)

    def overlapping_writes(self) -> AbstractContextManager[None]:
        """See `capabilities.OverlapsWrites`."""
        return self._uploads.block()

    def settle(self) -> None:
        """See `capabilities.OverlapsWrites`."""
        self._uploads.settle()

    def will_open(self, files: Iterable[tuple[str, int]]) -> None:
        """See `capabilities.will_open`."""
        with self._changed:
            wanted = {
                path: size for path, size in files if 0 < size <= PIECES.whole_file_bytes and not self._uploads.unfinished(path)
            }
            held = sum(size for size, _ in self._fetched.values())
            for path, size in wanted.items():
                if path not in self._fetched and held + size > PIECES.prefetched_bytes:
                    held -= self._forget_all_but(wanted)
                    if held + size > PIECES.prefetched_bytes:
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

    def before(self, call: str, path: str) -> None:
        """Wait for the upload of the file that a call accesses; calls on directories wait for all uploads.

        If the upload has failed, the call raises its error, and not that the file is missing; only a deletion does not need it.
        """
        if call in ("list_directory", "delete_directory"):
            self._uploads.wait()
        elif (upload := self._uploads.unfinished(path)) is not None:
            upload.exception() if call == "delete" else upload.result()

    def honours_condition(self, path: str, data: bytes) -> bool:
        return self.inner.honours_condition(path, data)

    def write_new(self, path: str, data: bytes) -> None:
        if not self._uploads.begin(path, len(data), self.inner.write_new, path, data):
            self.inner.write_new(path, data)

    def open_output(self, path: str) -> BinaryIO:
        return cast(BinaryIO, ObjectUpload(path, self.write_new, self.inner.begin_upload))

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        self.settle()
        return self.inner.put_if_absent(path, data)

    def overwrite(self, path: str, data: bytes) -> None:
        self.settle()
        self.inner.overwrite(path, data)

    def delete_many(self, paths: Sequence[str]) -> None:
        """See `capabilities.DeletesMany`."""
        for path in paths:
            self.before("delete", path)
        self.inner.delete_many(paths)

    def first_entries(self, path: str, limit: int) -> list[FileStatus]:
        self._uploads.wait()
        return self.inner.first_entries(path, limit)
