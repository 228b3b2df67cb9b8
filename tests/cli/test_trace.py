"""`--trace`: what a write, a compaction and a commit did, in their order, for people and for programs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paimon_cli.history.table_context import TableContext
from paimon_cli.lab.lab_table import LabRandom
from paimon_cli.storage.injected import Step, StepTrace
from tests.cli.calling import Run
from tests.commit.commit_tables import SteppingClock
from tests.rivals import RivalStorage
from tests.tables import compact, data_files, make_table, write

COLUMNS = {"k": "INT NOT NULL", "v": "STRING"}
COMMIT = ["check", "manifest", "manifest_list", "manifest_list", "snapshot", "hint"]


def traced(context: TableContext) -> tuple[TableContext, list[Step]]:
    steps: list[Step] = []
    clock = SteppingClock()
    trace = StepTrace(clock, steps.append)
    return replace(context, trace=trace, clock=clock, random=LabRandom(1), read_threads=1), steps


def test_a_write_with_its_compaction_step_by_step(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["k"])
    for number in range(4):
        write(context, [{"k": k, "v": f"{number}"} for k in range(10)])
    watched, steps = traced(context)
    write(watched, [{"k": k, "v": "new"} for k in range(10)])
    assert [step.name for step in steps] == ["flush", "pick", "rewrite", "write", *COMMIT, *COMMIT]
    facts = {step.name: step.facts for step in steps[:4]}
    (flushed,) = facts["flush"]["files"]
    assert facts["flush"] == {
        "bucket": "bucket-0",
        "reason": "no more rows",
        "level": 0,
        "files": [flushed],
        "rows": 10,
        "bytes": (tmp_path / "t" / "bucket-0" / flushed).stat().st_size,
    }
    assert (facts["pick"]["runs"], facts["pick"]["picked"], facts["pick"]["level"]) == (5, True, 5)
    assert flushed in facts["pick"]["files"] and len(facts["pick"]["files"]) == 5
    assert sorted(facts["rewrite"]["input_files"]) == sorted(facts["pick"]["files"])
    (made,) = facts["rewrite"]["output_files"]
    assert (facts["rewrite"]["input_rows"], facts["rewrite"]["output_rows"]) == (50, 10)
    assert {f"bucket-0/{flushed}", f"bucket-0/{made}"} <= data_files(context)
    named = [step.facts["file"] for step in steps[4:] if "file" in step.facts and step.name != "hint"]
    there = {path.name for folder in ("manifest", "snapshot") for path in (tmp_path / "t" / folder).iterdir()}
    assert len(named) == 8 and set(named) <= there
    assert [step.facts["outcome"] for step in steps if step.name == "snapshot"] == ["created", "created"]
    assert [(s.facts["kind"], s.facts["latest"]) for s in steps if s.name == "check"] == [("APPEND", 4), ("COMPACT", 5)]


def test_the_same_work_leaves_the_same_trace(tmp_path: Path) -> None:
    found = []
    for name in ("a", "b"):
        options = {"write-buffer-size": "4 kb", "write-buffer-spillable": "false"}
        watched, steps = traced(make_table(tmp_path / name, COLUMNS, ["k"], bucket=2, options=options))
        write(watched, [{"k": k % 300, "v": f"{k}"} for k in range(4000)], compact="async")
        compact(watched)
        found.append(steps)
    assert found[0] == found[1]
    names = [step.name for step in found[0]]
    assert names.count("flush") > 10 and {"pick", "rewrite", "write"} <= set(names)


def test_attempts_are_traced_one_by_one(tmp_path: Path) -> None:
    """The second uses the delta manifests of the first: only the base list and the snapshot are new."""
    context = make_table(tmp_path / "t", COLUMNS, ["k"])
    watched, steps = traced(replace(context, storage=RivalStorage(lambda: write(context, [{"k": 1, "v": "rival"}]))))
    write(watched, [{"k": 2, "v": "mine"}])
    lost, won = (
        ["check", "manifest", "manifest_list", "manifest_list", "snapshot"],
        ["check", "manifest_list", "snapshot", "hint"],
    )
    assert [step.name for step in steps] == ["flush", "pick", "write", *lost, "discard", "wait", *won]
    assert [step.facts["outcome"] for step in steps if step.name == "snapshot"] == ["exists", "created"]
    assert [step.facts["attempt"] for step in steps if step.name == "check"] == [1, 2]


def test_text_on_stderr_with_times_and_a_sum(run: Run, tmp_path: Path) -> None:
    table, source = tmp_path / "t", tmp_path / "in.csv"
    source.write_text("k,v\n1,a\n2,b\n")
    make_table(table, COLUMNS, ["k"])
    answer = run("write", table, source, "--engine", "local", "--trace")
    assert answer.out.startswith("snapshot 1: 2 rows")
    lines = [line for line in answer.err.splitlines() if line.startswith("trace ")]
    assert [line.split()[2] for line in lines] == ["flush", "pick", "write", *COMMIT, "end"]
    seconds = [float(line.split()[1].removesuffix("s")) for line in lines]
    assert seconds == sorted(seconds)
    assert 'reason="no more rows" level=0 files=data-' in lines[0]
    assert "snapshot=1" in lines[-1] and "flush=1" in lines[-1]
    assert "trace" not in run("write", table, source, "--engine", "local").err


def test_lines_of_json_where_the_output_is_json(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, source = tmp_path / "t", tmp_path / "in.csv"
    source.write_text("k,v\n1,a\n2,b\n")
    make_table(table, COLUMNS, ["k"])
    monkeypatch.setenv("PAIMON_CLI_TRACE", "1")
    answer = run("write", table, source, "--engine", "local", "-o", "json")
    steps: list[dict[str, Any]] = [json.loads(line) for line in answer.err.splitlines()]
    assert [step["trace"] for step in steps] == ["flush", "pick", "write", *COMMIT, "end"]
    assert steps[0]["rows"] == 2 and steps[0]["files"][0].startswith("data-")
    assert answer.json["item"]["rows"] == 2
    compacted = run("compact", table, "--engine", "local", "-o", "ndjson")
    steps = [json.loads(line) for line in compacted.err.splitlines() if line.startswith('{"trace"')]
    assert [step["trace"] for step in steps][:2] == ["pick", "upgrade"]


def test_a_failure_has_its_steps_and_its_traceback(run: Run, tmp_path: Path) -> None:
    table, source = tmp_path / "t", tmp_path / "in.csv"
    make_table(table, COLUMNS, ["k"])
    source.write_text("k,v\n,a\n")
    answer = run("write", table, source, "--engine", "local", "--trace", code=None)
    assert answer.code == 2
    assert "failed=BadInput" in answer.err and "Traceback" in answer.err and "error: " in answer.err
