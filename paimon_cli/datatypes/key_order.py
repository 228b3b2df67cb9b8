"""The total order of primary keys, vectorised: each key column becomes one or two int64 words per row (FORMAT.md, section 7.3).

Null is the smallest value and equals itself. Strings and binaries compare by unsigned bytes, FLOAT and DOUBLE as in Java
(-0.0 < 0.0, NaN is greatest). Serialised keys from manifests are converted to words too, without decoding them one by one.

A stable sort of rows by several words is the kernel of every merge, flush and compaction. NumPy's plain sort of integers is
vectorised, about five times as fast as its stable argsort and thirty times as fast as `lexsort`. Words are therefore packed into
63 bits where possible, with the row number in the lowest bits: a plain sort is then stable, and yields the row order.

Rows of a merge are sorted runs, one after the other. NumPy's stable sort finds such runs and merges two at a time, small ones
first, so that a row takes part in about as many passes as the entropy of the sizes of the runs says:

    runs of 4, 4, 4, 4 rows of 16: shares of 1/4 each, entropy 4 * 1/4 * 2 = 2 passes
    runs of 14, 1, 1 rows of 16:   7/8 * 0.19 + 2 * 1/16 * 4 = 0.67 passes

How many passes cost as much as a plain sort depends on the processor: about 2 where the plain sort is fast, 9 on AMD processors
whose AVX-512 sort is slow (`processor`). It is measured once in a process, for the first merge that is large enough.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.datatypes.binary_row import header_size
from paimon_cli.datatypes.data_type import TIMESTAMP_ROOTS, BinaryType, DataType, StringType, TimestampType

WORD_BITS = 63
"""Bits of an int64 without the sign."""
RADIX_BITS = 16
"""NumPy uses radix sort up to this width (buckets, partitions, tasks), which is another two to three times as fast."""
FEW_DESCENTS = 3
"""Up to this many descents a stable argsort beats radix sort, because it detects ascending runs and merges them."""
ROWS_PER_RUN = 64
"""Sorted runs of fewer rows on average are not merged: finding them costs more than it saves."""
MEASURED_ROWS = 1 << 14
"""Rows that are sorted to measure the processor. Smaller merges do not need to know."""
SURE_PASSES, MOST_PASSES = 2.0, 14.0
"""Up to so many passes merging is faster on every processor that was measured; above so many it is on none."""


def stable_order(words: Sequence[np.ndarray]) -> np.ndarray:
    """Row numbers (int64) in ascending order of the int64 words (most significant first); equal rows keep their order."""
    joined = _joined(words)
    order = _order(joined[-1])
    for word in reversed(joined[:-1]):
        order = order[_order(word[order])]
    return order


def _order(word: np.ndarray) -> np.ndarray:
    falls = word[1:] < word[:-1]
    descents = int(np.count_nonzero(falls))
    if descents == 0:
        return np.arange(len(word))
    row_bits = _row_bits(word)
    low, value_bits = _span(word)
    is_narrow = value_bits <= RADIX_BITS
    if value_bits + row_bits > WORD_BITS or (is_narrow and descents <= FEW_DESCENTS):
        return np.argsort(word, kind="stable")
    if is_narrow:
        return np.argsort((word - low).astype(np.uint16), kind="stable")
    packed = (word - low) << row_bits
    packed |= np.arange(len(word))
    packed.sort(kind="stable" if merges_faster(falls, descents) else None)
    packed &= (1 << row_bits) - 1
    return packed


def merges_faster(falls: np.ndarray, descents: int) -> bool:
    """Whether numpy's stable sort, which merges runs, is faster than its plain sort. `falls[i]`: row i + 1 is less than row i."""
    rows = len(falls) + 1
    if descents * ROWS_PER_RUN > rows:
        return False
    shares = np.diff(np.flatnonzero(falls), prepend=-1, append=rows - 1) / rows
    passes = -float((shares * np.log2(shares)).sum())
    if passes <= SURE_PASSES or passes > MOST_PASSES or rows <= MEASURED_ROWS:
        return passes <= SURE_PASSES
    return passes <= passes_of_a_sort()


@functools.cache
def passes_of_a_sort() -> float:
    """The number of passes of a merge that cost as much as a plain sort, measured in about 5 ms of this thread."""
    mixed = _mixed_numbers()
    runs = np.sort(mixed.reshape(8, -1), axis=1).ravel()
    return 3 * _nanoseconds(mixed, None) / max(1, _nanoseconds(runs, "stable"))


def sort_nanoseconds() -> float:
    """What a plain sort of random numbers takes a row, in this thread; the least of many, so that other work does not count."""
    return min(_nanoseconds(_mixed_numbers(), None) for _ in range(10)) / MEASURED_ROWS


def _mixed_numbers() -> np.ndarray:
    """Numbers in a random order, without loading numpy's generators."""
    mixed = np.arange(MEASURED_ROWS, dtype=np.uint64)
    for _ in range(2):
        mixed = mixed * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(31)
    return (mixed >> np.uint64(1)).view(np.int64)


