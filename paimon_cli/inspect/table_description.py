"""`describe`: a summary of one table with columns, keys, options, contents, snapshots, and pending maintenance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.history.table_context import TableContext
from paimon_cli.inspect.bucket_report import BucketRow, bucket_rows, total_rows
from paimon_cli.inspect.findings.examined_table import ExaminedTable
from paimon_cli.inspect.findings.finding import METADATA, Finding
from paimon_cli.inspect.findings.runner import findings_of
from paimon_cli.inspect.schema_report import shown_options
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.merge_engines import DEFAULT_ENGINE
from paimon_cli.read.html_text import ShownAsTable


@dataclass(frozen=True)
class ColumnRow:
    """One column. `key`: the keys that it belongs to (`primary`, `partition`, both, or empty)."""

    name: str
    type: str
    key: str
    default: str | None
    comment: str | None


@dataclass(frozen=True)
class TableDescription(ShownAsTable):
    """A table at its latest snapshot. `records`: counted before merging; `size`: bytes; times: epoch millis. `visible_rows`: how
    many rows a read shows; None if only a merge can tell.

    `waiting_records`: those that reads do not show before a compaction. `sorted_runs`: the most in any bucket; None for tables
    without a primary key. `health`: the findings of `health`, but for files that nothing refers to: they are not searched.
    """

    path: str
    branch: str
    comment: str | None
    primary_keys: tuple[str, ...]
    partition_keys: tuple[str, ...]
    bucket: str
    merge_engine: str | None
    options: Mapping[str, str]
    schema_id: int
    snapshot_id: int | None
    time: int | None
    snapshots: int
    earliest_snapshot_id: int | None
    tags: tuple[str, ...]
    branches: tuple[str, ...]
    partitions: int
    buckets: int
    files: int
    records: int
    visible_rows: int | None
    waiting_records: int
    size: int
    sorted_runs: int | None
    columns: tuple[ColumnRow, ...]
    health: tuple[Finding, ...]


def describe_table(table: TableContext, examined: ExaminedTable) -> TableDescription:
    """Describe a table from its schema, the latest snapshot and its manifests, without opening data files."""
    schema, snapshot, ids = table.schemas.latest(), examined.latest, examined.ids
    buckets = bucket_rows(table, examined.all_buckets)
    return TableDescription(
        path=table.url,
        branch=table.branch,
        comment=schema.comment or None,
        primary_keys=schema.primary_keys,
        partition_keys=schema.partition_keys,
        bucket=schema.options.get("bucket", "-1"),
        merge_engine=schema.options.get("merge-engine", DEFAULT_ENGINE.name) if schema.primary_keys else None,
        schema_id=schema.id,
        columns=_columns(schema),
        options=shown_options(schema.options),
        snapshot_id=None if snapshot is None else snapshot.id,
        time=None if snapshot is None else snapshot.time_millis,
        snapshots=len(ids),
        earliest_snapshot_id=ids[0] if ids else None,
        tags=tuple(table.tags.names()),
        branches=tuple(table.branches.names()),
        partitions=len({bucket.partition for bucket in buckets}),
        buckets=len(buckets),
        files=sum(bucket.files for bucket in buckets),
        records=sum(bucket.rows for bucket in buckets),
        visible_rows=total_rows(bucket.visible_rows for bucket in buckets),
        waiting_records=sum(bucket.waiting_records for bucket in buckets),
        size=sum(bucket.size for bucket in buckets),
        sorted_runs=_most_runs(buckets) if schema.primary_keys else None,
        health=tuple(findings_of(examined, costs=(METADATA,))),
    )


def _columns(schema: TableSchema) -> tuple[ColumnRow, ...]:
    keys = {"primary": schema.primary_keys, "partition": schema.partition_keys}

    def keys_with(name: str) -> str:
        return ", ".join(key for key, names in keys.items() if name in names)

    return tuple(
        ColumnRow(field.name, type_to_sql(field.type), keys_with(field.name), field.default_value, field.description)
        for field in schema.fields
    )


def _most_runs(buckets: list[BucketRow]) -> int:
    return max((bucket.sorted_runs or 0 for bucket in buckets), default=0)
