"""Columns as numbers that are equal where their values are: rows can then be compared without a loop."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
import pyarrow as pa

from paimon_cli.datatypes.key_order import comparable
from paimon_cli.lsm.aggregators.value_identity import identity

NULL = -1


def equality_codes(column: pa.Array) -> list[np.ndarray]:
    """int64 arrays, one number a row: rows are equal where all of them are. They count within this call only.

    Values are equal as in Java: NaN equals NaN, -0.0 is not 0.0, null equals null, maps have no order.
    """
    if pa.types.is_struct(column.type):
        present = column.is_valid().to_numpy(zero_copy_only=False).astype(np.int64)
        return [present, *(codes for inner in column.flatten() for codes in equality_codes(inner))]
    if pa.types.is_list(column.type) or pa.types.is_map(column.type):
        return [_codes_of_collections(column)]
    codes = comparable(column).dictionary_encode().indices.fill_null(NULL).to_numpy(zero_copy_only=False)
    return [np.where(column.is_valid().to_numpy(zero_copy_only=False), codes, NULL).astype(np.int64)]


def _codes_of_collections(column: pa.Array) -> np.ndarray:
    """Arrow does not compare lists and maps, so Python does, value by value."""
    known: dict[Hashable, int] = {None: NULL}
    return np.array([known.setdefault(identity(value, column.type), len(known)) for value in column.to_pylist()], dtype=np.int64)
