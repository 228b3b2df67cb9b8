"""Options of commands that read input files: the text format, and what happens to rows that do not fit."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from paimon_cli.cli.results import counted, note

if TYPE_CHECKING:
    from paimon_cli.api.table import Table

TEXT_PANEL = "CSV and JSON input"
FAIL, SKIP = "fail", "skip"


class SourceFormat(str, enum.Enum):
    """Choices of `--format`."""

    PARQUET = "parquet"
    CSV = "csv"
    JSON = "json"
    ORC = "orc"
    ARROW = "arrow"


class MissingColumn(str, enum.Enum):
    """Choices of `--missing-columns`."""

    NULL = "null"
    ERROR = "error"


Delimiter = Annotated[
    str | None,
    typer.Option(
        "--delimiter",
        metavar="C",
        help="Separator of CSV cells, such as ';', tab or '|'; default a comma, in .tsv files a tab.",
        rich_help_panel=TEXT_PANEL,
    ),
]
Quote = Annotated[
    str | None,
    typer.Option("--quote", metavar="C", help="Quote character of CSV cells, or none; default '\"'.", rich_help_panel=TEXT_PANEL),
]
Escape = Annotated[
    str | None,
    typer.Option(
        "--escape",
        metavar="C",
        help="Escape character before a quote or delimiter; default none.",
        rich_help_panel=TEXT_PANEL,
    ),
]
Header = Annotated[
    bool,
    typer.Option(
        "--header/--no-header",
        help="Whether the first CSV row names the columns; without a header they are matched by position.",
        rich_help_panel=TEXT_PANEL,
    ),
]
ColumnNames = Annotated[
    str | None,
    typer.Option(
        "--columns",
        metavar="A,B,...",
        help="Names of the CSV columns, instead of those in the header.",
        rich_help_panel=TEXT_PANEL,
    ),
]
NullValues = Annotated[
    list[str] | None,
    typer.Option(
        "--null-value",
        metavar="TEXT",
        help="Text that means null where it is not quoted, such as NA; repeatable. An empty cell is always null.",
        rich_help_panel=TEXT_PANEL,
    ),
]
TimestampFormats = Annotated[
    list[str] | None,
    typer.Option(
        "--timestamp-format",
        metavar="FORMAT",
        help="Format of dates and times, such as '%d/%m/%Y %H:%M' (strptime); repeatable. ISO 8601 is always accepted.",
        rich_help_panel=TEXT_PANEL,
    ),
]
Timezone = Annotated[
    str | None,
    typer.Option(
        "--timezone",
        metavar="ZONE",
        help="Time zone of input times without an offset in columns WITH LOCAL TIME ZONE, and of the wall clock that other "
        "TIMESTAMP columns get for times with an offset. Never guessed: without it both are errors.",
        rich_help_panel=TEXT_PANEL,
    ),
]
Encoding = Annotated[
    str | None,
    typer.Option(
        "--encoding",
        metavar="NAME",
        help="Encoding of the input, such as latin1, cp1252 or utf-16; default UTF-8.",
        rich_help_panel=TEXT_PANEL,
    ),
]
OnError = Annotated[
    str,
    typer.Option(
        "--on-error",
        metavar="fail|skip|FILE",
        help="Rows that do not fit the table: stop with an error that lists them (fail), leave them out (skip), or leave them "
        "out and write their bad cells to FILE (.csv, otherwise ndjson).",
    ),
]
MissingColumns = Annotated[
    MissingColumn, typer.Option("--missing-columns", help="What to do if the input, or a JSON row, lacks a nullable column.")
]


def print_notes(missing: Sequence[str], skipped: int, bad_cells: int, opened: Table, *, on_error: str) -> None:
    """Print notes about the input on stderr, next to the summary."""
    if missing:
        names = ", ".join(f"'{name}'" for name in missing)
        effect = "are not updated" if opened.context.schema.options.get("merge-engine") == "partial-update" else "become null"
        note(f"note: the input, or some of its rows, lack {names}, which {effect}")
    if skipped:
        place = "" if on_error in (FAIL, SKIP) else f", see {on_error}"
        note(f"note: {counted(skipped, 'row')} skipped with {counted(bad_cells, 'bad cell')}{place}")
