"""What a rule is, and what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

OK, ADVICE, WARNING, ERROR = "ok", "advice", "warning", "error"
SEVERITIES = (OK, ADVICE, WARNING, ERROR)
"""By rising weight. `ok`: nothing to do, only figures; `advice`: something could be better; `warning`: something should be done;
`error`: jobs fail, or rows are at risk."""
BUCKETS, SMALL_FILES, OPTIONS, COMPACTION, HISTORY = "buckets", "small-files", "options", "compaction", "history"
TOPICS = (BUCKETS, SMALL_FILES, OPTIONS, COMPACTION, HISTORY)
METADATA, LISTING, REPLAY, TOPOLOGY = "metadata", "listing", "replay", "topology"
"""What a rule costs: it reads metadata, lists all directories of the table, replays the commits of its history, or reads what
many of them wrote.
"""
Figure = int | float | str


@dataclass(frozen=True)
class Finding:
    """One finding. `code`: stable, never reused, empty if all is well; `command`: what to run, empty if it depends on the user.

    `figures`: the evidence; `threshold`: the limit that they are compared with, as text.
    """

    code: str
    severity: str
    subject: str
    message: str
    command: str = ""
    topic: str = HISTORY
    figures: Mapping[str, Figure] = field(default_factory=dict)
    threshold: str = ""

    @property
    def finding(self) -> str:
        return f"{self.subject}: {self.message}"


def well(subject: str, message: str, **figures: Figure) -> Finding:
    """The answer of a rule that finds nothing to do, but has figures to show."""
    return Finding("", OK, subject, message, figures=figures)


def is_at_least(finding: Finding, severity: str) -> bool:
    return SEVERITIES.index(finding.severity) >= SEVERITIES.index(severity)


T = TypeVar("T")


@dataclass(frozen=True)
class Rule(Generic[T]):
    """A check of a table that may find problems with these codes, all of one topic. `cost`: one of those above."""

    check: Callable[[T], Iterator[Finding]]
    topic: str
    codes: tuple[str, ...]
    cost: str = METADATA

    @property
    def name(self) -> str:
        """What the rule demands, in words."""
        return self.check.__name__.replace("_", " ")


def rule(topic: str, *codes: str, cost: str = METADATA) -> Callable[[Callable[[T], Iterator[Finding]]], Rule[T]]:
    """Make a rule of a function that examines a table."""
    return lambda check: Rule(check, topic, codes, cost)
