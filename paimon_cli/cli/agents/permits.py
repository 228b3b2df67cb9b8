"""Changes that were planned and may be made: each has a token, which is random, ends soon, and is good for one change.

A token says nothing about the change. What is made is what the plan has kept, not what comes with the token.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import Any

from paimon_cli.errors import Refused, TookTooLong
from paimon_cli.storage.injected import Clock, SystemClock
from paimon_cli.storage.threads import DaemonThreads

VALID_MILLIS = 5 * 60_000
MAX_PLANNED = 32
"""The most changes that wait; the oldest one is forgotten for the next."""
CHANGES_AT_ONCE = 4


@dataclass(frozen=True)
class PlannedChange:
    """`make`: makes the change, or raises if the table is no longer as it was planned."""

    make: Callable[[], dict[str, Any]]
    until_millis: int


def _new_token() -> str:
    return secrets.token_urlsafe(32)


@dataclass
class Permits:
    """The planned changes of one server. `seconds`: how long an answer waits for a change, which is never given up."""

    seconds: float
    clock: Clock = field(default_factory=SystemClock)
    new_token: Callable[[], str] = _new_token
    _changed: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _planned: dict[str, PlannedChange] = field(default_factory=dict, repr=False)
    _begun: dict[str, Future[dict[str, Any]]] = field(default_factory=dict, repr=False)
    _threads: DaemonThreads = field(default_factory=lambda: DaemonThreads(CHANGES_AT_ONCE, "paimon-cli-changes"), repr=False)

    def grant(self, make: Callable[[], dict[str, Any]]) -> tuple[str, int]:
        """A token for a change, and the time until which it is good (epoch millis)."""
        now = self.clock.now_millis()
        token, until = self.new_token(), now + VALID_MILLIS
        with self._changed:
            for old in [old for old, change in self._planned.items() if change.until_millis <= now]:
                del self._planned[old]
            while len(self._planned) >= MAX_PLANNED:
                del self._planned[next(iter(self._planned))]
            self._planned[token] = PlannedChange(make, until)
        return token, until

    def use(self, token: str) -> dict[str, Any]:
        """Make the change of a token, and return its result. Raises `Refused` for a token that is not good, or no longer.

        Raises `TookTooLong` if the change has not ended in time: it goes on, and the same token then waits for its result.
        """
        future = self._begin(token)
        wait([future], self.seconds)
        if not future.done():
            why = f"it has been running for more than {self.seconds:g} s, and was not stopped"
            raise TookTooLong("the change has not ended yet", why, "call apply with the same token to wait for its result")
        with self._changed:
            self._begun.pop(token, None)
        return future.result()

    def finish(self, seconds: float) -> None:
        """Wait for changes that have begun: a process that ends in the middle of one leaves files that nothing names."""
        with self._changed:
            begun = list(self._begun.values())
        wait(begun, seconds)

    def _begin(self, token: str) -> Future[dict[str, Any]]:
        with self._changed:
            if (begun := self._begun.get(token)) is not None:
                return begun
            change = self._planned.pop(token, None)
            if change is None or change.until_millis <= self.clock.now_millis():
                why = "it was used, it has expired, another plan has taken its place, or this server has not given it"
                raise Refused("this token is not good", why, "plan the change again")
            self._begun[token] = self._threads.submit(change.make)
            return self._begun[token]
