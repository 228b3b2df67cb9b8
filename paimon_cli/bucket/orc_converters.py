"""What pyorc makes of dates and timestamps: integers, because Python's own types have neither nanoseconds nor years after 9999.

The process that decodes ORC imports this without numpy.
"""

from __future__ import annotations

from zoneinfo import ZoneInfo

from pyorc.converters import ORCConverter

MILLI, SECOND = 10**6, 10**9
LOST = (-999 * MILLI, 0)
"""Between these nanoseconds since 1970 only whole milliseconds can be stored, because the seconds of ORC have no negative zero.
"""


class Nanoseconds(ORCConverter):
    """Timestamps as nanoseconds since 1970."""

    @staticmethod
    def from_orc(seconds: int, nanos: int, zone: ZoneInfo) -> int:
        return seconds * SECOND + nanos

    @staticmethod
    def to_orc(nanos: int, zone: ZoneInfo) -> tuple[int, int]:
        """Seconds and nanoseconds. In the last second before 1970 nanoseconds are negative, which readers accept there."""
        return (0, nanos) if LOST[0] <= nanos < LOST[1] else divmod(nanos, SECOND)


class Days(ORCConverter):
    """Dates as days since 1970."""

    @staticmethod
    def from_orc(days: int) -> int:
        return days

    @staticmethod
    def to_orc(days: int) -> int:
        return days
