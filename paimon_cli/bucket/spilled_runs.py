"""Sorted runs on local disk, for rows that do not fit into memory, and merges of many runs in several passes.

If memory cannot hold a batch of each run, runs are merged in passes. All passes but the last only interleave: they keep all rows
of a key, so that the merge engine gets the same rows as in a single pass (FORMAT.md, section 11.2).
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
from paimon_cli.pieces import PIECES
from paimon_cli.storage.whole_file import ScratchDirectory

_CODEC = "lz4"
"""Fast enough that the disk limits spilling."""


@dataclass(frozen=True)
class SpilledRun:
    """Batches in key order, in one Arrow file of `size` bytes; no key spans two batches."""

    path: Path
    size: int

    def read(self) -> Iterator[pa.RecordBatch]:
        with pa.OSFile(str(self.path)) as source:
            yield from pa.ipc.open_stream(source)


class SpillDirectory:
    """A directory for the spilled runs of one writer or one merge, removed at the end of the `with` block, or by `close`.

    It is created with the first run, in the system's directory for temporary files (TMPDIR). Threads may share it.
    """

    def __init__(self) -> None:
        self._directory: ScratchDirectory | None = None
        self._count = 0
        self._lock = threading.Lock()
        self.size = 0
        """Bytes on disk."""

    def write(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> SpilledRun:
        path = self.next_path()
        options = pa.ipc.IpcWriteOptions(compression=_CODEC)
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, schema, options=options) as stream:
            for batch in batches:
                stream.write_batch(batch)
        run = SpilledRun(path, path.stat().st_size)
        self._grow(run.size)
        return run

    def next_path(self) -> Path:
        """A path in the directory, for a new file."""
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

    def __exit__(self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


OpenRun = Callable[[], Iterator[pa.RecordBatch]]
"""Starts to read a run. Called only when the run is merged, so that not all files are open at once."""


def merge_in_passes(
    runs: Sequence[OpenRun], key_columns: Sequence[str], engine: MergeEngine, max_runs: int, *, keys_repeat: bool = False
) -> Iterator[pa.RecordBatch]:
    """Merge all runs, oldest first, into one row per key, reading at most `max_runs` (at least 2) of them at a time.

    `keys_repeat`: a run may hold a key several times, but never in two batches.
    """
    if len(runs) <= max_runs:
        yield from merge_sorted_runs([run() for run in runs], key_columns, engine, keys_repeat=keys_repeat)
        return
    with SpillDirectory() as spill:
        remaining: list[OpenRun] = list(runs)
        while len(remaining) > max_runs:
            # Only adjacent runs are combined, so that runs stay in order, which decides between equal sequence numbers.
            group = min(max_runs, len(remaining) - max_runs + 1)
            end = group if group < max_runs else len(remaining)
            combined = [_interleaved(spill, remaining[i : i + group], key_columns) for i in range(0, end, group)]
            remaining = [*combined, *remaining[end:]]
        yield from merge_sorted_runs([run() for run in remaining], key_columns, engine, keys_repeat=True)


def _interleaved(spill: SpillDirectory, runs: Sequence[OpenRun], key_columns: Sequence[str]) -> OpenRun:
    if len(runs) == 1:
        return runs[0]
    batches = merge_sorted_runs(
        [run() for run in runs], key_columns, KeepAllVersions(), keys_repeat=True, batch_bytes=PIECES.spilled_batch_bytes
    )
    first = next(batches, None)
    if first is None:
        return lambda: iter(())
    return spill.write(itertools.chain([first], batches), first.schema).read
