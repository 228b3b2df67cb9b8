"""`scripts/nightly/simulate.py`: a search that was cut or killed can be continued, and schedules that differ are reported."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from paimon_cli.lab.simulation.exploration import FailedSchedule, Result
from scripts.nightly import simulate
from scripts.nightly.simulate import Done, Task, add_to_results, without_finished

SEARCH = Task("object stores: one interruption", "remote-twins", switches=1)
RANDOM = Task("object stores: random schedules", "remote-twins", schedules=100, seed=1)


def done(task: Task, *, complete: bool = True) -> Done:
    return Done(task, Result(task.scenario, schedules=7, complete=complete), (), 0.5)


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    options = ["--only", "one interruption", "--scenario", "remote-locked-writers", "--jobs", "1", *arguments]
    monkeypatch.setattr(sys, "argv", ["simulate", *options])
    return simulate.main()


def read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def test_a_search_that_was_cut_is_run_again_and_one_that_is_complete_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulate, "RESULTS", tmp_path / "measures.jsonl")
    results = tmp_path / "results.jsonl"
    assert run(monkeypatch, "--at-most", "5", "--results", str(results)) == 1, "the search was cut"
    (cut,) = read(results)
    assert (cut["scenario"], cut["schedules"], cut["findings"]) == ("remote-locked-writers", 5, 0) and not cut["complete"]

    add_to_results(results, done(Task(cut["measure"], cut["scenario"])))
    assert run(monkeypatch, "--results", str(results)) == 0
    assert len(read(results)) == 2, "nothing was searched again"


def test_searches_are_left_out_only_if_they_are_the_same_and_found_nothing(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    more = [Task(RANDOM.measure, RANDOM.scenario, schedules=200, seed=1), Task(RANDOM.measure, RANDOM.scenario, 100, seed=2)]
    found = Result("remote-twins", schedules=3, complete=True)
    found.findings = [FailedSchedule("remote-twins", "0,1", ("a lost row",))]
    add_to_results(file, Done(SEARCH, found, (), 0.1))
    add_to_results(file, done(RANDOM))
    assert without_finished([SEARCH, RANDOM, *more], file) == [SEARCH, *more]
    add_to_results(file, done(SEARCH))
    assert without_finished([SEARCH, RANDOM, *more], file) == more


def test_an_unknown_scenario_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run(monkeypatch, "--scenario", "remote-twin")
    assert "remote-twin" in capsys.readouterr().err


def test_schedules_that_end_differently_the_second_time_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Task("simulation: same schedule twice", seed=1, schedules=10)
    monkeypatch.setattr(simulate, "each", lambda *arguments: iter([done(task, complete=False)]))
    _, _, odd = simulate.collect([task], 1, lambda measure: None)
    assert len(odd) == 1


def test_the_parts_of_some_days_are_all_searches() -> None:
    chosen = [Task(SEARCH.measure, str(number)) for number in range(10)]
    parts = [simulate.part_of(day, 3, chosen) for day in range(100, 103)]
    assert sorted(map(len, parts)) == [3, 3, 4]
    assert sorted(int(task.scenario) for part in parts for task in part) == [*range(10)]
    bounded = [Task(simulate.PLANTED, "a bug"), Task(RANDOM.measure, RANDOM.scenario, schedules=9)]
    assert simulate.part_of(0, 1, bounded) == bounded, "a planted bug that is not found is no search that was cut"


def test_searches_of_a_day_may_be_cut(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(simulate, "RESULTS", tmp_path / "measures.jsonl")
    monkeypatch.setattr(simulate, "OF_A_DAY", 5)
    assert run(monkeypatch, "--part-of-the-day", "1", "--results", str(tmp_path / "results")) == 0
    assert not read(tmp_path / "results")[0]["complete"], "it is told, and searched again"
    assert run(monkeypatch, "--part-of-the-day", "1", "--at-most", "6") == 1, "here it was asked for"
