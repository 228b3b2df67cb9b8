"""Compares two ways to do the same thing, which take turns in one process: absolute times mean little on a shared machine.

A program creates `Comparison`s and calls `report`, which prints a line of text and a JSON line for each.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa

from paimon_cli.processor import VARIABLE, processor_name

MIN_ROUNDS = 5
MACHINE = {
    "cpus": os.cpu_count(),
    "machine": platform.machine(),
    "processor": processor_name(),
    "without": os.environ.get(VARIABLE, ""),
    "python": platform.python_version(),
    "pyarrow": pa.__version__,
}


@dataclass(frozen=True)
class Comparison:
    """The comparison of `subject` with `floor`. `goal`: the maximum ratio of subject to floor; None for no goal.

    Each call does the whole work; `reset` runs before each, unmeasured. `cpu_seconds`: the CPU time so far, including other
    processes if they do the work.
    """

    name: str
    subject: Callable[[], object]
    floor: Callable[[], object]
    goal: float | None = None
    reset: Callable[[], object] = lambda: None
    cpu_seconds: Callable[[], float] = time.process_time
    warm_ups: int = 1


@dataclass(frozen=True)
class Result:
    """Medians over the rounds, in seconds.

    `ratio` is the lowest CPU time of the subject divided by the lowest of the floor, the ratio that other load disturbs least;
    `least_wall_ratio` is this ratio for wall time. `median_ratio` and `wall_ratio` are medians of the ratios of each round, for
    CPU and wall time.
    """

    name: str
    ratio: float
    median_ratio: float
    wall_ratio: float
    least_wall_ratio: float
    goal: float | None
    subject_cpu: float
    floor_cpu: float
    subject_wall: float
    floor_wall: float
    rounds: int

    @property
    def met(self) -> bool | None:
        return None if self.goal is None else self.ratio <= self.goal


def compare(comparison: Comparison, rounds: int = MIN_ROUNDS) -> Result:
    """Measure `rounds` (at least 5) in which the two take turns at going first, after unmeasured ones."""
    if rounds < MIN_ROUNDS:
        raise ValueError(f"a median needs at least {MIN_ROUNDS} rounds")
    subject: list[tuple[float, float]] = []
    floor: list[tuple[float, float]] = []
    sides = [(subject, comparison.subject), (floor, comparison.floor)]
    for number in range(rounds + comparison.warm_ups):
        for times, work in sides if number % 2 else reversed(sides):
            comparison.reset()
            times.append(_seconds(work, comparison.cpu_seconds))
    del subject[: comparison.warm_ups], floor[: comparison.warm_ups]
    ratios = [[ours[i] / theirs[i] for ours, theirs in zip(subject, floor, strict=True)] for i in (0, 1)]
    return Result(
        name=comparison.name,
        ratio=min(cpu for cpu, _ in subject) / min(cpu for cpu, _ in floor),
        median_ratio=statistics.median(ratios[0]),
        wall_ratio=statistics.median(ratios[1]),
        least_wall_ratio=min(wall for _, wall in subject) / min(wall for _, wall in floor),
        goal=comparison.goal,
        subject_cpu=statistics.median(cpu for cpu, _ in subject),
        floor_cpu=statistics.median(cpu for cpu, _ in floor),
        subject_wall=statistics.median(wall for _, wall in subject),
        floor_wall=statistics.median(wall for _, wall in floor),
        rounds=rounds,
    )


def report(comparisons: Iterable[Comparison], rounds: int = MIN_ROUNDS, only: str = "") -> bool:
    """Measure and print the comparisons with `only` in their names: text on stderr, JSON lines on stdout.

    Returns whether every goal was met.
    """
    all_met = True
    print(f"on {MACHINE['processor']}, numpy without {MACHINE['without'] or 'nothing'}", file=sys.stderr)
    for comparison in comparisons:
        if only not in comparison.name:
            continue
        result = compare(comparison, rounds)
        goal = "" if result.goal is None else f" (goal {result.goal:.2f}, {'met' if result.met else 'MISSED'})"
        print(
            f"{result.name}: {result.ratio:.2f} x the floor's CPU{goal}, by the median {result.median_ratio:.2f} x, "
            f"{result.wall_ratio:.2f} x its time; "
            f"CPU {result.subject_cpu:.2f} s against {result.floor_cpu:.2f} s, "
            f"time {result.subject_wall:.2f} s against {result.floor_wall:.2f} s, {result.least_wall_ratio:.2f} x by the least",
            file=sys.stderr,
        )
        print(json.dumps({**asdict(result), "met": result.met, "on": MACHINE}), flush=True)
        all_met &= result.met is not False
    return all_met


def cpu_with_children() -> float:
    """The CPU seconds of this process and of all processes that it has waited for."""
    return sum(os.times()[:4])


def peak_megabytes() -> float:
    """The peak memory of this process. On Linux, `getrusage` would include that of the parent at the fork."""
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = (line for line in status.read_text(encoding="ascii").splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # bytes on macOS


def _seconds(work: Callable[[], object], cpu_seconds: Callable[[], float]) -> tuple[float, float]:
    """The CPU and wall seconds that the work takes."""
    cpu, wall = cpu_seconds(), time.perf_counter()
    work()
    return cpu_seconds() - cpu, time.perf_counter() - wall
