"""Changes the code in small ways, and checks whether a test detects each change.

    python -m scripts.nightly.mutations --room history --sample 60 --seed 1     # one room
    python -m scripts.nightly.mutations --sample 60                             # each room
    python -m scripts.nightly.mutations --rooms-of-the-day 2                    # two rooms, with their planted bugs, others daily
    python -m scripts.nightly.mutations --room lsm --only universal_compaction  # one module
    python -m scripts.nightly.mutations --own-tests                             # quicker: each room by its own tests only
    python -m scripts.nightly.mutations --planted                               # the bugs of scripts/mutation/planted.yaml
    python -m scripts.nightly.mutations --planted --own-tests                   # quicker, likewise

Each mutant is judged by the tests that reach its line, those of its room first, then the others. Planted bugs are judged by the
tests of their rooms, and only what survives these by all tests. Prints the mutants that no test detects, a table, and a JSON line
for each room. Mutants that cannot be distinguished from the original are listed, with reasons, in
scripts/mutation/equivalent.yaml. Tests that need Spark, kill processes or take more than 10 s are left out: mutants that only
they would detect count as survived. Verdicts are kept, so an interrupted run goes on where it was. After a run with --own-tests,
one with all tests judges only the survivors again. The exit code is 1 if more than 8 % of a room's mutants survive, or any
planted bug.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from typing import Any

import yaml

from scripts.mutation.judge import Verdict, Work, judge_all
from scripts.mutation.kept_verdicts import KeptVerdicts
from scripts.mutation.mutants import Module, Mutant
from scripts.mutation.planted import planted
from scripts.mutation.reach import Reach, reach
from scripts.mutation.session import ROOT, Session, say, with_tests

ROOMS = (
    *("commit", "history", "lsm", "bucket", "compact", "maintain", "write", "storage", "jobs", "read", "metadata"),
    *("invariants", "catalog", "api", "ingest", "inspect", "datatypes", "sql", "options", "requests", "cli"),
)
"""All but the room `lab`, which is itself a test, and `spark`, all of whose tests need Spark."""
PLANTED = "planted bugs"
EQUIVALENT = ROOT / "scripts" / "mutation" / "equivalent.yaml"
GOAL = 0.08


def sample(room: str, size: int, seed: int, only: str) -> list[Mutant]:
    """Mutants of a room, equally many of each operator, else arguments left out would be half of them; all if there are fewer."""
    files = sorted((ROOT / "paimon_cli" / room).glob("**/*.py"))
    modules = [Module(ROOT, path.relative_to(ROOT)) for path in files if only in path.stem]
    candidates = [(module, number) for module in modules for number in range(len(module))]
    random.Random(f"{seed} {room}").shuffle(candidates)
    by_operator: dict[str, list[tuple[Module, int]]] = {}
    for module, number in candidates:
        by_operator.setdefault(module.operators[number], []).append((module, number))
    found: dict[tuple[str, ...], Mutant] = {}
    for module, number in _in_turn([*by_operator.values()]):
        mutant = module.mutant(number)
        if mutant is not None:
            found.setdefault(mutant.key, mutant)
        if len(found) == size:
            break
    return list(found.values())


def _in_turn(lists: Sequence[Sequence[Any]]) -> Iterator[Any]:
    """The first item of each list, then the second ones."""
    for place in range(max(map(len, lists), default=0)):
        yield from (items[place] for items in lists if place < len(items))


def rooms_of(day: int, count: int) -> list[str]:
    """The number of rooms; each gets its turn after some days."""
    return [ROOMS[(day * count + place) % len(ROOMS)] for place in range(count)]


def known_equivalents() -> dict[tuple[str, ...], str]:
    """Key of a mutant -> the reason why it is equivalent."""
    listed = yaml.safe_load(EQUIVALENT.read_text()) or []
    return {(one["file"], one["function"], one["before"].rstrip(), one["after"].rstrip()): one["reason"] for one in listed}


def planted_in(rooms: Sequence[str]) -> list[Mutant]:
    """The planted bugs of these rooms; of all rooms if none is named."""
    return [bug for bug in planted() if not rooms or bug.module.parts[1] in rooms]


def judge_planted(session: Session, arguments: argparse.Namespace) -> dict[str, Any]:
    """The figures of the planted bugs, which the tests of their rooms judge first, and only what survives these all tests."""
    folders = tuple(f"tests/{room}/" for room in sorted({bug.module.parts[1] for bug in planted_in(arguments.planted_rooms)}))
    own = argparse.Namespace(**{**vars(arguments), "own_tests": True})
    figures = judge_room(session, PLANTED, measured(session, arguments, folders), own)
    if arguments.own_tests or not figures["survived"]:
        return figures
    return judge_room(session, PLANTED, measured(session, arguments, ("tests/",)), arguments)


def measured(session: Session, arguments: argparse.Namespace, folders: tuple[str, ...]) -> Reach:
    known = reach(session, arguments.jobs, arguments.any_age, folders)
    say(f"{len(known.seconds)} tests, without those that need Spark, kill processes or take more than 10 s")
    return known


def judge_room(session: Session, room: str, known: Reach, arguments: argparse.Namespace) -> dict[str, Any]:
    """The figures of a room. Survivors are printed when they are found."""
    mutants = (
        planted_in(arguments.planted_rooms) if room == PLANTED else sample(room, arguments.sample, arguments.seed, arguments.only)
    )
    equivalents = known_equivalents()
    to_judge = [mutant for mutant in mutants if mutant.key not in equivalents]
    begun = time.monotonic()
    counted: Counter[str] = Counter()
    kept = KeptVerdicts(f"{arguments.budget} {arguments.tests}{' own' * arguments.own_tests}")
    for mutant, verdict in _verdicts(session, to_judge, known, kept, arguments):
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


def _verdicts(
    session: Session, mutants: Iterable[Mutant], known: Reach, kept: KeptVerdicts, arguments: argparse.Namespace
) -> Iterator[tuple[Mutant, Verdict]]:
    """Those that are known first."""
    to_judge: list[Mutant] = []
    for mutant in mutants:
        verdict = kept.find(mutant)
        if verdict is None:
            to_judge.append(mutant)
        else:
            yield mutant, verdict

    def work() -> Iterator[Work]:
        for mutant in to_judge:
            tests, seconds = known.tests_of(mutant, mutant.module.parts[1], arguments.budget)
            yield mutant, tests, seconds

    for mutant, verdict in judge_all(session, work(), arguments.jobs):
        if verdict.result != "not judged":
            kept.keep(mutant, verdict)
        yield mutant, verdict


def as_entry(mutant: Mutant, verdict: Verdict) -> str:
    """A mutant, formatted like an entry in the list of equivalents."""
    entry = {"file": mutant.module.as_posix(), "function": mutant.function, "before": mutant.before, "after": mutant.after}
    note = f"# {verdict.result}: {mutant.operator}, line {mutant.first_line}; {verdict.test or f'{verdict.seconds} s of tests'}"
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
    parser.add_argument("--rooms-of-the-day", type=int, metavar="N", help="N rooms, chosen by the date, and their planted bugs")
    parser.add_argument("--day", type=int, default=date.today().toordinal(), help="its number; by default that of today")
    parser.add_argument("--planted", action="store_true", help="only the planted bugs")
    parser.add_argument("--only", default="", help="modules whose name contains this")
    parser.add_argument("--sample", type=int, default=60, help="mutants of each room")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--tests", action="append", default=[], help="only the tests of this folder; repeatable")
    parser.add_argument("--own-tests", action="store_true", help="only the tests of the mutant's room")
    parser.add_argument("--budget", type=float, default=60, help="seconds of tests for a mutant that none of them detects")
    parser.add_argument(
        "--any-age",
        action="store_true",
        help="if modules have changed, do not measure again which lines tests reach: assume that they reach all lines of these",
    )
    parser.set_defaults(planted_rooms=())
    arguments = parser.parse_args()
    rooms = [*(arguments.room or ROOMS), *([] if arguments.room or arguments.own_tests else [PLANTED])]
    if arguments.rooms_of_the_day:
        arguments.planted_rooms = rooms_of(arguments.day, arguments.rooms_of_the_day)
        rooms = [*arguments.planted_rooms, PLANTED]
    elif arguments.planted:
        rooms = [PLANTED]
    of_planted = {bug.module.parts[1] for bug in planted_in(arguments.planted_rooms)} if PLANTED in rooms else set[str]()
    own = sorted({*rooms} - {PLANTED} | of_planted)

    def judge(session: Session) -> int:
        figures, known = [], None
        for room in rooms:
            if room == PLANTED:
                figures.append(judge_planted(session, arguments))
            else:
                if known is None or arguments.own_tests:
                    known = measured(session, arguments, (f"tests/{room}/" if arguments.own_tests else "tests/",))
                figures.append(judge_room(session, room, known, arguments))
            say(json.dumps(figures[-1]))
        say(table(figures))
        return int(any(one["survived_percent"] > (0 if one["room"] == PLANTED else 100 * GOAL) for one in figures))

    return with_tests(judge, own if arguments.own_tests else arguments.tests)


if __name__ == "__main__":
    sys.exit(main())
