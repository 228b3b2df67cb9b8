"""`drop-partition` and `truncate`: an OVERWRITE commit that puts nothing in the place of what it takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import CommitIdentity, Deduplication
from paimon_cli.history.partition_spec import PartitionSpec
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import FileFilter
from paimon_cli.metadata.snapshot import Snapshot


@dataclass(frozen=True)
class Dropped:
    """What lived there; `rows` unmerged. `already_committed`: an earlier run, or a twin, made this commit: nothing was done."""

    partitions: int
    files: int
    rows: int
    snapshots: tuple[Snapshot, ...] = ()
    already_committed: bool = False


COMMITTED_BEFORE = Dropped(0, 0, 0, already_committed=True)


def plan_drop(context: TableContext, partitions: Sequence[Mapping[str, str]], identity: CommitIdentity) -> Dropped:
    """What these partitions (none: the whole table) hold now. `UsageError` for what is no partition."""
    chosen = _chosen(context, partitions)
    if Deduplication(context, identity).already_committed():
        return COMMITTED_BEFORE
    latest = context.snapshots.latest()
    entries = [] if latest is None else context.manifests.live_entries(latest, FileFilter(chosen.matches))
    return Dropped(len({entry.partition for entry in entries}), len(entries), sum(entry.file.row_count for entry in entries))


def run_drop(context: TableContext, partitions: Sequence[Mapping[str, str]], plan: Dropped, identity: CommitIdentity) -> Dropped:
    """Commit; what others add meanwhile goes, too."""
    chosen = _chosen(context, partitions)
    result = Committer(context).overwrite([], identity, replaced_partitions=chosen.matches)
    return COMMITTED_BEFORE if result.already_committed else replace(plan, snapshots=result.snapshots)


def _chosen(context: TableContext, partitions: Sequence[Mapping[str, str]]) -> PartitionSpec:
    if not partitions:
        return PartitionSpec.everything()
    specs = [PartitionSpec.parse(context, typed) for typed in partitions]
    return PartitionSpec(lambda partition: any(spec.matches(partition) for spec in specs))
