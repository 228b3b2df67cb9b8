"""ORC files with Arrow: columns as its writer needs them, and a reader that decodes in another process.

Arrow's ORC reader crashes on some damaged files. So decoders (`orc_decoder`) run as child processes, and are reused; a crash
ends only the decoder, and is reported as a damaged file. A decoder works on one request at a time, so that no file can corrupt
the memory in which another is being decoded. A thread that needs one while all are at work starts another. In a merge, which
takes longer than the decoding before it, it waits a moment for that of another thread: each takes 40 MB before it reads a byte.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import IO, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.bucket.orc_decoder import PLACE, DecoderRequest, Message, receive, send
from paimon_cli.datatypes.data_type import ArrayType, DataType, RowType
from paimon_cli.errors import StorageUnavailable
from paimon_cli.pieces import PIECES
from paimon_cli.storage.redaction import environment_without_secrets


def holds_chars(t: DataType) -> bool:
    """Whether the type is a CHAR, or contains one."""
    return any(part.root == "CHAR" for part in t.parts())


def unpadded(column: pa.Array, t: DataType) -> pa.Array:
    """A column from an ORC file, without the blanks that pad CHARs."""
    if not holds_chars(t):
        return column
    if t.root == "CHAR":
        return pc.utf8_rtrim(column, " ")
    absent = column.is_null() if column.null_count else None
    if isinstance(t, RowType):
        fields = [unpadded(column.field(i), field.type) for i, field in enumerate(t.fields)]
        return pa.StructArray.from_arrays(fields, fields=list(column.type), mask=absent)
    offsets = column.offsets.to_numpy()
    inside = slice(offsets[0], offsets[-1])
    starts = pa.array(offsets - offsets[0])
    if isinstance(t, ArrayType):
        return pa.ListArray.from_arrays(starts, unpadded(column.values[inside], t.element), type=column.type, mask=absent)
    key, value = t.children
    keys, items = unpadded(column.keys[inside], key), unpadded(column.items[inside], value)
    return pa.MapArray.from_arrays(starts, keys, items, type=column.type, mask=absent)


def orc_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of a table whose columns were converted by `orc_column`."""
    return pa.schema([pa.field(field.name, _orc_type(field.type)) for field in schema])


def orc_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column as Paimon stores it in ORC: TIME as an integer, every nested field nullable, no values under null parents."""
    return pa.chunked_array([_orc_array(chunk) for chunk in column.chunks], _orc_type(column.type))


def _orc_type(t: pa.DataType) -> pa.DataType:
    if pa.types.is_time(t):
        return pa.int32()
    if pa.types.is_list(t):
        return pa.list_(_orc_type(t.value_type))
    if pa.types.is_map(t):
        return pa.map_(_orc_type(t.key_type), _orc_type(t.item_type))
    if pa.types.is_struct(t):
        return pa.struct([pa.field(field.name, _orc_type(field.type)) for field in t])
    return t


def _orc_array(array: pa.Array) -> pa.Array:
    t = array.type
    if pa.types.is_time(t):
        return array.view(pa.int32())
    if not pa.types.is_nested(t):
        return array
    absent = array.is_null() if array.null_count else None
    wanted = _orc_type(t)
    if pa.types.is_struct(t):
        fields = [_orc_array(_null_with_parent(array.field(i), absent)) for i in range(t.num_fields)]
        return pa.StructArray.from_arrays(fields, fields=list(wanted), mask=absent)
    starts, entries = _visible_entries(array)
    if pa.types.is_map(t):
        keys, items = _orc_array(array.keys.take(entries)), _orc_array(array.items.take(entries))
        return pa.MapArray.from_arrays(starts, keys, items, type=wanted, mask=absent)
    return pa.ListArray.from_arrays(starts, _orc_array(array.values.take(entries)), type=wanted, mask=absent)


def _null_with_parent(field: pa.Array, absent: pa.Array | None) -> pa.Array:
    """The field of a struct array, null wherever the struct is."""
    if absent is None:
        return field
    rows = pa.array(np.arange(len(field)), mask=absent.to_numpy(zero_copy_only=False))
    return pc.take(field, rows)


def _visible_entries(array: pa.Array) -> tuple[pa.Array, pa.Array]:
    """New offsets of a list or map array, and the indices of the entries that they refer to: those of rows that are not null."""
    offsets = array.offsets.to_numpy()
    lengths = np.diff(offsets)
    if array.null_count:
        lengths = np.where(array.is_valid().to_numpy(zero_copy_only=False), lengths, 0)
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    first = np.repeat(offsets[:-1].astype(np.int64) - starts[:-1], lengths)
    return pa.array(starts), pa.array(first + np.arange(int(starts[-1])))


_DECODER = """
import sys, types
sys.modules["numpy"] = None
files = sys.modules["pyarrow.fs"] = types.ModuleType("pyarrow.fs")
files.__getattr__ = lambda name: None
from paimon_cli.bucket.orc_decoder import main
main(int(sys.argv[1]))
"""
"""The program of a decoder. It opens no files, and makes no arrays of numpy, so that Arrow imports neither its clients of object
stores (9 MB) nor numpy, which takes half of the start. It loads as little of this package as it can, too."""
_RETURNS_MEMORY = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_MMAP_THRESHOLD_": str(128 << 10)}
"""Arrow's own pool and, by default, glibc keep most of what a decoder has freed, in each decoder."""
_ONE_THREAD = pa.ipc.IpcReadOptions(use_threads=False)
ATTEMPTS = 2
"""The first crash of a decoder may have come from outside, such as a signal; a file on which two crash is damaged."""


