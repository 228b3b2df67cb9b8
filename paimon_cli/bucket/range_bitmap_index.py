"""The file index range-bitmap: a sorted dictionary of the values, and the number of each row's value in bit slices.

FORMAT.md, section 7.4; Java RangeBitmap, ChunkedDictionary, BitSliceIndexBitmap. Reads only need the dictionary; the slices are
written for engines that skip single rows by them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from paimon_cli.bucket.bit_slices import MOST_BITS, BitSlices, bitmap_bytes, bitmap_of
from paimon_cli.bucket.file_index import BodyReader, FileIndex, IndexKind
from paimon_cli.bucket.index_numbers import (
    PLAIN_ROOTS,
    index_numbers,
    numbers_of_stored,
    stored_numbers,
    value_of_number,
)
from paimon_cli.datatypes.data_type import FLOATING_ROOTS, STRING_ROOTS, DataField, DataType, DecimalType, TimestampType
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.errors import NotSupported
from paimon_cli.options.option_text import parse_size
from paimon_cli.options.table_options import TableOptions

_FORMS = {
    **dict.fromkeys(("BOOLEAN", "TINYINT"), ">i1"),
    "SMALLINT": ">i2",
    **dict.fromkeys(("INT", "DATE", "TIME"), ">i4"),
    "FLOAT": ">f4",
    "DOUBLE": ">f8",
}
"""Type -> how a value is stored; others are 64-bit integers, and texts have their length before their bytes."""
_UNCHUNKED = {"BOOLEAN", "TINYINT", "SMALLINT"}
"""Types whose values Java keeps in chunks of one, unless told otherwise."""
DEFAULT_CHUNK = "16 kb"
"""Bytes of the values of a chunk of the dictionary after its first; a reader opens the chunk that may hold a value."""
_VERSION = 1
_INT = struct.Struct(">i")
_HEAD = struct.Struct(">bii")
_DICTIONARY = struct.Struct(">biii")
_SLICES = struct.Struct(">bbii")
_CHUNK = struct.Struct(">iiiii")
_BITS_WITHOUT_VALUES = 64
"""Slices of an index without values: Java takes their greatest number for -1."""
_MOST_DIGITS, _MOST_PRECISION = 18, 6
"""Of DECIMALs and timestamps that Paimon indexes."""


class _Keys:
    """The values of a type `t` as the dictionary has them: `to_arrow` numbers, or texts as bytes, which sort in Java's order."""

    def __init__(self, t: DataType) -> None:
        self.type = t
        self.are_texts = t.root in STRING_ROOTS
        self.form = np.dtype(_FORMS.get(t.root, ">i8"))

    def to_arrow(self, values: pa.Array) -> pa.Array:
        if self.are_texts:
            return values.cast(pa.binary())
        numbers = np.zeros(len(values), np.int64)
        present = values.is_valid().to_numpy(zero_copy_only=False)
        numbers[present] = index_numbers(values.drop_null(), self.type)
        return pa.array(numbers, mask=~present)

    def sizes(self, keys: pa.Array) -> npt.NDArray[np.int64]:
        """The bytes that each key takes."""
        if self.are_texts:
            return pc.binary_length(keys).to_numpy().astype(np.int64) + _INT.size
        return np.full(len(keys), self.form.itemsize, np.int64)

    def encoded(self, keys: pa.Array) -> bytes:
        """The keys one after the other, in the form of the index."""
        if not self.are_texts:
            return stored_numbers(keys.to_numpy(), self.form.str).tobytes()
        lengths = (self.sizes(keys) - _INT.size).astype(">i4").tobytes()
        before = pa.Array.from_buffers(pa.binary(_INT.size), len(keys), [None, pa.py_buffer(lengths)]).cast(pa.binary())
        joined = pc.binary_join_element_wise(before, keys, b"")
        return joined.buffers()[2].to_pybytes() if len(joined) else b""

    def decoded(self, content: bytes, starts: npt.NDArray[np.int64]) -> pa.Array:
        """The keys that begin at `starts` and follow on each other without gaps. Raises `ValueError` if they do not."""
        if not self.are_texts:
            return pa.array(numbers_of_stored(np.frombuffer(content, self.form)))
        sizes = np.diff(starts, append=len(content))
        if len(starts) and (starts[0] or (sizes < _INT.size).any()):
            raise ValueError("its texts are cut off")
        data, is_text = np.frombuffer(content, np.uint8), np.ones(len(content), bool)
        places = starts[:, None] + np.arange(_INT.size)
        if (data[places].view(">i4").ravel() != sizes - _INT.size).any():
            raise ValueError("its texts have other lengths than it says")
        is_text[places] = False
        bounds = np.append(0, np.cumsum(sizes - _INT.size)).astype(np.int32)
        return pa.Array.from_buffers(pa.binary(), len(starts), [None, pa.py_buffer(bounds), pa.py_buffer(data[is_text])])

    def next(self, reader: BodyReader) -> bytes:
        """The bytes of the next key of a body."""
        if not self.are_texts:
            return reader.take(self.form.itemsize)
        size = reader.take(_INT.size)
        return size + reader.take(int.from_bytes(size, "big", signed=True))

    def value(self, key: Any) -> Any:
        """The internal value of one key; None if it cannot be told."""
        if not self.are_texts:
            return value_of_number(key, self.type)
        try:
            return key.decode()
        except UnicodeDecodeError:
            return None


