"""Safe publication of snapshots on stores that may lack exclusive creation: by a probed conditional put, or by a lock.

A store that offers a conditional put is probed before the first commit relies on it.
"""

from __future__ import annotations

import contextlib
import enum
import threading
from contextlib import AbstractContextManager
from typing import Any, Protocol, runtime_checkable

from paimon_cli.errors import Refused, StorageUnavailable
from paimon_cli.storage.capabilities import WrappedStorage, settle
from paimon_cli.storage.injected import RandomSource, SystemRandom
from paimon_cli.storage.storage import PutOutcome, Storage
from paimon_cli.storage.threads import DaemonThreads, cached_property

PROBE_PREFIX = ".commit-probe-"
"""Prefix of probe directories in a table's root, which readers ignore."""

MARKER = f"{PROBE_PREFIX}passed/marker"
"""A file kept in the root after a passed probe, which allows later processes to repeat the test with a single request."""

_TRIES = 3
_proven: dict[tuple[Storage, str], bool] = {}
_probing: dict[tuple[Storage, str], threading.Lock] = {}


def has_primitive(storage: Storage, root: str, random: RandomSource) -> bool:
    """Whether `put_if_absent` is exclusive below `root`; probed once per process for equal storages.

    Raises `StorageUnavailable` if the probe gives no clear result.
    """
    key = (storage, root)
    with _probing.setdefault(key, threading.Lock()):
        if key not in _proven:
            _proven[key] = _has_passed(storage, root) or _passes(storage, root, random)
        return _proven[key]


@runtime_checkable
class HonoursConditions(Protocol):
    """A store on which a single request shows whether a conditional put to an existing object is rejected."""

    def honours_condition(self, path: str, data: bytes) -> bool:
        """Put `path` if absent; returns whether the store rejected that because the object exists.

        Raises `Refused` if the store does not implement conditional puts.
        """
        ...


def _has_passed(storage: Storage, root: str) -> bool:
    """Whether the marker of an earlier probe exists and the store rejects a second put of it. Creates a missing marker."""
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
    """Whether exactly one writer won each of several races. Raises `StorageUnavailable` if a race had no clear result."""
    return all(_try_primitive(storage, root, random) for _ in range(rounds))


def _try_primitive(storage: Storage, root: str, random: RandomSource) -> bool:
    for _ in range(_TRIES):
        directory = f"{root}/{PROBE_PREFIX}{random.uuid()}"
        try:
            is_exclusive = _race(storage, f"{directory}/probe")
        except Refused:
            return False
        finally:
            with contextlib.suppress(StorageUnavailable):
                storage.delete_directory(directory)
        if is_exclusive is not None:
            return is_exclusive
    raise StorageUnavailable(
        f"no clear answer from {root}",
        "a test of exclusive creation, which commits rely on, gave no result",
        "try again; if it happens again, give the catalog a lock (lock.enabled, uri)",
    )


def _race(storage: Storage, path: str) -> bool | None:
    """Race two creations, then try a third: exactly one may succeed, and its content must remain. None: an outcome is unknown."""
    contents = [b"first", b"second", b"late"]
    start = threading.Barrier(2)

    def create(content: bytes) -> PutOutcome:
        start.wait()
        return storage.put_if_absent(path, content)

    with DaemonThreads(2) as pool:
        outcomes = list(pool.map(create, contents[:2]))
    outcomes.append(storage.put_if_absent(path, contents[2]))
    if PutOutcome.UNKNOWN in outcomes:
        return None
    if outcomes.count(PutOutcome.CREATED) != 1 or outcomes[2] is PutOutcome.CREATED:
        return False
    return storage.read_bytes(path) == contents[outcomes.index(PutOutcome.CREATED)]


class LockInUse(Protocol):
    """A lock while it is held."""

    def confirm(self) -> None:
        """Raise `StorageUnavailable` if the lock is lost; to be called right before a put."""

    def release(self) -> bool:
        """Release the lock; returns whether it was still held."""


class PublishLock(Protocol):
    """The lock that serialises the commits of one table; picklable."""

    def check(self) -> None:
        """Connect once, so that a wrong address or login fails before any work is done."""

    def held(self) -> AbstractContextManager[LockInUse]:
        """Hold the lock during the block. Raises `StorageUnavailable` if it cannot be acquired in time."""


class PublishMethod(enum.Enum):
    """How a file is published that only one of several concurrent writers may create."""

    LOCK = "lock"
    PRIMITIVE = "primitive"
    UNSAFE = "unsafe"


@runtime_checkable
class ChecksCommits(Protocol):
    """A storage that knows whether concurrent commits are safe."""

    def check_commits(self) -> str | None: ...


def check_commits(storage: Storage) -> str | None:
    """Raise `Refused` if concurrent commits are not safe; returns a warning if the user allows them anyway, otherwise None."""
    return storage.check_commits() if isinstance(storage, ChecksCommits) else None


class GuardedStorage(WrappedStorage):
    """A storage whose `put_if_absent` is exclusive below `root`: by the store itself, or by a lock. Picklable."""

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
        """The method for this store, which is probed on the first call. Raises `Refused` if there is none."""
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
            "a single writer may commit without: --allow-unsafe-commit",
        )

    def check_commits(self) -> str | None:
        method = self.publish_method()
        if self._lock is not None:
            self._lock.check()
        if method is PublishMethod.UNSAFE:
            return f"{self.root} has neither exclusive creation nor a lock: two commits at once may lose one of them"
        return None

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        """See `storage.Storage`. `StorageUnavailable` (lock not acquired, or lost before the put) means nothing was written."""
        method = self.publish_method()
        if method is PublishMethod.PRIMITIVE:
            return self.inner.put_if_absent(path, data)
        settle(self.inner)  # before the lock is held, and before a failure could be taken for that of the put
        if method is PublishMethod.UNSAFE or self._lock is None:
            return PutOutcome.EXISTS if self.inner.exists(path) else self._put(path, data)
        proven = self._has_primitive
        with self._lock.held() as lease:
            if self.inner.exists(path):
                return PutOutcome.EXISTS
            lease.confirm()
            if proven:
                return self.inner.put_if_absent(path, data)
            outcome = self._put(path, data)
            # If the lock was lost meanwhile, its next holder may be writing the same file.
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
