"""The simulation at its nightly size: complete searches, a million random schedules, and a search for each planted bug.

    python -m scripts.nightly.simulate --schedules 1000000 --jobs 2
    python -m scripts.nightly.simulate --schedules 2000 --only random

Prints a JSON line per measure and adds it to build/simulate.jsonl; prints progress on stderr, and a line to replay each schedule
that went wrong. The exit code is 1 if there is one, or if a planted bug was not found.
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
from pathlib import Path

from paimon_cli.lab.simulation.exploration import Result, explore, sample
from paimon_cli.lab.simulation.run import Run, replay
from scripts.nightly.pool import each
from tests.simulation import append_scenarios, kind_scenarios, vector_scenarios
from tests.simulation.mutations import MUTATIONS
from tests.simulation.quick_metadata import quick_metadata
from tests.simulation.scenarios import ON_STORES, scenario

RESULTS = Path("build/simulate.jsonl")
CHUNK = 2_000
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
    "slow-writer-restart",
)
THREE_ACTORS = ("three-writers", "writers-compactor", "writer-compactors")
"""Scenarios that are searched completely without faults, and with one fault and two interruptions."""
BOUNDED = {"writer-compactor-expiry": 2, "writers-compactor-expiry": 1, "checked-writers-compactor": 2, "checked-counter": 2}
RANDOM = (*THREE_ACTORS, *BOUNDED)


@dataclass(frozen=True)
class Task:
    """A search. `schedules`, `seed`: of random ones; `switches`: limits interruptions; `faults`: None for the scenario's own."""

    measure: str
    scenario: str = ""
    schedules: int | None = None
    switches: int | None = None
    faults: int | None = None
    seed: int = 0


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
    for name in TWO_ACTORS:
        yield Task("simulation: two actors, complete", name)
    for name in vector_scenarios.TWO_ACTORS:
        yield Task("vectors and changelogs: two actors, complete", name)
    for name in (*append_scenarios.TWO_ACTORS, *kind_scenarios.TWO_ACTORS):
        yield Task("kinds of buckets: two actors, complete", name)
    for name in THREE_ACTORS:
        yield Task("simulation: three actors, complete without faults", name, faults=0)
        yield Task("simulation: bounded interruptions", name, switches=2, faults=1)
    for name, switches in BOUNDED.items():
        yield Task("simulation: bounded interruptions", name, switches=switches, faults=0)
    for mutation in MUTATIONS:
        yield Task("simulation: planted bugs", mutation.name)
    for name in ON_STORES:
        yield Task("object stores: one interruption", name, switches=1)
    for number in range(10):
        yield Task("simulation: same schedule twice", seed=seed + number, schedules=1_000)
    for number in range(0, schedules, CHUNK):
        name = RANDOM[number // CHUNK % len(RANDOM)]
        yield Task("simulation: random schedules", name, min(CHUNK, schedules - number), seed=seed + number)
    for measure, names, count in (
        ("vectors and changelogs", vector_scenarios.MANY_ACTORS, vector_schedules),
        ("kinds of buckets", append_scenarios.MANY_ACTORS + kind_scenarios.MANY_ACTORS, kind_schedules),
        ("object stores", ON_STORES, store_schedules),
    ):
        for number in range(0, count, CHUNK):
            name = names[number // CHUNK % len(names)]
            yield Task(f"{measure}: random schedules", name, min(CHUNK, count - number), seed=seed + number)


def carry_out(task: Task) -> Done:
    """Run a search in a worker process. It keeps nearly all objects, so garbage collection is rarely worth its time."""
    gc.set_threshold(100_000, 50, 100)
    begun, digests = time.process_time(), []
    with quick_metadata():
        if task.measure == "simulation: planted bugs":
            result = find_planted(task.scenario)
        elif task.measure == "simulation: same schedule twice":
            result = twice(task.seed, task.schedules or 0)
        else:
            chosen = scenario(task.scenario)
            chosen = chosen if task.faults is None else replace(chosen, max_faults=task.faults)
            if task.schedules is None:
                result = explore(chosen, private_faults=True, max_switches=task.switches)
            else:
                result = sample(chosen, task.schedules, task.seed, on_end=lambda run: digests.append(_digest(str(run))))
    return Done(task, result, tuple(digests), time.process_time() - begun)


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
    digests: dict[str, set[int]] = {}
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
            digests.setdefault(task.scenario, set()).update(done.digests)
            measure.distinct = sum(map(len, digests.values()))
        wrong += map(str, result.findings)
        print(f"{task.measure}: {task.scenario}: {_summary(done)}; {_so_far(measure)}", file=sys.stderr, flush=True)
        if task.schedules is None and not result.complete and not result.findings:
            measure.incomplete += 1
            odd.append(f"{task.measure}: {task.scenario} did not end as it should")
    for ended in list(measures.values())[-1:]:
        keep(ended)
    return list(measures.values()), wrong, odd


def _summary(done: Done) -> str:
    """How a search ended. A random one is never complete."""
    result = done.result
    end = "random" if done.task.schedules is not None else "complete" if result.complete else "NOT COMPLETE"
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
    arguments = parser.parse_args()
    counts = arguments.schedules, arguments.vector_schedules, arguments.kind_schedules, arguments.store_schedules
    chosen = [task for task in tasks(*counts, arguments.seed) if arguments.only in task.measure]
    _, wrong, odd = collect(chosen, arguments.jobs, keep)
    for line in (*wrong, *odd):
        print(line)
    return 1 if wrong or odd else 0


if __name__ == "__main__":
    sys.exit(main())
