"""Uploads of new objects, in one request or in parts by a thread."""

from __future__ import annotations

import io
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

from paimon_cli.pieces import PIECES
from paimon_cli.storage.counted_storage import WRITES, count_requests
from paimon_cli.storage.object_stores import StoreErrors

_PARTS_AT_ONCE = 2


class ObjectUpload(io.RawIOBase):
    """Writer of a new object: a single put if it is small, or parts of `upload_part_bytes`, uploaded by a thread meanwhile.

    The object appears on `close`. A `with` block that fails, or a writer that is never closed, leaves no object.
    """

    def __init__(self, path: str, put: Callable[[str, bytes], None], begin: Callable[[str], PartSender]) -> None:
        """`put(path, data)` stores a small object, `begin(path)` begins the upload of a large one."""
        self._path, self._put, self._begin = path, put, begin
        self._buffer = bytearray()
        self._sender: PartSender | None = None
        self._written = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._written

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        for start in range(0, len(view), PIECES.upload_part_bytes):
            self._buffer += view[start : start + PIECES.upload_part_bytes]
            if len(self._buffer) > PIECES.upload_part_bytes:
                self._send(bytes(self._buffer[: PIECES.upload_part_bytes]))
                del self._buffer[: PIECES.upload_part_bytes]
        self._written += len(view)
        return len(view)

    def close(self) -> None:
        if self.closed:
            return
        try:
            if self._sender is None:
                self._put(self._path, bytes(self._buffer))
            else:
                self._send(bytes(self._buffer))
                self._sender.finish()
        except BaseException:
            self.abort()
            raise
        super().close()

    def abort(self) -> None:
        """Discard the upload. Parts that cannot be removed now are left to the lifecycle rules of the bucket."""
        if self.closed:
            return
        super().close()
        self._buffer.clear()
        if self._sender is not None:
            self._sender.abort()

    def _send(self, part: bytes) -> None:
        if self._sender is None:
            self._sender = self._begin(self._path)
        self._sender.put(part)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            self.close()
        else:
            self.abort()

    def __del__(self) -> None:
        if not sys.is_finalizing():
            self.abort()


class _Aborted(Exception):
    """Raised to obstore in place of the next part, so that it removes the parts already uploaded."""


class PartSender:
    """A thread in which obstore uploads parts one by one as they are handed over. `client`, `key`: of the object; `errors`: says
    what a failure of the store means.
    """

    def __init__(self, client: Any, key: str, errors: StoreErrors) -> None:
        self._client, self._key, self._errors = client, key, errors
        self._waiting: deque[bytes | None] = deque()
        self._changed = threading.Condition()
        self._failure: BaseException | None = None
        self._is_aborted = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def put(self, part: bytes | None) -> None:
        """Hand over a part (None ends the upload), waiting for the previous one. Raises the error of a failed upload."""
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting or self._failure is not None)
            if self._failure is None:
                self._waiting.append(part)
                self._changed.notify_all()
                return
        self._raise()

    def finish(self) -> None:
        self.put(None)
        self._thread.join()
        self._raise()

    def abort(self) -> None:
        with self._changed:
            self._is_aborted = True
            self._changed.notify_all()
        self._thread.join()

    def _raise(self) -> None:
        if self._failure is not None:
            with self._errors:
                raise self._failure

    def _run(self) -> None:
        try:
            self._client.put(self._key, self._parts(), chunk_size=PIECES.upload_part_bytes, max_concurrency=_PARTS_AT_ONCE)
        except BaseException as failure:  # raised again in the thread of the writer
            with self._changed:
                self._failure = failure
                self._changed.notify_all()

    def _parts(self) -> Iterator[bytes]:
        count_requests(WRITES, 2)  # which begin and end the upload
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._is_aborted)
                if self._is_aborted:
                    raise _Aborted
                part = self._waiting.popleft()
                self._changed.notify_all()
            if part is None:
                return
            count_requests(WRITES)
            yield part
