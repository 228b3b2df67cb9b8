"""Converts text to values of atomic types, column by column: CSV cells and the strings of JSON lines."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.datatypes.arrow_types import arrow_type
from paimon_cli.datatypes.canonical_json import from_canonical
from paimon_cli.datatypes.data_type import (
    FLOATING_ROOTS,
    INTEGER_ROOTS,
    BinaryType,
    DataType,
    DecimalType,
    StringType,
    TimestampType,
    TimeType,
)
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.datatypes.values import values_to_arrow
from paimon_cli.errors import NotSupported
from paimon_cli.ingest.bad_cells import BadCell, BadCells, attempt, require
from paimon_cli.ingest.text_form import TextForm
from paimon_cli.ingest.time_formats import in_iso_form
from paimon_cli.ingest.typed_columns import cast_atomic, instants, local_times

INTEGER = r"^[+-]?[0-9]+$"
NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,5})?$"
NOT_FINITE = r"(?i)^([+-]?inf(inity)?|nan)$"
HEX = r"^([0-9a-fA-F]{2})*$"
DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
CLOCK = r"(?P<clock>[0-9]{2}:[0-9]{2}(?::[0-9]{2})?)(?:\.(?P<fraction>[0-9]{1,9}))?"
TIME = f"^{CLOCK}$"
TIMESTAMP = f"^(?P<day>[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}})(?:[T ]{CLOCK}(?P<zone>Z|z|[+-][0-9]{{2}}(?::?[0-9]{{2}})?)?)?$"
LOCAL_TIME = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?)?$"
INSTANT = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?(Z|[+-][01][0-9](:?[0-5][0-9])?)$"
"""The forms that Arrow's parser reads by itself, many times faster than taken apart."""
FAR_YEAR = r"^([+-]|[0-9]{5,}-)"
CALENDAR_ROOTS = frozenset({"DATE", "TIME", "TIMESTAMP", "TIMESTAMP_LTZ"})
EPOCH_DAY, MIDNIGHT = "1970-01-01", "00:00"
MOST_NANO_SECONDS = 9_223_286_400
"""Seconds to and from the epoch that 64-bit nanoseconds hold, less a day for the zone."""
NEEDS_ZONE = "a TIMESTAMP WITH LOCAL TIME ZONE needs Z or an offset such as +02:00, or --timezone"
TAKES_NO_ZONE = "a TIMESTAMP without time zone takes no Z and no offset without --timezone, such as --timezone UTC"
NOT_UTF_8 = "it is not valid UTF-8; --encoding selects another encoding"
PLAIN = TextForm()
EMPTY = ("",)
"""Quoted nothing: a text, but no value of any other type."""


def parse_text(array: pa.Array, t: DataType, form: TextForm = PLAIN) -> pa.Array:
    """A string array as `arrow_type(t)`. Raises `BadCells` for texts that are no value of the type.

    Texts that mean null are null in all columns except text columns, where it matters whether they were quoted.
    """
    if isinstance(t, StringType):
        return cast_atomic(array, t)
    if form.null_values or not isinstance(t, BinaryType):
        array = with_nulls(array, [*form.null_values, *(EMPTY if not isinstance(t, BinaryType) else ())])
    if t.root == "BOOLEAN":
        return _booleans(array)
    if t.root in INTEGER_ROOTS:
        return _integers(array, t)
    if t.root in FLOATING_ROOTS:
        return _floats(array, t)
    if isinstance(t, DecimalType):
        _require_form(array, NUMBER, "it is not a number")
        target, why = arrow_type(t), f"it does not fit {type_to_sql(t.with_nullable(True))} without loss"
        return attempt(array, lambda part: part.cast(target), why)
    if isinstance(t, BinaryType):
        return _bytes_of_hex(array, t)
    if isinstance(t, TimeType):
        return _times(array, t)
    if form.timestamp_formats:
        return _formatted(array, t, form)
    return _calendar(array, t, form)


