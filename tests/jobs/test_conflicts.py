"""Real jobs in conflict: the error of the loser, which leaves no file."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from paimon_cli.commit.committer import Committer
from paimon_cli.errors import CommitUnknown, DamagedFile, DataConflict, FilesConflict, NotFound, StorageUnavailable, UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants.check import check_table
from paimon_cli.jobs import compact_outcome, postponed_rows, write_job
from paimon_cli.jobs.compact_job import run_compact
from paimon_cli.jobs.compact_request import CompactRequest
from paimon_cli.jobs.compact_summary import CompactionAccount
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.maintain.expire_snapshots import expire_snapshots
from paimon_cli.maintain.retention import Retention
from tests.rivals import RivalStorage, beside, files_of
from tests.tables import compact, data_files, live_files, make_table, rows, write

COLUMNS = {"dt": "STRING NOT NULL", "id": "INT NOT NULL", "points": "INT"}
BY_BUCKET = {"commit.data-conflict-check": "bucket"}
DAY = "2024-01-01"


@pytest.fixture
def table(tmp_path: Path) -> TableContext:
    """Three commits in one bucket of one partition."""
    context = make_table(tmp_path / "t", COLUMNS, ["dt", "id"], ["dt"], options={"write-only": "true"})
    for number in range(3):
        write(context, [{"dt": DAY, "id": 1, "points": number}, {"dt": DAY, "id": 10 + number, "points": 0}])
    return context


class Witness:
    """A rival that lists the files on disk after it has acted."""

    def __init__(self, table: TableContext, act: Callable[[], Any]) -> None:
        self.table, self.act = table, act
        self.ours: set[str] = set()
        self.rest: set[str] = set()

    def __call__(self) -> None:
        self.ours = files_of(self.table)
        self.act()
        self.rest = files_of(self.table)

    def check_nothing_of_ours_is_left(self, before: set[str]) -> None:
        ours = self.ours - before
        assert any("bucket-" in name for name in ours) and any("manifest" in name for name in ours)
        assert files_of(self.table) == self.rest - ours


def test_of_two_compactions_the_second_fails_and_names_everything(table: TableContext) -> None:
    before = files_of(table)
    witness = Witness(table, lambda: compact(table))
    with pytest.raises(FilesConflict) as failure:
        compact(beside(table, witness), on_conflict="fail")
    winner = table.snapshots.latest()
    assert winner is not None and winner.commit_kind == "COMPACT"
    details = failure.value.details
    assert details["partition"] == f"dt={DAY}" and details["bucket"] == 0
    assert f"dt={DAY}/bucket-0/{details['file']}" in before, "a file of the table, by its name"
    assert (details["snapshot_id"], details["commit_user"]) == (winner.id, winner.commit_user)
    for text in (details["file"], f"dt={DAY}/bucket-0"):
        assert text in failure.value.what
    assert failure.value.why == f"snapshot {winner.id} (COMPACT, user {winner.commit_user}) removed it"
    assert failure.value.exit_code == 5
    witness.check_nothing_of_ours_is_left(before)


def test_a_compaction_that_is_retried_plans_again_and_gives_up_nothing(table: TableContext) -> None:
    def compact_and_write() -> None:
        compact(table)
        write(table, [{"dt": DAY, "id": 1, "points": 9}])

    summary = compact(beside(table, compact_and_write))
    assert (summary.conflicts, summary.buckets, len(live_files(table))) == (1, 1, 1)
    assert rows(table, ["id", "points"])[0] == {"id": 1, "points": 9}


def test_a_compaction_that_ends_between_two_buckets_leaves_no_file_of_those_that_wait(table: TableContext) -> None:
    """The first bucket is lost at once, the last one at the second attempt; then the store fails for the middle one."""
    for number in range(2):
        for day in ("2024-01-02", "2024-01-03"):
            write(table, [{"dt": day, "id": 1, "points": number}])

    before = data_files(table)

    def rival(day: str) -> Callable[[], object]:
        return lambda: compact(table, partition=({"dt": day},))

    def fail() -> None:
        raise StorageUnavailable("the store is away", "on purpose")

    storage = RivalStorage(rival(DAY), rival("2024-01-03"), fail)
    with pytest.raises(StorageUnavailable, match="on purpose"):
        compact(TableContext.open(table.url, storage=storage))
    assert storage.puts == 3 and not storage.acts
    assert data_files(table) - before == live_files(table) - before


def test_files_of_buckets_stay_if_nobody_knows_whether_they_were_committed(
    table: TableContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another job has compacted one bucket; the commit of the others is made, but not confirmed."""
    for number in range(2):
        write(table, [{"dt": "2024-01-02", "id": 1, "points": number}])
    expected, real, calls = rows(table), Committer.commit, itertools.count()

    def without_answer(self: Committer, *given: Any, **named: Any) -> Any:
        call = next(calls)  # 0: of all buckets, 1: of the other job, 2: of those that are left
        done = real(self, *given, **named)
        if call == 2:
            raise CommitUnknown("the snapshot may be there", "the store gave no clear answer")
        return done

    monkeypatch.setattr(Committer, "commit", without_answer)
    storage = RivalStorage(lambda: compact(table, partition=({"dt": DAY},)))
    with pytest.raises(CommitUnknown):
        compact(TableContext.open(table.url, storage=storage))
    assert rows(table) == expected and not list(check_table(table, rows=True))


