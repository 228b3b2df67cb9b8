"""Windows of time in which tables are maintained, such as `22:00-06:00`, `mon-fri 20:00-24:00`, `sat,sun` and `nights`."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone, tzinfo

from paimon_cli.errors import UsageError

NIGHTS = "nights"
MAX_WINDOWS = 50
_NIGHTS = "22:00-06:00"
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAY_MINUTES = 1440
_WEEK = 7
_FORM = re.compile(
    r"(?:(?P<days>[a-z]{3}(?:[-,][a-z]{3}){0,20})(?:\s+|$))?(?:(?P<begin>[0-9:]{4,5})\s*-\s*(?P<end>[0-9:]{4,5}))?"
)
_CLOCK = re.compile(r"([01]?[0-9]|2[0-4]):([0-5][0-9])")
_LONGEST_ZONE = 64
_OF_MACHINE = "localtime"


@dataclass(frozen=True)
class TimeWindow:
    """Begins on some days of the week (Monday is 0) at a minute of the day, and lasts some minutes, perhaps into the next day."""

    days: frozenset[int]
    begin: int
    minutes: int

    @staticmethod
    def parse(text: str) -> TimeWindow:
        """Raises `UsageError`."""
        plain = text.strip().lower()
        found = _FORM.fullmatch(_NIGHTS if plain == NIGHTS else plain)
        if found is None or not plain:
            raise _no_window(text)
        days = frozenset(range(_WEEK)) if found["days"] is None else _days(found["days"], text)
        if found["begin"] is None:
            return TimeWindow(days, 0, _DAY_MINUTES)
        begin, end = _minute(found["begin"], text), _minute(found["end"], text)
        if begin in (end, _DAY_MINUTES):
            raise UsageError(f"the window '{text}' is empty", "it ends when it begins", "a whole day is 00:00-24:00")
        return TimeWindow(days, begin, (end - begin) % _DAY_MINUTES or _DAY_MINUTES)

    def on(self, day: date, zone: tzinfo) -> tuple[int, int] | None:
        """When it begins and ends, in epoch millis, if it begins on this day. Where clocks are changed, the wall clock counts: a
        window that lies in an hour that is left out does not open.
        """
        if day.weekday() not in self.days:
            return None
        begin = datetime.combine(day, time()) + timedelta(minutes=self.begin)
        begins, ends = _millis(begin, zone), _millis(begin + timedelta(minutes=self.minutes), zone)
        return (begins, ends) if begins < ends else None


@dataclass(frozen=True)
class TimeWindows:
    """Windows, of which one must be open. `zone`: of the wall clock that they are about."""

    windows: tuple[TimeWindow, ...]
    zone: tzinfo = timezone.utc

    @staticmethod
    def parse(texts: Sequence[str]) -> tuple[TimeWindow, ...]:
        """Raises `UsageError`."""
        if not texts:
            raise UsageError("there is no window", "nothing would ever be maintained", "leave out windows, or name some")
        if len(texts) > MAX_WINDOWS:
            raise UsageError(f"there are {len(texts):,} windows", f"at most {MAX_WINDOWS} are taken")
        return tuple(map(TimeWindow.parse, texts))

    def closes(self, now_millis: int) -> int | None:
        """When the time that is open now ends, in epoch millis, at most two weeks from now; None if no window is open."""
        spans = self._spans(now_millis)
        end = now_millis
        while (later := max((closes for begins, closes in spans if begins <= end < closes), default=end)) > end:
            end = later
        return end if end > now_millis else None

    def opens(self, now_millis: int) -> int:
        """When the next window begins, in epoch millis; now, if one is open."""
        if self.closes(now_millis) is not None:
            return now_millis
        return min(begins for begins, _ in self._spans(now_millis) if begins > now_millis)

    def _spans(self, now_millis: int) -> list[tuple[int, int]]:
        # the only day of a week may be left out once, where clocks are changed
        today = datetime.fromtimestamp(now_millis / 1000, self.zone).date()
        days = [today + timedelta(days=number) for number in range(-1, 2 * _WEEK + 1)]
        return [span for window in self.windows for day in days if (span := window.on(day, self.zone)) is not None]


def time_zone(name: str) -> tzinfo:
    """A zone by its name in the IANA database, or UTC; not what each machine calls local. Raises `UsageError`."""
    from zoneinfo import ZoneInfo

    if name.upper() == "UTC":
        return timezone.utc
    try:
        if len(name) > _LONGEST_ZONE or name.lower() == _OF_MACHINE:
            raise ValueError
        return ZoneInfo(name)
    except (ValueError, KeyError, OSError):
        why = "it is another one on each machine" if name.lower() == _OF_MACHINE else "this machine knows none of this name"
        raise UsageError(f"'{name[:_LONGEST_ZONE]}' is no time zone", why, "such as UTC or Europe/Berlin") from None


def _millis(wall_clock: datetime, zone: tzinfo) -> int:
    """When the wall clock shows this, or goes past it because an hour is left out.

    >>> from zoneinfo import ZoneInfo
    >>> millis = _millis(datetime(2027, 3, 28, 2, 30), ZoneInfo("Europe/Berlin"))  # after 02:00 comes 03:00, an hour behind UTC
    >>> datetime.fromtimestamp(millis / 1000, timezone.utc).strftime("%H:%M")
    '01:00'
    """
    local = wall_clock.replace(tzinfo=zone)
    late, early = int(local.timestamp()), int(local.replace(fold=1).timestamp())
    if early < late:  # neither shows it: between them the clock is changed
        before = datetime.fromtimestamp(early, zone).utcoffset()
        changed = bisect_right(range(early, late), False, key=lambda at: datetime.fromtimestamp(at, zone).utcoffset() != before)
        return (early + changed) * 1000
    return late * 1000


def _minute(text: str, window: str) -> int:
    found = _CLOCK.fullmatch(text)
    minute = None if found is None else int(found[1]) * 60 + int(found[2])
    if minute is None or minute > _DAY_MINUTES:
        raise _no_window(window)
    return minute


def _days(text: str, window: str) -> frozenset[int]:
    """Days and ranges of days, which may go over the end of the week."""
    chosen: set[int] = set()
    for part in text.split(","):
        ends = part.split("-")
        if len(ends) > 2 or any(day not in _DAYS for day in ends):
            raise _no_window(window)
        first, last = _DAYS.index(ends[0]), _DAYS.index(ends[-1])
        chosen |= {(first + number) % _WEEK for number in range((last - first) % _WEEK + 1)}
    return frozenset(chosen)


def _no_window(text: str) -> UsageError:
    why = "a window has days, a time, or both"
    return UsageError(f"'{text}' is no window of time", why, "such as 22:00-06:00, 'mon-fri 20:00-24:00', 'sat,sun' or nights")
