"""`tags`, `branches`, `consumers`: references that keep snapshots."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated

import typer

from paimon_cli.cli.columns import Column
from paimon_cli.cli.command import Call, command, group
from paimon_cli.cli.expire_command import show_files_to_delete
from paimon_cli.cli.output import Item, Listing
from paimon_cli.cli.parameters import AllowUnsafeCommit, DryRun, Given, TableName, Yes
from paimon_cli.cli.results import COUNT, confirm, counted
from paimon_cli.requests.versions import BranchOptions, ConsumerOptions, TagOptions, TagPlace

if TYPE_CHECKING:
    from paimon_cli.api.table import Table
    from paimon_cli.inspect.version_report import BranchRow, TagRow
    from paimon_cli.maintain.branches import FastForwardPlan

tags = group("Named snapshots.")

Tag = Annotated[str, typer.Argument(metavar="TAG", help="Name of the tag.", show_default=False)]


@command(tags, "ls")
def list_tags(call: Call, table: TableName) -> None:
    """List tags by snapshot.

    paimon-cli tags ls ./wh/shop.db/orders

    paimon-cli tags ls ./wh/shop.db/orders -o json
    """
    from paimon_cli.inspect.version_report import TagRow

    opened = call.open(table)
    rows = opened.tags.ls()
    call.show(Listing("TagList", opened.name, TagRow, rows, footer=counted(len(rows), "tag")))


@command(tags, "show")
def show_tag(call: Call, table: TableName, tag: Tag) -> None:
    """Show one tag.

    paimon-cli tags show ./wh/shop.db/orders year-end

    paimon-cli tags show ./wh/shop.db/orders year-end -o json
    """
    opened = call.open(table)
    call.show(Item("Tag", opened.name, opened.tags.show(tag)))


@command(tags, "create")
def create_tag(call: Call, table: TableName, tag: Tag, *, options: Annotated[Given, TagOptions]) -> None:
    """Create a tag: a name for a snapshot, which keeps it from expiring.

    paimon-cli tags create ./wh/shop.db/orders year-end --time-retained 365d

    paimon-cli tags create ./wh/shop.db/orders before-load --snapshot 3
    """
    opened = call.open(table)
    existed = "replace" in options and opened.tags.exists(tag)
    row = opened.tags.create(tag, **options)
    _show_tag(call, opened, row, "replaced" if existed else "created")


@command(tags, "replace")
def move_tag(call: Call, table: TableName, tag: Tag, *, options: Annotated[Given, TagPlace]) -> None:
    """Point an existing tag at another snapshot.

    paimon-cli tags replace ./wh/shop.db/orders year-end --snapshot 12

    paimon-cli tags replace ./wh/shop.db/orders year-end --time-retained 30d
    """
    opened = call.open(table)
    _show_tag(call, opened, opened.tags.replace(tag, **options), "replaced")


@command(tags, "rename")
def rename_tag(
    call: Call, table: TableName, tag: Tag, new_name: Annotated[str, typer.Argument(metavar="NEW", help="Its new name.")]
) -> None:
    """Rename a tag.

    paimon-cli tags rename ./wh/shop.db/orders year-end closing

    paimon-cli tags rename shop.orders year-end closing --warehouse ./wh
    """
    opened = call.open(table)
    _show_tag(call, opened, opened.tags.rename(tag, new_name), "renamed")


@command(tags, "rm")
def remove_tag(
    call: Call,
    table: TableName,
    names: Annotated[list[str], typer.Argument(metavar="TAG...", help="Names of tags.", show_default=False)],
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Delete tags, and the files that only they needed.

    paimon-cli tags rm ./wh/shop.db/orders year-end --dry-run

    paimon-cli tags rm ./wh/shop.db/orders year-end monday --yes
    """
    opened = call.open(table)
    planned = opened.tags.plan_rm(*names)
    removed = planned.plan.names
    if dry_run:
        show_files_to_delete(call, opened.name, opened.url, "TagRemovalPlan", planned.files(), counted(len(removed), "tag"))
        return
    confirm(f"{counted(len(removed), 'tag')} ({', '.join(removed)}) and the files that only they need will be deleted", yes)
    count = planned.run()
    freed = f" and {counted(count, 'file')} that only they needed" if count else ""
    rows = [SimpleNamespace(name=name) for name in removed]
    result = Listing("RemovedTagList", opened.name, [Column("name", "Tag")], rows)
    call.show(result, f"deleted {counted(len(removed), 'tag')}{freed}")


def _show_tag(call: Call, opened: Table, row: TagRow, done: str) -> None:
    call.show(Item("Tag", opened.name, row), f"{done} tag {row.name} at snapshot {row.snapshot_id}")


branches = group("Branches of a table. Other commands select one by --branch NAME, or as 'TABLE$branch_NAME' (in quotes).")

Branch = Annotated[str, typer.Argument(metavar="BRANCH", help="Name of the branch.", show_default=False)]


@command(branches, "ls")
def list_branches(call: Call, table: TableName) -> None:
    """List branches, main first.

    paimon-cli branches ls ./wh/shop.db/orders

    paimon-cli branches ls ./wh/shop.db/orders -o json
    """
    from paimon_cli.inspect.version_report import BranchRow

    opened = call.open(table)
    rows = opened.branches.ls()
    footer = counted(len(rows), "branch").replace("hs", "hes")
    call.show(Listing("BranchList", opened.name, BranchRow, rows, footer=footer))


@command(branches, "create")
def create_branch(call: Call, table: TableName, name: Branch, *, options: Annotated[Given, BranchOptions]) -> None:
    """Create a branch from a tag or a snapshot, or an empty one with the table's schema.

    paimon-cli branches create ./wh/shop.db/orders try --tag year-end

    paimon-cli branches create ./wh/shop.db/orders test --snapshot 3
    """
    opened = call.open(table)
    _show_branch(call, opened, opened.branches.create(name, **options), "created")


