"""Cut the files of a bucket into sections of disjoint key ranges (Java IntervalPartition, format section 11.1).

Sections can be merged one after the other or in different tasks; only inside a section may keys meet.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from paimon_cli.datatypes.key_order import Key
from paimon_cli.lsm.sorted_run import KeyOf, SortedRun
from paimon_cli.metadata.data_file import DataFileMeta

Section = list[SortedRun]
"""Overlapping files as the fewest sorted runs. The runs' `level` is that of their first file and means nothing more."""


def key_sections(files: Iterable[DataFileMeta], key_of: KeyOf) -> list[Section]:
    """Sections in ascending key order."""
    ranged = sorted(((key_of(f.min_key), key_of(f.max_key), f) for f in files), key=lambda item: item[:2])
    sections: list[Section] = []
    members: list[tuple[Key, Key, DataFileMeta]] = []
    reach: Key = ()
    for low, high, file in ranged:
        if members and low > reach:
            sections.append(_fewest_runs(members))
            members = []
        reach = max(reach, high) if members else high
        members.append((low, high, file))
    if members:
        sections.append(_fewest_runs(members))
    return sections


def _fewest_runs(members: list[tuple[Key, Key, DataFileMeta]]) -> Section:
    """Greedy: append a file to the run that ends first if it begins behind that end, else open a run."""
    runs: list[list[DataFileMeta]] = []
    ends: list[tuple[Key, int]] = []
    for low, high, file in members:
        if ends and low > ends[0][0]:
            _, number = heapq.heapreplace(ends, (high, ends[0][1]))
            runs[number].append(file)
        else:
            heapq.heappush(ends, (high, len(runs)))
            runs.append([file])
    return [SortedRun(run[0].level, tuple(run)) for run in runs]
