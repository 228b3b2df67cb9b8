"""One version of a table with all that its manifests say, read once however many checks look at it."""

from __future__ import annotations

from functools import cached_property

from paimon_cli.history.manifest_reader import live
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import IndexManifestEntry, ManifestEntry
from paimon_cli.metadata.snapshot import Snapshot

Identity = tuple[object, ...]
Place = tuple[bytes, int]
"""Partition and bucket."""


class Version:
    """A snapshot and its entries. Reading them raises `DamagedFile` for manifests that are missing or unreadable."""

    def __init__(self, context: TableContext, snapshot: Snapshot) -> None:
        self.context = context
        self.snapshot = snapshot

    @property
    def path(self) -> str:
        return self.context.layout.snapshot(self.snapshot.id)

    @cached_property
    def base(self) -> list[ManifestEntry]:
        """What the snapshot says had lived before its own commit."""
        manifests = self.context.manifests
        return live(manifests.entries(manifests.manifest_list(self.snapshot.base_manifest_list)))

    @cached_property
    def delta(self) -> list[ManifestEntry]:
        """ADD and DELETE entries of this commit."""
        manifests = self.context.manifests
        listed = manifests.manifest_list(self.snapshot.delta_manifest_list)
        return [entry for entries in manifests.entries(listed) for entry in entries]

    @cached_property
    def live(self) -> list[ManifestEntry]:
        """Entries of the files alive, oldest first, as every reader folds them."""
        return self.context.manifests.live_entries(self.snapshot)

    @cached_property
    def index_entries(self) -> list[IndexManifestEntry]:
        return self.context.manifests.index_entries(self.snapshot)

    @cached_property
    def buckets(self) -> dict[Place, list[ManifestEntry]]:
        """Live entries of each bucket."""
        grouped: dict[Place, list[ManifestEntry]] = {}
        for entry in self.live:
            grouped.setdefault((entry.partition, entry.bucket), []).append(entry)
        return grouped

    def bucket_directory(self, place: Place) -> str:
        return self.context.layout.bucket_directory(self.context.partition_path_of(place[0]), place[1])

    def file_path(self, entry: ManifestEntry) -> str:
        return entry.file.external_path or self.context.data_file_path(entry.partition, entry.bucket, entry.file)
