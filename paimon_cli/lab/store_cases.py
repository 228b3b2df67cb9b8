"""Cases of stores without put-if-absent: each remedy against two commits at once, and a lock whose holder sleeps too long."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from greenlet import getcurrent, greenlet

from paimon_cli.errors import CommitUnknown, PaimonError
from paimon_cli.invariants.violation import ERROR
from paimon_cli.lab.lab_table import LabClock, LabSetting, LabTable, Writer
from paimon_cli.lab.story import CONDITIONAL, OVERWRITTEN, PUBLISHED, NarratedStorage, Story
from paimon_cli.metadata.table_layout import SNAPSHOT_PREFIX
from paimon_cli.storage.catalog_options import LockSettings
from paimon_cli.storage.commit_lock import CommitLock
from paimon_cli.storage.guarded_storage import GuardedStorage, check_commits
from paimon_cli.storage.storage import Storage

COLUMNS = {"k": "INT NOT NULL", "v": "STRING"}
_NO_REMEDY, _UNSAFE, _ONE_WRITER, _LOCK = "no remedy", "--allow-unsafe-commit", "--allow-unsafe-commit, one writer", "lock"
LOCK_AND_PUT = "lock and put-if-absent"
LOCK_SETTINGS = LockSettings("the lock database")
NAP_SECONDS = LOCK_SETTINGS.acquire_timeout // 1000 + 60
"""Longer than the lock is valid."""


@dataclass
class LabLockRow:
    """The row of the lock table: its owner, and when it was inserted."""

    clock: LabClock
    owner: str = ""
    since: int = 0

    @property
    def age(self) -> float:
        return (self.clock.now_millis() - self.since) / 1000


class LabLockTable:
    """The statements of one writer on the lock's row, told as steps. `before_look`: called once, before it looks at the row."""

    def __init__(self, row: LabLockRow, record: Callable[..., None]) -> None:
        self._row = row
        self._record = record
        self._is_waiting = False
        self.before_look: Callable[[], object] | None = None

    def close(self) -> None:
        """There is no connection to close."""

    def remove_expired(self, connection: Any, lock_id: str, life: int = LOCK_SETTINGS.acquire_timeout // 1000) -> None:
        if self._row.owner and self._row.age > life:
            self._row.owner = ""
            self._record("removes the expired lock", f"it is {self._row.age:g} s old")

    def insert(self, connection: Any, lock_id: str, owner: str, expiry_seconds: int) -> bool:
        if self._row.owner:
            if not self._is_waiting:
                self._record("wants the lock", "it is taken: waits")
            self._is_waiting = True
            return False
        self._row.owner, self._row.since, self._is_waiting = owner, self._row.clock.now_millis(), False
        self._record("takes the lock", f"it expires after {expiry_seconds} s")
        return True

    def seconds_left(self, connection: Any, lock_id: str) -> float:
        return LOCK_SETTINGS.acquire_timeout / 1000 - self._row.age

    def age_seconds(self, connection: Any, lock_id: str, owner: str) -> float | None:
        if self.before_look is not None:
            first, self.before_look = self.before_look, None
            first()
        is_own = self._row.owner == owner
        outcome = "it is still its own" if is_own else "it is not its own any more"
        self._record("looks at the lock", outcome, is_conflict=not is_own)
        return self._row.age if is_own else None

    def delete(self, connection: Any, lock_id: str, owner: str) -> bool:
        is_own = self._row.owner == owner
        if is_own:
            self._row.owner = ""
        self._record("gives the lock back", "" if is_own else "it was not its own any more")
        return is_own


class LabLock(CommitLock):
    """The shipped lock on the lab's row."""

    def __init__(self, table: LabLockTable, root: str, clock: Any, random: Any) -> None:
        super().__init__(LOCK_SETTINGS, root, clock, random)
        self._table = table

    def _connect(self) -> Any:
        return self._table, self._table


class WaitingClock:
    """The clock of a writer that waits for a lock: while it sleeps, the writer that started it goes on."""

    def __init__(self, clock: LabClock) -> None:
        self._clock = clock

    def now_millis(self) -> int:
        return self._clock.now_millis()

    def sleep(self, seconds: float) -> None:
        self._clock.sleep(seconds)
        if (other := getcurrent().parent) is not None:
            other.switch()


class OverwritingStore(NarratedStorage):
    """A store that replaces existing files, and tells so. `before_write`: called once, before the next snapshot is written."""

    before_write: Callable[[], object] | None = None

    def overwrite(self, path: str, data: bytes) -> None:
        name = path.rpartition("/")[2]
        if not name.startswith(SNAPSHOT_PREFIX):
            return self.inner.overwrite(path, data)
        if self.before_write is not None:
            others, self.before_write = self.before_write, None
            others()
        is_taken = self.inner.exists(path)
        self.inner.overwrite(path, data)
        self._record(f"overwrite {name}", f"writes {name}", OVERWRITTEN if is_taken else PUBLISHED, is_taken)
        return None


class LabStore(GuardedStorage):
    """The shipped guard of commits on the lab's store. `has_put`: whether that has a conditional put."""

    def __init__(self, inner: Storage, root: str, lock: LabLock | None, store: str, random: Any) -> None:
        super().__init__(inner, root, lock, store in (_UNSAFE, _ONE_WRITER), random)
        self._has_put = store in (CONDITIONAL, LOCK_AND_PUT)

    @property
    def _has_primitive(self) -> bool:
        return self._has_put


class Guarded:
    """A table on one kind of store with two writers, which commit under the guard that the catalog would give them."""

    def __init__(self, case: str, setting: LabSetting, store: str) -> None:
        self.table = LabTable(Story(case, (setting.check,), store), setting, COLUMNS, "k", {"bucket": "2"})
        self.keys, self.store = self.table.keys_of_buckets(), store
        self._row = LabLockRow(self.table.clock)
        self.stores: dict[str, OverwritingStore] = {}
        self.locks: dict[str, LabLockTable] = {}
        self.acknowledged: dict[int, str] = {}

    def writer(self, letter: str) -> Writer:
        """A writer with rows of its own that are ready to be committed."""
        writer = Writer(self.table, f"writer {letter}")
        writer.prepare([{"k": self.keys["AB".index(letter)], "v": letter}])
        context = writer.context
        self.stores[letter] = store = OverwritingStore(writer.storage.inner, self.table.story, writer.name)
        clock = WaitingClock(self.table.clock)
        self.locks[letter] = table = LabLockTable(self._row, writer.record)
        lock = LabLock(table, context.url, clock, context.random) if self.store in (_LOCK, LOCK_AND_PUT) else None
        guarded = LabStore(store, context.url, lock, self.store, context.random)
        writer.context = replace(context, storage=guarded, clock=clock)
        return writer

    def commit(self, writer: Writer) -> None:
        """Commit, and note what was acknowledged. Refusals and unknown outcomes are recorded."""
        letter = writer.name[-1]
        try:
            if (warning := check_commits(writer.context.storage)) is not None:
                writer.record("is warned", warning)
            if writer.commit():
                writer.record("learns that its commit is in the table")
                self.acknowledged[self.keys["AB".index(letter)]] = letter
        except CommitUnknown as unknown:
            outcome = f"{unknown}; it deletes nothing"
            writer.record(f"ends with exit {unknown.exit_code} {unknown.code}", outcome, is_conflict=True)
        except PaimonError as error:
            writer.record(f"fails, exit {error.exit_code} {error.code}", str(error), is_conflict=True)

    def end(self, good: str) -> Story:
        visible = {row["k"]: row["v"] for row in self.table.rows()}
        lost = [letter for key, letter in self.acknowledged.items() if visible.get(key) != letter]
        broken = [violation for violation in self.table.end() if violation.severity == ERROR]
        bad = f"{' and '.join(lost)}'s commit was acknowledged, but its snapshot is gone" if lost else "the table is damaged"
        is_correct = not lost and not broken
        return self.table.story.end(is_correct, good if is_correct else bad)


def remedies(setting: LabSetting) -> list[Story]:
    """Two commits at once on a store without put-if-absent, under each remedy, and on one that has it."""
    verdicts = {
        _NO_REMEDY: "nothing was lost, because nothing was committed: each commit is refused before its first put",
        _UNSAFE: "both commits are there",
        _ONE_WRITER: "the commits of one writer after another are there: with --allow-unsafe-commit keep it so",
        _LOCK: "both commits are there: the second one waited for the lock",
        CONDITIONAL: "both commits are there: the store refused the second put of the number",
    }
    return [_two_commits(setting, store, good) for store, good in verdicts.items()]


def _two_commits(setting: LabSetting, store: str, good: str) -> Story:
    guarded = Guarded("no-put-if-absent", setting, store)
    first, second = guarded.writer("A"), guarded.writer("B")
    other = greenlet(lambda: guarded.commit(second))
    if store != _ONE_WRITER:
        guarded.stores["A"].before_write = guarded.stores["A"].before_put = other.switch
    guarded.commit(first)
    while not other.dead:
        other.switch()
    return guarded.end(good)


BEFORE_LOOK, AFTER_LOOK = "before its last look at the lock", "between its last look at the lock and its write"


def lost_lock(setting: LabSetting) -> list[Story]:
    """The holder of the lock sleeps until it has expired: noticed, too late to be noticed, and harmless with put-if-absent."""
    return [
        _sleeping_holder(setting, _LOCK, BEFORE_LOOK, "A has noticed that it lost the lock, wrote nothing, and can be run again"),
        _sleeping_holder(setting, _LOCK, AFTER_LOOK, "both commits are there"),
        _sleeping_holder(setting, LOCK_AND_PUT, AFTER_LOOK, "both commits are there: the store refused the late put of A"),
    ]


def _sleeping_holder(setting: LabSetting, store: str, when: str, good: str) -> Story:
    guarded = Guarded("lost-lock", setting, store)
    first, second = guarded.writer("A"), guarded.writer("B")

    def sleep() -> None:
        first.record(f"sleeps {NAP_SECONDS} s", when)
        guarded.table.clock.sleep(NAP_SECONDS)
        guarded.commit(second)

    if when == BEFORE_LOOK:
        guarded.locks["A"].before_look = sleep
    else:
        guarded.stores["A"].before_write = guarded.stores["A"].before_put = sleep
    guarded.commit(first)
    return guarded.end(good)
