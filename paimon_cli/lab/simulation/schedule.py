"""Schedules as text, such as `0,1,1c,0c3,1u`: the actor that takes each step, and the fault that affects it.

3     actor 3 makes its pending call, and continues to its next call that other actors can observe
3c    it crashes instead of making the call
3c2   it makes the call and crashes at the second call after it, one that no other actor can observe
3u    (a put) it takes effect, the answer is lost
3n    (a put) it has no effect, and no answer arrives
3o    (a put) it takes effect, the answer is lost, and the actor's next calls fail: an outage
3e    (a put) it fails without effect, and reports that
3b    (a put) it fails without effect, because the store is busy, so that nothing shows whether it had one
3p    (a put) it takes effect, and a proxy that repeats it reports that the object exists
3k    (a put) it fails without effect, because of a put at the same time that had none either
3f    (a call that is not a put) it fails
3w    (a change that is not a put) it takes effect, and an error is reported
3f2   its call is made, and the second call after it, one that no other actor can observe, fails; so with w
3r    a crashed actor restarts and runs its job again
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

GO, CRASH, LOST_ANSWER, LOST_REQUEST, OUTAGE, REFUSAL, RESTART = "", "c", "u", "n", "o", "e", "r"
BUSY, OWN_OBJECT, CONFLICT, FAILURE, LOST_CHANGE = "b", "p", "k", "f", "w"
PUT_FAULTS = (LOST_ANSWER, LOST_REQUEST, OUTAGE, REFUSAL)
"""Faults of the call that publishes a snapshot."""
STORE_PUT_FAULTS = (*PUT_FAULTS, BUSY, OWN_OBJECT, CONFLICT)
"""Faults of that call on an object store."""
REQUEST_FAULTS = (FAILURE, LOST_CHANGE)
"""Faults of other requests to an object store."""

FAULT_MEANING = {
    GO: "",
    CRASH: "crashes",
    LOST_ANSWER: "takes effect, the answer is lost",
    LOST_REQUEST: "has no effect, no answer arrives",
    OUTAGE: "takes effect, then an outage starts",
    REFUSAL: "fails without effect",
    BUSY: "fails without effect, the store is busy",
    OWN_OBJECT: "takes effect, the object is reported to exist",
    CONFLICT: "fails without effect, a conflict is reported",
    FAILURE: "fails",
    LOST_CHANGE: "takes effect, an error is reported",
    RESTART: "restarts",
}

_STEP = re.compile(r"(\d+)([cunoerbpkfw]?)(\d*)")


class ScheduledStep(NamedTuple):
    """One decision of the scheduler."""

    actor: int
    fault: str = GO
    delay: int = 0
    """How many calls later the fault happens; 0 is at the call itself."""

    def __str__(self) -> str:
        return f"{self.actor}{self.fault}{self.delay or ''}"

    @property
    def is_fault(self) -> bool:
        return self.fault not in (GO, RESTART)


def parse_schedule(text: str) -> list[ScheduledStep]:
    """Parse a schedule. Raises `ValueError` for a part that is not a step."""
    steps = []
    for word in filter(None, text.split(",")):
        found = _STEP.fullmatch(word.strip())
        if found is None:
            raise ValueError(f"'{word}' is not a step of a schedule")
        actor, fault, delay = found.groups()
        steps.append(ScheduledStep(int(actor), fault, int(delay or 0)))
    return steps


def schedule_text(steps: Iterable[ScheduledStep]) -> str:
    return ",".join(map(str, steps))
