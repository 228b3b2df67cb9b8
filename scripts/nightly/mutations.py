"""Changes the code in small ways, and checks whether a test detects each change.

    python -m scripts.nightly.mutations --room history --sample 60 --seed 1     # one room
    python -m scripts.nightly.mutations --sample 60                             # each room
    python -m scripts.nightly.mutations --room lsm --only universal_compaction  # one module

Prints the mutants that no test detects, a table, and a JSON line for each room. Mutants that cannot be distinguished from the
original are listed, with reasons, in scripts/mutation/equivalent.yaml. Tests that need Spark, kill processes or take more than 10
s are left out: mutants that only they would detect count as survived. The exit code is 1 if more than 8 % of a room's mutants
survive.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import yaml

from scripts.mutation.judge import Verdict, Work, judge_all
from scripts.mutation.mutants import Module, Mutant
from scripts.mutation.reach import Reach, reach
from scripts.mutation.session import ROOT, Session, say, with_tests

ROOMS = ("commit", "history", "lsm", "bucket", "compact", "maintain", "write", "storage")
EQUIVALENT = ROOT / "scripts" / "mutation" / "equivalent.yaml"
GOAL = 0.08


def sample(room: str, size: int, seed: int, only: str) -> list[Mutant]:
    """Mutants of a room, chosen with equal probability; all of them if there are fewer than `size`."""
    files = sorted((ROOT / "paimon_cli" / room).glob("**/*.py"))
    modules = [Module(ROOT, path.relative_to(ROOT)) for path in files if only in path.stem]
    candidates = [(module, number) for module in modules for number in range(len(module))]
    random.Random(f"{seed} {room}").shuffle(candidates)
    found: dict[tuple[str, ...], Mutant] = {}
    for module, number in candidates:
        mutant = module.mutant(number)
        if mutant is not None:
            found.setdefault(mutant.key, mutant)
        if len(found) == size:
            break
    return list(found.values())


def known_equivalents() -> dict[tuple[str, ...], str]:
    """Key of a mutant -> the reason why it is equivalent."""
    listed = yaml.safe_load(EQUIVALENT.read_text()) or []
    return {(one["file"], one["function"], one["before"].rstrip(), one["after"].rstrip()): one["reason"] for one in listed}


def judge_room(session: Session, room: str, known: Reach, arguments: argparse.Namespace) -> dict[str, Any]:
    """The figures of a room. Survivors are printed when they are found."""
    mutants = sample(room, arguments.sample, arguments.seed, arguments.only)
    equivalents = known_equivalents()
    to_judge = [mutant for mutant in mutants if mutant.key not in equivalents]
    begun = time.monotonic()
    counted: Counter[str] = Counter()

    def work() -> Iterator[Work]:
        for mutant in to_judge:
            tests, seconds = known.tests_of(mutant, room, arguments.budget)
            yield mutant, tests, seconds

    for mutant, verdict in judge_all(session, work(), arguments.jobs):
        counted[verdict.result] += 1
        if verdict.result in ("survived", "not judged"):
            say(as_entry(mutant, verdict))
    judged = sum(counted.values()) - counted["not judged"]
    share = counted["survived"] / judged if judged else 0.0
    return {
        "measure": "mutations",
        "room": room,
        "mutants": len(mutants),
        "killed": counted["killed"],
        "timed_out": counted["timed out"],
        "survived": counted["survived"],
        "judged_equivalent": len(mutants) - len(to_judge),
        "not_judged": counted["not judged"],
        "survived_percent": round(100 * share, 1),
        "seed": arguments.seed,
        "seconds": round(time.monotonic() - begun, 1),
    }


def as_entry(mutant: Mutant, verdict: Verdict) -> str:
    """A mutant, formatted like an entry in the list of equivalents."""
    entry = {"file": mutant.module.as_posix(), "function": mutant.function, "before": mutant.before, "after": mutant.after}
    note = f"# {verdict.result}: line {mutant.first_line}; {verdict.test or f'{verdict.seconds} s of tests'}"
    return note + "\n" + yaml.safe_dump([entry], sort_keys=False, width=1000, allow_unicode=True)


def table(figures: Sequence[dict[str, Any]]) -> str:
    columns = (
        "room",
        "mutants",
        "killed",
        "timed_out",
        "survived",
        "judged_equivalent",
        "not_judged",
        "survived_percent",
        "seconds",
    )
    rows = [[name.replace("_", " ") for name in columns], *([str(one[name]) for name in columns] for one in figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(columns))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--room", action="append", choices=ROOMS, help="repeatable; all by default")
    parser.add_argument("--only", default="", help="modules whose name contains this")
    parser.add_argument("--sample", type=int, default=60, help="mutants of each room")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--tests", action="append", default=[], help="only the tests of this folder; repeatable")
    parser.add_argument("--budget", type=float, default=60, help="seconds of tests for a mutant that none of them detects")
    parser.add_argument(
        "--any-age",
        action="store_true",
        help="if modules have changed, do not measure again which lines tests reach: assume that they reach all lines of these",
    )
    arguments = parser.parse_args()

    def judge(session: Session) -> int:
        known = reach(session, arguments.jobs, arguments.any_age)
        say(f"{len(known.seconds)} tests, without those that need Spark, kill processes or take more than 10 s")
        figures = []
        for room in arguments.room or ROOMS:
            figures.append(judge_room(session, room, known, arguments))
            say(json.dumps(figures[-1]))
        say(table(figures))
        return int(any(one["survived_percent"] > 100 * GOAL for one in figures))

    return with_tests(judge, arguments.tests)


if __name__ == "__main__":
    sys.exit(main())
