"""Partitions and buckets of a snapshot with their sums."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from paimon_cli.datatypes.partition_path import natural_order
from paimon_cli.history.partition_spec import PartitionSpec
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.table_state import BucketFiles, bucket_files
from paimon_cli.metadata.data_file import DataFileMeta, FileFilter
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.table.partition_text import partition_text


@dataclass(frozen=True)
class BucketRow:
    """One bucket; `rows` are unmerged, `delete_rows` is None when a file does not say, `sorted_runs` as a reader must merge."""

    partition: str
    bucket: int
    total_buckets: int
    files: int
    rows: int
    delete_rows: int | None
    size: int
    sorted_runs: int
    max_level: int
    max_seq: int
    updated: int | None


@dataclass(frozen=True)
class PartitionRow:
    """One partition, sums over its buckets; `updated`: newest file, epoch millis of the writer's wall clock."""

    partition: str
    buckets: int
    files: int
    rows: int
    size: int
    updated: int | None


def bucket_rows(context: TableContext, snapshot: Snapshot | None, partition: PartitionSpec | None = None) -> list[BucketRow]:
    """By partition and bucket."""
    wanted = FileFilter(None if partition is None else partition.matches)
    states = bucket_files(context, snapshot, wanted).values()
    return sorted((_bucket_row(context, state) for state in states), key=lambda row: (natural_order(row.partition), row.bucket))


def partition_rows(context: TableContext, snapshot: Snapshot | None) -> list[PartitionRow]:
    """By partition; partitions without files do not exist."""
    groups: dict[str, list[BucketRow]] = defaultdict(list)
    for row in bucket_rows(context, snapshot):
        groups[row.partition].append(row)
    return [
        PartitionRow(
            partition=partition,
            buckets=len(rows),
            files=sum(row.files for row in rows),
            rows=sum(row.rows for row in rows),
            size=sum(row.size for row in rows),
            updated=_newest(row.updated for row in rows),
        )
        for partition, rows in groups.items()
    ]


def _bucket_row(context: TableContext, state: BucketFiles) -> BucketRow:
    files = state.files
    return BucketRow(
        partition=partition_text(context, state.partition),
        bucket=state.bucket,
        total_buckets=state.total_buckets,
        files=len(files),
        rows=sum(file.row_count for file in files),
        delete_rows=_delete_rows(files),
        size=sum(file.file_size for file in files),
        sorted_runs=sum(file.level == 0 for file in files) + len({file.level for file in files} - {0}),
        max_level=max((file.level for file in files), default=0),
        max_seq=max((file.max_sequence_number for file in files), default=0),
        updated=_newest(file.creation_time_millis for file in files),
    )


def _delete_rows(files: Iterable[DataFileMeta]) -> int | None:
    counts = [file.delete_row_count for file in files]
    return None if None in counts else sum(count or 0 for count in counts)


def _newest(times: Iterable[int | None]) -> int | None:
    return max((time for time in times if time is not None), default=None)
