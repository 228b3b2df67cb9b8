"""`write`: writes files to a table in one commit."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from paimon_cli.cli.command import Call, command, top_level
from paimon_cli.cli.output import Item
from paimon_cli.cli.parameters import COMMIT_PANEL, AllowUnsafeCommit, DataConflictCheck, IdentityOptions, SourceFormat, TableName
from paimon_cli.cli.results import already_done, counted, human_size, note, note_waiting, ran
from paimon_cli.errors import UsageError
from paimon_cli.options.option_text import split_buckets
from paimon_cli.requests.selections import split_partitions

if TYPE_CHECKING:
    from paimon_cli.api.scan import Scan
    from paimon_cli.api.table import Table
    from paimon_cli.jobs.write_job import WriteSummary


commands = top_level()
FAIL, SKIP = "fail", "skip"


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
        int | None,
        typer.Option("--snapshot", metavar="ID", min=1, help="With --from-table: read it at this snapshot; default the latest."),
    ] = None,
    tag: Annotated[str | None, typer.Option("--tag", metavar="NAME", help="With --from-table: read it at this tag.")] = None,
    as_of: Annotated[
        str | None,
        typer.Option("--as-of", metavar="TIME", help="With --from-table: read it at the newest snapshot made by this time."),
    ] = None,
    op: Annotated[
        Literal["upsert", "delete"],
        typer.Option("--op", help="Insert or replace the rows, or delete the rows with the same keys."),
    ] = "upsert",
    op_column: Annotated[
        str | None, typer.Option("--op-column", metavar="NAME", help="Input column that holds the row kind: +I, +U, -U or -D.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the rows of the partitions that get new rows, or of --partition.")
    ] = False,
    partition: Annotated[
        list[str] | None,
        typer.Option("--partition", metavar="KEY=VALUE[,...]", help="With --overwrite: the partition to replace."),
    ] = None,
    allow_empty: Annotated[
        bool,
        typer.Option(
            "--allow-empty", help="With --overwrite: accept input without rows, which only deletes the rows to be replaced."
        ),
    ] = False,
    on_error: Annotated[
        str,
        typer.Option(
            "--on-error",
            metavar="fail|skip|FILE",
            help="What to do with rows that do not fit the table: fail with an error that lists them, skip them, or skip them "
            "and write their bad cells to FILE (.csv, otherwise ndjson).",
        ),
    ] = FAIL,
    missing_columns: Annotated[
        Literal["null", "error"],
        typer.Option("--missing-columns", help="What to do if the input, or a JSON row, lacks a nullable column."),
    ] = "null",
    bucket: Annotated[
        list[str] | None,
        typer.Option(
            "--bucket",
            metavar="N[-M][,...]",
            help="The buckets that this writer owns, such as 0,3,5-7; repeatable. For one writer per bucket across processes, in "
            "tables with a fixed number of buckets.",
            show_default=False,
        ),
    ] = None,
    other_buckets: Annotated[
        Literal["refuse", "skip"],
        typer.Option("--other-buckets", help="With --bucket: refuse rows of other buckets, or leave them out and count them."),
    ] = "refuse",
    *,
    identity: IdentityOptions,
    data_conflict_check: DataConflictCheck = None,
    read_snapshot: Annotated[
        int | None,
        typer.Option(
            "--read-snapshot",
            metavar="N",
            min=0,
            help="The snapshot from which the rows were computed, for the data conflict check; default the latest.",
            rich_help_panel=COMMIT_PANEL,
        ),
    ] = None,
    stage: Annotated[
        str | None,
        typer.Option(
            "--stage",
            metavar="FILE",
            help="Write only the data files; `stage commit FILE` commits them later.",
            rich_help_panel=COMMIT_PANEL,
        ),
    ] = None,
    compact: Annotated[
        Literal["none", "inline", "async", "after"] | None,
        typer.Option(
            "--compact",
            help="How to compact the buckets that get rows. inline: in the writer tasks, pausing the write; async: in the writer "
            "tasks, in parallel; after: in a job after the commit; none: not at all. Default inline, for write-only tables none.",
            show_default=False,
        ),
    ] = None,
    parallelism: Annotated[
        int | None,
        typer.Option("--parallelism", metavar="N", min=1, help="Number of concurrent Spark tasks, or local threads, that write."),
    ] = None,
    allow_unsafe_commit: AllowUnsafeCommit = False,
) -> None:
    """Write files, globs, standard input or the rows of another table into a table in one commit.

    paimon-cli write ./wh/shop.db/orders orders-*.parquet

    paimon-cli write ./wh/shop.db/orders orders.csv --commit-user loads --commit-id 17

    paimon-cli write ./wh/shop.db/orders --from-table './wh/shop.db/orders$branch_dev'
    """
    opened = call.open(table, allow_unsafe_commit)

    def show_written(summary: WriteSummary) -> None:
        _show(call, opened, summary, stage, on_error)

    data = _input(call, sources, from_table, snapshot, tag, as_of, source_format)
    done = opened.write(
        data,
        op=op,
        op_column=op_column,
        overwrite=overwrite,
        partition=_static_partition(partition),
        allow_empty=allow_empty,
        on_error=on_error,
        missing_columns=missing_columns,
        bucket=split_buckets(bucket),
        other_buckets=other_buckets,
        **vars(identity),
        data_conflict_check=data_conflict_check,
        read_snapshot=read_snapshot,
        stage=stage,
        compact=compact,
        parallelism=parallelism,
        **({"format": source_format, "form": call.form} if from_table is None else {"timezone": call.form.timezone}),
        on_written=show_written,
    )
    if done.compaction is not None:
        from paimon_cli.cli.compact_view import summary_line

        note(summary_line(opened.name, done.compaction))
    note_waiting(opened.catalog_table.layout.argument, done.waiting_records)


def _show(call: Call, opened: Table, summary: WriteSummary, stage: str | None, on_error: str) -> None:
    if summary.missing_columns:
        names = ", ".join(f"'{name}'" for name in summary.missing_columns)
        effect = "are not updated" if opened.context.options.merge_engine.missing_columns_stay else "become null"
        note(f"note: the input, or some of its rows, lack {names}, which {effect}")
    if summary.rewrites:
        why = "other jobs had given keys of the same partitions their buckets, or the snapshot had expired"
        note(f"note: the rows were written again {counted(summary.rewrites, 'time')}, because {why}")
    if summary.skipped_rows:
        where = "" if on_error in (FAIL, SKIP) else f", see {on_error}"
        note(f"note: {counted(summary.skipped_rows, 'row')} skipped with {counted(summary.bad_cells, 'bad cell')}{where}")
    if summary.other_bucket_rows:
        note(f"note: {counted(summary.other_bucket_rows, 'row')} of other buckets left out")
    if stage is not None:
        from paimon_cli.cli.stage_commands import show_staged, staged_text

        show_staged(call, opened, [stage], partial(staged_text, stage))
        return
    call.show(Item("WriteSummary", opened.name, summary), _summary_text(summary))
    if summary.compaction_lost:
        note(f"note: the rows are committed, but the writer's compaction failed: {summary.compaction_lost}")


def _input(
    call: Call,
    sources: list[str] | None,
    from_table: str | None,
    snapshot: int | None,
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


def _static_partition(partition: list[str] | None) -> dict[str, str] | None:
    partitions = split_partitions(partition)
    if partitions is None:
        return None
    if len(partitions) > 1:
        raise UsageError(
            "--partition names several partitions",
            "one call overwrites a single partition",
            "omit --partition to overwrite every partition that gets rows",
        )
    return partitions[0]


def _summary_text(summary: WriteSummary) -> str:
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
