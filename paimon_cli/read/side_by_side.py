"""Splits read on several cores, their batches in the order of the splits."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from typing import TypeVar

import pyarrow as pa

from paimon_cli.storage.read_ahead import ReadAhead

AHEAD_BYTES = 256 << 20
"""Decoded rows that may wait for their turn, of all splits together."""

Split = TypeVar("Split")


def read_side_by_side(
    splits: Sequence[Split], read: Callable[[Split], Iterator[pa.RecordBatch]], threads: int
) -> Iterator[pa.RecordBatch]:
    """What `read` gives for each split, in order; up to `threads` splits are at work while the caller takes rows."""
    if threads < 2 or len(splits) < 2:
        for split in splits:
            yield from read(split)
        return
    waiting = iter(splits)  # of very many each is made when its turn comes
    with ExitStack() as running:
        streams: deque[ReadAhead[pa.RecordBatch]] = deque()
        for _ in range(len(splits)):
            for split in islice(waiting, threads - len(streams)):
                streams.append(running.enter_context(ReadAhead(read(split), AHEAD_BYTES // threads)))
            yield from streams.popleft()
