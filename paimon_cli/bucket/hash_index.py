"""The hash index of a partition with dynamic buckets: the bucket of every key hash, read from files and held packed.

Each bucket has a file with the hashes of all keys that were ever written to it (FORMAT.md, section 6.4). In memory a key takes 6
bytes in sorted arrays, and at most 2 more in the directory over them; hash tables of objects would take twenty times that.
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

Hashes = npt.NDArray[np.uint32]
"""Key hashes as unsigned numbers."""
Buckets = npt.NDArray[np.uint16]

NOWHERE = 2**16 - 1
"""The bucket of an unknown hash; bucket numbers end at 32,766."""
_KEYS_A_CELL = 3
_ROUNDS = 32
_RANGE_BITS = 20
_DENSE_SHARE = 16
"""An index with less than this many times the hashes to be found is laid out in full, range by range."""
_MOST_MERGED = 1 << 20
"""Parts from this size on are left alone: batches that bring as many are searched for by laying out."""
_KEYS_A_SLICE = 1 << 10
"""Pieces are merged range by range if this many hashes of a piece fall into a range in the mean."""
BLOCK = 1 << 16
"""Hashes worked on at once where intermediate results should stay in the processor's cache."""


def read_key_hashes(context: TableContext, index: IndexFileMeta) -> KeyHashes:
    """The hashes in an index file. `DamagedFile` if it is missing or does not hold what its metadata says."""
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
        why = f"it holds {len(hashes)} hashes, its metadata says {index.row_count}"
        raise DamagedFile(f"index file {path} is damaged", why, path=path)
    return hashes


def write_key_hashes(context: TableContext, bucket_id: BucketId, hashes: KeyHashes, file_stamp: str) -> IndexFileMeta:
    """A new index file with these hashes."""
    name, content = f"{INDEX_PREFIX}{stamped_uuid(context, file_stamp)}-0", encode_key_hashes(hashes)
    place = context.bucket_path(*bucket_id)
    with context.trace.timed("write_hash_index", bucket=place, file=name, hashes=len(hashes), bytes=len(content)):
        context.storage.write_new(context.layout.index(name), content)
    return IndexFileMeta(HASH, name, len(content), len(hashes))


