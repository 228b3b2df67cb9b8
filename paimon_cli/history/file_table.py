"""A file table: manifest entries as columns, and the only implementation of which of them are live.

The live files of a snapshot are its ADD entries, except those that a DELETE entry names (FORMAT.md, section 4.6). Plans, commits,
merges of manifests, verification, expiry and reports all use this table. Objects are created only for requested entries.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np

from paimon_cli.datatypes.data_type import DataType
from paimon_cli.errors import DamagedFile
from paimon_cli.metadata.byte_ranges import ByteRanges
from paimon_cli.metadata.data_file import (
    ALL_FILES,
    BucketId,
    EntryKind,
    FileFilter,
    FileIdentity,
    ManifestEntry,
    ManifestFileMeta,
)
from paimon_cli.metadata.manifest_table import ManifestTable, is_plain
from paimon_cli.metadata.manifests import copied_manifests, encode_manifests
from paimon_cli.metadata.partition_ranges import partition_stats
from paimon_cli.pieces import PIECES
from paimon_cli.storage.threads import cached_property


@dataclass(frozen=True)
class FileTable:
    """Manifest entries in order, in pieces. `codes`: the index of each entry's partition in `partitions`."""

    pieces: tuple[ManifestTable, ...]
    partitions: tuple[bytes, ...]
    codes: np.ndarray

    @staticmethod
    def of(pieces: Iterable[ManifestTable], wanted: FileFilter = ALL_FILES) -> FileTable:
        """All entries, ADD and DELETE, of the partitions and buckets for which `wanted` is true."""
        partitions = _Partitions(wanted)
        kept_pieces: list[ManifestTable] = []
        kept_codes: list[np.ndarray] = []
        for piece in pieces:
            codes, chosen = partitions.codes(piece)
            if wanted.buckets is not None:
                chosen = chosen & np.isin(piece.buckets, list(wanted.buckets))
            if not chosen.all():
                rows = np.flatnonzero(chosen)
                piece, codes = piece.take(rows), codes[rows]
            kept_pieces.append(piece)
            kept_codes.append(codes)
        return FileTable(tuple(kept_pieces), tuple(partitions.numbers), _joined(kept_codes))

    @staticmethod
    def of_entries(entries: Sequence[ManifestEntry]) -> FileTable:
        """The table of entries that are already objects, such as those of a new commit."""
        numbers: dict[bytes, int] = {}
        codes = [numbers.setdefault(entry.partition, len(numbers)) for entry in entries]
        return FileTable((ManifestTable.of(entries),), tuple(numbers), np.array(codes, dtype=np.int32))

    @staticmethod
    def of_partition(partition: bytes, pieces: Iterable[ManifestTable]) -> FileTable:
        """The table of pieces whose entries all belong to one partition."""
        held = tuple(pieces)
        return FileTable(held, (partition,), np.zeros(sum(map(len, held)), dtype=np.int32))

    def live(self) -> FileTable:
        """The live files: ADD entries without a DELETE of the same identity anywhere in the table.

        Raises `DamagedFile` for a DELETE whose file no entry adds. So the table must hold all entries of a bucket, or none.
        """
        dead = _dead(self)
        return self if dead is None else self._without(dead)

    def live_entries(self) -> list[ManifestEntry]:
        """The live files as objects, in order. Faster than `live().entries()` for few entries in many pieces."""
        dead = _dead(self)
        if dead is None:
            return self.entries()
        parts = zip(self.pieces, pairwise(self._starts), strict=True)
        return [piece.entry(row) for piece, (start, end) in parts for row in np.flatnonzero(~dead[start:end]).tolist()]

    def net(self) -> FileTable:
        """The entries without duplicates and without pairs of an ADD and its later DELETE. A DELETE without its ADD stays."""
        if not len(self):
            return self
        _, groups, counts = np.unique(_identity_hashes(self), return_inverse=True, return_counts=True)
        left: dict[FileIdentity, tuple[int, int]] = {}
        repeated = np.flatnonzero(counts[groups] > 1).tolist()
        for row in repeated:
            entry = self.entry(row)
            known = left.get(entry.identity)
            if known is None:
                left[entry.identity] = (entry.kind, row)
            elif known[0] == EntryKind.ADD and entry.kind == EntryKind.DELETE:
                del left[entry.identity]
        left_out = np.zeros(len(self), dtype=bool)
        left_out[repeated] = True
        left_out[[row for _, row in left.values()]] = False
        return self._without(left_out)

    def __len__(self) -> int:
        return len(self.codes)

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *accumulate(map(len, self.pieces))]

    def numbers(self, name: str) -> np.ndarray:
        """A column of numbers by name, as int64."""
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
        """A column of byte strings by name, piece by piece."""
        return (getattr(piece, name) for piece in self.pieces)

    def lengths(self, name: str) -> np.ndarray:
        """The length of each value of a column of byte strings."""
        return _joined([ranges.ends - ranges.begins for ranges in self.each(name)]).astype(np.int64)

    def words(self, name: str, offsets: np.ndarray | int) -> np.ndarray:
        """`ByteRanges.words` of a column of byte strings. `offsets`: one for all entries, or one per entry."""
        if isinstance(offsets, int):
            return _joined([ranges.words(offsets) for ranges in self.each(name)]).astype(np.int64)
        parts = np.split(offsets, self._starts[1:])[:-1]  # the last is empty; there may be no piece
        return _joined([ranges.words(part) for ranges, part in zip(self.each(name), parts, strict=True)]).astype(np.int64)

    def entry(self, row: int) -> ManifestEntry:
        piece = bisect_right(self._starts, row) - 1
        return self.pieces[piece].entry(row - self._starts[piece])

    def identity(self, row: int) -> Hashable:
        """The identity of an entry: an ADD and a DELETE of the same identity cancel out. Plain entries are not decoded for it."""
        number = bisect_right(self._starts, row) - 1
        piece, index = self.pieces[number], row - self._starts[number]
        if piece.plain[index]:
            return int(self.codes[row]), int(piece.buckets[index]), int(piece.levels[index]), piece.names[index]
        entry = piece.entry(index)
        file, rare_fields = entry.file, (entry.file.extra_files, entry.file.embedded_file_index, entry.file.external_path)
        return (int(self.codes[row]), entry.bucket, file.level, file.file_name.encode(), *(() if is_plain(file) else rare_fields))

    def misplaced(self, named: Sequence[tuple[BucketId, str]]) -> tuple[BucketId, BucketId, str] | None:
        """A file name that is said to be in one bucket, but is only in another one: both buckets, and the name. None if there is
        none; names of files that the table does not have do not count.
        """
        codes = {partition: code for code, partition in enumerate(self.partitions)}
        said = np.array([(codes.get(partition, -1), bucket) for (partition, bucket), _ in named], dtype=np.int64).reshape(-1, 2)
        said_names = ByteRanges.of([name.encode() for _, name in named]).hashes().view(np.uint64)
        names = _joined([ranges.hashes() for ranges in self.each("names")]).view(np.uint64)
        places, said_places = (
            _mixed(_mixed(hashed, of_code), of_bucket)
            for hashed, of_code, of_bucket in ((names, self.codes, self.buckets), (said_names, *said.T))
        )
        strays = np.flatnonzero(~np.isin(said_places, places))
        rows = np.flatnonzero(np.isin(names, said_names[strays])) if len(strays) else strays
        lives = {entry.file.file_name: entry.bucket_id for entry in map(self.entry, rows.tolist())}
        found = (named[stray] for stray in strays.tolist() if named[stray][1] in lives)
        return next(((bucket_id, lives[name], name) for bucket_id, name in found), None)

    def entries(self) -> list[ManifestEntry]:
        return [entry for piece in self.pieces for entry in piece.entries()]

    @cached_property
    def rows_by_bucket(self) -> dict[BucketId, np.ndarray]:
        """Bucket -> the rows (indices of entries) of that bucket, ascending; buckets in the order of their first rows."""
        rows, starts = self._by_bucket
        groups = np.split(rows, starts[1:]) if len(rows) else []
        groups.sort(key=lambda rows: int(rows[0]))
        firsts = np.array([rows[0] for rows in groups], dtype=np.int64)
        return dict(zip(self._bucket_ids_at(firsts), groups, strict=True))

    def greatest_by_bucket(self, name: str) -> dict[BucketId, int]:
        """Bucket -> the greatest value of a column of numbers."""
        rows, starts = self._by_bucket
        tops = np.maximum.reduceat(self.numbers(name)[rows], starts) if len(rows) else rows
        return dict(zip(self._bucket_ids_at(rows[starts]), tops.tolist(), strict=True))

    def newest_by_bucket(self, name: str) -> dict[BucketId, int]:
        """Bucket -> the value that its newest entry has in a column of numbers."""
        rows, starts = self._by_bucket
        last = rows[np.append(starts[1:], len(rows)) - 1] if len(rows) else rows
        return dict(zip(self._bucket_ids_at(last), self.numbers(name)[last].tolist(), strict=True))

    @property
    def held_partitions(self) -> list[bytes]:
        """The partitions that have entries. In a table of live files, others of `partitions` may have lost theirs."""
        return [self.partitions[code] for code in np.unique(self.codes).tolist()]

    @property
    def schema_ids(self) -> list[int]:
        """The ids of all schemas under which the files were written, ascending."""
        found: list[int] = np.unique(self.numbers("schema_ids")).tolist()
        return found

    def bucket_counts(self) -> dict[bytes, set[int]]:
        """Partition -> the bucket counts recorded in its files."""
        if not len(self):
            return {}
        pairs = np.unique(np.stack([self.codes.astype(np.int64), self.numbers("total_buckets")]), axis=1)
        found: dict[bytes, set[int]] = {}
        for code, count in pairs.T.tolist():
            found.setdefault(self.partitions[code], set()).add(count)
        return found

    def by_partition(self) -> dict[bytes, FileTable]:
        """Partition -> the table of its entries, in order."""
        if len(self.partitions) == 1:
            return {self.partitions[0]: self} if len(self) else {}
        parts: dict[int, list[ManifestTable]] = {}
        for piece, (start, end) in zip(self.pieces, pairwise(self._starts), strict=True):
            codes = self.codes[start:end]
            order = np.argsort(codes, kind="stable")
            present, begins = np.unique(codes[order], return_index=True)
            for code, rows in zip(present.tolist(), np.split(order, begins)[1:], strict=True):
                parts.setdefault(code, []).append(piece.take(rows))
        return {self.partitions[code]: FileTable.of_partition(self.partitions[code], some) for code, some in parts.items()}

    @cached_property
    def _by_bucket(self) -> tuple[np.ndarray, np.ndarray]:
        """The rows sorted by bucket, and the index of each bucket's first row."""
        order = np.lexsort((self.buckets, self.codes))
        codes, buckets = self.codes[order], self.buckets[order]
        begins = np.ones(len(order), dtype=bool)
        begins[1:] = (codes[1:] != codes[:-1]) | (buckets[1:] != buckets[:-1])
        return order, np.flatnonzero(begins)

    def _bucket_ids_at(self, rows: np.ndarray) -> Iterator[BucketId]:
        codes, buckets = self.codes[rows].tolist(), self.buckets[rows].tolist()
        return map(BucketId, [self.partitions[code] for code in codes], buckets)

    def encoded(self, target_size: int, partition_types: Sequence[DataType]) -> Iterator[tuple[bytes, ManifestFileMeta]]:
        """All entries, encoded as manifests of about `target_size` bytes, each with its metadata except the file name.

        Entries that were read in the form that we write are copied as bytes.
        """
        if all(piece.records.is_ours for piece in self.pieces):
            found = copied_manifests([record for piece in self.pieces for record in piece.records.bytes], target_size)
        else:
            found = encode_manifests(self.entries(), target_size)
        end = 0
        for content, count in found:
            rows, end = slice(end, end + count), end + count
            yield content, self._line(len(content), rows, partition_types)

    def _line(self, size: int, rows: slice, partition_types: Sequence[DataType]) -> ManifestFileMeta:
        kinds, buckets, levels, schemas = (self.numbers(name)[rows] for name in ("kinds", "buckets", "levels", "schema_ids"))
        counts = np.bincount(self.codes[rows])
        partitions = {self.partitions[code]: int(counts[code]) for code in np.flatnonzero(counts).tolist()}
        added = int((kinds == EntryKind.ADD).sum())
        return ManifestFileMeta(
            file_name="",
            file_size=size,
            num_added_files=added,
            num_deleted_files=len(kinds) - added,
            partition_stats=partition_stats(partitions, partition_types),
            schema_id=int(schemas.max()),
            min_bucket=int(buckets.min()),
            max_bucket=int(buckets.max()),
            min_level=int(levels.min()),
            max_level=int(levels.max()),
        )

    def _without(self, left_out: np.ndarray) -> FileTable:
        left = ~left_out
        starts = self._starts
        parts = (left[start:end] for start, end in pairwise(starts))
        pieces = [
            piece if part.all() else piece.take(np.flatnonzero(part)) for piece, part in zip(self.pieces, parts, strict=True)
        ]
        return FileTable(tuple(pieces), self.partitions, self.codes[left])


