"""Counts requests to storages: for `-v`, for metrics, and for the summary of an expiry.

An object store counts the requests that it sends, whatever the call: a thousand deletions may be one. Of other storages the calls
are counted, by a wrapper, and only if something counts when the storage is opened.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from paimon_cli.storage.capabilities import WrappedStorage
from paimon_cli.storage.catalog_options import OBJECT_STORES
from paimon_cli.storage.storage import Storage

READS, WRITES, LISTINGS, DELETIONS, CHECKS = "files read", "files written", "directories listed", "deletions", "existence checks"
KINDS = READS, WRITES, LISTINGS, DELETIONS, CHECKS
_CALLS = {
    **dict.fromkeys(("read_bytes", "open_input"), READS),
    **dict.fromkeys(("open_output", "write_new", "put_if_absent", "overwrite"), WRITES),
    "list_directory": LISTINGS,
    **dict.fromkeys(("delete", "delete_directory"), DELETIONS),
    **dict.fromkeys(("exists", "file_size"), CHECKS),
}
_active: list[Counter[str]] = []
_counting = threading.Lock()


@contextmanager
def counting_requests() -> Iterator[Counter[str]]:
    """Requests by kind, of this process, in the block: of object stores, and of other storages that are opened in it."""
    counts: Counter[str] = Counter(dict.fromkeys(KINDS, 0))
    _active.append(counts)
    try:
        yield counts
    finally:
        _active[:] = [active for active in _active if active is not counts]


def count_requests(kind: str, number: int = 1) -> None:
    """Add requests to all that counts now."""
    if _active:
        with _counting:
            for counts in _active:
                counts[kind] += number


def counts_requests(url: str) -> bool:
    """Whether the storage counts what it sends, and not what it is called for."""
    return url.partition("://")[0] in OBJECT_STORES


def counted(storage: Storage) -> Storage:
    """The storage, with a counter of its calls if something counts."""
    return CountedStorage(storage) if _active else storage


class CountedStorage(WrappedStorage):
    """Counts the calls of a storage. A copy of it in another process counts for itself."""

    def before(self, call: str, path: str) -> None:
        count_requests(_CALLS[call])
