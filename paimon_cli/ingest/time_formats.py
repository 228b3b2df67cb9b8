"""Times in formats of strptime, turned into ISO form a column at a time; `text_values` then reads and checks them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.errors import UsageError

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
FULL_MONTHS = "january|february|march|april|may|june|july|august|september|october|november|december"
WEEKDAYS = "monday|tuesday|wednesday|thursday|friday|saturday|sunday|mon|tue|wed|thu|fri|sat|sun"
PATTERNS = {
    "Y": r"(?P<Y>[0-9]{4})",
    "y": r"(?P<y>[0-9]{2})",
    "m": r"(?P<m>[0-9]{1,2})",
    "d": r"(?P<d>[0-9]{1,2})",
    "e": r" ?(?P<d>[0-9]{1,2})",
    "b": rf"(?i:(?P<b>{FULL_MONTHS}|{'|'.join(MONTHS)}))",
    "H": r"(?P<H>[0-9]{1,2})",
    "I": r"(?P<I>[0-9]{1,2})",
    "M": r"(?P<M>[0-9]{1,2})",
    "S": r"(?P<S>[0-9]{1,2})",
    "f": r"(?P<f>[0-9]{1,9})",
    "p": r"(?i:(?P<p>am|pm|a\.m\.|p\.m\.))",
    "z": r"(?P<z>Z|[+-][0-9]{2}(?::?[0-9]{2})?)",
    "Z": r"(?P<z>UTC|GMT|Z)",
    "a": rf"(?i:{WEEKDAYS})",
    "%": "%",
}
SAME_AS = {"B": "b", "h": "b", "A": "a"}
COMPOSED = {"T": "%H:%M:%S", "R": "%H:%M", "F": "%Y-%m-%d", "D": "%m/%d/%y"}
CLOCK = frozenset("HIMSfpz")
ZERO = pa.scalar("00", pa.string())


def in_iso_form(array: pa.Array, formats: Sequence[str], *, dates_only: bool) -> pa.Array:
    """Texts of one of the formats in the ISO form, the first that fits; all others as they are.

    `dates_only`: formats with a clock are left out, since a DATE has none.
    """
    for format in formats:
        pattern, names = pattern_of(format)
        if dates_only and names & CLOCK:
            continue
        parts = pc.extract_regex(array, pattern)
        if parts.null_count < len(array):
            array = pc.if_else(parts.is_valid(), _iso(parts, names, dates_only), array)
    return array


def pattern_of(format: str) -> tuple[str, frozenset[str]]:
    """The regular expression of a strptime format, and the directives that it names. Raises UsageError."""
    for letter, longer in COMPOSED.items():
        format = re.sub(rf"(?<!%)((?:%%)*)%{letter}", rf"\1{longer}", format)
    pattern, names, place = "^", [], 0
    for found in re.finditer(r"%(.?)", format):
        letter = SAME_AS.get(found[1], found[1])
        if letter not in PATTERNS:
            known = " ".join(f"%{letter}" for letter in [*PATTERNS, *SAME_AS, *COMPOSED])
            raise UsageError(f"--timestamp-format {format}: %{found[1]} is not known", f"known are {known}")
        pattern += re.escape(format[place : found.start()]) + PATTERNS[letter]
        names += re.findall(r"P<(.)>", PATTERNS[letter])
        place = found.end()
    unclear = next((f"%{name} appears twice" for name in names if names.count(name) > 1), "") or _what_lacks(set(names))
    if unclear:
        raise UsageError(f"--timestamp-format {format}", unclear)
    return pattern + re.escape(format[place:]) + "$", frozenset(names)


def _what_lacks(names: set[str]) -> str:
    if not (names & {"Y", "y"} and names & {"m", "b"} and "d" in names):
        return "it needs a year (%Y), a month (%m, %b) and a day (%d)"
    return "%I and %p belong together" if ("I" in names) != ("p" in names) else ""


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
    # As POSIX has it: 69 to 99 are of the twentieth century.
    return pc.binary_join_element_wise(pc.if_else(pc.greater_equal(parts["y"], "69"), "19", "20"), parts["y"], "")


def _month(parts: Mapping[str, pa.Array]) -> pa.Array:
    if "m" in parts:
        return _padded(parts["m"])
    place = pc.index_in(pc.utf8_slice_codeunits(pc.utf8_lower(parts["b"]), 0, 3), pa.array(MONTHS))
    return _padded(pc.cast(pc.add(pc.fill_null(place, 0), 1), pa.string()))


def _hour(parts: Mapping[str, pa.Array]) -> pa.Array | pa.Scalar:
    if "I" not in parts:
        return _padded(parts.get("H", ZERO))
    hours = pc.utf8_lpad(parts["I"], 1, "0").cast(pa.int64()).to_numpy()
    afternoon = pc.starts_with(parts["p"], "p", ignore_case=True).to_numpy(zero_copy_only=False)
    # 12 am is midnight. 0 and 13 are no hours of this clock: the 99 that they become is refused as no such time.
    of_day = np.where((hours < 1) | (hours > 12), 99, hours % 12 + 12 * afternoon)
    return _padded(pa.array(of_day).cast(pa.string()))
