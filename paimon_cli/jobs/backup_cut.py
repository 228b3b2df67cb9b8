"""Keeps the snapshots of a table that a backup has not copied yet: a consumer of each branch, which every expiry heeds.

A consumer reads from its next snapshot on. That of a backup stays after the run, at the newest snapshot that was copied, so that
no id is missing in the copy, and the next run finds where the history goes on. It is renewed while a run lasts; without further
runs it counts for nothing after `retention.BACKUP_MILLIS`, or earlier by the table's `consumer.expiration-time`.

A rollback lowers the consumers of backups, also of one that runs (`retention.keep_for_backups`): what takes the numbers is not
copied yet. Only the end of a run raises one again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from paimon_cli.errors import NotSupported, PaimonError
from paimon_cli.history.table_context import TableContext
from paimon_cli.maintain.retention import place_of, write_consumer
from paimon_cli.metadata.table_layout import BACKUP_CONSUMER

_RENEWED_SECONDS = 60.0


@dataclass
class HeldCut:
    """What one backup holds. `identity`: of the backup."""

    identity: str
    _held: dict[str, tuple[TableContext, int]] = field(default_factory=dict)
    _new: list[TableContext] = field(default_factory=list)
    _writing: threading.RLock = field(default_factory=threading.RLock)  # a renewal does not write what is no longer held

    @property
    def name(self) -> str:
        return f"{BACKUP_CONSUMER}{self.identity}"

    def hold(self, history: TableContext, number: int) -> None:
        """Keep this snapshot of a branch and all later ones, or more if the consumer does already. An expiry that was planned
        before may still remove some.
        """
        if history.branch not in self._held and not history.storage.exists(history.layout.consumer(self.name)):
            self._new.append(history)
        self._write(history, min(number, place_of(history, self.name) or number))

    def place(self, history: TableContext) -> int:
        """The snapshot from which on a branch is held: what this run wrote last, or less after a rollback."""
        _, number = self._held[history.branch]
        return min(number, place_of(history, self.name) or number)

    def go_on(self, history: TableContext, number: int) -> None:
        """Keep only this snapshot, which is copied, and all later ones."""
        self._write(history, number)

    def renew(self) -> None:
        """Write the consumers again, for those who measure their age. A branch that was dropped is not made again."""
        for history, _ in list(self._held.values()):
            with self._writing:
                if history.storage.exists(history.layout.consumer(self.name)):
                    self._write(history, self.place(history))

    def _write(self, history: TableContext, number: int) -> None:
        with self._writing:
            self._held[history.branch] = history, number
            write_consumer(history, self.name, number)

    def release(self) -> None:
        """Hold no more what this run was the first to hold: no later run could copy it."""
        for history in self._new:
            history.storage.delete(history.layout.consumer(self.name))

    @contextmanager
    def renewed(self) -> Iterator[None]:
        """While entered, renew the consumers in a background thread. One that fails is tried again later. `NotSupported` releases
        what this run was the first to hold.
        """
        ended = threading.Event()

        def run() -> None:
            while not ended.wait(_RENEWED_SECONDS):
                with suppress(PaimonError):
                    self.renew()

        thread = threading.Thread(target=run, name="backup-cut", daemon=True)
        thread.start()
        try:
            try:
                yield
            finally:
                ended.set()
                thread.join()
        except NotSupported:  # only now, or the thread could write once more what is released
            self.release()
            raise
