"""Every contradiction between a commit and the latest snapshot is found and reported."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from paimon_cli.commit.commit_messages import CommitKind
from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import CommitIdentity
from paimon_cli.errors import BucketsConflict, DamagedFile, FilesConflict
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import EMPTY_ROW, CommitMessage, DataFileMeta, FileChanges, IndexFileMeta, hash_index_state
from tests.commit.commit_tables import data_file, live_names, make_table, manifest_files, named_manifest_files, partition

ME, RIVAL = CommitIdentity("me"), CommitIdentity("rival")


Files = tuple[DataFileMeta, ...]


def commit(
    context: TableContext,
    identity: CommitIdentity = ME,
    /,
    where: bytes = EMPTY_ROW,
    count: int = 2,
    new_files: Files = (),
    deleted_files: Files = (),
    compact_before: Files = (),
    compact_after: Files = (),
    read_snapshot_id: int | None = None,
) -> None:
    message = CommitMessage(
        where,
        0,
        count,
        append=FileChanges(added=new_files, removed=deleted_files),
        compact=FileChanges(removed=compact_before, added=compact_after),
        read_snapshot_id=read_snapshot_id,
    )
    Committer(context).commit([message], identity)


def compact(
    context: TableContext,
    before: list[DataFileMeta],
    after: list[DataFileMeta],
    where: bytes = EMPTY_ROW,
    count: int = 2,
    read_snapshot_id: int | None = None,
) -> None:
    commit(
        context,
        where=where,
        count=count,
        compact_before=tuple(before),
        compact_after=tuple(after),
        read_snapshot_id=read_snapshot_id,
    )


def test_a_removed_file_is_reported_with_the_snapshot_that_removed_it(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", partitioned=True)
    where, file = partition("2024-01-01"), data_file("data-1.parquet")
    commit(context, where=where, new_files=(file,))
    commit(context, where=partition("2024-01-02"), new_files=(data_file("elsewhere"),))
    commit(context, RIVAL, where=where, compact_before=(file,), compact_after=(data_file("theirs", level=5),))
    commit(context, where=where, new_files=(data_file("later", 100, 110),))
    with pytest.raises(FilesConflict) as failure:
        compact(context, [file], [data_file("mine", level=5)], where=where, read_snapshot_id=1)
    error = failure.value
    assert error.what == "data file data-1.parquet of dt=2024-01-01/bucket-0 is no longer in the table"
    assert error.why == "snapshot 3 (COMPACT, user rival) removed it"
    assert error.exit_code == 5
    assert error.details == {
        "partition": "dt=2024-01-01",
        "bucket": 0,
        "file": "data-1.parquet",
        "snapshot_id": 3,
        "commit_user": "rival",
        "published_snapshots": [],
    }
    assert manifest_files(context) == named_manifest_files(context), "a commit in conflict leaves no metadata"


def test_a_conflict_of_the_compact_half_names_the_append_snapshot(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t")
    with pytest.raises(FilesConflict) as failure:
        commit(context, new_files=(data_file("new"),), compact_before=(data_file("gone"),))
    assert failure.value.details["published_snapshots"] == [1]
    assert live_names(context) == ["new@0"]


@pytest.mark.parametrize(
    ("low", "high", "clash"), [(5, 15, True), (9, 9, True), (10, 19, False), (-9, -1, False), (-9, 99, True)]
)
def test_levels_above_0_stay_disjoint(tmp_path: Path, low: int, high: int, clash: bool) -> None:
    context = make_table(tmp_path / "t")
    compact(context, [], [data_file("there", 0, 9, level=3)])
    if clash:
        with pytest.raises(FilesConflict, match="does not fit into level 3"):
            compact(context, [], [data_file("new", low, high, level=3)])
    else:
        compact(context, [], [data_file("new", low, high, level=3)])
    compact(context, [], [data_file("other-level", low, high, level=4)])
    commit(context, new_files=(data_file("level-0", low, high),))


def test_key_ranges_may_overlap_in_other_buckets_and_replaced_files(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t")
    old = data_file("old", level=3)
    compact(context, [], [old])
    Committer(context).commit([CommitMessage(EMPTY_ROW, 1, 2, compact=FileChanges(added=(data_file("bucket-1", level=3),)))], ME)
    compact(context, [old], [data_file("new", level=3)])
    assert live_names(context) == ["bucket-1@3", "new@3"]


def test_keys_compare_as_numbers_not_as_bytes(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t")
    compact(context, [], [data_file("small", 1, 255, level=3)])
    compact(context, [], [data_file("big", 256, 300, level=3)])  # 256 is 00 01 in little-endian bytes
    compact(context, [], [data_file("negative", -300, 0, level=3)])
    assert len(live_names(context)) == 3


def test_one_commit_must_not_name_a_file_twice(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t")
    file = data_file("a")
    commit(context, new_files=(file,))
    with pytest.raises(FilesConflict, match="occurs twice"):
        compact(context, [file, file], [data_file("b", level=5)])
    with pytest.raises(FilesConflict, match="occurs twice"):
        compact(context, [file], [file])


def test_a_file_can_be_added_once_only_where_appends_are_checked(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t")
    message = CommitMessage(EMPTY_ROW, 0, 2, append=FileChanges(added=(data_file("a"),)))
    Committer(context).commit([message], ME)
    with pytest.raises(FilesConflict, match="is already in the table"):
        Committer(context).commit([message], ME, CommitKind.REPAIR)


@pytest.mark.parametrize("kind", CommitKind)
def test_the_bucket_count_of_a_partition_must_not_change(tmp_path: Path, kind: CommitKind) -> None:
    context = make_table(tmp_path / "t", partitioned=True)
    one, two = partition("2024-01-01"), partition("2024-01-02")
    commit(context, where=one, new_files=(data_file("a"),))
    commit(context, where=two, new_files=(data_file("b"),), count=4)
    for where, count in ((one, 4), (two, 2)):
        with pytest.raises(FilesConflict, match="bucket count of dt=2024-01-0"):
            Committer(context).commit([CommitMessage(where, 0, count, append=FileChanges(added=(data_file("c"),)))], ME, kind)
    commit(context, where=one, new_files=(data_file("d"),))
    commit(context, where=two, new_files=(data_file("e"),), count=4)


def test_an_append_onto_the_snapshot_that_its_writer_saw_reads_no_manifest(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t")
    commit(context, new_files=(data_file("a"),))
    commit(context, new_files=(data_file("b"),))
    for path in (tmp_path / "t" / "manifest").glob("manifest-*-0"):
        if not path.name.startswith("manifest-list"):
            path.write_bytes(b"")
    context = TableContext.open(context.url)
    with pytest.raises(DamagedFile):
        commit(context, new_files=(data_file("c"),), read_snapshot_id=1)
    commit(context, new_files=(data_file("c"),), read_snapshot_id=2)
    assert context.snapshots.latest_id() == 3


def test_files_of_dynamic_buckets_are_compared_with_nothing(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t")
    commit(context, new_files=(data_file("a"),))
    for path in (tmp_path / "t" / "manifest").glob("manifest-*-0"):
        if not path.name.startswith("manifest-list"):
            path.write_bytes(b"")
    context = TableContext.open(context.url)
    with pytest.raises(DamagedFile):
        commit(context, new_files=(data_file("b"),))
    commit(context, new_files=(data_file("b"),), count=-1)
    assert context.snapshots.latest_id() == 2


def test_a_partition_that_was_emptied_may_get_another_bucket_count(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", partitioned=True)
    one = partition("2024-01-01")
    commit(context, where=one, new_files=(data_file("a"),))
    Committer(context).overwrite([], ME, replaced_partitions=lambda p: True)
    commit(context, where=one, new_files=(data_file("b"),), count=4)
    assert live_names(context) == ["b@0"]


def test_dynamic_buckets_have_no_count_to_disagree_on(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"bucket": "-1"})
    commit(context, new_files=(data_file("a"),), count=-1)
    commit(context, new_files=(data_file("b"),), count=-1)
    compact(context, [data_file("a")], [data_file("c", level=5)], count=-1)
    assert live_names(context) == ["b@0", "c@5"]


def test_a_partition_that_the_commit_does_not_touch_may_disagree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other writers made it so; a commit that gives another partition a new count is not affected."""
    context = make_table(tmp_path / "t", partitioned=True)
    one, two = partition("2024-01-01"), partition("2024-01-02")
    with monkeypatch.context() as unchecked:
        unchecked.setattr("paimon_cli.commit.committer.check_newest_bucket_counts", lambda *_: None)
        commit(context, where=two, new_files=(data_file("a"),))
        commit(context, where=two, new_files=(data_file("b", 10, 19),), count=4)
    commit(context, where=one, new_files=(data_file("c"),))
    messages = [
        CommitMessage(one, 0, 2, append=FileChanges(removed=(data_file("c"),))),
        CommitMessage(one, 0, 4, append=FileChanges(added=(data_file("d"),))),
    ]
    Committer(context).commit(messages, ME)
    assert live_names(context) == ["a@0", "b@0", "d@0"]
    with pytest.raises(FilesConflict, match="bucket count of dt=2024-01-02"):
        commit(context, where=two, new_files=(data_file("e", 20, 29),), deleted_files=(data_file("a"),))


