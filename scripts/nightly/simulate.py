"""The simulation at its nightly size: complete searches, a million random schedules, and a search for each planted bug.

    python -m scripts.nightly.simulate --schedules 1000000 --jobs 2
    python -m scripts.nightly.simulate --schedules 2000 --only random
    python -m scripts.nightly.simulate --part-of-the-day 24     # each 24th search, others each day, none without an end
    python -m scripts.nightly.simulate --only "one interruption" --at-most 20000 --results build/stores.jsonl

Prints a JSON line per measure and adds it to build/simulate.jsonl; prints progress on stderr, and a line to replay each schedule
that went wrong. The exit code is 1 if there is one, if a planted bug was not found, or if a search was cut by --at-most. The
searches of a part of the day are cut after 20,000 schedules, which is shown, but is no failure.

With --results each search adds a line to a file when it ends. The program leaves out the searches that the file shows as complete
and without findings, so that a long run can be continued, and scenarios that were cut can be searched with more schedules.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from pathlib import Path

from paimon_cli.lab.simulation.exploration import Result, explore, sample
from paimon_cli.lab.simulation.run import Run, replay
from scripts.nightly.pool import each
from tests.simulation import append_scenarios, kind_scenarios, rewrite_scenarios, source_scenarios, vector_scenarios
from tests.simulation.mutations import MUTATIONS
from tests.simulation.quick_metadata import quick_metadata
from tests.simulation.scenarios import ON_STORES, scenario

RESULTS = Path("build/simulate.jsonl")
PLANTED = "simulation: planted bugs"
CHUNK = 2_000
OF_A_DAY = 20_000
"""Some searches with many actors have not ended after 600,000 schedules."""
TWO_ACTORS = (
    "writer-writer",
    "writer-writer-restart",
    "twins",
    "writer-compactor",
    "compactor-compactor",
    "writer-expiry",
    "compactor-expiry",
    "expiry-expiry",
    "tag-expiry",
    "overwriter-compactor",
    "checked-writers",
    "upgrades",
    "upgrades-expiry",
    "slow-writer",
)
THREE_ACTORS = ("three-writers", "writers-compactor", "writer-compactors")
"""Scenarios that are searched completely without faults, and with one fault and two interruptions."""
BOUNDED = {"writer-compactor-expiry": 2, "writers-compactor-expiry": 1, "checked-writers-compactor": 2, "checked-counter": 2}
RESTARTS = "slow-writer-restart"
"""Two actors, one of which may crash and run again: 34 million schedules in every order, so searched with three interruptions."""
RANDOM = (*THREE_ACTORS, *BOUNDED)


@dataclass(frozen=True)
class Task:
    """A search. `schedules`, `seed`: of random ones; `switches`: limits interruptions; `faults`: None for the scenario's own;
    `at_most`: cuts complete searches, except those for planted bugs, as `may_be_cut` allows; `results`: the file that gets a line
    at the end.
    """

    measure: str
    scenario: str = ""
    schedules: int | None = None
    switches: int | None = None
    faults: int | None = None
    seed: int = 0
    at_most: int | None = None
    may_be_cut: bool = False
    results: Path | None = None

    @property
    def is_complete(self) -> bool:
        """Whether it searches through all schedules: it is not random, and does not end with a planted bug."""
        return self.schedules is None and self.measure != PLANTED

    @property
    def name(self) -> dict[str, str | int | None]:
        """What identifies the search in a file of results."""
        return {"measure": self.measure, "scenario": self.scenario, "random": self.schedules, "seed": self.seed}


@dataclass
class Measure:
    """The totals of tasks. `distinct`: the number of different random schedules."""

    measure: str
    schedules: int = 0
    ended: int = 0
    states: int = 0
    steps: int = 0
    findings: int = 0
    incomplete: int = 0
    distinct: int | None = None
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    scenarios: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Done:
    task: Task
    result: Result
    digests: tuple[int, ...]
    cpu_seconds: float


def tasks(schedules: int, vector_schedules: int, kind_schedules: int, store_schedules: int, seed: int) -> Iterator[Task]:
    """Complete searches first, since they take longest, then this many random schedules of each kind."""
    yield from _complete()
    for number in range(10):
        yield Task("simulation: same schedule twice", seed=seed + number, schedules=1_000)
    for measure, names, count in (
        ("simulation", RANDOM, schedules),
        ("vectors and changelogs", vector_scenarios.MANY_ACTORS, vector_schedules),
        (
            "kinds of buckets",
            append_scenarios.MANY_ACTORS + kind_scenarios.MANY_ACTORS + source_scenarios.MANY_ACTORS,
            kind_schedules,
        ),
        ("rewritten tables", rewrite_scenarios.MANY_ACTORS, kind_schedules),
        ("object stores", ON_STORES, store_schedules),
    ):
        for number in range(0, count, CHUNK):
            name = names[number // CHUNK % len(names)]
            yield Task(f"{measure}: random schedules", name, min(CHUNK, count - number), seed=seed + number)


def _complete() -> Iterator[Task]:
    for name in TWO_ACTORS:
        yield Task("simulation: two actors, complete", name)
    for name in vector_scenarios.TWO_ACTORS:
        yield Task("vectors and changelogs: two actors, complete", name)
    for name in (*append_scenarios.TWO_ACTORS, *kind_scenarios.TWO_ACTORS, *source_scenarios.TWO_ACTORS):
        yield Task("kinds of buckets: two actors, complete", name)
    for name in rewrite_scenarios.TWO_ACTORS:
        yield Task("rewritten tables: two actors, complete", name)
    for name in THREE_ACTORS:
        yield Task("simulation: three actors, complete without faults", name, faults=0)
        yield Task("simulation: bounded interruptions", name, switches=2, faults=1)
    for name, switches in BOUNDED.items():
        yield Task("simulation: bounded interruptions", name, switches=switches, faults=0)
    yield Task("simulation: bounded interruptions", RESTARTS, switches=3)
    for mutation in MUTATIONS:
        yield Task(PLANTED, mutation.name)
    for name in ON_STORES:
        yield Task("object stores: one interruption", name, switches=1)


def part_of(day: int, parts: int, chosen: Sequence[Task]) -> list[Task]:
    """Each of so many days has other searches, and all of them together every one; those that may have no end are cut."""
    return [
        replace(task, at_most=OF_A_DAY, may_be_cut=True) if task.is_complete else task for task in chosen[day % parts :: parts]
    ]


def carry_out(task: Task) -> Done:
    """Run a search in a worker process. It keeps nearly all objects, so garbage collection is rarely worth its time."""
    gc.set_threshold(100_000, 50, 100)
    begun, digests = time.process_time(), []
    with quick_metadata():
        if task.measure == PLANTED:
            result = find_planted(task.scenario)
        elif task.measure == "simulation: same schedule twice":
            result = twice(task.seed, task.schedules or 0)
        else:
            chosen = scenario(task.scenario)
            chosen = chosen if task.faults is None else replace(chosen, max_faults=task.faults)
            if task.schedules is None:
                result = explore(chosen, private_faults=True, max_switches=task.switches, max_schedules=task.at_most)
            else:
                result = sample(chosen, task.schedules, task.seed, on_end=lambda run: digests.append(_digest(str(run))))
                result.complete = True
    done = Done(task, result, tuple(digests), time.process_time() - begun)
    if task.results is not None:
        add_to_results(task.results, done)
    return done


def add_to_results(results: Path, done: Done) -> None:
    """Add a line; several processes may do so at the same time."""
    result = done.result
    figures = {"schedules": result.schedules, "findings": len(result.findings), "complete": result.complete}
    line = {**done.task.name, **figures, "cpu_seconds": round(done.cpu_seconds, 1)}
    with results.open("a", encoding="utf-8") as sink:
        sink.write(json.dumps(line) + "\n")


def without_finished(chosen: Sequence[Task], results: Path) -> list[Task]:
    """The searches that are not complete in the file, or that found something."""
    text = results.read_text(encoding="utf-8") if results.exists() else ""
    lines = [json.loads(line) for line in text.splitlines()]
    finished = [line.items() for line in lines if line["complete"] and not line["findings"]]
    return [task for task in chosen if not any(task.name.items() <= line for line in finished)]


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def find_planted(name: str) -> Result:
    """Search for a planted bug. If it is not found, the search counts as incomplete."""
    mutation = next(m for m in MUTATIONS if m.name == name)
    with mutation.plant():
        chosen = scenario(mutation.scenario)
        result = explore(chosen, max_schedules=20_000, max_switches=mutation.max_switches, private_faults=chosen.is_remote)
    result.complete, result.findings = bool(result.findings), []
    return result


def twice(seed: int, count: int) -> Result:
    """Run random schedules twice: the disks must be equal."""
    result, generator = Result("same schedule twice", complete=True), random.Random(seed)
    for _ in range(count):
        name = generator.choice(RANDOM)
        run = Run(scenario(name))
        while not run.is_over:
            run.take(generator.choice(run.choices() if generator.random() < 0.03 else run.calls()))
        run.discard()
        result.count(run)
        if replay(scenario(name), run.steps).disk.image() != run.disk.image():
            result.complete = False
    return result


def collect(chosen: Sequence[Task], jobs: int, keep: Callable[[Measure], None]) -> tuple[list[Measure], list[str], list[str]]:
    """The measures in the order of the tasks, lines to replay what went wrong, and tasks that did not end as they should."""
    measures: dict[str, Measure] = {}
    digests: dict[str, dict[str, set[int]]] = {}
    wrong: list[str] = []
    odd: list[str] = []
    begun = last = time.monotonic()
    for done in each(jobs, carry_out, chosen):
        task, result = done.task, done.result
        measure = measures.get(task.measure)
        if measure is None:
            for ended in list(measures.values())[-1:]:
                keep(ended)
            measure = measures[task.measure] = Measure(task.measure)
            begun = last
        last = time.monotonic()
        measure.schedules += result.schedules
        measure.ended += result.ended
        measure.states += result.states
        measure.steps += result.steps
        measure.findings += len(result.findings)
        measure.cpu_seconds = round(measure.cpu_seconds + done.cpu_seconds, 1)
        measure.seconds = round(last - begun, 1)
        if task.scenario not in measure.scenarios:
            measure.scenarios.append(task.scenario)
        if done.digests:
            of_measure = digests.setdefault(task.measure, {})
            of_measure.setdefault(task.scenario, set()).update(done.digests)
            measure.distinct = sum(map(len, of_measure.values()))
        wrong += map(str, result.findings)
        print(f"{task.measure}: {task.scenario}: {_summary(done)}; {_so_far(measure)}", file=sys.stderr, flush=True)
        if not result.complete and not result.findings:
            measure.incomplete += 1
            if not (task.may_be_cut and result.schedules == task.at_most):
                odd.append(f"{task.measure}: {task.scenario} did not end as it should")
    for ended in list(measures.values())[-1:]:
        keep(ended)
    return list(measures.values()), wrong, odd


def _summary(done: Done) -> str:
    """How a search ended. A random one has run all of its schedules, but not all that there are."""
    result = done.result
    end = "NOT COMPLETE" if not result.complete else "complete" if done.task.schedules is None else "random"
    return f"{end}, {result.schedules:,} schedules, {result.states:,} states, {done.cpu_seconds:,.1f} s of CPU"


def _so_far(measure: Measure) -> str:
    different = f", {measure.distinct:,} of them different" if measure.distinct else ""
    return f"so far {measure.schedules:,}{different}, {measure.findings} wrong"


def keep(measure: Measure) -> None:
    line = asdict(measure)
    line["scenarios"] = len(measure.scenarios)
    print(json.dumps(line), flush=True)
    RESULTS.parent.mkdir(exist_ok=True)
    with RESULTS.open("a", encoding="utf-8") as sink:
        sink.write(json.dumps({**line, "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedules", type=int, default=1_002_000, help="random schedules of three and four actors")
    parser.add_argument("--vector-schedules", type=int, default=1_000_000, help="of tables with vectors and changelogs")
    parser.add_argument("--kind-schedules", type=int, default=100_000, help="of append, postponed and dynamic tables")
    parser.add_argument("--store-schedules", type=int, default=300_000, help="of all these on an object store")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="measures whose name contains this word")
    parser.add_argument("--scenario", action="append", default=[], help="only this scenario; repeatable")
    parser.add_argument("--part-of-the-day", type=int, metavar="N", help="only each N-th search, chosen by the day")
    parser.add_argument("--day", type=int, default=date.today().toordinal(), help="its number; by default that of today")
    parser.add_argument("--at-most", type=int, metavar="N", help="cut each complete search after N schedules")
    parser.add_argument("--results", type=Path, metavar="FILE", help="add each search that ends; leave out those complete there")
    arguments = parser.parse_args()
    counts = arguments.schedules, arguments.vector_schedules, arguments.kind_schedules, arguments.store_schedules
    chosen = [task for task in tasks(*counts, arguments.seed) if arguments.only in task.measure]
    if unknown := set(arguments.scenario) - {task.scenario for task in chosen}:
        parser.error(f"no search chosen by the other options is called {', '.join(sorted(unknown))}")
    if arguments.scenario:
        chosen = [task for task in chosen if task.scenario in arguments.scenario]
    if arguments.part_of_the_day:
        chosen = part_of(arguments.day, arguments.part_of_the_day, chosen)
    if arguments.at_most:
        chosen = [replace(task, at_most=arguments.at_most, may_be_cut=False) for task in chosen]
    chosen = [replace(task, results=arguments.results) for task in chosen]
    if arguments.results:
        chosen = without_finished(chosen, arguments.results)
    _, wrong, odd = collect(chosen, arguments.jobs, keep)
    for line in (*wrong, *odd):
        print(line)
    return 1 if wrong or odd else 0


if __name__ == "__main__":
    sys.exit(main())