def test_a_stale_write_fails_and_leaves_nothing(table: TableContext) -> None:
    before = files_of(table)
    witness = Witness(table, lambda: write(table, [{"dt": DAY, "id": 5, "points": 5}], commit_user="rival"))
    with pytest.raises(DataConflict) as failure:
        write(beside(table, witness, options=BY_BUCKET), [{"dt": DAY, "id": 1, "points": 7}])
    details = failure.value.details
    assert (details["partition"], details["bucket"]) == (f"dt={DAY}", 0)
    assert (details["snapshot_id"], details["commit_user"], details["commit_kind"]) == (4, "rival", "APPEND")
    witness.check_nothing_of_ours_is_left(before)


def test_a_stale_overwrite_fails_and_leaves_nothing(table: TableContext) -> None:
    before = files_of(table)
    witness = Witness(table, lambda: write(table, [{"dt": DAY, "id": 5, "points": 5}]))
    with pytest.raises(DataConflict):
        write(beside(table, witness, options=BY_BUCKET), [{"dt": DAY, "id": 1, "points": 7}], overwrite=True)
    witness.check_nothing_of_ours_is_left(before)
    write(TableContext.open(table.url, BY_BUCKET), [{"dt": DAY, "id": 1, "points": 7}], overwrite=True)
    assert rows(table, ["id", "points"]) == [{"id": 1, "points": 7}]


BY_KEY = {"commit.data-conflict-check": "key"}


def test_by_key_only_a_shared_key_clashes(table: TableContext) -> None:
    def others() -> None:
        for points in range(3):
            write(table, [{"dt": DAY, "id": number, "points": points} for number in (0, 2, 4, 900)])

    write(beside(table, others, options=BY_KEY), [{"dt": DAY, "id": number, "points": 7} for number in (1, 3, 899, 901)])
    before = files_of(table)
    witness = Witness(table, lambda: write(table, [{"dt": DAY, "id": 3, "points": 8}, {"dt": DAY, "id": 6, "points": 8}]))
    with pytest.raises(DataConflict, match=f"key id=3 in dt={DAY}/bucket-0 was written") as failure:
        write(beside(table, witness, options=BY_KEY), [{"dt": DAY, "id": number, "points": 9} for number in (1, 3, 5)])
    assert failure.value.details["key"] == "id=3"
    witness.check_nothing_of_ours_is_left(before)


def test_a_deleted_row_and_an_overwritten_one_clash_by_key_too(table: TableContext) -> None:
    deeds = (
        lambda: write(table, [{"dt": DAY, "id": 1, "points": 0, "_op": "-D"}]),
        lambda: write(table, [{"dt": DAY, "id": 77, "points": 0}], overwrite=True),
    )
    for deed in deeds:
        with pytest.raises(DataConflict, match="key id=1 "):
            write(beside(table, deed, options=BY_KEY), [{"dt": DAY, "id": 1, "points": 9}])
        write(table, [{"dt": DAY, "id": 1, "points": 0}])
        write(beside(table, deed, options=BY_KEY), [{"dt": DAY, "id": 2, "points": 9}])


def test_rows_that_expired_meanwhile_cannot_be_compared(table: TableContext) -> None:
    def write_compact_expire() -> None:
        write(table, [{"dt": DAY, "id": number, "points": 0} for number in (0, 99)])
        replaced = live_files(table)
        compact(table)
        for file in replaced - live_files(table):
            (Path(table.url) / file).unlink()

    with pytest.raises(DataConflict, match="cannot determine") as failure:
        write(beside(table, write_compact_expire, options=BY_KEY), [{"dt": DAY, "id": 50, "points": 9}])
    assert "has expired" in failure.value.why
    assert data_files(table) == live_files(table)


