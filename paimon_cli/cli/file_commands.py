"""`manifests`, `files`, `partitions`, `buckets`, `indexes`, `dv`: where the rows of a snapshot are stored."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Annotated

import typer

from paimon_cli.cli.command import Call, command, group
from paimon_cli.cli.parameters import Buckets, Partitions, SnapshotId, TableName, addressable, split_partitions
from paimon_cli.cli.results import (
    COUNT,
    ID,
    KEY,
    LONG,
    NAMES,
    SIZE,
    WALL_CLOCK,
    Column,
    Item,
    Listing,
    counted,
    human_size,
    records,
)
from paimon_cli.errors import UsageError

manifests = group("Manifests of a snapshot: which files they add and delete.")
files = group("Data files of a snapshot, with levels, keys and sequence numbers.")
partitions = group("Partitions of a snapshot.")
buckets = group("Buckets of a snapshot.")

MANIFEST_COLUMNS = (
    Column("list", "List"),
    Column("file", "Manifest"),
    Column("size", "Size", SIZE),
    Column("added", "Added", COUNT),
    Column("deleted", "Deleted", COUNT),
    Column("schema_id", "Schema", ID, hide=1),
    Column("min_bucket", None, ID),
    Column("max_bucket", None, ID),
    Column("min_level", None, ID),
    Column("max_level", None, ID),
)
FILE_COLUMNS = (
    Column("partition", "Partition", hide=10),
    Column("bucket", "Bucket", ID, hide=11),
    Column("level", "Level", ID, hide=12),
    Column("file", "File"),
    Column("rows", "Records", COUNT),
    Column("delete_rows", "Deletes", COUNT, hide=7),
    Column("size", "Size", SIZE),
    Column("min_key", "Min key", KEY, hide=8),
    Column("max_key", "Max key", KEY, hide=9),
    Column("min_seq", "Min seq", LONG, hide=5),
    Column("max_seq", "Max seq", LONG, hide=6),
    Column("source", "Source", hide=3),
    Column("schema_id", "Schema", ID, hide=2),
    Column("created", "Created", WALL_CLOCK, hide=4),
    Column("dv_cardinality", "DV", COUNT, hide=1),
)
ENTRY_COLUMNS = (Column("kind", "Kind"), *FILE_COLUMNS[:-1], Column("total_buckets", "Buckets", ID))
FILE_DETAILS = (
    *FILE_COLUMNS,
    Column("path", "Path"),
    Column("total_buckets", "Total buckets", ID),
    Column("extra_files", "Extra files", NAMES),
    Column("columns", "Columns", records("column", "min", "max", "null_count")),
)
PARTITION_COLUMNS = (
    Column("partition", "Partition"),
    Column("buckets", "Buckets", COUNT),
    Column("files", "Files", COUNT),
    Column("rows", "Records", COUNT),
    Column("size", "Size", SIZE),
    Column("updated", "Updated", WALL_CLOCK, hide=1),
)
BUCKET_COLUMNS = (
    Column("partition", "Partition"),
    Column("bucket", "Bucket", ID),
    Column("total_buckets", "Of", ID, hide=5),
    Column("files", "Files", COUNT),
    Column("rows", "Records", COUNT),
    Column("delete_rows", "Deletes", COUNT, hide=2),
    Column("size", "Size", SIZE),
    Column("sorted_runs", "Runs", COUNT),
    Column("max_level", "Top level", ID, hide=4),
    Column("max_seq", "Max seq", LONG, hide=1),
    Column("updated", "Updated", WALL_CLOCK, hide=3),
)


class ManifestList(str, enum.Enum):
    """Choices of `--list`."""

    BASE = "base"
    DELTA = "delta"
    CHANGELOG = "changelog"
    INDEX = "index"


@command(manifests, "ls")
def list_manifests(
    call: Call,
    table: TableName,
    snapshot: SnapshotId = None,
    lists: Annotated[list[ManifestList] | None, typer.Option("--list", help="Only this list; repeatable.")] = None,
) -> None:
    """List the manifests of a snapshot, list by list."""
    opened = call.open(table)
    rows = opened.manifests(snapshot=snapshot, lists=[item.value for item in lists or ()])
    footer = f"{counted(len(rows), 'manifest')}, {human_size(sum(row.size for row in rows))}"
    call.show(Listing("ManifestList", opened.name, MANIFEST_COLUMNS, rows, footer=footer))


@command(manifests, "show")
def show_manifest(
    call: Call, table: TableName, name: Annotated[str, typer.Argument(metavar="NAME", help="File name of a manifest.")]
) -> None:
    """Show the entries of one manifest: files added and deleted."""
    opened = call.open(table)
    rows = opened.manifest(name)
    call.show(Listing("ManifestEntryList", opened.name, ENTRY_COLUMNS, rows, footer=counted(len(rows), "line")))


@command(files, "ls")
def list_files(
    call: Call,
    table: TableName,
    snapshot: SnapshotId = None,
    partition: Partitions = None,
    bucket: Buckets = None,
    level: Annotated[int | None, typer.Option("--level", metavar="N", min=0, help="Only this level.")] = None,
    columns: Annotated[
        str | None, typer.Option("--columns", metavar="NAMES", help="Only these columns, such as file,size,rows.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option("-l", "--limit", metavar="N", callback=addressable, min=0, help="Only the first N.")
    ] = None,
) -> None:
    """List live data files by partition, bucket and level."""
    chosen = _chosen_columns(columns)
    opened = call.open(table)
    rows = opened.files(snapshot=snapshot, partition=split_partitions(partition), bucket=bucket, level=level)
    row_count, size = sum(row.rows for row in rows), sum(row.size for row in rows)
    footer = f"{counted(len(rows), 'file')}, {counted(row_count, 'record')}, {human_size(size)}"
    if limit is not None and limit < len(rows):
        rows, footer = rows[:limit], f"the first {limit} of {footer}"
    call.show(Listing("FileList", opened.name, chosen, rows, footer=footer))


@command(files, "show")
def show_file(
    call: Call,
    table: TableName,
    name: Annotated[str, typer.Argument(metavar="NAME", help="File name of a data file.")],
    snapshot: SnapshotId = None,
) -> None:
    """Show one data file with its column statistics."""
    opened = call.open(table)
    call.show(Item("File", opened.name, FILE_DETAILS, opened.file(name, snapshot=snapshot)))


@command(partitions, "ls")
def list_partitions(call: Call, table: TableName, snapshot: SnapshotId = None) -> None:
    """List partitions with their files, rows and bytes."""
    opened = call.open(table)
    rows = opened.partitions(snapshot=snapshot)
    call.show(Listing("PartitionList", opened.name, PARTITION_COLUMNS, rows, footer=counted(len(rows), "partition")))


@command(buckets, "ls")
def list_buckets(call: Call, table: TableName, snapshot: SnapshotId = None, partition: Partitions = None) -> None:
    """List buckets with their files, sorted runs, rows and bytes."""
    opened = call.open(table)
    rows = opened.buckets(snapshot=snapshot, partition=split_partitions(partition))
    call.show(Listing("BucketList", opened.name, BUCKET_COLUMNS, rows, footer=counted(len(rows), "bucket")))


def _chosen_columns(names: str | None) -> Sequence[Column]:
    if names is None:
        return FILE_COLUMNS
    known = {column.name: column for column in FILE_COLUMNS}
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    unknown = [name for name in wanted if name not in known]
    if unknown or not wanted:
        raise UsageError(f"--columns {names}: no column '{', '.join(unknown)}'", f"the columns are {', '.join(known)}")
    return [known[name] for name in wanted]


indexes = group("Index files of a snapshot: hash indexes of dynamic buckets, deletion vectors.")
vectors = group("Deletion vectors of a snapshot: which rows of which data files are deleted.")

INDEX_COLUMNS = (
    Column("partition", "Partition"),
    Column("bucket", "Bucket", ID),
    Column("type", "Type"),
    Column("file", "File"),
    Column("size", "Size", SIZE),
    Column("rows", "Rows", COUNT),
    Column("vectors", "Vectors", COUNT),
    Column("path", None),
)
VECTOR_COLUMNS = (
    Column("partition", "Partition"),
    Column("bucket", "Bucket", ID),
    Column("level", "Level", ID),
    Column("file", "Data file"),
    Column("rows", "Rows", COUNT),
    Column("deleted", "Deleted", COUNT),
    Column("index_file", "Index file"),
    Column("offset", "Offset", ID),
    Column("length", "Bytes", SIZE),
)


@command(indexes, "ls")
def list_indexes(
    call: Call, table: TableName, snapshot: SnapshotId = None, partition: Partitions = None, bucket: Buckets = None
) -> None:
    """List the index files of a snapshot by partition and bucket."""
    opened = call.open(table)
    rows = opened.indexes(snapshot=snapshot, partition=split_partitions(partition), bucket=bucket)
    footer = f"{counted(len(rows), 'index file')}, {human_size(sum(row.size for row in rows))}"
    call.show(Listing("IndexList", opened.name, INDEX_COLUMNS, rows, footer=footer))


@command(vectors, "ls")
def list_vectors(
    call: Call, table: TableName, snapshot: SnapshotId = None, partition: Partitions = None, bucket: Buckets = None
) -> None:
    """List the deletion vectors of a snapshot: deleted rows per data file, and the index file that holds them."""
    opened = call.open(table)
    rows = opened.dv(snapshot=snapshot, partition=split_partitions(partition), bucket=bucket)
    footer = f"{counted(len(rows), 'deletion vector')}, {counted(sum(row.deleted for row in rows), 'deleted row')}"
    call.show(Listing("DeletionVectorList", opened.name, VECTOR_COLUMNS, rows, footer=footer))
