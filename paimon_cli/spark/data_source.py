"""`spark.read.format("paimon")` and `df.write.format("paimon")`: a Python data source of Spark, found by its name.

Spark creates these objects in separate processes and pickles them from one to the next, so they cannot share state: a reader
plans in `partitions`, and each partition carries everything that its task needs.
Columns are pruned by the schema that the user specifies, or by the option `columns`: Spark does not pass the columns of a query
to a Python data source. `paimon_cli.spark.read` has no such limit.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from types import FrameType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import StructType

from paimon_cli.datatypes.type_text import quoted_name
from paimon_cli.jobs.spark.job import called_by_spark
from paimon_cli.spark.reading import check_types, read_partition, split_partitions
from paimon_cli.spark.source_options import SourceOptions

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, DataSourceStreamReader


_COMPARISONS = {EqualTo: "=", LessThan: "<", LessThanOrEqual: "<=", GreaterThan: ">", GreaterThanOrEqual: ">="}


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
        """The columns of the table, or those of the option `columns`."""
        from paimon_cli.spark.spark_types import nullable_schema

        options = SourceOptions.of(self.options)
        if options.shows_kinds or options.get("columns") is not None:
            return nullable_schema(options.table().scan(options.get("columns"), row_kind=options.shows_kinds).rows.fields)
        return nullable_schema(options.table().context.schema.fields)

    @called_by_spark()
    def reader(self, schema: StructType) -> DataSourceReader:
        options = SourceOptions.of(self.options)
        reader_class = FilteringReader if _pushes_filters() else PaimonReader
        return reader_class(options, schema)

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


class PaimonReader(DataSourceReader):
    """Reads the columns of `schema`, in its order, with one task for each split."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._conditions: list[str] = []

    @called_by_spark()
    def partitions(self) -> Sequence[InputPartition]:
        arguments = self._options.scan_arguments()
        conditions = [arguments.pop("where", None), *self._conditions]
        where = " AND ".join(f"({text})" for text in conditions if text)
        columns = self._columns(arguments)
        scan = self._options.table().scan(**{**arguments, "columns": columns, "where": where or None}).rows
        check_types(self._schema, scan)
        return split_partitions(scan)

    def _columns(self, arguments: dict[str, Any]) -> list[str]:
        """The columns of the schema but `rowkind`, quoted."""
        names = self._schema.names[1:] if arguments["row_kind"] else self._schema.names
        return [quoted_name(name) for name in names]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition, self._schema)


class FilteringReader(PaimonReader):
    """For sessions with `spark.sql.python.filterPushdown.enabled`: in others Spark rejects a reader with `pushFilters`."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Accept the filters for which `condition_text` has a condition; yield the others, which Spark applies."""
        for pushed in filters:
            text = condition_text(pushed)
            if text is None:
                yield pushed
            else:
                self._conditions.append(text)


def condition_text(pushed: Filter) -> str | None:
    """The filter as a condition in SQL; None if this package cannot compute it, or not with the same result as Spark."""
    attribute: tuple[str, ...] = getattr(pushed, "attribute", ())
    if len(attribute) != 1:
        return None
    name = quoted_name(attribute[0])
    if isinstance(pushed, (IsNull, IsNotNull)):
        return f"{name} IS {'NOT ' if isinstance(pushed, IsNotNull) else ''}NULL"
    if isinstance(pushed, In):
        values = [_literal(value) for value in pushed.value]
        known = [value for value in values if value is not None]
        return f"{name} IN ({', '.join(known)})" if known and len(known) == len(values) else None
    if isinstance(pushed, (EqualTo, LessThan, LessThanOrEqual, GreaterThan, GreaterThanOrEqual)):
        value = _literal(pushed.value)
        return None if value is None else f"{name} {_COMPARISONS[type(pushed)]} {value}"
    return None


def _literal(value: Any) -> str | None:
    """The SQL literal of an integer, string, date or boolean; None for other types, which Spark compares differently."""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return f"DATE '{value}'" if type(value) is date else None


def _pushes_filters() -> bool:
    """Whether Spark creates this reader to push filters. This process cannot read the setting, so it searches its stack."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_globals.get("__file__", "").endswith("data_source_pushdown_filters.py"):
            return True
        frame = frame.f_back
    return False
