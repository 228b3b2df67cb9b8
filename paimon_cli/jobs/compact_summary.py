"""What a compaction did, as the command, the library and the ledger report it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from paimon_cli.history.waiting_records import waiting_rows
from paimon_cli.jobs.compact_outcome import Outcome, rewritten_files
from paimon_cli.jobs.round_plan import CompactionPlan
from paimon_cli.jobs.table_change import Summary
from paimon_cli.metadata.data_file import BucketId
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_layout import POSTPONE_BUCKET
from paimon_cli.metadata.table_mode import TableMode


@dataclass(frozen=True, repr=False)
class CompactSummary(Summary):
    """The result: buckets compacted, files and bytes before and after; `conflicts`: buckets that other jobs changed meanwhile.

    `bytes_read`, `bytes_written`: without files that were only moved to a higher level, with those whose bucket count changed.

    `stale_files`: files with an older bucket count than their partition, from writers of other engines, whose rows were moved.
    `rescaled_to`: the bucket count of a rescale that had been interrupted, and was finished; None if there was none.
    `regrouped`: partitions whose buckets were split or merged; the new ones are among the `buckets`.

    `waiting_records`: stored records in the chosen buckets that reads still do not show, because they wait for a compaction.
    `unfinished`: the buckets of the plan that were not compacted, after a conflict or a failure.
    """

    buckets: int = 0
    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    snapshots: tuple[Snapshot, ...] = ()
    conflicts: int = 0
    regrouped: int = 0
    stale_files: int = 0
    rescaled_to: int | None = None
    waiting_records: int = 0
    engine: str = ""
    engine_reason: str = ""
    seconds: float = 0.0
    plan: CompactionPlan = field(default_factory=lambda: CompactionPlan(None), repr=False)
    unfinished: frozenset[BucketId] = field(default=frozenset(), repr=False)

    @property
    def has_changed(self) -> bool:
        return bool(self.buckets or self.stale_files or self.rescaled_to)

    @classmethod
    def of(cls, mode: TableMode, outcome: Outcome, plan: CompactionPlan, conflicts: int, run: dict[str, Any]) -> CompactSummary:
        messages = [*outcome.regrouped, *outcome.committed]
        shown = sum(
            waiting_rows(mode, message.bucket, message.compact.removed)
            - waiting_rows(mode, message.bucket, message.compact.added)
            for message in messages
        )
        before = [file for message in messages for file in message.compact.removed]
        after = [file for message in messages for file in message.compact.added]
        read, written = rewritten_files(messages)
        made = sum(bool(message.compact.added) for message in outcome.regrouped)
        return cls(
            buckets=made + len({message.bucket_id for message in outcome.committed if message.bucket != POSTPONE_BUCKET}),
            files_before=len(before),
            files_after=len(after),
            bytes_before=sum(file.file_size for file in before),
            bytes_after=sum(file.file_size for file in after),
            bytes_read=sum(file.file_size for file in read) + outcome.moved_read,
            bytes_written=sum(file.file_size for file in written) + outcome.moved_written,
            snapshots=tuple(outcome.snapshots),
            conflicts=conflicts,
            regrouped=len({message.partition for message in outcome.regrouped}),
            stale_files=outcome.stale_files,
            rescaled_to=outcome.rescaled_to,
            waiting_records=max(0, plan.figures.waiting_records - shown),
            **run,
            plan=plan,
            unfinished=frozenset((*outcome.conflicts, *outcome.failures)),
        )


@dataclass
class CompactionAccount:
    """What a compaction did, also if it failed. `lost_read`, `lost_written`: bytes that came to nothing: of buckets that another
    job compacted meanwhile, or whose compaction failed, all that was to be read; what a task wrote before it failed is not known.
    """

    summary: CompactSummary = field(default_factory=CompactSummary)
    lost_read: int = 0
    lost_written: int = 0

    @property
    def bytes_read(self) -> int:
        return self.summary.bytes_read + self.lost_read
