"""Unions of roaring bitmaps and sketches in binary columns (Java FieldRoaringBitmap32Agg, FieldHllSketchAgg ...).

A bitmap of 64-bit numbers is a radix tree over the upper 48 bits; its leaves are containers of the lower 16 bits. Numbers are
little-endian, except for the keys of leaves. The bytes equal those of Java's Roaring64Bitmap with two exceptions: a node of 17 to
48 children has them in key order (Java: in order of insertion), and an array is used instead of a run of the same size.
"""

from __future__ import annotations

import importlib
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import ModuleType

import numpy as np
from pyroaring import BitMap

from paimon_cli.datatypes.data_type import DataField
from paimon_cli.errors import BadInput, NotSupported, importing
from paimon_cli.lsm.aggregators.aggregator import Aggregator, StepByStep
from paimon_cli.lsm.aggregators.builder import Builder, expect
from paimon_cli.options.table_options import TableOptions

_EMPTY, NOT_EMPTY = 0, 1
NODE4, NODE16, NODE48, NODE256, LEAF = range(5)
BODY_BYTES = {NODE4: 4, NODE16: 16, NODE48: 256, NODE256: 32, LEAF: 14}
MAX_CHILDREN = {NODE4: 4, NODE16: 16, NODE48: 48, NODE256: 256}
NO_CHILD = 0xFF
RUN, BITMAP, ARRAY = 0, 1, 2
LONGEST_ARRAY, BITMAP_BYTES = 4096, 8192
NOT_TRIMMED = 0xFE
KEY_BYTES = 6


@dataclass
class Bitmap64:
    """A set of 64-bit numbers.

    `slot_of`: upper 48 bits -> index in `slots`; `slots`: sorted uint16 values, None for unused ones.
    """

    slot_of: dict[bytes, int] = field(default_factory=dict)
    slots: list[np.ndarray | None] = field(default_factory=list)
    last: int = -1

    @staticmethod
    def deserialize(data: bytes) -> Bitmap64:
        """Decode a bitmap. Raises `ValueError` for other bytes."""
        reader = _Reader(data)
        if reader.number("<B") == _EMPTY:
            return Bitmap64()
        reader.number("<q")
        slot_of = dict(reader.leaves())
        if reader.number("<i") != 1:
            raise ValueError("its containers are in several arrays")
        reader.number("<B")
        slots = [reader.container() for _ in range(reader.number("<i"))]
        reader.number("<q")
        reader.number("<i")
        bitmap = Bitmap64(slot_of, slots, reader.number("<i"))
        if not slot_of or any(not 0 <= slot < len(slots) or slots[slot] is None for slot in (*slot_of.values(), bitmap.last)):
            raise ValueError("a key has no container")
        return bitmap

    def add(self, other: Bitmap64) -> None:
        """Add all numbers of another bitmap."""
        for key in sorted(other.slot_of):
            values = other.slots[other.slot_of[key]]
            assert values is not None
            if key in self.slot_of:
                held = self.slots[self.slot_of[key]]
                self.slots[self.slot_of[key]] = values if held is None else np.union1d(held, values)
            else:
                self.last += 1
                if self.last == len(self.slots):
                    self.slots += [None] * max(1, len(self.slots) >> 1)
                self.slots[self.last] = values
                self.slot_of[key] = self.last

    def serialize(self) -> bytes:
        if not self.slot_of:
            return bytes([_EMPTY])
        parts = [struct.pack("<Bq", NOT_EMPTY, len(self.slot_of)), *_nodes(sorted(self.slot_of), self.slot_of, 0)]
        parts.append(struct.pack("<iBi", 1, NOT_TRIMMED, len(self.slots)))
        parts += [b"\0" if values is None else b"\1" + _container(values) for values in self.slots]
        parts.append(struct.pack("<qii", sum(values is not None for values in self.slots), 0, self.last))
        return b"".join(parts)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, form: str) -> int:
        return int(struct.unpack(form, self._bytes(struct.calcsize(form)))[0])

    def leaves(self) -> Iterator[tuple[bytes, int]]:
        """The key and slot of each leaf. Nodes precede their children, so that only the number of children is needed."""
        awaited = 1
        while awaited:
            node_type, children = self.number("<B"), self.number("<h")
            self._bytes(self.number("<B"))
            if node_type not in BODY_BYTES or (node_type != LEAF and not 0 < children <= MAX_CHILDREN[node_type]):
                raise ValueError(f"its tree has a node of type {node_type} with {children} children")
            body = self._bytes(BODY_BYTES[node_type])
            if node_type == LEAF:
                yield body[:KEY_BYTES], int.from_bytes(body[KEY_BYTES:], "little")
            awaited += children - 1

    def container(self) -> np.ndarray | None:
        if self.number("<B") == 0:
            return None
        container_type, count = self.number("<B"), self.number("<i")
        if container_type == ARRAY:
            return np.frombuffer(self._bytes(2 * count), "<u2")
        if container_type == BITMAP:
            bits = np.unpackbits(np.frombuffer(self._bytes(BITMAP_BYTES), np.uint8), bitorder="little")
            return np.flatnonzero(bits).astype(np.uint16)
        if container_type != RUN:
            raise ValueError(f"it has a container of type {container_type}")
        runs = np.frombuffer(self._bytes(4 * self.number("<H")), "<u2").astype(np.int64).reshape(-1, 2)
        last = runs.sum(axis=1)
        if (last >= 1 << 16).any() or (runs[1:, 0] <= last[:-1]).any():  # else a few bytes could stand for any number of values
            raise ValueError("its runs do not ascend")
        ranges = [np.arange(first, first + more + 1) for first, more in runs.tolist()]
        return np.concatenate(ranges or [np.empty(0, np.int64)]).astype(np.uint16)

    def _bytes(self, count: int) -> bytes:
        found = self._data[self._at : self._at + count]
        if count < 0 or len(found) < count:
            raise ValueError(f"it ends after {len(self._data)} bytes")
        self._at += count
        return found


