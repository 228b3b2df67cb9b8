"""Chunks in files: rows come back as they were written, and tasks notice when an earlier reader has failed."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from paimon_cli.jobs.spark.engine import scratch_directory
from paimon_cli.jobs.spark.exchange_files import ChunkFile, is_superseded, mark_failed


def batch(*numbers: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(numbers, pa.int64()), [str(n) for n in numbers]], names=["n", "t"])


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


def test_only_readers_after_a_failed_one_work_in_vain(tmp_path: Path) -> None:
    assert not is_superseded(str(tmp_path), 99)
    mark_failed(str(tmp_path), 10)
    assert [is_superseded(str(tmp_path), task) for task in (9, 10, 11)] == [False, False, True]


@pytest.mark.parametrize(
    ("setting", "environment", "place"),
    [("", {}, None), ("/a, /b", {}, "/a"), ("/a", {"SPARK_LOCAL_DIRS": "/c,/d"}, "/c"), ("", {"SPARK_LOCAL_DIRS": ""}, None)],
)
def test_chunks_are_where_spark_would_shuffle_them(setting: str, environment: dict[str, str], place: str | None) -> None:
    assert scratch_directory(setting, environment) == place