@command(branches, "rename")
def rename_branch(
    call: Call, table: TableName, name: Branch, new_name: Annotated[str, typer.Argument(metavar="NEW", help="Its new name.")]
) -> None:
    """Rename a branch.

    paimon-cli branches rename ./wh/shop.db/orders dev proposal

    paimon-cli branches rename shop.orders dev proposal --warehouse ./wh
    """
    opened = call.open(table)
    _show_branch(call, opened, opened.branches.rename(name, new_name), "renamed")


@command(branches, "rm")
def remove_branch(call: Call, table: TableName, name: Branch, dry_run: DryRun = False, yes: Yes = False) -> None:
    """Delete a branch with its commits. Files that only the branch needed become orphans; `orphans rm` deletes them.

    paimon-cli branches rm ./wh/shop.db/orders try

    paimon-cli branches rm ./wh/shop.db/orders dev --yes
    """
    opened = call.open(table)
    planned = opened.branches.plan_rm(name)
    what = f"branch {name} of {opened.name} with {counted(len(planned.plan), 'snapshot')}"
    row = SimpleNamespace(name=name, snapshots=len(planned.plan))
    columns = [Column("name", "Branch"), Column("snapshots", "Snapshots", COUNT)]
    if dry_run:
        text = f"{what} would be deleted; nothing was changed (dry run)"
        call.show(Item("BranchRemovalPlan", opened.name, row, columns), text)
        return
    confirm(f"{what} will be deleted", yes)
    planned.run()
    call.show(Item("RemovedBranch", opened.name, row, columns), f"deleted branch {name}")


@command(branches, "fast-forward")
def fast_forward(
    call: Call,
    table: TableName,
    name: Branch,
    dry_run: DryRun = False,
    yes: Yes = False,
    allow_unsafe_commit: AllowUnsafeCommit = False,
) -> bool:
    """Replace the history of main since the branch was created with that of the branch. Later commits to main are lost.

    paimon-cli branches fast-forward ./wh/shop.db/orders try --dry-run

    paimon-cli branches fast-forward ./wh/shop.db/orders dev --yes
    """
    opened = call.open(table) if dry_run else call.open_to_commit(table, allow_unsafe_commit)
    planned = opened.branches.plan_fast_forward(name)
    if dry_run:
        show_files_to_delete(call, opened.name, opened.url, "FastForwardPlan", planned.files(), _headline(planned.plan))
        return not planned.plan.is_needless
    if planned.plan.discards:
        confirm(_headline(planned.plan), yes)
    _show_branch(call, opened, planned.run(), f"{_headline(planned.plan)};")
    return not planned.plan.is_needless


def _headline(plan: FastForwardPlan) -> str:
    if plan.is_needless:
        return f"main already has all snapshots of branch {plan.branch}"
    lost = f", {counted(len(plan.removed_ids), 'snapshot')} of main dropped" if plan.removed_ids else ""
    return f"{counted(len(plan.added), 'snapshot')} of branch {plan.branch} added{lost}"


def _show_branch(call: Call, opened: Table, row: BranchRow, done: str) -> None:
    at = "without snapshots" if row.latest_snapshot is None else f"at snapshot {row.latest_snapshot}"
    call.show(Item("Branch", opened.name, row), f"{done} {'' if row.name == 'main' else 'branch '}{row.name} {at}")


consumers = group("Streaming readers, for which snapshots are kept.")

Consumer = Annotated[str, typer.Argument(metavar="CONSUMER", help="Id of the consumer.", show_default=False)]


@command(consumers, "ls")
def list_consumers(call: Call, table: TableName) -> None:
    """List consumers by name.

    paimon-cli consumers ls ./wh/shop.db/orders

    paimon-cli consumers ls ./wh/shop.db/orders -o json
    """
    from paimon_cli.api.versions import ConsumerRow

    opened = call.open(table)
    rows = opened.consumers.ls()
    call.show(Listing("ConsumerList", opened.name, ConsumerRow, rows, footer=counted(len(rows), "consumer")))


@command(consumers, "reset")
def reset_consumer(call: Call, table: TableName, consumer: Consumer, *, options: Annotated[Given, ConsumerOptions]) -> None:
    """Set the next snapshot of a consumer, creating the consumer if it does not exist.

    paimon-cli consumers reset ./wh/shop.db/orders nightly-export --next 12

    paimon-cli consumers reset ./wh/shop.db/orders nightly-export
    """
    opened = call.open(table)
    row = opened.consumers.reset(consumer, **options)
    call.show(Item("Consumer", opened.name, row), f"consumer {consumer} reads snapshot {row.next_snapshot} next")


@command(consumers, "rm")
def remove_consumer(call: Call, table: TableName, consumer: Consumer, dry_run: DryRun = False, yes: Yes = False) -> None:
    """Delete a consumer, so that snapshots are no longer kept for it.

    paimon-cli consumers rm ./wh/shop.db/orders nightly-export

    paimon-cli consumers rm ./wh/shop.db/orders nightly-export --dry-run
    """
    opened = call.open(table)
    planned = opened.consumers.plan_rm(consumer)
    row, columns = SimpleNamespace(name=consumer), [Column("name", "Consumer")]
    if dry_run:
        text = f"consumer {consumer} would be deleted; nothing was changed (dry run)"
        call.show(Item("ConsumerRemovalPlan", opened.name, row, columns), text)
        return
    confirm(f"consumer {consumer} will be deleted, and snapshots are no longer kept for it", yes)
    planned.run()
    call.show(Item("RemovedConsumer", opened.name, row, columns), f"deleted consumer {consumer}")
