"""`compactions`, `compact-manifests`: the history of a table's compactions, and the compaction of its manifests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from paimon_cli.cli.command import Call, command, group, top_level
from paimon_cli.cli.output import Item, Listing
from paimon_cli.cli.parameters import AllowUnsafeCommit, DryRun, TableName, addressable
from paimon_cli.cli.results import counted, human_size

if TYPE_CHECKING:
    from paimon_cli.jobs.metadata_jobs import ManifestsPlan, ManifestsSummary

commands = top_level()
compactions = group("Past compactions of a table, by all engines: what was merged, and how long it took.")


@command(compactions, "ls")
def list_compactions(
    call: Call,
    table: TableName,
    limit: Annotated[
        int | None,
        typer.Option("-l", "--limit", metavar="N", callback=addressable, min=1, help="Only the newest N; default all."),
    ] = None,
    user: Annotated[str | None, typer.Option("--user", help="Only commits of this user.")] = None,
) -> None:
    """List the compactions recorded by the snapshots, newest first.

    Only paimon-cli records how long a compaction took.

    paimon-cli compactions ls ./wh/shop.db/orders --limit 10

    paimon-cli compactions ls shop.orders -o json
    """
    from paimon_cli.inspect.compaction_history import CompactionRow

    opened = call.open(table)
    rows = opened.compactions(limit=limit, user=user)
    read, written = sum(row.bytes_before for row in rows), sum(row.bytes_after for row in rows)
    footer = f"{counted(len(rows), 'compaction')}, {human_size(read)} read, {human_size(written)} written"
    call.show(Listing("CompactionList", opened.name, CompactionRow, rows, footer=footer))


@command(compactions, "show")
def show_compaction(
    call: Call,
    table: TableName,
    snapshot: Annotated[str, typer.Argument(metavar="ID|latest", help="Id of a COMPACT snapshot, or latest.")] = "latest",
) -> None:
    """Show what one compaction did to each bucket.

    paimon-cli compactions show ./wh/shop.db/orders

    paimon-cli compactions show shop.orders 12 -o csv
    """
    from paimon_cli.inspect.compaction_history import CompactedBucketRow

    opened = call.open(table)
    rows = opened.compaction(snapshot)
    footer = counted(len(rows), "bucket") if rows else "only manifests were rewritten"
    call.show(Listing("CompactedBucketList", opened.name, CompactedBucketRow, rows, footer=footer))


@command(commands, "compact-manifests")
def compact_manifests(
    call: Call, table: TableName, dry_run: DryRun = False, allow_unsafe_commit: AllowUnsafeCommit = False
) -> bool:
    """Rewrite the manifests of the latest snapshot into as few as possible, without entries of deleted files, in one commit.

    Commits merge manifests too, but only once there are many small ones. No data file is read, and other jobs may keep
    committing.

    paimon-cli compact-manifests ./wh/shop.db/orders --dry-run

    paimon-cli compact-manifests shop.orders --warehouse s3://lake/wh
    """
    opened = call.open(table) if dry_run else call.open_to_commit(table, allow_unsafe_commit)
    planned = opened.plan_compact_manifests()
    if dry_run:
        call.show(Item("ManifestsPlan", opened.name, planned.plan), _plan_text(planned.plan))
    else:
        done = planned.run()
        call.show(Item("ManifestsSummary", opened.name, done), _summary_text(done))
    return bool(planned.plan.rewritten)


def _plan_text(plan: ManifestsPlan) -> str:
    if not plan.rewritten:
        return f"nothing to gain: {_size(plan.manifests, plan.size)}"
    what = f"{plan.rewritten} of {_size(plan.manifests, plan.size)} would be rewritten"
    files = f"{counted(plan.added, 'added file')} and {counted(plan.deleted, 'deleted file')}"
    return f"{what}: {files} in {human_size(plan.rewritten_bytes)}; nothing was changed (dry run)"


def _summary_text(done: ManifestsSummary) -> str:
    if not done.snapshots:
        return f"nothing to gain, nothing was committed: {_size(done.manifests_before, done.bytes_before)}"
    before, after = (_size(done.manifests_before, done.bytes_before), _size(done.manifests_after, done.bytes_after))
    return f"snapshot {done.snapshots[-1].id}: {before} -> {after}"


def _size(manifests: int, size: int) -> str:
    return f"{counted(manifests, 'manifest')} ({human_size(size)})"
