"""Reports the cells that a conversion cannot take: rows within the batch, values, and the reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

SHOWN_LENGTH = 60


class BadCell(NamedTuple):
    """A value that its column cannot hold; `row` counts from 0 within the array that was converted."""

    row: int
    value: object
    why: str


class BadCells(Exception):
    """All cells that one step of a conversion refuses, in ascending order of rows; later steps may refuse others."""

    def __init__(self, cells: Sequence[BadCell]) -> None:
        super().__init__(cells)
        self.cells = cells

    @property
    def first(self) -> BadCell:
        return self.cells[0]


class WrongType(Exception):
    """The type of a whole column does not convert; `found` names that type."""

    def __init__(self, found: str, why: str = "") -> None:
        super().__init__(found, why)
        self.found = found
        self.why = why


def shown(value: object) -> str:
    """The value for a message, shortened; text is quoted so that blanks are visible."""
    text = plain_text(value)
    if len(text) > SHOWN_LENGTH:
        text = text[: SHOWN_LENGTH - 1] + "…"
    return f"'{text}'" if isinstance(value, str) else text


def plain_text(value: object) -> str:
    """The value as text for any output format; bytes as hex."""
    text = "null" if value is None else value.hex() if isinstance(value, bytes) else str(value)
    return text.encode(errors="backslashreplace").decode()


def bad_cells(array: pa.Array, rows: Sequence[int] | np.ndarray, why: str) -> BadCells:
    return BadCells([BadCell(int(row), _python_value(array[int(row)]), why) for row in rows])


def _python_value(scalar: pa.Scalar) -> Any:
    """The value as a Python object. Nanoseconds and years outside of Python's calendar have none, and stay Arrow's text."""
    try:
        return scalar.as_py()
    except UnicodeDecodeError:
        return scalar.as_buffer().to_pybytes()
    except (ValueError, OverflowError):
        return str(scalar.cast(pa.string()))


def require(array: pa.Array, passes: pa.Array | np.ndarray, why: str) -> None:
    """Raise `BadCells` for the rows whose mark is false. Null marks pass: null cells are checked elsewhere."""
    marks = passes if isinstance(passes, np.ndarray) else pc.fill_null(passes, True).to_numpy(zero_copy_only=False)
    if not marks.all():
        raise bad_cells(array, np.flatnonzero(~marks), why)


def attempt(array: pa.Array, convert: Callable[[pa.Array], pa.Array], why: str) -> pa.Array:
    """Return `convert(array)`. If Arrow refuses it, raise `BadCells` for all refused rows, found by halving."""
    try:
        return convert(array)
    except pa.ArrowInvalid as problem:
        raise bad_cells(array, _refused(array, 0, convert), why) from problem


def _refused(array: pa.Array, first: int, convert: Callable[[pa.Array], pa.Array]) -> list[int]:
    """The rows, counted from `first`, whose values do not convert."""
    try:
        convert(array)
    except pa.ArrowInvalid:
        if len(array) == 1:
            return [first]
        half = len(array) // 2
        return _refused(array.slice(0, half), first, convert) + _refused(array.slice(half), first + half, convert)
    return []


def converted(array: pa.Array, convert: Callable[[pa.Array], pa.Array]) -> tuple[pa.Array, list[BadCell]]:
    """The result of `convert(array)` with null for refused cells, and these cells in ascending order of rows."""
    cells: list[BadCell] = []
    while True:
        try:
            return convert(array), sorted(cells, key=lambda cell: cell.row)
        except BadCells as refused:
            cells += refused.cells
            array = without(array, [cell.row for cell in refused.cells])


def without(array: pa.Array, rows: Sequence[int]) -> pa.Array:
    """The array with null in these rows."""
    kept = np.arange(len(array))
    return array.take(pa.array(kept, mask=np.isin(kept, rows)))
