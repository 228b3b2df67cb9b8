"""What came to nothing has been paid all the same: failed compactions and expiries, and time that brought nothing."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from paimon_cli import Catalog, Table
from paimon_cli.errors import CommitUnknown, FilesConflict, NotSupported, PaimonError, Refused, StorageUnavailable
from paimon_cli.history.live_files import bucket_files
from paimon_cli.jobs import bucket_task, compact_outcome
from paimon_cli.jobs.compact_job import run_compact
from paimon_cli.jobs.compact_request import CompactRequest
from paimon_cli.jobs.compact_summary import CompactionAccount, CompactSummary
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.reclaim_job import Expired, Expiry
from paimon_cli.jobs.service import budget, turn_steps
from paimon_cli.jobs.service.compaction_service import _noted
from paimon_cli.jobs.service.leases import Leases
from paimon_cli.jobs.service.ledger_watcher import step_of
from paimon_cli.jobs.service.shared_budgets import share_out
from paimon_cli.jobs.service.table_round import RoundState, TableRound
from paimon_cli.jobs.service.turn_steps import TurnDone
from paimon_cli.jobs.service.upkeep import VERSION_BYTES, DueExpiry, due_expiry
from paimon_cli.requests.upkeep import Allowance
from paimon_cli.storage.injected import SystemClock
from tests.jobs.test_goal_rounds import make, turn, wait_for_reads, watch
from tests.jobs.test_leases import HandClock
from tests.jobs.test_service_rounds import Rounds
from tests.tables import make_table, write


def fails(error: PaimonError) -> Any:
    def raising(*given: Any, **named: Any) -> Any:
        raise error

    return raising


def taken(folder: Path, is_size: bool = True) -> float:
    """What the services have taken of a budget, as another one sees it."""
    return sum(amount for _, amount in Catalog(str(folder / "wh"))._taken_by_others(SystemClock(), "")(is_size, None) or ())


def test_a_failed_compaction_has_read_what_it_was_to_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "_KEPT", 0.0)  # so that merges paid by reads may take all of it
    table = make(tmp_path, "many", 9)
    wait_for_reads()
    size = sum(file.size for file in table.files())
    with monkeypatch.context() as broken, pytest.raises(NotSupported):
        broken.setattr(bucket_task, "run_compaction", fails(NotSupported("cannot merge", "by a test")))
        watch(tmp_path, 1, goal="latency", budget=f"{size + 9000}b/day")
    (row,) = Catalog(str(tmp_path / "wh")).ledger.ls()
    assert (row.state, row.bytes_read, row.error) == (RoundState.FAILED, size, "cannot merge: by a test")
    assert row.budget_left is not None and row.budget_left <= 9000
    assert taken(tmp_path) >= size
    watch(tmp_path, goal="latency", budget=f"{size + 9000}b/day")
    assert len(table.files()) == 9, "nothing is left of the budget"


@pytest.mark.in_part(2)
@pytest.mark.parametrize("error", [CommitUnknown("who knows"), StorageUnavailable("no answer", "by a test"), Refused("no")])
def test_what_was_read_before_a_commit_that_failed_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: PaimonError
) -> None:
    table = make(tmp_path, "many", 9)
    wait_for_reads()
    size = sum(file.size for file in table.files())
    with monkeypatch.context() as broken, pytest.raises(type(error)):
        broken.setattr(compact_outcome, "Committer", fails(error))
        watch(tmp_path, 1, goal="latency", budget="1gb/day")
    (row,) = Catalog(str(tmp_path / "wh")).ledger.ls()
    assert row.bytes_read == size and row.error.startswith(error.message)


def test_a_lost_commit_counts_with_what_it_read_and_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"write-only": "true", "bucket": "2"}
    context = make_table(tmp_path / "t", {"id": "INT NOT NULL", "n": "INT"}, ["id"], options=options)
    for number in range(3):
        write(context, [{"id": key, "n": number} for key in range(50)])
    buckets = bucket_files(context, context.snapshots.latest()).values()
    sizes = {bucket.bucket: sum(file.file_size for file in bucket.files) for bucket in buckets}
    commit, account = compact_outcome.try_commit, CompactionAccount()

    def another_was_faster(new_files: Any, messages: Any, outcome: Any, *rest: Any) -> Any:
        lost = [message for message in messages if message.bucket == 1]
        return FilesConflict("bucket 1 was compacted", "by a test") if lost else commit(new_files, messages, outcome, *rest)

    monkeypatch.setattr(compact_outcome, "try_commit", another_was_faster)
    request = CompactRequest("full", on_conflict="skip")
    with pytest.raises(PaimonError):
        run_compact(context, request, LocalEngine(), NoProgress(), account=account)
    assert account.summary.buckets == 1 and account.summary.bytes_read == sizes[0]
    assert account.lost_read == sizes[1] and account.lost_written > 0


def test_the_ledger_counts_what_came_to_nothing() -> None:
    summary = CompactSummary(bytes_read=10, bytes_written=20)
    step = step_of(TableRound("t", RoundState.TRY_AGAIN, summary, lost_read=3, lost_written=4))
    assert (step.bytes_read, step.bytes_written) == (13, 24)


def test_a_compaction_that_succeeds_loses_nothing(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"id": "INT NOT NULL", "n": "INT"}, ["id"], options={"write-only": "true"})
    for number in range(3):
        write(context, [{"id": 1, "n": number}])
    account = CompactionAccount()
    run_compact(context, CompactRequest("full"), LocalEngine(), NoProgress(), account=account)
    assert account.summary.bytes_read and (account.lost_read, account.lost_written) == (0, 0)


def cannot_delete(expiry: Expiry, delete: Any) -> Expired:
    if expiry.names:
        raise Refused("cannot delete", "by a test")
    return Expired(expiry.what, ())


def test_a_failed_expiry_is_charged_for_all_that_it_was_to_remove(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(tmp_path, "many", 9)
    table.alter.set({"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "2"})
    with monkeypatch.context() as broken, pytest.raises(Refused):
        broken.setattr(Expiry, "run", cannot_delete)
        watch(tmp_path, 1, goal="cost", budget="100mb/day")
    (row,) = Catalog(str(tmp_path / "wh")).ledger.ls()
    assert row.upkeep_bytes >= 7 * VERSION_BYTES and row.error.startswith("cannot delete")
    assert taken(tmp_path) == row.bytes_read + row.upkeep_bytes


def plan_slowly(*given: Any, **named: Any) -> DueExpiry:
    time.sleep(0.3)
    return due_expiry(*given, **named)


def test_a_budget_in_time_counts_upkeep_for_other_services_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, "few", 1)
    monkeypatch.setattr(turn_steps, "due_expiry", plan_slowly)
    watch(tmp_path, 1, goal="cost", budget="1h/day")
    (row,) = Catalog(str(tmp_path / "wh")).ledger.ls()
    assert row.bytes_read == 0 and row.upkeep_seconds >= 0.3, "all of the turn was upkeep"
    assert taken(tmp_path, is_size=False) >= 300


def test_a_budget_in_bytes_does_not_note_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, "few", 1)
    monkeypatch.setattr(turn_steps, "due_expiry", plan_slowly)
    watch(tmp_path, 1, goal="cost", budget="1gb/day")
    assert [row.upkeep_seconds for row in Catalog(str(tmp_path / "wh")).ledger.ls()] in ([], [0.0])


def test_what_was_done_before_a_lease_could_not_be_released_is_not_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table: Table = make(tmp_path, "many", 9)
    size = sum(file.size for file in table.files())
    monkeypatch.setattr(Leases, "release", fails(StorageUnavailable("no answer", "by a test")))
    catalog = Catalog(str(tmp_path / "wh"))
    with pytest.raises(StorageUnavailable):
        catalog.watch(database="shop", watcher=Rounds(HandClock()), max_rounds=1, interval=1, expire=True, whole=True)
    (row,) = catalog.ledger.ls()
    assert row.bytes_read == size and row.error.startswith("no answer")


@pytest.mark.parametrize("is_daily", [True, False])
def test_what_other_turns_only_reserved_is_left_in_the_ledger(is_daily: bool) -> None:
    own, other = turn("own", (2.0, 300)), turn("other", (1.0, 200))
    given = budget.Budget.of(Allowance(size=1000, is_daily=is_daily), HandClock(1_796_000_000_000), charges_upkeep=True)
    share_out([own, other], given, is_by_goal=False)
    assert other.pays(VERSION_BYTES // 80)
    own.budget.settle(own.granted, 250)
    row = _noted(TableRound("own", RoundState.COMPACTED), own, TurnDone(), 0)
    assert (row.budget_left, given.left_size) == (750, 750 - 200 - VERSION_BYTES // 80)
    other.budget.settle(other.granted, 100)
    assert given.unspent_size == given.left_size == 650
    assert not given.reserve_all(651) and given.unspent_size == 650


def test_a_bucket_is_not_read_once_more_beyond_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = make_table(tmp_path / "t", {"id": "INT NOT NULL", "n": "INT"}, ["id"], options={"write-only": "true"})
    for number in range(3):
        write(context, [{"id": key, "n": number} for key in range(50)])
    (bucket,) = bucket_files(context, context.snapshots.latest()).values()
    size, lost = sum(file.file_size for file in bucket.files), list[int]()
    commit, accounts = compact_outcome.try_commit, [CompactionAccount(), CompactionAccount()]

    def another_was_faster_once(*given: Any) -> Any:
        lost.append(1)
        return FilesConflict("bucket 0 was compacted", "by a test") if len(lost) == 1 else commit(*given)

    monkeypatch.setattr(compact_outcome, "try_commit", another_was_faster_once)
    with pytest.raises(FilesConflict):
        run_compact(context, CompactRequest("full", budget_bytes=2 * size - 1), LocalEngine(), NoProgress(), account=accounts[0])
    assert accounts[0].bytes_read == size and len(lost) == 1
    lost.clear()
    run_compact(context, CompactRequest("full", budget_bytes=2 * size), LocalEngine(), NoProgress(), account=accounts[1])
    assert accounts[1].bytes_read == 2 * size and len(lost) == 2
