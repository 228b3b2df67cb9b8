"""Assigns keys to dynamic buckets (FORMAT.md, section 6.4; Java HashBucketAssigner, PartitionIndex).

A key stays in the bucket that it has. New keys fill the first bucket with fewer than `dynamic-bucket.target-row-num` keys; if
there is none, a new bucket is opened. Several assigners may work in parallel: each opens only buckets of its own, and the hash of
a key decides to which assigner it belongs. So the result depends only on the order of rows and on the number of assigners, and a
task that is repeated assigns the same buckets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paimon_cli.bucket.hash_index import NOWHERE, Buckets, Hashes, PackedIndex
from paimon_cli.errors import UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.index_files import KeyHashes
from paimon_cli.pieces import PIECES

_MAX_BUCKETS = 2**15 - 1
"""Bucket numbers are below this, because Java stores them in 16 signed bits."""


@dataclass(frozen=True)
class Limits:
    """How many keys a bucket takes, and how many buckets a partition may have (None: as many as there are bucket numbers).

    `table`: the table as an argument of commands in hints.
    """

    target_rows: int
    max_buckets: int | None
    table: str = "TABLE"

    @staticmethod
    def of(context: TableContext) -> Limits:
        most = context.options.dynamic_bucket_max_buckets
        target_rows = context.options.dynamic_bucket_target_row_num
        return Limits(target_rows, None if most == -1 else most, context.layout.argument)

    @property
    def end(self) -> int:
        """The highest allowed bucket number, plus one."""
        return _MAX_BUCKETS if self.max_buckets is None else min(self.max_buckets, _MAX_BUCKETS)


@dataclass(frozen=True)
class Share:
    """The buckets that one of `count` assigners may open: those whose numbers, modulo `count`, are `number`."""

    number: int = 0
    count: int = 1

    def holds(self, bucket: int) -> bool:
        return bucket % self.count == self.number % self.count


class OpenBuckets:
    """Chooses buckets for new keys of one partition, for one assigner. It knows the number of keys in each bucket."""

    def __init__(self, counts: Mapping[int, int], limits: Limits, share: Share | None = None) -> None:
        """`counts`: bucket -> its number of keys, in the order in which buckets with room are to be filled."""
        self._share = share or Share()
        self._limits = limits
        self._counts = {bucket: keys for bucket, keys in counts.items() if self._share.holds(bucket)}
        self._with_room = [bucket for bucket, keys in self._counts.items() if keys < limits.target_rows]
        self._next = self._share.number % self._share.count

    @property
    def counts(self) -> Mapping[int, int]:
        """Bucket -> its number of keys. Keys that it got beyond the limit, when no bucket could be opened, do not count."""
        return self._counts

    def choose(self, hashes: KeyHashes) -> Buckets:
        """The buckets of new, distinct keys in the order of their arrival."""
        chosen = np.empty(len(hashes), np.uint16)
        done = 0
        while done < len(hashes):
            bucket = self._with_room[0] if self._with_room else self._opened()
            if bucket is None:
                chosen[done:] = self._spread(hashes[done:])
                break
            taken = min(self._limits.target_rows - self._counts[bucket], len(hashes) - done)
            chosen[done : done + taken] = bucket
            self._counts[bucket] += taken
            done += taken
            if self._counts[bucket] >= self._limits.target_rows:
                self._with_room.remove(bucket)
        return chosen

    def _opened(self) -> int | None:
        """The lowest free number of this assigner; None once the option's limit is reached."""
        while self._next in self._counts:
            self._next += self._share.count
        if self._next < self._limits.end:
            self._counts[self._next] = 0
            self._with_room.append(self._next)
            return self._next
        if self._limits.max_buckets is None:
            raise UsageError(
                f"the partition would need more than {_MAX_BUCKETS:,} buckets",
                f"dynamic-bucket.target-row-num={self._limits.target_rows} makes them too small",
                f"raise it: paimon-cli alter {self._limits.table} set dynamic-bucket.target-row-num=2000000",
            )
        return None

    def _spread(self, hashes: KeyHashes) -> Buckets:
        """Beyond the limit keys go to any bucket, evenly. Java picks one at random; here the hash decides, repeatably."""
        known = np.array(sorted(self._counts), np.uint16)
        mixed = (hashes.view(np.uint32) * np.uint32(0x9E3779B1)) >> np.uint32(16)
        return known[mixed % len(known)]


