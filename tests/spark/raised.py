"""Errors of `format("paimon")` within `paimon_cli.spark.errors`, in any session: class, hint and nothing of a JVM."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from paimon_cli import Table, spark
from paimon_cli.errors import BadInput, NotFound, NotSupported, PaimonError, TableNotFound, UsageError
from tests.tables import data_files, named_files


def check_errors(session: SparkSession, folder: Path, brief: bool) -> None:
    """`brief`: one error of each origin: a plan, tasks that write, a function of ours, and streams in both directions."""
    table = Table.create(folder / "t", columns=["id BIGINT NOT NULL", "v CHAR(2)"], primary_key="id", bucket=2)
    rows = session.createDataFrame([(1, "longer")], "id long, v string")
    source = str(folder / "source")
    rows.write.parquet(source)
    missing, checkpoints = str(folder / "missing"), iter(range(100))

    def stream(**options: str) -> None:
        writer = session.readStream.schema("id long, v string").parquet(source).writeStream.format("paimon").options(**options)
        writer = writer.option("checkpointLocation", str(folder / f"c{next(checkpoints)}")).trigger(availableNow=True)
        writer.start(table.url).awaitTermination()

    def stream_out(**options: str) -> None:
        writer = session.readStream.format("paimon").options(**options).load(table.url).writeStream.format("noop")
        writer = writer.option("checkpointLocation", str(folder / f"c{next(checkpoints)}")).trigger(availableNow=True)
        writer.start().awaitTermination()

    def read(url: str, **options: str) -> DataFrame:
        return session.read.format("paimon").options(**options).load(url)

    cases: list[tuple[Callable[[], object], type[PaimonError], str, str]] = [
        (
            lambda: read(missing).collect(),
            TableNotFound,
            "no table at",
            f"Table.create({missing!r}, columns=['id BIGINT'])",
        ),
        (lambda: rows.write.format("paimon").mode("append").save(table.url), BadInput, "longer than 2", "correct the input"),
        (lambda: spark.write(rows, table), BadInput, "longer than 2", "correct the input"),
        (stream, BadInput, "longer than 2", "correct the input"),
        (lambda: stream_out(start="77"), NotFound, "no snapshot 77 to start a stream at", "start=latest"),
    ]
    more: list[tuple[Callable[[], object], type[PaimonError], str, str]] = [
        (lambda: read(table.url, wher="x").collect(), UsageError, "unknown option wher", "did you mean where?"),
        (
            lambda: rows.toDF("id", "w").write.format("paimon").mode("append").save(table.url),
            BadInput,
            "the table has no column 'w'",
            f"Table.open({table.url!r}).alter.add_column('`w` STRING')",
        ),
        (lambda: stream(commit_id="1"), NotSupported, "option commit_id for a stream", "leave it out"),
    ]
    for act, kind, what, hint in cases if brief else [*cases, *more]:
        with pytest.raises(kind) as raised, spark.errors(session):
            act()
        assert type(raised.value) is kind
        assert what in str(raised.value) and hint in raised.value.__notes__[0], (str(raised.value), raised.value.__notes__)
        assert raised.value.__cause__ is None and raised.value.__suppress_context__, "Spark's text would be printed above it"
    with pytest.raises(PySparkException, match="DIVIDE_BY_ZERO"), spark.errors(session):
        session.conf.set("spark.sql.ansi.enabled", "true")
        session.range(1).selectExpr("1 / id").collect()
    with spark.errors(session):
        table.write(pa.table({"id": [1], "v": ["ab"]}))
        assert read(table.url).count() == 1
    assert data_files(table.context) == named_files(table.context)
