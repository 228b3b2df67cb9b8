"""Slices of one buffer of bytes, each given by its start and length: what a binary column is, without copying it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

_PADDING = 16
_INLINE = 12
"""Arrow keeps texts of views inline up to this length, in bytes; of longer ones, the number of the buffer and the place in it."""
_VIEW = np.dtype([("length", "<u4"), ("content", f"V{_INLINE}")])
_MASKS = np.array([(1 << (8 * size)) - 1 for size in range(9)], dtype=np.uint64)


@dataclass(frozen=True)
class ByteSlices:
    """`data`: the bytes (uint8) and some zeros after them, so that up to 16 bytes can be read at any position.
    `starts`, `lengths`: of each slice (int64).
    """

    data: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray

    @staticmethod
    def of(array: pa.Array) -> ByteSlices:
        """The values of a binary array. A null has any bytes."""
        _, offsets, data = array.buffers()
        bounds = (
            np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
            if len(array)
            else np.zeros(1, np.int32)
        )
        low, high = int(bounds[0]), int(bounds[-1])
        content = np.zeros(high - low + _PADDING, np.uint8)
        if high > low:
            content[: high - low] = np.frombuffer(data, np.uint8)[low:high]
        starts = bounds[:-1].astype(np.int64) - low
        return ByteSlices(content, starts, np.diff(bounds).astype(np.int64))

    def numbers(self, positions: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """The unsigned little-endian numbers of 1 to 4 bytes at these positions (int64)."""
        words = np.ndarray((len(self.data) - 3,), "<u4", self.data, strides=(1,))
        return (words[positions].astype(np.uint64) & _MASKS[sizes]).astype(np.int64)

    def signed(self, positions: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """The signed little-endian numbers of 1 to 8 bytes at these positions (int64)."""
        words = np.ndarray((len(self.data) - 7,), "<i8", self.data, strides=(1,))
        unused = (64 - 8 * sizes).astype(np.int64)
        return (words[positions] << unused) >> unused

    def fixed(self, positions: np.ndarray, dtype: str) -> np.ndarray:
        """Values of a numpy type at these positions."""
        size = np.dtype(dtype).itemsize
        return np.ndarray((len(self.data) - size + 1,), dtype, self.data, strides=(1,))[positions]

    def binary(self, starts: np.ndarray, lengths: np.ndarray) -> pa.Array:
        """Slices of the bytes as a binary array. Arrow copies them, from views that numpy makes."""
        views = np.empty(len(starts), _VIEW)
        views["length"] = lengths
        views["content"] = self.fixed(starts, f"V{_INLINE}")  # also what is behind short ones: Arrow does not look at it
        long = np.flatnonzero(lengths > _INLINE)
        places = views.view(np.uint32).reshape(-1, 4)
        places[long, 2], places[long, 3] = 0, starts[long]
        buffers = [None, pa.py_buffer(views), pa.py_buffer(self.data)]
        return pa.Array.from_buffers(pa.binary_view(), len(starts), buffers).cast(pa.binary())


def rows_of_bytes(content: np.ndarray, lengths: np.ndarray | None = None) -> pa.BinaryArray:
    """The rows of a matrix of bytes (uint8), each cut to its length, as a binary array."""
    if lengths is None:
        lengths = np.full(len(content), content.shape[1])
    else:
        content = content[np.arange(content.shape[1]) < lengths[:, None]]
    bounds = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(np.ascontiguousarray(content))]
    return pa.Array.from_buffers(pa.binary(), len(lengths), buffers)


def little_endian(numbers: np.ndarray, sizes: np.ndarray, counts: np.ndarray) -> pa.BinaryArray:
    """Unsigned numbers of 1 to 4 bytes each, of which the first `counts[0]` make the first value, and so on."""
    content = np.ascontiguousarray(numbers.astype("<u4")).view(np.uint8).reshape(-1, 4)[np.arange(4) < sizes[:, None]]
    bounds = np.concatenate([[0], np.cumsum(sizes)])[np.concatenate([[0], np.cumsum(counts)])].astype(np.int32)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(np.ascontiguousarray(content))]
    return pa.Array.from_buffers(pa.binary(), len(counts), buffers)
