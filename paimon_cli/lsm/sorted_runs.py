"""Sorted runs of a bucket, and sections of overlapping files (FORMAT.md, sections 11.1 and 12).

`section_starts` finds the sections of very many files at once, as columns in which each bucket has a number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from paimon_cli.datatypes.key_order import Key
from paimon_cli.errors import DamagedFile
from paimon_cli.metadata.data_file import DataFileMeta
from paimon_cli.pieces import PIECES

_MOST_BYTES = 1 << 40
"""The weight of larger items, so that sums fit into 64 bits even if a damaged manifest gives absurd sizes."""

KeyOf = Callable[[bytes], Key]
"""Decodes a serialised `_MIN_KEY` or `_MAX_KEY` into a comparable key."""


@dataclass(frozen=True)
class SortedRun:
    """Files with disjoint, ascending key ranges; inside one run a key occurs at most once."""

    level: int
    files: tuple[DataFileMeta, ...]

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(file.file_size for file in self.files)

    @property
    def row_count(self) -> int:
        return sum(file.row_count for file in self.files)


def sorted_runs(files: Iterable[DataFileMeta], key_of: KeyOf) -> list[SortedRun]:
    """The runs of a bucket, newest first: each level-0 file alone, then one run for each level that holds files."""
    by_level: dict[int, list[DataFileMeta]] = {}
    for file in files:
        by_level.setdefault(file.level, []).append(file)
    runs = [SortedRun(0, (file,)) for file in sorted(by_level.pop(0, []), key=_newest_first)]
    for level in sorted(by_level):
        runs.append(SortedRun(level, tuple(sorted(by_level[level], key=lambda file: key_of(file.min_key)))))
    return runs


def _newest_first(file: DataFileMeta) -> tuple[int, int, int, str]:
    return (-file.max_sequence_number, file.min_sequence_number, file.creation_time_millis or 0, file.file_name)


def highest_level(files: Iterable[DataFileMeta]) -> int:
    """The highest level in use; 0 for an empty bucket."""
    return max((file.level for file in files), default=0)


def count_runs(files: Iterable[DataFileMeta]) -> int:
    """The number of sorted runs that the files form."""
    levels = [file.level for file in files]
    return levels.count(0) + len(set(levels) - {0})


def total_size(runs: Sequence[SortedRun]) -> int:
    return sum(run.size for run in runs)


Section = list[SortedRun]
"""Overlapping files as the fewest possible sorted runs. The `level` of such a run is only that of its first file."""


def follow_each_other(section: Section) -> bool:
    """Whether every row of one run is older than every row of the next, so that the order of the runs is that of their rows."""
    ranges = sorted(
        (min(file.min_sequence_number for file in run.files), max(file.max_sequence_number for file in run.files))
        for run in section
    )
    return all(newest < oldest for (_, newest), (oldest, _) in pairwise(ranges))


def key_sections(files: Iterable[DataFileMeta], key_of: KeyOf) -> list[Section]:
    """Sections in ascending key order. Raises `DamagedFile` for a file whose least key is greater than its greatest."""
    ranged = sorted(((key_of(f.min_key), key_of(f.max_key), f) for f in files), key=lambda item: item[:2])
    sections: list[Section] = []
    members: list[tuple[Key, Key, DataFileMeta]] = []
    reach: Key = ()
    for low, high, file in ranged:
        if low > high:
            raise no_key_range(file)
        if members and low > reach:
            sections.append(_fewest_runs(members))
            members = []
        reach = max(reach, high) if members else high
        members.append((low, high, file))
    if members:
        sections.append(_fewest_runs(members))
    return sections


def no_key_range(file: DataFileMeta) -> DamagedFile:
    """The error about a file whose least key is greater than its greatest: it would be taken for free of the rows between."""
    why = f"its record of {file.file_name} has a least key that is greater than the greatest"
    return DamagedFile("a manifest is damaged", why)


def _fewest_runs(members: list[tuple[Key, Key, DataFileMeta]]) -> Section:
    """Append each file to the run that ends first, if the file begins after that run; otherwise open a new run.

    Runs that end at the same key are ordered as in Java's PriorityQueue, so that runs have the same files and order as in Java.
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
    """A run to which files after the key `end` can be appended."""

    end: Key
    files: list[DataFileMeta]


def _offer(heap: list[_OpenRun], run: _OpenRun) -> None:
    position = len(heap)
    heap.append(run)
    while position and run.end < heap[(position - 1) // 2].end:
        heap[position] = heap[(position - 1) // 2]
        position = (position - 1) // 2
    heap[position] = run


def _poll(heap: list[_OpenRun]) -> _OpenRun:
    """Remove the first run. The last one moves to the top and sinks; of two equal children, the left one moves up."""
    first, last = heap[0], heap.pop()
    if not heap:
        return first
    position = 0
    while (child := 2 * position + 1) < len(heap):
        if child + 1 < len(heap) and heap[child].end > heap[child + 1].end:
            child += 1
        if last.end <= heap[child].end:
            break
        heap[position] = heap[child]
        position = child
    heap[position] = last
    return first


_Ints = npt.NDArray[np.int64]
_Flags = npt.NDArray[np.bool_]


def section_starts(buckets: _Ints, lows: _Ints, highs: _Ints) -> tuple[_Ints, _Flags]:
    """The order of files by bucket number and key range, and whether each, in this order, begins a section (bool)."""
    order = np.lexsort((highs, lows, buckets))
    buckets, lows, reach = buckets[order], lows[order], highs[order]
    distance = 1
    # `reach` becomes the greatest upper bound so far. Each round doubles the distance that is covered, until nothing changes.
    while distance < len(order):
        further = (buckets[distance:] == buckets[:-distance]) & (reach[:-distance] > reach[distance:])
        if not further.any():
            break
        reach[distance:] = np.where(further, reach[:-distance], reach[distance:])
        distance *= 2
    starts = np.ones(len(order), dtype=bool)
    starts[1:] = (buckets[1:] != buckets[:-1]) | (lows[1:] > reach[:-1])
    return order, starts


def pack_starts(buckets: _Ints, weights: _Ints, limit: int) -> _Ints:
    """The index of each pack's first item. Adjacent items of a bucket are packed up to the total weight `limit`.

    A single item may exceed the limit. The sum of all weights and the limit must fit into 64 bits.
    """
    count = len(buckets)
    ends = np.cumsum(weights)
    bounds = np.append(np.flatnonzero(buckets[1:] != buckets[:-1]) + 1, count)
    bucket_ends = np.repeat(bounds, np.diff(bounds, prepend=0)) if count else bounds
    following = np.searchsorted(ends, ends - weights + limit, side="right")
    steps = np.minimum(np.maximum(following, np.arange(1, count + 1)), bucket_ends).tolist()
    starts, item = [], 0
    while item < count:
        starts.append(item)
        item = steps[item]
    return np.array(starts, dtype=np.int64)


def shares(sizes: Iterable[int], least: int, limit: int) -> list[range]:
    """The indexes of adjacent items in shares, each for one task: up to `limit` bytes, or less to get `least_shares`.

    Items smaller than `least` count as that.
    """
    weights = np.array([min(max(size, least), _MOST_BYTES) for size in sizes], dtype=np.int64)
    starts = pack_starts(np.zeros_like(weights), weights, min(int(weights.sum()) // PIECES.least_shares, limit)).tolist()
    return [range(start, end) for start, end in pairwise([*starts, len(weights)])]
