"""Merges of more sorted runs than memory can hold a batch of: in passes, through runs on local disk.

A pass only interleaves: all rows of a key survive it, so that the merge engine sees in the last pass what it would have
seen in a single one (FORMAT.md, section 11.2).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from paimon_cli.bucket.spilled_runs import SPILLED_BATCH_BYTES, SpillDirectory
from paimon_cli.lsm.deduplicate import KeepAllVersions
from paimon_cli.lsm.sort_merge import merge_sorted_runs
from paimon_cli.lsm.sorted_rows import MergeEngine

OpenRun = Callable[[], Iterator[pa.RecordBatch]]
"""Begins to read a run; called when its turn comes, so that not all files are open at once."""


def merge_in_passes(
    runs: Sequence[OpenRun], key_columns: Sequence[str], engine: MergeEngine, most_runs: int, *, keys_repeat: bool = False
) -> Iterator[pa.RecordBatch]:
    """One row per key over all runs, at most `most_runs` (>= 2) of them read at a time.

    `keys_repeat`: a run may hold a key several times, but never in two batches.
    """
    if len(runs) <= most_runs:
        yield from merge_sorted_runs([run() for run in runs], key_columns, engine, keys_repeat=keys_repeat)
        return
    with SpillDirectory() as spill:
        waiting: list[OpenRun] = list(runs)
        while len(waiting) > most_runs:
            # Neighbours are put together, so that runs stay in their order, oldest first: it decides between equal numbers.
            group = min(most_runs, len(waiting) - most_runs + 1)
            last = group if group < most_runs else len(waiting)
            passed = [_interleaved(spill, waiting[i : i + group], key_columns) for i in range(0, last, group)]
            waiting = [*passed, *waiting[last:]]
        yield from merge_sorted_runs([run() for run in waiting], key_columns, engine, keys_repeat=True)


def _interleaved(spill: SpillDirectory, runs: Sequence[OpenRun], key_columns: Sequence[str]) -> OpenRun:
    if len(runs) == 1:
        return runs[0]
    batches = merge_sorted_runs(
        [run() for run in runs], key_columns, KeepAllVersions(), keys_repeat=True, batch_bytes=SPILLED_BATCH_BYTES
    )
    first = next(batches, None)
    if first is None:
        return lambda: iter(())
    return spill.write(itertools.chain([first], batches), first.schema).read
