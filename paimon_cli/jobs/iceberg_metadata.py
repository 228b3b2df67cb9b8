"""Writes Iceberg metadata (format version 2) for one snapshot over the table's own data files, with pyiceberg.

Rows marked by deletion vectors go into position delete files, which every version 2 reader supports. Columns keep their field
ids; a name mapping covers files without field ids.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.conversions import to_bytes
from pyiceberg.io import InputFile, OutputFile
from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.table.name_mapping import create_mapping_from_schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import PrimitiveType

from paimon_cli.bucket.deletion_vectors import load_vectors
from paimon_cli.datatypes.arrow_types import identified_schema
from paimon_cli.datatypes.data_type import DataType, StringType, TimestampType
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.errors import NotSupported
from paimon_cli.history.live_files import BucketFiles
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import DataFileMeta
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.read.pruning import TableBounds
from paimon_cli.storage.deletions import delete_all
from paimon_cli.storage.storage import Storage

_SEQUENCE = 1
"""The sequence number of the only Iceberg snapshot; position deletes apply to data files with the same number."""
FIRST_PARTITION_FIELD = 1000
_CODEC: Final = "deflate"
UNMAPPED_ROOTS = {"TIME", "VARIANT", "BLOB", "GEOMETRY", "GEOGRAPHY", "MULTISET", "VECTOR"}
PARTITION_ROOTS = {"BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "DATE", "CHAR", "VARCHAR", "DECIMAL"}
BOUNDED_ROOTS = {"TINYINT", "SMALLINT", "INT", "BIGINT", "DATE", "VARCHAR"}
FILE_PATH_ID, POSITION_ID = 2147483546, 2147483545
"""The field ids that Iceberg reserves for the columns of position delete files."""
DELETES_SCHEMA = pa.schema(
    [
        pa.field("file_path", pa.string(), False, {"PARQUET:field_id": str(FILE_PATH_ID)}),
        pa.field("pos", pa.int64(), False, {"PARQUET:field_id": str(POSITION_ID)}),
    ]
)


class StoredOutput(OutputFile):
    """A new file on the table's storage, for pyiceberg's writers."""

    def __init__(self, storage: Storage, location: str) -> None:
        super().__init__(_uri(location))
        self._storage = storage
        self._path = location

    def __len__(self) -> int:
        return self._storage.file_size(self._path)

    def exists(self) -> bool:
        return self._storage.exists(self._path)

    def to_input_file(self) -> InputFile:
        raise io.UnsupportedOperation("this file is write-only")

    def create(self, overwrite: bool = False) -> BinaryIO:
        return self._storage.open_output(self._path)


class DeleteManifestWriter(ManifestWriterV2):
    """Writes manifests of delete files, which pyiceberg itself cannot."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class IcebergWriter:
    """Collects the files of a snapshot, then writes manifests, manifest list and metadata below `DIRECTORY/metadata`.

    `data`, `deletes`: the data files and position delete files collected so far.
    """

    def __init__(self, context: TableContext, snapshot: Snapshot, storage: Storage, directory: str) -> None:
        self._context = context
        self._snapshot = snapshot
        self._storage = storage
        self._directory = directory.rstrip("/")
        self._schema = _iceberg_schema(context)
        self._spec = _partition_spec(context)
        self._bounds = TableBounds(context)
        self.data: list[DataFile] = []
        self.deletes: list[DataFile] = []
        self._written: list[str] = []

    def remove(self) -> None:
        """Delete the files written so far, except the metadata file and its hint, which are written last."""
        delete_all(self._storage, self._written)

    def add(self, bucket: BucketFiles) -> None:
        """Add the files of a split, with position delete files for the rows that vectors mark."""
        partition = Record(*_partition_values(self._context, bucket.partition))
        vectors = load_vectors(self._context, bucket)
        for file in bucket.files:
            path = _uri(self._context.data_file_path(*bucket.bucket_id, file))
            self.data.append(self._data_file(bucket, file, path, partition))
            vector = vectors.of(file.file_name)
            if vector is not None and len(vector.positions):
                self.deletes.append(self._delete_file(path, list(vector.positions), partition))

    def _data_file(self, bucket: BucketFiles, file: DataFileMeta, path: str, partition: Record) -> DataFile:
        lower, upper = self._bounds_of(bucket, file)
        return _file(DataFileContent.DATA, path, partition, file.row_count, file.file_size, lower, upper)

    def _bounds_of(self, bucket: BucketFiles, file: DataFileMeta) -> tuple[dict[int, bytes], dict[int, bytes]]:
        """Lower and upper bounds by field id, for types whose bounds mean the same in both formats."""
        bounds_of = self._bounds.of_file(bucket.partition, bucket.bucket, file)
        lower: dict[int, bytes] = {}
        upper: dict[int, bytes] = {}
        for field in self._context.schema.fields:
            bounds = bounds_of(field.name) if field.type.root in BOUNDED_ROOTS else None
            t = self._schema.find_field(field.id).field_type
            if bounds is None or not isinstance(t, PrimitiveType):
                continue
            if bounds.low is not None:
                lower[field.id] = to_bytes(t, bounds.low)
            if bounds.high is not None:
                upper[field.id] = to_bytes(t, bounds.high)
        return lower, upper

    def _delete_file(self, path: str, positions: Sequence[int], partition: Record) -> DataFile:
        location = self._new_path("deletes", "parquet")
        rows = pa.table({"file_path": [path] * len(positions), "pos": sorted(positions)}, schema=DELETES_SCHEMA)
        with self._storage.open_output(location) as sink:
            pq.write_table(rows, sink)
        size = self._storage.file_size(location)
        same = {FILE_PATH_ID: path.encode()}
        return _file(DataFileContent.POSITION_DELETES, _uri(location), partition, len(positions), size, same, same)

    def finish(self) -> str:
        """Write the manifests, the manifest list and the metadata file; returns the path of the metadata file."""
        writers = ((ManifestWriterV2, self.data), (DeleteManifestWriter, self.deletes))
        manifests = [self._manifest(writer, files) for writer, files in writers if files]
        listing = self._new(f"snap-{self._snapshot.id}", "avro")
        with write_manifest_list(2, listing, self._snapshot.id, None, _SEQUENCE, _CODEC) as written:
            written.add_manifests(manifests)
        self._written.clear()  # a later failure may leave metadata that names these files
        metadata = self._path(f"v{self._snapshot.id}.metadata.json")
        self._storage.overwrite(metadata, self._metadata(listing.location).encode())
        self._storage.overwrite(self._path("version-hint.text"), str(self._snapshot.id).encode())
        return metadata

    def _manifest(self, writer_class: type[ManifestWriterV2], files: Sequence[DataFile]) -> ManifestFile:
        output = self._new("manifest", "avro")
        with writer_class(self._spec, self._schema, output, self._snapshot.id, _CODEC) as writer:
            for file in files:
                entry = ManifestEntry.from_args(
                    status=ManifestEntryStatus.ADDED,
                    snapshot_id=self._snapshot.id,
                    sequence_number=_SEQUENCE,
                    file_sequence_number=_SEQUENCE,
                    data_file=file,
                )
                writer.add_entry(entry)
        return writer.to_manifest_file()

    def _new(self, name: str, ending: str) -> StoredOutput:
        return StoredOutput(self._storage, self._new_path(name, ending))

    def _path(self, name: str) -> str:
        return f"{self._directory}/metadata/{name}"

    def _new_path(self, name: str, ending: str) -> str:
        self._written.append(self._path(f"{name}-{self._context.random.uuid()}.{ending}"))
        return self._written[-1]

    def _metadata(self, listing: str) -> str:
        snapshot, schema = self._snapshot, self._schema
        names = json.dumps(_name_mapping(self._context, schema))
        content = {
            "format-version": 2,
            "table-uuid": self._context.random.uuid(),
            "location": _uri(self._directory),
            "last-sequence-number": _SEQUENCE,
            "last-updated-ms": snapshot.time_millis,
            "last-column-id": schema.highest_field_id,
            "schemas": [schema.model_dump()],
            "current-schema-id": schema.schema_id,
            "partition-specs": [self._spec.model_dump()],
            "default-spec-id": self._spec.spec_id,
            "last-partition-id": self._spec.last_assigned_field_id,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "default-sort-order-id": 0,
            "properties": {"schema.name-mapping.default": names, "paimon.snapshot-id": str(snapshot.id)},
            "current-snapshot-id": snapshot.id,
            "snapshots": [
                {
                    "snapshot-id": snapshot.id,
                    "sequence-number": _SEQUENCE,
                    "timestamp-ms": snapshot.time_millis,
                    "manifest-list": listing,
                    "summary": {"operation": "overwrite"},
                    "schema-id": schema.schema_id,
                }
            ],
            "snapshot-log": [{"snapshot-id": snapshot.id, "timestamp-ms": snapshot.time_millis}],
            "refs": {"main": {"snapshot-id": snapshot.id, "type": "branch"}},
        }
        return TableMetadataV2.model_validate(content).model_dump_json()


