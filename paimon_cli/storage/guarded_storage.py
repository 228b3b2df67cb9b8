"""Safe publication on storages that do not guarantee it: a conditional put that was tried, or a lock.

A store that claims a conditional put is probed before the first commit relies on it.
"""

from __future__ import annotations

import contextlib
import enum
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

from paimon_cli.errors import Refused, StorageUnavailable
from paimon_cli.storage.clock_and_random import RandomSource, SystemRandom
from paimon_cli.storage.storage import OverlapsRequests, PutOutcome, Storage, WrappedStorage

PROBE_PREFIX = ".commit-probe-"
"""Directories of probes in a table's root; readers look for names of their own only."""

MARKER = f"{PROBE_PREFIX}passed/marker"
"""The file that stays in the root after a probe has passed: later processes need one request to test the condition again."""

_TRIES = 3
_proven: dict[tuple[Storage, str], bool] = {}
_proven_lock = threading.Lock()


def has_primitive(storage: Storage, root: str, random: RandomSource) -> bool:
    """Whether `put_if_absent` can be trusted below `root`; tried once in a process for equal storages.

    Raises `StorageUnavailable` when the store gives no clear answer.
    """
    key = (storage, root)
    with _proven_lock:
        if key not in _proven:
            _proven[key] = _has_passed(storage, root) or _passes(storage, root, random)
        return _proven[key]


@runtime_checkable
class HonoursConditions(Protocol):
    """A store that can be asked by one request whether it turns a put down because the object exists."""

    def honours_condition(self, path: str, data: bytes) -> bool:
        """Puts `path` if it is absent: True if the store said that it is not. `Refused` if it does not know the condition."""
        ...


def _has_passed(storage: Storage, root: str) -> bool:
    """Whether the marker of an earlier probe is there and the store refuses to put it once more; else it is there from now on."""
    if not isinstance(storage, HonoursConditions):
        return False
    try:
        return storage.honours_condition(f"{root}/{MARKER}", b"")
    except Refused:
        return False


def _passes(storage: Storage, root: str, random: RandomSource) -> bool:
    passed = _try_primitive(storage, root, random)
    if not passed and isinstance(storage, HonoursConditions):
        with contextlib.suppress(StorageUnavailable):
            storage.delete(f"{root}/{MARKER}")
    return passed


def race_probes(storage: Storage, root: str, random: RandomSource, rounds: int) -> bool:
    """Whether exactly one writer won each of several races. `StorageUnavailable` without a clear answer."""
    return all(_try_primitive(storage, root, random) for _ in range(rounds))


def _try_primitive(storage: Storage, root: str, random: RandomSource) -> bool:
    for _ in range(_TRIES):
        directory = f"{root}/{PROBE_PREFIX}{random.uuid()}"
        try:
            answer = _race(storage, f"{directory}/probe")
        except Refused:
            return False
        finally:
            with contextlib.suppress(StorageUnavailable):
                storage.delete_directory(directory)
        if answer is not None:
            return answer
    raise StorageUnavailable(
        f"no clear answer from {root}",
        "a test of exclusive creation, which commits rely on, gave no result",
        "try again; if it happens again, give the catalog a lock (lock.enabled, uri)",
    )


def _race(storage: Storage, path: str) -> bool | None:
    """Two creations at once, then one more: exactly one may win and its content must stay. None: an answer got lost."""
    contents = [b"first", b"second", b"late"]
    start = threading.Barrier(2)

    def create(content: bytes) -> PutOutcome:
        start.wait()
        return storage.put_if_absent(path, content)

    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(create, contents[:2]))
    outcomes.append(storage.put_if_absent(path, contents[2]))
    if PutOutcome.UNKNOWN in outcomes:
        return None
    if outcomes.count(PutOutcome.CREATED) != 1 or outcomes[2] is PutOutcome.CREATED:
        return False
    return storage.read_bytes(path) == contents[outcomes.index(PutOutcome.CREATED)]