@dataclass(frozen=True)
class HashIndexes:
    """The index files of a table's partitions at one snapshot: partition -> bucket -> file. Picklable.

    `with_rows`: the buckets that have data files, with the number of buckets that these were written for, -1 as a rule.
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
        """The files of a partition. `DamagedFile` if a bucket has rows but no index: they would be written to another bucket.

        `Conflict` for a partition that `rescale` has moved into a fixed number of buckets.
        """
        files = self.files.get(partition, {})
        for bucket, total in self.with_rows.get(partition, {}).items():
            if total > 0:
                rescale = f"paimon-cli rescale {context.layout.argument} --buckets {total}"
                raise Conflict(
                    f"{context.bucket_path(partition, bucket)} was written for a fixed number of {total} buckets",
                    "a rescale has moved its rows, but this command still saw the old bucket option",
                    f"run this again; if the rescale was killed, first run: {rescale}",
                )
            if bucket not in files:
                raise DamagedFile(
                    f"{context.bucket_path(partition, bucket)} has rows but no hash index",
                    "nothing says which of its keys it holds, so that new rows of them would go to another bucket",
                    f"paimon-cli repair {context.layout.argument} --only hash-index --apply",
                )
        return files

    def state(self, partition: bytes) -> str:
        """What a commit compares, to see whether the index has changed."""
        return hash_index_state(self.files.get(partition, {}).values())


@dataclass(frozen=True, eq=False)
class Part:
    """Distinct hashes, ascending, and the bucket of each."""

    hashes: Hashes
    buckets: Buckets

    @staticmethod
    def of(packed: npt.NDArray[np.uint64]) -> Part:
        """From hashes with their buckets in the lowest 16 bits, ascending; of equal hashes the last counts."""
        hashes, buckets = np.empty(len(packed), np.uint32), np.empty(len(packed), np.uint16)
        for begin in range(0, len(packed), BLOCK):
            block = packed[begin : begin + BLOCK]
            buckets[begin : begin + BLOCK] = block
            hashes[begin : begin + BLOCK] = block >> np.uint64(16)
        again = hashes[1:] == hashes[:-1]
        if again.any():
            last = np.append(~again, True)
            hashes, buckets = hashes[last], buckets[last]
        return Part(hashes, buckets)

    @staticmethod
    def of_pieces(pieces: Sequence[tuple[KeyHashes, int]]) -> Part:
        """From the hashes of whole buckets, which are sorted in place; of equal hashes that of the last piece counts."""
        number_bits = max(1, (len(pieces) - 1).bit_length())
        if sum(len(hashes) for hashes, _ in pieces) < _KEYS_A_SLICE * len(pieces) << number_bits:
            return Part.of(packed_sorted(pieces))
        return _merged_by_range([hashes.view(np.uint32) for hashes, _ in pieces], [bucket for _, bucket in pieces], number_bits)

    def merged_with(self, other: Part) -> Part:
        return Part.of(packed_sorted([(self.hashes, self.buckets), (other.hashes, other.buckets)]))

    @property
    def nbytes(self) -> int:
        return self.hashes.nbytes + self.buckets.nbytes + self._directory.nbytes

    @cached_property
    def _shift(self) -> int:
        """How far to shift a hash to get the number of its cell; the hash space is cut into cells of a few hashes each."""
        return max(0, 32 - (max(1, len(self.hashes) // _KEYS_A_CELL)).bit_length() + 1)

    @cached_property
    def _directory(self) -> npt.NDArray[np.uint32]:
        """Where the hashes of each cell begin."""
        shift = np.uint32(self._shift)
        counts = np.zeros((1 << (32 - self._shift)) + 1, np.uint32)
        for begin in range(0, len(self.hashes), 16 * BLOCK):
            cells = self.hashes[begin : begin + 16 * BLOCK] >> shift
            first, last = int(cells[0]), int(cells[-1])
            counts[first + 1 : last + 2] += np.bincount(cells - np.uint32(first)).astype(np.uint32)
        return np.cumsum(counts, dtype=np.uint32)

    def find(self, wanted: Hashes) -> Buckets:
        """The bucket of each hash, in any order; `NOWHERE` for those that are not here.

        Goes through the cell of each hash, all cells at the same time.
        """
        found = np.full(len(wanted), NOWHERE, np.uint16)
        rows, left = np.arange(len(wanted)), wanted
        places = self._directory[wanted >> np.uint32(self._shift)].astype(np.intp)
        for _ in range(_ROUNDS):
            inside = places < len(self.hashes)
            if not inside.all():
                rows, left, places = rows[inside], left[inside], places[inside]
            here = self.hashes[places]
            hits = np.flatnonzero(here == left)
            found[rows[hits]] = self.buckets[places[hits]]
            beyond = np.flatnonzero(here < left)
            if not len(beyond):
                return found
            rows, left, places = rows[beyond], left[beyond], places[beyond] + 1
        places = np.minimum(np.searchsorted(self.hashes, left), len(self.hashes) - 1)
        hits = np.flatnonzero(self.hashes[places] == left)
        found[rows[hits]] = self.buckets[places[hits]]
        return found


def _range_ends(hashes: Hashes | npt.NDArray[np.uint64], range_bits: int = _RANGE_BITS) -> list[int]:
    """Where each range of the hash space ends among ascending hashes, or numbers whose upper halves are such."""
    shift = 8 * hashes.itemsize - 32 + range_bits
    starts = np.arange(1, 1 << (32 - range_bits), dtype=hashes.dtype) << hashes.dtype.type(shift)
    return [*np.searchsorted(hashes, starts).tolist(), len(hashes)]


def _merged_by_range(pieces: Sequence[Hashes], buckets: Sequence[int], number_bits: int) -> Part:
    """One part of all pieces, each of which is sorted in place.

    There are as many ranges as numbers of pieces, so that the rest of a hash and the number of its piece fit into 32 bits:
    sorting these is twice as fast as sorting 64 bits, and apart from the result only one range needs memory.
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
    for place, size in enumerate(sizes.tolist()):
        packed, end = scratch[:size], 0
        for number, hashes in enumerate(pieces):
            piece = hashes[ends[number][place] : ends[number][place + 1]]
            begin, end = end, end + len(piece)
            np.left_shift(piece, shift, out=packed[begin:end])
            packed[begin:end] |= np.uint32(number)
        packed.sort()
        different = (packed[1:] ^ packed[:-1]) > number_mask
        if not different.all():
            packed = packed[np.append(different, True)]
        begin, at = at, at + len(packed)
        np.right_shift(packed, shift, out=merged[begin:at])
        merged[begin:at] |= np.uint32(place << (32 - number_bits))
        packed &= number_mask
        np.take(bucket_of, packed, out=merged_buckets[begin:at], mode="clip")
    return Part(merged[:at], merged_buckets[:at])


