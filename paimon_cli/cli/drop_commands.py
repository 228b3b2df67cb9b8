"""`drop`, `drop-partition`, `truncate`, `rollback`: delete a table, partitions, all rows, or later snapshots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from paimon_cli.cli.command import Call, command, top_level
from paimon_cli.cli.expire_command import show_files_to_delete
from paimon_cli.cli.output import Item
from paimon_cli.cli.parameters import AllowUnsafeCommit, DryRun, Given, TableName, Yes
from paimon_cli.cli.results import confirm, counted, human_size, note, note_waiting, rfc3339, to_second, warn
from paimon_cli.requests.dropping import DropOptions
from paimon_cli.requests.selections import split_partitions
from paimon_cli.requests.versions import RollbackOptions
from paimon_cli.requests.writing import Identity
from paimon_cli.storage.catalog_options import TRASH_TIME

if TYPE_CHECKING:
    from paimon_cli.api.table import Table
    from paimon_cli.jobs.metadata_jobs import Dropped, RolledBack
    from paimon_cli.maintain.rollback import RollbackPlan

NAMED = 20
"""The most paths that a warning names."""


commands = top_level()


@command(commands, "truncate")
def truncate(
    call: Call,
    table: TableName,
    dry_run: DryRun = False,
    yes: Yes = False,
    *,
    identity: Annotated[Given, Identity],
    allow_unsafe_commit: AllowUnsafeCommit = False,
) -> bool:
    """Delete all rows in one commit. Older snapshots keep them until they expire.

    paimon-cli truncate ./wh/shop.db/orders --dry-run

    paimon-cli truncate ./wh/shop.db/orders --yes
    """
    return _drop(call, table, None, dry_run, yes, identity, allow_unsafe_commit)


@command(commands, "drop-partition")
def drop_partition(
    call: Call,
    table: TableName,
    partitions: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY=VALUE[,...]...",
            help="Partitions to delete; with only some of the keys, all that match. __DEFAULT_PARTITION__ is null.",
        ),
    ],
    dry_run: DryRun = False,
    yes: Yes = False,
    *,
    identity: Annotated[Given, Identity],
    allow_unsafe_commit: AllowUnsafeCommit = False,
) -> bool:
    """Delete all rows of partitions in one commit. Older snapshots keep them until they expire.

    paimon-cli drop-partition ./wh/shop.db/orders dt=2026-11-20

    paimon-cli drop-partition ./wh/shop.db/orders dt=2026-11-20 --dry-run
    """
    chosen = split_partitions(partitions, flag="")
    return _drop(call, table, chosen, dry_run, yes, identity, allow_unsafe_commit)


def _drop(
    call: Call,
    table: str,
    partitions: Sequence[Mapping[str, str]] | None,
    dry_run: bool,
    yes: bool,
    identity: Given,
    allow_unsafe_commit: bool,
) -> bool:
    """Whether there are files to drop."""
    opened = call.open(table) if dry_run else call.open_to_commit(table, allow_unsafe_commit)
    planned = opened.plan_truncate(partition=partitions, **identity)
    plan = planned.plan
    if plan.files and not dry_run:
        confirm(f"{_content(plan)} of {opened.name} will be deleted", yes)
    done = plan if dry_run else planned.run()
    call.show(Item("DropPlan" if dry_run else "DropSummary", opened.name, done), emptied_text(done, dry_run))
    return bool(plan.files)


def _content(what: Dropped) -> str:
    return f"{counted(what.rows, 'stored record')} in {counted(what.files, 'file')} of {counted(what.partitions, 'partition')}"


def emptied_text(done: Dropped, dry_run: bool) -> str:
    if done.already_committed:
        return "already committed under this user and identifier, nothing was done"
    if dry_run:
        return f"{_content(done)} would be deleted; nothing was changed (dry run)"
    if not done.snapshots:
        return "there are no rows to delete, nothing was committed"
    return f"snapshot {', '.join(str(snapshot.id) for snapshot in done.snapshots)}: {_content(done)} deleted"


@command(commands, "drop")
def drop(
    call: Call,
    table: TableName,
    *,
    options: Annotated[Given, DropOptions],
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Move a table to the trash of its warehouse, from which `undrop` brings it back for a day. Foreign files remain.

    --purge deletes its files, snapshots, tags and branches at once, and so does the drop of a table outside of a warehouse, which
    has no trash. No commit of paimon-cli is acknowledged after a drop. Writers of other engines may not notice: stop them first.
    If a deletion is interrupted, the table can no longer be read or written; repeat it.

    If the files of the table no longer exist, only its entry in the catalog is removed. If the table is named by a symbolic link,
    only the link is deleted.

    paimon-cli drop ./wh/shop.db/orders --dry-run

    paimon-cli drop ./wh/shop.db/orders --yes
    """
    planned = call.catalog().plan_drop_table(table, **options)
    plan = planned.plan
    if plan.link_to is not None:
        what, files = f"the symbolic link {plan.table}", f"the table at {plan.link_to}, to which it leads, remains"
    elif plan.only_entry:
        what, files = f"the entry of table {plan.table}", "its files no longer exist"
    else:
        what = f"table {plan.table} with {counted(plan.snapshots, 'snapshot')}"
        files = f"{counted(plan.files, 'file')} of {human_size(plan.size)} deleted"
    end = "will be deleted for good"
    if plan.until is not None:
        files = f"{counted(plan.files, 'file')} of {human_size(plan.kept)} stay in the trash until {rfc3339(plan.until)}"
        end = "will be moved to the trash"
    if not dry_run:
        confirm(f"{what} ({files.removesuffix(' deleted')}) {end}", yes)
        planned.run()
    for line in _remaining_files(plan.path, plan.left):
        warn(line)
    if dry_run:
        show_files_to_delete(call, plan.table, plan.path, "TableDropPlan", planned.files(), what)
        return
    call.show(Item("TableDropSummary", plan.table, plan), f"dropped {what}: {files}")
    if plan.until is not None and call.is_for_people:
        note(f"note: to bring it back: paimon-cli undrop {_without_retention(call).pasted(table)}")


