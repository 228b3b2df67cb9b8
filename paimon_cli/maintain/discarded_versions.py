"""Versions to be removed from the history, and the files to be deleted with them if no other version needs them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from paimon_cli.errors import DamagedFile, NotFound
from paimon_cli.history.table_context import TableContext
from paimon_cli.maintain.needed_files import NeededFiles, SharedManifests, needed_by_other_branches
from paimon_cli.maintain.snapshot_files import DoomedFile, changelog_entries, doomed_data, key_of_file, lean, metadata_files
from paimon_cli.metadata.data_file import ADD, ManifestEntry
from paimon_cli.metadata.snapshot import Snapshot


@dataclass(frozen=True)
class DiscardedVersions:
    """Data files that came with the versions, and their metadata; others may need them, too."""

    data: tuple[ManifestEntry, ...]
    changelogs: tuple[ManifestEntry, ...]
    metadata: tuple[DoomedFile, ...]

    def doomed(self, context: TableContext, needed: NeededFiles) -> list[DoomedFile]:
        """The files to delete, except those in `needed`."""
        kinds = (("data", self.data), ("changelog", self.changelogs))
        gone = [(kind, entry) for kind, entries in kinds for entry in entries if key_of_file(entry) not in needed.data]
        data = [file for kind, entry in gone for file in doomed_data(context, entry, kind)]
        return [*data, *(file for file in self.metadata if file.path not in needed.metadata)]


def discarded_versions(context: TableContext, snapshots: Iterable[Snapshot], tagged: Iterable[Snapshot]) -> DiscardedVersions:
    """Read what these snapshots added, and all of those that only tags hold. What cannot be read is left to the orphans.

    A snapshot that nothing is left before came with all that it has: it belongs to both.
    """
    data: dict[object, ManifestEntry] = {}
    changelogs: list[ManifestEntry] = []
    metadata: dict[str, DoomedFile] = {}
    for snapshot in snapshots:
        try:
            added = [lean(entry) for entry in context.manifests.delta_entries(snapshot) if entry.kind == ADD]
            found, files = changelog_entries(context, snapshot), metadata_files(context, snapshot)
        except (DamagedFile, NotFound):
            continue
        data.update((key_of_file(entry), entry) for entry in added)
        changelogs += found
        metadata.update((file.path, file) for file in files)
    manifests = SharedManifests(context)
    for snapshot in tagged:
        data.update((key_of_file(entry), entry) for entry in manifests.live(snapshot))
        metadata.update((file.path, file) for file in metadata_files(context, snapshot))
    return DiscardedVersions(tuple(data.values()), tuple(changelogs), tuple(metadata.values()))


def needed_up_to(context: TableContext, snapshot_id: int | None = None) -> NeededFiles:
    """What all branches need; of this one only snapshots, tags and changelogs up to an id, where it is given."""
    needed = needed_by_other_branches(context)
    needed.need_history(context, snapshot_id)
    return needed
