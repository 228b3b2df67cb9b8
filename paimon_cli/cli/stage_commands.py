"""`stage` and `rescale`: commit in two separate phases, and change the bucket count."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from paimon_cli.cli.command import Call, command, group, top_level
from paimon_cli.cli.output import Item, Listing
from paimon_cli.cli.parameters import AllowUnsafeCommit, DryRun, Given, TableName, Yes
from paimon_cli.cli.results import already_done, confirm, counted, human_size, note, note_waiting, ran
from paimon_cli.errors import UsageError
from paimon_cli.requests.fields import flag
from paimon_cli.requests.maintenance import RescaleOptions
from paimon_cli.requests.writing import STAGE_WATCH, Identity, StagedTogether, StageRounds

if TYPE_CHECKING:
    from paimon_cli.api.table import Table
    from paimon_cli.inspect.staged_report import JointDetails, StagedDetails
    from paimon_cli.jobs.rescale_job import RescalePlan, RescaleSummary
    from paimon_cli.jobs.staging.stage_commit import StageSummary
    from paimon_cli.metadata.staged_commit import StagedCommit

stage = group("Commits in two phases: `write --stage FILE` writes the files, these commands commit or abort them.")


StagedFile = Annotated[str, typer.Argument(metavar="FILE", help="File written by `write --stage`.", show_default=False)]
StagedFiles = Annotated[
    list[str], typer.Argument(metavar="FILE...", help="Files written by `write --stage`.", show_default=False)
]
ExpectedTable = Annotated[str | None, typer.Option("--table", metavar="TABLE", help="The table; default the one named in FILE.")]


@command(stage, "show")
def show_stage(call: Call, files: StagedFiles, table: ExpectedTable = None) -> None:
    """Show a staged commit: its user, its files by bucket, and whether it was committed or aborted.

    Of several files it shows what one snapshot of all of them would hold, and which buckets several of them write to.

    paimon-cli stage show orders.stage

    paimon-cli stage show orders.stage returns.stage -o json
    """
    show_staged(call, _opened(call, files[0], table), files)


@command(stage, "commit", runs_jobs=True)
def commit(
    call: Call,
    files: Annotated[
        list[str] | None, typer.Argument(metavar="[FILE]...", help="Files written by `write --stage`.", show_default=False)
    ] = None,
    table: ExpectedTable = None,
    *,
    options: Annotated[Given, StagedTogether],
    watch: Annotated[
        str | None,
        typer.Option(
            "--watch",
            metavar="DIR",
            help="Instead of files: commit what lands in this directory or URL, in the order of names, until stopped. SIGTERM "
            "exits with 0, Ctrl-C with 130. Names that end in .tmp, or begin with . or _, are ignored.",
            rich_help_panel=STAGE_WATCH,
        ),
    ] = None,
    rounds: Annotated[Given, StageRounds],
    identity: Annotated[Given, Identity],
    allow_unsafe_commit: AllowUnsafeCommit = False,
) -> None:
    """Commit a staged write, or several in one snapshot, and compact their buckets if that is due.

    Several files are the writes of several writers with one committer: they become visible together, or not at all. They belong
    to one table, branch and schema. The snapshot has the identity of the committer, by default one that is derived from theirs,
    and lists theirs in its properties.

    Repeating the command commits nothing more; if only some of the files were committed before, nothing is done (exit 7). After
    a conflict (exit 5) the data files of a single write are deleted; several stay staged.

    --watch is a committer process for writers that are started by others. Each file in the directory is a checkpoint, and so is
    each subdirectory with a file _SUCCESS, whose files become one snapshot. Each is committed once, however often the process
    is killed, and moves to DIR/done; one that can never be committed moves to DIR/failed, and the exit code is 9 at the end.

    paimon-cli stage commit orders.stage

    paimon-cli stage commit monday.stage tuesday.stage --table ./wh/shop.db/orders

    paimon-cli stage commit --watch ./landing --interval 10s
    """
    if watch is not None:
        from paimon_cli.cli.stage_watch import refuse_with_watch, run_watch

        refuse_with_watch(files, identity)
        run_watch(call, watch, table, allow_unsafe_commit, {**options, **rounds})
        return
    if not files:
        raise UsageError("no stage file is named", "there is nothing to commit", "name files, or a directory with --watch")
    for name in rounds:
        raise UsageError(f"{flag(name)} needs --watch", "files that are named are committed at once", "leave it out")
    opened = _opened(call, files[0], table, allow_unsafe_commit)
    opened.check_commit()
    result = opened.stage.commit(files, **options, **identity)
    show_staged(call, opened, files, lambda content: _committed_text(result, content), result)
    if result.compaction_lost:
        note(f"note: the rows are committed, but the compaction failed: {result.compaction_lost}")
    note_waiting(opened.context.layout.argument, result.waiting_records)


def _committed_text(result: StageSummary, content: str) -> str:
    if result.already_committed:
        return already_done(result, known_by="")
    if not result.snapshots:
        return "no rows, nothing was committed"
    ids = ", ".join(str(snapshot.id) for snapshot in result.snapshots)
    compacted = f", {counted(result.compacted, 'bucket')} compacted" if result.compacted else ""
    return f"snapshot {ids}: {content}{compacted}, {counted(result.attempts, 'attempt')}"


@command(stage, "abort")
def abort(call: Call, file: StagedFile, table: ExpectedTable = None) -> None:
    """Abort a staged write and delete its data files. Refused (exit 7) once it has been committed.

    paimon-cli stage abort orders.stage

    paimon-cli stage abort orders.stage --table ./wh/shop.db/orders
    """
    opened = _opened(call, file, table)
    deleted = opened.stage.abort(file)
    text = f"aborted: {counted(deleted, 'file')} deleted, nothing was committed"
    show_staged(call, opened, [file], lambda content: text)


def show_staged(
    call: Call,
    table: Table,
    files: Sequence[str],
    text: Callable[[str], str] | None = None,
    done: StageSummary | None = None,
) -> None:
    """Print staged commits, for `stage` and `write --stage`. `text`: of the result, from a description of their content. `done`:
    the result of committing them.
    """
    from paimon_cli.inspect.staged_report import joint_details, staged_details

    staged = [table.stage.show(file) for file in files]
    details: StagedDetails | JointDetails
    if len(files) == 1:
        kind, details = "StagedCommit", staged_details(table.context, files[0], staged[0])
    else:
        kind, details = "JointCommit", joint_details(table.context, files, staged)
    if done is not None:
        details = replace(details, compacted=done.compacted, waiting_records=done.waiting_records)
    call.show(Item(kind, table.name, details), None if text is None else text(_content(staged)))


def staged_text(file: str, content: str) -> str:
    """The result of `write --stage` as one line of text."""
    return f"staged {content}; nothing is committed yet: paimon-cli stage commit {shlex.quote(file)}"


def _content(staged: Sequence[StagedCommit]) -> str:
    messages = [message for one in staged for message in one.messages]
    files = [file for message in messages for file in message.append.added]
    rows, size = sum(file.row_count for file in files), human_size(sum(file.file_size for file in files))
    where = f"{counted(len(files), 'file')} of {counted(len({message.bucket_id for message in messages}), 'bucket')}"
    writers = f", {counted(len(staged), 'writer')}" if len(staged) > 1 else ""
    return f"{counted(rows, 'stored record')} in {where}, {size}{writers}"


def _opened(call: Call, file: str, table: str | None, allow_unsafe_commit: bool = False) -> Table:
    """The table that the file was staged for, or `table`."""
    from paimon_cli.jobs.staging.stage_job import StageFile

    return call.open(table or StageFile(file).read().table, allow_unsafe_commit)


commands = top_level()


@command(commands, "rescale", runs_jobs=True)
def rescale(
    call: Call,
    table: TableName,
    *,
    options: Annotated[Given, RescaleOptions],
    dry_run: DryRun = False,
    yes: Yes = False,
    allow_unsafe_commit: AllowUnsafeCommit = False,
) -> bool:
    """Rewrite a table with another bucket count in one commit, and change its bucket option.

    Stop other engines' writers first: running writers of Java keep the old bucket count, and their next commits are accepted,
    so that keys are read twice. The command says if that has happened before it ended; later `health` finds it, and
    `repair --only stale-buckets --apply` moves such rows.

    --online is for tables to which only paimon-cli writes: writers go on, and those that planned before move their rows when they
    commit. It exits with 7 while a retained snapshot was committed by another engine.

    A table with dynamic buckets gets a fixed bucket count. If another job writes in the meantime, the command exits with 5
    and changes nothing. --partition rewrites only these partitions and does not change the option; writers refuse these
    partitions while their count differs from the option. With postponed buckets each partition has its own count, and the
    option stays -2.

    paimon-cli rescale ./wh/shop.db/orders --buckets 16 --dry-run

    paimon-cli rescale ./wh/shop.db/orders --buckets 8 --online --yes

    paimon-cli rescale ./wh/shop.db/orders --partition dt=2026-11-21 --buckets 8 --yes
    """
    opened = call.open(table) if dry_run else call.open_to_commit(table, allow_unsafe_commit)
    planned = opened.plan_rescale(**options)
    plan = planned.plan
    if dry_run:
        _show_plan(call, opened, plan)
        return plan.is_needed
    if plan.partitions:
        confirm(_headline(plan), yes)
    summary = planned.run()
    call.show(Item("RescaleSummary", opened.name, summary), _summary_text(summary))
    if summary.stale_files:
        opened.runtime.warn(
            f"{counted(summary.stale_files, 'file')} with the old bucket count came in since, from writers of another engine: "
            "stop them, then move their rows, none of which is lost: "
            f"paimon-cli repair {opened.context.layout.argument} --only stale-buckets --apply --yes"
        )
    return plan.is_needed


def _show_plan(call: Call, table: Table, plan: RescalePlan) -> None:
    from paimon_cli.jobs.rescale_job import RescaledPartition

    footer = f"{_headline(plan)}; nothing was changed (dry run)"
    summary = {"buckets": plan.buckets, "changes_option": plan.changes_option, "online": plan.online}
    call.show(Listing("RescalePlan", table.name, RescaledPartition, plan.partitions, footer=footer, summary=summary))


def _headline(plan: RescalePlan) -> str:
    if not plan.partitions:
        option = f", but the table's option is not: it becomes bucket={plan.buckets}" if plan.changes_option else ""
        return f"all files are already in {counted(plan.buckets, 'bucket')}{option}"
    files = sum(partition.files for partition in plan.partitions)
    rows = sum(partition.rows for partition in plan.partitions)
    held = f"{counted(rows, 'row')} in {counted(files, 'file')}, {human_size(plan.size)}"
    what = f"{counted(len(plan.partitions), 'partition')} ({held})"
    refused = f"; until `alter TABLE set bucket={plan.buckets}` writers will refuse them" if plan.differs_from_option else ""
    if plan.online:
        stop = (
            "; writers of paimon-cli go on. If a writer of another engine commits all the same, its rows are in the old buckets, "
            "and keys are read twice until maintain or compact --watch, in its next round, or repair moves them"
        )
    else:
        stop = "; stop other engines' writers first, they would go on with the old count"
    return f"{what} will be rewritten with {counted(plan.buckets, 'bucket')}{refused}{stop}"


def _summary_text(done: RescaleSummary) -> str:
    option = f"; the table's option is now bucket={done.buckets}" if done.option_changed else ""
    if not done.partitions:
        return f"no files had to be rewritten{option}"
    ids = ", ".join(str(snapshot.id) for snapshot in done.snapshots)
    return (
        f"snapshot {ids}: {counted(done.rows, 'row')} of {counted(done.partitions, 'partition')} in "
        f"{counted(done.files, 'file')}, {human_size(done.size)}, {ran(done)}{option}"
    )