def _calendar(array: pa.Array, t: DataType, form: TextForm) -> pa.Array:
    return _timestamps(array, t, form.timezone) if isinstance(t, TimestampType) else _dates(array, t)


def _formatted(array: pa.Array, t: DataType, form: TextForm) -> pa.Array:
    iso = in_iso_form(array, form.timestamp_formats, dates_only=t.root == "DATE")
    try:
        return _calendar(iso, t, form)
    except BadCells as problem:
        raise _in_texts(array, problem) from problem


def with_nulls(array: pa.Array, texts: Sequence[str]) -> pa.Array:
    """The array with null in place of these texts."""
    shortest, longest = min(map(len, texts)), max(len(text.encode()) for text in texts)
    lengths = pc.min_max(pc.binary_length(array)).as_py()
    if lengths["min"] is None or lengths["min"] > longest or lengths["max"] < shortest:
        return array
    marks = pc.is_in(array, pa.array(texts, pa.string()))
    return pc.if_else(marks, pa.scalar(None, pa.string()), array) if pc.any(marks).as_py() else array


def _require_form(array: pa.Array, pattern: str, why: str) -> None:
    require(array, pc.match_substring_regex(array, pattern), why)


def _booleans(array: pa.Array) -> pa.Array:
    lowered = pc.utf8_lower(array)
    require(array, pc.is_in(lowered, pa.array(["true", "false", None])), "a BOOLEAN is written true or false")
    return pc.equal(lowered, "true")


def _integers(array: pa.Array, t: DataType) -> pa.Array:
    _require_form(array, INTEGER, "it is not a whole number")
    digits, target = pc.utf8_ltrim(array, "+"), arrow_type(t)
    return attempt(digits, lambda part: part.cast(target), f"it is outside the range of {t.root}")


def _floats(array: pa.Array, t: DataType) -> pa.Array:
    special = pc.match_substring_regex(array, NOT_FINITE)
    require(array, pc.or_(special, pc.match_substring_regex(array, NUMBER)), "it is not a number")
    numbers = array.cast(arrow_type(t))
    require(array, pc.or_(special, pc.is_finite(numbers)), f"it is outside the range of {t.root}")
    return numbers


def _bytes_of_hex(array: pa.Array, t: BinaryType) -> pa.Array:
    _require_form(array, HEX, "binary values are written as pairs of hex digits")
    require(array, pc.less_equal(pc.binary_length(array), 2 * t.length), f"it is longer than {t.length} bytes")
    # Arrow has no hex decoder; a comprehension over one text column costs less than the parsing before it.
    return pa.array([None if text is None else bytes.fromhex(text) for text in array.to_pylist()], pa.binary())


def _dates(array: pa.Array, t: DataType) -> pa.Array:
    fits = pc.match_substring_regex(array, DATE)
    if not _all(fits) and _has_far_years(array):
        return _one_by_one(array, t)
    require(array, fits, "a DATE is written YYYY-MM-DD")
    return attempt(array, lambda part: part.cast(pa.date32()), "there is no such day")


def _times(array: pa.Array, t: TimeType) -> pa.Array:
    parts = _parts(array, TIME, "a TIME is written HH:MM:SS[.fff]")
    seconds = _seconds(array, pa.repeat(EPOCH_DAY, len(array)), _part(parts, "clock", MIDNIGHT))
    precision = min(t.precision, 3)
    millis = seconds * 1000 + _fraction(array, parts, precision, 3)
    return pa.array(millis.astype(np.int32), pa.int32(), mask=_nulls(array)).view(pa.time32("ms"))


