"""Selects the buckets of a compaction round: partitions without new data, and the limits of a round."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from paimon_cli.compact.compaction_plan import CompactionTask, Decision, SkippedBucket
from paimon_cli.history.live_files import BucketFiles
from paimon_cli.metadata.data_file import SOURCE_COMPACT, BucketId
from paimon_cli.storage.clock_and_names import moment_of_wall_clock


@dataclass(frozen=True)
class RoundLimits:
    """The most bytes to read and buckets to compact in one round of one table; None: no limit."""

    max_bytes: int | None = None
    max_buckets: int | None = None


UNLIMITED = RoundLimits()


def apply_limits(decisions: Sequence[Decision], limits: RoundLimits) -> tuple[Decision, ...]:
    """The decisions without the tasks that exceed the limits. Buckets with the most runs go first, since reads gain most
    there.
    """
    turn = sorted((d for d in decisions if isinstance(d, CompactionTask)), key=lambda task: (-task.runs_before, task.size))
    later: dict[BucketId, str] = {}
    size = count = 0
    for task in turn:
        if limits.max_buckets is not None and count >= limits.max_buckets:
            later[task.bucket_id] = f"{task.reason}, but this round has its {limits.max_buckets} buckets (--max-buckets)"
        elif limits.max_bytes is not None and size + task.size > limits.max_bytes:
            later[task.bucket_id] = f"{task.reason}, but {size} + {task.size} bytes > {limits.max_bytes} (--max-bytes)"
        else:
            size, count = size + task.size, count + 1
    return tuple(_postponed(d, later[d.bucket_id]) if d.bucket_id in later else d for d in decisions)


def _postponed(decision: Decision, reason: str) -> Decision:
    if isinstance(decision, SkippedBucket):
        return decision
    return SkippedBucket(
        decision.partition, decision.bucket, decision.runs_before, reason, files=len(decision.files), size=decision.size
    )


def newest_data(buckets: Iterable[BucketFiles]) -> dict[bytes, int]:
    """When each partition got its newest data (epoch millis): the newest file not written by a compaction, if there is one."""
    newest: dict[bytes, tuple[bool, int]] = {}
    for bucket in buckets:
        for file in bucket.files:
            moment = moment_of_wall_clock(file.creation_time_millis or 0)
            seen = (file.file_source != SOURCE_COMPACT, moment)
            newest[bucket.partition] = max(newest.get(bucket.partition, seen), seen)
    return {partition: moment for partition, (_, moment) in newest.items()}
