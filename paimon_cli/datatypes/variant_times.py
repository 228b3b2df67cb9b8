"""Texts and numbers as dates and times, as Spark casts them (Spark SparkDateTimeUtils).

Spark also takes a time without a date, as one of today; here it is no time, so that the same rows match tomorrow.
"""

from __future__ import annotations

import re
from datetime import datetime
from decimal import Decimal
from zoneinfo import ZoneInfo

from paimon_cli.datatypes.arrow_types import arrow_type
from paimon_cli.datatypes.data_type import TimestampType
from paimon_cli.datatypes.internal_values import civil_date, days_of_month, epoch_day

_DAY = r"(?P<year>[+-]?[0-9]{4,7})(?:-(?P<month>[0-9]{1,2})(?:-(?P<day>[0-9]{1,2})"
_CLOCK = r"(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{1,2})(?::(?P<second>[0-9]{1,2})(?:\.(?P<fraction>[0-9]*))?)?"
_DATE = re.compile(_DAY + r"(?:[ T].*)?)?)?", re.DOTALL | re.ASCII)
_TIMESTAMP = re.compile(_DAY + rf"(?:[ T](?:{_CLOCK}(?P<zone>[^0-9:.].*)?|(?P<alone>[0-9]{{1,2}})))?)?)?", re.ASCII)
_TIME = re.compile(_CLOCK, re.ASCII)
_OFFSET = re.compile(
    r"(?:UTC|GMT|UT)?(?P<sign>[+-])(?P<hour>[0-9]{1,2})(?::?(?P<minute>[0-9]{2}|(?<=:)[0-9])(?::?(?P<second>[0-9]{2}))?)?",
    re.ASCII,
)
_REGION = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+)*", re.ASCII)
_MOST_HOURS = 18
"""The largest offset of a zone in Java."""
_NANOS = 1_000_000_000
_NANOS_PER_TICK = {"s": _NANOS, "ms": 1_000_000, "us": 1_000, "ns": 1}


def date_of(text: str) -> int | None:
    """The day since the epoch of `yyyy[-M[-d]]`; what follows a blank or a T is not looked at."""
    found = _DATE.fullmatch(text)
    day = None if found is None else _day(found)
    return day if day is not None and -(2**31) <= day < 2**31 else None


def _day(found: re.Match[str]) -> int | None:
    year, month, day = int(found["year"]), int(found["month"] or 1), int(found["day"] or 1)
    if not (1 <= month <= 12 and 1 <= day <= days_of_month(year, month)):
        return None
    return epoch_day(year, month, day)


def time_of(text: str) -> int | None:
    """The milliseconds of the day of `H:m[:s[.f]]`."""
    found = _TIME.fullmatch(text)
    nanos = None if found is None else _nanos_of_day(found)
    return None if nanos is None else nanos // 1_000_000


def _nanos_of_day(found: re.Match[str]) -> int | None:
    alone = int(found.groupdict().get("alone") or 0)
    hour, minute, second = (int(found[name] or 0) for name in ("hour", "minute", "second"))
    hour = hour or alone
    if hour > 23 or minute > 59 or second > 59:
        return None
    return ((hour * 60 + minute) * 60 + second) * _NANOS + int((found["fraction"] or "")[:9].ljust(9, "0"))


def timestamp_of(text: str, t: TimestampType) -> int | None:
    """The ticks of `arrow_type(t)` of a date, or of a date and time, which may have a zone. A TIMESTAMP leaves the zone out."""
    found = _TIMESTAMP.fullmatch(text)
    day, nanos = (None, None) if found is None else (_day(found), _nanos_of_day(found))
    if found is None or day is None or nanos is None:
        return None
    local = day * 86_400 * _NANOS + nanos
    offset = 0 if found["zone"] is None else _offset(found["zone"].strip(), local // _NANOS)
    if offset is None:
        return None
    return _fitted(local - (offset * _NANOS if t.root == "TIMESTAMP_LTZ" else 0), t)


def ticks_of_seconds(seconds: Decimal, t: TimestampType) -> int | None:
    """The ticks of `arrow_type(t)` of seconds since the epoch, of which Spark keeps microseconds."""
    if seconds.adjusted() > 15:
        return None
    return _fitted(int(seconds.scaleb(6)) * 1_000, t)


def _fitted(nanos: int, t: TimestampType) -> int | None:
    """The time with the digits of the precision, in ticks; None if the type cannot hold it."""
    step = 10 ** (9 - t.precision)
    ticks = nanos // step * step // _NANOS_PER_TICK[arrow_type(t).unit]
    in_micros = nanos // 1_000
    return ticks if -(2**63) <= ticks < 2**63 and -(2**63) <= in_micros < 2**63 else None


def _offset(zone: str, local: int) -> int | None:
    """Seconds that a zone is ahead of UTC at a local time; None if there is no such zone."""
    if zone in ("Z", "UTC", "GMT", "UT"):
        return 0
    found = _OFFSET.fullmatch(zone)
    if found is not None:
        hour, minute, second = (int(found[name] or 0) for name in ("hour", "minute", "second"))
        size = (hour * 60 + minute) * 60 + second
        if minute > 59 or second > 59 or size > _MOST_HOURS * 3600:
            return None
        return -size if found["sign"] == "-" else size
    if not _REGION.fullmatch(zone):
        return None
    try:
        region = ZoneInfo(zone)
    except (OSError, ValueError, KeyError):  # ZoneInfoNotFoundError is a KeyError
        return None
    year, month, day = civil_date(local // 86_400)
    if not 1 <= year <= 9999:
        return None
    clock = local % 86_400
    there = datetime(year, month, day, clock // 3600, clock // 60 % 60, clock % 60, tzinfo=region)
    gone = there.utcoffset()
    return None if gone is None else int(gone.total_seconds())
