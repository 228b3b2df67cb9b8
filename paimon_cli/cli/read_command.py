"""`read`: print rows, or write them to files."""

from __future__ import annotations

import enum
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from paimon_cli.cli.command import Call, command
from paimon_cli.cli.parameters import COMMON_PANEL, SnapshotId, TableName
from paimon_cli.cli.results import COUNT, ID, SIZE, TEXT, Column, Item, OutputFormat, counted, human_size, ran, records, say, warn
from paimon_cli.errors import UsageError

if TYPE_CHECKING:
    from paimon_cli.catalog.table import CatalogTable
    from paimon_cli.jobs.export_job import ExportSummary, FileForm
    from paimon_cli.jobs.row_scan import Increment, RowScan

COUNT_COLUMNS = (Column("count", "Rows", COUNT),)
EXPORT_COLUMNS = (
    Column("output_path", "Path"),
    Column("rows", "Rows", COUNT),
    Column("size", "Size", SIZE),
    Column("engine", "Engine"),
    Column("engine_reason", "Why"),
    Column("seconds", "Seconds", TEXT),
    Column("files", "Files", records("path", "rows", "size")),
)


class IncrementMode(str, enum.Enum):
    """Choices of `--incremental-mode`."""

    AUTO = "auto"
    DELTA = "delta"
    CHANGELOG = "changelog"
    DIFF = "diff"


class FileFormat(str, enum.Enum):
    """Choices of `--format`."""

    PARQUET = "parquet"
    CSV = "csv"
    ARROW = "arrow"
    NDJSON = "ndjson"


FILE_SIZE = "128 mb"
Form = Annotated[
    OutputFormat, typer.Option("-o", "--output-format", help="Format of the printed rows.", rich_help_panel=COMMON_PANEL)
]
"""`--output` names a file here."""


def register(app: typer.Typer, panel: str) -> None:
    command(app, "read", runs_jobs=True, output=Form, rich_help_panel=panel)(read)


