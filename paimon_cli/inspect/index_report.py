"""`indexes ls` and `dv ls`: the index files of a snapshot, and the deletion vectors in them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from paimon_cli.bucket.deletion_vectors import load_vectors
from paimon_cli.history.live_files import BucketFiles
from paimon_cli.history.partition_spec import PartitionSpec, partition_text
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import DELETION_VECTORS, DataFileMeta, FileFilter, IndexManifestEntry
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_layout import natural_order


@dataclass(frozen=True)
class IndexRow:
    """One index file. `rows`: key hashes of a hash index, or vectors of a deletion vector file, by the index manifest."""

    partition: str
    bucket: int
    type: str
    file: str
    size: int
    rows: int
    vectors: int | None
    path: str


@dataclass(frozen=True)
class VectorRow:
    """The deletion vector of one data file: it marks `deleted` of `rows` rows, and is stored at `offset` in `index_file`.

    `level` and `rows` are None if the data file is not live (a dangling vector).
    """

    partition: str
    bucket: int
    level: int | None
    file: str
    rows: int | None
    deleted: int
    index_file: str
    offset: int
    length: int


def index_rows(
    context: TableContext, snapshot: Snapshot | None, chosen: PartitionSpec | None, buckets: Collection[int] | None
) -> list[IndexRow]:
    """The index files by partition, bucket and type; None selects all partitions or buckets."""
    return sorted(
        (_index_row(context, entry) for entry in _entries(context, snapshot, chosen, buckets)),
        key=lambda row: (natural_order(row.partition), row.bucket, row.type, row.file),
    )


def vector_rows(
    context: TableContext, snapshot: Snapshot | None, chosen: PartitionSpec | None, buckets: Collection[int] | None
) -> list[VectorRow]:
    """The deletion vectors by partition, bucket and data file; None selects all partitions or buckets.

    Index files are read only if their manifest lacks the counts (Java 0.9).
    """
    entries = [e for e in _entries(context, snapshot, chosen, buckets) if e.index_file.index_type == DELETION_VECTORS]
    if snapshot is None or not entries:
        return []
    wanted = FileFilter({e.partition for e in entries}.__contains__, {e.bucket for e in entries})
    live = context.manifests.live_entries(snapshot, wanted)
    files = {(entry.partition, entry.bucket, entry.file.file_name): entry.file for entry in live}
    rows = [row for entry in entries for row in _vector_rows(context, entry, files)]
    return sorted(rows, key=lambda row: (natural_order(row.partition), row.bucket, row.file))


def _entries(
    context: TableContext, snapshot: Snapshot | None, chosen: PartitionSpec | None, buckets: Collection[int] | None
) -> list[IndexManifestEntry]:
    entries = [] if snapshot is None else context.manifests.index_entries(snapshot)
    return [
        entry
        for entry in entries
        if (chosen is None or chosen.matches(entry.partition)) and (buckets is None or entry.bucket in buckets)
    ]


def _index_row(context: TableContext, entry: IndexManifestEntry) -> IndexRow:
    file = entry.index_file
    return IndexRow(
        partition=partition_text(context, entry.partition),
        bucket=entry.bucket,
        type=file.index_type,
        file=file.file_name,
        size=file.file_size,
        rows=file.row_count,
        vectors=None if file.deletion_vector_ranges is None else len(file.deletion_vector_ranges),
        path=file.external_path or context.layout.index(file.file_name),
    )


def _vector_rows(
    context: TableContext, entry: IndexManifestEntry, files: dict[tuple[bytes, int, str], DataFileMeta]
) -> list[VectorRow]:
    listed = entry.index_file.deletion_vector_ranges or ()
    counts = {vector.data_file_name: vector.cardinality for vector in listed}
    if None in counts.values():
        vectors = load_vectors(context, BucketFiles(entry.partition, entry.bucket, 0, (), (entry.index_file,)))
        counts = {name: len(vector.positions) for name, vector in vectors.by_file.items()}
    rows = []
    for vector in listed:
        file = files.get((entry.partition, entry.bucket, vector.data_file_name))
        rows.append(
            VectorRow(
                partition=partition_text(context, entry.partition),
                bucket=entry.bucket,
                level=None if file is None else file.level,
                file=vector.data_file_name,
                rows=None if file is None else file.row_count,
                deleted=counts[vector.data_file_name] or 0,
                index_file=entry.index_file.file_name,
                offset=vector.offset,
                length=vector.length,
            )
        )
    return rows
