"""Tables with a goal whose triggers were better in a replay of their last commits, and those that cannot be replayed."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from paimon_cli.compact.compaction_task import CompactionTask, SkippedBucket
from paimon_cli.history.file_table import FileTable
from paimon_cli.history.manifest_reader import ManifestReader
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs import replayed_history, trigger_replays
from paimon_cli.jobs.compact_request import CompactRequest
from paimon_cli.jobs.goal_merges import GoalMerges
from paimon_cli.jobs.round_plan import plan_compaction
from paimon_cli.jobs.service.budget import Budget
from paimon_cli.jobs.service.served_table import ServedTable
from paimon_cli.jobs.trigger_replays import ASKED_EVERY_MILLIS, TriggerReplay, TriggerReplays
from paimon_cli.lsm.rent_or_buy import Goal, patience_of
from paimon_cli.lsm.replayed_merges import LEAST_COMMITS, ReplayedCosts
from paimon_cli.metadata.data_file import BucketId, ManifestEntry
from paimon_cli.pieces import PIECES
from paimon_cli.requests.upkeep import Allowance
from tests.jobs.test_goal_merges import EAGER, LAZY, decide, later, table
from tests.jobs.test_leases import HandClock
from tests.tables import write

BETTER, WORSE = ReplayedCosts(100.0, 50.0), ReplayedCosts(100.0, 100.0)


class Found(TriggerReplays):
    """What a replay has found, whatever the history says."""

    def __init__(self, costs: ReplayedCosts) -> None:
        super().__init__(HandClock())
        self.costs = costs

    def of(self, *given: object) -> TriggerReplay:
        return TriggerReplay(1, 0, 30, self.costs)


def merges(goal: Goal, costs: ReplayedCosts) -> GoalMerges:
    return GoalMerges(goal, replays=Found(costs))


def decided(context: TableContext, by: GoalMerges) -> CompactionTask | SkippedBucket:
    (decision,) = plan_compaction(later(context), CompactRequest("minor", merges=by)).decisions
    assert isinstance(decision, CompactionTask | SkippedBucket)
    return decision


def test_a_table_follows_its_triggers_where_they_were_better(tmp_path: Path) -> None:
    few, many = table(tmp_path / "few", 2), table(tmp_path / "many", 6)
    assert isinstance(decided(few, merges(EAGER, WORSE)), CompactionTask), "reads have paid"
    waits = decided(few, merges(EAGER, BETTER))
    assert isinstance(waits, SkippedBucket)
    assert waits.reason.startswith(
        "2 runs < trigger 5; its triggers are better: the last 30 commits cost 50 B with them and 100 B"
    )
    task, alone = decided(many, merges(LAZY, BETTER)), decide(many, None)
    assert isinstance(task, CompactionTask) and isinstance(alone, CompactionTask)
    assert (task.files, task.output_level, task.reason) == (alone.files, alone.output_level, alone.reason)
    assert task.score == 1.0 and task.cost == task.size, "it takes its place among merges by reads"
    assert isinstance(decided(many, merges(LAZY, WORSE)), SkippedBucket)


def test_the_cap_on_runs_and_what_no_budget_suffices_for_stay_as_they_are(tmp_path: Path) -> None:
    context = table(tmp_path / "t", 6)
    capped = decided(context, merges(replace(LAZY, most_runs=4), BETTER))
    assert isinstance(capped, CompactionTask) and capped.reason == "most-runs" and capped.score == math.inf
    never = decided(context, replace(merges(LAZY, BETTER), most_bytes=10))
    assert isinstance(never, SkippedBucket) and "score" in never.reason


@pytest.fixture
def long(tmp_path: Path) -> TableContext:
    context = table(tmp_path / "long", 0)
    for number in range(LEAST_COMMITS + 1):
        write(context, [{"id": key, "n": number} for key in range(number, number + 3)])
    return context


def replayed(replays: TriggerReplays, context: TableContext) -> TriggerReplay | None:
    return replays.of("t", context, EAGER, lambda partition: 60.0, 1.0)


def test_the_history_of_a_table_is_replayed_and_again_when_there_is_more_of_it(long: TableContext) -> None:
    clock = HandClock()
    replays = TriggerReplays(clock)
    first = replayed(replays, long)
    assert first is not None and first.commits == LEAST_COMMITS and first.costs.by_reads > 0
    write(long, [{"id": 1, "n": 1}])
    clock.millis += ASKED_EVERY_MILLIS
    assert replayed(replays, TableContext.open(long.url)) is first
    for number in range(LEAST_COMMITS // 2):
        write(long, [{"id": 1, "n": number}])
    assert replayed(replays, TableContext.open(long.url)) == replace(first, asked_millis=clock.millis), (
        "it is not asked again yet"
    )
    clock.millis += ASKED_EVERY_MILLIS
    again = replayed(replays, TableContext.open(long.url))
    assert again is not None and again.commits == LEAST_COMMITS + 1 + LEAST_COMMITS // 2
    assert replayed(TriggerReplays(clock), TableContext.open(long.url)) == again, "a restart finds the same"
    replays.forget("t")
    assert replayed(replays, TableContext.open(long.url)) == again


def test_a_short_or_unreadable_history_leaves_the_decision_to_reads(long: TableContext, tmp_path: Path) -> None:
    short = replayed(TriggerReplays(HandClock()), table(tmp_path / "short", 3))
    assert short is not None and short.commits == 0 and not short.follows_triggers
    Path(long.layout.snapshot(7)).write_text("{")
    broken = replayed(TriggerReplays(HandClock()), TableContext.open(long.url))
    assert broken is not None and broken.commits == 0
    found = GoalMerges(EAGER, replays=TriggerReplays(HandClock()))
    assert isinstance(decided(long, found), CompactionTask)


def test_an_hour_has_only_so_many_replays(long: TableContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trigger_replays, "MOST_REPLAYS", 1)
    clock = HandClock()
    replays = TriggerReplays(clock)

    def found(name: str) -> TriggerReplay | None:
        return replays.of(name, long, EAGER, lambda partition: 60.0, 1.0)

    assert found("one") is not None and found("two") is None, "reads decide about the others"
    clock.millis += 3_600_000
    assert found("two") is not None


def test_only_the_busiest_buckets_of_many_are_replayed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = table(tmp_path / "t", 0, {"bucket": "4"})
    for number in range(LEAST_COMMITS + 1):
        write(context, [{"id": key, "n": number} for key in range(8)])
    asked: set[bytes] = set()
    monkeypatch.setattr(PIECES, "compared_rounds", LEAST_COMMITS)

    def rate(partition: bytes) -> float:
        asked.add(partition)
        return 1.0

    found = replayed_history.replayed_table(context, "t", rate, 1.0)
    assert found is not None and len(found.begin) == 1 and len(asked) == 1
    (kept,) = found.begin
    assert isinstance(kept, BucketId) and found.patience(kept) == patience_of("t", *kept), "the one of its merges"
    assert all(len(commit.flushed) == 1 for commit in found.commits)


def test_buckets_of_too_many_files_are_not_replayed(long: TableContext, monkeypatch: pytest.MonkeyPatch) -> None:
    write(long, [{"id": 1, "n": 1}])
    monkeypatch.setattr(replayed_history, "MOST_FILES", 1)
    assert replayed_history.replayed_table(long, "t", lambda partition: 60.0, 1.0) is not None
    monkeypatch.setattr(replayed_history, "MOST_FILES", 0)
    found = replayed(TriggerReplays(HandClock()), long)
    assert found is not None and found.commits == 0 and not found.follows_triggers


def test_entries_are_counted_before_they_are_read_and_only_those_of_replayed_buckets_become_objects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = table(tmp_path / "t", 0, {"bucket": "4"})
    for number in range(LEAST_COMMITS + 1):
        write(context, [{"id": key, "n": number} for key in range(8)])
    monkeypatch.setattr(PIECES, "compared_rounds", LEAST_COMMITS)
    decoded, entry = list[int](), FileTable.entry

    def noted(self: FileTable, row: int) -> ManifestEntry:
        decoded.append(row)
        return entry(self, row)

    monkeypatch.setattr(FileTable, "entry", noted)
    assert replayed_history.replayed_table(TableContext.open(context.url), "t", lambda partition: 1.0, 1.0) is not None
    assert len(decoded) <= LEAST_COMMITS + 2, "one of four buckets in each commit, and in the state before"
    monkeypatch.setattr(replayed_history, "MOST_ENTRIES", 4 * LEAST_COMMITS - 1)
    manifests = list[object]()
    monkeypatch.setattr(ManifestReader, "tables", lambda self, *given: manifests.append(given))
    monkeypatch.setattr(ManifestReader, "entries", lambda self, *given: manifests.append(given))
    assert replayed_history.replayed_table(TableContext.open(context.url), "t", lambda partition: 1.0, 1.0) is None
    assert not manifests


def test_a_budget_that_is_short_leaves_the_decision_to_reads() -> None:
    served = ServedTable("t", lambda: pytest.fail("not opened"))
    request, replays = CompactRequest("minor", merges=GoalMerges(EAGER)), TriggerReplays(HandClock(10**13))
    budget = Budget.of(Allowance(size=1000, is_daily=True), HandClock(10**13))
    whole = served.limited(request, budget, replays).merges
    assert whole is not None and whole.replays is (replays if budget.part_of_rate >= 1 else None)
    budget.settle(budget.reserve(1000), 1000)
    spent = served.limited(request, budget, replays).merges
    assert budget.part_of_rate < 1 and spent is not None and spent.replays is None
    unbounded = served.limited(request, None, replays).merges
    assert unbounded is not None and unbounded.replays is replays
