"""The live files of a snapshot as columns, for plans over very many files (FORMAT.md, section 4.6).

Objects are made only for the files that are read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from paimon_cli.metadata.byte_ranges import ByteRanges
from paimon_cli.metadata.data_file import ADD, DELETE, BucketId, ManifestEntry
from paimon_cli.metadata.manifest_columns import EntryColumns

KeepPartition = Callable[[bytes], bool]
AddedFiles = Callable[[bytes, int], None]
"""Told how many files entries add to a partition, kept or not."""


@dataclass(frozen=True)
class PlacedColumns:
    """Entries in the order of their manifests, in pieces; `codes` are places in `partitions`, one an entry."""

    pieces: tuple[EntryColumns, ...]
    partitions: tuple[bytes, ...]
    codes: np.ndarray

    def __len__(self) -> int:
        return len(self.codes)

    @cached_property
    def _starts(self) -> np.ndarray:
        return np.cumsum([0, *map(len, self.pieces)])

    def numbers(self, name: str) -> np.ndarray:
        """One of the columns of numbers, as int64."""
        if name not in self._numbers:
            self._numbers[name] = self._joined_numbers(name)
        return self._numbers[name]

    @cached_property
    def _numbers(self) -> dict[str, np.ndarray]:
        return {}

    def _joined_numbers(self, name: str) -> np.ndarray:
        return np.concatenate([getattr(piece, name) for piece in self.pieces] or [np.zeros(0)], dtype=np.int64, casting="unsafe")

    @cached_property
    def buckets(self) -> np.ndarray:
        return self.numbers("buckets")

    def each(self, name: str) -> Iterator[ByteRanges]:
        """One of the columns of bytes, piece by piece."""
        return (getattr(piece, name) for piece in self.pieces)

    def lengths(self, name: str) -> np.ndarray:
        """Bytes of each value of one of the columns of bytes."""
        return _joined([ranges.ends - ranges.begins for ranges in self.each(name)]).astype(np.int64)

    def words(self, name: str, offsets: np.ndarray | int) -> np.ndarray:
        """`ByteRanges.words` of one of the columns of bytes; `offsets`: one, or one an entry."""
        parts: list[np.ndarray | int] = [offsets] * len(self.pieces)
        if not isinstance(offsets, int):
            parts = [*np.split(offsets, self._starts[1:-1])]
        return _joined([ranges.words(part) for ranges, part in zip(self.each(name), parts, strict=True)]).astype(np.int64)

    def entry(self, row: int) -> ManifestEntry:
        piece = int(np.searchsorted(self._starts, row, side="right")) - 1
        return self.pieces[piece].entry(row - int(self._starts[piece]))

    @cached_property
    def rows_by_place(self) -> dict[BucketId, np.ndarray]:
        """The entries of each (partition, bucket), ascending; places in the order of their first entries."""
        rows, starts = self._by_place
        groups = np.split(rows, starts[1:]) if len(rows) else []
        groups.sort(key=lambda rows: int(rows[0]))
        firsts = np.array([rows[0] for rows in groups], dtype=np.int64)
        return dict(zip(self._places_at(firsts), groups, strict=True))

    def greatest_by_place(self, name: str) -> dict[BucketId, int]:
        """The greatest number of each place."""
        rows, starts = self._by_place
        tops = np.maximum.reduceat(self.numbers(name)[rows], starts) if len(rows) else rows
        return dict(zip(self._places_at(rows[starts]), tops.tolist(), strict=True))

    def newest_by_place(self, name: str) -> dict[BucketId, int]:
        """The number of the newest entry of each place."""
        rows, starts = self._by_place
        last = rows[np.append(starts[1:], len(rows)) - 1] if len(rows) else rows
        return dict(zip(self._places_at(last), self.numbers(name)[last].tolist(), strict=True))

    def totals(self) -> set[tuple[bytes, int]]:
        """Each partition with the numbers of buckets that its files were written for."""
        totals = self.numbers("total_buckets")
        pairs = np.unique(np.stack([self.codes.astype(np.int64), totals]), axis=1)
        return {(self.partitions[code], total) for code, total in pairs.T.tolist()}

    def by_partition(self) -> dict[bytes, PlacedColumns]:
        """The entries of each partition on their own, in the same order."""
        parts: dict[int, list[EntryColumns]] = {}
        for piece, codes in zip(self.pieces, np.split(self.codes, self._starts[1:-1]), strict=True):
            order = np.argsort(codes, kind="stable")
            present, begins = np.unique(codes[order], return_index=True)
            for code, rows in zip(present.tolist(), np.split(order, begins)[1:], strict=True):
                parts.setdefault(code, []).append(piece.take(rows))
        return {
            self.partitions[code]: PlacedColumns(tuple(some), (self.partitions[code],), np.zeros(sum(map(len, some)), np.int32))
            for code, some in parts.items()
        }

    @cached_property
    def _by_place(self) -> tuple[np.ndarray, np.ndarray]:
        """Entries place by place, each ascending, and where places begin."""
        order = np.lexsort((self.buckets, self.codes))
        codes, buckets = self.codes[order], self.buckets[order]
        begins = np.ones(len(order), dtype=bool)
        begins[1:] = (codes[1:] != codes[:-1]) | (buckets[1:] != buckets[:-1])
        return order, np.flatnonzero(begins)

    def _places_at(self, rows: np.ndarray) -> Iterator[BucketId]:
        codes, buckets = self.codes[rows].tolist(), self.buckets[rows].tolist()
        return map(BucketId, [self.partitions[code] for code in codes], buckets)


@dataclass
class _Partitions:
    """Numbers the partitions and asks about each once."""

    keep: KeepPartition | None
    added: AddedFiles | None
    numbers: dict[bytes, int] = field(default_factory=dict)
    kept: list[bool] = field(default_factory=list)

    def codes(self, piece: EntryColumns) -> tuple[np.ndarray, np.ndarray]:
        """The number of each entry's partition, and whether it is kept."""
        codes, values = piece.partitions.coded()
        for value in values:
            if value not in self.numbers:
                self.numbers[value] = len(self.numbers)
                self.kept.append(self.keep is None or self.keep(value))
        numbers = np.array([self.numbers[value] for value in values], dtype=np.int32)
        if self.added is not None:
            counts = np.bincount(codes[piece.kinds == ADD], minlength=len(values))
            for value, count in zip(values, counts.tolist(), strict=True):
                self.added(value, count)
        kept = np.array(self.kept, dtype=bool)[numbers]
        return numbers[codes], kept[codes]


