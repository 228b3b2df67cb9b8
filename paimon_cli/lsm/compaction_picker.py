"""Picks the next compaction of a bucket, and divides it into steps that rewrite or only upgrade files.

The strategy (Java UniversalCompaction) picks the runs; forced level 0 and off-peak hours modify the pick.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from paimon_cli.lsm.sorted_runs import Section, SortedRun
from paimon_cli.lsm.universal_compaction import FULL, CompactionPick, RunSize, UniversalCompaction
from paimon_cli.metadata.data_file import DataFileMeta
from paimon_cli.options.table_options import TableOptions


@dataclass(frozen=True)
class Rewrite:
    """Merge these sections, one after the other, into new files at the output level."""

    sections: tuple[tuple[SortedRun, ...], ...]

    @property
    def files(self) -> tuple[DataFileMeta, ...]:
        return tuple(file for section in self.sections for run in section for file in run.files)


@dataclass(frozen=True)
class Upgrade:
    """Move a file to the output level, which changes only metadata."""

    file: DataFileMeta


Step = Rewrite | Upgrade


def compaction_steps(
    sections: Sequence[Section],
    output_level: int,
    max_level: int,
    small_file_size: int,
    *,
    rewrite_all: bool = False,
    marked: Collection[str] = (),
) -> list[Step]:
    """The steps of a compaction, in key order.

    Large files that overlap no other file are upgraded; small ones are rewritten together with their neighbours. At the top level
    retractions are dropped, so files that may hold any are rewritten. `marked`: names of files to rewrite without their deleted
    rows, so that their deletion vectors can go.
    """
    steps: list[Step] = []
    candidates: list[tuple[SortedRun, ...]] = []

    def steps_of(file: DataFileMeta) -> Iterator[Step]:
        has_deletes = output_level == max_level and file.delete_row_count != 0
        if rewrite_all or has_deletes or file.file_name in marked:
            yield Rewrite(((SortedRun(file.level, (file,)),),))
        elif file.level != output_level:
            yield Upgrade(file)

    def flush() -> None:
        if len(candidates) == 1 and len(candidates[0]) == 1:
            for file in candidates[0][0].files:
                steps.extend(steps_of(file))
        elif candidates:
            steps.append(Rewrite(tuple(candidates)))
        candidates.clear()

    for section in sections:
        if len(section) > 1:
            candidates.append(tuple(section))
            continue
        for file in section[0].files:
            if file.file_size < small_file_size:
                candidates.append((SortedRun(file.level, (file,)),))
            else:
                flush()
                steps.extend(steps_of(file))
    flush()
    return steps


def steps_one_by_one(files: Sequence[DataFileMeta]) -> list[Step]:
    """Steps that rewrite each file separately, because files between them are not part of the compaction."""
    return [Rewrite(((SortedRun(file.level, (file,)),),)) for file in files]


def may_drop_deletes(output_level: int, highest_level: int, *, marks_old_rows: bool = False) -> bool:
    """Whether a compaction may drop retractions (FORMAT.md, section 12).

    This is the case if no older row can exist in a higher level, or if such rows are marked by deletion vectors.
    """
    return output_level != 0 and (output_level >= highest_level or marks_old_rows)


@dataclass(frozen=True)
class PickState:
    """The state of a bucket between picks.

    `last_full`: when all its runs were last compacted together (epoch millis; None if unknown). `waits`: how many attempts have
    left level 0 waiting since it was last forced.
    """

    last_full: int | None = None
    waits: int = 0


NEVER_PICKED = PickState()
"""The state of a bucket for which nothing has been picked yet."""


@dataclass(frozen=True)
class CompactionPicker:
    """Picks runs to compact. `forced_every`: compact level 0 at every n-th attempt, even if no trigger fires; None for never."""

    strategy: UniversalCompaction
    forced_every: int | None = None

    @staticmethod
    def of(options: TableOptions, max_level: int, hour: int) -> CompactionPicker:
        """The picker of a table at an hour of the day (0 to 23, local time)."""
        strategy = UniversalCompaction(
            max_level=max_level,
            run_trigger=options.compaction_trigger,
            max_size_amplification_percent=options.max_size_amplification_percent,
            size_ratio=options.size_ratio + (options.offpeak_ratio if is_off_peak(options, hour) else 0),
            optimization_interval=options.optimization_interval,
            total_size_threshold=options.total_size_threshold,
            incremental_size_threshold=options.incremental_size_threshold,
        )
        return CompactionPicker(strategy, forced_every(options))

    def pick(self, runs: Sequence[RunSize], now: int, state: PickState) -> tuple[CompactionPick | None, PickState]:
        """The pick, if any, and the state to remember. `runs`: newest first; `now`: epoch millis."""
        picked = self.strategy.pick(runs, now, state.last_full)
        if picked is None and self.forced_every is not None:
            state = replace(state, waits=state.waits + 1)
            if state.waits >= self.forced_every:
                picked, state = self.strategy.pick_forcing_level_0(runs, now, state.last_full), replace(state, waits=0)
        if picked is not None and picked.run_count == len(runs):
            state = replace(state, last_full=now)
        return picked, state

    def forcing_only(self, runs: int) -> CompactionPicker:
        """This picker without its triggers, for a bucket of so many runs: level 0 where the table forces it."""
        return replace(self, strategy=replace(self.strategy, run_trigger=runs + 1))

    def why_not(self, runs: Sequence[RunSize], state: PickState) -> str:
        """The reason why nothing was picked. `state`: as `pick` returned it."""
        trigger = self.strategy.run_trigger
        if not runs:
            return "no files"
        if len(runs) < trigger:
            reason = f"{len(runs)} {'run' if len(runs) == 1 else 'runs'} < trigger {trigger}"
        elif len(runs) == 1:
            reason = "one run"
        else:
            newer, oldest = sum(run.size for run in runs[:-1]), runs[-1].size
            percent, ratio = self.strategy.max_size_amplification_percent, 100 + self.strategy.size_ratio
            reason = f"{len(runs)} runs, {newer} * 100 <= {percent} * {oldest}, {runs[0].size} * {ratio}% < {runs[1].size}"
        if self.forced_every is not None and runs[0].level == 0:
            reason += f"; level 0 waits, attempt {state.waits} of {self.forced_every}"
        return reason


def full_pick(runs: Sequence[SortedRun], max_level: int, *, rewrite_all: bool) -> CompactionPick | None:
    """The pick of all runs into the top level; None if there are none, or only one that may stay at the top level."""
    if not runs or (len(runs) == 1 and runs[0].level == max_level and not rewrite_all):
        return None
    return CompactionPick(max_level, len(runs), FULL, "all runs, as asked")


def is_off_peak(options: TableOptions, hour: int) -> bool:
    """Whether the hour is from `compaction.offpeak.start.hour` up to, but excluding, `.end.hour`. The range may span midnight."""
    start, end = options.offpeak_start_hour, options.offpeak_end_hour
    if start == end:
        return False
    return start <= hour < end if start <= end else hour >= start or hour < end


def forced_every(options: TableOptions) -> int | None:
    """Level 0 is forced at every n-th attempt: 1 if readers wait for it, more with `lookup-compact=gentle`; None for never."""
    if options.force_up_level0:
        return 1
    if not options.looks_up_keys:
        return None
    if options.lookup_compact == "radical":
        return 1
    return max(options.lookup_compact_max_interval, options.compaction_trigger)
