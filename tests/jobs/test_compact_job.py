"""The stages of a compaction: which plan each carries out, what is tried again, and what is counted, also before an error."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paimon_cli.commit.commit_messages import CommitKind
from paimon_cli.compact.compaction_task import CompactionTask, PostponedRows, RegroupedPartition, SkippedBucket
from paimon_cli.compact.key_ranges import KeyRanges
from paimon_cli.errors import (
    Conflict,
    DamagedFile,
    FilesConflict,
    NotSupported,
    PaimonError,
    PartialSuccess,
    Refused,
    SnapshotExpired,
    StorageUnavailable,
    UsageError,
)
from paimon_cli.history.manifest_reader import SnapshotGone
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.unfinished_rescale import UnfinishedRescale
from paimon_cli.jobs import compact_job, postponed_rows, stale_buckets, unfinished_rescale
from paimon_cli.jobs.compact_job import MAX_REPLANS, _Compaction, _raise_unfinished, _remember, run_compact
from paimon_cli.jobs.compact_outcome import Outcome
from paimon_cli.jobs.compact_request import CompactRequest
from paimon_cli.jobs.compact_summary import CompactionAccount, CompactSummary
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.rescale_job import RescaleSummary
from paimon_cli.jobs.round_plan import CompactionPlan
from paimon_cli.jobs.table_change import NewFiles
from paimon_cli.lsm.compaction_picker import NEVER_PICKED, PickState
from paimon_cli.metadata.data_file import EMPTY_ROW, BucketId, CommitMessage, DataFileMeta, FileChanges
from paimon_cli.metadata.table_layout import POSTPONE_BUCKET
from tests.commit.commit_tables import data_file, make_table

SIZE = 1000
SNAPSHOT: Any = type("Made", (), {"id": 7})()
CONFLICT = FilesConflict("another job")


@pytest.fixture
def context(tmp_path: Path) -> TableContext:
    return make_table(tmp_path / "t")


def work(context: TableContext, request: CompactRequest | None = None, ready: CompactionPlan | None = None) -> _Compaction:
    return _Compaction(context, request or CompactRequest(), LocalEngine(), NoProgress(), {}, contextlib.nullcontext, ready)


def place(bucket: int) -> BucketId:
    return BucketId(EMPTY_ROW, bucket)


def message(bucket: int, *names: str) -> CommitMessage:
    """A compaction that has read these files."""
    return CommitMessage(EMPTY_ROW, bucket, 4, compact=FileChanges(removed=tuple(data_file(name) for name in names)))


def task(bucket: int, *files: DataFileMeta, state: PickState = NEVER_PICKED) -> CompactionTask:
    given = (EMPTY_ROW, bucket, 4, files, 5, 5, True, "due", "", 2, 1, 1)
    return CompactionTask(*given, state=state)


Stage = Callable[[frozenset[BucketId] | None], CompactionPlan]


def stage(job: _Compaction, *rounds: tuple[CompactionPlan, Outcome], asked: list[Any] | None = None) -> Stage:
    """A stage of which each run gives the next plan and does this."""
    left = list(rounds)

    def run(only: frozenset[BucketId] | None) -> CompactionPlan:
        plan, done = left.pop(0)
        if asked is not None:
            asked.append(only)
        job.partly.add_stage(done)
        return plan

    return run


def test_buckets_with_a_conflict_are_planned_again_as_often_as_the_request_allows(context: TableContext) -> None:
    first, later = CompactionPlan(1), CompactionPlan(2)
    both = Outcome(conflicts={place(0): CONFLICT, place(1): CONFLICT})
    one, none = Outcome(conflicts={place(1): CONFLICT}), Outcome(committed=[message(1, "x")])
    asked: list[Any] = []
    job = work(context, CompactRequest(on_conflict="retry"))
    job.run(stage(job, (first, both), (later, one), (later, none), asked=asked))
    assert asked == [None, frozenset({place(0), place(1)}), frozenset({place(1)})]
    assert (job.replans, job.plan, job.total.conflicts, job.total.committed) == (2, first, {}, none.committed)
    assert job.summary().conflicts == 2
    job.run(stage(job, (later, Outcome())))
    assert job.plan is first
    for request in (CompactRequest(on_conflict="skip"), CompactRequest(on_conflict="fail"), CompactRequest(if_snapshot=1)):
        job = work(context, request)
        job.run(stage(job, (first, both)))
        assert job.total.conflicts == both.conflicts and job.replans == 0 and job.summary().conflicts == 2
    asked.clear()
    job = work(context, CompactRequest(on_conflict="retry"))
    job.run(stage(job, *[(first, one)] * (MAX_REPLANS + 1), asked=asked))
    assert len(asked) == MAX_REPLANS + 1 and job.total.conflicts == one.conflicts


def test_a_bucket_that_the_limits_leave_keeps_its_conflict(context: TableContext) -> None:
    left = SkippedBucket(*place(1), 2, "beyond", is_over_cap=True)
    fine = SkippedBucket(*place(0), 1, "not due")
    job = work(context, CompactRequest(on_conflict="retry"))
    both = Outcome(conflicts={place(0): CONFLICT, place(1): CONFLICT})
    job.run(stage(job, (CompactionPlan(1), both), (CompactionPlan(2, (fine, left)), Outcome())))
    assert job.total.conflicts == {place(1): CONFLICT}


def test_what_each_run_of_a_stage_has_read_counts_also_before_an_error(context: TableContext) -> None:
    job = work(context, CompactRequest(on_conflict="retry"))
    done = Outcome(committed=[message(0, "a", "b")], snapshots=[SNAPSHOT], conflicts={place(1): CONFLICT})
    calls: list[int] = []

    def failing(only: frozenset[BucketId] | None) -> CompactionPlan:
        calls.append(1)
        assert job.begun == {} and job.partly == Outcome(), "each run begins with nothing"
        job.begun = {place(0): 2 * SIZE, place(1): 500}
        if len(calls) == 2:
            job.begun = {place(1): 300}
            raise StorageUnavailable("the store is away")
        job.partly.add_stage(done)
        return CompactionPlan(1)

    with pytest.raises(StorageUnavailable) as failure:
        job.run(failing)
    assert job.total.committed == done.committed and job.total.snapshots == [SNAPSHOT]
    assert job.total.lost_read == 800 and job.request.bytes_before == 2 * SIZE + 800
    assert failure.value.details["published_snapshots"] == [7]
    with pytest.raises(SnapshotExpired):
        job.run(lambda only: fail_with(SnapshotGone("snapshot 1 is gone", "it has expired")))


def fail_with(error: BaseException) -> Any:
    raise error


def test_an_error_after_the_distribution_says_that_rows_have_their_buckets(context: TableContext) -> None:
    job = work(context)
    job.total = Outcome(committed=[message(0)], snapshots=[SNAPSHOT])
    with pytest.raises(StorageUnavailable) as failure:
        job.run(lambda only: fail_with(StorageUnavailable("away", "no answer")))
    assert failure.value.why == "no answer"
    job.total = Outcome(committed=[message(POSTPONE_BUCKET)], snapshots=[SNAPSHOT])
    with pytest.raises(StorageUnavailable) as failure:
        job.run(lambda only: fail_with(StorageUnavailable("away", "no answer")))
    assert failure.value.why.endswith("since snapshot 7") and failure.value.details["snapshots"] == [7]


class Planned:
    """Notes with which requests a plan was made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, plan: CompactionPlan | None = None) -> None:
        self.plan, self.calls = plan or CompactionPlan(9), list[tuple[CompactRequest, str, Any]]()
        monkeypatch.setattr(compact_job, "plan_compaction", self)

    def __call__(self, context: Any, request: CompactRequest, stamp: str, states: Any, only: Any) -> CompactionPlan:
        self.calls.append((request, stamp, only))
        return self.plan


