"""The hash index of a partition with dynamic buckets: the bucket of every key hash.

Each bucket has an index file with the hashes of all keys that were ever written to it (FORMAT.md, section 6.4). In memory a key
takes 6 bytes in sorted arrays, and up to 2 more in a directory of them; a hash table of objects would take twenty times as much.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from paimon_cli.bucket.stamped_files import INDEX_PREFIX, stamped_uuid
from paimon_cli.errors import Conflict, DamagedFile, NotSupported
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import HASH, BucketId, IndexFileMeta, hash_index_state
from paimon_cli.metadata.index_files import KeyHashes, decode_key_hashes, encode_key_hashes
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.pieces import PIECES

Hashes = npt.NDArray[np.uint32]
"""Key hashes as unsigned numbers."""
Buckets = npt.NDArray[np.uint16]

NOWHERE = 2**16 - 1
"""The bucket of an unknown hash; bucket numbers end at 32,766."""
_KEYS_PER_CELL = 3
_LINEAR_STEPS = 32
"""Steps of a linear search within a cell, before a binary search over all hashes."""
_RANGE_BITS = 20
_DENSE_RATIO = 16
"""An index with fewer than this many hashes per hash to be found is searched through a table of all hashes, range by range."""


def read_key_hashes(context: TableContext, index: IndexFileMeta) -> KeyHashes:
    """The hashes in an index file. Raises `DamagedFile` if it is missing or does not hold what its metadata says."""
    if index.external_path is not None:
        why = "external paths are not supported"
        raise NotSupported(f"index file {index.file_name} of {context.url} lies outside of the table", why)
    path = context.layout.index(index.file_name)
    with context.trace.timed("hash_index", file=index.file_name) as facts:
        try:
            hashes = decode_key_hashes(context.storage.read_bytes(path), path)
        except FileNotFoundError as error:
            raise DamagedFile(f"index file {path} is missing", "the snapshot's index manifest names it", path=path) from error
        facts["hashes"] = len(hashes)
    if len(hashes) != index.row_count:
        why = f"it holds {len(hashes)} hashes, but its metadata says {index.row_count}"
        raise DamagedFile(f"index file {path} is damaged", why, path=path)
    return hashes


def write_key_hashes(context: TableContext, bucket_id: BucketId, hashes: KeyHashes, file_stamp: str) -> IndexFileMeta:
    """Write a new index file with these hashes, and return its metadata."""
    name, content = f"{INDEX_PREFIX}{stamped_uuid(context, file_stamp)}-0", encode_key_hashes(hashes)
    bucket_path = context.bucket_path(*bucket_id)
    with context.trace.timed("write_hash_index", bucket=bucket_path, file=name, hashes=len(hashes), bytes=len(content)):
        context.storage.write_new(context.layout.index(name), content)
    return IndexFileMeta(HASH, name, len(content), len(hashes))


@dataclass(frozen=True)
class HashIndexes:
    """The hash index files of a table at one snapshot: partition -> bucket -> file. Picklable.

    `with_rows`: partition -> bucket with data files -> the bucket count recorded in them, which is -1 for dynamic buckets.
    """

    files: Mapping[bytes, Mapping[int, IndexFileMeta]]
    with_rows: Mapping[bytes, Mapping[int, int]]

    @staticmethod
    def at(context: TableContext, snapshot: Snapshot | None, with_rows: Mapping[BucketId, int]) -> HashIndexes:
        files: dict[bytes, dict[int, IndexFileMeta]] = {}
        for entry in [] if snapshot is None else context.manifests.index_entries(snapshot):
            if entry.index_file.index_type == HASH:
                files.setdefault(entry.partition, {})[entry.bucket] = entry.index_file
        buckets: dict[bytes, dict[int, int]] = {}
        for (partition, bucket), total in with_rows.items():
            buckets.setdefault(partition, {})[bucket] = total
        return HashIndexes(files, buckets)

    def of(self, context: TableContext, partition: bytes) -> Mapping[int, IndexFileMeta]:
        """The index files of a partition by bucket.

        Raises `DamagedFile` if a bucket has rows but no index, since its keys would be written to other buckets, too, and
        `Conflict` if `rescale` has moved the partition into a fixed number of buckets.
        """
        files = self.files.get(partition, {})
        for bucket, total in self.with_rows.get(partition, {}).items():
            if total > 0:
                rescale = f"paimon-cli rescale {context.layout.argument} --buckets {total} --yes"
                raise Conflict(
                    f"{context.bucket_path(partition, bucket)} was written for a fixed number of {total} buckets",
                    "a rescale has moved its rows, but this command still saw the old bucket option",
                    f"run this again; if the rescale was killed, first run: {rescale}",
                )
            if bucket not in files:
                raise DamagedFile(
                    f"{context.bucket_path(partition, bucket)} has rows but no hash index",
                    "without it, new rows of the bucket's keys would go to another bucket",
                    "rebuild it, which deletes nothing: "
                    f"paimon-cli repair {context.layout.argument} --only hash-index --apply --yes",
                )
        return files

    def state(self, partition: bytes) -> str:
        """The state of a partition's index, which a commit compares to see whether the index has changed."""
        return hash_index_state(self.files.get(partition, {}).values())


