"""Points in time as they are written: ages, days, times, snapshots and tags, and which of them a text means."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from paimon_cli import Table
from paimon_cli.errors import NotFound, UsageError
from paimon_cli.history.points_in_time import (
    first_after,
    named_snapshot,
    parse_moment,
    past_millis,
    snapshot_or_tagged,
    tag_holding,
    time_of,
    time_point,
    time_text,
    version_point,
)
from paimon_cli.history.table_context import TableContext
from paimon_cli.maintain.tags import create_tag
from paimon_cli.requests.fields import point_text
from tests.tables import make_table, write

NOW = 1_700_000_000_000
"""2023-11-14T22:13:20Z"""
DAY, HOUR = 86_400_000, 3_600_000
MIDNIGHT = 1_699_920_000_000


class HandClock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = NOW

    def now_millis(self) -> int:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += int(seconds * 1000)


@pytest.fixture
def context(tmp_path: Path) -> TableContext:
    """Snapshots 1, 2 and 3 of two days, one day and no time ago."""
    make_table(tmp_path / "t", {"k": "INT NOT NULL"}, ("k",))
    clock = HandClock()
    table = TableContext.open(str(tmp_path / "t"), clock=clock)
    for age in (2, 1, 0):
        clock.now = NOW - age * DAY
        write(table, [{"k": age}])
    return table


@pytest.mark.parametrize(
    ("text", "millis"),
    [
        ("1700000000000", NOW),
        ("2023-11-14T22:13:20Z", NOW),
        ("2023-11-14 22:13:20.5", NOW + 500),
        ("2023-11-15T03:43:20+05:30", NOW),
        ("2023-11-14", MIDNIGHT),
        ("1969-12-31T23:59:59.9999Z", -1),
    ],
)
def test_forms_of_a_time(text: str, millis: int) -> None:
    assert parse_moment(text) == time_of(text, NOW + DAY) == millis


@pytest.mark.parametrize(
    ("text", "millis"),
    [
        ("1d", NOW - DAY),
        ("-1d", NOW - DAY),
        (" 12 h ", NOW - 12 * HOUR),
        ("1d 12h", NOW - DAY - 12 * HOUR),
        ("1 day, 2 hours ago", NOW - DAY - 2 * HOUR),
        ("2 Hours AGO", NOW - 2 * HOUR),
        ("3 weeks ago", NOW - 21 * DAY),
        ("0 s", NOW),
        ("250 ms ago", NOW - 250),
        ("now", NOW),
        ("today", MIDNIGHT),
        ("Yesterday", MIDNIGHT - DAY),
        ("yesterday 14:30", MIDNIGHT - DAY + 14 * HOUR + HOUR // 2),
        ("today 01:00+02:00", MIDNIGHT - HOUR),
        ("2023-11-14 23:13:20 Europe/Berlin", NOW),
        ("2023-07-01 02:00 Europe/Berlin", 1_688_169_600_000),
    ],
)
def test_ages_and_days_are_counted_from_the_clock(text: str, millis: int) -> None:
    assert time_of(text, NOW) == millis


@pytest.mark.parametrize(
    "text",
    [
        *("", "soon", "d", "1", "-5", "1 fortnight", "-1d ago", "1d ago ago", "yesterday 25:00", "tomorrow", "2023-13-01"),
        *("1_0 d", "²d", "9" * 30 + " d", "1d " * 200, "2023-11-14 10:00 Atlantis/Sea", "2023-11-14 10:00 ../../etc/passwd"),
    ],
)
def test_texts_that_are_no_time(text: str) -> None:
    assert time_of(text, NOW) is None


@pytest.mark.parametrize("text", ["", "yesterday", "2023-13-01", "2023-11-14T25:00:00Z", "1.5", "²", "--5", "9" * 5000, "٣"])
def test_options_of_paimon_take_no_ages(text: str) -> None:
    with pytest.raises(UsageError, match="cannot read the time"):
        parse_moment(text)


def test_a_snapshot_before_a_tag_before_a_time_where_a_version_is_named(context: TableContext) -> None:
    assert version_point(context, "2").snapshot(context).id == 2
    assert version_point(context, "1d").snapshot(context).id == 2
    assert version_point(context, "yesterday").snapshot(context).id == 1
    create_tag(context, "1d", 3)
    assert version_point(context, "1d").snapshot(context).id == 3
    assert version_point(context, "-1d").snapshot(context).id == version_point(context, "1d ago").snapshot(context).id == 2
    assert named_snapshot(context, "latest").id == 3 and named_snapshot(context, "earliest").id == 1


def test_a_time_before_a_snapshot_before_a_tag_where_a_time_is_named(context: TableContext) -> None:
    create_tag(context, "1d", 3)
    create_tag(context, "release", 1)
    assert time_point(context, "1d").time(context) == NOW - DAY, "a tag does not change what an age discards"
    assert time_point(context, "release").time(context) == NOW - 2 * DAY
    assert time_point(context, "2").time(context) == NOW - DAY
    assert time_point(context, "release").snapshot(context).id == 1


def test_what_is_neither_is_refused_or_not_found(context: TableContext) -> None:
    create_tag(context, "release", 1)
    with pytest.raises(NotFound, match="no snapshot, tag or time 'relaese'") as missing:
        version_point(context, "relaese")
    assert "did you mean 'release'?" in missing.value.hint
    for text in ("-5", "2023-13-01", "../x", "", "1 fortnight"):
        with pytest.raises(UsageError, match="cannot read the time") as refused:
            version_point(context, text)
        assert "1d" in refused.value.hint
        with pytest.raises(UsageError, match="cannot read the time"):
            time_point(context, text)
    with pytest.raises(NotFound, match="no snapshot 9"):
        version_point(context, "9").snapshot(context)
    with pytest.raises(NotFound, match="as old as 3d"):
        version_point(context, "3d").snapshot(context)


def test_what_discards_takes_no_time_in_the_future(context: TableContext) -> None:
    assert past_millis(context, "now") == NOW and past_millis(context, "1d") == NOW - DAY
    for text in ("2023-11-15", str(NOW + 1), "today 23:00"):
        with pytest.raises(UsageError, match="is in the future") as refused:
            past_millis(context, text)
        assert time_text(NOW) in refused.value.why


def test_a_range_begins_after_a_time_and_at_a_version(context: TableContext) -> None:
    create_tag(context, "release", 2)
    assert [first_after(context, text) for text in ("2", "release", "yesterday", "1d", "100d", "now")] == [2, 2, 2, 3, 1, 4]


def test_times_that_python_cannot_show() -> None:
    assert time_text(10**17) == str(10**17) and time_text(-1) == "1969-12-31T23:59:59.999Z"


@pytest.fixture
def table(context: TableContext) -> Table:
    create_tag(context, "release", 2)
    opened = Table.open(context.url)
    opened.context = context
    return opened


@pytest.mark.parametrize(
    "point",
    [
        *(timedelta(days=1), timedelta(days=-1), "1d", "1 day ago", "release", 2, NOW - 1),
        *(date(2023, 11, 14), datetime(2023, 11, 14), datetime(2023, 11, 14, 1, tzinfo=timezone(timedelta(hours=1)))),
    ],
)
def test_every_method_takes_the_same_points(table: Table, point: Any) -> None:
    assert table.scan(as_of=point).count() == table.scan(snapshot=point).count() == 2
    assert table.snapshot(point).id == 2
    assert sum(file.rows for file in table.files(snapshot=point)) == 2
    assert table.tags.create("x", snapshot=point, replace=True).snapshot_id == 2
    assert table.branches.create("b", snapshot=point).latest_snapshot == 2
    assert table.plan_rollback(point).plan.target.id == 2
    assert table.changelog(1, point).rows.count() == 2
    assert table.bisect("k = 1", last=point).snapshot_id == 2
    assert table.verify(level="meta", snapshot=point).violations == []


@pytest.mark.parametrize("point", [timedelta(0), "now", "newest", 3, NOW, "2023-11-14T22:13:20Z"])
def test_expiry_is_planned_for_the_same_points(table: Table, point: Any) -> None:
    table.tags.create("newest", snapshot=3)
    planned = table.plan_expire(older_than=point, retain_min=1)
    assert planned.plan.names == ("1",) and planned.plan.before == NOW


def test_a_method_refuses_other_values(table: Table) -> None:
    with pytest.raises(UsageError, match="as_of"):
        table.scan(as_of=1.5)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="future"):
        table.plan_expire(older_than=date(2024, 1, 1))
    with pytest.raises(UsageError, match="future"):
        table.plan_rollback(datetime(2024, 1, 1))
    with pytest.raises(UsageError, match="future"):
        table.plan_orphans(older_than="2999-01-01")
    with pytest.raises(UsageError, match="future"):
        table.plan_repair(older_than="2999-01-01")


@pytest.mark.parametrize(
    "age, text",
    [
        (timedelta(minutes=90), "90 min ago"),
        (timedelta(days=1, hours=12), "36 h ago"),
        (-timedelta(seconds=61), "61 s ago"),
        (timedelta(days=2, milliseconds=1), "172800001 ms ago"),
        (timedelta(0), "0 ms ago"),
    ],
)
def test_an_age_is_told_whole(age: timedelta, text: str) -> None:
    """A rollback to 90 minutes ago must not go to the last hour."""
    assert point_text(age) == text


def test_a_tag_with_the_number_of_an_expired_snapshot_as_its_name_stands_for_it(context: TableContext) -> None:
    """Before one that holds a snapshot of this number, which may be that of another history."""
    create_tag(context, "holder", 1)
    create_tag(context, "other", 2)
    Path(context.layout.tag("1")).write_bytes(Path(context.layout.tag("other")).read_bytes())  # as other engines may name it
    Path(context.layout.snapshot(1)).unlink()
    assert tag_holding(context, 1) == "1" and snapshot_or_tagged(context, 1).id == 2
    Path(context.layout.tag("1")).unlink()
    assert tag_holding(context, 1) == "holder" and snapshot_or_tagged(context, 1).id == 1
