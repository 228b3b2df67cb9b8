"""Runs an operation with faults and judges what is left; every run can be told, and done again, by one line.

    python -m tests.faults.runs "write-behind-rival: 17 short-read half, 20 crash-before"
"""

from __future__ import annotations

import functools
import sys
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from paimon_cli.errors import CommitUnknown, PaimonError
from paimon_cli.storage.memory_storage import MemoryStorage
from paimon_cli.storage.storage import Storage
from tests.faults.bench import Actor, Bench, Image, Rows, digest
from tests.faults.fault_kinds import DELETES, Fault, Kind, forms
from tests.faults.fault_storage import Crash, FaultStorage, NoteCall, planned
from tests.faults.operations import OPERATIONS, Operation
from tests.faults.verdict import Outcome, Run, complaints

NO_CALL = 1 << 30
AFTER_THE_END = Fault(NO_CALL, Kind.POWER_CUT, "all")
"""The power is cut when the operation has ended and said so."""
KNOWN_LIMITS = (
    ("expire", Kind.STALE_LIST, "/tag"),  # a tag that a listing hides is not seen, and loses its files
    ("expire", Kind.IGNORED_DELETE, "/snapshot"),  # a snapshot file that is still there after its delete has lost its files
)
"""Operation, kind and directory of faults that it cannot stand, on storages that nobody has any more."""


@dataclass
class Figures:
    """`states` are the different ends that were judged; equal ends have equal verdicts."""

    runs: int = 0
    states: int = 0
    calls: int = 0
    by_kind: dict[str, int] = field(default_factory=dict)
    by_outcome: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def count(self, faults: Sequence[Fault], outcome: Outcome) -> None:
        self.runs += 1
        self.by_outcome[outcome.value] = self.by_outcome.get(outcome.value, 0) + 1
        for fault in faults:
            self.by_kind[fault.kind.value] = self.by_kind.get(fault.kind.value, 0) + 1

    def add(self, other: Figures) -> None:
        self.runs += other.runs
        self.states += other.states
        self.calls += other.calls
        self.failures += other.failures
        for mine, theirs in ((self.by_kind, other.by_kind), (self.by_outcome, other.by_outcome)):
            for name, number in theirs.items():
                mine[name] = mine.get(name, 0) + number


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
        self.figures = Figures()

    def single_faults(self) -> Iterator[Fault]:
        """Every fault that can happen to a call of an undisturbed run; those of later calls are reached by pairs."""
        calls = self.run(planned(())).calls
        self.figures.calls = len(calls)
        for number, name in enumerate(calls):
            for kind, detail in forms(name):
                yield Fault(number, kind, detail)
        yield AFTER_THE_END

    def try_fault(self, fault: Fault) -> None:
        storage = self.run(planned([fault]))
        if storage.hit != [fault]:
            self.figures.failures.append(f"{self.operation.name}: {fault} was not met; the run does not repeat")

    def run(self, fault_of: NoteCall) -> FaultStorage:
        """One run and its verdict."""
        self.bench.load(self.image, self._lives)
        rival = self.operation.rival
        storage = FaultStorage(self.bench.inner, fault_of, functools.partial(rival, self.bench) if rival else None)
        outcome, error = self._act(storage)
        if (last := fault_of(NO_CALL, "", "")) is not None:
            storage.cut_power(last)
            storage.hit.append(last)
            storage.hit_paths.append("")
        hit = storage.hit
        run = Run(self.operation, self.before, storage.rival_at is not None, outcome, self._must_be_clean(outcome, storage))
        found = [error] if error else []
        if outcome is Outcome.UNKNOWN and (deleted := storage.deleted[storage.deleted_before_put :]):
            found.append(f"deleted although the outcome is unknown: {deleted}")
        if storage.open_outputs and not storage.dead:
            found.append(f"left open: {sorted(storage.open_outputs)}")
        if not self._is_known_limit(storage):
            found += self._judge(run)
        self.figures.count(hit, outcome)
        if found:
            replay = f"{self.operation.name}: {', '.join(map(str, hit)) or 'no fault'}"
            self.figures.failures.append(f'python -m tests.faults.runs "{replay}"\n    ' + "\n    ".join(found))
        return storage

    def _act(self, storage: FaultStorage) -> tuple[Outcome, str | None]:
        try:
            self.operation.act(Actor(self.bench, storage, 0))
        except Crash:
            return Outcome.CRASHED, None
        except CommitUnknown:
            return Outcome.UNKNOWN, None
        except PaimonError:
            return Outcome.REFUSED, None
        except Exception as error:
            return Outcome.REFUSED, f"a user would see a traceback: {type(error).__name__}: {error}"
        return Outcome.DONE, None

    def _is_known_limit(self, storage: FaultStorage) -> bool:
        met = [(fault.kind, path.removeprefix(self.bench.root)) for fault, path in zip(storage.hit, storage.hit_paths, strict=True)]
        return any(
            self.operation.name == name and kind is limit and path.startswith(directory)
            for name, limit, directory in KNOWN_LIMITS
            for kind, path in met
        )

    def _must_be_clean(self, outcome: Outcome, storage: FaultStorage) -> bool:
        """Orphans are excused by a crash, an unknown outcome, and by faults that meet the removal of files itself."""
        if outcome not in (Outcome.DONE, Outcome.REFUSED) or (self.operation.is_gradual and storage.hit):
            return False
        removing = storage.rival_at if storage.rival_at is not None else len(storage.calls)
        return all(
            fault.call < removing and fault.kind is not Kind.OUTAGE and storage.calls[fault.call] not in DELETES
            for fault in storage.hit
        )

    def _judge(self, run: Run) -> list[str]:
        key = (digest(self.bench.save()), run.outcome, run.rival, run.must_be_clean)
        if key not in self._verdicts:
            self.figures.states += 1
            self._verdicts[key] = complaints(self.bench, run)
        return self._verdicts[key]


def memory_runs(operation: Operation, folder: Path) -> FaultRuns:
    """On a storage in memory."""
    return FaultRuns(operation, Bench(MemoryStorage(f"faults-{uuid.uuid4()}"), "/t", folder))


def storage_runs(operation: Operation, storage: Storage, root: str, folder: Path) -> FaultRuns:
    return FaultRuns(operation, Bench(storage, root, folder))


def main(line: str) -> int:
    """Do the run of a replay line again; 1 if something is wrong."""
    name, _, faults = line.partition(":")
    with tempfile.TemporaryDirectory() as folder:
        runs = memory_runs(OPERATIONS[name.strip()], Path(folder))
        plan = [Fault.parse(text) for text in faults.split(",") if text.strip() not in ("", "no fault")]
        storage = runs.run(planned(plan))
        for number, call in enumerate(storage.calls):
            print(f"{number:4} {call}")
        print("\n".join(runs.figures.failures) or "nothing is wrong")
        return int(bool(runs.figures.failures))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
