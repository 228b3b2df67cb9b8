"""Commits create a tag for each period; the names and the choice of snapshots are those of Java's TagAutoCreation."""

from __future__ import annotations

import os
import re
import time
from datetime import datetime, timezone
from pathlib import Path

import pyarrow as pa
import pytest

from paimon_cli.api.table import Table
from paimon_cli.commit.automatic_tags import AutomaticTags, _wall_clock
from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import fresh_identity
from paimon_cli.errors import StorageUnavailable, UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.maintain.expire_snapshots import expire_snapshots
from paimon_cli.maintain.retention import Retention
from paimon_cli.maintain.tags import create_tag, expired_tags
from paimon_cli.options.table_options import TableOptions
from paimon_cli.storage.local_storage import LocalStorage
from paimon_cli.storage.storage import PutOutcome
from tests.commit.commit_tables import SteppingClock
from tests.rivals import Meddler, raising
from tests.tables import compact, make_table, write

UTC = {"tag.automatic-creation": "process-time", "sink.process-time-zone": "UTC"}


def millis(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=timezone.utc).timestamp() * 1000)


def made(folder: Path, **options: str) -> str:
    given = {name.replace("__", ".").replace("_", "-"): value for name, value in options.items()}
    forced = {"commit.force-create-snapshot": "true"}
    return make_table(folder / "t", {"id": "INT"}, [], bucket=-1, options={**UTC, **forced, **given}).url


def commit(url: str, at: str, watermark: str | None = None, **given: str) -> TableContext:
    context = TableContext.open(url, given, clock=SteppingClock(millis(at)))
    Committer(context).commit([], fresh_identity(context), watermark=None if watermark is None else millis(watermark))
    return context


def tags(url: str) -> dict[str, int]:
    return {name: tag.snapshot.id for name, tag in TableContext.open(url).tags.all().items()}


def test_the_first_commit_behind_the_end_of_a_day_is_tagged(tmp_path: Path) -> None:
    url = made(tmp_path)
    for at in ("2026-11-28T09:00", "2026-11-28T23:59", "2026-11-29T00:00", "2026-11-29T07:00"):
        commit(url, at)
    assert tags(url) == {"2026-11-27": 1, "2026-11-28": 3}
    commit(url, "2026-12-03T10:00")
    assert tags(url) == {"2026-11-27": 1, "2026-11-28": 3, "2026-12-02": 5}


@pytest.mark.parametrize(
    ("options", "first", "second"),
    [
        ({"tag__creation_period": "hourly"}, "2026-11-28 08", "2026-11-28 10"),
        ({"tag__creation_period": "hourly", "tag__period_formatter": "without_dashes"}, "20261128 08", "20261128 10"),
        ({"tag__creation_period": "hourly", "tag__period_formatter": "without_dashes_and_spaces"}, "2026112808", "2026112810"),
        ({"tag__creation_period": "two-hours"}, "2026-11-28 06", "2026-11-28 08"),
        ({"tag__creation_period": "two-hours", "tag__period_formatter": "without_dashes"}, "2026-11-28 06", "2026-11-28 08"),
        ({"tag__creation_period_duration": "15 min"}, "202611280915", "202611281045"),
        ({"tag__creation_period": "hourly", "sink__process_time_zone": "Asia/Tokyo"}, "2026-11-28 17", "2026-11-28 19"),
        ({"tag__creation_period": "hourly", "sink__process_time_zone": "+09:00"}, "2026-11-28 17", "2026-11-28 19"),
        ({"tag__creation_period": "hourly", "sink__process_time_zone": "GMT+9"}, "2026-11-28 17", "2026-11-28 19"),
        ({"tag__creation_period": "hourly", "tag__automatic_completion": "true"}, "2026-11-28 08", "2026-11-28 09"),
    ],
)
def test_periods_and_names(tmp_path: Path, options: dict[str, str], first: str, second: str) -> None:
    url = made(tmp_path, **options)
    commit(url, "2026-11-28T09:30")
    commit(url, "2026-11-28T11:00")
    assert list(tags(url)) == [first, second]


def test_a_tag_may_wait_for_rows_that_come_late(tmp_path: Path) -> None:
    url = made(tmp_path, tag__creation_period="hourly", tag__creation_delay="20 min")
    for at in ("2026-11-28T09:30", "2026-11-28T10:19", "2026-11-28T10:20"):
        commit(url, at)
    assert tags(url) == {"2026-11-28 08": 1, "2026-11-28 09": 3}