def live_columns(
    pieces: Iterable[EntryColumns],
    keep_partition: KeepPartition | None = None,
    buckets: Collection[int] | None = None,
    added: AddedFiles | None = None,
) -> PlacedColumns:
    """The set-wise fold: an ADD is alive unless a DELETE of the same identity stands anywhere. Partitions are asked for once."""
    whole = placed_columns(pieces, keep_partition, buckets, added)
    dead = _dead(whole)
    return whole if dead is None else _without(whole, dead)


def folded_columns(pieces: Iterable[EntryColumns]) -> PlacedColumns:
    """Drops each ADD together with its later DELETE, and duplicates. A DELETE of an older ADD stays."""
    whole = placed_columns(pieces)
    _, groups, counts = np.unique(_identity_hashes(whole), return_inverse=True, return_counts=True)
    left: dict[tuple[object, ...], tuple[int, int]] = {}
    met = np.flatnonzero(counts[groups] > 1).tolist()
    for row in met:
        entry = whole.entry(row)
        known = left.get(entry.identity)
        if known is None:
            left[entry.identity] = (entry.kind, row)
        elif known[0] == ADD and entry.kind == DELETE:
            del left[entry.identity]
    gone = np.zeros(len(whole), dtype=bool)
    gone[met] = True
    gone[[row for _, row in left.values()]] = False
    return _without(whole, gone)


