"""Values of MySQL's own types as Canal writes them: texts that hold bits, a member or a set of members as a number, or bytes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.datatypes.data_type import DataType
from paimon_cli.ingest.faults import attempt, bad_cells, require

_NUMBER = r"^[0-9]+$"


def bytes_of_bits(cells: pa.Array, target: DataType) -> pa.Array:
    """The bytes of BIT(n) values, whole numbers as text, most significant byte first, as many as `target` (BINARY) has.

    Raises `BadCells`.
    """
    width = getattr(target, "length", 8)
    numbers = attempt(cells, lambda part: part.cast(pa.uint64()), "it is not a number of bits")
    values = pc.fill_null(numbers, 0).to_numpy()
    if width < values.itemsize:
        require(cells, values >> np.uint64(8 * width) == 0, f"it has more than {8 * width} bits")
    data = np.ascontiguousarray(values.astype(">u8").view(np.uint8).reshape(-1, values.itemsize)[:, -width:])
    valid = pa.array(numbers.is_valid()).buffers()[1] if numbers.null_count else None
    return pa.Array.from_buffers(pa.binary(width), len(cells), [valid, pa.py_buffer(data.tobytes())]).cast(pa.binary())


def enum_members(cells: pa.Array, members: Sequence[str]) -> pa.Array:
    """The members of an ENUM by their numbers from 1 (0: the empty text); other texts are members. Raises `BadCells`."""
    is_number = pc.match_substring_regex(cells, _NUMBER)
    numbers = pc.if_else(is_number, cells, pa.scalar(None, pa.string()))
    places = attempt(numbers, lambda part: part.cast(pa.uint32()), "its ENUM has no such member")
    require(cells, pc.less_equal(places, len(members)), "its ENUM has no such member")
    return pc.if_else(is_number, pa.array(["", *members], pa.string()).take(places), cells)


def set_members(cells: pa.Array, members: Sequence[str]) -> pa.Array:
    """The members of a SET, as lists of texts: those whose bits are set in a number, or names with commas. Raises `BadCells`."""
    is_number = pc.match_substring_regex(cells, _NUMBER)
    names = pc.split_pattern(cells, ",")
    names = pc.if_else(pc.equal(cells, ""), pa.scalar([], names.type), names)
    if not pc.any(is_number).as_py():
        return names
    numbers = pc.if_else(is_number, cells, pa.scalar(None, pa.string()))
    numbers = attempt(numbers, lambda part: part.cast(pa.uint64()), "its SET has no such members")
    bits = pc.fill_null(numbers, 0).to_numpy()[:, None] >> np.arange(64, dtype=np.uint64) & np.uint64(1) == 1
    require(cells, ~bits[:, len(members) :].any(axis=1), "its SET has no such members")
    offsets = np.concatenate([[0], np.cumsum(bits.sum(axis=1))]).astype(np.int32)
    chosen = pa.array(members, pa.string()).take(pa.array(np.nonzero(bits)[1]))
    return pc.if_else(is_number, pa.ListArray.from_arrays(pa.array(offsets), chosen), names)


def bytes_of_characters(cells: pa.Array) -> pa.Array:
    """Bytes that were written as the characters U+0000 to U+00FF, as Canal does. Raises `BadCells`."""
    found, bad = list[bytes | None](), list[int]()
    for row, text in enumerate(cells.to_pylist()):  # no vectorised form: only columns of bytes come here
        try:
            found.append(None if text is None else text.encode("latin-1"))
        except UnicodeEncodeError:
            found.append(None)
            bad.append(row)
    if bad:
        raise bad_cells(cells, bad, "its characters are no bytes")
    return pa.array(found, pa.binary())
