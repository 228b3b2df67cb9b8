"""What services have taken of the budgets of a warehouse, by its ledger, which is read again before each round."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from paimon_cli.maintain.ledger import DAY_MILLIS, Ledger, LedgerFile, LedgerKind, LedgerRound


@dataclass
class Spending:
    """The rounds of the last day in `ledger`, without those of the own service, which knows them better.

    Objects never change, so each is read once. `service`: the own one; empty for none.
    """

    ledger: Ledger
    service: str = ""
    _read: dict[str, tuple[LedgerRound, ...]] = field(default_factory=dict)

    def rounds(self) -> list[LedgerRound]:
        """Those that have ended, and those that began and are not among them: they count with all that they were granted.

        Raises `PaimonError` if the ledger cannot be listed; objects that cannot be read are left out.
        """
        since = self.ledger.clock.now_millis() - DAY_MILLIS
        begun = [file for file in self.ledger.newest() if file.kind == LedgerKind.BEGUN and file.millis >= since]
        # listed again: a round that ends meanwhile is written before its begin is deleted, so it is seen at least once
        ended = [
            file
            for file in self.ledger.newest()
            if file.kind == LedgerKind.DAY or (file.kind == LedgerKind.ROUND and file.millis >= since)
        ]
        wanted = [file for file in (*ended, *begun) if file.kind == LedgerKind.DAY or file.service != self.service]
        self._read = {file.status.name: self._of(file) for file in wanted}
        found: dict[tuple[int, str, int], LedgerRound] = {}
        for each in (each for file in wanted for each in self._read[file.status.name]):
            if each.started >= since and each.service != self.service:
                found.setdefault(each.key, each)
        return [found[key] for key in sorted(found)]

    def taken(self, is_size: bool, counts: Callable[[str], bool] = lambda table: True) -> list[tuple[int, float]]:
        """What was taken, as moments (epoch millis) and bytes, or millis if not `is_size`. `counts`: whether a table does, by
        name.
        """
        return [
            (each.started, step.bytes_read + step.upkeep_bytes if is_size else step.seconds * 1000)
            for each in self.rounds()
            for step in each.steps
            if counts(step.table)
        ]

    def _of(self, file: LedgerFile) -> tuple[LedgerRound, ...]:
        known = self._read.get(file.status.name)
        return tuple(self.ledger.read(file, lambda damage: None)) if known is None else known