def _file(
    content: DataFileContent,
    path: str,
    partition: Record,
    rows: int,
    size: int,
    lower: dict[int, bytes],
    upper: dict[int, bytes],
) -> DataFile:
    return DataFile.from_args(
        content=content,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=partition,
        record_count=rows,
        file_size_in_bytes=size,
        column_sizes={},
        value_counts={},
        null_value_counts={},
        nan_value_counts={},
        lower_bounds=lower,
        upper_bounds=upper,
        key_metadata=None,
        split_offsets=None,
        equality_ids=None,
        sort_order_id=None,
    )


def _iceberg_schema(context: TableContext) -> Schema:
    for column in context.schema.fields:
        unmapped = next((part for part in column.type.parts() if not _has_counterpart(part)), None)
        if unmapped is not None:
            what = f"column '{column.name}' is {type_to_sql(column.type)}"
            raise NotSupported(what, f"Iceberg (format version 2) cannot read {unmapped.root} from these files")
    found = pyarrow_to_schema(identified_schema(context.schema.fields))
    return Schema(*found.fields, schema_id=context.schema.id)


def _has_counterpart(t: DataType) -> bool:
    """Whether Iceberg reads the type from the same files.

    Iceberg's timestamps are microseconds; Paimon stores a precision below 4 as milliseconds and above 6 as INT96.
    """
    if isinstance(t, TimestampType):
        return 4 <= t.precision <= 6
    return t.root not in UNMAPPED_ROOTS


