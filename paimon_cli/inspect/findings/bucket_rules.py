"""Rules about buckets: how large they are, and whether all partitions have as many as the option says."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median

from paimon_cli.compact.bucket_counts import FillTarget
from paimon_cli.history.partition_spec import partition_text
from paimon_cli.inspect.findings.examined_table import RECENT, ExaminedTable
from paimon_cli.inspect.findings.finding import ADVICE, ERROR, OK, WARNING, Code, Figure, Finding, Topic, rule, well
from paimon_cli.metadata.data_file import EMPTY_ROW
from paimon_cli.options.option_text import counted, human_size
from paimon_cli.options.table_options import MB

SMALLEST_BUCKET, BIGGEST_BUCKET, GOOD_BUCKET = 200 * MB, 1024 * MB, 512 * MB
"""Paimon's recommended range for the bytes of a bucket, and the target size of suggestions."""
HUGE_BUCKET = 5 << 30
"""Bytes above which a single bucket, as the smallest unit of a compaction, delays all others."""
MANY_BUCKETS = 64
"""More buckets than this are too many for a partition that would not fill one.

Below, a small partition gets no advice: with any count its work takes seconds, a commit makes a few files at most, and the
buckets are the parallelism that its owner chose for what is still to come.
"""
SIZES = TOO_BIG, BIG, SMALL = "PD020", "PA001", "PA002"
TOO_EMPTY = "PA006"
"""The code of the finding that a partition has far more buckets than it needs."""


@rule(Topic.BUCKETS, TOO_BIG, BIG, SMALL)
def buckets_have_a_good_size(table: ExaminedTable) -> Iterator[Finding]:
    """Compare the bytes per bucket with Paimon's recommendation.

    The largest partition decides, because all partitions have the same bucket count.
    """
    total = table.context.options.bucket
    if total < 1:
        modes = {-2: "postponed: compaction chooses their number", -1: "dynamic or absent: their number follows the rows"}
        yield well("bucket size", f"the buckets are {modes[total]}", bucket=total)
        return
    sizes = sorted(table.partition_sizes.values())
    if not sizes:
        yield well("bucket size", "the table is empty", buckets=total)
        return
    good, per_bucket = good_bucket_count(sizes), sizes[-1] // total
    huge = [size for bucket in table.buckets if (size := sum(file.file_size for file in bucket.files)) > HUGE_BUCKET]
    figures: dict[str, Figure] = {
        "buckets": total,
        "partitions": len(sizes),
        "bucket_bytes_of_biggest_partition": per_bucket,
        "bucket_bytes_of_median_partition": int(median(sizes)) // total,
        "smallest_good_bytes": SMALLEST_BUCKET,
        "biggest_good_bytes": BIGGEST_BUCKET,
        "suggested_buckets": max(good, 2 * total) if huge else good,
    }
    command = rescaled(table, max(good, 2 * total) if huge else good)
    if huge:
        message = f"{counted(len(huge), 'bucket')} over 5 GB, the largest {max(huge) >> 30} GB; each is compacted by one task"
        yield Finding(TOO_BIG, WARNING, "buckets", message, command, figures=figures, threshold=human_size(HUGE_BUCKET))
        return
    where = f" in the largest of {len(sizes)} partitions" if len(sizes) > 1 else ""
    limits = f"{human_size(SMALLEST_BUCKET)} to {human_size(BIGGEST_BUCKET)}"
    guidance = f"{human_size(per_bucket)} per bucket{where}, {counted(total, 'bucket')}; {limits} is recommended"
    if better_bucket_count(total, sizes) is None:
        yield Finding("", OK, "bucket size", guidance, figures=figures, threshold=limits)
    elif _count_is_new(table):
        guidance = f"{guidance}, but the count was chosen less than {RECENT} commits ago"
        yield Finding("", OK, "bucket size", guidance, figures=figures, threshold=limits)
    elif per_bucket > BIGGEST_BUCKET:
        guidance = f"{guidance}: each bucket is compacted by a single task and read by only a few"
        yield Finding(BIG, ADVICE, "bucket size", guidance, command, figures=figures, threshold=limits)
    else:
        guidance = f"{guidance}: more buckets than needed make small files, and help only if that many tasks write together"
        yield Finding(SMALL, ADVICE, "bucket size", guidance, command, figures=figures, threshold=limits)


def better_bucket_count(total: int, sizes: Sequence[int]) -> int | None:
    """The bucket count that the largest partition should have; None if its buckets have a good size, or too few bytes to tell.

    `sizes`: bytes of each partition.
    """
    largest, good = max(sizes, default=0), good_bucket_count(sizes)
    if largest // total > BIGGEST_BUCKET:
        return good
    tells = largest >= SMALLEST_BUCKET or (largest > 0 and total > MANY_BUCKETS)
    return good if tells and largest // total < SMALLEST_BUCKET and good < total else None


