"""Where a table's history is found: its snapshots, schemas, tags, branches and manifests."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from paimon_cli.history.branch_list import BranchList
from paimon_cli.history.manifest_reader import ManifestReader
from paimon_cli.history.schema_history import SchemaHistory
from paimon_cli.history.snapshot_history import SnapshotHistory
from paimon_cli.history.tag_history import TagHistory
from paimon_cli.metadata.table_layout import TableLayout
from paimon_cli.storage.storage import Storage

if TYPE_CHECKING:
    from paimon_cli.history.known_manifests import ManifestCache


class TableHistory:
    """The histories of a table, for any class with a storage, a root and a branch."""

    url: str
    storage: Storage
    branch: str
    read_threads: int = 8

    @cached_property
    def layout(self) -> TableLayout:
        return TableLayout(self.url, self.branch)

    @cached_property
    def snapshots(self) -> SnapshotHistory:
        return SnapshotHistory(self.storage, self.layout)

    @cached_property
    def schemas(self) -> SchemaHistory:
        return SchemaHistory(self.storage, self.layout)

    @cached_property
    def tags(self) -> TagHistory:
        return TagHistory(self.storage, self.layout)

    @cached_property
    def branches(self) -> BranchList:
        return BranchList(self.storage, self.layout)

    @cached_property
    def manifests(self) -> ManifestReader:
        return ManifestReader(self.storage, self.layout, self.read_threads)

    @cached_property
    def manifest_cache(self) -> ManifestCache:
        from paimon_cli.history.known_manifests import ManifestCache  # loads numpy, which commands on snapshots do without

        return ManifestCache(self.manifests)