def assigner_of(partition_hash: int, hashes: KeyHashes, channels: int, assigners: int) -> npt.NDArray[np.int64]:
    """The channel, out of `channels`, that assigns the keys with these hashes (Java BucketAssigner.computeAssigner)."""
    first = abs(partition_hash) % channels
    return (first + np.abs(hashes.astype(np.int64)) % assigners) % channels


@dataclass(frozen=True)
class Assigners:
    """The assigners of one partition; `only`: the one whose keys are assigned here, None for all."""

    count: int = 1
    partition_hash: int = 0
    only: int | None = None

    def of(self, hashes: KeyHashes) -> npt.NDArray[np.int64]:
        """The number of the assigner of each key."""
        return assigner_of(self.partition_hash, hashes, self.count, self.count)

    @property
    def shares(self) -> dict[int, Share]:
        numbers = range(self.count) if self.only is None else (self.only,)
        return {number: Share(number, self.count) for number in numbers}

    def own(self, hashes: KeyHashes) -> KeyHashes:
        """The hashes of keys that belong to this share."""
        return hashes if self.only is None else hashes[self.of(hashes) == self.only]


class PartitionAssigner:
    """Assigns the keys of one partition to buckets, for all assigners or for one of them."""

    def __init__(self, files: Mapping[int, KeyHashes], limits: Limits, assigners: Assigners | None = None) -> None:
        """`files`: bucket -> the hashes of its keys."""
        self._assigners = assigners = assigners or Assigners()
        counts = {bucket: len(hashes) for bucket, hashes in files.items() if len(hashes)}
        counts = {bucket: counts[bucket] for bucket in _in_order_of_java(counts)}
        self._open = {number: OpenBuckets(counts, limits, share) for number, share in assigners.shares.items()}
        self.known = PackedIndex([(assigners.own(hashes), bucket) for bucket, hashes in sorted(files.items())])
        self._added: list[tuple[KeyHashes, Buckets]] = []

    def assign(self, hashes: KeyHashes) -> Buckets:
        """The bucket of each row. `hashes`: the hash of each row's key, in the order of arrival."""
        assigned = np.empty(len(hashes), np.uint16)
        scratch = np.empty(min(len(hashes), PIECES.assigned_rows), np.uint64)
        for begin in range(0, len(hashes), PIECES.assigned_rows):
            rows = hashes[begin : begin + PIECES.assigned_rows]
            self._assign(rows, assigned[begin : begin + PIECES.assigned_rows], scratch[: len(rows)])
        return assigned

    def _assign(self, hashes: KeyHashes, assigned: Buckets, packed: npt.NDArray[np.uint64]) -> None:
        """Assign rows: sort them by hash to look hashes up, then sort them back, which is faster than random memory access.

        Example: rows with the hashes 7, 3, 7, 9, of which the index knows 3, in bucket 5. `packed` holds pairs, one in a number:

        | step | packed |
        |---|---|
        | sorted by hash: (hash, row) | (3, 1) (7, 0) (7, 2) (9, 3) |
        | looked up: (row, bucket); row 2 repeats row 0, so it is not new | (1, 5) (0, new) (2, -) (3, new) |
        | sorted by row | (0, new) (1, 5) (2, -) (3, new) |

        The new hashes get buckets in the order of their rows, and row 2 that of row 0. With one key for each bucket:

        >>> assigner = PartitionAssigner({5: np.array([3], np.int32)}, Limits(target_rows=1, max_buckets=None))
        >>> assigner.assign(np.array([7, 3, 7, 9], np.int32)).tolist()
        [0, 5, 0, 1]
        """
        _sort_by_hash(hashes, packed)
        repeated: list[tuple[np.ndarray, np.ndarray]] = []
        for begin, ordered, buckets in self.known.find(packed):
            block = packed[begin : begin + len(ordered)]
            again, first = _repeats(ordered, buckets)
            if len(again):
                repeated.append((block[again].astype(np.uint32), block[first].astype(np.uint32)))
                buckets[again] = 0
            block <<= np.uint64(32)
            block >>= np.uint64(16)
            block |= buckets
        packed.sort()
        np.copyto(assigned, packed, casting="unsafe")
        new = np.concatenate(
            [np.empty(0, np.int32), *(hashes[b : b + PIECES.hash_block_rows][rows] for b, rows in _new_rows(assigned))]
        )
        if len(new):
            chosen, done = self._chosen(new), 0
            for begin, rows in _new_rows(assigned):
                assigned[begin : begin + PIECES.hash_block_rows][rows] = chosen[done : done + len(rows)]
                done += len(rows)
            for again, first in repeated:
                assigned[again] = assigned[first]
            self.known.add(new.view(np.uint32), chosen)
            self._added.append((new, chosen))

    def _chosen(self, hashes: KeyHashes) -> Buckets:
        if len(self._open) == 1:
            (buckets,) = self._open.values()
            return buckets.choose(hashes)
        owners = self._assigners.of(hashes)
        chosen = np.empty(len(hashes), np.uint16)
        for number, buckets in self._open.items():
            own = np.flatnonzero(owners == number)
            chosen[own] = buckets.choose(hashes[own])
        return chosen

    def added(self) -> Iterable[tuple[int, KeyHashes]]:
        """Each bucket with new keys, and their hashes."""
        if not self._added:
            return
        hashes, buckets = (np.concatenate(parts) for parts in zip(*self._added, strict=True))
        order = np.argsort(buckets, kind="stable")
        hashes, buckets = hashes[order], buckets[order]
        begins = np.flatnonzero(np.append(True, buckets[1:] != buckets[:-1])).tolist()
        for begin, end in zip(begins, [*begins[1:], len(buckets)], strict=True):
            yield int(buckets[begin]), hashes[begin:end]


