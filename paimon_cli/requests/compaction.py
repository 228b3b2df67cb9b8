"""The options of a compaction: of one table, of the tables of a catalog, and of the service."""

import re
import zlib
from collections.abc import Sequence
from dataclasses import KW_ONLY, replace
from typing import TYPE_CHECKING, Annotated, Literal

from paimon_cli.errors import UsageError
from paimon_cli.options.option_text import shortened
from paimon_cli.requests.fields import Buckets, Names, Option, Parsed, Partitions, Request, Size, Texts, Time
from paimon_cli.requests.maintenance import WHOLE_EXPIRY, What

if TYPE_CHECKING:
    from typing_extensions import Self

_LIMITS, SERVICE = "Limits", "Service"
MIN_MEMORY = 1 << 20
NEVER = 1 << 62


StrategyName = Literal["full", "minor"]
ConflictChoice = Literal["retry", "skip", "fail"]
Strategy = Annotated[
    StrategyName,
    Option(
        "full: merge everything into the top level (default); minor: what the triggers pick (default with --watch).",
        library="full: merge everything into the top level; minor: what the triggers pick",
        tells_default=True,
    ),
]


class MergeMemory(Size):
    """Memory for merges, in bytes."""

    def parse(self, given: str | int | None) -> int | None:
        size = super().parse(given)
        if size is not None and size < MIN_MEMORY:
            raise UsageError(f"--memory {given} is too small", "a compaction needs at least 1 mb")
        return size


class CompactOptions(Request):
    """What to compact in each table, and how."""

    strategy: Strategy = "full"
    _: KW_ONLY
    order_by: Annotated[
        Names, Option("Sort all rows of an append table without buckets by these columns, partition by partition.")
    ] = Names()
    order_strategy: Annotated[
        Literal["order", "zorder", "hilbert"] | None,
        Option(
            "order: by one column after the other (default); zorder, hilbert: along a curve, so that filters on each of the "
            "columns skip files."
        ),
    ] = None
    partition: Annotated[Partitions, Option("Only this partition; repeatable for several.", library="Only these partitions")] = (
        Partitions()
    )
    bucket: Annotated[Buckets, Option("Only these buckets, such as 7 or 0-999; repeatable.", library="Only these buckets")] = (
        Buckets()
    )
    idle_time: Annotated[
        Time,
        Option(
            "Fully compact partitions without new data for this long; compact the others by --strategy minor, or with full "
            "not at all."
        ),
    ] = Time()
    on_conflict: Annotated[
        ConflictChoice,
        Option(
            "If another job has compacted a bucket in the meantime: plan it again, skip it (exit 9), or stop (exit 5). "
            "Other buckets are committed.",
            library="If another job has compacted a bucket in the meantime: plan it again, skip it (`PartialSuccess`), or stop "
            "(`Conflict`). Other buckets are committed",
        ),
    ] = "retry"
    if_snapshot: Annotated[
        int | None,
        Option(
            "Carry out the plan that --dry-run showed at this snapshot; exit with 5 if its files were replaced since.",
            metavar="ID",
            min=1,
            library="Carry out the plan that `plan_compaction` made at this snapshot; raise `Conflict` if its files were "
            "replaced since",
        ),
    ] = None
    memory: Annotated[MergeMemory, Option("Memory for all concurrent merges of one process.", panel=_LIMITS)] = MergeMemory()
    ranges_over: Annotated[
        Size,
        Option(
            "Fully compact larger buckets in ranges of keys: several at the same time, each with a commit of its own, "
            "which stays if the job is killed; default 2 gb.",
            panel=_LIMITS,
            tells_default=True,
        ),
    ] = Size("2 gb")
    max_bytes: Annotated[Size, Option("Read at most this much per table and round.", panel=_LIMITS)] = Size()
    max_buckets: Annotated[
        int | None, Option("Compact at most N buckets per table and round.", metavar="N", min=1, panel=_LIMITS)
    ] = None

    def check(self) -> None:
        super().check()
        if self.order_by is None and self.order_strategy is not None:
            raise UsageError("--order-strategy without --order-by", "there are no columns to sort by", "add --order-by a,b")
        if self.order_by is not None and (self.strategy != "full" or self.bucket or self.idle_time is not None):
            raise UsageError(
                "--order-by cannot be combined with --strategy minor, --bucket or --idle-time",
                "all rows of a partition are sorted",
                "choose partitions with --partition",
            )


class CompactCall(CompactOptions):
    """A compaction of one table, on an engine."""

    _: KW_ONLY
    dedicated: Annotated[
        bool,
        Option(
            "This job should be the only compactor: warn if writers may compact too.",
            library="This job should be the only compactor: warn if writers may compact too, unless that is how new rows become "
            "visible",
        ),
    ] = False
    parallelism: Annotated[
        int | None, Option("Compact at most N buckets at the same time.", metavar="N", min=1, panel=_LIMITS)
    ] = None


class Patterns(Parsed[Sequence[str | re.Pattern[str]] | None, tuple[re.Pattern[str], ...] | None]):
    """Regular expressions."""

    metavar, written, unit = "RE", list[str] | None, "a list"

    def parse(self, given: Sequence[str | re.Pattern[str]] | None) -> tuple[re.Pattern[str], ...] | None:
        patterns = []
        for text in () if given is None else given:
            try:
                patterns.append(re.compile(text))
            except (re.error, OverflowError, RecursionError) as error:
                shown = shortened(text if isinstance(text, str) else text.pattern)
                raise UsageError(f"'{shown}' is not a regular expression", str(error)) from error
        return tuple(patterns)


