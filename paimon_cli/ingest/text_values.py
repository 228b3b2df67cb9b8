"""Converts text to values of atomic types, column by column: CSV cells and JSON strings."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from operator import methodcaller

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.datatypes.arrow_types import arrow_type, values_to_arrow
from paimon_cli.datatypes.canonical_form import from_canonical
from paimon_cli.datatypes.data_type import (
    FLOATING_ROOTS,
    INTEGER_ROOTS,
    BinaryType,
    DataType,
    StringType,
    TimestampType,
    TimeType,
)
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.errors import NotSupported
from paimon_cli.ingest.faults import (
    NEEDS_ZONE,
    NOT_A_NUMBER,
    NOT_UTF_8,
    NOT_WHOLE,
    TAKES_NO_ZONE,
    BadCell,
    BadCells,
    attempt,
    require,
)
from paimon_cli.ingest.number_form import PLAIN_NUMBERS, NumberForm
from paimon_cli.ingest.text_form import MONTHS, PLAIN, TextForm, pattern_of
from paimon_cli.ingest.typed_columns import cast_atomic, instants, local_times

INTEGER = r"^[+-]?[0-9]+$"
NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,5})?$"
NOT_FINITE = r"(?i)^([+-]?inf(inity)?|nan)$"
HEX = r"^([0-9a-fA-F]{2})*$"
DAY = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
CLOCK = r"[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,9})?)?"
_DATE, _TIME = f"^{DAY}$", f"^{CLOCK}$"
TIMESTAMP = rf"^{DAY}([T ]{CLOCK}(Z|z|[+-][0-9]{{2}}(:?[0-9]{{2}})?)?)?$"
_ZONE = r":[0-9.:]*[Zz+-]"
LOCAL_TIME = f"^{DAY}([T ]{CLOCK})?$"
INSTANT = rf"^{DAY}[T ]{CLOCK}(Z|[+-][01][0-9](:?[0-5][0-9])?)$"
"""Forms that Arrow's parser reads as they are."""
FAR_YEAR = r"^([+-]|[0-9]{5,}-)"
NUMBER_ROOTS = INTEGER_ROOTS | FLOATING_ROOTS | {"DECIMAL"}
CALENDAR_ROOTS = frozenset({"DATE", "TIME", "TIMESTAMP", "TIMESTAMP_LTZ"})
MAX_NANO_DAYS = 106_750
"""Days before or after the epoch that fit 64-bit nanoseconds, less a day for the zone."""
NULL_TEXT = pa.scalar(None, pa.string())
NO_SUCH_TIME = "there is no such time"
_EMPTY = ("",)
"""A quoted empty cell: a value of text and binary columns, null in others."""


def parse_text(array: pa.Array, t: DataType, form: TextForm = PLAIN) -> pa.Array:
    """A string array as `arrow_type(t)`. Raises `BadCells` for texts that are not values of the type.

    `form.null_values` become null, except in text columns, where it matters whether they were quoted.
    """
    if isinstance(t, StringType):
        return cast_atomic(array, t)
    if form.null_values or not isinstance(t, BinaryType):
        array = with_nulls(array, [*form.null_values, *(_EMPTY if not isinstance(t, BinaryType) else ())])
    if t.root == "BOOLEAN":
        return _booleans(array)
    if t.root in NUMBER_ROOTS:
        return _numbers(array, t) if form.numbers == PLAIN_NUMBERS else _formatted_numbers(array, t, form.numbers)
    if isinstance(t, BinaryType):
        return _bytes_of_hex(array, t)
    if isinstance(t, TimeType):
        return _times(array, t)
    if form.timestamp_formats:
        return _formatted(array, t, form)
    return _calendar(array, t, form)


def _numbers(array: pa.Array, t: DataType) -> pa.Array:
    if t.root in INTEGER_ROOTS:
        return _integers(array, t)
    if t.root in FLOATING_ROOTS:
        return _floats(array, t)
    _require_form(array, NUMBER, NOT_A_NUMBER)
    target, why = arrow_type(t), f"it does not fit {type_to_sql(t.with_nullable(True))} without loss"
    return attempt(array, lambda part: part.cast(target), why)


