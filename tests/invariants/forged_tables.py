"""Snapshots written by hand, right or wrong, for tests of the checks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paimon_cli.commit.prepared_snapshot import MetadataWriter
from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants.check import check_table
from paimon_cli.metadata.data_file import EMPTY_ROW, DataFileMeta, EntryKind, IndexManifestEntry, ManifestEntry
from paimon_cli.metadata.snapshot import APPEND, Snapshot


def entry(file: DataFileMeta, kind: int = EntryKind.ADD, bucket: int = 0, total_buckets: int = 2) -> ManifestEntry:
    return ManifestEntry(kind, EMPTY_ROW, bucket, total_buckets, file)


def store(context: TableContext, *files: DataFileMeta, bucket: int = 0) -> None:
    """Files on disk of the size that their metadata says."""
    for file in files:
        path = Path(context.data_file_path(EMPTY_ROW, bucket, file))
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes(file.file_size))


def forge(
    context: TableContext,
    number: int,
    base: Sequence[ManifestEntry],
    delta: Sequence[ManifestEntry],
    indexes: Sequence[IndexManifestEntry] = (),
    **changes: Any,
) -> Snapshot:
    """Publish snapshot `number` with these entries; counts are right unless `changes` says otherwise."""
    writer = MetadataWriter(context)
    base_list, base_size = writer.manifest_list(writer.manifests(base), "base")
    delta_list, delta_size = writer.manifest_list(writer.manifests(delta), "delta")
    added = sum(e.file.row_count if e.kind == EntryKind.ADD else -e.file.row_count for e in delta)
    fields = {
        "id": number,
        "schema_id": 0,
        "base_manifest_list": base_list,
        "base_manifest_list_size": base_size,
        "delta_manifest_list": delta_list,
        "delta_manifest_list_size": delta_size,
        "index_manifest": writer.index_manifest(indexes) if indexes else None,
        "commit_user": f"user-{number}",
        "commit_identifier": number,
        "commit_kind": APPEND,
        "time_millis": 1_700_000_000_000 + number,
        "total_record_count": added + sum(e.file.row_count for e in base),
        "delta_record_count": added,
    }
    snapshot = Snapshot(**{**fields, **changes})
    path = Path(context.layout.snapshot(number))
    path.parent.mkdir(exist_ok=True)
    path.write_text(snapshot.to_json())
    return snapshot


def codes(context: TableContext, rows: bool = False) -> list[str]:
    return sorted({violation.code for violation in check_table(context, rows=rows)})
