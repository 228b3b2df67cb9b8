"""The bound of `scripts.bench.hindsight` is what a search through all choices finds."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from scripts.bench.goal_loads import Load
from scripts.bench.hindsight import known_buckets, least_bytes

Run = tuple[int, int, bool]
"""The commits that it holds, from and to, and whether it is in level 0."""


def _searched(size: np.ndarray, weight: np.ndarray, rate: float, most_runs: int, levels: int) -> float:
    """The least cost, by trying each choice after each commit."""

    @cache
    def least(number: int, runs: tuple[Run, ...]) -> float:  # the newest first
        if number == len(weight):
            return 0.0
        found = np.inf
        for read, left in _choices(((number, number, True), *runs)):
            if len(left) <= most_runs and sum(not new for _, _, new in left) <= levels:
                found = min(found, read + rate * weight[number] * len(left) + least(number + 1, left))
        return float(found)

    def _choices(runs: tuple[Run, ...]) -> list[tuple[float, tuple[Run, ...]]]:
        new = sum(is_new for _, _, is_new in runs)
        found = [(0.0, runs)]
        if new == 1:
            found.append((0.0, ((*runs[0][:2], False), *runs[1:])))
        for count in range(max(new, 2), len(runs) + 1):
            read = sum(size[begin, end] for begin, end, _ in runs[:count])
            found.append((read, ((runs[count - 1][0], runs[0][1], False), *runs[count:])))
        return found

    return least(0, ())


@pytest.mark.parametrize("seed", range(12))
def test_the_least_is_what_a_search_through_all_choices_finds(seed: int) -> None:
    random = np.random.default_rng(seed)
    commits = [{0: np.unique(random.integers(0, 12, random.integers(1, 6)))} for _ in range(7)]
    (bucket,) = known_buckets(Load(commits, lambda _: np.array([2.0]), 1), 1)
    for levels in (1, 2, 5):
        for rate in (0.1, 0.6, 3.0):
            searched = _searched(bucket.size, bucket.weight, rate, 99, levels)
            assert bucket.least(rate, 99, levels) == pytest.approx(searched)
            assert bucket.least(rate, 2, levels) <= _searched(bucket.size, bucket.weight, rate, 2, levels) + 1e-9


def test_the_bound_is_not_above_what_a_choice_needs() -> None:
    random = np.random.default_rng(7)
    commits = [{0: np.unique(random.integers(0, 50, 9))} for _ in range(24)]
    load = Load(commits, lambda _: np.array([1.0]), 1)
    (bucket,) = known_buckets(load, 100)
    begin, read, held = 0, 0.0, 0
    for number in range(24):  # everything is merged with every sixth commit
        if number % 6 == 5:
            below = bucket.size[0, begin - 1] if begin else 0.0
            read, begin = read + below + np.diagonal(bucket.size)[begin : number + 1].sum(), number + 1
        held += (begin > 0) + number + 1 - begin
    assert 0 < least_bytes(load, 100, held / 24, 20, 5) <= read
