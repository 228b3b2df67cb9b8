"""The time of a partition, and dropping expired partitions."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from paimon_cli.compact.compaction_task import SkippedBucket
from paimon_cli.errors import DataConflict, UsageError
from paimon_cli.history.partition_spec import partition_text
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.compact_request import CompactRequest
from paimon_cli.jobs.round_plan import plan_compaction
from paimon_cli.maintain.expire_partitions import (
    PartitionPlan,
    PartitionTime,
    drop_partitions,
    expire_partitions,
    plan_partitions,
)
from paimon_cli.maintain.expire_snapshots import expire_snapshots
from paimon_cli.maintain.retention import Retention
from paimon_cli.storage.injected import local_wall_clock
from tests.commit.commit_tables import SteppingClock
from tests.tables import make_table, rows, write

NOW = 1_704_456_000_000
"""2024-01-05 12:00 UTC."""


def millis(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=timezone.utc).timestamp() * 1000)


@pytest.mark.parametrize(
    ("pattern", "formatter", "values", "moment"),
    [
        (None, None, ["2024-01-05", "x"], "2024-01-05"),
        (None, None, ["2024-1-5", "x"], "2024-01-05"),
        (None, None, ["2024-01-05 1:02:03", "x"], "2024-01-05 01:02:03"),
        (None, None, ["2024-01-05 01:02:03.25", "x"], "2024-01-05 01:02:03.250"),
        (None, None, ["2024-02-30", "x"], "2024-03-01"),
        (None, None, ["20240105", "x"], None),
        (None, "yyyyMMdd", ["20240105", "x"], "2024-01-05"),
        (None, "yyyyMMdd", ["2024-01-05", "x"], None),
        (None, "yyyyMM", ["202401", "x"], None),
        ("$dt $hr:00:00", None, ["2024-01-05", "7"], "2024-01-05 07:00:00"),
        ("$dt $dt1", "yyyyMMdd HH", ["20240105", "07"], "2024-01-05 07:00:00"),
        ("$dt", "yyyy'y'M'm'd", ["2024y1m5", "x"], "2024-01-05"),
        (None, None, [None, "x"], None),
        (None, "yyyy-MM-dd HH:mm:ss.SSS", ["2024-01-05 01:02:03.250", "x"], "2024-01-05 01:02:03.250"),
        (None, "uu/M/d H:m:s.S", ["24/1/5 1:2:3.5", "x"], "2024-01-05 01:02:03.500"),
        (None, "yyyyMMdd''HH", ["20240105'07", "x"], "2024-01-05 07:00:00"),
        (None, "yyyyMMdd", ["20241305", "x"], None),
        (None, "yyyyMMdd", ["20241231", "x"], "2024-12-31"),
        (None, "yyyyMMdd", ["20240132", "x"], None),
        (None, "yyyyMMdd", ["20240001", "x"], None),
        (None, "yyyyMMdd", ["20240100", "x"], None),
        (None, None, ["2024-13-05 25:61:61", "x"], "2025-01-06 02:02:01"),
        (None, None, ["+2024-12-31 23:59:59.999999999", "x"], "2024-12-31 23:59:59.999"),
    ],
)
def test_times(pattern: str | None, formatter: str | None, values: list[str | None], moment: str | None) -> None:
    keys = ("dt", "dt1") if pattern and "$dt1" in pattern else ("dt", "hr")
    assert PartitionTime(pattern, formatter).millis(keys, values) == (None if moment is None else millis(moment))


def test_a_formatter_that_is_not_understood() -> None:
    with pytest.raises(UsageError, match="timestamp-formatter"):
        PartitionTime(None, "EEE yyyy").millis(["dt"], ["Mon 2024"])


def daily(folder: Path, kind: str = "STRING NOT NULL", **options: str) -> TableContext:
    given = {key.replace("_", "-").replace("expiration-", "partition.expiration-"): value for key, value in options.items()}
    context = make_table(folder / "t", {"dt": kind, "k": "INT NOT NULL"}, ["dt", "k"], ["dt"], options=given)
    return replace(context, clock=SteppingClock(NOW))


def days(context: TableContext) -> list[str]:
    return [row["dt"] for row in rows(context)]


@pytest.mark.parametrize("kind", ["TIMESTAMP(3) NOT NULL", "TIMESTAMP_LTZ(3) NOT NULL"])
def test_by_a_moment(tmp_path: Path, kind: str) -> None:
    context = daily(tmp_path, kind, expiration_time="2 d")
    zone = "Z" if "LTZ" in kind else ""
    write(context, [{"dt": f"2024-01-0{day}T00:00:0{day}.5{zone}", "k": day} for day in (1, 2, 5)])
    plan = plan_partitions(context)
    assert [found.time_millis for found in plan.expired] == [millis(f"2024-01-0{day} 00:00:0{day}.500") for day in (1, 2)]
    assert [(found.files, found.rows) for found in plan.expired] == [(1, 1), (1, 1)]
    sizes = [sum(path.stat().st_size for path in Path(context.url).glob(f"dt=2024-01-0{day}*/*/*")) for day in (1, 2)]
    assert [found.size for found in plan.expired] == sizes and plan.snapshot_id == 1


@pytest.mark.parametrize("kind", ["STRING NOT NULL", "DATE NOT NULL"])
def test_by_value(tmp_path: Path, kind: str) -> None:
    context = daily(tmp_path, kind, expiration_time="2 d")
    write(context, [{"dt": f"2024-01-0{day}", "k": day} for day in (1, 2, 3, 4, 5)])
    plan, result = expire_partitions(context)
    assert len(plan.expired) == 3 and result.snapshots[0].commit_kind == "OVERWRITE"
    assert days(context) == ["2024-01-04", "2024-01-05"]
    assert expire_partitions(context)[1].snapshots == ()


def test_by_the_last_change(tmp_path: Path) -> None:
    context = daily(tmp_path, expiration_time="1 d", expiration_strategy="update-time")
    write(context, [{"dt": "2024-01-01", "k": 1}])
    write(context, [{"dt": "odd", "k": 1}])
    clock = SteppingClock(NOW + 90_000_000)
    later = replace(context, clock=clock)
    write(later, [{"dt": "2024-01-01", "k": 2}])
    assert [found.time_millis for found in plan_partitions(later).expired] == [local_wall_clock(NOW)]
    expire_partitions(later)
    assert days(context) == ["2024-01-01", "2024-01-01"]


@pytest.mark.parametrize("newest", [0, 1, 2])
def test_the_newest_file_tells_the_last_change_wherever_it_is_listed(tmp_path: Path, newest: int) -> None:
    """Clocks of writers differ, and a compaction lists files that it only moves behind newer ones."""
    context = daily(tmp_path, expiration_time="1 d", expiration_strategy="update-time")
    later = replace(context, clock=SteppingClock(NOW + 90_000_000))
    for number in range(3):
        write(later if number == newest else context, [{"dt": "2024-01-01", "k": number}])
    assert plan_partitions(later).expired == ()


def test_files_written_since_the_plan_stay(tmp_path: Path) -> None:
    context = daily(tmp_path, expiration_time="1 d")
    write(context, [{"dt": "2024-01-01", "k": 1}])
    plan = plan_partitions(context)
    write(context, [{"dt": "2024-01-01", "k": 2}])
    with pytest.raises(DataConflict):
        drop_partitions(context, [found.partition for found in plan.expired], plan.snapshot_id)
    assert len(days(context)) == 2
    expire_partitions(context)
    assert days(context) == []


def test_a_partition_that_is_written_to_right_after_the_plan_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is young again, so that the second plan leaves it out."""
    context = daily(tmp_path, expiration_time="1 d", expiration_strategy="update-time")
    write(context, [{"dt": "2024-01-01", "k": 1}])
    later, plans = replace(context, clock=SteppingClock(NOW + 90_000_000)), list[PartitionPlan]()

    def planned(*given: Any) -> PartitionPlan:
        plans.append(plan_partitions(*given))
        if len(plans) == 1:
            write(later, [{"dt": "2024-01-01", "k": 2}])
        return plans[-1]

    monkeypatch.setattr("paimon_cli.maintain.expire_partitions.plan_partitions", planned)
    assert not expire_partitions(later)[0].expired
    assert [len(plan.expired) for plan in plans] == [1, 0] and len(days(context)) == 2


