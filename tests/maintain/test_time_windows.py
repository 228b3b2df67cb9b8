"""Windows of time: days, times over midnight, and the wall clock of a zone."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from paimon_cli.errors import UsageError
from paimon_cli.maintain.time_windows import TimeWindow, TimeWindows, time_zone

HOUR = 3_600_000


def millis(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=timezone.utc).timestamp() * 1000)


def windows(*texts: str, zone: str = "UTC") -> TimeWindows:
    return TimeWindows(TimeWindows.parse(texts), time_zone(zone))


@pytest.mark.parametrize(
    ("text", "now", "closes"),
    [
        ("nights", "2026-11-29T21:59:59", None),
        ("nights", "2026-11-29T22:00:00", "2026-11-30T06:00:00"),
        ("nights", "2026-11-30T05:59:59", "2026-11-30T06:00:00"),
        ("nights", "2026-11-30T06:00:00", None),
        ("sat,sun", "2026-11-29T12:00:00", "2026-11-30T00:00:00"),
        ("sat,sun", "2026-11-28T12:00:00", "2026-11-30T00:00:00"),
        ("sat,sun", "2026-11-30T12:00:00", None),
        ("mon-fri 20:00-02:00", "2026-11-28T01:00:00", "2026-11-28T02:00:00"),
        ("mon-fri 20:00-02:00", "2026-11-29T01:00:00", None),
        ("fri-mon 00:00-24:00", "2026-11-29T12:00:00", "2026-12-01T00:00:00"),
        ("9:30 - 24:00", "2026-11-29T23:59:00", "2026-11-30T00:00:00"),
    ],
)
def test_when_a_window_closes(text: str, now: str, closes: str | None) -> None:
    assert windows(text).closes(millis(now)) == (None if closes is None else millis(closes))


def test_windows_that_touch_are_one() -> None:
    assert windows("00:00-12:00", "12:00-13:00").closes(millis("2026-11-29T03:00:00")) == millis("2026-11-29T13:00:00")
    always = windows("00:00-24:00").closes(millis("2026-11-29T03:00:00"))
    assert always is not None and always > millis("2026-12-05T00:00:00")


def test_when_the_next_window_opens() -> None:
    assert windows("nights").opens(millis("2026-11-29T12:00:00")) == millis("2026-11-29T22:00:00")
    assert windows("nights").opens(millis("2026-11-29T23:00:00")) == millis("2026-11-29T23:00:00")
    assert windows("sun").opens(millis("2026-11-30T00:00:00")) == millis("2026-12-06T00:00:00")


def test_the_wall_clock_of_the_zone_counts_when_clocks_change() -> None:
    berlin = windows("nights", zone="Europe/Berlin")
    assert berlin.opens(millis("2026-11-29T12:00:00")) == millis("2026-11-29T21:00:00")
    night = millis("2026-10-24T20:00:00")  # 22:00 in summer, and clocks go back at night
    closes = berlin.closes(night)
    assert closes is not None and closes - night == 9 * HOUR


@pytest.mark.parametrize(
    ("zone", "now"), [("Pacific/Honolulu", "2026-11-30T04:00:00"), ("Pacific/Auckland", "2026-11-29T05:00:00")]
)
def test_the_day_is_that_of_the_zone(zone: str, now: str) -> None:
    """There it is 18:00, of the day before that in UTC or of the same one; the window has begun the evening before."""
    closes = windows("20:00-19:00", zone=zone).closes(millis(now))
    assert closes == millis(now) + HOUR
    assert windows("20:00-17:00", zone=zone).opens(millis(now)) == millis(now) + 2 * HOUR


@pytest.mark.parametrize(
    "text",
    ["", " ", "night", "25:00-26:00", "24:01-02:00", "10:00-10:00", "24:00-02:00", "mon-", "mon-tue-wed", "xyz 10:00-11:00"],
)
def test_what_is_no_window(text: str) -> None:
    with pytest.raises(UsageError):
        TimeWindow.parse(text)


@pytest.mark.parametrize("name", ["Nowhere/Town", "../../etc/passwd", "/etc/localtime", "America", "", "x" * 1000, "a\0b"])
def test_what_is_no_zone(name: str) -> None:
    with pytest.raises(UsageError):
        time_zone(name)


def test_a_window_in_an_hour_that_is_left_out_does_not_open() -> None:
    skipped = windows("sun 02:00-03:00", zone="Europe/Berlin")  # clocks go from 02:00 to 03:00 on 2026-03-29
    assert skipped.closes(millis("2026-03-29 01:00")) is None and skipped.closes(millis("2026-03-29 01:30")) is None
    assert skipped.opens(millis("2026-03-22 12:00")) == millis("2026-04-05 00:00"), "and not on the day on which it cannot"
    reversed_ = windows("02:30-03:00", zone="Europe/Berlin")
    assert reversed_.opens(millis("2026-03-28 12:00")) == millis("2026-03-30 00:30")


def test_a_window_that_begins_in_an_hour_that_is_left_out_begins_with_the_next_one() -> None:
    late = windows("02:30-04:00", zone="Europe/Berlin")
    assert late.opens(millis("2027-03-27 12:00")) == millis("2027-03-28 01:00"), "03:00, the first time that lies in it"
    assert late.closes(millis("2027-03-28 01:10")) == millis("2027-03-28 02:00")
    assert windows("01:00-02:30", zone="Europe/Berlin").closes(millis("2027-03-28 00:30")) == millis("2027-03-28 01:00")
    assert windows("02:15-02:45", zone="Europe/Berlin").closes(millis("2027-03-28 01:20")) is None
