"""Runs an operation with faults and checks the result; one line describes a run and repeats it.

    python -m tests.faults.runs "write-after-rival: 17 short-read half, 20 crash-before"

A `/` begins the second life: the operation is repeated, with the faults that follow the `/`.
"""

from __future__ import annotations

import functools
import random
import sys
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

from paimon_cli.errors import CommitUnknown, PaimonError, PartialSuccess
from paimon_cli.storage.memory_storage import MemoryStorage
from tests.faults.bench import Actor, Bench, Image, Rows, digest
from tests.faults.fault_kinds import DELETES, Fault, Kind, forms
from tests.faults.fault_storage import Crash, FaultStorage, NoteCall, planned
from tests.faults.figures import Figures
from tests.faults.operation import Operation
from tests.faults.operations import OPERATIONS
from tests.faults.verdict import Outcome, Run, complaints

NO_CALL = 1 << 30
AFTER_THE_END = Fault(NO_CALL, Kind.POWER_CUT, "all")
"""The power is cut when the operation has ended and reported its result."""
KNOWN_LIMITS = (
    ("expire", Kind.STALE_LIST, "/tag"),  # a tag that a listing hides is not seen, and loses its files
    *(("tag-rm", kind, "/tag") for kind in (Kind.STALE_LIST, Kind.IGNORED_DELETE)),
    ("expire-changelogs", Kind.STALE_LIST, "/tag"),
    ("expire", Kind.IGNORED_DELETE, "/snapshot"),  # a snapshot file that is still there after its delete has lost its files
)
"""Operation, kind and directory of faults that it cannot survive, on storages that are no longer in use."""


class FaultRuns:
    """All runs of one operation begin with the same files."""

    def __init__(self, operation: Operation, bench: Bench) -> None:
        self.operation = operation
        self.bench = bench
        bench.load({})
        self.before: Rows = operation.start(bench)
        self.image: Image = bench.save()
        self._lives = bench.lives
        self._verdicts: dict[object, list[str]] = {}
        self._continued: dict[object, list[str]] = {}
        self._errors: dict[tuple[Fault, ...], str] = {}
        self._reported = ""
        self.figures = Figures()

    def calls(self) -> list[str]:
        """Names of the calls of an undisturbed run."""
        return self.run(planned(()))[0].calls

    def single_faults(self) -> Iterator[Fault]:
        """Every fault that can happen to a call of an undisturbed run; those of later calls are reached by pairs."""
        calls = self.calls()
        self.figures.calls = len(calls)
        for number, name in enumerate(calls):
            for kind, detail in forms(name):
                yield Fault(number, kind, detail)
        yield AFTER_THE_END

    def try_fault(self, fault: Fault) -> None:
        if self.run(planned([fault]))[0].hit != [fault]:
            self.figures.failures.append(f"{self.operation.name}: {fault} was not met; the run does not repeat")

    def run(self, *lives: NoteCall) -> list[FaultStorage]:
        """Act once for each life, as long as it is not known to be done; then judge."""
        self.bench.load(self.image, self._lives)
        storages: list[FaultStorage] = []
        outcomes: list[Outcome] = []
        found: list[str] = []
        for number, fault_of in enumerate(lives):
            if Outcome.DONE in outcomes or (number and not self._may_repeat()):
                break
            storage = FaultStorage(self.bench.inner, fault_of, None if number else self._rival())
            outcome, error = self._act(storage, number)
            storage.end(NO_CALL)
            reported = self._reported
            storages.append(storage)
            outcomes.append(outcome)
            found += [*([error] if error else []), *_misdeeds(storage, outcome)]
        if len(lives) == 1 and outcomes == [Outcome.REFUSED]:
            found += self._hidden_error(storages[0], reported)
        self._judge(storages, _altogether(outcomes), found)
        return storages

    def _hidden_error(self, storage: FaultStorage, reported: str) -> Iterator[str]:
        """A fault during the removal of files must not hide the error that led to it."""
        if not storage.hit:
            return
        *causes, last = storage.hit
        if last.call == NO_CALL or last.kind is Kind.OUTAGE or storage.calls[last.call] not in DELETES:
            return
        key = tuple(causes)
        if key not in self._errors:
            after, lives = self.bench.save(), self.bench.lives
            self.bench.load(self.image, self._lives)
            self._act(FaultStorage(self.bench.inner, planned(causes), self._rival()), 0)
            self._errors[key] = self._reported
            self.bench.load(after, lives)
        if self._errors[key] not in ("", reported):
            yield f"{self._errors[key]} was hidden by {reported}, which its clean-up met"

    def _rival(self) -> functools.partial[object] | None:
        return functools.partial(self.operation.rival, self.bench) if self.operation.rival else None

    def _may_repeat(self) -> bool:
        return self.operation.is_repeatable or not self.operation.done(self.bench.healthy())

    def _act(self, storage: FaultStorage, life: int) -> tuple[Outcome, str | None]:
        self._reported = ""
        try:
            self.operation.act(Actor(self.bench, storage, life))
        except Crash:
            return Outcome.CRASHED, None
        except CommitUnknown:
            return Outcome.UNKNOWN, None
        except PartialSuccess:
            return Outcome.DONE, None  # said of some buckets; the others are as they were
        except PaimonError as error:
            self._reported = type(error).__name__
            return Outcome.REFUSED, None
        except Exception as error:
            return Outcome.REFUSED, f"a user would see a traceback: {type(error).__name__}: {error}"
        return Outcome.DONE, None

    def _judge(self, storages: Sequence[FaultStorage], outcome: Outcome, found: list[str]) -> None:
        is_clean = len(storages) == 1 and self._must_be_clean(outcome, storages[0])
        run = Run(self.operation, self.before, storages[0].rival_at is not None, outcome, is_clean)
        if not any(self._is_known_limit(storage) for storage in storages):
            key = (digest(self.bench.save()), run.outcome, run.rival, run.must_be_clean)
            if key not in self._verdicts:
                self.figures.states += 1
                self._verdicts[key] = complaints(self.bench, run, self._continued)
            found = found + self._verdicts[key]
        self.figures.count([fault for storage in storages for fault in storage.hit], outcome)
        if found:
            plan = " / ".join(", ".join(map(str, storage.hit)) for storage in storages)
            replay = f'python -m tests.faults.runs "{self.operation.name}: {plan}"'
            self.figures.failures.append("\n    ".join([replay, *found]))

    def _is_known_limit(self, storage: FaultStorage) -> bool:
        met = zip(storage.hit, storage.hit_paths, strict=True)
        return any(
            self.operation.name == name and fault.kind is kind and path.startswith(self.bench.root + directory)
            for fault, path in met
            for name, kind, directory in KNOWN_LIMITS
        )

    def _must_be_clean(self, outcome: Outcome, storage: FaultStorage) -> bool:
        """Orphans are excused by a crash, an unknown outcome, and by faults that meet the removal of files itself."""
        if (
            self.operation.leaves_orphans
            or outcome not in (Outcome.DONE, Outcome.REFUSED)
            or (self.operation.is_gradual and storage.hit)
        ):
            return False
        removing = storage.rival_at if storage.rival_at is not None else len(storage.calls)
        return len(storage.hit) < 2 and all(
            fault.call < removing and fault.kind is not Kind.OUTAGE and storage.calls[fault.call] not in DELETES
            for fault in storage.hit
        )


