"""The options of `compare`."""

import sys
from dataclasses import KW_ONLY
from typing import Annotated

from paimon_cli.errors import UsageError
from paimon_cli.requests.conditions import BoundSql, Conditional
from paimon_cli.requests.fields import Names, Option, Parsed, SourceFormat, VersionName, check_limit
from paimon_cli.requests.reading import ColumnChoice


class ShownRows(Parsed[int, int]):
    """How many rows are shown of each kind."""

    metavar, written = "N", int

    def parse(self, given: int) -> int:
        check_limit(given)
        return given

    @classmethod
    def read(cls, written: int) -> int:
        """Capped at the largest index, which no list exceeds."""
        return min(written, sys.maxsize)


class CompareOptions(Conditional):
    """Two sides, and which of their rows and columns to compare."""

    here: Annotated[str, Option("A table, table@SNAPSHOT, table@TAG or table@TIME, or files.", metavar="A", is_argument=True)]
    there: Annotated[str, Option("What to compare it with.", metavar="B", is_argument=True)]
    _: KW_ONLY
    key: Annotated[
        Names,
        Option(
            "Columns that pair the rows; default the primary key, '' to compare whole rows.",
            metavar="NAMES",
            library="Columns that pair the rows; default the primary key; without a key, or with an empty one, whole rows are "
            "counted",
        ),
    ] = Names()
    columns: Annotated[
        ColumnChoice,
        Option(
            "Columns to compare; default all shared columns.",
            flags=("-s", "--select"),
            library="Columns to compare, in a list or a text; default all shared columns",
        ),
    ] = ColumnChoice()
    where: Annotated[str | None, Option("Only rows that match.", metavar="SQL", flags=("-w", "--where"))] = None
    limit: Annotated[
        ShownRows,
        Option(
            "Show at most N differences of each kind.",
            min=0,
            flags=("-l", "--limit"),
            library="Show at most this many differences of each kind",
        ),
    ] = ShownRows(10)
    snapshot_a: Annotated[VersionName, Option("A at this snapshot.")] = VersionName()
    snapshot_b: Annotated[VersionName, Option("B at this snapshot.")] = VersionName()
    tag_a: Annotated[str | None, Option("A at this tag.", metavar="NAME")] = None
    tag_b: Annotated[str | None, Option("B at this tag.", metavar="NAME")] = None
    branch_a: Annotated[str | None, Option("This branch of A.", metavar="NAME")] = None
    branch_b: Annotated[str | None, Option("This branch of B.", metavar="NAME")] = None
    format: Annotated[SourceFormat | None, Option("Format of the files; default by extension.")] = None

    @property
    def condition(self) -> BoundSql | None:
        """The condition with the values of its parameters."""
        return None if self.where is None else BoundSql(self.where, self.params)

    def check(self) -> None:
        super().check()
        for name, version in ((self.here, (self.snapshot_a, self.tag_a)), (self.there, (self.snapshot_b, self.tag_b))):
            if None not in version:
                raise UsageError(f"a snapshot and a tag are given for {name}", "each names a version", "remove one of them")
