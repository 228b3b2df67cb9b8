"""Partitions with files of two bucket counts, which commits of other engines leave after a rescale (FORMAT.md, section 10.3).

A writer that was running keeps the count that it began with, and Java commits its files without looking at the count of the
others. A key may then be in two buckets.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from paimon_cli.history.file_table import FileTable
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import EntryKind, FileFilter, ManifestEntry
from paimon_cli.metadata.snapshot import COMPACT, Snapshot


class CommittedFile(NamedTuple):
    """A file, and the id of the snapshot that added it; None if that has expired."""

    entry: ManifestEntry
    snapshot_id: int | None


@dataclass(frozen=True)
class StalePartition:
    """A partition with `stale` files, which were written for another count than its `buckets` (None: nothing shows which it is).

    Both kinds of files are in the order of their commits. `written`: the other files that commits have added since the first
    stale one, also those that were compacted later.
    """

    partition: bytes
    counts: tuple[int, ...]
    buckets: int | None
    stale: tuple[CommittedFile, ...]
    written: tuple[CommittedFile, ...]

    @property
    def can_be_mended(self) -> bool:
        """Whether it is known which rows are newer."""
        return self.buckets is not None and all(file.snapshot_id is not None for file in self.stale)

    @property
    def size(self) -> int:
        """The bytes of the stale files."""
        return sum(file.entry.file.file_size for file in self.stale)


def mixed_partitions(counts: Mapping[bytes, Collection[int]]) -> dict[bytes, tuple[int, ...]]:
    """The partitions with files of several bucket counts, and these counts, ascending. `counts`: of `FileTable.bucket_counts`."""
    fixed = {partition: tuple(sorted(count for count in found if count > 0)) for partition, found in counts.items()}
    return {partition: found for partition, found in fixed.items() if len(found) > 1}


def size_to_move(table: FileTable, partitions: Collection[bytes], buckets: int) -> int:
    """The bytes of the files of some partitions that have another count than `buckets`, without those that wait for a bucket."""
    chosen = np.array([partition in partitions for partition in table.partitions], bool)[table.codes]
    counts = table.numbers("total_buckets")
    return int(table.numbers("sizes")[chosen & (counts != buckets) & (counts > 0)].sum())


def movable_partitions(context: TableContext, snapshot: Snapshot) -> list[StalePartition]:
    """The partitions whose stale rows can be moved. The others are left to the user (`health`)."""
    return [found for found in stale_partitions(context, snapshot) if found.can_be_mended]


def stale_partitions(context: TableContext, snapshot: Snapshot) -> list[StalePartition]:
    """The partitions with stale files. Their history is read back to where all of their files had the same bucket count."""
    mixed = mixed_partitions(context.manifests.live_files(snapshot).bucket_counts())
    return [_examined(context, snapshot, partition, counts) for partition, counts in sorted(mixed.items())]


def _examined(context: TableContext, snapshot: Snapshot, partition: bytes, counts: tuple[int, ...]) -> StalePartition:
    live = later = _in_buckets(context, snapshot, partition)
    added_by: dict[str, int] = {}
    buckets, after, commits = None, snapshot, list[Snapshot]()
    while (before := context.snapshots.find(after.id - 1) if after.id > 1 else None) is not None:
        earlier = _in_buckets(context, before, partition)
        added_by.update((name, after.id) for name in later.keys() - earlier.keys())
        commits.append(after)
        found = {entry.total_buckets for entry in earlier.values()}
        if len(found) < 2:
            buckets = next(iter(found), None)
            break
        later, after = earlier, before
    if buckets not in counts:
        buckets = context.options.bucket if context.options.bucket in counts else None
    stale = [CommittedFile(e, added_by.get(name)) for name, e in live.items() if e.total_buckets != buckets]
    stale.sort(key=lambda file: (file.snapshot_id or 0, file.entry.file.min_sequence_number))
    written = [
        CommittedFile(entry, commit.id)
        for commit in reversed(commits)
        for entry in (context.manifests.delta_entries(commit) if commit.commit_kind != COMPACT else ())
        if entry.kind == EntryKind.ADD and entry.partition == partition and entry.total_buckets == buckets
    ]
    return StalePartition(partition, counts, buckets, tuple(stale), tuple(written))


def _in_buckets(context: TableContext, snapshot: Snapshot, partition: bytes) -> dict[str, ManifestEntry]:
    """The live files of a partition by name, without those that wait for a bucket."""
    entries = context.manifests.live_entries(snapshot, FileFilter({partition}.__contains__))
    return {entry.file.file_name: entry for entry in entries if not entry.is_postponed}
