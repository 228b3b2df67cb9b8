"""How many rows a merge will leave, guessed from file metadata alone: for plans and simulations, never for what is written.

Model: the keys of a file lie anywhere in its key range. One whole-number key column gives the number of keys that there can
be; of other keys the biggest run is taken to know them all, so that the smaller ones only replace. The truth lies between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paimon_cli.datatypes.key_order import Key


@dataclass(frozen=True)
class RunModel:
    """One sorted run: rows, bytes, and the first and last key."""

    rows: int
    size: int
    low: Key
    high: Key

    @property
    def row_bytes(self) -> float:
        return self.size / self.rows if self.rows else 0.0


def merged_run(runs: Sequence[RunModel], buckets: int) -> RunModel:
    """What a merge of the runs gives; whole-number keys spread evenly over so many buckets."""
    low, high = min(run.low for run in runs), max(run.high for run in runs)
    most, total = _disjoint_rows(runs), sum(run.rows for run in runs)
    room = _possible_keys(low, high, buckets)
    if room is None:
        rows = most
    else:
        absent = 1.0
        room = max(room, most)
        for run in runs:
            absent *= 1 - min(run.rows, room) / room
        rows = max(most, min(total, round(room * (1 - absent))))
    size = sum(run.size for run in runs)
    return RunModel(rows, round(size * rows / total) if total else 0, low, high)


def _possible_keys(low: Key, high: Key, buckets: int) -> int | None:
    if len(low) == 1 and isinstance(low[0], int) and isinstance(high[0], int):
        return max(1, (high[0] - low[0] + 1) // max(1, buckets))
    return None


def _disjoint_rows(runs: Sequence[RunModel]) -> int:
    """At least so many rows are left: those of the biggest run, or of runs whose ranges do not meet, taken greedily."""
    rows, reach = 0, None
    for run in sorted(runs, key=lambda run: run.high):
        if reach is None or run.low > reach:
            rows, reach = rows + run.rows, run.high
    return max(rows, *(run.rows for run in runs))
