"""What the services of a warehouse spent on one table lately, from their ledger."""

from __future__ import annotations

from dataclasses import dataclass

from paimon_cli.errors import DamagedFile, PaimonError
from paimon_cli.maintain.ledger import Ledger, StepSums
from paimon_cli.options.option_text import counted

SHOWN_DAYS = 7
DAY_MILLIS = 86_400_000


@dataclass(frozen=True)
class SpentOnTable(StepSums):
    """What all services did in the last `days`. `problem`: why nothing is known, or what is missing; else empty."""

    days: int = SHOWN_DAYS
    problem: str = ""


def spent_on_table(ledger: Ledger, table: str, days: int = SHOWN_DAYS) -> SpentOnTable | None:
    """The sums of the steps about `table`, by its name in the ledger; None if the warehouse has no ledger."""
    damaged: list[DamagedFile] = []
    try:
        if not ledger.newest():
            return None
        rounds = ledger.rounds(ledger.clock.now_millis() - days * DAY_MILLIS, damaged.append)
    except (PaimonError, OSError) as error:
        return SpentOnTable(days=days, problem=f"the ledger of the warehouse cannot be read: {error}")
    steps = [step for each in rounds for step in each.steps if step.table == table]
    problem = f"{counted(len(damaged), 'object')} of the ledger cannot be read, and is not counted" if damaged else ""
    return SpentOnTable(**vars(StepSums.of(steps)), days=days, problem=problem)
