"""The actors of a simulation: shipped jobs that run one storage call at a time, when the schedule lets them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from greenlet import getcurrent, greenlet

from paimon_cli.commit.deduplication import BATCH_IDENTIFIER
from paimon_cli.errors import CommitUnknown, Conflict, DamagedFile, NotFound, PartialSuccess, StorageUnavailable
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.row_sources import FileRows
from paimon_cli.invariants.version import Version
from paimon_cli.jobs.compact_job import CompactSummary, run_compact
from paimon_cli.jobs.compact_request import CompactRequest
from paimon_cli.jobs.engine import Engine, NoProgress
from paimon_cli.jobs.write_job import WriteSummary, run_write
from paimon_cli.jobs.write_request import WriteRequest
from paimon_cli.lab.simulation.oracle import ACKNOWLEDGED, REFUSED, UNKNOWN
from paimon_cli.lab.simulation.paper_files import INSERT, BucketRows, PaperEngine, merged, paper_rows
from paimon_cli.lab.simulation.scenario import LOCK, PUT_IF_ABSENT, Scenario
from paimon_cli.lab.simulation.schedule import FAILURE, LOST_CHANGE, OUTAGE, REFUSAL
from paimon_cli.lab.simulation.script import Call, Line, Report, count_lines
from paimon_cli.lab.simulation.sim_lock import SimulatedLock, UnprovenStorage
from paimon_cli.lab.simulation.sim_storage import SimDisk, SimStorage
from paimon_cli.maintain.expire_snapshots import expire_snapshots
from paimon_cli.maintain.needed_files import delete_files
from paimon_cli.maintain.orphans import find_orphans, remove_orphans
from paimon_cli.maintain.retention import Retention
from paimon_cli.maintain.tags import create_tag
from paimon_cli.metadata.data_file import EMPTY_ROW, BucketId
from paimon_cli.storage.storage import Storage
from paimon_cli.storage.threads import THREADS, Concurrency, running_by

Job = Callable[["Actor"], None]
"""All work of an actor on `actor.context`; it reports the outcomes of its commits to `actor.oracle`."""

BEGIN_MILLIS = 1_700_000_000_000
REMOTE_THREADS = 2
"""The number of concurrent reads of metadata on an object store; more change nothing in the order of requests."""
SKEW_MILLIS = 5_000
"""The difference between the clocks of two actors, so that the order of timestamps is not the order of events."""


class Actor:
    """The process in which a job runs: it stops at each storage call, and continues with the answer.

    An actor that starts at a later line of its script first receives all answers that lead there.
    """

    def __init__(self, scenario: Scenario, disk: SimDisk, number: int, life: int, line: Line | None = None) -> None:
        self.scenario = scenario
        self.disk = disk
        """Only for recognising tasks that have run before; jobs access the disk by storage calls."""
        self.number = number
        self.oracle = Reports()
        self.had_outage = False
        self._may_commit = False
        self._is_discarded = False
        clock, random = ActorClock(number), ActorRandom(scenario.first_name + number, life)
        storage = self._storage(clock, random)
        threads = REMOTE_THREADS if scenario.is_remote else 1
        self.context = TableContext(
            scenario.layout.root, storage, scenario.schema, scenario.options, clock, random, read_threads=threads
        )
        self._greenlet = greenlet(self._live)
        first = self._greenlet.switch()
        if line is None:
            self.line = Line(first, hash((life, first)), None, self.oracle.taken())
        else:
            self._replay_to(first, line)

    def _storage(self, clock: ActorClock, random: ActorRandom) -> Storage:
        storage, root = self._store(), self.scenario.layout.root
        if self.scenario.store == PUT_IF_ABSENT:
            return storage
        lock = SimulatedLock(self._ask, root, clock, random) if self.scenario.store == LOCK else None
        return UnprovenStorage(storage, root, lock, allow_unsafe_commit=lock is None, random=random)

    def _store(self) -> Storage:
        if not self.scenario.is_remote:
            return SimStorage(self._ask)
        from paimon_cli.lab.simulation.sim_objects import object_storage  # needs obstore, which is optional

        return object_storage(self.scenario.layout, self._ask)

    def _concurrency(self) -> Concurrency:
        if not self.scenario.is_remote:
            return THREADS
        from paimon_cli.lab.simulation.requests_in_turn import IN_TURN

        return IN_TURN

    def _live(self) -> None:
        try:
            with running_by(self._concurrency()):
                self.context.snapshots.fetch_hint()
                self.scenario.jobs[self.number](self)
        except Discarded:
            return
        except Exception as error:
            if not (self.had_outage and isinstance(error, StorageUnavailable)):
                self.oracle.failed(self.number, error)

    def check_commit(self) -> None:
        """Fetch the newest snapshot ahead of the first job, as `OpenedTable.check_commit` does."""
        self.context.snapshots.forget_fetched()
        if not self._may_commit:
            self._may_commit = True
            self.context.snapshots.fetch_latest()

    def _ask(self, call: Call) -> Any:
        """Called by the actor's storage: wait for the answer."""
        if self._is_discarded:
            raise Discarded
        answer = getcurrent().parent.switch(call)
        self.had_outage = self.had_outage or answer in (OUTAGE, REFUSAL, FAILURE, LOST_CHANGE)
        return answer

    def _replay_to(self, first: Call | None, line: Line) -> None:
        for earlier in line.lines_to_here():
            call = first if earlier.before is None else self._greenlet.switch(earlier.before[1])
            if call != earlier.call:
                raise RuntimeError(
                    f"actor {self.number} made call {call}, but after the same answers it made {earlier.call} before"
                )
        self.oracle.taken()
        self.line = line

    def proceed(self, answer: Any) -> Line:
        """Run to the next call, and add its line to the script."""
        call = self._greenlet.switch(answer)
        self.line = self.line.follow(answer, call, self.oracle.taken())
        count_lines(1)
        return self.line

    def discard(self) -> None:
        """End the process without any further effect."""
        self._is_discarded = True
        if self._greenlet:
            self._greenlet.throw(Discarded)