def _formatted_numbers(array: pa.Array, t: DataType, form: NumberForm) -> pa.Array:
    special = pc.match_substring_regex(array, NOT_FINITE)
    groups = f" and '{form.thousands}' between groups of three digits" if form.thousands else ""
    signs = f"'{form.decimal}' for decimals{groups}"
    require(array, pc.or_(special, form.matches(array)), f"it is not a number with {signs}")
    try:
        return _numbers(pc.if_else(special, array, form.plain(array)), t)
    except BadCells as problem:
        raise _with_original_texts(problem, array) from problem


def _calendar(array: pa.Array, t: DataType, form: TextForm) -> pa.Array:
    return _timestamps(array, t, form.timezone) if isinstance(t, TimestampType) else _dates(array, t)


def _formatted(array: pa.Array, t: DataType, form: TextForm) -> pa.Array:
    iso = in_iso_form(array, form.timestamp_formats, dates_only=t.root == "DATE")
    try:
        return _calendar(iso, t, form)
    except BadCells as problem:
        raise _with_original_texts(problem, array) from problem


def with_nulls(array: pa.Array, texts: Sequence[str]) -> pa.Array:
    """The array with null in place of these texts."""
    shortest, longest = min(map(len, texts)), max(len(text.encode()) for text in texts)
    lengths = pc.min_max(pc.binary_length(array)).as_py()
    if lengths["min"] is None or lengths["min"] > longest or lengths["max"] < shortest:
        return array
    means_null = pc.is_in(array, pa.array(texts, pa.string()))
    return pc.if_else(means_null, NULL_TEXT, array) if pc.any(means_null).as_py() else array


def _require_form(array: pa.Array, pattern: str, why: str) -> None:
    require(array, pc.match_substring_regex(array, pattern), why)


def _booleans(array: pa.Array) -> pa.Array:
    lowered = pc.utf8_lower(array)
    require(array, pc.is_in(lowered, pa.array(["true", "false", None])), "a BOOLEAN is written true or false")
    return pc.equal(lowered, "true")


def _integers(array: pa.Array, t: DataType) -> pa.Array:
    _require_form(array, INTEGER, NOT_WHOLE)
    digits, target = pc.utf8_ltrim(array, "+"), arrow_type(t)
    return attempt(digits, lambda part: part.cast(target), f"it is outside the range of {t.root}")


def _floats(array: pa.Array, t: DataType) -> pa.Array:
    special = pc.match_substring_regex(array, NOT_FINITE)
    require(array, pc.or_(special, pc.match_substring_regex(array, NUMBER)), NOT_A_NUMBER)
    numbers = array.cast(arrow_type(t))
    require(array, pc.or_(special, pc.is_finite(numbers)), f"it is outside the range of {t.root}")
    return numbers


def _bytes_of_hex(array: pa.Array, t: BinaryType) -> pa.Array:
    _require_form(array, HEX, "binary values are written as pairs of hex digits")
    require(array, pc.less_equal(pc.binary_length(array), 2 * t.length), f"it is longer than {t.length} bytes")
    # Arrow has no hex decoder. This comprehension costs less than parsing the column's file.
    return pa.array([None if text is None else bytes.fromhex(text) for text in array.to_pylist()], pa.binary())


def _dates(array: pa.Array, t: DataType) -> pa.Array:
    fits = pc.match_substring_regex(array, _DATE)
    if not _all(fits) and (is_far := _far_years(array)) is not None:
        return _in_two_parts(array, is_far, t, lambda others: _dates(others, t))
    require(array, fits, "a DATE is written YYYY-MM-DD")
    return attempt(array, lambda part: part.cast(pa.date32()), "there is no such day")


def _times(array: pa.Array, t: TimeType) -> pa.Array:
    _require_form(array, _TIME, "a TIME is written HH:MM:SS[.fff]")
    texts = pc.binary_join_element_wise("1970-01-01", _with_digits(array, min(t.precision, 3), 3), "T")
    try:
        return _parse(texts, pa.timestamp("ms")).cast(pa.time32("ms"))
    except BadCells as problem:
        raise _with_original_texts(problem, array) from problem


