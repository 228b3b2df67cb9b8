"""A made-up workload for simulations: commits of rows that update known keys or bring new ones; its merges are exact."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from paimon_cli.lsm.compaction_simulation import OnCommit, SimulatedCommit, SimulatedWorkload


@dataclass(frozen=True)
class WorkloadShape:
    """`update_ratio`: share of a commit's rows whose keys exist; `skew`: 0 takes them evenly, more prefers the oldest keys.

    Times in millis, sizes in bytes. The same shape and `seed` give the same commits.
    """

    commits: int = 200
    rows: int = 10_000
    row_bytes: int = 100
    update_ratio: float = 0.5
    skew: float = 0.0
    buckets: int = 1
    commit_interval: int = 60_000
    seed: int = 0


@dataclass(frozen=True)
class KeySetRun:
    """A run that knows its keys: distinct, ascending."""

    keys: np.ndarray
    row_bytes: int

    @property
    def rows(self) -> int:
        return len(self.keys)

    @property
    def size(self) -> int:
        return self.rows * self.row_bytes


def synthetic_workload(shape: WorkloadShape, on_commit: OnCommit | None = None) -> SimulatedWorkload[KeySetRun]:
    """`on_commit`: told of each commit that is made up."""
    chance = np.random.default_rng(shape.seed)
    known, commits = 0, []
    for number in range(shape.commits):
        updates = int(shape.rows * shape.update_ratio) if known else 0
        old = (known * chance.random(updates) ** (1 + shape.skew)).astype(np.int64)
        new = np.arange(known, known + shape.rows - updates)
        known += shape.rows - updates
        keys = np.unique(np.concatenate([old, new]))
        flushed: dict[Hashable, list[KeySetRun]] = {
            bucket: [KeySetRun(keys[keys % shape.buckets == bucket], shape.row_bytes)] for bucket in range(shape.buckets)
        }
        commits.append(SimulatedCommit[KeySetRun](number * shape.commit_interval, flushed))
        if on_commit is not None:
            on_commit()
    return SimulatedWorkload(commits, merged_keys)


def merged_keys(runs: Sequence[KeySetRun]) -> KeySetRun:
    return KeySetRun(np.unique(np.concatenate([run.keys for run in runs])), runs[0].row_bytes)