@pytest.mark.parametrize(("old", "new"), [(2, 4), (2, 1), (1, 2)])
def test_the_count_of_a_partition_is_searched_in_older_manifests(tmp_path: Path, old: int, new: int) -> None:
    """The range of the newest one includes the partition, but it has no entry of it."""
    context = make_table(tmp_path / "t", partitioned=True)
    days = [partition(f"2024-01-0{day}") for day in range(1, 6)]
    for written in ([1], [3], [0, 2, 4]):
        Committer(context).commit(
            [CommitMessage(days[day], 0, old, append=FileChanges(added=(data_file(f"{day}"),))) for day in written], ME
        )
    for day, other in ((1, 2), (3, 2), (2, 1)):
        with pytest.raises(FilesConflict, match=rf"the bucket count of dt=2024-01-0{day + 1} has changed") as failure:
            messages = [
                CommitMessage(days[day], 0, new, append=FileChanges(added=(data_file("x"),))),
                CommitMessage(days[other], 0, old, append=FileChanges(added=(data_file("y"),))),
            ]
            Committer(context).commit(messages, ME)
        assert failure.value.why == f"files for {old} and for {new} buckets cannot be in one partition"
    Committer(context).commit([CommitMessage(day, 0, old, append=FileChanges(added=(data_file("z"),))) for day in days], ME)
    assert len(live_names(context)) == 10


