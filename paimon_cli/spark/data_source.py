"""`spark.read.format("paimon")` and `df.write.format("paimon")`: a Python data source of Spark, found by its name.

Spark creates these objects in separate processes and pickles them from one to the next, so they cannot share state: a reader
plans in `partitions`, and each partition carries everything that its task needs.
Columns are pruned by the schema that the user specifies, or by the option `columns`: Spark does not pass the columns of a query
to a Python data source. Filters are not pushed down either: Spark keeps one plan for each DataFrame, so the filter of one query
would also remove rows of others. `paimon_cli.spark.read` has no such limits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from paimon_cli.api.scan import rows_of_latest
from paimon_cli.datatypes.type_text import quoted_name
from paimon_cli.jobs.spark.tasks import called_by_spark
from paimon_cli.read.time_travel import POSITION_OPTIONS
from paimon_cli.requests.reading import ScanCall
from paimon_cli.spark.source_options import TRAVEL_OPTIONS, SourceOptions
from paimon_cli.spark.worker_rows import PlannedInTask, check_types, planned, read_partition, split_partitions

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, DataSourceStreamReader

    from paimon_cli.api.table import Table
    from paimon_cli.jobs.row_scan import RowScan


class PaimonDataSource(DataSource):
    """The data source `paimon`. Options are those of `Table.scan` and `Table.write`; `path` is the table: `.load("db.table")`."""

    @called_by_spark()
    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        return "paimon"

    @called_by_spark()
    def schema(self) -> StructType:
        """The columns of the table, at the snapshot that the options choose, or those of the option `columns`."""
        from paimon_cli.spark.spark_types import nullable_schema

        options = SourceOptions.of(self.options)
        if not options.shows_other_columns:
            return nullable_schema(options.table().context.schema.fields)
        return nullable_schema(options.table().scan(**options.column_arguments(), row_kind=options.shows_kinds).rows.fields)

    @called_by_spark()
    def reader(self, schema: StructType) -> DataSourceReader:
        return PaimonReader(SourceOptions.of(self.options), schema)

    @called_by_spark()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from paimon_cli.spark.source_writing import batch_writer

        return batch_writer(SourceOptions.of(self.options), schema, overwrite)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from paimon_cli.spark.stream_reading import PaimonStreamReader

        return PaimonStreamReader(self.options, schema)

    @called_by_spark()
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        from paimon_cli.spark.source_writing import stream_writer

        return stream_writer(SourceOptions.of(self.options), schema, overwrite)


class SecondName(PaimonDataSource):
    """The data source under the name `paimon-cli`: if Paimon's own jar is on the class path, `paimon` is the jar's."""

    @classmethod
    def name(cls) -> str:
        return "paimon-cli"


class PaimonReader(DataSourceReader):
    """Reads the columns of `schema`, in its order, with one task for each split, or one that also plans."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    @called_by_spark()
    def partitions(self) -> Sequence[InputPartition]:
        return planned(self._partitions)

    def _partitions(self) -> Sequence[InputPartition]:
        table = self._options.table()
        if table.context.mode.merges_postponed and not table.context.place.read_optimized:
            return [InputPartition(PlannedInTask(table.context.snapshots.latest_id()))]
        return split_partitions(self._scan(table))

    def _scan(self, table: Table, snapshot: int | None = None) -> RowScan:
        """Plan the read. `snapshot`: which one to read if no option says it."""
        arguments = self._options.scan_arguments()
        options = {**table.context.schema.options, **table.context.given}
        arguments["columns"] = self._columns(arguments)
        is_of_latest = arguments.keys().isdisjoint(TRAVEL_OPTIONS) and options.keys().isdisjoint(POSITION_OPTIONS)
        if snapshot is None or not is_of_latest:
            scan = table.scan(**arguments).rows
        else:
            scan = rows_of_latest(table.supported, ScanCall(**arguments, snapshot=snapshot))
        check_types(self._schema, scan)
        return scan

    def _columns(self, arguments: dict[str, Any]) -> list[str]:
        """The columns of the schema but `rowkind`, quoted."""
        names = self._schema.names[1:] if arguments["row_kind"] else self._schema.names
        return [quoted_name(name) for name in names]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition.value, PlannedInTask):
            with called_by_spark():
                partition = InputPartition(self._scan(self._options.table(), partition.value.snapshot))
        return read_partition(partition, self._schema)