def test_watermarks_decide_if_they_are_known(tmp_path: Path) -> None:
    url = made(tmp_path, tag__automatic_creation="watermark")
    commit(url, "2026-11-28T09:00")
    assert tags(url) == {}
    commit(url, "2026-11-28T09:01", "2026-11-20T12:00")
    commit(url, "2026-11-28T09:02", "2026-11-21T00:00")
    assert tags(url) == {"2026-11-19": 2, "2026-11-20": 3}


def test_watermarks_have_a_time_zone_of_their_own(tmp_path: Path) -> None:
    url = made(tmp_path, tag__automatic_creation="watermark", sink__watermark_time_zone="Asia/Tokyo")
    commit(url, "2026-11-28T09:01", "2026-11-20T14:59")
    commit(url, "2026-11-28T09:02", "2026-11-20T15:00")
    assert tags(url) == {"2026-11-19": 1, "2026-11-20": 2}


def test_a_time_zone_that_moves_west_tags_no_snapshot_again(tmp_path: Path) -> None:
    """Its last tags have names of periods that have not begun there."""
    url = made(tmp_path, tag__creation_period="hourly", sink__process_time_zone="Asia/Tokyo")
    for minute in ("00", "30"):
        commit(url, f"2026-11-28T09:{minute}")
    before = tags(url)
    commit(url, "2026-11-28T09:45", **{"sink.process-time-zone": "UTC"})
    assert set(before.values()) == {1} and sorted(tags(url).values()) == [1, 2]


def test_a_snapshot_that_expires_meanwhile_is_not_tagged(tmp_path: Path) -> None:
    url = made(tmp_path)
    for at in ("2026-11-28T12:00", "2026-11-29T12:00"):
        commit(url, at, **{"tag.automatic-creation": "none"})
    keep_one = Retention(at_least=1, at_most=1, millis=0, limit=None)
    expiring = Meddler("put_if_absent", "tag-2026-11-27", lambda: expire_snapshots(TableContext.open(url), keep_one))
    write(TableContext.open(url, storage=expiring, clock=SteppingClock(millis("2026-11-29T12:01"))), [{"id": 1}])
    assert expiring.count == 1 and TableContext.open(url).snapshots.ids() == [3] and tags(url) == {}
    commit(url, "2026-11-29T12:02")
    assert tags(url) == {"2026-11-28": 3}


def test_a_batch_moves_the_tag_of_its_day(tmp_path: Path) -> None:
    url = made(tmp_path, tag__automatic_creation="batch", tag__default_time_retained="2 d")
    for _ in range(2):
        context = commit(url, "2026-11-28T12:00")
    assert tags(url) == {"batch-write-2026-11-28": 2}
    assert context.tags.get("batch-write-2026-11-28").retained_millis == 2 * 86_400_000
    named = made(tmp_path / "n", tag__automatic_creation="batch", tag__batch__customized_name="nightly")
    commit(named, "2026-11-28T12:00")
    assert tags(named) == {"nightly": 1}


def test_the_day_of_a_batch_is_that_of_this_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = made(tmp_path, tag__automatic_creation="batch")
    try:
        monkeypatch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        commit(url, "2026-11-28T16:00")
    finally:
        monkeypatch.undo()
        time.tzset()
    assert tags(url) == {"batch-write-2026-11-29": 1}


@pytest.mark.parametrize("watermark", ["9999-12-31T20:00", "1969-12-31T12:00"])
def test_watermarks_that_stand_for_no_time_make_no_tags(tmp_path: Path, watermark: str) -> None:
    """After the end of time in their zone, or before the beginning."""
    url = made(tmp_path, tag__automatic_creation="watermark", sink__watermark_time_zone="Asia/Tokyo")
    commit(url, "2026-11-28T09:01", watermark)
    assert tags(url) == {} and TableContext.open(url).snapshots.latest_id() == 1


def test_the_tag_of_a_batch_shows_its_rows_where_they_must_be_compacted_first(tmp_path: Path) -> None:
    """Java tags the latest snapshot after the commit: that of the compaction."""
    batch = {"tag.automatic-creation": "batch", "tag.batch.customized-name": "b"}
    options = {"bucket": "1", "deletion-vectors.enabled": "true", **batch}
    table = Table.create(str(tmp_path / "t"), columns=["id INT NOT NULL"], primary_key=["id"], options=options)
    for number in (1, 2):
        table.write(pa.table({"id": pa.array([number], pa.int32())}), compact="inline")
    assert table.tags.show("b").snapshot_id == 4
    assert table.scan(tag="b").count() == 2


