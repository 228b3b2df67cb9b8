"""Walks through VARIANT values in Parquet's binary encoding, all values of a column at once (FORMAT.md, section 2.4).

A VARIANT is two byte strings. `metadata` lists the names of fields; `value` is a tree of nodes, each a header byte and what it
announces. The nodes of a column are found level by level: all roots, then all children of these, and so on. So numpy reads a
column of millions of small values with a few operations per level.

Nothing in the bytes is trusted. A child lies within the bytes that its parent claims, after the parent's header, so there is no
circle. Children may claim the same bytes, and these again; so a value may have at most as many nodes as it has bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from paimon_cli.datatypes.byte_slices import ByteSlices

MAX_VARIANT_DEPTH = 1_000
"""Levels of nesting that are read: as many as Spark's parser of JSON takes."""
MAX_VARIANT_NODES = 2_000_000
"""Nodes of one value that are read, so that a value of some megabytes does not take gigabytes of memory."""
VARIANT_VERSION = 1


class NodeKind:
    """What the two low bits of a header byte say."""

    PRIMITIVE, SHORT_TEXT, OBJECT, ARRAY = range(4)


class Primitive:
    """What the six high bits of the header byte of a primitive say."""

    NULL, TRUE, FALSE, INT8, INT16, INT32, INT64, DOUBLE, DECIMAL4, DECIMAL8, DECIMAL16 = range(11)
    DATE, TIMESTAMP, TIMESTAMP_NTZ, FLOAT, BINARY, TEXT, TIME, TIMESTAMP_NANOS, TIMESTAMP_NTZ_NANOS, UUID = range(11, 21)


DECIMAL_FORMS = ((Primitive.DECIMAL4, 9, 4), (Primitive.DECIMAL8, 18, 8), (Primitive.DECIMAL16, 38, 16))
"""The primitives of DECIMALs: the most digits, and the bytes of the unscaled number."""
LONGEST_SHORT_TEXT = 63
"""Bytes of a text whose length is in its header."""
MOST_SHORT_CHILDREN = 255
"""Objects and arrays with more children have a count of 4 bytes instead of 1."""
PAYLOADS = np.array([0, 0, 0, 1, 2, 4, 8, 8, 5, 9, 17, 4, 8, 8, 4, 4, 4, 8, 8, 8, 16], dtype=np.int64)
"""Bytes after the header byte of a primitive; of Primitive.BINARY and Primitive.TEXT, those of their length."""
_CUT_OFF = "it ends within a value"


class MalformedVariant(ValueError):
    """The bytes are no VARIANT. `row`: the position of the value in the column; `why`: what is wrong with it."""

    def __init__(self, row: int, why: str) -> None:
        super().__init__(f"a VARIANT is malformed: {why}")
        self.row = row
        self.why = why


@dataclass(frozen=True)
class NodeLevel:
    """The nodes of one level, as arrays of one length. Those with the same parent are neighbours, in the parent's order.

    `rows`: the row of the column. `starts`, `ends`: the positions of the header byte and after the last byte. `kinds`,
    `details`: the two low and the six high bits of the header. `counts`: the number of children. `key_starts`, `key_lengths`: the
    name within the bytes of the metadata; a length of -1 for a node without name.

    Of objects and arrays: `ids` and `offsets` are the positions of the lists of names (only of objects) and of places of the
    children, which are counted from `data` on.
    """

    rows: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    kinds: np.ndarray
    details: np.ndarray
    key_starts: np.ndarray
    key_lengths: np.ndarray
    counts: np.ndarray
    ids: np.ndarray
    offsets: np.ndarray
    data: np.ndarray

    def of(self, chosen: np.ndarray) -> NodeLevel:
        """Some of the nodes, by position or mask."""
        return NodeLevel(*(getattr(self, name)[chosen] for name in self.__dataclass_fields__))

    def leaves(self, chosen: np.ndarray) -> NodeLevel:
        """Some of the nodes, of which none has children, without their names."""
        known = [getattr(self, name)[chosen] for name in ("rows", "starts", "ends", "kinds", "details")]
        nothing = np.broadcast_to(np.int64(-1), len(chosen))
        return NodeLevel(*known, *[nothing] * 2, *[nothing + 1] * 4)

    @staticmethod
    def of_leaves(rows: np.ndarray, starts: np.ndarray, ends: np.ndarray, headers: np.ndarray) -> NodeLevel:
        """Nodes without children and names, by their header bytes."""
        nothing = np.broadcast_to(np.int64(-1), len(rows))
        return NodeLevel(rows, starts, ends, headers & 3, (headers >> 2).astype(np.int64), *[nothing] * 2, *[nothing + 1] * 4)

    @property
    def offset_sizes(self) -> np.ndarray:
        """The bytes of the place of a child. Objects and arrays announce them in the same bits."""
        return (self.details & 3) + 1

    @property
    def id_sizes(self) -> np.ndarray:
        """The bytes of the number of a name; of objects."""
        return ((self.details >> 2) & 3) + 1