def _sort_by_hash(hashes: KeyHashes, packed: npt.NDArray[np.uint64]) -> None:
    """Fill `packed` with ascending numbers: each hash (unsigned) in the upper half, its row number in the lower half."""
    numbers = np.arange(PIECES.hash_block_rows, dtype=np.uint64)
    for begin in range(0, len(hashes), PIECES.hash_block_rows):
        block = packed[begin : begin + PIECES.hash_block_rows]
        block[:] = hashes[begin : begin + PIECES.hash_block_rows].view(np.uint32)
        block <<= np.uint64(32)
        block |= numbers[: len(block)]
        if begin:
            block += np.uint64(begin)
    packed.sort()


def _new_rows(assigned: Buckets) -> Iterator[tuple[int, npt.NDArray[np.intp]]]:
    """The start of each block of rows, and the rows in it, counted from there, that have no bucket yet."""
    for begin in range(0, len(assigned), PIECES.hash_block_rows):
        yield begin, np.flatnonzero(assigned[begin : begin + PIECES.hash_block_rows] == NOWHERE)


def _repeats(ordered: Hashes, buckets: Buckets) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """The positions of unknown hashes that repeat their predecessor, and for each the position of its first occurrence.

    `ordered`: ascending hashes; `buckets`: the bucket of each hash, `NOWHERE` if it is unknown.
    """
    again = np.flatnonzero((ordered[1:] == ordered[:-1]) & (buckets[1:] == NOWHERE)) + 1
    begins_run = np.append(True, again[1:] != again[:-1] + 1)[: len(again)]
    return again, (again[begins_run] - 1)[np.cumsum(begins_run) - 1]


def _in_order_of_java(buckets: Iterable[int]) -> list[int]:
    """Buckets in the iteration order of Java's hash map, which is the order in which Java fills them: by their lower bits."""
    numbers = list(buckets)
    capacity = 16
    while len(numbers) > capacity * 3 // 4:
        capacity *= 2
    return sorted(numbers, key=lambda bucket: bucket & (capacity - 1))
