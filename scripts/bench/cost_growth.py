"""How a cost grows with a size: costs at several sizes, measured in turn, and the exponent of the power law that fits them."""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scripts.bench.measure import MACHINE, MIN_ROUNDS


@dataclass(frozen=True)
class Growth:
    """Costs in CPU seconds by size. `goal`: the maximum ratio of the cost of the largest size to that of the smallest."""

    name: str
    unit: str
    costs: Mapping[int, float]
    goal: float | None

    @property
    def ratio(self) -> float:
        return self.costs[max(self.costs)] / self.costs[min(self.costs)]

    @property
    def met(self) -> bool | None:
        return None if self.goal is None else self.ratio <= self.goal

    def print(self) -> bool:
        """Print a line of text on stderr and a JSON line on stdout. Returns whether the goal was met."""
        listed = ", ".join(f"{size:,}: {cost:.4g} s" for size, cost in self.costs.items())
        goal = "" if self.goal is None else f" (goal {self.goal:.2f}, {'met' if self.met else 'MISSED'})"
        slope = exponent(self.costs)
        print(f"{self.name} by {self.unit}: {listed}; {self.ratio:.2f} x{goal}, exponent {slope:.2f}", file=sys.stderr)
        costs = {str(size): cost for size, cost in self.costs.items()}
        line: dict[str, Any] = {"name": self.name, "unit": self.unit, "cpu": costs}
        line |= {"ratio": self.ratio, "goal": self.goal, "met": self.met, "exponent": slope, "on": MACHINE}
        print(json.dumps(line), flush=True)
        return self.met is not False


def exponent(costs: Mapping[int, float]) -> float:
    """The slope of a line through the logarithms: 0 if the cost is constant, 1 if it is proportional to the size."""
    points = [(math.log(size), math.log(cost)) for size, cost in costs.items()]
    return statistics.linear_regression(*zip(*points, strict=True)).slope


def in_turn(works: Mapping[int, Callable[[], float]], rounds: int = MIN_ROUNDS) -> dict[int, float]:
    """The median cost of each work, which returns its cost. After an unmeasured round, the works take turns."""
    costs: dict[int, list[float]] = {size: [] for size in works}
    for number in range(rounds + 1):
        for size, work in works.items():
            cost = work()
            costs[size] += [cost] if number else []
    return {size: statistics.median(found) for size, found in costs.items()}


def cpu_of(work: Callable[[], object]) -> float:
    """The CPU seconds that the work takes in all threads of this process."""
    before = time.process_time()
    work()
    return time.process_time() - before


def cpu_of_process(command: Sequence[str]) -> float:
    """The CPU seconds of a command in a new process, from its start. It must succeed."""
    before = os.times()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system