def test_a_plan_is_made_anew_unless_the_given_one_still_holds(context: TableContext, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = Planned(monkeypatch)
    ready, uncut = CompactionPlan(3, (task(0, data_file("a")),)), CompactionPlan(4, (task(1, data_file("b")),))

    def plan(job: _Compaction, only: frozenset[BucketId] | None = None) -> CompactionPlan:
        return job._plan_of_buckets("stamp", only)

    job = work(context, ready=ready)
    assert plan(job) == ready.prepared("stamp", job.request) and plan(job).tasks[0].file_stamp == "stamp"
    assert plan(job, frozenset({place(0)})) is planned.plan and planned.calls[-1][1:] == ("stamp", frozenset({place(0)}))
    job.uncut = uncut
    assert plan(job).snapshot_id == 4 and plan(job, frozenset()) is planned.plan
    for total in (Outcome(committed=[message(POSTPONE_BUCKET)]), Outcome(stale_files=1)):
        job = work(context, CompactRequest(bucket=(0,)), ready)
        job.total = total
        assert plan(job) is planned.plan
        request = planned.calls[-1][0]
        assert request.distributed == tuple(total.committed) and request.unknown_buckets_allowed == bool(total.committed)
        assert request.bucket == (0,)
    job = work(context, CompactRequest(unknown_buckets_allowed=True))
    assert plan(job) is planned.plan and planned.calls[-1][0].unknown_buckets_allowed


def test_only_files_that_are_newer_than_the_cuts_are_left_out(context: TableContext) -> None:
    job = work(context)
    job.known = {place(0): {"old", "upper"}}
    old, new = data_file("old"), data_file("new")
    cut, top = data_file("cut", level=4), data_file("top", level=5)
    assert job._without_newer(task(0, new, old, cut, top)) == task(0, old, cut, top)
    assert job._without_newer(task(0, new, cut, top)) == task(0, cut, top)
    for decision in (task(1, new, old), task(0, new, top), SkippedBucket(*place(0), 1, "not due")):
        assert job._without_newer(decision) == decision


def test_the_stages_follow_the_table_and_the_request(context: TableContext, tmp_path: Path) -> None:
    def stages(table: TableContext, request: CompactRequest) -> list[tuple[str, bool, bool]]:
        """Each with whether there is a plan before it, and whether it may split and merge buckets."""
        job, seen = work(table, request), list[tuple[str, bool, bool]]()

        def noted(of: Any) -> None:
            seen.append((of.__name__, job.plan is not None, job.request.may_regroup))
            job.plan = job.plan or CompactionPlan(1)

        object.__setattr__(job, "run", noted)
        job.run_stages()
        return seen

    postponed = make_table(tmp_path / "p", {"bucket": "-2"})
    distribute, regroup, cut, compact = "distribute_rows", "regroup_partitions", "cut_runs", "compact_buckets"
    assert stages(context, CompactRequest(ranges_over=None)) == [(compact, False, False)]
    mended = stages(context, CompactRequest(regroups=True, ranges_over=None))
    assert mended == [("mend_counts", False, True), (compact, False, True)]
    alone = stages(postponed, CompactRequest(ranges_over=None))
    assert alone == [(distribute, False, False), (compact, True, False)]
    whole = stages(postponed, CompactRequest(regroups=True))
    assert whole == [(distribute, False, True), (regroup, True, True), (cut, True, False), (compact, True, False)]
    assert stages(context, CompactRequest(ranges_over=1)) == [(cut, False, False), (compact, True, False)]


LEFT = UnfinishedRescale(2, 4, True, frozenset({EMPTY_ROW}))


@pytest.mark.parametrize(
    ("error", "is_conflict"),
    [(CONFLICT, True), (NotSupported("a"), False), (Refused("b"), False), (UsageError("c"), False)],
)
def test_an_interrupted_rescale_that_cannot_be_finished_does_not_stop_the_compaction(
    context: TableContext, monkeypatch: pytest.MonkeyPatch, error: PaimonError, is_conflict: bool
) -> None:
    monkeypatch.setattr(unfinished_rescale, "finish_rescale", lambda *_: fail_with(error))
    job = work(context, CompactRequest(regroups=True), CompactionPlan(1, unfinished=LEFT, size_to_move=900))
    assert job.mend_counts(None) is job.ready
    assert job.partly.conflicts == ({place(0): error} if is_conflict else {})
    assert job.partly.failures == ({} if is_conflict else {place(0): error})
    assert job.partly.lost_read == (900 if is_conflict else 0) and job.partly.rescaled_to is None and job.context is context


def test_counts_are_mended_within_the_limits_and_the_schema_is_read_again(
    context: TableContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def moved(given: TableContext, shield: Any, outcome: Outcome) -> None:
        calls.append("moved")
        outcome.stale_files, outcome.moved_read = 3, 300
        outcome.conflicts |= {place(2): CONFLICT} if len(calls) == 1 else {}

    def finished(*_: Any) -> RescaleSummary:
        calls.append("finished")
        return RescaleSummary(4)

    monkeypatch.setattr(stale_buckets, "move_all_stale_files", moved)
    monkeypatch.setattr(unfinished_rescale, "finish_rescale", finished)
    plan = CompactionPlan(1, mixed=(EMPTY_ROW,), unfinished=LEFT, size_to_move=900)
    job = work(context, CompactRequest(regroups=True, max_bytes=899), plan)
    assert job.mend_counts(None) is plan and not calls and job.partly == Outcome() and job.ready is plan
    job = work(context, CompactRequest(regroups=True, max_bytes=900), plan)
    job.mend_counts(None)
    assert calls == ["moved"] and job.partly.stale_files == 3, "after a conflict the rescale is left to the next round"
    job.partly = Outcome()
    planned = Planned(monkeypatch, plan)
    assert job.mend_counts(frozenset({place(2)})) is plan and planned.calls[-1][2] == frozenset({place(2)})
    assert calls[1:] == ["moved", "finished"] and (job.partly.stale_files, job.partly.rescaled_to) == (3, 4)
    assert job.ready is None and job.context is not context and job.context.url == context.url


def test_a_global_index_that_the_commit_could_not_keep_is_found_before_the_work(
    context: TableContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compact_job, "check_global_indexes", lambda *_: fail_with(NotSupported("an index")))
    tracked = make_table(tmp_path / "r", {"row-tracking.enabled": "true", "bucket": "-1"}, primary_key=False)
    with pytest.raises(NotSupported):
        work(tracked)._begin([task(0, data_file("a"))])
    work(tracked)._begin([])
    job = work(context)
    job._begin([task(0, data_file("a"), data_file("b")), task(1, data_file("c"))])
    assert job.begun == {place(0): 2 * SIZE, place(1): SIZE}


class Distribution:
    """Rows of three partitions, of which others have changed `changed`; each commit ends as `ends` says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, changed: frozenset[bytes], *ends: Conflict | None) -> None:
        self.messages = [CommitMessage(key, bucket, 2) for key in (b"a", b"b", b"c") for bucket in (0, POSTPONE_BUCKET)]
        self.given, self.ends, self.dropped = list[Any](), list(ends), list[list[CommitMessage]]()
        monkeypatch.setattr(postponed_rows, "distribute", self.distribute)
        monkeypatch.setattr(postponed_rows, "partitions_changed_since", lambda *_: changed)
        monkeypatch.setattr(compact_job, "try_commit", self.commit)
        monkeypatch.setattr(NewFiles, "settle", lambda _, messages, result: self.dropped.append(list(messages)))

    def distribute(self, new_files: Any, partitions: Any, snapshot: Any, strategy: Any, *_: Any) -> list[CommitMessage]:
        self.given.append((partitions, strategy))
        return self.messages

    def commit(self, new_files: Any, messages: list[CommitMessage], outcome: Outcome, kind: CommitKind) -> Conflict | None:
        assert kind is CommitKind.DISTRIBUTE
        end = self.ends.pop(0)
        if end is None:
            outcome.committed += messages
        return end

    def run(self, context: TableContext, request: CompactRequest) -> Outcome:
        outcome, job = Outcome(), work(context)
        rows = [PostponedRows(key, POSTPONE_BUCKET, (data_file("w"),)) for key in (b"a", b"b", b"c")]
        plan = CompactionPlan(1, tuple(rows))
        object.__setattr__(context.snapshots, "get", lambda number: SNAPSHOT)
        compact_job._distribute_rows(job._new_files(), request, plan, LocalEngine(), NoProgress(), outcome)
        return outcome


def waiting(*keys: bytes) -> set[BucketId]:
    return {BucketId(key, POSTPONE_BUCKET) for key in keys}


def test_partitions_without_a_conflict_get_their_rows(context: TableContext, monkeypatch: pytest.MonkeyPatch) -> None:
    fine = Distribution(monkeypatch, frozenset(), None)
    assert fine.run(context, CompactRequest("minor")).committed == fine.messages and not fine.dropped
    assert fine.given == [(frozenset({b"a", b"b", b"c"}), "minor")]
    limited = Distribution(monkeypatch, frozenset(), None)
    limited.run(context, CompactRequest("minor", max_bytes=1 << 40))
    assert limited.given == [(frozenset({b"a", b"b", b"c"}), None)]
    partly = Distribution(monkeypatch, frozenset({b"b"}), CONFLICT, None)
    outcome = partly.run(context, CompactRequest())
    assert {one.partition for one in outcome.committed} == {b"a", b"c"} and set(outcome.conflicts) == waiting(b"b")
    assert [{one.partition for one in dropped} for dropped in partly.dropped] == [{b"b"}]
    twice = Distribution(monkeypatch, frozenset({b"b"}), CONFLICT, CONFLICT)
    outcome = twice.run(context, CompactRequest())
    assert not outcome.committed and set(outcome.conflicts) == waiting(b"a", b"b", b"c")
    assert [{one.partition for one in dropped} for dropped in twice.dropped] == [{b"b"}, {b"a", b"c"}]
    for changed in (frozenset[bytes](), frozenset({b"a", b"b", b"c"})):
        whole = Distribution(monkeypatch, changed, CONFLICT)
        outcome = whole.run(context, CompactRequest())
        assert set(outcome.conflicts) == waiting(b"a", b"b", b"c") and [len(dropped) for dropped in whole.dropped] == [6]
    expired = Distribution(monkeypatch, frozenset())
    monkeypatch.setattr(postponed_rows, "distribute", lambda *_: fail_with(SnapshotExpired("gone")))
    assert set(expired.run(context, CompactRequest()).conflicts) == waiting(b"a", b"b", b"c")


def test_states_are_remembered_of_buckets_that_need_no_other_look() -> None:
    states: dict[BucketId, PickState] = {}
    new = [PickState(waits=number) for number in range(3)]
    decisions = (task(0, state=new[0]), task(1, state=new[1]), SkippedBucket(*place(2), 1, "not due", new[2]))
    _remember(states, CompactionPlan(1, decisions), Outcome(committed=[message(0)]))
    assert states == {place(0): new[0], place(2): new[2]}


def test_the_error_of_a_compaction_says_what_was_done() -> None:
    failure = DamagedFile("data-1 is damaged", "", "restore it")
    made, summary = Outcome(committed=[message(0), message(0), message(1)]), CompactSummary(snapshots=(SNAPSHOT,))

    def error(outcome: Outcome, **request: Any) -> PaimonError | None:
        try:
            _raise_unfinished(CompactRequest(**request), outcome, summary)
        except PaimonError as raised:
            return raised
        return None

    assert error(Outcome()) is error(made) is None
    both: dict[str, Any] = {"conflicts": {place(1): CONFLICT}, "failures": {place(3): failure}}
    assert error(Outcome(**both)) is failure and error(Outcome(conflicts=both["conflicts"])) is CONFLICT
    partial = error(replace(made, **both))
    assert isinstance(partial, PartialSuccess) and partial.what == "2 of 3 buckets failed" and partial.hint == "restore it"
    assert partial.details == {"buckets_committed": 1, "buckets_skipped": 2, "snapshots": [7]}
    for other, done in ((Outcome(stale_files=3), 3), (Outcome(rescaled_to=4), 1), (Outcome(regrouped=[message(0)]), 1)):
        skipped = error(replace(other, conflicts=both["conflicts"]))
        assert isinstance(skipped, PartialSuccess) and skipped.what == f"1 of {done + 1} buckets were skipped"
    assert isinstance(error(Outcome(conflicts=both["conflicts"]), on_conflict="skip"), PartialSuccess)
    assert error(Outcome(failures=both["failures"]), on_conflict="skip") is failure


@pytest.mark.parametrize("fails", [True, False])
def test_the_account_has_what_was_done_also_if_an_error_is_raised(
    context: TableContext, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    def stages(job: _Compaction) -> None:
        job.total = Outcome(committed=[message(0, "a")], conflicts={place(1): CONFLICT}, lost_read=3, lost_written=4)
        if fails:
            raise StorageUnavailable("the store is away")

    monkeypatch.setattr(_Compaction, "run_stages", stages)
    account = CompactionAccount()
    with pytest.raises(StorageUnavailable if fails else PartialSuccess):
        run_compact(context, CompactRequest(), LocalEngine(), NoProgress(), account=account)
    assert (account.summary.buckets, account.lost_read, account.lost_written, account.bytes_read) == (1, 3, 4, SIZE + 3)
    assert account.summary.unfinished == {place(1)}


class Stages:
    """A plan of two buckets, the first of which is cut into ranges, and a commit of each that succeeds unless it is in `lost`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *lost: int) -> None:
        self.plan = CompactionPlan(1, tuple(task(bucket, data_file(f"{bucket}-old")) for bucket in (0, 1)))
        self.requests, self.outcomes, self.lost, self.carried_out = list[CompactRequest](), list[Outcome](), lost, list[Any]()
        monkeypatch.setattr(compact_job, "plan_compaction", self.planned)
        monkeypatch.setattr(compact_job, "run_bucket_tasks", self.run)
        monkeypatch.setattr(compact_job, "commit_results", self.commit)

    def planned(self, context: Any, request: CompactRequest, *_: Any) -> CompactionPlan:
        self.requests.append(request)
        return self.plan

    def run(self, ranges: Any, request: CompactRequest, plan: CompactionPlan, progress: Any) -> list[int]:
        ranges.outcome.committed.append(message(0, "of a range"))
        self.carried_out.append(plan)
        return [one.bucket for one in plan.tasks]

    def commit(self, new_files: Any, results: list[int], engine: Any, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        outcome.committed += [message(bucket) for bucket in results if bucket not in self.lost]
        outcome.conflicts |= {place(bucket): CONFLICT for bucket in results if bucket in self.lost}


def test_the_stages_share_what_is_counted_and_what_they_know(context: TableContext, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, one, names = None, frozenset({place(0)}), {0: {"0-old"}, 1: {"1-old"}}
    cuts = {0: KeyRanges(task(0, data_file("0-old")), (), 2, 2, ()), 1: KeyRanges(task(1, data_file("1-old")), (), 2, 2, ())}
    found: dict[int, KeyRanges | None] = {}
    monkeypatch.setattr(CompactRequest, "ranges_of", lambda request, table, given: found.get(given.bucket))
    stages, job = Stages(monkeypatch, 1), work(context)
    for only, uncut in ((one, None), (whole, stages.plan), (one, None)):
        assert job.cut_runs(only) is stages.plan and job.uncut is uncut and not stages.carried_out
    found |= cuts
    assert job.cut_runs(whole) is stages.plan and job.begun == {place(0): SIZE, place(1): SIZE}
    assert job.known == {place(0): names[0]}, "the other cut was refused"
    job.known[place(1)] = {"1-old"}
    assert len(job.partly.committed) == 2 and set(job.partly.conflicts) == {place(1)} and stages.outcomes[-1] is job.partly
    job.partly, newer = Outcome(), data_file("newer")
    grown = [task(bucket, data_file(f"{bucket}-old"), newer) for bucket in (0, 1)]
    stages.plan = CompactionPlan(2, tuple(grown))
    assert job.compact_buckets(whole).tasks == [task(bucket, data_file(f"{bucket}-old")) for bucket in (0, 1)]
    assert len(job.partly.committed) == 2 and stages.outcomes[-1] is job.partly, "also those of ranges"
    assert set(job.states) == {place(0)} and job.begun == {place(0): SIZE, place(1): SIZE}
    assert job.compact_buckets(one).tasks == grown, "planned again, with all that is there"


def test_the_limits_know_what_was_distributed_before(context: TableContext, monkeypatch: pytest.MonkeyPatch) -> None:
    stages, job, waiting_rows = Stages(monkeypatch), work(context), PostponedRows(b"a", POSTPONE_BUCKET, (data_file("w"),))
    monkeypatch.setattr(compact_job, "_distribute_rows", lambda *given: given[-1].conflicts.update({place(5): CONFLICT}))
    monkeypatch.setattr(compact_job, "regroup_planned", lambda *given: given[-1].conflicts.update({place(6): CONFLICT}))
    regrouped = RegroupedPartition(b"a", 0, (data_file("r"), data_file("s")), 2, 4, 1, "more rows")
    stages.plan = CompactionPlan(1, (waiting_rows, regrouped))
    assert job.distribute_rows(None) is stages.plan and job.begun == {waiting_rows.bucket_id: SIZE}
    job.total.committed = [message(POSTPONE_BUCKET, "w")]
    assert job.regroup_partitions(None) is stages.plan and job.begun == {regrouped.bucket_id: 2 * SIZE}
    assert [request.distributed for request in stages.requests] == [(), (job.total.committed[0],)]
    assert set(job.partly.conflicts) == {place(5), place(6)}