def _nodes(keys: list[bytes], slot_of: dict[bytes, int], depth: int) -> Iterator[bytes]:
    """The encoded node of these sorted keys, which share their first `depth` bytes, and all nodes below it."""
    if len(keys) == 1:
        yield struct.pack("<BhB", LEAF, 0, 0) + keys[0] + struct.pack("<q", slot_of[keys[0]])
        return
    branch = depth
    while keys[0][branch] == keys[-1][branch]:
        branch += 1
    children: dict[int, list[bytes]] = {}
    for key in keys:
        children.setdefault(key[branch], []).append(key)
    node_type = next(node_type for node_type, limit in MAX_CHILDREN.items() if len(children) <= limit)
    prefix = keys[0][depth:branch]
    yield struct.pack("<BhB", node_type, len(children), len(prefix)) + prefix + _body(node_type, list(children))
    for members in children.values():
        yield from _nodes(members, slot_of, branch + 1)


def _body(node_type: int, branches: list[int]) -> bytes:
    """The key bytes of a node's children: as a list, as 256 indices, or as 256 bits, depending on the type of the node."""
    if node_type == NODE256:
        return sum(1 << byte for byte in branches).to_bytes(BODY_BYTES[node_type], "little")
    if node_type == NODE48:
        child_of = {byte: index for index, byte in enumerate(branches)}
        return _reversed_words(bytes(child_of.get(byte, NO_CHILD) for byte in range(256)), 8)
    return _reversed_words(bytes(branches).ljust(BODY_BYTES[node_type], b"\0"), min(BODY_BYTES[node_type], 8))


def _reversed_words(data: bytes, width: int) -> bytes:
    """Words of `width` bytes, each with its bytes in reverse order."""
    return b"".join(data[at : at + width][::-1] for at in range(0, len(data), width))


def _container(values: np.ndarray) -> bytes:
    wide = values.astype(np.int64)
    first = np.flatnonzero(np.diff(wide, prepend=-2) != 1)
    ends = np.append(first[1:], len(wide)) - 1
    if min(2 * len(wide), BITMAP_BYTES) > 2 + 4 * len(first):
        runs = np.stack([wide[first], wide[ends] - wide[first]], axis=1).astype("<u2")
        return struct.pack("<BiH", RUN, len(wide), len(first)) + runs.tobytes()
    if len(wide) <= LONGEST_ARRAY:
        return struct.pack("<Bi", ARRAY, len(wide)) + values.astype("<u2").tobytes()
    bits = np.zeros(8 * BITMAP_BYTES, dtype=np.uint8)
    bits[wide] = 1
    return struct.pack("<Bi", BITMAP, len(wide)) + np.packbits(bits, bitorder="little").tobytes()


