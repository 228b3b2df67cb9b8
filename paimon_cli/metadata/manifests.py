"""Encodes and decodes manifests, manifest lists and index manifests.

A manifest lists the data files that commits added and deleted, a manifest list the manifests of a snapshot. Records have the
fields of the classes in `metadata/data_file`, in the same order (FORMAT.md, sections 4.2 to 4.5; Java ManifestEntrySerializer,
ManifestFileMetaSerializer, IndexManifestEntrySerializer).
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from operator import attrgetter, itemgetter
from typing import Any

from paimon_cli.errors import DamagedFile, NotSupported, PaimonError
from paimon_cli.metadata.avro_reader import damage_errors, damaged, decode_container, read_value, records_of
from paimon_cli.metadata.avro_writer import (
    AvroSchema,
    RecordSchema,
    array,
    encode_container,
    encode_value,
    nullable,
    record,
    rolled_containers,
)
from paimon_cli.metadata.data_file import (
    DELETION_VECTORS,
    HASH,
    SORTED_INDEXES,
    SOURCE_APPEND,
    SOURCE_COMPACT,
    DataFileMeta,
    DeletionVectorRange,
    IndexFileMeta,
    IndexManifestEntry,
    ManifestEntry,
    ManifestFileMeta,
    SimpleStats,
)
from paimon_cli.metadata.possible_values import entry_faults, file_faults, index_faults, manifest_faults, refuse
from paimon_cli.metadata.table_layout import check_plain_names

MANIFEST_VERSION, _INDEX_VERSION = 2, 1
LISTS_PROPERTY = "paimon-cli.manifest-lists"
_MAX_COPIED, _MAX_DECOMPRESSED = 4096, 1 << 18
"""Limits of `LISTS_PROPERTY`: characters of all its lists together, and bytes that one of them may decompress to."""
_NO_STATS = SimpleStats()
"""Of a file without statistics."""


_STATS = [("_MIN_VALUES", "bytes"), ("_MAX_VALUES", "bytes"), ("_NULL_COUNTS", nullable(array(nullable("long"))))]

_FILE = [
    ("_FILE_NAME", "string"),
    ("_FILE_SIZE", "long"),
    ("_ROW_COUNT", "long"),
    ("_MIN_KEY", "bytes"),
    ("_MAX_KEY", "bytes"),
    ("_KEY_STATS", record("record__FILE__KEY_STATS", _STATS)),
    ("_VALUE_STATS", record("record__FILE__VALUE_STATS", _STATS)),
    ("_MIN_SEQUENCE_NUMBER", "long"),
    ("_MAX_SEQUENCE_NUMBER", "long"),
    ("_SCHEMA_ID", "long"),
    ("_LEVEL", "int"),
    ("_EXTRA_FILES", array("string")),
    ("_CREATION_TIME", nullable({"type": "long", "logicalType": "timestamp-millis"})),
    ("_DELETE_ROW_COUNT", nullable("long")),
    ("_EMBEDDED_FILE_INDEX", nullable("bytes")),
    ("_FILE_SOURCE", nullable("int")),
    ("_VALUE_STATS_COLS", nullable(array("string"))),
    ("_EXTERNAL_PATH", nullable("string")),
    ("_FIRST_ROW_ID", nullable("long")),
    ("_WRITE_COLS", nullable(array("string"))),
]
_ENTRY_FIELDS = [
    ("_VERSION", "int"),
    ("_KIND", "int"),
    ("_PARTITION", "bytes"),
    ("_BUCKET", "int"),
    ("_TOTAL_BUCKETS", "int"),
    ("_FILE", record("record__FILE", _FILE)),
]
_MANIFEST = [
    ("_FILE_NAME", "string"),
    ("_FILE_SIZE", "long"),
    ("_NUM_ADDED_FILES", "long"),
    ("_NUM_DELETED_FILES", "long"),
    ("_PARTITION_STATS", record("record__PARTITION_STATS", _STATS)),
    ("_SCHEMA_ID", "long"),
    ("_MIN_BUCKET", nullable("int")),
    ("_MAX_BUCKET", nullable("int")),
    ("_MIN_LEVEL", nullable("int")),
    ("_MAX_LEVEL", nullable("int")),
]
_VECTOR_RANGE = [("f0", "string"), ("f1", "int"), ("f2", "int"), ("_CARDINALITY", nullable("long"))]
_INDEX_FILE = [
    ("_INDEX_TYPE", "string"),
    ("_FILE_NAME", "string"),
    ("_FILE_SIZE", "long"),
    ("_ROW_COUNT", "long"),
    ("_DELETIONS_VECTORS_RANGES", nullable(array(nullable(record("record__DELETIONS_VECTORS_RANGES", _VECTOR_RANGE))))),
    ("_EXTERNAL_PATH", nullable("string")),
]
_INDEX_ENTRY_FIELDS = [("_VERSION", "int"), ("_KIND", "int"), ("_PARTITION", "bytes"), ("_BUCKET", "int"), *_INDEX_FILE]

ENTRY = RecordSchema(record("record", _ENTRY_FIELDS))
_LIST_ENTRY = RecordSchema(record("record", [("_VERSION", "int"), *_MANIFEST]))
_INDEX_ENTRY = RecordSchema(record("record", _INDEX_ENTRY_FIELDS))
_SOURCE_NAMES, _NO_SOURCE = {"APPEND": SOURCE_APPEND, "COMPACT": SOURCE_COMPACT}, -1


def _columns(kind: type, columns: Sequence[tuple[str, AvroSchema]]) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]:
    return tuple(name for name, _ in columns), attrgetter(*(field.name for field in fields(kind)))


_COLUMNS = {
    SimpleStats: _columns(SimpleStats, _STATS),
    DataFileMeta: _columns(DataFileMeta, _FILE),
    ManifestFileMeta: _columns(ManifestFileMeta, _MANIFEST),
    IndexFileMeta: _columns(IndexFileMeta, _INDEX_FILE),
    DeletionVectorRange: _columns(DeletionVectorRange, _VECTOR_RANGE),
}
"""Class -> names of its Avro fields, and a getter of the attributes in the same order."""


def _required(columns: Sequence[tuple[str, AvroSchema]]) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    """A getter of the plain values that must not be null, although the schema of another writer may allow it."""
    return itemgetter(*(name for name, kind in columns if isinstance(kind, str)))


_REQUIRED_OF_STATS, _REQUIRED_OF_FILE, _REQUIRED_OF_ENTRY = map(_required, (_STATS, _FILE, _ENTRY_FIELDS))
_REQUIRED_OF_MANIFEST = _required([("_VERSION", "int"), *_MANIFEST])
_REQUIRED_OF_INDEX, _REQUIRED_OF_RANGE = map(_required, (_INDEX_ENTRY_FIELDS, _VECTOR_RANGE))
_PRIMITIVES = {int, str, bytes, type(None)}


def _record_of(value: object) -> dict[str, Any]:
    names, values_of = _COLUMNS[type(value)]
    return {
        name: content if type(content) in _PRIMITIVES else _avro_value(content)
        for name, content in zip(names, values_of(value), strict=True)
    }


def _avro_value(content: object) -> object:
    """The value for fastavro, with lists for tuples: it interprets a tuple as the explicit branch of a union."""
    if isinstance(content, tuple):
        return [item if type(item) in _PRIMITIVES else _avro_value(item) for item in content]
    return _record_of(content) if type(content) in _COLUMNS else content


def _fields_of(kind: type, content: Mapping[str, Any]) -> Iterator[Any]:
    """The attributes of `kind` in order; None for those that the record lacks."""
    return map(content.get, _COLUMNS[kind][0])


def _expect_version(found: int, version: int, what: str, path: str) -> None:
    """A version may be older or newer than what this program reads, but there never was one below 1."""
    if found == version:
        return
    if found < 1:
        raise DamagedFile(f"{path} is damaged", f"it has {what} version {found}", path=path)
    raise NotSupported(f"{path} has {what} version {found}", f"only version {version} can be read", path=path)


def _refuse_nulls(values: tuple[Any, ...], path: str) -> None:
    if None in values:
        raise DamagedFile(f"{path} is damaged", "a record has a null where a value is required", path=path)


def _stats_of(content: Mapping[str, Any] | None, path: str) -> SimpleStats:
    if content is None:
        return _NO_STATS
    _refuse_nulls(_REQUIRED_OF_STATS(content), path)
    least, greatest, counts = _fields_of(SimpleStats, content)
    return SimpleStats(least, greatest, None if counts is None else tuple(counts))


def encode_manifests(entries: Sequence[ManifestEntry], target_size: int) -> Iterator[tuple[bytes, int]]:
    """Encode entries as manifests of about `target_size` bytes; yields (content, number of entries)."""
    return rolled_containers(ENTRY, [_entry_record(entry) for entry in entries], target_size)


def copied_manifests(records: Sequence[bytes], target_size: int) -> Iterator[tuple[bytes, int]]:
    """The same as `encode_manifests`, for entries that are already encoded in schema `ENTRY`."""
    return rolled_containers(ENTRY, records, target_size, are_encoded=True)


def _entry_record(entry: ManifestEntry) -> dict[str, Any]:
    return {**_head(MANIFEST_VERSION, entry), "_TOTAL_BUCKETS": entry.total_buckets, "_FILE": _record_of(entry.file)}


def _head(version: int, entry: ManifestEntry | IndexManifestEntry) -> dict[str, Any]:
    return {"_VERSION": version, "_KIND": entry.kind, "_PARTITION": entry.partition, "_BUCKET": entry.bucket}


def decode_manifest(data: bytes, path: str) -> list[ManifestEntry]:
    """Entries in the order of the file. Raises `DamagedFile` for malformed bytes and impossible values.

    Raises `NotSupported` for versions other than 2.
    """
    return _entries(decode_container(data, path, ENTRY), path)


def entries_of(blocks: Iterable[tuple[int, bytes]], schema: RecordSchema, path: str) -> list[ManifestEntry]:
    """The entries of decompressed blocks in a checked schema. Raises what `decode_manifest` does."""
    try:
        records = records_of(blocks, schema)
    except damage_errors() as error:
        raise damaged(path, error) from error
    return _entries(records, path)


def entry_of(encoded: bytes, schema: RecordSchema, path: str) -> ManifestEntry:
    """One entry from its Avro bytes in a checked schema. Raises what `decode_manifest` does."""
    try:
        content = read_value(io.BytesIO(encoded), schema.item)
    except damage_errors() as error:
        raise damaged(path, error) from error
    return _entries([content], path)[0]


def _entries(records: Sequence[dict[str, Any]], path: str) -> list[ManifestEntry]:
    partitions: dict[bytes, bytes] = {}  # most entries repeat a partition: share one object
    entries = [_entry(record, path, partitions) for record in records]
    check_plain_names((name for entry in entries for name in (entry.file.file_name, *entry.file.extra_files)), path)
    return entries


def _entry(content: dict[str, Any], path: str, partitions: dict[bytes, bytes]) -> ManifestEntry:
    _refuse_nulls(_REQUIRED_OF_ENTRY(content), path)
    _expect_version(content["_VERSION"], MANIFEST_VERSION, "manifest", path)
    partition = partitions.setdefault(content["_PARTITION"], content["_PARTITION"])
    file = _data_file(content["_FILE"], path)
    kind, bucket, total = content["_KIND"], content["_BUCKET"], content["_TOTAL_BUCKETS"]
    low, high = file.min_sequence_number, file.max_sequence_number
    numbers = entry_faults(kind, bucket, total, file.level, file.file_size, file.row_count, low, high, file.schema_id)
    faults = {**numbers, **file_faults(content["_FILE"])}
    if True in faults.values():
        refuse(faults, {**content["_FILE"], **content}, path, file.file_name)
    return ManifestEntry(kind, partition, bucket, total, file)


def _data_file(content: dict[str, Any] | None, path: str) -> DataFileMeta:
    if content is None:
        raise DamagedFile(f"{path} is damaged", "a record has no file", path=path)
    _refuse_nulls(_REQUIRED_OF_FILE(content), path)
    source = content.get("_FILE_SOURCE")
    listed, written = content.get("_VALUE_STATS_COLS"), content.get("_WRITE_COLS")
    content |= {
        "_DELETE_ROW_COUNT": content.get("_DELETE_ROW_COUNT"),
        "_FIRST_ROW_ID": content.get("_FIRST_ROW_ID"),
        "_KEY_STATS": _stats_of(content["_KEY_STATS"], path),
        "_VALUE_STATS": _stats_of(content["_VALUE_STATS"], path),
        "_EXTRA_FILES": tuple(content.get("_EXTRA_FILES") or ()),
        "_FILE_SOURCE": _SOURCE_NAMES.get(source, _NO_SOURCE) if isinstance(source, str) else source,
        "_VALUE_STATS_COLS": None if listed is None else tuple(listed),
        "_WRITE_COLS": None if written is None else tuple(written),
    }
    return DataFileMeta(*_fields_of(DataFileMeta, content))


def encode_manifest_list(manifests: Sequence[ManifestFileMeta]) -> bytes:
    """The content of a manifest list; an empty one is a valid file, too."""
    return encode_container(_LIST_ENTRY, [_list_record(meta) for meta in manifests])


def _list_record(meta: ManifestFileMeta) -> dict[str, Any]:
    return {"_VERSION": MANIFEST_VERSION, **_record_of(meta)}


def decode_manifest_list(data: bytes, path: str) -> list[ManifestFileMeta]:
    """Manifests in the order of the file. Raises `DamagedFile` for malformed bytes and impossible values.

    Raises `NotSupported` for versions other than 2.
    """
    return _list_entries(decode_container(data, path, _LIST_ENTRY), path)


def _list_entries(records: Iterable[dict[str, Any]], path: str) -> list[ManifestFileMeta]:
    manifests = []
    for content in records:
        _refuse_nulls(_REQUIRED_OF_MANIFEST(content), path)
        _expect_version(content["_VERSION"], MANIFEST_VERSION, "manifest", path)
        content["_PARTITION_STATS"] = _stats_of(content["_PARTITION_STATS"], path)
        refuse(manifest_faults(content), content, path, content["_FILE_NAME"])
        manifests.append(ManifestFileMeta(*_fields_of(ManifestFileMeta, content)))
    check_plain_names((meta.file_name for meta in manifests), path)
    return manifests


def lists_property(lists: Mapping[str, Sequence[ManifestFileMeta]]) -> dict[str, str]:
    """The snapshot property with copies of its short manifest lists, which saves fetching them (FORMAT.md, section 3.2)."""
    copied: dict[str, str] = {}
    for name, manifests in lists.items():
        records = encode_value(_LIST_ENTRY.items, [_list_record(meta) for meta in manifests])
        text = base64.b64encode(zlib.compress(records)).decode()
        if sum(map(len, copied.values())) + len(text) <= _MAX_COPIED:
            copied[name] = text
    return {LISTS_PROPERTY: json.dumps(copied, separators=(",", ":"))} if copied else {}


def inlined_lists(properties: Mapping[str, str] | None) -> dict[str, list[ManifestFileMeta]]:
    """The manifest lists copied into the snapshot's properties, by name; empty if the property is missing or malformed."""
    text = (properties or {}).get(LISTS_PROPERTY)
    if text is None:
        return {}
    with contextlib.suppress(AttributeError, PaimonError, *damage_errors()):
        return {name: _unpacked_list(packed) for name, packed in json.loads(text).items()}
    return {}


