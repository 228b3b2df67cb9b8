"""Manifests: which data files a commit added and deleted, with column statistics (FORMAT.md, sections 4.2 and 4.3)."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from paimon_cli.errors import NotSupported
from paimon_cli.metadata.avro_container import (
    damage_errors,
    damaged,
    decode_container,
    encode_container,
    read_value,
    records_of,
    rolled_containers,
)
from paimon_cli.metadata.avro_schema import AvroSchema, array, nullable, record
from paimon_cli.metadata.data_file import SOURCE_APPEND, SOURCE_COMPACT, DataFileMeta, ManifestEntry, SimpleStats
from paimon_cli.metadata.table_layout import plain_name

UNKNOWN_STATS = SimpleStats()
"""What a file without statistics gets: rows of arity 0."""


def stats_schema(name: str) -> AvroSchema:
    return record(name, [("_MIN_VALUES", "bytes"), ("_MAX_VALUES", "bytes"), ("_NULL_COUNTS", nullable(array(nullable("long"))))])


def stats_record(stats: SimpleStats) -> dict[str, Any]:
    counts = None if stats.null_counts is None else list(stats.null_counts)
    return {"_MIN_VALUES": stats.min_values, "_MAX_VALUES": stats.max_values, "_NULL_COUNTS": counts}


def stats_from_record(content: Mapping[str, Any] | None) -> SimpleStats:
    if content is None:
        return UNKNOWN_STATS
    counts = content.get("_NULL_COUNTS")
    return SimpleStats(content["_MIN_VALUES"], content["_MAX_VALUES"], None if counts is None else tuple(counts))


VERSION = 2

_DATA_FILE = record(
    "record__FILE",
    [
        ("_FILE_NAME", "string"),
        ("_FILE_SIZE", "long"),
        ("_ROW_COUNT", "long"),
        ("_MIN_KEY", "bytes"),
        ("_MAX_KEY", "bytes"),
        ("_KEY_STATS", stats_schema("record__FILE__KEY_STATS")),
        ("_VALUE_STATS", stats_schema("record__FILE__VALUE_STATS")),
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
    ],
)
ENTRY = record(
    "record",
    [
        ("_VERSION", "int"),
        ("_KIND", "int"),
        ("_PARTITION", "bytes"),
        ("_BUCKET", "int"),
        ("_TOTAL_BUCKETS", "int"),
        ("_FILE", _DATA_FILE),
    ],
)
_SOURCE_NAMES = {"APPEND": SOURCE_APPEND, "COMPACT": SOURCE_COMPACT}


def encode_manifest(entries: Sequence[ManifestEntry]) -> bytes:
    """One manifest with all entries, in their order."""

    return encode_container(ENTRY, [_entry_record(entry) for entry in entries])


def encode_manifests(entries: Sequence[ManifestEntry], target_size: int) -> Iterator[tuple[bytes, int]]:
    """Manifests of about `target_size` bytes with the number of entries in each."""
    return rolled_containers(ENTRY, [_entry_record(entry) for entry in entries], target_size)


def copied_manifests(records: Sequence[bytes], target_size: int) -> Iterator[tuple[bytes, int]]:
    """Manifests of encoded entries (of schema `ENTRY`), with the number of entries in each."""
    return rolled_containers(ENTRY, records, target_size, are_encoded=True)


def decode_manifest(data: bytes, path: str) -> list[ManifestEntry]:
    """Entries in the order of the file. `DamagedFile` on malformed bytes, `NotSupported` on manifests before version 2."""
    partitions: dict[bytes, bytes] = {}  # the same partition repeats in most entries: keep one object of it
    return [_entry(content, path, partitions) for content in decode_container(data, path, ENTRY)]


def entries_of(blocks: Iterable[tuple[int, bytes]], schema: AvroSchema, path: str) -> list[ManifestEntry]:
    """The entries of decompressed blocks, in a schema that was checked; errors as `decode_manifest`."""
    partitions: dict[bytes, bytes] = {}
    try:
        records = records_of(blocks, schema)
    except damage_errors() as error:
        raise damaged(path, error) from error
    return [_entry(record, path, partitions) for record in records]


def entry_of(encoded: bytes, schema: AvroSchema, path: str) -> ManifestEntry:
    """One entry from its Avro bytes, in a schema that was checked. Errors as `decode_manifest`."""
    try:
        content = read_value(io.BytesIO(encoded), schema)
    except damage_errors() as error:
        raise damaged(path, error) from error
    return _entry(content, path, {})


def _entry(content: dict[str, Any], path: str, partitions: dict[bytes, bytes]) -> ManifestEntry:
    if content["_VERSION"] != VERSION:
        raise NotSupported(
            f"{path} has manifest version {content['_VERSION']}", f"only version {VERSION} can be read", "recreate the table"
        )
    partition = partitions.setdefault(content["_PARTITION"], content["_PARTITION"])
    file = _data_file(content["_FILE"], path)
    return ManifestEntry(content["_KIND"], partition, content["_BUCKET"], content["_TOTAL_BUCKETS"], file)


def _entry_record(entry: ManifestEntry) -> dict[str, Any]:
    return {
        "_VERSION": VERSION,
        "_KIND": entry.kind,
        "_PARTITION": entry.partition,
        "_BUCKET": entry.bucket,
        "_TOTAL_BUCKETS": entry.total_buckets,
        "_FILE": _data_file_record(entry.file),
    }


def _data_file_record(file: DataFileMeta) -> dict[str, Any]:
    return {
        "_FILE_NAME": file.file_name,
        "_FILE_SIZE": file.file_size,
        "_ROW_COUNT": file.row_count,
        "_MIN_KEY": file.min_key,
        "_MAX_KEY": file.max_key,
        "_KEY_STATS": stats_record(file.key_stats),
        "_VALUE_STATS": stats_record(file.value_stats),
        "_MIN_SEQUENCE_NUMBER": file.min_sequence_number,
        "_MAX_SEQUENCE_NUMBER": file.max_sequence_number,
        "_SCHEMA_ID": file.schema_id,
        "_LEVEL": file.level,
        "_EXTRA_FILES": list(file.extra_files),
        "_CREATION_TIME": file.creation_time_millis,
        "_DELETE_ROW_COUNT": file.delete_row_count,
        "_EMBEDDED_FILE_INDEX": file.embedded_file_index,
        "_FILE_SOURCE": file.file_source,
        "_VALUE_STATS_COLS": None if file.value_stats_cols is None else list(file.value_stats_cols),
        "_EXTERNAL_PATH": file.external_path,
        "_FIRST_ROW_ID": file.first_row_id,
        "_WRITE_COLS": None if file.write_cols is None else list(file.write_cols),
    }


def _data_file(content: dict[str, Any], path: str) -> DataFileMeta:
    source = content.get("_FILE_SOURCE")
    return DataFileMeta(
        plain_name(content["_FILE_NAME"], path),
        content["_FILE_SIZE"],
        content["_ROW_COUNT"],
        content["_MIN_KEY"],
        content["_MAX_KEY"],
        stats_from_record(content["_KEY_STATS"]),
        stats_from_record(content["_VALUE_STATS"]),
        content["_MIN_SEQUENCE_NUMBER"],
        content["_MAX_SEQUENCE_NUMBER"],
        content["_SCHEMA_ID"],
        content["_LEVEL"],
        tuple(plain_name(name, path) for name in content.get("_EXTRA_FILES") or ()),
        content.get("_CREATION_TIME"),
        content.get("_DELETE_ROW_COUNT"),
        content.get("_EMBEDDED_FILE_INDEX"),
        _SOURCE_NAMES.get(source) if isinstance(source, str) else source,
        _names(content.get("_VALUE_STATS_COLS")),
        content.get("_EXTERNAL_PATH"),
        content.get("_FIRST_ROW_ID"),
        _names(content.get("_WRITE_COLS")),
    )


def _names(listed: list[str] | None) -> tuple[str, ...] | None:
    return None if listed is None else tuple(listed)