def test_a_write_that_spends_its_retries_leaves_nothing(table: TableContext) -> None:
    before = files_of(table)
    rivals = [Witness(table, partial(write, table, [{"dt": "other", "id": n, "points": 0}])) for n in range(3)]
    options = {"commit.max-retries": "2", "commit.min-retry-wait": "1 ms"}
    with pytest.raises(StorageUnavailable, match="3 attempts") as failure:
        write(beside(table, *rivals, options=options), [{"dt": DAY, "id": 1, "points": 7}])
    assert failure.value.details["attempts"] == 3
    assert rivals[0].ours > before
    assert not (rivals[0].ours - before) & files_of(table)
    assert data_files(table) == live_files(table)


def test_rows_made_from_an_old_snapshot(table: TableContext) -> None:
    """A program reads at a snapshot, computes, and writes back."""
    checked = TableContext.open(table.url, BY_BUCKET)
    before = files_of(table)
    with pytest.raises(DataConflict, match="after snapshot 2"):
        write(checked, [{"dt": DAY, "id": 1, "points": 7}], read_snapshot=2)
    assert files_of(table) == before
    write(checked, [{"dt": DAY, "id": 1, "points": 7}], read_snapshot=3)
    write(checked, [{"dt": "new", "id": 1, "points": 7}], read_snapshot=0)
    write(table, [{"dt": DAY, "id": 1, "points": 8}], read_snapshot=1)
    assert rows(table, ["dt", "id", "points"])[0] == {"dt": DAY, "id": 1, "points": 8}


def test_an_old_snapshot_does_not_make_sequence_numbers_old(table: TableContext) -> None:
    write(table, [{"dt": DAY, "id": 1, "points": 8}], read_snapshot=1)
    assert rows(table, ["id", "points"])[0] == {"id": 1, "points": 8}


def test_a_snapshot_that_was_never_there_cannot_have_been_read(table: TableContext) -> None:
    with pytest.raises(NotFound, match="no snapshot 9"):
        write(table, [{"dt": DAY, "id": 1, "points": 7}], read_snapshot=9)
    with pytest.raises(UsageError, match="off, partition, bucket"):
        write(TableContext.open(table.url, {"commit.data-conflict-check": "row"}), [{"dt": DAY, "id": 1, "points": 7}])


def test_a_repetition_of_the_same_write_removes_its_files(table: TableContext) -> None:
    before = files_of(table)
    row = {"dt": DAY, "id": 1, "points": 70}
    witness = Witness(table, lambda: write(table, [row], commit_user="job", commit_id=3))
    summary = write(beside(table, witness), [row], commit_user="job", commit_id=3)
    assert summary.already_committed and not summary.snapshots
    witness.check_nothing_of_ours_is_left(before)
    assert rows(table, ["id", "points"])[0] == {"id": 1, "points": 70}
    assert table.snapshots.latest_id() == 4


def test_a_write_that_died_after_its_publication_is_not_repeated(table: TableContext) -> None:
    class Dead(BaseException):
        pass

    class DyingStorage(RivalStorage):
        def overwrite(self, path: str, data: bytes) -> None:
            raise Dead

    row = {"dt": DAY, "id": 1, "points": 70}
    with pytest.raises(Dead):
        write(TableContext.open(table.url, storage=DyingStorage()), [row], commit_user="job", commit_id=3)
    before = files_of(table)
    assert write(table, [row], commit_user="job", commit_id=3).already_committed
    (completed,) = files_of(table) - before
    assert before < files_of(table) and completed.startswith("commit-user/commit-") and completed.endswith("-made-4")


@pytest.mark.parametrize(("bucket", "options"), [(1, {"deletion-vectors.enabled": "true"}), (-1, {"write-only": "true"})])
def test_a_write_whose_snapshot_expired_starts_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bucket: int, options: dict[str, str]
) -> None:
    """Its writers read deletion vectors to compact, or hash indexes to find buckets: both are gone with the snapshot."""
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL", "v": "STRING"}, ["k"], bucket=bucket, options=options)

    def upsert(numbers: range, value: str) -> None:
        write(context, [{"k": number, "v": value} for number in numbers])

    upsert(range(1000), "old")
    upsert(range(0, 1000, 300), "new")
    write_input = write_job.write_input
    starts, expired = iter((10, 11)), []

    def after_expiry(*given: Any) -> Any:
        if (start := next(starts, None)) is not None:
            with monkeypatch.context() as undisturbed:
                undisturbed.setattr(write_job, "write_input", write_input)
                upsert(range(start, 1300, 300), "rival")  # the last key is new
            compact(context)
            expired.append(expire_snapshots(context, Retention(1, 1, 0, None)).snapshots)
        return write_input(*given)

    monkeypatch.setattr(write_job, "write_input", after_expiry)
    write(context, [{"k": 7, "v": "ours"}, {"k": 5000, "v": "ours"}])
    assert len(expired) == 2 and all(expired)
    found = {row["k"]: row["v"] for row in rows(context)}
    assert len(found) == 1003 and (found[7], found[5000], found[10], found[311]) == ("ours", "ours", "rival", "rival")
    assert data_files(context) == live_files(context)
    assert not list(check_table(context, rows=True))


