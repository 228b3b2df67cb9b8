"""A seekable file over range requests, which prefetches announced ranges with few parallel requests.

A Parquet reader requests its column chunks one after the other. Their offsets are known from the footer, so they are announced
beforehand: nearby ranges are coalesced, split into pieces of similar size, and fetched in parallel, ahead of the decoder. A
piece is dropped once it has been read completely, so memory stays bounded.
"""

from __future__ import annotations

import functools
import io
import os
import sys
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from itertools import pairwise

from paimon_cli.pieces import PIECES
from paimon_cli.storage.threads import concurrency, thread_pool

Range = tuple[int, int]
"""Byte range [start, end)."""
Fetch = Callable[[int, int], memoryview]
"""Reads the bytes [start, end) with one request."""

_FETCH_THREADS = 16
FETCHES = "fetch"
"""The purpose of the pool of range requests."""


def pieces_of(ranges: Iterable[Range], hole: int | None = None, most: int | None = None) -> list[Range]:
    """The ranges sorted, coalesced across gaps of up to `hole` bytes, and split into similar pieces of up to `most` bytes."""
    hole = PIECES.hole_bytes if hole is None else hole
    joined: list[Range] = []
    for start, end in sorted(ranges):
        if joined and start <= joined[-1][1] + hole:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        elif end > start:
            joined.append((start, end))
    return [piece for whole in joined for piece in _cut(whole, most or PIECES.request_bytes)]


