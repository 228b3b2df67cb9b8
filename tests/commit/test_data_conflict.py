"""The data conflict check: which commits abort, and that each snapshot since the read is checked once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paimon_cli.bucket import shared_keys
from paimon_cli.bucket.shared_keys import SharedKey
from paimon_cli.commit.committer import Committer
from paimon_cli.commit.data_conflict import DataConflictCheck, check_of_locations, check_of_messages
from paimon_cli.commit.deduplication import CommitIdentity
from paimon_cli.commit.outcome import CommitResult
from paimon_cli.commit.written_places import WholeBuckets, WrittenKeys, WrittenRanges, _disjoint
from paimon_cli.errors import BucketsConflict, DataConflict, UsageError
from paimon_cli.history.manifest_reader import ManifestReader
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import (
    DELETION_VECTORS,
    EMPTY_ROW,
    BucketId,
    CommitMessage,
    DataFileMeta,
    DeletionVectorRange,
    EntryKind,
    FileChanges,
    IndexFileMeta,
    ManifestEntry,
)
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_layout import POSTPONE_BUCKET
from paimon_cli.options.choices import ConflictCheck
from paimon_cli.storage.local_storage import LocalStorage
from tests.commit.commit_tables import data_file, live_names, make_table, manifest_files, named_manifest_files, partition
from tests.rivals import RivalStorage

ME, RIVAL = CommitIdentity("me"), CommitIdentity("rival")
BY_BUCKET, BY_PARTITION = {"commit.data-conflict-check": "bucket"}, {"commit.data-conflict-check": "partition"}
ONE, TWO = partition("2024-01-01"), partition("2024-01-02")


def append(
    context: TableContext,
    name: str,
    bucket: int = 0,
    read: int | None = None,
    who: CommitIdentity = ME,
    where: bytes = EMPTY_ROW,
) -> CommitResult:
    message = CommitMessage(where, bucket, 2, append=FileChanges(added=(data_file(name),)), read_snapshot_id=read)
    return Committer(context).commit([message], who)


def theirs(context: TableContext, name: str, bucket: int = 0, where: bytes = EMPTY_ROW) -> CommitResult:
    """A commit of a writer that has just read the latest snapshot."""
    return append(context, name, bucket, context.snapshots.latest_id(), RIVAL, where)


def test_off_by_default(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t")
    theirs(context, "a")
    theirs(context, "b")
    append(context, "stale", read=1)
    assert live_names(context) == ["a@0", "b@0", "stale@0"]


def test_a_later_write_to_the_bucket_is_a_conflict(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", BY_PARTITION | BY_BUCKET, partitioned=True)
    theirs(context, "a", where=ONE)
    theirs(context, "b", 1, where=ONE)
    theirs(context, "c", 0, where=ONE)
    before = manifest_files(context)
    with pytest.raises(DataConflict) as failure:
        append(context, "mine", read=1, where=ONE)
    error = failure.value
    assert error.what == "dt=2024-01-01/bucket-0 was written after snapshot 1, which this job has read"
    assert error.why == "snapshot 3 (APPEND, user rival) changed it"
    assert (error.exit_code, error.code) == (5, "PC-CONFLICT-DATA")
    assert error.details == {
        "partition": "dt=2024-01-01",
        "bucket": 0,
        "snapshot_id": 3,
        "commit_user": "rival",
        "commit_kind": "APPEND",
        "read_snapshot_id": 1,
        "published_snapshots": [],
    }
    assert manifest_files(context) == before == named_manifest_files(context)
    append(context, "mine", read=3, where=ONE)


@pytest.mark.parametrize("options", [BY_BUCKET, BY_PARTITION])
def test_what_a_commit_only_compacts_is_not_written(tmp_path: Path, options: dict[str, str]) -> None:
    """A rival has written to the bucket that this commit only compacts; none of its rows is lost."""
    context = make_table(tmp_path / "t", options, partitioned=True)
    theirs(context, "a", where=ONE)
    theirs(context, "b", where=ONE)
    appended = CommitMessage(TWO, 1, 2, append=FileChanges(added=(data_file("mine"),)), read_snapshot_id=1)
    compacted = CommitMessage(
        ONE, 0, 2, compact=FileChanges(removed=(data_file("a"),), added=(data_file("c", level=5),)), read_snapshot_id=1
    )
    Committer(context).commit([appended, compacted], ME)
    assert live_names(context) == ["b@0", "c@5", "mine@0"]


@pytest.mark.parametrize(
    ("options", "where", "bucket", "clash"),
    [
        (BY_BUCKET, ONE, 0, True),
        (BY_BUCKET, ONE, 1, False),
        (BY_BUCKET, TWO, 0, False),
        (BY_PARTITION, ONE, 1, True),
        (BY_PARTITION, TWO, 0, False),
    ],
)
def test_granularity(tmp_path: Path, options: dict[str, str], where: bytes, bucket: int, clash: bool) -> None:
    context = make_table(tmp_path / "t", options, partitioned=True)
    theirs(context, "first", where=ONE)
    theirs(context, "second", where=ONE)
    if clash:
        with pytest.raises(DataConflict):
            append(context, "mine", bucket, 1, where=where)
    else:
        append(context, "mine", bucket, 1, where=where)


BY_RANGE = {"commit.data-conflict-check": "range"}


@pytest.mark.parametrize(
    ("mine", "theirs_range", "clash"),
    [
        ([(0, 9)], (9, 20), True),
        ([(0, 9)], (10, 20), False),
        ([(10, 20)], (0, 9), False),
        ([(10, 20)], (0, 10), True),
        ([(0, 100)], (40, 50), True),
        ([(40, 50)], (0, 100), True),
        ([(0, 9), (30, 39)], (10, 29), False),
        ([(30, 39), (0, 9)], (35, 35), True),
        ([(0, 50), (10, 12), (60, 70)], (13, 40), True),
        ([(0, 50), (10, 12), (60, 70)], (51, 59), False),
    ],
)
def test_by_range_only_overlapping_key_ranges_of_one_bucket_clash(
    tmp_path: Path, mine: list[tuple[int, int]], theirs_range: tuple[int, int], clash: bool
) -> None:
    context = make_table(tmp_path / "t", BY_RANGE)
    theirs(context, "read")
    commit(context, 0, data_file("rival", *theirs_range), who=RIVAL)
    files = [data_file(f"m{number}", low, high) for number, (low, high) in enumerate(mine)]
    commit(context, 1, *files, read=1)
    if clash:
        with pytest.raises(DataConflict, match="a key range of bucket-0"):
            commit(context, 0, *files, read=1)
    else:
        commit(context, 0, *files, read=1)


def commit(context: TableContext, bucket: int, *files: DataFileMeta, read: int | None = None, who: CommitIdentity = ME) -> None:
    read = context.snapshots.latest_id() if who is RIVAL else read
    total = bucket if bucket == POSTPONE_BUCKET else 2
    message = CommitMessage(EMPTY_ROW, bucket, total, append=FileChanges(added=files), read_snapshot_id=read)
    Committer(context).commit([message], who)


@pytest.mark.parametrize("check", ["range", "key"])
def test_what_names_no_keys_counts_as_its_whole_bucket(tmp_path: Path, check: str) -> None:
    context = make_table(tmp_path / "t", {"commit.data-conflict-check": check})
    theirs(context, "read")
    commit(context, 0, data_file("rival", 100, 200), who=RIVAL)
    index = IndexFileMeta("HASH", "index-1", 10, 1)
    message = CommitMessage(
        EMPTY_ROW, 0, 2, append=FileChanges(added=(data_file("mine"),), added_indexes=(index,)), read_snapshot_id=1
    )
    with pytest.raises(DataConflict, match="bucket-0"):
        Committer(context).commit([message], ME)


@pytest.mark.parametrize("granularity", [WrittenRanges, WrittenKeys])
@pytest.mark.parametrize(("bucket", "clash"), [(POSTPONE_BUCKET, True), (0, False), (1, False)])
def test_only_rows_that_wait_for_a_bucket_count_as_a_whole(
    tmp_path: Path, granularity: type[WrittenRanges], bucket: int, clash: bool
) -> None:
    """The ranges of other files say which keys they can hold."""
    context = make_table(tmp_path / "t")
    messages = [
        CommitMessage(EMPTY_ROW, bucket, 2, append=FileChanges(added=(data_file("mine", 0, 9),))),
        CommitMessage(EMPTY_ROW, 1 - max(bucket, 0), 2, append=FileChanges(added=(data_file("beside", 100, 109),))),
    ]
    written = granularity(context, messages)
    entry = ManifestEntry(EntryKind.ADD, EMPTY_ROW, bucket, 2, data_file("rival", 10, 20))
    assert written.meets(entry) == clash


@pytest.mark.parametrize(("bucket", "holder"), [(0, "theirs-2"), (1, "theirs-3"), (0, None)])
def test_a_key_that_both_wrote_is_reported_with_its_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bucket: int, holder: str | None
) -> None:
    """`holder`: the file with the key. Only files of others whose key ranges overlap ours are looked up."""
    asked: dict[int, tuple[list[str], list[str]]] = {}

    def found(
        _: TableContext, places: Mapping[str, BucketId], ours: Sequence[DataFileMeta], theirs: Sequence[DataFileMeta]
    ) -> Any:
        (where,) = {places[file.file_name].bucket for file in (*ours, *theirs)}
        asked[where] = ([file.file_name for file in ours], [file.file_name for file in theirs])
        return SharedKey("k=7", holder) if holder is not None and where == bucket else None

    monkeypatch.setattr(shared_keys, "first_shared_key", found)
    context = make_table(tmp_path / "t", {"commit.data-conflict-check": "key"})
    theirs(context, "theirs-0")
    for number, where in enumerate((0, 0, 1, 0), 1):
        low = 500 if number == 4 else 0  # beyond our range
        commit(context, where, data_file(f"theirs-{number}", low, low + 9), who=RIVAL)
    messages = [
        CommitMessage(EMPTY_ROW, n, 2, append=FileChanges(added=(data_file(f"mine-{n}"),)), read_snapshot_id=1) for n in (0, 1)
    ]
    if holder is None:
        Committer(context).commit(messages, ME)
    else:
        with pytest.raises(DataConflict, match=f"^key k=7 in bucket-{bucket} was written after snapshot 1") as failure:
            Committer(context).commit(messages, ME)
        error = failure.value
        assert error.details["snapshot_id"] == int(holder[-1]) + 1 and error.details["key"] == "k=7"
    expected = {0: (["mine-0"], ["theirs-1", "theirs-2"]), 1: (["mine-1"], ["theirs-3"])}
    assert asked == {where: expected[where] for where in range(2 if holder is None else bucket + 1)}


@pytest.mark.parametrize("check", ["range", "key"])
def test_keys_are_asked_of_tables_that_have_them(tmp_path: Path, check: str) -> None:
    context = make_table(tmp_path / "t", {"commit.data-conflict-check": check}, primary_key=False)
    with pytest.raises(UsageError, match="without a primary key"):
        append(context, "mine")
    assert context.snapshots.latest() is None


def test_one_of_several_buckets_is_enough(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", BY_BUCKET)
    theirs(context, "a")
    theirs(context, "b", 1)
    messages = [
        CommitMessage(EMPTY_ROW, n, 2, append=FileChanges(added=(data_file(f"m{n}"),)), read_snapshot_id=1) for n in (0, 1)
    ]
    with pytest.raises(DataConflict, match="bucket-1"):
        Committer(context).commit(messages, ME)


def test_compactions_and_writes_do_not_disturb_each_other(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", BY_BUCKET)
    old = data_file("old")
    theirs(context, "old")
    merged = CommitMessage(EMPTY_ROW, 0, 2, compact=FileChanges(removed=(old,), added=(old.upgraded(5),)), read_snapshot_id=1)
    Committer(context).commit([merged], RIVAL)
    append(context, "mine", read=1)
    late = data_file("late", level=4)
    Committer(context).commit([CommitMessage(EMPTY_ROW, 0, 2, compact=FileChanges(added=(late,)), read_snapshot_id=1)], ME)
    assert live_names(context) == ["late@4", "mine@0", "old@5"]


@pytest.mark.parametrize("name", [None, "theirs"])
def test_an_overwrite_by_others_is_a_write_even_if_it_only_deletes(tmp_path: Path, name: str | None) -> None:
    context = make_table(tmp_path / "t", BY_BUCKET)
    theirs(context, "old")
    messages = [] if name is None else [CommitMessage(EMPTY_ROW, 1, 2, append=FileChanges(added=(data_file(name),)))]
    Committer(context).overwrite(messages, RIVAL, replaced_partitions=lambda p: True, read_snapshot_id=1)
    with pytest.raises(DataConflict, match=r"snapshot 2 \(OVERWRITE, user rival\)"):
        append(context, "mine", read=1)


def test_a_job_that_read_the_empty_table_conflicts_with_the_first_write(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", BY_BUCKET)
    append(context, "first", read=None)
    with pytest.raises(DataConflict, match="after snapshot 0"):
        append(context, "second", read=None)
    append(context, "elsewhere", 1, read=0)


def test_every_attempt_checks_what_came_in_between(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", BY_BUCKET)
    theirs(table, "old")
    storage = RivalStorage(lambda: theirs(table, "elsewhere", 1), lambda: theirs(table, "same"))
    context = make_table(tmp_path / "t", storage=storage)
    with pytest.raises(DataConflict, match="snapshot 3"):
        append(context, "mine", read=1)
    assert storage.puts == 2, "only the second rival was in the way"
    assert live_names(context) == ["elsewhere@0", "old@0", "same@0"]
    assert manifest_files(context) == named_manifest_files(context)


def test_each_snapshot_is_checked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make_table(tmp_path / "t", BY_BUCKET)
    for number in range(4):
        theirs(table, f"old-{number}", 1)
    context = make_table(tmp_path / "t", storage=RivalStorage(*[lambda n=n: theirs(table, f"new-{n}", 1) for n in range(3)]))
    seen: list[int] = []
    real = ManifestReader.delta_entries

    def counted(self: ManifestReader, snapshot: Snapshot) -> Any:
        if self.storage is context.storage:
            seen.append(snapshot.id)
        return real(self, snapshot)

    monkeypatch.setattr(ManifestReader, "delta_entries", counted)
    result = append(context, "mine", read=2)
    assert result.attempts == 4
    assert seen == [3, 4, 5, 6, 7]


def test_what_cannot_be_read_any_more_may_have_been_a_conflict(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", BY_BUCKET)
    for number in range(4):
        theirs(context, f"f{number}", 1)
    (tmp_path / "t" / "snapshot" / "snapshot-1").unlink()
    append(context, "still known", read=1)
    for number in (2, 3):
        (tmp_path / "t" / "snapshot" / f"snapshot-{number}").unlink()
    before = manifest_files(context)
    with pytest.raises(DataConflict, match="snapshot 2 has expired"):
        append(context, "mine", read=1)
    assert manifest_files(context) == before


def test_a_commit_that_writes_nothing_has_no_conflict(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {**BY_BUCKET, "commit.force-create-snapshot": "true"})
    for number in range(3):
        theirs(context, f"f{number}", 1)
    (tmp_path / "t" / "snapshot" / "snapshot-1").unlink()
    assert Committer(context).commit([], ME).snapshots[0].id == 4


def test_a_snapshot_that_expires_while_it_is_read(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", BY_BUCKET)
    theirs(table, "a", 1)
    gone = theirs(table, "b", 1).snapshots[0]
    theirs(table, "c", 1)

    class ExpiringStorage(LocalStorage):
        def read_bytes(self, path: str) -> bytes:
            content = super().read_bytes(path)
            if path.endswith("snapshot-2"):
                self.delete(path)
                self.delete(table.layout.manifest(gone.delta_manifest_list))
            return content

    with pytest.raises(DataConflict, match="snapshot 2 has expired"):
        append(make_table(tmp_path / "t", storage=ExpiringStorage()), "mine", read=1)


def test_a_table_that_was_rolled_back_shows_no_conflict(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", BY_BUCKET)
    for number in range(3):
        theirs(context, f"f{number}", 1)
    for number in (2, 3):
        (tmp_path / "t" / "snapshot" / f"snapshot-{number}").unlink()
    with pytest.raises(DataConflict, match="rolled back to snapshot 1"):
        append(context, "mine", read=3)


def test_a_commit_that_took_the_number_of_what_was_read_is_a_conflict(tmp_path: Path) -> None:
    """After a rollback numbers are used again. What was read is gone, and must not come back in what was made of it."""
    context = make_table(tmp_path / "t", BY_BUCKET)
    for name in "ab":
        theirs(context, name, 1)
    snapshot = context.layout.snapshot
    other = make_table(tmp_path / "t", BY_BUCKET)
    Path(snapshot(2)).unlink()
    theirs(other, "c", 0)
    with pytest.raises(DataConflict, match="another commit is snapshot 2 now"):
        append(context, "mine", read=2)
    append(make_table(tmp_path / "t", BY_BUCKET), "later", read=2)
    again = make_table(tmp_path / "t", BY_BUCKET)
    assert again.snapshots.latest_id() == 3
    again.snapshots.latest()
    rewritten = replace(again.snapshots.get(3), delta_manifest_list="other")
    Path(snapshot(3)).write_text(rewritten.to_json())
    DataConflictCheck(again, RIVAL, WholeBuckets(lambda bucket: True), 3).check(rewritten)  # the same commit, after an erasure


def test_only_commits_of_the_same_identity_are_our_own(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", BY_BUCKET)
    append(context, "ours", who=CommitIdentity("job", 1))
    latest = context.snapshots.latest()
    messages = [CommitMessage(EMPTY_ROW, 0, 2, append=FileChanges(added=(data_file("mine"),)))]
    check_of_messages(context, CommitIdentity("job", 1), messages, None, ConflictCheck.BUCKET)(latest)
    for other in (CommitIdentity("job", 2), CommitIdentity("other", 1)):
        with pytest.raises(DataConflict):
            check_of_messages(context, other, messages, None, ConflictCheck.BUCKET)(latest)


def test_jobs_that_share_a_user_but_have_no_identifiers_are_unrelated(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", BY_BUCKET)
    append(context, "a")
    with pytest.raises(DataConflict):
        append(context, "b")


@pytest.mark.parametrize("options", [BY_BUCKET, BY_PARTITION])
def test_an_overwrite_replaces_only_what_it_has_read(tmp_path: Path, options: dict[str, str]) -> None:
    context = make_table(tmp_path / "t", options, partitioned=True)
    theirs(context, "one", where=ONE)
    theirs(context, "unseen", 1, where=ONE)
    theirs(context, "other", where=TWO)
    mine = CommitMessage(ONE, 0, 2, append=FileChanges(added=(data_file("mine"),)), read_snapshot_id=1)
    with pytest.raises(DataConflict, match="dt=2024-01-01/bucket-1"):
        Committer(context).overwrite([mine], ME, replaced_partitions=lambda p: p == ONE, read_snapshot_id=1)
    Committer(context).overwrite([mine], ME, replaced_partitions=lambda p: p == ONE, read_snapshot_id=2)
    assert live_names(context) == ["mine@0", "other@0"]


def test_a_stray_snapshot_of_a_huge_number_is_not_counted_up_to(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", BY_BUCKET)
    theirs(context, "a")
    stray = replace(context.snapshots.get(1), id=2**62)
    Path(context.layout.snapshot(stray.id)).write_text(stray.to_json())
    Path(context.layout.latest_hint).write_text(str(stray.id))
    with pytest.raises(DataConflict, match="snapshot 2 has expired"):
        append(context, "mine", read=1)
    append(context, "again", read=stray.id)
    assert context.snapshots.latest_id() == stray.id + 1


# deletions that only mark rows


def mark(
    context: TableContext, name: str, bucket: int = 0, where: bytes = EMPTY_ROW, old: IndexFileMeta | None = None
) -> IndexFileMeta:
    """A rival marks a row of a file; `old` are the vectors of the bucket so far."""
    index = IndexFileMeta(DELETION_VECTORS, f"index-{context.random.uuid()}-0", 30, 1, (DeletionVectorRange(name, 1, 22, 1),))
    change_vectors(context, bucket, where, new=(index,), old=() if old is None else (old,))
    return index


def change_vectors(
    context: TableContext, bucket: int, where: bytes, new: Sequence[IndexFileMeta], old: Sequence[IndexFileMeta]
) -> None:
    read = context.snapshots.latest_id()
    message = CommitMessage(
        where, bucket, 2, append=FileChanges(added_indexes=tuple(new), removed_indexes=tuple(old)), read_snapshot_id=read
    )
    (snapshot,) = Committer(context).commit([message], RIVAL).snapshots
    assert snapshot.commit_kind == "OVERWRITE" and not context.manifests.delta_entries(snapshot)


CHECKS = ["partition", "bucket", "range", "key"]


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("is_taken_away", [False, True])
def test_rows_that_are_only_marked_are_a_write_to_their_bucket(tmp_path: Path, check: str, is_taken_away: bool) -> None:
    """The keys of these rows are unknown: the bucket counts as written, whatever its files hold."""
    context = make_table(tmp_path / "t", {"commit.data-conflict-check": check})
    commit(context, 0, data_file("read", 100, 200), who=RIVAL)
    index = mark(context, "read")
    commit(context, 1, data_file("elsewhere"), who=RIVAL)
    read = 1
    if is_taken_away:
        read = 3
        change_vectors(context, 0, EMPTY_ROW, new=(), old=(index,))
    before = manifest_files(context)
    with pytest.raises(DataConflict, match=f"^bucket-0 was written after snapshot {read}") as failure:
        append(context, "mine", read=read)
    assert failure.value.why.endswith("changed which of its rows are marked as deleted")
    assert failure.value.details["snapshot_id"] == read + 1
    assert manifest_files(context) == before == named_manifest_files(context)
    append(context, "mine", read=context.snapshots.latest_id())


@pytest.mark.parametrize("check", CHECKS)
def test_rows_that_are_only_marked_in_other_buckets_and_partitions(tmp_path: Path, check: str) -> None:
    context = make_table(tmp_path / "t", {"commit.data-conflict-check": check}, partitioned=True)
    for where, bucket in ((ONE, 0), (ONE, 1), (TWO, 0)):
        theirs(context, f"read-{len(live_names(context))}", bucket, where)
    mark(context, "read-2", where=TWO)
    append(context, "mine", read=3, where=ONE)
    mark(context, "read-1", 1, where=ONE)
    if check == "partition":
        with pytest.raises(DataConflict, match="dt=2024-01-01/bucket-1"):
            append(context, "again", read=5, where=ONE)
    else:
        append(context, "again", read=5, where=ONE)


def test_vectors_that_go_with_their_files_add_nothing_to_their_key_range(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", BY_RANGE)
    commit(context, 0, data_file("read", 100, 200), who=RIVAL)
    mark(context, "read")
    Committer(context).overwrite([], RIVAL, replaced_partitions=lambda p: True, read_snapshot_id=2)
    append(context, "mine", read=2)


def test_marks_count_beside_files_that_go_with_theirs(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", BY_RANGE)
    going, staying = data_file("going", 100, 200), data_file("staying", 300, 400)
    commit(context, 0, going, staying, who=RIVAL)
    old, new = (
        IndexFileMeta(DELETION_VECTORS, f"index-{file.file_name}-0", 30, 1, (DeletionVectorRange(file.file_name, 1, 22, 1),))
        for file in (going, staying)
    )
    change_vectors(context, 0, EMPTY_ROW, new=(old,), old=())
    change = FileChanges(removed=(going,), added_indexes=(new,), removed_indexes=(old,))
    Committer(context).commit([CommitMessage(EMPTY_ROW, 0, 2, append=change, read_snapshot_id=2)], RIVAL)
    with pytest.raises(DataConflict, match="marked as deleted"):
        append(context, "mine", read=2)


def test_marks_by_a_compaction_are_no_write(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", BY_BUCKET)
    theirs(context, "read")
    index = IndexFileMeta(DELETION_VECTORS, "index-1-0", 30, 1, (DeletionVectorRange("read", 1, 22, 1),))
    Committer(context).commit(
        [CommitMessage(EMPTY_ROW, 0, 2, compact=FileChanges(added_indexes=(index,)), read_snapshot_id=1)], RIVAL
    )
    append(context, "mine", read=1)


def test_index_manifests_are_read_only_if_they_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make_table(tmp_path / "t", BY_BUCKET)
    theirs(table, "read")
    mark(table, "read")
    theirs(table, "a", 1)
    theirs(table, "b", 1)
    seen: list[str] = []
    real = ManifestReader.index_manifest

    def noted(self: ManifestReader, name: str) -> Any:
        seen.append(name)
        return real(self, name)

    monkeypatch.setattr(ManifestReader, "index_manifest", noted)
    messages = [CommitMessage(EMPTY_ROW, 0, 2, append=FileChanges(added=(data_file("mine"),)), read_snapshot_id=2)]
    check_of_messages(table, ME, messages, 2, ConflictCheck.BUCKET)(table.snapshots.latest())
    assert seen == []


@pytest.mark.parametrize("options", [{}, {"deletion-vectors.enabled": "true"}])
def test_marks_cannot_be_seen_if_the_snapshot_that_was_read_has_expired(tmp_path: Path, options: dict[str, str]) -> None:
    context = make_table(tmp_path / "t", BY_BUCKET | options)
    theirs(context, "read", 1)
    theirs(context, "next", 1)
    if not options:
        mark(context, "read", 1)
    read = (context.snapshots.latest_id() or 0) - 1
    (tmp_path / "t" / "snapshot" / f"snapshot-{read}").unlink()
    with pytest.raises(DataConflict, match="has expired"):
        append(context, "mine", read=read)


def test_rows_that_lose_their_marks_are_back_in_another_bucket(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t")
    theirs(context, "read", 1)
    index = mark(context, "read", 1)
    change_vectors(context, 1, EMPTY_ROW, new=(), old=(index,))
    latest = context.snapshots.latest()
    for bucket in (0, 1):
        mine = CommitMessage(EMPTY_ROW, bucket, 2, append=FileChanges(added=(data_file("mine"),)), read_snapshot_id=2)
        check = check_of_locations(context, ME, [mine])
        if bucket == 1:
            check(latest)
        else:
            with pytest.raises(BucketsConflict, match=r"^bucket-1 was written after snapshot 2"):
                check(latest)


@pytest.mark.parametrize("reads", [(1, 2), (2, 1), (2, 2), (1, None), (None, 2)])
@pytest.mark.parametrize("looked_up", [False, True])
def test_of_messages_that_read_the_table_at_different_times_the_oldest_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: tuple[int | None, ...], looked_up: bool
) -> None:
    """`looked_up`: keys were looked up before the files were read."""
    monkeypatch.setattr(shared_keys, "first_shared_key", lambda *given: SharedKey("k=7", given[-1][0].file_name))
    context = make_table(tmp_path / "t")
    theirs(context, "read")
    commit(context, 1, data_file("rival"), who=RIVAL)
    messages = [
        CommitMessage(
            EMPTY_ROW, 0, 2, append=FileChanges(added=(data_file(f"m{read}"),)), read_snapshot_id=read, keys_read_at=None
        )
        for read in reads
    ]
    if looked_up:
        messages = [replace(message, read_snapshot_id=2, keys_read_at=message.read_snapshot_id or 0) for message in messages]
    check = check_of_locations(context, ME, messages)
    if reads == (2, 2):
        check(context.snapshots.latest())
    else:
        with pytest.raises(BucketsConflict, match=r"^key k=7 in bucket-1 was written"):
            check(context.snapshots.latest())


def test_ranges_of_several_files_are_joined_only_where_they_overlap() -> None:
    """What lies between two of them is no conflict."""
    assert _disjoint([(6, 9), (1, 2), (8, 8), (5, 7), (20, 21), (9, 10)]) == [(1, 2), (5, 10), (20, 21)]
    assert _disjoint([]) == []


@pytest.mark.parametrize(("bucket", "clash"), [(0, True), (1, False), (POSTPONE_BUCKET, False)])
def test_rows_that_a_compaction_moved_into_a_bucket_are_a_conflict_for_what_is_written_there(
    tmp_path: Path, bucket: int, clash: bool
) -> None:
    """They are older than ours, and may have higher sequence numbers, so that this is checked in every table."""
    context = make_table(tmp_path / "t", {"bucket": str(POSTPONE_BUCKET)})
    commit(context, POSTPONE_BUCKET, data_file("waits"), who=RIVAL)
    moved = [
        CommitMessage(EMPTY_ROW, POSTPONE_BUCKET, POSTPONE_BUCKET, compact=FileChanges(removed=(data_file("waits"),))),
        CommitMessage(EMPTY_ROW, 0, 2, compact=FileChanges(added=(data_file("moved"),))),
    ]
    Committer(context).commit(moved, RIVAL)
    mine = [CommitMessage(EMPTY_ROW, bucket, 2, append=FileChanges(added=(data_file("mine"),)))]
    check = check_of_messages(context, ME, mine, 1, ConflictCheck.OFF)
    if clash:
        with pytest.raises(DataConflict, match=r"^bucket-0 was written after snapshot 1") as failure:
            check(context.snapshots.latest())
        assert (failure.value.details["snapshot_id"], failure.value.details["commit_kind"]) == (2, "COMPACT")
    else:
        check(context.snapshots.latest())


@pytest.mark.parametrize("bucket", [POSTPONE_BUCKET, 0])
@pytest.mark.parametrize("keeps", [False, True])
def test_an_overwrite_that_keeps_waiting_rows_has_no_conflict_about_them_only(tmp_path: Path, bucket: int, keeps: bool) -> None:
    context = make_table(tmp_path / "t", {"bucket": str(POSTPONE_BUCKET)})
    commit(context, 0, data_file("read"), who=RIVAL)
    commit(context, bucket, data_file("unseen"), who=RIVAL)
    mine = CommitMessage(EMPTY_ROW, 0, 2, append=FileChanges(added=(data_file("mine"),)), read_snapshot_id=1)
    overwriting = Committer(context, ConflictCheck.PARTITION)
    if keeps and bucket == POSTPONE_BUCKET:
        overwriting.overwrite([mine], ME, replaced_partitions=lambda _: True, keeps_postponed=keeps)
        assert live_names(context) == ["mine@0", "unseen@0"]
        return
    with pytest.raises(DataConflict, match="was written after snapshot 1"):
        overwriting.overwrite([mine], ME, replaced_partitions=lambda _: True, keeps_postponed=keeps)
    assert live_names(context) == ["read@0", "unseen@0"]
