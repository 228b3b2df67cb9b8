"""Mutation runs: a mutant takes effect wherever it is, and mutants that cannot be judged do not count as killed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import coverage

from scripts.mutation.mutants import Mutant
from scripts.mutation.reach import Reach
from scripts.mutation.session import ROOT
from scripts.nightly.mutations import known_equivalents
from tests.mutation.examples import MUTANTS


def test_every_mutant_takes_effect(tmp_path: Path) -> None:
    program = "tests.mutation.examples"
    done = subprocess.run([sys.executable, "-m", program, str(tmp_path / "found")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "found").read_text())
    assert found == {**dict.fromkeys(MUTANTS, "killed"), "the same": "survived", "no such test": "not judged"}


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