class Discarded(BaseException):
    """Ends a discarded actor, whose calls have no effect."""


class Reports:
    """Records the reports of a job to the oracle, to be repeated in all runs that follow the same script."""

    def __init__(self) -> None:
        self._made: list[Report] = []

    def taken(self) -> list[Report]:
        """Return the reports since the last call, and clear them."""
        made, self._made = self._made, []
        return made

    def announces(self, user: str, identifier: int, rows: BucketRows, overwrites: bool = False) -> None:
        self._made.append(Report("announces", (user, identifier, rows, overwrites)))

    def ended(self, user: str, identifier: int, end: str) -> None:
        self._made.append(Report("ended", (user, identifier, end)))

    def incremented(self, key: int) -> None:
        self._made.append(Report("incremented", (key,)))

    def gave_up(self, number: int) -> None:
        self._made.append(Report("gave_up", (number,)))

    def began(self, number: int) -> None:
        self._made.append(Report("began", (number,)))

    def lost_compaction(self, number: int, why: str) -> None:
        self._made.append(Report("lost_compaction", (number, why)))

    def left_files(self, number: int) -> None:
        self._made.append(Report("left_files", (number,)))

    def failed(self, number: int, error: BaseException) -> None:
        self._made.append(Report("failed", (number, error)))


class ActorClock:
    """A clock on which time passes only when the actor sleeps."""

    def __init__(self, number: int) -> None:
        self._now = BEGIN_MILLIS + number * SKEW_MILLIS

    def now_millis(self) -> int:
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += int(seconds * 1000)


