"""`buckets plan`: what should become of each partition's buckets, and the command that does it."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from paimon_cli import Table
from paimon_cli.catalog.alter_table import alter_table
from paimon_cli.catalog.column_changes import UnsetOption
from paimon_cli.catalog.open_table import open_table
from paimon_cli.catalog.table_location import locate_table
from paimon_cli.compact.bucket_counts import SETTLED_MILLIS
from paimon_cli.history.table_context import TableContext
from paimon_cli.inspect import bucket_plan
from paimon_cli.inspect.bucket_plan import KEEP, MERGE, RESCALE, SPLIT, USUAL_BYTES_PER_SECOND, bytes_per_second
from paimon_cli.inspect.compaction_history import compaction_rows
from paimon_cli.inspect.findings import bucket_rules
from paimon_cli.inspect.findings.bucket_rules import TOO_EMPTY
from paimon_cli.inspect.findings.examined_table import ExaminedTable
from paimon_cli.inspect.findings.finding import ADVICE, Topic
from paimon_cli.inspect.findings.runner import findings_of
from paimon_cli.storage.injected import BelatedClock
from tests.cli.calling import Run
from tests.cli.conftest import run  # noqa: F401
from tests.inspect.findings.odd_tables import BUILDERS, keyed
from tests.jobs.test_stale_buckets import made, prepared, rescale
from tests.jobs.test_stale_buckets import row as row_of
from tests.tables import compact, make_table, rows, write

COLUMNS = {"p": "STRING NOT NULL", "k": "INT NOT NULL", "v": "STRING"}
OPTIONS = {"postpone.batch-write-fixed-bucket": "false", "postpone.target-row-num-per-bucket": "10"}


def test_a_partition_that_has_grown_and_the_command_that_splits_it(tmp_path: Path, run: Run) -> None:  # noqa: F811
    context = make_table(tmp_path / "t", COLUMNS, ["p", "k"], ["p"], bucket=-2, options=OPTIONS)
    for keys in (8, 60):
        write(context, [{"p": p, "k": key, "v": "x"} for p in ("a b", "c") for key in range(keys if p == "a b" else 8)])
        compact(context, strategy="full")
    before = rows(context)
    grown, small = run("buckets", "plan", context.url, "-o", "json").json["items"]
    assert (grown["partition"], grown["buckets"], grown["new_buckets"], grown["action"]) == ("p=a b", 1, 8, SPLIT)
    assert (grown["biggest_bucket_rows"], grown["target_rows"], grown["target_bytes"], grown["skew"]) == (60, 10, None, 1.0)
    assert grown["rewritten_bytes"] == grown["size"] and grown["bucket_size_after"] == grown["size"] // 8
    assert (small["action"], small["new_buckets"], small["rewritten_bytes"], small["command"]) == (KEEP, 1, 0, None)
    assert [
        row["partition"] for row in run("buckets", "plan", context.url, "--partition", "p=c", "-o", "json").json["items"]
    ] == ["p=c"]
    found = Table.open(context.url).health().findings
    assert [finding.code for finding in found] == ["PD034"] and found[0].command == grown["command"]
    run(*shlex.split(grown["command"])[1:])
    assert [row.action for row in Table.open(context.url).bucket_plan()] == [KEEP, KEEP]
    assert rows(context) == before


def test_far_too_many_buckets_are_advice(tmp_path: Path, run: Run) -> None:  # noqa: F811
    own = {**OPTIONS, "postpone.target-row-num-per-bucket": "1000"}
    context = make_table(
        tmp_path / "t", COLUMNS, ["p", "k"], ["p"], bucket=-2, options={**own, "postpone.default-bucket-num": "8"}
    )
    write(context, [{"p": "a", "k": key, "v": "x"} for key in range(40)])
    compact(context, strategy="full")
    assert [row.action for row in Table.open(context.url).bucket_plan()] == [KEEP], "eight is what the owner chose"
    alter_table(open_table(locate_table(context.url)), [UnsetOption("postpone.default-bucket-num")])
    context = TableContext.open(context.url)
    (young,) = Table.open(context.url).bucket_plan()
    assert young.action == KEEP and "may still grow" in young.reason
    later = replace(context, clock=BelatedClock(context.clock, -2 * SETTLED_MILLIS))
    (row,) = bucket_plan.bucket_plan(ExaminedTable(later, "T"))
    assert (row.action, row.buckets, row.new_buckets) == (MERGE, 8, 1) and row.command is not None
    (finding,) = [found for found in findings_of(ExaminedTable(later, "T"), ADVICE) if found.topic == Topic.BUCKETS]
    assert (finding.code, finding.command) == (TOO_EMPTY, row.command)


def test_a_fixed_table_has_one_count_for_all_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = keyed(tmp_path / "t", 2)
    (row,) = Table.open(context.url).bucket_plan()
    assert (row.action, row.buckets, row.new_buckets, row.command, row.target_rows) == (KEEP, 1, 1, None, None)
    monkeypatch.setattr(bucket_rules, "BIGGEST_BUCKET", 100)
    monkeypatch.setattr(bucket_rules, "GOOD_BUCKET", row.size // 3)
    (row,) = Table.open(context.url).bucket_plan()
    assert (row.action, row.new_buckets) == (RESCALE, 4)
    assert (row.command or "").endswith("t --buckets 4 --yes")


def test_the_largest_partition_decides_even_if_another_is_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["p", "k"], ["p"], bucket=2)
    write(context, [{"p": p, "k": key, "v": f"{key * 997 % 10007}"} for p in "ab" for key in range(10 if p == "a" else 9000)])
    rescale(context, 4, partition=[{"p": "a"}])
    table = Table.open(context.url)
    small, large = table.bucket_plan()
    monkeypatch.setattr(bucket_rules, "BIGGEST_BUCKET", large.size // 3)
    monkeypatch.setattr(bucket_rules, "GOOD_BUCKET", large.size // 3.5)
    assert small.size < large.size // 4 and "largest partition" in large.reason
    assert (small.action, small.new_buckets, large.action) == (RESCALE, 2, KEEP), "writers refuse the small one"
    kept, split = table.bucket_plan()
    assert (split.action, split.new_buckets, split.command) == (RESCALE, 4, f"paimon-cli rescale {context.url} --buckets 4 --yes")
    assert (kept.action, kept.new_buckets, kept.rewritten_bytes, kept.command) == (RESCALE, 4, 0, split.command)
    assert "option says bucket=2" in kept.reason
    assert table.bucket_plan(partition={"p": "a"}) == [kept] and table.bucket_plan(partition={"p": "b"}) == [split]


def test_several_counts_in_a_partition(tmp_path: Path) -> None:
    context = made(tmp_path)
    commit = prepared(context, [row_of(1, "late")])
    rescale(context)
    commit()
    reasons = {row.partition: (row.action, row.reason, row.command) for row in Table.open(context.url).bucket_plan()}
    assert reasons["p=a"] == (KEEP, "it holds files for 2 and 4 buckets; see health", None)
    assert reasons["p=b"][0] == KEEP and "files for" not in reasons["p=b"][1]


@pytest.mark.parametrize("name", ["no_snapshot", "emptied"])
def test_nothing_to_plan(name: str, tmp_path: Path) -> None:
    assert Table.open(BUILDERS[name](tmp_path / "t").url).bucket_plan() == []


def test_dynamic_buckets_are_chosen_by_their_writers(tmp_path: Path, run: Run) -> None:  # noqa: F811
    context = make_table(tmp_path / "t", COLUMNS, ["p", "k"], ["p"], bucket=-1)
    write(context, [{"p": "a", "k": 1, "v": "x"}])
    assert run("buckets", "plan", context.url).out.endswith("0 partitions, 0 to change; the table has dynamic buckets\n")


def test_the_speed_is_that_of_earlier_compactions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = keyed(tmp_path / "t", 3)
    compact(context, strategy="full")
    assert bytes_per_second(context) == USUAL_BYTES_PER_SECOND, "a compaction of little says nothing about speed"
    monkeypatch.setattr(bucket_plan, "LEAST_MEASURED_BYTES", 1)
    snapshot = context.snapshots.latest()
    assert snapshot is not None and (snapshot.work_duration_millis or 0) >= 0
    seconds = (snapshot.work_duration_millis or 0) / 1000
    read = sum(int(row.bytes_before) for row in compaction_rows(context) if row.seconds)
    assert bytes_per_second(context) == (pytest.approx(read / seconds) if seconds else USUAL_BYTES_PER_SECOND)
