"""Dates, times, timestamps and decimals as Paimon stores them, and their ISO texts, for any year (Java Timestamp, Decimal)."""

from __future__ import annotations

import re
from decimal import Decimal, localcontext
from functools import lru_cache
from typing import NamedTuple

MILLIS_OF_DAY = 86_400_000
_DATE = re.compile(r"([+-]?[0-9]{4,})-([0-9]{2})-([0-9]{2})", re.ASCII)
_TIME = re.compile(r"([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?", re.ASCII)
ZONED_TIME = re.compile(r"^(.*\d{2}:\d{2}\S*?) ?(Z|[+-]\d{2}:?\d{2})$")
"""A time, and its offset from UTC."""
_DAYS_OF_MONTH = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


class Timestamp(NamedTuple):
    """A timestamp: epoch millis in UTC (rounded down, also before 1970) and the nanoseconds within the milli, 0 to 999,999."""

    millis: int
    nano_of_milli: int = 0


def epoch_day(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01 of a date in the proleptic Gregorian calendar."""
    shifted = year if month > 2 else year - 1
    era, year_of_era = divmod(shifted, 400)
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719_468


def civil_date(day: int) -> tuple[int, int, int]:
    """Year, month and day of an epoch day."""
    era, day_of_era = divmod(day + 719_468, 146_097)
    year_of_era = (day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted_month = (5 * day_of_year + 2) // 153
    month = shifted_month + 3 if shifted_month < 10 else shifted_month - 9
    return year_of_era + era * 400 + (month <= 2), month, day_of_year - (153 * shifted_month + 2) // 5 + 1


def days_of_month(year: int, month: int) -> int:
    """Number of days of a month (1 to 12) in the proleptic Gregorian calendar."""
    return _DAYS_OF_MONTH[month - 1] + (month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0))


@lru_cache(maxsize=4096)
def date_text(day: int) -> str:
    """`YYYY-MM-DD`; years beyond 9999 have a plus sign, those before 0 a minus, as Java prints them."""
    year, month, day_of_month = civil_date(day)
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04d}-{month:02d}-{day_of_month:02d}"


def parse_date(text: str) -> int:
    """Epoch day of `YYYY-MM-DD`. Raises `ValueError` for anything else."""
    match = _DATE.fullmatch(text)
    if match is None:
        raise ValueError(f"'{text}' is not a date like 2024-01-31")
    year, month, day = int(match[1]), int(match[2]), int(match[3])
    if not 1 <= month <= 12 or not 1 <= day <= days_of_month(year, month):
        raise ValueError(f"'{text}' is not a day of the calendar")
    return epoch_day(year, month, day)


def time_text(millis: int) -> str:
    """`HH:MM:SS[.fff]` of millis of the day, without trailing zeros."""
    seconds, fraction = divmod(millis, 1000)
    return f"{clock_text(seconds)}.{fraction:03d}".rstrip("0") if fraction else clock_text(seconds)


def sql_time_text(millis: int, precision: int) -> str:
    """Millis of the day as Paimon casts TIME(precision) to text.

    Trailing zeros are dropped, but unless `precision` is 0 there is at least one fractional digit.
    """
    if precision == 0:
        return clock_text(millis // 1000)
    fraction = f"{millis % 1000:03d}".rstrip("0") or "0"
    return f"{clock_text(millis // 1000)}.{fraction[:precision]}"


def parse_time(text: str) -> int:
    """Millis of the day of `HH:MM[:SS[.f]]`, truncating further digits. Raises `ValueError` for anything else."""
    return _nanos_of_day(text) // 1_000_000


def _nanos_of_day(text: str) -> int:
    match = _TIME.fullmatch(text)
    if match is None or int(match[1]) > 23 or int(match[2]) > 59 or int(match[3] or 0) > 59:
        raise ValueError(f"'{text}' is not a time like 23:59:59.999")
    seconds = (int(match[1]) * 60 + int(match[2])) * 60 + int(match[3] or 0)
    return seconds * 10**9 + int((match[4] or "0").ljust(9, "0"))


def timestamp_text(value: Timestamp) -> str:
    """`YYYY-MM-DDTHH:MM:SS[.fffffffff]` without trailing zeros."""
    date, clock, nanos = timestamp_parts(value)
    return f"{date}T{clock}" + (f".{nanos:09d}".rstrip("0") if nanos else "")


def timestamp_parts(value: Timestamp) -> tuple[str, str, int]:
    """The date as `YYYY-MM-DD`, the time as `HH:MM:SS`, and the nanoseconds within the second."""
    seconds, millis = divmod(value.millis, 1000)
    day, second_of_day = divmod(seconds, 86_400)
    return date_text(day), clock_text(second_of_day), millis * 1_000_000 + value.nano_of_milli


def parse_timestamp(text: str) -> Timestamp:
    """Inverse of `timestamp_text`; also accepts a space instead of `T`, and a final `Z`. Raises `ValueError` otherwise."""
    date, separator, time = text.removesuffix("Z").replace(" ", "T", 1).partition("T")
    day, nanos = parse_date(date), _nanos_of_day(time) if separator else 0
    return Timestamp(day * MILLIS_OF_DAY + nanos // 1_000_000, nanos % 1_000_000)


def epoch_nanos(text: str) -> int:
    """Parse `YYYY-MM-DD[THH:MM[:SS[.f]][Z|+HH:MM]]` to nanoseconds since the epoch; UTC is the default. Raises `ValueError`."""
    zone = ZONED_TIME.match(text)
    moment = parse_timestamp(zone[1] if zone else text)
    return moment.millis * 10**6 + moment.nano_of_milli - (_offset_minutes(zone[2]) * 60 * 10**9 if zone else 0)


def _offset_minutes(zone: str) -> int:
    if zone == "Z":
        return 0
    return (-1 if zone[0] == "-" else 1) * (int(zone[1:3]) * 60 + int(zone[-2:]))


def clock_text(second_of_day: int) -> str:
    """`HH:MM:SS`."""
    return f"{second_of_day // 3600:02d}:{second_of_day // 60 % 60:02d}:{second_of_day % 60:02d}"


def unscaled_value(value: Decimal, scale: int) -> int:
    """The unscaled integer of a decimal, `value * 10**scale`, which must be a whole number."""
    with localcontext() as context:
        context.prec = 80
        return int(value.scaleb(scale))


def decimal_of(unscaled: int, scale: int) -> Decimal:
    """The decimal `unscaled / 10**scale`, with all digits of its scale."""
    digits = tuple(map(int, str(abs(unscaled))))
    return Decimal((int(unscaled < 0), digits, -scale))
