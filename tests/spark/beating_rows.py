"""Rows that are computed slowly enough for a job to fail, or to be cancelled, while its tasks run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

BEATS = 150
"""One every 10 ms: fewer than fit into the two seconds after which Spark kills the process of a cancelled task."""


@dataclass(frozen=True)
class BeatingRows:
    """Two partitions. One beats in `file` between its first and its second row; the other waits for its first beat."""

    file: Path

    def frame(self, session: SparkSession, *, first_fails: bool) -> DataFrame:
        """Rows with a column id. `first_fails`: the partition that does not beat raises an error between its rows."""
        beats = self.file

        def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                yield batch.slice(0, 1)
                if batch.column(0)[0].as_py() == 0:
                    while not beats.exists():
                        time.sleep(0.01)
                    if first_fails:
                        raise ValueError("the first partition fails")
                else:
                    for _ in range(BEATS):
                        with beats.open("a") as file:
                            file.write(".")
                        time.sleep(0.01)
                yield batch.slice(1)

        return session.range(0, 4, 1, 2).mapInArrow(rows, "id long")

    def have_ended(self) -> bool:
        """Whether the partition beats no more. Takes longer than its task would need to write its rows."""
        before = self.file.stat().st_size
        time.sleep(BEATS / 100 + 1)
        return before == self.file.stat().st_size