def _misdeeds(storage: FaultStorage, outcome: Outcome) -> Iterator[str]:
    if outcome is Outcome.UNKNOWN and (deleted := storage.deleted[storage.deleted_before_put :]):
        yield f"deleted although the outcome is unknown: {deleted}"
    if storage.open_outputs and not storage.dead:
        yield f"left open: {sorted(storage.open_outputs)}"


def _altogether(outcomes: Sequence[Outcome]) -> Outcome:
    """What an observer of all lives knows: the operation was done, was not done, or may have been done."""
    if Outcome.DONE in outcomes:
        return Outcome.DONE
    return outcomes[0] if len(set(outcomes)) == 1 else Outcome.UNKNOWN


def memory_runs(operation: Operation, folder: Path) -> FaultRuns:
    """On a storage in memory."""
    return FaultRuns(operation, Bench(MemoryStorage(f"faults-{uuid.uuid4()}"), "", folder))


class Pairs:
    """Two faults in one run, chosen by chance: in the same life close to each other, or one in each of two lives."""

    def __init__(self, runs: FaultRuns, seed: int) -> None:
        self._runs = runs
        self._random = random.Random(f"{runs.operation.name} {seed}")
        self._calls = runs.calls()
        runs.figures.calls = len(self._calls)

    def try_one(self) -> None:
        chance = self._random
        first = chance.randrange(len(self._calls))
        kind, detail = chance.choice(forms(self._calls[first]))
        fault = Fault(first, kind, detail)
        if kind.value.startswith("crash") or kind in (Kind.POWER_CUT, Kind.TORN_WRITE, Kind.OUTAGE) or chance.random() < 0.3:
            self._runs.run(planned([fault]), self._somewhere(chance.randrange(len(self._calls))))
        else:
            second = self._somewhere(first + 1 + int(chance.expovariate(0.2)))
            self._runs.run(lambda call, name, path: fault if call == first else second(call, name, path))

    def _somewhere(self, at: int) -> NoteCall:
        """Whatever call has that number: something that can happen to it."""
        draw = self._random.random()

        def fault_of(call: int, name: str, path: str) -> Fault | None:
            if call != at:
                return None
            choices = forms(name)
            return Fault(call, *choices[int(draw * len(choices))])

        return fault_of


def main(line: str) -> int:
    """Do the run of a replay line again; 1 if something is wrong."""
    name, _, plans = line.partition(":")
    with tempfile.TemporaryDirectory() as folder:
        runs = memory_runs(OPERATIONS[name.strip()], Path(folder))
        lives = [planned([Fault.parse(text) for text in plan.split(",") if text.strip()]) for plan in plans.split("/")]
        for storage in runs.run(*lives):
            print("\n".join(f"{number:4} {call}" for number, call in enumerate(storage.calls)))
        print("\n".join(runs.figures.failures) or "nothing is wrong")
        return int(bool(runs.figures.failures))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
