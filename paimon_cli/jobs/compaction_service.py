"""`compact --watch`: rounds over tables that appear, change and vanish, until the service is stopped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from paimon_cli.errors import CommitUnknown, Conflict, NotFound, PaimonError, PartialSuccess, StorageUnavailable
from paimon_cli.history.kept_files import KeptFiles
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.compact_job import CompactSummary, run_compact
from paimon_cli.jobs.compact_request import FAIL, CompactRequest, States
from paimon_cli.jobs.engine import Engine, Progress
from paimon_cli.jobs.table_change import Shield
from paimon_cli.storage.clock_and_random import Clock

COMPACTED, NOTHING, TRY_AGAIN, GONE, FAILED = "compacted", "nothing to do", "try again", "gone", "failed"
PASSING = (Conflict, PartialSuccess, StorageUnavailable, CommitUnknown)
"""Errors that may be resolved by the next round."""


@dataclass(frozen=True)
class ServedTable:
    """A table of the service; `open` returns it with its current schema and options."""

    name: str
    open: Callable[[], TableContext]


@dataclass(frozen=True)
class TableRound:
    """What one round did to one table; `error` is None unless the state is `try again`, `gone` or `failed`."""

    table: str
    state: str
    summary: CompactSummary = field(default_factory=CompactSummary)
    error: PaimonError | None = None


@dataclass(frozen=True)
class ServiceRound:
    """One round over all tables; times in epoch millis and seconds."""

    number: int
    started_millis: int
    seconds: float
    tables: tuple[TableRound, ...]


class ServiceWatcher(Protocol):
    """Receives the events of the service."""

    def table_begins(self, number: int, table: str) -> Progress: ...

    def table_done(self, done: TableRound) -> None: ...

    def round_done(self, done: ServiceRound, pause_seconds: float | None) -> None:
        """`pause_seconds` until the next round; None after the last."""
        ...


@dataclass
class CompactionService:
    """A dedicated compaction job. All its lasting state is in the tables; what it remembers only saves work."""

    tables: Callable[[], Sequence[ServedTable]]
    request: CompactRequest
    engine: Engine
    clock: Clock
    watcher: ServiceWatcher
    shield: Shield
    _seen: dict[str, States] = field(default_factory=dict)
    _kept: KeptFiles = field(default_factory=lambda: KeptFiles(keeps_copies=True))

    def run(self, interval_seconds: float, max_rounds: int | None) -> None:
        """Run rounds until `max_rounds` (None: until interrupted), then raise the error of a table if all tables failed for good.

        With `on_conflict` `fail` the first conflict ends it.
        """
        number = 0
        while True:
            number += 1
            done = self._round(number)
            is_last = number == max_rounds
            self.watcher.round_done(done, None if is_last else interval_seconds)
            errors = [table.error for table in done.tables if table.error is not None]
            if self.request.on_conflict == FAIL and (conflict := next((e for e in errors if _is_conflict(e)), None)):
                raise conflict
            if is_last:
                raise_failures(done.tables, " in the last round")
                return
            self.clock.sleep(interval_seconds)

    def _round(self, number: int) -> ServiceRound:
        started = self.clock.now_millis()
        rounds = tuple(self._serve(number, table) for table in self.tables())
        return ServiceRound(number, started, (self.clock.now_millis() - started) / 1000, rounds)

    def _serve(self, number: int, table: ServedTable) -> TableRound:
        progress = self.watcher.table_begins(number, table.name)
        done = self._compacted(table, progress)
        self.watcher.table_done(done)
        return done

    def _compacted(self, table: ServedTable, progress: Progress) -> TableRound:
        states = self._seen.setdefault(table.name, {})
        try:
            context = replace(table.open(), kept=self._kept)
            summary = run_compact(context, self.request, self.engine, progress, states=states, shield=self.shield)
        except NotFound as error:
            self._seen.pop(table.name)
            return TableRound(table.name, GONE, error=error)
        except PASSING as error:
            return TableRound(table.name, TRY_AGAIN, error=error)
        except PaimonError as error:
            return TableRound(table.name, FAILED, error=error)
        return TableRound(table.name, COMPACTED if summary.buckets else NOTHING, summary)


def _is_conflict(error: PaimonError) -> bool:
    return isinstance(error, (Conflict, PartialSuccess))


def raise_failures(tables: Sequence[TableRound], when: str = "") -> None:
    """Raise the failure of the only table, or one that sums up those of several; a table that has gone is none."""
    errors = [table.error for table in tables if table.error is not None and table.state != GONE]
    if len(errors) == 1 == len(tables):
        raise errors[0]
    if errors:
        what = f"{len(errors)} of {len(tables)} tables could not be compacted{when}"
        why = "; ".join(error.message for error in errors)
        kind = PartialSuccess if len(errors) < len(tables) else type(errors[0])
        raise kind(what, why, errors[0].hint)