class ActorRandom:
    """UUIDs whose first digits are the actor, a counter and the life, so that file names in messages are readable.

    The last digits repeat the counter, because files of one job share the first half of their UUID.
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


MAX_INCREMENT_TRIES = 10


def rows(bucket: int, *keys: int, value: str = "", kind: int = INSERT) -> BucketRows:
    """Rows of one bucket; the default value is the text of the key."""
    return {bucket: [(key, kind, value or f"v{key}") for key in keys]}


def writer(user: str, *batches: BucketRows, repeatable: bool = False) -> Job:
    """Runs one `write` per batch.

    `repeatable`: all writes have one commit user and numbered identifiers, so a restart continues where the job stopped.
    """

    def run(actor: Actor) -> None:
        for number, batch in enumerate(batches, 1):
            if repeatable:
                write(actor, batch, WriteRequest(FileRows(), commit_user=user, commit_id=number))
            else:
                write(actor, batch, WriteRequest(FileRows(), commit_user=f"{user}-{number}"))

    return run


def overwriter(user: str, batch: BucketRows) -> Job:
    """Replaces all rows with these."""

    def run(actor: Actor) -> None:
        write(actor, batch, WriteRequest(FileRows(), commit_user=user, overwrite=True))

    return run


def write(actor: Actor, batch: BucketRows, request: WriteRequest) -> str:
    """Run `write`; returns its outcome."""
    user, identifier = str(request.commit_user), request.commit_id or BATCH_IDENTIFIER

    def job() -> WriteSummary:
        return run_write(actor.context, request, PaperEngine(batch), NoProgress())

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
    """Run a job that is to commit these rows, and report its start and outcome to the oracle."""
    actor.oracle.announces(user, identifier, batch, overwrites)
    end = end_of(actor, job)
    actor.oracle.ended(user, identifier, end)
    return end


def compactor(strategy: str = "full", buckets: tuple[int, ...] = ()) -> Job:
    """Runs `compact`, which makes a new plan after a conflict."""

    def run(actor: Actor) -> None:
        compact(actor, CompactRequest(strategy=strategy, buckets=buckets), PaperEngine())

    return run


def compact(actor: Actor, request: CompactRequest, engine: Engine) -> None:
    """Run `compact`. A conflict that other actors have not caused is a failure."""

    def job() -> CompactSummary:
        try:
            return run_compact(actor.context, request, engine, NoProgress())
        except Conflict as conflict:
            actor.oracle.lost_compaction(actor.number, str(conflict))
            raise

    end_of(actor, job)


def end_of(actor: Actor, job: Callable[[], object]) -> str:
    """Run a job; returns its outcome. Errors that an expiry or outage can cause are failures only in scenarios without one."""
    oracle, scenario = actor.oracle, actor.scenario
    actor.check_commit()
    oracle.began(actor.number)
    try:
        result = job()
        _judge_summary(actor, result)
        return ACKNOWLEDGED
    except Conflict:
        return REFUSED
    except (StorageUnavailable, PartialSuccess) as error:
        if not actor.had_outage:
            oracle.failed(actor.number, error)
        return REFUSED
    except CommitUnknown as error:
        oracle.gave_up(actor.number)
        oracle.left_files(actor.number)
        if not actor.had_outage and not scenario.files_vanish:
            oracle.failed(actor.number, error)
        return UNKNOWN
    except (NotFound, DamagedFile) as error:
        if not scenario.files_vanish:
            oracle.failed(actor.number, error)
        return REFUSED


def _judge_summary(actor: Actor, summary: object) -> None:
    """Report the compactions that were refused although the job succeeded."""
    if isinstance(summary, WriteSummary) and summary.compaction_lost:
        actor.oracle.lost_compaction(actor.number, summary.compaction_lost)
    if isinstance(summary, CompactSummary) and summary.conflicts:
        actor.oracle.lost_compaction(actor.number, "other jobs have changed its buckets")


def _delete_files(actor: Actor, job: Callable[[], object]) -> str:
    """Run a job that may be left half done, with files that nothing names any more."""
    end = end_of(actor, job)
    if end != ACKNOWLEDGED:
        actor.oracle.left_files(actor.number)
    return end


def expirer(keep: int = 1, limit: int | None = None) -> Job:
    """Expires all snapshots except the newest `keep`, regardless of their age."""

    def run(actor: Actor) -> None:
        retention = Retention(at_least=keep, at_most=keep, millis=0, limit=limit)
        _delete_files(actor, lambda: expire_snapshots(actor.context, retention))

    return run


def tagger(name: str, snapshot_id: int) -> Job:
    """Tags a snapshot, which may have expired, or may expire at the same time."""

    def run(actor: Actor) -> None:
        _delete_files(actor, lambda: create_tag(actor.context, name, snapshot_id))

    return run


LITTER = ("bucket-0/data-litter.paper", "manifest/manifest-litter-0")


def litterer() -> Job:
    """Leaves files like a writer that crashed before its commit."""

    def run(actor: Actor) -> None:
        for path in LITTER:
            actor.context.storage.write_new(f"{actor.context.layout.root}/{path}", b"litter")

    return run


def orphan_remover() -> Job:
    """Deletes initial files that nothing references; once it finishes, all files of `litterer` must be gone."""

    def run(actor: Actor) -> None:
        def clean() -> None:
            orphans = find_orphans(actor.context, older_than=1)
            remove_orphans(actor.context, orphans, delete_files(actor.context))

        if _delete_files(actor, clean) == ACKNOWLEDGED:
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
    """Increments a counter: reads it at the latest snapshot, and writes it with that snapshot as the one that was read.

    After a data conflict it retries, as `update` does; the oracle counts the acknowledged increments.
    """

    def run(actor: Actor) -> None:
        for attempt in range(MAX_INCREMENT_TRIES):
            snapshot = actor.context.snapshots.latest()
            assert snapshot is not None
            value = str(int(_value(actor, Version(actor.context, snapshot), bucket, key)) + 1)
            request = WriteRequest(FileRows(), commit_user=f"{user}-{attempt}", read_snapshot=snapshot.id)
            end = write(actor, rows(bucket, key, value=value), request)
            if end == ACKNOWLEDGED:
                actor.oracle.incremented(key)
            if end != REFUSED:
                return

    return run


def _value(actor: Actor, version: Version, bucket: int, key: int) -> str:
    """The value of a key, read through the actor's storage."""
    storage = actor.context.storage
    entries = version.buckets[BucketId(EMPTY_ROW, bucket)]
    found = merged((entry.file, paper_rows(storage.read_bytes(version.file_path(entry)))) for entry in entries)
    return next(row[3] for row in found if row[0] == key)
