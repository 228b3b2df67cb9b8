"""Texts in data that imitate errors, on this machine: through functions, the data source and streams."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from paimon_cli import Table
from paimon_cli.jobs.spark.tasks import JobKey
from tests.nightly import BRIEF
from tests.spark.canary import HINT, WRONG, Canary, carriers
from tests.tables import data_files, make_table


@BRIEF
def test_texts_in_data_are_never_believed(session: SparkSession, tmp_path: Path, brief: bool) -> None:
    Canary(session, tmp_path, brief).run()


@pytest.mark.nightly
def test_streams_show_texts_and_run_none(session: SparkSession, tmp_path: Path) -> None:
    texts = carriers(tmp_path / "ran")
    for number, text in enumerate(("".join(texts), "".join(reversed(texts)))):
        folder = tmp_path / str(number)
        table = Table.open(make_table(folder / "t", {"id": "BIGINT NOT NULL", "v": "CHAR(2)"}, ["id"], bucket=2).url)
        rows = session.createDataFrame([(1, text)], "id bigint, v string")
        rows.write.parquet(str(folder / "source"))
        stream = session.readStream.schema("id long, v string").parquet(str(folder / "source"))
        writer = stream.writeStream.format("paimon").option("checkpointLocation", str(folder / "checkpoint"))
        with pytest.raises(StreamingQueryException) as failed:
            writer.trigger(availableNow=True).start(table.url).awaitTermination()
        shown = str(failed.value)
        assert "paimon_cli.errors.BadInput: partition" in shown and "\nhint: nothing was committed" in shown
        assert WRONG not in shown[: shown.index("paimon_cli.errors.BadInput")]
        assert f"\nhint: {HINT}" not in shown, "a line break in a cell begins no line"
        assert data_files(table.context) == set()
    assert not (tmp_path / "ran").exists()


def test_a_stream_that_reads_a_lost_file_says_so(session: SparkSession, tmp_path: Path) -> None:
    table = Table.open(make_table(tmp_path / "t", {"id": "BIGINT NOT NULL"}, ["id"], bucket=1).url)
    table.write(pa.table({"id": pa.array([1], pa.int64())}))
    for file in Path(table.url).glob("bucket-*/data-*"):
        file.unlink()
    writer = session.readStream.format("paimon").load(table.url).writeStream.format("noop")
    with pytest.raises(StreamingQueryException, match=r"errors\.DamagedFile"):
        writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start().awaitTermination()


def test_the_key_of_a_job_is_known_only_in_its_tasks(session: SparkSession) -> None:
    from paimon_cli.jobs.spark.job import job_of_this_thread

    def found(number: int) -> tuple[str, str] | None:
        assert TaskContext.get() is not None
        return next(((key.tag, key.secret) for key in JobKey.of_task()), None)

    numbers = session.sparkContext.parallelize([1], 1)
    with job_of_this_thread(session.sparkContext):
        first = numbers.map(found).collect()[0]
    with job_of_this_thread(session.sparkContext):
        second = numbers.map(found).collect()[0]
    assert first and second and set(first).isdisjoint(second)
    assert numbers.map(found).collect() == [None]
