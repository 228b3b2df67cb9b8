"""Compaction of several tables of a catalog: once, or in rounds as a service."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import KW_ONLY, dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from paimon_cli.api.arguments import checks_arguments, takes
from paimon_cli.api.maintenance_runs import COMPACTION
from paimon_cli.api.opened_catalog import OpenedCatalog
from paimon_cli.api.table import Table
from paimon_cli.api.table_choice import ChosenTable, DamageWarnings, TableLists, chosen_tables
from paimon_cli.api.trash import empty_expired
from paimon_cli.catalog.table_location import TableLocation
from paimon_cli.errors import NotSupported, PaimonError, UsageError
from paimon_cli.requests.compaction import CompactCall, CompactTables, PlanOfTables, ServiceOptions, Strategy, TableChoice, Upkeep
from paimon_cli.requests.upkeep import BudgetText, GoalName
from paimon_cli.storage.time_bounds import within

if TYPE_CHECKING:
    from paimon_cli.catalog.metastore.metastore import Metastore
    from paimon_cli.catalog.warehouse_policy import Policies
    from paimon_cli.history.table_context import TableContext
    from paimon_cli.jobs.compact_summary import CompactionAccount
    from paimon_cli.jobs.engine import Engine
    from paimon_cli.jobs.round_plan import CompactionPlan
    from paimon_cli.jobs.service.budget import Budget
    from paimon_cli.jobs.service.ledger_watcher import LedgerWatcher
    from paimon_cli.jobs.service.served_table import ServedTable
    from paimon_cli.jobs.service.shared_budgets import TakenElsewhere
    from paimon_cli.jobs.service.table_round import ServiceWatcher, TableRound
    from paimon_cli.storage.injected import Clock

_TRASH_EVERY_MILLIS = 3_600_000


class CompactingTables(CompactTables):
    """Compactions of several tables, with functions of the caller.

    `shield`: holds signals back during a commit. `on_compacted`: called with each result, also of a failed table, as soon as
    it is known.
    """

    _: KW_ONLY
    shield: Callable[[], AbstractContextManager[Any]] = nullcontext
    on_compacted: Callable[[TableRound], None] | None = None


class WatchTables(ServiceOptions, CompactCall, TableChoice):
    """Compactions in rounds. `watcher`: receives the events of tables and rounds. `shield`: as of `CompactingTables`. `whole`:
    with `expire`, everything that the tables' options let expire, not only snapshots.

    `examines`: also count the findings of each table every few minutes, for metrics. `goal`: compact where reads have paid for
    it, instead of by the triggers. `budget`: what may be taken each day, such as `2h/day` or `50GB/day`.
    """

    strategy: Strategy = "minor"
    _: KW_ONLY
    watcher: ServiceWatcher
    shield: Callable[[], AbstractContextManager[Any]] = nullcontext
    examines: bool = False
    goal: GoalName | None = None
    budget: BudgetText = BudgetText()

    def check(self) -> None:
        super().check()
        if self.budget is not None and not self.budget.is_daily:
            raise UsageError(
                f"--budget {self.budget} is for a single run",
                "a service goes on, so that its budget must come again",
                "give it by day, such as --budget 2h/day or --budget 50GB/day",
            )
        if self.order_by is not None:
            raise UsageError("--watch cannot be combined with --order-by", "every round would sort all rows again")
        if self.if_snapshot is not None:
            raise UsageError("--watch cannot be combined with --if-snapshot", "every round makes its own plan")


@checks_arguments
class Compaction(OpenedCatalog):
    """The methods of `Catalog` for compaction."""

    @takes(PlanOfTables)
    def plan_compaction(self, chosen: PlanOfTables) -> Iterator[tuple[Table, CompactionPlan]]:
        """The plan of `compact` for each table; changes nothing. Failures are raised at the end, as by `compact`."""
        from paimon_cli.jobs.compact_request import CompactRequest
        from paimon_cli.jobs.round_plan import plan_compaction
        from paimon_cli.jobs.service.table_round import RoundState, TableRound, raise_failures, rounds_of_damage

        request = CompactRequest.of(chosen, unknown_buckets_allowed=chosen.is_listed)
        metastore = self._metastore

        def planned(found: ChosenTable) -> tuple[Table, CompactionPlan]:
            table = self._open(self._to_commit(found.locate()))
            table.check_call()
            plan = plan_compaction(table.context, request)
            table._warn_of_buckets()
            return table, plan

        def plans() -> Iterator[tuple[Table, CompactionPlan]]:
            rounds: list[TableRound] = []
            damaged: list[PaimonError] = []
            for table in chosen_tables(chosen, self._locate, metastore, self.branch, damaged.append):
                try:
                    found = within(look_seconds(chosen, metastore), partial(planned, table), table.name)
                except PaimonError as error:
                    rounds.append(TableRound(table.name, RoundState.FAILED, error=error))
                    continue
                rounds.append(TableRound(table.name, RoundState.NOTHING))
                yield found
            rounds += rounds_of_damage(damaged)
            raise_failures(rounds, done="planned")

        return plans()

    @takes(CompactingTables)
    def compact(self, chosen: CompactingTables) -> list[TableRound]:
        """Compact tables, databases or the whole warehouse, one table after the other; returns the result of each table.

        The failure of a table does not stop the others: at the end the error of a single table, or one error for all
        that failed (`PartialSuccess` if others did not), is raised. `on_compacted` is called with each result, also of a
        failed table, as soon as it is known. `shield`: holds signals back during a commit. Of several tables, one whose
        metadata gives no answer in time (`table-timeout`, an option of the catalog) has failed.
        """
        from paimon_cli.jobs.compact_summary import CompactionAccount
        from paimon_cli.jobs.service.table_round import RoundState, TableRound, raise_failures, rounds_of_damage

        metastore = self._metastore
        seconds, finished, damaged = look_seconds(chosen, metastore), list[TableRound](), list[PaimonError]()
        with self.runtime.engine_running(chosen.parallelism) as engine:
            for table in chosen_tables(chosen, self._locate, metastore, self.branch, damaged.append):
                account = CompactionAccount()
                try:
                    done = self._compacted(table, chosen, engine, seconds, account)
                except PaimonError as error:  # other buckets of the table may have been committed
                    summary = account.summary
                    done = TableRound(table.name, RoundState.FAILED, summary, error, summary.plan.figures)
                finished.append(done)
                if chosen.on_compacted is not None:
                    chosen.on_compacted(done)
        finished += rounds_of_damage(damaged)
        raise_failures(finished)
        return finished

    def _compacted(
        self, table: ChosenTable, chosen: CompactingTables, engine: Engine, seconds: float, account: CompactionAccount
    ) -> TableRound:
        """Compact one table. `seconds`: the time to open it, and that of each plan. `account`: as of `run_compact`."""
        from paimon_cli.jobs.compact_job import run_compact
        from paimon_cli.jobs.compact_request import CompactRequest
        from paimon_cli.jobs.service.table_round import RoundState, TableRound

        def opened() -> TableContext:
            found = self._open(self._to_commit(table.locate()))
            found.check_commit()
            if chosen.dedicated:
                found.warn_of_other_compactors()
            return found.supported

        context = within(seconds, opened, table.name)
        request = CompactRequest.of(chosen, unknown_buckets_allowed=chosen.is_listed)
        progress = self.runtime.new_progress()
        summary = run_compact(context, request, engine, progress, shield=chosen.shield, plan_seconds=seconds, account=account)
        return TableRound(
            table.name, RoundState.COMPACTED if summary.buckets else RoundState.NOTHING, summary, figures=summary.plan.figures
        )

    @takes(WatchTables)
    def watch(self, chosen: WatchTables) -> None:
        """Compact in rounds with a pause of `interval` between them, until interrupted or for `max_rounds`.

        Named tables must exist at the start, but may be dropped later; databases are listed again before each round.
        `watcher` receives the events of tables and rounds. `shield`: holds signals back during a commit. `examines`: also
        count the findings of each table every few minutes, for metrics. `whole`: with `expire`, everything that the tables'
        options let expire, not only snapshots. `goal`, `budget`: as of `maintain`, but the budget is by day, such as `50GB/day`.
        """
        from paimon_cli.jobs.compact_request import CompactRequest
        from paimon_cli.jobs.goal_merges import merges_of
        from paimon_cli.jobs.service.budget import Budget
        from paimon_cli.jobs.service.compaction_service import CompactionService
        from paimon_cli.jobs.service.leases import Leases
        from paimon_cli.storage.injected import SystemClock, SystemRandom

        clock, metastore = SystemClock(), self._metastore
        seconds = metastore.table_seconds
        leases = Leases(COMPACTION, SystemRandom().uuid(), chosen.lease, clock, seconds) if chosen.lease else None
        policies = self._policies() if chosen.whole else None
        served = self._served(TableChoice.of(chosen), metastore, chosen.dedicated, leases is not None, policies)
        service_id = SystemRandom().uuid()
        taken = self._taken_by_others(clock, service_id, policies)
        budget = (
            None if chosen.budget is None else Budget.of(chosen.budget, clock, taken(chosen.budget.size is not None, None) or ())
        )
        if chosen.whole and chosen.is_listed:
            served = _after(EmptiesTrash(metastore, clock, self.runtime.warn, budget), served)
        with contextlib.ExitStack() as stack:
            engine = stack.enter_context(self.runtime.engine_running(chosen.parallelism))
            ledger = self._ledger_watcher(chosen.watcher, stack, clock, service_id) if chosen.whole else None
            service = CompactionService(
                served,
                CompactRequest.of(
                    chosen,
                    unknown_buckets_allowed=chosen.is_listed,
                    regroups=True,
                    merges=merges_of(chosen.goal),
                ),
                engine,
                clock,
                ledger or chosen.watcher,
                chosen.shield,
                leases,
                Upkeep.of(chosen),
                seconds,
                chosen.examines,
                budget,
                lambda allowance, names: Budget.of(allowance, clock),
                taken,
                None if ledger is None else ledger.round_spends,
            )
            service.run((chosen.interval or 0) / 1000, chosen.max_rounds)

    def _ledger_watcher(
        self, watcher: ServiceWatcher, stack: contextlib.ExitStack, clock: Clock, service: str
    ) -> LedgerWatcher | None:
        """One that writes the ledger of the warehouse and passes on to the watcher; None where a warehouse can have none."""
        from paimon_cli.catalog.warehouse_ledger import ledger_of_warehouse
        from paimon_cli.jobs.service.ledger_watcher import LedgerWatcher
        from paimon_cli.storage.counted_storage import counting_requests

        try:
            ledger = ledger_of_warehouse(self._metastore, clock)
        except NotSupported:
            return None
        requests = stack.enter_context(counting_requests())
        seconds = self._metastore.table_seconds
        return LedgerWatcher(watcher, ledger, service, clock, self.runtime.warn, seconds, requests)

    def _taken_by_others(self, clock: Clock, service: str, policies: Policies | None = None) -> TakenElsewhere:
        """What other services, and this one before it was restarted, have taken in the last day by the ledger of the warehouse.

        Where tables share the budget of a line of `policies`, other tables that the line is about count, too: they may be served
        by other services.
        Without a ledger, nothing. A round that has not ended, because it goes on or was killed, counts with all that it was
        granted.
        """
        from paimon_cli.catalog.warehouse_ledger import ledger_of_warehouse
        from paimon_cli.maintain.spending import Spending

        try:
            spending = Spending(ledger_of_warehouse(self._metastore, clock), service)
        except NotSupported:
            return lambda is_size, tables: ()
        seconds = self._metastore.table_seconds

        def taken(is_size: bool, tables: Collection[str] | None) -> list[tuple[int, float]] | None:
            try:
                counts = _sharing(tables, policies)
                return within(seconds, lambda: spending.taken(is_size, counts), "the ledger of the last day")
            except PaimonError as error:
                self.runtime.warn(f"what other services have taken of the budget is not known: {error}")
                return None

        return taken

    def _served(
        self, choice: TableChoice, metastore: Metastore, dedicated: bool, has_leases: bool, policies: Policies | None
    ) -> Callable[[], list[ServedTable]]:
        """A function that lists the tables of the service. `policies`: those that it obeys, which are read again for each list.

        Named tables are checked for safe commits now. Listed tables are checked when they are first opened, or by creating their
        lease, which needs the same guarantee as a snapshot.
        """
        checked, on_damage = set[str](), DamageWarnings(self.runtime.warn)

        def chosen_by(part: TableChoice) -> Iterator[ChosenTable]:
            return chosen_tables(part, self._locate, metastore, self.branch, on_damage)

        def context_at(location: TableLocation) -> TableContext:
            table = self._open(location)
            context = table.supported
            if location.name in checked:
                return context
            if not (choice.is_listed and has_leases):
                table.check_commit()
            if dedicated:
                table.warn_of_other_compactors(is_service=True)
            checked.add(location.name)
            return context

        def opened(chosen: ChosenTable) -> TableContext:
            return context_at(self._to_commit(chosen.locate()))

        def found(part: TableChoice) -> list[TableLocation]:
            return [self._to_commit(chosen.locate()) for chosen in chosen_by(part)]

        for chosen in chosen_by(choice):
            if not choice.is_listed:
                within(metastore.table_seconds, partial(opened, chosen), chosen.name)

        lists = TableLists(found, self.runtime.warn)

        def served() -> list[ServedTable]:
            on_damage.renew()
            places = [place for part in choice.one_by_one() for place in lists.of(part)]
            if policies is not None:
                policies.renew(places if choice.is_whole and not on_damage.has_met_any else None)
            return [as_served(place, partial(context_at, place), policies) for place in places]

        return served

    def _to_commit(self, location: TableLocation) -> TableLocation:
        return replace(location, allow_unsafe_commit=self._allow_unsafe_commit)


def as_served(place: TableLocation, opened: Callable[[], TableContext], policies: Policies | None) -> ServedTable:
    """A table as the service takes it, with what the policies say about it, and how often it is read."""
    from paimon_cli.jobs.goal_merges import counted_reads
    from paimon_cli.jobs.service.served_table import ServedTable

    if policies is None:
        return ServedTable(place.name, opened)
    reads = counted_reads(partial(policies.proportion_read, place))
    return ServedTable(place.name, opened, policies.of(place), reads, partial(policies.reads_from, place))


@dataclass
class EmptiesTrash:
    """Deletes dropped tables whose time is over, when it is called, but at most once an hour, and only if the budget lets it."""

    metastore: Metastore
    clock: Clock
    warn: Callable[[str], None]
    budget: Budget | None = None
    next_millis: int = 0

    def __call__(self) -> None:
        from paimon_cli.jobs.service.upkeep import VERSION_BYTES

        now = self.clock.now_millis()
        if now >= self.next_millis and (self.budget is None or self.budget.reserve_all(VERSION_BYTES)):
            self.next_millis = now + _TRASH_EVERY_MILLIS
            try:
                empty_expired(self.metastore, self.warn)
            finally:
                if self.budget is not None:
                    self.budget.settle(VERSION_BYTES, VERSION_BYTES, self.clock.now_millis() - now)


def _after(first: Callable[[], None], listed: Callable[[], list[ServedTable]]) -> Callable[[], list[ServedTable]]:
    def both() -> list[ServedTable]:
        first()
        return listed()

    return both


def look_seconds(choice: TableChoice, metastore: Metastore) -> float:
    """The time of a look at a table, without a bound if no other table waits for it."""
    return math.inf if choice.is_single else metastore.table_seconds


def _sharing(tables: Collection[str] | None, policies: Policies | None) -> Callable[[str], bool]:
    """Whether a table, by its name, shares the daily budget of these, which stands in a line of a policy; None for all."""
    from paimon_cli.maintain.policy import PolicyKey

    if tables is None:
        return lambda table: True

    @cache
    def line(table: str) -> tuple[str, int] | None:
        setting = None if policies is None else policies.about(table).settings.get(PolicyKey.BUDGET)
        return None if setting is None else (setting.source, setting.line)

    lines = {line(table) for table in tables} - {None}
    return lambda table: table in tables or line(table) in lines
