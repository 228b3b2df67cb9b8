"""Writes MAP columns shredded: `map.storage-layout` = shared-shredding (FORMAT.md, 7.7; `shredded_maps` reads them).

The most frequent keys of the first rows have a column of their own. Other keys of a row take the columns that it leaves free, and
the overflow where there are none. Readers find a value by the mapping of its row, wherever it is.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.bucket.shredded_maps import (
    COLUMN_PREFIX,
    FIELD_MAPPING,
    LARGEST_DICTIONARY,
    METADATA_PREFIX,
    OVERFLOW,
    SHREDDED,
    STORAGE_LAYOUT_KEY,
)
from paimon_cli.datatypes.arrow_types import NESTED_ID_BASE
from paimon_cli.datatypes.data_type import DataField, MapType, StringType
from paimon_cli.errors import NotSupported
from paimon_cli.options.column_options import STORAGE_LAYOUT
from paimon_cli.options.option_text import integer, read_option
from paimon_cli.options.table_options import TableOptions
from paimon_cli.pieces import PIECES

_DEFAULT_COLUMNS = 256
_SCHEMA = "ARROW:schema"
_ELEMENT_ID = NESTED_ID_BASE + 1


def shreds_maps(fields: Sequence[DataField], options: TableOptions) -> list[str]:
    """The columns that Parquet files of the table store shredded."""
    return [field.name for field in fields if _is_shredded(field, options)]


def _is_shredded(field: DataField, options: TableOptions) -> bool:
    layout = options.raw.get(f"fields.{field.name}.{STORAGE_LAYOUT}", "").lower()
    t = field.type
    if layout != SHREDDED.decode() or not isinstance(t, MapType) or not isinstance(t.key, StringType):
        return False
    return not any(part.root in ("VARIANT", "MULTISET", "CHAR") for part in t.parts())


class ShreddedColumns:
    """The shredded columns of one file. `schema`: that of the rows; `sample`: the first rows."""

    def __init__(self, fields: Sequence[DataField], schema: pa.Schema, options: TableOptions, sample: pa.RecordBatch) -> None:
        self._shredders = {
            name: _Shredder(schema.field(name), _most_columns(name, options), sample.column(name))
            for name in shreds_maps(fields, options)
            if name in sample.schema.names
        }
        self.schema = pa.schema(
            [self._shredders[field.name].field if field.name in self._shredders else field for field in schema]
        )

    def takes(self) -> bool:
        """Whether the dictionaries may still grow: readers refuse very large ones."""
        return all(shredder.size < PIECES.shredded_keys_bytes for shredder in self._shredders.values())

    def stored(self, rows: pa.Table) -> pa.Table:
        """The rows as the file stores them."""
        for name, shredder in self._shredders.items():
            chunks = [shredder.shredded(chunk) for chunk in rows.column(name).chunks]
            column = pa.chunked_array(chunks, shredder.field.type)
            rows = rows.set_column(rows.schema.get_field_index(name), shredder.field, column)
        return rows

    def metadata(self) -> dict[str, str]:
        """The metadata of the file, by which readers know its keys; empty without shredded columns."""
        if not self._shredders:
            return {}
        fields = [
            field.with_metadata({**(field.metadata or {}), **self._shredders[field.name].metadata()})
            if field.name in self._shredders
            else field
            for field in self.schema
        ]
        return {_SCHEMA: base64.b64encode(pa.schema(fields).serialize().to_pybytes()).decode()}


def _most_columns(name: str, options: TableOptions) -> int:
    key = f"fields.{name}.map.shared-shredding.max-columns"
    return read_option(key, options.raw.get(key, str(_DEFAULT_COLUMNS)), integer(1))


class _Shredder:
    """One column. Keys are numbered as they are met, in the first rows by their frequency."""

    def __init__(self, field: pa.Field, most_columns: int, sample: pa.MapArray) -> None:
        lengths = np.diff(sample.offsets.to_numpy())
        self._count = max(1, min(most_columns, int(lengths.max(initial=1))))
        self._value = field.type.item_field.with_nullable(True)
        self.field = pa.field(field.name, self._type(), field.nullable, {k: v for k, v in (field.metadata or {}).items()})
        self._keys = pa.array([], pa.string())
        self.size = 0
        self._places = set[int]()
        self._overflowing = set[int]()
        self._widest = 0
        self._learn(_keys_of(sample))

    def _type(self) -> pa.DataType:
        mapping = pa.field(
            FIELD_MAPPING, pa.list_(pa.field("element", pa.int32(), True, _field_id(_ELEMENT_ID))), True, _field_id(0)
        )
        columns = [
            pa.field(f"{COLUMN_PREFIX}{number}", self._value.type, True, _field_id(number + 1)) for number in range(self._count)
        ]
        last = self._count + 1
        key, value = pa.field("key", pa.int32(), False, _field_id(last * 2 + 1000)), self._value.with_name("value")
        return pa.struct([mapping, *columns, pa.field(OVERFLOW, pa.map_(key, value), True, _field_id(last))])

    def _learn(self, keys: pa.StringArray) -> None:
        counts = pc.value_counts(keys)
        fresh = counts.filter(pc.invert(pc.is_in(counts.field("values"), self._keys)))
        order = np.argsort(-fresh.field("counts").to_numpy(), kind="stable")
        found = fresh.field("values").take(pa.array(order))
        self._keys = pa.concat_arrays([self._keys, found])
        self.size += found.nbytes

    def shredded(self, column: pa.MapArray) -> pa.StructArray:
        """The column as a struct; dictionaries grow by its keys."""
        self._learn(_keys_of(column))
        rows = max(1, PIECES.shredded_cells // self._count)
        parts = [self._piece(column.slice(first, rows)) for first in range(0, len(column), rows)]
        return pa.concat_arrays(parts) if parts else pa.array([], self.field.type)

    def _piece(self, column: pa.MapArray) -> pa.StructArray:
        is_valid = column.is_valid().to_numpy(zero_copy_only=False)
        offsets = column.offsets.to_numpy().astype(np.int64)
        lengths = np.where(is_valid, np.diff(offsets), 0)
        row_of = np.repeat(np.arange(len(column)), lengths)
        within = np.arange(len(row_of)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        entries = np.repeat(offsets[:-1], lengths) + within
        ids = pc.index_in(column.keys.take(pa.array(entries)), self._keys).to_numpy().astype(np.int64)
        columns = self._placed(row_of, ids, len(column))
        self._widest = max(self._widest, int(lengths.max(initial=0)))
        placed, beyond = np.flatnonzero(columns >= 0), np.flatnonzero(columns < 0)
        self._places.update(np.unique(ids[placed] * self._count + columns[placed]).tolist())
        self._overflowing.update(np.unique(ids[beyond]).tolist())
        mapping, sources = np.full((2, len(column), self._count), -1, np.int64)
        mapping[row_of[placed], columns[placed]] = ids[placed]
        sources[row_of[placed], columns[placed]] = entries[placed]
        starts = np.concatenate([[0], np.cumsum(np.where(is_valid, self._count, 0))]).astype(np.int32)
        lists = self.field.type.field(0).type
        numbers = pa.ListArray.from_arrays(pa.array(starts), pa.array(mapping[is_valid].ravel().astype(np.int32)), type=lists)
        values = [column.items.take(pa.array(part, mask=part < 0)) for part in sources.T]
        overflow = self._overflow(column, row_of[beyond], ids[beyond], entries[beyond])
        absent = pa.array(~is_valid) if column.null_count else None
        return pa.StructArray.from_arrays([numbers, *values, overflow], fields=list(self.field.type), mask=absent)

    def _placed(self, row_of: np.ndarray, ids: np.ndarray, rows: int) -> np.ndarray:
        """The column of each entry, or -1 for the overflow."""
        columns = np.full(len(ids), -1, np.int64)
        own = np.flatnonzero(ids < self._count)
        first = own[np.unique(row_of[own] * self._count + ids[own], return_index=True)[1]]  # a key may be there twice
        columns[first] = ids[first]
        taken = np.zeros((rows, self._count), bool)
        taken[row_of[first], ids[first]] = True
        rest = np.flatnonzero(columns < 0)
        if len(rest):
            free = np.argsort(taken, axis=1, kind="stable")
            sizes = np.bincount(row_of[rest], minlength=rows)
            turn = np.arange(len(rest)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
            fits = turn < (~taken).sum(axis=1)[row_of[rest]]
            columns[rest[fits]] = free[row_of[rest[fits]], turn[fits]]
        return columns

    def _overflow(self, column: pa.MapArray, rows: np.ndarray, ids: np.ndarray, entries: np.ndarray) -> pa.MapArray:
        sizes = np.bincount(rows, minlength=len(column))
        starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
        keys, items = pa.array(ids.astype(np.int32)), column.items.take(pa.array(entries))
        t = self.field.type.field(self._count + 1).type
        return pa.MapArray.from_arrays(pa.array(starts), keys, items, type=t, mask=pa.array(sizes == 0))

    def metadata(self) -> dict[bytes, bytes]:
        """What readers must know of the column, once all rows are written.

        Raises `NotSupported` for a dictionary that readers refuse, so that the file is never published.
        """
        numbers = {name: number for number, name in enumerate(self._keys.to_pylist())}
        text = _json(numbers).encode()
        if len(text) > LARGEST_DICTIONARY:
            what = f"cannot write column '{self.field.name}' shredded"
            why = f"the dictionary of its keys has {len(text):,} bytes, and readers take {LARGEST_DICTIONARY:,}"
            raise NotSupported(what, why, f"unset fields.{self.field.name}.{STORAGE_LAYOUT}, or write fewer rows at a time")
        columns: dict[str, list[int]] = {}
        for place in sorted(self._places):
            columns.setdefault(str(place // self._count), []).append(place % self._count)
        stored = bytes(pa.compress(text, codec="zstd", asbytes=True))
        return {
            STORAGE_LAYOUT_KEY: SHREDDED,
            METADATA_PREFIX + b"version": b"1",
            METADATA_PREFIX + b"field-dict": stored.decode("latin-1").encode(),
            METADATA_PREFIX + b"field-dict-compression": b"zstd",
            METADATA_PREFIX + b"field-dict-original-size": str(len(text)).encode(),
            METADATA_PREFIX + b"field-columns": _json(columns).encode(),
            METADATA_PREFIX + b"overflow-set": _json(sorted(self._overflowing)).encode(),
            METADATA_PREFIX + b"num-columns": str(self._count).encode(),
            METADATA_PREFIX + b"max-row-width": str(self._widest).encode(),
        }


def _keys_of(column: pa.MapArray) -> pa.StringArray:
    offsets = column.offsets.to_numpy()
    return column.keys[int(offsets[0]) : int(offsets[-1])]


def _json(content: object) -> str:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))


def _field_id(number: int) -> dict[str, str]:
    return {"PARQUET:field_id": str(number)}