def _partition_spec(context: TableContext) -> PartitionSpec:
    columns = context.schema.fields_of(context.schema.partition_keys)
    unmapped = next((column for column in columns if column.type.root not in PARTITION_ROOTS), None)
    if unmapped is not None:
        raise NotSupported(f"partition column '{unmapped.name}' is {unmapped.type.root}", "it cannot be exported to Iceberg")
    fields = (
        PartitionField(source_id=c.id, field_id=FIRST_PARTITION_FIELD + position, transform=IdentityTransform(), name=c.name)
        for position, c in enumerate(columns)
    )
    return PartitionSpec(*fields, spec_id=0)


def _partition_values(context: TableContext, partition: bytes) -> Iterator[Any]:
    for value, t in zip(context.partition_values(partition), context.partition_types, strict=True):
        yield value.rstrip(" ") if isinstance(t, StringType) and t.root == "CHAR" and value is not None else value


def _name_mapping(context: TableContext, schema: Schema) -> list[dict[str, Any]]:
    """For files without field ids: the names of each column in all schemas. A name used by two columns maps to the newer one."""
    current: list[dict[str, Any]] = json.loads(create_mapping_from_schema(schema).model_dump_json())
    taken = {name for column in current for name in column["names"]}
    by_id = {column["field-id"]: column for column in current}
    for number in context.schemas.ids():
        for column in context.schemas.named(number).fields:
            if column.id in by_id and column.name not in taken:
                by_id[column.id]["names"].append(column.name)
                taken.add(column.name)
    return current


def _uri(path: str) -> str:
    return f"file://{path}" if path.startswith("/") else path
