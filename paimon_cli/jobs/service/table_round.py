"""What a round of a service did to its tables, and how it is reported: to watchers, and as one error of all tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from paimon_cli.errors import CommitUnknown, Conflict, NotFound, PaimonError, PartialSuccess, StorageUnavailable, class_of_code
from paimon_cli.ingest.changes.read_lag import ReadLag
from paimon_cli.jobs.compact_summary import CompactSummary
from paimon_cli.jobs.engine import Progress
from paimon_cli.jobs.round_plan import NO_BUCKETS, BucketFigures
from paimon_cli.jobs.service.upkeep_done import NOT_KEPT_UP, UpkeepDone
from paimon_cli.jobs.service.wanted_merges import NOTHING_LEFT, Left

if TYPE_CHECKING:
    from paimon_cli.jobs.service.service_turn import Findings


class RoundState:
    """What became of a table in a round."""

    COMPACTED = "compacted"
    CLEANED = "cleaned up"
    NOTHING = "nothing to do"
    TRY_AGAIN = "try again"
    GONE = "gone"
    FAILED = "failed"
    HELD = "held by another service"
    LEFT = "out of time"
    CLOSED = "outside its windows"
    OVER_BUDGET = "out of budget"
    OVER_CAPS = "above its caps"


PASSING = (Conflict, PartialSuccess, StorageUnavailable, CommitUnknown)
"""Errors that the next round may resolve."""
MAX_SHOWN_TABLES = 100
"""The most tables whose causes an error shows; the table of results and `-o json` have all."""


@dataclass(frozen=True)
class TableRound:
    """What one round did to one table. `error`: None unless the state is `try again`, `gone` or `failed`.

    `figures`: its figures when it was last planned. `is_new`: whether that was in this round. `findings`: None before it was
    examined. `lag`: of the last commit of `ingest` that was seen. `left`: what its turn did not do; `is_unfinished`: the next
    round does. `expired_by`: the snapshots that dropped partitions. `budget_left`: bytes of the budget that were not taken until
    then, with those that other turns have reserved; None without one. `upkeep_bytes`: what it was charged for expiry and orphans;
    `upkeep_seconds`: of a budget in time, all that the turn took besides the compaction. `lost_read`, `lost_written`: bytes of
    compactions that came to nothing. `beyond_budget`: the compactions that the whole budget does not suffice for, with the one
    that they need; `beyond_caps`: the same of the caps of a round. `uncompacted`: why this version does not compact the table,
    where that is no error. `stored`: bytes by the kind of what keeps them, if orphans were searched for.
    """

    table: str
    state: str
    summary: CompactSummary = field(default_factory=CompactSummary)
    error: PaimonError | None = None
    figures: BucketFigures = NO_BUCKETS
    upkeep: UpkeepDone = NOT_KEPT_UP
    is_new: bool = True
    findings: Findings | None = None
    lag: ReadLag | None = None
    left: Left = NOTHING_LEFT
    is_unfinished: bool = False
    expired_by: tuple[int, ...] = ()
    budget_left: int | None = None
    upkeep_bytes: int = 0
    upkeep_seconds: float = 0.0
    lost_read: int = 0
    lost_written: int = 0
    beyond_budget: str = ""
    beyond_caps: str = ""
    uncompacted: str = ""
    stored: Mapping[str, int] | None = None


@dataclass(frozen=True)
class ServiceRound:
    """One round over all tables. `waiting`: the number of tables with work left over."""

    number: int
    started_millis: int
    seconds: float
    tables: tuple[TableRound, ...]
    waiting: int = 0


class ServiceWatcher(Protocol):
    """Receives the events of the service, in its thread."""

    def table_begins(self, number: int, table: str) -> Progress: ...

    def table_done(self, done: TableRound) -> None: ...

    def round_done(self, done: ServiceRound, pause_seconds: float | None) -> None:
        """`pause_seconds`: until the next round; None after the last."""
        ...


def failed_round(table: str, error: PaimonError, figures: BucketFigures = NO_BUCKETS) -> TableRound:
    """A table on which a round has failed."""
    state = (
        RoundState.GONE
        if isinstance(error, NotFound)
        else RoundState.TRY_AGAIN
        if isinstance(error, PASSING)
        else RoundState.FAILED
    )
    return TableRound(table, state, error=error, figures=NO_BUCKETS if state == RoundState.GONE else figures)


def rounds_of_damage(damaged: Sequence[PaimonError]) -> list[TableRound]:
    """What one round did to damaged entries of the catalog, which name no tables."""
    return [TableRound(f"damaged entry {number}", RoundState.FAILED, error=error) for number, error in enumerate(damaged, 1)]


def raise_failures(
    tables: Sequence[TableRound], when: str = "", done: str = "compacted", partly: type[PaimonError] | None = PartialSuccess
) -> None:
    """Raise the error of the only table, or one error for several failed tables, with a line for each; a dropped table has not
    failed.

    `partly`: the class of that error if other tables have not failed; None for that of the failures, if they all have one code.
    """
    failed = {table.table: table.error for table in tables if table.error is not None and table.state != RoundState.GONE}
    errors = [*failed.values()]
    if len(errors) == 1 == len(tables):
        raise errors[0]
    if errors:
        what = f"{len(errors)} of {len(tables)} tables could not be {done}{when}"
        lines = [f"  {name}: {error.message}" for name, error in islice(failed.items(), MAX_SHOWN_TABLES)]
        if len(failed) > len(lines):
            lines.append(f"  and {len(failed) - len(lines):,} more")
        error_class = class_of_code(errors[0])
        if len(errors) < len(tables):
            has_one_code = len({error.exit_code for error in errors}) == 1
            error_class = partly or (error_class if has_one_code else PartialSuccess)
        causes = {name: {"code": e.code, "message": e.message, "hint": e.hint or None} for name, e in failed.items()}
        why = errors[0].message if len(errors) == 1 else "\n".join(["these have failed", *lines])
        raise error_class(what, why, errors[0].hint, failed=causes)
