"""Functions of all kinds that mutation runs change, and a program that judges a mutant of each: see `test_judge`."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from scripts.mutation.judge import judge_all
from scripts.mutation.mutants import Mutant
from scripts.mutation.session import Session, with_tests

TESTS = "tests/mutation/test_examples.py"


@dataclass(frozen=True)
class Login:
    user: str
    password: str = field(default="", repr=False)


def plain(number: int) -> int:
    return number + 1


@functools.cache
def cached(number: int) -> int:
    return number + 2


def above(limit: int) -> Callable[[int], bool]:
    def is_above(number: int) -> bool:
        return number > limit

    return is_above


def words(text: str) -> list[str]:
    return text.split()


is_large = above(100)
COLOURS = words("red green")
MUTANTS = {
    "function": ("plain", "number + 1", "number - 1"),
    "the same": ("plain", "number + 1", "1 + number"),
    "decorated function": ("cached", "number + 2", "number + 3"),
    "other free variables": ("above", "number > limit", "number > 0"),
    "run by the import": ("words", "text.split()", "[text]"),
    "field of a class": ("Login", "repr=False", "repr=True"),
}


def judge_examples(session: Session) -> int:
    """Prints the results by name of the mutant, including `no such test`, which cannot be judged."""
    path = Path(__file__).relative_to(Path.cwd())
    source = path.read_text()
    tests = [test for test in session.items if test.startswith(TESTS)]
    work = []
    for function, before, after in [*MUTANTS.values(), ("", "import functools", "import functools  # as it was")]:
        code = source.replace(before, after, 1)
        chosen = tests if "as it was" not in after else ["tests/mutation/test_examples.py::no_such_test"]
        work.append((Mutant(path, function, before, after, code, 1, 1), chosen, 5.0))
    results = {(mutant.before, mutant.after): verdict.result for mutant, verdict in judge_all(session, work, 3)}
    named = {name: results.pop((before, after)) for name, (_, before, after) in MUTANTS.items()}
    Path(sys.argv[1]).write_text(json.dumps(named | dict(zip(["no such test"], results.values(), strict=True))))
    return 0


if __name__ == "__main__":
    sys.exit(with_tests(judge_examples, ["mutation/test_examples"]))
