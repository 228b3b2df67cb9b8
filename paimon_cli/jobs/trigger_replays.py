"""Whether a table with a goal follows its triggers for a while, because a replay of its last commits found them better.

A service remembers what it found, and replays a table again when there are half as many new commits. Nothing depends on that but
the way in which merges are chosen. So whatever goes wrong with a replay, and where the history is short, reads decide.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from paimon_cli.errors import PaimonError
from paimon_cli.history.live_files import bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.inspect.compaction_scenarios import run_model, runs_as_flushed
from paimon_cli.lsm.compaction_picker import CompactionPicker
from paimon_cli.lsm.compaction_simulation import RunModel, SimulatedCommit, merged_run
from paimon_cli.lsm.rent_or_buy import HOUR_MILLIS, Goal
from paimon_cli.lsm.replayed_merges import LEAST_COMMITS, MOST_COMMITS, ReplayedCosts, ReplayedTable, replayed_costs
from paimon_cli.lsm.simulated_bucket import Rolling, SimulatedRun
from paimon_cli.lsm.sorted_runs import highest_level, sorted_runs
from paimon_cli.metadata.data_file import BucketId, DataFileMeta, EntryKind
from paimon_cli.metadata.snapshot import COMPACT, Snapshot
from paimon_cli.metadata.table_layout import POSTPONE_BUCKET
from paimon_cli.options.option_text import human_size
from paimon_cli.pieces import PIECES
from paimon_cli.storage.injected import Clock, local_hour, moment_of_wall_clock
from paimon_cli.storage.threads import in_parallel

MOST_REPLAYS = 100
"""The tables that are replayed in an hour. In a warehouse of many tables, the others wait, and reads decide meanwhile."""
MOST_FILES = 2000
"""The files of the replayed buckets, together. Each commit looks at all of them again, so with more it would take minutes."""
ASKED_EVERY_MILLIS = 300_000
"""How often a table is asked whether it has enough new commits, which takes requests."""
NOT_REPLAYED = ReplayedCosts(0.0, 0.0)


@dataclass(frozen=True)
class TriggerReplay:
    """What a replay found at a snapshot. `commits`: how many were replayed; 0 if the history was too short, or unreadable.
    `asked_millis`: when the table was asked last for new ones (epoch millis).
    """

    snapshot_id: int
    asked_millis: int
    commits: int = 0
    costs: ReplayedCosts = NOT_REPLAYED

    @property
    def follows_triggers(self) -> bool:
        return self.commits > 0 and self.costs.follows_triggers

    def __str__(self) -> str:
        by_reads, by_triggers = (human_size(int(cost)) for cost in self.costs)
        return f"its triggers are better: the last {self.commits} commits cost {by_triggers} with them and {by_reads} by reads"


@dataclass
class TriggerReplays:
    """What a process has found of each table, by its name."""

    clock: Clock
    _of: dict[str, TriggerReplay] = field(default_factory=dict)
    _hour: int = 0
    _made: int = 0

    def of(
        self, table: str, context: TableContext, goal: Goal, rate: Callable[[bytes], float], charge: float
    ) -> TriggerReplay | None:
        """What was found of the table, after another replay if it is due; None if it was never replayed.

        `rate`: reads an hour of a bucket of a partition. `charge`: what rewriting a byte costs, in bytes.
        """
        now, found = self.clock.now_millis(), self._of.get(table)
        if found is not None and now - found.asked_millis < ASKED_EVERY_MILLIS:
            return found
        latest = context.snapshots.latest_id()
        if latest is None:
            return found
        if found is not None and found.snapshot_id <= latest < found.snapshot_id + _wait(found):
            self._of[table] = replace(found, asked_millis=now)
            return found
        if not self._may_replay():
            return found
        # at once: if a look takes too long because of this, the next one does without it
        nothing = TriggerReplay(latest, now)
        self._of[table] = nothing if found is None else replace(found, snapshot_id=latest, asked_millis=now)
        try:
            replayed = _replayed_table(context, rate, charge)
        except PaimonError:  # what is wrong with the history is no matter of a plan, and snapshots may expire meanwhile
            replayed = None
        if replayed is None:
            self._of[table] = nothing
        else:
            options, max_level = context.options, replayed.max_level
            costs = replayed_costs(replayed, goal, lambda now: CompactionPicker.of(options, max_level, local_hour(now)))
            self._of[table] = TriggerReplay(latest, now, len(replayed.commits), costs)
        return self._of[table]

    def forget(self, table: str) -> None:
        self._of.pop(table, None)

    def _may_replay(self) -> bool:
        hour = self.clock.now_millis() // HOUR_MILLIS
        if hour != self._hour:
            self._hour, self._made = hour, 0
        self._made += 1
        return self._made <= MOST_REPLAYS


def _wait(found: TriggerReplay) -> int:
    """How many snapshots later a table is replayed again."""
    return max(LEAST_COMMITS, found.commits) // 2


def _replayed_table(context: TableContext, rate: Callable[[bytes], float], charge: float) -> ReplayedTable[RunModel] | None:
    """The last commits of the table, and its runs before; of many buckets those into which most was written. None if they are
    too few, or the files too many.
    """
    ids = context.snapshots.ids()[-2 * MOST_COMMITS - 1 :]
    if len(ids) <= LEAST_COMMITS:
        return None
    snapshots = [*in_parallel(context.snapshots.get, ids, context.read_threads)]
    writes = [number for number, snapshot in enumerate(snapshots) if number and snapshot.commit_kind != COMPACT][-MOST_COMMITS:]
    if len(writes) < LEAST_COMMITS:
        return None
    made = functools.partial(_commit, context)
    commits = [*in_parallel(made, [snapshots[number] for number in writes], context.read_threads)]
    kept = _busiest(commits)
    commits = [
        SimulatedCommit(each.millis, {key: runs for key, runs in each.flushed.items() if key in kept}, each.emptied & kept)
        for each in commits
    ]
    states = bucket_files(context, snapshots[writes[0] - 1])
    if sum(len(state.files) for bucket_id, state in states.items() if bucket_id in kept) > MOST_FILES:
        return None
    begin: dict[Hashable, list[SimulatedRun[RunModel]]] = {
        bucket_id: _runs(context, state.files) for bucket_id, state in states.items() if bucket_id in kept
    }
    options, target = context.options, context.mode.target_file_size
    rewrite_all = options.force_rewrite_all_files or options.record_level_expire_time is not None
    highest = max((highest_level(state.files) for bucket_id, state in states.items() if bucket_id in kept), default=0)
    rates: dict[Hashable, float] = {key: rate(key.partition) for key in kept if isinstance(key, BucketId)}
    totals = max((state.total_buckets for state in states.values()), default=1)
    return ReplayedTable(
        begin,
        commits,
        functools.partial(merged_run, buckets=max(1, totals)),
        rates.__getitem__,
        max(options.num_levels - 1, highest),
        Rolling(target, int(target * options.small_file_ratio), rewrite_all),
        charge,
    )


def _commit(context: TableContext, snapshot: Snapshot) -> SimulatedCommit[RunModel]:
    entries = context.manifests.delta_entries(snapshot)
    flushed: dict[BucketId, list[DataFileMeta]] = {}
    for entry in entries:
        if entry.kind == EntryKind.ADD and entry.bucket != POSTPONE_BUCKET:
            flushed.setdefault(entry.bucket_id, []).append(entry.file)
    emptied = frozenset[Hashable](entry.bucket_id for entry in entries if entry.kind == EntryKind.DELETE)
    runs: Mapping[Hashable, Sequence[RunModel]] = {key: runs_as_flushed(context, files) for key, files in flushed.items()}
    return SimulatedCommit(snapshot.time_millis, runs, emptied)


def _runs(context: TableContext, files: Sequence[DataFileMeta]) -> list[SimulatedRun[RunModel]]:
    """The sorted runs of a bucket, newest first."""
    return [
        SimulatedRun(run.level, tuple(run_model(context, (file,)) for file in run.files), max(map(_created, run.files)))
        for run in sorted_runs(files, context.key_of)
    ]


def _created(file: DataFileMeta) -> int:
    return 0 if file.creation_time_millis is None else moment_of_wall_clock(file.creation_time_millis)


def _busiest(commits: Sequence[SimulatedCommit[RunModel]]) -> frozenset[Hashable]:
    """The buckets into which most was written, as many as can be replayed."""
    written: dict[Hashable, int] = {}
    for commit in commits:
        for key, runs in commit.flushed.items():
            written[key] = written.get(key, 0) + sum(run.size for run in runs)
    most = max(1, PIECES.compared_rounds // len(commits))
    return frozenset(sorted(written, key=lambda key: (-written[key], repr(key)))[:most])