def test_a_write_whose_snapshot_expired_after_a_conflict_starts_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later attempt is planned at a later snapshot than that which the first one has read."""
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL"}, ["k"], bucket=-1, options={"write-only": "true"})
    write(context, [{"k": 1}])
    write_input = write_job.write_input
    attempts = iter((1, 2))

    def disturbed(*given: Any) -> Any:
        attempt = next(attempts, None)
        written = write_input(*given) if attempt == 1 else None
        if attempt is not None:
            with monkeypatch.context() as undisturbed:
                undisturbed.setattr(write_job, "write_input", write_input)
                write(context, [{"k": 10 * attempt}])
            assert attempt == 1 or expire_snapshots(context, Retention(1, 1, 0, None)).snapshots
        return written or write_input(*given)

    monkeypatch.setattr(write_job, "write_input", disturbed)
    assert write(context, [{"k": 2}]).rows == 1
    assert next(attempts, None) is None
    assert sorted(row["k"] for row in rows(context)) == [1, 2, 10, 20]
    assert data_files(context) == live_files(context)
    assert not list(check_table(context, rows=True))


def test_damage_is_no_expiry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL"}, ["k"], bucket=-1)
    write(context, [{"k": 1}])
    for path in (tmp_path / "t" / "index").iterdir():
        path.unlink()
    with pytest.raises(DamagedFile, match="is missing"):
        write(context, [{"k": 2}])
    assert len(context.snapshots.ids()) == 1


def fail(*_: Any) -> None:
    raise StorageUnavailable("the store is away", "on purpose")


def test_a_look_at_what_others_did_that_fails_leaves_no_file_of_a_compaction(
    table: TableContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One bucket has failed, and the other one waits for its commit."""
    for number in range(2):
        write(table, [{"dt": "2024-01-02", "id": 1, "points": number}])
    before = data_files(table)
    Path(table.url, min(live_files(table))).write_bytes(b"no Parquet")
    monkeypatch.setattr(compact_outcome, "_replaced_buckets", fail)
    with pytest.raises(StorageUnavailable, match="on purpose"):
        compact(table)
    assert data_files(table) == before


def test_a_look_at_what_others_did_that_fails_leaves_no_file_of_a_distribution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"postpone.batch-write-fixed-bucket": "false"}
    table = make_table(tmp_path / "p", COLUMNS, ["dt", "id"], ["dt"], -2, options)
    write(table, [{"dt": day, "id": 1, "points": 1} for day in (DAY, "2024-01-02")])
    before, witness = data_files(table), Witness(table, lambda: compact(table, partition=({"dt": DAY},)))
    monkeypatch.setattr(postponed_rows, "partitions_changed_since", fail)
    with pytest.raises(StorageUnavailable, match="on purpose"):
        compact(beside(table, witness))
    assert witness.ours - before and data_files(table) == before | live_files(table)


def test_an_error_after_some_buckets_names_their_snapshots_and_the_account_has_them(table: TableContext) -> None:
    """Three buckets are committed one by one: the first is lost, the second is made, and the store fails for the third."""
    for number in range(2):
        for day in ("2024-01-02", "2024-01-03", "2024-01-04"):
            write(table, [{"dt": day, "id": 1, "points": number}])

    def rival(day: str) -> Callable[[], object]:
        return lambda: compact(table, partition=({"dt": day},))

    storage, account = RivalStorage(rival(DAY), rival("2024-01-03"), lambda: None, fail), CompactionAccount()
    context = TableContext.open(table.url, storage=storage)
    with pytest.raises(StorageUnavailable, match="on purpose") as failure:
        run_compact(context, CompactRequest("full"), LocalEngine(), NoProgress(), account=account)
    made = context.snapshots.latest_id()
    assert storage.puts == 4 and failure.value.details["published_snapshots"] == [made]
    assert [snapshot.id for snapshot in account.summary.snapshots] == [made] and account.summary.buckets == 1
    assert account.lost_written > 0 and len(account.summary.unfinished) == 2
