"""The manifests of a snapshot, list by list, as `manifests ls` shows them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from paimon_cli.catalog.table import CatalogTable
from paimon_cli.metadata.data_file import ManifestFileMeta
from paimon_cli.metadata.snapshot import Snapshot

BASE, DELTA, CHANGELOG, INDEX = "base", "delta", "changelog", "index"
LISTS = (BASE, DELTA, CHANGELOG, INDEX)


@dataclass(frozen=True)
class ManifestRow:
    """One manifest of the list `list`; bucket and level ranges are None when the writer did not say. For the index manifest,
    `added` counts its index files."""

    list: str
    file: str
    size: int
    added: int
    deleted: int
    schema_id: int | None
    min_bucket: int | None = None
    max_bucket: int | None = None
    min_level: int | None = None
    max_level: int | None = None


def manifest_rows(table: CatalogTable, snapshot: Snapshot | None, lists: Sequence[str] = LISTS) -> list[ManifestRow]:
    """In the order in which a reader folds them: base, then delta."""
    return [] if snapshot is None else [row for name in LISTS if name in lists for row in _rows_of(table, snapshot, name)]


def _rows_of(table: CatalogTable, snapshot: Snapshot, name: str) -> Iterator[ManifestRow]:
    if name == INDEX:
        yield from _index_rows(table, snapshot.index_manifest)
        return
    list_names = {
        BASE: snapshot.base_manifest_list,
        DELTA: snapshot.delta_manifest_list,
        CHANGELOG: snapshot.changelog_manifest_list,
    }
    list_name = list_names[name]
    if list_name is not None:
        yield from (_row(name, manifest) for manifest in table.manifests.manifest_list(list_name))


def _row(list_name: str, manifest: ManifestFileMeta) -> ManifestRow:
    return ManifestRow(
        list=list_name,
        file=manifest.file_name,
        size=manifest.file_size,
        added=manifest.num_added_files,
        deleted=manifest.num_deleted_files,
        schema_id=manifest.schema_id,
        min_bucket=manifest.min_bucket,
        max_bucket=manifest.max_bucket,
        min_level=manifest.min_level,
        max_level=manifest.max_level,
    )


def _index_rows(table: CatalogTable, name: str | None) -> Iterator[ManifestRow]:
    if name is not None:
        entries = table.manifests.index_manifest(name)
        size = table.storage.file_size(table.layout.manifest(name))
        yield ManifestRow(INDEX, name, size, added=len(entries), deleted=0, schema_id=None)
