"""Puts MAP columns together that a Parquet file stores shredded: `map.storage-layout` = shared-shredding (FORMAT.md, 7.7).

A key has a number, by a dictionary in the metadata of the file's Arrow schema. The column is a struct: `__field_mapping` lists
for each row the number of the key that each of the columns `__col_0`, `__col_1`, ... holds there, or -1; `__overflow` is a MAP
from numbers to the values that found no column. So a column holds the values of one frequent key, and is encoded and compressed
well.
"""

from __future__ import annotations

import json
import struct

import numpy as np
import pyarrow as pa

from paimon_cli.errors import NotSupported

FIELD_MAPPING, OVERFLOW, COLUMN_PREFIX = "__field_mapping", "__overflow", "__col_"
STORAGE_LAYOUT_KEY, SHREDDED = b"paimon.map.storage-layout", b"shared-shredding"
METADATA_PREFIX = b"paimon.map.shared-shredding."
_LZ4_HEADER = "<ii"
LARGEST_DICTIONARY = 64 << 20
"""In bytes: a generous limit, because a size in a file is not to be trusted."""


def with_whole_maps(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch of a Parquet file with its shredded columns as MAPs. Raises `ValueError` for a column that contradicts itself."""
    shredded = [number for number, field in enumerate(batch.schema) if _is_shredded(field)]
    for number in shredded:
        field = batch.schema.field(number)
        column = _assembled(batch.column(number), _names_by_number(field.metadata))
        batch = batch.set_column(number, pa.field(field.name, column.type, field.nullable), column)
    return batch


def _is_shredded(field: pa.Field) -> bool:
    return pa.types.is_struct(field.type) and (field.metadata or {}).get(STORAGE_LAYOUT_KEY) == SHREDDED


def _names_by_number(metadata: dict[bytes, bytes]) -> pa.Array:
    """The keys, each at the position that is its number."""
    version = metadata.get(METADATA_PREFIX + b"version")
    if version != b"1":
        raise NotSupported("a data file stores a MAP shredded", f"its version {version!r} is not known")
    size = int(metadata[METADATA_PREFIX + b"field-dict-original-size"])
    if not 0 <= size <= LARGEST_DICTIONARY:
        raise ValueError(f"the dictionary of a shredded MAP cannot have {size} bytes")
    stored = metadata[METADATA_PREFIX + b"field-dict"].decode().encode("latin-1")
    codec = metadata.get(METADATA_PREFIX + b"field-dict-compression", b"zstd").decode().lower()
    numbers = json.loads(_decompressed(stored, codec, size))
    found = np.array([number for number in numbers.values() if type(number) is int], dtype=np.int64)
    order = np.argsort(found, kind="stable")
    if len(found) != len(numbers) or (found[order] != np.arange(len(found))).any():  # also two keys of one number
        raise ValueError("the keys of a shredded MAP are not numbered from 0 on")
    return pa.array(list(numbers), pa.string()).take(pa.array(order))


def _decompressed(stored: bytes, codec: str, size: int) -> bytes:
    if codec == "none":
        return stored
    if codec == "lz4":
        length, _ = struct.unpack_from(_LZ4_HEADER, stored)
        begin = struct.calcsize(_LZ4_HEADER)
        stored, codec = stored[begin : begin + length], "lz4_raw"
    elif codec != "zstd":
        raise NotSupported("a data file stores a MAP shredded", f"its dictionary is compressed with {codec}")
    return bytes(pa.decompress(stored, decompressed_size=size, codec=codec, asbytes=True)) if size else b"{}"


def _assembled(column: pa.StructArray, names: pa.Array) -> pa.MapArray:
    """The rows of a shredded column as a MAP with nullable values; the order of keys is that of the columns, overflow last."""
    present = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
    parts = {field.name: column.field(number) for number, field in enumerate(column.type)}
    columns = [parts[f"{COLUMN_PREFIX}{number}"] for number in range(sum(name.startswith(COLUMN_PREFIX) for name in parts))]
    mapping = parts[FIELD_MAPPING] if len(present) == len(column) else parts[FIELD_MAPPING].take(pa.array(present))
    numbers = mapping.flatten().to_numpy(zero_copy_only=False).astype(np.int64)
    if mapping.null_count or len(numbers) != len(present) * len(columns):
        raise ValueError("a row of a shredded MAP does not say which keys its columns hold")
    held = np.flatnonzero(numbers >= 0)
    key_of, within = numbers[held], held % max(len(columns), 1)
    row_of = present[held // max(len(columns), 1)]
    sources, values = within * len(column) + row_of, columns
    if OVERFLOW in parts and len(parts[OVERFLOW].items):
        rows_beyond, keys_beyond, values_beyond = _overflow(parts[OVERFLOW], column.is_valid().to_numpy(zero_copy_only=False))
        order = np.argsort(np.concatenate([row_of, rows_beyond]), kind="stable")
        beyond = len(columns) * len(column) + np.arange(len(rows_beyond))
        sources, values = np.concatenate([sources, beyond])[order], [*columns, values_beyond]
        row_of, key_of = np.concatenate([row_of, rows_beyond])[order], np.concatenate([key_of, keys_beyond])[order]
    if len(key_of) and key_of.max() >= len(names):
        raise ValueError("a row of a shredded MAP has a key that its dictionary lacks")
    items = pa.concat_arrays(values or [parts[OVERFLOW].items[:0]]).take(pa.array(sources))
    offsets = np.zeros(len(column) + 1, dtype=np.int32)
    np.cumsum(np.bincount(row_of, minlength=len(column)), out=offsets[1:])
    whole = pa.map_(pa.field("key", pa.string(), False), pa.field("value", items.type))
    absent = column.is_null() if column.null_count else None
    return pa.MapArray.from_arrays(pa.array(offsets), names.take(pa.array(key_of)), items, type=whole, mask=absent)


def _overflow(beyond: pa.MapArray, is_present: np.ndarray) -> tuple[np.ndarray, np.ndarray, pa.Array]:
    """The row, the number of the key and the value of each entry that found no column."""
    offsets = beyond.offsets.to_numpy()
    counts = np.where(beyond.is_valid().to_numpy(zero_copy_only=False) & is_present, np.diff(offsets), 0)
    rows = np.repeat(np.arange(len(beyond)), counts)
    firsts = np.repeat(offsets[:-1], counts)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    entries = pa.array(firsts + within)
    return rows, beyond.keys.take(entries).to_numpy(zero_copy_only=False).astype(np.int64), beyond.items.take(entries)
