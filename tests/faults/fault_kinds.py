"""The ways in which one storage call can go wrong, and which calls each of them can happen to."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Kind(enum.Enum):
    """A crash ends the actor: what it still does has no effect. The values are used in replay lines."""

    FAIL_BEFORE = "fail-before"
    FAIL_AFTER = "fail-after"
    LOST_ANSWER = "lost-answer"
    TORN_WRITE = "torn-write"
    STALE_LIST = "stale-list"
    SHORT_READ = "short-read"
    IGNORED_DELETE = "ignored-delete"
    CRASH_BEFORE = "crash-before"
    CRASH_AFTER = "crash-after"
    POWER_CUT = "power-cut"
    OUTAGE = "outage"


READS = frozenset({"read_bytes", "input.read"})
LOOKS = frozenset({*READS, "open_input", "exists", "file_size", "list_directory"})
PLAIN_WRITES = frozenset({"write_new", "output.close"})
ATOMIC_WRITES = frozenset({"put_if_absent", "overwrite"})
DELETES = frozenset({"delete", "delete_directory"})

LENGTHS = ("none", "one", "half", "most")
"""How much of a file is there: nothing, one byte, half of it, all but one byte."""


@dataclass(frozen=True)
class Fault:
    """The fault of call number `call` of an actor. `detail` chooses among the forms of a kind."""

    call: int
    kind: Kind
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.call} {self.kind.value} {self.detail}".rstrip()

    @staticmethod
    def parse(text: str) -> Fault:
        call, kind, *detail = text.split()
        return Fault(int(call), Kind(kind), " ".join(detail))


Form = tuple[Kind, str]


def forms(operation: str) -> tuple[Form, ...]:
    """All that can go wrong with a call of that name.

    A call that only looks has no effect: failing before and after it are the same. A put is not allowed to raise once it
    has taken effect (`Storage.put_if_absent`); it then says EXISTS, or that it does not know.
    """
    found: list[Form] = [(Kind.FAIL_BEFORE, ""), (Kind.CRASH_BEFORE, ""), (Kind.OUTAGE, "")]
    if operation not in LOOKS:
        found += [(Kind.CRASH_AFTER, ""), (Kind.POWER_CUT, "all"), (Kind.POWER_CUT, "some")]
        if operation != "put_if_absent":
            found.append((Kind.FAIL_AFTER, ""))
    if operation == "put_if_absent":
        found += [(Kind.LOST_ANSWER, detail) for detail in ("exists", "unknown", "nothing")]
    if operation in PLAIN_WRITES:
        found += [(Kind.TORN_WRITE, length) for length in LENGTHS] + [(Kind.TORN_WRITE, "half error")]
    if operation in ATOMIC_WRITES:
        found.append((Kind.TORN_WRITE, "temporary"))
    if operation == "list_directory":
        found += [(Kind.STALE_LIST, detail) for detail in ("newest", "all")]
    if operation in READS:
        found += [(Kind.SHORT_READ, length) for length in ("none", "half", "most")]
    if operation in DELETES:
        found.append((Kind.IGNORED_DELETE, ""))
    return tuple(found)


def cut(data: bytes, length: str) -> bytes:
    """A proper prefix of some bytes."""
    size = len(data)
    return data[: {"none": 0, "one": min(1, max(size - 1, 0)), "half": size // 2, "most": max(size - 1, 0)}[length]]
