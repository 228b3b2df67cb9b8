"""A table's own history as a workload to simulate: what its commits flushed, without what compactions made of that.

Two things are measured in the compactions of the history, because a model does not know them: for how long readers see a commit
without its compaction, and how many bytes of a file are not those of its rows.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterable, Mapping, Sequence
from statistics import median_low

import numpy as np

from paimon_cli.errors import UsageError
from paimon_cli.history.live_files import bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.lsm.compaction_simulation import RunModel, SimulatedCommit, SimulatedWorkload, merged_run
from paimon_cli.lsm.sorted_runs import SortedRun, sorted_runs
from paimon_cli.metadata.data_file import DataFileMeta, EntryKind
from paimon_cli.metadata.snapshot import COMPACT, Snapshot

MEASURED_COMPACTIONS = 20
"""How many compactions, the newest, are read for the size of their files."""


def history_workload(context: TableContext, chosen: Sequence[Snapshot] | None = None) -> SimulatedWorkload[RunModel]:
    """The table's history without its compactions: the files that each commit flushed, on top of the oldest snapshot.

    `chosen`: these snapshots, oldest first; None for all.
    Raises `UsageError` for tables without a primary key or without snapshots.
    """
    if not context.schema.primary_keys:
        raise UsageError(
            "the table has no primary key", "its files do not form an LSM tree", "describe a workload instead: --workload"
        )
    snapshots = chosen or [context.snapshots.get(number) for number in context.snapshots.ids()]
    if not snapshots:
        raise UsageError("the table has no snapshots", "there is no history to replay", "describe a workload instead: --workload")
    states = bucket_files(context, snapshots[0])
    totals = [state.total_buckets for state in states.values()]
    begin: dict[Hashable, list[tuple[int, RunModel]]] = {
        bucket_id: [(run.level, run_model(context, run.files)) for run in sorted_runs(state.files, context.key_of)]
        for bucket_id, state in states.items()
    }
    commits, sizes = [], list[tuple[int, int]]()
    for snapshot in snapshots[1:]:
        if snapshot.commit_kind == COMPACT:
            continue
        entries = context.manifests.delta_entries(snapshot)
        flushed: dict[Hashable, list[DataFileMeta]] = {}
        for entry in entries:
            if entry.kind == EntryKind.ADD:
                flushed.setdefault(entry.bucket_id, []).append(entry.file)
                totals.append(entry.total_buckets)
        emptied = frozenset(entry.bucket_id for entry in entries if entry.kind == EntryKind.DELETE)
        runs = {bucket_id: runs_as_flushed(context, files) for bucket_id, files in flushed.items()}
        commits.append(SimulatedCommit[RunModel](snapshot.time_millis, runs, emptied))
        sizes += ((file.row_count, file.file_size) for files in flushed.values() for file in files)
    for snapshot in [snapshot for snapshot in snapshots[1:] if snapshot.commit_kind == COMPACT][-MEASURED_COMPACTIONS:]:
        added = (entry.file for entry in context.manifests.delta_entries(snapshot) if entry.kind == EntryKind.ADD)
        sizes += ((file.row_count, file.file_size) for file in added)
    merge = functools.partial(_merged, buckets=max(totals, default=1), overhead=file_overhead(sizes))
    return SimulatedWorkload(commits, merge, begin, compaction_lag(context, snapshots))


def runs_as_flushed(context: TableContext, files: Sequence[DataFileMeta]) -> list[RunModel]:
    """The sorted runs, oldest first, as they were flushed."""
    return [run_model(context, run.files) for run in reversed(sorted_runs(files, context.key_of))]


def run_model(context: TableContext, files: Sequence[DataFileMeta]) -> RunModel:
    """The model of a sorted run with these files, in key order."""
    run = SortedRun(0, tuple(files))
    low, high = context.key_of(files[0].min_key), context.key_of(files[-1].max_key)
    return RunModel(run.row_count, run.size, low, high, any(file.delete_row_count != 0 for file in files))


def seen_millis(snapshots: Iterable[Snapshot]) -> Mapping[int, int]:
    """When readers see each snapshot (epoch millis), by its id, oldest first.

    A compaction that a write commits itself has the write's identity, and follows it within milliseconds: it counts as there at
    once.
    """
    moments: dict[int, int] = {}
    write: Snapshot | None = None
    for snapshot in snapshots:
        if snapshot.commit_kind != COMPACT:
            write = snapshot
        is_own = write is not None and _identity(snapshot) == _identity(write)
        moments[snapshot.id] = write.time_millis if write is not None and is_own else snapshot.time_millis
    return moments


def compaction_lag(context: TableContext, snapshots: Sequence[Snapshot]) -> int | None:
    """How long (millis) compactions come after the last write before them, typically; None where a job has to do them, and none
    is known.
    """
    moments, lags, write = seen_millis(snapshots), list[int](), None
    for snapshot in snapshots:
        if snapshot.commit_kind != COMPACT:
            write = snapshot
        elif write is not None:
            lags.append(max(0, moments[snapshot.id] - write.time_millis))
    if lags:
        return median_low(lags)
    return None if context.leaves_compaction else 0


def file_overhead(files: Sequence[tuple[int, int]]) -> int:
    """The bytes of a file besides those of its rows, such as schema and footer: where the line through all sizes begins.

    `files`: rows and bytes of each. 0 if the files have too similar numbers of rows to tell.
    """
    kept = [(rows, size) for rows, size in files if rows > 0 and size > 0]
    rows, sizes = np.array(kept, np.float64).reshape(-1, 2).T
    if not kept or rows.max() < 2 * rows.min():
        return 0
    # Relative errors count. Else the largest files, whose rows compress better or worse, would decide about a few hundred bytes.
    _, begin = np.polyfit(rows, sizes, 1, w=1 / sizes)
    return int(min(max(0.0, begin), sizes.min()))


def _identity(snapshot: Snapshot) -> tuple[str, int]:
    return snapshot.commit_user, snapshot.commit_identifier


def _merged(runs: Sequence[RunModel], buckets: int, overhead: int) -> RunModel:
    return merged_run(runs, buckets, overhead)
