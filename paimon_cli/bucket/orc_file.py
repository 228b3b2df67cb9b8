"""ORC through Arrow: schema and columns for its writer, and a reader that decodes in another process.

Arrow's ORC reader crashes on some damaged files. Decoders (`orc_decoder`) run as processes, one for each thread that needs one,
and are kept for the next request; a crash ends only the decoder and is reported as damage.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import IO, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.bucket.orc_decoder import ANSWER, ASK, BYTES, PLACE, READ, receive, send
from paimon_cli.datatypes.data_type import ArrayType, DataType, RowType
from paimon_cli.errors import StorageUnavailable


def holds_chars(t: DataType) -> bool:
    """Whether a CHAR is the type or lies inside of it."""
    return any(part.root == "CHAR" for part in t.parts())


def unpadded(column: pa.Array, t: DataType) -> pa.Array:
    """The column, as ORC gives it, without the blanks at the end of its CHARs."""
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
    """The schema of a table of such columns."""
    return pa.schema([pa.field(field.name, _orc_type(field.type)) for field in schema])


def orc_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column with TIME as an integer, as Paimon stores it in ORC, and every field nullable."""
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
        fields = [_orc_array(_below(array.field(i), absent)) for i in range(t.num_fields)]
        return pa.StructArray.from_arrays(fields, fields=list(wanted), mask=absent)
    starts, seen = _entries(array)
    if pa.types.is_map(t):
        keys, items = _orc_array(_seen(array.keys, seen)), _orc_array(_seen(array.items, seen))
        return pa.MapArray.from_arrays(starts, keys, items, type=wanted, mask=absent)
    return pa.ListArray.from_arrays(starts, _orc_array(_seen(array.values, seen)), type=wanted, mask=absent)


def _below(field: pa.Array, absent: pa.Array | None) -> pa.Array:
    """A field of structs, null wherever the struct is."""
    if absent is None:
        return field
    rows = pa.array(np.arange(len(field)), mask=absent.to_numpy(zero_copy_only=False))
    return pc.take(field, rows)


def _entries(array: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Offsets of the rows' entries, and which entries those are; none of a null row."""
    offsets = array.offsets.to_numpy()
    lengths = np.diff(offsets)
    if array.null_count:
        lengths = np.where(array.is_valid().to_numpy(zero_copy_only=False), lengths, 0)
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    first = np.repeat(offsets[:-1].astype(np.int64) - starts[:-1], lengths)
    return pa.array(starts), pa.array(first + np.arange(int(starts[-1])))


def _seen(entries: pa.Array, seen: pa.Array) -> pa.Array:
    return entries.take(seen)


PIPE_BYTES = 1 << 20
ATTEMPTS = 2
"""A process may be killed from outside; a file that ends two of them is damaged."""


class Refusal(pa.ArrowInvalid):  # type: ignore[misc]
    """The error that the decoder reported for these bytes."""


class Ended(Exception):
    """The decoder does not live any more."""


class OrcProcess:
    """One decoder and the pipes to it."""

    def __init__(self) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-m", "paimon_cli.bucket.orc_decoder"],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=os.sep,  # `-m` imports from here first: not what happens to lie where the user is
            env={**os.environ, "PYTHONPATH": os.pathsep.join(os.path.abspath(entry) for entry in sys.path)},
            pipesize=PIPE_BYTES,
        )

    def receive(self) -> tuple[bytes, pa.Buffer]:
        """Its next message. Raises `Ended`."""
        try:
            return receive(_pipe(self._child.stdout))
        except EOFError as error:
            raise Ended from error

    def send(self, kind: bytes, content: bytes) -> None:
        """Raises `Ended`."""
        try:
            send(_pipe(self._child.stdin), kind, content)
        except BrokenPipeError as error:
            raise Ended from error

    def answer_to(self, request: bytes, source: BinaryIO) -> pa.Buffer:
        """Raises `Refusal`, `Ended`, and what `source` raises, from which the decoder reads what it wants."""
        self.send(ASK, request)
        while True:
            kind, content = self.receive()
            if kind == ANSWER:
                return content
            if kind != READ:
                raise Refusal(content.to_pybytes().decode(errors="replace"))
            offset, size = PLACE.unpack(content)
            source.seek(offset)
            self.send(BYTES, source.read(size))

    def end(self) -> str:
        """End it, if it has not; how it ended."""
        self._child.kill()
        code = self._child.wait()
        for pipe in (self._child.stdin, self._child.stdout):
            _pipe(pipe).close()
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"


_idle: list[OrcProcess] = []
"""Of this process; `pop` and `append` are safe among threads. They end with their pipes, if nothing else ends them."""


def answer_to(request: bytes, source: BinaryIO) -> pa.Buffer:
    """The decoder's answer. `pa.ArrowInvalid`: the bytes are no ORC file. `StorageUnavailable`: no process can be started."""
    ends: list[str] = []
    while len(ends) < ATTEMPTS:
        process = _started() if ends or not _idle else _idle.pop()
        try:
            answer = process.answer_to(request, source)
        except Ended:
            ends.append(process.end())
        except BaseException as error:
            discard(process, error)
            raise
        else:
            _idle.append(process)
            return answer
    raise pa.ArrowInvalid(f"Arrow's ORC reader crashes on it: {', '.join(dict.fromkeys(ends))}")


def discard(process: OrcProcess, error: BaseException) -> None:
    """A decoder that met a damaged file, or was interrupted, is not used again: its memory may be corrupt."""
    process.end()


def _started() -> OrcProcess:
    what = "cannot start the process that decodes ORC"
    try:
        process = OrcProcess()
    except OSError as error:  # must not pass for a damaged file
        raise StorageUnavailable(what, str(error)) from error
    try:
        process.receive()
    except Ended as error:
        raise StorageUnavailable(what, f"{sys.executable}: {process.end()}") from error
    return process


def end_idle() -> None:
    """End all that wait for requests."""
    while _idle:
        _idle.pop().end()


atexit.register(end_idle)
os.register_at_fork(after_in_child=_idle.clear)


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe


class OrcFile:
    """The interface of pyarrow's `ORCFile` for untrusted bytes. `source` is any seekable reader and stays open.

    Raises `pa.ArrowInvalid` for bytes that are no ORC file, also when they crash Arrow's reader; what `source` raises is passed
    on; `StorageUnavailable` if no process can be started.
    """

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self._size = source.seek(0, os.SEEK_END)
        answer = self._ask(None, None)
        self.nrows: int
        self.nstripes: int
        self.nrows, self.nstripes = PLACE.unpack(answer.slice(0, PLACE.size))
        self.schema: pa.Schema = pa.ipc.read_schema(answer.slice(PLACE.size))

    def read_stripe(self, number: int, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """The rows of a stripe, with these columns in the file's order (None: all)."""
        return pa.ipc.open_stream(self._ask(number, columns)).read_next_batch()

    def _ask(self, stripe: int | None, columns: Sequence[str] | None) -> pa.Buffer:
        """The decoder opens the file again for each request, so that it remembers nothing and any decoder may answer."""
        return answer_to(json.dumps([self._size, stripe, columns]).encode(), self._source)
