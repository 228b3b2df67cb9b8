"""What a plan wants to merge and how much it matters, and what is left of it: how the tables of a round are ordered."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from paimon_cli.compact.compaction_task import CompactionTask, Decision, PostponedRows, RegroupedPartition, SkippedBucket
from paimon_cli.history.waiting_records import waiting_rows
from paimon_cli.jobs.round_plan import CompactionPlan, by_urgency
from paimon_cli.metadata.table_mode import TableMode
from paimon_cli.requests.compaction import NEVER


@dataclass(frozen=True, order=True)
class Need:
    """Orders tables by urgency: what a goal finds most urgent, most sorted runs above the trigger, then oldest uncompacted file,
    then fewest bytes to read.
    """

    minus_score: float
    runs_below_trigger: int
    since_millis: int
    size: int
    table: str

    @classmethod
    def of(cls, table: str, plan: CompactionPlan, trigger: int) -> Need:
        tasks: list[CompactionTask | PostponedRows | RegroupedPartition] = [*plan.tasks, *plan.postponed, *plan.regrouped]
        runs = max((task.runs_before for task in tasks), default=0)
        since = NEVER if plan.figures.uncompacted_since is None or not tasks else plan.figures.uncompacted_since
        score = max((task.score or 0.0 for task in tasks), default=0.0)
        return cls(-score, trigger - runs, since, sum(task.read_size for task in tasks) + plan.size_to_move, table)


class WantedMerge(NamedTuple):
    """A compaction that asks for a part of a budget. `score`: infinite if it must be made. `runs`: sorted runs of its bucket.

    `shows_rows`: whether readers wait for some of its rows. If it goes deeper than that needs, `level_0_size` is the part that
    does not, and `deeper_score` the score of the rest; 0 if it cannot be divided.
    """

    score: float
    size: int
    runs: int = 0
    shows_rows: bool = False
    level_0_size: int = 0
    deeper_score: float = 0.0

    @classmethod
    def of(cls, task: CompactionTask | PostponedRows | RegroupedPartition, mode: TableMode) -> WantedMerge:
        shows = waiting_rows(mode, task.bucket, task.files) > 0
        wanted = cls(task.score or 0.0, task.read_size, task.runs_before, shows)
        if not isinstance(task, CompactionTask) or not task.level_0_size:
            return wanted
        wanted = wanted._replace(shows_rows=True)
        if task.level_0_alone is None:
            return wanted
        return wanted._replace(level_0_size=task.level_0_size, deeper_score=task.deeper_score)

    @classmethod
    def all_of(cls, plan: CompactionPlan, mode: TableMode) -> tuple[WantedMerge, ...]:
        """What a plan asks for: first that bucket counts are mended, since keys may be read twice until then, then its tasks."""
        mending = [cls(math.inf, plan.size_to_move, shows_rows=True)] if plan.size_to_move else []
        return (*mending, *(cls.of(task, mode) for task in by_urgency(plan.decisions)))

    @property
    def parts(self) -> tuple[WantedMerge, ...]:
        """What asks for itself: level 0, and then the rest, which may be left."""
        if not self.level_0_size:
            return (self,)
        first = self._replace(size=self.level_0_size, level_0_size=0, deeper_score=0.0)
        return first, WantedMerge(self.deeper_score, self.size - self.level_0_size, self.runs)

    @property
    def must_be(self) -> bool:
        return self.score == math.inf

    @property
    def urgency(self) -> tuple[float, bool, int]:
        """By score; of those that must be made, the ones that show rows first, and then by runs."""
        return self.score, self.must_be and self.shows_rows, self.runs if self.must_be else 0

    @property
    def order(self) -> tuple[float, bool, int, int]:
        """The most urgent first, of these the cheapest."""
        score, shows_rows, runs = self.urgency
        return -score, not shows_rows, -runs, self.size

    def __str__(self) -> str:
        runs = f"{self.runs} runs with rows that readers wait for" if self.shows_rows else f"{self.runs} runs"
        return runs if self.must_be else f"score {self.score:.2f}"


@dataclass(frozen=True)
class Left:
    """What a turn has left to later ones: buckets that need a compaction, their bytes, and whole steps. `beyond`, `beyond_size`:
    those of the buckets that are larger than the caps or the whole budget, so that later turns do not take them either.
    """

    buckets: int = 0
    size: int = 0
    steps: tuple[str, ...] = ()
    beyond: int = 0
    beyond_size: int = 0


NOTHING_LEFT = Left()


def left_of(decisions: Iterable[Decision]) -> Left:
    """The buckets whose compaction is left to later turns or runs."""
    left = [decision for decision in decisions if isinstance(decision, SkippedBucket) and decision.is_left]
    beyond = [bucket for bucket in left if bucket.is_beyond]
    return Left(
        len(left),
        sum(bucket.size for bucket in left),
        beyond=len(beyond),
        beyond_size=sum(bucket.size for bucket in beyond),
    )
