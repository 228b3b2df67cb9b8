"""What was done to a table against what Paimon's triggers would have done: the same commits, replayed by the real step rule."""

from __future__ import annotations

from dataclasses import dataclass, replace

from paimon_cli.history.table_context import TableContext
from paimon_cli.inspect.replayed_commits import history_workload, seen_millis
from paimon_cli.lsm.compaction_simulation import RunModel, SimulatedCommit, simulate
from paimon_cli.lsm.seen_runs import SeenRuns
from paimon_cli.lsm.sorted_runs import count_runs
from paimon_cli.metadata.data_file import BucketId, DataFileMeta, EntryKind
from paimon_cli.metadata.snapshot import COMPACT, Snapshot
from paimon_cli.storage.injected import local_hour

MOST_SNAPSHOTS = 2_000
"""The most snapshots that are replayed, the newest."""


@dataclass(frozen=True)
class AgainstTriggers:
    """The commits since a moment as they were, and as the triggers would have gone on from the same state.

    `written`: bytes that compactions wrote, without files of which only the level changed. `runs`: sorted runs that
    readers find in a bucket after a commit that wrote to it, on the average, see `SeenRuns`; None if no commit did.
    """

    commits: int
    written: int
    runs: float | None
    triggers_written: int
    triggers_runs: float | None


def against_triggers(context: TableContext, since_millis: int) -> AgainstTriggers | None:
    """Replay the retained commits since then (epoch millis); None if there are none, or no sorted runs."""
    if not context.schema.primary_keys or context.mode.bucket_mode.postpones:
        return None
    snapshots = [context.snapshots.get(number) for number in context.snapshots.ids()[-MOST_SNAPSHOTS:]]
    before = [snapshot for snapshot in snapshots if snapshot.time_millis < since_millis][-1:]
    chosen = before + [snapshot for snapshot in snapshots if snapshot.time_millis >= since_millis]
    if len(chosen) < 2:
        return None
    workload = history_workload(context, chosen)
    # The triggers, too, decide about the runs that were there at the beginning, even if no commit follows.
    beginning = SimulatedCommit[RunModel](chosen[0].time_millis, {})
    replayed = simulate(replace(workload, commits=[beginning, *workload.commits]), context.options, local_hour)
    written, runs = _as_it_was(context, chosen)
    triggers_runs = None if runs is None else replayed.read_amplification
    return AgainstTriggers(len(workload.commits), written, runs, replayed.compacted_bytes, triggers_runs)


def _as_it_was(context: TableContext, snapshots: list[Snapshot]) -> tuple[int, float | None]:
    """The bytes that compactions wrote, and the mean number of runs, as in `SimulationResult`."""
    live: dict[BucketId, dict[str, DataFileMeta]] = {}
    for entry in context.manifests.live_entries(snapshots[0]):
        live.setdefault(entry.bucket_id, {})[entry.file.file_name] = entry.file
    written, seen, moments = 0, SeenRuns(), seen_millis(snapshots)
    is_written = False
    for snapshot in snapshots[1:]:
        entries, now = context.manifests.delta_entries(snapshot), moments[snapshot.id]
        removed = {entry.file.file_name for entry in entries if entry.kind == EntryKind.DELETE}
        for entry in entries:
            if entry.kind == EntryKind.DELETE:
                live.get(entry.bucket_id, {}).pop(entry.file.file_name, None)
        flushed = set[BucketId]()
        for entry in entries:
            if entry.kind == EntryKind.ADD:
                live.setdefault(entry.bucket_id, {})[entry.file.file_name] = entry.file
                flushed.add(entry.bucket_id)
                is_rewritten = snapshot.commit_kind == COMPACT and entry.file.file_name not in removed
                written += entry.file.file_size if is_rewritten else 0
        is_compaction = snapshot.commit_kind == COMPACT
        is_written |= bool(flushed) and not is_compaction
        for bucket_id in {entry.bucket_id for entry in entries}:
            runs = count_runs(live.get(bucket_id, {}).values())
            if is_compaction:
                seen.compacted(bucket_id, now, runs)
            elif bucket_id in flushed:
                seen.written(bucket_id, now, runs)
            else:
                seen.end(bucket_id, now)
    return written, round(seen.mean(moments[snapshots[-1].id]), 2) if is_written else None
