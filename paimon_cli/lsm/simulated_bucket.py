"""The sorted runs of a simulated bucket, as files that are only figures, and what a compaction rewrites of them.

A pick is divided into the steps of real compactions, so large files that overlap no other file only change their level.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from paimon_cli.datatypes.key_order import Key
from paimon_cli.lsm.compaction_picker import Rewrite, compaction_steps
from paimon_cli.lsm.sorted_runs import key_sections
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
        """These rows and those of files with greater keys."""


FiguresT = TypeVar("FiguresT", bound=Figures)
Merge = Callable[[Sequence[FiguresT]], FiguresT]
"""The result of merging runs."""


@dataclass(frozen=True)
class SimulatedRun(Generic[FiguresT]):
    """A sorted run: its level, and its files in key order."""

    level: int
    files: tuple[FiguresT, ...]

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


def compacted(
    runs: Sequence[SimulatedRun[FiguresT]], output_level: int, max_level: int, merge: Merge[FiguresT], rolling: Rolling
) -> tuple[SimulatedRun[FiguresT], int]:
    """The run that a compaction of `runs` leaves, and the bytes that it writes."""
    files: dict[str, FiguresT] = {}
    bounds: dict[bytes, Key] = {}
    metas = []
    for run in runs:
        for file in run.files:
            name = str(len(files))
            files[name] = file
            low, high = f"{name} low".encode(), f"{name} high".encode()
            bounds |= {low: file.low, high: file.high}
            metas.append(_meta(name, file, low, high, run.level, max_level))
    kept, written = dict(files), 0
    made: list[FiguresT] = []
    sections = key_sections(metas, bounds.__getitem__)
    for step in compaction_steps(sections, output_level, max_level, rolling.small_size, rewrite_all=rolling.rewrite_all):
        if isinstance(step, Rewrite):
            merged = []
            for section in step.sections:
                parts = [[kept.pop(meta.file_name) for meta in run.files] for run in section]
                joined = [first.joined(others) for first, *others in parts]
                merged.append(merge(joined) if len(joined) > 1 else joined[0])
            whole = merged[0].joined(merged[1:])
            written += whole.size
            made += whole.parts(rolling.target_size)
    return SimulatedRun(output_level, tuple(sorted((*kept.values(), *made), key=lambda file: file.low))), written


def _meta(name: str, file: Figures, low: bytes, high: bytes, level: int, max_level: int) -> DataFileMeta:
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
        level=level,
        delete_row_count=int(file.has_deletes and level < max_level),
    )