def _timestamps(array: pa.Array, t: TimestampType, timezone: str | None) -> pa.Array:
    precision = t.precision
    digits = 3 if precision <= 3 else 6 if precision <= 6 else 9
    if digits < 9 and (made := _as_arrow_reads(array, t, 10 ** (digits - precision))) is not None:
        return made
    if _has_far_years(array):
        return _one_by_one(array, t)
    parts = _parts(array, TIMESTAMP, "a timestamp is written YYYY-MM-DDTHH:MM:SS[.fraction][offset]")
    has_zone = pc.not_equal(_part(parts, "zone", ""), "")
    if timezone is None and t.root == "TIMESTAMP_LTZ":
        require(array, pc.or_(has_zone, array.is_null()), NEEDS_ZONE)
    elif timezone is None:
        require(array, pc.invert(has_zone), TAKES_NO_ZONE)
    written = _seconds(array, _part(parts, "day", EPOCH_DAY), _part(parts, "clock", MIDNIGHT))
    if digits == 9:
        require(array, np.abs(written) < MOST_NANO_SECONDS, "with more than 6 digits it must lie between 1678 and 2262")
    seconds = _in_zone(array, written, written - _zone_seconds(parts), has_zone, t, timezone)
    units = seconds * 10**digits + _fraction(array, parts, precision, digits)
    return pa.array(units, pa.int64(), mask=_nulls(array)).view(arrow_type(t))


def _as_arrow_reads(array: pa.Array, t: TimestampType, step: int) -> pa.Array | None:
    """Timestamps that need no zone, in multiples of `step` units; None if a text has another form."""
    if not _all(pc.match_substring_regex(array, INSTANT if t.root == "TIMESTAMP_LTZ" else LOCAL_TIME)):
        return None
    try:
        made = array.cast(arrow_type(t))
    except pa.ArrowInvalid:
        return None
    units = pc.fill_null(made.view(pa.int64()), 0).to_numpy()
    return made if step == 1 or not (units % step).any() else None


def _in_zone(
    array: pa.Array, written: np.ndarray, utc: np.ndarray, has_zone: pa.Array, t: DataType, timezone: str | None
) -> np.ndarray:
    """The seconds that the column holds: of instants in UTC, else of the wall clock of `timezone`."""
    instant = t.root == "TIMESTAMP_LTZ"
    if timezone is None:
        return utc if instant else written
    marks = has_zone.to_numpy(zero_copy_only=False)
    other = pa.array(written if instant else utc, pa.int64(), mask=_nulls(array) | (marks == instant)).view(pa.timestamp("s"))
    try:
        moved = instants(other, timezone) if instant else local_times(other.cast(pa.timestamp("s", "UTC")), timezone)
    except BadCells as problem:
        raise _in_texts(array, problem) from problem
    moved = pc.fill_null(moved.view(pa.int64()), 0).to_numpy()
    return np.where(marks == instant, utc if instant else written, moved)


def _in_texts(array: pa.Array, problem: BadCells) -> BadCells:
    """The same bad cells, with the original text as their values."""
    return BadCells([BadCell(cell.row, array[cell.row].as_py(), cell.why) for cell in problem.cells])


def _parts(array: pa.Array, pattern: str, why: str) -> pa.StructArray:
    parts = pc.extract_regex(array, pattern)
    require(array, pc.or_(parts.is_valid(), array.is_null()), why)
    return parts


def _part(parts: pa.StructArray, name: str, missing: str) -> pa.Array:
    """A named group of each row; `missing` if it is empty, and for null rows."""
    found = parts.field(name)
    filled = pc.and_(parts.is_valid(), pc.not_equal(pc.fill_null(found, ""), ""))
    return pc.if_else(filled, found, missing)


def _seconds(array: pa.Array, days: pa.Array, clocks: pa.Array) -> np.ndarray:
    """Seconds since the epoch."""
    texts = pc.binary_join_element_wise(days, clocks, "T")
    try:
        seconds = attempt(texts, lambda part: part.cast(pa.timestamp("s")), "there is no such time")
    except BadCells as problem:
        raise _in_texts(array, problem) from problem
    return seconds.view(pa.int64()).to_numpy()


