"""Staged writes of several writers in one snapshot: all or none, once, and in an order that somebody has said."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paimon_cli.bucket.stamped_files import stamped_files
from paimon_cli.commit.commit_records import was_made
from paimon_cli.commit.deduplication import WRITERS_PROPERTY, CommitIdentity
from paimon_cli.errors import BucketsConflict, Conflict, DataConflict, FilesConflict, NotSupported, Refused, UsageError
from paimon_cli.history.live_files import bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.row_sources import FileRows
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.staging import stage_job
from paimon_cli.jobs.staging.stage_commit import StagedWrite, Together, abort_stage, commit_and_compact
from paimon_cli.jobs.staging.stage_job import StageFile, stage_write
from paimon_cli.jobs.write_request import WriteRequest
from paimon_cli.metadata.staged_commit import ABORTED, COMMITTED, STAGED
from paimon_cli.options.choices import CompactionMode, WriterOrder
from tests.rivals import Killed, Mortal, beside, files_of
from tests.tables import commit_stage, compact, data_files, live_files, make_table, named_files, rows, write

COLUMNS = {"id": "INT NOT NULL", "v": "STRING"}


@pytest.fixture
def table(tmp_path: Path) -> TableContext:
    context = make_table(tmp_path / "t", COLUMNS, ["id"], bucket=4)
    write(context, [{"id": number, "v": "old"} for number in range(40)])
    return context


def ids_of_bucket(context: TableContext, bucket: int) -> list[int]:
    """The first keys that belong to a bucket."""
    found = [message for message in _routed(context) if message[1] == bucket]
    return [key for key, _ in found]


def _routed(context: TableContext) -> Iterator[tuple[int, int]]:
    import pyarrow as pa

    from paimon_cli.datatypes.bucket_functions import row_buckets

    keys = list(range(40))
    types = context.schema.types_of(["id"])
    buckets = row_buckets([pa.array(keys, pa.int32())], types, context.options.bucket, context.options.bucket_function)
    return zip(keys, buckets.tolist(), strict=True)


def stage(context: TableContext, name: str, content: list[dict[str, Any]], **request: Any) -> StageFile:
    folder = Path(context.url).parent
    (folder / f"{name}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in content))
    file = StageFile(str(folder / name))
    stage_write(
        context, WriteRequest(FileRows((str(folder / f"{name}.jsonl"),), "json"), **request), file, LocalEngine(), NoProgress()
    )
    return file


def three(context: TableContext) -> list[StageFile]:
    """The staged writes of three writers, each of whom owns a bucket."""
    return [
        stage(context, f"w{bucket}", [{"id": key, "v": f"w{bucket}"} for key in ids_of_bucket(context, bucket)[:2]])
        for bucket in range(3)
    ]


def values(context: TableContext) -> dict[int, str]:
    return {row["id"]: row["v"] for row in rows(context)}


def writers_of(context: TableContext) -> list[tuple[int, int]]:
    """The id of each snapshot, and how many writers it names."""
    snapshots = sorted(context.snapshots.newest_first(), key=lambda s: s.id)
    return [(s.id, len(json.loads((s.properties or {}).get(WRITERS_PROPERTY, "[]")))) for s in snapshots]


def test_several_writers_make_one_snapshot(table: TableContext) -> None:
    files = three(table)
    result = commit_stage(table, *files)
    assert [s.id for s in result.snapshots] == [2] and result.snapshots[0].commit_user.startswith("stage-")
    assert writers_of(table) == [(1, 0), (2, 3)]
    assert sum(value != "old" for value in values(table).values()) == 6
    assert [(file.read().state, file.read().snapshot_ids) for file in files] == [(COMMITTED, (2,))] * 3


def test_the_buckets_of_each_writer_are_compacted(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", COLUMNS, ["id"], bucket=4, options={"full-compaction.delta-commits": "1"})
    write(table, [{"id": number, "v": "old"} for number in range(40)], compact="none")
    writes = [StagedWrite(file, file.read()) for file in three(table)]
    done = commit_and_compact(table, writes, Together(), CompactionMode.AFTER, LocalEngine(), NoProgress())
    assert done.compacted == 3 and [s.commit_kind for s in done.snapshots] == ["APPEND", "COMPACT"]
    found = bucket_files(table, table.snapshots.latest()).values()
    assert sorted(bucket.bucket for bucket in found if all(file.level for file in bucket.files)) == [0, 1, 2]


def test_a_repeated_commit_does_nothing_in_whatever_order_or_part(table: TableContext) -> None:
    files = three(table)
    staged = [file.read() for file in files]
    commit_stage(table, *files)
    for some in ([*files[::-1]], files, files[:1], files[1:]):
        for file, content in zip(files, staged, strict=True):
            file.write(content)  # as if the committer had died before it could note that
        assert commit_stage(table, *some).already_committed
        assert all(file.read().state == COMMITTED for file in some)
    assert table.snapshots.latest_id() == 2
    with pytest.raises(Refused, match="was committed"):
        abort_stage(table, StagedWrite(files[0], staged[0]))


@pytest.mark.parametrize("noted", [True, False])
def test_only_some_that_were_committed_before_are_named(table: TableContext, noted: bool) -> None:
    files = three(table)
    staged = files[1].read()
    commit_stage(table, files[1])
    if not noted:
        files[1].write(staged)
    with pytest.raises(Refused, match=r"w1 was committed before, .*w0, .*w2 not") as refusal:
        commit_stage(table, *files)
    assert refusal.value.exit_code == 7 and table.snapshots.latest_id() == 2
    assert [s.id for s in commit_stage(table, files[0], files[2]).snapshots] == [3]


def test_the_committer_has_an_identity_of_its_own(table: TableContext) -> None:
    files = three(table)
    committer = Together(identity=CommitIdentity("committer", 7))
    (snapshot,) = commit_stage(table, *files[:2], together=committer).snapshots
    assert (snapshot.commit_user, snapshot.commit_identifier) == ("committer", 7)
    with pytest.raises(Conflict, match="user committer has already committed"):
        commit_stage(table, files[2], together=committer)
    assert files[2].read().state == STAGED
    commit_stage(table, files[2], together=Together(identity=CommitIdentity("committer", 8)))
    assert writers_of(table)[1:] == [(2, 2), (3, 1)]


def test_writers_keep_their_identities(table: TableContext) -> None:
    one = stage(table, "one", [{"id": 1, "v": "a"}], commit_user="job", commit_id=4)
    late = stage(table, "late", [{"id": 1, "v": "b"}], commit_user="job", commit_id=3)
    other = stage(table, "other", [{"id": key, "v": "c"} for key in range(40) if key % 7 == 3], commit_user="else", commit_id=1)
    commit_stage(table, one, other, together=Together(WriterOrder.GIVEN))
    with pytest.raises(Conflict, match="user job has already committed a higher identifier than 3"):
        commit_stage(table, late)
    with pytest.raises(UsageError, match="was already made"):
        stage(table, "again", [{"id": 1, "v": "a"}], commit_user="else", commit_id=1)


def test_each_writer_has_a_record_that_outlives_the_history(table: TableContext) -> None:
    """Where other tools commit, and snapshots expire, nothing else shows that its write was made."""
    files = [stage(table, name, [{"id": 1, "v": name}], commit_user=name, commit_id=4) for name in ("one", "other")]
    commit_stage(table, *files, together=Together(WriterOrder.GIVEN, CommitIdentity("committer", 7)))
    made = [(user, number) for user in ("one", "other", "committer") for number in (4, 7)]
    known = [(user, number) for user, number in made if was_made(table, user, number, 100, 100)]
    assert known == [("one", 4), ("other", 4), ("committer", 4), ("committer", 7)]


def test_rows_of_one_bucket_are_refused_unless_an_order_is_given(table: TableContext) -> None:
    many = stage(table, "many", [{"id": 1, "v": "many"}, *({"id": key, "v": "many"} for key in range(40))])
    few = stage(table, "few", [{"id": 1, "v": "few"}])
    before = files_of(table)
    with pytest.raises(UsageError, match=r"many and .*few hold rows of the same bucket, bucket-"):
        commit_stage(table, many, few)
    assert files_of(table) == before and many.read().state == few.read().state == STAGED


@pytest.mark.parametrize("names", list(itertools.permutations(["many", "few", "middle"])))
def test_the_order_given_holds_before_and_after_a_compaction(table: TableContext, names: tuple[str, ...]) -> None:
    """The writer of many rows has the higher sequence numbers, and would win if numbers were left as they are."""
    content = {
        "many": [{"id": key, "v": "many"} for key in [*range(40)] * 3],
        "few": [{"id": 1, "v": "few"}],
        "middle": [{"id": key, "v": "middle"} for key in (1, 2, 3)],
    }
    files = [stage(table, name, content[name]) for name in names]
    expected = {row["id"]: row["v"] for name in names for row in content[name]}
    commit_stage(table, *files, together=Together(WriterOrder.GIVEN))
    assert values(table) == expected
    assert data_files(table) == live_files(table)
    compact(table)
    assert values(table) == expected and table.snapshots.latest_id() == 3


def test_writers_of_several_files_with_indexes_keep_their_order(tmp_path: Path) -> None:
    options = {"target-file-row-num": "7", "write-only": "true", "file-index.bloom-filter.columns": "v"}
    small = {**options, "file-index.in-manifest-threshold": "1 b"}
    context = make_table(tmp_path / "t", COLUMNS, ["id"], bucket=2, options=small)
    content = {name: [{"id": key, "v": name} for key in [*range(at, 40)] * 2] for at, name in enumerate("abc")}
    files = [stage(context, name, content[name]) for name in "cab"]
    assert max(len(message.append.added) for file in files for message in file.read().messages) > 2
    commit_stage(context, *files, together=Together(WriterOrder.GIVEN))
    assert values(context) == {0: "a", **{key: "b" for key in range(1, 40)}}
    assert data_files(context) == named_files(context), "the files that were numbered again have gone with their indexes"
    compact(context, strategy="full")
    assert values(context) == {0: "a", **{key: "b" for key in range(1, 40)}}


def test_numbered_files_are_recognised_and_survive_an_abort(table: TableContext) -> None:
    files = [stage(table, name, [{"id": 1, "v": name}]) for name in ("a", "b")]
    commit_stage(table, *files, together=Together(WriterOrder.GIVEN))
    before = files_of(table)
    for file in files:
        with pytest.raises(Refused, match="was committed"):
            abort_stage(table, StagedWrite(file, file.read()))
        assert commit_stage(table, file).already_committed
    assert files_of(table) == before


def test_numbers_of_an_append_table_are_only_metadata(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, [], bucket=1, options={"bucket-key": "id"})
    files = [stage(context, name, [{"id": 1, "v": name}]) for name in ("a", "b", "c")]
    with pytest.raises(UsageError, match="same bucket"):
        commit_stage(context, *files)
    before = data_files(context)
    commit_stage(context, *files[::-1], together=Together(WriterOrder.GIVEN))
    (bucket,) = bucket_files(context, context.snapshots.latest()).values()
    numbers = {file.min_sequence_number: file.file_name for file in bucket.files}
    staged = [file.read().messages[0].append.added[0].file_name for file in files[::-1]]
    assert [numbers[n] for n in range(3)] == staged and data_files(context) == before


def test_an_append_table_without_buckets_needs_no_order(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, [], bucket=-1)
    files = [stage(context, name, [{"id": 1, "v": name}]) for name in ("a", "b")]
    assert len(commit_stage(context, *files).snapshots) == 1
    assert sorted(row["v"] for row in rows(context)) == ["a", "b"]


def test_waiting_rows_are_replayed_in_the_order_given(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["id"], bucket=-2, options={"postpone.batch-write-fixed-bucket": "false"})
    files = [stage(context, name, [{"id": 1, "v": name}], commit_user="u", commit_id=n) for n, name in enumerate("abc")]
    commit_stage(context, *files[::-1], together=Together(WriterOrder.GIVEN))
    compact(context)
    assert values(context) == {1: "a"}


def test_what_no_order_makes_right_is_refused(tmp_path: Path) -> None:
    dynamic = make_table(tmp_path / "d", COLUMNS, ["id"], bucket=-1)
    moving = make_table(tmp_path / "m", {"p": "INT NOT NULL", **COLUMNS}, ["id"], ["p"], bucket=-1)
    ordered = make_table(tmp_path / "o", COLUMNS, ["id"], options={"sequence.snapshot-ordering": "true", "write-only": "true"})
    for context, error, extra in ((dynamic, BucketsConflict, {}), (moving, NotSupported, {"p": 1}), (ordered, NotSupported, {})):
        names = [f"{Path(context.url).name}{n}" for n in "ab"]
        files = [stage(context, name, [{"id": 1, "v": name, **extra}]) for name in names]
        with pytest.raises(error):
            commit_stage(context, *files, together=Together(WriterOrder.GIVEN))
        assert [file.read().state for file in files] == [STAGED] * 2 and context.snapshots.latest_id() is None
    assert commit_stage(dynamic, StageFile(str(tmp_path / "da"))).snapshots


def test_writers_under_the_data_conflict_check_do_not_overlap(table: TableContext) -> None:
    checked = TableContext.open(table.url, {"commit.data-conflict-check": "bucket"})
    files = [stage(checked, name, [{"id": 1, "v": name}]) for name in ("a", "b")]
    with pytest.raises(DataConflict, match="both write to bucket-"):
        commit_stage(table, *files, together=Together(WriterOrder.GIVEN))
    commit_stage(table, files[0])
    with pytest.raises(DataConflict):
        commit_stage(table, files[1])


def test_a_conflict_of_several_deletes_nothing(table: TableContext) -> None:
    checked = TableContext.open(table.url, {"commit.data-conflict-check": "bucket"})
    files = three(checked)
    write(table, [{"id": ids_of_bucket(table, 1)[0], "v": "rival"}])
    before = files_of(table)
    with pytest.raises(DataConflict) as refusal:
        commit_stage(table, *files)
    assert "one by one" in refusal.value.hint and files_of(table) == before
    assert [s.id for s in commit_stage(table, files[0], files[2]).snapshots] == [3]
    with pytest.raises(DataConflict):
        commit_stage(table, files[1])
    assert files[1].read().state == ABORTED and data_files(table) == live_files(table)


def test_files_that_do_not_belong_together(table: TableContext) -> None:
    one, two = three(table)[:2]
    Path(f"{two.name}-copy").write_text(Path(two.name).read_text())
    with pytest.raises(UsageError, match="are the same write"):
        commit_stage(table, one, two, StageFile(f"{two.name}-copy"))
    with pytest.raises(UsageError, match="are the same write"):
        commit_stage(table, one, one)
    for request, option in (({"overwrite": True}, {}), ({}, {"commit.data-conflict-check": "bucket"})):
        other = stage(TableContext.open(table.url, option), f"other{len(option)}", [{"id": 9, "v": "x"}], **request)
        with pytest.raises(UsageError, match="cannot be committed together"):
            commit_stage(table, one, other)
    abort_stage(table, StagedWrite(two, two.read()))
    with pytest.raises(Refused, match="was aborted"):
        commit_stage(table, one, two)
    assert table.snapshots.latest_id() == 1


def test_several_writers_overwrite_together(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"p": "STRING NOT NULL", **COLUMNS}, ["p", "id"], ["p"], bucket=1)
    write(context, [{"p": p, "id": 1, "v": "old"} for p in "abc"])
    files = [stage(context, p, [{"p": p, "id": 2, "v": "new"}], overwrite=True) for p in "ab"]
    commit_stage(context, *files)
    assert sorted((row["p"], row["id"]) for row in rows(context)) == [("a", 2), ("b", 2), ("c", 1)]


@pytest.mark.parametrize("late", ["a", "b"])
def test_several_overwrites_are_checked_from_the_oldest_read(tmp_path: Path, late: str) -> None:
    """Else rows that came between the reads would be replaced by a writer that has not seen them."""
    columns, checked = {"p": "STRING NOT NULL", **COLUMNS}, {"commit.data-conflict-check": "partition"}
    context = make_table(tmp_path / "t", columns, ["p", "id"], ["p"], options=checked)
    write(context, [{"p": p, "id": 1, "v": "old"} for p in "ab"])
    files = {late: stage(context, late, [{"p": late, "id": 2, "v": "new"}], overwrite=True)}
    write(context, [{"p": late, "id": 3, "v": "between"}])
    other = "b" if late == "a" else "a"
    files[other] = stage(context, other, [{"p": other, "id": 2, "v": "new"}], overwrite=True)
    with pytest.raises(Conflict):
        commit_stage(context, files["a"], files["b"])
    assert (late, 3) in {(row["p"], row["id"]) for row in rows(context)}


def test_buckets_that_were_counted_differently(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["id"], bucket=1)
    one = stage(context, "a", [{"id": 1, "v": "a"}])
    other = stage(TableContext.open(context.url, {"bucket": "2"}), "b", [{"id": 2, "v": "b"}])
    with pytest.raises(FilesConflict, match="different bucket counts"):
        commit_stage(context, one, other)


def test_a_rival_that_commits_one_of_them_first(table: TableContext) -> None:
    files = three(table)
    racing = beside(table, lambda: commit_stage(table, files[0]))
    with pytest.raises(Refused, match="was made by another committer"):
        commit_stage(racing, *files)
    assert writers_of(table) == [(1, 0), (2, 0)] and data_files(table) - live_files(table)
    commit_stage(table, *files[1:])
    assert data_files(table) == live_files(table)


@pytest.mark.parametrize("order", ["refuse", WriterOrder.GIVEN])
def test_a_rival_that_commits_all_of_them_first(table: TableContext, order: str) -> None:
    files = three(table) if order == "refuse" else [stage(table, name, [{"id": 1, "v": name}]) for name in "ab"]
    other = Together(order, CommitIdentity("rival", 1))
    racing = beside(table, lambda: commit_stage(table, *files, together=other))
    assert commit_stage(racing, *files, together=Together(order)).already_committed
    assert table.snapshots.latest_id() == 2 and data_files(table) == live_files(table)


def test_a_single_commit_meets_one_of_several(table: TableContext) -> None:
    files = three(table)
    racing = beside(table, lambda: commit_stage(table, *files))
    assert commit_stage(racing, files[0]).already_committed
    assert table.snapshots.latest_id() == 2


def test_a_kill_at_any_step_and_a_repetition_commit_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for calls in itertools.count():
        context = make_table(tmp_path / f"{calls}" / "t", COLUMNS, ["id"], bucket=1)
        write(context, [{"id": 1, "v": "old"}])
        files = [stage(context, name, [{"id": 1, "v": name}]) for name in ("a", "b")]
        mortal = Mortal(calls)
        with monkeypatch.context() as patch:
            patch.setattr(stage_job, "storage_for_url", lambda name, mortal=mortal: (mortal, name))
            with contextlib.suppress(Killed):
                commit_stage(TableContext.open(context.url, storage=mortal), *files, together=Together(WriterOrder.GIVEN))
        again = commit_stage(context, *files, together=Together(WriterOrder.GIVEN))
        assert (values(context), writers_of(context)) == ({1: "b"}, [(1, 0), (2, 2)]), calls
        assert again.already_committed or again.snapshots
        assert not live_files(context) - data_files(context), calls
        if mortal.left >= 0:
            break
    assert calls > 8


def test_no_leftovers_if_the_commit_is_refused(table: TableContext) -> None:
    files = [stage(table, name, [{"id": 1, "v": name}]) for name in ("a", "b")]
    before = data_files(table)
    racing = beside(table, lambda: write(table, [{"id": 1, "v": "rival"}]), options={"commit.max-retries": "0"})
    with pytest.raises(Exception, match="retries"):
        commit_stage(racing, *files, together=Together(WriterOrder.GIVEN))
    assert before <= data_files(table) and len(data_files(table) - before) == 1
    assert not stamped_files(table, "0000")
