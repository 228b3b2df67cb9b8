"""Reads and writes Avro data files as Arrow batches (FORMAT.md, section 7.2; Java AvroSchemaConverter).

Avro stores whole records. They are encoded by column (`avro_encoding`), and files of many blocks of plain columns are decoded by
column (`avro_decoding`). In other files each cell becomes a Python object on the way.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import pyarrow as pa

from paimon_cli.bucket.avro_decoding import decoded_blocks
from paimon_cli.bucket.avro_encoding import encoded_blocks
from paimon_cli.datatypes.arrow_types import arrow_type, retyped
from paimon_cli.datatypes.data_type import (
    ArrayType,
    BinaryType,
    DataField,
    DataType,
    DecimalType,
    MapType,
    MultisetType,
    RowType,
    StringType,
    TimestampType,
    TimeType,
)
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.errors import NotSupported
from paimon_cli.metadata.avro_columns import NotColumnar
from paimon_cli.metadata.avro_reader import damage_errors, data_blocks, decoded_records
from paimon_cli.metadata.avro_writer import ContainerWriter, RecordSchema
from paimon_cli.metadata.data_file_schema import KEY_PREFIX, TRACKING_FIELDS, FileLayout
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.pieces import PIECES

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_PLAIN = {
    "BOOLEAN": "boolean",
    "TINYINT": "int",
    "SMALLINT": "int",
    "INT": "int",
    "BIGINT": "long",
    "FLOAT": "float",
    "DOUBLE": "double",
}
_STAMPS = {"TIMESTAMP": "timestamp", "TIMESTAMP_LTZ": "local-timestamp"}
"""Paimon uses Avro's two kinds of timestamps with their meanings swapped."""
_MILLIS, MICROS = 3, 6


def avro_type(t: DataType, name: str) -> Any:
    """The Avro schema of a value. `name`: for records inside it. Raises `NotSupported` for types that Avro cannot hold."""
    schema = _avro_value(t, name)
    return ["null", schema] if t.nullable else schema


def avro_field_name(name: str) -> str:
    """The name itself. Raises `NotSupported` if it is not a valid name in Avro."""
    if not _NAME.fullmatch(name):
        raise NotSupported(
            f"column '{name}' in an Avro file", "Avro names are made of letters, digits and _", "use another file.format"
        )
    return name


def _avro_value(t: DataType, name: str) -> Any:
    if t.root in _PLAIN:
        return _PLAIN[t.root]
    if isinstance(t, StringType):
        return "string"
    if isinstance(t, BinaryType):
        return "bytes"
    if isinstance(t, DecimalType):
        return {"type": "bytes", "logicalType": "decimal", "precision": t.precision, "scale": t.scale}
    if t.root == "DATE":
        return {"type": "int", "logicalType": "date"}
    if isinstance(t, TimeType) and t.precision <= _MILLIS:
        return {"type": "int", "logicalType": "time-millis"}
    if isinstance(t, TimestampType) and t.precision <= MICROS:
        unit = "millis" if t.precision <= _MILLIS else "micros"
        return {"type": "long", "logicalType": f"{_STAMPS[t.root]}-{unit}"}
    return _avro_nested(t, name)


def _avro_nested(t: DataType, name: str) -> Any:
    if isinstance(t, ArrayType):
        return {"type": "array", "items": avro_type(t.element, name)}
    if isinstance(t, RowType):
        fields = [avro_record_field(f.name, f.type, name) for f in t.fields]
        return {"type": "record", "name": name, "fields": fields}
    if isinstance(t, (MapType, MultisetType)):
        key, value = t.key, t.value
        if isinstance(key, StringType):
            return {"type": "map", "values": avro_type(value, name)}
        inner = avro_type(value, f"{name}_value")
        entry = [{"name": "key", "type": avro_type(key, f"{name}_key")}, {"name": "value", "type": inner}]
        if value.nullable:
            entry[1]["default"] = None
        return {"type": "array", "items": {"type": "record", "name": name, "fields": entry}, "logicalType": "map"}
    raise NotSupported(f"columns of type {type_to_sql(t)} in an Avro file", "Avro has no such type", "use another file.format")


def avro_record_field(name: str, t: DataType, record: str) -> dict[str, Any]:
    """The schema of a record's field. Nullable fields default to null."""
    field: dict[str, Any] = {"name": avro_field_name(name), "type": avro_type(t, f"{record}_{name}")}
    return {**field, "default": None} if t.nullable else field


def stored_type(t: pa.DataType) -> pa.DataType:
    """The Arrow type with times as integers, as Avro stores them, and every nested field nullable."""
    if pa.types.is_timestamp(t):
        return pa.int64()
    if pa.types.is_date(t) or pa.types.is_time(t):
        return pa.int32()
    if pa.types.is_list(t):
        return pa.list_(stored_type(t.value_type))
    if pa.types.is_map(t):
        return pa.map_(stored_type(t.key_type), stored_type(t.item_type))
    if pa.types.is_struct(t):
        return pa.struct([pa.field(field.name, stored_type(field.type)) for field in t])
    return t


_RECORD = "org.apache.paimon.avro.generated.record"


