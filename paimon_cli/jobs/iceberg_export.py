"""Iceberg metadata (version 2) for one snapshot, over the table's own data files: `export iceberg`.

Only what can be read without a merge is exported. Rows that deletion vectors mark go into position delete files, which every
reader of version 2 knows. Columns keep their field ids; a name mapping stands in where a file has none.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.parquet as pq

from paimon_cli.bucket.data_file_reader import decoding, file_format
from paimon_cli.bucket.deletion_vectors import load_vectors
from paimon_cli.datatypes.arrow_types import identified_schema
from paimon_cli.datatypes.data_type import DataType, StringType, TimestampType
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.errors import NotFound, NotSupported, Refused, UsageError, undone_on_failure
from paimon_cli.history.live_files import BucketFiles
from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants.foreign_reads import retractions
from paimon_cli.metadata.data_file import DataFileMeta
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_layout import MAIN_BRANCH
from paimon_cli.read.pruning import TableBounds
from paimon_cli.read.scan_plan import Split, plan_scan
from paimon_cli.storage.storage import Storage, delete_all, open_sized

try:
    from pyiceberg.io import InputFile, OutputFile
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
    from pyiceberg.typedef import Record
    from pyiceberg.types import PrimitiveType
except ImportError as error:
    raise UsageError("the package pyiceberg is not installed", str(error), "pip install 'paimon-cli[iceberg]'") from None


STORAGE = "metadata.iceberg.storage"
SEQUENCE = 1
"""The sequence number of the only Iceberg snapshot: its deletes apply to data files of the same number."""
FIRST_PARTITION_FIELD = 1000
CODEC: Final = "deflate"
UNMAPPED_ROOTS = {"TIME", "VARIANT", "BLOB", "GEOMETRY", "GEOGRAPHY", "MULTISET", "VECTOR"}
PARTITION_ROOTS = {"BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "DATE", "CHAR", "VARCHAR", "DECIMAL"}
BOUNDED_ROOTS = {"TINYINT", "SMALLINT", "INT", "BIGINT", "DATE", "VARCHAR"}
DELETES_SCHEMA = pa.schema(
    [
        pa.field("file_path", pa.string(), False, {"PARQUET:field_id": "2147483546"}),
        pa.field("pos", pa.int64(), False, {"PARQUET:field_id": "2147483545"}),
    ]
)


@dataclass(frozen=True)
class IcebergExport:
    """What was written: the metadata file, and how many data files and position delete files it names."""

    metadata: str
    snapshot_id: int
    format_version: int
    files: int
    rows: int
    delete_files: int
    deleted_rows: int
    size: int


@dataclass
class _Exported:
    """What the manifests will name."""

    data: list[DataFile] = field(default_factory=list)
    deletes: list[DataFile] = field(default_factory=list)


@dataclass(frozen=True)
class OutputPlace:
    """Where metadata goes: a directory of a storage."""

    storage: Storage
    directory: str

    def path(self, name: str) -> str:
        return f"{self.directory.rstrip('/')}/metadata/{name}"


def export_iceberg(context: TableContext, snapshot: Snapshot | None, place: OutputPlace) -> IcebergExport:
    """Write metadata to `place`, as `metadata/vN.metadata.json` of snapshot N.

    `Refused` where Iceberg readers would see wrong rows, `NotSupported` for types and formats that they do not have.
    """
    if snapshot is None:
        hint = f"paimon-cli write {context.layout.argument} FILE"
        raise NotFound(f"{context.url} has no snapshot", "nothing was ever committed to it", hint)
    if place.directory == context.layout.root:
        _check_own_directory(context)
    writer = _Writer(context, snapshot, place)
    splits = plan_scan(context, snapshot).splits
    _check_splits(context, splits)
    _check_names(context, splits)
    with undone_on_failure(writer.remove):
        for split in splits:
            writer.add(split.bucket)
        return writer.finish()


def _check_own_directory(context: TableContext) -> None:
    """Refuse to write where metadata of another origin may lie."""
    storage, why = context.options.raw.get(STORAGE, "disabled"), ""
    if storage != "disabled":
        why = f"with {STORAGE}={storage} its writers keep Iceberg metadata of their own there"
    elif context.layout.branch != MAIN_BRANCH:
        why = "the metadata of main belongs there, and snapshots of branches have the same numbers"
    if why:
        raise Refused(f"no metadata is written into {context.url}", why, "name another directory with --output-path")


def _check_splits(context: TableContext, splits: Sequence[Split]) -> None:
    """Refuse what readers of plain files would see in another way than we do."""
    what, hint = f"{context.url} cannot be exported", f"paimon-cli compact {context.layout.argument} --strategy full"
    if context.mode.merges_postponed:
        raise Refused(what, "rows that wait for their buckets are merged when they are read", hint)
    for split in splits:
        path = context.bucket_path(*split.bucket.bucket_id)
        if split.needs_merge:
            raise Refused(what, f"files of {path} hold several versions of a key", hint)
        for file in split.bucket.files:
            if (form := file_format(file.file_name)) != "parquet":
                raise NotSupported(f"data file {file.file_name} is {form}", "only Parquet files are exported to Iceberg")
            if context.schema.primary_keys and retractions(context, split.bucket, file):
                raise Refused(what, f"a file of {path} holds rows that delete their keys", hint)


def _check_names(context: TableContext, splits: Sequence[Split]) -> None:
    """Refuse a name that a new column took over: in files without field ids it would show values of the old column."""
    owners: dict[str, set[int]] = {}
    for number in context.schemas.ids():
        for column in context.schemas.get(number).fields:
            owners.setdefault(column.name, set()).add(column.id)
    if all(len(ids) == 1 for ids in owners.values()):
        return
    for split in splits:
        for file in split.bucket.files:
            path = context.data_file_path(*split.bucket.bucket_id, file)
            with decoding(path), open_sized(context.storage, path, file.file_size) as source:
                stored = pq.ParquetFile(source).schema_arrow
            if any(b"PARQUET:field_id" not in (column.metadata or {}) for column in stored):
                why = "a name was used for two columns, and only field ids could tell them apart"
                raise NotSupported(f"data file {file.file_name} has no field ids", why)


class StoredOutput(OutputFile):
    """A new file of our storage, as pyiceberg writes one."""

    def __init__(self, storage: Storage, location: str) -> None:
        super().__init__(_uri(location))
        self._storage = storage
        self._path = location

    def __len__(self) -> int:
        return self._storage.file_size(self._path)

    def exists(self) -> bool:
        return self._storage.exists(self._path)

    def to_input_file(self) -> InputFile:
        raise NotImplementedError("files are written and not read")

    def create(self, overwrite: bool = False) -> BinaryIO:
        return self._storage.open_output(self._path)


class DeleteManifestWriter(ManifestWriterV2):
    """pyiceberg writes manifests of data files alone."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class _Writer:
    """Collects the files of the snapshot, then writes manifests, their list, and the metadata."""

    def __init__(self, context: TableContext, snapshot: Snapshot, place: OutputPlace) -> None:
        self._context = context
        self._snapshot = snapshot
        self._place = place
        self._schema = _iceberg_schema(context)
        self._spec = _partition_spec(context)
        self._bounds = TableBounds(context)
        self._exported = _Exported()
        self._size = 0
        self._written: list[str] = []

    def remove(self) -> None:
        """Delete what was written, but for the metadata file and its hint, which come last."""
        delete_all(self._place.storage, self._written)

    def add(self, bucket: BucketFiles) -> None:
        """The files of a split, and what vectors mark in them."""
        partition = Record(*_partition_values(self._context, bucket.partition))
        vectors = load_vectors(self._context, bucket)
        for file in bucket.files:
            path = _uri(self._context.data_file_path(*bucket.bucket_id, file))
            self._exported.data.append(self._data_file(bucket, file, path, partition))
            self._size += file.file_size
            vector = vectors.of(file.file_name)
            if vector is not None and len(vector.positions):
                self._exported.deletes.append(self._delete_file(path, list(vector.positions), partition))

    def _data_file(self, bucket: BucketFiles, file: DataFileMeta, path: str, partition: Record) -> DataFile:
        lower, upper = self._bounds_of(bucket, file)
        return _file(DataFileContent.DATA, path, partition, file.row_count, file.file_size, lower, upper)

    def _bounds_of(self, bucket: BucketFiles, file: DataFileMeta) -> tuple[dict[int, bytes], dict[int, bytes]]:
        """Bounds by field id, of the types for which both formats mean the same."""
        from pyiceberg.conversions import to_bytes

        bounds_of = self._bounds.of_file(bucket.partition, bucket.bucket, file)
        lower: dict[int, bytes] = {}
        upper: dict[int, bytes] = {}
        for one in self._context.schema.fields:
            known = bounds_of(one.name) if one.type.root in BOUNDED_ROOTS else None
            t = self._schema.find_field(one.id).field_type
            if known is None or not isinstance(t, PrimitiveType):
                continue
            if known.low is not None:
                lower[one.id] = to_bytes(t, known.low)
            if known.high is not None:
                upper[one.id] = to_bytes(t, known.high)
        return lower, upper

    def _delete_file(self, path: str, positions: Sequence[int], partition: Record) -> DataFile:
        location, storage = self._new_path("deletes", "parquet"), self._place.storage
        rows = pa.table({"file_path": [path] * len(positions), "pos": sorted(positions)}, schema=DELETES_SCHEMA)
        with storage.open_output(location) as sink:
            pq.write_table(rows, sink)
        size = storage.file_size(location)
        same = {2147483546: path.encode()}
        return _file(DataFileContent.POSITION_DELETES, _uri(location), partition, len(positions), size, same, same)

    def finish(self) -> IcebergExport:
        manifests = []
        for kind, named in ((ManifestWriterV2, self._exported.data), (DeleteManifestWriter, self._exported.deletes)):
            if named:
                manifests.append(self._manifest(kind, named))
        listing = self._new(f"snap-{self._snapshot.id}", "avro")
        with write_manifest_list(2, listing, self._snapshot.id, None, SEQUENCE, CODEC) as written:
            written.add_manifests(manifests)
        deleted = sum(one.record_count for one in self._exported.deletes)
        metadata = self._place.path(f"v{self._snapshot.id}.metadata.json")
        self._place.storage.overwrite(metadata, self._metadata(listing.location).encode())
        self._place.storage.overwrite(self._place.path("version-hint.text"), str(self._snapshot.id).encode())
        rows = sum(one.record_count for one in self._exported.data) - deleted
        files = len(self._exported.data)
        return IcebergExport(metadata, self._snapshot.id, 2, files, rows, len(self._exported.deletes), deleted, self._size)

    def _manifest(self, kind: type[ManifestWriterV2], files: Sequence[DataFile]) -> ManifestFile:
        output = self._new("manifest", "avro")
        with kind(self._spec, self._schema, output, self._snapshot.id, CODEC) as writer:
            for one in files:
                entry = ManifestEntry.from_args(
                    status=ManifestEntryStatus.ADDED,
                    snapshot_id=self._snapshot.id,
                    sequence_number=SEQUENCE,
                    file_sequence_number=SEQUENCE,
                    data_file=one,
                )
                writer.add_entry(entry)
        return writer.to_manifest_file()

    def _new(self, name: str, ending: str) -> StoredOutput:
        return StoredOutput(self._place.storage, self._new_path(name, ending))

    def _new_path(self, name: str, ending: str) -> str:
        self._written.append(self._place.path(f"{name}-{self._context.random.uuid()}.{ending}"))
        return self._written[-1]

    def _metadata(self, listing: str) -> str:
        from pyiceberg.table.metadata import TableMetadataV2

        snapshot, schema = self._snapshot, self._schema
        names = json.dumps(_name_mapping(self._context, schema))
        content = {
            "format-version": 2,
            "table-uuid": self._context.random.uuid(),
            "location": _uri(self._place.directory),
            "last-sequence-number": SEQUENCE,
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
                    "sequence-number": SEQUENCE,
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
    from pyiceberg.io.pyarrow import pyarrow_to_schema

    for column in context.schema.fields:
        wrong = next((part for part in column.type.parts() if not _has_counterpart(part)), None)
        if wrong is not None:
            what = f"column '{column.name}' is {type_to_sql(column.type)}"
            raise NotSupported(what, f"Iceberg's version 2 has no {wrong.root} of this kind, or not with the same files")
    found = pyarrow_to_schema(identified_schema(context.schema.fields))
    return Schema(*found.fields, schema_id=context.schema.id)


def _has_counterpart(t: DataType) -> bool:
    """Timestamps are micros in Iceberg; Paimon stores fewer digits as millis, and more in 96 bits."""
    if isinstance(t, TimestampType):
        return 4 <= t.precision <= 6
    return t.root not in UNMAPPED_ROOTS


def _partition_spec(context: TableContext) -> PartitionSpec:
    from pyiceberg.transforms import IdentityTransform

    columns = context.schema.fields_of(context.schema.partition_keys)
    wrong = next((one for one in columns if one.type.root not in PARTITION_ROOTS), None)
    if wrong is not None:
        raise NotSupported(f"partition column '{wrong.name}' is {wrong.type.root}", "it cannot be exported to Iceberg")
    fields = (
        PartitionField(source_id=one.id, field_id=FIRST_PARTITION_FIELD + place, transform=IdentityTransform(), name=one.name)
        for place, one in enumerate(columns)
    )
    return PartitionSpec(*fields, spec_id=0)


def _partition_values(context: TableContext, partition: bytes) -> Iterator[Any]:
    for value, t in zip(context.partition_values(partition), context.partition_types, strict=True):
        yield value.rstrip(" ") if isinstance(t, StringType) and t.root == "CHAR" and value is not None else value


def _name_mapping(context: TableContext, schema: Schema) -> list[dict[str, Any]]:
    """For files without field ids: each column's names in all schemas. A name that two columns had belongs to the newer."""
    from pyiceberg.table.name_mapping import create_mapping_from_schema

    current = json.loads(create_mapping_from_schema(schema).model_dump_json())
    taken = {name for one in current for name in one["names"]}
    by_id = {one["field-id"]: one for one in current}
    for number in context.schemas.ids():
        for column in context.schemas.get(number).fields:
            if column.id in by_id and column.name not in taken:
                by_id[column.id]["names"].append(column.name)
                taken.add(column.name)
    found: list[dict[str, Any]] = current
    return found


def _uri(path: str) -> str:
    return f"file://{path}" if path.startswith("/") else path
