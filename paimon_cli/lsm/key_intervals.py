"""Cut the files of a bucket into sections of disjoint key ranges (Java IntervalPartition, format section 11.1).

Sections can be merged one after the other or in different tasks; only inside a section may keys meet.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

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
    """Greedy: append a file to the run that ends first if it begins behind that end, else open a run.

    Runs that end at the same key are told apart by their place in the heap, in the very order of Java's PriorityQueue, so that
    files come to lie in the same runs, and runs in the same order, as with Java.
    """
    heap: list[_OpenRun] = []
    for low, high, file in members:
        first = _poll(heap) if heap else None
        if first is not None and low > first.end:
            first.end = high
            first.files.append(file)
        else:
            _offer(heap, _OpenRun(high, [file]))
        if first is not None:
            _offer(heap, first)
    return [SortedRun(run.files[0].level, tuple(run.files)) for run in heap]


@dataclass
class _OpenRun:
    """A run that may take more files, all behind `end`."""

    end: Key
    files: list[DataFileMeta]


def _offer(heap: list[_OpenRun], run: _OpenRun) -> None:
    place = len(heap)
    heap.append(run)
    while place and run.end < heap[(place - 1) // 2].end:
        heap[place] = heap[(place - 1) // 2]
        place = (place - 1) // 2
    heap[place] = run


def _poll(heap: list[_OpenRun]) -> _OpenRun:
    """Take the first; the last one moves to the top and sinks, to the left of two equal ones."""
    first, last = heap[0], heap.pop()
    if not heap:
        return first
    place = 0
    while (child := 2 * place + 1) < len(heap):
        if child + 1 < len(heap) and heap[child].end > heap[child + 1].end:
            child += 1
        if last.end <= heap[child].end:
            break
        heap[place] = heap[child]
        place = child
    heap[place] = last
    return first
