"""The options of reads: of the rows of a version, of changes between versions, and of changelogs."""

import sys
from collections.abc import Sequence
from dataclasses import KW_ONLY
from typing import Annotated, Literal

from paimon_cli.errors import UsageError
from paimon_cli.requests.conditions import Conditional
from paimon_cli.requests.fields import Option, Parsed, PointInTime, VersionName, check_limit

IncrementMode = Literal["auto", "delta", "changelog", "diff"]
_OF_COLUMNS = "Names, including nested fields (`a.b`); a name may be in quotes, unless a column of a list is called so"


class ColumnChoice(Parsed[str | Sequence[str] | None, str | tuple[str, ...] | None]):
    """Chosen columns: a list of names, or a text in which names may be in quotes; None for all."""

    metavar = "NAMES"

    def parse(self, given: str | Sequence[str] | None) -> str | tuple[str, ...]:
        return given if isinstance(given, str) else tuple(() if given is None else given)


class RowLimit(Parsed[int | None, int | None]):
    """The most rows of a result."""

    metavar, written = "N", int | None

    def parse(self, given: int | None) -> int | None:
        check_limit(given)
        return given

    @classmethod
    def read(cls, written: int) -> int:
        """Capped at the largest index, which no list exceeds."""
        return min(written, sys.maxsize)


class ReadOptions(Conditional):
    """Which rows of which version to read, and how. Without a version, it is the latest."""

    columns: Annotated[
        ColumnChoice,
        Option(
            "Columns to read, such as id,`last name` or *,_ROW_ID; default all.", flags=("-s", "--select"), library=_OF_COLUMNS
        ),
    ] = ColumnChoice()
    where: Annotated[
        str | None,
        Option("Only rows that match, such as \"id > 7 AND name LIKE 'a%'\".", metavar="SQL", flags=("-w", "--where")),
    ] = None
    _: KW_ONLY
    limit: Annotated[RowLimit, Option("At most N rows.", min=0, flags=("-l", "--limit"), library="At most this many rows")] = (
        RowLimit()
    )
    order_by: Annotated[str | None, Option('Sort order, such as "dep_delay DESC, id"; nulls come last.', metavar="SQL")] = None
    snapshot: Annotated[VersionName, Option("Snapshot to use; default the latest.", library="Read at this snapshot")] = (
        VersionName()
    )
    tag: Annotated[str | None, Option("Read at this tag.", metavar="NAME")] = None
    as_of: Annotated[
        PointInTime,
        Option(
            "Read at the newest snapshot made by this time, such as 1d, yesterday or 2026-11-21T14:30:00Z.",
            library="Read at the newest snapshot made by this time",
        ),
    ] = PointInTime()
    row_kind: Annotated[
        bool,
        Option(
            "Also show deleted keys, with the row kind of each row.",
            library="Include deleted keys, and add `rowkind` as the first column",
        ),
    ] = False


class ScanCall(ReadOptions):
    """A read of a version, or of the changes between two."""

    _: KW_ONLY
    incremental: Annotated[
        str | None,
        Option(
            "Only the changes after A, up to and including B (ids, tags or times; default of B is the latest).",
            metavar="A..B",
            library="Only the changes after A, up to and including B, given as `A..B` with ids, tags or times; default of B is "
            "the latest",
        ),
    ] = None
    incremental_mode: Annotated[
        IncrementMode,
        Option(
            "delta: the rows that were added; changelog: the changelog files; diff: the difference between A and B; "
            "auto: diff between two tags, else changelog if the table writes one, else delta."
        ),
    ] = "auto"

    def check(self) -> None:
        super().check()
        if self.incremental is None and self.incremental_mode != "auto":
            raise UsageError(
                f"--incremental-mode {self.incremental_mode} without --incremental", "the mode needs a range of snapshots"
            )
        if self.incremental is not None and not (self.snapshot is None and self.tag is None and self.as_of is None):
            raise UsageError(
                "--incremental cannot be combined with --snapshot, --tag or --as-of", "it names the snapshots itself"
            )


class SparkCall(ScanCall):
    """A read into a DataFrame of Spark."""

    _: KW_ONLY
    native: bool | None = None


def check_range(begin: int, end: int) -> None:
    """Raise `UsageError` if the first snapshot of a range comes after the last one."""
    if begin > end:
        what = f"snapshot {begin} is after snapshot {end}"
        raise UsageError(what, "changes are read from the older to the newer", "swap them")


class ChangelogCall(Conditional):
    """The changes of the snapshots `begin` to `end`; None for the latest, or for no end if they are followed."""

    begin: Annotated[VersionName, Option("The first snapshot, or the first one made after a time.", flags=("--from",))] = (
        VersionName(is_required=True)
    )
    end: Annotated[
        VersionName,
        Option(
            "The last snapshot, or the newest one at a time; default the latest.",
            flags=("--to",),
            library="The last snapshot, or the newest one at a time",
        ),
    ] = VersionName()
    _: KW_ONLY
    columns: Annotated[
        ColumnChoice, Option("Columns to show, such as id,name; default all.", flags=("-s", "--select"), library=_OF_COLUMNS)
    ] = ColumnChoice()
    where: Annotated[str | None, Option("Only changes that match.", metavar="SQL", flags=("-w", "--where"))] = None
    limit: Annotated[
        RowLimit, Option("At most N changes.", min=0, flags=("-l", "--limit"), library="At most this many changes")
    ] = RowLimit()

    def check(self) -> None:
        super().check()
        if isinstance(self.begin, int) and isinstance(self.end, int):
            check_range(self.begin, self.end)


class FollowedCall(ChangelogCall):
    """The same as they are committed. `wait_seconds`: between two looks for new snapshots."""

    _: KW_ONLY
    wait_seconds: float = 1.0


class SqlOptions(Conditional):
    """How statements of SQL run."""

    _: KW_ONLY
    allow_files: Annotated[bool, Option("Queries may also read other files, by functions such as read_csv.")] = False


class SqlCall(SqlOptions):
    """Statements of SQL."""

    query: str
