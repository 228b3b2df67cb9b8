"""Many blocks of equal Avro records decoded side by side: step i reads record i of every block, field by field, as arrays.

Python's cost is then one step per record of a *block*, however many
there are. Only numbers, and where bytes lie, come out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from paimon_cli.metadata.avro_container import AvroSchema

BEGIN, END = "begin", "end"
"""Columns of the byte range of each record."""
ABSENT = np.iinfo(np.int64).min
"""What a number is where its union says null."""

_WORD = 8
_STOP_BITS = np.uint64(0x8080808080808080)
_MOST_NUMBERS = 500
_DEEPEST = 10
PADDING = (_MOST_NUMBERS + 2) * _WORD * 2
"""Zero bytes wanted behind the blocks: cursors may run over their end by the numbers of one record before that is noticed."""
_FIXED_SIZES = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_SHORT = np.array([(byte >> 1) ^ -(byte & 1) for byte in range(128)], dtype=np.int64)
_Reader = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, dict[str, np.ndarray]]]


class NotColumnar(Exception):
    """Bytes or a schema that only a reader of single records can judge; says nothing to users."""


def decode_columns(
    data: np.ndarray, schema: AvroSchema, counts: np.ndarray, sizes: np.ndarray, wanted: Collection[str]
) -> dict[str, np.ndarray]:
    """Columns of all records in the order of `data`, the blocks (uint8) one behind the other and `PADDING` behind them.

    `counts`, `sizes`: records and bytes of each block. `wanted`: paths such as `_FILE._LEVEL`; a number gives one int64 column,
    anything else its byte range, in columns `PATH.begin` and `PATH.end`; a column that is null everywhere is missing.
    Raises `NotColumnar` where a block is not exactly its records.
    """
    return _SideBySide(data, schema, wanted).decoded(counts, sizes)


class _SideBySide:
    """The compiled schema and the buffer that it reads."""

    def __init__(self, data: np.ndarray, schema: AvroSchema, wanted: Collection[str]) -> None:
        self._wanted = frozenset(wanted)
        self._named: dict[str, AvroSchema] = {}
        self._numbers = 0
        self._read_record = self._compiled(schema, "")
        self._bytes = data
        self._words = np.ndarray((len(self._bytes) - _WORD + 1,), dtype="<u8", buffer=self._bytes.data, strides=(1,))

    def decoded(self, counts: np.ndarray, sizes: np.ndarray) -> dict[str, np.ndarray]:
        if (counts < 0).any() or (counts > sizes).any():
            raise NotColumnar
        order = np.argsort(-counts, kind="stable")
        ends = np.cumsum(sizes)[order]
        cursors = ends - sizes[order]
        places = (np.cumsum(counts) - counts)[order]
        counts = counts[order]
        total, columns = int(counts.sum()), dict[str, np.ndarray]()
        for step in range(int(counts[0]) if len(counts) else 0):
            active = int(np.searchsorted(-counts, -step, side="left"))
            rows, before = places[:active] + step, cursors[:active].copy()
            after, values = self._read_record(before, ends[:active])
            if (after > ends[:active]).any():
                raise NotColumnar
            cursors[:active] = after
            for name, column in {**values, BEGIN: before, END: after}.items():
                if name not in columns:
                    columns[name] = np.full(total, ABSENT)
                columns[name][rows] = column
        if (cursors != ends).any():
            raise NotColumnar
        return columns

    def _compiled(self, schema: AvroSchema, path: str) -> _Reader:
        if isinstance(schema, str) and schema in self._named:
            return self._compiled(self._named[schema], path)
        self._numbers += 1
        if self._numbers > _MOST_NUMBERS or path.count(".") > _DEEPEST:
            raise NotColumnar  # it may be a record that holds itself
        if isinstance(schema, list):
            return self._union([self._compiled(branch, path) for branch in schema])
        kind = schema["type"] if isinstance(schema, dict) else schema
        if not isinstance(kind, str):
            return self._compiled(kind, path)
        if kind == "record":
            return self._record(schema, path)
        if kind in ("int", "long"):
            return self._number(path)
        if kind in ("bytes", "string"):
            return self._ranged(self._skip_bytes, path)
        if kind == "array":
            return self._ranged(self._array(self._compiled(schema["items"], f"{path}[]")), path)
        if kind in _FIXED_SIZES:
            size = _FIXED_SIZES[kind]
            return lambda cursors, ends: (cursors + size, {})
        raise NotColumnar

    def _record(self, schema: Mapping[str, Any], path: str) -> _Reader:
        for name in (schema["name"], f"{schema.get('namespace', '')}.{schema['name']}"):
            self._named[name] = schema
        prefix = f"{path}." if path else ""
        readers = [self._compiled(field["type"], prefix + field["name"]) for field in schema["fields"]]

        def read(cursors: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
            values: dict[str, np.ndarray] = {}
            for reader in readers:
                cursors, found = reader(cursors, ends)
                if found:
                    values.update(found)
            return cursors, values

        return read

    def _number(self, path: str) -> _Reader:
        if path not in self._wanted:
            return lambda cursors, ends: (self._numbers_at(cursors)[0], {})

        def read(cursors: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
            cursors, values = self._numbers_at(cursors)
            return cursors, {path: values}

        return read

    def _ranged(self, skip: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]], path: str) -> _Reader:
        """`skip` gives the cursors behind a value and where its content begins."""
        if path not in self._wanted:
            return lambda cursors, ends: (skip(cursors, ends)[0], {})

        def read(cursors: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
            after, begin = skip(cursors, ends)
            return after, {f"{path}.{BEGIN}": begin, f"{path}.{END}": after}

        return read

    def _skip_bytes(self, cursors: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        begin, lengths = self._numbers_at(cursors)
        after = begin + lengths
        if np.minimum.reduce(lengths, initial=0) < 0 or np.logical_or.reduce(lengths > ends - begin):
            raise NotColumnar
        return after, begin

    def _array(self, item: _Reader) -> Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
        def skip(cursors: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            begin = cursors
            cursors, left = self._numbers_at(cursors)
            while True:
                if np.logical_or.reduce((left < 0) | (left > ends - cursors)):
                    raise NotColumnar  # too long, or in the form with sizes, which Paimon does not write
                if not np.logical_or.reduce(left):
                    return cursors, begin
                cursors, left = self._items(item, cursors, ends, left)

        return skip

    def _items(self, item: _Reader, cursors: np.ndarray, ends: np.ndarray, left: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """One round: an item where some are left; behind the last one comes the next count, zero at the end."""
        if np.logical_and.reduce(left):
            rows: Any = slice(None)
            cursors, left = item(cursors, ends)[0], left - 1
        else:
            rows = np.flatnonzero(left)
            cursors, left = cursors.copy(), left.copy()
            cursors[rows] = item(cursors[rows], ends[rows])[0]
            left[rows] -= 1
        if (cursors > ends).any():
            raise NotColumnar
        finished = np.arange(len(left))[rows]
        finished = finished[left[finished] == 0]
        if len(finished):
            cursors, left = cursors.copy(), left.copy()
            cursors[finished], left[finished] = self._numbers_at(cursors[finished])
        return cursors, left

    def _union(self, branches: Sequence[_Reader]) -> _Reader:
        def read(cursors: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
            cursors, tags = self._numbers_at(cursors)
            first = int(tags[0])
            if not 0 <= first < len(branches):
                raise NotColumnar
            if np.logical_and.reduce(tags == first):
                after, found = branches[first](cursors, ends)
                return after, found
            return self._mixed(branches, cursors, ends, tags)

        return read

    def _mixed(
        self, branches: Sequence[_Reader], cursors: np.ndarray, ends: np.ndarray, tags: np.ndarray
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        if ((tags < 0) | (tags >= len(branches))).any():
            raise NotColumnar
        after, values = cursors.copy(), dict[str, np.ndarray]()
        for tag, branch in enumerate(branches):
            rows = np.flatnonzero(tags == tag)
            if not len(rows):
                continue
            after[rows], found = branch(cursors[rows], ends[rows])
            for name, column in found.items():
                values.setdefault(name, np.full(len(tags), ABSENT))[rows] = column
        return after, values

    def _numbers_at(self, cursors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Cursors behind one variable-length zigzag number each, and the numbers; up to eight bytes long."""
        first = self._bytes[cursors]
        if np.maximum.reduce(first, initial=0) < 0x80:
            return cursors + 1, _SHORT[first]
        words = self._words[cursors]
        stops = ~words & _STOP_BITS
        if not np.logical_and.reduce(stops):
            raise NotColumnar
        kept = stops ^ (stops - np.uint64(1))
        lengths = (np.bitwise_count(kept) >> 3).astype(np.int64)
        return cursors + lengths, _unzigzag(words & kept)


def _unzigzag(groups: np.ndarray) -> np.ndarray:
    """Eight groups of seven bits, the lowest first, as signed numbers."""
    bits = groups & np.uint64(0x7F7F7F7F7F7F7F7F)
    bits = (bits & np.uint64(0x007F007F007F007F)) | ((bits & np.uint64(0x7F007F007F007F00)) >> np.uint64(1))
    bits = (bits & np.uint64(0x00003FFF00003FFF)) | ((bits & np.uint64(0x3FFF00003FFF0000)) >> np.uint64(2))
    bits = (bits & np.uint64(0x000000000FFFFFFF)) | ((bits & np.uint64(0x0FFFFFFF00000000)) >> np.uint64(4))
    signs = (bits & np.uint64(1)).view(np.int64)
    return (bits >> np.uint64(1)).view(np.int64) ^ -signs
