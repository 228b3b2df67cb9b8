"""Puts VARIANT columns together that a Parquet file stores shredded (FORMAT.md, 7.9; Parquet's VariantShredding).

A shredded VARIANT is a group of `metadata`, `value` and `typed_value`. A value of the type of `typed_value` is there, others are
in `value` as they are. An object's `typed_value` has a group of `value` and `typed_value` for each field that is shredded; the
other fields are in its `value`, an object. The columns become the bytes of plain VARIANTs, all rows of a batch at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.datatypes.arrow_types import arrow_type
from paimon_cli.datatypes.byte_slices import little_endian
from paimon_cli.datatypes.data_type import VARIANT, DataType
from paimon_cli.datatypes.variant_columns import with_variants
from paimon_cli.datatypes.variant_nodes import NodeKind, Variants
from paimon_cli.datatypes.variant_scalars import scalar_nodes

TYPED_VALUE = "typed_value"
_VALUE, _METADATA = "value", "metadata"
_NULL_NODE = b"\0"
_LARGE_COUNT = 255


def whole_variants(column: pa.Array, t: DataType) -> pa.Array:
    """The column of a Parquet file with its VARIANTs, at any depth, as `arrow_type(VARIANT)`.

    Raises `ValueError` for columns that contradict themselves, `NotSupported` for shredded types that are not known.
    """
    return with_variants(column, t, _whole)


def _whole(column: pa.StructArray) -> pa.StructArray:
    names = [field.name for field in column.type] if pa.types.is_struct(column.type) else []
    if sorted(names) not in ([_METADATA, _VALUE], [_METADATA, TYPED_VALUE], [_METADATA, TYPED_VALUE, _VALUE]):
        raise ValueError(f"a VARIANT is stored as {column.type}, not as value and metadata")
    parts = {name: column.field(number) for number, name in enumerate(names)}
    metadata = parts[_METADATA]
    if TYPED_VALUE in names:
        present = pa.array(np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False)))
        group = {name: part.take(present) for name, part in parts.items()}
        found = _Rebuilt(FieldNames(group[_METADATA])).nodes(group, np.arange(len(present))).fill_null(_NULL_NODE)
        places = np.zeros(len(column), np.int64)
        places[present.to_numpy()] = np.arange(len(present))
        value = found.take(pa.array(places, mask=column.is_null().to_numpy(zero_copy_only=False)))
    else:
        value = parts[_VALUE]
    for part in (value, metadata):
        if part.null_count and pc.any(pc.and_(part.is_null(), column.is_valid())).as_py():
            raise ValueError("a VARIANT has no value or no metadata")
    filled = [part.cast(pa.binary()).fill_null(b"") for part in (value, metadata)]
    absent = column.is_null() if column.null_count else None
    return pa.StructArray.from_arrays(filled, fields=list(arrow_type(VARIANT)), mask=absent)


class FieldNames:
    """The names of fields in the metadata of each row. Many rows share their metadata."""

    def __init__(self, metadata: pa.Array) -> None:
        if metadata.null_count:
            raise ValueError("a shredded VARIANT has no metadata")
        stored = metadata.cast(pa.binary()).dictionary_encode()
        self.metadata = stored.dictionary
        self.of_rows = stored.indices.to_numpy().astype(np.int64)
        self._known = Variants(pa.array([_NULL_NODE] * len(self.metadata), pa.binary()), self.metadata)

    def ids(self, names: list[str]) -> np.ndarray:
        """For each distinct metadata (rows) and name (columns) the number of the name, or -1."""
        counts = self._known.name_counts
        owners = np.repeat(np.arange(len(counts)), counts)
        numbers = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
        slices = self._known.names_of(owners, numbers)
        wanted = pa.array([name.encode() for name in names], pa.binary())
        found = pc.index_in(self._known.names.binary(*slices), wanted)
        hits = np.flatnonzero(found.is_valid().to_numpy(zero_copy_only=False))
        table = np.full((len(counts), len(names)), -1, np.int64)
        table[owners[hits], found.take(pa.array(hits)).to_numpy()] = numbers[hits]
        return table


@dataclass(frozen=True)
class _Members:
    """Children of objects or arrays: their parent, name (`ranks` in the order of names) and bytes. `ids` is None in arrays."""

    parents: np.ndarray
    values: pa.Array
    ids: np.ndarray | None = None
    names: pa.Array | None = None


class _Rebuilt:
    """The nodes of a shredded column. `names`: of its rows."""

    def __init__(self, names: FieldNames) -> None:
        self._names = names

    def nodes(self, group: dict[str, pa.Array], rows: np.ndarray) -> pa.Array:
        """The bytes of each node; null where it is missing. `group`: its columns; `rows`: the row of the VARIANT of each node."""
        typed = group.get(TYPED_VALUE)
        value = group[_VALUE].cast(pa.binary()) if _VALUE in group else pa.nulls(len(rows), pa.binary())
        if typed is None:
            return value
        typed = typed.storage if isinstance(typed, pa.ExtensionArray) else typed
        is_typed = typed.is_valid().to_numpy(zero_copy_only=False)
        places = np.flatnonzero(is_typed)
        if not len(places):
            return value
        rest = value.take(pa.array(places))
        inner = typed.take(pa.array(places))
        if pa.types.is_struct(typed.type):
            found = self._objects(inner, rest, rows[places])
        else:
            if rest.null_count < len(rest):
                raise ValueError("a shredded VARIANT has two values for one place")
            found = self._arrays(inner, rows[places]) if _is_list(typed.type) else scalar_nodes(inner)
        if len(places) == len(is_typed):
            return found
        sources = np.arange(len(value))
        sources[places] = len(value) + np.arange(len(places))
        return pa.concat_arrays([value, found]).take(pa.array(sources))

    def _objects(self, typed: pa.StructArray, rest: pa.Array, rows: np.ndarray) -> pa.Array:
        fields = [field.name for field in typed.type]
        table = self._names.ids(fields)
        members = []
        for number, name in enumerate(fields):
            found = self.nodes(_parts(typed.field(number)), rows)
            parents = np.flatnonzero(found.is_valid().to_numpy(zero_copy_only=False))
            ids = table[self._names.of_rows[rows[parents]], number]
            if (ids < 0).any():
                raise ValueError(f"a shredded VARIANT has a field '{name}' that its metadata lacks")
            names = pa.repeat(pa.scalar(name.encode(), pa.binary()), len(parents))
            members.append(_Members(parents, found.take(pa.array(parents)), ids, names))
        members += self._rest(rest, rows)
        return _objects(len(rows), members)

    def _rest(self, rest: pa.Array, rows: np.ndarray) -> list[_Members]:
        """The fields of objects that are not shredded."""
        owners = np.flatnonzero(rest.is_valid().to_numpy(zero_copy_only=False))
        if not len(owners):
            return []
        metadata = self._names.metadata.take(pa.array(self._names.of_rows[rows[owners]]))
        variants = Variants(rest.take(pa.array(owners)), metadata)
        roots = variants.roots()
        if (roots.kinds != NodeKind.OBJECT).any():
            raise ValueError("a shredded VARIANT has two values for one place")
        below = variants.below(roots)
        values = variants.values.binary(below.starts, below.ends - below.starts)
        names = variants.names.binary(below.key_starts, below.key_lengths)
        return [_Members(owners[below.rows], values, variants.ids_below(roots), names)]

    def _arrays(self, typed: pa.Array, rows: np.ndarray) -> pa.Array:
        lengths = pc.list_value_length(typed).to_numpy().astype(np.int64)
        parents = np.repeat(np.arange(len(rows)), lengths)
        elements = typed.flatten()
        values = self.nodes(_parts(elements), rows[parents]).fill_null(_NULL_NODE)
        return _nodes(lengths, values, None)


def _parts(group: pa.StructArray) -> dict[str, pa.Array]:
    """The columns of a group; they are null where it is."""
    return {part.name: column for part, column in zip(group.type, group.flatten(), strict=True)}


def _is_list(t: pa.DataType) -> bool:
    return pa.types.is_list(t) or pa.types.is_large_list(t)


def _objects(count: int, members: list[_Members]) -> pa.Array:
    """Objects of these fields, which are sorted by name. Raises `ValueError` for an object that has a name twice."""
    parents = np.concatenate([part.parents for part in members])
    ids = np.concatenate([part.ids for part in members if part.ids is not None])
    names = pa.concat_arrays([part.names for part in members]).dictionary_encode()
    ranks = np.empty(len(names.dictionary), np.int64)
    ranks[pc.sort_indices(names.dictionary).to_numpy()] = np.arange(len(ranks))
    rank = ranks[names.indices.to_numpy()]
    order = np.lexsort([rank, parents])
    parents, rank = parents[order], rank[order]
    if ((np.diff(parents) == 0) & (np.diff(rank) == 0)).any():
        raise ValueError("an object of a shredded VARIANT has a name twice")
    values = pa.concat_arrays([part.values for part in members]).take(pa.array(order))
    return _nodes(np.bincount(parents, minlength=count), values, ids[order])


def _nodes(counts: np.ndarray, values: pa.Array, ids: np.ndarray | None) -> pa.Array:
    """Objects (with `ids`, the numbers of the names) or arrays with these numbers of children; `values`: the children of all."""
    bounds = np.concatenate([[0], np.cumsum(counts)])
    data = pc.binary_join(pa.ListArray.from_arrays(pa.array(bounds.astype(np.int32)), values), pa.scalar(b"", pa.binary()))
    sizes = pc.binary_length(data).to_numpy().astype(np.int64)
    widths, is_large = _widths(sizes), counts > _LARGE_COUNT
    lengths = pc.binary_length(values).to_numpy().astype(np.int64)
    ends = np.cumsum(lengths)
    parents = np.repeat(np.arange(len(counts)), counts)
    before = (ends - lengths) - (np.cumsum(sizes) - sizes)[parents]
    places = np.insert(before, bounds[1:], sizes)  # after the places of the children, the size of all
    place_widths = np.repeat(widths, counts + 1)
    count_bytes = little_endian(counts, np.where(is_large, 4, 1), np.ones(len(counts), np.int64))
    parts = [count_bytes]
    if ids is None:
        heads = NodeKind.ARRAY | ((widths - 1) | (is_large.astype(np.int64) << 2)) << 2
    else:
        greatest = np.zeros(len(counts), np.int64)
        np.maximum.at(greatest, parents, ids)
        id_widths = _widths(greatest)
        heads = NodeKind.OBJECT | ((widths - 1) | (id_widths - 1) << 2 | (is_large.astype(np.int64) << 4)) << 2
        parts.append(little_endian(ids, id_widths[parents], counts))
    parts.append(little_endian(places, place_widths, counts + 1))
    first = little_endian(heads, np.ones(len(heads), np.int64), np.ones(len(heads), np.int64))
    return pc.binary_join_element_wise(first, *parts, data, pa.scalar(b"", pa.binary()))


def _widths(numbers: np.ndarray) -> np.ndarray:
    """The bytes of each unsigned number, 1 to 4."""
    return 1 + (numbers > 0xFF).astype(np.int64) + (numbers > 0xFFFF) + (numbers > 0xFFFFFF)
