"""The actors of a simulation: shipped jobs that run one storage call at a time, when the schedule lets them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from greenlet import getcurrent, greenlet

from paimon_cli.errors import StorageUnavailable
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.table_place import TablePlace
from paimon_cli.lab.simulation.json_files import BucketRows
from paimon_cli.lab.simulation.scenario import LOCK, PUT_IF_ABSENT, Scenario
from paimon_cli.lab.simulation.schedule import FAILURE, LOST_CHANGE, LOST_REQUEST, OUTAGE, REFUSAL
from paimon_cli.lab.simulation.script import Report, ScriptNode, StorageCall, count_lines
from paimon_cli.lab.simulation.sim_lock import SimulatedLock, UnprovenStorage
from paimon_cli.lab.simulation.sim_storage import SimDisk, SimStorage
from paimon_cli.storage.overlapped_storage import UPLOADS
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

    def __init__(self, scenario: Scenario, disk: SimDisk, number: int, life: int, line: ScriptNode | None = None) -> None:
        self.scenario = scenario
        self.disk = disk
        """Only for recognising tasks that have run before; jobs access the disk by storage calls."""
        self.number = number
        self.oracle = OracleReports()
        self.had_outage = False
        self.lost_a_request = False
        self._may_commit = False
        self._is_discarded = False
        clock, random = ActorClock(number), ActorRandom(scenario.first_name + number, life)
        storage = self._storage(clock, random)
        threads = REMOTE_THREADS if scenario.is_remote else 1
        place, definition = TablePlace(scenario.layout.root, scenario.layout.root), scenario.definition
        self.context = TableContext(place, storage, definition, clock=clock, random=random, read_threads=threads)
        self._greenlet = greenlet(self._live)
        first = self._greenlet.switch()
        if line is None:
            self.line = ScriptNode(first, hash((life, first)), None, self.oracle.taken())
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

    def _ask(self, call: StorageCall) -> Any:
        """Called by the actor's storage: wait for the answer."""
        if self._is_discarded:
            raise Discarded
        answer = getcurrent().parent.switch(call)
        self.had_outage = self.had_outage or answer in (OUTAGE, REFUSAL, FAILURE, LOST_CHANGE)
        self.lost_a_request = self.lost_a_request or answer == LOST_REQUEST
        return answer

    def _replay_to(self, first: StorageCall | None, line: ScriptNode) -> None:
        for earlier in line.lines_to_here():
            call = first if earlier.before is None else self._greenlet.switch(earlier.before[1])
            if call != earlier.call:
                raise RuntimeError(
                    f"actor {self.number} made call {call}, but after the same answers it made {earlier.call} before"
                )
        self.oracle.taken()
        self.line = line

    def proceed(self, answer: Any) -> ScriptNode:
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


class OracleReports:
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

    def dropped(self) -> None:
        self._made.append(Report("dropped", ()))

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

    The last digits repeat the life and the counter, because files of one job share the first half of their UUID.
    """

    def __init__(self, number: int, life: int) -> None:
        self._number = number
        self._middle = f"-{life:04x}-4000-8000-0000{life:04x}"
        self.count = 0

    def uuid(self) -> str:
        self.count += 1
        return str(self)

    def __str__(self) -> str:
        """The last UUID."""
        return f"{self._number:04x}{self.count:04x}{self._middle}{self.count:04x}"

    def jitter(self) -> float:
        return 0.5


class InTurn(Executor):
    """Runs calls in the thread that submits them, or (`late`) in the one that waits for the result of any of them.

    Each request runs at the time at which an error would show. A read that is ahead of its use runs at once, so that its result
    is as old as possible. An upload runs when something waits for it, so that a snapshot that was published without waiting lacks
    the file.
    """

    def __init__(self, *, late: bool) -> None:
        self._late = late
        self._waiting: deque[_Due] = deque()

    def submit(self, fn: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        due = _Due(self, lambda: fn(*arguments, **named))
        self._waiting.append(due)
        if not self._late:
            self.catch_up()
        return due

    def catch_up(self) -> None:
        """Run all calls that wait, oldest first."""
        while self._waiting:
            self._waiting.popleft().run()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        if cancel_futures:
            while self._waiting:
                self._waiting.popleft().cancel()
        elif wait:
            self.catch_up()


class _Due(Future[Any]):
    """The result of a call that runs at the latest when it is waited for."""

    def __init__(self, executor: InTurn, call: Callable[[], Any]) -> None:
        super().__init__()
        self._executor = executor
        self._call = call

    def run(self) -> None:
        """Run the call. What is not an `Exception` ends the process of the job, and is not kept as a result."""
        if not self.set_running_or_notify_cancel():
            return
        try:
            self.set_result(self._call())
        except Exception as error:
            self.set_exception(error)

    def result(self, timeout: float | None = None) -> Any:
        self._executor.catch_up()
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._executor.catch_up()
        return super().exception(0)


IN_TURN = Concurrency(lambda threads, purpose: InTurn(late=purpose.endswith(UPLOADS)), lambda: 0.0)
"""Reads run at once, uploads when they are waited for, and no time passes."""
