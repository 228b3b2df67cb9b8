"""Manifest lists: the manifests of a snapshot, with counts and ranges for pruning (FORMAT.md, section 4.4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paimon_cli.errors import NotSupported
from paimon_cli.metadata.avro_container import decode_container, encode_container
from paimon_cli.metadata.avro_schema import nullable, record
from paimon_cli.metadata.data_file import ManifestFileMeta
from paimon_cli.metadata.file_names import plain_name
from paimon_cli.metadata.stats_record import stats_from_record, stats_record, stats_schema

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
