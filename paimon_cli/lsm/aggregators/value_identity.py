"""When two values are equal for Java: NaN equals NaN, -0.0 is not 0.0, maps have no order."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any

import pyarrow as pa


def identity(value: Any, t: pa.DataType) -> Hashable:
    """Something hashable that is equal for equal values of the type."""
    if value is None:
        return None
    if pa.types.is_floating(t):
        return "NaN" if math.isnan(value) else (value, math.copysign(1.0, value))
    if pa.types.is_list(t):
        return tuple(identity(item, t.value_type) for item in value)
    if pa.types.is_map(t):
        return frozenset((identity(k, t.key_type), identity(v, t.item_type)) for k, v in value)
    if pa.types.is_struct(t):
        return tuple(identity(value[field.name], field.type) for field in t)
    return value