@dataclass(frozen=True, eq=False)
class HashBuckets:
    """Distinct hashes in ascending order, and the bucket of each (parallel arrays)."""

    hashes: Hashes
    buckets: Buckets

    @staticmethod
    def of(packed: npt.NDArray[np.uint64]) -> HashBuckets:
        """From ascending numbers, each a hash with its bucket in the lowest 16 bits; of equal hashes the last counts."""
        hashes, buckets = np.empty(len(packed), np.uint32), np.empty(len(packed), np.uint16)
        for begin in range(0, len(packed), PIECES.hash_block_rows):
            block = packed[begin : begin + PIECES.hash_block_rows]
            buckets[begin : begin + PIECES.hash_block_rows] = block
            hashes[begin : begin + PIECES.hash_block_rows] = block >> np.uint64(16)
        repeats = hashes[1:] == hashes[:-1]
        if repeats.any():
            is_last = np.append(~repeats, True)
            hashes, buckets = hashes[is_last], buckets[is_last]
        return HashBuckets(hashes, buckets)

    @staticmethod
    def of_pieces(pieces: Sequence[tuple[KeyHashes, int]]) -> HashBuckets:
        """From the hashes of each bucket, which may be sorted in place; of equal hashes the one in the last piece counts."""
        number_bits = max(1, (len(pieces) - 1).bit_length())
        if sum(len(hashes) for hashes, _ in pieces) < PIECES.hashes_per_range * len(pieces) << number_bits:
            return HashBuckets.of(packed_sorted(pieces))
        return _merged_by_range([hashes.view(np.uint32) for hashes, _ in pieces], [bucket for _, bucket in pieces], number_bits)

    def merged_with(self, other: HashBuckets) -> HashBuckets:
        return HashBuckets.of(packed_sorted([(self.hashes, self.buckets), (other.hashes, other.buckets)]))

    @property
    def nbytes(self) -> int:
        return self.hashes.nbytes + self.buckets.nbytes + self._directory.nbytes

    @cached_property
    def _shift(self) -> int:
        """By how many bits to shift a hash to get the number of its cell. Cells are equal ranges with a few hashes each."""
        return max(0, 32 - (max(1, len(self.hashes) // _KEYS_PER_CELL)).bit_length() + 1)

    @cached_property
    def _directory(self) -> npt.NDArray[np.uint32]:
        """The index of the first hash of each cell, and the number of hashes at the end."""
        shift = np.uint32(self._shift)
        counts = np.zeros((1 << (32 - self._shift)) + 1, np.uint32)
        for begin in range(0, len(self.hashes), 16 * PIECES.hash_block_rows):
            cells = self.hashes[begin : begin + 16 * PIECES.hash_block_rows] >> shift
            first, last = int(cells[0]), int(cells[-1])
            counts[first + 1 : last + 2] += np.bincount(cells - np.uint32(first)).astype(np.uint32)
        return np.cumsum(counts, dtype=np.uint32)

    def find(self, wanted: Hashes) -> Buckets:
        """The bucket of each hash, in the order given; `NOWHERE` for hashes that are not in this part.

        Walks through the cells of all hashes at once, one step per round.
        """
        found = np.full(len(wanted), NOWHERE, np.uint16)
        rows, remaining = np.arange(len(wanted)), wanted
        at = self._directory[wanted >> np.uint32(self._shift)].astype(np.intp)
        for _ in range(_LINEAR_STEPS):
            inside = at < len(self.hashes)
            if not inside.all():
                rows, remaining, at = rows[inside], remaining[inside], at[inside]
            current = self.hashes[at]
            hits = np.flatnonzero(current == remaining)
            found[rows[hits]] = self.buckets[at[hits]]
            continued = np.flatnonzero(current < remaining)
            if not len(continued):
                return found
            rows, remaining, at = rows[continued], remaining[continued], at[continued] + 1
        at = np.minimum(np.searchsorted(self.hashes, remaining), len(self.hashes) - 1)
        hits = np.flatnonzero(self.hashes[at] == remaining)
        found[rows[hits]] = self.buckets[at[hits]]
        return found


def _range_ends(hashes: Hashes | npt.NDArray[np.uint64], range_bits: int = _RANGE_BITS) -> list[int]:
    """The index after each range of `2^range_bits` hashes. `hashes`: ascending; of 64-bit numbers the upper half is the hash."""
    shift = 8 * hashes.itemsize - 32 + range_bits
    starts = np.left_shift(np.arange(1, 1 << (32 - range_bits), dtype=hashes.dtype), hashes.dtype.type(shift))
    return [*np.searchsorted(hashes, starts).tolist(), len(hashes)]


def _merged_by_range(pieces: Sequence[Hashes], buckets: Sequence[int], number_bits: int) -> HashBuckets:
    """One part of all pieces, which are sorted in place.

    The first `number_bits` bits of a hash are its range, so the other bits and the number of its piece fit into 32 bits: sorting
    these is twice as fast as sorting 64 bits, and apart from the result only one range needs memory.
    """
    ends = []
    for hashes in pieces:
        hashes.sort()
        ends.append([0, *_range_ends(hashes, 32 - number_bits)])
    sizes = np.diff(ends, axis=1).sum(axis=0)
    merged, bucket_of = np.empty(sizes.sum(), np.uint32), np.array(buckets, np.uint16)
    merged_buckets, scratch = np.empty(len(merged), np.uint16), np.empty(sizes.max(), np.uint32)
    shift, number_mask = np.uint32(number_bits), np.uint32((1 << number_bits) - 1)
    at = 0
    for range_number, size in enumerate(sizes.tolist()):
        packed, end = scratch[:size], 0
        for number, hashes in enumerate(pieces):
            piece = hashes[ends[number][range_number] : ends[number][range_number + 1]]
            begin, end = end, end + len(piece)
            np.left_shift(piece, shift, out=packed[begin:end])
            packed[begin:end] |= np.uint32(number)
        packed.sort()
        different = (packed[1:] ^ packed[:-1]) > number_mask
        if not different.all():
            packed = packed[np.append(different, True)]
        begin, at = at, at + len(packed)
        np.right_shift(packed, shift, out=merged[begin:at])
        merged[begin:at] |= np.uint32(range_number << (32 - number_bits))
        packed &= number_mask
        np.take(bucket_of, packed, out=merged_buckets[begin:at], mode="clip")
    return HashBuckets(merged[:at], merged_buckets[:at])


def packed_sorted(pieces: Sequence[tuple[Hashes | KeyHashes, Buckets | int]]) -> npt.NDArray[np.uint64]:
    """All hashes, ascending, each with its bucket in the lowest 16 bits."""
    packed = np.empty(sum(len(hashes) for hashes, _ in pieces), np.uint64)
    end = 0
    for hashes, buckets in pieces:
        unsigned = hashes.view(np.uint32)
        for begin in range(0, len(hashes), PIECES.hash_block_rows):
            block = packed[end : end + len(unsigned[begin : begin + PIECES.hash_block_rows])]
            np.left_shift(unsigned[begin : begin + PIECES.hash_block_rows], np.uint64(16), out=block)
            block |= np.uint64(buckets) if isinstance(buckets, int) else buckets[begin : begin + PIECES.hash_block_rows]
            end += len(block)
    packed.sort()
    return packed


class PackedIndex:
    """Hash -> bucket, for all hashes of a partition for which an assigner is responsible.

    One part holds the hashes of the index files, further parts the new ones. Each of the new parts (below `max_merged_hashes`)
    is at least twice as large as the next: adding a batch sorts few hashes, and a search visits few parts.
    """

    def __init__(self, pieces: Sequence[tuple[KeyHashes, int]] = ()) -> None:
        """`pieces`: the hashes of each bucket, by bucket number. A hash in two of them belongs to the later one.

        The hashes may be sorted in place.
        """
        filled = [(hashes, bucket) for hashes, bucket in pieces if len(hashes)]
        self._parts = [HashBuckets.of_pieces(filled)] if filled else []
        self._new: list[tuple[Hashes, Buckets]] = []

    def __len__(self) -> int:
        return sum(len(part.hashes) for part in self._parts) + sum(len(hashes) for hashes, _ in self._new)

    @property
    def nbytes(self) -> int:
        """The memory of all arrays."""
        return sum(part.nbytes for part in self._parts) + sum(hashes.nbytes + buckets.nbytes for hashes, buckets in self._new)

    def find(self, packed: npt.NDArray[np.uint64]) -> Iterator[tuple[int, Hashes, Buckets]]:
        """Look up the hashes in the upper halves of `packed` (ascending), in portions that keep equal hashes together.

        A portion: the index of its first hash in `packed`, its hashes, and the bucket of each, `NOWHERE` for unknown hashes. The
        caller may change `packed` up to the end of the last portion.
        """
        self._merge_new()
        if 1 << _RANGE_BITS <= len(self) < _DENSE_RATIO * len(packed):
            return self._found_in_table(packed)
        wanted = (packed >> np.uint64(32)).astype(np.uint32)
        return iter([(0, wanted, self.look_up(wanted))])

    def look_up(self, wanted: Hashes) -> Buckets:
        """The bucket of each hash, in the order given; `NOWHERE` for unknown hashes. Hashes added since `find` are ignored."""
        found = np.full(len(wanted), NOWHERE, np.uint16)
        for number, part in enumerate(self._parts):
            if not number:
                found = part.find(wanted)
                continue
            unknown = np.flatnonzero(found == NOWHERE)
            found[unknown] = part.find(wanted[unknown])
        return found

    def _found_in_table(self, packed: npt.NDArray[np.uint64]) -> Iterator[tuple[int, Hashes, Buckets]]:
        """Look up range by range, in a table with the bucket of every possible hash of the range."""
        table = np.full(1 << _RANGE_BITS, NOWHERE, np.uint16)
        parts = [(part, _range_ends(part.hashes)) for part in self._parts]
        begins, first = [0] * len(parts), 0
        for number, last in enumerate(_range_ends(packed)):
            start, filled = np.uint32(number << _RANGE_BITS), []
            for at, (part, ends) in enumerate(parts):
                begin, begins[at] = begins[at], ends[number]
                if first < last:
                    filled.append((part.hashes[begin : ends[number]] - start).astype(np.intp))
                    table[filled[-1]] = part.buckets[begin : ends[number]]
            if first < last:
                wanted = (packed[first:last] >> np.uint64(32)).astype(np.uint32)
                yield first, wanted, table[(wanted - start).astype(np.intp)]
                for offsets in filled:
                    table[offsets] = NOWHERE
            first = last

    def add(self, hashes: Hashes, buckets: Buckets) -> None:
        """Add unknown hashes, each of them once."""
        self._new.append((hashes, buckets))

    def _merge_new(self) -> None:
        """Merge the hashes that were added since the last search into the parts."""
        for new in self._new:
            self._parts.append(HashBuckets.of(packed_sorted([new])))
            while len(self._parts) > 1 and len(self._parts[-2].hashes) < 2 * min(
                len(self._parts[-1].hashes), PIECES.max_merged_hashes
            ):
                newest = self._parts.pop()
                self._parts[-1] = self._parts[-1].merged_with(newest)
        self._new.clear()