class Variants:
    """The VARIANT values of a column without nulls: `values` and `metadata` are binary arrays of one length.

    All methods raise `MalformedVariant`.
    """

    def __init__(self, values: pa.Array, metadata: pa.Array) -> None:
        known = metadata.dictionary_encode()
        self._known = known.indices.to_numpy()
        """Of each row the number of its metadata: rows of a table have few different ones, so most are looked at once."""
        self.values, self.names = ByteSlices.of(values), ByteSlices.of(known.dictionary)
        self._nodes = np.zeros(len(values), np.int64)
        self._offset_sizes, self._name_counts = self._dictionaries()

    @property
    def name_counts(self) -> np.ndarray:
        """The number of names in the metadata of each row."""
        return self._name_counts[self._known]

    @property
    def metadata_numbers(self) -> np.ndarray:
        """A number for each row, the same for those with the same metadata."""
        return self._known

    def restart(self) -> None:
        """Forget the nodes that were counted, to read the values again."""
        self._nodes[:] = 0

    def levels(self, roots: NodeLevel | None = None, depth: int = 0) -> list[NodeLevel]:
        """These nodes (as `roots()` gives them), `depth` levels below the outermost, and all levels below them."""
        levels = [self.roots() if roots is None else roots]
        while levels[-1].counts.any():
            if depth + len(levels) > MAX_VARIANT_DEPTH:
                row = int(levels[-1].rows[np.flatnonzero(levels[-1].counts)[0]])
                raise MalformedVariant(row, f"it is nested more than {MAX_VARIANT_DEPTH} levels deep")
            levels.append(self.below(levels[-1]))
        return levels

    def roots(self) -> NodeLevel:
        """The outermost nodes, one for each row."""
        rows = np.arange(len(self.values.starts))
        lengths = self.values.lengths
        _check(lengths > 0, rows, "it has no bytes")
        return self.nodes_at(rows, self.values.starts, self.values.starts + lengths)

    def nodes_at(self, rows: np.ndarray, starts: np.ndarray, limits: np.ndarray) -> NodeLevel:
        """Nodes, without their names, whose header bytes are at `starts`, and that have to end at `limits`."""
        nameless = np.full(len(rows), -1, np.int64)
        return self._level(rows, starts, limits, nameless, nameless)

    def below(self, level: NodeLevel) -> NodeLevel:
        """All children of the nodes of a level."""
        self.count_children(level.rows, level.counts)
        parents, index = places_below(level)
        rows, sizes = level.rows[parents], level.offset_sizes[parents]
        starts = level.data[parents] + self.values.numbers(level.offsets[parents] + index * sizes, sizes)
        _check(starts < level.ends[parents], rows, "a value lies outside of the one that holds it")
        key_starts, key_lengths = np.full((2, len(rows)), -1, np.int64)
        fields = np.flatnonzero((level.kinds == NodeKind.OBJECT)[parents])
        if len(fields):
            sizes = level.id_sizes[parents[fields]]
            ids = self.values.numbers(level.ids[parents[fields]] + index[fields] * sizes, sizes)
            key_starts[fields], key_lengths[fields] = self.names_of(rows[fields], ids)
        return self._level(rows, starts, level.ends[parents], key_starts, key_lengths)

    def count_children(self, rows: np.ndarray, counts: np.ndarray) -> None:
        """Count the children of nodes of these rows, before they are looked at: each node may be opened once."""
        all_rows = np.arange(len(self._nodes))
        self._nodes += np.bincount(rows, counts, minlength=len(self._nodes)).astype(np.int64)
        _check(self._nodes <= self.values.lengths, all_rows, "it has more values than bytes")
        _check(self._nodes <= MAX_VARIANT_NODES, all_rows, f"it has more than {MAX_VARIANT_NODES:,} values")

    def ids_below(self, level: NodeLevel) -> np.ndarray:
        """The numbers of the names of all children of a level of objects, in the order of `below`."""
        parents, index = places_below(level)
        sizes = level.id_sizes[parents]
        return self.values.numbers(level.ids[parents] + index * sizes, sizes)

    def texts(self, level: NodeLevel) -> tuple[np.ndarray, np.ndarray]:
        """The starts and lengths of the contents of texts and binary values."""
        starts = level.starts + np.where(level.kinds == NodeKind.SHORT_TEXT, 1, 5)
        return starts, level.ends - starts

    def names_of(self, rows: np.ndarray, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The starts and lengths of names within the bytes of the metadata of these rows, by their numbers."""
        known = self._known[rows]
        counts, sizes, begin = self._name_counts[known], self._offset_sizes[known], self.names.starts[known]
        _check(ids < counts, rows, "a field has a name that its metadata lacks")
        places = begin + 1 + sizes * (1 + ids)
        low, high = self.names.numbers(places, sizes), self.names.numbers(places + sizes, sizes)
        texts = begin + 1 + (counts + 2) * sizes
        is_inside = (low <= high) & (texts + high <= begin + self.names.lengths[known])
        _check(is_inside, rows, "a name lies outside of its metadata")
        return texts + low, high - low

    def _level(
        self, rows: np.ndarray, starts: np.ndarray, limits: np.ndarray, key_starts: np.ndarray, key_lengths: np.ndarray
    ) -> NodeLevel:
        headers = self.values.data[starts]
        kinds, details = headers & 3, (headers >> 2).astype(np.int64)
        is_primitive = kinds == NodeKind.PRIMITIVE
        _check(~is_primitive | (details < len(PAYLOADS)), rows, "it has a value of an unknown type")
        ends = starts + 1 + np.where(kinds == NodeKind.SHORT_TEXT, details, 0)
        ends += np.where(is_primitive, PAYLOADS[np.minimum(details, len(PAYLOADS) - 1)], 0)
        _check(ends <= limits, rows, _CUT_OFF)
        sized = np.flatnonzero(is_primitive & ((details == Primitive.BINARY) | (details == Primitive.TEXT)))
        ends[sized] += self.values.numbers(starts[sized] + 1, np.full(len(sized), 4))
        level = NodeLevel(rows, starts, ends, kinds, details, key_starts, key_lengths, *np.zeros((4, len(rows)), np.int64))
        nested = np.flatnonzero(kinds >= NodeKind.OBJECT)
        if len(nested):
            self._open(level, nested, limits[nested])
        _check(ends <= limits, rows, _CUT_OFF)
        return level

    def _open(self, level: NodeLevel, nested: np.ndarray, limits: np.ndarray) -> None:
        """Fill in what the objects and arrays at these positions of the level announce."""
        part = level.of(nested)
        is_object = part.kinds == NodeKind.OBJECT
        is_large = (part.details >> np.where(is_object, 4, 2)) & 1
        size_bytes = np.where(is_large, 4, 1)
        ids = part.starts + 1 + size_bytes
        _check(ids <= limits, part.rows, _CUT_OFF)
        counts = self.values.numbers(part.starts + 1, size_bytes)
        sizes = part.offset_sizes
        offsets = ids + np.where(is_object, counts * part.id_sizes, 0)
        data = offsets + (counts + 1) * sizes
        _check(data <= limits, part.rows, "it ends within the list of an object's or array's values")
        level.counts[nested], level.ids[nested], level.offsets[nested], level.data[nested] = counts, ids, offsets, data
        level.ends[nested] = data + self.values.numbers(data - sizes, sizes)

    def _dictionaries(self) -> tuple[np.ndarray, np.ndarray]:
        """Of each metadata: the bytes of an offset, and the number of names."""
        starts, lengths = self.names.starts, self.names.lengths
        rows = np.zeros(len(starts), np.int64)
        rows[self._known[::-1]] = np.arange(len(self._known))[::-1]  # the first row that has it
        _check(lengths > 0, rows, "it has no metadata")
        headers = self.names.data[starts]
        _check((headers & 15) == VARIANT_VERSION, rows, "its metadata has an unknown version")
        sizes = (headers >> 6).astype(np.int64) + 1
        _check(lengths > sizes, rows, "its metadata is cut off")
        counts = self.names.numbers(starts + 1, sizes)
        _check(1 + (counts + 2) * sizes <= lengths, rows, "its metadata is cut off")
        return sizes, counts


def places_below(level: NodeLevel) -> tuple[np.ndarray, np.ndarray]:
    """For each child of the nodes of a level, the position of its parent, and its own among the parent's children."""
    parents = np.repeat(np.arange(len(level.rows)), level.counts)
    return parents, np.arange(len(parents)) - np.repeat(np.cumsum(level.counts) - level.counts, level.counts)


def _check(passes: np.ndarray, rows: np.ndarray, why: str) -> None:
    if not passes.all():
        raise MalformedVariant(int(rows[np.flatnonzero(~passes)[0]]), why)
