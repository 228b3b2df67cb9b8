"""Figures and steps of one task's write, exactly, on a clock that only compactions turn."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from paimon_cli.bucket.data_file_writer import DataFileWriter
from paimon_cli.errors import StorageUnavailable, UsageError
from paimon_cli.history.live_files import BucketFiles
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.faults import Tally
from paimon_cli.ingest.source_files import SourceSplit
from paimon_cli.metadata.data_file import EMPTY_ROW, SOURCE_APPEND, BucketId, CommitMessage, FileChanges
from paimon_cli.metadata.data_file_schema import merge_schema
from paimon_cli.pieces import PIECES
from paimon_cli.storage.injected import Step, StepTrace
from paimon_cli.storage.threads import ReadAhead
from paimon_cli.write import table_writer
from paimon_cli.write.bucket_writer import BucketWriter, WrittenBucket
from paimon_cli.write.routers import Routed, UnawareRouter
from paimon_cli.write.table_writer import TableWriter, Written, write_rows
from paimon_cli.write.write_buffer import BufferUse, WriteBuffer
from paimon_cli.write.write_plan import CompactionWhileWriting, PostponingWriter, TargetBuckets, WritePlan
from tests.commit import commit_tables
from tests.commit.commit_tables import SteppingClock, data_file
from tests.tables import data_files, make_table

COLUMNS = {"k": "INT NOT NULL", "v": "STRING"}
STAMP = "0123456789abcdef"


def table(folder: Path, bucket: int = 1, **options: str) -> tuple[TableContext, list[Step]]:
    context = make_table(
        folder / "t", COLUMNS, ["k"], bucket=bucket, options={key.replace("_", "-"): value for key, value in options.items()}
    )
    clock, steps = SteppingClock(), list[Step]()
    return replace(context, clock=clock, trace=StepTrace(clock, steps.append), read_threads=1), steps


def batch(context: TableContext, keys: Sequence[int], first: int = 0) -> pa.RecordBatch:
    schema = merge_schema(context.schema)
    columns: dict[str, list[Any]] = {
        "k": list(keys),
        "v": [f"value {key}" for key in keys],
        "_SEQUENCE_NUMBER": list(range(first, first + len(keys))),
        "_VALUE_KIND": [0] * len(keys),
    }
    return pa.record_batch([pa.array(columns[name], schema.field(name).type) for name in schema.names], schema)


@dataclass
class Slow:
    """A compaction that takes two seconds and puts all files of level 0 into one of level 5; remembers what it was offered."""

    takes: float = 2
    offered: list[list[str]] = field(default_factory=list)
    declines: Callable[[BucketFiles], bool] = lambda bucket: False

    def __call__(self, context: TableContext, bucket: BucketFiles, is_given_up: Callable[[], bool]) -> CommitMessage | None:
        if is_given_up():
            raise CancelledError
        self.offered.append([file.file_name for file in bucket.files])
        context.clock.sleep(self.takes)
        if self.declines(bucket):
            return None
        made = data_file(f"merged-{len(self.offered)}", level=5)
        return CommitMessage(
            bucket.partition, bucket.bucket, bucket.total_buckets, compact=FileChanges(removed=bucket.files, added=(made,))
        )


class Part(tuple[int, int]):
    """A split of a file, which `Batches` reads."""


IN_MEMORY = SourceSplit("", "arrow", 0, 5, 0, 0, size=PIECES.written_at_once_bytes // 2)


@dataclass(frozen=True)
class Batches:
    """Splits are numbers of rows; `fails_at`: the split whose second half cannot be read."""

    context: TableContext
    fails_at: int = -1

    def read(self, split: Any, tally: Tally, /) -> Iterator[pa.RecordBatch]:
        first, count = (split.start, split.length or 0) if isinstance(split, SourceSplit) else split
        yield batch(self.context, range(first, first + count // 2), first)
        if first == self.fails_at:
            raise StorageUnavailable("the input has gone")
        yield batch(self.context, range(first + count // 2, first + count), first + count // 2)


def plan_of(context: TableContext, **more: Any) -> WritePlan:
    return WritePlan(context, Batches(context), (), TargetBuckets(context.options.bucket), file_stamp=STAMP, **more)


def of(steps: Sequence[Step], name: str) -> list[dict[str, Any]]:
    return [step.facts for step in steps if step.name == name]


def test_a_write_without_pressure_is_one_flush_and_one_compaction(tmp_path: Path) -> None:
    context, steps = table(tmp_path)
    compaction = Slow()
    old = BucketFiles(EMPTY_ROW, 0, 1, (data_file("old", level=5),))
    plan = plan_of(context, compaction=CompactionWhileWriting(compaction, {BucketId(EMPTY_ROW, 0): old}), read_snapshot_id=8)
    with TableWriter(plan) as writer:
        writer.write(batch(context, [3, 1, 2]))
        (bucket,) = writer.finish().buckets
    (flushed,) = bucket.message.append.added
    assert compaction.offered == [["old", flushed.file_name]] and bucket.message.read_snapshot_id == 8
    assert [file.file_name for file in bucket.message.compact.removed] == ["old", flushed.file_name]
    assert [file.file_name for file in bucket.message.compact.added] == ["merged-1"]
    assert (bucket.stalls, bucket.stall_millis, bucket.wait_millis) == (0, 0, 2000)
    assert (flushed.level, flushed.file_source, flushed.row_count) == (
        0,
        SOURCE_APPEND,
        3,
    ) and STAMP in flushed.file_name.replace("-", "")
    assert (flushed.min_sequence_number, flushed.max_sequence_number) == (0, 2)
    (flush,) = of(steps, "flush")
    expected = {"files": [flushed.file_name], "rows": 3, "bytes": flushed.file_size}
    assert flush == {"bucket": "bucket-0", "reason": "no more rows", "level": 0, **expected}
    assert not of(steps, "stall") and not of(steps, "spill")


def test_numbers_start_after_the_committed_ones(tmp_path: Path) -> None:
    context, _ = table(tmp_path)
    for first in (0, 1, 700):
        with TableWriter(plan_of(context, first_sequences={(EMPTY_ROW, 0): first})) as writer:
            writer.write(batch(context, [3, 1, 2], 5))
            (bucket,) = writer.finish().buckets
        (file,) = bucket.message.append.added
        assert (file.min_sequence_number, file.max_sequence_number) == (first + 5, first + 7)
        assert (bucket.wait_millis, bucket.message.compact.added, bucket.message.read_snapshot_id) == (0, (), None)
        assert bucket.message.total_buckets == 1


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("stop", [2, 3])
def test_a_writer_stalls_at_the_stop_trigger_for_as_long_as_the_compaction_takes(tmp_path: Path, stop: int, beside: bool) -> None:
    context, steps = table(tmp_path, write_buffer_size="60 b", write_buffer_spillable="false")
    context = context.with_options({"num-sorted-run.stop-trigger": str(stop), "num-sorted-run.compaction-trigger": "1"})
    compaction = Slow()
    plan = plan_of(context, compaction=CompactionWhileWriting(compaction, beside=beside))
    with TableWriter(plan) as writer:
        for key in range(6):
            writer.write(batch(context, [key] * 2, 2 * key))
        written = writer.finish()
    (bucket,) = written.buckets
    flushes, stalls = of(steps, "flush"), of(steps, "stall")
    assert [flush["reason"] for flush in flushes] == ["the write buffer is full"] * (len(flushes) - 1) + ["no more rows"]
    assert len(bucket.message.append.added) == len(flushes) == written.buffer.flushes > 4
    compacted = len(compaction.offered)
    if beside:
        assert not stalls and compacted == len(flushes) and (bucket.stalls, bucket.stall_millis) == (0, 0)
        assert bucket.wait_millis == 2000
    else:
        runs, expected = 0, 0
        for _ in flushes:
            if runs >= stop:
                runs, expected = 1, expected + 1
            runs += 1
        assert len(stalls) == expected == bucket.stalls and bucket.stall_millis == 2000 * expected
        assert compacted == expected + 1 and bucket.wait_millis == 2000
        assert stalls == [{"bucket": "bucket-0", "runs": stop, "stop_trigger": stop, "runs_left": 1}] * expected
    assert [len(offered) for offered in compaction.offered[1:-1]] == [2 if beside else stop] * max(0, compacted - 2)


def test_a_writer_continues_when_nothing_is_left_to_compact(tmp_path: Path) -> None:
    """The triggers may ask for less than the stop trigger does."""
    context, steps = table(tmp_path, write_buffer_size="60 b", write_buffer_spillable="false")
    context = context.with_options({"num-sorted-run.stop-trigger": "2", "num-sorted-run.compaction-trigger": "1"})
    compaction = Slow(declines=lambda bucket: True)
    with TableWriter(plan_of(context, compaction=CompactionWhileWriting(compaction))) as writer:
        for key in range(5):
            writer.write(batch(context, [key] * 2, 2 * key))
        (bucket,) = writer.finish().buckets
    assert bucket.stalls == len(of(steps, "stall")) == len(bucket.message.append.added) - 2
    assert [facts["runs_left"] for facts in of(steps, "stall")] == [facts["runs"] for facts in of(steps, "stall")]
    assert not bucket.message.compact.removed and not bucket.message.compact.added
    sizes = [len(offered) for offered in compaction.offered]
    assert sizes == list(range(2, len(sizes) + 2)), "the same files are not offered twice"


def test_spills_and_preemptions_are_counted_and_reported(tmp_path: Path) -> None:
    context, steps = table(tmp_path, bucket=2, write_buffer_size="300 b")
    with TableWriter(plan_of(context)) as writer:
        for start in range(0, 60, 3):
            writer.write(batch(context, range(start, start + 3), start))
        written = writer.finish()
    spills, use = of(steps, "spill"), written.buffer
    assert use.spills == len(spills) > 3 and use.spilled_size == sum(facts["spilled_bytes"] for facts in spills)
    assert all(set(facts) == {"bucket", "bytes", "spilled_bytes"} and 0 < facts["bytes"] <= 300 for facts in spills)
    assert {facts["bucket"] for facts in spills} == {"bucket-0", "bucket-1"}
    assert use.flushes == 2 == len(of(steps, "flush")) and use.buffer_size == 300 and 0 < use.buffer_peak <= 300
    assert 0 < use.preemptions <= use.spills
    assert sum(file.row_count for bucket in written.buckets for file in bucket.message.append.added) == 60


@dataclass(eq=False)
class Owner:
    """Holds rows of a buffer without a table."""

    pool: WriteBuffer
    sizes: list[int] = field(default_factory=list)
    flushes: int = 0
    spilled: int = 0

    @property
    def buffer(self) -> Any:
        return self

    @property
    def size(self) -> int:
        return sum(self.sizes)

    def add(self, piece: pa.RecordBatch, size: int) -> None:
        assert size == piece.nbytes
        self.sizes.append(size)

    def spill(self) -> None:
        self.spilled += 1
        self._give(spilled_size=7)

    def flush(self) -> None:
        self.flushes += 1
        self._give(flushed=True)

    def _give(self, **how: Any) -> None:
        size, self.sizes = self.size, []
        self.pool.given_back(size, **how)


def numbers(count: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(range(count), pa.int64())})


def test_room_is_made_by_the_biggest(tmp_path: Path) -> None:
    context, _ = table(tmp_path, write_buffer_size="80 b", write_buffer_spillable="false")
    pool = WriteBuffer(context, context.options.write_buffer_size)
    one, other = Owner(pool), Owner(pool)
    pool.join(one)
    pool.join(other)
    pool.add(one, numbers(4))
    pool.add(other, numbers(6))
    assert (one.size, other.size, pool.use.buffer_peak) == (32, 48, 80), "what fits exactly takes no room from others"
    pool.add(one, numbers(1))
    assert (one.sizes, other.sizes, other.flushes, pool.use.preemptions) == ([32, 8], [], 1, 1)
    pool.add(one, numbers(6))
    assert (one.sizes, one.flushes, pool.use.preemptions) == ([48], 1, 1), "its own rows are its own"
    pool.add(other, numbers(23))
    assert other.sizes == [48] and other.flushes == 4 and one.flushes == 2, "in halves: 5 and 6, 6 and 6 rows"
    assert pool.use == BufferUse(80, 80, 6, 0, 0, 2)


@pytest.mark.parametrize(("spent", "may_spill"), [(0, True), (9, True), (10, False), (11, False)])
def test_spilling_ends_where_the_disk_is_spent(tmp_path: Path, spent: int, may_spill: bool) -> None:
    context, _ = table(tmp_path, write_buffer_size="80 b")
    options = context.options.with_overrides({"write-buffer-spill.max-disk-size": "10 b"})
    pool = WriteBuffer(context.redefined(options=options), options.write_buffer_size)
    owner = Owner(pool)
    pool.join(owner)
    pool.spill.size = spent
    for _ in range(2):
        pool.add(owner, numbers(9))
    assert (owner.spilled, owner.flushes) == ((1, 0) if may_spill else (0, 1))
    assert pool.use == BufferUse(80, 72, owner.flushes, owner.spilled, 7 * owner.spilled, 0)


@pytest.mark.parametrize("threads", [1, 3])
def test_splits_are_read_in_order_and_progress_is_heard_of(tmp_path: Path, threads: int) -> None:
    context, _ = table(tmp_path, bucket=3)
    plan = replace(plan_of(context), splits=(Part((0, 10)), Part((10, 6))))
    tallies: dict[int, Tally] = {}
    heard: list[int] = []
    written = write_rows(plan, tallies, heard.append, threads)
    assert heard == [5, 5, 3, 3] and sorted(tallies) == [0, 1]
    assert sum(file.row_count for bucket in written.buckets for file in bucket.message.append.added) == 16
    assert sorted(message.bucket for message in written.messages) == [0, 1, 2]
    assert all(STAMP in file.replace("-", "") for file in data_files(context))


@pytest.mark.parametrize("split, count, is_ahead", [(IN_MEMORY, 1, False), (IN_MEMORY, 2, True), (Part((0, 5)), 1, True)])
def test_a_few_rows_in_memory_are_not_handed_to_other_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, split: Any, count: int, is_ahead: bool
) -> None:
    context, _ = table(tmp_path, bucket=3)
    begun = list[int]()

    def ahead(items: Iterator[pa.RecordBatch], size: int) -> ReadAhead[pa.RecordBatch]:
        begun.append(size)
        return ReadAhead(items, size)

    monkeypatch.setattr(table_writer, "ReadAhead", ahead)
    written = write_rows(replace(plan_of(context), splits=(split,) * count), {}, threads=3)
    assert bool(begun) == is_ahead and written.messages


@pytest.mark.parametrize("threads", [1, 3])
def test_a_split_that_fails_removes_all_files(tmp_path: Path, threads: int) -> None:
    context, _ = table(tmp_path, bucket=3, write_buffer_size="60 b", write_buffer_spillable="false")
    compaction = Slow()
    splits = Part((0, 40)), Part((40, 6))
    plan = replace(plan_of(context, compaction=CompactionWhileWriting(compaction)), splits=splits, incoming=Batches(context, 40))
    with pytest.raises(StorageUnavailable, match="input has gone"):
        write_rows(plan, {}, threads=threads)
    assert data_files(context) == set()


def test_a_flush_that_fails_beside_others_gives_compactions_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context, _ = table(tmp_path, bucket=4)
    seen: list[bool] = []

    def compact_bucket(context: TableContext, bucket: BucketFiles, is_given_up: Callable[[], bool]) -> CommitMessage | None:
        seen.append(is_given_up())
        return None

    def close(writer: DataFileWriter) -> object:
        raise StorageUnavailable("the disk is full")

    monkeypatch.setattr(DataFileWriter, "close", close)
    writer = TableWriter(plan_of(context, compaction=CompactionWhileWriting(compact_bucket)), threads=2)
    with pytest.raises(StorageUnavailable, match="disk is full"), writer:
        writer.write(batch(context, range(40)))
        with pytest.raises(StorageUnavailable):
            writer.finish()
        assert writer._compactions is not None and writer._compactions._given_up.is_set()
        raise StorageUnavailable("the disk is full")
    assert data_files(context) == set() and not seen


def test_steps_of_tasks_are_one_after_the_other() -> None:
    first, second = Step("flush", 1, 2, {}), Step("spill", 3, 4, {"bytes": 5})
    assert Written.of_tasks([Written(steps=(first,)), Written(), Written(steps=(second, first))]).steps == (first, second, first)


def test_a_plan_needs_only_what_to_write(tmp_path: Path) -> None:
    context, _ = table(tmp_path)
    plan, other = (WritePlan(context, Batches(context), (), TargetBuckets(1)) for _ in range(2))
    assert (plan.first_sequences, plan.buckets.others, CompactionWhileWriting(Slow()).existing) == ({}, {}, {})
    assert plan.first_sequences is not other.first_sequences and plan.buckets.others is not other.buckets.others
    assert (plan.read_snapshot_id, plan.file_stamp, plan.parallelism) == (None, "", None)
    assert (plan.compaction, plan.assignment, plan.replaces_rows) == (None, None, False)
    assert (plan.postponing_writer, CompactionWhileWriting(Slow()).beside) == (PostponingWriter("", 0), False)


def test_other_bucket_counts_are_refused_with_their_partition(tmp_path: Path) -> None:
    context, _ = table(tmp_path / "plain")
    plan = replace(plan_of(context), buckets=TargetBuckets(1, {EMPTY_ROW: 4}))
    with pytest.raises(UsageError, match=r"^the table was written with 4 buckets, but the table's option says 1") as refused:
        plan.check_bucket_count(EMPTY_ROW)
    assert refused.value.hint.endswith(f" run: paimon-cli rescale {context.layout.argument} --buckets 1 --yes")
    split = commit_tables.make_table(tmp_path / "split", partitioned=True)
    day = commit_tables.partition("2024-01-01")
    plan = WritePlan(split, Batches(split), (), TargetBuckets(2, {day: 3}))
    with pytest.raises(UsageError, match=r"^dt=2024-01-01 was written with 3 buckets, but the table's option says 2"):
        plan.check_bucket_count(day)
    plan.check_bucket_count(commit_tables.partition("2024-01-02"))


@pytest.mark.parametrize(("size", "most"), [("1 mb", 50), ("600 b", 49), ("1 b", 1)])
def test_batches_are_added_in_pieces_that_fit_into_the_buffer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: str, most: int
) -> None:
    context, _ = table(tmp_path, write_buffer_size=size)
    given = batch(context, range(10, 60))
    taken, route = list[pa.RecordBatch](), UnawareRouter.route

    def routed(router: UnawareRouter, piece: pa.RecordBatch) -> Routed:
        taken.append(piece)
        return route(router, piece)

    monkeypatch.setattr(UnawareRouter, "route", routed)
    with TableWriter(plan_of(context)) as writer:
        writer.write(given)
    step = max(1, 50 * context.options.write_buffer_size // given.nbytes)
    assert [piece.num_rows for piece in taken] == [min(step, 50 - start) for start in range(0, 50, step)]
    assert pa.Table.from_batches(taken).to_pydict() == given.to_pydict()
    assert (taken[0].num_rows == most) == (most != 49) and taken[0].num_rows <= most


def test_a_flush_that_fails_waits_for_those_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No thread may write any more when the files are removed."""
    context, _ = table(tmp_path, bucket=2)
    both, ended = threading.Barrier(2, timeout=120), list[str]()

    def finish(bucket: BucketWriter) -> WrittenBucket:
        both.wait()
        if bucket.path == "bucket-0":
            raise StorageUnavailable("the disk is full")
        threading.Event().wait(0.1)
        ended.append(bucket.path)
        return WrittenBucket(CommitMessage(EMPTY_ROW, 1, 2))

    monkeypatch.setattr(BucketWriter, "finish", finish)
    with pytest.raises(StorageUnavailable, match="disk is full"), TableWriter(plan_of(context), threads=2) as writer:
        writer.write(batch(context, range(20)))
        try:
            writer.finish()
        finally:
            assert ended == ["bucket-1"]


