"""Schemas, records and answers of the merge vectors as this engine's values."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from paimon_cli.datatypes.arrow_types import values_to_arrow
from paimon_cli.datatypes.canonical_form import canonical_rows, from_canonical
from paimon_cli.lsm.merge_engine import merge_engine
from paimon_cli.lsm.sort_merge import sorted_rows
from paimon_cli.lsm.sorted_rows import MergeEngine, SortedRows
from paimon_cli.metadata.data_file_schema import KIND_TEXTS, SEQUENCE_NUMBER, VALUE_KIND, merge_schema
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.table_options import TableOptions

KINDS = {name: number for number, name in enumerate(KIND_TEXTS)}
Record = dict[str, Any]


def table_schema(given: dict[str, Any]) -> TableSchema:
    document = {"version": 3, "id": 0, "highestFieldId": 1000, "comment": "", "timeMillis": 0, **given}
    return TableSchema.from_json(json.dumps(document))


def engine_of(schema: TableSchema) -> MergeEngine:
    return merge_engine(schema, TableOptions(schema.options))


def batch_of(schema: TableSchema, records: Sequence[Record]) -> pa.RecordBatch:
    columns = [
        values_to_arrow([from_canonical(record["row"][i], field.type) for record in records], field.type)
        for i, field in enumerate(schema.fields)
    ]
    sequence = pa.array([record["seq"] for record in records], pa.int64())
    kinds = pa.array([KINDS[record["kind"]] for record in records], pa.int8())
    target = merge_schema(schema)
    arrays = [sequence, kinds, *(column.cast(target.field(i + 2).type) for i, column in enumerate(columns))]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([field.with_nullable(True) for field in target]))


def records_of(schema: TableSchema, batch: pa.RecordBatch) -> list[Record]:
    rows = canonical_rows(batch, schema.fields)
    system = zip(batch.column(SEQUENCE_NUMBER).to_pylist(), batch.column(VALUE_KIND).to_pylist(), rows, strict=True)
    return [{"seq": seq, "kind": KIND_TEXTS[kind], "row": list(row.values())} for seq, kind, row in system]


def merged_group(schema: TableSchema, records: Sequence[Record], *, merge_lone: bool) -> Record | None:
    """The records of one key, in feeding order, through the merge function."""
    batch = batch_of(schema, records)
    rows = SortedRows(batch, np.arange(len(records)), np.zeros(1, dtype=np.int64), merge_lone)
    merged = records_of(schema, engine_of(schema).merge(rows))
    return merged[0] if merged else None


def merged_rows(schema: TableSchema, records: Sequence[Record]) -> list[Record]:
    """Records of any keys, sorted and merged."""
    engine = engine_of(schema)
    return records_of(schema, engine.merge(sorted_rows(batch_of(schema, records), schema.trimmed_primary_keys, engine)))
