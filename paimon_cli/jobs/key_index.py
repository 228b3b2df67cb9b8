"""Finds the row of a source that has the same values as a row of a table: the join of a merge, vectorised."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

NO_ROW = -1
"""The position of no row."""


class KeyIndex:
    """The rows of some columns by their values. Null equals nothing, as in SQL.

    Each column is encoded by the position of its value among the distinct values; the codes of several columns are combined into
    one number, and made dense again after each column, so that no number gets large.

    >>> index = KeyIndex([pa.array([1, 1, 2]), pa.array(["a", "b", None])])
    >>> index.rows_of([pa.array([1, 2, 1]), pa.array(["b", "a", "c"])]).tolist()
    [1, -1, -1]
    """

    def __init__(self, columns: Sequence[pa.Array]) -> None:
        self._columns: list[_Column] = []
        codes = np.zeros(len(columns[0]), np.int64)
        for values in columns:
            distinct = pc.unique(values).drop_null()
            own = _codes(values, distinct)
            combined = _combined(codes, own, len(distinct))
            known = np.unique(combined[combined >= 0])
            self._columns.append(_Column(distinct, known))
            codes = _dense(combined, known)
        self._codes = codes
        rows = np.flatnonzero(codes >= 0)
        groups = len(self._columns[-1].known)
        self._first = np.full(groups, NO_ROW, np.int64)
        self._first[codes[rows[::-1]]] = rows[::-1]
        self._counts = np.bincount(codes[rows], minlength=groups)

    def rows_of(self, columns: Sequence[pa.Array]) -> np.ndarray:
        """For each row the position of the first row of the index with the same values, or `NO_ROW`."""
        codes = np.zeros(len(columns[0]), np.int64)
        for values, column in zip(columns, self._columns, strict=True):
            codes = _dense(_combined(codes, _codes(values, column.distinct), len(column.distinct)), column.known)
        if not len(self._first):
            return np.full(len(codes), NO_ROW, np.int64)
        return np.where(codes >= 0, self._first[codes], NO_ROW)

    def repeats(self, rows: np.ndarray) -> np.ndarray:
        """Whether these rows of the index (positions) have the values of another row, too."""
        return self._counts[self._codes[rows]] > 1

    @property
    def is_unique(self) -> bool:
        return not bool((self._counts > 1).any())

    def first_repeated(self) -> int:
        """The position of a row whose values another row has, too."""
        return int(self._first[np.argmax(self._counts > 1)])


@dataclass(frozen=True)
class _Column:
    """The `distinct` values of a column, and the sorted codes of all columns up to it that occur (`known`)."""

    distinct: pa.Array
    known: np.ndarray


def _codes(values: pa.Array, distinct: pa.Array) -> np.ndarray:
    found = pc.index_in(values, value_set=distinct)
    return np.asarray(found.fill_null(NO_ROW).to_numpy(zero_copy_only=False), np.int64)


def _combined(codes: np.ndarray, own: np.ndarray, count: int) -> np.ndarray:
    return np.where((codes < 0) | (own < 0), NO_ROW, codes * max(count, 1) + own)


def _dense(combined: np.ndarray, known: np.ndarray) -> np.ndarray:
    """The positions of the codes among the known ones; `NO_ROW` for others."""
    if not len(known):
        return np.full(len(combined), NO_ROW, np.int64)
    at = np.minimum(np.searchsorted(known, combined), len(known) - 1)
    return np.where((combined >= 0) & (known[at] == combined), at, NO_ROW)
