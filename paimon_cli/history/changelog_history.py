"""Long-lived changelogs: copies of expired snapshots whose changes can still be read (FORMAT.md, section 13.4)."""

from __future__ import annotations

from dataclasses import dataclass

from paimon_cli.errors import DamagedFile
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_layout import CHANGELOG_PREFIX, TableLayout, parse_numbered
from paimon_cli.storage.storage import Storage


@dataclass(frozen=True)
class ChangelogHistory:
    """Reads `changelog/`; holds no state."""

    storage: Storage
    layout: TableLayout

    def ids(self) -> list[int]:
        """Ascending; foreign names are ignored."""
        entries = self.storage.list_directory(self.layout.changelog_directory)
        return sorted(number for entry in entries if (number := parse_numbered(CHANGELOG_PREFIX, entry.name)) is not None)

    def find(self, snapshot_id: int) -> Snapshot | None:
        """The copy of that snapshot, None if it is not there. `DamagedFile` if its file does not hold it."""
        path = self.layout.changelog(snapshot_id)
        try:
            snapshot = Snapshot.from_json(self.storage.read_bytes(path), path)
        except FileNotFoundError:
            return None
        if snapshot.id != snapshot_id:
            raise DamagedFile(f"changelog file {path} is damaged", f"it holds the id {snapshot.id}", path=path)
        return snapshot

    def all(self) -> list[Snapshot]:
        """The oldest first; one that expires meanwhile may be missing."""
        return [found for number in self.ids() if (found := self.find(number)) is not None]