def test_no_more_than_requested(tmp_path: Path) -> None:
    context = daily(tmp_path, expiration_time="1 d", expiration_max_num="2")
    write(context, [{"dt": f"2024-01-0{day}", "k": day} for day in (3, 1, 2)])
    assert [context.partition_path_of(found.partition) for found in plan_partitions(context).expired] == [
        "dt=2024-01-01/",
        "dt=2024-01-02/",
    ]
    assert len(plan_partitions(context, limit=1).expired) == 1


def test_tables_whose_partitions_never_expire(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expiration-time"):
        plan_partitions(daily(tmp_path))
    with pytest.raises(UsageError, match="not partitioned"):
        plan_partitions(make_table(tmp_path / "u", {"k": "INT NOT NULL"}, ["k"]), NOW)


def test_directories_of_dropped_partitions_go_on_request(tmp_path: Path) -> None:
    context = daily(tmp_path, expiration_time="1 d")
    write(context, [{"dt": "2024-01-01", "k": 1}, {"dt": "2024-01-05", "k": 1}])
    expire_partitions(context)
    swept = context.with_options({"snapshot.clean-empty-directories": "true"})
    expire_snapshots(swept, Retention(1, 1, 0, None))
    assert [path.name for path in Path(context.url).glob("dt=*")] == ["dt=2024-01-05"]


@pytest.mark.parametrize("options", [{}, {"partition.expiration-strategy": "update-time"}], ids=str)
def test_partitions_that_expire_are_not_compacted(tmp_path: Path, options: dict[str, str]) -> None:
    """Only if the table asks for it, and only by the time in their values, as in Java (#9021)."""
    skipping = {"partition.expiration-time": "7 d", "compaction.skip-expired-partitions": "true", **options}
    made = make_table(tmp_path / "t", {"dt": "STRING", "k": "INT NOT NULL"}, [], ["dt"], bucket=-1)
    context = replace(made, clock=SteppingClock(NOW))
    for _ in range(2):
        write(context, [{"dt": dt, "k": 1} for dt in ("2023-12-01", "2024-01-04", "2024-01-05", "no time", None)])
    asking = context.with_options(skipping)
    left = {
        partition_text(context, decision.partition)
        for decision in plan_compaction(asking, CompactRequest("full")).decisions
        if isinstance(decision, SkippedBucket)
    }
    assert left == (set() if options else {"dt=2023-12-01"})
    assert not [d for d in plan_compaction(context, CompactRequest("full")).decisions if isinstance(d, SkippedBucket)]
