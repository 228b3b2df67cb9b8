"""Universal compaction: picks the sorted runs to compact, a pure function of their sizes and levels (FORMAT.md, section 12).

Follows the main branch of Java's UniversalCompaction, EarlyFullCompaction and ForceUpLevel0Compaction. A pick is always
a prefix of the runs, newest first, so that newer data never sinks below older data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paimon_cli.lsm.sorted_runs import SortedRun

FULL = "full"
OPTIMIZATION_INTERVAL = "optimization-interval"
TOTAL_SIZE = "total-size-threshold"
INCREMENTAL_SIZE = "incremental-size-threshold"
SIZE_AMPLIFICATION = "size-amplification"
SIZE_RATIO = "size-ratio"
FILE_NUMBER = "file-num"
FORCED_LEVEL_0 = "force-up-level-0"


@dataclass(frozen=True)
class RunSize:
    """The level of a sorted run and its size in bytes: all that a pick depends on."""

    level: int
    size: int


@dataclass(frozen=True)
class CompactionPick:
    """Compact the first `run_count` runs into `output_level`. `reason`: the trigger; `arithmetic`: its figures as text."""

    output_level: int
    run_count: int
    reason: str
    arithmetic: str


@dataclass(frozen=True)
class UniversalCompaction:
    """The options of the strategy. Sizes in bytes, times in millis; None turns a trigger off."""

    max_level: int
    run_trigger: int = 5
    max_size_amplification_percent: int = 200
    size_ratio: int = 1
    optimization_interval: int | None = None
    total_size_threshold: int | None = None
    incremental_size_threshold: int | None = None

    def pick(self, runs: Sequence[RunSize], now: int = 0, last_full: int | None = None) -> CompactionPick | None:
        """The pick of the first trigger that fires. `last_full`: when all runs were last compacted together (epoch millis).

        >>> def shown(*runs, **options):
        ...     picked = UniversalCompaction(max_level=5, run_trigger=3, **options).pick([RunSize(*run) for run in runs])
        ...     return picked and (picked.reason, picked.run_count, picked.output_level, picked.arithmetic)

        Two runs are below the trigger. Of three, the newer ones are more than twice as large as the oldest: all are merged.

        >>> shown((0, 10), (5, 10))
        >>> shown((0, 10), (0, 15), (5, 10))
        ('size-amplification', 3, 5, '25 * 100 > 200 * 10')

        Runs of like size are merged; the walk ends before a much larger run, and the result is one level below it.

        >>> shown((0, 10), (0, 10), (5, 100))
        ('size-ratio', 2, 4, '10 * 101% >= 10; stops before run 3: 20 * 101% < 100')

        Runs of very different size: as many as are needed to get below the trigger.

        >>> shown((0, 1), (2, 10), (4, 100), (5, 1000))
        ('file-num', 2, 3, '4 runs > trigger 3')
        """
        return (
            self._early_full(runs, now, last_full)
            or self._size_amplification(runs)
            or self._size_ratio(runs)
            or self._file_number(runs)
        )

    def pick_forcing_level_0(self, runs: Sequence[RunSize], now: int = 0, last_full: int | None = None) -> CompactionPick | None:
        """Like `pick`, but if no trigger fires, all of level 0; for tables whose readers wait for its compaction."""
        picked = self.pick(runs, now, last_full)
        level_0 = sum(run.level == 0 for run in runs)
        if picked or not level_0:
            return picked
        return self._prefix(runs, self._walk(runs, level_0), FORCED_LEVEL_0, f"{level_0} level-0 runs wait")

    def _early_full(self, runs: Sequence[RunSize], now: int, last_full: int | None) -> CompactionPick | None:
        if len(runs) < 2:
            return None
        total = sum(run.size for run in runs)
        new = sum(run.size for run in runs if run.level != self.max_level)
        if self.optimization_interval is not None and (last_full is None or now - last_full > self.optimization_interval):
            age = "no full compaction known" if last_full is None else f"{now - last_full} ms since the last full one"
            return self._all(runs, OPTIMIZATION_INTERVAL, f"{age}, interval {self.optimization_interval} ms")
        if self.total_size_threshold is not None and total < self.total_size_threshold:
            return self._all(runs, TOTAL_SIZE, f"{total} < {self.total_size_threshold} bytes in all")
        if self.incremental_size_threshold is not None and new > self.incremental_size_threshold:
            return self._all(runs, INCREMENTAL_SIZE, f"{new} > {self.incremental_size_threshold} bytes above the top level")
        return None

    def _size_amplification(self, runs: Sequence[RunSize]) -> CompactionPick | None:
        if len(runs) < self.run_trigger or not runs:
            return None
        newer, oldest = sum(run.size for run in runs[:-1]), runs[-1].size
        if newer * 100 <= self.max_size_amplification_percent * oldest:
            return None
        figures = f"{newer} * 100 > {self.max_size_amplification_percent} * {oldest}"
        return self._all(runs, SIZE_AMPLIFICATION, figures)

    def _size_ratio(self, runs: Sequence[RunSize]) -> CompactionPick | None:
        if len(runs) < self.run_trigger:
            return None
        count = self._walk(runs, 1, forced=False)
        if count < 2:
            return None
        return self._prefix(runs, count, SIZE_RATIO, self._walk_figures(runs, 1, count))

    def _file_number(self, runs: Sequence[RunSize]) -> CompactionPick | None:
        if len(runs) <= self.run_trigger:
            return None
        count = self._walk(runs, len(runs) - self.run_trigger + 1)
        return self._prefix(runs, count, FILE_NUMBER, f"{len(runs)} runs > trigger {self.run_trigger}")

    def _walk(self, runs: Sequence[RunSize], start: int, *, forced: bool = True) -> int:
        """The number of runs to pick: the first `start`, and further ones while the next is not much larger than all before it.

        A larger run ends the walk only if its level is above 1, or if nothing is picked yet; a `forced` start counts as picked.
        """
        size = sum(run.size for run in runs[:start])
        count = start
        for run in runs[start:]:
            too_big = size * (100.0 + self.size_ratio) / 100.0 < run.size
            nothing_picked = count == 1 and not forced
            if too_big and (nothing_picked or run.level > 1):
                break
            size += run.size
            count += 1
        return count

    def _walk_figures(self, runs: Sequence[RunSize], start: int, count: int) -> str:
        """The first comparison of a walk from `start` to `count` runs, and the one that ended it, as text."""
        begun = sum(run.size for run in runs[:start])
        figures = f"{begun} * {100 + self.size_ratio}% >= {runs[start].size}"
        if count < len(runs):
            size = sum(run.size for run in runs[:count])
            figures += f"; stops before run {count + 1}: {size} * {100 + self.size_ratio}% < {runs[count].size}"
        return figures

    def _all(self, runs: Sequence[RunSize], reason: str, arithmetic: str) -> CompactionPick:
        return CompactionPick(self.max_level, len(runs), reason, arithmetic)

    def _prefix(self, runs: Sequence[RunSize], count: int, reason: str, arithmetic: str) -> CompactionPick:
        """The pick of the first `count` runs, into the level just above that of the next run. No output goes to level 0: if it
        would, more runs are added.
        """
        level = self.max_level if count == len(runs) else max(0, runs[count].level - 1)
        while level == 0 and count < len(runs):
            level = runs[count].level
            count += 1
        return CompactionPick(self.max_level if count == len(runs) else level, count, reason, arithmetic)


def run_sizes(runs: Sequence[SortedRun]) -> list[RunSize]:
    return [RunSize(run.level, run.size) for run in runs]
