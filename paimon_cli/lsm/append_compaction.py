"""Picks the files of an append table to compact, and packs those that become one file (FORMAT.md, section 12).

Files of a table without buckets have no order, so small ones are packed by size (Java AppendCompactCoordinator). Files of a
bucket stay in the order of their rows, so only neighbours are combined (Java BucketedAppendCompactManager). Files with many
deleted rows are compacted whatever their size, if necessary each by itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from paimon_cli.metadata.data_file import DataFileMeta

Pack = tuple[DataFileMeta, ...]
"""Files that are combined, in this order."""

MIN_FILES_FOR_FULL = 3
"""A full compaction of a bucket needs at least this many files."""


@dataclass(frozen=True)
class AppendPicker:
    """The options of a pick.

    `open_cost`: the cost of opening a file, in bytes; `max_files`: how many files to consider; `marked`: names of the files with
    many deleted rows, which must be rewritten.
    """

    target_size: int
    small_size: int
    min_files: int
    open_cost: int
    max_files: int
    marked: Collection[str] = ()

    def by_size(self, files: Sequence[DataFileMeta], *, full: bool) -> list[Pack]:
        """Packs of small files, smallest first, each of about twice the target size.

        The remaining files become a pack if there are enough of them (with `full`, two), or if one of them is marked.
        """
        chosen = (file for file in files if file.file_size < self.small_size or self._is_marked(file))
        small = sorted(chosen, key=lambda file: file.file_size)
        packs: list[Pack] = []
        pack: list[DataFileMeta] = []
        cost = 0
        for file in small[: self.max_files]:
            pack.append(file)
            cost += file.file_size + self.open_cost
            if len(pack) > 1 and cost >= 2 * self.target_size:
                packs.append(tuple(pack))
                pack, cost = [], 0
        if len(pack) >= (2 if full else max(2, self.min_files)) or any(map(self._is_marked, pack)):
            packs.append(tuple(pack))
        return packs

    def neighbours(self, files: Sequence[DataFileMeta]) -> list[Pack]:
        """Packs of `min_files` adjacent files (at least two). While fewer have twice the target size, the first is left out."""
        packs: list[Pack] = []
        window: deque[DataFileMeta] = deque()
        size = 0
        for file in in_reading_order(files):
            window.append(file)
            size += file.file_size
            if len(window) >= max(2, self.min_files):
                packs.append(tuple(window))
                window.clear()
                size = 0
            elif size >= 2 * self.target_size:
                size -= window.popleft().file_size
        return self._with_marked(packs, files)

    def _is_marked(self, file: DataFileMeta) -> bool:
        return file.file_name in self.marked

    def _with_marked(self, packs: list[Pack], files: Sequence[DataFileMeta]) -> list[Pack]:
        """The packs, and each other marked file as a pack of its own, so that rows stay in order."""
        packed = {file.file_name for pack in packs for file in pack}
        return packs + [(file,) for file in in_reading_order(files) if self._is_marked(file) and file.file_name not in packed]

    def whole_bucket(self, files: Sequence[DataFileMeta]) -> list[Pack]:
        """One pack of all files after the leading full-size ones, if most of them are small; otherwise the marked files."""
        ordered = in_reading_order(files)
        to_do = (index for index, file in enumerate(ordered) if file.file_size < self.target_size or self._is_marked(file))
        first = next(to_do, len(ordered))
        left = ordered[first:]
        small = sum(file.file_size < self.target_size for file in left)
        packs = [tuple(left)] if len(left) >= MIN_FILES_FOR_FULL and 2 * small > len(left) else []
        return self._with_marked(packs, left)


def in_reading_order(files: Sequence[DataFileMeta]) -> list[DataFileMeta]:
    """The files of a bucket in the order in which their rows are read."""
    return sorted(files, key=lambda file: (file.min_sequence_number, file.creation_time_millis or 0))
