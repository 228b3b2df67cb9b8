"""What a compaction would do to each bucket, and why."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from paimon_cli.compact.compaction_plan import CompactionTask, LeftAlone
from paimon_cli.history.table_context import TableContext
from paimon_cli.table.partition_text import partition_text


@dataclass(frozen=True)
class DecisionRow:
    """One bucket; `output_level` and `size` (bytes to read) are None where nothing is done, `reason` then says why not."""

    partition: str
    bucket: int
    reason: str
    arithmetic: str | None
    runs_before: int
    runs_after: int
    files: int
    size: int | None
    output_level: int | None


def decision_rows(context: TableContext, decisions: Iterable[CompactionTask | LeftAlone]) -> list[DecisionRow]:
    """By partition and bucket."""
    rows = (_row(partition_text(context, decision.partition), decision) for decision in decisions)
    return sorted(rows, key=lambda row: (row.partition, row.bucket))


def _row(partition: str, decision: CompactionTask | LeftAlone) -> DecisionRow:
    if isinstance(decision, LeftAlone):
        return DecisionRow(
            partition, decision.bucket, f"none: {decision.reason}", None, decision.runs, decision.runs, 0, None, None
        )
    return DecisionRow(
        partition=partition,
        bucket=decision.bucket,
        reason=decision.reason,
        arithmetic=decision.arithmetic,
        runs_before=decision.runs_before,
        runs_after=decision.runs_after,
        files=len(decision.files),
        size=decision.size,
        output_level=decision.output_level,
    )
