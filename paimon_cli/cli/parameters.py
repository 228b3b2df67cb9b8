"""Arguments and options that several commands share, declared once; a dataclass declares options that belong together."""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Annotated, Any, Literal, get_type_hints

import typer

from paimon_cli.cli.output import OutputFormat
from paimon_cli.options.option_text import plain_number
from paimon_cli.requests.fields import Declared, Option, Request, VersionName, declared

COMMON_PANEL, COMMIT_PANEL = "Common", "Commit"
_common = partial(typer.Option, rich_help_panel=COMMON_PANEL)
_of_job = partial(typer.Option, rich_help_panel="Engine")
_of_commit = partial(typer.Option, rich_help_panel=COMMIT_PANEL)
_of_input = partial(typer.Option, rich_help_panel="CSV and JSON input")

EngineName = Literal["auto", "spark", "local"]
ConflictGranularity = Literal["off", "partition", "bucket", "range", "key"]

TableName = Annotated[
    str,
    typer.Argument(metavar="TABLE", help="A path or URL, db.table of a warehouse, or @PROFILE/db.table.", show_default=False),
]

Output = Annotated[OutputFormat, _common("-o", "--output", metavar="FORMAT", help="table, json, ndjson or csv.")]
BranchName = Annotated[
    str | None, _common("--branch", metavar="NAME", help="Use this branch of the table; the same as 'TABLE$branch_NAME'.")
]

AllowUnsafeCommit = Annotated[
    bool,
    typer.Option(
        "--allow-unsafe-commit",
        help="Commit even if the storage cannot detect concurrent commits; safe for a single writer only.",
    ),
]
DryRun = Annotated[bool, typer.Option("-n", "--dry-run", help="Only show what would be done.")]
Yes = Annotated[bool, typer.Option("-y", "--yes", help="Do not ask for confirmation; required without a terminal.")]


def _at_least_1(text: str | None) -> str | None:
    """Refuse numbers that are no ids of snapshots; other texts name tags or times."""
    number = None if text is None else plain_number(text)
    if number is not None and number < 1:
        raise typer.BadParameter(f"{number} is not in the range x>=1.")
    return text


version_option = partial(typer.Option, metavar=VersionName.metavar, callback=_at_least_1)
"""An option that names a snapshot by its id, by a tag or by a time (`history/points_in_time`)."""
SnapshotId = Annotated[str | None, version_option("--snapshot", help="Snapshot to use; default the latest.")]
Partitions = Annotated[
    list[str] | None,
    typer.Option("--partition", metavar="KEY=VALUE[,...]", help="Only this partition; repeatable for several."),
]
Buckets = Annotated[
    list[str] | None, typer.Option("--bucket", metavar="N[-M][,...]", help="Only these buckets, such as 7 or 0-999; repeatable.")
]


@dataclass(frozen=True)
class CommonOptions:
    """Options of every command, besides `-o`."""

    fields: Annotated[
        str | None, _common("--fields", metavar="NAMES", help="Show only these fields, by their JSON names and in this order.")
    ] = None
    wide: Annotated[bool, _common("--wide", help="Show all columns, even if the terminal is too narrow.")] = False
    vertical: Annotated[bool, _common("--vertical", help="Print one line per value instead of one per row.")] = False
    warehouse: Annotated[
        str | None,
        _common("--warehouse", metavar="URI", help="Warehouse of db.table names; default $PAIMON_WAREHOUSE, or as configured."),
    ] = None
    profile: Annotated[
        str | None,
        _common("--profile", metavar="NAME", help="Profile of the configuration to use; default $PAIMON_PROFILE."),
    ] = None
    option: Annotated[
        list[str] | None,
        _common("--option", metavar="KEY=VALUE", help="Option of the table or catalog for this call; repeatable."),
    ] = None
    strict_options: Annotated[bool, _common("--strict-options", help="Reject options unknown to Paimon.")] = False
    verbose: Annotated[
        bool, _common("-v", "--verbose", help="Also say which engine ran, what was asked of the storage, and how long.")
    ] = False
    quiet: Annotated[bool, _common("-q", "--quiet", help="Print only results and errors, no notes or progress.")] = False
    no_pager: Annotated[bool, _common("--no-pager", help="Show long lists without a pager; the same as NO_PAGER=1.")] = False
    trace: Annotated[
        bool, _common("--trace", help="Print the steps of writes, compactions and commits, and tracebacks, on stderr.")
    ] = False


@dataclass(frozen=True)
class EngineOptions:
    """Options of commands that run jobs."""

    engine: Annotated[
        EngineName,
        _of_job(
            "--engine",
            help="Where the work runs: on Spark, in this process (local), or on Spark only for large amounts of data (auto).",
        ),
    ] = "auto"
    spark_threshold: Annotated[
        str | None,
        _of_job(
            "--spark-threshold",
            metavar="SIZE[,FILES]",
            help="Input size or number of files from which auto uses Spark; default engine.spark-threshold in paimon.yaml, or "
            "1 gb,1000.",
        ),
    ] = None
    master: Annotated[str | None, _of_job("--master", metavar="URL", help="Run on this Spark master; default local[*].")] = None
    remote: Annotated[
        str | None,
        _of_job("--remote", metavar="sc://HOST:PORT", help="Run on this Spark Connect server; needs no JVM here."),
    ] = None
    spark_conf: Annotated[
        list[str] | None, _of_job("--spark-conf", metavar="KEY=VALUE", help="A setting of the Spark session; repeatable.")
    ] = None
    print_spark_submit: Annotated[
        bool,
        _of_job(
            "--print-spark-submit",
            help="Only print the spark-submit command that runs this on --master, such as yarn or k8s://URL.",
        ),
    ] = False


