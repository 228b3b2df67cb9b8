"""The fewest bytes that any choice of merges could read, if all commits and reads were known: what no goal can go below.

The choice keeps to the rules that let every engine go on: a merge takes all of level 0 and then whole levels, and reads all of
their bytes; its result takes the level below the next run's, so at most as many merged runs as levels stand on each other. A read
opens each run of its bucket. No file may be so large that a merge would leave it as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scripts.bench.goal_loads import Load

RATES = (1.5, 2.5)
"""The powers of ten of the exchange rates (bytes for a run that a read opens) between which the best bound is looked for."""
STEPS = 5


@dataclass(frozen=True)
class KnownBucket:
    """What will happen to a bucket. `size`: at [i, m], the bytes of a run with all that the commits from i to m have left.

    `weight`: of each commit, what its runs weigh until the next one: the rate of reads times rounds.
    """

    size: np.ndarray
    weight: np.ndarray

    def least(self, rate: float, most_runs: int, levels: int) -> float:
        """The least of bytes read, and `rate` bytes for each run and weight.

        At [k, i, j] of `cost` is the least that the commits from i to j - 1 cost until commit j comes, in at most k merged runs
        and what is in level 0 above them. `merged` adds the sizes of all these runs: what a merge of them reads. The lowest
        merged run has been made with some commit m, of all since i; what came later stands on it, in one merged run less.
        Commit i alone is moved to a level for nothing.
        """
        count, own = len(self.weight), np.diagonal(self.size)
        stays = np.concatenate([[0.0], np.cumsum(self.weight)]) * rate
        came, sizes = (np.concatenate([[0.0], np.cumsum(each)]) for each in (stays[:count], own))
        cost, merged = (np.full((levels + 1, count + 2, count + 1), np.inf) for _ in range(2))
        for begin in range(count, -1, -1):
            cost[:, begin, begin] = merged[:, begin, begin] = 0.0
            made = np.full((levels, count), np.inf)
            made[:, begin : begin + 1] = 0.0
            for end in range(begin + 1, count + 1):
                if end - 1 > begin:
                    made[:, end - 1] = merged[1:, begin, end - 1] + own[end - 1]
                waits = (end - begin) * stays[end] - (came[end] - came[begin]) if end - begin <= most_runs else np.inf
                stands = made[:, begin:end] + stays[end] - stays[begin:end]
                cost[:, begin, end] = waits
                merged[:, begin, end] = waits + sizes[end] - sizes[begin]
                for found, below in ((cost, 0.0), (merged, self.size[begin, begin:end])):
                    above = found[:-1, begin + 1 : end + 1, end]
                    found[1:, begin, end] = np.minimum(found[1:, begin, end], (stands + below + above).min(axis=1))
        return float(cost[levels, 0, count])


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


def least_bytes(load: Load, row_bytes: int, runs: float, most_runs: int, levels: int) -> float:
    """The fewest bytes of merges with which a read opens at most `runs` runs on the average, and no bucket has more than
    `most_runs`.

    For each exchange rate, bytes and runs together cost at least the least of each bucket, so bytes alone cost at least that less
    what the runs are worth. The best of these bounds counts.
    """
    buckets = known_buckets(load, row_bytes)
    opened = runs * float(load.reads(0).sum()) * len(load.commits)

    def bound(power: float) -> float:
        rate = 10.0**power
        return sum(bucket.least(rate, most_runs, levels) for bucket in buckets) - rate * opened

    (low, high), best = RATES, 0.0
    for _ in range(STEPS):  # a concave function of the rate
        left, right = low + (high - low) / 3, high - (high - low) / 3
        at_left, at_right = bound(left), bound(right)
        best = max(best, at_left, at_right)
        low, high = (left, high) if at_left < at_right else (low, right)
    return best
