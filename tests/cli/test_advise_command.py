"""`advise`: every topic is answered with figures, and what it suggests can be pasted."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paimon_cli.history.table_context import TableContext
from paimon_cli.inspect.findings.bucket_rules import MANY_BUCKETS
from paimon_cli.inspect.findings.examined_table import ExaminedTable
from paimon_cli.inspect.findings.finding import LISTING, METADATA, OK, REPLAY, TOPICS, Finding
from paimon_cli.inspect.findings.runner import by_topic, findings_of
from paimon_cli.options.table_options import MB
from tests.cli.calling import Run
from tests.goldens import golden_table
from tests.tables import make_table, write

COLUMNS = {"id": "INT NOT NULL", "v": "STRING"}


def made(folder: Path, commits: int, bucket: int = 1, users: tuple[str, ...] = ("etl",), **options: str) -> TableContext:
    given = {key.replace("__", "-").replace("_", "."): value for key, value in options.items()}
    context = make_table(folder / "t", COLUMNS, ["id"], bucket=bucket, options=given)
    for number in range(commits):
        rows = [{"id": key, "v": "x"} for key in range(number, number + 30)]
        write(context, rows, commit_user=users[number % len(users)])
    return context


def advise(table: ExaminedTable, topics: Sequence[str] = TOPICS) -> list[Finding]:
    return by_topic(findings_of(table, OK, topics, (METADATA, LISTING, REPLAY)))


def advice(context: TableContext, *topics: str) -> dict[str, Finding]:
    found = advise(ExaminedTable(context, "T"), topics or TOPICS)
    return {item.subject: item for item in found}


def figure_of(advice: Finding, figure: str) -> int | float:
    found = advice.figures[figure]
    assert not isinstance(found, str), figure
    return found


def test_every_topic_is_answered_with_figures(tmp_path: Path) -> None:
    found = advise(ExaminedTable(made(tmp_path, 12), "T"))
    assert {item.topic for item in found} == set(TOPICS)
    assert all(item.figures for item in found) and all(not item.command for item in found if item.severity == OK)


def test_a_table_that_would_not_fill_a_bucket_may_have_any_usual_count(tmp_path: Path) -> None:
    found = advice(made(tmp_path, 2, bucket=MANY_BUCKETS), "buckets")["bucket size"]
    assert (found.severity, found.command) == (OK, "") and found.figures["buckets"] == MANY_BUCKETS


def test_too_many_buckets(tmp_path: Path) -> None:
    found = advice(made(tmp_path, 2, bucket=MANY_BUCKETS + 1), "buckets")["bucket size"]
    assert (found.code, found.command) == ("PA002", "paimon-cli rescale T --buckets 1 --yes")
    assert found.figures["suggested_buckets"] == 1
    assert "200 MB to 1.0 GB is recommended" in found.message


@pytest.mark.parametrize(
    ("per_bucket", "code", "suggested"), [(100 * MB, "PA002", 1), (200 * MB, "", 1), (1024 * MB, "", 4), (1200 * MB, "PA001", 5)]
)
def test_the_size_of_a_bucket_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, per_bucket: int, code: str, suggested: int
) -> None:
    context = made(tmp_path, 1, bucket=2)
    case = ExaminedTable(context, "T")
    monkeypatch.setitem(case.__dict__, "partition_sizes", {b"small": MB, b"big": 2 * per_bucket})
    (found,) = advise(case, ["buckets"])
    assert (found.code, found.figures["suggested_buckets"]) == (code, suggested)
    assert found.command == (f"paimon-cli rescale T --buckets {suggested} --yes" if code else "")


def test_small_files_and_where_they_come_from(tmp_path: Path) -> None:
    found = advice(made(tmp_path, 12, bucket=2, write__only="true"), "small-files")["small files"]
    assert found.command == "paimon-cli compact T --strategy full"
    assert (found.figures["files"], found.figures["files_per_commit"], found.figures["buckets_per_commit"]) == (24, 2.0, 2.0)
    assert found.figures["partitions_per_commit"] == 1.0


@pytest.mark.parametrize(("minutes", "per_day"), [(0, None), (4, None), (6, 480), (30, 96)])
def test_a_short_history_makes_no_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, minutes: int, per_day: int | None
) -> None:
    case = ExaminedTable(made(tmp_path, 12, bucket=2, write__only="true"), "T")
    spaced = [replace(snapshot, time_millis=snapshot.id * minutes * 60_000) for snapshot in case.writes]
    monkeypatch.setitem(case.__dict__, "writes", spaced)
    (found,) = advise(case, ["small-files"])
    assert found.figures.get("files_per_day") == per_day
    assert ("files a day" in found.message) == (per_day is not None)
    assert ("too few for a daily rate" in found.message) == (per_day is None)


def test_bursts_of_commits_are_not_taken_for_the_rate_of_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = ExaminedTable(made(tmp_path, 13, bucket=2, write__only="true"), "T")
    hourly = [replace(snapshot, time_millis=(snapshot.id - 1) // 6 * 3_600_000 + snapshot.id) for snapshot in case.writes]
    monkeypatch.setitem(case.__dict__, "writes", hourly)
    (found,) = advise(case, ["small-files"])
    assert found.figures["commit_interval_seconds"] == 0.0
    assert found.figures["files_per_day"] == 2 * 6 * 24, "six commits of two files each hour"


def test_a_table_without_expiry(tmp_path: Path) -> None:
    context = made(tmp_path, 8)
    assert advice(context, "options")["retention"].severity == OK
    short = {"snapshot.time-retained": "1 ms", "snapshot.num-retained.min": "2"}
    aged = context.with_options(short)
    found = advice(aged, "options")["retention"]
    assert (found.code, found.command) == ("PA003", "paimon-cli expire T --yes")
    assert figure_of(found, "snapshots_that_may_go") >= 6


def test_users_that_compact_beside_each_other(tmp_path: Path) -> None:
    eager = {"num-sorted-run.compaction-trigger": "1"}
    beside = make_table(tmp_path / "beside", COLUMNS, ["id"], options=eager)
    after = make_table(tmp_path / "after", COLUMNS, ["id"], options=eager)
    for number in range(6):
        write(beside, [{"id": number, "v": "x"}], commit_user=f"etl-{number % 2}")
        write(after, [{"id": number, "v": "x"}], commit_user=f"etl-{number}")
    found = advice(beside, "options")["compaction"]
    assert (found.code, found.command) == ("PD014", "paimon-cli alter T set write-only=true")
    assert "compaction" not in advice(after, "options")


def test_a_better_trigger_is_suggested_with_both_figures(tmp_path: Path) -> None:
    options = {"num-sorted-run.compaction-trigger": "1", "compaction.size-ratio": "1000"}
    context = make_table(tmp_path / "t", COLUMNS, ["id"], options=options)
    for number in range(32):
        write(context, [{"id": key, "v": "x"} for key in range(100 * number, 100 * number + 100)])
    found = advice(context, "compaction")["triggers"]
    assert found.code == "PA005" and found.command.startswith("paimon-cli alter T set ")
    assert figure_of(found, "suggested_write_amplification") < figure_of(found, "write_amplification")


def test_a_short_history_and_an_append_table(tmp_path: Path) -> None:
    assert "too short to replay" in advice(made(tmp_path, 2), "compaction")["triggers"].message
    append = TableContext.open(str(golden_table("java-0.9", "append_unaware", tmp_path)))
    found = advise(ExaminedTable(append, "T"))
    assert all(item.severity == OK for item in found) and {item.topic for item in found} == set(TOPICS)
    empty = make_table(tmp_path / "empty", COLUMNS, ["id"])
    assert all(item.severity == OK for item in advise(ExaminedTable(empty, "T")))


def test_commands_can_be_pasted(run: Run, tmp_path: Path) -> None:
    warehouse = tmp_path / "w h"
    context = make_table(warehouse / "shop.db" / "orders", COLUMNS, ["id"], bucket=MANY_BUCKETS + 1)
    write(context, [{"id": 1, "v": "x"}])
    items: list[dict[str, Any]] = run("advise", "shop.orders", "--warehouse", warehouse, "--only", "buckets", "-o", "json").json[
        "items"
    ]
    command = items[0]["command"]
    assert command == f"paimon-cli rescale shop.orders --warehouse '{warehouse}' --buckets 1 --yes"
    run(*shlex.split(command)[1:], "--engine", "local", "--yes")
    again = run("advise", "shop.orders", "--warehouse", warehouse)
    assert "no suggestions" in again.out and json.loads(json.dumps(items))[0]["figures"]["buckets"] == MANY_BUCKETS + 1


def test_commits_that_cannot_be_read_are_no_part_of_the_average(tmp_path: Path) -> None:
    context = made(tmp_path, 12, bucket=2, write__only="true")
    for number in range(3, 9):
        Path(context.layout.manifest(context.snapshots.get(number).delta_manifest_list)).unlink()
    found = advice(context, "small-files")["small files"]
    assert (found.figures["commits_looked_at"], found.figures["files_per_commit"]) == (6, 2.0)
