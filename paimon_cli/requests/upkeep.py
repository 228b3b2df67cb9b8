"""The options of `maintain`: which tables, how much at once, and how often."""

from dataclasses import KW_ONLY
from typing import Annotated, NamedTuple

from paimon_cli.errors import UsageError
from paimon_cli.options.option_text import parse_duration, parse_size
from paimon_cli.requests.compaction import SERVICE, OrphansEvery, Rounds, Sharing, TableChoice
from paimon_cli.requests.fields import Option, Parsed


class Allowance(NamedTuple):
    """What one run may take: a time (millis), or the bytes that its compactions read. The other one is None."""

    millis: int | None = None
    size: int | None = None


class BudgetText(Parsed[str | Allowance | None, Allowance | None]):
    """A time or a size, told apart by the unit: `m` are minutes."""

    metavar, unit = "TIME|SIZE", "a text"

    def parse(self, given: str | Allowance | None) -> Allowance | None:
        if not isinstance(given, str):
            return given
        for parse, kind in ((parse_duration, "millis"), (parse_size, "size")):
            if not given.strip().isdigit():
                try:
                    amount = parse(given)
                except UsageError:
                    continue
                if amount:
                    return Allowance(**{kind: amount})
        raise UsageError(
            f"--budget {given}", "it is neither a time nor a size with a unit", "such as --budget 10m or --budget 20GB"
        )


class Budgeted(Sharing):
    """How much one run of `maintain` may do."""

    _: KW_ONLY
    budget: Annotated[
        BudgetText,
        Option(
            "Begin nothing more after this time, such as 10m, or let compactions read at most this much, such as 20GB. What did "
            "not fit is named, and left to the next run."
        ),
    ] = BudgetText()


class MaintainTables(Budgeted, TableChoice):
    """Which tables to maintain, and how much in one run."""


class MaintainRounds(Rounds):
    """How the service maintains."""

    _: KW_ONLY
    orphans_every: Annotated[
        OrphansEvery, Option("Look for orphans this often in each table; default 1 d.", panel=SERVICE, tells_default=True)
    ] = OrphansEvery("1 d")
