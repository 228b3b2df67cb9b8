"""Manifests by partition, kept once they were read: manifests never change, so the next commit reads only what is new.

A commit looks at all manifests of the latest snapshot that may speak of its partitions; nearly all of them are those that the
commit before looked at. Of big manifests only the partitions that were asked for are kept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from paimon_cli.history.manifest_reader import KeepManifest, ManifestReader
from paimon_cli.history.partition_entries import FewEntries, ManyEntries, PartitionEntries
from paimon_cli.metadata.data_file import ManifestEntry, ManifestFileMeta

if TYPE_CHECKING:  # loads numpy, which commits to small tables do without
    from paimon_cli.metadata.manifest_columns import EntryColumns

MANY_ENTRIES = 2000
"""The number of entries from which columns are faster than objects."""

_MOST_BYTES = 128 << 20
_ENTRY_BYTES = 2000
"""About what an entry takes as an object."""
_FEW_BESIDE_MANY = 200
"""Manifests with fewer entries become objects even where others are read as columns."""
_NOTHING = FewEntries(())


@dataclass
class KnownManifest:
    """What was read of a manifest: all (`is_whole`), or some partitions. `size`: about the bytes that it takes in memory."""

    is_whole: bool
    partitions: dict[bytes, PartitionEntries] = field(default_factory=dict)
    size: int = 0

    def knows(self, partitions: Collection[bytes]) -> bool:
        return self.is_whole or all(partition in self.partitions for partition in partitions)

    def entries(self, partition: bytes) -> PartitionEntries:
        return self.partitions.get(partition, _NOTHING)

    def add(self, pieces: Sequence[EntryColumns], partitions: Collection[bytes]) -> None:
        """`pieces` are all that the manifest has of those partitions; they may hold others, too."""
        from paimon_cli.history.live_columns import placed_columns

        placed = placed_columns(pieces, partitions.__contains__).by_partition()
        for partition in partitions:
            self.partitions[partition] = ManyEntries(placed[partition]) if partition in placed else _NOTHING
        records = [piece.records for piece in pieces]
        self.size += sum(some.bytes.data.nbytes + len(some.decoded) * _ENTRY_BYTES for some in records)


class KnownManifests:
    """Reads manifests through `reader` and keeps those that were asked for last, up to some size. Pickles without them."""

    def __init__(self, reader: ManifestReader) -> None:
        self._reader = reader
        self._known: dict[tuple[str, int], KnownManifest] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return KnownManifests, (self._reader,)

    def read(
        self, manifests: Sequence[ManifestFileMeta], partitions: Collection[bytes], may_hold: KeepManifest
    ) -> list[KnownManifest]:
        """What is known of each manifest that may hold one of the partitions, in their order; errors as `ManifestReader`.

        A manifest that is not kept is asked about with `may_hold` before it is read.
        """
        found: dict[tuple[str, int], KnownManifest] = {}
        missing: list[ManifestFileMeta] = []
        for meta in manifests:
            known = self._known.get(_key(meta)) or KnownManifest(is_whole=False)
            if not known.knows(partitions):
                if not may_hold(meta):
                    continue
                missing.append(meta)
            found[_key(meta)] = known
        self._read(missing, partitions, found)
        self._keep(found)
        return list(found.values())

    def _read(
        self, missing: Sequence[ManifestFileMeta], partitions: Collection[bytes], found: dict[tuple[str, int], KnownManifest]
    ) -> None:
        counts = [meta.num_added_files + meta.num_deleted_files for meta in missing]
        few = MANY_ENTRIES if sum(counts) < MANY_ENTRIES else _FEW_BESIDE_MANY
        small = [meta for meta, count in zip(missing, counts, strict=True) if count < few]
        big = [meta for meta, count in zip(missing, counts, strict=True) if count >= few]
        for meta, entries in zip(small, self._reader.entries(small), strict=True):
            found[_key(meta)] = _whole(entries)
        asked = {partition for meta in big for partition in partitions if partition not in found[_key(meta)].partitions}
        for meta, pieces in zip(big, self._reader.columns_of_each(big, asked), strict=True):
            found[_key(meta)].add(pieces, asked)

    def _keep(self, found: dict[tuple[str, int], KnownManifest]) -> None:
        """Moves an entry to the end when it is used, and drops entries from the front."""
        self._known = {key: known for key, known in self._known.items() if key not in found} | found
        size = sum(known.size for known in self._known.values())
        for key in [*self._known]:
            if size <= _MOST_BYTES:
                return
            size -= self._known.pop(key).size


def _key(meta: ManifestFileMeta) -> tuple[str, int]:
    return meta.file_name, meta.file_size


def _whole(entries: Iterable[ManifestEntry]) -> KnownManifest:
    grouped: dict[bytes, list[ManifestEntry]] = {}
    for entry in entries:
        grouped.setdefault(entry.partition, []).append(entry)
    size = sum(map(len, grouped.values())) * _ENTRY_BYTES
    return KnownManifest(True, {partition: FewEntries(some) for partition, some in grouped.items()}, size)