def _fraction(array: pa.Array, parts: pa.StructArray, precision: int, digits: int) -> np.ndarray:
    """The fraction in units of 10^-digits seconds; digits after `precision` must be zero."""
    nanos = pc.utf8_rpad(_part(parts, "fraction", "0"), 9, "0").cast(pa.int64()).to_numpy()
    require(array, nanos % 10 ** (9 - precision) == 0, f"it has more than {precision} digits after the second")
    return nanos // 10 ** (9 - digits)


def _zone_seconds(parts: pa.StructArray) -> np.ndarray:
    """The offset from UTC in seconds; 0 for 'Z' and none."""
    zones = _part(parts, "zone", "Z")
    zones = pc.if_else(pc.equal(pc.utf8_upper(zones), "Z"), "+00:00", zones)
    split = pc.extract_regex(zones, r"^(?P<sign>[+-])(?P<hours>[0-9]{2}):?(?P<minutes>[0-9]{2})?$")
    hours, minutes = (_part(split, name, "0").cast(pa.int64()).to_numpy() for name in ("hours", "minutes"))
    negative = pc.equal(split.field("sign"), "-").to_numpy(zero_copy_only=False)
    return np.where(negative, -1, 1) * (hours * 3600 + minutes * 60)


def _all(marks: pa.Array) -> bool:
    return bool(pc.all(marks, min_count=0).as_py())


def _nulls(array: pa.Array) -> np.ndarray:
    return array.is_null().to_numpy(zero_copy_only=False)


def _has_far_years(array: pa.Array) -> bool:
    """Whether a year is outside 0000..9999, which Arrow's parsers cannot read."""
    return bool(pc.any(pc.match_substring_regex(array, FAR_YEAR)).as_py())


def _one_by_one(array: pa.Array, t: DataType) -> pa.Array:
    cells = []
    for row, text in enumerate(array.to_pylist()):
        try:
            if text is not None:
                check_calendar_text(text, t)
            from_canonical(text, t)
        except ValueError as problem:
            cells.append(BadCell(row, text, str(problem)))
    if cells:
        raise BadCells(cells)
    return attempt(array, lambda part: _as_column(part, t), "it is outside the range of years of the column")


def _as_column(texts: pa.Array, t: DataType) -> pa.Array:
    try:
        return values_to_arrow([from_canonical(text, t) for text in texts.to_pylist()], t)
    except NotSupported as problem:
        raise pa.ArrowInvalid(problem.why) from problem


def check_calendar_text(text: str, t: DataType) -> None:
    """Check what `from_canonical` accepts: `ValueError` for digits after the precision, or a zone that the type does not have."""
    fraction = re.search(r"\.([0-9]+)", text)
    most = min(t.precision, 3) if isinstance(t, TimeType) else t.precision if isinstance(t, TimestampType) else 0
    if fraction and len(fraction[1].rstrip("0")) > most:
        raise ValueError(f"it has more than {most} digits after the second")
    if t.root != "DATE" and text.endswith("Z") != (t.root == "TIMESTAMP_LTZ"):
        raise ValueError(NEEDS_ZONE if t.root == "TIMESTAMP_LTZ" else TAKES_NO_ZONE)


def text_of_cells(raw: pa.Array) -> pa.Array:
    """CSV cells as text. They arrive as bytes and are checked only here, so that a bad one is reported with its row."""
    if pa.types.is_binary(raw.type):
        try:
            return attempt(raw, lambda part: part.cast(pa.string()), NOT_UTF_8)
        except BadCells as problem:
            raise BadCells(
                [BadCell(row, raw[row].as_py().decode(errors="backslashreplace"), why) for row, _, why in problem.cells]
            ) from problem
    if pa.types.is_dictionary(raw.type):
        return raw.dictionary_decode()
    return raw.cast(pa.string()) if pa.types.is_large_string(raw.type) or pa.types.is_string_view(raw.type) else raw
