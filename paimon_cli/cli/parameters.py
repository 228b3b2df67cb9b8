"""Arguments and options that several commands take, declared once."""

from __future__ import annotations

import enum
import re
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
        help="Root of db.table; else $PAIMON_WAREHOUSE or ./paimon.yaml.",
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
Wide = Annotated[bool, typer.Option("--wide", help="All columns, however narrow the terminal.", rich_help_panel=COMMON_PANEL)]
Vertical = Annotated[
    bool, typer.Option("--vertical", help="One line a value instead of one a row.", rich_help_panel=COMMON_PANEL)
]
StrictOptions = Annotated[
    bool, typer.Option("--strict-options", help="Refuse options that Paimon does not know.", rich_help_panel=COMMON_PANEL)
]
Trace = Annotated[
    bool,
    typer.Option(
        "--trace",
        help="Show the steps of writes, compactions and commits, and tracebacks.",
        rich_help_panel=COMMON_PANEL,
    ),
]

Engine = Annotated[
    EngineName,
    typer.Option(
        "--engine",
        help="Where the work runs: on Spark, in this process (local), or on Spark only if there is much to do (auto).",
        rich_help_panel=JOB_PANEL,
    ),
]
SparkThreshold = Annotated[
    str | None,
    typer.Option(
        "--spark-threshold",
        metavar="SIZE[,FILES]",
        help="What auto calls much to read: 1 gb,1000 unless paimon.yaml sets engine.spark-threshold.",
        rich_help_panel=JOB_PANEL,
    ),
]
MasterUrl = Annotated[
    str | None,
    typer.Option("--master", metavar="URL", help="Run on this Spark master; else local[*].", rich_help_panel=JOB_PANEL),
]
SparkSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--spark-conf", metavar="KEY=VALUE", help="Setting of the Spark session; repeatable.", rich_help_panel=JOB_PANEL
    ),
]

AllowUnsafeCommit = Annotated[
    bool,
    typer.Option(
        "--allow-unsafe-commit",
        help="Commit even where the storage cannot tell concurrent commits apart: for a single writer only.",
    ),
]

BranchName = Annotated[
    str | None,
    typer.Option(
        "--branch", metavar="NAME", help="This branch of the table, like 'TABLE$branch_NAME'.", rich_help_panel=COMMON_PANEL
    ),
]
DryRun = Annotated[bool, typer.Option("-n", "--dry-run", help="Only show what would be done.")]
Yes = Annotated[bool, typer.Option("-y", "--yes", help="Do not ask; needed where there is no terminal.")]

SnapshotId = Annotated[int | None, typer.Option("--snapshot", metavar="ID", min=1, help="At this snapshot; else the latest.")]
Partitions = Annotated[
    list[str] | None,
    typer.Option("--partition", metavar="KEY=VALUE[,...]", help="Only this partition; repeatable for several."),
]
Buckets = Annotated[list[int] | None, typer.Option("--bucket", metavar="N", help="Only this bucket; repeatable.")]

CommitUser = Annotated[
    str | None,
    typer.Option("--commit-user", metavar="NAME", help="Name of the committer; else random.", rich_help_panel=COMMIT_PANEL),
]
CommitId = Annotated[
    int | None,
    typer.Option(
        "--commit-id",
        metavar="N",
        min=0,
        help="Identifier within the user, rising from commit to commit: one that was made before is not made again, also after "
        "its snapshot has expired. Where that can no longer be told the commit is refused (7).",
        rich_help_panel=COMMIT_PANEL,
    ),
]
AssumeNew = Annotated[
    bool,
    typer.Option(
        "--assume-new",
        help="With --commit-id: where it can no longer be told whether the commit was made before, make it.",
        rich_help_panel=COMMIT_PANEL,
    ),
]
DataConflictCheck = Annotated[
    ConflictGranularity | None,
    typer.Option(
        "--data-conflict-check",
        help="Fail (5) if others wrote to the same partition, bucket, key range of a bucket, or keys since the read; "
        "else as the table says.",
        rich_help_panel=COMMIT_PANEL,
        show_default=False,
    ),
]


_BETWEEN_PAIRS = re.compile(r",(?=[^,=]+=)")


def split_pairs(pairs: Iterable[str] | None, flag: str) -> dict[str, str]:
    """['a=1', 'b=x=y'] -> {'a': '1', 'b': 'x=y'}; the last of a key wins."""
    split = [pair.partition("=") for pair in pairs or ()]
    for key, equals, _ in split:
        if not equals or not key.strip():
            raise UsageError(f"{flag} {key} is not KEY=VALUE".lstrip(), hint=f"write {flag} key=value".replace("  ", " "))
    return {key.strip(): value for key, _, value in split}


def split_partitions(typed: Iterable[str] | None, flag: str = "--partition") -> list[dict[str, str]]:
    """['dt=1,hr=2', 'dt=3'] -> two partitions; ['dt=1', 'hr=2'] -> one: a key that is there already begins the next partition."""
    partitions: list[dict[str, str]] = []
    for text in typed or ():
        texts = _BETWEEN_PAIRS.split(text)
        pairs = split_pairs(texts, flag)
        if len(pairs) < len(texts):
            what = f"{flag} {text} names a key twice".lstrip()
            raise UsageError(what, "a partition has one value for each key", "name each partition on its own")
        if partitions and not pairs.keys() & partitions[-1].keys():
            partitions[-1].update(pairs)
        else:
            partitions.append(pairs)
    return partitions
