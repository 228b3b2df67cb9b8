"""`make proof` goes on where it was interrupted, for the same commit. `make nightly` gives each program a share of the time."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from scripts.nightly import run_all
from scripts.nightly.run_all import Program
from tests.conftest import is_of_the_day


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
    [program] = run_all.for_a_proof(Program("soak", "m", size_option="--seconds", size=5, proof=100, minutes=1), "one")
    assert program.command(1.0)[-2:] == ["--seconds", "100"] and program.minutes == float("inf")


def test_each_test_is_run_on_one_of_the_days_that_share_them() -> None:
    tests = [f"tests/test_a.py::test_b[{number}]" for number in range(300)]
    days = [{test for test in tests if is_of_the_day(test, 3, 739951 + day)} for day in range(3)]
    assert sum(map(len, days)) == 300 and set().union(*days) == set(tests) and min(map(len, days)) > 60
    assert all(is_of_the_day(test, 1, 7) for test in tests)


def test_the_proof_of_a_random_program_is_many_nights_and_an_interruption_loses_one(commit: list[str]) -> None:
    random = Program("model", "scripts.nightly.model", size_option="--steps", size=40, proof=100, minutes=1)
    nights = run_all.for_a_proof(random, "one")
    assert [night.name for night in nights] == ["model-1", "model-2", "model-3"]
    assert [night.command(1.0)[-4:] for night in nights] == [["--steps", "40", "--seed", str(seed)] for seed in (1, 2, 3)]
    search = Program("simulate", "scripts.nightly.simulate", at_night=("--day", "1"), results_option="--results")
    [whole] = run_all.for_a_proof(search, "one")
    assert whole.command(1.0)[-2:] == ["--results", str(run_all.PASSED.with_name("simulate-one.jsonl"))]
    run_all.PASSED.write_text(json.dumps({"commit": "one", "program": "model-1", "seconds": 9}) + "\n")
    assert run_all.passed("one") == {"model-1"}


def test_each_night_is_another_one_and_can_be_repeated(commit: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for program in run_all.PROGRAMS:
        source = run_all.ROOT / f"{program.module.replace('.', '/')}.py"
        takes_seeds = source.exists() and '"--seed"' in source.read_text()
        assert ("--seed" in replace(program, seed=7).command(1.0)) == takes_seeds, program.name
        parts = run_all.for_a_proof(program, "one")
        assert len({tuple(part.command(1.0)) for part in parts}) == len(parts)
        assert not any("--day" in part.command(1.0) for part in parts)
        takes_a_day = (takes_seeds and '"--day"' in source.read_text()) or program.name == "pytest"
        assert ("--day" in replace(program, seed=7).command(1.0)) == takes_a_day, program.name
    begun: list[Program] = []

    def run(programs: list[Program], *_: object) -> list[run_all.Started]:
        begun.extend(programs)
        return []

    monkeypatch.setattr(run_all, "run", run)
    monkeypatch.setattr(run_all, "RESULTS", run_all.ROOT / "build" / "none.json")
    monkeypatch.setattr(sys, "argv", ["run_all", "--only", "model", "--seed", "12"])
    run_all.main()
    assert [program.command(1.0)[-2:] for program in begun] == [["--seed", "12"]]


def test_a_program_that_takes_too_long_is_ended_and_the_others_go_on(commit: list[str]) -> None:
    endless = Program("endless", "timeit", ("-n", "1", "-r", "1", "while True: pass"), cores=2, minutes=1)
    bad, good = Program("bad", "no_such_module", minutes=9), Program("good", "timeit", ("-n", "1", "pass"), minutes=9)
    ended = run_all.run([endless, bad, good], cores=2, minutes=0.5, scale=1.0)
    assert [(one.program.name, one.result) for one in ended if one.program is endless] == [("endless", "out of time")]
    assert {one.program.name: one.result for one in ended[1:]} == {"bad": "exit code 1", "good": "ok"}
    assert ended[0].seconds < 10, "its share is a tenth of the time"


def test_shares_use_up_the_time_and_what_one_leaves_over_goes_to_the_others() -> None:
    long, short, single = (
        Program("long", "m", minutes=30, cores=2),
        Program("short", "m", minutes=10, cores=2),
        Program("s", "m", minutes=20),
    )
    assert run_all.share(long, [short, single], 2, 100.0) == 60.0
    assert run_all.share(short, [single], 2, 100.0) == 50.0
    assert run_all.share(single, [], 2, 7.0) == 7.0
    assert run_all.share(long, [short], 2, float("inf")) == float("inf")
    everything = [program for program in run_all.PROGRAMS if program.is_there]
    assert len(everything) == len(run_all.PROGRAMS) and all(program.minutes > 0 for program in everything)
