"""Copies of the sorted keys of data files, as memory-mapped Arrow files on local disk, for files with many key lookups."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from paimon_cli.lsm.key_search import ABSENT, Indices, SortedKeys
from paimon_cli.pieces import PIECES


@dataclass(frozen=True)
class KeyCopy:
    """All keys of one file, in pieces. `starts`: the row of each piece's first key; `firsts`: these keys, in memory."""

    path: Path
    size: int
    pieces: tuple[SortedKeys, ...]
    starts: Indices
    firsts: SortedKeys

    @staticmethod
    def write(path: Path, batches: Iterable[SortedKeys]) -> KeyCopy:
        """Write the copy to `path`. `batches`: the keys of the file in order, at least one."""
        try:
            _write(path, _pieces(batches))
            return KeyCopy._open(path)
        except BaseException:
            path.unlink(missing_ok=True)
            raise

    @staticmethod
    def _open(path: Path) -> KeyCopy:
        reader = pa.ipc.open_file(pa.memory_map(str(path)))
        stored = [reader.get_batch(number) for number in range(reader.num_record_batches)]
        pieces = tuple(SortedKeys(tuple(batch.columns)) for batch in stored)
        sizes = np.array([len(piece) for piece in pieces])
        firsts = pa.Table.from_batches([batch.slice(0, 1) for batch in stored]).combine_chunks().columns
        return KeyCopy(
            path,
            path.stat().st_size,
            pieces,
            np.cumsum(sizes) - sizes,
            SortedKeys(tuple(column.chunk(0) for column in firsts)),
        )

    def positions(self, keys: SortedKeys) -> Indices:
        """The row of each key, `ABSENT` for keys that the file does not hold. `keys` ascend."""
        found = np.full(len(keys), ABSENT, np.int64)
        numbers = self.firsts.up_to(keys) - 1
        bounds = np.searchsorted(numbers, np.arange(len(self.pieces) + 1))
        for number in np.flatnonzero(bounds[1:] > bounds[:-1]).tolist():
            begin, end = int(bounds[number]), int(bounds[number + 1])
            wanted, piece = keys.slice(begin, end), self.pieces[number]
            at = piece.below(wanted)
            found[begin:end] = np.where(piece.equal_at(at, wanted), self.starts[number] + at, ABSENT)
        return found

    def remove(self) -> None:
        """Delete the file. Mapped keys stay readable as long as they are in use."""
        with contextlib.suppress(OSError):  # its directory is deleted anyway
            self.path.unlink()


def _pieces(batches: Iterable[SortedKeys]) -> Iterator[pa.RecordBatch]:
    waiting: list[pa.RecordBatch] = []
    for keys in batches:
        names = [str(number) for number in range(len(keys.columns))]
        waiting.append(pa.RecordBatch.from_arrays(list(keys.columns), names=names))
        if sum(batch.nbytes for batch in waiting) >= PIECES.key_piece_bytes:
            yield pa.concat_batches(waiting)
            waiting = []
    if waiting:
        yield pa.concat_batches(waiting)


def _write(path: Path, pieces: Iterator[pa.RecordBatch]) -> None:
    first = next(pieces)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, first.schema) as writer:
        writer.write_batch(first)
        for piece in pieces:
            writer.write_batch(piece)