def read(
    call: Call,
    table: TableName,
    select: Annotated[
        str | None, typer.Option("-s", "--select", metavar="NAMES", help="Columns to read, such as id,`last name`; default all.")
    ] = None,
    where: Annotated[
        str | None,
        typer.Option("-w", "--where", metavar="SQL", help="Only rows that match, such as \"id > 7 AND name LIKE 'a%'\"."),
    ] = None,
    limit: Annotated[int | None, typer.Option("-l", "--limit", metavar="N", min=0, help="At most N rows.")] = None,
    order_by: Annotated[
        str | None,
        typer.Option("--order-by", metavar="SQL", help='Sort order, such as "dep_delay DESC, id"; nulls come last.'),
    ] = None,
    snapshot: SnapshotId = None,
    tag: Annotated[str | None, typer.Option("--tag", metavar="NAME", help="Read at this tag.")] = None,
    as_of: Annotated[
        str | None,
        typer.Option("--as-of", metavar="TIME", help="Read at the newest snapshot made by this time (RFC 3339 or epoch millis)."),
    ] = None,
    incremental: Annotated[
        str | None,
        typer.Option(
            "--incremental",
            metavar="A..B",
            help="Only the changes after A, up to and including B (ids, tags or times; default of B is the latest).",
        ),
    ] = None,
    incremental_mode: Annotated[
        IncrementMode,
        typer.Option(
            "--incremental-mode",
            help="From the rows that were added, from changelog files, or from how A and B differ; "
            "auto: diff between two tags, else changelog if the table writes one.",
        ),
    ] = IncrementMode.AUTO,
    row_kind: Annotated[bool, typer.Option("--row-kind", help="Also show deleted keys, with the row kind of each row.")] = False,
    count: Annotated[bool, typer.Option("--count", help="Print only the number of rows.")] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show which files would be read and which are skipped, and why.")
    ] = False,
    output_file: Annotated[
        str | None,
        typer.Option(
            "--output",
            metavar="FILE|DIR/|-",
            help="Write the rows into this file (.parquet, .csv, .arrow, .ndjson; text formats also with .gz or .zst), "
            "into files of --file-size in this directory, in their order, or with - to standard output.",
        ),
    ] = None,
    file_format: Annotated[
        FileFormat | None,
        typer.Option("--format", help="Format of --output; default by its extension, or parquet in a directory."),
    ] = None,
    file_size: Annotated[
        str | None, typer.Option("--file-size", metavar="SIZE", help="Size of each file in a directory; default 128 MB.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the --output file if it exists.")] = False,
    output_path: Annotated[
        str | None,
        typer.Option("--output-path", metavar="DIR", help="Write parquet files into this directory, in parallel."),
    ] = None,
) -> None:
    """Print the rows of a table, merged by key, or write them to files.

    Conditions: = != < <= > >= IN BETWEEN LIKE IS NULL, AND OR NOT, over columns, fields (a.b), + - * / %, ||, concat, upper,
    lower, length, coalesce, abs, round, floor, ceil. NaN equals no value, not even itself; use isnan(x).

    paimon-cli read ./wh/shop.db/orders -s id,amount -w "amount * 2 > 100" --order-by "amount DESC" -l 10

    paimon-cli read ./wh/shop.db/orders --output orders.csv.gz
    """
    from paimon_cli.cli.row_output import print_rows
    from paimon_cli.jobs.row_scan import ReadRequest, plan_rows

    if incremental is not None and not (snapshot is None and tag is None and as_of is None):
        raise UsageError("--incremental cannot be combined with --snapshot, --tag or --as-of", "it names the snapshots itself")
    if count + explain + (output_path is not None) + (output_file is not None) > 1:
        raise UsageError("choose one of --count, --explain, --output and --output-path")
    if output_file is None and (file_format is not None or file_size is not None or force):
        raise UsageError("--format, --file-size and --force need --output", "they describe how it is written")
    if output_path is None and call.asks_for_spark:
        warn("only `read --output-path` runs on Spark; this read runs in this process")
    if order_by is not None and (count or output_path is not None):
        flag = "--count" if count else "--output-path"
        raise UsageError(
            f"--order-by cannot be combined with {flag}", "that mode gives rows in no particular order", "use --output DIR/"
        )
    form = None if output_file is None else _file_form(output_file, file_format, file_size)
    if incremental is None and incremental_mode is not IncrementMode.AUTO:
        raise UsageError(
            f"--incremental-mode {incremental_mode.value} without --incremental", "the mode needs a range of snapshots"
        )
    opened = call.open(table)
    increment = None if incremental is None else _increment(incremental, incremental_mode)
    scan = plan_rows(opened, ReadRequest(select, where, limit, snapshot, tag, as_of, row_kind, increment, order_by))
    for warning in scan.predicate.warnings if scan.predicate else ():
        warn(warning)
    if explain:
        _show_plan(call, opened, scan)
    elif count:
        _show_count(call, opened, scan.count())
    elif output_path is not None:
        _export(call, opened, scan, output_path)
    elif output_file is not None and form is not None:
        _write(call, opened, scan, (output_file, *form, force))
    else:
        print_rows(scan, opened.name, call.output, call.view)


def _increment(text: str, mode: IncrementMode) -> Increment:
    from paimon_cli.jobs.row_scan import Increment

    begin, dots, end = text.partition("..")
    if not dots or not begin:
        raise UsageError(f"--incremental {text}", "two snapshots are expected", "write them as 3..7")
    return Increment(begin, end, mode.value)


@dataclass(frozen=True)
class RowCount:
    """The result of `--count`."""

    count: int


def _show_count(call: Call, table: CatalogTable, count: int) -> None:
    if call.output is OutputFormat.TABLE:
        say(str(count))
    else:
        call.show(Item("RowCount", table.name, COUNT_COLUMNS, RowCount(count)))


