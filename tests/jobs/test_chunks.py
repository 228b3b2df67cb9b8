"""Chunks: the rows that a task receives are those that others sent, through files or without them, or it fails."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from paimon_cli.ingest.faults import Tally
from paimon_cli.jobs.spark.chunks import ChunkFile, Received, end_marks, gathered, note_chunk, sending
from paimon_cli.pieces import PIECES


def batch(*numbers: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(numbers, pa.int64()), [str(n) for n in numbers]], names=["n", "t"])


@pytest.mark.parametrize("in_files", [False, True])
def test_rows_arrive_as_they_were_sent(tmp_path: Path, in_files: bool) -> None:
    directory = str(tmp_path) if in_files else None
    with sending(directory) as chunks_of:
        sent = [note_chunk((4, Tally())), chunks_of([(0, 0, batch(1, 2)), (0, 2, batch(3))]), chunks_of([(0, 3, batch(4))])]
    assert [chunks.column("arrival").to_pylist() for chunks in sent] == [[-1], [0, 2], [3]]
    received = Received([*sent, end_marks(1)], in_files=in_files)
    assert list(received) == [batch(1, 2), batch(3), batch(4)]
    assert received.notes == [(4, Tally())]
    assert len(list(tmp_path.iterdir())) == in_files


def test_a_chunk_in_a_file_takes_few_bytes_of_the_shuffle(tmp_path: Path) -> None:
    with sending(str(tmp_path)) as chunks_of:
        sent = chunks_of([(0, 0, batch(*range(10_000)))])
    assert len(sent.column("rows")[0].as_py()) < 500


@pytest.mark.parametrize("in_files", [False, True])
def test_rows_that_break_off_before_the_end_mark_are_an_error(tmp_path: Path, in_files: bool) -> None:
    with sending(str(tmp_path) if in_files else None) as chunks_of:
        sent = chunks_of([(0, 0, batch(1, 2))])
    seen = iter(Received([sent], in_files=in_files))
    assert next(seen) == batch(1, 2)
    with pytest.raises(EOFError):
        next(seen)


def test_chunks_of_one_file_are_read_apart(tmp_path: Path) -> None:
    given = [batch(1, 2, 3), batch(4), batch()]
    with ChunkFile(str(tmp_path)) as file, ChunkFile(str(tmp_path)) as other:
        chunks = [file.append(number, number * 10, rows) for number, rows in enumerate(given)]
        away = other.append(0, 7, batch(9))
    assert [(chunk.task, chunk.arrival) for chunk in chunks] == [(0, 0), (1, 10), (2, 20)]
    assert [list(chunk.rows()) for chunk in reversed(chunks)] == [[rows] for rows in reversed(given)]
    assert list(away.rows()) == [batch(9)]
    assert len(list(tmp_path.iterdir())) == 2


def test_a_chunk_that_is_cut_off_is_an_error(tmp_path: Path) -> None:
    with ChunkFile(str(tmp_path)) as file:
        chunk = file.append(0, 0, batch(*range(1000)))
    with open(chunk.path, "r+b") as written:
        written.truncate(5000)
    with pytest.raises((pa.ArrowInvalid, OSError)):
        list(chunk.rows())


def test_small_batches_are_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PIECES, "routed_bytes", 30)
    batches = [pa.record_batch([pa.array([number], pa.int64())], names=["n"]) for number in range(9)]
    empty = batches[0].slice(1)
    found = list(gathered([empty, *batches, empty]))
    assert [batch.num_rows for batch in found] == [4, 4, 1]
    assert pa.Table.from_batches(found).column(0).to_pylist() == list(range(9))


class Weighed:
    """An empty batch that counts how often its size was read."""

    num_rows = asked = 0

    @property
    def nbytes(self) -> int:
        Weighed.asked += 1
        return 0


def test_gathering_asks_each_batch_once_for_its_size() -> None:
    """A session may cut rows into batches of eight: adding up all sizes for each of them once made a write take hours."""
    assert not list(gathered(Weighed() for _ in range(100)))
    assert Weighed.asked == 100