@dataclass(frozen=True)
class TextOptions:
    """The format of CSV and JSON input."""

    delimiter: Annotated[
        str | None,
        _of_input(
            "--delimiter",
            metavar="C",
            help="Separator of CSV cells, such as ';', tab or '|'; default a comma, or a tab for .tsv files.",
        ),
    ] = None
    quote: Annotated[
        str | None, _of_input("--quote", metavar="C", help="Quote character of CSV cells, or none; default '\"'.")
    ] = None
    escape: Annotated[
        str | None, _of_input("--escape", metavar="C", help="Escape character before a quote or delimiter; default none.")
    ] = None
    header: Annotated[
        bool,
        _of_input(
            "--header/--no-header",
            help="Whether the first CSV row names the columns; without a header they are matched by position.",
        ),
    ] = True
    column_names: Annotated[
        str | None,
        _of_input("--columns", metavar="A,B,...", help="Names of the CSV columns, instead of those in the header."),
    ] = None
    null_values: Annotated[
        list[str] | None,
        _of_input(
            "--null-value",
            metavar="TEXT",
            help="Unquoted text that means null, such as NA; repeatable. An empty cell is always null.",
        ),
    ] = None
    decimal: Annotated[
        str | None,
        _of_input("--decimal", metavar="C", help="Decimal sign of numbers in CSV cells, such as ',' for 9,50; default '.'."),
    ] = None
    thousands: Annotated[
        str | None,
        _of_input(
            "--thousands",
            metavar="C",
            help="Sign between groups of three digits in CSV cells, such as ',' for 1,234, or '.', or space; default none. "
            "Numbers without groups are read, too; wrong groups are bad cells.",
        ),
    ] = None
    timestamp_formats: Annotated[
        list[str] | None,
        _of_input(
            "--timestamp-format",
            metavar="FORMAT",
            help="Format of dates and times, such as '%d/%m/%Y %H:%M' (strptime); repeatable. ISO 8601 is always accepted.",
        ),
    ] = None
    timezone: Annotated[
        str | None,
        _of_input(
            "--timezone",
            metavar="ZONE",
            help="Time zone for times without an offset in columns WITH LOCAL TIME ZONE, and for converting times with an offset "
            "to the local times of other TIMESTAMP columns. There is no default: without it, such times are errors.",
        ),
    ] = None
    encoding: Annotated[
        str | None,
        _of_input("--encoding", metavar="NAME", help="Encoding of the input, such as latin1, cp1252 or utf-16; default UTF-8."),
    ] = None


Given = dict[str, Any]
"""The options of a request that were given, for the library's method: `options: Annotated[Given, CompactTables]`."""


def options_of(bundle: Any) -> list[inspect.Parameter]:
    """The options that a dataclass declares, as parameters of a command."""
    if issubclass(bundle, Request):
        return [_option_of(field, field.option) for field in declared(bundle) if field.option is not None]
    hints = get_type_hints(bundle, include_extras=True)
    return [option(field.name, hints[field.name], field.default) for field in fields(bundle)]


def _option_of(field: Declared, told: Option) -> inspect.Parameter:
    """The parameter of a command for an option of a request."""
    written: Any = told.written or (field.type if field.parsed is None else field.parsed.written)
    if any(typing.get_origin(part) is Sequence for part in (written, *typing.get_args(written))):
        written = list[str] | None
    is_shown = isinstance(field.default, (bool, str, int)) and not told.tells_default
    default = field.default if is_shown else None
    metavar = told.metavar or (None if field.parsed is None else field.parsed.metavar)
    shown: dict[str, Any] = {"help": told.help, "metavar": metavar, "min": told.min, "max": told.max}
    if told.is_argument:
        note: Any = typer.Argument(**shown, show_default=False)
    else:
        note = typer.Option(*field.flags, **shown, rich_help_panel=told.panel, show_default=default is not None)
    if field.is_required:
        return option(field.name, Annotated[written, note], inspect.Parameter.empty)
    return option(field.name, Annotated[written if default is not None else written | None, note], default)


def given_of(request: Any, values: Given) -> Given:
    """The options of a request that differ from their defaults on the command line, as the library takes them."""
    given: Given = {}
    for field, parameter in zip((one for one in declared(request) if one.option is not None), options_of(request), strict=True):
        value = values.pop(field.name)
        if value != parameter.default and value != []:
            given[field.name] = value if field.parsed is None else field.parsed.read(value)
    return given


def part_of(request: Any, given: Given) -> Given:
    """Those of the given options that a request has."""
    return {field.name: given[field.name] for field in declared(request) if field.name in given}


def option(name: str, annotation: Any, default: Any = None) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def addressable(count: int | None) -> int | None:
    """Cap a limit at the largest index, which no list exceeds; larger numbers would overflow."""
    return None if count is None else min(count, sys.maxsize)
