"""How many sorted runs readers find in the buckets that commits write to, weighed by the time for which they find them.

A commit adds a run, and its compaction merges it, often within milliseconds. What counts is what is there until the next commit.
"""

from __future__ import annotations

from collections.abc import Hashable
from itertools import pairwise

import numpy as np

LONGEST_PAUSE = 10
"""A state counts for at most so many times the typical time between commits to a bucket. Otherwise a single pause, a night or the
age of a partition to which nobody writes any more, would decide about the mean."""


class SeenRuns:
    """The runs of each bucket from a commit that wrote to it until the next one. Moments are epoch millis.

    `most`: the most runs that were there for a while; complete once `mean` was asked for.
    """

    def __init__(self) -> None:
        self.most = 0
        self._states: dict[Hashable, list[tuple[int, int]]] = {}
        self._means: list[float] = []
        self._millis: list[int] = []

    def written(self, bucket: Hashable, now: int, runs: int) -> None:
        """A commit has written to the bucket, which has so many runs before any compaction that follows."""
        self.end(bucket, now)
        self._states[bucket] = [(now, runs)]

    def compacted(self, bucket: Hashable, now: int, runs: int) -> None:
        """A compaction leaves so many runs; of no concern for a bucket to which no counted commit has written."""
        states = self._states.get(bucket)
        if states is not None and states[-1][1] != runs:
            states.append((max(now, states[-1][0]), runs))

    def end(self, bucket: Hashable, now: int) -> None:
        """The next commit to the bucket, or one that empties it."""
        states = self._states.pop(bucket, None)
        if states is not None:
            self._means.append(self._mean_until(now, states))
            self._millis.append(max(0, now - states[0][0]))

    def mean(self, now: int) -> float:
        """The mean until now, 0 without commits. How long the last states will last is not known: at least the typical time."""
        lasting = [max(0, now - states[0][0]) for states in self._states.values()]
        typical = float(np.median(self._millis or lasting or [0]))
        last = [
            self._mean_until(states[0][0] + int(max(millis, typical)), states)
            for millis, states in zip(lasting, self._states.values(), strict=True)
        ]
        means = np.array([*self._means, *last])
        weights = np.minimum(np.array([*self._millis, *(max(millis, typical) for millis in lasting)]), LONGEST_PAUSE * typical)
        if not len(means):
            return 0.0
        return float(np.average(means, weights=weights if weights.any() else None))

    def _mean_until(self, end: int, states: list[tuple[int, int]]) -> float:
        """The mean runs of the states of one bucket. If they last no time, the last one is what readers find."""
        begun = [state for state in states if state[0] <= end] or states[:1]
        lasted = [(min(until, end) - since, runs) for (since, runs), (until, _) in pairwise([*begun, (end, 0)])]
        found = [(millis, runs) for millis, runs in lasted if millis > 0] or [(1, begun[-1][1])]
        self.most = max(self.most, *(runs for _, runs in found))
        return sum(millis * runs for millis, runs in found) / sum(millis for millis, _ in found)
