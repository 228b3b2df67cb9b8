"""`indexes`, `dv`: index files of a snapshot, and the deletion vectors in them."""

from __future__ import annotations

from paimon_cli.cli.command import Call, command, group
from paimon_cli.cli.file_commands import partition_filter
from paimon_cli.cli.parameters import Buckets, Partitions, SnapshotId, TableName
from paimon_cli.cli.results import Column, Listing
from paimon_cli.cli.value_kinds import COUNT, ID, SIZE, counted, human_size

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
    from paimon_cli.table.index_report import index_rows

    opened = call.open(table)
    rows = index_rows(opened.context, opened.snapshot(snapshot), partition_filter(opened, partition), bucket)
    footer = f"{counted(len(rows), 'index file')}, {human_size(sum(row.size for row in rows))}"
    call.show(Listing("IndexList", opened.name, INDEX_COLUMNS, rows, footer=footer))


@command(vectors, "ls")
def list_vectors(
    call: Call, table: TableName, snapshot: SnapshotId = None, partition: Partitions = None, bucket: Buckets = None
) -> None:
    """List the deletion vectors of a snapshot: deleted rows per data file, and the index file that holds them."""
    from paimon_cli.table.index_report import vector_rows

    opened = call.open(table)
    rows = vector_rows(opened.context, opened.snapshot(snapshot), partition_filter(opened, partition), bucket)
    footer = f"{counted(len(rows), 'deletion vector')}, {counted(sum(row.deleted for row in rows), 'deleted row')}"
    call.show(Listing("DeletionVectorList", opened.name, VECTOR_COLUMNS, rows, footer=footer))
