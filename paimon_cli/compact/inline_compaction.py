"""A compaction that a writer does itself, behind its flush (tables without `write-only`)."""

from __future__ import annotations

from dataclasses import dataclass

from paimon_cli.compact.bucket_compactor import run_compaction
from paimon_cli.compact.compaction_plan import MINOR_STRATEGY, CompactionTask, plan_bucket
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.table_state import BucketFiles
from paimon_cli.metadata.commit_message import CommitMessage


@dataclass(frozen=True)
class InlineCompaction:
    """What the triggers of universal compaction ask for, over files that may not be committed yet. Picklable."""

    read_snapshot_id: int
    file_stamp: str

    def __call__(self, context: TableContext, bucket: BucketFiles) -> CommitMessage | None:
        decision = plan_bucket(context, bucket, MINOR_STRATEGY, self.read_snapshot_id, self.file_stamp)
        return run_compaction(context, decision) if isinstance(decision, CompactionTask) else None