def requests_of(size: int) -> int:
    """The requests that fetch all of a data file of `size` bytes: a large one takes two for its end first."""
    pieces = max(1, -(-size // PIECES.request_bytes))
    return pieces if size <= PIECES.request_ahead_bytes else pieces + 2


def _cut(whole: Range, most: int) -> list[Range]:
    start, end = whole
    count = -(-(end - start) // most)
    bounds = [start + (end - start) * number // count for number in range(count + 1)]
    return list(pairwise(bounds))


class _Piece:
    """An announced byte range, kept until its `left` wanted bytes have been read. `group`: the announced group it belongs to."""

    def __init__(self, start: int, end: int, left: int, group: int) -> None:
        self.start, self.end, self.left, self.group = start, end, left, group
        self.content: Future[memoryview] | None = None

    @property
    def size(self) -> int:
        return self.end - self.start


class RangedFile(io.RawIOBase):
    """A file of known size (bytes), read by `fetch`. Not thread-safe; requests run in threads shared by the process."""

    def __init__(self, fetch: Fetch, size: int) -> None:
        self._fetch = fetch
        self.size = size
        self._position = 0
        self._plan: list[_Piece] = []
        self._starts: list[int] = []
        self._waiting: deque[list[_Piece]] = deque()
        self._begun = 0
        """Bytes requested but not read yet."""
        self._last: tuple[int, memoryview] = (0, memoryview(b""))

    def fetch_by(self, way: Callable[[Fetch], Fetch]) -> None:
        """Wrap the fetch function, for example to measure requests. Must be called before the first read."""
        self._fetch = way(self._fetch)

    @property
    def is_planned(self) -> bool:
        """Whether ranges have been announced that are not read yet."""
        return bool(self._plan)

    def expect(self, groups: Iterable[Iterable[Range]], ahead: int | None = None) -> None:
        """Announce ranges, grouped in the order in which they are read, and prefetch as many groups as fit into `ahead` bytes.

        The first group is prefetched even if it does not fit; a larger group than `request_ahead_bytes` is fetched piece by piece
        on demand. When the reader reaches a group, all groups before the previous one are dropped.
        """
        self._ahead = PIECES.request_ahead_bytes if ahead is None else ahead
        planned = [_planned(list(group), number) for number, group in enumerate(groups)]
        self._waiting = deque(group for group in planned if group)
        self._plan = sorted((piece for group in planned for piece in group), key=lambda piece: piece.start)
        self._starts = [piece.start for piece in self._plan]
        self._begun = 0
        self._fetch_ahead()

    def hold(self, content: Future[memoryview]) -> None:
        """Read from `content`, the whole file, which is being fetched already."""
        piece = _Piece(0, self.size, sys.maxsize, 0)
        piece.content = content
        self._plan, self._starts, self._begun = [piece], [0], self.size

    def expect_all(self) -> None:
        """Announce the whole file. Up to `request_ahead_bytes` it is kept until `close`, as footers are read more than once."""
        if self.is_planned:
            return
        self.expect([[(0, self.size)]])
        if self.size <= PIECES.request_ahead_bytes:
            for piece in self._plan:
                piece.left = sys.maxsize

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}[whence]
        return self._position

    def tell(self) -> int:
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        start = self._position
        end = self.size if size is None or size < 0 else min(start + size, self.size)
        if end <= start:
            return b""
        self._position = end
        return b"".join(self._parts(start, end))

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        found = self.read(len(buffer))
        buffer[: len(found)] = found
        return len(found)

    def close(self) -> None:
        for piece in self._plan:
            if piece.content is not None:
                piece.content.cancel()
        self._plan, self._starts, self._last = [], [], (0, memoryview(b""))
        self._waiting.clear()
        super().close()

    def _parts(self, start: int, end: int) -> list[memoryview]:
        parts = []
        while start < end:
            index = bisect_right(self._starts, start) - 1
            if index >= 0 and start < self._plan[index].end:
                part = self._planned(self._plan[index], start, end)
            else:
                following = self._starts[index + 1] if index + 1 < len(self._starts) else self.size
                part = self._unplanned(start, min(end, following))
            parts.append(part)
            start += len(part)
        return parts

    def _planned(self, piece: _Piece, start: int, end: int) -> memoryview:
        if piece.content is None:
            for done in [other for other in self._plan if other.group < piece.group - 1]:
                self._drop(done)
            self._begin(piece)
        assert piece.content is not None
        part = piece.content.result()[start - piece.start : end - piece.start]
        piece.left -= len(part)
        if piece.left <= 0:
            self._drop(piece)
            self._fetch_ahead()
        return part

    def _drop(self, piece: _Piece) -> None:
        index = bisect_right(self._starts, piece.start) - 1
        del self._plan[index], self._starts[index]
        self._begun -= 0 if piece.content is None else piece.size
        piece.left = 0

    def _unplanned(self, start: int, end: int) -> memoryview:
        """Read bytes that were not announced: from the result of the last such read, or with another request."""
        begin, content = self._last
        if not (begin <= start and end <= begin + len(content)):
            at_least = PIECES.tail_bytes if end == self.size else PIECES.least_read_bytes
            begin = max(0, min(start, self.size - at_least)) if end == self.size else start
            content = self._fetch(begin, max(end, min(self.size, begin + at_least)))
            self._last = (begin, content)
        return content[start - begin : end - begin]

    def _fetch_ahead(self) -> None:
        while self._waiting:
            missing = [piece for piece in self._waiting[0] if piece.content is None and piece.left > 0]
            wanted = sum(piece.size for piece in missing)
            if wanted > PIECES.request_ahead_bytes or (self._begun and self._begun + wanted > self._ahead):
                return
            self._waiting.popleft()
            for piece in missing:
                self._begin(piece)

    def _begin(self, piece: _Piece) -> None:
        piece.content = fetching_threads().submit(self._fetch, piece.start, piece.end)
        self._begun += piece.size


def _planned(ranges: list[Range], group: int) -> list[_Piece]:
    """The pieces of a group. If it is too large to hold, they are smaller: two per range fit into `request_ahead_bytes`."""
    total = sum(end - start for start, end in ranges)
    most = (
        PIECES.request_bytes
        if total <= PIECES.request_ahead_bytes
        else min(PIECES.request_bytes, max(PIECES.least_read_bytes, 2 * PIECES.request_ahead_bytes // len(ranges)))
    )
    found = []
    for start, end in pieces_of(ranges, most=most):
        wanted = sum(max(0, min(end, last) - max(start, first)) for first, last in ranges)
        found.append(_Piece(start, end, wanted, group))
    return found


def fetching_threads() -> Executor:
    """The pool for range requests: one for the process, unless they do not run in threads."""
    return _threads(os.getpid()) if concurrency().is_threaded else thread_pool(_FETCH_THREADS, FETCHES)


@functools.lru_cache(maxsize=1)
def _threads(process: int) -> Executor:
    return thread_pool(_FETCH_THREADS, FETCHES)
