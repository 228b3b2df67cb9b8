"""What is written and read in the workloads of `goals`: for each commit the keys by bucket, and reads an hour of each bucket."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

SINGLE = ("uniform", "zipf", "recent", "timeseries", "trickle", "growing", "partitions", "queue", "daynight", "mixed")


@dataclass(frozen=True)
class Load:
    """What is written and read: for each commit the keys by bucket, and reads an hour of each bucket at a round.

    `begins`: the first commit is what a full compaction has left.
    """

    commits: Sequence[Mapping[int, np.ndarray]]
    reads: Callable[[int], np.ndarray]
    buckets: int
    begins: bool = True


def uneven_tables(seed: int, commits: int, tables: int = 200) -> Load:
    random = np.random.default_rng(seed)
    sizes = np.exp(random.uniform(math.log(100), math.log(20_000), tables)).astype(int)
    shares = np.exp(random.uniform(math.log(0.0003), math.log(0.1), tables))
    rates = random.permutation(1 / np.arange(1, tables + 1) ** 1.2)
    rates = rates / rates.mean() * 60
    made = [{table: np.arange(size) for table, size in enumerate(sizes)}]
    for _ in range(commits - 1):
        counts = random.poisson(sizes * shares)
        made.append({n: np.unique(random.integers(0, sizes[n], counts[n])) for n in range(tables) if counts[n]})
    return Load(made, lambda number: rates, tables)


def late_partitions(seed: int, commits: int, count: int = 100) -> Load:
    """Each commit: 43 % of the rows into the newest partitions, the others into 20 random cold ones."""
    random = np.random.default_rng(seed)
    rates = np.full(count, 0.005)
    rates[-3:] = 1, 3, 10
    rates *= 60
    made = [{partition: np.arange(100) for partition in range(count)}]
    for _ in range(commits - 1):
        hot = enumerate((70, 10, 6))
        commit = {count - 1 - n: np.unique(random.integers(0, 2000, rows)) for n, rows in hot}
        for partition in random.choice(count - 3, 20, replace=False).tolist():
            commit[partition] = np.unique(random.integers(0, 1000, 6))
        made.append(commit)
    return Load(made, lambda number: rates, count)


def updates(name: str, random: np.random.Generator, commits: int) -> Iterator[np.ndarray]:
    """Updates of keys that exist."""
    keys, usual = (60_000, 20) if name == "trickle" else (20_000, 200)
    yield np.arange(keys)
    for n in range(1, commits):
        count = 20 * usual if name == "mixed" and n % 20 == 19 else usual
        if name == "daynight" and n % 48 >= 24:
            count = 10
        yield (random.zipf(1.1, count) % keys) if name == "zipf" else random.integers(0, keys, count)


def moving(name: str, random: np.random.Generator, commits: int) -> Iterator[np.ndarray]:
    """New keys at the end, and others by the workload; a queue deletes the oldest, which writes their keys again."""
    known = 20_000
    yield np.arange(known)
    for n in range(1, commits):
        new = np.arange(known, known + (100 if name == "recent" else 200))
        if name == "recent":
            other = known - 1 - random.integers(0, known // 20, 100)
        elif name == "queue":
            other = np.arange(known - 20_000, known - 19_800)
        else:
            other = random.integers(0, known, 10 if n % 10 < 3 else 0)
        yield np.concatenate([new, other])
        known += len(new)


def partitions(random: np.random.Generator, commits: int) -> Load:
    """A new partition every ten commits gets most rows; they are read 10 : 3 : 1 : 0.05 by age."""
    made, buckets, by_age = list[dict[int, np.ndarray]](), commits // 10 + 1, np.array([10.0, 3.0, 1.0])
    for n in range(commits):
        newest = n // 10
        commit = {newest: np.unique(random.integers(0, 2000, 180))}
        if newest:
            commit[int(random.integers(0, newest))] = np.unique(random.integers(0, 2000, 20))
        made.append(commit)

    def reads(number: int) -> np.ndarray:
        age = number // 10 - np.arange(buckets)
        rates: np.ndarray = np.where(age < 0, 0.0, np.where(age < 3, by_age[np.clip(age, 0, 2)], 0.05)) * 6
        return rates

    return Load(made, reads, buckets, begins=False)


def single(name: str, seed: int, commits: int) -> Load:
    """A workload of one bucket; `partitions` has several."""
    random = np.random.default_rng([seed, SINGLE.index(name)])
    if name == "partitions":
        return partitions(random, commits)
    if name == "growing":
        found: Iterator[np.ndarray] = (random.integers(0, 1 << 40, 200) for _ in range(commits))
    else:
        found = (moving if name in ("recent", "timeseries", "queue") else updates)(name, random, commits)
    reads = always(60.0) if name != "daynight" else (lambda number: np.array([110.0 if number % 48 >= 24 else 10.0]))
    return Load([{0: np.unique(keys)} for keys in found], reads, 1, begins=name != "growing")


def always(rate: float) -> Callable[[int], np.ndarray]:
    return lambda number: np.array([rate])
