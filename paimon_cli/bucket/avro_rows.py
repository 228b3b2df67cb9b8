"""Avro data files -> Arrow batches (format section 7.2). fastavro decodes records, a batch at a time."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterator
from typing import Any, BinaryIO

import fastavro
import pyarrow as pa

from paimon_cli.datatypes.arrow_types import arrow_type
from paimon_cli.metadata.table_schema import TableSchema

SYSTEM_TYPES = {"_SEQUENCE_NUMBER": pa.int64(), "_VALUE_KIND": pa.int8()}


def avro_batches(source: BinaryIO, columns: list[str], file_schema: TableSchema, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Batches with the named columns of the file, in the Arrow types that the file's schema declares."""
    targets = {name: SYSTEM_TYPES[name] if name in SYSTEM_TYPES else arrow_type(file_schema.field(name).type) for name in columns}
    records: Iterator[Any] = iter(fastavro.reader(source))
    while chunk := list(itertools.islice(records, batch_rows)):
        arrays = [pa.array([_ready(record[name], target) for record in chunk], target) for name, target in targets.items()]
        yield pa.RecordBatch.from_arrays(arrays, names=columns)


def _ready(value: Any, target: pa.DataType) -> Any:
    """fastavro's value as pyarrow takes it: only times with a zone and maps differ, at any depth."""
    if value is None:
        return None
    if pa.types.is_timestamp(target):
        # Paimon writes TIMESTAMP as Avro's instant and LTZ as its local timestamp: only the zone mark differs.
        return value.replace(tzinfo=datetime.timezone.utc if target.tz else None)
    if pa.types.is_map(target):
        pairs = value.items() if isinstance(value, dict) else ((pair["key"], pair["value"]) for pair in value)
        return [(_ready(key, target.key_type), _ready(item, target.item_type)) for key, item in pairs]
    if pa.types.is_list(target):
        return [_ready(item, target.value_type) for item in value]
    if pa.types.is_struct(target):
        return {field.name: _ready(value[field.name], field.type) for field in target}
    return value
