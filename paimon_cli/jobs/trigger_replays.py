"""Whether a table with a goal follows its triggers for a while, because a replay of its last commits found them better.

A service remembers what it found, and replays a table again when there are half as many new commits. Nothing depends on that but
the way in which merges are chosen. So whatever goes wrong with a replay, and where the history is short, reads decide.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from paimon_cli.errors import PaimonError
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.replayed_history import replayed_table
from paimon_cli.lsm.compaction_picker import CompactionPicker
from paimon_cli.lsm.rent_or_buy import HOUR_MILLIS, Goal
from paimon_cli.lsm.replayed_merges import LEAST_COMMITS, ReplayedCosts, replayed_costs
from paimon_cli.options.option_text import human_size
from paimon_cli.storage.injected import Clock, local_hour

MOST_REPLAYS = 100
"""The tables that are replayed in an hour. In a warehouse of many tables, the others wait, and reads decide meanwhile."""
ASKED_EVERY_MILLIS = 300_000
"""How often a table is asked whether it has enough new commits, which takes requests."""
NOT_REPLAYED = ReplayedCosts(0.0, 0.0)


@dataclass(frozen=True)
class TriggerReplay:
    """What a replay found at a snapshot. `commits`: how many were replayed; 0 if the history was too short, or unreadable.
    `asked_millis`: when the table was asked last for new ones (epoch millis).
    """

    snapshot_id: int
    asked_millis: int
    commits: int = 0
    costs: ReplayedCosts = NOT_REPLAYED

    @property
    def follows_triggers(self) -> bool:
        return self.commits > 0 and self.costs.follows_triggers

    def __str__(self) -> str:
        by_reads, by_triggers = (human_size(int(cost)) for cost in self.costs)
        return f"its triggers are better: the last {self.commits} commits cost {by_triggers} with them and {by_reads} by reads"


@dataclass
class TriggerReplays:
    """What a process has found of each table, by its name."""

    clock: Clock
    _of: dict[str, TriggerReplay] = field(default_factory=dict)
    _hour: int = 0
    _made: int = 0

    def of(
        self, table: str, context: TableContext, goal: Goal, rate: Callable[[bytes], float], charge: float
    ) -> TriggerReplay | None:
        """What was found of the table, after another replay if it is due; None if it was never replayed.

        `rate`: reads an hour of a bucket of a partition. `charge`: what rewriting a byte costs, in bytes.
        """
        now, found = self.clock.now_millis(), self._of.get(table)
        if found is not None and now - found.asked_millis < ASKED_EVERY_MILLIS:
            return found
        latest = context.snapshots.latest_id()
        if latest is None:
            return found
        if found is not None and found.snapshot_id <= latest < found.snapshot_id + _wait(found):
            self._of[table] = replace(found, asked_millis=now)
            return found
        if not self._may_replay():
            return found
        # at once: if a look takes too long because of this, the next one does without it
        nothing = TriggerReplay(latest, now)
        self._of[table] = nothing if found is None else replace(found, snapshot_id=latest, asked_millis=now)
        try:
            replayed = replayed_table(context, table, rate, charge)
        except PaimonError:  # what is wrong with the history is no matter of a plan, and snapshots may expire meanwhile
            replayed = None
        if replayed is None:
            self._of[table] = nothing
        else:
            options, max_level = context.options, replayed.max_level
            costs = replayed_costs(replayed, goal, lambda now: CompactionPicker.of(options, max_level, local_hour(now)))
            self._of[table] = TriggerReplay(latest, now, len(replayed.commits), costs)
        return self._of[table]

    def forget(self, table: str) -> None:
        self._of.pop(table, None)

    def _may_replay(self) -> bool:
        hour = self.clock.now_millis() // HOUR_MILLIS
        if hour != self._hour:
            self._hour, self._made = hour, 0
        self._made += 1
        return self._made <= MOST_REPLAYS


def _wait(found: TriggerReplay) -> int:
    """How many snapshots later a table is replayed again."""
    return max(LEAST_COMMITS, found.commits) // 2