def _without_retention(call: Call) -> Call:
    """The call for hints about other commands than drops, which say for how long a table is kept."""
    return replace(call, catalog_options={key: value for key, value in call.catalog_options.items() if key != TRASH_TIME})


def _remaining_files(url: str, left: list[str]) -> list[str]:
    """The lines of the warning about files that a drop keeps; empty if there are none."""
    if not left:
        return []
    shown = [f"  {path}" for path in left[:NAMED]]
    more = [f"  and {len(left) - NAMED:,} more"] if len(left) > NAMED else []
    return [f"{url} is kept, because it contains files that do not belong to the table:", *shown, *more]


@command(commands, "rollback")
def rollback(
    call: Call,
    table: TableName,
    *,
    options: Annotated[Given, RollbackOptions],
    dry_run: DryRun = False,
    yes: Yes = False,
    allow_unsafe_commit: AllowUnsafeCommit = False,
) -> bool | None:
    """Go back to an older snapshot and delete later snapshots and tags, with the files that only they need.

    Stop the writers first: the rollback exits with 5 if another job commits in the meantime. With --as-new writers may continue.

    paimon-cli rollback ./wh/shop.db/orders --to 12 --dry-run

    paimon-cli rollback ./wh/shop.db/orders --to year-end --as-new --yes
    """
    opened = call.open(table) if dry_run else call.open_to_commit(table, allow_unsafe_commit)
    if "as_new" in options and dry_run:
        return _show_restoration(call, opened, options["to"])
    if "as_new" in options or "compact" in options:
        done = opened.rollback(**options)
    else:
        planned = opened.plan_rollback(options["to"])
        headline = _headline(planned.plan)
        if dry_run:
            show_files_to_delete(call, opened.name, opened.url, "RollbackPlan", planned.files(), headline)
            return not planned.plan.is_needless
        if not planned.plan.is_needless:
            confirm(headline, yes)
        done = planned.run()
    call.show(Item("RollbackSummary", opened.name, done), _rollback_text(done))
    if done.compaction_lost:
        note(f"note: the old state is committed, but the compaction failed: {done.compaction_lost}")
    argument = opened.context.layout.argument
    if done.fitting_buckets is not None:
        option, command = opened.context.options.bucket, f"paimon-cli rescale {argument} --buckets {done.fitting_buckets} --yes"
        warn(f"files have another bucket count than the option, bucket={option}, so writers refuse them; run: {command}")
    note_waiting(argument, done.waiting_records)
    return None


@dataclass(frozen=True)
class RestorationRow:
    """What `rollback --as-new` would commit as `snapshot`: the content of `target`, with `copied` bytes of `buckets`."""

    target: int
    snapshot: int
    buckets: int
    copied: int


def _show_restoration(call: Call, opened: Table, to: str) -> bool:
    """Show the dry run of `--as-new`. Whether anything would be committed."""
    found = opened.plan_restore(to)
    copied = sum(difference.copied_bytes for difference in found.differences)
    row = RestorationRow(found.target.id, found.latest.id + bool(found.differences), len(found.differences), copied)
    if found.differences:
        what = f"snapshot {row.snapshot} would have the content of snapshot {row.target}"
        text = f"{what}: {counted(row.buckets, 'bucket')} differ, {human_size(copied)} to copy; nothing was changed (dry run)"
    else:
        text = f"the table already has the content of snapshot {row.target}; nothing was changed (dry run)"
    call.show(Item("RestorationPlan", opened.name, row), text)
    return bool(found.differences)


def _headline(plan: RollbackPlan) -> str:
    tags = f" and {counted(len(plan.tags), 'tag')} ({', '.join(plan.tags)})" if plan.tags else ""
    left = ", files of an interrupted rollback" if plan.discarded.unfinished else ""
    target = f"snapshot {plan.target.id} of {to_second(plan.target.time_millis)}"
    return f"back to {target}: {counted(len(plan.removed_ids), 'snapshot')}{tags}{left} will be deleted"


def _rollback_text(done: RolledBack) -> str:
    if done.snapshot != done.target:
        compacted = f", {counted(done.compacted, 'bucket')} compacted" if done.compacted else ""
        return f"snapshot {done.snapshot} has the content of snapshot {done.target}, {human_size(done.copied)} copied{compacted}"
    if not done.files:
        return f"the table is already at snapshot {done.target}"
    tags = f", {counted(len(done.tags_removed), 'tag')}" if done.tags_removed else ""
    removed = f"{counted(done.snapshots_removed, 'snapshot')}{tags} and {counted(done.files, 'file')}"
    return f"back at snapshot {done.target}: {removed} deleted"
