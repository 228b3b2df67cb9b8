"""The data files and manifest entries of a snapshot, with partitions, keys and statistics in canonical form."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from paimon_cli.datatypes.binary_row import deserialize_row
from paimon_cli.datatypes.canonical_form import canonical_json
from paimon_cli.datatypes.data_type import DataField
from paimon_cli.errors import DamagedFile, NotFound, NotSupported, UsageError
from paimon_cli.history.partition_spec import PartitionSpec, partition_text
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import (
    DELETION_VECTORS,
    EMPTY_ROW,
    SOURCE_APPEND,
    SOURCE_COMPACT,
    EntryKind,
    ManifestEntry,
    SimpleStats,
)
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_layout import natural_order
from paimon_cli.pieces import PIECES

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

SOURCE_NAMES = {SOURCE_APPEND: "APPEND", SOURCE_COMPACT: "COMPACT"}


@dataclass(frozen=True)
class FileRow:
    """One data file. `size`: bytes; `created`: epoch millis of the writer's wall clock; keys: lists of canonical values."""

    partition: str
    bucket: int
    level: int
    file: str
    rows: int
    delete_rows: int | None
    size: int
    min_key: list[Any]
    max_key: list[Any]
    min_seq: int
    max_seq: int
    source: str | None
    schema_id: int
    created: int | None
    dv_cardinality: int | None


@dataclass(frozen=True)
class ColumnRange:
    """Statistics of one column; `min` and `max` are None if they are unknown or all values are null."""

    column: str
    min: Any
    max: Any
    null_count: int | None


@dataclass(frozen=True)
class FileDetails(FileRow):
    """A data file with its partition, bucket and column statistics."""

    path: str
    total_buckets: int
    extra_files: tuple[str, ...]
    columns: tuple[ColumnRange, ...]


@dataclass(frozen=True)
class RowGroupRow:
    """A row group of a Parquet file. `size`: stored bytes; `uncompressed_size`: decoded bytes; `codec`: of the first column."""

    row_group: int
    rows: int
    size: int
    uncompressed_size: int
    offset: int
    codec: str


@dataclass(frozen=True)
class EntryRow(FileRow):
    """One entry of a manifest."""

    kind: str
    total_buckets: int


@dataclass(frozen=True)
class FileSelection:
    """Which files to show; None selects all."""

    partition: PartitionSpec | None = None
    buckets: Collection[int] | None = None
    level: int | None = None

    def keeps(self, entry: ManifestEntry) -> bool:
        return (
            (self.buckets is None or entry.bucket in self.buckets)
            and (self.level is None or entry.file.level == self.level)
            and (self.partition is None or self.partition.matches(entry.partition))
        )


def file_rows(context: TableContext, snapshot: Snapshot | None, chosen: FileSelection = FileSelection()) -> list[FileRow]:
    """The live files by partition, bucket and level, newest first within a level."""
    if snapshot is None:
        return []
    entries = filter(chosen.keeps, context.manifests.live_entries(snapshot))
    vectors = _vector_cardinalities(context, snapshot)
    rows = [FileRow(**_columns(context, entry, vectors)) for entry in entries]
    return sorted(rows, key=lambda row: (natural_order(row.partition), row.bucket, row.level, -row.max_seq, row.file))


def changelog_file_rows(
    context: TableContext, snapshots: Iterable[Snapshot], chosen: FileSelection = FileSelection()
) -> list[FileRow]:
    """The changelog files of the snapshots, in the order of the snapshots, then by partition and bucket."""
    rows: list[FileRow] = []
    for snapshot in snapshots:
        if snapshot.changelog_manifest_list is not None:
            manifests = context.manifests.manifest_list(snapshot.changelog_manifest_list)
            entries = [entry for batch in context.manifests.entries(manifests) for entry in batch if chosen.keeps(entry)]
            found = [FileRow(**_columns(context, entry, {})) for entry in entries]
            rows += sorted(found, key=lambda row: (natural_order(row.partition), row.bucket))
    return rows


def file_details(context: TableContext, snapshot: Snapshot | None, name: str) -> FileDetails:
    """One live file by name. Raises `NotFound` if the snapshot does not contain it."""
    live = [] if snapshot is None else context.manifests.live_entries(snapshot)
    entries = [entry for entry in live if entry.file.file_name == name]
    if snapshot is None or not entries:
        why = "the table has no snapshot" if snapshot is None else f"snapshot {snapshot.id} does not contain it"
        raise NotFound(f"no file {name}", why, f"paimon-cli files ls {context.layout.argument}")
    entry = entries[0]
    return FileDetails(
        **_columns(context, entry, _vector_cardinalities(context, snapshot)),
        path=entry.file.external_path or context.data_file_path(entry.partition, entry.bucket, entry.file),
        total_buckets=entry.total_buckets,
        extra_files=entry.file.extra_files,
        columns=_column_ranges(context, entry),
    )


def row_groups(context: TableContext, path: str) -> list[RowGroupRow]:
    """The row groups of a Parquet file, in order. Raises `NotSupported` for other formats."""
    with _parquet_file(context, path) as file:
        groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
    return [
        RowGroupRow(
            row_group=number,
            rows=group.num_rows,
            size=sum(group.column(n).total_compressed_size for n in range(group.num_columns)),
            uncompressed_size=group.total_byte_size,
            offset=group.column(0).dictionary_page_offset or group.column(0).data_page_offset,
            codec=group.column(0).compression,
        )
        for number, group in enumerate(groups)
    ]