class Refusal(pa.ArrowInvalid):  # type: ignore[misc]
    """The error that the decoder reported for these bytes."""


class Ended(Exception):
    """The decoder process has ended."""


class OrcProcess:
    """A decoder process and the pipes to it."""

    def __init__(self) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-c", _DECODER, str(PIECES.orc_read_bytes)],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=os.sep,  # Python imports from the working directory first, which must not be the user's
            env={
                **environment_without_secrets(),
                "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)),
                **_RETURNS_MEMORY,
            },
            pipesize=PIECES.pipe_bytes,
        )

    def receive(self) -> tuple[bytes, pa.Buffer]:
        """The next message from the decoder. Raises `Ended`."""
        try:
            return receive(_pipe(self._child.stdout))
        except EOFError as error:
            raise Ended from error

    def send(self, kind: bytes, content: bytes) -> None:
        """Send a message to the decoder. Raises `Ended`."""
        try:
            send(_pipe(self._child.stdin), kind, content)
        except BrokenPipeError as error:
            raise Ended from error

    def answer_to(self, request: bytes, source: BinaryIO) -> pa.Buffer:
        """The answer to a request.

        The decoder reads the file from `source`. Raises `Refusal`, `Ended`, and what `source` raises.
        """
        self.send(Message.ASK, request)
        while True:
            kind, content = self.receive()
            if kind == Message.ANSWER:
                return content
            if kind != Message.READ:
                raise Refusal(content.to_pybytes().decode(errors="replace"))
            offset, size = PLACE.unpack(content)
            source.seek(offset)
            self.send(Message.BYTES, source.read(size))

    def end(self) -> str:
        """End the process if it still runs. Returns how it ended, such as SIGSEGV."""
        self._child.kill()
        code = self._child.wait()
        for pipe in (self._child.stdin, self._child.stdout):
            _pipe(pipe).close()
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"


PATIENCE_SECONDS = 0.5
"""How long a thread waits for a decoder of another one, which may be waiting for the store itself, before it starts its own."""
_idle: list[OrcProcess] = []
"""Decoders without a request, under the lock of `_requests`. A decoder ends with its pipes, at the latest."""


class _Requests:
    """Counts the requests, so that a thread knows whether to wait for a decoder that is at work.

    An interrupt may leave a count too high. That costs a wait, and no thread waits for ever.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._at_work = self._waiting = 0

    def begin(self, shares: bool) -> OrcProcess | None:
        """A decoder to use; None if one is to be started. `shares`: waits a while for one, unless as many threads do already."""
        with self._changed:
            if shares and not _idle and self._waiting < self._at_work:
                self._waiting += 1
                try:
                    self._changed.wait_for(lambda: _idle, PATIENCE_SECONDS)
                finally:
                    self._waiting -= 1
            self._at_work += 1
            return _idle.pop() if _idle else None

    def end(self, process: OrcProcess | None) -> None:
        """`process`: the decoder that has answered and is free again, if any."""
        with self._changed:
            self._at_work -= 1
            if process is not None:
                _idle.append(process)
            self._changed.notify_all()

    def take_idle(self) -> list[OrcProcess]:
        """All decoders without a request, which are the caller's then."""
        with self._changed:
            taken = [*_idle]
            _idle.clear()
            return taken