def _timestamps(array: pa.Array, t: TimestampType, timezone: str | None) -> pa.Array:
    precision = t.precision
    digits = 3 if precision <= 3 else 6 if precision <= 6 else 9
    if digits < 9 and (parsed := _parsed_directly(array, t, 10 ** (digits - precision))) is not None:
        return parsed
    if (is_far := _far_years(array)) is not None:
        return _in_two_parts(array, is_far, t, lambda others: _timestamps(others, t, timezone))
    _require_form(array, TIMESTAMP, "a timestamp is written YYYY-MM-DDTHH:MM:SS[.fraction][offset]")
    has_zone = pc.match_substring_regex(array, _ZONE)
    if timezone is None and t.root == "TIMESTAMP_LTZ":
        require(array, has_zone, NEEDS_ZONE)
    elif timezone is None:
        require(array, pc.invert(has_zone), TAKES_NO_ZONE)
    texts = pc.ascii_upper(_with_digits(array, precision, digits))
    try:
        if digits == 9:
            days = _parse(pc.utf8_slice_codeunits(texts, 0, 10), pa.date32())
            require(
                array,
                pc.less(pc.abs(days.cast(pa.int32())), MAX_NANO_DAYS),
                "with more than 6 digits it must lie between 1678 and 2262",
            )
        return _parsed_timestamps(texts, has_zone, t, timezone)
    except BadCells as problem:
        raise _with_original_texts(problem, array) from problem


def _parsed_timestamps(texts: pa.Array, has_zone: pa.Array, t: TimestampType, timezone: str | None) -> pa.Array:
    """ISO texts as `arrow_type(t)`: UTC for columns with local time zone, else the wall clock, of `timezone` if it is given."""
    target = arrow_type(t)
    zoned = _parse(pc.if_else(has_zone, texts, NULL_TEXT), pa.timestamp(target.unit, "UTC"))
    local = _parse(pc.if_else(has_zone, NULL_TEXT, texts), pa.timestamp(target.unit))
    if t.root == "TIMESTAMP_LTZ":
        return zoned if timezone is None else pc.coalesce(zoned, instants(local, timezone).cast(zoned.type))
    return local if timezone is None else pc.coalesce(local, local_times(zoned, timezone))


def _parse(texts: pa.Array, target: pa.DataType) -> pa.Array:
    return attempt(texts, methodcaller("cast", target), NO_SUCH_TIME)


def _with_digits(array: pa.Array, precision: int, stored: int) -> pa.Array:
    """The texts with at most `stored` digits after the second. Raises `BadCells` if a digit after `precision` is not zero."""
    too_many = pc.match_substring_regex(array, rf"\.[0-9]{{{precision}}}[0-9]*[1-9]")
    require(array, pc.invert(too_many), f"it has more than {precision} digits after the second")
    return pc.replace_substring_regex(array, rf"(\.[0-9]{{{stored}}})[0-9]+", r"\1")


def _parsed_directly(array: pa.Array, t: TimestampType, step: int) -> pa.Array | None:
    """The texts as Arrow parses them; None if one has another form, or is not a multiple of `step` units of the column."""
    if not _all(pc.match_substring_regex(array, INSTANT if t.root == "TIMESTAMP_LTZ" else LOCAL_TIME)):
        return None
    try:
        parsed = array.cast(arrow_type(t))
    except pa.ArrowInvalid:
        return None
    units = pc.fill_null(parsed.view(pa.int64()), 0).to_numpy()
    return parsed if step == 1 or not (units % step).any() else None


def _with_original_texts(problem: BadCells, array: pa.Array) -> BadCells:
    """The bad cells with the texts of the input as values, instead of prepared ones."""
    return BadCells([BadCell(cell.row, array[cell.row].as_py(), cell.why) for cell in problem.cells])


def _all(passes: pa.Array) -> bool:
    return bool(pc.all(passes, min_count=0).as_py())


def _far_years(array: pa.Array) -> pa.Array | None:
    """Which texts have a year outside of 0000 to 9999, which Arrow's parsers cannot read; None if there are none."""
    found = pc.match_substring_regex(array, FAR_YEAR)
    return found if pc.any(found).as_py() else None


