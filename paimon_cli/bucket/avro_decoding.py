"""Decodes blocks of an Avro data file as Arrow columns, without a Python object for each cell.

`avro_records` finds where the records begin, `avro_columns` their values, all records at a time. If some have long texts, as many
records are decoded at a time as there are blocks. Records with nested values or with numbers of more than eight bytes are decoded
one by one (`avro_rows`), and so is what is malformed, so that it is refused in the same words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from paimon_cli.datatypes.byte_slices import ByteSlices
from paimon_cli.metadata.avro_columns import BEGIN, END, NULL_NUMBER, PADDING, NotColumnar, decode_columns
from paimon_cli.metadata.avro_records import record_sizes
from paimon_cli.pieces import PIECES

_WORD = 8
_TARGETS = {"string": pa.string(), "bytes": pa.binary(), "boolean": pa.bool_(), "float": pa.float32(), "double": pa.float64()}
_INTEGERS = {pa.int8(), pa.int16(), pa.int32(), pa.int64()}


def decoded_blocks(
    schema: Any, blocks: Sequence[tuple[int, bytes]], targets: Mapping[str, pa.DataType], side_by_side: bool = True
) -> Sequence[pa.Array]:
    """The columns of all records of the blocks, each with the number of its records, in these types.

    `schema`: of a record, without logical types other than decimal; `targets`: of fields that it has. `side_by_side`: whether to
    decode one record of each block at a time if there is no other way, which wants many blocks. Raises `NotColumnar`.
    """
    counts, sizes = (np.array(numbers, np.int64) for numbers in ([c for c, _ in blocks], [len(c) for _, c in blocks]))
    total = int(counts.sum())
    if counts.min(initial=0) < 0:
        raise NotColumnar
    kinds = {field["name"]: _kind(field["type"]) for field in schema["fields"]}
    wanted = {name for name in targets if _is_decoded(kinds[name], targets[name])}
    if len(wanted) < len(targets):
        raise NotColumnar
    content = b"".join(content for _, content in blocks)
    try:
        sizes = record_sizes(schema, content, counts, sizes)
        counts = np.ones(total, np.int64)
    except NotColumnar:
        if not side_by_side or total < int(counts.max()) * PIECES.avro_lanes:
            raise
    data = np.frombuffer(content + bytes(PADDING), np.uint8)
    ranges = {f"{name}.{end}" for name in wanted for end in (BEGIN, END)}
    found = decode_columns(data, schema, counts, sizes, wanted | ranges)
    return [_column(data, found, name, target, total) for name, target in targets.items()]


def _kind(schema: Any) -> Any:
    """The type of a field, or the one that a union makes nullable; None for other unions."""
    if isinstance(schema, list):
        others = [branch for branch in schema if branch != "null"]
        return _kind(others[0]) if len(others) == 1 else None
    return _kind(schema["type"]) if isinstance(schema, dict) and isinstance(schema["type"], (dict, list)) else schema


def _is_decoded(kind: Any, target: pa.DataType) -> bool:
    """Whether values of this Avro type can be decoded here as values of the Arrow type."""
    if isinstance(kind, dict) and kind["type"] == "bytes" and kind.get("logicalType") == "decimal":
        return bool(pa.types.is_decimal128(target)) and target.precision <= 18 and kind.get("scale", 0) == target.scale
    name = kind["type"] if isinstance(kind, dict) else kind
    if name in ("int", "long"):
        return target in _INTEGERS or pa.types.is_temporal(target)
    return bool(_TARGETS.get(name) == target)


def _column(data: np.ndarray, found: Mapping[str, np.ndarray], name: str, target: pa.DataType, total: int) -> pa.Array:
    if name in found:
        return _numbers(found[name], target)
    if f"{name}.{BEGIN}" not in found:
        return pa.nulls(total, target)
    begins, ends = found[f"{name}.{BEGIN}"], found[f"{name}.{END}"]
    absent = begins == NULL_NUMBER
    starts, lengths = np.where(absent, 0, begins), np.where(absent, 0, ends - begins)
    if pa.types.is_decimal128(target):
        return _decimals(data, starts, lengths, absent, target)
    if pa.types.is_boolean(target) or pa.types.is_floating(target):
        return _fixed(ByteSlices(data, starts, lengths), absent, target)
    values = ByteSlices(data, starts, lengths).binary(starts, lengths)
    values = values if target == pa.binary() else values.cast(target)
    return pa.Array.from_buffers(target, total, [_validity(absent), *values.buffers()[1:]]) if absent.any() else values


def _fixed(slices: ByteSlices, absent: np.ndarray, target: pa.DataType) -> pa.Array:
    numbers = slices.fixed(slices.starts, "u1" if pa.types.is_boolean(target) else f"<f{target.bit_width // 8}")
    if pa.types.is_boolean(target) and (numbers[~absent] > 1).any():
        raise NotColumnar
    return pa.array(numbers, mask=absent if absent.any() else None).cast(target)


def _validity(absent: np.ndarray) -> pa.Buffer:
    return pa.py_buffer(np.packbits(~absent, bitorder="little"))


def _numbers(numbers: np.ndarray, target: pa.DataType) -> pa.Array:
    width = target.bit_width
    absent = numbers == NULL_NUMBER
    wide = np.where(absent, 0, numbers).astype(np.int64)
    limit = 1 << (width - 1)
    if width < 64 and len(wide) and not -limit <= int(wide.min()) <= int(wide.max()) < limit:
        raise NotColumnar
    stored = pa.array(wide.astype(f"i{width // 8}"), mask=absent if absent.any() else None)
    return stored.cast(target) if target in _INTEGERS else stored.view(target)


def _decimals(data: np.ndarray, starts: np.ndarray, lengths: np.ndarray, absent: np.ndarray, target: pa.DataType) -> pa.Array:
    """Unscaled numbers of 1 to 8 bytes, the highest first."""
    sizes = np.where(absent, 1, lengths)
    if len(sizes) and not 1 <= int(sizes.min()) <= int(sizes.max()) <= _WORD:
        raise NotColumnar
    words = np.ndarray((len(data) - _WORD + 1,), ">i8", data, strides=(1,))[starts].astype(np.int64)
    unscaled = np.where(absent, 0, words >> (8 * (_WORD - sizes)))
    limit = 10**target.precision
    if len(unscaled) and not -limit < int(unscaled.min()) <= int(unscaled.max()) < limit:
        raise NotColumnar
    halves = np.stack([unscaled, unscaled >> 63], axis=1)
    return pa.Array.from_buffers(target, len(starts), [_validity(absent), pa.py_buffer(halves)])