def deleted_partitions(pieces: Iterable[EntryColumns]) -> set[bytes]:
    """Partitions that a DELETE speaks of."""
    return {value for piece in pieces for value in piece.partitions.take(np.flatnonzero(piece.kinds == DELETE)).coded()[1]}


def placed_columns(
    pieces: Iterable[EntryColumns],
    keep_partition: KeepPartition | None = None,
    buckets: Collection[int] | None = None,
    added: AddedFiles | None = None,
) -> PlacedColumns:
    """All entries of some partitions and buckets."""
    partitions = _Partitions(keep_partition, added)
    kept_pieces: list[EntryColumns] = []
    kept_codes: list[np.ndarray] = []
    for piece in pieces:
        codes, chosen = partitions.codes(piece)
        if buckets is not None:
            chosen = chosen & np.isin(piece.buckets, list(buckets))
        if not chosen.all():
            rows = np.flatnonzero(chosen)
            piece, codes = piece.take(rows), codes[rows]
        kept_pieces.append(piece)
        kept_codes.append(codes)
    return PlacedColumns(tuple(kept_pieces), tuple(partitions.numbers), _joined(kept_codes))


def _joined(columns: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(columns) if columns else np.zeros(0, dtype=np.int32)


def _without(columns: PlacedColumns, dead: np.ndarray) -> PlacedColumns:
    cuts = columns._starts[1:-1]
    alive = [np.flatnonzero(~part) for part in np.split(dead, cuts)]
    pieces = tuple(piece.take(rows) for piece, rows in zip(columns.pieces, alive, strict=True))
    return PlacedColumns(pieces, columns.partitions, columns.codes[~dead])


def _dead(columns: PlacedColumns) -> np.ndarray | None:
    """DELETEs, and ADDs that one of them takes away; None if there is no DELETE."""
    kinds = columns.numbers("kinds")
    deletes = kinds == DELETE
    if not deletes.any():
        return None
    hashes = _identity_hashes(columns)
    met = np.flatnonzero(~deletes & np.isin(hashes, hashes[deletes]))
    dead = kinds != ADD
    if len(met):
        dead[met[_is_deleted(columns, met, np.flatnonzero(deletes), hashes)]] = True
    return dead


def _identity_hashes(columns: PlacedColumns) -> np.ndarray:
    """Equal for equal identities; of what `plain` entries consist of."""
    hashed = _joined([names.hashes() for names in columns.each("names")]).view(np.uint64)
    for column in (columns.codes, columns.buckets, columns.numbers("levels")):
        hashed = (hashed ^ column.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        hashed ^= hashed >> np.uint64(31)
    return hashed.view(np.int64)


def _is_deleted(columns: PlacedColumns, adds: np.ndarray, deletes: np.ndarray, hashes: np.ndarray) -> np.ndarray:
    """Whether those ADDs, each with the hash of some DELETE, have the identity of one; what is not plain is decoded."""
    ordered = deletes[np.argsort(hashes[deletes], kind="stable")]
    twins = ordered[np.searchsorted(hashes[ordered], hashes[adds])]
    plain = np.concatenate([piece.plain for piece in columns.pieces])
    same = plain[adds] & plain[twins] & _same_names(columns, adds, twins)
    for column in (columns.codes, columns.buckets, columns.numbers("levels")):
        same &= column[adds] == column[twins]
    unsure = np.flatnonzero(~same)
    if len(unsure):
        asked = np.isin(hashes[deletes], hashes[adds[unsure]])
        gone = {columns.entry(row).identity for row in deletes[asked].tolist()}
        same[unsure] = [columns.entry(row).identity in gone for row in adds[unsure].tolist()]
    return same


def _same_names(columns: PlacedColumns, one: np.ndarray, other: np.ndarray) -> np.ndarray:
    lengths = columns.lengths("names")
    same = lengths[one] == lengths[other]
    for offset in range(0, int(lengths[one].max(initial=0)), 8):
        words = columns.words("names", offset)
        same &= words[one] == words[other]
    return same
