"""Which tables are compacted, and what a run says and leaves: exact steps, messages and files."""

from __future__ import annotations

from concurrent.futures import CancelledError
from dataclasses import replace
from pathlib import Path

import pytest

from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import CommitIdentity
from paimon_cli.compact.bucket_compactor import WriterCompaction, run_compaction
from paimon_cli.compact.compaction_plan import check_compactable, plan_bucket
from paimon_cli.compact.compaction_task import CompactionTask, SkippedBucket, task_steps
from paimon_cli.datatypes.binary_row import serialize_row
from paimon_cli.errors import DamagedFile, FilesConflict, NotSupported
from paimon_cli.history import table_context
from paimon_cli.history.live_files import BucketFiles, bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.lsm.compaction_picker import NEVER_PICKED, Rewrite
from paimon_cli.metadata.data_file import EMPTY_ROW, SOURCE_COMPACT, CommitMessage, FileChanges
from paimon_cli.pieces import PIECES
from paimon_cli.storage.injected import Step, StepTrace
from tests.commit import commit_tables
from tests.commit.commit_tables import SteppingClock, data_file
from tests.tables import compact, data_files, make_table, rows, write

COLUMNS = {"k": "INT NOT NULL", "v": "STRING"}
STAMP = "0123456789abcdef"


@pytest.mark.parametrize(
    ("options", "keys", "why"),
    [
        ({"commit.callbacks": "a.b.C"}, True, "cannot commit to table"),
        ({"row-tracking.enabled": "true"}, True, "cannot compact table"),
        ({"merge-engine": "aggregation", "fields.v.aggregate-function": "no_such"}, True, ""),
    ],
)
def test_tables_that_are_left_to_others(tmp_path: Path, options: dict[str, str], keys: bool, why: str) -> None:
    context = commit_tables.make_table(tmp_path, primary_key=keys)

    if keys:
        check_compactable(context)
    other = context.with_options(options)
    if why:
        with pytest.raises(NotSupported, match=why):
            check_compactable(other)
    else:
        with pytest.raises(Exception, match="no_such"):
            check_compactable(other)


