"""What the services of a warehouse spent on one table lately, from their ledger."""

from __future__ import annotations

from dataclasses import dataclass

from paimon_cli.errors import DamagedFile, PaimonError
from paimon_cli.maintain.ledger import Ledger
from paimon_cli.options.option_text import counted

SHOWN_DAYS = 7
DAY_MILLIS = 86_400_000


@dataclass(frozen=True)
class SpentOnTable:
    """The sums of all services in the last `days`, in bytes and seconds. `steps`: the rounds in which something was done.

    `runs_removed`: sorted runs that compactions merged away. `problem`: why nothing is known, or what is missing; else empty.
    """

    days: int
    steps: int = 0
    failed: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    seconds: float = 0.0
    runs_removed: int = 0
    snapshots_expired: int = 0
    files_deleted: int = 0
    problem: str = ""


def spent_on_table(ledger: Ledger, table: str, days: int = SHOWN_DAYS) -> SpentOnTable | None:
    """The sums of the steps about `table`, by its name in the ledger; None if the warehouse has no ledger."""
    damaged: list[DamagedFile] = []
    try:
        if not ledger.newest():
            return None
        rounds = ledger.rounds(ledger.clock.now_millis() - days * DAY_MILLIS, damaged.append)
    except (PaimonError, OSError) as error:
        return SpentOnTable(days, problem=f"the ledger of the warehouse cannot be read: {error}")
    steps = [step for each in rounds for step in each.steps if step.table == table]
    return SpentOnTable(
        days,
        len(steps),
        sum(bool(step.error) for step in steps),
        sum(step.bytes_read for step in steps),
        sum(step.bytes_written for step in steps),
        sum(step.seconds for step in steps),
        sum(max(0, step.runs_before - step.runs_after) for step in steps),
        sum(step.snapshots_expired for step in steps),
        sum(step.files_deleted for step in steps),
        f"{counted(len(damaged), 'object')} of the ledger cannot be read, and is not counted" if damaged else "",
    )