class _Partitions:
    """Numbers the partitions, and applies the filter to each of them once."""

    def __init__(self, wanted: FileFilter) -> None:
        self.numbers: dict[bytes, int] = {}
        self._wanted = wanted
        self._kept: list[bool] = []

    def codes(self, piece: ManifestTable) -> tuple[np.ndarray, np.ndarray]:
        """For each entry, the number of its partition, and whether the filter accepts it."""
        codes, values = piece.partitions.coded()
        for value in values:
            if value not in self.numbers:
                self.numbers[value] = len(self.numbers)
                self._kept.append(self._wanted.keeps_partition(value))
        counts = np.bincount(codes[piece.kinds == EntryKind.ADD], minlength=len(values))
        counts -= np.bincount(codes[piece.kinds == EntryKind.DELETE], minlength=len(values))
        for value, count in zip(values, counts.tolist(), strict=True):
            self._wanted.count_files(value, count)
        numbers = np.array([self.numbers[value] for value in values], dtype=np.int32)
        kept = np.array(self._kept, dtype=bool)[numbers]
        return numbers[codes], kept[codes]


def deleted_partitions(pieces: Iterable[ManifestTable]) -> set[bytes]:
    """The partitions with DELETE entries."""
    return {
        value for piece in pieces for value in piece.partitions.take(np.flatnonzero(piece.kinds == EntryKind.DELETE)).coded()[1]
    }


