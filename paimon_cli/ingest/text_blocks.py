"""The bytes of text input: decompressed, recoded to UTF-8, and for JSON cut into lines, one for each row."""

from __future__ import annotations

import codecs
import io
import lzma
import os
from collections.abc import Iterator
from itertools import pairwise
from typing import BinaryIO, cast

import numpy as np
import pyarrow as pa

from paimon_cli.errors import BadInput
from paimon_cli.ingest.text_form import UTF_8
from paimon_cli.pieces import PIECES

COMPRESSION_OF_EXTENSION = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".xz": "xz", ".lz4": "lz4"}


def compression_of(path: str) -> str | None:
    return COMPRESSION_OF_EXTENSION.get(os.path.splitext(path)[1].lower())


def uncompressed_name(path: str) -> str:
    """The name without a compression suffix: `a.csv.gz` -> `a.csv`."""
    return path if compression_of(path) is None else os.path.splitext(path)[0]


def text_stream(stream: BinaryIO, path: str, label: str, encoding: str = UTF_8) -> BinaryIO:
    """The file's text in UTF-8: decompressed as the extension of `path` says, and recoded from `encoding`. `label`: for messages.

    Reading raises `OSError` or `EOFError` for a damaged archive, `BadInput` for bytes that are not text of the encoding.
    """
    compression = compression_of(path)
    if compression == "xz":
        stream = cast(BinaryIO, lzma.LZMAFile(stream))  # noqa: SIM115
    elif compression is not None:
        stream = cast(BinaryIO, pa.CompressedInputStream(stream, compression))
    if encoding != UTF_8:
        stream = cast(BinaryIO, _Recoded(stream, label, encoding))
    return (
        stream
        if compression is None and encoding == UTF_8
        else io.BufferedReader(cast(io.RawIOBase, stream), PIECES.text_read_bytes)
    )


class _Recoded(io.RawIOBase):
    """A stream of UTF-8 over a stream of text in another encoding."""

    def __init__(self, stream: BinaryIO, label: str, encoding: str) -> None:
        self._stream, self._label, self._encoding = stream, label, encoding
        self._decoder = codecs.getincrementaldecoder(encoding)("strict")
        self._pending = b""
        self._ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(cast(bytearray, buffer))
        while not self._pending and not self._ended:
            chunk = self._stream.read(PIECES.text_read_bytes)
            self._ended = not chunk
            try:
                self._pending = self._decoder.decode(chunk, final=self._ended).encode("utf-8", "surrogatepass")
            except UnicodeError as problem:
                raise BadInput(
                    f"{self._label} is not {self._encoding} text",
                    str(problem),
                    "name the encoding of the file with --encoding",
                    source=self._label,
                ) from problem
        size = min(len(view), len(self._pending))
        view[:size], self._pending = self._pending[:size], self._pending[size:]
        return size


BYTE_ORDER_MARK = b"\xef\xbb\xbf"
NEWLINE, RETURN, SPACE, COMMA, QUOTE, BACKSLASH = b'\n\r ,"\\'
OPENING, CLOSING = b"[{", b"]}"
BLANKS = b" \t\r\n"


class NotAnArray(ValueError):
    """The text is not one JSON array: it has no end, an empty element, or something after the end."""


def begins_array(beginning: bytes) -> bool:
    return beginning.removeprefix(BYTE_ORDER_MARK).lstrip(BLANKS).startswith(b"[")


def array_blocks(source: BinaryIO, beginning: bytes, block_bytes: int) -> Iterator[bytes]:
    """The elements of one array as JSON lines, in blocks. `beginning`: the text that was already read from `source`.

    Line ends inside an element become spaces. Elements are found by quotes and brackets alone; whether each is valid JSON shows
    when its line is parsed. Raises `NotAnArray`.
    """
    pending = beginning.removeprefix(BYTE_ORDER_MARK).lstrip(BLANKS)[1:]
    has_elements = False
    while True:
        chunk = source.read(block_bytes)
        pending += chunk
        text, depth, outside = _structure(pending)
        separators = np.flatnonzero(outside & (((text == COMMA) & (depth == 0)) | (depth < 0)))
        closing = np.flatnonzero(depth[separators] < 0)
        separators = separators[: closing[0] + 1] if len(closing) else separators
        if not len(closing) and not chunk:
            raise NotAnArray("the array has no end")
        if len(separators):
            elements = _elements(text, outside, separators)
            if b"" in elements and (has_elements or elements != [b""]):
                raise NotAnArray("an element of the array is empty")
            has_elements = True
            yield b"".join(element + b"\n" for element in elements if element)
            end = int(separators[-1])
            if len(closing):
                if pending[end : end + 1] != b"]" or (pending[end + 1 :] + source.read(block_bytes)).strip(BLANKS):
                    raise NotAnArray("the array does not end where the file does")
                return
            pending = pending[end + 1 :]


def _elements(text: np.ndarray, outside: np.ndarray, separators: np.ndarray) -> list[bytes]:
    """The elements that end at the positions `separators`, each as one line."""
    lines = text[: separators[-1]].copy()
    lines[outside[: len(lines)] & ((lines == NEWLINE) | (lines == RETURN))] = SPACE
    flat = lines.tobytes()
    return [flat[before + 1 : end].strip(BLANKS) for before, end in pairwise([-1, *separators.tolist()])]


def _structure(block: bytes) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Three arrays of the block's length: its bytes (uint8), the nesting depth of each (int32), and whether it is outside of
    strings (bool). A closing bracket has the depth of what follows it.
    """
    text = np.frombuffer(block, np.uint8)
    inside = np.cumsum((text == QUOTE) & ~escaped_bytes(text, BACKSLASH), dtype=np.int32) & 1
    outside = inside == 0
    steps = np.isin(text, list(OPENING)).astype(np.int8) - np.isin(text, list(CLOSING)).astype(np.int8)
    return text, np.cumsum(steps * outside, dtype=np.int32), outside


def escaped_bytes(text: np.ndarray, mark: int) -> np.ndarray:
    """For each byte, whether it follows an odd number of escape characters."""
    escaped = np.zeros(len(text), bool)
    slashes = np.flatnonzero(text == mark)
    if len(slashes):
        breaks = np.flatnonzero(np.diff(slashes) != 1) + 1
        starts, ends = slashes[np.append(0, breaks)], slashes[np.append(breaks - 1, len(slashes) - 1)]
        odd = ends[(ends - starts) % 2 == 0] + 1
        escaped[odd[odd < len(text)]] = True
    return escaped


def line_bounds(block: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Start and end positions of all lines that are not empty, without their line ends (`\\n` or `\\r\\n`)."""
    text, step = np.frombuffer(block, np.uint8), PIECES.search_bytes
    found = [np.flatnonzero(text[begin : begin + step] == NEWLINE) + begin for begin in range(0, len(text), step)]
    ends = np.concatenate(found) if found else np.empty(0, np.int64)
    if len(text) and text[-1] != NEWLINE:
        ends = np.append(ends, len(text))
    if not len(ends):
        return ends, ends
    starts = np.append(0, ends[:-1] + 1)
    ends = ends - ((ends > starts) & (text[ends - 1] == RETURN))
    filled = ends > starts
    return starts[filled], ends[filled]
