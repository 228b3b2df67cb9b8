"""The history of a table's compactions, as COMPACT snapshots record it: when, by whom, what, how much and for how long.

It outlives the jobs, and holds the compactions of all engines. Only those of paimon-cli say how long they took.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

import numpy as np

from paimon_cli.catalog.table import LATEST, CatalogTable
from paimon_cli.errors import DamagedFile, NotFound
from paimon_cli.history.file_table import FileTable
from paimon_cli.history.manifest_reader import SnapshotGone
from paimon_cli.history.partition_spec import partition_text
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import ADD, DELETE
from paimon_cli.metadata.snapshot import COMPACT, Snapshot
from paimon_cli.metadata.table_layout import POSTPONE_BUCKET, natural_order
from paimon_cli.storage.threads import in_parallel

FILES, MANIFESTS, POSTPONED_ROWS = "files", "manifests", "postponed rows"
"""What a COMPACT snapshot has rewritten: data files, only manifests, or waiting rows that it gave their buckets."""
NONE = "none"
"""Stands for the levels where a compaction replaced no file, or produced none."""


@dataclass(frozen=True)
class RewrittenFiles:
    """`files_before` were replaced by `files_after`; `upgraded` of them only changed their level.

    `levels`: before and after, as `0,3 -> 5`.
    """

    levels: str
    files_before: int
    files_after: int
    upgraded: int
    rows_before: int
    rows_after: int
    bytes_before: int
    bytes_after: int


@dataclass(frozen=True)
class _CompactSnapshot:
    snapshot_id: int
    time: int
    what: str
    commit_user: str
    partitions: tuple[str, ...]
    buckets: int


@dataclass(frozen=True)
class CompactionRow(RewrittenFiles, _CompactSnapshot):
    """One COMPACT snapshot, and what it did to data files. `seconds`: from the plan to the publication.

    `manifests_before` and `manifests_after`: all of the table, where only manifests were rewritten; None elsewhere, and where the
    snapshot before has expired.
    """

    manifests_before: int | None
    manifests_after: int | None
    seconds: float | None


@dataclass(frozen=True)
class _Bucket:
    partition: str
    bucket: int


@dataclass(frozen=True)
class CompactedBucketRow(RewrittenFiles, _Bucket):
    """What one compaction did to one bucket."""


def compaction_rows(context: TableContext, limit: int | None = None, user: str | None = None) -> list[CompactionRow]:
    """The compactions, newest first; without those whose snapshots expire meanwhile."""
    chosen = (s for s in context.snapshots.newest_first() if s.commit_kind == COMPACT and user in (None, s.commit_user))
    rows = in_parallel(partial(_row, context), islice(chosen, limit), context.read_threads)
    return [row for row in rows if row is not None]


def compaction_snapshot(table: CatalogTable, name: str) -> Snapshot:
    """The COMPACT snapshot of that id, or the newest one. `NotFound` if there is none, or if it is of another kind."""
    hint = f"paimon-cli compactions ls {table.layout.argument}"
    if name == LATEST:
        found = next((s for s in table.snapshots.newest_first() if s.commit_kind == COMPACT), None)
        if found is None:
            raise NotFound(f"no compaction of {table.name}", "none of its snapshots is of kind COMPACT", hint)
        return found
    snapshot = table.named_snapshot(name)
    if snapshot.commit_kind != COMPACT:
        raise NotFound(f"snapshot {name} of {table.name} is not a compaction", f"it is of kind {snapshot.commit_kind}", hint)
    return snapshot


def compacted_buckets(context: TableContext, snapshot: Snapshot) -> list[CompactedBucketRow]:
    """What the snapshot did to each bucket, by partition and bucket; nothing if it rewrote manifests alone."""
    changes = _Changes.of(context, snapshot)
    rows = [
        CompactedBucketRow(partition_text(context, partition), bucket, **vars(changes.figures(entries)))
        for (partition, bucket), entries in changes.table.rows_by_bucket.items()
    ]
    return sorted(rows, key=lambda row: (natural_order(row.partition), row.bucket))


def _row(context: TableContext, snapshot: Snapshot) -> CompactionRow | None:
    try:
        changes = _Changes.of(context, snapshot)
        table, took = changes.table, snapshot.work_duration_millis
        manifests = (None, None) if len(table) else _manifest_counts(context, snapshot)
    except SnapshotGone:
        return None
    buckets = [bucket for _, bucket in table.rows_by_bucket]
    texts = {partition_text(context, partition) for partition, _ in table.rows_by_bucket} - {""}
    return CompactionRow(
        snapshot_id=snapshot.id,
        time=snapshot.time_millis,
        what=MANIFESTS if not buckets else POSTPONED_ROWS if POSTPONE_BUCKET in buckets else FILES,
        commit_user=snapshot.commit_user,
        partitions=tuple(sorted(texts, key=natural_order)),
        buckets=sum(bucket != POSTPONE_BUCKET for bucket in buckets),
        **vars(changes.figures(np.arange(len(table)))),
        manifests_before=manifests[0],
        manifests_after=manifests[1],
        seconds=None if took is None else took / 1000,
    )


def _manifest_counts(context: TableContext, snapshot: Snapshot) -> tuple[int | None, int]:
    """The manifests of the snapshot before, None if it has expired, and of this one."""
    after = len(context.manifests.manifests_of(snapshot))
    earlier = context.snapshots.find(snapshot.id - 1)
    try:
        return (None if earlier is None else len(context.manifests.manifests_of(earlier))), after
    except SnapshotGone:
        return None, after


@dataclass(frozen=True)
class _Changes:
    """The entries of a snapshot's delta, and the names of their files."""

    table: FileTable
    names: Sequence[bytes]

    @classmethod
    def of(cls, context: TableContext, snapshot: Snapshot) -> _Changes:
        manifests = context.manifests
        try:
            delta = manifests.manifest_list(snapshot.delta_manifest_list, snapshot.delta_manifest_list_size)
            table = FileTable.of(manifests.tables(delta))
        except DamagedFile as error:
            raise manifests.gone_or_damaged(snapshot, error) from error
        return cls(table, [name for names in table.each("names") for name in names])

    def figures(self, entries: np.ndarray) -> RewrittenFiles:
        kinds = self.table.numbers("kinds")[entries]
        before, after = entries[kinds == DELETE], entries[kinds == ADD]
        stay = {self.names[row] for row in before.tolist()} & {self.names[row] for row in after.tolist()}
        rows, sizes = self.table.numbers("row_counts"), self.table.numbers("sizes")
        return RewrittenFiles(
            f"{self._levels(before)} -> {self._levels(after)}" if len(entries) else "",
            len(before),
            len(after),
            len(stay),
            int(rows[before].sum()),
            int(rows[after].sum()),
            int(sizes[before].sum()),
            int(sizes[after].sum()),
        )

    def _levels(self, entries: np.ndarray) -> str:
        return ",".join(map(str, np.unique(self.table.numbers("levels")[entries]).tolist())) or NONE
