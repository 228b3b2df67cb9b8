"""Small tables for tests: created, written and read through the engine itself, in this process."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from paimon_cli.bucket.merged_rows import read_bucket
from paimon_cli.catalog.table_definition import numbered
from paimon_cli.commit.outcome import CommitResult
from paimon_cli.datatypes.canonical_form import canonical_rows
from paimon_cli.datatypes.data_type import DataField, DataType, RowType
from paimon_cli.datatypes.field_types import parse_sql_type, parse_type
from paimon_cli.history.live_files import bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.row_sources import FileRows
from paimon_cli.jobs.compact_job import run_compact
from paimon_cli.jobs.compact_request import CompactRequest
from paimon_cli.jobs.compact_summary import CompactSummary
from paimon_cli.jobs.engine import Engine, LocalEngine, NoProgress
from paimon_cli.jobs.staging.stage_commit import StagedWrite, Together, commit_staged
from paimon_cli.jobs.staging.stage_job import StageFile
from paimon_cli.jobs.write_job import WriteSummary, run_write
from paimon_cli.jobs.write_request import WriteRequest
from paimon_cli.maintain.named_files import changelog_entries, file_paths
from paimon_cli.metadata.data_file_schema import read_schema
from paimon_cli.metadata.table_layout import POSTPONE_BUCKET
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.read.scan_plan import Split
from paimon_cli.read.split_reader import in_parts, read_in_parallel, read_split
from paimon_cli.sql.predicate import Predicate

Row = dict[str, Any]


def make_table(
    folder: Path,
    columns: Mapping[str, str | dict[str, Any]],
    primary_key: Sequence[str],
    partition_by: Sequence[str] = (),
    bucket: int = 1,
    options: Mapping[str, str] | None = None,
) -> TableContext:
    """A new table in `folder`; `columns` maps names to types, in SQL or as in schema files."""
    fields, highest = numbered(tuple(DataField(0, name, _type(text)) for name, text in columns.items()))
    schema = TableSchema(
        id=0,
        fields=fields,
        highest_field_id=highest,
        partition_keys=tuple(partition_by),
        primary_keys=tuple(primary_key),
        options={"bucket": str(bucket), "file.format": "parquet", **(options or {})},
        comment=None,
        time_millis=0,
    )
    path = folder / "schema" / "schema-0"
    path.parent.mkdir(parents=True)
    path.write_text(schema.to_json())
    return TableContext.open(str(folder))


def _type(given: str | dict[str, Any]) -> DataType:
    return parse_sql_type(given) if isinstance(given, str) else parse_type(given)


def row_fields(t: DataType) -> tuple[DataField, ...]:
    """The fields of a ROW type."""
    assert isinstance(t, RowType)
    return t.fields


def write(
    context: TableContext,
    rows: Sequence[Row],
    op: Literal["upsert", "delete"] = "upsert",
    threads: int = 1,
    engine: Engine | None = None,
    **request: Any,
) -> WriteSummary:
    """Write rows in canonical form; a row may hold `_op` (+I, -D, ...) for its kind."""
    source = Path(context.layout.root).parent / f"{context.random.uuid()}.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    column = "_op" if any("_op" in row for row in rows) else None
    asked = WriteRequest(FileRows((str(source),), "json"), op=op, op_column=column, **request)
    try:
        return run_write(context, asked, engine or LocalEngine(threads), NoProgress())
    finally:
        source.unlink()


def compact(context: TableContext, **request: Any) -> CompactSummary:
    return run_compact(context, CompactRequest(**request), LocalEngine(), NoProgress())


def commit_stage(context: TableContext, *files: StageFile, together: Together | None = None) -> CommitResult:
    """Commit staged writes, several of them in one snapshot."""
    writes = [StagedWrite(file, file.read()) for file in files]
    return commit_staged(context, writes, together or Together(), LocalEngine(), NoProgress())


def rows(context: TableContext, columns: Sequence[str] | None = None, snapshot_id: int | None = None) -> list[Row]:
    """Merged rows in canonical form, sorted by their text; not those that wait for a bucket."""
    names = tuple(columns or context.schema.field_names)
    snapshot = context.snapshots.latest() if snapshot_id is None else context.snapshots.get(snapshot_id)
    found: list[Row] = []
    for bucket in bucket_files(context, snapshot).values():
        if bucket.bucket == POSTPONE_BUCKET:
            continue
        for batch in read_bucket(context, bucket, names):
            found += canonical_rows(batch, context.schema.fields_of(names))
    return sorted(found, key=json.dumps)


def scan_to_arrow(
    context: TableContext,
    splits: Sequence[Split],
    columns: Sequence[str],
    predicate: Predicate | None = None,
    threads: int = 1,
) -> pa.Table:
    """The rows of all splits, in order, as one table, reading `threads` splits at a time."""

    def read(split: Split) -> Iterator[pa.RecordBatch]:
        return read_split(context, split, columns, predicate)

    schema = read_schema(context.schema, columns)
    batches = read_in_parallel(in_parts(context, splits, threads), read, threads)
    return pa.Table.from_batches([pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in batches], schema=schema)


def data_files(context: TableContext) -> set[str]:
    """Every data file on disk, relative to the table."""
    root = Path(context.layout.root)
    return {str(path.relative_to(root)) for path in root.glob("**/bucket-*/*")}


def live_files(context: TableContext) -> set[str]:
    """Every data file that the latest snapshot names, relative to the table."""
    root = context.layout.root + "/"
    return {
        context.data_file_path(bucket.partition, bucket.bucket, file).removeprefix(root)
        for bucket in bucket_files(context, context.snapshots.latest()).values()
        for file in bucket.files
    }


def named_files(context: TableContext) -> set[str]:
    """Every data and changelog file that a snapshot names, relative to the table: no job may leave another one."""
    root = context.layout.root + "/"
    named: set[str] = set()
    for snapshot in context.snapshots.newest_first():
        for entry in (*context.manifests.live_entries(snapshot), *changelog_entries(context, snapshot)):
            named.update(path.removeprefix(root) for path in file_paths(context, entry))
    return named
