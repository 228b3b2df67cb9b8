"""The request for a compaction: what the user asks for, and what the job itself does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, replace
from typing import TYPE_CHECKING

from paimon_cli.compact.compaction_plan import MINOR_STRATEGY
from paimon_cli.compact.compaction_task import CompactionTask, Decision
from paimon_cli.compact.key_ranges import KeyRanges, key_ranges, why_whole
from paimon_cli.datatypes.binary_row import deserialize_row
from paimon_cli.datatypes.canonical_form import canonical_json
from paimon_cli.history.live_files import BucketFiles
from paimon_cli.history.table_context import TableContext
from paimon_cli.lsm.compaction_picker import PickState
from paimon_cli.metadata.data_file import BucketId, CommitMessage
from paimon_cli.metadata.table_layout import POSTPONE_BUCKET
from paimon_cli.options.option_text import human_size, printable, shortened
from paimon_cli.requests.compaction import CompactOptions

if TYPE_CHECKING:
    from paimon_cli.jobs.goal_merges import GoalChoices, GoalMerges
    from paimon_cli.write.sorted_write import SortOrder

States = dict[BucketId, PickState]
"""What a process remembers about a table's buckets from one plan to the next."""
_SHOWN_KEYS = 8
"""Keys that a plan names at most."""


class CompactRequest(CompactOptions):
    """The user's request, and what the job itself asks for.

    `distributed`: the postponed rows that this round has distributed already, each partition as a bucket. `turn_bytes`: the
    limit of a turn in a service while other tables wait; one bucket is compacted even if it is larger. `budget_bytes`: what is
    left of the budget of a run, which never holds more than `budget_whole`; `budget_says`: why it is not more, if that is known
    better. `unknown_buckets_allowed`: ignore bucket numbers that a table lacks, for requests to several tables.
    `forces_level_0`: as for `plan_bucket`. `regroups`: partitions with postponed buckets may get another bucket count, unless
    partitions or buckets are chosen. `bytes_before`: what this round has read so far, towards its limits. `merges`: how a goal
    chooses them, where it may.
    """

    _: KW_ONLY
    distributed: tuple[CommitMessage, ...] = ()
    turn_bytes: int | None = None
    budget_bytes: int | None = None
    budget_whole: int | None = None
    budget_says: str = ""
    unknown_buckets_allowed: bool = False
    forces_level_0: bool = True
    regroups: bool = False
    bytes_before: int = 0
    merges: GoalMerges | None = None

    @property
    def may_regroup(self) -> bool:
        """Whether the bucket counts of partitions may change: they are a matter of whole tables, and of services."""
        return self.regroups and not (self.partition or self.bucket or self.order_by or self.if_snapshot is not None)

    def mends_counts(self, context: TableContext) -> bool:
        """Whether it mends what a rescale has left over: files of an old count, and an old option."""
        return self.may_regroup and not context.mode.bucket_mode.postpones

    def choices(self, context: TableContext, buckets: Sequence[BucketFiles]) -> GoalChoices | None:
        """What the goal chooses to merge in these buckets; None without one, or where another strategy is asked for."""
        return None if self.merges is None or self.strategy != MINOR_STRATEGY else self.merges.choices(context, buckets)

    @property
    def merges_afterwards(self) -> bool:
        """Whether postponed rows are only placed, and a later plan merges their buckets. What such a merge reads is not known
        before, so with it a round could exceed its limits, or do what its goal would not.
        """
        limits = (self.budget_bytes, self.max_bytes, self.max_buckets)
        return self.merges is not None or any(limit is not None for limit in limits)

    @property
    def order(self) -> SortOrder | None:
        """How to sort the rows of whole partitions, which replaces the strategy."""
        if self.order_by is None:
            return None
        from paimon_cli.write.sorted_write import ORDER, SortOrder  # only a compaction that sorts writes rows

        return SortOrder(self.order_by, self.order_strategy or ORDER)

    def cuts_runs(self, context: TableContext) -> bool:
        """Whether runs of large buckets may be cut into ranges of keys before they are compacted."""
        return self.ranges_over is not None and self.if_snapshot is None and self.order is None and context.mode.has_keys

    def ranges_of(self, context: TableContext, task: CompactionTask) -> KeyRanges | None:
        """How the task is divided; None if it is carried out as a whole. A given plan is, since its files would be replaced."""
        if not self._is_large(task) or not self.cuts_runs(context) or why_whole(context, task) is not None:
            return None
        found = key_ranges(context, task)
        return found if found.count > 1 else None

    def _is_large(self, task: CompactionTask) -> bool:
        return self.ranges_over is not None and task.size > self.ranges_over

    def noting_ranges(self, context: TableContext, decision: Decision) -> Decision:
        """The decision, which says in how many ranges of keys it is carried out."""
        if not isinstance(decision, CompactionTask) or not self._is_large(decision) or self.order is not None:
            return decision
        found = self.ranges_of(context, decision)
        if found is None:
            why = why_whole(context, decision) or ("the plan is given" if self.if_snapshot is not None else "it has one section")
            text = f"one range of keys: {why}"
        else:
            cut = f" after the upper runs are cut ({human_size(found.cut.size)})" if found.cut is not None else ""
            text = f"{found.count} ranges of keys{cut}{_beginning(context, found)}"
            decision = replace(decision, ranges=found.count, commits=found.commits + (found.cut is not None))
        return replace(decision, arithmetic=f"{decision.arithmetic}; {text}")

    def after(self, messages: Sequence[CommitMessage]) -> CompactRequest:
        """The request for the rest of a round in which postponed rows were distributed."""
        return replace(self, distributed=tuple(message for message in messages if message.bucket == POSTPONE_BUCKET))

    def after_reading(self, size: int) -> CompactRequest:
        """The request for the rest of a round that has read so many bytes."""
        return replace(self, bytes_before=self.bytes_before + size)

    def pays_for_counts(self, size: int) -> bool:
        """Whether the limits suffice to mend bucket counts, which reads `size` bytes."""
        limits = [limit for limit in (self.budget_bytes, self.max_bytes) if limit is not None]
        return not limits or self.bytes_before + size <= min(limits)


def _beginning(context: TableContext, ranges: KeyRanges) -> str:
    """With which keys the ranges begin that do not begin with a file, as text."""
    shown = ", ".join(_key_text(context, begin) for begin in ranges.begins[:_SHOWN_KEYS])
    more = ", ..." if len(ranges.begins) > _SHOWN_KEYS else ""
    return f", from {shown}{more} on" if shown else ""


def _key_text(context: TableContext, key: bytes) -> str:
    values = zip(deserialize_row(key, context.key_types), context.key_types, strict=True)
    return "/".join(printable(shortened(str(canonical_json(value, t)))) for value, t in values)