def good_bucket_count(sizes: Sequence[int]) -> int:
    """The bucket count that gives the largest partition buckets of the target size; `sizes`: bytes of each partition."""
    return max(1, math.ceil(max(sizes, default=0) / GOOD_BUCKET))


def _count_is_new(table: ExaminedTable) -> bool:
    """Whether the bucket count was changed within the recent commits, as by `rescale`: the one who chose it knew the sizes."""
    schemas = table.context.schemas
    newest_first = (schemas.get(number) for number in reversed(schemas.ids()))
    for schema, before in pairwise(newest_first):
        if schema.options.get("bucket") != before.options.get("bucket"):
            return bool(table.recent) and table.recent[-1].time_millis <= schema.time_millis
    return False


@rule(Topic.BUCKETS, Code.TOO_FULL, TOO_EMPTY)
def postponed_buckets_have_a_good_size(table: ExaminedTable) -> Iterator[Finding]:
    """Partitions of a table with postponed buckets that have too few buckets for their rows, or far too many."""
    splits = [decision for decision in table.count_decisions if decision.is_split]
    merges = [decision for decision in table.count_decisions if decision.is_merge]
    target = FillTarget.of(table.context.options)
    unit = "rows" if target.is_rows else "bytes"
    for code, severity, found in ((Code.TOO_FULL, WARNING, splits), (TOO_EMPTY, ADVICE, merges)):
        if not found:
            continue
        worst = (max if code == Code.TOO_FULL else min)(found, key=lambda decision: decision.largest)
        figures: dict[str, Figure] = {
            "partitions": len(found),
            "buckets": worst.buckets,
            "suggested_buckets": worst.new_buckets,
            f"biggest_bucket_{unit}": worst.largest,
            f"target_{unit}": target.amount,
        }
        where = partition_text(table.context, worst.partition)
        more = f"; {len(found) - 1:,} more like it" if len(found) > 1 else ""
        named = f"{where}: " if where else ""
        message = f"{named}{worst.reason}; {counted(worst.new_buckets, 'bucket')} instead of {worst.buckets} would do{more}"
        command = rescaled(table, worst.new_buckets, worst.partition)
        yield Finding(code, severity, "buckets", message, command, figures=figures, threshold=target.shown(target.amount))


def rescaled(table: ExaminedTable, buckets: int, partition: bytes = EMPTY_ROW) -> str:
    """The command that gives the table, or one of its partitions, another bucket count."""
    if partition == EMPTY_ROW:
        return f"paimon-cli rescale {table.argument} --buckets {buckets} --yes"
    chosen = shlex.quote(partition_text(table.context, partition, ","))
    return f"paimon-cli rescale {table.argument} --partition {chosen} --buckets {buckets} --yes"


@rule(Topic.BUCKETS, Code.OTHER_COUNT)
def bucket_counts_agree(table: ExaminedTable) -> Iterator[Finding]:
    """Partitions with another bucket count than the option, which writers refuse."""
    option, left = table.context.options.bucket, table.unfinished_rescale
    others = {bucket.partition for bucket in table.other_counts} | (left.partitions if left is not None else set())
    total = len({bucket.partition for bucket in table.buckets})
    if left is not None:
        what = f"a rescale from {left.before} to {counted(left.buckets, 'bucket')} was interrupted"
        message = f"{what}; until it is finished, as the next round of maintain or compact --watch does, writers are refused"
        figures = {"bucket": option, "partitions": total, "partitions_with_another_count": len(others)}
        command = rescaled(table, left.buckets)
        yield Finding(Code.OTHER_COUNT, ERROR, "buckets", message, command, figures=figures, threshold=f"bucket={left.buckets}")
    elif others:
        message = f"another bucket count than bucket={option} in {len(others)} of {counted(total, 'partition')}"
        message = f"{message}; writers refuse {'it' if len(others) == 1 else 'them'}"
        command = rescaled(table, option)
        figures = {"bucket": option, "partitions": total, "partitions_with_another_count": len(others)}
        yield Finding(Code.OTHER_COUNT, ERROR, "buckets", message, command, figures=figures, threshold=f"bucket={option}")


@rule(Topic.BUCKETS, Code.MIXED_COUNTS)
def each_partition_has_one_count(table: ExaminedTable) -> Iterator[Finding]:
    """Partitions with files of several bucket counts, so that a key may be in two buckets."""
    mixed = table.mixed_partitions
    if mixed:
        found = sorted({count for counts in mixed.values() for count in counts})
        counts = " and ".join(map(str, found))
        message = f"{counted(len(mixed), 'partition')} with files for {counts} buckets, left by writers that ran during a rescale"
        command = f"paimon-cli repair {table.argument} --only stale-buckets --apply --yes"
        figures: dict[str, Figure] = {"partitions": len(mixed), "counts": counts}
        message = f"{message}; a key may be read twice"
        yield Finding(Code.MIXED_COUNTS, ERROR, "buckets", message, command, figures=figures, threshold="1 count in a partition")
