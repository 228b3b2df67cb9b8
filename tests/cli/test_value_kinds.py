"""Values as machines and as people get them."""

from __future__ import annotations

import time

import pytest

from paimon_cli.cli.results import CHANGE, COUNT, KEY, LONG, SIZE, SPAN, TIME, WALL_CLOCK, counted, printable
from paimon_cli.options.option_text import parse_size


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 kB"),
        (41 << 10, "41.0 kB"),
        (410 << 10, "410 kB"),
        ((1 << 20) - 1, "1.0 MB"),
        (14_900_000, "14.2 MB"),
        (parse_size("100 gb"), "100 GB"),
        (parse_size("128 mb"), "128 MB"),
    ],
)
def test_sizes(size: int, text: str) -> None:
    """In the units of options."""
    assert (SIZE.text(size), SIZE.json(size)) == (text, size)


def test_times_are_utc_to_the_millisecond() -> None:
    assert TIME.json(1795220411402) == "2026-11-21T00:20:11.402Z"
    assert TIME.text(1795220411402) == "2026-11-21 00:20:11"
    assert TIME.json(-1) == "1969-12-31T23:59:59.999Z"
    assert TIME.json(2**62) == str(2**62)


def test_wall_clocks_are_of_this_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        monkeypatch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        assert WALL_CLOCK.json(1795220411402) == "2026-11-20T15:20:11.402Z"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_null_is_null_or_a_dash() -> None:
    assert (COUNT.json(None), COUNT.text(None)) == (None, "-")


def test_figures() -> None:
    assert (COUNT.text(1234567), CHANGE.text(1300), CHANGE.text(-5), CHANGE.text(0)) == ("1,234,567", "+1,300", "-5", "0")
    assert LONG.json(2**63 - 1) == "9223372036854775807"
    assert KEY.text(["a", 7, None]) == "a, 7, -"
    assert (counted(1, "file"), counted(1200, "file")) == ("1 file", "1,200 files")


def test_bars() -> None:
    assert SPAN.text((0.0, 1.0)) == "=" * 25
    assert SPAN.text((1.0, 1.0)) == " " * 24 + "="
    assert SPAN.text((0.0, 0.0)) == "=" + " " * 24


def test_values_do_not_steer_the_terminal() -> None:
    assert printable("a\x1b[2Jb\n\t\x9b") == "a\\x1b[2Jb\\n\\t\\x9b"
    assert printable("größe 数据 🙂") == "größe 数据 🙂"
