"""Mutation runs: a mutant takes effect wherever it is, and mutants that cannot be judged do not count as killed."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import coverage
import pytest

from scripts.mutation.judge import Verdict
from scripts.mutation.kept_verdicts import KeptVerdicts
from scripts.mutation.mutants import Mutant
from scripts.mutation.planted import planted
from scripts.mutation.reach import Reach
from scripts.mutation.session import ROOT, kill_rest
from scripts.nightly import mutations
from scripts.nightly.mutations import PLANTED, ROOMS, known_equivalents, planted_in, rooms_of, sample
from tests.mutation.examples import MUTANTS


@pytest.mark.nightly
def test_every_mutant_takes_effect(tmp_path: Path) -> None:
    program = "tests.mutation.examples"
    done = subprocess.run([sys.executable, "-m", program, str(tmp_path / "found")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "found").read_text())
    assert found == {**dict.fromkeys(MUTANTS, "killed"), "the same": "survived", "no such test": "not judged"}


def test_what_a_test_leaves_running_is_ended(tmp_path: Path) -> None:
    """Workers of a pool outlive a process that ended in the middle of a test; each took its share of the cores from then on."""
    here, elsewhere = {**os.environ, "TMPDIR": str(tmp_path)}, {**os.environ, "TMPDIR": f"{tmp_path}-2"}
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    group, other, foreign = (subprocess.Popen(sleep, env=env, start_new_session=True) for env in (elsewhere, here, elsewhere))
    try:
        kill_rest(group.pid, tmp_path)
        assert [one.wait(60) for one in (group, other)] == [-signal.SIGKILL] * 2 and foreign.poll() is None
        kill_rest(group.pid, tmp_path)
    finally:
        foreign.kill()
        foreign.wait()


def test_the_tests_that_reach_the_lines_are_run() -> None:
    data = coverage.CoverageData(no_disk=True)
    for context, lines in (("tests/lsm/a", [1, 2]), ("tests/read/b", [2]), ("tests/lsm/c", [9]), ("slow", [1])):
        data.set_context(context)
        data.add_lines({"m.py": lines})
    seconds = {"tests/lsm/a": 2.0, "tests/read/b": 1.0, "tests/lsm/c": 0.5}
    reached, outdated = (Reach(seconds, data, frozenset(changed)) for changed in ((), ("m.py",)))

    def chosen(reach: Reach, line: int, budget: float = 60) -> tuple[list[str], float]:
        return reach.tests_of(Mutant(Path("m.py"), "", "", "", "", line, line), "lsm", budget)

    assert chosen(reached, 2) == (["tests/lsm/a", "tests/read/b"], 3.0), "those of the room first"
    assert chosen(reached, 1) == (["tests/lsm/a"], 2.0), "what is too slow has no time"
    assert chosen(reached, 2, budget=2.5) == (["tests/lsm/a"], 2.0)
    every = (["tests/lsm/c", "tests/lsm/a", "tests/read/b"], 3.5)
    assert chosen(reached, 5) == every, "run by an import, if at all"
    assert chosen(outdated, 2) == every, "lines have moved"


def test_mutants_that_were_judged_equivalent_change_lines_that_exist() -> None:
    """An entry whose lines were rewritten has no effect any more."""
    gone = []
    for file, function, before, _ in known_equivalents():
        path = ROOT / file
        lines = "\n".join(line.strip() for line in path.read_text().splitlines()) if path.exists() else ""
        names = [*function.split(".")] if function else []
        if before not in lines or not all(f"class {name}" in lines or f"def {name}(" in lines for name in names):
            gone.append((file, function, before))
    assert not gone


def test_planted_bugs_can_be_planted() -> None:
    """A bug whose lines were rewritten must be planted in the new ones: `planted` raises."""
    names = [mutant.operator for mutant in planted()]
    assert len(names) == len(set(names)) >= 25


def test_a_run_goes_on_where_it_was(tmp_path: Path) -> None:
    digests = {"a::killer": "1", "": "1"}
    one, other = (Mutant(Path("m.py"), "f", "x", after, after, 1, 1) for after in "yz")

    def kept(limits: str = "60") -> KeptVerdicts:
        return KeptVerdicts(limits, tmp_path / "kept", digests.__getitem__)

    first = kept()
    assert first.find(one) is None
    first.keep(one, Verdict("killed", "a::killer", 1.0))
    first.keep(other, Verdict("survived", "a::last", 2.0))
    assert kept().find(one) == Verdict("killed", "a::killer", 1.0) and kept().find(other) == Verdict("survived", "", 2.0)
    assert kept("5").find(one) and kept("5").find(other) is None, "in less time, what survived was judged by fewer tests"
    digests[""] = "2"
    assert kept().find(one) and kept().find(other) is None, "another test may detect it"
    digests["a::killer"] = "2"
    assert kept().find(one) is None


@pytest.mark.nightly
def test_a_sample_has_all_operators_and_is_the_same_for_a_seed() -> None:
    one, again, other = (sample("options", 40, seed, "") for seed in (1, 1, 2))
    assert [mutant.key for mutant in one] == [mutant.key for mutant in again] != [mutant.key for mutant in other]
    assert len(one) == 40 and len({mutant.operator for mutant in one}) >= 15


def test_a_night_has_the_planted_bugs_of_its_rooms() -> None:
    every = planted_in(())
    assert every == list(planted()) and {bug.module.parts[1] for bug in planted_in(["lsm", "read"])} == {"lsm", "read"}
    assert sum(len(planted_in([room])) for room in {bug.module.parts[1] for bug in every}) == len(every)


def test_each_room_has_its_day() -> None:
    found = [room for day in range(700_000, 700_000 + len(ROOMS)) for room in rooms_of(day, 2)]
    assert set(found) == set(ROOMS)
    rooms = {path.parent.name for path in (ROOT / "paimon_cli").glob("*/__init__.py")}
    assert rooms - {*ROOMS} == {"lab", "spark"}


@pytest.mark.in_part(3)
@pytest.mark.parametrize(
    ("own_tests", "survived", "judged"),
    [(False, 0, [True]), (False, 2, [True, False]), (True, 2, [True])],
)
def test_only_planted_bugs_that_survive_the_tests_of_their_rooms_are_judged_by_all(
    own_tests: bool, survived: int, judged: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []
    folders: list[tuple[str, ...]] = []

    def judge_room(_: object, room: str, __: object, arguments: argparse.Namespace) -> dict[str, object]:
        asked.append(arguments.own_tests)
        return {"room": room, "survived": survived if arguments.own_tests else 1}

    monkeypatch.setattr(mutations, "judge_room", judge_room)
    monkeypatch.setattr(mutations, "measured", lambda _, __, chosen: folders.append(chosen))
    figures = mutations.judge_planted(None, argparse.Namespace(own_tests=own_tests, planted_rooms=[]))  # type: ignore[arg-type]
    assert asked == judged and figures["room"] == PLANTED and figures["survived"] == (survived if judged[-1] else 1)
    assert "tests/jobs/" in folders[0] and "tests/" not in folders[0] and folders[1:] == [("tests/",)] * (len(judged) - 1)
