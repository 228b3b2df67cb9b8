"""Deletion vectors under concurrent commits: nothing is lost, and no vector is left without its file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from paimon_cli.bucket.deletion_vectors import load_vectors
from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import fresh_identity
from paimon_cli.compact.bucket_compactor import run_compaction
from paimon_cli.compact.compaction_plan import plan_bucket
from paimon_cli.compact.compaction_task import CompactionTask
from paimon_cli.errors import FilesConflict
from paimon_cli.history.live_files import BucketFiles, bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants.check import check_table
from paimon_cli.metadata.data_file import CommitMessage, FileChanges
from tests.tables import compact, make_table, rows, write

COLUMNS = {"k": "INT NOT NULL", "v": "STRING"}
OPTIONS = {"deletion-vectors.enabled": "true", "target-file-row-num": "10", "compaction.small-file-ratio": "0"}


def buckets(context: TableContext) -> list[BucketFiles]:
    return [bucket for _, bucket in sorted(bucket_files(context, context.snapshots.latest()).items())]


def filled(folder: Path, count: int = 1) -> TableContext:
    """Keys 0 to 39 at the top level, and a newer version of keys 0 to 4 at level 0."""
    context = make_table(folder / "t", COLUMNS, ["k"], bucket=count, options=OPTIONS)
    write(context, [{"k": number, "v": "old"} for number in range(40 * count)])
    compact(context)
    write(context, [{"k": number, "v": "new"} for number in range(5 * count)], compact="none")
    return context


def compacted(context: TableContext, strategy: str = "minor", bucket: int = 0) -> CommitMessage:
    """A compaction that is not committed yet."""
    found = buckets(context)[bucket]
    snapshot = context.snapshots.latest()
    assert snapshot is not None
    task = plan_bucket(context, found, strategy, snapshot.id)
    assert isinstance(task, CompactionTask), task
    return run_compaction(context, task)


def commit(context: TableContext, *messages: CommitMessage) -> None:
    Committer(context).commit(messages, fresh_identity(context))


def marked_rows(context: TableContext) -> int:
    found = (load_vectors(context, bucket) for bucket in buckets(context))
    return sum(len(vector.positions) for vectors in found for vector in vectors.by_file.values())


def values(context: TableContext) -> dict[int, str]:
    return {row["k"]: row["v"] for row in rows(context)}


def expected(upto: int, count: int = 40) -> dict[int, str]:
    return {number: "new" if number < upto else "old" for number in range(count)}


def test_one_of_two_compactions_that_mark_rows_wins(tmp_path: Path) -> None:
    context = filled(tmp_path)
    first, second = compacted(context), compacted(context)
    commit(context, first)
    with pytest.raises(FilesConflict):
        commit(context, second)
    assert values(context) == expected(5) and marked_rows(context) == 5
    assert not list(check_table(context, rows=True))


def test_a_rewrite_that_has_not_seen_a_new_vector_is_refused(tmp_path: Path) -> None:
    """The job at the top level copies rows that the other one marks meanwhile: both files are still live."""
    context = filled(tmp_path)
    commit(context, compacted(context))
    rewrite = compacted(context, "full")
    write(context, [{"k": number, "v": "newer"} for number in range(30, 33)], compact="none")
    marking = compacted(context)
    assert not {file.file_name for file in marking.compact.removed} & {file.file_name for file in rewrite.compact.removed}
    commit(context, marking)
    with pytest.raises(FilesConflict, match="deletion vectors of bucket-0 have changed") as conflict:
        commit(context, rewrite)
    assert conflict.value.details["bucket"] == 0 and "run the job again" in conflict.value.hint
    (new,) = marking.compact.added_indexes
    assert conflict.value.details["file"] == new.file_name and new.file_name in conflict.value.why
    assert values(context) == {**expected(5), 30: "newer", 31: "newer", 32: "newer"}
    assert not list(check_table(context, rows=True))


def test_a_vector_of_a_removed_file_is_refused(tmp_path: Path) -> None:
    """The reverse: the marks would have no file, and the old rows would show again in the copy."""
    context = filled(tmp_path)
    commit(context, compacted(context))
    rewrite = compacted(context, "full")
    write(context, [{"k": number, "v": "newer"} for number in range(30, 33)], compact="none")
    marking = compacted(context)
    commit(context, rewrite)
    with pytest.raises(FilesConflict, match="deletion vectors of bucket-0 have changed"):
        commit(context, marking)
    assert values(context) == expected(5) and not list(check_table(context, rows=True))
    compact(context, strategy="minor")
    assert values(context) == {**expected(5), 30: "newer", 31: "newer", 32: "newer"}


def test_marks_of_a_file_that_another_engine_has_removed_are_refused(tmp_path: Path) -> None:
    """The vectors have not changed since they were read; only the file was removed."""
    context = filled(tmp_path)
    marking = compacted(context)
    gone = next(file for file in buckets(context)[0].files if file.level and context.key_of(file.min_key) == (0,))
    Committer(context).commit([CommitMessage(b"\0" * 12, 0, 1, compact=FileChanges(removed=(gone,)))], fresh_identity(context))
    with pytest.raises(FilesConflict, match=f"mark rows of a missing file: data file {gone.file_name}|{gone.file_name}"):
        commit(context, marking)


def test_a_commit_does_not_remove_a_file_and_leave_its_vector(tmp_path: Path) -> None:
    context = filled(tmp_path)
    commit(context, compacted(context))
    (bucket,) = buckets(context)
    name = next(iter(load_vectors(context, bucket).by_file))
    file = next(file for file in bucket.files if file.file_name == name)
    with pytest.raises(FilesConflict, match="would mark rows of a missing file"):
        commit(context, CommitMessage(bucket.partition, 0, 1, compact=FileChanges(removed=(file,), added=())))


@pytest.mark.parametrize("options", [OPTIONS, {"changelog-producer": "lookup"}], ids=["vectors", "lookup"])
def test_a_compaction_of_level_0_and_files_above_it_is_refused_where_others_came_above(
    tmp_path: Path, options: dict[str, str]
) -> None:
    """It has not looked for older rows in the file that another job moved up meanwhile."""
    context = make_table(tmp_path / "t", COLUMNS, ["k"], bucket=1, options=options)
    for value in ("a", "b", "c"):
        write(context, [{"k": 1, "v": value}], compact="none")
    commit(context, picked(context, 0, 3))
    (found,), snapshot = buckets(context), context.snapshots.latest()
    assert snapshot is not None
    task = plan_bucket(context, found, "full", snapshot.id)
    assert isinstance(task, CompactionTask), task
    (other, newest), (above,) = ([f for f in found.files if (f.level > 0) == is_above] for is_above in (False, True))
    both = replace(task, files=(above, newest), others=(other,), output_level=3)
    second = run_compaction(context, both)
    commit(context, picked(context, 0, 4))
    with pytest.raises(FilesConflict, match="is new at level 4: another job put it there"):
        commit(context, second)


def test_vectors_of_other_buckets_stay(tmp_path: Path) -> None:
    context = filled(tmp_path, 3)
    messages = [compacted(context, bucket=number) for number in range(3)]
    for message in messages:
        commit(context, message)
    assert values(context) == expected(15, 120) and marked_rows(context) == 15
    latest = context.snapshots.latest()
    assert latest is not None and len(context.manifests.index_entries(latest)) == 3
    assert not list(check_table(context, rows=True))


def test_a_bucket_gets_no_second_file_of_vectors(tmp_path: Path) -> None:
    context = filled(tmp_path)
    first = compacted(context)
    commit(context, first)
    (made,) = first.compact.added_indexes
    second = replace(made, file_name="index-other-0")
    with pytest.raises(FilesConflict, match="no longer current"):
        commit(context, CommitMessage(first.partition, 0, 1, compact=FileChanges(added_indexes=(second,))))


def picked(context: TableContext, file: int, level: int) -> CommitMessage:
    """A compaction of one file of level 0, as by a writer that knows only its own files."""
    (found,), snapshot = buckets(context), context.snapshots.latest()
    assert snapshot is not None
    task = plan_bucket(context, found, "full", snapshot.id)
    assert isinstance(task, CompactionTask), task
    fresh = [f for f in found.files if f.level == 0]
    others = tuple(f for f in found.files if f is not fresh[file])
    return run_compaction(context, replace(task, files=(fresh[file],), others=others, output_level=level))


@pytest.mark.parametrize("options", [OPTIONS, {"changelog-producer": "lookup"}], ids=["vectors", "lookup"])
def test_compactions_of_different_files_into_different_levels(tmp_path: Path, options: dict[str, str]) -> None:
    """Neither removes what the other has read, their levels do not overlap, and there is no vector yet."""
    context = make_table(tmp_path / "t", COLUMNS, ["k"], bucket=1, options=options)
    for value in ("old", "new"):
        write(context, [{"k": 1, "v": value}], compact="none")
    first, second = picked(context, 0, 4), picked(context, 1, 3)
    commit(context, first)
    with pytest.raises(FilesConflict, match="is new at level 4: another job put it there"):
        commit(context, second)
    compact(context)
    assert values(context) == {1: "new"} and not list(check_table(context, rows=True))
