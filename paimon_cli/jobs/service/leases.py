"""Leases let several services share work without a central server: one holder per lease.

A lease is a file `NAME-N` in a directory of its own, created with `put_if_absent`; the highest N counts. Its holder renews it
by creating N + 1 and releases it by deleting it. A lease that was not renewed within its time to live has expired, and the
service that creates the next number takes it over. The waiting service measures that time with its own clock, from when it
first saw the file, so clocks need not agree. Once a lease was released, numbers begin again: a file is the one that was seen only
if it has the same number and modification time.

A lease only avoids duplicate work. A holder that was paused for longer than the time to live may continue alongside the new
holder; the checks of each commit keep the table correct.
"""

from __future__ import annotations

import json
import math
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from paimon_cli.errors import DamagedFile, StorageUnavailable, TookTooLong
from paimon_cli.metadata.table_layout import parse_numbered
from paimon_cli.storage.capabilities import remove_empty_directory
from paimon_cli.storage.deletions import delete_all
from paimon_cli.storage.injected import Clock
from paimon_cli.storage.storage import Storage, Verified, put_and_verify
from paimon_cli.storage.time_bounds import look_at_each, within

_RENEWALS = 3
"""How many times a lease is renewed within its time to live."""
_AT_ONCE = 8
_LONGEST_MILLIS = 86_400_000
"""A lease is not waited for longer than this, whatever lifetime its file claims."""


_File = tuple[int, int]
"""The number of a lease and when its file was written, as the storage says (epoch millis)."""


@dataclass
class _Held:
    """A lease that this process holds; `lock` serialises renewal and release."""

    storage: Storage
    number: int
    renewed_millis: int
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass
class Leases:
    """The leases of one holder. `lives_millis`: the time to live; without a renewal, another holder may then take a lease over.
    `seconds`: how long a table is waited for.

    Thread-safe for different directories.
    """

    name: str
    holder: str
    lives_millis: int
    clock: Clock
    seconds: float = math.inf
    _held: dict[str, _Held] = field(default_factory=dict)
    _seen: dict[str, tuple[_File, int, int]] = field(default_factory=dict)

    def acquire(self, storage: Storage, directory: str) -> bool:
        """Take or renew the lease; returns whether this holder now has it. False while another holder keeps renewing it.

        Raises `TookTooLong` if the storage gives no answer in time. A lease that it grants later is given back.
        """
        is_late = threading.Event()

        def attempt() -> bool:
            try:
                return self._acquire(storage, directory)
            finally:
                if is_late.is_set():
                    self._give_back(directory, self._held.pop(directory, None))

        try:
            return within(self.seconds, attempt, _table_of(directory))
        except TookTooLong:
            is_late.set()
            self._held.pop(directory, None)  # if it was granted at the last moment: no one renews it, and it expires by itself
            raise

    def _acquire(self, storage: Storage, directory: str) -> bool:
        held = self._held.get(directory)
        if held is not None:
            return self._renew(directory, held)
        newest, written = max(self._files(storage, directory), default=(0, 0))
        if newest and not self._has_ended(storage, directory, (newest, written)):
            return False
        if not self._put(storage, directory, newest + 1):
            return False
        self._held[directory] = _Held(storage, newest + 1, self.clock.now_millis())
        self._seen.pop(directory, None)
        self._delete(storage, directory, newest)
        return True

    def release(self, directory: str) -> None:
        """Give up a lease. If the storage cannot be reached, or not in time, the lease expires by itself."""
        held = self._held.pop(directory, None)
        with suppress(TookTooLong):
            within(self.seconds, lambda: self._give_back(directory, held), _table_of(directory))

    def _give_back(self, directory: str, held: _Held | None) -> None:
        if held is not None:
            with held.lock:
                self._delete(held.storage, directory, held.number)
            remove_empty_directory(held.storage, directory)

    def renew(self) -> None:
        """Renew the leases that are due, several at once: a storage that hangs makes no other lease expire. A lease taken over by
        another holder is dropped; after an error, it is tried again before the lease expires.
        """
        now = self.clock.now_millis()
        due = [
            (directory, held)
            for directory, held in list(self._held.items())
            if now - held.renewed_millis >= self.lives_millis // _RENEWALS and not held.lock.locked()  # an earlier one hangs
        ]
        for _ in look_at_each(lambda one: self._renew(*one), due, self.seconds, _AT_ONCE, lambda one: _table_of(one[0])):
            pass

    @property
    def held(self) -> frozenset[str]:
        """The directories whose leases this holder has."""
        return frozenset(self._held)

    @contextmanager
    def renewed(self) -> Iterator[None]:
        """While entered, renew the leases in a background thread; release them at the end."""
        ended = threading.Event()

        def run() -> None:
            while not ended.wait(self.lives_millis / 1000 / _RENEWALS / 2):
                self.renew()

        thread = threading.Thread(target=run, name="leases", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            for directory in self.held:
                self.release(directory)

    def _renew(self, directory: str, held: _Held) -> bool:
        with held.lock:
            if self._held.get(directory) is not held:
                return False
            if not self._put(held.storage, directory, held.number + 1):
                self._held.pop(directory, None)
                return False
            held.number, held.renewed_millis = held.number + 1, self.clock.now_millis()
            self._delete(held.storage, directory, held.number - 1)
            return True

    def _has_ended(self, storage: Storage, directory: str, newest: _File) -> bool:
        """Whether this file has been the newest one for its whole time to live."""
        seen, since, lives = self._seen.get(directory, ((0, 0), 0, 0))
        if seen != newest:
            lives = self._lifetime(storage, self._path(directory, newest[0]))
            self._seen[directory] = newest, self.clock.now_millis(), lives
            return False
        return self.clock.now_millis() - since >= lives

    def _lifetime(self, storage: Storage, path: str) -> int:
        """The time to live (millis) in the file, at most a day; our own if the file cannot be parsed."""
        try:
            return min(int(json.loads(storage.read_bytes(path))["lives_ms"]), _LONGEST_MILLIS)
        except (DamagedFile, FileNotFoundError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return self.lives_millis

    def _put(self, storage: Storage, directory: str, number: int) -> bool:
        path = self._path(directory, number)
        content = {"holder": self.holder, "host": socket.gethostname(), "lives_ms": self.lives_millis, "number": number}
        data = json.dumps(content).encode()
        return put_and_verify(storage, path, data) is Verified.OURS

    def _files(self, storage: Storage, directory: str) -> list[_File]:
        entries = storage.list_directory(directory)
        found = ((parse_numbered(f"{self.name}-", entry.name), entry.modified_millis) for entry in entries)
        return [(number, written) for number, written in found if number is not None]

    def _delete(self, storage: Storage, directory: str, number: int) -> None:
        if number:
            with suppress(StorageUnavailable):
                delete_all(storage, [self._path(directory, number)])

    def _path(self, directory: str, number: int) -> str:
        return f"{directory}/{self.name}-{number}"


def _table_of(directory: str) -> str:
    return directory.rpartition("/")[0]
