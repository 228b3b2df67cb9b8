"""The write buffer that the buckets of a task share: never more than its size, given to the buckets that need it, and counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from paimon_cli.history.table_context import TableContext
from paimon_cli.lsm.engines.deduplicate import Deduplicate
from paimon_cli.lsm.sorted_rows import KeepAllVersions
from paimon_cli.metadata.data_file_schema import merge_schema
from paimon_cli.write.write_buffer import BufferUse, WriteBuffer
from tests.tables import live_files, make_table, rows, write

COLUMNS = {"k": "INT NOT NULL", "v": "STRING"}


def given_rows(count: int = 20_000) -> list[dict[str, object]]:
    return [{"k": k % (count // 2), "v": f"value {k}"} for k in range(count)]


@pytest.mark.in_part(2)
@pytest.mark.parametrize("spillable", ["true", "false"])
@pytest.mark.parametrize("threads", [1, 3])
def test_sixty_four_buckets_stay_inside_the_buffer(tmp_path: Path, spillable: str, threads: int) -> None:
    options = {"write-buffer-size": "64 kb", "write-buffer-spillable": spillable}
    context = make_table(tmp_path / "t", COLUMNS, ["k"], bucket=64, options=options)
    summary = write(context, given_rows(), threads=threads, compact="none")
    assert summary.buffer_size == 65536
    assert 32768 < summary.buffer_peak <= 65536
    assert summary.preemptions > 0
    if spillable == "true":
        assert (summary.flushes, summary.files) == (64, 64), "spilled or not, each bucket gets one sorted run"
        assert summary.spills >= summary.preemptions and summary.spilled_size > 0
    else:
        assert (summary.spills, summary.spilled_size) == (0, 0)
        assert summary.flushes == summary.files > 64
    assert sorted(rows(context), key=lambda row: row["k"]) == given_rows()[10_000:]


def test_a_lone_bucket_may_take_all_of_it(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["k"], options={"write-buffer-size": "64 kb"})
    summary = write(context, given_rows())
    assert 60_000 < summary.buffer_peak <= 65536
    assert (summary.preemptions, summary.flushes, len(live_files(context))) == (0, 1, 1)
    assert summary.spills > 5


def test_what_fits_is_flushed_once_and_never_spilled(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["k"], bucket=4)
    summary = write(context, given_rows())
    assert (summary.flushes, summary.spills, summary.preemptions) == (4, 0, 0)
    assert 0 < summary.buffer_peak < 2 << 20


def test_rows_of_very_different_sizes_are_cut_until_they_fit(tmp_path: Path) -> None:
    """The average of a batch says little of its pieces; only a row that is too big by itself may go beyond the size."""
    given = [{"k": k, "v": "x" * (3000 if k % 100 == 0 else 1)} for k in range(2000)]
    context = make_table(tmp_path / "t", COLUMNS, ["k"], bucket=2, options={"write-buffer-size": "4 kb"})
    assert write(context, given).buffer_peak <= 4096
    assert sorted(rows(context), key=lambda row: row["k"]) == given
    small = make_table(tmp_path / "u", COLUMNS, ["k"], bucket=2, options={"write-buffer-size": "1 kb"})
    assert 3000 < write(small, given).buffer_peak < 3100
    assert sorted(rows(small), key=lambda row: row["k"]) == given


def test_tasks_add_up_but_for_their_peaks() -> None:
    one, other = BufferUse(100, 90, 1, 2, 3, 4), BufferUse(100, 95, 10, 20, 30, 40)
    assert one.with_other_task(other) == BufferUse(100, 95, 11, 22, 33, 44)
    assert BufferUse().with_other_task(one) == one


def batch_of(context: TableContext, given: Sequence[tuple[int, str]], kind: int = 0) -> pa.RecordBatch:
    schema = merge_schema(context.schema)
    columns: dict[str, list[Any]] = {
        "k": [key for key, _ in given],
        "v": [value for _, value in given],
        "_SEQUENCE_NUMBER": [0] * len(given),
        "_VALUE_KIND": [kind] * len(given),
    }
    return pa.record_batch([pa.array(columns[name], schema.field(name).type) for name in schema.names], schema)


@dataclass
class File:
    """A file of level 0 that remembers its rows."""

    rows: list[tuple[int, str]] = field(default_factory=list)

    def write(self, batch: pa.RecordBatch) -> None:
        self.rows += zip(batch.column("k").to_pylist(), batch.column("v").to_pylist(), strict=True)


@dataclass
class Bucket:
    """A bucket with rows in the buffer, and the files that it has opened."""

    memory: WriteBuffer
    opened: list[File] = field(default_factory=list)
    flushed: list[File] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.buffer = self.memory.row_buffer("bucket", self.open)
        self.memory.join(self)

    def open(self) -> Any:
        self.opened.append(File())
        return self.opened[-1]

    def add(self, *given: tuple[int, str]) -> None:
        self.memory.add(self, batch_of(self.memory.context, given))

    def flush(self) -> None:
        target = self.opened[-1] if self.buffer.has_open_file else File()
        self.buffer.flush(cast("Any", target))
        self.flushed.append(target)


def memory_of(
    folder: Path, options: dict[str, str] | None = None, size: int = 1 << 20, key: str = "k", **more: Any
) -> WriteBuffer:
    return WriteBuffer(make_table(folder / "t", COLUMNS, key.split(), options=options), size, **more)


def test_which_rows_are_sorted_and_which_are_merged(tmp_path: Path) -> None:
    keyed = memory_of(tmp_path / "a")
    assert keyed.sorts and isinstance(keyed.engine, Deduplicate)
    postponed = memory_of(tmp_path / "b", postpones=True)
    assert not postponed.sorts and postponed.order_of(batch_of(postponed.context, [(2, "b"), (1, "a")])) is None
    append = memory_of(tmp_path / "c", key="")
    assert not append.sorts
    clustered = memory_of(tmp_path / "d", key="", sort_keys=("v",))
    assert clustered.sorts and isinstance(clustered.engine, KeepAllVersions), "equal rows of an append table are two rows"
    order = clustered.order_of(batch_of(clustered.context, [(1, "b"), (2, "a"), (3, "b")]))
    assert order is not None and order.tolist() == [1, 0, 2]


def test_spilled_runs_come_back_once_in_the_order_of_arrival(tmp_path: Path) -> None:
    """Rows have no sequence numbers to tell them apart here, as in append tables: the later of equal numbers wins."""
    memory = memory_of(tmp_path)
    bucket = Bucket(memory)
    for value in ("first", "second", "third"):
        bucket.add((1, value), (2, value))
        bucket.buffer.spill()
    bucket.add((2, "last"))
    assert memory.use.spills == 3 and memory.spill.size > 0
    bucket.flush()
    assert bucket.flushed[0].rows == [(1, "third"), (2, "last")]
    assert (memory.spill.size, memory.use.flushes, memory.use.spills) == (0, 1, 4)
    assert bucket.buffer.is_empty and bucket.buffer.size == 0
    bucket.add((5, "new"))
    bucket.flush()
    assert bucket.flushed[1].rows == [(5, "new")], "nothing of the first flush"
    memory.close()


def test_rows_that_stay_in_the_order_of_arrival_are_spilled_before_a_file_is_open_and_not_after(tmp_path: Path) -> None:
    memory = memory_of(tmp_path, {"file.block-size": "1 kb", "write-max-writers-to-spill": "1"}, postpones=True)
    first, second = Bucket(memory), Bucket(memory)
    first.add((1, "a"))
    first.buffer.spill()
    first.add((2, "b"))
    first.buffer.spill()
    assert (memory.use.spills, len(first.opened)) == (2, 0)
    first.add((3, "c" * 2000))
    assert ([len(file.rows) for file in first.opened], first.buffer.has_open_file, first.buffer.size) == ([3], True, 0)
    assert memory.spill.size == 0
    second.add((7, "d" * 2000))
    assert len(second.opened) == 0, "one bucket has its file open, which is all that the option allows"
    first.add((4, "e"))
    first.buffer.spill()
    assert (memory.use.spills, [key for key, _ in first.opened[0].rows]) == (2, [1, 2, 3, 4]), "an open file takes them"
    first.add((5, "f" * 2000))
    first.flush()
    assert len(first.opened) == 1 and [key for key, _ in first.flushed[0].rows] == [1, 2, 3, 4, 5]
    assert (first.buffer.is_empty, first.buffer.has_open_file) == (True, False)
    second.add((8, "g"))
    assert [key for key, _ in second.opened[0].rows] == [7, 8], "the file of the other one is closed"
    second.flush()
    first.add((6, "h"))
    first.flush()
    assert first.flushed[1].rows == [(6, "h")] and first.flushed[1] is not first.flushed[0]
    memory.close()


def test_small_batches_fill_a_row_group_together(tmp_path: Path) -> None:
    memory = memory_of(tmp_path, {"file.block-size": "1 kb"}, postpones=True)
    bucket = Bucket(memory)
    for key in range(9):
        bucket.add((key, "x" * 150))
    assert bucket.opened and [key for key, _ in bucket.opened[0].rows] == list(range(len(bucket.opened[0].rows)))
    assert bucket.buffer.size < 1024
    bucket.flush()
    assert [key for key, _ in bucket.flushed[0].rows] == list(range(9))


def test_a_bucket_goes_on_in_the_file_that_it_has_open(tmp_path: Path) -> None:
    bucket = Bucket(memory_of(tmp_path, {"file.block-size": "1 kb"}, postpones=True))
    for key in range(3):
        bucket.add((key, "x" * 2000))
    bucket.flush()
    assert len(bucket.opened) == 1 and [key for key, _ in bucket.flushed[0].rows] == [0, 1, 2]


def test_the_largest_bucket_makes_room_and_only_another_one_counts_as_preempted(tmp_path: Path) -> None:
    memory = memory_of(tmp_path, size=1000)
    small, large = Bucket(memory), Bucket(memory)
    small.add((1, "s" * 100))
    large.add((1, "l" * 600))
    large.add((2, "l" * 600))
    assert (memory.use.preemptions, memory.use.spills) == (0, 1), "it made room for itself"
    small.add((2, "s" * 500))
    assert (memory.use.preemptions, memory.use.spills) == (1, 2)
    assert large.buffer.size == 0 and small.buffer.size > 600
    assert memory.use.buffer_peak <= 1000
    memory.close()


def test_a_full_disk_allowance_flushes_instead_of_spilling(tmp_path: Path) -> None:
    memory = memory_of(tmp_path, {"write-buffer-spill.max-disk-size": "1 b"}, 1000)
    bucket = Bucket(memory)
    for key in range(4):
        bucket.add((key, "x" * 700))
    assert [file.rows for file in bucket.flushed] == [[(0, "x" * 700), (1, "x" * 700)]], "the first spill used up the byte"
    assert memory.use.spills == 3, "the flush takes what was spilled, so that there is room again"
    memory.close()
