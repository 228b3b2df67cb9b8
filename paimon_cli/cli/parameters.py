"""Arguments and options that several commands take, declared once."""

from __future__ import annotations

import enum
import re
import sys
from collections.abc import Iterable
from typing import Annotated

import typer

from paimon_cli.cli.results import OutputFormat
from paimon_cli.errors import UsageError

JOB_PANEL = "Engine"
COMMIT_PANEL = "Commit"
COMMON_PANEL = "Common"


class EngineName(str, enum.Enum):
    """Choices of `--engine`."""

    AUTO = "auto"
    SPARK = "spark"
    LOCAL = "local"


class ConflictGranularity(str, enum.Enum):
    """Choices of `--data-conflict-check`."""

    OFF = "off"
    PARTITION = "partition"
    BUCKET = "bucket"
    RANGE = "range"
    KEY = "key"


TableName = Annotated[
    str, typer.Argument(metavar="TABLE", help="Path or URL of a table, or db.table of a warehouse.", show_default=False)
]

Output = Annotated[
    OutputFormat,
    typer.Option("-o", "--output", metavar="FORMAT", help="table, json, ndjson or csv.", rich_help_panel=COMMON_PANEL),
]
WarehouseUrl = Annotated[
    str | None,
    typer.Option(
        "--warehouse",
        metavar="URI",
        help="Warehouse of db.table names; default $PAIMON_WAREHOUSE or ./paimon.yaml.",
        rich_help_panel=COMMON_PANEL,
    ),
]
OptionPairs = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="KEY=VALUE",
        help="Option of the table or its catalog, for this call; repeatable.",
        rich_help_panel=COMMON_PANEL,
    ),
]
Wide = Annotated[
    bool, typer.Option("--wide", help="Show all columns, however narrow the terminal.", rich_help_panel=COMMON_PANEL)
]
Vertical = Annotated[
    bool, typer.Option("--vertical", help="Print one line per value instead of one per row.", rich_help_panel=COMMON_PANEL)
]
StrictOptions = Annotated[
    bool, typer.Option("--strict-options", help="Reject options unknown to Paimon.", rich_help_panel=COMMON_PANEL)
]
Trace = Annotated[
    bool,
    typer.Option(
        "--trace",
        help="Print the steps of writes, compactions and commits, and tracebacks, on stderr.",
        rich_help_panel=COMMON_PANEL,
    ),
]

Engine = Annotated[
    EngineName,
    typer.Option(
        "--engine",
        help="Where the work runs: on Spark, in this process (local), or on Spark only for large amounts of data (auto).",
        rich_help_panel=JOB_PANEL,
    ),
]
SparkThreshold = Annotated[
    str | None,
    typer.Option(
        "--spark-threshold",
        metavar="SIZE[,FILES]",
        help="Bytes and files from which auto uses Spark; default engine.spark-threshold of paimon.yaml, or 1 gb,1000.",
        rich_help_panel=JOB_PANEL,
    ),
]
MasterUrl = Annotated[
    str | None,
    typer.Option("--master", metavar="URL", help="Run on this Spark master; default local[*].", rich_help_panel=JOB_PANEL),
]
SparkSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--spark-conf", metavar="KEY=VALUE", help="A setting of the Spark session; repeatable.", rich_help_panel=JOB_PANEL
    ),
]

AllowUnsafeCommit = Annotated[
    bool,
    typer.Option(
        "--allow-unsafe-commit",
        help="Commit even if the storage cannot detect concurrent commits; safe for a single writer only.",
    ),
]


def addressable(count: int | None) -> int | None:
    """For limits: nothing is longer than the largest index, so that a larger number means all."""
    return None if count is None else min(count, sys.maxsize)


BranchName = Annotated[
    str | None,
    typer.Option(
        "--branch",
        metavar="NAME",
        help="Use this branch of the table; the same as 'TABLE$branch_NAME'.",
        rich_help_panel=COMMON_PANEL,
    ),
]
DryRun = Annotated[bool, typer.Option("-n", "--dry-run", help="Only show what would be done.")]
Yes = Annotated[bool, typer.Option("-y", "--yes", help="Do not ask for confirmation; required without a terminal.")]

SnapshotId = Annotated[int | None, typer.Option("--snapshot", metavar="ID", min=1, help="Snapshot to use; default the latest.")]
Partitions = Annotated[
    list[str] | None,
    typer.Option("--partition", metavar="KEY=VALUE[,...]", help="Only this partition; repeatable for several."),
]
Buckets = Annotated[list[int] | None, typer.Option("--bucket", metavar="N", help="Only this bucket; repeatable.")]

CommitUser = Annotated[
    str | None,
    typer.Option("--commit-user", metavar="NAME", help="Commit user; default a random one.", rich_help_panel=COMMIT_PANEL),
]
CommitId = Annotated[
    int | None,
    typer.Option(
        "--commit-id",
        metavar="N",
        min=0,
        help="Identifier that rises with each commit of the user. A commit made before is not repeated, even after its "
        "snapshot has expired; if that can no longer be determined, the commit is refused (exit 7).",
        rich_help_panel=COMMIT_PANEL,
    ),
]
AssumeNew = Annotated[
    bool,
    typer.Option(
        "--assume-new",
        help="With --commit-id: commit even if it can no longer be determined whether the commit was made before.",
        rich_help_panel=COMMIT_PANEL,
    ),
]
DataConflictCheck = Annotated[
    ConflictGranularity | None,
    typer.Option(
        "--data-conflict-check",
        help="Exit with 5 if another commit wrote to the same partition, bucket, key range of a bucket, or keys since the read; "
        "default the table's option.",
        rich_help_panel=COMMIT_PANEL,
        show_default=False,
    ),
]


def value_of(choice: enum.Enum | None) -> str | None:
    """The text of a choice; None if none was made."""
    return None if choice is None else str(choice.value)


_BETWEEN_PAIRS = re.compile(r",(?=[^,=]+=)")


def split_pairs(pairs: Iterable[str] | None, flag: str) -> dict[str, str]:
    """['a=1', 'b=x=y'] -> {'a': '1', 'b': 'x=y'}; the last of a key wins."""
    split = [pair.partition("=") for pair in pairs or ()]
    for key, equals, _ in split:
        if not equals or not key.strip():
            raise UsageError(f"{flag} {key} is not KEY=VALUE".lstrip(), hint=f"write {flag} key=value".replace("  ", " "))
    return {key.strip(): value for key, _, value in split}


def split_partitions(typed: Iterable[str] | None, flag: str = "--partition") -> list[dict[str, str]]:
    """['dt=1,hr=2', 'dt=3'] -> two partitions; ['dt=1', 'hr=2'] -> one: a repeated key starts the next partition."""
    partitions: list[dict[str, str]] = []
    for text in typed or ():
        texts = _BETWEEN_PAIRS.split(text)
        pairs = split_pairs(texts, flag)
        if len(pairs) < len(texts):
            what = f"{flag} {text} names a key twice".lstrip()
            raise UsageError(what, "a partition has one value for each key", "name each partition separately")
        if partitions and not pairs.keys() & partitions[-1].keys():
            partitions[-1].update(pairs)
        else:
            partitions.append(pairs)
    return partitions
