"""Chooses compactions by what they bring: reads pay for every sorted run that they open, until a merge is worth its price.

A table without readers needs no merge, and one with many needs many. The triggers of `universal_compaction` count
runs and do not know the difference. Here each boundary between runs collects the reads that it has cost ("rent"). Once they are
worth the bytes of the merge that would remove it, the merge is made ("buy"). What was collected follows from the creation times
of the files, so two services decide alike, and a restart forgets nothing. All buckets of all tables are decided together, as
columns. Every engine can go on from each of these merges: they take all of level 0 and then whole levels.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from paimon_cli.lsm.compaction_picker import Rewrite, compaction_steps
from paimon_cli.lsm.sorted_runs import KeyOf, SortedRun, key_sections
from paimon_cli.lsm.universal_compaction import CompactionPick
from paimon_cli.metadata.data_file import DataFileMeta
from paimon_cli.options.option_text import human_size
from paimon_cli.requests.upkeep import GoalName

HOUR_MILLIS = 3_600_000
_LEAST_PART = 1e-9
_SMALL_PART = 0.75
"""How large a run may be, beside what is merged already, so that it goes with a merge for the number of runs."""
_MOST_PATIENCE = 1.26
"""How much more than its price reads pay for a merge in the most patient bucket; in the least, as much less."""
UNKNOWN_READS = 60.0
"""Reads of a bucket in an hour, where nothing is known about them."""


@dataclass(frozen=True)
class Goal:
    """What is wanted, as exchange rates between reads and bytes.

    `bytes_per_run`: the bytes that may be rewritten to save one read the opening of one run. `most_runs`: a bucket with more is
    merged whatever its reads are. `bytes_per_merge`: the requests of a merge and of its commit, as bytes. `storage_hours`:
    keeping a byte this long costs as much as rewriting it, for the files that a merge replaces stay until their snapshots expire.
    """

    name: str
    bytes_per_run: float
    most_runs: int = 20
    bytes_per_merge: int = 256 << 10
    storage_hours: float = 72.0

    @staticmethod
    def of(name: GoalName) -> Goal:
        """The goal of this name."""
        return GOALS[name]

    def at(self, part: float) -> Goal:
        """The same at a part of the rate, for a budget that does not suffice for all that is wanted."""
        return self if part >= 1 else replace(self, bytes_per_run=self.bytes_per_run * max(part, _LEAST_PART))

    def __str__(self) -> str:
        return (
            f"goal {self.name}: {human_size(int(self.bytes_per_run))} may be rewritten to save one read the opening of one "
            f"sorted run, and a bucket has at most {self.most_runs} runs; to keep a byte for {self.storage_hours:g} h is charged "
            f"like rewriting it, a commit like {human_size(self.bytes_per_merge)}"
        )


GOALS = {name: Goal(name, rate) for name, rate in (("latency", 64 << 20), ("balanced", 8 << 20), ("cost", 1 << 20))}


@dataclass(frozen=True)
class MergeOption:
    """A merge of the newest `run_count` runs of a bucket into `output_level`.

    `cost`: bytes that it reads; files that only change their level are free. `charged`: the same with what is charged for keeping
    the replaced files. `gain`: runs that a read opens less afterwards, on the average over all rows. `since`: when reads began to
    pay for these runs (epoch millis, the mean over the boundaries that the merge removes, weighted by their gains).
    """

    run_count: int
    output_level: int
    cost: int
    charged: float
    gain: float
    since: float

    def arithmetic(self, bucket: BucketMerges, now: int, goal: Goal) -> str:
        """What speaks for the merge in its bucket now, and against it, as text."""
        hours, rate = max(0.0, now - self.since) / HOUR_MILLIS, bucket.rate
        opened = self.gain * rate * hours
        price = f"{human_size(int(self.charged) + goal.bytes_per_merge)} x {bucket.patience:.2f}"
        worth, each = human_size(int(opened * goal.bytes_per_run)), human_size(int(goal.bytes_per_run))
        age = f"{hours:.1f} h" if hours >= 1 else f"{hours * 60:.1f} min"
        return (
            f"{rate:g} reads/h x {age} x {self.gain:.2f} runs of {self.run_count} = {opened:.1f} runs opened, worth {worth} at "
            f"{each} each; the merge costs {price}"
        )


@dataclass(frozen=True)
class MergeChoice:
    """What a goal says about one bucket. `pick`: None if no merge is worth it yet, and `why` then says so.

    `score`: of the pick, or of the best merge; infinite for a pick that is made whatever reads pay. `cost`: bytes that the pick
    reads. `is_affordable`: whether the budget has them now, beside what it keeps for merges that must be made.
    """

    pick: CompactionPick | None
    score: float = 0.0
    cost: int | None = None
    why: str = ""
    is_affordable: bool = True


@dataclass(frozen=True)
class BucketMerges:
    """The merges of one bucket, shortest first, and what else decides about it.

    `rate`: reads an hour. `runs`: sorted runs now. `hours_left`: until the partition expires; infinite if it does not.
    `patience`: by what the prices of its merges are multiplied (`patience_of`).
    """

    options: tuple[MergeOption, ...]
    runs: int
    rate: float = UNKNOWN_READS
    hours_left: float = float("inf")
    patience: float = 1.0


def patience_of(name: str, partition: bytes, bucket: int) -> float:
    """By what the prices of all merges of a bucket are multiplied: a number around 1 that never changes. `name`: of the table.

    Buckets that are written and read alike would otherwise all be merged in one round. And the least change of a rate would
    change all of them, so that no rate would have what lies between: fewer bytes for merges in some buckets, and more in others.
    """
    digest = hashlib.blake2b(b"%s %d %s" % (name.encode(), bucket, partition), digest_size=4).digest()
    return float(_MOST_PATIENCE ** (2 * int.from_bytes(digest, "big") / (1 << 32) - 1))


def merge_options(
    runs: Sequence[SortedRun],
    max_level: int,
    small_file_size: int,
    key_of: KeyOf,
    created: Callable[[DataFileMeta], int],
    *,
    rewrite_all: bool = False,
    charge: Callable[[DataFileMeta], float] = lambda file: 1.0,
) -> tuple[MergeOption, ...]:
    """The merges of a bucket that are worth a thought: all of level 0, and then one level more each time.

    The result goes to the level above the next run, but never to level 0, or to `max_level` if nothing is left. `runs`: newest
    first. `created`: when a file was made (epoch millis). `charge`: what rewriting a byte of the file costs, in bytes, because
    the file is kept for a while.

    What the prefix of `count` runs gains over the next shorter one belongs to the boundary above its last run, which reads have
    paid for since it exists.
    """
    new = sum(run.level == 0 for run in runs)
    keys = {key: key_of(key) for run in runs for file in run.files for key in (file.min_key, file.max_key)}

    def range_of(files: Iterable[DataFileMeta]) -> KeyRange:
        """From the least to the greatest key of the files, with their rows."""
        found = [*files]
        low, high = min(keys[file.min_key] for file in found), max(keys[file.max_key] for file in found)
        return low, high, sum(file.row_count for file in found)

    ranges = [[range_of((file,)) for file in run.files] for run in runs]
    before = runs_of_a_read(part for of_run in ranges for part in of_run)
    options: list[MergeOption] = []
    gain = weighted = 0.0
    for count in range(max(new, 2), len(runs) + 1):
        level = max_level if count == len(runs) else runs[count].level - 1
        if level <= 0:
            continue  # before a run of level 1 there is no level to which the result could go
        merged = {file.file_name: file for run in runs[:count] for file in run.files}
        sections = key_sections(merged.values(), keys.__getitem__)
        cost, charged, after = 0, 0.0, [part for of_run in ranges[count:] for part in of_run]
        for step in compaction_steps(sections, level, max_level, small_file_size, rewrite_all=rewrite_all):
            if isinstance(step, Rewrite):
                after += [range_of(file for run in section for file in run.files) for section in step.sections]
                for file in step.files:
                    cost, charged = cost + file.file_size, charged + file.file_size * charge(file)
                    del merged[file.file_name]
        after += [range_of((file,)) for file in merged.values()]
        more = max(0.0, before - runs_of_a_read(after) - gain)
        since = _paid_since(runs, count, new, created)
        gain, weighted = gain + more, weighted + more * since
        options.append(MergeOption(count, level, cost, charged, gain, weighted / gain if gain else since))
    return tuple(options)


def _paid_since(runs: Sequence[SortedRun], count: int, new: int, created: Callable[[DataFileMeta], int]) -> float:
    """Since when the boundary above the last of the first `count` runs exists.

    Level 0: for the mean age of its files. Below files of level 0 alone: since the oldest of these. Else since the last run was
    made; what was merged above it in the meantime does not show when its first rows came.
    """
    newer = [created(file) for run in runs[: min(new, count)] for file in run.files]
    if count <= new:
        return sum(newer) / len(newer)
    last = max(created(file) for file in runs[count - 1].files)
    return max(last, min(newer)) if count == new + 1 and newer else last


KeyRange = tuple[Any, Any, int]
"""The least and the greatest key of some rows, and their number."""


def runs_of_a_read(ranges: Iterable[KeyRange]) -> float:
    """How many sorted runs a read opens, on the average over all rows: the fewest for each section of overlapping ranges.

    >>> runs_of_a_read([(0, 9, 10), (2, 3, 10), (20, 29, 20)])
    1.5
    """
    opened = rows = section = 0
    ends: list[Any] = []
    reach: Any = None
    for low, high, count in sorted(ranges, key=lambda item: item[:2]):
        if ends and low > reach:
            opened, rows, section, ends = opened + section * len(ends), rows + section, 0, []
        if ends and low > ends[0]:
            heapq.heapreplace(ends, high)
        else:
            heapq.heappush(ends, high)
        reach = high if section == 0 else max(reach, high)
        section += count
    opened, rows = opened + section * len(ends), rows + section
    return opened / rows if rows else 0.0


@dataclass(frozen=True)
class MergeCandidates:
    """The merges of many buckets as columns, by bucket and the shortest first.

    `bucket`: the number of the bucket. `runs`: its sorted runs now. `rate`, `hours_left`, `patience`: of the bucket. The others
    are those of `MergeOption`.
    """

    bucket: np.ndarray
    run_count: np.ndarray
    cost: np.ndarray
    charged: np.ndarray
    gain: np.ndarray
    since: np.ndarray
    runs: np.ndarray
    rate: np.ndarray
    hours_left: np.ndarray
    patience: np.ndarray

    @classmethod
    def of(cls, buckets: Sequence[BucketMerges]) -> MergeCandidates:
        rows = [(number, bucket, option) for number, bucket in enumerate(buckets) for option in bucket.options]

        def column(values: Iterable[float], kind: type) -> np.ndarray:
            return np.fromiter(values, kind, len(rows))

        return cls(
            column((number for number, _, _ in rows), np.int64),
            column((option.run_count for _, _, option in rows), np.int64),
            column((option.cost for _, _, option in rows), np.float64),
            column((option.charged for _, _, option in rows), np.float64),
            column((option.gain for _, _, option in rows), np.float64),
            column((option.since for _, _, option in rows), np.float64),
            column((bucket.runs for _, bucket, _ in rows), np.int64),
            column((bucket.rate for _, bucket, _ in rows), np.float64),
            column((bucket.hours_left for _, bucket, _ in rows), np.float64),
            column((bucket.patience for _, bucket, _ in rows), np.float64),
        )

    def score(self, now: int, goal: Goal) -> np.ndarray:
        """What reads have paid for the lack of each merge, divided by its price: from 1 on it is worth it. `now`: epoch millis.

        0 for one in a partition that expires before the merge would pay.
        """
        hours = np.maximum(now - self.since, 0) / HOUR_MILLIS
        return np.where(np.isfinite(self._hours_to_pay(goal)), hours * self._worth(goal) / self.price(goal), 0.0)

    def due(self, goal: Goal) -> np.ndarray:
        """When the score of each merge reaches 1 (epoch millis); infinite where it never does."""
        return self.since + self._hours_to_pay(goal) * HOUR_MILLIS

    def _worth(self, goal: Goal) -> np.ndarray:
        """What reads pay in an hour for the lack of each merge, in bytes."""
        return self.gain * self.rate * goal.bytes_per_run

    def price(self, goal: Goal) -> np.ndarray:
        """What each merge costs, in bytes, as its bucket takes it."""
        return np.maximum(self.charged + goal.bytes_per_merge, 1.0) * self.patience

    def _hours_to_pay(self, goal: Goal) -> np.ndarray:
        """How long reads take to pay for each merge; infinite where they never do."""
        worth = self._worth(goal)
        hours = np.divide(self.price(goal), worth, out=np.full(len(worth), np.inf), where=worth > 0)
        return np.where(hours > self.hours_left, np.inf, hours)


@dataclass(frozen=True)
class ChosenMerges:
    """Merges as indices of candidates, at most one of each bucket, the most urgent first. `score`: of each; `is_forced`: for the
    number of runs, whatever the score is.
    """

    index: np.ndarray
    score: np.ndarray
    is_forced: np.ndarray


def best_merges(found: MergeCandidates, now: int, goal: Goal, most_bytes: float = np.inf) -> ChosenMerges:
    """The merges that the goal asks for, the most urgent first.

    Buckets with more runs than `most_runs` come first, those with the most before: they take the cheapest merge that helps, or
    else the deepest. Then those whose collected reads are worth the price, by score; of the merges of a bucket the one that is
    worth most beyond its price. `most_bytes`: larger merges are made for the number of runs only, as far as the budget allows it.

    Two files of level 0, one and three hours old, stand on a run of level 5 that was made ten hours ago.

    >>> options = MergeOption(2, 4, 20, 20, 1, -2 * HOUR_MILLIS), MergeOption(3, 5, 1020, 1020, 2, -2.5 * HOUR_MILLIS)
    >>> found = MergeCandidates.of([BucketMerges(options, runs=3, rate=10)])

    In two hours, 20 reads have opened a run too many in level 0, and one more above level 5 for three hours. At 2 bytes for an
    opened run, merging level 0 has paid: 40 bytes for 20. Merging all has not: 100 for 1,020.

    >>> goal = Goal("two bytes", 2.0, bytes_per_merge=0)
    >>> found.score(0, goal).round(2).tolist(), best_merges(found, 0, goal).index.tolist()
    ([2.0, 0.1], [0])
    """
    score = found.score(now, goal)
    fits = found.cost <= most_bytes
    index = _first_with_most(found.bucket, np.where((score >= 1) & fits, (score - 1) * found.price(goal), -1.0))
    forced = _forced(found, goal.most_runs, most_bytes)
    if len(forced):
        index = np.concatenate([forced, index[~np.isin(found.bucket[index], found.bucket[forced])]])
    is_forced = np.arange(len(index)) < len(forced)
    order = np.lexsort(
        (found.cost[index], np.where(is_forced, -found.runs[index], 0), np.where(is_forced, -np.inf, -score[index]))
    )
    index = index[order]
    return ChosenMerges(index, score[index], is_forced[order])


def _forced(found: MergeCandidates, most_runs: int, most_bytes: float) -> np.ndarray:
    """The merges of buckets with more than `most_runs` runs: the cheapest that helps; where none does, the deepest.

    The next run goes with it while it is small beside what is merged already. Without that the free levels fill with equal runs,
    and then each merge rewrites a newest run that only grows; with larger ones, large runs are rewritten too often.
    """
    above = np.flatnonzero(found.runs > most_runs)
    after = found.runs[above] - found.run_count[above] + 1
    helping = above[_first_with_most(found.bucket[above], np.where(after <= most_runs, 1 / (1 + found.charged[above]), -1.0))]
    deepest = above[_first_with_most(found.bucket[above], found.run_count[above].astype(np.float64))]
    goes_on = (found.bucket[1:] == found.bucket[:-1]) & (
        found.cost[1:] <= np.minimum((1 + _SMALL_PART) * found.cost[:-1], most_bytes)
    )
    ends = np.flatnonzero(np.append(~goes_on, True))
    helping = ends[np.searchsorted(ends, helping)]
    return np.concatenate([helping, deepest[~np.isin(found.bucket[deepest], found.bucket[helping])]])


def _first_with_most(bucket: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Of each bucket the index of its greatest value, the first of equal ones. Buckets with only negative values have none."""
    if not len(bucket):
        return np.zeros(0, np.int64)
    begins = np.flatnonzero(np.append(True, bucket[1:] != bucket[:-1]))
    most = np.maximum.reduceat(value, begins)
    at = np.flatnonzero(value == np.repeat(most, np.diff(np.append(begins, len(bucket)))))
    at = at[value[at] >= 0]
    return at[np.append(True, bucket[at][1:] != bucket[at][:-1])[: len(at)]]
