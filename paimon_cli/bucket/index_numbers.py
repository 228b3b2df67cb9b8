"""The values of a column as numbers in the same order, of which the file indexes bsi and range-bitmap consist (FORMAT.md, 7.4).

Whole numbers, DATE and TIME are themselves, timestamps count milliseconds up to precision 3, else microseconds, and DECIMALs are
unscaled. The bits of FLOAT and DOUBLE are turned so that they sort as Java's `compareTo` does: -0.0 below 0.0, NaN above all.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paimon_cli.bucket.bloom_index import timestamp_units
from paimon_cli.datatypes.arrow_types import low_words
from paimon_cli.datatypes.data_type import FLOATING_ROOTS, INTEGER_ROOTS, DataType, DecimalType, TimestampType
from paimon_cli.datatypes.internal_values import Timestamp

Numbers = npt.NDArray[np.int64]
PLAIN_ROOTS = {*INTEGER_ROOTS, "DATE", "TIME"}
_BITS = {"FLOAT": np.int32, "DOUBLE": np.int64}
_MILLIS_PRECISION, _MICROS_PRECISION = 3, 6


def index_numbers(present: pa.Array, t: DataType) -> Numbers:
    """The numbers of values of which none is null. DECIMALs that need more than 64 bits are cut off: see `fits_number`."""
    if isinstance(t, DecimalType):
        return low_words(present)
    if isinstance(t, TimestampType):
        return timestamp_units(present)
    if t.root in FLOATING_ROOTS:
        numbers = present.to_numpy()
        bits = np.where(np.isnan(numbers), np.array(np.nan, numbers.dtype), numbers).view(_BITS[t.root])
        return _turned(bits).astype(np.int64)
    if t.root == "BOOLEAN":
        return present.cast(pa.uint8()).to_numpy().astype(np.int64)
    narrow = pa.int32() if t.root in ("DATE", "TIME") else present.type
    return present.cast(narrow).to_numpy().astype(np.int64)


def fits_number(present: pa.Array, t: DataType) -> npt.NDArray[np.bool_]:
    """Which of the values `index_numbers` represents whole: all but DECIMALs of more than 64 bits."""
    if not isinstance(t, DecimalType):
        return np.ones(len(present), bool)
    low = low_words(present)
    data = present.buffers()[1]
    words = np.frombuffer(b"" if data is None else data, np.int64)
    high = words[2 * present.offset + 1 : 2 * (present.offset + len(present)) : 2]
    return np.asarray(high == low >> 63)


def _turned(bits: npt.NDArray[np.signedinteger[Any]]) -> npt.NDArray[np.signedinteger[Any]]:
    """The bits of floating-point numbers as integers in the same order, and the inverse: negative numbers are flipped."""
    return np.asarray(bits ^ ((bits >> (8 * bits.itemsize - 1)) & np.iinfo(bits.dtype).max))


def stored_numbers(numbers: Numbers, form: str) -> npt.NDArray[Any]:
    """The numbers as `form`, a numpy type such as `>i4` or `>f8`, stores them."""
    if "f" not in form:
        return numbers.astype(form)
    native = np.dtype(form).newbyteorder("=")
    return _turned(numbers.astype(f"i{native.itemsize}")).view(native).astype(form)


def numbers_of_stored(stored: npt.NDArray[Any]) -> Numbers:
    """The inverse of `stored_numbers`."""
    native = stored.astype(stored.dtype.newbyteorder("="))
    return (_turned(native.view(f"i{native.itemsize}")) if native.dtype.kind == "f" else native).astype(np.int64)


def value_of_number(number: int, t: DataType) -> Any:
    """The internal value with this number; None if it cannot be told, because digits of it were cut off, or bits turned."""
    if isinstance(t, DecimalType):
        return Decimal(number).scaleb(-t.scale)
    if isinstance(t, TimestampType):
        if t.precision <= _MILLIS_PRECISION:
            return Timestamp(number)
        return Timestamp(number // 1000, number % 1000 * 1000) if t.precision <= _MICROS_PRECISION else None
    if t.root == "BOOLEAN":
        return bool(number)
    return number if t.root in PLAIN_ROOTS else None
