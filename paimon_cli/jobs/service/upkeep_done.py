"""What expiry and the search for orphans did to a table; apart from them (`upkeep`), because every compaction reports it."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class UpkeepDone:
    """What has expired, and the files deleted with it; deleted orphans and their bytes."""

    snapshots_expired: int = 0
    files_expired: int = 0
    orphans: int = 0
    orphan_bytes: int = 0
    partitions_expired: int = 0
    changelogs_expired: int = 0
    tags_expired: int = 0
    consumers_expired: int = 0

    def __add__(self, other: UpkeepDone) -> UpkeepDone:
        return UpkeepDone(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))

    @classmethod
    def of_expiry(cls, what: str, count: int, files: int) -> UpkeepDone:
        return cls(**{f"{what}_expired": count}, files_expired=files)

    @property
    def expired(self) -> dict[str, int]:
        """How many of each kind have expired, by their nouns; only what has."""
        counts = {
            "snapshot": self.snapshots_expired,
            "partition": self.partitions_expired,
            "changelog": self.changelogs_expired,
            "tag": self.tags_expired,
            "consumer": self.consumers_expired,
        }
        return {noun: count for noun, count in counts.items() if count}


NOT_KEPT_UP = UpkeepDone()
