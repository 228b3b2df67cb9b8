"""`simulate` from the command line: a table's history, a described workload, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.calling import Run
from tests.tables import compact, data_files, make_table, write

TRIGGER_3 = "num-sorted-run.compaction-trigger=3"


def test_a_history_is_replayed_and_nothing_is_touched(run: Run, tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL", "n": "INT"}, ["k"], options={"write-only": "true"})
    for number in range(8):
        write(context, [{"k": k, "n": number} for k in range(number, 50)])
        if number == 4:
            compact(context)
    before, snapshot = data_files(context), context.snapshots.latest_id()
    answer = run("simulate", tmp_path / "t", "--set", TRIGGER_3, "--compare", "-o", "json").json
    assert answer["kind"] == "CompactionSimulation"
    as_is, changed, *others = answer["items"]
    assert (as_is["scenario"], changed["scenario"], changed["options"]) == ("as is", TRIGGER_3, dict([TRIGGER_3.split("=")]))
    assert len(others) == 4 and all(TRIGGER_3.split("=")[0] in item["options"] for item in others)
    assert as_is["commits"] == 7 and as_is["most_runs"] == 5
    assert changed["read_amplification"] < as_is["read_amplification"]
    assert changed["compactions"] > as_is["compactions"] > 0
    assert (data_files(context), context.snapshots.latest_id()) == (before, snapshot)


def test_a_described_workload(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "w.json"
    file.write_text(json.dumps({"commits": 30, "rows": 20, "update_ratio": 0.5}))
    (item,) = run("simulate", "--workload", file, "--rows", 10, "--compact-every", 40, "-o", "json").json["items"]
    assert (item["commits"], item["flushed_bytes"] <= 30 * 10 * 100) == (30, True)
    assert item["stalls"] > 0
    text = run("simulate", "--commits", 10, "--rows", 5, "--set", TRIGGER_3).out
    assert "Write amp" in text and TRIGGER_3 in text


def test_what_cannot_be_simulated(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "w.json"
    for content in ("[1]", "{", '{"speed": 1}', '{"rows": 1.5}', '{"rows": 0}', '{"update_ratio": 2}', '{"rows": 1000000000}'):
        file.write_text(content)
        run("simulate", "--workload", file, code=2)
    run("simulate", code=2)
    assert f"no file {tmp_path}/none.json" in run("simulate", "--workload", tmp_path / "none.json", code=3).err
    for command in (["simulate", "--workload"], ["create", tmp_path / "t", "--ddl"], ["create", tmp_path / "t", "--schema"]):
        said = run(*command, tmp_path, code=2).err
        assert "Is a directory" in said and "Errno" not in said
    run("simulate", "--commits", 5, "--set", "num-sorted-run.compaction-trigger=many", code=2)
    assert "did you mean" in run("simulate", "--commits", 5, "--set", "num-sorted-run.compaction-triger=2", code=2).err
    run("simulate", tmp_path / "none", code=3)


def test_progress_is_reported_commit_by_commit(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    reports: list[object] = []

    class Listener:
        def start(self, description: str, total: int | None) -> None:
            reports.append((description, total))

        def advance(self, n: int = 1) -> None:
            reports.append(n)

        def finish(self) -> None:
            reports.append("finished")

    monkeypatch.setattr("paimon_cli.cli.command.progress_on_stderr", Listener)
    run("simulate", "--commits", 3, "--rows", 5, "--set", TRIGGER_3, "-o", "json")
    made = [("Generating commits", 3), 1, 1, 1]
    as_is = [("Simulating, 1 of 2", 3), 1, 1, 1]
    assert reports == [*made, *as_is, ("Simulating, 2 of 2", 3), 1, 1, 1, "finished"]
