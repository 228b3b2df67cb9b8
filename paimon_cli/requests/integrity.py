"""The options of `verify`, `repair` and `health`."""

from dataclasses import KW_ONLY
from datetime import date, timedelta
from typing import Annotated, Literal

from paimon_cli.errors import UsageError
from paimon_cli.options.option_text import plain_number
from paimon_cli.requests.fields import Key, Names, Option, Parsed, Point, Request, Texts, VersionName, point_text


class VerifyOptions(Request):
    """What to check. Without a snapshot, that is the whole history, and the files of the latest snapshot."""

    level: Annotated[
        Literal["meta", "files", "full"],
        Option("meta: metadata only; files: every file exists and can be opened; full: every row."),
    ] = "files"
    _: KW_ONLY
    snapshot: Annotated[
        VersionName,
        Option("Snapshot to use; default the latest.", library="Check only this snapshot"),
    ] = VersionName()
    all_snapshots: Annotated[bool, Option("Check the files of every snapshot.")] = False
    only: Annotated[
        Names, Option("Only these checks or codes, see --list.", metavar="CHECK,...", library="Only these checks or codes")
    ] = Names()

    def check(self) -> None:
        super().check()
        if self.snapshot is not None and self.all_snapshots:
            raise UsageError("--snapshot cannot be combined with --all-snapshots")


class Age(Parsed[int | str | date | timedelta, str]):
    """A point in time as text, of which a number is an age in milliseconds."""

    metavar, unit = "AGE|TIME", "an age such as `10 min`, a timedelta or milliseconds, or a time"

    def parse(self, given: Point) -> str:
        text = str(point_text(given))
        return text if plain_number(text) is None else f"{text} ms ago"


class RepairOptions(Request):
    """What to repair."""

    _: KW_ONLY
    only: Annotated[
        Names,
        Option(
            "Only these: damaged-versions, chain, hints, dead-files, damaged-files (all rows), dv, "
            "hash-index (all keys), file-index (all rows), stale-buckets, lost-commits.",
            metavar="KIND,...",
        ),
    ] = Names()
    older_than: Annotated[Age, Option("Ignore lost commits younger than this, whose writers may still be running.")] = Age("1 h")


class HistoryCheckOptions(Request):
    """Which part of the history to look at, and for what."""

    _: KW_ONLY
    since: Annotated[Age, Option("Only commits since then.")] = Age()
    key: Annotated[Key, Option("Only what concerns this key, or a part of it; NULL for null if keys may be null.")] = Key()
    level: Annotated[
        Literal["meta", "rows"],
        Option("rows: read the data files in question, so that findings are proven; meta: metadata only."),
    ] = "rows"
    rule: Annotated[
        Texts,
        Option("Only this rule; repeatable for several.", metavar="RULE", flags=("--rule",), library="The rules; default all"),
    ] = Texts()


class HealthOptions(Request):
    """What to look for, and whether to mend it."""

    _: KW_ONLY
    advice: Annotated[
        bool,
        Option(
            "Also show what could be better, such as the bucket count and triggers; it does not change the exit code.",
            library="Also find what could be better, for which the commits of the history are replayed",
        ),
    ] = False
    topology: Annotated[
        bool,
        Option(
            "Also tell from the history how the table is written: who writes which buckets at the same time, who commits "
            "and who compacts, whether that is right, and what to change.",
        ),
    ] = False


class SomeTables(Request):
    """The tables to look at: the named ones, all of a database, or all of the warehouse."""

    tables: Annotated[Texts, Option("Tables; default all of the warehouse.", metavar="[TABLE]...", is_argument=True)] = Texts()
    _: KW_ONLY
    database: Annotated[str | None, Option("All tables of this database.", metavar="DB")] = None

    def check(self) -> None:
        super().check()
        if self.tables and self.database is not None:
            raise UsageError("table names cannot be combined with --database", hint="remove one of them")


class CostOptions(Request):
    """What to show of the cost of tables."""

    _: KW_ONLY
    prices: Annotated[
        str | None,
        Option(
            "Also show money, by the prices of aws-s3, or of a file (YAML or JSON): currency, reads, writes and checks for 1,000 "
            "requests, stored for a GB and month, transfer for a GB.",
            metavar="aws-s3|FILE",
            library="Also tell the money, by `aws-s3` or the path of a file of prices",
        ),
    ] = None


class CostOfTables(SomeTables, CostOptions):
    """The tables whose cost to show."""


class ExaminedTables(SomeTables, HealthOptions):
    """The tables to look at, and what to look for."""


class HealthOfTables(ExaminedTables):
    """The tables to look at, and whether to mend what can be mended."""

    _: KW_ONLY
    fix: Annotated[
        bool,
        Option(
            "After one confirmation, do what the findings propose and discards nothing: compact, set options. The other "
            "proposals are shown.",
            library="Do what the findings propose and discards nothing (compact, set options); the result is what is left",
        ),
    ] = False
