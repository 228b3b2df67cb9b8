"""Sources of events that are text: files, globs, URLs and standard input, as streams of lines."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO, cast

from paimon_cli.errors import NotSupported, UsageError
from paimon_cli.ingest.changes.event_lines import MAX_EVENT_BYTES, EventLines, event_blocks, reading
from paimon_cli.ingest.changes.read_marks import source_key
from paimon_cli.ingest.input_files import STDIN, SourceFile, source_files
from paimon_cli.ingest.text_blocks import text_stream
from paimon_cli.pieces import PIECES

STANDARD_INPUT = "<stdin>"


@dataclass(frozen=True)
class EventSource:
    """A source that has been opened. `name`: for messages; `key`: under which tables remember it. `is_begun`: its first line has
    an end.
    """

    name: str
    key: str
    stream: BinaryIO
    is_begun: bool = True

    def blocks(
        self, size: int, begin: int = 0, *, is_growing: bool = False, on_torn: Callable[[], None] | None = None
    ) -> Iterator[EventLines]:
        """Its events from a position on, in blocks of about that many bytes; see `event_blocks`."""
        if begin:
            with reading(self.name):
                self.stream.seek(begin)
        return event_blocks(self.stream, self.name, size, begin, is_growing=is_growing, on_torn=on_torn)


@dataclass(frozen=True)
class EventSources:
    """The sources of an ingest, in order. `options`: of the catalog, for files in an object store."""

    names: tuple[str, ...]
    options: Mapping[str, str]

    def files(self, *, may_come: bool = False) -> list[SourceFile | None]:
        """The files; None for standard input. `may_come`: there may be none yet, and they are dated. Raises `NotFound`,
        `UsageError`, `NotSupported`.
        """
        if not self.names:
            raise UsageError("no source is named", "ingest needs files or topics", "add FILE..., a glob, or - for stdin")
        if self.names.count(STDIN) > 1:
            raise UsageError("standard input is named twice", "it can be read once", "leave one - out")
        found = list[SourceFile | None]()
        for name in self.names:
            if name == STDIN and may_come:
                raise NotSupported("--follow with standard input", "it ends where its writer ends", "leave --follow out")
            if name == STDIN:
                found.append(None)
                continue
            files = source_files([name], "json", self.options, allow_empty=may_come)
            found += [file.dated() for file in files] if may_come else files
        return found

    @contextmanager
    def opened(self, file: SourceFile | None) -> Iterator[EventSource]:
        """Open a file, or standard input."""
        if file is None:
            yield _source(STANDARD_INPUT, STANDARD_INPUT, cast(BinaryIO, sys.stdin.buffer))
            return
        with file.storage.open_input(file.path) as stream:
            yield _source(file.label, file.path, text_stream(stream, file.path, file.label))


def _source(name: str, path: str, stream: BinaryIO) -> EventSource:
    """The source of a stream, of which the first line is read to recognise it."""
    with reading(name):
        first = stream.readline(MAX_EVENT_BYTES)
    return EventSource(name, source_key(path, first.strip()), cast(BinaryIO, _Rejoined(first, stream)), first.endswith(b"\n"))


class _Rejoined(io.RawIOBase):
    """A stream whose first bytes have been read."""

    def __init__(self, first: bytes, rest: BinaryIO) -> None:
        self._first, self._rest = first, rest

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        first, self._first = (self._first, b"") if size < 0 else (self._first[:size], self._first[size:])
        return first + self._rest.read(size if size < 0 else size - len(first)) if size < 0 or len(first) < size else first

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        """Stand at a position from the beginning, or at the end. In an archive, what is before it is read and dropped."""
        assert whence == io.SEEK_SET
        if self._rest.seekable():
            self._first = b""
            return self._rest.seek(offset)
        left = offset
        while left and (dropped := len(self.read(min(left, PIECES.text_read_bytes)))):
            left -= dropped
        return offset - left

    def readline(self, size: int | None = -1) -> bytes:
        if not self._first:
            return self._rest.readline(-1 if size is None else size)
        taken, self._first = self._first, b""
        return taken
