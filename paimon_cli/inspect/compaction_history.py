"""`compactions ls` and `show`: the compactions of a table by any engine, as its COMPACT snapshots record them.

Only compactions by paimon-cli record their duration.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

import numpy as np

from paimon_cli.errors import DamagedFile, NotFound
from paimon_cli.history.file_table import FileTable
from paimon_cli.history.manifest_reader import SnapshotGone
from paimon_cli.history.partition_spec import partition_text
from paimon_cli.history.points_in_time import named_snapshot
from paimon_cli.history.table_context import LATEST, TableContext
from paimon_cli.metadata.data_file import EntryKind
from paimon_cli.metadata.snapshot import COMPACT, Snapshot
from paimon_cli.metadata.table_layout import POSTPONE_BUCKET, natural_order
from paimon_cli.storage.redaction import shown_name
from paimon_cli.storage.threads import in_parallel

DATA_FILES, MANIFESTS, POSTPONED_ROWS = "files", "manifests", "postponed rows"
"""What a COMPACT snapshot rewrote: data files, only manifests, or postponed rows that it moved to their buckets."""
NONE = "none"
"""Shown for levels if a compaction replaced no file, or produced none."""


@dataclass(frozen=True)
class RewrittenFiles:
    """The files that a compaction read and those that it wrote. `upgraded`: further files, which only changed their level.

    `levels`: the levels of all of them before and after, such as `0,3 -> 5`.
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
    """One COMPACT snapshot. `seconds`: from the plan to the publication; None if not recorded.

    `manifests_before`, `manifests_after`: the table's manifests if only these were rewritten, else None; `manifests_before`
    is also None if the previous snapshot has expired.
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


def compaction_rows(
    context: TableContext,
    limit: int | None = None,
    user: str | None = None,
    on_damage: Callable[[DamagedFile], object] | None = None,
) -> list[CompactionRow]:
    """The compactions, newest first. Snapshots that expire in the meantime are left out, and those that cannot be read if
    `on_damage` receives their errors; without it they are raised.
    """
    snapshots = context.snapshots.newest_first(on_damage=on_damage)
    chosen = (s for s in snapshots if s.commit_kind == COMPACT and user in (None, s.commit_user))
    rows = list[CompactionRow]()
    for row in in_parallel(partial(_row_or_damage, context), islice(chosen, limit), context.read_threads):
        if isinstance(row, DamagedFile):
            if on_damage is None:
                raise row
            on_damage(row)
        elif row is not None:
            rows.append(row)
    return rows


def _row_or_damage(context: TableContext, snapshot: Snapshot) -> CompactionRow | DamagedFile | None:
    try:
        return _row(context, snapshot)
    except DamagedFile as damage:
        return damage


def compaction_snapshot(table: TableContext, name: str) -> Snapshot:
    """The COMPACT snapshot with this id or tag, or the newest one (`latest`).

    Raises `NotFound` if there is none, or if the snapshot is of another kind.
    """
    hint = f"paimon-cli compactions ls {table.layout.argument}"
    if name == LATEST:
        found = next((s for s in table.snapshots.newest_first() if s.commit_kind == COMPACT), None)
        if found is None:
            raise NotFound(f"no compaction of {table.name}", "none of its snapshots is of kind COMPACT", hint)
        return found
    snapshot = named_snapshot(table, name)
    if snapshot.commit_kind != COMPACT:
        raise NotFound(f"snapshot {name} of {table.name} is not a compaction", f"it is of kind {snapshot.commit_kind}", hint)
    return snapshot


def compacted_buckets(context: TableContext, snapshot: Snapshot) -> list[CompactedBucketRow]:
    """What the snapshot did to each bucket, by partition and bucket; empty if it only rewrote manifests."""
    changes = _Changes.of(context, snapshot)
    rows = [
        CompactedBucketRow(partition_text(context, partition), bucket, **vars(changes.figures(entries)))
        for (partition, bucket), entries in changes.table.rows_by_bucket.items()
    ]
    return sorted(rows, key=lambda row: (natural_order(row.partition), row.bucket))


def rewritten_files(context: TableContext, snapshot: Snapshot) -> RewrittenFiles:
    """The files that a snapshot of any kind removed from the latest state, and those that it added.

    Raises `SnapshotGone` if the snapshot expires in the meantime, and `DamagedFile` if its manifests cannot be read.
    """
    changes = _Changes.of(context, snapshot)
    return changes.figures(np.arange(len(changes.table)))


def _row(context: TableContext, snapshot: Snapshot) -> CompactionRow | None:
    try:
        changes = _Changes.of(context, snapshot)
        table, duration = changes.table, snapshot.work_duration_millis
        manifests = (None, None) if len(table) else _manifest_counts(context, snapshot)
    except SnapshotGone:
        return None
    buckets = [bucket for _, bucket in table.rows_by_bucket]
    texts = {partition_text(context, partition) for partition, _ in table.rows_by_bucket} - {""}
    return CompactionRow(
        snapshot_id=snapshot.id,
        time=snapshot.time_millis,
        what=MANIFESTS if not buckets else POSTPONED_ROWS if POSTPONE_BUCKET in buckets else DATA_FILES,
        commit_user=shown_name(snapshot.commit_user),
        partitions=tuple(sorted(texts, key=natural_order)),
        buckets=sum(bucket != POSTPONE_BUCKET for bucket in buckets),
        **vars(changes.figures(np.arange(len(table)))),
        manifests_before=manifests[0],
        manifests_after=manifests[1],
        seconds=None if duration is None else duration / 1000,
    )


def _manifest_counts(context: TableContext, snapshot: Snapshot) -> tuple[int | None, int]:
    """The number of manifests before (None if the previous snapshot has expired) and after this snapshot."""
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
        before, after = entries[kinds == EntryKind.DELETE], entries[kinds == EntryKind.ADD]
        levels = f"{self._levels(before)} -> {self._levels(after)}" if len(entries) else ""
        upgraded = {self.names[row] for row in before.tolist()} & {self.names[row] for row in after.tolist()}
        is_rewritten = np.array([self.names[row] not in upgraded for row in entries.tolist()], dtype=bool)
        before, after = entries[is_rewritten & (kinds == EntryKind.DELETE)], entries[is_rewritten & (kinds == EntryKind.ADD)]
        rows, sizes = self.table.numbers("row_counts"), self.table.numbers("sizes")
        return RewrittenFiles(
            levels,
            len(before),
            len(after),
            len(upgraded),
            int(rows[before].sum()),
            int(rows[after].sum()),
            int(sizes[before].sum()),
            int(sizes[after].sum()),
        )

    def _levels(self, entries: np.ndarray) -> str:
        return ",".join(map(str, np.unique(self.table.numbers("levels")[entries]).tolist())) or NONE
