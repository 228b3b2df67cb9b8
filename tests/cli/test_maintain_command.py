"""`maintain`, as cron calls it: one summary, one exit code, and nothing is deleted without a confirmation."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from pathlib import Path

import pytest

from paimon_cli import Table
from paimon_cli.cli import maintain_command, results
from paimon_cli.cli.output import OutputFormat
from paimon_cli.cli.service_log import JsonLog, RoundLines, ServiceLog
from paimon_cli.errors import NotFound
from tests.cli.calling import Run
from tests.tables import make_table, write

COLUMNS = {"id": "INT NOT NULL", "n": "INT"}
KEEPS_TWO = {"write-only": "true", "snapshot.num-retained.min": "1", "snapshot.num-retained.max": "2"}
LOCAL = ("--engine", "local")


@pytest.fixture
def warehouse(tmp_path: Path) -> str:
    for name in ("shop.db/orders", "shop.db/returns"):
        table = make_table(tmp_path / name, COLUMNS, ["id"], options=KEEPS_TWO)
        for number in range(6):
            write(table, [{"id": 1, "n": number}])
    return str(tmp_path)


def ids(warehouse: str, name: str = "orders") -> list[int]:
    return [snapshot.id for snapshot in Table.open(f"{warehouse}/shop.db/{name}").snapshots()]


def test_one_summary_and_exit_code_0_where_all_is_well(run: Run, warehouse: str) -> None:
    where = ("--database", "shop", "--warehouse", warehouse, *LOCAL)
    dry = run("maintain", *where, "-n").out.splitlines()
    assert dry[0].startswith("shop.orders: 1 bucket to compact, 6 files of ") and dry[0].endswith(
        "4 snapshots to expire with 12 files"
    )
    assert dry[2] == (
        "2 tables: 2 buckets to compact, 8 items to expire, 0 orphans to delete, 4 findings now; "
        "the commits of its compactions push out more snapshots; nothing was changed (dry run)"
    )
    assert dry[3].startswith("run: paimon-cli maintain --database shop") and dry[3].endswith("--yes")
    assert len(ids(warehouse)) == 6
    done = run("maintain", *where, "-y").out.splitlines()
    assert done[0].startswith("shop.orders: 1 bucket compacted, 6 files -> 1, ")
    assert done[-1] == "2 tables: 2 buckets compacted, 10 items expired, 0 orphans deleted, 0 findings left"
    assert len(ids(warehouse)) == 2
    assert run("maintain", *where, "-y").out.splitlines()[0] == "shop.orders: nothing to do"


def test_nothing_is_deleted_without_a_confirmation(run: Run, warehouse: str) -> None:
    refused = run("maintain", f"{warehouse}/shop.db/orders", *LOCAL, code=7)
    assert "4 snapshots past their retention with 12 files, and what becomes due meanwhile, will be deleted" in refused.err
    assert "--dry-run" in refused.err
    assert "from now on" in run("maintain", "--watch", "--warehouse", warehouse, *LOCAL, code=7).err
    assert len(ids(warehouse)) == 6


def test_dropped_tables_whose_time_is_over_are_work_and_no_part_of_the_data(run: Run, warehouse: str) -> None:
    where = ("--database", "shop", "--warehouse", warehouse, *LOCAL)
    run("maintain", *where, "-y")
    run("drop", "shop.returns", "--warehouse", warehouse, "--option", "trash-retention=1ms", "-y")
    dry = run("maintain", *where, "-n").out.splitlines()
    assert re.match(r"1 dropped table of .* to delete from the trash", dry[-2]) and dry[-1].startswith("run: paimon-cli maintain")
    for flag, said in (("-n", "to delete"), ("-y", "deleted")):
        answer = run("maintain", *where, flag, "-o", "json")
        assert [item["state"] for item in answer.json["items"]] == ["nothing to do"]
        assert re.match(rf"1 dropped table of .* {said} from the trash", answer.err)


def test_findings_that_are_left_are_shown_and_the_exit_code_is_4(run: Run, warehouse: str) -> None:
    answer = run("maintain", f"{warehouse}/shop.db/orders", "--budget", "1 kb", "-y", *LOCAL, code=4)
    assert "1 bucket is larger than the whole budget" in answer.out and "PD027" in answer.out
    assert "left for the next run" not in answer.out, "no run with this budget takes it"
    assert answer.out.splitlines()[-1].endswith("1 finding left, 1 table not finished")
    (item,) = run("maintain", f"{warehouse}/shop.db/orders", "--budget", "1 kb", "-y", "-o", "json", *LOCAL, code=4).json["items"]
    assert (item["left_buckets"], item["findings"][0]["code"], item["left"]) == (1, "PD027", [])
    assert item["left_bytes"] > 1024


def test_rows_that_a_compaction_drops_are_told_before(run: Run, tmp_path: Path) -> None:
    options = {**KEEPS_TWO, "record-level.expire-time": "1 d", "record-level.time-field": "n"}
    table = make_table(tmp_path / "old", COLUMNS, ["id"], options=options)
    for number in range(6):
        write(table, [{"id": number, "n": 1}])
    told = "rows older than 1 d (record-level.expire-time)"
    for name in ("maintain", "compact"):
        assert f"{told} are dropped by the compaction" in run(name, table.url, "-n", *LOCAL).out
    assert f"{told}, and what becomes due meanwhile, will be deleted" in run("maintain", table.url, *LOCAL, code=7).err


def test_steps_that_a_budget_in_bytes_does_not_pay_for_are_left(run: Run, warehouse: str) -> None:
    answer = run("maintain", f"{warehouse}/shop.db/orders", "--goal", "cost", "--budget", "100b", "-y", *LOCAL, code=4)
    assert "no budget for expiry, orphans" in answer.out and "no time" not in answer.out


def test_what_was_not_checked_for_its_budget_is_not_well(run: Run, warehouse: str) -> None:
    answer = run("maintain", f"{warehouse}/shop.db/orders", "--budget", "1ms", "-y", *LOCAL, code=4)
    assert "no time for compaction, expiry, orphans, check" in answer.out
    total = answer.out.splitlines()[-1]
    assert total.endswith("1 table not checked, 1 table not finished") and "finding" not in total


def test_the_exit_code_is_that_of_the_failure_and_other_tables_are_maintained(run: Run, warehouse: str) -> None:
    tables = (f"{warehouse}/shop.db/orders", f"{warehouse}/shop.db/none")
    answer = run("maintain", *tables, "-y", "-o", "json", *LOCAL, code=3)
    orders, none = answer.json["items"]
    assert (orders["state"], orders["error"], none["error_code"], none["findings"]) == ("compacted", None, "PC-NOT-FOUND", None)
    assert none["error"].startswith("no table at")
    Path(warehouse, "shop.db/returns/schema/schema-0").write_text("{")
    answer = run("maintain", "--database", "shop", "--warehouse", warehouse, "-y", "-o", "json", *LOCAL, code=10)
    assert [item["state"] for item in answer.json["items"]] == ["nothing to do", "failed"]
    assert answer.error["code"] == "PC-DAMAGED"


def test_several_kinds_of_failures_are_a_partial_success(run: Run, warehouse: str) -> None:
    Path(warehouse, "shop.db/returns/schema/schema-0").write_text("{")
    run("maintain", *(f"{warehouse}/shop.db/{name}" for name in ("orders", "returns", "none")), "-y", *LOCAL, code=9)


def test_what_cannot_be_combined(run: Run, warehouse: str) -> None:
    where = (f"{warehouse}/shop.db/orders", *LOCAL)
    once = run("maintain", *where, "--watch", "--budget", "1h", "-y", code=2).err
    assert "is for a single run" in once and "--budget 50GB/day" in once
    assert "is for --watch" in run("maintain", *where, "--budget", "1GB/day", "-y", code=2).err
    assert "'fast' is not one of 'latency', 'balanced'" in run("maintain", *where, "--goal", "fast", "-y", code=2).err
    assert "--watch cannot be combined with --dry-run" in run("maintain", *where, "--watch", "-n", code=2).err
    assert "a dry run cannot divide a --budget of time" in run("maintain", *where, "-n", "--budget", "10m", code=2).err
    assert "--orphans-every needs --watch" in run("maintain", *where, "--orphans-every", "1h", code=2).err
    assert "name the tables" in run("maintain", "--warehouse", warehouse, "-y", *LOCAL, code=2).err


def test_the_service_does_the_same_in_rounds_and_tells_what_it_finds(run: Run, warehouse: str) -> None:
    table = make_table(Path(warehouse) / "shop.db/odd", COLUMNS, ["id"], options={**KEEPS_TWO, "bucket": "-1"})
    write(table, [{"id": 1, "n": 1}])
    branch = Path(warehouse, "shop.db/odd/branch/branch-b/snapshot")
    branch.mkdir(parents=True)
    (branch / "snapshot-1").write_text("{")
    watch = ("--watch", "--max-rounds", "1", "--interval", "1 ms", "-y", "-o", "ndjson", "--log-format", "json")
    answer = run("maintain", "--warehouse", warehouse, *watch, *LOCAL)
    (done,) = answer.lines
    found = {item["table"]: item for item in done["tables"]}
    assert (found["shop.orders"]["state"], found["shop.orders"]["snapshots_expired"]) == ("compacted", 5)
    events = [event for event in map(json.loads, answer.err.splitlines()) if event["event"] == "findings"]
    assert {event["table"] for event in events} == {name for name, item in found.items() if item["findings"]} != set()
    assert found["shop.orders"]["findings"] == found["shop.returns"]["findings"] == 0, "the compaction was due, and was made"
    assert len(ids(warehouse)) == 2


def test_the_question_names_the_work_orphans_and_the_default_retention(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(tmp_path / "t", COLUMNS, ["id"], options={"write-only": "true"})
    for number in range(6):
        write(table, [{"id": 1, "n": number}])
    orphans = [tmp_path / "t" / "bucket-0" / f"data-orphan-{number}.parquet" for number in range(7)]
    for path in orphans:
        path.write_bytes(b"x")
        os.utime(path, (1_000_000_000, 1_000_000_000))
    defaults = "snapshots expire by Paimon's default: older than 1 h, except the latest 10"
    asked = "what becomes due meanwhile (snapshots by Paimon's default: older than 1 h, except the latest 10)"
    dry = run("maintain", table.url, "-n", *LOCAL).out
    (row,) = run("maintain", table.url, "-n", "-o", "json", *LOCAL).json["items"]
    assert row["orphan_files"] == [str(path) for path in orphans[:5]] and row["default_retention"].endswith("the latest 10")
    monkeypatch.setattr(results, "asks", lambda: True)
    monkeypatch.setattr(maintain_command, "asks", lambda: True)
    answer = run("maintain", table.url, *LOCAL, stdin="n\n", code=7)
    assert asked in answer.err and "dry run" not in answer.out
    for text in (dry, answer.out):
        assert "1 bucket to compact, 6 files" in text and "7 orphans" in text and defaults in text
        assert [line for line in text.splitlines() if line.startswith("  ")] == [
            *(f"  orphan {path}" for path in orphans[:5]),
            "  and 2 other orphans; `paimon-cli orphans ls` lists them",
        ]
    assert all(path.exists() for path in orphans)
    table = make_table(tmp_path / "own", COLUMNS, ["id"], options={**KEEPS_TWO})
    write(table, [{"id": 1, "n": 1}])
    assert "default" not in run("maintain", table.url, "-n", *LOCAL).out


def test_a_single_run_writes_metrics(run: Run, warehouse: str, tmp_path: Path) -> None:
    metrics = tmp_path / "m.prom"
    run("maintain", f"{warehouse}/shop.db/orders", "--metrics-file", metrics, "-y", *LOCAL)
    assert 'paimon_cli_expired_snapshots_total{table="' in (text := metrics.read_text())
    assert "} 5.0" in text and "paimon_cli_rounds_total 1.0" in text
    assert re.search(r"^paimon_cli_expired_files_total{.*} 15.0$", text, re.MULTILINE)
    run("maintain", f"{warehouse}/shop.db/returns", "--budget", "1 kb", "--metrics-file", metrics, "-y", *LOCAL, code=4)
    assert re.search(r"^paimon_cli_left_bytes{.*} [1-9]", metrics.read_text(), re.MULTILINE)


def test_the_library_has_it_too(warehouse: str) -> None:
    table = Table.open(f"{warehouse}/shop.db/orders")
    assert table.plan_maintenance().snapshots_expired == 4
    done = table.maintain(budget="1 gb")
    assert (done.buckets, done.snapshots_expired, done.findings) == (1, 5, ())
    gone = Table.open(f"{warehouse}/shop.db/returns")
    gone.drop()
    with pytest.raises(NotFound):
        gone.maintain()


class Writes(io.StringIO):
    """Keeps each write."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def write(self, text: str) -> int:
        self.texts.append(text)
        return len(text)


def test_a_line_on_stderr_is_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hooks warn in threads of their own."""
    monkeypatch.setattr(sys, "stderr", written := Writes())
    results.warn("a hook is late")
    ServiceLog(RoundLines(OutputFormat.TABLE)).say("a round")
    JsonLog(RoundLines(OutputFormat.TABLE)).warn("a hook is late")
    texts = [text for text in written.texts if text]
    assert len(texts) == 3 and all(text.endswith("\n") for text in texts)


def test_the_question_is_about_all_tables(run: Run, warehouse: str) -> None:
    for name, snapshots in (("returns", "4 snapshots"), ("orders", "4 snapshots")):
        assert f"{snapshots} past their retention" in run("maintain", f"{warehouse}/shop.db/{name}", *LOCAL, code=7).err
    answer = run("maintain", "--database", "shop", "--warehouse", warehouse, *LOCAL, code=7)
    assert "8 snapshots past their retention" in answer.err