class RangeBitmapIndex(FileIndex):
    """The values of a column of type `t`, in the order of the rows; `chunk_bytes` as `DEFAULT_CHUNK` says."""

    def __init__(self, t: DataType, chunk_bytes: int) -> None:
        self._keys = _Keys(t)
        self._chunk_bytes = chunk_bytes
        self._rows = 0
        self._parts: list[pa.DictionaryArray] = []
        self._known: pa.Array | None = None
        """The dictionary of `_parts`, or of the bytes."""
        self._slices: bytes | None = None
        """Bytes of which only the dictionary was decoded so far: a read does not need the rows."""

    def add(self, values: pa.Array) -> None:
        self._decode()
        self._rows += len(values)
        self._parts.append(self._keys.to_arrow(values).dictionary_encode())
        self._known = None

    def fits(self, other: RangeBitmapIndex) -> bool:
        return self._rows + other._rows < 1 << 31

    def merge(self, other: RangeBitmapIndex) -> None:
        self._decode()
        other._decode()
        self._parts += other._parts
        self._rows += other._rows
        self._known = None

    def may_hold(self, values: pa.Array) -> npt.NDArray[np.bool_]:
        found = pc.is_in(self._keys.to_arrow(values.drop_null()), value_set=self._dictionary())
        return np.asarray(found.to_numpy(zero_copy_only=False), bool)

    def bounds(self) -> tuple[Any, Any] | None:
        known = self._dictionary()
        if not len(known):
            return None
        low, high = (self._keys.value(known[place].as_py()) for place in (0, -1))
        return None if low is None or high is None else (low, high)

    def _dictionary(self) -> pa.Array:
        """The sorted values, which the bytes have as they are."""
        return self._sorted()[1] if self._known is None else self._known

    def _sorted(self) -> tuple[npt.NDArray[np.int64], pa.Array]:
        """The number of each row's value in the sorted dictionary, -1 for null; the dictionary."""
        if not self._parts:
            return np.zeros(0, np.int64), pa.array([], pa.binary() if self._keys.are_texts else pa.int64())
        unified = pa.chunked_array(self._parts).unify_dictionaries()
        keys = unified.chunk(0).dictionary
        order = pc.array_sort_indices(keys).to_numpy()
        ranks = np.empty(len(order) + 1, np.int64)
        ranks[order], ranks[-1] = np.arange(len(order)), -1
        codes = np.concatenate([pc.fill_null(part.indices, len(order)).to_numpy() for part in unified.chunks])
        self._known = keys.take(pa.array(order))
        return ranks[codes], self._known

    def _decode(self) -> None:
        if self._slices is None:
            return
        positions, numbers = _decoded_slices(self._slices, self._rows).numbers()
        if len(numbers) and int(numbers.max()) >= len(self._dictionary()):
            raise ValueError("a row has a value that is not in the dictionary")
        codes, is_null = np.zeros(self._rows, np.int32), np.ones(self._rows, bool)
        codes[positions], is_null[positions] = numbers, False
        self._parts = [pa.DictionaryArray.from_arrays(pa.array(codes, mask=is_null), self._dictionary())]
        self._slices = None

    def to_bytes(self) -> bytes:
        self._decode()
        numbers, keys = self._sorted()
        content, ends = self._keys.encoded(keys), np.cumsum(self._keys.sizes(keys))
        head = _HEAD.pack(_VERSION, self._rows, len(keys))
        if len(keys):
            head += content[: ends[0]] + content[ends[-2] if len(keys) > 1 else 0 :]
        dictionary = b"".join(self._chunks(content, np.append(0, ends)))
        head += _INT.pack(len(dictionary))
        return _INT.pack(len(head)) + head + dictionary + _encoded_slices(numbers, len(keys))

    def _chunks(self, content: bytes, bounds: npt.NDArray[np.int64]) -> Iterator[bytes]:
        """The dictionary of these sorted keys: key n is in bytes `bounds[n]` to `bounds[n + 1]` of `content`."""
        heads, bodies, size, first = list[bytes](), list[bytes](), 0, 0
        while first < len(bounds) - 1:
            begin = bounds[first + 1]
            end = int(np.searchsorted(bounds, begin + self._chunk_bytes, "right")) - 1
            if self._keys.are_texts:
                end = min(end, first + 1 + self._chunk_bytes // _INT.size)
            places = (bounds[first + 1 : end] - begin).astype(">i4").tobytes() if self._keys.are_texts else b""
            body = places + content[begin : bounds[end]]
            counts = (len(places), len(body) - len(places)) if self._keys.are_texts else (len(body), self._keys.form.itemsize)
            key = content[bounds[first] : begin]
            heads.append(bytes([_VERSION]) + key + _CHUNK.pack(first, size, end - first - 1, *counts))
            bodies.append(body)
            size += len(body)
            first = end
        offsets = np.cumsum([0, *map(len, heads)])[: len(heads)].astype(">i4").tobytes()
        yield _INT.pack(_DICTIONARY.size)
        yield _DICTIONARY.pack(_VERSION, len(heads), len(offsets), sum(map(len, heads)))
        yield offsets
        yield from heads
        yield from bodies

    @staticmethod
    def from_bytes(body: bytes, t: DataType, rows: int) -> RangeBitmapIndex:
        """The index of a file of `rows` rows. Raises `ValueError` if it is malformed; which row has which value is looked at
        when it is needed.
        """
        found, reader = RangeBitmapIndex(t, chunk_bytes_of(t)), BodyReader(body)
        reader.integer()
        version, found._rows, count = _HEAD.unpack(reader.take(_HEAD.size))
        if version != _VERSION or found._rows != rows or count < 0:
            raise ValueError(f"it is of version {version}, about {found._rows} rows and {count} values; its file has {rows} rows")
        for _ in range(2 if count else 0):
            found._keys.next(reader)
        found._known = _decoded_dictionary(BodyReader(reader.take(reader.integer())), found._keys, count)
        found._slices = bytes(reader.rest())
        return found


def _decoded_dictionary(reader: BodyReader, keys: _Keys, count: int) -> pa.Array:
    """The sorted values of the dictionary, of which there must be `count`."""
    reader.integer()
    version, chunks, offset_bytes, chunk_bytes = _DICTIONARY.unpack(reader.take(_DICTIONARY.size))
    if version != _VERSION or offset_bytes != chunks * _INT.size:
        raise ValueError(f"its dictionary is of version {version}, with {chunks} chunks")
    reader.take(offset_bytes)
    heads, contents = BodyReader(reader.take(chunk_bytes)), BodyReader(bytes(reader.rest()))
    pieces, starts, number, size = list[bytes](), list[npt.NDArray[np.int64]](), 0, 0
    for _ in range(chunks):
        if heads.take(1)[0] != _VERSION:
            raise ValueError("a chunk of its dictionary is of another version")
        key = keys.next(heads)
        code, offset, more, first_bytes, second_bytes = _CHUNK.unpack(heads.take(_CHUNK.size))
        places_bytes, key_bytes = (first_bytes, second_bytes) if keys.are_texts else (0, first_bytes)
        is_of_size = places_bytes == more * _INT.size if keys.are_texts else key_bytes == more * keys.form.itemsize
        if code != number or offset != contents.at or more < 0 or not is_of_size:
            raise ValueError("the chunks of its dictionary do not follow on each other")
        places = np.frombuffer(contents.take(places_bytes), ">i4").astype(np.int64)
        starts.append(np.append(size, size + len(key) + places))
        pieces += [key, contents.take(key_bytes)]
        size += len(key) + key_bytes
        number += 1 + more
    if number != count:
        raise ValueError(f"its dictionary has {number} values instead of {count}")
    found = keys.decoded(b"".join(pieces), np.concatenate(starts) if starts else np.zeros(0, np.int64))
    if len(found) > 1 and not pc.all(pc.less(found[:-1], found[1:])).as_py():
        raise ValueError("the values of its dictionary are not in order")
    return found


def _encoded_slices(numbers: npt.NDArray[np.int64], count: int) -> bytes:
    """The slices of rows with these numbers below `count`, -1 for null."""
    slices, has_value = BitSlices(), numbers >= 0
    slices.add(np.flatnonzero(has_value).astype(np.uint32), numbers[has_value])
    bits = max((count - 1).bit_length(), 1) if count else _BITS_WITHOUT_VALUES
    bodies = [bitmap_bytes(rows) for rows in (slices.rows, *slices.bits)]
    bodies += [bitmap_bytes(BitMap())] * (bits - len(slices.bits))
    lengths = np.array([len(body) for body in bodies[1:]], np.int64)
    index = np.stack([np.cumsum(lengths) - lengths, lengths], axis=1).astype(">i4").tobytes()
    head = _SLICES.pack(_VERSION, bits, len(bodies[0]), len(index)) + index
    return _INT.pack(len(head)) + head + b"".join(bodies)


def _decoded_slices(body: bytes, rows: int) -> BitSlices:
    """The slices of a file of `rows` rows. Raises `ValueError` if they are malformed."""
    reader = BodyReader(body)
    reader.integer()
    version, count, rows_bytes, index_bytes = _SLICES.unpack(reader.take(_SLICES.size))
    if version != _VERSION or not 0 <= count <= _BITS_WITHOUT_VALUES or index_bytes != count * 2 * _INT.size:
        raise ValueError(f"it has {count} slices of version {version}")
    lengths = np.frombuffer(reader.take(index_bytes), ">i4").reshape(-1, 2)[:, 1].tolist()
    found = BitSlices(bitmap_of(reader.take(rows_bytes)), [bitmap_of(reader.take(length)) for length in lengths])
    found.bits = found.bits[:MOST_BITS]
    if found.last_row() >= rows:
        raise ValueError("it has positions after the last row")
    return found


def chunk_bytes_of(t: DataType) -> int:
    """Bytes of a chunk of the dictionary, without a setting."""
    return 0 if t.root in _UNCHUNKED else parse_size(DEFAULT_CHUNK)


class RangeBitmapKind(IndexKind):
    """Sorted dictionaries, in chunks as the option `chunk-size` of each column says."""

    name = "range-bitmap"

    def check(self, field: DataField) -> None:
        if not _is_indexed(field.type):
            what = f"a range-bitmap index on a column of type {type_to_sql(field.type)}"
            raise NotSupported(what, "Paimon has none for such values")

    def is_consulted(self, t: DataType) -> bool:
        return t.root not in FLOATING_ROOTS | {"CHAR"} and _is_indexed(t)

    def empty(self, field: DataField, options: TableOptions) -> RangeBitmapIndex:
        chunk = self.setting(options, field, "chunk-size", parse_size, chunk_bytes_of(field.type))
        return RangeBitmapIndex(field.type, chunk)

    def decoded(self, field: DataField, body: bytes, rows: int) -> RangeBitmapIndex:
        return RangeBitmapIndex.from_bytes(body, field.type, rows)


def _is_indexed(t: DataType) -> bool:
    if isinstance(t, DecimalType):
        return t.precision <= _MOST_DIGITS
    if isinstance(t, TimestampType):
        return t.precision <= _MOST_PRECISION
    return t.root in STRING_ROOTS | PLAIN_ROOTS | FLOATING_ROOTS | {"BOOLEAN"}
