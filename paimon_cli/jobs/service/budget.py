"""What one run of `maintain`, or a day of the service, may take: a time, or the bytes that are read."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from paimon_cli.options.option_text import human_size
from paimon_cli.requests.upkeep import DAY_UNIT, Allowance
from paimon_cli.storage.injected import Clock

DAY_MILLIS = 86_400_000
_GRAIN_MILLIS = 60_000
"""Amounts that were taken within this time are remembered as one."""
_RESERVE = 0.04
"""Below this part of a day's amount a goal buys at a lower rate; and no merge is saved for that takes more. It bounds what a day
leaves unused."""
_KEPT = 0.9
"""The part of an even spending that is kept for merges that must be made."""
_SAVED_PART = 0.5
"""The part of what a budget brings that is saved for a large merge; others take the rest meanwhile."""
_MEASURED = (50_000.0, 1e9)
"""The millis and the bytes of the merges that are taken to have been measured before the first."""


@dataclass
class Budget:
    """The rest of an allowance. Turns that run side by side reserve their bytes before they read. Thread-safe.

    `ends_millis`: when nothing more of a single run begins; `left_bytes`: what may still be read; None: no such limit. `daily`:
    the allowance of a service, in place of these. `charges_upkeep`: expiry and orphans are paid from it, too. `whole_size`:
    `left_bytes` at the begin. `reserved`: bytes that turns at work may still take, or give back.
    """

    clock: Clock
    ends_millis: int | None = None
    left_bytes: int | None = None
    daily: DailyAllowance | None = None
    charges_upkeep: bool = False
    whole_size: int | None = None
    reserved: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def of(
        cls,
        allowance: Allowance | None,
        clock: Clock,
        spent: Iterable[tuple[int, float]] = (),
        *,
        charges_upkeep: bool = False,
    ) -> Budget:
        """`spent`: what was taken from a daily allowance before, as moments (epoch millis) and bytes or millis."""
        if allowance is None:
            return cls(clock)
        if allowance.is_daily:
            return cls(clock, daily=DailyAllowance.of(allowance, clock.now_millis(), spent), charges_upkeep=True)
        ends = None if allowance.millis is None else clock.now_millis() + allowance.millis
        size = allowance.size
        return cls(clock, ends, size, charges_upkeep=charges_upkeep and size is not None, whole_size=size)

    @property
    def is_over(self) -> bool:
        """Whether the time of a single run has passed."""
        return self.ends_millis is not None and self.clock.now_millis() >= self.ends_millis

    @property
    def is_limited(self) -> bool:
        """Whether there is any limit."""
        return self.ends_millis is not None or self.left_bytes is not None or self.daily is not None

    @property
    def is_timed(self) -> bool:
        return self.ends_millis is not None

    @property
    def bounds_bytes(self) -> bool:
        """Whether it bounds what compactions read: a single run with a time, or without a budget, reads what it needs."""
        return self.left_bytes is not None or self.daily is not None

    @property
    def most_bytes(self) -> float:
        """More than that can never be read at once."""
        with self._lock:
            if self.daily is not None:
                return self.daily.amount / self.daily.per_byte
            return float("inf") if self.left_bytes is None else self.left_bytes

    @property
    def whole_bytes(self) -> int | None:
        """More than that the whole budget never suffices for, whatever is left of it; None without such a limit."""
        return self.whole_size if self.daily is None else int(self.most_bytes)

    def needed_text(self, size: int) -> str:
        """The smallest budget that suffices for this many bytes, as an option."""
        if self.daily is None or self.daily.is_size:
            return f"{size}b{'' if self.daily is None else DAY_UNIT}"
        return str(Allowance(millis=60_000 * math.ceil(size * self.daily.per_byte / 60_000), is_daily=True))

    @property
    def left(self) -> int | None:
        """What is left now, in bytes or millis; None without a limit."""
        with self._lock:
            if self.daily is not None:
                return max(0, int(self.daily.left(self.clock.now_millis())))
            if self.left_bytes is not None:
                return max(0, self.left_bytes)
        return None if self.ends_millis is None else max(0, self.ends_millis - self.clock.now_millis())

    @property
    def left_size(self) -> int | None:
        """What may still be read now, in bytes: a time of a day by the measured speed. None without such a limit."""
        with self._lock:
            if self.daily is not None:
                return max(0, int(self.daily.left(self.clock.now_millis()) / self.daily.per_byte))
            return None if self.left_bytes is None else max(0, self.left_bytes)

    @property
    def unspent_size(self) -> int | None:
        """What was not taken yet, in bytes, with what is only reserved; None without such a limit."""
        left = self.left_size
        return None if left is None else left + self.reserved

    @property
    def part_of_rate(self) -> float:
        """At which part of its rate a goal buys, so that the budget suffices for what is worth most.

        All of it down to a small part of a day's amount beside what is kept, then less the less is left.
        """
        with self._lock:
            if self.daily is None:
                return 1.0
            now = self.clock.now_millis()
            part = (self.daily.left(now) - self.daily.kept(now)) / (self.daily.amount * _RESERVE)
        return float(min(1.0, max(0.0, part)) ** 3)

    @property
    def left_text(self) -> str:
        left = self.left
        is_size = self.daily.is_size if self.daily is not None else self.left_bytes is not None
        return "" if left is None else human_size(left) if is_size else f"{left / 60_000:.1f} min"

    def reserve(self, size: int) -> int | None:
        """Take this much, or what is left, for a turn; None without a limit."""
        with self._lock:
            if self.daily is not None:
                granted = max(0, min(size, int(self.daily.left(self.clock.now_millis()) / self.daily.per_byte)))
                self.daily.reserve(granted)
                self.reserved += granted
                return granted
            if self.left_bytes is None:
                return None
            granted = max(0, min(size, self.left_bytes))
            self.left_bytes -= granted
            self.reserved += granted
            return granted

    def is_kept_from(self, size: int) -> bool:
        """Whether what is left is kept for merges that must be made, from one of this size that need not be."""
        with self._lock:
            if self.daily is None:
                return False
            now, wanted = self.clock.now_millis(), size * self.daily.per_byte
            spare = self.daily.left(now) - self.daily.kept(now)
            # a large merge goes beyond that: it could never be made otherwise
            return spare < min(wanted, (1 - _KEPT) / 2 * self.daily.amount)

    def affords(self, size: int) -> bool:
        """Whether a merge of this size that need not be made may be made now."""
        return self.has(size) and not self.is_kept_from(size)

    def saves_for(self, size: int) -> bool:
        """Whether less urgent merges wait for one of this size: not for a large one, since too much would stay unused."""
        return self.daily is not None and size <= _RESERVE * self.most_bytes

    def saved(self, size: int, since_millis: int) -> int:
        """How much is saved for a merge of this size since a moment: a small part of a day at once, and then a part of what
        comes, so that a large merge does not hold back all others.
        """
        if self.daily is None:
            return 0
        elapsed = max(0, self.clock.now_millis() - since_millis)
        return min(size, int((_RESERVE + _SAVED_PART * elapsed / DAY_MILLIS) * self.most_bytes))

    def has(self, size: int) -> bool:
        """Whether this many bytes may be read now."""
        left = self.left_size
        return left is None or left >= size

    def reserve_all(self, size: int) -> bool:
        """Take this much if it is left, and nothing otherwise."""
        granted = self.reserve(size)
        if granted is None or granted == size:
            return True
        self.settle(granted, 0)
        return False

    def settle(self, granted: int | None, used: int, millis: float = 0.0) -> None:
        """Give back what a turn did not use of its reservation, and note what it did use. `millis`: how long it took."""
        if granted is None:
            return
        with self._lock:
            self.reserved -= granted
            if self.daily is not None:
                self.daily.settle(granted, used, millis, self.clock.now_millis())
            elif self.left_bytes is not None:
                self.left_bytes += granted - used if self.charges_upkeep else max(0, granted - used)

    def takes_note(self, elsewhere: Sequence[tuple[int, float]] | None) -> None:
        """Count what other services have taken of a daily allowance, as moments and amounts, in place of what was known of that
        before. None: nothing new is known.
        """
        if self.daily is not None and elsewhere is not None:
            with self._lock:
                self.daily.count_elsewhere(elsewhere)

    def ready_millis(self, size: int) -> int:
        """When this many bytes may be read at the earliest, if nothing else is (epoch millis)."""
        with self._lock:
            now = self.clock.now_millis()
            return now if self.daily is None else self.daily.ready_millis(size, now)


@dataclass
class DailyAllowance:
    """A token bucket: full at the start, it holds one day's `amount` (bytes, or millis if not `is_size`), and fills evenly.

    In addition, what was `taken` within the last 24 hours, what is reserved and what is left never exceed `amount` together. So
    whatever was saved up, no day takes more. What comes meanwhile is not lost for that: it waits in the bucket until what was
    taken at once is a day old. `elsewhere`: the same of what other services took. `reserved_bytes`: what turns at work may take.
    `measured`: the millis and bytes of merges, of which older ones count less.
    """

    amount: int
    is_size: bool
    tokens: float
    at_millis: int
    measured: tuple[float, float] = _MEASURED
    taken: deque[tuple[int, float]] = field(default_factory=deque)
    elsewhere: Sequence[tuple[int, float]] = ()
    reserved_bytes: int = 0

    @classmethod
    def of(cls, allowance: Allowance, now: int, spent: Iterable[tuple[int, float]]) -> DailyAllowance:
        amount = allowance.size if allowance.size is not None else allowance.millis or 0
        is_size = allowance.size is not None
        made = cls(amount, is_size, float(amount), now)
        made.count_elsewhere(spent)
        return made

    @property
    def per_byte(self) -> float:
        """The amount that reading one byte costs: itself, or the measured time."""
        return 1.0 if self.is_size else self.millis_per_byte

    @property
    def millis_per_byte(self) -> float:
        return self.measured[0] / self.measured[1]

    def left(self, now: int) -> float:
        while self.taken and self.taken[0][0] <= now - DAY_MILLIS:
            self.taken.popleft()
        grown = self.tokens + self.amount * max(0, now - self.at_millis) / DAY_MILLIS
        self.at_millis, self.tokens = max(self.at_millis, now), min(grown, self.amount)
        others = sum(amount for moment, amount in self.elsewhere if moment > now - DAY_MILLIS)
        reserved = self.reserved_bytes * self.per_byte
        return min(self.tokens, self.amount - reserved - others - sum(amount for _, amount in self.taken))

    def reserve(self, size: int) -> None:
        self.tokens, self.reserved_bytes = self.tokens - size * self.per_byte, self.reserved_bytes + size

    def count_elsewhere(self, found: Iterable[tuple[int, float]]) -> None:
        """Remember what others have taken, by the minute in which it is noted, so that none is forgotten too early."""
        by_minute: dict[int, float] = {}
        for moment, amount in found:
            minute = moment - moment % _GRAIN_MILLIS + _GRAIN_MILLIS
            by_minute[minute] = by_minute.get(minute, 0.0) + amount
        self.elsewhere = sorted(by_minute.items())

    def _last_day(self, now: int) -> list[tuple[int, float]]:
        """What was taken within the last 24 hours, here and elsewhere, in the order of time."""
        return sorted(each for each in (*self.taken, *self.elsewhere) if each[0] > now - DAY_MILLIS)

    def kept(self, now: int) -> float:
        """How much of what is left only those merges may take that must be made.

        What was taken comes back a day later. If all is taken at once, a day follows in which nothing can be done against growing
        numbers of runs. So until it comes back, as much is kept as suffices for this part of an even spending.
        """
        evenly, most, back = _KEPT * self.amount / DAY_MILLIS, 0.0, 0.0
        for moment, amount in self._last_day(now):
            most = max(most, evenly * (moment + DAY_MILLIS - now) - back)
            back += amount
        return max(most, evenly * DAY_MILLIS - back)

    def settle(self, granted: int, used: int, millis: float, now: int) -> None:
        reserved, amount = granted * self.per_byte, used * self.per_byte if self.is_size else millis
        self.tokens, self.reserved_bytes = self.tokens + reserved - amount, self.reserved_bytes - granted
        self._note(now, amount)
        if not self.is_size and used and millis:
            self.measured = 0.95 * self.measured[0] + millis, 0.95 * self.measured[1] + used

    def _note(self, moment: int, amount: float) -> None:
        if not amount:
            return
        if self.taken and moment <= self.taken[-1][0]:
            # at the later time: what was taken is never forgotten too early
            self.taken[-1] = (self.taken[-1][0], self.taken[-1][1] + amount)
        else:
            self.taken.append((moment + _GRAIN_MILLIS, amount))

    def ready_millis(self, size: int, now: int) -> int:
        wanted = size * self.per_byte
        if self.left(now) >= wanted:
            return now
        filled = now + max(0, int((wanted - self.tokens) * DAY_MILLIS / max(1, self.amount)) + 1)
        last_day = self._last_day(now)
        still = sum(amount for _, amount in last_day)
        for moment, amount in last_day:
            if self.amount - still >= wanted:
                break
            still -= amount
            filled = max(filled, moment + DAY_MILLIS)
        return filled
