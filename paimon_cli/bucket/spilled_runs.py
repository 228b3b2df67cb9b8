"""Sorted runs on local disk: where a sort buffer, or a merge of very many runs, puts what memory cannot hold."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import pyarrow as pa

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
        self._directory: Path | None = None
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
                self._directory = Path(tempfile.mkdtemp(prefix="paimon-cli-spill-"))
            self._count += 1
            return self._directory / f"run-{self._count}.arrows"

    def _grow(self, size: int) -> None:
        with self._lock:
            self.size += size

    def remove(self, run: SpilledRun) -> None:
        self._grow(-run.size)
        run.path.unlink()

    def close(self) -> None:
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)  # temporary files: nobody misses them, or finds them
            self._directory = None

    def __enter__(self) -> SpillDirectory:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
