"""How a conversion says which cell it cannot take: row within the batch, value, reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

SHOWN_LENGTH = 60


class BadCell(Exception):
    """A value that its column cannot hold; `row` counts from 0 within the array that was converted."""

    def __init__(self, row: int, value: object, why: str) -> None:
        super().__init__(row, value, why)
        self.row = row
        self.value = value
        self.why = why


class WrongType(Exception):
    """A whole column whose type does not convert; `found` names that type."""

    def __init__(self, found: str, why: str = "") -> None:
        super().__init__(found, why)
        self.found = found
        self.why = why


def shown(value: object) -> str:
    """The value for a message, shortened; text in quotes so that blanks show."""
    text = "null" if value is None else value.hex() if isinstance(value, bytes) else str(value)
    if len(text) > SHOWN_LENGTH:
        text = text[: SHOWN_LENGTH - 1] + "…"
    text = text.encode(errors="backslashreplace").decode()
    return f"'{text}'" if isinstance(value, str) else text


def bad_cell(array: pa.Array, row: int, why: str) -> BadCell:
    return BadCell(row, shown(_python_value(array[row])), why)


def _python_value(scalar: pa.Scalar) -> Any:
    """Nanoseconds and years beyond Python's calendar have no Python value; Arrow's own text shows them."""
    try:
        return scalar.as_py()
    except UnicodeDecodeError:
        return scalar.as_buffer().to_pybytes()
    except (ValueError, OverflowError):
        return str(scalar.cast(pa.string()))


def require(array: pa.Array, passes: pa.Array | np.ndarray, why: str) -> None:
    """Raise BadCell for the first row whose mark is false; null marks pass (null cells are judged elsewhere)."""
    marks = passes if isinstance(passes, np.ndarray) else pc.fill_null(passes, True).to_numpy(zero_copy_only=False)
    if not marks.all():
        raise bad_cell(array, int(np.argmin(marks)), why)


def attempt(array: pa.Array, convert: Callable[[pa.Array], pa.Array], why: str) -> pa.Array:
    """`convert(array)`; where Arrow refuses, BadCell of the first row that it refuses, found by halving."""
    try:
        return convert(array)
    except pa.ArrowInvalid as problem:
        low, high = 0, len(array)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if _refuses(array.slice(low, middle - low), convert) else (middle, high)
        raise bad_cell(array, low, why) from problem


def _refuses(array: pa.Array, convert: Callable[[pa.Array], pa.Array]) -> bool:
    try:
        convert(array)
    except pa.ArrowInvalid:
        return True
    return False
