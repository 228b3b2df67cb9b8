"""How a pick is carried out: which files are rewritten and which only change their level (Java MergeTreeCompactTask)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from paimon_cli.lsm.key_intervals import Section
from paimon_cli.lsm.sorted_run import SortedRun
from paimon_cli.metadata.data_file import DataFileMeta


@dataclass(frozen=True)
class Rewrite:
    """Merge these sections, one after the other, into new files at the output level."""

    sections: tuple[tuple[SortedRun, ...], ...]

    @property
    def files(self) -> tuple[DataFileMeta, ...]:
        return tuple(file for section in self.sections for run in section for file in run.files)


@dataclass(frozen=True)
class Upgrade:
    """Give the file the output level: metadata only."""

    file: DataFileMeta


Step = Rewrite | Upgrade


def compaction_steps(
    sections: Sequence[Section], output_level: int, max_level: int, small_file_size: int, *, rewrite_all: bool = False
) -> list[Step]:
    """Steps in key order. Big files that overlap nothing are upgraded; small ones join the rewrite of their neighbours.

    A file that may hold deletes is rewritten when it arrives at (or lies at) the top level, where deletes must go.
    """
    steps: list[Step] = []
    candidates: list[tuple[SortedRun, ...]] = []

    def settle(file: DataFileMeta) -> Iterator[Step]:
        if rewrite_all or (output_level == max_level and file.delete_row_count != 0):
            yield Rewrite(((SortedRun(file.level, (file,)),),))
        elif file.level != output_level:
            yield Upgrade(file)

    def flush() -> None:
        if len(candidates) == 1 and len(candidates[0]) == 1:
            for file in candidates[0][0].files:
                steps.extend(settle(file))
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
                steps.extend(settle(file))
    flush()
    return steps


def may_drop_deletes(output_level: int, highest_level: int) -> bool:
    """Retractions may go only when nothing older can lie below the output (format section 12)."""
    return output_level != 0 and output_level >= highest_level
