"""Dates of any year and their texts."""

from __future__ import annotations

import datetime
from collections.abc import Callable

import pytest

from paimon_cli.datatypes.internal_values import (
    Timestamp,
    civil_date,
    date_text,
    epoch_day,
    epoch_nanos,
    parse_date,
    parse_time,
    parse_timestamp,
    timestamp_text,
)


def test_days_agree_with_the_calendar() -> None:
    for day in range(-719_162, 2_932_897, 991):
        date = datetime.date(1970, 1, 1) + datetime.timedelta(day)
        assert civil_date(day) == (date.year, date.month, date.day)
        assert epoch_day(date.year, date.month, date.day) == day
        assert date_text(day) == date.isoformat()


def test_days_beyond_the_calendar_of_python() -> None:
    for day in (-10_000_000, -719_529, -719_528, 2_932_897, 50_000_000):
        assert parse_date(date_text(day)) == day


def test_timestamps_before_1970_are_floored() -> None:
    assert parse_timestamp("1969-12-31T23:59:59.9999") == Timestamp(-1, 900_000)
    assert timestamp_text(Timestamp(-1, 900_000)) == "1969-12-31T23:59:59.9999"


@pytest.mark.parametrize("text", ["2024-01-01 10:00", "2024-01-01T10:00:00Z", "2024-01-01T10:00:00.000000000"])
def test_other_spellings_of_a_timestamp(text: str) -> None:
    assert parse_timestamp(text) == Timestamp(1_704_103_200_000)


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (parse_date, "2024-1-1"),
        (parse_date, "2024-13-01"),
        (parse_date, "1900-02-29"),
        (parse_time, "10"),
        (parse_time, "10:00:00."),
    ],
)
def test_bad_texts(read: Callable[[str], object], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        read(text)


@pytest.mark.parametrize(
    ("zone", "minutes"),
    [("", 0), ("Z", 0), ("+05:30", -330), ("-05:30", 330), ("-0330", 210), (" +0100", -60), ("-00:30", 30), ("-11:00", 660)],
)
def test_an_offset_from_utc_has_one_sign(zone: str, minutes: int) -> None:
    """Its minutes, too: -05:30 is five hours and a half."""
    assert epoch_nanos(f"2024-01-01T00:00:00{zone}") == (epoch_day(2024, 1, 1) * 1440 + minutes) * 60 * 10**9
