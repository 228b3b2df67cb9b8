"""The options of `compact`, and the request made from them."""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from paimon_cli.cli.command import Call
from paimon_cli.errors import UsageError
from paimon_cli.metadata.table_layout import MAIN_BRANCH

if TYPE_CHECKING:
    from paimon_cli.catalog.table_location import TableLocation

SERVICE_PANEL, LIMITS_PANEL = "Service", "Limits"


class Strategy(str, enum.Enum):
    """Choices of `--strategy`."""

    FULL = "full"
    MINOR = "minor"


class OnConflict(str, enum.Enum):
    """Choices of `--on-conflict`."""

    RETRY = "retry"
    SKIP = "skip"
    FAIL = "fail"


Tables = Annotated[list[str] | None, typer.Argument(metavar="[TABLE...]", help="Paths, URLs or db.table.", show_default=False)]
Database = Annotated[str | None, typer.Option("--database", metavar="DB", help="Compact all tables of this database instead.")]
Include = Annotated[
    list[str] | None,
    typer.Option(
        "--include",
        metavar="RE",
        help="With --database: only tables whose whole name matches this regular expression; repeatable.",
    ),
]
Exclude = Annotated[
    list[str] | None,
    typer.Option("--exclude", metavar="RE", help="With --database: leave out tables whose whole name matches; repeatable."),
]
Dedicated = Annotated[
    bool, typer.Option("--dedicated", help="This job is meant to be the only compactor: warn if writers may compact as well.")
]
StrategyChoice = Annotated[
    Strategy | None,
    typer.Option(
        "--strategy",
        help="full: merge everything into the top level (default); minor: what the triggers pick (default with --watch).",
    ),
]
IdleTime = Annotated[
    str | None,
    typer.Option(
        "--idle-time",
        metavar="TIME",
        help="Fully compact partitions without new data for this long; the rest by --strategy minor, or not at all with full.",
    ),
]
IfSnapshot = Annotated[
    int | None,
    typer.Option(
        "--if-snapshot",
        metavar="ID",
        min=1,
        help="Carry out the plan that --dry-run showed at this snapshot; exit with 5 if its files have been replaced since.",
    ),
]
Conflicts = Annotated[
    OnConflict,
    typer.Option(
        "--on-conflict",
        help="If another job has compacted a bucket in the meantime: plan it again, skip it (9), or stop (5). "
        "Other buckets are committed.",
    ),
]
DryRun = Annotated[bool, typer.Option("-n", "--dry-run", help="Only show what would be compacted, and why.")]
Watch = Annotated[
    bool,
    typer.Option(
        "--watch",
        help="Repeat in rounds until stopped. SIGTERM exits with 0, Ctrl-C with 130; running compactions are dropped, a "
        "running commit is finished.",
        rich_help_panel=SERVICE_PANEL,
    ),
]
Interval = Annotated[str, typer.Option("--interval", metavar="TIME", help="Pause between rounds.", rich_help_panel=SERVICE_PANEL)]
MaxRounds = Annotated[
    int | None, typer.Option("--max-rounds", metavar="N", min=1, help="Stop after N rounds.", rich_help_panel=SERVICE_PANEL)
]
Memory = Annotated[
    str | None,
    typer.Option(
        "--memory",
        metavar="SIZE",
        help="Memory for the merges that run at the same time in one process.",
        rich_help_panel=LIMITS_PANEL,
    ),
]
MaxBytes = Annotated[
    str | None,
    typer.Option("--max-bytes", metavar="SIZE", help="Read at most this much per table and round.", rich_help_panel=LIMITS_PANEL),
]
MaxBuckets = Annotated[
    int | None,
    typer.Option(
        "--max-buckets", metavar="N", min=1, help="Compact at most N buckets per table and round.", rich_help_panel=LIMITS_PANEL
    ),
]
Parallelism = Annotated[
    int | None,
    typer.Option(
        "--parallelism", metavar="N", min=1, help="Compact at most N buckets at the same time.", rich_help_panel=LIMITS_PANEL
    ),
]


@dataclass(frozen=True)
class Targets:
    """The tables to compact: named ones, or those of a database, which are listed again on each request."""

    call: Call
    tables: Sequence[str]
    database: str | None = None
    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    allow_unsafe_commit: bool = False

    def check(self) -> None:
        """`UsageError` unless either tables or a database are given, with valid patterns."""
        if (self.database is None) == (not self.tables):
            raise UsageError(
                "name the tables to compact", "either TABLE... or --database DB", "paimon-cli compact ./wh/shop.db/orders"
            )
        if self.database is None and (self.include or self.exclude):
            raise UsageError("--include and --exclude need --database", "they select among its tables")
        for pattern in (*self.include, *self.exclude):
            try:
                re.compile(pattern)
            except re.error as error:
                raise UsageError(f"'{pattern}' is not a regular expression", str(error)) from error

    def locations(self) -> list[TableLocation]:
        """NotFound for a database without tables; named tables need not exist."""
        if self.database is None:
            found = [self.call.locate(table) for table in self.tables]
        else:
            from paimon_cli.catalog.table_listing import tables_of_database

            every = tables_of_database(self.database, self.call.warehouse, self.call.catalog_options)
            found = [location for location in every if self._wanted(location.name.rpartition(".")[2])]
            if self.call.branch not in (None, MAIN_BRANCH):
                found = [location.at_branch(self.call.branch) for location in found]
        return [replace(location, allow_unsafe_commit=self.allow_unsafe_commit) for location in found]

    def _wanted(self, name: str) -> bool:
        if self.include and not any(re.fullmatch(pattern, name) for pattern in self.include):
            return False
        return not any(re.fullmatch(pattern, name) for pattern in self.exclude)
