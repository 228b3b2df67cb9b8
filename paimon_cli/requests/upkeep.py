"""The options of `maintain`: which tables, how much at once, and how often."""

from dataclasses import KW_ONLY
from typing import Annotated, Literal, NamedTuple

from paimon_cli.errors import UsageError
from paimon_cli.options.option_text import duration_text, human_size, parse_duration, parse_size
from paimon_cli.requests.compaction import SERVICE, OrphansEvery, Rounds, Sharing, TableChoice
from paimon_cli.requests.fields import Option, Parsed

GoalName = Literal["latency", "balanced", "cost"]
DAY_UNIT, _DAY_MILLIS = "/day", 86_400_000


class Allowance(NamedTuple):
    """What may be taken: a time (`millis`), or the bytes that compactions read (`size`). The other one is None.

    `is_daily`: again each day, for a service; otherwise once, for one run.
    """

    millis: int | None = None
    size: int | None = None
    is_daily: bool = False

    @classmethod
    def parse(cls, given: str) -> "Allowance":
        """A time or a size, told apart by the unit (`m` are minutes), with `/day` for a service. Raises `UsageError`.

        >>> print(Allowance.parse("10m"), Allowance.parse("50GB/day"), Allowance.parse("2 h/day").millis)
        10min 50.0GB/day 7200000
        """
        text, daily, rest = given.strip().partition(DAY_UNIT)
        for parse, kind in ((parse_duration, "millis"), (parse_size, "size")):
            if not rest and not text.strip().isdigit():
                try:
                    amount = parse(text)
                except UsageError:
                    continue
                if daily and kind == "millis" and amount > _DAY_MILLIS:
                    raise UsageError(f"--budget {given}", "a day has 24 h", "such as --budget 2h/day")
                if not amount:
                    raise UsageError(
                        f"--budget {given}", "nothing could be done with it", "such as --budget 10m or --budget 20GB"
                    )
                return cls(**{kind: amount}, is_daily=bool(daily))
        raise UsageError(
            f"--budget {given}",
            "it is neither a time nor a size with a unit",
            "such as --budget 10m or --budget 20GB for one run, --budget 2h/day or --budget 50GB/day for a service",
        )

    def __str__(self) -> str:
        """As it is written on the command line."""
        amount = human_size(self.size) if self.size is not None else duration_text(self.millis or 0)
        return amount.replace(" ", "") + (DAY_UNIT if self.is_daily else "")


class BudgetText(Parsed[str | Allowance | None, Allowance | None]):
    """What may be taken; see `Allowance.parse`."""

    metavar, unit = "TIME|SIZE[/day]", "a text"

    def parse(self, given: str | Allowance | None) -> Allowance | None:
        return Allowance.parse(given) if isinstance(given, str) else given


class Budgeted(Sharing):
    """What `maintain` is to reach, and how much one run may do."""

    _: KW_ONLY
    goal: Annotated[
        GoalName | None,
        Option(
            "Compact where reads have paid for it, instead of by the triggers of each table: latency, balanced and cost say how "
            "many bytes may be rewritten to save a read the opening of one sorted run. The rate is printed."
        ),
    ] = None
    budget: Annotated[
        BudgetText,
        Option(
            "Begin nothing more after this time, such as 10m, or let compactions read at most this much, such as 20GB (what they "
            "write, about as much, does not count); with --watch for each day, such as 2h/day or 50GB/day. What did not fit is "
            "named, and left for later.",
            library="Begin nothing more after this time, such as `10m`, or let compactions read at most this much, such as "
            "`20GB`; what they write, about as much, does not count. What did not fit is named, and left to the next run",
        ),
    ] = BudgetText()

    def check(self) -> None:
        super().check()
        if self.budget is not None and self.budget.is_daily:
            raise UsageError(
                f"--budget {self.budget} is for --watch", "a single run does not come again each day", "such as --budget 20GB"
            )


class MaintainTables(Budgeted, TableChoice):
    """Which tables to maintain, and how much in one run."""


class MaintainRounds(Rounds):
    """How the service maintains."""

    _: KW_ONLY
    orphans_every: Annotated[
        OrphansEvery, Option("Look for orphans this often in each table; default 1 d.", panel=SERVICE, tells_default=True)
    ] = OrphansEvery("1 d")
