"""Options of commands that read input files: how text is written there, and what becomes of rows that do not fit."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from paimon_cli.cli.messages import note
from paimon_cli.cli.value_kinds import counted

if TYPE_CHECKING:
    from paimon_cli.table.table import Table

TEXT_PANEL = "CSV and JSON input"
FAIL, SKIP = "fail", "skip"


class SourceFormat(str, enum.Enum):
    """Choices of `--format`."""

    PARQUET = "parquet"
    CSV = "csv"
    JSON = "json"
    ORC = "orc"


class MissingColumn(str, enum.Enum):
    """Choices of `--missing-columns`."""

    NULL = "null"
    ERROR = "error"


Delimiter = Annotated[
    str | None,
    typer.Option(
        "--delimiter",
        metavar="C",
        help="What separates CSV cells, such as ';', tab or '|'; else a comma, in .tsv files a tab.",
        rich_help_panel=TEXT_PANEL,
    ),
]
Quote = Annotated[
    str | None,
    typer.Option("--quote", metavar="C", help="What encloses CSV cells, or none; else '\"'.", rich_help_panel=TEXT_PANEL),
]
Escape = Annotated[
    str | None,
    typer.Option(
        "--escape",
        metavar="C",
        help="What stands before a quote or delimiter that is text; else none.",
        rich_help_panel=TEXT_PANEL,
    ),
]
Header = Annotated[
    bool,
    typer.Option(
        "--header/--no-header",
        help="Whether the first CSV row names the columns; else they go by position.",
        rich_help_panel=TEXT_PANEL,
    ),
]
ColumnNames = Annotated[
    str | None,
    typer.Option(
        "--columns", metavar="A,B,...", help="Names of the CSV columns, over those of a header.", rich_help_panel=TEXT_PANEL
    ),
]
NullValues = Annotated[
    list[str] | None,
    typer.Option(
        "--null-value",
        metavar="TEXT",
        help="A text that means null, such as NA, where it is not in quotes; repeatable. An empty cell always does.",
        rich_help_panel=TEXT_PANEL,
    ),
]
TimestampFormats = Annotated[
    list[str] | None,
    typer.Option(
        "--timestamp-format",
        metavar="FORMAT",
        help="How dates and times are written, such as '%d/%m/%Y %H:%M' (strptime); repeatable. ISO is understood beside it.",
        rich_help_panel=TEXT_PANEL,
    ),
]
Timezone = Annotated[
    str | None,
    typer.Option(
        "--timezone",
        metavar="ZONE",
        help="Zone of times without an offset for columns WITH LOCAL TIME ZONE, and the zone whose clock other TIMESTAMP columns "
        "show for times with an offset. Without it neither is guessed.",
        rich_help_panel=TEXT_PANEL,
    ),
]
Encoding = Annotated[
    str | None,
    typer.Option("--encoding", metavar="NAME", help="Such as latin1, cp1252 or utf-16; else UTF-8.", rich_help_panel=TEXT_PANEL),
]
OnError = Annotated[
    str,
    typer.Option(
        "--on-error",
        metavar="fail|skip|FILE",
        help="Rows that do not fit the table: an error that lists them (fail), left out (skip), or left out and their bad cells "
        "written into FILE (.csv, else ndjson).",
    ),
]
MissingColumns = Annotated[
    MissingColumn, typer.Option("--missing-columns", help="What a nullable column is that the input, or a JSON row, lacks.")
]


def print_notes(missing: Sequence[str], skipped: int, bad_cells: int, opened: Table, *, on_error: str) -> None:
    """What the user should know of the input beside the summary, on stderr."""
    if missing:
        names = ", ".join(f"'{name}'" for name in missing)
        null = "not updated" if opened.context.schema.options.get("merge-engine") == "partial-update" else "null"
        note(f"note: the input, or some of its rows, lack {names}: {null} there")
    if skipped:
        place = "" if on_error in (FAIL, SKIP) else f", see {on_error}"
        note(f"note: {counted(skipped, 'row')} skipped with {counted(bad_cells, 'bad cell')}{place}")
