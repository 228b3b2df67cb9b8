"""`make proof` goes on where it was interrupted, for the same commit only."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts.nightly import run_all
from scripts.nightly.run_all import Program


@pytest.fixture
def commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    current = ["one"]
    for name in ("RESULTS", "PASSED", "LOGS"):
        monkeypatch.setattr(run_all, name, tmp_path / name.lower())
    monkeypatch.setattr(run_all, "checked_out", lambda: current[0])
    return current


def test_what_has_passed_is_not_run_again(commit: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = Program("good", "timeit", ("-n", "1", "pass")), Program("bad", "no_such_module")
    assert [started.result for started in run_all.prove([good, bad], 1)] == ["ok", "exit code 1"]
    assert [started.program.name for started in run_all.prove([good, bad], 1)] == ["bad"]
    assert "good: has passed before" in capsys.readouterr().out
    commit[0] = "two"
    assert [started.program.name for started in run_all.prove([good], 1)] == ["good"]
    lines = [json.loads(line) for line in run_all.PASSED.read_text().splitlines()]
    assert [(line["commit"], line["program"]) for line in lines] == [("one", "good"), ("two", "good")]


def test_a_proof_has_its_own_sizes_and_no_limit_of_time() -> None:
    program = run_all.for_a_proof(Program("model", "m", size_option="--steps", size=5, proof=100, minutes=1))
    assert program.command(1.0)[-2:] == ["--steps", "100"] and program.minutes == float("inf")
