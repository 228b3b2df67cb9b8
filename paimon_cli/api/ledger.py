"""The ledger of a catalog: what its services did, and what that cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from paimon_cli.api.arguments import checks_arguments, takes
from paimon_cli.api.opened_catalog import MAX_NAMED, OpenedCatalog
from paimon_cli.errors import PaimonError
from paimon_cli.options.option_text import counted, human_size
from paimon_cli.requests.policy import LedgerOptions
from paimon_cli.storage.time_bounds import within

if TYPE_CHECKING:
    from paimon_cli.catalog.metastore.metastore import Metastore
    from paimon_cli.errors import DamagedFile
    from paimon_cli.history.table_context import TableContext
    from paimon_cli.maintain.ledger import LedgerRound, LedgerStep

MOST_REPLAYED = 100
"""The tables whose history is replayed, those on which most was spent."""


@dataclass(frozen=True)
class LedgerRow:
    """What one round of a service did to one table. `time`: when the round began.

    Sizes are bytes; `bytes_read` and `bytes_written` are those of its compaction, which took `seconds`, also of one that failed.
    `upkeep_bytes`: what a budget was charged for expiry and orphans; `upkeep_seconds`: of a budget in time, what the turn took
    besides the compaction. `round_requests`: to storages, of the whole process during the round, which may have served other
    tables, too. `runs_before`, `runs_after`: sorted runs of the compacted buckets. `read_bytes_before`, `read_bytes_after`: what
    a read of all rows fetches. `score` and `budget_left` are None for a service without goal or budget. `why`: the reasons of
    the compactions; `why_not`: of what was
    left; `error`: empty if all went well.
    """

    time: int
    service: str
    round: int
    table: str
    state: str
    bytes_read: int
    bytes_written: int
    upkeep_bytes: int
    round_requests: int
    seconds: float
    upkeep_seconds: float
    runs_before: int
    runs_after: int
    read_bytes_before: int
    read_bytes_after: int
    score: float | None
    budget_left: int | None
    why: str
    why_not: str
    error: str


@dataclass(frozen=True)
class LedgerTotal:
    """What the services did to one table. `runs_removed`: sorted runs that compactions merged away, which each later read of
    these buckets saves; `spent_bytes`: what they read and wrote for that. `read_bytes_before`, `read_bytes_after`: what a read of
    all rows fetched before the first and after the last compaction. `why`, `why_not`, `error`: of the last one.

    `history_written`, `history_runs`: what compactions wrote since the first step, and the sorted runs that readers found in a
    bucket after a commit, weighed by time, by the retained history, of any engine; `triggers_written`, `triggers_runs`: the same
    if Paimon's triggers had decided at the first step and after each commit, by a replay. None where nothing can be replayed: too
    many tables, no sorted runs, or no history; `history_runs` and `triggers_runs` also where no commit followed.
    """

    table: str
    steps: int
    failed: int
    bytes_read: int
    bytes_written: int
    seconds: float
    runs_removed: int
    read_files_before: int
    read_files_after: int
    read_bytes_before: int
    read_bytes_after: int
    snapshots_expired: int
    files_deleted: int
    score: float | None
    budget_left: int | None
    why: str
    why_not: str
    error: str
    history_written: int | None = None
    history_runs: float | None = None
    triggers_written: int | None = None
    triggers_runs: float | None = None


@checks_arguments
class LedgerBook:
    """The ledger of a warehouse, which `maintain --watch` writes.

    Objects that cannot be read are left out, with a warning each. Raises `NotSupported` without a warehouse directory.
    """

    def __init__(
        self, metastore: Metastore, warn: Callable[[str], None], opened: Callable[[str], TableContext] | None = None
    ) -> None:
        self._metastore, self._warn, self._opened = metastore, warn, opened

    @takes(LedgerOptions)
    def ls(self, options: LedgerOptions) -> list[LedgerRow]:
        """What each round did to each table, oldest first. Rounds in which nothing was done have no row."""
        return [_row(each, step) for each in self._rounds(options) for step in each.steps]

    @takes(LedgerOptions)
    def show(self, options: LedgerOptions) -> list[LedgerTotal]:
        """What was spent on each table, and gained; first the table on which most bytes were spent.

        For the first 100 tables also what Paimon's triggers would have done, by a replay of the history that is left.
        """
        steps: dict[str, list[LedgerStep]] = {}
        since: dict[str, int] = {}
        for each in self._rounds(options):
            for step in each.steps:
                steps.setdefault(step.table, []).append(step)
                since.setdefault(step.table, each.started)
        totals = [_total(table, of_table) for table, of_table in steps.items()]
        totals.sort(key=lambda total: (-total.bytes_read - total.bytes_written, total.table))
        compared = [self._compared(total, since[total.table]) for total in totals[:MOST_REPLAYED]]
        return [*compared, *totals[MOST_REPLAYED:]]

    def _compared(self, total: LedgerTotal, since_millis: int) -> LedgerTotal:
        """The total with what the triggers would have done, as far as the history is left."""
        from paimon_cli.inspect.against_triggers import against_triggers

        if self._opened is None or not total.bytes_read:
            return total
        try:
            opened = self._opened
            found = within(
                self._metastore.table_seconds, lambda: against_triggers(opened(total.table), since_millis), total.table
            )
        except PaimonError as error:
            self._warn(f"{total.table} is not compared with Paimon's triggers: {error.message}")
            return total
        if found is None:
            return total
        return replace(
            total,
            history_written=found.written,
            history_runs=found.runs,
            triggers_written=found.triggers_written,
            triggers_runs=found.triggers_runs,
        )

    def _rounds(self, options: LedgerOptions) -> list[LedgerRound]:
        from paimon_cli.catalog.warehouse_ledger import ledger_of_warehouse

        ledger, damaged = ledger_of_warehouse(self._metastore), list[str]()

        def on_damage(error: DamagedFile) -> None:
            damaged.append(f"{error.message}; left out")

        since = 0 if options.since is None else ledger.clock.now_millis() - options.since
        rounds, begun = ledger.spent(since, on_damage)
        for text in damaged[:MAX_NAMED]:
            self._warn(text)
        if len(damaged) > MAX_NAMED:
            more = counted(len(damaged) - MAX_NAMED, "other object")
            self._warn(f"{more} of the ledger cannot be read; left out")
        if begun:
            spent = human_size(sum(step.bytes_read for each in begun for step in each.steps))
            self._warn(
                f"rounds that began and have not ended: {len(begun):,}, at work or killed; budgets count what they took and "
                f"were still granted as spent, {spent} read"
            )
        return rounds


def _row(done: LedgerRound, step: LedgerStep) -> LedgerRow:
    same = {each.name: getattr(step, each.name) for each in fields(LedgerRow) if hasattr(step, each.name)}
    requests = sum(done.requests.values())
    return LedgerRow(time=done.started, service=done.service, round=done.number, round_requests=requests, **same)


def _total(table: str, steps: list[LedgerStep]) -> LedgerTotal:
    """The steps of one table, oldest first."""
    from paimon_cli.maintain.ledger import StepSums

    last, compacted = steps[-1], [step for step in steps if step.buckets] or steps[-1:]
    return LedgerTotal(
        table=table,
        **vars(StepSums.of(steps)),
        read_files_before=compacted[0].read_files_before,
        read_files_after=compacted[-1].read_files_after,
        read_bytes_before=compacted[0].read_bytes_before,
        read_bytes_after=compacted[-1].read_bytes_after,
        score=last.score,
        budget_left=last.budget_left,
        why=last.why,
        why_not=last.why_not,
        error=last.error,
    )


@checks_arguments
class KeepsLedger(OpenedCatalog):
    """The ledger of `Catalog`."""

    @property
    def ledger(self) -> LedgerBook:
        """What services did to the tables of the warehouse, and what that cost."""
        return LedgerBook(self._metastore, self.runtime.warn, lambda name: self._open(self._locate(name)).supported)