def avro_batches(source: BinaryIO, columns: list[str], file_schema: TableSchema, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Batches with these columns of the file, in the Arrow types that the file's schema declares."""
    types = {field.name: arrow_type(field.type) for field in (*TRACKING_FIELDS, *FileLayout.of(file_schema).fields)}
    targets = {name: types[name] for name in columns}
    with _damage():
        schema, blocks = data_blocks(source)
    are_columnar = isinstance(schema.plain, dict)
    portions = _Portions(blocks)
    while portion := portions.filled([]):
        batch = _by_column(schema, portion, targets, portions.are_large) if are_columnar else None
        if batch is None and are_columnar and not portions.are_large:
            portions.are_large = True
            portion = portions.filled(portion)
            batch = _by_column(schema, portion, targets, side_by_side=True)
        if batch is not None:
            yield from (batch.slice(start, batch_rows) for start in range(0, batch.num_rows, batch_rows))
            continue
        are_columnar = False
        pending: list[Any] = []
        for count, content in portion:
            with _damage():
                pending += decoded_records(content, count, schema)
            while len(pending) >= batch_rows:
                yield _batch(pending[:batch_rows], targets)
                pending = pending[batch_rows:]
        if pending:
            yield _batch(pending, targets)


@contextmanager
def _damage() -> Iterator[None]:
    """Errors of malformed bytes as `OSError`, which says that the file is damaged."""
    try:
        yield
    except damage_errors() as error:
        raise OSError(f"it is not a readable Avro file: {str(error) or type(error).__name__}") from error


class _Portions:
    """The blocks in portions that are decoded together. Those before a damaged one come first.

    `are_large`: portions have `avro_decoded_bytes`, so that records of many blocks are decoded side by side.
    """

    def __init__(self, blocks: Iterator[tuple[int, bytes]]) -> None:
        self._blocks = blocks
        self._damage: OSError | None = None
        self.are_large = False

    def filled(self, portion: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        """The portion and the blocks after it, up to the size of a portion; empty at the end of the file."""
        size = sum(len(content) for _, content in portion)
        while self._damage is None and size < (PIECES.avro_decoded_bytes if self.are_large else PIECES.avro_portion_bytes):
            try:
                with _damage():
                    block = next(self._blocks, None)
            except OSError as error:
                self._damage = error
                break
            if block is None:
                break
            portion.append(block)
            size += len(block[1])
        if self._damage is not None and not portion:
            raise self._damage
        return portion


def _by_column(
    schema: RecordSchema, portion: list[tuple[int, bytes]], targets: dict[str, pa.DataType], side_by_side: bool
) -> pa.RecordBatch | None:
    """All rows of these blocks, or None if they have to be decoded record by record, or `side_by_side`."""
    present = _present(targets, {field["name"] for field in schema.plain.get("fields", ())})
    try:
        return pa.RecordBatch.from_arrays(decoded_blocks(schema.plain, portion, present, side_by_side), names=list(present))
    except (NotColumnar, pa.ArrowInvalid):  # texts that are not UTF-8
        return None


def _present(targets: dict[str, pa.DataType], stored: Container[str]) -> dict[str, pa.DataType]:
    missing = [name for name in targets if name not in stored and not name.startswith(KEY_PREFIX)]
    if missing:
        raise OSError(f"it has no column {missing[0]}")
    return {name: target for name, target in targets.items() if name in stored}


def _batch(records: list[Any], targets: dict[str, pa.DataType]) -> pa.RecordBatch:
    present = _present(targets, records[0])
    columns = [_column([record[name] for record in records], target) for name, target in present.items()]
    return pa.RecordBatch.from_arrays(columns, names=list(present))


def _column(cells: list[Any], target: pa.DataType) -> pa.Array:
    stored = stored_type(target)
    values = [_map_cells(cell, stored) for cell in cells] if _has_maps(stored) else cells
    return retyped(pa.array(values, stored), target, pa.Array.cast)


def _has_maps(t: pa.DataType) -> bool:
    if pa.types.is_map(t):
        return True
    return any(_has_maps(t.field(i).type) for i in range(t.num_fields)) if t.num_fields else False


def _map_cells(cell: Any, t: pa.DataType) -> Any:
    """The cell with maps as lists of pairs, as pyarrow expects them. Avro has dicts, or lists of records with key and value."""
    if cell is None:
        return None
    if pa.types.is_map(t):
        pairs = cell.items() if isinstance(cell, dict) else ((pair["key"], pair["value"]) for pair in cell)
        return [(_map_cells(key, t.key_type), _map_cells(item, t.item_type)) for key, item in pairs]
    if pa.types.is_list(t):
        return [_map_cells(item, t.value_type) for item in cell]
    if pa.types.is_struct(t):
        return {field.name: _map_cells(cell[field.name], field.type) for field in t}
    return cell


class AvroRows:
    """Writes tables into one Avro file. `fields`: all of its columns, in order."""

    def __init__(self, sink: BinaryIO, fields: list[DataField], codec: str, zstd_level: int) -> None:
        namespace, _, name = _RECORD.rpartition(".")
        listed = [avro_record_field(field.name, field.type, name) for field in fields]
        schema = {"type": "record", "name": name, "namespace": namespace, "fields": listed}
        self._fields = fields
        self._blocks = ContainerWriter(sink, RecordSchema(schema), codec, zstd_level)

    def write(self, rows: pa.Table) -> None:
        types = [field.type for field in self._fields]
        for batch in rows.to_batches(max_chunksize=PIECES.avro_block_rows * PIECES.avro_encoded_blocks):
            for count, content in encoded_blocks(list(zip(batch.columns, types, strict=True)), PIECES.avro_block_rows):
                self._blocks.append_block(count, content)

    def close(self) -> None:
        self._blocks.finish()