def packed_sorted(pieces: Sequence[tuple[Hashes | KeyHashes, Buckets | int]]) -> npt.NDArray[np.uint64]:
    """Hashes with their buckets in the lowest 16 bits, ascending."""
    packed = np.empty(sum(len(hashes) for hashes, _ in pieces), np.uint64)
    end = 0
    for hashes, buckets in pieces:
        unsigned = hashes.view(np.uint32)
        for begin in range(0, len(hashes), BLOCK):
            block = packed[end : end + len(unsigned[begin : begin + BLOCK])]
            np.left_shift(unsigned[begin : begin + BLOCK], np.uint64(16), out=block)
            block |= np.uint64(buckets) if isinstance(buckets, int) else buckets[begin : begin + BLOCK]
            end += len(block)
    packed.sort()
    return packed


class PackedIndex:
    """Hash -> bucket, for all hashes of a partition that matter to an assigner.

    A part for the hashes of the files, and parts for those that came later, where a small one is at least twice as large as the
    next: adding a batch sorts few hashes, and a search looks into few parts.
    """

    def __init__(self, pieces: Sequence[tuple[KeyHashes, int]] = ()) -> None:
        """`pieces`: hashes and their bucket, by bucket number; a hash that comes in two of them belongs to the later one.

        The hashes of large pieces are sorted in place.
        """
        filled = [(hashes, bucket) for hashes, bucket in pieces if len(hashes)]
        self._parts = [Part.of_pieces(filled)] if filled else []
        self._new: list[tuple[Hashes, Buckets]] = []

    def __len__(self) -> int:
        return sum(len(part.hashes) for part in self._parts) + sum(len(hashes) for hashes, _ in self._new)

    @property
    def nbytes(self) -> int:
        """Memory held."""
        return sum(part.nbytes for part in self._parts) + sum(hashes.nbytes + buckets.nbytes for hashes, buckets in self._new)

    def find(self, packed: npt.NDArray[np.uint64]) -> Iterator[tuple[int, Hashes, Buckets]]:
        """The hashes in the upper halves of `packed`, which ascends, in portions that keep equal hashes together: the place of
        the first of them, the hashes, and the bucket of each, `NOWHERE` for unknown ones.

        `packed` may be changed as far as it has been given out.
        """
        self._take_in()
        if 1 << _RANGE_BITS <= len(self) < _DENSE_SHARE * len(packed):
            return self._laid_out(packed)
        wanted = (packed >> np.uint64(32)).astype(np.uint32)
        return iter([(0, wanted, self.look_up(wanted))])

    def look_up(self, wanted: Hashes) -> Buckets:
        """The bucket of each hash, in any order; `NOWHERE` for unknown ones."""
        found = np.full(len(wanted), NOWHERE, np.uint16)
        for number, part in enumerate(self._parts):
            if not number:
                found = part.find(wanted)
                continue
            unknown = np.flatnonzero(found == NOWHERE)
            found[unknown] = part.find(wanted[unknown])
        return found

    def _laid_out(self, packed: npt.NDArray[np.uint64]) -> Iterator[tuple[int, Hashes, Buckets]]:
        """Lay out the buckets of one range of hashes after the other in a table with a place for each hash of the range."""
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
                for places in filled:
                    table[places] = NOWHERE
            first = last

    def add(self, hashes: Hashes, buckets: Buckets) -> None:
        """Take in hashes that were unknown until now, none twice."""
        self._new.append((hashes, buckets))

    def _take_in(self) -> None:
        """Sort what was added since the last search."""
        for new in self._new:
            self._parts.append(Part.of(packed_sorted([new])))
            while len(self._parts) > 1 and len(self._parts[-2].hashes) < 2 * min(len(self._parts[-1].hashes), _MOST_MERGED):
                newest = self._parts.pop()
                self._parts[-1] = self._parts[-1].merged_with(newest)
        self._new.clear()
