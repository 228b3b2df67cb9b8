"""What was done to a table against what Paimon's triggers would have done: the same commits, replayed by the real step rule."""

from __future__ import annotations

from dataclasses import dataclass, replace

from paimon_cli.history.table_context import TableContext
from paimon_cli.inspect.compaction_scenarios import history_workload
from paimon_cli.lsm.compaction_simulation import RunModel, SimulatedCommit, simulate
from paimon_cli.lsm.sorted_runs import count_runs
from paimon_cli.metadata.data_file import BucketId, DataFileMeta, EntryKind
from paimon_cli.metadata.snapshot import COMPACT, Snapshot
from paimon_cli.storage.injected import local_hour

MOST_SNAPSHOTS = 2_000
"""The most snapshots that are replayed, the newest."""


@dataclass(frozen=True)
class AgainstTriggers:
    """The commits since a moment as they were, and as the triggers would have gone on from the same state.

    `written`: bytes that compactions wrote, without files of which only the level changed. `runs`: sorted runs of a bucket after
    a commit that wrote to it, on the average; None if no commit did.
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
    written, depths = 0, list[int]()
    for snapshot in snapshots[1:]:
        entries = context.manifests.delta_entries(snapshot)
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
        if snapshot.commit_kind != COMPACT:
            depths += [count_runs(live[bucket_id].values()) for bucket_id in flushed]
    return written, round(sum(depths) / len(depths), 2) if depths else None