def _nanoseconds(values: np.ndarray, kind: Literal["stable"] | None) -> int:
    """The least time of five sorts. Waiting for other threads does not count."""
    times = []
    for _ in range(5):
        copy = values.copy()
        begun = time.thread_time_ns()
        copy.sort(kind=kind)
        times.append(time.thread_time_ns() - begun)
    return min(times)


def _joined(words: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Fewer words with the same order: adjacent words are packed into one if that leaves room for the row number."""
    if len(words) == 1 or len(words[0]) == 0:
        return [*words[:1]]
    room = WORD_BITS - _row_bits(words[0])
    joined: list[np.ndarray] = []
    free_bits = 0
    for word in words:
        low, bits = _span(word)
        if joined and bits <= free_bits:
            joined[-1] = (joined[-1] << bits) | (word - low)
            free_bits -= bits
        else:
            # A word of full width stays as it is, because subtracting its minimum could overflow 64 bits.
            joined.append(word - low if bits <= room else word)
            free_bits = max(0, room - bits)
    return joined


def _row_bits(word: np.ndarray) -> int:
    return (len(word) - 1).bit_length()


def _span(word: np.ndarray) -> tuple[int, int]:
    """The minimum, and the number of bits that differences from it need."""
    low = int(word.min())
    return low, (int(word.max()) - low).bit_length()


Key = tuple[Any, ...]
"""A key as comparable Python values, with `NULL_PART` for null."""


class NullPart:
    """Stands for null in a `Key`: less than every value, and equal to itself."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NullPart)

    def __lt__(self, other: object) -> bool:
        return not isinstance(other, NullPart)

    def __le__(self, other: object) -> bool:
        return True

    def __gt__(self, other: object) -> bool:
        return False

    def __ge__(self, other: object) -> bool:
        return isinstance(other, NullPart)

    def __hash__(self) -> int:
        return hash(NullPart)

    def __repr__(self) -> str:
        return "null"


NULL_PART = NullPart()


def comparable(column: pa.Array) -> pa.Array:
    """The column as integers, strings, binaries or decimals whose natural order is that of Paimon. Nulls remain null."""
    t = column.type
    if pa.types.is_boolean(t):
        return column.cast(pa.int8())
    if pa.types.is_floating(t):
        ordered = _ordered_floats(column.to_numpy(zero_copy_only=False).astype(np.float64))
        return pa.array(ordered, mask=column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None)
    if pa.types.is_date32(t) or pa.types.is_time32(t):
        return column.view(pa.int32())
    if pa.types.is_timestamp(t):
        return column.view(pa.int64())
    return column


def order_words(columns: Sequence[pa.Array]) -> list[np.ndarray]:
    """The order words of all columns, most significant first: one int64 array per column, two if it has nulls.

    Words of different calls are not comparable, because values other than integers are replaced by their dense rank.
    """
    return [word for column in columns for word in null_first_words(column)]


def _word(column: pa.Array) -> np.ndarray:
    if pa.types.is_integer(column.type):
        return column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return pc.rank(column, sort_keys="ascending", tiebreaker="dense").to_numpy().astype(np.int64, copy=False)


def null_first_words(column: pa.Array, descending: bool = False) -> list[np.ndarray]:
    """Order words of a nullable column, most significant first; null is the smallest in either direction (Java SortSpec)."""
    word = _word(comparable(column.drop_null() if column.null_count else column))
    word = ~word if descending else word
    if column.null_count == 0:
        return [word]
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    filled = np.zeros(len(column), dtype=np.int64)
    filled[valid] = word
    return [valid.astype(np.int64), filled]


def group_starts(words: Sequence[np.ndarray]) -> np.ndarray:
    """First row numbers of each run of equal keys; the rows must be sorted."""
    count = len(words[0])
    if count == 0:
        return np.empty(0, dtype=np.int64)
    changed = np.zeros(count, dtype=bool)
    changed[0] = True
    for word in words:
        changed[1:] |= word[1:] != word[:-1]
    return np.flatnonzero(changed)


def key_at(columns: Sequence[pa.Array], row: int) -> Key:
    """The key of one row; `columns` come from `comparable`."""
    return tuple(column[row].as_py() if column[row].is_valid else NULL_PART for column in columns)


def count_up_to(columns: Sequence[pa.Array], key: Key) -> int:
    """Number of rows <= `key` in sorted columns, which come from `comparable`; found by binary search."""
    if len(columns) == 1 and pa.types.is_integer(columns[0].type) and not columns[0].null_count and key != (NULL_PART,):
        return int(np.searchsorted(columns[0].to_numpy(), key[0], "right"))
    low, high = 0, len(columns[0])
    while low < high:
        middle = (low + high) // 2
        if key_at(columns, middle) <= key:
            low = middle + 1
        else:
            high = middle
    return low


def comparable_key(values: Sequence[Any]) -> Key:
    """A `Key` from the internal values of a key in a manifest; floats are mapped to integers in Java's order."""
    return tuple(_comparable_part(value) for value in values)


def _comparable_part(value: Any) -> Any:
    if isinstance(value, float):
        return _float_rank(value)
    return NULL_PART if value is None else value


def _float_rank(value: float) -> int:
    bits = int(np.float64(value).view(np.int64)) if value == value else 0x7FF8000000000000
    return bits ^ 0x7FFFFFFFFFFFFFFF if bits < 0 else bits


_Ints = npt.NDArray[np.int64]
WordsAt = Callable[[_Ints | int], _Ints]
"""Reads the eight bytes at an offset of each serialised row, little-endian, with zeros beyond the end of the row."""

_ARITY_SIZE = 4
_NARROW = {"TINYINT": np.int8, "SMALLINT": np.int16, "INT": np.int32, "DATE": np.int32, "TIME": np.int32}
_MAX_COLUMNS = 56
"""Number of fields whose null bits fit into the first eight bytes, after the row kind."""
_MAX_LENGTH = 256
"""Strings and binaries longer than this many bytes are not converted to words."""
_LOW_BYTES = np.array([(1 << 8 * size) - 1 for size in range(9)], dtype=np.uint64)
_SIGN = np.uint64(1 << 63)


def key_words(words_at: WordsAt, lengths: _Ints, types: Sequence[DataType]) -> list[_Ints] | None:
    """Order words of serialised keys, most significant first. `lengths`: size of each row in bytes.

    None if a row is not a valid key (nulls, another arity, a value beyond its end), or has an unsupported type or length.
    """
    arity = int.from_bytes(len(types).to_bytes(4, "big"), "little")
    slots = _ARITY_SIZE + header_size(len(types))
    if len(types) > _MAX_COLUMNS or (lengths < slots + 8 * len(types)).any():
        return None
    if (words_at(0) & 0xFFFFFFFF != arity).any() or (words_at(_ARITY_SIZE).view(np.uint64) >> np.uint64(8)).any():
        return None
    columns: list[_Ints] = []
    for index, t in enumerate(types):
        words = _column_words(words_at, lengths, slots + 8 * index, t)
        if words is None:
            return None
        columns += words
    return columns


def ranks(columns: Sequence[_Ints]) -> _Ints:
    """One integer (int64) per row that has the order of all its words; equal rows have equal integers."""
    varying = [column for column in columns if (column != column[:1]).any()]
    if len(varying) <= 1:
        return varying[0] if varying else np.zeros(len(columns[0]) if columns else 0, dtype=np.int64)
    order = np.lexsort(varying[::-1])
    steps = np.zeros(len(order), dtype=bool)
    for column in varying:
        ordered = column[order]
        steps[1:] |= ordered[1:] != ordered[:-1]
    found = np.empty(len(order), dtype=np.int64)
    found[order] = np.cumsum(steps)
    return found


def _column_words(words_at: WordsAt, lengths: _Ints, slot: int, t: DataType) -> list[_Ints] | None:
    words = words_at(slot)
    if t.root in _NARROW:
        return [words.astype(_NARROW[t.root]).astype(np.int64)]
    if t.root == "BOOLEAN":
        return [(words & 0xFF != 0).astype(np.int64)]
    if t.root == "BIGINT" or (t.root in TIMESTAMP_ROOTS | {"DECIMAL"} and t.is_compact):
        return [words]
    if t.root == "FLOAT":
        return [_ordered_floats(words.astype(np.int32).view(np.float32).astype(np.float64))]
    if t.root == "DOUBLE":
        return [_ordered_floats(words.view(np.float64))]
    if isinstance(t, TimestampType):
        begins = _ARITY_SIZE + (words >> 32)
        return None if _outside(begins, 8, lengths) else [words_at(begins), words & 0xFFFFFFFF]
    if isinstance(t, (StringType, BinaryType)):
        return _bytes_words(words_at, lengths, slot, words)
    return None


def _ordered_floats(values: npt.NDArray[np.float64]) -> _Ints:
    """IEEE bits transformed so that integer order is Java's order; every NaN becomes the canonical one, which is greatest."""
    bits = np.where(np.isnan(values), np.int64(0x7FF8000000000000), values.view(np.int64))
    return np.where(bits < 0, bits ^ np.int64(0x7FFFFFFFFFFFFFFF), bits)


def _bytes_words(words_at: WordsAt, lengths: _Ints, slot: int, words: _Ints) -> list[_Ints] | None:
    """Big-endian words of the bytes, then the length, which orders a value before the same value followed by zeros."""
    marks = words.view(np.uint64) >> np.uint64(56)
    inline = marks >= 0x80
    sizes = np.where(inline, (marks & np.uint64(0x7F)).view(np.int64), words & 0xFFFFFFFF)
    begins = np.where(inline, slot, _ARITY_SIZE + (words >> 32))
    longest = int(sizes.max(initial=0))
    if longest > _MAX_LENGTH or _outside(begins, sizes, lengths):
        return None
    found = []
    for offset in range(0, longest, 8):
        kept = words_at(begins + offset).view(np.uint64) & _LOW_BYTES[np.clip(sizes - offset, 0, 8)]
        found.append((kept.byteswap() ^ _SIGN).view(np.int64))
    return [*found, sizes]


def _outside(begins: _Ints, sizes: _Ints | int, lengths: _Ints) -> bool:
    return bool(((begins < 0) | (begins + sizes > lengths)).any())
