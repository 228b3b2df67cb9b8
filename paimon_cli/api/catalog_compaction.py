"""Compaction of several tables of a catalog: once, or in rounds as a service."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from paimon_cli.api.arguments import check_positive, checks_arguments
from paimon_cli.api.maintenance import CompactOptions, compact_request
from paimon_cli.api.opened_catalog import MAX_NAMED, OpenedCatalog
from paimon_cli.api.table import Table
from paimon_cli.api.table_choice import ChosenTable, TableChoice
from paimon_cli.catalog.table_location import TableLocation
from paimon_cli.errors import NotFound, PaimonError, StorageUnavailable, UsageError
from paimon_cli.storage.time_bounds import within

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from paimon_cli.history.table_context import TableContext
    from paimon_cli.jobs.compact_request import CompactionPlan, CompactRequest
    from paimon_cli.jobs.compaction_service import ServedTable, ServiceWatcher, TableRound
    from paimon_cli.jobs.engine import Engine
    from paimon_cli.jobs.table_change import Shield
    from paimon_cli.metastore.metastore import Metastore, OnDamage


COMPACTION = "compaction"
"""The name of the leases of compaction services."""


@checks_arguments
class Compaction(OpenedCatalog):
    """The methods of `Catalog` for compaction."""

    def plan_compaction(
        self,
        tables: Sequence[str] = (),
        *,
        database: str | Sequence[str] | None = None,
        all_tables: bool = False,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        strategy: str = "full",
        **options: Unpack[CompactOptions],
    ) -> Iterator[tuple[Table, CompactionPlan]]:
        """The plan of `compact` for each table; changes nothing. Failures are raised at the end, as by `compact`."""
        from paimon_cli.jobs.compact_request import plan_compaction
        from paimon_cli.jobs.compaction_service import RoundState, TableRound, raise_failures

        choice = TableChoice.of(tables, database, all_tables, include, exclude)
        request, metastore = _request(choice, strategy, options), self._metastore

        def planned(chosen: ChosenTable) -> tuple[Table, CompactionPlan]:
            table = self._open(self._to_commit(chosen.locate()))
            table.check_call()
            plan = plan_compaction(table.context, request)
            table._warn_of_buckets()
            return table, plan

        def plans() -> Iterator[tuple[Table, CompactionPlan]]:
            rounds: list[TableRound] = []
            damaged: list[PaimonError] = []
            for chosen in choice.found(self._locate, metastore, self.branch, damaged.append):
                try:
                    found = within(_look_seconds(choice, metastore), partial(planned, chosen), chosen.name)
                except PaimonError as error:
                    rounds.append(TableRound(chosen.name, RoundState.FAILED, error=error))
                    continue
                rounds.append(TableRound(chosen.name, RoundState.NOTHING))
                yield found
            rounds += _rounds_of_damage(damaged)
            raise_failures(rounds, done="planned")

        return plans()

    def compact(
        self,
        tables: Sequence[str] = (),
        *,
        database: str | Sequence[str] | None = None,
        all_tables: bool = False,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        strategy: str = "full",
        dedicated: bool = False,
        parallelism: int | None = None,
        shield: Shield = nullcontext,
        on_compacted: Callable[[TableRound], None] | None = None,
        **options: Unpack[CompactOptions],
    ) -> list[TableRound]:
        """Compact tables, databases or the whole warehouse, one table after the other; returns the result of each table.

        The failure of a table does not stop the others: at the end the error of a single table, or one error for all
        that failed (`PartialSuccess` if others did not), is raised. `on_compacted` is called with each result, also of a
        failed table, as soon as it is known. `include`, `exclude`: regular expressions that match full table names.
        `dedicated`: warn if writers may compact too, unless new rows become visible that way. `shield`: holds signals
        back during a commit. Of several tables, one whose metadata gives no answer in time (`table-timeout`, an option of
        the catalog) has failed.
        """
        from paimon_cli.jobs.compaction_service import RoundState, TableRound, raise_failures

        choice = TableChoice.of(tables, database, all_tables, include, exclude)
        request, metastore = _request(choice, strategy, options), self._metastore
        seconds, finished, damaged = _look_seconds(choice, metastore), list[TableRound](), list[PaimonError]()
        with self.runtime.engine_running(parallelism) as engine:
            for chosen in choice.found(self._locate, metastore, self.branch, damaged.append):
                try:
                    done = self._compacted(chosen, request, engine, shield, seconds, dedicated=dedicated)
                except PaimonError as error:
                    done = TableRound(chosen.name, RoundState.FAILED, error=error)
                finished.append(done)
                if on_compacted is not None:
                    on_compacted(done)
        finished += _rounds_of_damage(damaged)
        raise_failures(finished)
        return finished

    def _compacted(
        self, chosen: ChosenTable, request: CompactRequest, engine: Engine, shield: Shield, seconds: float, *, dedicated: bool
    ) -> TableRound:
        """Compact one table. `seconds`: the time to open it, and that of each plan."""
        from paimon_cli.jobs.compact_job import run_compact
        from paimon_cli.jobs.compaction_service import RoundState, TableRound

        def opened() -> TableContext:
            table = self._open(self._to_commit(chosen.locate()))
            table.check_commit()
            if dedicated:
                table.warn_of_other_compactors()
            return table.supported

        context = within(seconds, opened, chosen.name)
        progress = self.runtime.new_progress()
        summary = run_compact(context, request, engine, progress, shield=shield, plan_seconds=seconds)
        return TableRound(
            chosen.name, RoundState.COMPACTED if summary.buckets else RoundState.NOTHING, summary, figures=summary.plan.figures
        )

    def watch(
        self,
        tables: Sequence[str] = (),
        *,
        watcher: ServiceWatcher,
        database: str | Sequence[str] | None = None,
        all_tables: bool = False,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        strategy: str = "minor",
        dedicated: bool = False,
        interval: str = "10 s",
        max_rounds: int | None = None,
        parallelism: int | None = None,
        shield: Shield = nullcontext,
        lease: str = "1 min",
        expire: bool = False,
        orphans_every: str | None = None,
        examines: bool = False,
        **options: Unpack[CompactOptions],
    ) -> None:
        """Compact in rounds with a pause of `interval` between them, until interrupted or for `max_rounds`.

        Named tables must exist at the start, but may be dropped later; databases are listed again before each round.
        `watcher` receives the events of tables and rounds. Several services share their tables: each compacts a table
        only while it holds its lease, and takes over leases that were not renewed for `lease` (`0 s`: no leases).
        `expire`: also expire the snapshots of changed tables, by their own options. `orphans_every`: also delete the
        orphans of each table at this interval. `examines`: also count the findings of each table every few minutes, for metrics.
        """
        from paimon_cli.jobs.compaction_service import CompactionService
        from paimon_cli.jobs.leases import Leases
        from paimon_cli.jobs.service_turn import Upkeep
        from paimon_cli.options.option_text import parse_duration
        from paimon_cli.storage.injected import SystemClock, SystemRandom

        pause, lives = parse_duration(interval) / 1000, parse_duration(lease)
        check_positive(max_rounds=max_rounds)
        if options.get("if_snapshot") is not None:
            raise UsageError("--watch cannot be combined with --if-snapshot", "every round makes its own plan")
        upkeep = Upkeep(expire, None if orphans_every is None else parse_duration(orphans_every))
        choice = TableChoice.of(tables, database, all_tables, include, exclude)
        request, clock = _request(choice, strategy, options), SystemClock()
        metastore = self._metastore
        seconds = metastore.table_seconds
        leases = Leases(COMPACTION, SystemRandom().uuid(), lives, clock, seconds) if lives else None
        served = self._served(choice, metastore, dedicated, has_leases=leases is not None)
        with self.runtime.engine_running(parallelism) as engine:
            service = CompactionService(served, request, engine, clock, watcher, shield, leases, upkeep, seconds, examines)
            service.run(pause, max_rounds)

    def _served(
        self, choice: TableChoice, metastore: Metastore, dedicated: bool, has_leases: bool
    ) -> Callable[[], list[ServedTable]]:
        """A function that lists the tables of the service.

        Named tables are checked for safe commits now. Listed tables are checked when they are first opened, or by creating their
        lease, which needs the same guarantee as a snapshot.
        """
        from paimon_cli.jobs.compaction_service import ServedTable

        checked, warn_once = set[str](), _warning_once(self.runtime.warn)

        def chosen_by(part: TableChoice) -> Iterator[ChosenTable]:
            return part.found(self._locate, metastore, self.branch, warn_once)

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

        lists = _TableLists(found, self.runtime.warn)

        def served() -> list[ServedTable]:
            locations = (location for part in choice.one_by_one() for location in lists.of(part))
            return [ServedTable(location.name, partial(context_at, location)) for location in locations]

        return served

    def _to_commit(self, location: TableLocation) -> TableLocation:
        return replace(location, allow_unsafe_commit=self._allow_unsafe_commit)


class _TableLists:
    """The tables of each part of a choice, listed again in each round; if the storage does not answer, those of the last one."""

    def __init__(self, found: Callable[[TableChoice], list[TableLocation]], warn: Callable[[str], None]) -> None:
        self._found = found
        self._warn = warn
        self._last: dict[TableChoice, list[TableLocation]] = {}

    def of(self, part: TableChoice) -> list[TableLocation]:
        try:
            self._last[part] = self._found(part)
        except NotFound:
            self._last[part] = []  # the database has no tables at the moment
        except StorageUnavailable as error:
            if part not in self._last:
                raise
            self._warn(f"the tables could not be listed; using the list of the last round: {error}")
        return self._last[part]


def _warning_once(warn: Callable[[str], None]) -> OnDamage:
    """Warns of each damaged entry of the catalog, however often it is met, once."""
    warned_of: set[str] = set()

    def on_damage(error: PaimonError) -> None:
        if error.message not in warned_of and len(warned_of) < MAX_NAMED:
            warned_of.add(error.message)
            warn(f"{error.message}; left out; {error.hint}")

    return on_damage


def _rounds_of_damage(damaged: Sequence[PaimonError]) -> list[TableRound]:
    """What one round did to damaged entries of the catalog, which name no tables."""
    from paimon_cli.jobs.compaction_service import RoundState, TableRound

    return [TableRound(f"damaged entry {number}", RoundState.FAILED, error=error) for number, error in enumerate(damaged, 1)]


def _look_seconds(choice: TableChoice, metastore: Metastore) -> float:
    """The time of a look at a table, without a bound if no other table waits for it."""
    return math.inf if choice.is_single else metastore.table_seconds


def _request(choice: TableChoice, strategy: str, options: CompactOptions) -> CompactRequest:
    """The request for each table of a choice."""
    if options.get("if_snapshot") is not None and (choice.is_listed or len(choice.tables) > 1):
        raise UsageError("--if-snapshot needs a single table", "snapshot ids of different tables are unrelated")
    return replace(compact_request(strategy, options), unknown_buckets_allowed=choice.is_listed)