@dataclass(frozen=True)
class ShownPlan:
    """The result of `--explain`: the snapshot, what remains to be read, and what was skipped for which reason."""

    snapshot_id: int | None
    levels: str
    order_by: str | None
    splits: int
    splits_to_merge: int
    rows: int
    size: int
    manifests: int
    manifests_skipped: int
    partitions: int
    partitions_skipped: int
    buckets: int
    buckets_skipped: int
    files: int
    files_skipped_by_partition: int
    files_skipped_by_bucket: int
    files_skipped_by_level: int
    rows_skipped_by_level: int
    files_skipped_by_key: int
    files_skipped_by_value: int
    files_skipped_by_index: int
    files_skipped_as_unchanged: int


_PLAN_TITLES = {
    "snapshot_id": ("Snapshot", ID),
    "rows": ("Rows at most", COUNT),
    "size": ("Bytes at most", SIZE),
    "levels": ("Levels", TEXT),
    "order_by": ("Order", TEXT),
}
PLAN_COLUMNS = tuple(
    Column(name, *_PLAN_TITLES.get(name, (name.replace("_", " ").capitalize(), COUNT))) for name in ShownPlan.__dataclass_fields__
)


def _show_plan(call: Call, table: CatalogTable, scan: RowScan) -> None:
    plan = scan.plan
    shown = ShownPlan(
        snapshot_id=None if plan.snapshot is None else plan.snapshot.id,
        levels=plan.levels,
        order_by=scan.request.order_by,
        splits=len(plan.splits),
        splits_to_merge=plan.splits_to_merge,
        rows=plan.row_count,
        size=plan.size,
        **vars(plan.counts),
    )
    call.show(Item("ScanPlan", table.name, PLAN_COLUMNS, shown))


def _file_form(path: str, file_format: FileFormat | None, file_size: str | None) -> tuple[FileForm, int | None]:
    """The format of `--output` and, for a directory, the size of its files in bytes."""
    from paimon_cli.jobs.export_job import LEAST_FILE_SIZE, FileForm
    from paimon_cli.options.size_and_duration import parse_size

    named = None if file_format is None else file_format.value
    if file_size is None and not path.endswith("/") and not os.path.isdir(path):
        return FileForm.of(path, named), None
    size = parse_size(file_size or FILE_SIZE)
    if size < LEAST_FILE_SIZE:
        raise UsageError(f"--file-size {file_size}", f"the minimum is {human_size(LEAST_FILE_SIZE)}")
    if not path.endswith("/") and FileForm.is_told_by(path):
        raise UsageError(
            f"--output {path} is one file", "--file-size applies only to a directory of files", f"write --output {path}/"
        )
    return FileForm(named or FileFormat.PARQUET.value), size


def _write(call: Call, table: CatalogTable, scan: RowScan, target: tuple[str, FileForm, int | None, bool]) -> None:
    from paimon_cli.jobs.export_job import STANDARD_OUTPUT, OutputRequest, write_rows

    summary = write_rows(scan, OutputRequest(*target, table.store_options))
    if summary.output_path != STANDARD_OUTPUT:
        _show_summary(call, table, summary)


def _export(call: Call, table: CatalogTable, scan: RowScan, output_path: str) -> None:
    if scan.request.limit is not None:
        raise UsageError("--limit cannot be combined with --output-path", "tasks write their parts independently", "use --where")
    from paimon_cli.cli.terminal import progress_on_stderr
    from paimon_cli.jobs.export_job import ExportRequest, run_export

    request = ExportRequest(output_path, scan.selection, scan.request.where, scan.request.keep_kinds, table.store_options)
    with call.engine_running() as engine:
        summary = run_export(scan.context, scan.plan, request, engine, progress_on_stderr())
    _show_summary(call, table, summary)


def _show_summary(call: Call, table: CatalogTable, summary: ExportSummary) -> None:
    if call.output is OutputFormat.TABLE:
        made = f"{counted(summary.rows, 'row')} in {counted(len(summary.files), 'file')}, {human_size(summary.size)}"
        say(f"{made}, {ran(summary)} -> {summary.output_path}")
    else:
        call.show(Item("ExportSummary", table.name, EXPORT_COLUMNS, summary))
