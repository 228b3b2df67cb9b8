"""What services have taken of the budgets of a warehouse, by its ledger, which is read again before each round."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from paimon_cli.maintain.ledger import DAY_MILLIS, Ledger, LedgerFile, LedgerKind, LedgerRound
from paimon_cli.storage.storage import FileStatus


@dataclass
class Spending:
    """The rounds of the last day in `ledger`, without those of the own service, which knows them better.

    An object is read once, and again if it has changed: what a round may spend shrinks while it is at work. `service`: the own
    one; empty for none.
    """

    ledger: Ledger
    service: str = ""
    _read: dict[str, tuple[FileStatus, tuple[LedgerRound, ...]]] = field(default_factory=dict)

    def rounds(self) -> list[LedgerRound]:
        """Those that ended within the last day, and those that have not ended, but said within it what they may spend: they count
        with what they took and were still granted.

        Raises `PaimonError` if the ledger cannot be listed; objects that cannot be read are left out.
        """
        since = self.ledger.clock.now_millis() - DAY_MILLIS
        read: dict[str, tuple[FileStatus, tuple[LedgerRound, ...]]] = {}
        ended: dict[tuple[int, str, int], LedgerRound] = {}
        begun: dict[tuple[int, str, int], LedgerRound] = {}
        for _ in range(2):  # again: when a listed object is gone, because its round has ended or was packed, another is there
            for file in self.ledger.newest():
                name = file.status.name
                if name in read or not self._may_count(file, since):
                    continue
                before, rounds = self._read.get(name, (None, ()))
                if before != file.status or not rounds:
                    rounds = tuple(self.ledger.read(file, lambda damage: None))
                read[name] = file.status, rounds
                found = begun if file.kind == LedgerKind.BEGUN else ended
                found.update((each.key, each) for each in rounds if each.service != self.service)
        self._read = read  # at once: a reading that took too long may still go on in another thread
        both = begun | ended
        return [both[key] for key in sorted(both) if _end(both[key]) > since]

    def taken(self, is_size: bool, counts: Callable[[str], bool] = lambda table: True) -> list[tuple[int, float]]:
        """What was taken, as moments (epoch millis) and bytes, or millis if not `is_size`. `counts`: whether a table does, by
        name.

        All that a round took counts as of its end, so that none of it is forgotten too early.
        """
        now = self.ledger.clock.now_millis()
        return [
            (int(min(now, _end(each))), step.charged_bytes if is_size else step.charged_seconds * 1000)
            for each in self.rounds()
            for step in each.steps
            if counts(step.table)
        ]

    def _may_count(self, file: LedgerFile, since: int) -> bool:
        """Whether an object may hold a round that counts: one takes a day at most."""
        if file.kind == LedgerKind.DAY:
            return file.millis > since - 2 * DAY_MILLIS
        return file.service != self.service and file.millis > since - DAY_MILLIS


def _end(done: LedgerRound) -> float:
    """When a round ended (epoch millis); of one that has not, when it last said what it may spend."""
    return done.started + done.seconds * 1000
