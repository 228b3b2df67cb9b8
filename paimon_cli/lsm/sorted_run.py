"""Sorted runs: the files of a bucket as the LSM tree sees them (format section 12, Java Levels and SortedRun)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from paimon_cli.datatypes.key_order import Key
from paimon_cli.metadata.data_file import DataFileMeta

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


def total_size(runs: Sequence[SortedRun]) -> int:
    return sum(run.size for run in runs)