def _in_two_parts(array: pa.Array, is_far: pa.Array, t: DataType, parse: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """Texts of far years one by one, and all others as if these were not there. Raises `BadCells` for those of both."""

    def far(texts: pa.Array) -> pa.Array:
        return _one_by_one(texts, t)

    parts: list[pa.Array] = []
    cells: list[BadCell] = []
    for chosen, convert in ((is_far, far), (pc.invert(is_far), parse)):
        try:
            parts.append(convert(pc.if_else(chosen, array, NULL_TEXT)))
        except BadCells as problem:
            cells += problem.cells
    if cells:
        raise BadCells(sorted(cells, key=lambda cell: cell.row))
    return pc.coalesce(*parts)


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
    """Raise `ValueError` where `from_canonical` is too lenient: more digits than the precision, or a zone that does not fit."""
    fraction = re.search(r"\.([0-9]+)", text)
    max_digits = min(t.precision, 3) if isinstance(t, TimeType) else t.precision if isinstance(t, TimestampType) else 0
    if fraction and len(fraction[1].rstrip("0")) > max_digits:
        raise ValueError(f"it has more than {max_digits} digits after the second")
    if t.root != "DATE" and text.endswith("Z") != (t.root == "TIMESTAMP_LTZ"):
        raise ValueError(NEEDS_ZONE if t.root == "TIMESTAMP_LTZ" else TAKES_NO_ZONE)


def text_of_cells(raw: pa.Array) -> pa.Array:
    """Cells as text. Those of CSV are bytes until here, so that invalid UTF-8 is reported with its row. Raises `BadCells`."""
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


CLOCK_DIRECTIVES = frozenset("HIMSfpz")
ZERO = pa.scalar("00", pa.string())


def in_iso_form(array: pa.Array, formats: Sequence[str], *, dates_only: bool) -> pa.Array:
    """Texts that match a format, in the ISO form; other texts unchanged. The first format that matches counts.

    `dates_only`: formats with a time of day are ignored, because a DATE has none.
    """
    found = array
    for format in reversed(formats):  # of the texts as they came: one in ISO form could match another format
        pattern, names = pattern_of(format)
        if dates_only and names & CLOCK_DIRECTIVES:
            continue
        parts = pc.extract_regex(array, pattern)
        if parts.null_count < len(array):
            found = pc.if_else(parts.is_valid(), _iso(parts, names, dates_only), found)
    return found


def _iso(found: pa.StructArray, names: frozenset[str], dates_only: bool) -> pa.Array:
    parts = {name: pc.fill_null(found.field(name), "") for name in names}
    day = pc.binary_join_element_wise(_year(parts), _month(parts), _padded(parts["d"]), "-")
    if dates_only:
        return day
    clock = pc.binary_join_element_wise(_hour(parts), *(_padded(parts.get(name, ZERO)) for name in "MS"), ":")
    fraction = pc.binary_join_element_wise("", parts["f"], ".") if "f" in names else ""
    stamp = pc.binary_join_element_wise(day, clock, "T")
    zone = pc.replace_substring_regex(parts["z"], "UTC|GMT", "Z") if "z" in parts else ""
    return pc.binary_join_element_wise(stamp, fraction, zone, "")


def _padded(digits: pa.Array | pa.Scalar) -> pa.Array:
    return pc.utf8_lpad(digits, 2, "0")


def _year(parts: Mapping[str, pa.Array]) -> pa.Array:
    if "Y" in parts:
        return parts["Y"]
    # POSIX: 69 to 99 belong to the twentieth century.
    return pc.binary_join_element_wise(pc.if_else(pc.greater_equal(parts["y"], "69"), "19", "20"), parts["y"], "")


def _month(parts: Mapping[str, pa.Array]) -> pa.Array:
    if "m" in parts:
        return _padded(parts["m"])
    index = pc.index_in(pc.utf8_slice_codeunits(pc.utf8_lower(parts["b"]), 0, 3), pa.array(MONTHS))
    return _padded(pc.cast(pc.add(pc.fill_null(index, 0), 1), pa.string()))


def _hour(parts: Mapping[str, pa.Array]) -> pa.Array | pa.Scalar:
    if "I" not in parts:
        return _padded(parts.get("H", ZERO))
    hours = pc.utf8_lpad(parts["I"], 1, "0").cast(pa.int64()).to_numpy()
    afternoon = pc.starts_with(parts["p"], "p", ignore_case=True).to_numpy(zero_copy_only=False)
    # 12 am is midnight. Hours below 1 or above 12 become 99, which is refused later as no such time.
    hours_of_day = np.where((hours < 1) | (hours > 12), 99, hours % 12 + 12 * afternoon)
    return _padded(pa.array(hours_of_day).cast(pa.string()))
