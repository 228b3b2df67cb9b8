"""A table of a service, with what its policy makes of its options and of the requests to compact it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from paimon_cli.history.table_context import TableContext
from paimon_cli.inspect.findings.finding import Finding
from paimon_cli.inspect.findings.policy_findings import findings_of_policy
from paimon_cli.jobs.compact_request import CompactRequest
from paimon_cli.jobs.goal_merges import ReadRates, merges_of, unknown_reads
from paimon_cli.jobs.service.budget import Budget
from paimon_cli.jobs.trigger_replays import TriggerReplays
from paimon_cli.maintain.policy import NO_POLICY, PolicyKey, TablePolicy
from paimon_cli.maintain.policy_effect import under_policy


@dataclass(frozen=True)
class ServedTable:
    """A table that the service compacts; `open` returns it with its current schema and options."""

    name: str
    open: Callable[[], TableContext]
    policy: TablePolicy = NO_POLICY
    reads: ReadRates = unknown_reads
    """How often it is read, unless its policy says that."""
    reads_from: Callable[[], str] = lambda: ""
    """The file from which `reads` is known; empty if nothing is known."""

    @property
    def source_of_reads(self) -> str:
        """Where the rate of reads comes from: the line of a policy, a file of counts, or nowhere; then it is empty."""
        said = self.policy.settings.get(PolicyKey.READS)
        return self.reads_from() if said is None else said.place

    def opened(self) -> TableContext:
        """The table with the retention and the trigger of its policy."""
        return under_policy(self.open(), self.policy)

    def findings_of_policy(self) -> list[Finding]:
        """What `health` finds about the lines of a policy that meet the table."""
        if not (self.policy.met or self.policy.refused):
            return []
        context = self.open()
        return findings_of_policy(self.policy, context, f"paimon-cli policy show {context.layout.argument}")

    def limited(
        self, request: CompactRequest, budget: Budget | None = None, replays: TriggerReplays | None = None
    ) -> CompactRequest:
        """A request within the caps of its policy, for one round, and by its goal, unless the request has one. `budget`: what its
        merges are paid from, which says at which rate, and how large one may be. `replays`: those of the process, by which a
        table may follow its triggers while the budget suffices for all that the goal wants.
        """
        size, buckets = self.policy.value(PolicyKey.ROUND_BYTES), self.policy.value(PolicyKey.ROUND_BUCKETS)
        limited = replace(
            request, max_bytes=_smaller(request.max_bytes, size), max_buckets=_smaller(request.max_buckets, buckets)
        )
        merges = request.merges or merges_of(self.policy.value(PolicyKey.GOAL))
        if merges is None:
            return limited
        most_runs, goal = self.policy.value(PolicyKey.RUNS), merges.goal
        if most_runs is not None:
            goal = replace(goal, most_runs=min(most_runs, goal.most_runs))
        most = math.inf if limited.max_bytes is None else limited.max_bytes
        if budget is not None:
            part = budget.part_of_rate
            goal, most = goal.at(part), min(most, budget.most_bytes)
            merges, replays = replace(merges, affords=budget.affords), replays if part >= 1 else None
        said = self.policy.value(PolicyKey.READS)
        reads = self.reads if said is None else lambda table, partition: said
        merges = replace(merges, goal=goal, table=self.name, most_bytes=most, reads=reads, replays=replays)
        return replace(limited, merges=merges)


def _smaller(asked: int | None, cap: int | None) -> int | None:
    return asked if cap is None else cap if asked is None else min(asked, cap)
