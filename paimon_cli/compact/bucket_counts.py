"""How many buckets a partition of a table with postponed buckets should have.

The first compaction of a partition chooses its bucket count by the rows that are there, and the partition may grow a hundredfold
afterwards. Only powers of two times the present count, or parts of it, come into question: the rows of bucket b of N then belong
to b, b + N, b + 2N, ... of a multiple of N, so that each bucket can be split or merged by itself.

Keys that are written again and again are many versions before a compaction, and one row after it. So a bucket is split by what
its largest sorted run holds, and merged by what all of them hold.

Example, with a target of 1 GB for each bucket:

| buckets | largest | all | new count | why |
|---|---|---|---|---|
| 1 | 2.5 GB | 2.5 GB | 4 | 2.5 GB is above twice the target; a quarter of it is not |
| 2 | 1.9 GB | 3.7 GB | 2 | not above twice the target, so that a partition which grows slowly is not split for little |
| 64 | 40 MB | 1.5 GB | 4 | a sixteenth; with 2, or with 1, a bucket would have more than half of the target |
| 16 | 3.0 GB | 3.2 GB | 16 | the rows gather in one bucket, so that most of 32 would be nearly empty |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paimon_cli.history.live_files import BucketFiles, LazyBuckets
from paimon_cli.history.stale_buckets import mixed_partitions
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import DataFileMeta
from paimon_cli.options.option_text import counted, human_size
from paimon_cli.options.table_options import MAX_BUCKETS, TableOptions
from paimon_cli.storage.injected import moment_of_wall_clock

SPLITS_ABOVE = 2
"""A bucket that is this many times as large as the target is split."""
FAR_BELOW = 8
"""Buckets of which the largest is less than the target by this factor are merged. No split makes the average bucket so small."""
MERGED_PART = 2
"""A merged bucket may take the target divided by this, so that it has room to grow."""
MOST_WAYS = 16
"""The most buckets into which one is split at a time, or which become one. A task writes this many files at once."""
SETTLED_MILLIS = 86_400_000
"""Small buckets are merged only if a file of the partition is a day old: a new partition may be about to grow."""


@dataclass(frozen=True)
class FillTarget:
    """How much a bucket should hold: `amount` rows if `is_rows`, else bytes, by the options for postponed buckets."""

    amount: int
    is_rows: bool

    @classmethod
    def of(cls, options: TableOptions) -> FillTarget:
        rows = options.postpone_target_rows
        return cls(options.postpone_target_size, False) if rows is None else cls(rows, True)

    def in_bucket(self, bucket: BucketFiles) -> int:
        """The most that a bucket holds, as if no run had another version of a row."""
        return sum(map(self._of, bucket.files))

    def in_largest_run(self, bucket: BucketFiles) -> int:
        """The least that a bucket holds, as if its other runs had only other versions of the rows of the largest one."""
        runs: dict[tuple[int, str], int] = {}
        for file in bucket.files:
            run = (file.level, "" if file.level else file.file_name)
            runs[run] = runs.get(run, 0) + self._of(file)
        return max(runs.values(), default=0)

    def _of(self, file: DataFileMeta) -> int:
        return file.row_count if self.is_rows else file.file_size

    def shown(self, amount: int) -> str:
        return counted(amount, "row") if self.is_rows else human_size(amount)


@dataclass(frozen=True)
class CountDecision:
    """The bucket count that a partition should have, and why; `new_buckets` is `buckets` if it should stay as it is.

    `largest`, `total`: what its largest bucket and all of them hold, in the unit of the target.
    """

    partition: bytes
    buckets: int
    new_buckets: int
    largest: int
    total: int
    reason: str

    @property
    def is_split(self) -> bool:
        return self.new_buckets > self.buckets

    @property
    def is_merge(self) -> bool:
        return self.new_buckets < self.buckets


def decide_counts(context: TableContext, buckets: Mapping[bytes, Sequence[BucketFiles]]) -> list[CountDecision]:
    """The decision about each partition. `buckets`: of each partition at least one, all with the same bucket count."""
    target, now = FillTarget.of(context.options), context.clock.now_millis()
    return [_decide(context.options, target, held, now) for _, held in sorted(buckets.items())]


def _decide(options: TableOptions, target: FillTarget, held: Sequence[BucketFiles], now: int) -> CountDecision:
    amounts = {bucket.bucket: target.in_bucket(bucket) for bucket in held}
    buckets, largest, total = held[0].total_buckets, max(amounts.values()), sum(amounts.values())
    surely = [target.in_largest_run(bucket) for bucket in held]
    said = f"its largest bucket has {target.shown(largest)}"
    new = buckets
    if max(surely) > SPLITS_ABOVE * target.amount:
        said = f"its largest bucket has {target.shown(max(surely))} in one sorted run"
        new = buckets * _ways_to_split(buckets, max(surely), sum(surely), target.amount)
        reason = f"{said}, more than {SPLITS_ABOVE} times the target of {target.shown(target.amount)}"
        if new == buckets:
            reason = f"{reason}, but its rows gather in few buckets: of more, most would be nearly empty"
    elif largest * FAR_BELOW > target.amount or buckets == 1:
        reason = f"{said}, of a target of {target.shown(target.amount)}"
        if largest > SPLITS_ABOVE * target.amount:
            reason = f"{reason}, but its largest sorted run only {target.shown(max(surely))}: the rest may be older versions"
    else:
        new = buckets // _ways_to_merge(options, buckets, amounts, target.amount)
        reason = f"{said}, less than an eighth of the target of {target.shown(target.amount)}"
        if new == buckets:
            reason = f"{reason}, but fewer would be too large, or fewer than postpone.default-bucket-num"
        elif not _is_settled(held, now):
            new, reason = buckets, f"{reason}, but no file is a day old: it may still grow"
    return CountDecision(held[0].partition, buckets, new, largest, total, reason)


def _ways_to_split(buckets: int, largest: int, total: int, target: int) -> int:
    """The smallest power of two with which the largest bucket is within the target, as far as that makes no empty buckets."""
    ways = 1
    while ways < MOST_WAYS and largest > target * ways:
        more = 2 * ways
        if buckets * more > MAX_BUCKETS or total * FAR_BELOW < target * buckets * more:
            break
        ways = more
    return ways


def _ways_to_merge(options: TableOptions, buckets: int, amounts: Mapping[int, int], target: int) -> int:
    """The largest power of two of which no group of buckets that become one is too large."""
    least, ways = options.postpone_default_bucket_num or 1, 1
    while 2 * ways <= MOST_WAYS and buckets % (2 * ways) == 0 and buckets // (2 * ways) >= least:
        merged: dict[int, int] = {}
        for number, amount in amounts.items():
            group = number % (buckets // (2 * ways))
            merged[group] = merged.get(group, 0) + amount
        if max(merged.values()) * MERGED_PART > target:
            break
        ways *= 2
    return ways


def _is_settled(held: Sequence[BucketFiles], now: int) -> bool:
    made = (file.creation_time_millis for bucket in held for file in bucket.files)
    known = [moment_of_wall_clock(millis) for millis in made if millis is not None]
    return bool(known) and now - min(known) >= SETTLED_MILLIS


def countable_partitions(buckets: LazyBuckets) -> dict[bytes, list[BucketFiles]]:
    """The buckets of each partition whose files all have one bucket count; rows that wait for a bucket are left out."""
    mixed = mixed_partitions(buckets.table.bucket_counts())
    found: dict[bytes, list[BucketFiles]] = {}
    for bucket in buckets.values():
        if bucket.bucket >= 0 and bucket.total_buckets > 0 and bucket.partition not in mixed:
            found.setdefault(bucket.partition, []).append(bucket)
    return found