def test_the_snapshot_that_removed_a_file_is_found_by_every_manifest(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"manifest.target-file-size": "1 b"})
    files = [data_file(f"f{number}", number, number) for number in range(1100)]
    commit(context, new_files=tuple(files))
    commit(context, RIVAL, deleted_files=tuple(files))
    commit(context, new_files=(data_file("later"),))
    assert len(context.manifests.manifest_list(context.snapshots.get(2).delta_manifest_list)) == 2
    for file in (files[0], files[-1]):
        with pytest.raises(FilesConflict, match=f"data file {file.file_name} of bucket-0 is no longer in the table") as failure:
            commit(context, deleted_files=(file,), read_snapshot_id=1)
        assert (failure.value.why, failure.value.details["snapshot_id"]) == ("snapshot 2 (OVERWRITE, user rival) removed it", 2)


def test_every_conflict_has_a_reason(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t")
    there = data_file("there", level=3)
    compact(context, [], [there])
    for message, kind, what, why in (
        (
            CommitMessage(EMPTY_ROW, 0, 2, compact=FileChanges(added=(data_file("new", 9, 12, level=3),))),
            CommitKind.WRITE,
            "data file new of bucket-0 does not fit into level 3",
            "its keys overlap the keys of there, which another job put at the same level",
        ),
        (
            CommitMessage(EMPTY_ROW, 0, 2, append=FileChanges(added=(there,))),
            CommitKind.REPAIR,
            "data file there of bucket-0 is already in the table",
            "the same commit was probably already made",
        ),
        (
            CommitMessage(EMPTY_ROW, 0, 2, append=FileChanges(added=(data_file("a"), data_file("a")))),
            CommitKind.REPAIR,
            "data file a of bucket-0 occurs twice in this commit",
            "two tasks worked on the same bucket",
        ),
    ):
        with pytest.raises(FilesConflict) as failure:
            Committer(context).commit([message], ME, kind)
        error = failure.value
        assert (error.what, error.why) == (what, why)
        assert error.hint == "run the job again: it will start from the latest snapshot"
        assert error.details["bucket"] == 0 and error.details["file"] in what and error.details["partition"] == ""


def test_a_change_of_files_must_not_give_a_partition_two_bucket_counts(tmp_path: Path) -> None:
    """Not even if it is the first commit of the table."""
    context = make_table(tmp_path / "t")
    two, four = (CommitMessage(EMPTY_ROW, 0, n, append=FileChanges(added=(data_file(f"{n}"),))) for n in (2, 4))
    with pytest.raises(FilesConflict, match="files for 2 and for 4 buckets"):
        Committer(context).commit([two, four], ME, CommitKind.REPAIR)
    commit(context, new_files=(data_file("old"), data_file("other", 10, 19)))
    for removed in ("old", "other"):
        with pytest.raises(FilesConflict, match="files for 2 and for 4 buckets"):
            Committer(context).commit([four, replace(two, append=FileChanges(removed=(data_file(removed),)))], ME)
    both = FileChanges(removed=(data_file("old"), data_file("other")))
    Committer(context).commit([four, replace(two, append=both)], ME)
    assert live_names(context) == ["4@0"]


def test_a_conflict_stays_one_if_the_metadata_of_the_other_commit_has_gone(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t")
    commit(context, new_files=(data_file("a"),))
    commit(context, RIVAL, deleted_files=(data_file("a"),))
    commit(context, new_files=(data_file("b"),))
    (tmp_path / "t" / "manifest" / context.snapshots.get(2).delta_manifest_list).unlink()
    with pytest.raises(FilesConflict) as failure:
        commit(TableContext.open(context.url), deleted_files=(data_file("a"),), read_snapshot_id=1)
    assert failure.value.why == "a snapshot that has expired removed it"


@pytest.mark.parametrize("there", [("i0",), ("i0", "i1"), ()])
def test_keys_that_others_assigned_to_buckets_are_a_conflict_in_their_partition_only(
    tmp_path: Path, there: tuple[str, ...]
) -> None:
    """Rows of a partition with any number of hash indexes; each is compared with what the writer has read of it."""
    context = make_table(tmp_path / "t", {"bucket": "-1"}, partitioned=True)
    one, two = partition("2024-01-01"), partition("2024-01-02")

    def written(where: bytes, bucket: int, name: str, read: tuple[str, ...]) -> CommitMessage:
        changes = FileChanges(added=(data_file(f"for-{name}"),), added_indexes=(IndexFileMeta("HASH", name, 4, 1),))
        state = hash_index_state(IndexFileMeta("HASH", known, 4, 1) for known in read)
        return CommitMessage(where, bucket, -1, append=changes, read_hash_index=state)

    for bucket, name in enumerate(there):
        Committer(context).commit([written(one, bucket, name, there[:bucket])], ME)
    Committer(context).commit([written(one, 5, "mine", there), written(two, 0, "first", ())], ME)
    for where, read in ((one, there), (two, ()), (two, ("mine",))):
        messages = [
            written(where, 7, "late", read),
            written(two if where == one else one, 8, "beside", (*there, "mine") if where == two else ("first",)),
        ]
        with pytest.raises(BucketsConflict) as failure:
            Committer(context).commit(messages, ME)
        assert failure.value.details["partition"] == ("dt=2024-01-01" if where == one else "dt=2024-01-02")
    assert len(live_names(context)) == len(there) + 2


def test_level_1_is_a_level_above_0(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t")
    commit(context, new_files=(data_file("new"),))
    compact(context, [], [data_file("there", 0, 9, level=1)])
    with pytest.raises(FilesConflict, match="does not fit into level 1"):
        compact(context, [], [data_file("overlaps", 9, 20, level=1)])
    looked = CommitMessage(EMPTY_ROW, 0, 2, compact=FileChanges(removed=(data_file("new"),)), read_upper_files=())
    with pytest.raises(FilesConflict, match="is new at level 1: another job put it there"):
        Committer(context).commit([looked], ME)
    Committer(context).commit([replace(looked, read_upper_files=("there",))], ME)
    assert live_names(context) == ["there@1"]


def test_the_newest_files_of_a_partition_tell_its_bucket_count(tmp_path: Path) -> None:
    """A writer that still has the count of files that are gone is refused."""
    context, where = make_table(tmp_path / "t", partitioned=True), partition("2024-01-01")
    commit(context, where=where, new_files=(data_file("old"),))
    rescaled = [
        CommitMessage(where, 0, 2, append=FileChanges(removed=(data_file("old"),))),
        CommitMessage(where, 0, 4, append=FileChanges(added=(data_file("new"),))),
    ]
    Committer(context).commit(rescaled, RIVAL)
    with pytest.raises(FilesConflict, match="the bucket count of dt=2024-01-01 has changed"):
        commit(context, where=where, new_files=(data_file("stale", 50, 59),), read_snapshot_id=1)
    commit(context, where=where, count=4, new_files=(data_file("fresh", 50, 59),), read_snapshot_id=1)
    assert live_names(context) == ["fresh@0", "new@0"]


def test_a_compaction_that_was_planned_before_vectors_were_switched_is_refused(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t")
    commit(context, new_files=(data_file("a"),))
    newer = replace(context.schema, id=1, options={**context.schema.options, "deletion-vectors.enabled": "true"})
    context.schemas.commit(newer)
    with pytest.raises(FilesConflict, match=r"^deletion-vectors\.enabled of .* was changed"):
        compact(context, [data_file("a")], [data_file("b", level=5)])
    commit(context, new_files=(data_file("beside"),))
    assert live_names(context) == ["a@0", "beside@0"], "rows that are appended have no vectors"
