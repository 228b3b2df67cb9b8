"""Avro data files <-> Arrow batches (FORMAT.md, section 7.2). Avro is made of records, so each cell becomes a Python object."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

import pyarrow as pa

from paimon_cli.datatypes.arrow_types import arrow_type
from paimon_cli.datatypes.avro_types import avro_record_field, holds_maps, stored_type
from paimon_cli.datatypes.data_type import STRING_ROOTS
from paimon_cli.datatypes.field_types import DataField, DataType
from paimon_cli.datatypes.hidden_nulls import retyped
from paimon_cli.metadata.avro_container import ContainerWriter, damage_errors, record_batches
from paimon_cli.metadata.data_file_schema import KEY_PREFIX, data_file_fields
from paimon_cli.metadata.table_schema import TableSchema

BLOCK_ROWS = 2000
RECORD = "org.apache.paimon.avro.generated.record"


def avro_batches(source: BinaryIO, columns: list[str], file_schema: TableSchema, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Batches with the named columns of the file, in the Arrow types that the file's schema declares."""
    types = {field.name: arrow_type(field.type) for field in data_file_fields(file_schema)}
    targets = {name: types[name] for name in columns}
    pending: list[Any] = []
    for records in _blocks(source):
        pending += records
        while len(pending) >= batch_rows:
            yield _batch(pending[:batch_rows], targets)
            pending = pending[batch_rows:]
    if pending:
        yield _batch(pending, targets)


def _blocks(source: BinaryIO) -> Iterator[list[Any]]:
    blocks = record_batches(source)
    while True:
        try:
            records = next(blocks, None)
        except damage_errors() as error:
            raise OSError(f"it is not a readable Avro file: {error or type(error).__name__}") from error
        if records is None:
            return
        yield records


def _batch(records: list[Any], targets: dict[str, pa.DataType]) -> pa.RecordBatch:
    missing = [name for name in targets if name not in records[0] and not name.startswith(KEY_PREFIX)]
    if missing:
        raise OSError(f"it has no column {missing[0]}")
    found = {name: target for name, target in targets.items() if name in records[0]}
    columns = [_column([record[name] for record in records], target) for name, target in found.items()]
    return pa.RecordBatch.from_arrays(columns, names=list(found))


def _column(cells: list[Any], target: pa.DataType) -> pa.Array:
    stored = stored_type(target)
    ready = [_map_cells(cell, stored) for cell in cells] if _has_maps(stored) else cells
    return retyped(pa.array(ready, stored), target, pa.Array.cast)


def _has_maps(t: pa.DataType) -> bool:
    if pa.types.is_map(t):
        return True
    return any(_has_maps(t.field(i).type) for i in range(t.num_fields)) if t.num_fields else False


def _map_cells(cell: Any, t: pa.DataType) -> Any:
    """Avro's maps (a dict, or a list of records with key and value) as pyarrow takes them, at any depth."""
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
    """Writes batches as one Avro file, `fields` being all of its columns."""

    def __init__(self, sink: BinaryIO, fields: list[DataField], codec: str, zstd_level: int) -> None:
        namespace, _, name = RECORD.rpartition(".")
        listed = [avro_record_field(field.name, field.type, name) for field in fields]
        schema = {"type": "record", "name": name, "namespace": namespace, "fields": listed}
        self._fields = fields
        self._blocks = ContainerWriter(sink, schema, codec, zstd_level)

    def write(self, rows: pa.Table) -> None:
        for batch in rows.to_batches(max_chunksize=BLOCK_ROWS):
            columns = [_cells(batch.column(i), field.type) for i, field in enumerate(self._fields)]
            names = [field.name for field in self._fields]
            self._blocks.append([dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)])

    def close(self) -> None:
        self._blocks.finish()


def _cells(column: pa.Array, t: DataType) -> list[Any]:
    stored: list[Any] = retyped(column, stored_type(column.type), pa.Array.cast).to_pylist()
    return [_avro_cell(cell, t) for cell in stored] if holds_maps(t) else stored


def _avro_cell(cell: Any, t: DataType) -> Any:
    """Inverse of `_map_cells`."""
    if cell is None:
        return None
    if t.root in ("MAP", "MULTISET"):
        key, value = t.entry_types()
        pairs = [(_avro_cell(k, key), _avro_cell(v, value)) for k, v in cell]
        return dict(pairs) if key.root in STRING_ROOTS else [{"key": k, "value": v} for k, v in pairs]
    if t.root == "ARRAY":
        return [_avro_cell(item, t.element_type()) for item in cell]
    if t.root == "ROW":
        return {field.name: _avro_cell(cell[field.name], field.type) for field in t.row_fields()}
    return cell