def _unpacked_list(packed: str) -> list[ManifestFileMeta]:
    records = zlib.decompressobj().decompress(base64.b64decode(packed, validate=True), _MAX_DECOMPRESSED)
    return _list_entries(read_value(io.BytesIO(records), _LIST_ENTRY.items), LISTS_PROPERTY)


def encode_index_manifest(entries: Sequence[IndexManifestEntry]) -> bytes:
    """The content of an index manifest, which lists all index files of a snapshot; an empty one is a valid file, too.

    Raises `NotSupported` for indexes that only help to find rows, of which the entries hold more than is read here.
    """
    for entry in entries:
        if entry.index_file.only_finds_rows:
            raise index_not_kept(entry)
    records = [{**_head(_INDEX_VERSION, entry), **_record_of(entry.index_file)} for entry in entries]
    return encode_container(_INDEX_ENTRY, records)


def index_not_kept(entry: IndexManifestEntry) -> NotSupported:
    """The error about a commit that would leave an index behind by which other engines find rows: they would miss some."""
    what = f"index {entry.index_file.file_name} of type {entry.index_file.index_type} cannot be kept in a new snapshot"
    return NotSupported(what, "its files are not kept up to date here", "write to the table with the engine that made it")


def decode_index_manifest(data: bytes, path: str) -> list[IndexManifestEntry]:
    """Entries in the order of the file. Raises `DamagedFile` for malformed bytes and impossible values.

    What an entry means is decided by its type; one of another type with a description of a global index only helps to find rows.
    Raises `NotSupported` for unknown types without it, for others with it, and for versions other than 1.
    """
    entries = []
    for content in decode_container(data, path, _INDEX_ENTRY):
        _refuse_nulls(_REQUIRED_OF_INDEX(content), path)
        _expect_version(content["_VERSION"], _INDEX_VERSION, "index manifest", path)
        index_type, is_global = content["_INDEX_TYPE"], content.get("_GLOBAL_INDEX") is not None
        if is_global and index_type in (DELETION_VECTORS, HASH):
            raise NotSupported(f"{path} has a global index of type {index_type}", "indexes of this type belong to one bucket")
        if not is_global and index_type not in (DELETION_VECTORS, HASH, *SORTED_INDEXES):
            raise NotSupported(f"{path} has an index of type {index_type!r}", "this type is not supported")
        content["_DELETIONS_VECTORS_RANGES"] = _vector_ranges(content.get("_DELETIONS_VECTORS_RANGES"), path)
        refuse(index_faults(content), content, path, content["_FILE_NAME"])
        file = IndexFileMeta(*_fields_of(IndexFileMeta, content))
        entries.append(IndexManifestEntry(content["_KIND"], content["_PARTITION"], content["_BUCKET"], file))
    files = [entry.index_file for entry in entries]
    check_plain_names((file.file_name for file in files), path)
    check_plain_names((marked.data_file_name for file in files for marked in file.deletion_vector_ranges or ()), path)
    return entries


def _vector_ranges(listed: list[dict[str, Any] | None] | None, path: str) -> tuple[DeletionVectorRange, ...] | None:
    if listed is None:
        return None
    for item in listed:
        if item is not None:
            _refuse_nulls(_REQUIRED_OF_RANGE(item), path)
    return tuple(DeletionVectorRange(*_fields_of(DeletionVectorRange, item)) for item in listed if item is not None)
