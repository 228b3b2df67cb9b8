"""The actors of a simulation: shipped jobs that run one storage call at a time, when the schedule lets them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from greenlet import getcurrent, greenlet

from paimon_cli.commit.deduplication import BATCH_IDENTIFIER
from paimon_cli.errors import CommitUnknown, Conflict, DamagedFile, NotFound, StorageUnavailable
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.row_sources import FileRows
from paimon_cli.invariants.version import Version
from paimon_cli.jobs.compact_job import run_compact
from paimon_cli.jobs.compact_request import CompactRequest
from paimon_cli.jobs.engine import NoProgress
from paimon_cli.jobs.write_job import run_write
from paimon_cli.jobs.write_request import WriteRequest
from paimon_cli.lab.simulation.oracle import ACKNOWLEDGED, REFUSED, UNKNOWN, Oracle
from paimon_cli.lab.simulation.paper_files import INSERT, BucketRows, PaperEngine, merged, paper_rows
from paimon_cli.lab.simulation.scenario import LOCK, PUT_IF_ABSENT
from paimon_cli.lab.simulation.schedule import CRASH, GO
from paimon_cli.lab.simulation.sim_lock import LockRow, SimulatedLock, UnprovenStorage
from paimon_cli.lab.simulation.sim_storage import Crash, SimDisk, SimStorage
from paimon_cli.maintain.expire_snapshots import expire_snapshots
from paimon_cli.maintain.needed_files import delete_files
from paimon_cli.maintain.orphans import find_orphans, remove_orphans
from paimon_cli.maintain.retention import Retention
from paimon_cli.maintain.tags import create_tag
from paimon_cli.metadata.data_file import EMPTY_ROW, BucketId
from paimon_cli.storage.storage import FileStatus, Storage

Job = Callable[["Actor"], None]
"""What an actor does from its start to its end, with `actor.context`; it reports to `actor.oracle` how its commits ended."""

BEGIN_MILLIS = 1_700_000_000_000
SKEW_MILLIS = 5_000
"""Clocks of two actors differ by so much: no order of times follows from the order of events."""


class Actor:
    """An actor. `history` is a digest of everything that it has seen: with the same history it continues in the same way."""

    def __init__(self, disk: SimDisk, lock: LockRow, oracle: Oracle, number: int, job: Job) -> None:
        self.disk = disk
        self.lock = lock
        self.oracle = oracle
        self.scenario = oracle.scenario
        self.number = number
        self.job = job
        self.life = 0
        self.outage = 0
        self.greenlet: greenlet | None = None
        self.dead = False
        self.begin()

    def begin(self) -> None:
        """Start a new life: a fresh process knows nothing of the one that crashed."""
        self.life += 1
        self.dead = self.finished = self.had_outage = self.was_unsure = self.lost_answer = False
        self.outage = 0
        self.history = self.life
        self.pending: tuple[str, str] | None = None
        self.ready: Callable[[], bool] | None = None
        self.passed = self.crash_after = 0
        scenario = self.scenario
        clock, random = ActorClock(self.number), ActorRandom(scenario.first_name + self.number, self.life)
        storage = self._storage(clock, random)
        self.context = TableContext(
            scenario.layout.root, storage, scenario.schema, scenario.options, clock, random, read_threads=1
        )
        self.greenlet = greenlet(self._live)

    def _storage(self, clock: ActorClock, random: ActorRandom) -> Storage:
        storage, root = SimStorage(self.disk, self.scenario, self), self.scenario.layout.root
        if self.scenario.store == PUT_IF_ABSENT:
            return storage
        lock = SimulatedLock(self, self.lock, root, clock, random) if self.scenario.store == LOCK else None
        return UnprovenStorage(storage, root, lock, allow_unsafe_commit=lock is None, random=random)

    def _live(self) -> None:
        try:
            self.job(self)
        except Crash:
            return
        except Exception as error:
            self.oracle.failed(self.number, error)
        self.finished = True

    # called by the scheduler

    def resume(self, fault: str = GO, place: int = 0) -> None:
        """Run to the next call that waits, or to the end."""
        assert self.greenlet is not None
        self.passed, self.crash_after = 0, place if fault == CRASH else 0
        self.pending = None
        if self.greenlet:
            self.greenlet.switch(GO if place else fault)
        else:
            self.greenlet.switch()  # the function of a new greenlet takes no argument

    def discard(self) -> None:
        """End a greenlet that is still waiting, without any effect."""
        self.dead = True
        if self.greenlet is not None and self.greenlet:
            self.greenlet.throw(Crash)

    @property
    def waits(self) -> bool:
        """Whether it can continue."""
        return self.is_on_its_way and (self.ready is None or self.ready())

    @property
    def is_on_its_way(self) -> bool:
        return self.pending is not None and not self.dead

    @property
    def gave_up(self) -> bool:
        """Whether it crashed, ended without knowing the outcome, or had to repeat a put because an answer was lost."""
        return self.dead or self.life > 1 or self.was_unsure or self.lost_answer

    @property
    def state(self) -> Any:
        return "dead" if self.dead else (self.history, self.outage)

    # called by the actor's own storage

    def wait(self, operation: str, path: str, ready: Callable[[], bool] | None = None) -> str:
        """Stop before a call that can be made once `ready` returns True; returns the fault that affects it."""
        self.pending, self.ready = (operation, path), ready
        return getcurrent().parent.switch()

    def died_at(self, fault: str) -> bool:
        self.dead = self.dead or fault == CRASH
        return self.dead

    def pass_by(self) -> str:
        self.passed += 1
        return CRASH if self.passed == self.crash_after else GO

    def changed(self, path: str) -> None:
        self.oracle.changed(self, path)

    def saw(self, operation: str, path: str, result: Any) -> None:
        if isinstance(result, list):
            result = tuple(entry.name for entry in result if isinstance(entry, FileStatus))
        self.history = hash((self.history, operation, path, result))


class ActorClock:
    """A clock on which time passes only when the actor sleeps."""

    def __init__(self, number: int) -> None:
        self._now = BEGIN_MILLIS + number * SKEW_MILLIS

    def now_millis(self) -> int:
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += int(seconds * 1000)


class ActorRandom:
    """UUIDs with actor, count and life in their first digits, so that names in messages can be read.

    The last digits are the count too, because files of one job share the first half of their UUID.
    """

    def __init__(self, number: int, life: int) -> None:
        self._number = number
        self._middle = f"-{life:04x}-4000-8000-00000000"
        self.count = 0

    def uuid(self) -> str:
        self.count += 1
        return str(self)

    def __str__(self) -> str:
        """The last UUID."""
        return f"{self._number:04x}{self.count:04x}{self._middle}{self.count:04x}"

    def jitter(self) -> float:
        return 0.5


MOST_INCREMENT_TRIES = 10


def rows(bucket: int, *keys: int, value: str = "", kind: int = INSERT) -> BucketRows:
    """Rows of one bucket; the default value is the text of the key."""
    return {bucket: [(key, kind, value or f"v{key}") for key in keys]}


def writer(user: str, *batches: BucketRows, repeatable: bool = False) -> Job:
    """One `write` after the other. `repeatable`: under one user with identifiers, so that a restart continues where it
    stopped.
    """

    def run(actor: Actor) -> None:
        for number, batch in enumerate(batches, 1):
            if repeatable:
                write(actor, batch, WriteRequest(FileRows(), commit_user=user, commit_id=number))
            else:
                write(actor, batch, WriteRequest(FileRows(), commit_user=f"{user}-{number}"))

    return run


def overwriter(user: str, batch: BucketRows) -> Job:
    """Replace all rows with these."""

    def run(actor: Actor) -> None:
        write(actor, batch, WriteRequest(FileRows(), commit_user=user, overwrite=True))

    return run


def write(actor: Actor, batch: BucketRows, request: WriteRequest) -> str:
    """Run `write`; returns how it ended."""
    user, identifier = str(request.commit_user), request.commit_id or BATCH_IDENTIFIER

    def job() -> None:
        run_write(actor.context, request, PaperEngine(batch), NoProgress())

    return run_and_report(actor, user, batch, job, identifier=identifier, overwrites=request.overwrite)


def run_and_report(
    actor: Actor,
    user: str,
    batch: BucketRows,
    job: Callable[[], object],
    *,
    identifier: int = BATCH_IDENTIFIER,
    overwrites: bool = False,
) -> str:
    """Run a job that is to commit these rows; the oracle is notified before and after."""
    actor.oracle.wants(user, identifier, batch, overwrites)
    end = end_of(actor, job)
    actor.oracle.ended(user, identifier, end)
    return end


def compactor(strategy: str = "full", buckets: tuple[int, ...] = ()) -> Job:
    """Run `compact`; after a conflict it plans again."""

    def run(actor: Actor) -> None:
        request = CompactRequest(strategy=strategy, buckets=buckets)
        end_of(actor, lambda: run_compact(actor.context, request, PaperEngine(), NoProgress()))

    return run


def end_of(actor: Actor, job: Callable[[], object]) -> str:
    """Run and return how it ended. Errors that only an expiry or an outage explains count as refusals there, else as failures."""
    oracle, scenario = actor.oracle, actor.scenario
    try:
        job()
        return ACKNOWLEDGED
    except Conflict:
        return REFUSED
    except StorageUnavailable as error:
        if not actor.had_outage:
            oracle.failed(actor.number, error)
        return REFUSED
    except CommitUnknown as error:
        actor.was_unsure = True
        if not actor.had_outage and not scenario.files_vanish:
            oracle.failed(actor.number, error)
        return UNKNOWN
    except (NotFound, DamagedFile) as error:
        if not scenario.files_vanish:
            oracle.failed(actor.number, error)
        return REFUSED


def expirer(keep: int = 1, limit: int | None = None) -> Job:
    """Expire all snapshots but the newest `keep`, whatever their age."""

    def run(actor: Actor) -> None:
        retention = Retention(at_least=keep, at_most=keep, millis=0, limit=limit)
        end_of(actor, lambda: expire_snapshots(actor.context, retention))

    return run


def tagger(name: str, snapshot_id: int) -> Job:
    """Tag a snapshot, which may be gone, or be deleted at the same time."""

    def run(actor: Actor) -> None:
        end_of(actor, lambda: create_tag(actor.context, name, snapshot_id))

    return run


LITTER = ("bucket-0/data-litter.paper", "manifest/manifest-litter-0")


def litterer() -> Job:
    """Leave the files of a writer that dies before its commit."""

    def run(actor: Actor) -> None:
        for path in LITTER:
            actor.context.storage.write_new(f"{actor.context.layout.root}/{path}", b"litter")

    return run


def orphan_remover() -> Job:
    """Delete files as old as the beginning that no version names; if this finishes, none of the orphans may be left."""

    def run(actor: Actor) -> None:
        def clean() -> None:
            orphans = find_orphans(actor.context, older_than=1)
            remove_orphans(actor.context, orphans, delete_files(actor.context))

        if end_of(actor, clean) == ACKNOWLEDGED:
            left = [path for path in LITTER if actor.context.storage.exists(f"{actor.context.layout.root}/{path}")]
            if left:
                actor.oracle.failed(actor.number, AssertionError(f"orphans are left: {left}"))

    return run


def in_turn(*jobs: Job) -> Job:
    """One actor that runs several jobs in turn."""

    def run(actor: Actor) -> None:
        for job in jobs:
            job(actor)

    return run


def read_modify_write(user: str, bucket: int, key: int) -> Job:
    """Raise a counter by one: read it at the latest snapshot, write it as a job that has read that snapshot.

    After a data conflict it starts again, as `update` does; the oracle counts the acknowledged increments.
    """

    def run(actor: Actor) -> None:
        for attempt in range(MOST_INCREMENT_TRIES):
            snapshot = actor.context.snapshots.latest()
            assert snapshot is not None
            value = str(int(_value(actor, Version(actor.context, snapshot), bucket, key)) + 1)
            request = WriteRequest(FileRows(), commit_user=f"{user}-{attempt}", read_snapshot=snapshot.id)
            if write(actor, rows(bucket, key, value=value), request) != REFUSED:
                actor.oracle.incremented(key)
                return

    return run


def _value(actor: Actor, version: Version, bucket: int, key: int) -> str:
    """The value that a reader sees of one key, through the actor's own storage."""
    storage = actor.context.storage
    entries = version.buckets[BucketId(EMPTY_ROW, bucket)]
    found = merged((entry.file, paper_rows(storage.read_bytes(version.file_path(entry)))) for entry in entries)
    return next(row[3] for row in found if row[0] == key)
