"""Our commands with the data source of Spark as their writer: `df.write.format("paimon")` and `writeStream` in turn."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame

from paimon_cli import Table
from paimon_cli.jobs.spark.session import SparkRequest, start_spark
from paimon_cli.metadata.table_layout import POSTPONE_BUCKET
from scripts.judge.peers import PaimonCli, Row

TASKS = 3


class DataSource(PaimonCli):
    """Writes with a session of Spark, and does all else with our commands. A write that compacts is one of our commands, too."""

    def __init__(self, engine: str = "local") -> None:
        super().__init__(engine)
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        self._session = start_spark(SparkRequest("local[2]")).session
        self._folder = tempfile.TemporaryDirectory(prefix="data-source-")
        self._count = 0

    def close(self) -> None:
        self._session.stop()
        self._folder.cleanup()

    def write(self, table: Path, rows: Sequence[Row], *, compact: bool) -> None:
        if compact:
            super().write(table, rows, compact=True)
            return
        self._count += 1
        options = {"op_column": "_kind", "write-only": "true"}
        if self._count % 2:
            self._frame(table, rows).write.format("paimon").options(**options).mode("append").save(str(table))
            return
        source = Path(self._folder.name, f"source-{self._count}")
        _write_lines(source, rows)
        stream = self._session.readStream.schema(self._columns(table) + ", _kind string").json(str(source))
        writer = stream.writeStream.format("paimon").options(**options, checkpointLocation=f"{source}-checkpoint")
        writer.trigger(availableNow=True).start(str(table)).awaitTermination()

    def insert(self, table: Path, rows: Sequence[Row], mode: str) -> None:
        """Rows without kinds; mode `overwrite` replaces the partitions that get rows."""
        self._count += 1
        frame = self._frame(table, rows).drop("_kind")
        frame.write.format("paimon").option("write-only", "true").mode(mode).save(str(table))

    def _frame(self, table: Path, rows: Sequence[Row]) -> DataFrame:
        """The rows in several tasks; the last row of a key is in the last of those that have it.

        They are in one task for a table with postponed buckets, since Java keeps no order between writers there.
        """
        lines = [json.dumps(row) for row in rows]
        tasks = 1 if Table.open(str(table)).context.options.bucket == POSTPONE_BUCKET else TASKS
        read = self._session.sparkContext.parallelize(lines, tasks)
        return self._session.read.schema(self._columns(table) + ", _kind string").json(read)

    def _columns(self, table: Path) -> str:
        """The columns of the table as Spark names them; only their keys are known not to be null."""
        return self._session.read.format("paimon").load(str(table)).schema.toDDL().replace(" NOT NULL", "")


def _write_lines(folder: Path, rows: Sequence[Row]) -> None:
    folder.mkdir()
    (folder / "rows.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
