"""The last commits of a table as figures, for a replay: what each added to its busiest buckets, and their runs before that.

Manifests are read as columns, and only the entries of the buckets that are replayed become objects. What is read is bounded: a
replay only decides how merges are chosen, so a table with more is not replayed.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence

import numpy as np

from paimon_cli.history.file_table import FileTable
from paimon_cli.history.live_files import bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.inspect.replayed_commits import run_model, runs_as_flushed
from paimon_cli.lsm.compaction_simulation import RunModel, SimulatedCommit, merged_run
from paimon_cli.lsm.rent_or_buy import patience_of
from paimon_cli.lsm.replayed_merges import LEAST_COMMITS, MOST_COMMITS, ReplayedTable
from paimon_cli.lsm.simulated_bucket import Rolling, SimulatedRun
from paimon_cli.lsm.sorted_runs import highest_level, sorted_runs
from paimon_cli.metadata.data_file import BucketId, DataFileMeta, EntryKind, FileFilter, ManifestFileMeta
from paimon_cli.metadata.partition_ranges import may_hold_any
from paimon_cli.metadata.snapshot import COMPACT, Snapshot
from paimon_cli.metadata.table_layout import POSTPONE_BUCKET
from paimon_cli.pieces import PIECES
from paimon_cli.storage.injected import moment_of_wall_clock
from paimon_cli.storage.threads import in_parallel

MOST_FILES = 2000
"""The files of the replayed buckets, together. Each commit looks at all of them again, so with more it would take minutes."""
MOST_ENTRIES = 100_000
"""The entries of the manifests that a replay reads, of the commits, and of the state before them: some 50 MB."""


def replayed_table(
    context: TableContext, name: str, rate: Callable[[bytes], float], charge: float
) -> ReplayedTable[RunModel] | None:
    """The last commits of the table, and its runs before; of many buckets those into which most was written. None if they are
    too few, or the files or entries too many.

    `name`: of the table, from which the patience of its buckets follows. `rate`: reads an hour of a bucket of a partition.
    `charge`: what rewriting a byte costs, in bytes.
    """
    ids = context.snapshots.ids()[-2 * MOST_COMMITS - 1 :]
    if len(ids) <= LEAST_COMMITS:
        return None
    snapshots = [*in_parallel(context.snapshots.get, ids, context.read_threads)]
    writes = [number for number, snapshot in enumerate(snapshots) if number and snapshot.commit_kind != COMPACT][-MOST_COMMITS:]
    if len(writes) < LEAST_COMMITS:
        return None
    changes = _changes(context, [snapshots[number] for number in writes])
    if changes is None:
        return None
    kept = _busiest(changes)
    commits = [_commit(context, snapshots[number], table, kept) for number, table in zip(writes, changes, strict=True)]
    before, wanted = snapshots[writes[0] - 1], _Kept(context, kept)
    if _entries(filter(wanted.keeps_manifest, context.manifests.manifests_of(before))) > MOST_ENTRIES:
        return None
    states = {bucket_id: state for bucket_id, state in bucket_files(context, before, wanted).items() if bucket_id in kept}
    if sum(len(state.files) for state in states.values()) > MOST_FILES:
        return None
    options, target = context.options, context.mode.target_file_size
    rewrite_all = options.force_rewrite_all_files or options.record_level_expire_time is not None
    begin: Mapping[Hashable, list[SimulatedRun[RunModel]]] = {key: _runs(context, state.files) for key, state in states.items()}
    rates: dict[Hashable, float] = {key: rate(key.partition) for key in kept}
    patience: dict[Hashable, float] = {key: patience_of(name, *key) for key in kept}
    totals = max((state.total_buckets for state in states.values()), default=1)
    return ReplayedTable(
        begin,
        commits,
        functools.partial(merged_run, buckets=max(1, totals)),
        rates.__getitem__,
        max(options.num_levels - 1, *(highest_level(state.files) for state in states.values()), 0),
        Rolling(target, int(target * options.small_file_ratio), rewrite_all),
        charge,
        patience.__getitem__,
    )


def _changes(context: TableContext, snapshots: Sequence[Snapshot]) -> list[FileTable] | None:
    """The entries that each commit added; None if they are too many."""
    lists = [*in_parallel(context.manifests.delta_manifests, snapshots, context.read_threads)]
    if _entries(meta for manifests in lists for meta in manifests) > MOST_ENTRIES:
        return None
    return [*in_parallel(lambda manifests: FileTable.of(context.manifests.tables(manifests)), lists, context.read_threads)]


def _entries(manifests: Iterable[ManifestFileMeta]) -> int:
    """How many entries the manifests have, as their lists say."""
    return sum(max(0, meta.num_added_files) + max(0, meta.num_deleted_files) for meta in manifests)


def _busiest(changes: Iterable[FileTable]) -> frozenset[BucketId]:
    """The buckets into which most was written, as many as can be replayed."""
    written, commits = Counter[BucketId](), 0
    for table in changes:
        commits += 1
        sizes = np.where(table.numbers("kinds") == EntryKind.ADD, table.numbers("sizes"), 0)
        for bucket_id, rows in table.rows_by_bucket.items():
            if bucket_id.bucket != POSTPONE_BUCKET:
                written[bucket_id] += int(sizes[rows].sum())
    most = max(1, PIECES.compared_rounds // max(1, commits))
    return frozenset(sorted((key for key in written if written[key]), key=lambda key: (-written[key], key))[:most])


def _commit(
    context: TableContext, snapshot: Snapshot, changes: FileTable, kept: Collection[BucketId]
) -> SimulatedCommit[RunModel]:
    flushed: dict[Hashable, Sequence[RunModel]] = {}
    emptied = set[Hashable]()
    for bucket_id, rows in changes.rows_by_bucket.items():
        if bucket_id not in kept:
            continue
        entries = [changes.entry(row) for row in rows.tolist()]
        added = [entry.file for entry in entries if entry.kind == EntryKind.ADD]
        if added:
            flushed[bucket_id] = runs_as_flushed(context, added)
        if len(added) < len(entries):
            emptied.add(bucket_id)
    return SimulatedCommit(snapshot.time_millis, flushed, frozenset(emptied))


class _Kept(FileFilter):
    """The files of some buckets, and of others in their partitions."""

    def __init__(self, context: TableContext, buckets: Collection[BucketId]) -> None:
        partitions = {bucket_id.partition for bucket_id in buckets}
        super().__init__(partitions.__contains__, {bucket_id.bucket for bucket_id in buckets})
        self._types, self._values = context.partition_types, [context.partition_values(each) for each in partitions]

    def keeps_manifest(self, manifest: ManifestFileMeta) -> bool:
        return super().keeps_manifest(manifest) and may_hold_any(manifest.partition_stats, self._types, self._values)


def _runs(context: TableContext, files: Sequence[DataFileMeta]) -> list[SimulatedRun[RunModel]]:
    """The sorted runs of a bucket, newest first."""
    return [
        SimulatedRun(run.level, tuple(run_model(context, (file,)) for file in run.files), max(map(_created, run.files)))
        for run in sorted_runs(files, context.key_of)
    ]


def _created(file: DataFileMeta) -> int:
    return 0 if file.creation_time_millis is None else moment_of_wall_clock(file.creation_time_millis)
