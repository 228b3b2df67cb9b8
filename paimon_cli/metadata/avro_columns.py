"""Decodes many blocks of Avro records in parallel with numpy: step i reads record i of every block, field by field.

The number of Python steps is the number of records in the longest block, however many blocks there are. A step only records the
position of each wanted value, or the bytes of a number; the numbers of all records are decoded in one go at the end. The result
consists of numbers and byte ranges.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from paimon_cli.metadata.avro_writer import AvroSchema
from paimon_cli.pieces import PIECES

LONGEST = 8
"""The most bytes that an encoded number may take here. Avro allows ten, but no count, size or time needs more than eight."""

_STOP_BITS = np.uint64(0x8080808080808080)
_ONE_BYTE_NUMBERS = np.array([(byte >> 1) ^ -(byte & 1) for byte in range(128)], dtype=np.int8)


class NotColumnar(Exception):
    """Raised for bytes or a schema that must be read record by record; callers catch it, users never see it."""


class NumberBuffer:
    """A buffer of bytes (uint8) that holds Avro numbers.

    Cursors are positions in `bytes`: a non-empty array, each at least `LONGEST` bytes before the end. Methods raise `NotColumnar`
    for a number of more than `LONGEST` bytes.
    """

    def __init__(self, data: np.ndarray) -> None:
        self.bytes = data
        self._words = np.ndarray((len(data) - LONGEST + 1,), dtype="<u8", buffer=data.data, strides=(1,))

    def words(self, cursors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The cursors after the number at each cursor, and words that begin with these numbers, for `numbers_in`."""
        first = self.bytes[cursors]
        if np.maximum.reduce(first) < 0x80:
            return cursors + 1, first
        words = self._words[cursors]
        return cursors + (np.bitwise_count(_groups(words)) >> 3), words

    def numbers(self, cursors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The cursors after the number at each cursor, and the numbers."""
        after, words = self.words(cursors)
        return after, numbers_in(words)


def numbers_in(words: np.ndarray) -> np.ndarray:
    """The number at the beginning of each little-endian word, as integers of any width; decoded in chunks that fit the cache."""
    if np.maximum.reduce(words, initial=0) < 0x80:
        return _ONE_BYTE_NUMBERS[words]
    if len(words) <= PIECES.decoded_numbers:
        return _unzigzag(words & _groups(words))
    return np.concatenate(
        [numbers_in(words[start : start + PIECES.decoded_numbers]) for start in range(0, len(words), PIECES.decoded_numbers)]
    )


def _groups(words: np.ndarray) -> np.ndarray:
    """For each word a mask of the bytes of its first number, which ends with the first byte whose top bit is clear."""
    stops = ~words & _STOP_BITS
    if not np.logical_and.reduce(stops):
        raise NotColumnar
    return stops ^ (stops - np.uint64(1))


def _unzigzag(groups: np.ndarray) -> np.ndarray:
    """Signed numbers from words that hold eight groups of seven bits each, the lowest group first."""
    bits = groups & np.uint64(0x7F7F7F7F7F7F7F7F)
    bits = (bits & np.uint64(0x007F007F007F007F)) | ((bits & np.uint64(0x7F007F007F007F00)) >> np.uint64(1))
    bits = (bits & np.uint64(0x00003FFF00003FFF)) | ((bits & np.uint64(0x3FFF00003FFF0000)) >> np.uint64(2))
    bits = (bits & np.uint64(0x000000000FFFFFFF)) | ((bits & np.uint64(0x0FFFFFFF00000000)) >> np.uint64(4))
    signs = (bits & np.uint64(1)).view(np.int64)
    return (bits >> np.uint64(1)).view(np.int64) ^ -signs


BEGIN, END = "begin", "end"
"""The two columns of a byte range: `PATH.begin` and `PATH.end`. The path of a record is empty, so no field has their names."""
NULL_NUMBER = np.iinfo(np.int64).min
"""The number that represents null."""

_MAX_PARTS = 500
_MAX_DEPTH = 10
_MAX_SHORT_BYTES = 63
"""Strings of more bytes than this are checked against the end of their block immediately."""
PADDING = (_MAX_PARTS + 2) * (LONGEST + _MAX_SHORT_BYTES)
"""Zero bytes needed after the blocks: a cursor may overrun its block by the short fields of one record before that is noticed."""
_FIXED_SIZES = {"boolean": 1, "float": 4, "double": 8}
_CACHE_LINE = 64
_MAX_WIDTH, _MAX_COPIED_BYTES = 4096, 64 << 20
_MAX_GAPS, _FEW_CELLS = 16, 1 << 16
"""Tables have a cell for each record of the longest block in every block: at most so many for each record that there is, where
they are not few anyway. Else one long block among thousands of short ones would take gigabytes."""
_NOWHERE, _NO_NUMBER = np.int32(-1), np.uint64(2**64 - 1)
"""Table entries for null in a union, among positions and among words; no number has as many bytes as the second."""

_Found = dict[str, np.ndarray]
"""Column -> one entry per lane: a word that begins with a number (see `numbers_in`), or a position."""
_Reader = Callable[[NumberBuffer, np.ndarray, np.ndarray], tuple[np.ndarray, _Found]]
"""(buffer, cursors, ends of their blocks) -> the cursors after one value, and the wanted columns found in it."""
_Skip = Callable[[NumberBuffer, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
"""(buffer, cursors, ends of their blocks) -> the cursors after one value, and where its content begins."""


def decode_columns(
    data: np.ndarray, schema: AvroSchema, counts: np.ndarray, sizes: np.ndarray, wanted: Collection[str]
) -> dict[str, np.ndarray]:
    """The wanted columns of all records, in the order of `data` (uint8): concatenated blocks, then `PADDING` zero bytes.

    `counts` and `sizes` are the numbers of records and bytes of each block. `wanted` are paths such as `_FILE._LEVEL`: a number
    gives one column of integers (`NULL_NUMBER` for null), anything else two columns of positions in `data`, `PATH.begin` and
    `PATH.end`. A column of nothing but nulls may be missing. Raises `NotColumnar` for a block that does not hold exactly its
    records, for blocks of too different lengths, and for a schema with types that are not supported here.
    """
    if (counts < 0).any() or (counts > sizes).any() or len(data) > np.iinfo(np.int32).max:
        raise NotColumnar
    if int(counts.max(initial=0)) * len(counts) > max(_MAX_GAPS * int(counts.sum()), _FEW_CELLS):
        raise NotColumnar
    walk = _RecordWalk(schema, wanted)
    by_count = np.argsort(-counts, kind="stable")
    blocks = _Blocks(data, counts[by_count], (np.cumsum(sizes) - sizes)[by_count], sizes[by_count])
    tables, shifts = blocks.walked(walk)
    positions = _positions_of_records(counts, by_count)
    shift = shifts.reshape(-1).take(positions)
    columns: dict[str, np.ndarray] = {}
    for name in list(tables):
        found = tables.pop(name).reshape(-1).take(positions)
        is_number = name in walk.numbers
        absent = found == (_NO_NUMBER if is_number else _NOWHERE)
        if not absent.any():
            columns[name] = numbers_in(found) if is_number else found + shift
            continue
        columns[name] = np.full(len(found), NULL_NUMBER)
        present = np.flatnonzero(~absent)
        columns[name][present] = numbers_in(found[present]) if is_number else found[present] + shift[present]
    return columns


def _positions_of_records(counts: np.ndarray, by_count: np.ndarray) -> np.ndarray:
    """Flat index of each record in tables of shape (record number in its block, block in the order `by_count`)."""
    lanes = np.empty(len(counts), dtype=np.int64)
    lanes[by_count] = np.arange(len(counts))
    numbers = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    return numbers * len(counts) + np.repeat(lanes, counts)


class _Blocks:
    """Blocks that are decoded in parallel, longest first; each is a lane with a cursor."""

    def __init__(self, data: np.ndarray, counts: np.ndarray, begins: np.ndarray, sizes: np.ndarray) -> None:
        self._counts, self._cursors, self._ends = counts, begins.astype(np.int64), (begins + sizes).astype(np.int64)
        self._whole = NumberBuffer(data)
        self._lines = _Lines(data, len(counts), int(sizes.sum()) // max(int(counts.sum()), 1))

    def walked(self, walk: _RecordWalk) -> tuple[_Found, np.ndarray]:
        """Tables of shape (records of the longest block, blocks) by column, and the shift to add to each record's positions."""
        shape = int(self._counts.max(initial=0)), len(self._counts)
        tables, shifts = dict[str, np.ndarray](), np.zeros(shape, dtype=np.int64)
        for step in range(shape[0]):
            active = int(np.searchsorted(-self._counts, -step, side="left"))
            cursors, ends = self._cursors[:active], self._ends[:active]
            begin, after, found = self._step(walk, cursors, ends)
            shift = cursors - begin
            shifts[step, :active] = shift
            cursors[:] = after + shift
            for name, column in {**found, f".{BEGIN}": begin, f".{END}": after}.items():
                if name not in tables:
                    tables[name] = np.full(shape, _NO_NUMBER if name in walk.numbers else _NOWHERE)
                tables[name][step, :active] = column
        if (self._cursors != self._ends).any():
            raise NotColumnar
        return tables, shifts

    def _step(self, walk: _RecordWalk, cursors: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray, _Found]:
        """Read one record of each lane: where it begins, where it ends, and its wanted values, as positions in one buffer."""
        if self._lines.width:
            lines, begin, limits = self._lines.copied(cursors, ends)
            try:
                return begin, *walk.through(lines, begin, limits)
            except NotColumnar:
                self._lines.widen()  # a record may simply be longer than a line
        begin = cursors.copy()  # not the cursors themselves: values may be found there, and the cursors move on
        return begin, *walk.through(self._whole, begin, ends)


class _Lines:
    """Copies the bytes at each cursor into consecutive lines of equal width.

    In the blocks themselves each cursor is on a different page of memory, too many for the processor's cache.
    """

    def __init__(self, data: np.ndarray, lanes: int, record_size: int) -> None:
        self._data, self._lanes = data, lanes
        self._set_width(record_size * 5 // 4)

    def _set_width(self, least: int) -> None:
        """Use at least `least` bytes: an odd number of cache lines, so that equal offsets in lines map to different cache sets.

        The width is 0, for no copies, if records are too long or too many: a copy is no faster, and positions must fit 32 bits.
        """
        fits = least < _MAX_WIDTH and self._lanes * least <= _MAX_COPIED_BYTES
        self.width = (least // _CACHE_LINE | 1) * _CACHE_LINE if fits else 0
        self._windows = np.lib.stride_tricks.sliding_window_view(self._data, max(self.width, 1))

    def copied(self, cursors: np.ndarray, ends: np.ndarray) -> tuple[NumberBuffer, np.ndarray, np.ndarray]:
        """The copy, where each line begins in it, and the limit of each cursor."""
        begins = np.arange(len(cursors)) * self.width
        with_padding = np.append(cursors, np.zeros(PADDING // self.width + 1, dtype=np.int64))
        lines = NumberBuffer(self._windows[with_padding].reshape(-1))
        return lines, begins, begins + np.minimum(ends - cursors, self.width)

    def widen(self) -> None:
        self._set_width(self.width * 2)


class _RecordWalk:
    """A compiled schema, which reads one record of every lane at a time."""

    def __init__(self, schema: AvroSchema, wanted: Collection[str]) -> None:
        self.numbers: set[str] = set()
        self._wanted = frozenset(wanted)
        self._named: dict[str, AvroSchema] = {}
        self._parts = 0
        self._read_record = self._compiled(schema, "")

    def through(self, buffer: NumberBuffer, cursors: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, _Found]:
        """The cursors after one record of each lane, and its wanted values. Raises `NotColumnar` beyond the end of a block."""
        after, found = self._read_record(buffer, cursors, ends)
        if np.logical_or.reduce(after > ends):
            raise NotColumnar
        return after, found

    def _compiled(self, schema: AvroSchema, path: str) -> _Reader:
        if isinstance(schema, str) and schema in self._named:
            return self._compiled(self._named[schema], path)
        self._parts += 1
        if self._parts > _MAX_PARTS or path.count(".") > _MAX_DEPTH:
            raise NotColumnar  # the record may contain itself
        if isinstance(schema, list):
            return _union([self._compiled(branch, path) for branch in schema])
        kind = schema["type"] if isinstance(schema, dict) else schema
        if not isinstance(kind, str):
            return self._compiled(kind, path)
        if kind == "record":
            return self._record(schema, path)
        if kind in ("int", "long"):
            return self._number(path)
        if kind in ("bytes", "string"):
            return self._ranged(_skip_bytes, path)
        if kind == "array":
            return self._ranged(_array_skip(self._compiled(schema["items"], f"{path}[]")), path)
        if kind in _FIXED_SIZES:
            size = _FIXED_SIZES[kind]
            return self._ranged(lambda buffer, cursors, ends: (cursors + size, cursors), path)
        if kind == "null":
            return lambda buffer, cursors, ends: (cursors, {})
        raise NotColumnar

    def _record(self, schema: Mapping[str, Any], path: str) -> _Reader:
        for name in (schema["name"], f"{schema.get('namespace', '')}.{schema['name']}"):
            self._named[name] = schema
        prefix = f"{path}." if path else ""
        readers = [self._compiled(field["type"], prefix + field["name"]) for field in schema["fields"]]

        def read(buffer: NumberBuffer, cursors: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, _Found]:
            wanted: _Found = {}
            for reader in readers:
                cursors, found = reader(buffer, cursors, ends)
                if found:
                    wanted.update(found)
            return cursors, wanted

        return read

    def _number(self, path: str) -> _Reader:
        if path not in self._wanted:
            return lambda buffer, cursors, ends: (buffer.words(cursors)[0], {})
        self.numbers.add(path)

        def read(buffer: NumberBuffer, cursors: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, _Found]:
            after, words = buffer.words(cursors)
            return after, {path: words}

        return read

    def _ranged(self, skip: _Skip, path: str) -> _Reader:
        if path not in self._wanted:
            return lambda buffer, cursors, ends: (skip(buffer, cursors, ends)[0], {})

        def read(buffer: NumberBuffer, cursors: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, _Found]:
            after, begin = skip(buffer, cursors, ends)
            return after, {f"{path}.{BEGIN}": begin, f"{path}.{END}": after}

        return read


def _skip_bytes(buffer: NumberBuffer, cursors: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    first = buffer.bytes[cursors]
    if not np.bitwise_or.reduce(first) & 0x81:  # all lengths are short, and none is negative
        begin = cursors + 1
        return begin + (first >> 1), begin
    begin, lengths = buffer.numbers(cursors)
    if np.minimum.reduce(lengths) < 0 or np.logical_or.reduce(lengths > ends - begin):
        raise NotColumnar
    return begin + lengths, begin


def _array_skip(item: _Reader) -> _Skip:
    def skip(buffer: NumberBuffer, cursors: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        begin = cursors
        cursors, left = buffer.numbers(cursors)
        while longest := int(np.maximum.reduce(left)):
            if np.minimum.reduce(left) < 0 or np.logical_or.reduce(left > ends - cursors):
                raise NotColumnar  # too long, or negative: the form with a byte size, which Paimon does not write
            if np.minimum.reduce(left) == longest:
                cursors = _skip_items(item, longest, buffer, cursors, ends)
                cursors, left = buffer.numbers(cursors)
                continue
            cursors, left = cursors.copy(), left.copy()
            for count in np.unique(left[left > 0]).tolist():
                lanes = np.flatnonzero(left == count)
                some = _skip_items(item, count, buffer, cursors[lanes], ends[lanes])
                cursors[lanes], left[lanes] = buffer.numbers(some)
        if np.minimum.reduce(left) < 0:
            raise NotColumnar
        return cursors, begin

    return skip


def _skip_items(item: _Reader, count: int, buffer: NumberBuffer, cursors: np.ndarray, ends: np.ndarray) -> np.ndarray:
    for _ in range(count):
        cursors = item(buffer, cursors, ends)[0]
        if np.logical_or.reduce(cursors > ends):
            raise NotColumnar
    return cursors


def _union(branches: Sequence[_Reader]) -> _Reader:
    def read(buffer: NumberBuffer, cursors: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, _Found]:
        first = buffer.bytes[cursors]
        tag = int(first[0])
        if tag & 0x81 or not np.logical_and.reduce(first == tag):
            return _mixed(branches, buffer, cursors, ends)
        if tag >> 1 >= len(branches):
            raise NotColumnar
        return branches[tag >> 1](buffer, cursors + 1, ends)

    return read


def _mixed(branches: Sequence[_Reader], buffer: NumberBuffer, cursors: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, _Found]:
    """Read a union whose lanes hold different branches, branch by branch."""
    cursors, tags = buffer.numbers(cursors)
    if ((tags < 0) | (tags >= len(branches))).any():
        raise NotColumnar
    after, wanted = cursors.copy(), dict[str, np.ndarray]()
    for tag, branch in enumerate(branches):
        lanes = np.flatnonzero(tags == tag)
        if not len(lanes):
            continue
        after[lanes], found = branch(buffer, cursors[lanes], ends[lanes])
        for name, column in found.items():
            if name not in wanted:
                wanted[name] = np.full(len(tags), _NO_NUMBER if column.dtype.kind == "u" else _NOWHERE)
            wanted[name][lanes] = column
    return after, wanted
