"""`read`: print rows, or write them to files."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from paimon_cli.api.scan import ScanPlan
from paimon_cli.cli.command import Call, command
from paimon_cli.cli.parameters import COMMON_PANEL, SnapshotId, TableName, addressable
from paimon_cli.cli.results import COUNT, ID, SIZE, TEXT, Column, Item, OutputFormat, counted, human_size, ran, records, say, warn
from paimon_cli.errors import UsageError

if TYPE_CHECKING:
    from paimon_cli.jobs.export_job import ExportSummary

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


STANDARD_OUTPUT = "-"
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
    limit: Annotated[
        int | None, typer.Option("-l", "--limit", metavar="N", callback=addressable, min=0, help="At most N rows.")
    ] = None,
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
    opened = call.open(table)
    scan = opened.scan(
        select,
        where,
        snapshot=snapshot,
        tag=tag,
        as_of=as_of,
        incremental=incremental,
        incremental_mode=incremental_mode.value,
        limit=limit,
        order_by=order_by,
        row_kind=row_kind,
    )
    if explain:
        call.show(Item("ScanPlan", opened.name, PLAN_COLUMNS, scan.explain()))
    elif count:
        _show_count(call, opened.name, scan.count())
    elif output_path is not None:
        _show_summary(call, opened.name, scan.export(output_path))
    elif output_file is not None:
        named = None if file_format is None else file_format.value
        summary = scan.write_file(output_file, format=named, file_size=file_size, force=force)
        if output_file != STANDARD_OUTPUT:
            _show_summary(call, opened.name, summary)
    else:
        print_rows(scan.rows, opened.name, call.output, call.view)


@dataclass(frozen=True)
class RowCount:
    """The result of `--count`."""

    count: int


def _show_count(call: Call, table: str, count: int) -> None:
    if call.output is OutputFormat.TABLE:
        say(str(count))
    else:
        call.show(Item("RowCount", table, COUNT_COLUMNS, RowCount(count)))


_PLAN_TITLES = {
    "snapshot_id": ("Snapshot", ID),
    "rows": ("Rows at most", COUNT),
    "size": ("Bytes at most", SIZE),
    "levels": ("Levels", TEXT),
    "order_by": ("Order", TEXT),
}
PLAN_COLUMNS = tuple(
    Column(name, *_PLAN_TITLES.get(name, (name.replace("_", " ").capitalize(), COUNT))) for name in ScanPlan.__dataclass_fields__
)


def _show_summary(call: Call, table: str, summary: ExportSummary) -> None:
    if call.output is OutputFormat.TABLE:
        made = f"{counted(summary.rows, 'row')} in {counted(len(summary.files), 'file')}, {human_size(summary.size)}"
        say(f"{made}, {ran(summary)} -> {summary.output_path}")
    else:
        call.show(Item("ExportSummary", table, EXPORT_COLUMNS, summary))
