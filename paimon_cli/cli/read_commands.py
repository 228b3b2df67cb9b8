"""`read`, `sql` and `export`: print, query and export the rows of tables."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from paimon_cli.cli.columns import Column
from paimon_cli.cli.command import Call, command, group, top_level
from paimon_cli.cli.output import Item, OutputFormat
from paimon_cli.cli.parameters import COMMON_PANEL, Given, SnapshotId, TableName
from paimon_cli.cli.results import COUNT, counted, human_size, note_waiting, ran, warn
from paimon_cli.errors import UsageError
from paimon_cli.requests.reading import ScanCall

if TYPE_CHECKING:
    from paimon_cli.jobs.export_job import ExportSummary


STANDARD_OUTPUT = "-"
Form = Annotated[
    OutputFormat, typer.Option("-o", "--output-format", help="Format of the printed rows.", rich_help_panel=COMMON_PANEL)
]
"""`-o` for `read`, whose `--output` names a file."""


commands = top_level()
export = group("Export a table for readers of other formats.")


@command(commands, "read", runs_jobs=True, output=Form)
def read(
    call: Call,
    table: TableName,
    *,
    options: Annotated[Given, ScanCall],
    count: Annotated[bool, typer.Option("--count", help="Print only the number of rows.")] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show which files and row groups would be read and which are skipped, and why.")
    ] = False,
    analyze: Annotated[
        bool, typer.Option("--analyze", help="With --explain: also read the rows, and show the cost of each stage.")
    ] = False,
    output_file: Annotated[
        str | None,
        typer.Option(
            "--output",
            metavar="FILE|DIR/|-",
            help="Write the rows to this file (.parquet, .csv, .arrow, .ndjson or .json; text formats also with .gz or .zst), "
            "to files of --file-size in this directory, keeping the order, or with - to standard output.",
        ),
    ] = None,
    file_format: Annotated[
        Literal["parquet", "csv", "arrow", "ndjson"] | None,
        typer.Option("--format", help="Format of --output; default by its extension, or parquet in a directory."),
    ] = None,
    file_size: Annotated[
        str | None, typer.Option("--file-size", metavar="SIZE", help="Size of each file in a directory; default 128 MB.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the --output file if it exists.")] = False,
    output_path: Annotated[
        str | None,
        typer.Option("--output-path", metavar="DIR", help="Write Parquet files to this directory, in parallel."),
    ] = None,
) -> None:
    """Print the rows of a table, merged by key, or write them to files.

    Conditions: = != < <= > >= <=> IN BETWEEN LIKE IS NULL, IS DISTINCT FROM, AND OR NOT, over columns, fields (a.b),
    + - * / %, ||, concat, upper, lower, length, coalesce, abs, round, floor, ceil; (a > 0) IS NULL. NaN equals nothing, not even
    itself; use isnan(x).

    paimon-cli read ./wh/shop.db/orders -s id,amount -w "amount * 2 > 100" --order-by "amount DESC" -l 10

    paimon-cli read ./wh/shop.db/orders --output orders.csv.gz
    """
    from paimon_cli.cli.row_output import print_rows

    explain |= analyze
    if count + explain + (output_path is not None) + (output_file is not None) > 1:
        raise UsageError("choose one of --count, --explain, --output and --output-path")
    if output_file is None and (file_format is not None or file_size is not None or force):
        raise UsageError("--format, --file-size and --force need --output", "they apply only to output files")
    if output_path is None and call.names_spark:
        warn("only `read --output-path` runs on Spark; this read runs in this process")
    if "order_by" in options and (count or output_path is not None):
        flag = "--count" if count else "--output-path"
        raise UsageError(f"--order-by cannot be combined with {flag}", "it does not keep an order of rows", "use --output DIR/")
    opened = call.open(table)
    scan = opened.scan(**options)
    if explain:
        from paimon_cli.cli.scan_view import show_scan

        plan, latest = scan.analyze() if analyze else scan.explain(), opened.context.snapshots.latest_id()
        show_scan(call, opened.name, plan, call.pasted(table), latest)
    elif count:
        rows = SimpleNamespace(count=scan.count(), waiting_records=scan.waiting_records)
        columns = [Column("count", "Rows", COUNT), Column("waiting_records", "Waiting records", COUNT)]
        call.show(Item("RowCount", opened.name, rows, columns), str(rows.count))
    elif output_path is not None:
        _show_summary(call, opened.name, scan.export(output_path))
    elif output_file is not None:
        summary = scan.write_file(output_file, format=file_format, file_size=file_size, force=force)
        if output_file != STANDARD_OUTPUT:
            _show_summary(call, opened.name, summary)
    else:
        print_rows(scan.rows, opened.name, call)


def _show_summary(call: Call, table: str, summary: ExportSummary) -> None:
    written = f"{counted(summary.rows, 'row')} in {counted(len(summary.files), 'file')}, {human_size(summary.size)}"
    call.show(Item("ExportSummary", table, summary), f"{written}, {ran(summary)} -> {summary.output_path}")


@command(export, "iceberg")
def iceberg(
    call: Call,
    table: TableName,
    output_path: Annotated[
        str | None,
        typer.Option("--output-path", metavar="DIR", help="Parent of the directory `metadata`; default the table's directory."),
    ] = None,
    snapshot: SnapshotId = None,
) -> None:
    """Write Iceberg metadata (version 2) for a snapshot, over the table's own data files.

    Exports tables that can be read without a merge: append tables, primary-key tables that are fully compacted, and tables
    with deletion vectors, which become position delete files. Refuses (exit 7) tables that Iceberg readers would see
    incorrectly. The metadata is valid while the snapshot is kept, so tag it. Needs `pip install 'paimon-cli[iceberg]'`.

    paimon-cli export iceberg ./wh/shop.db/orders

    paimon-cli export iceberg ./wh/shop.db/orders --snapshot 12 --output-path ./iceberg/orders
    """
    opened = call.open(table)
    done = opened.export_iceberg(output_path, snapshot=snapshot)
    text = f"snapshot {done.snapshot_id}: {counted(done.rows, 'row')} in {counted(done.files, 'file')}, {human_size(done.size)}"
    if done.delete_files:
        text += f"; {counted(done.deleted_rows, 'deleted row')} in {counted(done.delete_files, 'delete file')}"
    call.show(Item("IcebergExport", opened.name, done), f"{text} -> {done.metadata}")
    note_waiting(opened.context.layout.argument, done.waiting_records)
