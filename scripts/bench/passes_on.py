"""A Python data source that does nothing: the least that Spark takes for rows from Python.

It stands apart because each Python process of Spark imports the module of a source.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType


class PassesOn(DataSource):
    """The batches of the Arrow files in the directory `path`, one task for each file."""

    @classmethod
    def name(cls) -> str:
        return "passes_on"

    def reader(self, schema: StructType) -> DataSourceReader:
        return PassingReader(self.options["path"])


class PassingReader(DataSourceReader):
    def __init__(self, folder: str) -> None:
        self._folder = folder

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(str(file)) for file in sorted(Path(self._folder).glob("*.arrow"))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with pa.memory_map(partition.value) as mapped, pa.ipc.open_file(mapped) as batches:
            for number in range(batches.num_record_batches):
                yield batches.get_batch(number)
