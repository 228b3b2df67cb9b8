"""The sorted runs of a simulated bucket, as files that are only figures, and what a compaction rewrites of them.

A pick is divided into the steps of real compactions, so large files that overlap no other file only change their level.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from paimon_cli.datatypes.key_order import Key
from paimon_cli.lsm.compaction_picker import Rewrite, compaction_steps
from paimon_cli.lsm.sorted_runs import SortedRun, key_sections
from paimon_cli.metadata.data_file import EMPTY_ROW, DataFileMeta, SimpleStats

F = TypeVar("F", bound="Figures")


class Figures(Protocol):
    """What a simulation knows of the rows of a file, or of a sorted run: their number, bytes and range of keys."""

    @property
    def rows(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def low(self) -> Key: ...

    @property
    def high(self) -> Key: ...

    @property
    def has_deletes(self) -> bool: ...

    def parts(self: F, size: int) -> Sequence[F]:
        """The rows as files of about `size` bytes, in key order."""

    def joined(self: F, following: Sequence[F]) -> F:
        """These rows and the rows of files with greater keys."""


FiguresT = TypeVar("FiguresT", bound=Figures)
Merge = Callable[[Sequence[FiguresT]], FiguresT]
"""The result of merging runs."""


@dataclass(frozen=True)
class SimulatedRun(Generic[FiguresT]):
    """A sorted run: its level, its files in key order, and when it was made (epoch millis)."""

    level: int
    files: tuple[FiguresT, ...]
    created: int = 0

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(file.size for file in self.files)

    @property
    def whole(self) -> FiguresT:
        return self.files[0].joined(self.files[1:])


@dataclass(frozen=True)
class Rolling:
    """The size at which files roll, the size (bytes) below which a file is rewritten with its neighbours, and whether all are."""

    target_size: int
    small_size: int
    rewrite_all: bool = False


@dataclass(frozen=True)
class SimulatedFiles(Generic[FiguresT]):
    """Simulated runs as compactions see them. `figures`: of each file, by its name."""

    runs: list[SortedRun]
    key_of: Callable[[bytes], Key]
    figures: dict[str, FiguresT]

    @classmethod
    def of(cls, runs: Sequence[SimulatedRun[FiguresT]], max_level: int) -> SimulatedFiles[FiguresT]:
        figures: dict[str, FiguresT] = {}
        bounds: dict[bytes, Key] = {}
        found = []
        for run in runs:
            metas = []
            for file in run.files:
                name = str(len(figures))
                low, high = f"{name} low".encode(), f"{name} high".encode()
                figures[name] = file
                bounds |= {low: file.low, high: file.high}
                metas.append(_meta(name, file, low, high, run, max_level))
            found.append(SortedRun(run.level, tuple(metas)))
        return cls(found, bounds.__getitem__, figures)


@dataclass(frozen=True)
class SimulatedCompaction(Generic[FiguresT]):
    """The run that a compaction leaves, and the bytes that it reads and writes: files that are only upgraded do not count."""

    run: SimulatedRun[FiguresT]
    read: int
    written: int


def compacted(
    runs: Sequence[SimulatedRun[FiguresT]],
    output_level: int,
    max_level: int,
    merge: Merge[FiguresT],
    rolling: Rolling,
    now: int = 0,
) -> SimulatedCompaction[FiguresT]:
    """Compact `runs` at the moment `now` (epoch millis)."""
    files = SimulatedFiles.of(runs, max_level)
    kept, read, written = files.figures, 0, 0
    made: list[FiguresT] = []
    sections = key_sections((meta for run in files.runs for meta in run.files), files.key_of)
    for step in compaction_steps(sections, output_level, max_level, rolling.small_size, rewrite_all=rolling.rewrite_all):
        if isinstance(step, Rewrite):
            merged = []
            for section in step.sections:
                parts = [[kept.pop(meta.file_name) for meta in run.files] for run in section]
                read += sum(file.size for part in parts for file in part)
                joined = [first.joined(others) for first, *others in parts]
                merged.append(merge(joined) if len(joined) > 1 else joined[0])
            whole = merged[0].joined(merged[1:])
            written += whole.size
            made += whole.parts(rolling.target_size)
    result = tuple(sorted((*kept.values(), *made), key=lambda file: file.low))
    created = now if made else max(run.created for run in runs)
    return SimulatedCompaction(SimulatedRun(output_level, result, created), read, written)


def _meta(name: str, file: Figures, low: bytes, high: bytes, run: SimulatedRun[FiguresT], max_level: int) -> DataFileMeta:
    """The file as compactions see it. At the top level it holds no deletes any more."""
    return DataFileMeta(
        file_name=name,
        file_size=file.size,
        row_count=file.rows,
        min_key=low,
        max_key=high,
        key_stats=SimpleStats(EMPTY_ROW, EMPTY_ROW),
        value_stats=SimpleStats(EMPTY_ROW, EMPTY_ROW),
        min_sequence_number=0,
        max_sequence_number=0,
        schema_id=0,
        level=run.level,
        delete_row_count=int(file.has_deletes and run.level < max_level),
        creation_time_millis=run.created,
    )
