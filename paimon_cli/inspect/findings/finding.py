"""What a rule is, and what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from paimon_cli.options.choices import values_of
from paimon_cli.requests.compaction import StrategyName

OK, ADVICE, WARNING, ERROR = "ok", "advice", "warning", "error"
SEVERITIES = (OK, ADVICE, WARNING, ERROR)
"""By rising weight. `ok`: nothing to do, only figures; `advice`: something could be better; `warning`: something should be done;
`error`: jobs fail, or rows are at risk."""

ADVICE_CODES = "PA"
"""How the codes of mere advice begin."""


class Code:
    """Codes of findings that several modules name.

    First those that call for a compaction: rows wait for their buckets, or at level 0; writers wait; triggers fire. Then others
    about buckets: many small files, another bucket count than the option, several counts, too few buckets. Then those about
    tables that cannot be examined: dropped, unreadable, no answer in time; a rule has failed. The last one is about the policy of
    a warehouse.
    """

    POSTPONED = "PD023"
    HIDDEN = "PD025"
    STALLED = "PD012"
    DUE = "PD027"
    CROWDED = "PD011"
    OTHER_COUNT = "PD024"
    MIXED_COUNTS = "PD026"
    TOO_FULL = "PD034"
    DROPPED = "PD028"
    UNREADABLE = "PD030"
    NO_ANSWER = "PD031"
    FAILED = "PD032"
    POLICY = "PD035"


class Topic:
    """What a finding is about."""

    BUCKETS = "buckets"
    SMALL_FILES = "small-files"
    OPTIONS = "options"
    COMPACTION = "compaction"
    HISTORY = "history"


TOPICS = values_of(Topic)
METADATA, LISTING, REPLAY, TOPOLOGY = "metadata", "listing", "replay", "topology"
"""What a rule costs: it reads metadata, lists all directories of the table, replays the commits of its history, or reads what
many of them wrote.
"""
Figure = int | float | str
NOT_SHOWN = {"shown": False}
"""Metadata of a field that is no column of a result."""


@dataclass(frozen=True)
class Remedy:
    """What mends a finding, as `health --fix` does it: exactly what `command` does.

    A compaction by a `strategy`, `options` to set, or manifests that are rewritten. What needs a decision is none: a new job, a
    value that a user set, a rewrite of all rows. What `discards` rows that a read shows is left to the user: a compaction
    drops those that are older than `record-level.expire-time`.
    """

    command: str
    strategy: StrategyName | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    rewrites_manifests: bool = False
    discards: bool = False


@dataclass(frozen=True)
class Finding:
    """One finding. `code`: stable, never reused, empty if all is well; `command`: what to run, empty if it depends on the user.

    `figures`: the evidence; `threshold`: the limit that they are compared with, as text; `remedy`: the command as a value, if
    `health --fix` may run it. `prevents`: the codes of the checks that could not run because of this.
    """

    code: str
    severity: str
    subject: str
    message: str
    command: str = ""
    topic: str = Topic.HISTORY
    figures: Mapping[str, Figure] = field(default_factory=dict)
    threshold: str = ""
    remedy: Remedy | None = field(default=None, metadata=NOT_SHOWN)
    prevents: tuple[str, ...] = field(default=(), metadata=NOT_SHOWN)

    @property
    def finding(self) -> str:
        return f"{self.subject}: {self.message}"


def well(subject: str, message: str, **figures: Figure) -> Finding:
    """The answer of a rule that finds nothing to do, but has figures to show."""
    return Finding("", OK, subject, message, figures=figures)


def command_of(remedy: Remedy | None) -> str:
    """The command of a finding that this mends; empty if nothing does."""
    return "" if remedy is None else remedy.command


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
