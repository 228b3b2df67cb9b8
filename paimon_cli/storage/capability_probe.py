"""Finds out by trial whether a store lets exactly one of several writers create a file, before a commit relies on it.

S3's conditional PUT is honoured by some of the stores that speak its language, refused by some and ignored by others.
"""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor

from paimon_cli.errors import Refused, StorageUnavailable
from paimon_cli.storage.clock_and_names import Names
from paimon_cli.storage.storage import PutOutcome, Storage

PROBE_PREFIX = ".commit-probe-"
"""Directories of probes in a table's root; readers look for names of their own only."""

_TRIES = 3
_proven: dict[tuple[Storage, str], bool] = {}
_proven_lock = threading.Lock()


def has_primitive(storage: Storage, root: str, names: Names) -> bool:
    """Whether `put_if_absent` can be trusted below `root`; tried once in a process for equal storages.

    Raises `StorageUnavailable` when the store gives no clear answer.
    """
    key = (storage, root)
    with _proven_lock:
        if key not in _proven:
            _proven[key] = _try_primitive(storage, root, names)
        return _proven[key]


def race_probes(storage: Storage, root: str, names: Names, rounds: int) -> bool:
    """Whether exactly one writer won each of several races. `StorageUnavailable` without a clear answer."""
    return all(_try_primitive(storage, root, names) for _ in range(rounds))


def _try_primitive(storage: Storage, root: str, names: Names) -> bool:
    for _ in range(_TRIES):
        directory = f"{root}/{PROBE_PREFIX}{names.uuid()}"
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
