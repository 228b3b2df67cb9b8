"""Writes what each round of a service did into the ledger of its warehouse (`maintain/ledger`).

A watcher of the service. A round in which nothing was done, and nothing failed, is not written. A round with a daily budget is
announced before it spends, and again as its tables are done, so that what it takes counts even if it is killed. An error of the
ledger is a warning, one for each text, and never stops the service.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from paimon_cli.compact.compaction_task import CompactionTask, Decision, PostponedRows, RegroupedPartition, SkippedBucket
from paimon_cli.errors import PaimonError
from paimon_cli.jobs.engine import Progress
from paimon_cli.jobs.goal_merges import TOO_MANY_RUNS
from paimon_cli.jobs.round_plan import by_urgency
from paimon_cli.jobs.service.shared_budgets import Grant
from paimon_cli.jobs.service.table_round import RoundState, ServiceRound, ServiceWatcher, TableRound
from paimon_cli.jobs.service.upkeep_done import NOT_KEPT_UP
from paimon_cli.maintain.ledger import LEDGER_DIRECTORY, LONGEST_REASON, MOST_STEPS, Ledger, LedgerRound, LedgerStep
from paimon_cli.storage.injected import Clock
from paimon_cli.storage.redaction import redact, shown_name
from paimon_cli.storage.time_bounds import within

TIDY_MILLIS = 3_600_000
"""How often a service packs old rounds."""
SHOWN_REASONS = 5
MAX_WARNINGS = 20
BEGUN = "begun"
"""The state of a step that was granted a part of a budget, and has not reported."""
_MUCH_LESS, _MORE = 0.25, 0.02
"""The parts by which what a round may spend has fallen, or risen, when it is announced again: so a round writes few times, and
hides little from others.
"""


@dataclass
class _Announced:
    """What a round may spend: of each table that is done what it took, of the others what they were granted. `written`: the bytes
    and seconds in the ledger; `now`: those that are right.
    """

    begun: LedgerRound
    steps: dict[str, LedgerStep]
    written: tuple[float, float]
    now: tuple[float, float]

    @classmethod
    def of(cls, begun: LedgerRound) -> _Announced:
        spent = sum(step.charged_bytes for step in begun.steps), sum(step.charged_seconds for step in begun.steps)
        return cls(begun, {step.table: step for step in begun.steps}, spent, spent)

    def done(self, step: LedgerStep) -> bool:
        """Count a table that is done; returns whether much has changed since it was written."""
        granted = self.steps.get(step.table, LedgerStep(step.table, BEGUN))
        took = LedgerStep(step.table, step.state, bytes_read=step.charged_bytes, seconds=step.charged_seconds)
        self.steps[step.table] = took
        size, seconds = self.now
        size, seconds = size + took.bytes_read - granted.bytes_read, seconds + took.seconds - granted.seconds
        self.now = size, seconds
        both = zip(self.now, self.written, strict=True)
        return any(now < (1 - _MUCH_LESS) * before or now > (1 + _MORE) * before for now, before in both)

    def at(self, now_millis: int) -> LedgerRound:
        """What is to be written. All that was taken counts from now on, so that none of it is forgotten too early."""
        self.written, steps = self.now, tuple(self.steps.values())[:MOST_STEPS]
        return replace(self.begun, seconds=max(0, now_millis - self.begun.started) / 1000, steps=steps)


@dataclass(eq=False)
class LedgerWatcher:
    """Passes each event on to `inner`, and writes rounds of the service `service`. `seconds`: after which a
    store that does not answer is given up. `requests`: counted since the start.
    """

    inner: ServiceWatcher
    ledger: Ledger
    service: str
    clock: Clock
    warn: Callable[[str], None]
    seconds: float = math.inf
    requests: Mapping[str, int] = field(default_factory=dict)
    _before: Counter[str] = field(default_factory=Counter)
    _done: dict[str, TableRound] = field(default_factory=dict)
    _begun: LedgerRound | None = None
    _announced: _Announced | None = None
    _tidy_due: int = 0
    _warned: set[str] = field(default_factory=set)

    def round_spends(self, number: int, started_millis: int, grants: Sequence[Grant]) -> None:
        """Write what a round was granted, before it takes any of it."""
        steps = tuple(
            LedgerStep(_cut(shown_name(each.table)), BEGUN, bytes_read=each.size, seconds=each.millis / 1000)
            for each in grants[:MOST_STEPS]
        )
        begun = self._begun = LedgerRound(self.service, number, started_millis, 0.0, len(grants), steps=steps)
        try:
            within(self.seconds, lambda: self.ledger.begin(begun), LEDGER_DIRECTORY)
            self._announced = _Announced.of(begun)
        except (PaimonError, OSError) as error:
            self._warn(error)

    def table_begins(self, number: int, table: str) -> Progress:
        return self.inner.table_begins(number, table)

    def table_done(self, done: TableRound) -> None:
        if is_worth_noting(done):
            self._done[done.table] = done
        if self._announced is not None and self._announced.done(step_of(done)):
            self._announce_again(self._announced.at(self.clock.now_millis()))
        left = [each for each in done.summary.plan.decisions if isinstance(each, SkippedBucket) and each.is_over_budget]
        if any(each.reason.startswith(TOO_MANY_RUNS) for each in left):
            self._warn_once(f"{shown_name(done.table)} has buckets above the cap on runs that the budget does not suffice for")
        name = shown_name(done.table)
        for what, beyond in (("budget", done.beyond_budget), ("caps", done.beyond_caps)):
            if beyond:
                self._warn_once(f"{name}: {beyond}; it is passed over until then", f"beyond the {what}: {name}")
        if done.uncompacted:
            self._warn_once(f"{shown_name(done.table)} is not compacted: {done.uncompacted}")
        self.inner.table_done(done)

    def _announce_again(self, begun: LedgerRound) -> None:
        try:
            within(self.seconds, lambda: self.ledger.goes_on(begun), LEDGER_DIRECTORY)
        except (PaimonError, OSError) as error:
            self._warn(error)

    def round_done(self, done: ServiceRound, pause_seconds: float | None) -> None:
        now = Counter(self.requests)
        asked, self._before = now - self._before, now
        noted, self._done = [*self._done.values()], {}
        begun, self._begun, self._announced = self._begun, None, None
        self.inner.round_done(done, pause_seconds)
        try:
            is_there = True
            if noted:
                written = self._round(done, noted, asked)
                is_there = within(self.seconds, lambda: self.ledger.add(written), LEDGER_DIRECTORY)
            if begun is not None and is_there:
                within(self.seconds, lambda: self.ledger.end(begun), LEDGER_DIRECTORY)
            if self.clock.now_millis() >= self._tidy_due:
                self._tidy_due = self.clock.now_millis() + TIDY_MILLIS
                within(self.seconds, lambda: self.ledger.tidy(self.service, self._warn), LEDGER_DIRECTORY)
        except (PaimonError, OSError) as error:
            self._warn(error)

    def _round(self, done: ServiceRound, noted: list[TableRound], asked: Counter[str]) -> LedgerRound:
        steps = tuple(step_of(table) for table in noted[:MOST_STEPS])
        return LedgerRound(self.service, done.number, done.started_millis, done.seconds, len(done.tables), dict(asked), steps)

    def _warn(self, error: Exception) -> None:
        self._warn_once(f"the ledger is incomplete: {error}")

    def _warn_once(self, text: str, key: str = "") -> None:
        """`key`: what stands for texts in which numbers change."""
        if (key or text) not in self._warned and len(self._warned) < MAX_WARNINGS:
            self._warned.add(key or text)
            self.warn(text)


def is_worth_noting(done: TableRound) -> bool:
    """Whether a table was changed, could not be, or has work left, or a turn that found nothing has taken from a budget."""
    if done.state in (RoundState.COMPACTED, RoundState.CLEANED) or done.upkeep != NOT_KEPT_UP:
        return True
    if done.summary.has_changed or done.lost_read:  # before the table was dropped
        return True
    if (done.upkeep_bytes and done.budget_left is not None) or done.upkeep_seconds:
        return True
    is_left = done.state in (RoundState.LEFT, RoundState.OVER_BUDGET, RoundState.OVER_CAPS) or done.is_unfinished
    return is_left or done.state in (RoundState.FAILED, RoundState.TRY_AGAIN)


def step_of(done: TableRound) -> LedgerStep:
    """What a round did to a table, as a step of the ledger."""
    summary, figures = done.summary, done.figures
    decisions = summary.plan.decisions
    works = [work for work in by_urgency(decisions) if work.bucket_id not in summary.unfinished] if summary.buckets else []
    tasks = [work for work in works if isinstance(work, CompactionTask)]
    return LedgerStep(
        table=_cut(shown_name(done.table)),
        state=done.state,
        buckets=summary.buckets,
        bytes_read=summary.bytes_read + done.lost_read,
        bytes_written=summary.bytes_written + done.lost_written,
        seconds=summary.seconds,
        runs_before=sum(task.runs_before for task in tasks),
        runs_after=sum(task.runs_after for task in tasks),
        read_files_before=figures.files,
        read_files_after=max(0, figures.files - summary.files_before + summary.files_after),
        read_bytes_before=figures.size,
        read_bytes_after=max(0, figures.size - summary.bytes_before + summary.bytes_after),
        snapshots_expired=done.upkeep.snapshots_expired,
        files_deleted=done.upkeep.files_expired + done.upkeep.orphans,
        score=best_score(decisions),
        budget_left=done.budget_left,
        why=_cut(reasons_of(works)),
        why_not=_cut(_left(done)),
        error="" if done.error is None else _cut(redact(done.error.message)),
        upkeep_bytes=done.upkeep_bytes,
        upkeep_seconds=done.upkeep_seconds,
    )


def best_score(decisions: Sequence[Decision]) -> float | None:
    """The highest score that a goal gave to a merge; that of a merge which is made whatever reads pay does not count."""
    scores = [each.score for each in decisions if each.score is not None and math.isfinite(each.score)]
    return max(scores, default=None)


def reasons_of(works: Sequence[CompactionTask | PostponedRows | RegroupedPartition]) -> str:
    """The reasons of compactions, splits and merges of buckets, and of rows that get their buckets: the most frequent first, each
    with the arithmetic of its largest bucket.
    """
    arithmetic: dict[str, str] = {}
    for work in sorted(works, key=lambda work: work.read_size):
        arithmetic[work.reason] = work.arithmetic if isinstance(work, CompactionTask) else ""
    counts = Counter(work.reason for work in works).most_common(SHOWN_REASONS)
    return "; ".join(
        f"{count} x {reason}" + (f" ({arithmetic[reason]})" if arithmetic[reason] else "") for reason, count in counts
    )


def _left(done: TableRound) -> str:
    """What was left, with the reasons of the buckets, and whole steps."""
    parts = skipped_reasons(each for each in done.summary.plan.decisions if isinstance(each, SkippedBucket) and each.is_left)
    return "; ".join([*parts, *(f"nothing left for {step}" for step in done.left.steps)])


def skipped_reasons(skipped: Iterable[SkippedBucket]) -> list[str]:
    """Why buckets are not compacted, the most frequent reasons first."""
    counts = Counter(bucket.reason for bucket in skipped).most_common(SHOWN_REASONS)
    return [f"{count} x {reason}" for reason, count in counts]


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_REASON else f"{text[: LONGEST_REASON - 3]}..."
