"""The JSON texts of VARIANTs, path by path: what the rows of a table have at one place is converted as a column.

Objects have one shape if their fields are the same, by their numbers in the same metadata. Then the names are looked up once, the
child of each field is a path of its own, and Arrow joins the texts of all paths with what is constant between them. The elements
of arrays are one path. Objects of rare shapes, and what is nested deeply, are converted level by level (`variant_node_texts`):
a shape has at least `PIECES.shape_nodes` nodes, so that there are not many.

Nothing in the bytes is trusted here either. What is malformed is left to the general way, which says what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.datatypes.value_texts import escaped, quoted
from paimon_cli.datatypes.variant_columns import TextBudget, in_order
from paimon_cli.datatypes.variant_leaf_texts import decoded, plain_texts, texts_of_kind
from paimon_cli.datatypes.variant_node_texts import node_texts
from paimon_cli.datatypes.variant_nodes import PAYLOADS, MalformedVariant, NodeKind, NodeLevel, Primitive, Variants
from paimon_cli.pieces import PIECES

_DEEPEST_PATH = 24
"""Steps of a path: the code calls itself for each."""
_NESTED = 256
_HEADERS = np.arange(256)
_IS_SHORT_TEXT = _HEADERS & 3 == NodeKind.SHORT_TEXT
_IS_PRIMITIVE = _HEADERS & 3 == NodeKind.PRIMITIVE
_IS_KNOWN = ~_IS_PRIMITIVE | (len(PAYLOADS) > _HEADERS >> 2)
_SIZES = np.where(_IS_SHORT_TEXT, _HEADERS >> 2, PAYLOADS[np.where(_IS_PRIMITIVE & _IS_KNOWN, _HEADERS >> 2, 0)])
"""By header byte: the bytes that follow in a leaf; of longer texts and binary values, those of their length."""
_WORDS = ("null", "true", "false")


def _classes() -> np.ndarray:
    """By header byte: a number that is the same for what is converted together. For leaves it is a primitive."""
    primitives = np.where(_IS_SHORT_TEXT, Primitive.TEXT, _HEADERS >> 2)
    primitives[np.isin(primitives, [Primitive.TRUE, Primitive.FALSE])] = Primitive.NULL
    primitives[(primitives >= Primitive.INT8) & (primitives <= Primitive.INT64)] = Primitive.INT64
    return np.where(_IS_SHORT_TEXT | _IS_PRIMITIVE, primitives, _NESTED + _HEADERS).astype(np.int16)


_CLASSES = _classes()


@dataclass(frozen=True)
class _Nodes:
    """The nodes at a path: their rows, the positions of their header bytes, and where they end at the latest."""

    rows: np.ndarray
    starts: np.ndarray
    limits: np.ndarray

    def of(self, places: np.ndarray) -> _Nodes:
        """Those at these ascending positions."""
        if len(places) == len(self.rows):
            return self
        return _Nodes(self.rows[places], self.starts[places], self.limits[places])


@dataclass(frozen=True)
class _Layout:
    """What the header byte of an object or array says: the bytes of its count, of the number of a name, and of an offset."""

    is_object: bool
    count: int
    id: int
    offset: int

    @staticmethod
    def of(header: int) -> _Layout:
        if header & 3 == NodeKind.OBJECT:
            return _Layout(True, 4 if header >> 6 & 1 else 1, (header >> 4 & 3) + 1, (header >> 2 & 3) + 1)
        return _Layout(False, 4 if header >> 4 & 1 else 1, 0, (header >> 2 & 3) + 1)


_Part = tuple[np.ndarray, list[str | pa.StringArray] | None]
"""Positions of nodes, and the pieces of their texts: what these have in common, or that of each. None: not converted yet."""


def shaped_texts(variants: Variants) -> pa.StringArray:
    """Each VARIANT as JSON text. Raises `MalformedVariant` and `TextTooLarge`."""
    try:
        return _ShapedTexts(variants).texts()
    except MalformedVariant:
        variants.restart()
        return node_texts(variants, variants.roots())


class _ShapedTexts:
    """The conversion of one piece of a column. Any `MalformedVariant` that it raises is only a sign that there is one."""

    def __init__(self, variants: Variants) -> None:
        self._variants = variants
        self._content = variants.values
        self._budget = TextBudget()

    def texts(self) -> pa.StringArray:
        starts = self._content.starts
        roots = _Nodes(np.arange(len(starts)), starts, starts + self._content.lengths)
        _expect(starts < roots.limits)
        groups, rare = _groups(self._variants.metadata_numbers, PIECES.shape_nodes)
        parts = [(places, self._at_path(roots.of(places), 0)) for places in groups]
        return _joined(self._together(roots, [*parts, (rare, None)], 0), len(starts))

    def _at_path(self, nodes: _Nodes, depth: int) -> list[str | pa.StringArray]:
        """The texts of nodes with the same metadata, as pieces to be joined: what they have in common, or the part of each."""
        return self._together(nodes, list(self._parts(nodes, depth)), depth)

    def _together(self, nodes: _Nodes, parts: list[_Part], depth: int) -> list[str | pa.StringArray]:
        """Parts of the nodes, each with its positions, as one. Those without pieces are converted level by level."""
        parts = [part for part in parts if len(part[0])]
        if len(parts) == 1 and parts[0][1] is not None:
            return parts[0][1]
        rare = np.concatenate([np.zeros(0, np.int64), *(places for places, pieces in parts if pieces is None)])
        groups = [places for places, pieces in parts if pieces is not None]
        texts = [_joined(pieces, len(places)) for places, pieces in parts if pieces is not None]
        if len(rare):
            some = nodes.of(np.sort(rare))
            level = self._variants.nodes_at(some.rows, some.starts, some.limits)
            groups, texts = [*groups, np.sort(rare)], [*texts, node_texts(self._variants, level, self._budget, depth)]
        return [in_order(texts, groups)]

    def _parts(self, nodes: _Nodes, depth: int) -> Iterator[_Part]:
        """The nodes by kind and shape: positions and texts, None for those of rare shapes."""
        headers = self._content.data[nodes.starts]
        for places in _groups(_CLASSES[headers], 1)[0]:
            header, some = int(headers[places[0]]), nodes.of(places)
            if _CLASSES[header] < _NESTED:
                yield places, self._leaves(some, headers[places], int(_CLASSES[header]))
            elif len(places) < PIECES.shape_nodes or depth >= _DEEPEST_PATH:
                yield places, None
            else:
                yield from self._nested(some, places, _Layout.of(header), depth)

    def _leaves(self, nodes: _Nodes, headers: np.ndarray, kind: int) -> list[str | pa.StringArray]:
        _expect(_IS_KNOWN[headers])
        ends = nodes.starts + 1 + _SIZES[headers]
        _expect(ends <= nodes.limits)
        if kind == Primitive.NULL:
            self._budget.spend(len(headers), 0)
            is_one = (headers == headers[0]).all()
            return [_WORDS[int(headers[0]) >> 2] if is_one else pa.array(_WORDS).take(pa.array(headers >> 2))]
        if kind in (Primitive.TEXT, Primitive.BINARY):
            sized = np.flatnonzero(~_IS_SHORT_TEXT[headers])
            ends[sized] += self._content.numbers(nodes.starts[sized] + 1, np.full(len(sized), 4))
            _expect(ends <= nodes.limits)
        self._budget.spend(len(headers), int((ends - nodes.starts).sum()))
        level = NodeLevel.of_leaves(nodes.rows, nodes.starts, ends, headers)
        if kind == Primitive.TEXT:
            return ['"', escaped(plain_texts(self._variants, level)), '"']
        return [texts_of_kind(self._variants, level, kind)]

    def _nested(self, nodes: _Nodes, places: np.ndarray, layout: _Layout, depth: int) -> Iterator[_Part]:
        """As `_parts`, of objects or arrays of one layout. `places`: their positions in what `_parts` has got."""
        _expect(nodes.starts + 1 + layout.count <= nodes.limits)
        counts = self._content.numbers(nodes.starts + 1, np.full(len(nodes.rows), layout.count))
        if not layout.is_object:
            yield places, self._array(nodes, layout, counts, depth)
            return
        groups, rare = _groups(counts, PIECES.shape_nodes)
        yield places[rare], None
        for alike in groups:
            some, count = nodes.of(alike), int(counts[alike[0]])
            heads = self._heads(some, layout, count)
            ids = np.ascontiguousarray(heads[:, 1 + layout.count : 1 + layout.count + count * layout.id])
            by_ids, rare = _groups(_numbered(ids), PIECES.shape_nodes)
            yield places[alike[rare]], None
            for same in by_ids:
                yield places[alike[same]], self._object(some.of(same), layout, count, heads[same], depth)

    def _heads(self, nodes: _Nodes, layout: _Layout, count: int) -> np.ndarray:
        """All bytes of objects of so many fields that are before the values, a row for each object."""
        size = 1 + layout.count + count * layout.id + (count + 1) * layout.offset
        _expect(nodes.starts + size <= nodes.limits)
        _expect(np.array(len(nodes.rows) * count <= len(self._content.data)))  # else they share bytes: no value has so many
        data = self._content.data
        windows = np.ndarray((len(data) - size + 1,), f"V{size}", data, strides=(1,))
        return windows[nodes.starts].view(np.uint8).reshape(-1, size)

    def _object(self, nodes: _Nodes, layout: _Layout, count: int, heads: np.ndarray, depth: int) -> list[str | pa.StringArray]:
        """The texts of objects of one shape. `heads`: their bytes before the values."""
        begin = 1 + layout.count
        middle = begin + count * layout.id
        self._variants.count_children(nodes.rows, np.full(len(nodes.rows), count))
        offsets = _unsigned(heads[:, middle:], layout.offset)
        _expect(offsets[:-1] < offsets[-1])
        first = nodes.starts + heads.shape[1]
        ends = first + offsets[-1]
        _expect(ends <= nodes.limits)
        pieces = list[str | pa.StringArray](["{"])
        for number, name in enumerate(self._names(nodes, _unsigned(heads[:1, begin:middle], layout.id)[:, 0])):
            child = _Nodes(nodes.rows, first + offsets[number], ends)
            pieces += [f",{name}:" if number else f"{name}:", *self._at_path(child, depth + 1)]
        return [*pieces, "}"]

    def _names(self, nodes: _Nodes, ids: np.ndarray) -> list[str]:
        """The names with these numbers in the metadata of the nodes, as JSON."""
        starts, lengths = self._variants.names_of(np.full(len(ids), nodes.rows[0]), ids)
        self._budget.spend(len(nodes.rows), len(nodes.rows) * int(lengths.sum()))
        names = decoded(self._variants.names.binary(starts, lengths), nodes.rows[:1])
        _expect(np.array(len(names.unique()) == len(names)))
        return quoted(escaped(names)).to_pylist()

    def _array(self, nodes: _Nodes, layout: _Layout, counts: np.ndarray, depth: int) -> list[str | pa.StringArray]:
        """The texts of arrays, of any length."""
        self._variants.count_children(nodes.rows, counts)
        self._budget.spend(len(nodes.rows), 0)
        offsets = nodes.starts + 1 + layout.count
        first = offsets + (counts + 1) * layout.offset
        _expect(first <= nodes.limits)
        ends = first + self._content.numbers(first - layout.offset, np.full(len(counts), layout.offset))
        _expect(ends <= nodes.limits)
        bounds = np.concatenate([[0], np.cumsum(counts)])
        parents = np.repeat(np.arange(len(counts)), counts)
        index = np.arange(len(parents)) - bounds[parents]
        starts = self._content.numbers(offsets[parents] + index * layout.offset, np.full(len(parents), layout.offset))
        elements = _Nodes(nodes.rows[parents], first[parents] + starts, ends[parents])
        _expect(elements.starts < elements.limits)
        texts = _joined(self._at_path(elements, depth + 1), len(parents))
        return ["[", pc.binary_join(pa.ListArray.from_arrays(pa.array(bounds.astype(np.int32)), texts), ","), "]"]


def _expect(passes: np.ndarray) -> None:
    if not passes.all():
        raise MalformedVariant(0, "the general way says what is wrong")


def _groups(keys: np.ndarray, least: int) -> tuple[list[np.ndarray], np.ndarray]:
    """The positions of equal keys, ascending, if there are at least so many; then all other positions."""
    if len(keys) >= least and (keys == keys[:1]).all():  # as most often
        return [np.arange(len(keys))] if len(keys) else [], np.zeros(0, np.int64)
    order = np.argsort(keys, kind="stable")
    begins = np.flatnonzero(np.diff(keys[order], prepend=keys[order[:1]] - 1))
    sizes = np.diff(begins, append=len(keys))
    is_group = sizes >= least
    groups = [order[begin : begin + size] for begin, size in zip(begins[is_group], sizes[is_group], strict=True)]
    return groups, order[~np.repeat(is_group, sizes)]


def _numbered(rows: np.ndarray) -> np.ndarray:
    """A number for each row of a matrix of bytes, the same for equal rows."""
    if not rows.size or (rows == rows[0]).all():
        return np.zeros(len(rows), np.int64)
    stored = pa.FixedSizeBinaryArray.from_buffers(pa.binary(rows.shape[1]), len(rows), [None, pa.py_buffer(rows)])
    return stored.dictionary_encode().indices.to_numpy()


def _unsigned(rows: np.ndarray, size: int) -> np.ndarray:
    """The unsigned little-endian numbers that stand one after the other in each row of bytes: a row for each place (int64)."""
    columns = rows.T.astype(np.int64)
    found = np.ascontiguousarray(columns[::size])
    for place in range(1, size):
        found |= columns[place::size] << (8 * place)
    return found


def _joined(pieces: list[str | pa.StringArray], count: int) -> pa.StringArray:
    """The texts of so many nodes, of their pieces. Neighbours that all nodes have in common are joined first."""
    merged = list[str | pa.StringArray]()
    for piece in pieces:
        if merged and isinstance(piece, str) and isinstance(merged[-1], str):
            merged[-1] += piece
        else:
            merged.append(piece)
    if len(merged) > 1:
        return pc.binary_join_element_wise(*merged, "")
    return pa.repeat(pa.scalar(merged[0]), count) if isinstance(merged[0], str) else merged[0]
