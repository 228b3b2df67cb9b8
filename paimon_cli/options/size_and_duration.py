"""Whole numbers, sizes and durations: `128 mb`, `1 h` as options hold them (Java MemorySize, TimeUtils), `14.2 MB` for people."""

from __future__ import annotations

import re

from paimon_cli.errors import UsageError

_AMOUNT = re.compile(r"\s*([0-9]+)\s*([^\s0-9]*)\s*")
_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_MAX_LONG = 2**63 - 1

_BYTES = {
    1: ("", "b", "bytes"),
    2**10: ("k", "kb", "kibibytes"),
    2**20: ("m", "mb", "mebibytes"),
    2**30: ("g", "gb", "gibibytes"),
    2**40: ("t", "tb", "tebibytes"),
}
_SHOWN_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
_NANOS = {
    1: ("ns", "nano", "nanos", "nanosecond", "nanoseconds"),
    10**3: ("µs", "us", "micro", "micros", "microsecond", "microseconds"),
    10**6: ("", "ms", "milli", "millis", "millisecond", "milliseconds"),
    10**9: ("s", "sec", "secs", "second", "seconds"),
    60 * 10**9: ("m", "min", "minute", "minutes"),
    3600 * 10**9: ("h", "hour", "hours"),
    86400 * 10**9: ("d", "day", "days"),
}
_SIZE_UNITS = {unit: factor for factor, units in _BYTES.items() for unit in units}
_DURATION_UNITS = {unit: factor for factor, units in _NANOS.items() for unit in units}


def plain_number(text: str) -> int | None:
    """A whole number of 64 bits in ASCII digits, blanks around it ignored; None for any other text.

    `str.isdigit` and `isdecimal` are no guards for `int`: it fails for `²`, and for thousands of digits.
    """
    found = _WHOLE_NUMBER.fullmatch(text.strip())
    number = int(found[0]) if found else None
    return number if number is not None and -_MAX_LONG - 1 <= number <= _MAX_LONG else None


def parse_size(text: str) -> int:
    """Bytes of a size; units are powers of 1024, none means bytes. Raises `UsageError`."""
    number = _scaled(text, _SIZE_UNITS)
    if number is None or number > _MAX_LONG:
        hint = "write sizes like 128 mb, 1 gb or 500 b"
        raise UsageError(f"cannot read the size '{text}'", "it needs a whole number and a unit", hint)
    return number


def parse_duration(text: str) -> int:
    """Milliseconds of a duration, cut to whole ones; no unit means milliseconds. Raises `UsageError`."""
    nanos = _scaled(text, _DURATION_UNITS)
    if nanos is None or nanos // 10**6 > _MAX_LONG:
        hint = "write durations like 1 h, 10 s or 500 ms"
        raise UsageError(f"cannot read the duration '{text}'", "it needs a whole number and a unit", hint)
    return nanos // 10**6


def _scaled(text: str, units: dict[str, int]) -> int | None:
    amount = _AMOUNT.fullmatch(text)
    number, factor = (plain_number(amount[1]), units.get(amount[2].lower())) if amount else (None, None)
    return None if number is None or factor is None else number * factor


def human_size(size_bytes: int) -> str:
    """14.2 MB, 410 kB: units are powers of 1024, as in `parse_size`, so that an option of 100 gb is shown as 100 GB."""
    size, unit = float(size_bytes), 0
    while size >= 1023.5 and unit < len(_SHOWN_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    digits = 1 if unit and size < 99.95 else 0
    return f"{size:.{digits}f} {_SHOWN_UNITS[unit]}"
