"""Writes the manifest files of one commit under unique names and records their paths."""

from __future__ import annotations

from collections.abc import Sequence

from paimon_cli.history.live_columns import FileTable
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import ADD, IndexManifestEntry, ManifestEntry, ManifestFileMeta
from paimon_cli.metadata.index_manifest import encode_index_manifest
from paimon_cli.metadata.manifest_columns import ManifestTable
from paimon_cli.metadata.manifest_file import copied_manifests, encode_manifests
from paimon_cli.metadata.manifest_list import encode_manifest_list
from paimon_cli.metadata.partition_range import partition_stats


class MetadataWriter:
    """One UUID for all names of a commit, one counter per kind of file (FORMAT.md, section 1.1; Java FileStorePathFactory)."""

    def __init__(self, context: TableContext) -> None:
        self._context = context
        self._uuid = context.names.uuid()
        self._counters: dict[str, int] = {}
        self.written: list[str] = []
        """Paths in the order of writing."""

    def manifests(self, entries: Sequence[ManifestEntry]) -> list[ManifestFileMeta]:
        """Manifests of `manifest.target-file-size` with these entries; none for no entries."""
        return self.manifests_of(FileTable.of([ManifestTable.of(entries)]))

    def manifests_of(self, table: FileTable) -> list[ManifestFileMeta]:
        """Manifests with the entries of a table. Those of other manifests are copied if they have the form that we write."""
        target = self._context.options.manifest_target_file_size
        if all(piece.records.is_ours for piece in table.pieces):
            files = copied_manifests([record for piece in table.pieces for record in piece.records.bytes], target)
        else:
            files = encode_manifests(table.entries(), target)
        found, end = [], 0
        for content, count in files:
            rows, end = slice(end, end + count), end + count
            found.append(self._manifest(content, table, rows))
        return found

    def _manifest(self, content: bytes, table: FileTable, rows: slice) -> ManifestFileMeta:
        kinds, buckets, levels = table.numbers("kinds")[rows], table.buckets[rows], table.numbers("levels")[rows]
        added = int((kinds == ADD).sum())
        partitions = (table.partitions[code] for code in table.codes[rows].tolist())
        return ManifestFileMeta(
            file_name=self._write("manifest", content, added=added, deleted=len(kinds) - added),
            file_size=len(content),
            num_added_files=added,
            num_deleted_files=len(kinds) - added,
            partition_stats=partition_stats(partitions, self._context.partition_types),
            schema_id=int(table.numbers("schema_ids")[rows].max()),
            min_bucket=int(buckets.min()),
            max_bucket=int(buckets.max()),
            min_level=int(levels.min()),
            max_level=int(levels.max()),
        )

    def manifest_list(self, manifests: Sequence[ManifestFileMeta], purpose: str) -> tuple[str, int]:
        """Name and size of a new list; `purpose` (base, delta, changelog) is for the trace."""
        content = encode_manifest_list(manifests)
        return self._write("manifest-list", content, purpose=purpose, manifests=len(manifests)), len(content)

    def index_manifest(self, entries: Sequence[IndexManifestEntry]) -> str:
        """Name of a new index manifest."""
        return self._write("index-manifest", encode_index_manifest(entries), entries=len(entries))

    def _write(self, kind: str, content: bytes, **facts: str | int) -> str:
        number = self._counters.get(kind, 0)
        self._counters[kind] = number + 1
        name = f"{kind}-{self._uuid}-{number}"
        path = self._context.layout.manifest(name)
        self.written.append(path)  # before the write: one that fails half-way leaves something to delete
        with self._context.trace.timed(kind.replace("-", "_"), file=name, bytes=len(content), **facts):
            self._context.storage.write_new(path, content)
        return name
