"""The fewest bytes that any order of merges could read, if all commits and reads were known: what no goal can go below.

A merge takes the newest runs of a bucket, any number of them, and reads at least their distinct keys. Levels do not count, nor do
the bytes of a merge's duplicates, so a real order of merges reads more. A read opens each run of its bucket.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scripts.bench.goal_loads import Load

RATES = (0.0, 4.0)
"""The powers of ten of the exchange rates (bytes for a run that a read opens) that are tried."""
STEPS = 7


@dataclass(frozen=True)
class KnownBucket:
    """What will happen to a bucket. `read`: at [i, m], the bytes of a merge of all that the commits from i to m have left.

    `weight`: of each commit, what its runs weigh until the next one: the rate of reads times rounds.
    """

    read: np.ndarray
    weight: np.ndarray

    def least(self, rate: float, most_runs: int) -> float:
        """The least of bytes read, and `rate` bytes for each run and weight, with at most so many runs.

        At [k, i, j] of `stacks` is what the commits from i to j cost until j, in at most k runs above all older ones. Their
        lowest run was last made at some commit m, of all since i; what came later is in one run less. At i itself it is free:
        the commit has just added it.
        """
        count = len(self.weight)
        stacks = np.full((most_runs + 1, count + 2, count + 1), np.inf)  # column j + 1, so that column i has nothing yet
        for begin in range(count + 1):
            stacks[:, begin, begin] = 0.0
        stays = np.concatenate([[0.0], np.cumsum(self.weight)]) * rate
        for begin in range(count - 1, -1, -1):
            made = np.full((most_runs + 1, count), np.inf)
            made[1:, begin] = 0.0
            for end in range(begin, count):
                if end > begin:
                    made[1:, end] = stacks[1:, begin, end] + self.read[begin, end]
                above = stacks[:-1, begin + 1 : end + 2, end + 1]
                costs = made[1:, begin : end + 1] + above + (stays[end + 1] - stays[begin : end + 1])
                stacks[1:, begin, end + 1] = costs.min(axis=1)
        return float(stacks[most_runs, 0, count])


def known_buckets(load: Load, row_bytes: int) -> list[KnownBucket]:
    """The buckets of a load whose rates do not change."""
    rates, rounds = load.reads(0), len(load.commits)
    found = []
    for bucket in range(load.buckets):
        at = np.array([number for number, commit in enumerate(load.commits) if bucket in commit])
        keys = [load.commits[number][bucket] for number in at.tolist()]
        if keys:
            found.append(KnownBucket(_distinct(keys) * row_bytes, np.diff(np.append(at, rounds)) * float(rates[bucket])))
    return found


def _distinct(commits: Sequence[np.ndarray]) -> np.ndarray:
    """At [i, m], how many distinct keys the commits from i to m have; 0 below the diagonal."""
    known, codes = np.unique(np.concatenate(commits), return_inverse=True)
    holds = np.zeros((len(commits), len(known)), bool)
    holds[np.repeat(np.arange(len(commits)), [len(keys) for keys in commits]), codes] = True
    counts = np.zeros((len(commits), len(commits)))
    for begin in range(len(commits)):
        counts[begin, begin:] = np.logical_or.accumulate(holds[begin:]).sum(axis=1)
    return counts


def least_bytes(load: Load, row_bytes: int, runs: float, most_runs: int) -> float:
    """The fewest bytes of merges with which a read opens at most `runs` runs on the average, and no bucket has more than
    `most_runs`.

    For each exchange rate, bytes and runs together cost at least the least of each bucket, so bytes alone cost at least that less
    what the runs are worth. The best of these bounds counts.
    """
    buckets = known_buckets(load, row_bytes)
    opened = runs * float(load.reads(0).sum()) * len(load.commits)

    def bound(power: float) -> float:
        rate = 10.0**power
        return sum(bucket.least(rate, most_runs) for bucket in buckets) - rate * opened

    (low, high), best = RATES, 0.0
    for _ in range(STEPS):  # a concave function of the rate
        left, right = low + (high - low) / 3, high - (high - low) / 3
        at_left, at_right = bound(left), bound(right)
        best = max(best, at_left, at_right)
        low, high = (left, high) if at_left < at_right else (low, right)
    return best
