"""`write`: writes files to a table in one commit."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from paimon_cli.cli.command import Call, command, top_level
from paimon_cli.cli.output import Item
from paimon_cli.cli.parameters import AllowUnsafeCommit, Given, TableName, version_option
from paimon_cli.cli.results import already_done, counted, human_size, note, note_waiting, ran, warn
from paimon_cli.errors import UsageError
from paimon_cli.options.choices import OnError
from paimon_cli.requests.fields import SourceFormat
from paimon_cli.requests.writing import WriteCall

if TYPE_CHECKING:
    from paimon_cli.api.scan import Scan
    from paimon_cli.api.table import Table
    from paimon_cli.jobs.write_job import WriteSummary


commands = top_level()


@command(commands, "write", runs_jobs=True, reads_files=True)
def write(
    call: Call,
    table: TableName,
    sources: Annotated[
        list[str] | None, typer.Argument(metavar="[SRC]...", help="Files or globs, or - for stdin.", show_default=False)
    ] = None,
    source_format: Annotated[
        SourceFormat | None, typer.Option("--format", help="Format of the sources; default by file extension.")
    ] = None,
    from_table: Annotated[
        str | None,
        typer.Option("--from-table", metavar="TABLE", help="Write the rows of this table, instead of files.", show_default=False),
    ] = None,
    snapshot: Annotated[
        str | None,
        version_option("--snapshot", help="With --from-table: read it at this snapshot; default the latest."),
    ] = None,
    tag: Annotated[str | None, typer.Option("--tag", metavar="NAME", help="With --from-table: read it at this tag.")] = None,
    as_of: Annotated[
        str | None,
        typer.Option("--as-of", metavar="TIME", help="With --from-table: read it at the newest snapshot made by this time."),
    ] = None,
    *,
    options: Annotated[Given, WriteCall],
    allow_unsafe_commit: AllowUnsafeCommit = False,
) -> None:
    """Write files, globs, standard input or the rows of another table into a table in one commit.

    paimon-cli write ./wh/shop.db/orders orders-*.parquet

    paimon-cli write ./wh/shop.db/orders orders.csv --commit-user loads --commit-id 17

    paimon-cli write ./wh/shop.db/orders --from-table './wh/shop.db/orders$branch_dev'
    """
    opened = call.open(table, allow_unsafe_commit)

    def show_written(summary: WriteSummary) -> None:
        _show(call, opened, summary, options.get("stage"), options.get("on_error", OnError.FAIL))

    data = _input(call, sources, from_table, snapshot, tag, as_of, source_format)
    of_files: Given = {"format": source_format, "form": call.form}
    form = of_files if from_table is None else {"timezone": call.form.timezone}
    done = opened.write(data, **options, **form, on_written=show_written)
    if done.compaction is not None:
        from paimon_cli.cli.compact_view import summary_line

        note(summary_line(opened.name, done.compaction))
    note_waiting(opened.context.layout.argument, done.waiting_records)


def _show(call: Call, opened: Table, summary: WriteSummary, stage: str | None, on_error: str) -> None:
    if summary.missing_columns:
        names = ", ".join(f"'{name}'" for name in summary.missing_columns)
        effect = "are not updated" if opened.context.options.merge_engine.missing_columns_stay else "become null"
        note(f"note: the input, or some of its rows, lack {names}, which {effect}")
    if summary.rewrites:
        why = "other jobs had given keys of the same partitions their buckets, or the snapshot had expired"
        note(f"note: the rows were written again {counted(summary.rewrites, 'time')}, because {why}")
    if summary.skipped_rows:
        where = "" if on_error in (OnError.FAIL, OnError.SKIP) else f", see {on_error}"
        note(f"note: {counted(summary.skipped_rows, 'row')} skipped with {counted(summary.bad_cells, 'bad cell')}{where}")
    if summary.other_bucket_rows:
        note(f"note: {counted(summary.other_bucket_rows, 'row')} of other buckets left out")
    if summary.unordered_deletes:
        first, *others = opened.context.options.sequence_fields
        option = "the first of sequence.field" if others else "sequence.field"
        what = f"{counted(summary.unordered_deletes, 'delete')} without a value of '{first}' ({option})"
        warn(f"{what} cannot remove rows that have one; give it, or remove them by `paimon-cli delete`")
    if stage is not None:
        from paimon_cli.cli.stage_commands import show_staged, staged_text

        show_staged(call, opened, [stage], partial(staged_text, stage))
        return
    call.show(Item("WriteSummary", opened.name, summary), written_text(summary))
    if summary.compaction_lost:
        note(f"note: the rows are committed, but the writer's compaction failed: {summary.compaction_lost}")


def _input(
    call: Call,
    sources: list[str] | None,
    from_table: str | None,
    snapshot: str | None,
    tag: str | None,
    as_of: str | None,
    source_format: str | None,
) -> list[str] | Scan:
    """The files of the call, or the scan of the table that it names. Raises `UsageError` for both, or for neither."""
    if from_table is None:
        if not sources:
            raise UsageError(
                "no input is named", "write needs files or a table", "add FILE..., - for stdin, or --from-table TABLE"
            )
        for flag, value in (("--snapshot", snapshot), ("--tag", tag), ("--as-of", as_of)):
            if value is not None:
                raise UsageError(f"{flag} needs --from-table", "files have no snapshots", "name the table with --from-table")
        return sources
    if sources:
        raise UsageError(f"--from-table cannot be combined with {sources[0]}", "one call has one source", "leave one of them out")
    if source_format is not None:
        raise UsageError("--format cannot be combined with --from-table", "a table knows its formats", "leave it out")
    call.form.check_used_by({"table"})
    # `--option` and `--branch` are those of the table that is written.
    return replace(call, options={}, branch=None).open(from_table).scan(snapshot=snapshot, tag=tag, as_of=as_of)


def written_text(summary: WriteSummary) -> str:
    if summary.already_committed:
        return already_done(summary)
    if not summary.snapshots:
        source = "the input" if summary.source_table is None else _origin_text(summary).removeprefix(" from ")
        return f"{source} has no rows to write, nothing was committed"
    ids = ", ".join(str(snapshot.id) for snapshot in summary.snapshots)
    deletes = f" ({counted(summary.delete_rows, 'delete')})" if summary.delete_rows else ""
    merged = f" of {summary.rows_read:,} read (equal keys merged)" if summary.rows < summary.rows_read else ""
    rows = f"{counted(summary.rows, 'row')}{merged}{deletes}{_origin_text(summary)}"
    compacted = f", {counted(summary.compacted, 'bucket')} compacted" if summary.compacted else ""
    stalled = f", stalled {summary.stall_seconds:.1f} s in {counted(summary.stalls, 'time')}" if summary.stalls else ""
    again = f", all rows written {summary.rewrites + 1} times" if summary.rewrites else ""
    took = f"{counted(summary.attempts, 'attempt')}{again}, {ran(summary)}{stalled}"
    return (
        f"snapshot {ids}: {rows} in {counted(summary.files, 'file')} of {counted(summary.buckets, 'bucket')}, "
        f"{human_size(summary.size)}{compacted}, {took}{_buffer_text(summary)}"
    )


def _origin_text(summary: WriteSummary) -> str:
    """The table from which the rows come, and its snapshot; empty for other sources."""
    if summary.source_table is None:
        return ""
    at = "" if summary.source_snapshot is None else f" at snapshot {summary.source_snapshot}"
    return f" from {summary.source_table}{at}"


def _buffer_text(summary: WriteSummary) -> str:
    """A line about the write buffer if it spilled or flushed early, which slows down a write; otherwise empty."""
    if not summary.spills and summary.flushes <= summary.buckets:
        return ""
    return (
        f"\nwrite buffer: peak {human_size(summary.buffer_peak)} of {human_size(summary.buffer_size)}, "
        f"{summary.flushes:,} flush{'' if summary.flushes == 1 else 'es'}, "
        f"{counted(summary.spills, 'spill')} ({human_size(summary.spilled_size)}), {counted(summary.preemptions, 'pre-emption')}"
    )