def test_commits_delete_no_tags_and_expiry_deletes_the_surplus(tmp_path: Path) -> None:
    url = made(tmp_path, tag__num_retained_max="2")
    for day in range(10, 15):
        context = commit(url, f"2026-11-{day}T01:00")
    assert len(tags(url)) == 5
    assert expired_tags(context) == ["2026-11-09", "2026-11-10", "2026-11-11"]


@pytest.mark.parametrize("retained", [{}, {"tag__default_time_retained": "2 d"}], ids=["no limit", "2 d"])
def test_a_policy_that_keeps_tags_longer_keeps_the_surplus_too(tmp_path: Path, retained: dict[str, str]) -> None:
    url = made(tmp_path, tag__num_retained_max="2", **retained)
    written: dict[str, float] = {}
    for day in range(10, 15):
        context = commit(url, f"2026-11-{day}T01:00")
        for name in tags(url).keys() - written.keys():
            written[name] = millis(f"2026-11-{day}T01:00") / 1000
            os.utime(context.layout.tag(name), (written[name], written[name]))
    assert expired_tags(context, limit_of=lambda own: max(own, 30 * 86_400_000)) == []
    assert expired_tags(context, limit_of=lambda own: max(own, 3 * 86_400_000)) == ["2026-11-09", "2026-11-10"]


def test_writers_leave_the_tags_of_write_only_tables_to_the_compactor(tmp_path: Path) -> None:
    url = made(tmp_path, write_only="true")
    context = TableContext.open(url, clock=SteppingClock(millis("2026-11-28T12:00")))
    for _ in range(2):
        write(context, [{"id": 1}])
    assert tags(url) == {}
    compact(context.with_options({"write-only": "false"}), strategy="full")
    assert tags(url) == {"2026-11-27": 1}


def test_a_tag_that_could_not_be_created_follows_after_the_next_commit(tmp_path: Path) -> None:
    url = made(tmp_path)
    storage = Meddler("put_if_absent", "tag-2026-11-27", raising(StorageUnavailable("not today")))
    write(TableContext.open(url, storage=storage, clock=SteppingClock(millis("2026-11-28T12:00"))), [{"id": 1}])
    assert tags(url) == {}
    commit(url, "2026-11-28T12:01")
    assert tags(url) == {"2026-11-27": 1}


@pytest.mark.parametrize("completion", ["false", "true"])
def test_tags_that_could_not_be_created_follow_all_at_once(tmp_path: Path, completion: str) -> None:
    """Each holds the snapshot that it would have held, had it been created in time."""
    days = [f"2026-11-{day}T{hour}" for day, hour in ((20, "05:00"), (20, "06:00"), (21, "00:00"), (21, "12:00"), (24, "09:00"))]
    in_time, late = (
        made(tmp_path / "in-time", tag__automatic_completion=completion),
        made(tmp_path, tag__automatic_completion=completion),
    )
    for at in [*days, "2026-11-25T03:00"]:
        commit(in_time, at)
    for at in days:
        commit(late, at, **{"tag.automatic-creation": "none"})
    assert tags(late) == {}
    commit(late, "2026-11-25T03:00")
    assert tags(late) == tags(in_time) and len(tags(late)) > 3


