"""What a write says of itself, with one thread and several, and what is left of it when a flush fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from paimon_cli.bucket.data_file_writer import DataFileWriter
from paimon_cli.errors import StorageUnavailable
from paimon_cli.metadata.data_file import CommitMessage
from paimon_cli.write.bucket_writer import WrittenBucket
from paimon_cli.write.table_writer import Written
from paimon_cli.write.write_buffer import BufferUse
from tests.tables import data_files, live_files, make_table, rows, write

COLUMNS = {"k": "INT NOT NULL", "v": "STRING"}
SMALL = {"write-buffer-size": "4 kb", "write-buffer-spillable": "false"}
GIVEN = [{"k": k % 700, "v": f"value {k}"} for k in range(3000)]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("compaction", ["none", "inline"])
def test_threads_change_nothing(tmp_path: Path, threads: int, compaction: str) -> None:
    options = {**SMALL, "num-sorted-run.stop-trigger": "5", "num-sorted-run.compaction-trigger": "3"}
    context = make_table(tmp_path / "t", COLUMNS, ["k"], bucket=3, options=options)
    summary = write(context, GIVEN, threads=threads, compact=compaction)
    assert {row["k"]: row["v"] for row in rows(context)} == {row["k"]: row["v"] for row in GIVEN}
    assert summary.buckets == 3 and summary.flushes > 6 and summary.spills == 0 and summary.preemptions > 0
    assert 0 < summary.buffer_peak <= summary.buffer_size == 4096
    if compaction == "none":
        assert summary.stalls == summary.compacted == 0 and summary.files == len(live_files(context)) == len(data_files(context))
        assert summary.size == sum((tmp_path / "t" / file).stat().st_size for file in live_files(context))
    else:
        assert summary.stalls > 0 and summary.compacted == 3
    assert summary.rows >= 700


def test_flushed_files_are_removed_when_a_later_flush_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["k"], bucket=2, options=SMALL)
    write(context, GIVEN[:10])
    before, closes = data_files(context), []
    real = DataFileWriter.close

    def close(writer: DataFileWriter) -> object:
        closes.append(writer)
        if len(closes) == 5:
            raise StorageUnavailable("the disk is full")
        return real(writer)

    monkeypatch.setattr(DataFileWriter, "close", close)
    with pytest.raises(StorageUnavailable, match="disk is full"):
        write(context, GIVEN, compact="none")
    assert len(closes) >= 5 and data_files(context) == before and context.snapshots.ids() == [1]


def test_tasks_are_added_up() -> None:
    message = CommitMessage(b"", 0, 1)
    one = Written((WrittenBucket(message, 1, 2, 3),), BufferUse(10, 5, 1, 2, 3, 4))
    other = Written((WrittenBucket(message, 4),), BufferUse(8, 7, 10, 20, 30, 40))
    both = Written.of_tasks([one, other])
    assert both.buckets == (*one.buckets, *other.buckets) and both.messages == [message, message]
    assert both.buffer == BufferUse(10, 7, 11, 22, 33, 44)
    assert Written.of_tasks([]).buffer == BufferUse()


def test_a_bucket_without_figures_neither_waited_nor_lost_anything() -> None:
    bucket = WrittenBucket(CommitMessage(b"", 0, 1))
    assert (bucket.stalls, bucket.stall_millis, bucket.wait_millis, bucket.compaction_lost) == (0, 0, 0, None)
    assert BufferUse() == BufferUse(0, 0, 0, 0, 0, 0) and Written() == Written((), BufferUse(), ())
