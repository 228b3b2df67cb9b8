"""The child process that decodes ORC files, because Arrow's reader crashes on some damaged ones.

The child opens no files: its parent (`orc_file`) sends the bytes, so that files can be in any storage. A message on one of the
two pipes is a letter, a length, and that many bytes.
"""

from __future__ import annotations

import io
import json
import os
import resource
import signal
import struct
from typing import IO, Any, BinaryIO

import pyarrow as pa
from pyarrow import orc

_HEADER = struct.Struct("<cQ")
PLACE = struct.Struct("<QQ")
_PLAIN = pa.ipc.IpcWriteOptions()
_COMPRESSED = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", 1), use_threads=False)


class Message:
    """Kinds of messages between the two processes.

    To the parent: started; a request for the bytes at `PLACE` (offset, length); the answer; an error. From the parent: a request
    to decode; bytes of the file.
    """

    READY = b"r"
    READ = b"R"
    ANSWER = b"A"
    FAILED = b"F"
    ASK = b"Q"
    BYTES = b"B"


class DecoderRequest:
    """What a request is about: the numbers and the schema of a file, the rows of a stripe, or how it stores its timestamps."""

    SCHEMA = "schema"
    ROWS = "rows"
    DIGITS = "digits"


FAILURES = (pa.ArrowException, OSError, ValueError, LookupError, TypeError, ArithmeticError, MemoryError)
"""Errors that Arrow raises for bytes that are not an ORC file."""


def send(sink: IO[bytes], kind: bytes, content: Any) -> None:
    """Send one message. `content`: a buffer. Raises `BrokenPipeError` if the other process has closed the pipe."""
    _write(sink, _HEADER.pack(kind, len(content)))
    _write(sink, content)


def receive(source: IO[bytes]) -> tuple[bytes, pa.Buffer]:
    """The next message. Raises `EOFError` if the other process has ended."""
    kind, size = _HEADER.unpack(_read(source, _HEADER.size))
    return kind, _read(source, size)


def _write(sink: IO[bytes], content: Any) -> None:
    view = memoryview(content).cast("B")
    while view:
        view = view[sink.write(view) :]


def _read(source: IO[bytes], size: int) -> pa.Buffer:
    buffer = pa.allocate_buffer(size)
    view = memoryview(buffer).cast("B")
    while view:
        count = source.readinto(view)  # type: ignore[attr-defined]
        if not count:
            raise EOFError
        view = view[count:]
    return buffer


class ServedFile(io.RawIOBase):
    """A file of `size` bytes that the parent reads, and sends through the pipes."""

    def __init__(self, size: int, requests: IO[bytes], answers: IO[bytes]) -> None:
        self._size, self._requests, self._answers = size, requests, answers
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._position = offset + (0, self._position, self._size)[whence]
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, target: Any) -> int:
        size = min(len(target), max(0, self._size - self._position))
        if not size:
            return 0
        send(self._answers, Message.READ, PLACE.pack(self._position, size))
        content = memoryview(receive(self._requests)[1]).cast("B")
        target[: len(content)] = content
        self._position += len(content)
        return len(content)


def answer(
    answers: IO[bytes], source: BinaryIO, wanted: str, stripe: int, columns: list[Any] | None, batch_rows: int | None
) -> None:
    """Answer a request: with the numbers of rows and stripes and the schema, with a byte that says whether the columns of these
    numbers have negative digits in a stripe, or with the stripe's validated rows in Arrow IPC: as one batch, or compressed, in
    batches of `batch_rows`, because the parent holds as many stripes as it merges files.
    """
    if wanted == DecoderRequest.DIGITS:
        send(answers, Message.ANSWER, bytes([has_negative_digits(source, stripe, columns or [])]))
        return
    file = orc.ORCFile(source)
    if wanted == DecoderRequest.SCHEMA:
        send(answers, Message.ANSWER, PLACE.pack(file.nrows, file.nstripes) + file.schema.serialize().to_pybytes())
        return
    rows = file.read_stripe(stripe, columns=columns)
    rows.validate(full=True)  # in the child, because reading arrays with invalid offsets may crash, too
    if batch_rows is not None and rows.num_rows > batch_rows:
        compressed = pa.BufferOutputStream()
        _stream(compressed, rows, _COMPRESSED, batch_rows)
        send(answers, Message.ANSWER, compressed.getvalue())
        return
    measure = pa.MockOutputStream()
    _stream(measure, rows)
    _write(answers, _HEADER.pack(Message.ANSWER, measure.size()))
    _stream(pa.PythonFile(_UnclosedPipe(answers), "w"), rows)


def has_negative_digits(source: BinaryIO, stripe: int, columns: list[int]) -> bool:
    """Whether a timestamp in a stripe is stored with nanoseconds that are negative below the millisecond (see `orc_times`).

    Arrow adds seconds and nanoseconds, so pyorc reads the columns of these numbers. It stops at the first such value. A map that
    is no Python dictionary, as with lists for keys, cannot be looked at, and counts as one that holds such a value.
    """
    import pyorc  # few files need it
    from pyorc.errors import ORCError

    from paimon_cli.bucket.orc_converters import MILLI, Days, Nanoseconds

    class Found(Exception):
        """There is one."""

    class Digits(Nanoseconds):
        @staticmethod
        def from_orc(seconds: int, nanos: int, zone: Any) -> int:
            if nanos < 0 and nanos % MILLI:
                raise Found
            return 0 if seconds is None else seconds

    kinds = (pyorc.TypeKind.TIMESTAMP, pyorc.TypeKind.TIMESTAMP_INSTANT)
    try:
        converters = {**dict.fromkeys(kinds, Digits), pyorc.TypeKind.DATE: Days}
        reader = pyorc.Reader(source, column_indices=columns, converters=converters)
        for _ in reader.read_stripe(stripe):
            pass
    except (Found, TypeError):
        return True
    except ORCError as error:
        raise ValueError(str(error)) from error
    return False


class _UnclosedPipe(io.RawIOBase):
    """Writes all bytes or raises, and leaves the pipe open when it is closed itself."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        _write(self._pipe, content)
        return len(content)


def _stream(sink: Any, rows: pa.RecordBatch, options: pa.ipc.IpcWriteOptions = _PLAIN, batch_rows: int | None = None) -> None:
    with pa.ipc.new_stream(sink, rows.schema, options=options) as stream:
        for start in range(0, rows.num_rows, batch_rows) if batch_rows else (0,):
            stream.write_batch(rows.slice(start, batch_rows))


def main(read_bytes: int) -> None:
    """Answer requests until the parent closes the pipe or ends. Files are read in pieces of `read_bytes`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, too, which ends this process
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    requests, answers = io.FileIO(0, "r", closefd=False), io.FileIO(1, "w", closefd=False)
    send(answers, Message.READY, b"")
    while True:
        try:
            size, wanted, stripe, columns, batch_rows = json.loads(receive(requests)[1].to_pybytes())
        except EOFError:
            return
        try:
            # Arrow reads each stream of each column by itself. Most are a few bytes, so reads are combined.
            file = io.BufferedReader(ServedFile(size, requests, answers), read_bytes)
            answer(answers, file, wanted, stripe, columns, batch_rows)
        except FAILURES as error:
            send(answers, Message.FAILED, (str(error) or type(error).__name__).encode())
