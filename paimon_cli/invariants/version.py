"""A snapshot with the entries of its manifests, which are read once for all checks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from paimon_cli.history.file_table import FileTable
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import BucketId, FileIdentity, IndexManifestEntry, ManifestEntry
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.storage.threads import cached_property


class FileFacts(NamedTuple):
    """What all entries of a file say of it, in the words of messages. Its statistics are not compared, but tested on its rows."""

    buckets: int
    size: int
    rows: int
    least_key: bytes
    greatest_key: bytes
    least_sequence_number: int
    greatest_sequence_number: int
    schema: int
    retractions: int | None

    @staticmethod
    def of(entry: ManifestEntry) -> FileFacts:
        f = entry.file
        numbers = (f.min_sequence_number, f.max_sequence_number, f.schema_id, f.delete_row_count)
        return FileFacts(entry.total_buckets, f.file_size, f.row_count, f.min_key, f.max_key, *numbers)

    def differences(self, other: FileFacts) -> str:
        """How the other facts differ: `rows 7 instead of 6, another least key`."""
        named = ((name.replace("_", " "), mine, its) for name, mine, its in zip(self._fields, self, other, strict=True))
        return ", ".join(
            f"another {name}" if isinstance(mine, bytes) or isinstance(its, bytes) else f"{name} {its} instead of {mine}"
            for name, mine, its in named
            if mine != its
        )


class Version:
    """A snapshot and its entries. Reading them raises `DamagedFile` for manifests that are missing or unreadable.

    Checks examine `fresh` entries and `changed_buckets`: everything, unless a walk through the history has checked the rest.
    """

    def __init__(self, context: TableContext, snapshot: Snapshot) -> None:
        self.context = context
        self.snapshot = snapshot

    @property
    def path(self) -> str:
        return self.context.layout.snapshot(self.snapshot.id)

    @cached_property
    def base(self) -> list[ManifestEntry]:
        """Entries of the files that were live before this commit, according to its base list."""
        manifests = self.context.manifests
        return FileTable.of(manifests.tables(manifests.manifest_list(self.snapshot.base_manifest_list))).live().entries()

    @cached_property
    def delta(self) -> list[ManifestEntry]:
        """ADD and DELETE entries of this commit."""
        manifests = self.context.manifests
        listed = manifests.manifest_list(self.snapshot.delta_manifest_list)
        return [entry for entries in manifests.entries(listed) for entry in entries]

    @cached_property
    def live(self) -> list[ManifestEntry]:
        """Entries of the live files, oldest first."""
        return self.context.manifests.live_entries(self.snapshot)

    @cached_property
    def index_entries(self) -> list[IndexManifestEntry]:
        return self.context.manifests.index_entries(self.snapshot)

    @cached_property
    def buckets(self) -> dict[BucketId, list[ManifestEntry]]:
        """Live entries of each bucket."""
        grouped: dict[BucketId, list[ManifestEntry]] = {}
        for entry in self.live:
            grouped.setdefault(entry.bucket_id, []).append(entry)
        return grouped

    @property
    def fresh(self) -> Sequence[ManifestEntry]:
        """Live entries that have not been checked yet."""
        return self.live

    @property
    def changed_buckets(self) -> Collection[BucketId]:
        """Buckets whose current state has not been checked, including buckets that have become empty."""
        return {*self.buckets, *(entry.bucket_id for entry in self.index_entries)}

    @cached_property
    def row_count(self) -> int:
        """The rows of all live files."""
        return sum(entry.file.row_count for entry in self.live)

    def at(self, bucket_id: BucketId) -> Iterable[ManifestEntry]:
        """Live entries of a bucket."""
        return self.buckets.get(bucket_id, ())

    def highest_sequence(self, bucket_id: BucketId) -> int:
        """The greatest sequence number in the live files of a bucket, -1 if it is empty."""
        return max((entry.file.max_sequence_number for entry in self.at(bucket_id)), default=-1)

    def holds(self, entry: ManifestEntry) -> bool:
        return entry.identity in self._identities

    @cached_property
    def _identities(self) -> set[FileIdentity]:
        return {entry.identity for entry in self.live}

    def bucket_counts(self) -> dict[bytes, set[int]]:
        """The bucket counts with which the live files of each partition were written."""
        counts: dict[bytes, set[int]] = {}
        for entry in self.live:
            if entry.total_buckets > 0:
                counts.setdefault(entry.partition, set()).add(entry.total_buckets)
        return counts

    def base_differences(self, before: Version) -> tuple[list[ManifestEntry], list[ManifestEntry]]:
        """The entries live in `before` but not in this base, and the reverse."""
        expected = {entry.identity: entry for entry in before.live}
        actual = {entry.identity: entry for entry in self.base}
        lost = [expected[identity] for identity in expected.keys() - actual.keys()]
        return lost, [actual[identity] for identity in actual.keys() - expected.keys()]

    def changed_in_base(self, before: Version) -> list[tuple[ManifestEntry, ManifestEntry]]:
        """The entries live in `before` of whose files this base has other facts, each with its entry in the base."""
        return changed_entries({entry.identity: entry for entry in before.live}, {entry.identity: entry for entry in self.base})

    def bucket_directory(self, bucket_id: BucketId) -> str:
        return self.context.bucket_directory(*bucket_id)

    def file_path(self, entry: ManifestEntry) -> str:
        if not self.context.can_open(entry.file):
            return str(entry.file.external_path)
        return self.context.data_file_path(entry.partition, entry.bucket, entry.file)

    def index_path(self, entry: IndexManifestEntry) -> str:
        return entry.index_file.external_path or self.context.layout.index(entry.index_file.file_name)

    def label(self, entry: ManifestEntry) -> str:
        """A data file in messages: name, level and bucket."""
        partition = self.context.partition_path_of(entry.partition)
        return f"{entry.file.file_name} (level {entry.file.level}, {partition}bucket-{entry.bucket})"


def changed_entries(
    expected: Mapping[FileIdentity, ManifestEntry], actual: Mapping[FileIdentity, ManifestEntry]
) -> list[tuple[ManifestEntry, ManifestEntry]]:
    """The pairs of entries of one file with different facts."""
    pairs = ((entry, actual[identity]) for identity, entry in expected.items() if identity in actual)
    return [(one, other) for one, other in pairs if FileFacts.of(one) != FileFacts.of(other)]