def row_group_rows(context: TableContext, path: str, number: int, limit: int | None = None) -> pa.Table:
    """The first rows of a row group, with all stored columns. Raises `NotFound` for a number out of range."""
    import pyarrow as pa

    with _parquet_file(context, path) as file:
        if not 0 <= number < file.metadata.num_row_groups:
            raise NotFound(f"no row group {number} in {path}", f"the file has {file.metadata.num_row_groups}, numbered from 0")
        batches = file.iter_batches(row_groups=[number], batch_size=limit or PIECES.batch_rows)
        rows = pa.Table.from_batches(batches if limit is None else islice(batches, 1), file.schema_arrow)
    return rows.slice(0, limit)


@contextmanager
def _parquet_file(context: TableContext, path: str) -> Iterator[pq.ParquetFile]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.endswith(".parquet"):
        raise NotSupported(f"{path} is not a Parquet file", "row groups can only be listed in Parquet files")
    try:
        with context.storage.open_input(path) as stream, pq.ParquetFile(stream) as file:
            yield file
    except (pa.ArrowInvalid, OSError) as error:
        raise DamagedFile(f"{path} cannot be read", str(error)) from error


OF_OTHER_ENTRIES = {
    "manifest-list-": ("a manifest list", "its entries are manifests, not data files", "manifests ls"),
    "index-manifest-": ("an index manifest", "its entries are index files, not data files", "indexes ls"),
}
"""By the prefix of its name: what another file beside manifests is, why it shows no data files, and the command that shows it."""


def manifest_entries(context: TableContext, name: str) -> list[EntryRow]:
    """All entries of one manifest, in file order. Raises `NotFound` if there is no such manifest."""
    if not context.storage.exists(context.layout.manifest(name)):
        raise NotFound(f"no manifest {name}", "the table has no such file", f"paimon-cli manifests ls {context.layout.argument}")
    for prefix, (what, why, command) in OF_OTHER_ENTRIES.items():
        if name.startswith(prefix):
            raise UsageError(f"{name} is {what}", why, f"paimon-cli {command} {context.layout.argument}")
    kind_names = {EntryKind.ADD: "ADD"}
    return [
        EntryRow(**_columns(context, entry, {}), kind=kind_names.get(entry.kind, "DELETE"), total_buckets=entry.total_buckets)
        for entry in context.manifests.manifest(name)
    ]


def key_values(context: TableContext) -> Callable[[bytes, str], list[Any]]:
    """A function that decodes a serialised key into canonical values; its second argument is the file name for `DamagedFile`."""
    types = context.schema.types_of(context.schema.trimmed_primary_keys)

    def decode(key: bytes, file_name: str) -> list[Any]:
        if context.mode.clusters_rows:  # the bounds are of clustering columns, or of keys where rows wait
            return []
        values = _decoded(key, types, file_name)
        return [canonical_json(v, t) for v, t in zip(values, types, strict=True)]

    return decode


def _columns(context: TableContext, entry: ManifestEntry, vectors: dict[str, int]) -> dict[str, Any]:
    file, decode = entry.file, key_values(context)
    return {
        "partition": partition_text(context, entry.partition),
        "bucket": entry.bucket,
        "level": file.level,
        "file": file.file_name,
        "rows": file.row_count,
        "delete_rows": file.delete_row_count,
        "size": file.file_size,
        "min_key": decode(file.min_key, file.file_name),
        "max_key": decode(file.max_key, file.file_name),
        "min_seq": file.min_sequence_number,
        "max_seq": file.max_sequence_number,
        "source": SOURCE_NAMES.get(file.file_source) if file.file_source is not None else None,
        "schema_id": file.schema_id,
        "created": file.creation_time_millis,
        "dv_cardinality": vectors.get(file.file_name),
    }


def _vector_cardinalities(context: TableContext, snapshot: Snapshot) -> dict[str, int]:
    """The number of deleted rows by data file; vectors written by Java 0.9 do not record it and are left out."""
    if snapshot.index_manifest is None:
        return {}
    return {
        vector.data_file_name: vector.cardinality
        for entry in context.manifests.index_manifest(snapshot.index_manifest)
        if entry.index_file.index_type == DELETION_VECTORS
        for vector in entry.index_file.deletion_vector_ranges or ()
        if vector.cardinality is not None
    }


def _column_ranges(context: TableContext, entry: ManifestEntry) -> tuple[ColumnRange, ...]:
    """The value statistics, decoded with the schema of the file."""
    file = entry.file
    schema = context.schemas.named(file.schema_id)
    names = file.value_stats_cols if file.value_stats_cols is not None else file.write_cols or schema.field_names
    fields = schema.fields_of(names)
    stats: SimpleStats = file.value_stats
    if not fields or stats.min_values == EMPTY_ROW:
        return ()
    lows = _canonical(_decoded(stats.min_values, [f.type for f in fields], file.file_name), fields)
    highs = _canonical(_decoded(stats.max_values, [f.type for f in fields], file.file_name), fields)
    nulls = stats.null_counts or (None,) * len(fields)
    return tuple(ColumnRange(f.name, low, high, null) for f, low, high, null in zip(fields, lows, highs, nulls, strict=True))


def _canonical(values: tuple[Any, ...], fields: Sequence[DataField]) -> list[Any]:
    return [canonical_json(v, f.type) for v, f in zip(values, fields, strict=True)]


def _decoded(data: bytes, types: Sequence[Any], file_name: str) -> tuple[Any, ...]:
    try:
        return deserialize_row(data, types)
    except ValueError as error:
        raise DamagedFile(f"the key or statistics of {file_name} in its manifest cannot be decoded", str(error)) from error
