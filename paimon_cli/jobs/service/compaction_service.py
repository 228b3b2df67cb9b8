"""`compact --watch`: compacts tables in rounds, while tables are created, changed and dropped, until the service is stopped.

Each round probes every table for a snapshot after the last one that was planned, with one request, and plans the tables that
have one or are due. Each table with work gets one turn in the round, the most urgent first. A turn that would keep other tables
waiting for long compacts only part of the table, and the next round starts at once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from paimon_cli.errors import Conflict, PaimonError, PartialSuccess, TookTooLong
from paimon_cli.history.kept_files import KeptFiles
from paimon_cli.history.snapshot_history import SnapshotHistory
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.changes.read_lag import ReadLag
from paimon_cli.inspect.findings.runner import counted_findings
from paimon_cli.inspect.stored_bytes import bytes_by_kind
from paimon_cli.jobs.compact_request import CompactRequest, States
from paimon_cli.jobs.compact_summary import CompactSummary
from paimon_cli.jobs.engine import Engine, LocalEngine, NoProgress, Progress
from paimon_cli.jobs.engine_choice import LOCAL
from paimon_cli.jobs.process import usable_memory
from paimon_cli.jobs.round_plan import CompactionPlan
from paimon_cli.jobs.service.budget import Budget
from paimon_cli.jobs.service.leases import Leases
from paimon_cli.jobs.service.served_table import ServedTable
from paimon_cli.jobs.service.service_turn import EXAMINED_PART, NO_UPKEEP, Findings, Turn, findings_about, look
from paimon_cli.jobs.service.shared_budgets import Grant, NewBudget, SharedBudgets, TakenElsewhere
from paimon_cli.jobs.service.table_round import RoundState, ServiceRound, ServiceWatcher, TableRound, failed_round, raise_failures
from paimon_cli.jobs.service.turn_steps import TurnDone, take
from paimon_cli.jobs.service.upkeep import SEARCHED_VERSIONS
from paimon_cli.jobs.service.upkeep_done import NOT_KEPT_UP
from paimon_cli.jobs.service.wanted_merges import left_of
from paimon_cli.jobs.table_change import Shield
from paimon_cli.jobs.trigger_replays import TriggerReplays
from paimon_cli.maintain.owners import find_owners
from paimon_cli.options.choices import OnConflict
from paimon_cli.pieces import PIECES
from paimon_cli.requests.compaction import MIN_MEMORY, Upkeep
from paimon_cli.storage.catalog_options import table_seconds
from paimon_cli.storage.injected import Clock
from paimon_cli.storage.time_bounds import look_at_each, within

EXAMINED_EVERY_MILLIS = 300_000
"""How often the findings of a table are counted, at most."""
RECHECK_MILLIS = 300_000
"""After this time a table is planned again even without a new snapshot: it may have been rolled back, or its options changed."""
LONGEST_BACKOFF_MILLIS = 600_000
PROBES_AT_ONCE, LOOKS_AT_ONCE = 32, 8
SMALL_BYTES, SMALL_MEMORY, SMALL_AT_ONCE = 8 << 20, 32 << 20, 8
"""Turns that read at most SMALL_BYTES run SMALL_AT_ONCE at a time, each with SMALL_MEMORY for its merges."""
MAX_DOUBLINGS = 20


@dataclass
class _Known:
    """What the service remembers about a table between rounds. `history` is None until the table was opened.

    A quiet table is planned again when a snapshot follows `seen`, any table when it is due; from `examine_millis` on its findings
    are counted with the next plan. `lag`: of the last commit of `ingest` that was seen. `is_looked_at`: also by a look that was
    given up and has not ended; there is no other one meanwhile, or a table that hangs would cost a thread in each round.
    """

    last: TableRound
    states: States = field(default_factory=dict)
    history: SnapshotHistory | None = None
    seen: int | None = None
    is_quiet: bool = False
    due_millis: int = 0
    failures: int = 0
    orphans_due_millis: int = 0
    is_looked_at: bool = False
    findings: Findings | None = None
    lag: ReadLag | None = None
    examine_millis: int = 0

    @contextlib.contextmanager
    def looked_at(self, table: str) -> Iterator[None]:
        if self.is_looked_at:
            raise TookTooLong(f"{table} still does not answer", "the last look at it has not ended")
        self.is_looked_at = True
        try:
            yield
        finally:
            self.is_looked_at = False

    def forget_work(self) -> None:
        """Keep the state of the last round, but not its work and its plan."""
        plan = CompactionPlan(self.last.summary.plan.snapshot_id)
        self.last = replace(self.last, summary=CompactSummary(plan=plan), upkeep=NOT_KEPT_UP, expired_by=())


@dataclass
class CompactionService:
    """A dedicated compaction job. All its persistent state is in the tables; what it remembers only saves work.

    `leases`: coordinate it with other services for the same tables; None to run alone.
    """

    tables: Callable[[], Sequence[ServedTable]]
    request: CompactRequest
    engine: Engine
    clock: Clock
    watcher: ServiceWatcher
    shield: Shield
    leases: Leases | None = None
    upkeep: Upkeep = NO_UPKEEP
    table_seconds: float = table_seconds({})
    """The time of each look at a table and of each plan. Compactions have no bound."""
    examines: bool = False
    """Whether the findings of the tables are counted, for metrics."""
    budget: Budget | None = None
    """What a single run or each day of a service may take; None for a service that divides its time by turns alone. A limit of
    its own counts in place of those in policies."""
    new_budget: NewBudget | None = None
    """Makes the budgets of lines of policies; None for whole ones."""
    taken_elsewhere: TakenElsewhere | None = None
    """What other services have taken of daily budgets; None if there are none."""
    round_spends: Callable[[int, int, Sequence[Grant]], object] | None = None
    """Told the number and the begin (epoch millis) of a round and what it may take of daily budgets, before it takes any."""
    _known: dict[str, _Known] = field(default_factory=dict)
    _kept: KeptFiles = field(default_factory=lambda: KeptFiles(keeps_copies=True))

    @cached_property
    def _budgets(self) -> SharedBudgets:
        return SharedBudgets(self.clock, self.budget, self.new_budget, self.taken_elsewhere)

    @cached_property
    def _replays(self) -> TriggerReplays:
        return TriggerReplays(self.clock)

    def run(self, interval_seconds: float, max_rounds: int | None) -> None:
        """Run rounds until `max_rounds` (None: until interrupted), then raise the failures of the last round.

        With `on_conflict="fail"` the first conflict ends the service.
        """
        last = self.run_until(interval_seconds, lambda done: done.number == max_rounds)
        raise_failures(last.tables, " in the last round")

    def run_until(self, interval_seconds: float, is_last: Callable[[ServiceRound], bool]) -> ServiceRound:
        """Run rounds until one is the last, and return it."""
        number = 0
        with contextlib.nullcontext() if self.leases is None else self.leases.renewed():
            while True:
                number += 1
                done = self._round(number, interval_seconds)
                ends = is_last(done)
                pause = 0.0 if done.waiting else interval_seconds
                self.watcher.round_done(done, None if ends else pause)
                errors = [table.error for table in done.tables if table.error is not None and table.is_new]
                if self.request.on_conflict == OnConflict.FAIL and (
                    conflict := next((e for e in errors if _is_conflict(e)), None)
                ):
                    raise conflict
                if ends:
                    return done
                self.clock.sleep(pause)

    def _round(self, number: int, interval_seconds: float) -> ServiceRound:
        started, interval = self.clock.now_millis(), int(interval_seconds * 1000)
        tables = self._listed(started)
        served = [table for table in tables.values() if not self._is_closed(table, interval)]
        probes = look_at_each(self._is_due, [table.name for table in served], self.table_seconds, PROBES_AT_ONCE, str)
        due = [table for table, is_due in zip(served, probes, strict=True) if is_due]
        looks = look_at_each(self._look, due, self.table_seconds, LOOKS_AT_ONCE, lambda table: table.name)
        turns: list[Turn] = []
        for table, found in zip(due, looks, strict=True):
            if isinstance(found, PaimonError):
                if self.examines:
                    self._known[table.name].findings = findings_about(table.name, found)
                    self._known[table.name].examine_millis = 0
                self._note(failed_round(table.name, found, self._known[table.name].last.figures), interval)
                continue
            self._looked(found)
            if found.steps:
                is_kept = sum(turn.planned_files for turn in turns) + found.planned_files <= PIECES.max_planned_files
                turns.append(found if is_kept and len(turns) < PIECES.max_plans else found.without_plan())
            else:
                self._note(_nothing(found), interval)
        limit = PIECES.turn_bytes if self._divides(len(turns)) else None
        turns.sort(key=lambda turn: turn.need)
        self._budgets.share_out(turns)
        grants = self._budgets.grants(turns)
        if grants and self.round_spends is not None:
            self.round_spends(number, started, grants)
        for done in self._taken(number, turns, limit):
            self._note(done, interval)
        looked_at = {table.name for table in due}
        rounds = tuple(replace(self._known[name].last, is_new=name in looked_at) for name in tables)
        for table in due:
            self._known[table.name].forget_work()
        return ServiceRound(
            number, started, (self.clock.now_millis() - started) / 1000, rounds, sum(turn.is_unfinished for turn in turns)
        )

    def _divides(self, turns: int) -> bool:
        """Whether turns are limited: so that other tables need not wait, or so that a run ends soon after its time."""
        return self.budget.is_timed if self.budget is not None and self.budget.daily is None else turns > 1

    def _listed(self, now: int) -> dict[str, ServedTable]:
        """The tables by name. Tables that no longer exist are forgotten."""
        tables = {table.name: table for table in self.tables()}
        for name in self._known.keys() - tables:
            del self._known[name]
            self._replays.forget(name)
        for name in tables.keys() - self._known.keys():
            first = now + self.upkeep.first_orphans_millis(name)
            self._known[name] = _Known(TableRound(name, RoundState.NOTHING), orphans_due_millis=first)
        self._budgets.give({name: table.policy for name, table in tables.items()})
        return tables

    def _is_closed(self, table: ServedTable, interval: int) -> bool:
        """Whether all windows of the table are closed, so that not even a request is made; reported once."""
        if not table.policy.is_closed(self.clock.now_millis()):
            return False
        last = self._known[table.name].last
        if last.state != RoundState.CLOSED:  # what was left before is left still
            known = replace(TableRound(table.name, RoundState.CLOSED), figures=last.figures, left=last.left)
            self._note(replace(known, beyond_budget=last.beyond_budget, beyond_caps=last.beyond_caps), interval)
        return True

    def _is_due(self, name: str) -> bool:
        """Whether to plan the table; takes at most one request, whose error is for the plan to say."""
        known, now = self._known[name], self.clock.now_millis()
        if now >= known.due_millis:
            return True
        if not known.is_quiet or known.history is None:
            return False
        with known.looked_at(name):
            return known.history.exists((known.seen or 0) + 1)

    def _look(self, table: ServedTable) -> Turn:
        """Plan the work on the table. What is remembered about it does not change here: the look may have been given up."""
        known = self._known[table.name]
        cleans_orphans = self.clock.now_millis() >= known.orphans_due_millis
        is_due = self.examines and self.clock.now_millis() >= known.examine_millis
        examine_seconds = EXAMINED_PART * self.table_seconds if is_due else None

        def open_table() -> TableContext:
            context = table.opened()
            context.cache.kept = self._kept
            return context

        with known.looked_at(table.name):
            request = self._request_for(table, self.request)
            turn = look(table.name, open_table, request, known.states, self.upkeep, cleans_orphans, examine_seconds)
        turn.policy, turn.reads = table.policy, table.reads
        if turn.findings is not None:
            turn.of_policy = counted_findings(table.findings_of_policy())
        turn.closes_millis = table.policy.closes(self.clock.now_millis())
        return turn

    def _request_for(self, table: ServedTable, request: CompactRequest) -> CompactRequest:
        """The request within the caps of the table, by its goal, if there is one, and by what is left of its budget."""
        return table.limited(request, self._budgets.of(table.name), self._replays)

    def _looked(self, turn: Turn) -> None:
        known = self._known[turn.table]
        known.history, known.seen, known.is_quiet = turn.history, turn.snapshot_id, True
        known.due_millis = turn.due_millis(self.clock.now_millis() + RECHECK_MILLIS)
        known.lag = turn.lag or known.lag
        if turn.findings is not None:
            known.findings, known.examine_millis = turn.all_findings, self.clock.now_millis() + EXAMINED_EVERY_MILLIS

    def _taken(self, number: int, turns: Sequence[Turn], limit: int | None) -> Iterator[TableRound]:
        """Take the turns: first small ones, concurrently in this process, since they mostly wait for the store, then the others.

        A signal ends a large turn at once; small turns that have started are finished, and no other starts.
        """
        is_local = self.engine.name == LOCAL and len(turns) > 1
        small = {turn.table: turn for turn in turns if is_local and turn.need.size <= SMALL_BYTES}
        if small:
            share = (self.request.memory or usable_memory() // 2) // SMALL_AT_ONCE
            request = replace(self.request, memory=max(MIN_MEMORY, min(SMALL_MEMORY, share)))
            serve = partial(self._served, request=request, engine=LocalEngine(), limit=limit)
            pool = ThreadPoolExecutor(SMALL_AT_ONCE)
            try:
                started = [pool.submit(serve, turn, NoProgress(), contextlib.nullcontext) for turn in small.values()]
                for future in as_completed(started):
                    yield future.result()
            finally:
                pool.shutdown(wait=True, cancel_futures=True)
        for turn in (turn for turn in turns if turn.table not in small):
            progress = self.watcher.table_begins(number, turn.table)
            yield self._served(turn, progress, self.shield, request=self.request, engine=self.engine, limit=limit)

    def _served(
        self, turn: Turn, progress: Progress, shield: Shield, *, request: CompactRequest, engine: Engine, limit: int | None
    ) -> TableRound:
        """Take the turn of one table, under its lease."""
        known = self._known[turn.table]
        if turn.is_over or turn.is_unaffordable:
            turn.budget.settle(turn.granted, 0)
            plan = CompactionPlan(turn.snapshot_id) if turn.plan is None else turn.unaffordable_plan()
            summary, left = CompactSummary(plan=plan), turn.budget.unspent_size
            state = RoundState.LEFT if turn.is_over else RoundState.OVER_BUDGET
            passed = TableRound(turn.table, state, summary, figures=turn.figures, left=turn.left, budget_left=left)
            return replace(passed, beyond_budget=turn.beyond_budget, beyond_caps=turn.beyond_caps)
        request = self._request_for(ServedTable(turn.table, turn.open, turn.policy, turn.reads), request)
        began, taken, stored = self.clock.now_millis(), list[TurnDone](), None
        try:
            with self._leased(turn, shield) as is_ours:
                if not is_ours:
                    return TableRound(turn.table, RoundState.HELD, figures=turn.figures, left=turn.left)
                turn.turn_bytes, turn.is_shared = limit, self.leases is not None
                taken.append(take(turn, request, engine, progress, known.states, shield, self.table_seconds))
                stored = _stored(turn) if self.examines and taken[0].has_cleaned else None
        except PaimonError as error:
            if not taken:
                return failed_round(turn.table, error, turn.figures)
            taken[0].error = taken[0].error or error  # the lease could not be released
        finally:
            millis = self.clock.now_millis() - began
            turn.budget.settle(turn.granted, turn.used, millis)
        (done,) = taken
        if turn.findings is not None:
            known.findings = turn.all_findings
        if done.has_cleaned:
            known.orphans_due_millis = self.clock.now_millis() + (self.upkeep.orphans_every or 0)
        if done.error is not None:
            return replace(_noted(failed_round(turn.table, done.error), turn, done, millis), stored=stored)
        waits = turn.budget.daily is not None and bool(done.left.buckets or done.left.steps)
        idle = RoundState.OVER_BUDGET if waits else RoundState.OVER_CAPS if turn.beyond_caps else RoundState.NOTHING
        idle = RoundState.CLEANED if done.upkeep != NOT_KEPT_UP else idle
        state = RoundState.COMPACTED if done.summary.has_changed else idle
        what = TableRound(turn.table, state, is_unfinished=turn.is_unfinished, stored=stored)
        return _noted(what, turn, done, millis)

    @contextlib.contextmanager
    def _leased(self, turn: Turn, shield: Shield) -> Iterator[bool]:
        """Hold the lease of the table if it is free. Signals wait while it is taken or released, so that no file stays behind."""
        if self.leases is None:
            yield True
            return
        context = within(self.table_seconds, turn.context, turn.table)
        directory, is_ours = context.layout.lease_directory, False
        try:
            with shield():
                is_ours = self.leases.acquire(context.storage, directory)
            yield is_ours
        finally:
            if is_ours:
                with shield():
                    self.leases.release(directory)

    def _note(self, done: TableRound, interval: int) -> None:
        """Remember the outcome for a table and when it is due again, and report it."""
        known, now, budget = self._known[done.table], self.clock.now_millis(), self._budgets.of(done.table)
        known.last = done = replace(done, findings=known.findings, lag=known.lag)
        if done.state == RoundState.HELD and self.leases is not None:
            is_single = self.budget is not None and self.budget.daily is None
            known.due_millis = now + (interval if is_single else max(interval, self.leases.lives_millis))
        elif done.error is not None:
            known.is_quiet, known.due_millis = False, now + min(LONGEST_BACKOFF_MILLIS, interval * (2**known.failures - 1))
        elif done.state == RoundState.COMPACTED:
            known.due_millis = 0
        elif (done.left.buckets or done.left.steps) and budget is not None and budget.daily is not None:
            until = self._budgets.saves_until(done.table) or now + RECHECK_MILLIS
            known.due_millis = min(max(now + interval, until), now + RECHECK_MILLIS)
        known.failures = 0 if done.error is None else min(known.failures + 1, MAX_DOUBLINGS)
        self.watcher.table_done(done)


def _noted(what: TableRound, turn: Turn, done: TurnDone, millis: int) -> TableRound:
    """The round of a table with what its turn did, and what that cost. `millis`: how long it took."""
    daily = turn.budget.daily
    return replace(
        what,
        summary=done.summary,
        figures=turn.figures,
        upkeep=done.upkeep,
        left=done.left,
        expired_by=done.expired_by,
        budget_left=turn.budget.unspent_size,
        upkeep_bytes=turn.upkeep_bytes,
        upkeep_seconds=0.0 if daily is None or daily.is_size else max(0.0, millis / 1000 - done.summary.seconds),
        lost_read=done.account.lost_read,
        lost_written=done.account.lost_written,
        beyond_budget=turn.beyond_budget,
        beyond_caps=turn.beyond_caps,
        uncompacted=turn.uncompacted,
    )


def _stored(turn: Turn) -> Mapping[str, int] | None:
    """The bytes of the table by the kind of what keeps them; None if a version is damaged, which its findings say."""
    turn.charge(SEARCHED_VERSIONS)
    try:
        return bytes_by_kind(find_owners(turn.context()))
    except PaimonError:
        return None


def _nothing(turn: Turn) -> TableRound:
    return TableRound(
        turn.table,
        RoundState.OVER_CAPS if turn.beyond_caps else RoundState.NOTHING,
        turn.nothing_compacted,
        figures=turn.figures,
        left=left_of(turn.over_caps),
        beyond_caps=turn.beyond_caps,
    )


def _is_conflict(error: PaimonError) -> bool:
    return isinstance(error, (Conflict, PartialSuccess))
