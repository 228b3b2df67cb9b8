"""Schemas and sources for tests of incoming rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from paimon_cli.datatypes.canonical_form import canonical_rows
from paimon_cli.datatypes.data_type import DataField
from paimon_cli.datatypes.field_types import parse_type
from paimon_cli.ingest.faults import Tally
from paimon_cli.ingest.rows import IncomingRows
from paimon_cli.ingest.source_files import RawRows, SourceSplit, plan_sources
from paimon_cli.ingest.text_form import PLAIN, TextForm
from paimon_cli.metadata.table_schema import TableSchema


def schema_of(
    columns: Mapping[str, Any],
    primary_key: Sequence[str] = ("k",),
    partition_by: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
) -> TableSchema:
    fields = tuple(DataField(i, name, parse_type(t)) for i, (name, t) in enumerate(columns.items()))
    return TableSchema(
        0, fields, len(fields) - 1, tuple(partition_by), tuple(primary_key), {"bucket": "2", **(options or {})}, None, 0
    )


def one_column(type_text: Any) -> TableSchema:
    return schema_of({"k": "INT NOT NULL", "v": type_text})


def rows_of(
    incoming: IncomingRows, *sources: Path | str, format: str | None = None, form: TextForm = PLAIN
) -> list[dict[str, Any]]:
    """All rows in canonical form, in the order of arrival."""
    splits = plan_sources([str(s) for s in sources], format, None, form)
    batches = [b for split in splits for b in incoming.read(split, Tally())]
    return [row for batch in batches for row in canonical_rows(batch, incoming.schema.fields)]


def read_all(incoming: IncomingRows, *sources: Path | str, format: str | None = None) -> pa.Table:
    return pa.Table.from_batches(
        [b for split in plan_sources([str(s) for s in sources], format) for b in incoming.read(split, Tally())]
    )


def conform(incoming: IncomingRows, batch: pa.RecordBatch, split: SourceSplit, first_row: int) -> pa.RecordBatch:
    return incoming.conform(RawRows(batch, np.arange(first_row, first_row + batch.num_rows)), split, Tally())


def json_file(folder: Path, *rows: Any, name: str = "rows.json") -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def text_file(folder: Path, content: str | bytes, name: str) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path