def test_a_partition_written_for_another_number_of_buckets_takes_no_rows(tmp_path: Path) -> None:
    context = commit_tables.make_table(tmp_path / "t", partitioned=True)
    old, new = commit_tables.partition("old"), commit_tables.partition("new")
    plan = replace(plan_of(context), buckets=TargetBuckets(2, {old: 7}))
    rows = {"dt": "old", "k": 1, "v": "x", "_SEQUENCE_NUMBER": 0, "_VALUE_KIND": 0}
    schema = merge_schema(context.schema)
    with (
        pytest.raises(UsageError, match="dt=old was written with 7 buckets, but the table's option says 2") as refused,
        TableWriter(plan) as writer,
    ):
        for day in ("new", "old"):
            writer.write(pa.record_batch([pa.array([{**rows, "dt": day}[f.name]], f.type) for f in schema], schema))
    assert refused.value.hint.endswith(f" run: paimon-cli rescale {context.layout.argument} --buckets 2 --yes")
    assert data_files(context) == set()
    plan.check_bucket_count(new)
    whole = commit_tables.make_table(tmp_path / "u")
    with pytest.raises(UsageError, match="the table was written with 3 buckets, but the table's option says 2"):
        WritePlan(whole, Batches(whole), (), TargetBuckets(2, {EMPTY_ROW: 3})).check_bucket_count(EMPTY_ROW)


def test_buckets_are_not_begun_once_one_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context, _ = table(tmp_path, bucket=40)
    begun: list[str] = []

    def finish(bucket: BucketWriter) -> WrittenBucket:
        begun.append(bucket.path)
        if len(begun) == 1:
            raise StorageUnavailable("the disk is full")
        threading.Event().wait(1.0)
        return WrittenBucket(CommitMessage(EMPTY_ROW, 1, 2))

    monkeypatch.setattr(BucketWriter, "finish", finish)
    with pytest.raises(StorageUnavailable, match="disk is full"), TableWriter(plan_of(context), threads=2) as writer:
        writer.write(batch(context, range(400)))
        writer.finish()
    assert 1 <= len(begun) < 20
