"""The compaction that a change owes its buckets after the commit, where the writers themselves have not made it.

The rows are committed in either case, so a failure is a part of the result and not an error.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from paimon_cli.compact.compaction_plan import why_not_compactable
from paimon_cli.errors import PaimonError
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.waiting_records import waiting_records
from paimon_cli.jobs.compact_job import run_compact
from paimon_cli.jobs.compact_request import CompactRequest
from paimon_cli.jobs.engine import Engine, Progress
from paimon_cli.jobs.round_plan import plan_compaction
from paimon_cli.metadata.data_file import BucketId
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_layout import POSTPONE_BUCKET
from paimon_cli.options.choices import CompactionMode
from paimon_cli.requests.compaction import StrategyName

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DueCompaction:
    """The result: the number of compacted buckets, the new snapshots, and why a compaction failed, if one did."""

    buckets: int = 0
    snapshots: tuple[Snapshot, ...] = ()
    lost: str | None = None


def compact_due(
    context: TableContext,
    buckets: Collection[BucketId] | None,
    engine: Engine,
    progress: Progress,
    strategy: StrategyName = "minor",
    compaction: str | None = None,
) -> DueCompaction:
    """Compact what the triggers of the table ask for in these buckets, as a writer of the table does.

    `buckets`: None for all, but for none in tables with postponed buckets. `compaction`: what the user has asked for. Unless that
    is `after`, nothing is compacted where writers leave it to other jobs: postponed rows, write-only tables, append tables, and
    tables that this version cannot compact.
    """
    if compaction == CompactionMode.NONE:
        return DueCompaction()
    is_requested = compaction == CompactionMode.AFTER
    if not is_requested:
        if _leaves_compaction(context):
            return DueCompaction()
        buckets = None if buckets is None else [bucket for bucket in buckets if bucket.bucket != POSTPONE_BUCKET]
    numbers = () if buckets is None else tuple(sorted({bucket for _, bucket in buckets}))
    if not numbers and (buckets is not None or context.mode.bucket_mode.postpones):
        return DueCompaction()
    forces = is_requested or context.options.lookup_wait
    request = CompactRequest(strategy, bucket=numbers or None, unknown_buckets_allowed=True, forces_level_0=forces)
    try:
        plan = plan_compaction(context, request, only=None if buckets is None else frozenset(buckets))
        done = run_compact(context, request, engine, progress, ready=plan)
    except PaimonError as error:
        return DueCompaction(lost=str(error))
    return DueCompaction(done.buckets, done.snapshots)


def finished_earlier(context: TableContext, compaction: str, engine: Engine, progress: Progress) -> dict[str, Any]:
    """Finish a change that an earlier run has committed: if that run died afterwards, its compactions are still due.

    Returns the fields of the summary. `compaction`: unless it is `none`, buckets are compacted as a writer of the table does.
    """
    due = DueCompaction() if compaction == CompactionMode.NONE else compact_due(context, None, engine, progress)
    return {
        "already_committed": True,
        "snapshots": due.snapshots,
        "compacted": due.buckets,
        "compaction_lost": due.lost,
        "waiting_records": waiting_after(context, None, due.snapshots),
        "engine": engine.name,
    }


def _leaves_compaction(context: TableContext) -> bool:
    """Whether those who change the table leave compaction to other jobs."""
    mode, options = context.mode, context.options
    if not mode.has_keys or options.write_only or (options.sequence_snapshot_ordering and not mode.awaits_compaction):
        return True
    return why_not_compactable(context) is not None


def compacts_while_changing(context: TableContext) -> bool:
    """Whether those who change the table compact their files before the commit, which numbers them in some tables."""
    return not _leaves_compaction(context) and not context.options.sequence_snapshot_ordering


def waiting_after(context: TableContext, buckets: Collection[BucketId] | None, *commits: tuple[Snapshot, ...]) -> int | None:
    """How many records of these buckets (None: all) wait for a compaction, at the last snapshot of the commits, or at the latest
    if an earlier run has made them. See `waiting_records`.

    None if that cannot be told: the rows are committed, so what fails now must not look like a refusal.
    """
    if buckets is not None and not buckets:
        return 0
    snapshots = [snapshot for commit in commits for snapshot in commit]
    try:
        return waiting_records(context, snapshots[-1] if snapshots else context.snapshots.latest(), buckets)
    except (PaimonError, FileNotFoundError) as error:
        log.info("cannot tell whether records wait for a compaction: %s", error)
        return None