class TableChoice(Request):
    """A choice of tables: by name, or by listing databases.

    Of listed tables, only those are chosen whose full names match a pattern of `include`, if there are any, and none of
    `exclude`.
    """

    tables: Annotated[Texts, Option("Paths, URLs or db.table.", metavar="[TABLE...]", is_argument=True)] = Texts()
    _: KW_ONLY
    database: Annotated[
        Texts,
        Option(
            "All tables of this database instead; repeatable.",
            metavar="DB",
            library="All tables of these databases instead",
        ),
    ] = Texts()
    all_tables: Annotated[
        bool,
        Option(
            "All tables of the warehouse; the default of --watch without TABLE.",
            library="All tables of the warehouse",
        ),
    ] = False
    include: Annotated[
        Patterns,
        Option(
            "With --database or --all-tables: only tables whose full name matches this regular expression; repeatable.",
            library="With --database or --all-tables: only tables whose full name matches one of these regular expressions",
        ),
    ] = Patterns()
    exclude: Annotated[
        Patterns,
        Option(
            "Leave out tables whose full name matches; repeatable.",
            library="Leave out tables whose full name matches one of these",
        ),
    ] = Patterns()

    def check(self) -> None:
        super().check()
        if bool(self.tables) + bool(self.database) + self.all_tables != 1:
            raise UsageError(
                "name the tables",
                "either TABLE..., --database DB, or --all-tables",
                "such as ./wh/shop.db/orders, or --database shop --warehouse ./wh",
            )
        if self.tables and (self.include or self.exclude):
            raise UsageError("--include and --exclude need --database or --all-tables", "they select among listed tables")

    @property
    def is_listed(self) -> bool:
        """Whether the tables are found by listing databases, so that they may change over time."""
        return not self.tables

    @property
    def is_whole(self) -> bool:
        """Whether it is of all tables of the warehouse, without exception."""
        return self.all_tables and not (self.include or self.exclude)

    @property
    def is_single(self) -> bool:
        """Whether it names one table, so that no other one waits for it."""
        return len(self.tables or ()) == 1

    @property
    def databases(self) -> tuple[str, ...]:
        """The databases to list, each once."""
        return tuple(dict.fromkeys(self.database or ()))

    def one_by_one(self) -> list["Self"]:
        """This choice in parts, one per database, so that a missing database does not affect the others."""
        return [replace(self, database=(name,)) for name in self.databases] or [self]

    def has(self, name: str) -> bool:
        """Whether a listed table is chosen, by its full name."""
        is_included = not self.include or any(pattern.fullmatch(name) for pattern in self.include)
        return is_included and not any(pattern.fullmatch(name) for pattern in self.exclude or ())


class PlanOfTables(CompactOptions, TableChoice):
    """The plans of compactions of several tables."""

    def check(self) -> None:
        super().check()
        if self.if_snapshot is not None and not self.is_single:
            raise UsageError("--if-snapshot needs a single table", "snapshot ids of different tables are unrelated")


class CompactTables(CompactCall, PlanOfTables):
    """Compactions of several tables, one after the other."""


class OrphansEvery(Time):
    """The time between two searches for orphans."""

    def parse(self, given: str | int | None) -> int | None:
        pause = super().parse(given)
        if pause == 0:
            raise UsageError("--orphans-every 0", "the service would do nothing else", "use a longer time, such as 1d")
        return pause


class Upkeep(Request):
    """What the service does besides compacting. `whole`: with `expire`, everything that the tables' options let expire."""

    _: KW_ONLY
    expire: Annotated[bool, Option("Also expire the snapshots of changed tables, by the tables' own options.", panel=SERVICE)] = (
        False
    )
    orphans_every: Annotated[
        OrphansEvery, Option("Also delete orphans older than a day, this often for each table.", panel=SERVICE)
    ] = OrphansEvery()
    whole: bool = False

    @property
    def expiries(self) -> tuple[What, ...]:
        """What expires, in this order: what protects snapshots first."""
        return () if not self.expire else WHOLE_EXPIRY if self.whole else ("snapshots",)

    def first_orphans_millis(self, table: str) -> int:
        """How long after the start of the service the orphans of a table are first deleted; spread over all tables."""
        if self.orphans_every is None:
            return NEVER
        return zlib.crc32(table.encode(errors="surrogatepass")) % max(1, self.orphans_every)


class Rounds(Request):
    """How often the service looks at its tables."""

    _: KW_ONLY
    interval: Annotated[Time, Option("Pause between rounds; default 10 s.", panel=SERVICE, tells_default=True)] = Time("10 s")
    max_rounds: Annotated[int | None, Option("Stop after N rounds.", metavar="N", min=1, panel=SERVICE)] = None


class Sharing(Request):
    """How several services share the work."""

    _: KW_ONLY
    lease: Annotated[
        Time,
        Option(
            "Share the work with other services: each compacts a table only while it holds the table's lease, and takes "
            "over leases that were not renewed for this time; default 1 min. 0s: no leases.",
            panel=SERVICE,
            tells_default=True,
        ),
    ] = Time("1 min")


class ServiceOptions(Sharing, Rounds, Upkeep):
    """How the service runs."""
