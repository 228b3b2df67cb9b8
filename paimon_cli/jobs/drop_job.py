"""`drop-partition` and `truncate`: an OVERWRITE commit that puts nothing in the place of what it takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from paimon_cli.commit.committer import Committer
from paimon_cli.history.partition_spec import PartitionSpec
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.write_job import identity_of
from paimon_cli.metadata.snapshot import Snapshot


@dataclass(frozen=True)
class Dropped:
    """What lived there; `rows` unmerged."""

    partitions: int
    files: int
    rows: int
    snapshots: tuple[Snapshot, ...] = ()


def plan_drop(context: TableContext, partitions: Sequence[Mapping[str, str]]) -> Dropped:
    """What these partitions (none: the whole table) hold now. `UsageError` for what is no partition."""
    latest, chosen = context.snapshots.latest(), _chosen(context, partitions)
    entries = [] if latest is None else context.manifests.live_entries(latest, keep_entry=lambda e: chosen.matches(e.partition))
    return Dropped(len({entry.partition for entry in entries}), len(entries), sum(entry.file.row_count for entry in entries))


def run_drop(
    context: TableContext,
    partitions: Sequence[Mapping[str, str]],
    plan: Dropped,
    commit_user: str | None = None,
    commit_id: int | None = None,
    assume_new: bool = False,
) -> Dropped:
    """Commit; what others add meanwhile goes, too."""
    chosen, identity = _chosen(context, partitions), identity_of(context, commit_user, commit_id, assume_new)
    result = Committer(context).overwrite([], identity, keep_partition=chosen.matches)
    return replace(plan, snapshots=result.snapshots)


def _chosen(context: TableContext, partitions: Sequence[Mapping[str, str]]) -> PartitionSpec:
    if not partitions:
        return PartitionSpec.everything()
    specs = [PartitionSpec.parse(context, typed) for typed in partitions]
    return PartitionSpec(lambda partition: any(spec.matches(partition) for spec in specs))
