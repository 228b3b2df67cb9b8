"""Index manifests: the full list of a snapshot's index files (FORMAT.md, section 4.5; Java IndexManifestEntrySerializer)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paimon_cli.errors import NotSupported
from paimon_cli.metadata.avro_container import decode_container, encode_container
from paimon_cli.metadata.avro_schema import array, nullable, record
from paimon_cli.metadata.data_file import DeletionVectorRange, IndexFileMeta, IndexManifestEntry
from paimon_cli.metadata.file_names import plain_name

VERSION = 1

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
        if content["_VERSION"] != VERSION:
            raise NotSupported(f"{path} has index manifest version {content['_VERSION']}", f"only version {VERSION} can be read")
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
        "_VERSION": VERSION,
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
