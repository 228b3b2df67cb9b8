"""The numbers of runs with faults, and what went wrong in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.faults.fault_kinds import Fault
from tests.faults.verdict import Outcome


@dataclass
class Figures:
    """`states`: different ends that were judged, since equal ends have equal verdicts. `calls`: of the undisturbed runs."""

    runs: int = 0
    states: int = 0
    calls: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def count(self, faults: Sequence[Fault], outcome: Outcome) -> None:
        self.runs += 1
        self.outcomes[outcome.value] += 1
        self.kinds.update(fault.kind.value for fault in faults)

    def add(self, other: Figures) -> None:
        self.runs += other.runs
        self.states += other.states
        self.calls += other.calls
        self.kinds += other.kinds
        self.outcomes += other.outcomes
        self.failures += other.failures

    def as_json(self) -> dict[str, Any]:
        """For the line of a measure; failures as their number."""
        return {
            "runs": self.runs,
            "states": self.states,
            "calls": self.calls,
            "kinds": dict(sorted(self.kinds.items())),
            "outcomes": dict(sorted(self.outcomes.items())),
            "failures": len(self.failures),
        }
