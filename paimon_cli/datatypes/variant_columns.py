"""Columns of VARIANT in memory, a STRUCT of value and metadata, and how they are converted piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.datatypes.data_type import ArrayType, DataType, MapType, RowType, VariantType
from paimon_cli.datatypes.variant_nodes import MalformedVariant, Variants
from paimon_cli.errors import DamagedFile, NotSupported
from paimon_cli.pieces import PIECES

MAX_VARIANT_TEXT = 256 << 20
"""Bytes of the JSON text of one value: names are stored once, but may occur often."""
_BYTES_OF_NUMBER = 48
"""No number, date or UUID has a longer text."""


class TextTooLarge(Exception):
    """The texts of these values would take more memory than they may."""


class TextBudget:
    """The memory of texts that are made together."""

    def __init__(self) -> None:
        self._left = MAX_VARIANT_TEXT

    def spend(self, nodes: int, size: int) -> None:
        """Raise `TextTooLarge` if there is not enough left for so many nodes, with names and contents of `size` bytes."""
        self._left -= size + _BYTES_OF_NUMBER * nodes
        if self._left < 0:
            raise TextTooLarge


Convert = Callable[[Variants], pa.Array]
"""Makes one value of each VARIANT."""


def of_variants(column: pa.StructArray, t: pa.DataType, convert: Convert) -> pa.Array:
    """What `convert` makes of a column of `arrow_type(VARIANT)`, as an array of type `t`; nulls remain null.

    The bytes of `PIECES.variant_bytes` are converted at a time. Raises `DamagedFile` for bytes that are no VARIANT.
    """
    try:
        return _of_variants(column, t, convert)
    except MalformedVariant as problem:
        raise DamagedFile("a VARIANT value is damaged", f"{problem.why}; `verify --level full` names the file") from problem


def holds_variants(t: DataType) -> bool:
    """Whether the type is a VARIANT, or contains one."""
    return any(part.root == "VARIANT" for part in t.parts())


def with_variants(column: pa.Array, t: DataType, convert: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """The column of type `t` with all its VARIANTs, at any depth, as `convert` makes them of a column of VARIANTs."""
    if isinstance(t, VariantType):
        return convert(column)
    if not holds_variants(t):
        return column
    absent = column.is_null() if column.null_count else None
    if isinstance(t, RowType):
        parts = [with_variants(part, field.type, convert) for part, field in zip(column.flatten(), t.fields, strict=True)]
        fields = [pa.field(old.name, part.type, old.nullable) for old, part in zip(column.type, parts, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=fields, mask=absent)
    offsets = column.offsets.to_numpy()
    inside = slice(offsets[0], offsets[-1])
    starts = pa.array(offsets - offsets[0])
    if isinstance(t, ArrayType):
        return pa.ListArray.from_arrays(starts, with_variants(column.values[inside], t.element, convert), mask=absent)
    if not isinstance(t, MapType):
        raise NotSupported(f"a VARIANT inside a {t.root}", "no writer of Paimon stores it so")
    items = with_variants(column.items[inside], t.value, convert)
    return pa.MapArray.from_arrays(starts, column.keys[inside], items, mask=absent)


def variants_in(column: pa.Array, t: DataType) -> Iterator[pa.StructArray]:
    """All VARIANTs of a column of `arrow_type(t)`, at any depth."""
    if isinstance(t, VariantType):
        yield column
    elif isinstance(t, RowType):
        for part, field in zip(column.flatten(), t.fields, strict=True):
            yield from variants_in(part, field.type)
    elif isinstance(t, ArrayType):
        yield from variants_in(column.flatten(), t.element)
    elif isinstance(t, MapType):
        yield from variants_in(column.items, t.value)


def in_order(parts: list[pa.Array], positions: list[np.ndarray]) -> pa.Array:
    """Texts in several parts as one array, each at its position."""
    if len(parts) == 1:
        return parts[0]
    places = np.concatenate(positions) if positions else np.zeros(0, np.int64)
    order = np.empty(len(places), np.int64)
    order[places] = np.arange(len(places))
    return pa.concat_arrays(parts).take(pa.array(order)) if parts else pa.array([], pa.string())


def _of_variants(column: pa.StructArray, t: pa.DataType, convert: Convert) -> pa.Array:
    rows = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
    present = column if len(rows) == len(column) else column.take(pa.array(rows))
    values, metadata = present.field("value"), present.field("metadata")
    if values.null_count or metadata.null_count:
        missing = pc.or_(values.is_null(), metadata.is_null()).to_numpy(zero_copy_only=False)
        raise MalformedVariant(int(rows[np.flatnonzero(missing)[0]]), "its value or its metadata is null")
    found = pa.concat_arrays([pa.array([], t), *_pieces(values, metadata, rows, convert)])
    if present is column:
        return found
    places = np.zeros(len(column), np.int64)
    places[rows] = np.arange(len(rows))
    return found.take(pa.array(places, mask=column.is_null().to_numpy(zero_copy_only=False)))


def _pieces(values: pa.Array, metadata: pa.Array, rows: np.ndarray, convert: Convert) -> list[pa.Array]:
    sizes = np.cumsum(pc.binary_length(values).to_numpy()) // PIECES.variant_bytes if len(values) else np.zeros(0, np.int64)
    bounds = [*(np.flatnonzero(np.diff(sizes, prepend=-1)) if len(sizes) else []), len(values)]
    parts = []
    for begin, end in pairwise(bounds):
        parts += _converted(values[begin:end], metadata[begin:end], rows[begin:end], convert)
    return parts


def _converted(values: pa.Array, metadata: pa.Array, rows: np.ndarray, convert: Convert) -> list[pa.Array]:
    try:
        return [convert(Variants(values, metadata))]
    except MalformedVariant as problem:
        raise MalformedVariant(int(rows[problem.row]), problem.why) from problem
    except TextTooLarge as problem:
        half = len(values) // 2
        if not half:
            raise NotSupported(
                "a VARIANT value is too large to be shown", "as JSON text it could take hundreds of megabytes"
            ) from problem
        halves = [slice(0, half), slice(half, len(values))]
        return [part for some in halves for part in _converted(values[some], metadata[some], rows[some], convert)]
