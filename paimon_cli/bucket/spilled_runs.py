"""Sorted runs on local disk, for rows that a sort buffer or a merge of many runs cannot hold in memory.

More runs than memory can hold a batch of are merged in passes. A pass only interleaves: all rows of a key survive it, so that
the merge engine sees in the last pass what it would have seen in a single one (FORMAT.md, section 11.2).
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import pyarrow as pa

from paimon_cli.lsm.sort_merge import merge_sorted_runs
from paimon_cli.lsm.sorted_rows import KeepAllVersions, MergeEngine
from paimon_cli.storage.whole_file import ScratchDirectory

CODEC = "lz4"
"""Cheap enough that spilling is bound by the disk."""
SPILLED_BATCH_BYTES = 2 << 20
"""What a merge holds of each spilled run."""


@dataclass(frozen=True)
class SpilledRun:
    """Batches in key order, in one Arrow file of `size` bytes; no key spans two batches."""

    path: Path
    size: int

    def read(self) -> Iterator[pa.RecordBatch]:
        with pa.OSFile(str(self.path)) as source:
            yield from pa.ipc.open_stream(source)


class SpillDirectory:
    """Spilled runs of one writer or one merge; leaving the `with` block (or `close`) removes them.

    The directory appears with the first run, below the system's directory for temporary files (TMPDIR). Buckets that are
    flushed side by side share it.
    """

    def __init__(self) -> None:
        self._directory: ScratchDirectory | None = None
        self._count = 0
        self._lock = threading.Lock()
        self.size = 0
        """Bytes on disk."""

    def write(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> SpilledRun:
        path = self._next_path()
        options = pa.ipc.IpcWriteOptions(compression=CODEC)
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, schema, options=options) as stream:
            for batch in batches:
                stream.write_batch(batch)
        run = SpilledRun(path, path.stat().st_size)
        self._grow(run.size)
        return run

    def _next_path(self) -> Path:
        with self._lock:
            if self._directory is None:
                self._directory = ScratchDirectory("spill")
            self._count += 1
            return self._directory.path / f"run-{self._count}.arrows"

    def _grow(self, size: int) -> None:
        with self._lock:
            self.size += size

    def remove(self, run: SpilledRun) -> None:
        self._grow(-run.size)
        run.path.unlink()

    def close(self) -> None:
        if self._directory is not None:
            self._directory.remove()
            self._directory = None

    def __enter__(self) -> SpillDirectory:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


OpenRun = Callable[[], Iterator[pa.RecordBatch]]
"""Begins to read a run; called when its turn comes, so that not all files are open at once."""


def merge_in_passes(
    runs: Sequence[OpenRun], key_columns: Sequence[str], engine: MergeEngine, most_runs: int, *, keys_repeat: bool = False
) -> Iterator[pa.RecordBatch]:
    """One row per key over all runs, at most `most_runs` (>= 2) of them read at a time.

    `keys_repeat`: a run may hold a key several times, but never in two batches.
    """
    if len(runs) <= most_runs:
        yield from merge_sorted_runs([run() for run in runs], key_columns, engine, keys_repeat=keys_repeat)
        return
    with SpillDirectory() as spill:
        waiting: list[OpenRun] = list(runs)
        while len(waiting) > most_runs:
            # Neighbours are put together, so that runs stay in their order, oldest first: it decides between equal numbers.
            group = min(most_runs, len(waiting) - most_runs + 1)
            last = group if group < most_runs else len(waiting)
            passed = [_interleaved(spill, waiting[i : i + group], key_columns) for i in range(0, last, group)]
            waiting = [*passed, *waiting[last:]]
        yield from merge_sorted_runs([run() for run in waiting], key_columns, engine, keys_repeat=True)


def _interleaved(spill: SpillDirectory, runs: Sequence[OpenRun], key_columns: Sequence[str]) -> OpenRun:
    if len(runs) == 1:
        return runs[0]
    batches = merge_sorted_runs(
        [run() for run in runs], key_columns, KeepAllVersions(), keys_repeat=True, batch_bytes=SPILLED_BATCH_BYTES
    )
    first = next(batches, None)
    if first is None:
        return lambda: iter(())
    return spill.write(itertools.chain([first], batches), first.schema).read