def test_compactions_are_refused_by_their_own_gates(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Both what a compaction itself cannot do, and what its commit cannot."""
    context, asked = commit_tables.make_table(tmp_path), list[str]()
    monkeypatch.setattr(table_context, "refuse", lambda at, options, table, has_keys: asked.append(f"{at} {table}"))
    check_compactable(context)
    assert asked == [f"compact {context.address}", f"commit {context.address}"]


def test_a_task_is_made_of_little(tmp_path: Path) -> None:
    files = (data_file("a"), replace(data_file("b"), file_size=7))
    task = CompactionTask(EMPTY_ROW, 1, 2, files, 5, 5, True, "r", "a", 2, 1, 3)
    assert (task.file_stamp, task.rewrite_all, task.state, task.memory) == ("", False, NEVER_PICKED, None)
    assert (task.bucket_size, task.oldest_size, task.size, task.bucket_id) == (0, 0, 1007, (EMPTY_ROW, 1))
    left = SkippedBucket(EMPTY_ROW, 1, 4, "why")
    assert (left.state, left.files, left.size, left.runs_before, left.bucket_id) == (NEVER_PICKED, 0, 0, 4, (EMPTY_ROW, 1))


def written(folder: Path, **options: str) -> tuple[TableContext, list[Step], BucketFiles]:
    """A table with three overlapping files in one bucket."""
    named = {key.replace("_", "-"): value for key, value in options.items()}
    context = make_table(folder / "t", COLUMNS, ["k"], options={"write-only": "true", **named})
    for number in range(3):
        write(context, [{"k": k, "v": f"{number} {k}"} for k in range(number, 6)])
    write(context, [{"k": 5, "v": ""}], op="delete")
    clock, steps = SteppingClock(), list[Step]()
    traced = replace(context, clock=clock, trace=StepTrace(clock, steps.append))
    (bucket,) = bucket_files(traced, traced.snapshots.latest()).values()
    return traced, steps, bucket


def test_a_run_reports_what_it_read_and_wrote(tmp_path: Path) -> None:
    context, steps, bucket = written(tmp_path)
    task = plan_bucket(context, bucket, "full", 4, STAMP)
    assert isinstance(task, CompactionTask)
    (pick,) = (step.facts for step in steps if step.name == "pick")
    names, size = [file.file_name for file in bucket.files], sum(file.file_size for file in bucket.files)
    picked = {"files": names, "rows": 16, "bytes": size, "arithmetic": task.arithmetic, "level": 5}
    assert pick == {"bucket": "bucket-0", "strategy": "full", "runs": 4, "picked": True, "reason": task.reason, **picked}
    message = run_compaction(context, task)
    (rewrite,) = (step.facts for step in steps if step.name == "rewrite")
    (made,) = message.compact.added
    read = {"input_rows": 16, "input_bytes": size}
    wrote = {"output_files": [made.file_name], "output_rows": 5, "output_bytes": made.file_size}
    assert sorted(rewrite.pop("input_files")) == sorted(names)
    assert rewrite == {"bucket": "bucket-0", "level": 5, **read, **wrote}
    assert (made.level, made.file_source, made.delete_row_count, made.row_count) == (5, SOURCE_COMPACT, 0, 5)
    assert STAMP in made.file_name.replace("-", "")
    assert {file.file_name for file in message.compact.removed} == set(names)
    assert (message.partition, message.bucket, message.total_buckets, message.read_snapshot_id) == (EMPTY_ROW, 0, 1, 4)
    assert not message.append and message.compact
    steps.clear()
    left = plan_bucket(context, replace(bucket, files=message.compact.added), "minor", 4)
    assert isinstance(left, SkippedBucket)
    assert [step.facts for step in steps] == [
        {"bucket": "bucket-0", "strategy": "minor", "runs": 1, "picked": False, "reason": left.reason}
    ]


def test_what_only_changes_its_level_is_not_read(tmp_path: Path) -> None:
    context, steps, _ = written(tmp_path)
    big = replace(data_file("big"), file_size=10**10, delete_row_count=0, file_source=SOURCE_COMPACT)
    task = plan_bucket(context, BucketFiles(EMPTY_ROW, 0, 1, (replace(big, level=3),)), "full", 4)
    assert isinstance(task, CompactionTask) and not any(isinstance(step, Rewrite) for step in task_steps(context, task))
    to_a_middle = replace(task, output_level=4)
    steps.clear()
    message = run_compaction(context, to_a_middle)
    assert [file.level for file in message.compact.removed] == [3] and message.compact.added == (
        message.compact.removed[0].upgraded(4),
    )
    assert [(step.name, step.facts) for step in steps] == [
        ("upgrade", {"bucket": "bucket-0", "file": "big", "from_level": 3, "level": 4})
    ]


@pytest.mark.parametrize(
    ("hidden", "level", "output", "is_rewritten"),
    [
        (True, 0, 5, True),
        (True, 3, 5, True),
        (True, 0, 4, False),
        (False, 0, 5, False),
        (True, 5, 5, False),
    ],
)
def test_deletes_missing_in_metadata_do_not_reach_the_top_level(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hidden: bool, level: int, output: int, is_rewritten: bool
) -> None:
    """A file that is large enough to change only its level, and that says of itself, like pypaimon's, that it has no deletes."""
    monkeypatch.setattr(PIECES, "kind_batch_rows", 4)
    context = make_table(tmp_path / "t", COLUMNS, ["k"], options={"write-only": "true", "target-file-size": "1 b"})
    write(context, [{"k": k, "v": "", "_op": "-D" if hidden and k == 7 else "+I"} for k in range(9)])
    (bucket,) = bucket_files(context, context.snapshots.latest()).values()
    files = tuple(replace(file, delete_row_count=0, level=level) for file in bucket.files)
    task = plan_bucket(context, replace(bucket, files=tuple(replace(file, level=0) for file in files)), "full", 1)
    assert isinstance(task, CompactionTask) and task.max_level == 5
    message = run_compaction(context, replace(task, files=files, output_level=output))
    upgraded = {file.file_name for file in files} & {file.file_name for file in message.compact.added}
    assert {file.level for file in message.compact.added} <= {output}
    if level == output:
        assert message.compact.added == ()
    elif is_rewritten:
        assert sum(file.row_count for file in message.compact.added) == 8 and len(upgraded) == len(files) - 1
    else:
        assert upgraded == {file.file_name for file in files}


@pytest.mark.parametrize("given_up", [False, True])
def test_a_run_that_is_given_up_leaves_nothing(tmp_path: Path, given_up: bool) -> None:
    context, _, bucket = written(tmp_path)
    before, held = data_files(context), rows(context)
    task = plan_bucket(context, bucket, "full", 4, STAMP)
    assert isinstance(task, CompactionTask)
    if given_up:
        with pytest.raises(CancelledError):
            run_compaction(context, task, lambda: True)
        assert data_files(context) == before
    else:
        run_compaction(context, task, lambda: False)
        assert len(data_files(context) - before) == 1 and rows(context) == held


@pytest.mark.parametrize("trigger", ["4", "5"])
def test_a_writer_compacts_what_the_triggers_ask_for(tmp_path: Path, trigger: str) -> None:
    context, steps, bucket = written(tmp_path)
    any_sizes = {"compaction.max-size-amplification-percent": "1"}  # small pieces make files larger
    context = context.with_options({"num-sorted-run.compaction-trigger": trigger, **any_sizes})
    compaction = WriterCompaction(9, STAMP)
    message = compaction(context, bucket, lambda: False)
    assert (message is None) == (trigger == "5")
    assert [step.facts["strategy"] for step in steps if step.name == "pick"] == ["minor"]
    if message is not None:
        assert message.read_snapshot_id == 9 and all(STAMP in file.file_name.replace("-", "") for file in message.compact.added)
        with pytest.raises(CancelledError):
            compaction(context, bucket, lambda: True)


PARTITIONED = {"dt": "STRING NOT NULL", **COLUMNS}


def partitioned(folder: Path) -> tuple[TableContext, list[Step], BucketFiles]:
    """Two runs of the same keys in each of two partitions; the bucket is that of the second one."""
    context = make_table(folder / "t", PARTITIONED, ["dt", "k"], ["dt"], options={"write-only": "true"})
    for text in ("old", "new"):
        write(context, [{"dt": day, "k": k, "v": text} for day in ("a", "b") for k in range(3)])
    steps = list[Step]()
    context = replace(context, trace=StepTrace(SteppingClock(), steps.append))
    bucket = next(one for one in bucket_files(context, context.snapshots.latest()).values() if _day(context, one) == "dt=b/")
    return context, steps, bucket


def _day(context: TableContext, bucket: BucketFiles) -> str:
    return context.partition_path_of(bucket.partition)


def test_a_bucket_of_a_partition_is_compacted_in_its_directory(tmp_path: Path) -> None:
    context, steps, bucket = partitioned(tmp_path)
    before = data_files(context)
    task = plan_bucket(context, bucket, "full", 2)
    assert isinstance(task, CompactionTask)
    message = run_compaction(context, task)
    (made,) = message.compact.added
    assert (message.partition, message.bucket, made.row_count) == (bucket.partition, 0, 3)
    assert data_files(context) - before == {f"dt=b/bucket-0/{made.file_name}"}
    assert {step.facts["bucket"] for step in steps if step.name in ("pick", "rewrite")} == {"dt=b/bucket-0"}
    Committer(context).commit([message], CommitIdentity("me"))
    assert rows(context) == [{"dt": day, "k": k, "v": "new"} for day in ("a", "b") for k in range(3)]


def lost(context: TableContext, bucket: BucketFiles, number: int = 0) -> Path:
    """Delete a file of the bucket. Returns its path."""
    path = Path(context.data_file_path(*bucket.bucket_id, bucket.files[number]))
    path.unlink()
    return path


def compacted_by_a_writer(context: TableContext, bucket: BucketFiles, stamp: str = STAMP) -> None:
    options = context.options.with_overrides({"num-sorted-run.compaction-trigger": "2"})
    message = WriterCompaction(2, stamp)(context.redefined(options=options), bucket, lambda: False)
    assert message is not None


def test_a_writers_compaction_of_files_that_others_replaced_and_expired_is_a_conflict(tmp_path: Path) -> None:
    context, _, bucket = partitioned(tmp_path)
    compact(context, strategy="full")
    path, before = lost(context, bucket), data_files(context)
    with pytest.raises(FilesConflict, match="bucket 0 was compacted by another job") as refused:
        compacted_by_a_writer(context, bucket)
    assert "replaced and expired while they were read" in refused.value.why and path.name in refused.value.why
    assert data_files(context) == before


def test_a_writers_compaction_of_a_partition_that_others_dropped_is_a_conflict(tmp_path: Path) -> None:
    context, _, bucket = partitioned(tmp_path)
    changes = [CommitMessage(bucket.partition, 0, 1, compact=FileChanges(removed=bucket.files))]
    Committer(context).commit(changes, CommitIdentity("others"))
    lost(context, bucket)
    with pytest.raises(FilesConflict, match="was compacted by another job"):
        compacted_by_a_writer(context, bucket)


@pytest.mark.parametrize("case", ["it is live", "it is damaged", "it is this writer's own"])
def test_a_file_that_a_writers_compaction_should_be_able_to_read_is_damaged(tmp_path: Path, case: str) -> None:
    """Whether others have compacted the bucket in the meantime or not."""
    context, _, bucket = partitioned(tmp_path)
    path, stamp = lost(context, bucket), STAMP
    if case != "it is live":
        path.write_bytes(b"no Parquet file")
        if case == "it is this writer's own":
            path.unlink()
            stamp = path.name.removeprefix("data-")[:18].replace("-", "")
        changes = [CommitMessage(bucket.partition, 0, 1, compact=FileChanges(removed=bucket.files))]
        Committer(context).commit(changes, CommitIdentity("others"))
    with pytest.raises(DamagedFile, match=path.name):
        compacted_by_a_writer(context, bucket, stamp)


def test_deletes_in_the_last_batch_of_a_file_do_not_reach_the_top_level_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PIECES, "kind_batch_rows", 4)
    context = make_table(tmp_path / "t", COLUMNS, ["k"], options={"write-only": "true"})
    write(context, [{"k": k, "v": "", "_op": "-D" if k == 8 else "+I"} for k in range(9)])
    (bucket,) = bucket_files(context, context.snapshots.latest()).values()
    (file,) = bucket.files
    task = plan_bucket(context, replace(bucket, files=(replace(file, delete_row_count=0),)), "full", 1)
    assert isinstance(task, CompactionTask)
    (made,) = run_compaction(context, task).compact.added
    assert made.row_count == 8 and made.file_name != file.file_name


def test_a_file_that_is_cut_into_ranges_ends_at_the_cuts_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows come in several batches, and each batch begins behind the cuts that others have passed."""
    for name in ("merged_piece_rows", "batch_rows", "merged_at_once_bytes", "run_column_bytes"):
        monkeypatch.setattr(PIECES, name, 4)
    context = make_table(tmp_path / "t", COLUMNS, ["k"], options={"write-only": "true"})
    for begin in (0, 1):
        write(context, [{"k": k, "v": f"{begin}"} for k in range(begin, 40, 2)])
    (bucket,) = bucket_files(context, context.snapshots.latest()).values()
    task = plan_bucket(context, bucket, "full", 2)
    assert isinstance(task, CompactionTask)
    cuts = tuple(serialize_row([key], context.key_types) for key in (10, 11, 33))
    made = run_compaction(context, replace(task, cuts=cuts, drop_deletes=False)).compact.added
    assert [(context.key_of(file.min_key), context.key_of(file.max_key)) for file in made] == [
        ((0,), (9,)),
        ((10,), (10,)),
        ((11,), (32,)),
        ((33,), (39,)),
    ]
    assert sum(file.row_count for file in made) == 40
