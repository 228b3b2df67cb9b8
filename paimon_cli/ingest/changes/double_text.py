"""DOUBLE values as text, as Java 19 and later print them: the fewest digits, `1.0`, and `1.0E10` from ten million on.

The casts of tables (`datatypes/java_float_text`) print the digits of older Javas, which takes a hundred times as long.
"""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_LOW, _HIGH = 1e-3, 1e7
"""Numbers between these have no exponent."""


def double_text(value: float) -> str:
    """One number as text."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value == 0 or _LOW <= abs(value) < _HIGH:
        return repr(value) if "e" not in repr(value) else f"{Decimal(repr(value)):f}"
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits))
    return f"{'-' * sign}{text[0]}.{text[1:] or '0'}E{exponent + len(text) - 1}"


def double_texts(cells: pa.Array) -> pa.Array:
    """The numbers of a column as texts."""
    numbers = cells.to_numpy(zero_copy_only=False)
    with np.errstate(invalid="ignore"):
        size = np.abs(numbers)
        plain = ((size >= _LOW) & (size < _HIGH)) | ~cells.is_valid().to_numpy(zero_copy_only=False)
    texts, odd = cells.cast(pa.string()), ~plain
    with np.errstate(invalid="ignore"):
        whole = ~odd & (numbers == np.floor(numbers))
    if whole.any():
        texts = pc.if_else(pa.array(whole), pc.binary_join_element_wise(texts, ".0", ""), texts)
    if odd.any():  # with exponents
        others = [double_text(value) for value in numbers[odd].tolist()]
        texts = pc.replace_with_mask(texts, pa.array(odd), pa.array(others, pa.string()))
    return texts