class HeldLock(Protocol):
    """A lock while it is held."""

    def confirm(self) -> None:
        """Called right before a put: `StorageUnavailable` if the lock is lost."""

    def release(self) -> bool:
        """Release the lock; returns whether it was still ours."""


class PublishLock(Protocol):
    """The lock of one table, which keeps its writers apart; picklable."""

    def check(self) -> None:
        """Connect once, to raise errors before any work is done."""

    def held(self) -> AbstractContextManager[HeldLock]:
        """Acquire the lock for the block; `StorageUnavailable` if that takes too long."""


class PublishMethod(enum.Enum):
    """How a file is created that only one writer may create."""

    LOCK = "lock"
    PRIMITIVE = "primitive"
    UNSAFE = "unsafe"


@runtime_checkable
class ChecksCommits(Protocol):
    """A storage that knows whether commits are safe."""

    def check_commits(self) -> str | None: ...


def check_commits(storage: Storage) -> str | None:
    """Raise `Refused` if commits are not safe on the storage; a warning if the user allows them anyway."""
    return storage.check_commits() if isinstance(storage, ChecksCommits) else None


class GuardedStorage(WrappedStorage):
    """`inner` with a `put_if_absent` that can be relied on below `root`. Picklable."""

    def __init__(
        self,
        inner: Storage,
        root: str,
        lock: PublishLock | None = None,
        allow_unsafe_commit: bool = False,
        random: RandomSource | None = None,
    ) -> None:
        super().__init__(inner)
        self.root = root
        self._lock = lock
        self._allow_unsafe_commit = allow_unsafe_commit
        self._random = random or SystemRandom()

    def __reduce__(self) -> tuple[Any, ...]:
        return GuardedStorage, (self.inner, self.root, self._lock, self._allow_unsafe_commit, self._random)

    def publish_method(self) -> PublishMethod:
        """The method for this store, which is probed the first time. `Refused` if there is none."""
        if self._lock is not None:
            return PublishMethod.LOCK
        if self._has_primitive:
            return PublishMethod.PRIMITIVE
        if self._allow_unsafe_commit:
            return PublishMethod.UNSAFE
        raise Refused(
            f"no safe commit on {self.root}",
            "the store cannot create a file so that only one of several writers succeeds, and the catalog has no lock",
            "give it one (lock.enabled=true and uri=jdbc:... by --option or in paimon.yaml); "
            "--allow-unsafe-commit goes without, for a single writer",
        )

    def check_commits(self) -> str | None:
        way = self.publish_method()
        if self._lock is not None:
            self._lock.check()
        if way is PublishMethod.UNSAFE:
            return f"{self.root} has neither exclusive creation nor a lock: two commits at once may lose one of them"
        return None

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        """As in the protocol. `StorageUnavailable` (lock not acquired, or lost before the put) means that nothing was written."""
        way = self.publish_method()
        if isinstance(self.inner, OverlapsRequests):
            self.inner.settle()
        if way is PublishMethod.PRIMITIVE:
            return self.inner.put_if_absent(path, data)
        if way is PublishMethod.UNSAFE or self._lock is None:
            return PutOutcome.EXISTS if self.inner.exists(path) else self._put(path, data)
        proven = self._has_primitive
        with self._lock.held() as lease:
            if self.inner.exists(path):
                return PutOutcome.EXISTS
            lease.confirm()
            if proven:
                return self.inner.put_if_absent(path, data)
            outcome = self._put(path, data)
            # Another writer may have taken over a lost lock and be writing the same file now.
            return outcome if lease.release() else PutOutcome.UNKNOWN

    @cached_property
    def _has_primitive(self) -> bool:
        return has_primitive(self.inner, self.root, self._random)

    def _put(self, path: str, data: bytes) -> PutOutcome:
        try:
            self.inner.overwrite(path, data)
        except StorageUnavailable:
            return PutOutcome.UNKNOWN
        return PutOutcome.CREATED
