"""Counts what a command asks of storages, for `-v`. Only while something counts, storages are opened with a counter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from paimon_cli.storage.storage import Storage, WrappedStorage

READS, WRITES, LISTINGS, DELETIONS, CHECKS = "files read", "files written", "directories listed", "deletions", "existence checks"
_KINDS = {
    **dict.fromkeys(("read_bytes", "open_input"), READS),
    **dict.fromkeys(("open_output", "write_new", "put_if_absent", "overwrite"), WRITES),
    "list_directory": LISTINGS,
    **dict.fromkeys(("delete", "delete_directory"), DELETIONS),
    **dict.fromkeys(("exists", "file_size"), CHECKS),
}
_active: list[Counter[str]] = []


@contextmanager
def counting_requests() -> Iterator[Counter[str]]:
    """Requests by kind, of this process, to the storages that are opened in the block."""
    counts: Counter[str] = Counter(dict.fromkeys(_KINDS.values(), 0))
    _active.append(counts)
    try:
        yield counts
    finally:
        _active.remove(counts)


def counted(storage: Storage) -> Storage:
    """The storage, with a counter if something counts."""
    return CountedStorage(storage, _active[-1]) if _active else storage


class CountedStorage(WrappedStorage):
    """Counts the calls of a storage. A copy of it in another process counts for itself."""

    def __init__(self, inner: Storage, counts: Counter[str]) -> None:
        super().__init__(inner)
        self._counts = counts

    def before(self, call: str, path: str) -> None:
        self._counts[_KINDS[call]] += 1