@pytest.mark.parametrize("completion", ["false", "true"])
def test_clocks_that_go_back(tmp_path: Path, completion: str) -> None:
    """What one process of Java creates that looks at each snapshot in turn. Our own commits never go back, but others' do."""
    hours = ["10:30", "09:10", "10:50", "09:00", "12:10", "08:30", "11:59", "13:59", "11:00", "14:00", "15:30"]
    url = made(tmp_path, tag__creation_period="hourly", tag__automatic_completion=completion)
    for number, at in enumerate(hours[:-1], 1):
        context = commit(url, f"2026-11-28T{at}", **{"tag.automatic-creation": "none"})
        path = Path(url.removeprefix("file://"), "snapshot", f"snapshot-{number}")
        path.write_text(re.sub(r'"timeMillis" ?: ?\d+', f'"timeMillis": {millis(f"2026-11-28T{at}")}', path.read_text()))
        assert context.reopened().snapshots.get(number).time_millis == millis(f"2026-11-28T{at}")
    commit(url, f"2026-11-28T{hours[-1]}")
    found: dict[str, int] = {}
    due: int | None = None
    for number, at in enumerate(hours, 1):
        hour = int(at[:2])
        if due is None or hour >= due + 1:
            begin = due if due is not None and completion == "true" else hour - 1
            found[f"2026-11-28 {begin:02}"], due = number, begin + 1
    assert tags(url) == found and len(found) > 3


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_tag_of_a_period_to_come_does_not_end_the_others(tmp_path: Path, number: int) -> None:
    """Whether it holds a snapshot before the newest with an automatic tag, that one, or one after it."""
    url = made(tmp_path)
    for at in ("2026-11-28T12:00", "2026-11-29T12:00", "2026-11-29T13:00"):
        commit(url, at)
    for name in ("2026-12-31", "2026-12-30"):
        create_tag(TableContext.open(url), name, number)
    commit(url, "2026-11-30T12:00")
    to_come = {"2026-12-30": number, "2026-12-31": number}
    assert tags(url) == {"2026-11-27": 1, "2026-11-28": 2, "2026-11-29": 4, **to_come}


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ({"tag.creation-period": "hourly"}, {"tag.creation-period": "two-hours"}, {"2026-11-28 08": 1, "2026-11-28 10": 3}),
        ({"tag.creation-period": "two-hours"}, {"tag.creation-period": "hourly"}, {"2026-11-28 06": 1, "2026-11-28 10": 2}),
        ({}, {"tag.period-formatter": "without_dashes"}, {"2026-11-27": 1, "20261127": 1}),
        ({}, {"tag.creation-period": "hourly"}, {"2026-11-27": 1, "2026-11-28 08": 1, "2026-11-28 10": 2, "2026-11-28 12": 3}),
    ],
)
def test_other_periods_and_names_from_now_on(
    tmp_path: Path, before: dict[str, str], after: dict[str, str], found: dict[str, int]
) -> None:
    url = made(tmp_path)
    commit(url, "2026-11-28T09:30", **before)
    commit(url, "2026-11-28T11:10", **after)
    commit(url, "2026-11-28T13:20", **after)
    expected = {**found, "2026-11-28 12": 3} if before.get("tag.creation-period") == "two-hours" else found
    assert tags(url) == expected


@pytest.mark.parametrize(
    "options",
    [
        {"tag__creation_delay": "1 d"},
        {"sink__process_time_zone": "Nowhere/Town"},
        {"sink__process_time_zone": "+5:30"},
        {"tag__creation_period_duration": "800000 d"},
        {"tag__batch__customized_name": "../x"},
    ],
)
def test_rules_that_cannot_be_followed_are_refused_before_the_commit(tmp_path: Path, options: dict[str, str]) -> None:
    url = made(tmp_path, **options)
    with pytest.raises(UsageError):
        commit(url, "2026-11-28T12:00")
    assert TableContext.open(url).snapshots.latest() is None


def test_other_tags_are_not_taken_for_automatic_ones(tmp_path: Path) -> None:
    context = TableContext.open(made(tmp_path))
    automatic = AutomaticTags.of(context)
    assert automatic is not None
    assert automatic.names(["2026-11-28", "2026-1-5", "v1", "2026-13-01", "2026-11-27"]) == ["2026-11-27", "2026-11-28"]


def test_tags_of_batches_are_known_by_their_day(tmp_path: Path) -> None:
    """Others stay, also where old ones are removed."""
    automatic = AutomaticTags.of(TableContext.open(made(tmp_path, tag__automatic_creation="batch")))
    assert automatic is not None
    theirs = ["batch-write-before-the-move", "batch-write-2026-1-5", "2026-11-26", "v1"]
    days = ["batch-write-2026-11-27", "batch-write-2026-11-28"]
    assert automatic.names([*reversed(days), *theirs]) == days


@pytest.mark.parametrize(
    ("zone", "minutes"),
    [
        *(("Z", 0), ("UT", 0), ("UTC", 0), ("GMT+9", 540), ("UTC-3", -180), ("+05:30", 330), ("-0330", -210), ("+18:00", 1080)),
        *(("Asia/Kolkata", 330), ("America/Caracas", -240), ("+18:01", None), ("+5:30", None), ("Europe", None), ("", None)),
    ],
)
def test_zones_are_those_of_java(zone: str, minutes: int | None) -> None:
    options = TableOptions({**UTC, "sink.process-time-zone": zone, "sink.watermark-time-zone": "Asia/Tokyo"})
    if minutes is None:
        with pytest.raises(UsageError, match="is no time zone"):
            _wall_clock(options, 0, "")
    else:
        assert _wall_clock(options, 7, "") == 7 + 60_000 * minutes