_requests = _Requests()


def answer_to(request: bytes, source: BinaryIO, shares: bool = False) -> pa.Buffer:
    """The answer of a decoder. `shares`: see `_Requests.begin`. Raises `pa.ArrowInvalid` if the bytes are not an ORC file,
    `StorageUnavailable` if no process can be started.
    """
    requests, free = _requests, None
    process = requests.begin(shares)
    try:
        ends: list[str] = []
        while len(ends) < ATTEMPTS:
            process = process or _started()
            try:
                answer = process.answer_to(request, source)
            except Ended:
                ends.append(process.end())
                process = None
            except BaseException as error:
                discard(process, error)
                raise
            else:
                free = process
                return answer
        raise pa.ArrowInvalid(f"Arrow's ORC reader crashes on it: {', '.join(dict.fromkeys(ends))}")
    finally:
        requests.end(free)


def discard(process: OrcProcess, error: BaseException) -> None:
    """End a decoder after an error: a damaged file may have corrupted its memory, and an interrupt leaves messages behind."""
    process.end()


def _started() -> OrcProcess:
    what = "cannot start the process that decodes ORC"
    try:
        process = OrcProcess()
    except OSError as error:  # must not be taken for a damaged file
        raise StorageUnavailable(what, str(error)) from error
    try:
        process.receive()
    except Ended as error:
        raise StorageUnavailable(what, f"{sys.executable}: {process.end()}") from error
    return process


def end_idle() -> None:
    """End all decoders that wait for requests."""
    for process in _requests.take_idle():
        process.end()


def _begin_anew() -> None:
    """In a child process: the decoders, and the threads that use them, are those of its parent."""
    global _requests
    _idle.clear()
    _requests = _Requests()


atexit.register(end_idle)
os.register_at_fork(after_in_child=_begin_anew)


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe


class OrcFile:
    """The interface of pyarrow's `ORCFile`, for untrusted bytes. `source`: any seekable reader, which stays open. `shares`: the
    thread may wait for a decoder that another one uses.

    All methods raise `pa.ArrowInvalid` for bytes that are not an ORC file, also if they crash Arrow's reader,
    `StorageUnavailable` if no process can be started, and what `source` raises.
    """

    def __init__(self, source: BinaryIO, shares: bool = False) -> None:
        self._source = source
        self._shares = shares
        self._size = source.seek(0, os.SEEK_END)
        answer = self._request(DecoderRequest.SCHEMA)
        self.nrows: int
        self.nstripes: int
        self.nrows, self.nstripes = PLACE.unpack(answer.slice(0, PLACE.size))
        self.schema: pa.Schema = pa.ipc.read_schema(answer.slice(PLACE.size))

    def read_stripe(self, number: int, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """The rows of a stripe, with these columns (None: all) in the file's order."""
        return next(self.stripe_batches(number, columns))

    def stripe_batches(
        self, number: int, columns: Sequence[str] | None = None, batch_rows: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a stripe like `read_stripe`, in batches of `batch_rows` (None: one). Until a batch is returned it takes a
        quarter of its memory or less, for more time of the processor: where the stripes of many files are read at once.
        """
        answer = self._request(DecoderRequest.ROWS, number, columns, batch_rows)
        yield from pa.ipc.open_stream(answer, options=_ONE_THREAD)

    def has_negative_digits(self, number: int, column: str) -> bool:
        """Whether a stripe stores a time of the column in a form that Java's Paimon does not read (see `orc_times`). Slow."""
        position = self.schema.get_field_index(column)
        if position < 0:
            raise pa.ArrowInvalid(f"it has no column {column}, or several")
        return self._request(DecoderRequest.DIGITS, number, [position]).to_pybytes() == b"\1"

    def _request(
        self, wanted: str, stripe: int = 0, columns: Sequence[str | int] | None = None, batch_rows: int | None = None
    ) -> pa.Buffer:
        """Send a request (`DecoderRequest`). The decoder opens the file for each, so any decoder can answer."""
        request = json.dumps([self._size, wanted, stripe, columns, batch_rows]).encode()
        return answer_to(request, self._source, self._shares)
