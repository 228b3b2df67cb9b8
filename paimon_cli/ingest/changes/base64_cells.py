"""Base64 texts of a column as bytes and as whole numbers, without a loop over rows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.ingest.faults import attempt, require
from paimon_cli.ingest.typed_columns import VALIDATED

_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_SIX_BITS = np.zeros(256, np.uint32)
_SIX_BITS[np.frombuffer(_ALPHABET, np.uint8)] = np.arange(64)
FORM = r"^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
DECIMAL_BYTES = 16
_NOT_BASE64 = "it is not base64"


def bytes_of(texts: pa.Array) -> pa.Array:
    """The bytes that the texts encode, as `binary`. Raises `BadCells`."""
    data, starts, sizes = _decoded(texts)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    kept = np.repeat(starts - offsets[:-1], sizes) + np.arange(offsets[-1])
    return _binary(data[kept], offsets, texts)


def reversed_bytes_of(texts: pa.Array) -> pa.Array:
    """The same with the bytes of each value in reverse order."""
    data, starts, sizes = _decoded(texts)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    kept = np.repeat(starts + offsets[:-1] + sizes - 1, sizes) - np.arange(offsets[-1])
    return _binary(data[kept], offsets, texts)


def decimals_of(texts: pa.Array, scale: int) -> pa.Array:
    """The decimals whose unscaled values the texts encode, as big-endian whole numbers in two's complement. Raises `BadCells`."""
    data, starts, sizes = _decoded(texts)
    require(texts, (sizes <= DECIMAL_BYTES) | (sizes == 0), "it has more digits than a DECIMAL holds")
    require(texts, (sizes > 0) | texts.is_null().to_numpy(zero_copy_only=False), "it is an empty number")
    data = np.append(data, 0)  # so that an index past the end is one
    ends = starts + sizes
    negative = (data[np.minimum(starts, len(data) - 1)] >= 0x80) & (sizes > 0)
    words = np.empty((len(sizes), DECIMAL_BYTES), np.uint8)
    for place in range(DECIMAL_BYTES):
        own = place < sizes
        words[:, place] = np.where(own, data[np.where(own, ends - 1 - place, 0)], np.where(negative, 0xFF, 0))
    valid = None if not texts.null_count else pa.array(texts.is_valid()).buffers()[1]
    kind = pa.decimal128(38, scale)
    array = pa.Array.from_buffers(kind, len(sizes), [valid, pa.py_buffer(words.tobytes())])
    attempt(array, VALIDATED, "it has more digits than a DECIMAL holds")  # 16 bytes may hold 39 digits
    return array


def _decoded(texts: pa.Array) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Decoded bytes, and for each text where its bytes start and how many there are; none for null."""
    require(texts, pc.match_substring_regex(texts, FORM), _NOT_BASE64)
    filled = pc.fill_null(texts, "")
    lengths = pc.binary_length(filled).to_numpy(zero_copy_only=False).astype(np.int64)
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(filled)], pa.int32()), filled), "")[0].as_py()
    text = np.frombuffer(joined.encode(), np.uint8)
    quads = _SIX_BITS[text].reshape(-1, 4)
    whole = (quads[:, 0] << 18) | (quads[:, 1] << 12) | (quads[:, 2] << 6) | quads[:, 3]
    data = np.stack([whole >> 16, (whole >> 8) & 0xFF, whole & 0xFF], axis=1).astype(np.uint8).ravel()
    ends = np.cumsum(lengths)
    pads = np.zeros(len(lengths), np.int64)
    filled_rows = lengths > 0
    for back in (1, 2):
        pads[filled_rows] += text[ends[filled_rows] - back] == ord("=")
    return data, (ends - lengths) // 4 * 3, lengths // 4 * 3 - pads


def _binary(data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int32], texts: pa.Array) -> pa.Array:
    valid = None if not texts.null_count else pa.array(texts.is_valid()).buffers()[1]
    buffers = [valid, pa.py_buffer(offsets.tobytes()), pa.py_buffer(data.tobytes())]
    return pa.Array.from_buffers(pa.binary(), len(texts), buffers)