def _joined(columns: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(columns) if columns else np.zeros(0, dtype=np.int32)


def _dead(table: FileTable) -> np.ndarray | None:
    """Whether each entry is not a live file: a DELETE, or an ADD that was deleted. None if there are only ADDs."""
    kinds = table.numbers("kinds")
    if (kinds == EntryKind.ADD).all():
        return None
    deletes = kinds == EntryKind.DELETE
    hashes = _identity_hashes(table)
    suspects = np.flatnonzero(~deletes & np.isin(hashes, hashes[deletes]))
    dead = kinds != EntryKind.ADD
    removed = suspects[_is_deleted(table, suspects, np.flatnonzero(deletes), hashes)]
    dead[removed] = True
    if len(removed) < np.count_nonzero(deletes):
        _check_deletes(table, np.flatnonzero(deletes), removed, hashes)
    return dead


def _check_deletes(table: FileTable, deletes: np.ndarray, removed: np.ndarray, hashes: np.ndarray) -> None:
    """Raise `DamagedFile` for a DELETE of none of the `removed` files. The file that it should remove would be read.

    Writers keep a DELETE only as long as the ADD is in another manifest, and a reader sees all manifests. A second DELETE of a
    file does no harm.
    """
    is_matched = np.isin(hashes[deletes], hashes[removed])
    _, groups, counts = np.unique(hashes[deletes], return_inverse=True, return_counts=True)
    repeated = np.flatnonzero(is_matched & (counts[groups] > 1))  # hashes leave out the rare parts of identities
    known = {table.identity(row) for row in removed[np.isin(hashes[removed], hashes[deletes[repeated]])].tolist()}
    is_matched[repeated] = [table.identity(row) in known for row in deletes[repeated].tolist()]
    unmatched = deletes[~is_matched]
    if len(unmatched):
        entry = table.entry(int(unmatched[0]))
        raise DamagedFile(
            "the manifests of a snapshot are damaged",
            f"they remove {entry.file.file_name} at level {entry.file.level} of bucket {entry.bucket}, where none adds it",
            "restore the manifests, or go back to an older snapshot",
        )


def _identity_hashes(table: FileTable) -> np.ndarray:
    """A hash of each entry's identity, computed from the columns of plain entries."""
    hashed = _joined([piece.identity_hashes for piece in table.pieces])
    if len(table.partitions) > 1:
        hashed = _mixed(hashed, table.codes)
    return hashed.view(np.int64)


def _mixed(hashed: np.ndarray, column: np.ndarray) -> np.ndarray:
    """Hashes (uint64) that also depend on a column of integers."""
    mixed = (hashed ^ column.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
    return np.asarray(mixed ^ (mixed >> np.uint64(31)))


def _is_deleted(table: FileTable, adds: np.ndarray, deletes: np.ndarray, hashes: np.ndarray) -> np.ndarray:
    """Whether each of these ADDs, whose hashes equal that of a DELETE, has the identity of a DELETE.

    If there are few, or if they are not plain, they are compared as objects.
    """
    same = np.zeros(len(adds), dtype=bool)
    if len(adds) > PIECES.max_compared_objects:
        ordered = deletes[np.argsort(hashes[deletes], kind="stable")]
        same = _are_same(table, adds, ordered[np.searchsorted(hashes[ordered], hashes[adds])])
    unsure = np.flatnonzero(~same)
    if len(unsure):
        candidates = deletes[np.isin(hashes[deletes], hashes[adds[unsure]])]
        deleted = set(map(table.identity, candidates.tolist()))
        same[unsure] = [table.identity(row) in deleted for row in adds[unsure].tolist()]
    return same


def _are_same(table: FileTable, one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Whether the columns of each pair of entries show that both have the same identity."""
    plain = np.concatenate([piece.plain for piece in table.pieces])
    same = plain[one] & plain[other] & _same_names(table, one, other)
    for column in (table.codes, table.buckets, table.numbers("levels")):
        same &= column[one] == column[other]
    return same


def _same_names(table: FileTable, one: np.ndarray, other: np.ndarray) -> np.ndarray:
    lengths = table.lengths("names")
    same = lengths[one] == lengths[other]
    for offset in range(0, int(lengths[one].max(initial=0)), 8):
        words = table.words("names", offset)
        same &= words[one] == words[other]
    return same