FRACTION = slice(12, 16)
JAVA_FRACTION = b"\x00\x00\x80\x3f"
"""Java writes the sampling fraction 1.0 here, other libraries write zeros. Readers ignore it."""


def bitmap32(column: str) -> StepByStep:
    return StepByStep(("rbm32", column), _union(column, "rbm32", _joined_bitmaps))


def bitmap64(column: str) -> StepByStep:
    def joined(held: bytes, added: bytes) -> bytes:
        bitmap = Bitmap64.deserialize(held)
        bitmap.add(Bitmap64.deserialize(added))
        return bitmap.serialize()

    return StepByStep(("rbm64", column), _union(column, "rbm64", joined))


def theta_sketch(column: str) -> StepByStep:
    """The union of theta sketches. Raises `NotSupported` without the optional package `datasketches`."""
    library = sketch_library("theta_sketch")

    def joined(held: bytes, added: bytes) -> bytes:
        union = library.theta_union()
        for sketch in (held, added):
            union.update(library.compact_theta_sketch.deserialize(sketch))
        result = bytearray(union.get_result().serialize())
        if len(result) > FRACTION.stop:
            result[FRACTION] = JAVA_FRACTION
        return bytes(result)

    return StepByStep(("theta_sketch", column), _union(column, "theta_sketch", joined))


def hll_sketch(column: str) -> StepByStep:
    """The union of HLL sketches, with the precision of the newer one, as in Java.

    Raises `NotSupported` without the optional package `datasketches`.
    """
    library = sketch_library("hll_sketch")

    def joined(held: bytes, added: bytes) -> bytes:
        newer = library.hll_sketch.deserialize(added)
        union = library.hll_union(newer.lg_config_k)
        union.update(newer)
        union.update(library.hll_sketch.deserialize(held))
        return bytes(union.get_result(library.tgt_hll_type.HLL_4).serialize_compact())

    return StepByStep(("hll_sketch", column), _union(column, "hll_sketch", joined))


def sketch_library(function: str) -> ModuleType:
    """The package that reads and writes sketches. `function`: the aggregate function, for the error message."""
    with importing(f"the aggregate function {function} needs the package datasketches", "sketches", NotSupported):
        datasketches = importlib.import_module("datasketches")
    return datasketches


def _joined_bitmaps(held: bytes, added: bytes) -> bytes:
    bitmap = BitMap.deserialize(held) | BitMap.deserialize(added)
    bitmap.run_optimize()
    return bytes(bitmap.serialize())


NOT_DECODED = (ValueError, RuntimeError, IndexError, OverflowError)
"""What the libraries of sketches and bitmaps raise for bytes that they do not understand; `IndexError` if there are too few."""


def _union(
    column: str, function: str, joined: Callable[[bytes, bytes], bytes]
) -> Callable[[bytes | None, bytes | None], bytes | None]:
    def add(held: bytes | None, added: bytes | None) -> bytes | None:
        if held is None or added is None:
            return added if held is None else held
        try:
            return joined(held, added)
        except NOT_DECODED as problem:
            raise BadInput(f"column {column} holds bytes that are not a {function}", str(problem), column=column) from problem

    return add


def _bytes(function: str, build: Callable[[str], Aggregator]) -> Builder:
    def checked(field: DataField, options: TableOptions) -> Aggregator:
        expect(function, field, field.type.root == "VARBINARY", "VARBINARY or BYTES")
        return build(field.name)

    return checked


FUNCTIONS: dict[str, Builder] = {
    "rbm32": _bytes("rbm32", bitmap32),
    "rbm64": _bytes("rbm64", bitmap64),
    "theta_sketch": _bytes("theta_sketch", theta_sketch),
    "hll_sketch": _bytes("hll_sketch", hll_sketch),
}
