"""Finds the row of a source that has the same values as a row of a table: the join of a merge, vectorised."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

NO_ROW = -1
"""The position of no row."""


class RowIndex(Protocol):
    """The rows of some columns by their values. Null equals nothing, as in SQL."""

    def rows_of(self, columns: Sequence[pa.Array]) -> np.ndarray:
        """For each row the position of the first row of the index with the same values, or `NO_ROW`."""
        ...

    def repeats(self, rows: np.ndarray) -> np.ndarray:
        """Whether these rows of the index (positions of first ones) have the values of another row, too."""
        ...

    def all_like(self, rows: np.ndarray) -> np.ndarray:
        """These rows of the index (positions), and those with the same values."""
        ...

    @property
    def is_unique(self) -> bool: ...

    def first_repeated(self) -> int:
        """The position of a row whose values another row has, too."""
        ...


class KeyIndex:
    """The rows of some columns by their values. Null equals nothing, as in SQL, or null, as in keys (`null_is_value`).

    Each column is encoded by the position of its value among the distinct values; the codes of several columns are combined into
    one number, and made dense again after each column, so that no number gets large.

    >>> index = KeyIndex([pa.array([1, 1, 2]), pa.array(["a", "b", None])])
    >>> index.rows_of([pa.array([1, 2, 1]), pa.array(["b", "a", "c"])]).tolist()
    [1, -1, -1]
    """

    def __init__(self, columns: Sequence[pa.Array], null_is_value: bool = False) -> None:
        self._columns: list[_Column] = []
        codes = np.zeros(len(columns[0]), np.int64)
        for values in columns:
            column = _Column(_distinct(values), null_is_value)
            codes = _combined(codes, column.codes(values), column.size)
            if self._columns:
                column.known = _unique(codes[codes >= 0])
                codes = _dense(codes, column.known)
            self._columns.append(column)
        self._codes = codes
        rows = np.flatnonzero(codes >= 0)
        last = self._columns[-1]
        groups = last.size if last.known is None else len(last.known)
        self._first = np.full(groups, NO_ROW, np.int64)
        self._first[codes[rows[::-1]]] = rows[::-1]
        self._counts = np.bincount(codes[rows], minlength=groups)

    def rows_of(self, columns: Sequence[pa.Array]) -> np.ndarray:
        """For each row the position of the first row of the index with the same values, or `NO_ROW`."""
        codes = np.zeros(len(columns[0]), np.int64)
        for values, column in zip(columns, self._columns, strict=True):
            codes = _combined(codes, column.codes(values), column.size)
            if column.known is not None:
                codes = _dense(codes, column.known)
        if not len(self._first):
            return np.full(len(codes), NO_ROW, np.int64)
        return np.where(codes >= 0, self._first[codes], NO_ROW)

    def repeats(self, rows: np.ndarray) -> np.ndarray:
        """Whether these rows of the index (positions) have the values of another row, too."""
        return self._counts[self._codes[rows]] > 1

    def all_like(self, rows: np.ndarray) -> np.ndarray:
        """These rows of the index (positions), and those with the same values."""
        return rows if self.is_unique else np.flatnonzero(np.isin(self._codes, self._codes[rows]))

    @property
    def is_unique(self) -> bool:
        return not bool((self._counts > 1).any())

    def first_repeated(self) -> int:
        """The position of a row whose values another row has, too."""
        return int(self._first[np.argmax(self._counts > 1)])


@dataclass
class _Column:
    """The `distinct` values of a column, ascending: numpy numbers, or an Arrow array of other types. `known`: the sorted codes of
    all columns up to it that occur; None for the first one, of which all may.
    """

    distinct: pa.Array | np.ndarray
    null_is_value: bool = False
    known: np.ndarray | None = None

    @property
    def size(self) -> int:
        return len(self.distinct) + self.null_is_value

    def codes(self, values: pa.Array) -> np.ndarray:
        """The positions of the values among the distinct ones; `NO_ROW` for others, and for null unless it comes after them."""
        found = self._positions(values)
        if not (self.null_is_value and values.null_count):
            return found
        return np.where(values.is_null().to_numpy(zero_copy_only=False), len(self.distinct), found)

    def _positions(self, values: pa.Array) -> np.ndarray:
        if isinstance(self.distinct, np.ndarray):
            numbers, is_null = _numbers(values)
            found = _dense(numbers, self.distinct)
            return np.where(is_null, NO_ROW, found)
        start, stop = self._range(values)
        found = pc.index_in(values, value_set=self.distinct.slice(start, stop - start))
        codes = np.asarray(found.fill_null(NO_ROW).to_numpy(zero_copy_only=False), np.int64)
        return np.where(codes == NO_ROW, NO_ROW, codes + start)

    def _range(self, values: pa.Array) -> tuple[int, int]:
        """The distinct values between the least and the greatest of `values`: a table with keys is read in their order, and Arrow
        hashes all of them for each batch.
        """
        if not (pa.types.is_string(values.type) or pa.types.is_decimal(values.type)):
            return 0, len(self.distinct)
        ends = pc.min_max(values).as_py()
        if ends["min"] is None:
            return 0, 0
        at = _Values(self.distinct)
        return bisect_left(at, _comparable(ends["min"])), bisect_right(at, _comparable(ends["max"]))


class _Values(Sequence[Any]):
    """The values of an array for `bisect`, in Arrow's order: texts by their bytes."""

    def __init__(self, values: pa.Array) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, at: Any) -> Any:
        return _comparable(self._values[at].as_py())


def _comparable(value: Any) -> Any:
    return value.encode(errors="surrogatepass") if isinstance(value, str) else value


def _distinct(values: pa.Array) -> pa.Array | np.ndarray:
    if _is_number(values.type):
        numbers, is_null = _numbers(values)
        return _unique(numbers[~is_null])
    distinct = pc.unique(values).drop_null()
    return distinct.sort() if pa.types.is_string(values.type) or pa.types.is_decimal(values.type) else distinct


def _unique(numbers: np.ndarray) -> np.ndarray:
    """The different numbers, ascending. `np.unique` hashes them, which takes ten times as long."""
    ordered = np.sort(numbers)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]]


def _is_number(t: pa.DataType) -> bool:
    return pa.types.is_integer(t) or pa.types.is_boolean(t) or pa.types.is_temporal(t)


def _numbers(values: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """The values as int64, and which are null."""
    t = values.type
    if pa.types.is_temporal(t):
        values = values.view(pa.int64() if t.bit_width == 64 else pa.int32())
    numbers = pc.fill_null(values.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    return numbers, values.is_null().to_numpy(zero_copy_only=False)


def _combined(codes: np.ndarray, own: np.ndarray, count: int) -> np.ndarray:
    return np.where((codes < 0) | (own < 0), NO_ROW, codes * max(count, 1) + own)


def _dense(numbers: np.ndarray, known: np.ndarray) -> np.ndarray:
    """The positions of numbers among the known, sorted ones; `NO_ROW` for others."""
    if not len(known):
        return np.full(len(numbers), NO_ROW, np.int64)
    at = np.minimum(np.searchsorted(known, numbers), len(known) - 1)
    return np.where(known[at] == numbers, at, NO_ROW)