@pytest.mark.parametrize("options", [{"tag__automatic_creation": "batch"}, {"write_only": "true"}])
@pytest.mark.parametrize("wrong", [{"tag__creation_delay": "1 d"}, {"sink__process_time_zone": "Nowhere/Town"}])
def test_rules_that_a_commit_does_not_use_do_not_stop_it(tmp_path: Path, options: dict[str, str], wrong: dict[str, str]) -> None:
    """As in Java: batches have no delay and no zone, and writers that never compact make no tags."""
    url = made(tmp_path, **options, **wrong)
    commit(url, "2026-11-28T12:00")
    assert TableContext.open(url).snapshots.latest_id() == 1
    assert list(tags(url)) == (["batch-write-2026-11-28"] if "write_only" not in options else [])


def test_a_tag_that_cannot_be_created_is_told_of(tmp_path: Path) -> None:
    table = Table.open(made(tmp_path))
    (tmp_path / "t/tag").write_text("no directory")
    with pytest.warns(UserWarning, match=r"automatic tags of .* were not created: .*; the next commit tries it again"):
        table.write([{"id": 1}])
    assert table.snapshot_id == 1
    (tmp_path / "t/tag").unlink()
    table.write([{"id": 2}])
    assert list(tags(table.url).values()) == [1]


def test_a_batch_whose_snapshot_expires_meanwhile_leaves_the_tag_of_its_day(tmp_path: Path) -> None:
    url = made(tmp_path, tag__automatic_creation="batch")
    commit(url, "2026-11-28T12:00")

    def others() -> None:
        commit(url, "2026-11-28T12:02", **{"tag.automatic-creation": "none"})
        expire_snapshots(TableContext.open(url), Retention(at_least=1, at_most=1, millis=0, limit=None))

    late = TableContext.open(
        url, storage=Meddler("overwrite", "tag-batch-write-2026-11-28", others), clock=SteppingClock(millis("2026-11-28T12:01"))
    )
    write(late, [{"id": 1}])
    assert TableContext.open(url).snapshots.ids() == [3] and tags(url) == {"batch-write-2026-11-28": 1}


@pytest.mark.parametrize("is_stored", [False, True])
def test_a_tag_about_which_the_storage_gives_no_clear_answer(tmp_path: Path, is_stored: bool) -> None:
    """It holds a snapshot that is there, or the user is told that it may not exist."""
    url = made(tmp_path)

    class Unclear(LocalStorage):
        def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
            if not path.endswith("tag-2026-11-27"):
                return super().put_if_absent(path, data)
            if is_stored:
                commit(url, "2026-11-28T12:01", **{"tag.automatic-creation": "none"})
                expire_snapshots(TableContext.open(url), Retention(at_least=1, at_most=1, millis=0, limit=None))
                super().put_if_absent(path, data)
            return PutOutcome.UNKNOWN

    context = TableContext.open(url, storage=Unclear(), clock=SteppingClock(millis("2026-11-28T12:00")))
    told: list[str] = []
    context.cache.warn = told.append
    write(context, [{"id": 1}])
    assert [("was deleted before" in text, "may or may not" in text) for text in told] == [(is_stored, not is_stored)]
    assert tags(url) == {}


def test_a_name_that_is_taken_does_not_end_the_tags_of_a_server(tmp_path: Path) -> None:
    """As in a directory of files, a tag of that name stays, and later periods have theirs."""
    url = made(tmp_path)
    commit(url, "2026-11-28T12:00")
    create_tag(TableContext.open(url), "2026-11-30", 1)

    class Server(LocalStorage):
        def create_tag(self, name: str, snapshot_id: int, retained_millis: int | None) -> None:
            create_tag(TableContext.open(url), name, snapshot_id, retained_millis)

        def delete_tag(self, name: str) -> None:
            raise AssertionError(name)

        create_branch = delete_branch = fast_forward = roll_back = delete_tag

    for at in ("2026-11-30T12:00", "2026-12-01T12:00", "2026-12-02T12:00"):
        write(TableContext.open(url, storage=Server(), clock=SteppingClock(millis(at))), [{"id": 1}])
    assert tags(url) == {"2026-11-27": 1, "2026-11-29": 2, "2026-11-30": 1, "2026-12-01": 4}
