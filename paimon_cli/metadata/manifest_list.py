"""Manifest lists, the manifests of a snapshot with counts and ranges for pruning; and index manifests, its index files.

See FORMAT.md, sections 4.4 and 4.5 (Java ManifestFileMeta, IndexManifestEntrySerializer).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from paimon_cli.datatypes.binary_row import deserialize_row, serialize_row
from paimon_cli.datatypes.data_type import DataType
from paimon_cli.errors import NotSupported
from paimon_cli.metadata.avro_container import decode_container, encode_container
from paimon_cli.metadata.avro_schema import array, nullable, record
from paimon_cli.metadata.data_file import DeletionVectorRange, IndexFileMeta, IndexManifestEntry, ManifestFileMeta, SimpleStats
from paimon_cli.metadata.manifest_file import stats_from_record, stats_record, stats_schema
from paimon_cli.metadata.table_layout import plain_name


def partition_stats(partitions: Iterable[bytes], types: Sequence[DataType]) -> SimpleStats:
    """Least and greatest value of each partition column, and how many entries have none; one item per entry."""

    counts: dict[bytes, int] = {}
    for partition in partitions:
        counts[partition] = counts.get(partition, 0) + 1
    rows = [(deserialize_row(partition, types), count) for partition, count in counts.items()]
    least, greatest, nulls = [], [], []
    for column in range(len(types)):
        present = [row[column] for row, _ in rows if row[column] is not None]
        least.append(min(present, key=_order, default=None))
        greatest.append(max(present, key=_order, default=None))
        nulls.append(sum(count for row, count in rows if row[column] is None))
    return SimpleStats(serialize_row(least, types), serialize_row(greatest, types), tuple(nulls))


@dataclass(frozen=True)
class PartitionRange:
    """Decoded statistics of one manifest: per column least, greatest (None = unknown) and null count (None = unknown)."""

    least: tuple[Any, ...]
    greatest: tuple[Any, ...]
    null_counts: tuple[int | None, ...]

    @staticmethod
    def of(stats: SimpleStats, types: Sequence[DataType]) -> PartitionRange | None:
        """None if the statistics are missing or of another arity."""
        try:
            least, greatest = deserialize_row(stats.min_values, types), deserialize_row(stats.max_values, types)
        except ValueError:
            return None
        nulls = stats.null_counts if stats.null_counts is not None else (None,) * len(types)
        return PartitionRange(least, greatest, nulls) if len(nulls) == len(types) else None

    def may_hold(self, values: Sequence[Any]) -> bool:
        """Whether a partition of these values can be in the manifest."""
        return all(map(self._column_may_hold, range(len(values)), values))

    def _column_may_hold(self, column: int, value: Any) -> bool:
        least, greatest = self.least[column], self.greatest[column]
        if value is None:
            return self.null_counts[column] != 0
        if least is None or greatest is None:
            return True
        return bool(_order(least) <= _order(value) <= _order(greatest))


def may_hold_any(stats: SimpleStats, types: Sequence[DataType], partitions: Iterable[Sequence[Any]]) -> bool:
    """Whether a manifest with these statistics can hold an entry of one of the partitions (their values)."""
    known = PartitionRange.of(stats, types)
    return any(known is None or known.may_hold(values) for values in partitions)


def _order(value: Any) -> Any:
    """NaN is the greatest number and -0.0 equals 0.0: enough to prune by."""
    return (value != value, 0.0 if value != value else value) if isinstance(value, float) else value


VERSION = 2

_LINE = record(
    "record",
    [
        ("_VERSION", "int"),
        ("_FILE_NAME", "string"),
        ("_FILE_SIZE", "long"),
        ("_NUM_ADDED_FILES", "long"),
        ("_NUM_DELETED_FILES", "long"),
        ("_PARTITION_STATS", stats_schema("record__PARTITION_STATS")),
        ("_SCHEMA_ID", "long"),
        ("_MIN_BUCKET", nullable("int")),
        ("_MAX_BUCKET", nullable("int")),
        ("_MIN_LEVEL", nullable("int")),
        ("_MAX_LEVEL", nullable("int")),
    ],
)


def encode_manifest_list(manifests: Sequence[ManifestFileMeta]) -> bytes:
    """The manifests in their order; an empty list is a file too."""
    return encode_container(_LINE, [_line(meta) for meta in manifests])


def decode_manifest_list(data: bytes, path: str) -> list[ManifestFileMeta]:
    """Manifests in the order of the file. `DamagedFile` on malformed bytes, `NotSupported` on other versions."""
    manifests = []
    for content in decode_container(data, path, _LINE):
        if content["_VERSION"] != VERSION:
            raise NotSupported(
                f"{path} has manifest version {content['_VERSION']}", f"only version {VERSION} can be read", "recreate the table"
            )
        manifests.append(
            ManifestFileMeta(
                plain_name(content["_FILE_NAME"], path),
                content["_FILE_SIZE"],
                content["_NUM_ADDED_FILES"],
                content["_NUM_DELETED_FILES"],
                stats_from_record(content["_PARTITION_STATS"]),
                content["_SCHEMA_ID"],
                content.get("_MIN_BUCKET"),
                content.get("_MAX_BUCKET"),
                content.get("_MIN_LEVEL"),
                content.get("_MAX_LEVEL"),
            )
        )
    return manifests


def _line(meta: ManifestFileMeta) -> dict[str, Any]:
    return {
        "_VERSION": VERSION,
        "_FILE_NAME": meta.file_name,
        "_FILE_SIZE": meta.file_size,
        "_NUM_ADDED_FILES": meta.num_added_files,
        "_NUM_DELETED_FILES": meta.num_deleted_files,
        "_PARTITION_STATS": stats_record(meta.partition_stats),
        "_SCHEMA_ID": meta.schema_id,
        "_MIN_BUCKET": meta.min_bucket,
        "_MAX_BUCKET": meta.max_bucket,
        "_MIN_LEVEL": meta.min_level,
        "_MAX_LEVEL": meta.max_level,
    }


INDEX_VERSION = 1

_RANGE = record(
    "record__DELETIONS_VECTORS_RANGES", [("f0", "string"), ("f1", "int"), ("f2", "int"), ("_CARDINALITY", nullable("long"))]
)
_ENTRY = record(
    "record",
    [
        ("_VERSION", "int"),
        ("_KIND", "int"),
        ("_PARTITION", "bytes"),
        ("_BUCKET", "int"),
        ("_INDEX_TYPE", "string"),
        ("_FILE_NAME", "string"),
        ("_FILE_SIZE", "long"),
        ("_ROW_COUNT", "long"),
        ("_DELETIONS_VECTORS_RANGES", nullable(array(nullable(_RANGE)))),
        ("_EXTERNAL_PATH", nullable("string")),
    ],
)


def encode_index_manifest(entries: Sequence[IndexManifestEntry]) -> bytes:
    """All index files of a snapshot; an empty list is a file too."""
    return encode_container(_ENTRY, [_entry_record(entry) for entry in entries])


def decode_index_manifest(data: bytes, path: str) -> list[IndexManifestEntry]:
    """Entries in the order of the file. `DamagedFile` on malformed bytes, `NotSupported` on global indexes and other versions."""
    entries = []
    for content in decode_container(data, path, _ENTRY):
        if content["_VERSION"] != INDEX_VERSION:
            raise NotSupported(
                f"{path} has index manifest version {content['_VERSION']}", f"only version {INDEX_VERSION} can be read"
            )
        if content.get("_GLOBAL_INDEX") is not None:
            raise NotSupported(f"{path} has a global index {content['_INDEX_TYPE']}", "global indexes are not supported")
        file = IndexFileMeta(
            content["_INDEX_TYPE"],
            plain_name(content["_FILE_NAME"], path),
            content["_FILE_SIZE"],
            content["_ROW_COUNT"],
            _ranges(content.get("_DELETIONS_VECTORS_RANGES"), path),
            content.get("_EXTERNAL_PATH"),
        )
        entries.append(IndexManifestEntry(content["_KIND"], content["_PARTITION"], content["_BUCKET"], file))
    return entries


def _ranges(listed: list[dict[str, Any] | None] | None, path: str) -> tuple[DeletionVectorRange, ...] | None:
    if listed is None:
        return None
    present = [item for item in listed if item is not None]
    return tuple(DeletionVectorRange(plain_name(r["f0"], path), r["f1"], r["f2"], r.get("_CARDINALITY")) for r in present)


def _entry_record(entry: IndexManifestEntry) -> dict[str, Any]:
    file = entry.index_file
    ranges = file.deletion_vector_ranges
    return {
        "_VERSION": INDEX_VERSION,
        "_KIND": entry.kind,
        "_PARTITION": entry.partition,
        "_BUCKET": entry.bucket,
        "_INDEX_TYPE": file.index_type,
        "_FILE_NAME": file.file_name,
        "_FILE_SIZE": file.file_size,
        "_ROW_COUNT": file.row_count,
        "_DELETIONS_VECTORS_RANGES": None if ranges is None else [_range_record(r) for r in ranges],
        "_EXTERNAL_PATH": file.external_path,
    }


def _range_record(r: DeletionVectorRange) -> dict[str, Any]:
    return {"f0": r.data_file_name, "f1": r.offset, "f2": r.length, "_CARDINALITY": r.cardinality}
