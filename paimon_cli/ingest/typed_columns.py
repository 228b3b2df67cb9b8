"""Converts typed input columns (Parquet, ORC, Arrow, parsed JSON) to the table's exact Arrow types, without loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import methodcaller

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.datatypes.arrow_types import arrow_type, is_ascii
from paimon_cli.datatypes.data_type import (
    FLOATING_ROOTS,
    INTEGER_ROOTS,
    MAX_LENGTH,
    STRING,
    ArrayType,
    BinaryType,
    DataType,
    DecimalType,
    MapType,
    MultisetType,
    RowType,
    StringType,
    TimestampType,
    TimeType,
    VariantType,
)
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.datatypes.variant_building import variants_of_texts
from paimon_cli.datatypes.variant_text import check_variants
from paimon_cli.errors import DamagedFile
from paimon_cli.ingest.faults import BadCell, BadCells, WrongType, attempt, bad_cells, require

MILLIS_DIGITS, MICROS_DIGITS, NANOS_DIGITS = 3, 6, 9
TICKS_OF_DAY = {unit: 86_400 * 10**digits for unit, digits in (("s", 0), ("ms", 3), ("us", 6), ("ns", 9))}
SAFE_DIGITS = {"FLOAT": 6, "DOUBLE": 15}
"""Decimals of at most this many digits are printed as before after they were stored in the type."""


@dataclass(frozen=True)
class CastRules:
    """What a cast may do beyond converting equal values.

    `may_round`: a double becomes the nearest FLOAT; for text, which does not say how wide its numbers are. `timezone`: the zone
    that converts between timestamps with and without time zone; None: they are refused. `missing_are_null`: a nullable field
    that a struct lacks is null; else the type does not fit.
    """

    may_round: bool = False
    timezone: str | None = None
    missing_are_null: bool = True


EXACT = CastRules()
VALIDATED = methodcaller("validate", full=True)


def plain(array: pa.Array) -> pa.Array:
    """The values without dictionary, run-length, large or view encoding."""
    t = array.type
    if pa.types.is_dictionary(t):
        return plain(array.dictionary).take(array.indices)
    if pa.types.is_run_end_encoded(t):
        return plain(pc.run_end_decode(array))
    if pa.types.is_large_string(t) or pa.types.is_string_view(t):
        return array.cast(pa.string())
    if pa.types.is_large_binary(t) or pa.types.is_binary_view(t) or pa.types.is_fixed_size_binary(t):
        return array.cast(pa.binary())
    return array


def cast_atomic(array: pa.Array, t: DataType, rules: CastRules = EXACT) -> pa.Array:
    """A `plain` array as `arrow_type(t)`. Raises `WrongType`, or `BadCells` for the values that do not fit."""
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), arrow_type(t))
    if t.root in INTEGER_ROOTS:
        return _integers(array, t)
    if t.root in FLOATING_ROOTS:
        return _floats(array, t, rules.may_round)
    if isinstance(t, DecimalType):
        return _decimals(array, t)
    if isinstance(t, StringType):
        return _strings(array, t)
    if isinstance(t, BinaryType):
        return _binaries(array, t)
    if isinstance(t, TimeType):
        return _times(array, t)
    if isinstance(t, TimestampType):
        return _timestamps(array, t, rules.timezone)
    if t.root == "DATE":
        return _days(array, t)
    return _cast(array, t, pa.types.is_boolean(array.type), "it is not true or false")


def _cast(array: pa.Array, t: DataType, accepted: bool, why: str) -> pa.Array:
    if not accepted:
        raise WrongType(str(array.type))
    target = arrow_type(t)
    return array if array.type == target else attempt(array, lambda part: part.cast(target), why)


def _integers(array: pa.Array, t: DataType) -> pa.Array:
    """Whole numbers may come as floating-point numbers: pandas keeps integers so, and rounds them, where some are missing."""
    if pa.types.is_floating(array.type):
        whole = _cast(array, t, True, f"it is not a whole number in the range of {t.root}")
        bits = np.finfo(array.type.to_pandas_dtype()).nmant + 1
        is_exact = pc.less(pc.abs(array.cast(pa.float64())), float(2**bits))  # Arrow compares no halves
        require(array, is_exact, f"it may have been rounded: such numbers are exact below 2^{bits}; in pandas use Int64")
        return whole
    return _cast(array, t, pa.types.is_integer(array.type), f"it is outside the range of {t.root}")


def _floats(array: pa.Array, t: DataType, may_round: bool) -> pa.Array:
    if pa.types.is_float64(array.type) and t.root == "FLOAT":
        narrow = array.cast(pa.float32())
        wide, back = (a.to_numpy(zero_copy_only=False) for a in (array, narrow.cast(pa.float64())))
        same = (back == wide) | np.isnan(wide)
        require(array, same | (np.isfinite(back) if may_round else False), "it is not exactly a FLOAT")
        return narrow
    if pa.types.is_decimal(array.type):
        return _floats_of_decimals(array, t)
    accepted = pa.types.is_floating(array.type) or pa.types.is_integer(array.type)
    return _cast(array, t, accepted, f"it is not exactly a {t.root}")


def _floats_of_decimals(array: pa.Array, t: DataType) -> pa.Array:
    """The nearest numbers, if these have all digits of the decimals: SQL takes literals such as 0.5 for decimals."""
    texts = array.cast(pa.string())
    significant = pc.utf8_trim(pc.replace_substring_regex(texts, r"[-.]|E.*", ""), "0")
    limit = SAFE_DIGITS[t.root]
    require(array, pc.less_equal(pc.utf8_length(significant), limit), f"a {t.root} holds only {limit} digits")
    nearest = texts.cast(arrow_type(t))  # Arrow's direct cast from decimals does not always find the nearest number
    size, bounds = np.abs(nearest.to_numpy(zero_copy_only=False)), np.finfo(nearest.type.to_pandas_dtype())
    is_zero = pc.fill_null(pc.equal(significant, ""), True).to_numpy(zero_copy_only=False)
    require(array, is_zero | ((bounds.tiny <= size) & (size <= bounds.max)), f"it is outside the range of {t.root}")
    return nearest


def _decimals(array: pa.Array, t: DecimalType) -> pa.Array:
    target, why = arrow_type(t), f"it does not fit {type_to_sql(t.with_nullable(True))} without loss"
    if pa.types.is_integer(array.type):
        # Arrow reserves digits for every value of the integer type, so the cast goes through a wider decimal.
        wide = pa.decimal256(20 + t.scale, t.scale)
        return attempt(array, lambda part: part.cast(wide).cast(target), why)
    return _cast(array, t, pa.types.is_decimal(array.type), why)


def _strings(array: pa.Array, t: StringType) -> pa.Array:
    if not pa.types.is_string(array.type):
        raise WrongType(str(array.type))
    if not is_ascii(array):
        attempt(array, VALIDATED, "it is not valid UTF-8")
    if t.length < MAX_LENGTH:
        require(array, pc.less_equal(pc.utf8_length(array), t.length), f"it is longer than {t.length} characters")
    return array


def _binaries(array: pa.Array, t: BinaryType) -> pa.Array:
    if not pa.types.is_binary(array.type):
        raise WrongType(str(array.type))
    if t.length < MAX_LENGTH:
        require(array, pc.less_equal(pc.binary_length(array), t.length), f"it is longer than {t.length} bytes")
    return array


def _times(array: pa.Array, t: TimeType) -> pa.Array:
    why = f"it has more than {min(t.precision, MILLIS_DIGITS)} digits after the second"
    millis = _cast(array, t, pa.types.is_time(array.type), why)
    require_digits(array, millis.view(pa.int32()), t.precision, MILLIS_DIGITS, why)
    return millis


def _days(array: pa.Array, t: DataType) -> pa.Array:
    """Days may come as timestamps without zone at midnight: pandas has no other type for them."""
    why = "it is not a whole day"
    if pa.types.is_timestamp(array.type) and array.type.tz is None:
        ticks = pc.fill_null(array.view(pa.int64()), 0).to_numpy(zero_copy_only=False)
        require(array, ticks % TICKS_OF_DAY[array.type.unit] == 0, why)
        return array.cast(arrow_type(t))
    return _cast(array, t, pa.types.is_date(array.type), why)


def _timestamps(array: pa.Array, t: TimestampType, timezone: str | None) -> pa.Array:
    if not pa.types.is_timestamp(array.type):
        raise WrongType(str(array.type))
    if (array.type.tz is not None) != (t.root == "TIMESTAMP_LTZ"):
        if timezone is None:
            reason = (
                "has a time zone, the column has none" if array.type.tz is not None else "has no time zone, the column needs one"
            )
            raise WrongType(str(array.type), f"the input {reason}; give the zone with --timezone, such as UTC")
        array = instants(array, timezone) if array.type.tz is None else local_times(array, timezone)
    why = f"it is not a timestamp of {t.precision} digits after the second"
    cast = _cast(array, t, True, why)
    stored = next(digits for digits in (MILLIS_DIGITS, MICROS_DIGITS, NANOS_DIGITS) if t.precision <= digits)
    require_digits(array, cast.view(pa.int64()), t.precision, stored, why)
    return cast


def instants(array: pa.Array, timezone: str) -> pa.Array:
    """Local times of a zone as instants. Of an hour that the clock repeats, the first counts. `BadCells` for skipped times."""
    why = f"there is no such time in {timezone}"
    return attempt(array, lambda part: pc.assume_timezone(part, timezone, ambiguous="earliest"), why)


def local_times(array: pa.Array, timezone: str) -> pa.Array:
    """The local times of the zone at these instants."""
    return pc.local_timestamp(array.cast(pa.timestamp(array.type.unit, timezone)))


def require_digits(array: pa.Array, units: pa.Array, precision: int, stored: int, why: str) -> None:
    """Raise `BadCells` where one of the last `stored - precision` decimal digits of `units` (integers) is not zero."""
    if precision < stored:
        step = 10 ** (stored - precision)
        numbers = pc.fill_null(units, 0).to_numpy(zero_copy_only=False)
        require(array, numbers % step == 0, why)


def cast_column(array: pa.Array, t: DataType, rules: CastRules = EXACT) -> pa.Array:
    """The column as `arrow_type(t)`, without loss. Raises `WrongType`, or `BadCells` for the rows that do not fit.

    Checks nulls inside nested values; the caller checks nulls of the column itself.
    """
    values = plain(array)
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), arrow_type(t))
    if isinstance(t, ArrayType):
        return _cast_list(values, t, rules)
    if isinstance(t, (MapType, MultisetType)):
        return _cast_map(values, t, rules)
    if isinstance(t, VariantType):
        return _variants(values, t)
    if isinstance(t, RowType):
        return _cast_struct(values, t, rules)
    return cast_atomic(values, t, rules)


def _cast_list(array: pa.Array, t: ArrayType, rules: CastRules) -> pa.Array:
    if not (pa.types.is_list(array.type) or pa.types.is_large_list(array.type) or pa.types.is_fixed_size_list(array.type)):
        raise WrongType(str(array.type))
    offsets = _offsets(array)
    values = _inner(array, array.flatten(), t.element, offsets, rules)
    return pa.ListArray.from_arrays(pa.array(offsets), values, type=arrow_type(t), mask=_null_mask(array))


def _cast_map(array: pa.Array, t: MapType | MultisetType, rules: CastRules) -> pa.Array:
    if not pa.types.is_map(array.type):
        raise WrongType(str(array.type))
    # Arrow's list functions do not accept maps.
    lists = array.cast(pa.list_(pa.struct([array.type.key_field, array.type.item_field])))
    offsets, entries = _offsets(lists), lists.flatten()
    keys = _inner(array, entries.field(0), t.key.with_nullable(False), offsets, rules)
    items = _inner(array, entries.field(1), t.value, offsets, rules)
    return pa.MapArray.from_arrays(pa.array(offsets), keys, items, type=arrow_type(t), mask=_null_mask(array))


def _cast_struct(array: pa.Array, t: RowType, rules: CastRules) -> pa.Array:
    if not pa.types.is_struct(array.type):
        raise WrongType(str(array.type))
    names = [field.name for field in array.type]
    required = {field.name for field in t.fields if not (rules.missing_are_null and field.type.nullable)}
    if len(set(names)) < len(names) or not required <= set(names) <= {field.name for field in t.fields}:
        raise WrongType(str(array.type))
    is_valid = array.is_valid()
    children = []
    for field in t.fields:
        child = pc.struct_field(array, field.name) if field.name in names else pa.nulls(len(array))
        with _rows_of(array, lambda row: row):
            children.append(cast_column(child, field.type, rules))
        if not field.type.nullable:
            _require_present(array, pc.and_(is_valid, child.is_null()), lambda row: row)
    return pa.StructArray.from_arrays(children, fields=list(arrow_type(t)), mask=_null_mask(array))


def _variants(array: pa.Array, t: VariantType) -> pa.Array:
    """A VARIANT is given as JSON text, or as the bytes of its value and metadata, which are checked."""
    if pa.types.is_string(array.type):
        column, wrong = variants_of_texts(_strings(array, STRING))
        if wrong:
            raise BadCells([BadCell(row, array[row].as_py(), f"it is no JSON: {why}") for row, why in wrong.items()])
        return column
    column = _cast_struct(array, t, EXACT)
    return attempt(column, _checked, "it is no VARIANT: its bytes do not fit together")


def _checked(variants: pa.StructArray) -> pa.StructArray:
    try:
        check_variants(variants)
    except DamagedFile as problem:
        raise pa.ArrowInvalid(problem.why) from problem
    return variants


def _inner(array: pa.Array, values: pa.Array, t: DataType, offsets: np.ndarray, rules: CastRules) -> pa.Array:
    """Convert elements, keys or map values of `array`. Their faults are reported for the row that holds them."""

    def row_of(position: int) -> int:
        return int(np.searchsorted(offsets, position, side="right")) - 1

    with _rows_of(array, row_of):
        converted = cast_column(values, t, rules)
    if not t.nullable:
        _require_present(array, values.is_null(), row_of)
    return converted


def _require_present(array: pa.Array, missing: pa.Array, row_of: Callable[[int], int]) -> None:
    rows = sorted({row_of(int(position)) for position in np.flatnonzero(missing.to_numpy(zero_copy_only=False))})
    if rows:
        raise bad_cells(array, rows, "a NOT NULL part of it is null")


def _offsets(array: pa.Array) -> np.ndarray:
    """Offsets into `array.flatten()`, which omits the values of null rows; int32, one more than rows."""
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)


def _null_mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


class _rows_of:
    """A context in which faults of inner values become faults of the rows of the outer array, `row_of` their position."""

    def __init__(self, array: pa.Array, row_of: Callable[[int], int]) -> None:
        self.array = array
        self.row_of = row_of

    def __enter__(self) -> None:
        return None

    def __exit__(self, error_type: object, problem: BaseException | None, trace: object) -> None:
        if isinstance(problem, BadCells):
            inner = {self.row_of(cell.row): cell for cell in reversed(problem.cells)}  # the first one of each row
            cells = [BadCell(row, cell.value, f"inside the value: {cell.why}") for row, cell in inner.items()]
            raise BadCells(cells[::-1]) from problem
        if isinstance(problem, WrongType):
            raise WrongType(str(self.array.type), problem.why) from problem
