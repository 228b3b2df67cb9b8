"""An ORC file, decoded in another process (`orc_process`): whatever its bytes are, they end in rows or in an error here."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import BinaryIO

import pyarrow as pa

from paimon_cli.bucket.orc_decoder import PLACE
from paimon_cli.bucket.orc_process import answer_to


class OrcFile:
    """What pyarrow's `ORCFile` offers, for bytes that nobody vouches for. `source` is any seekable reader, and stays open.

    Raises `pa.ArrowInvalid` for bytes that are no ORC file, also when they crash Arrow's reader; what `source` raises is passed
    on; `StorageUnavailable` if no process can be started.
    """

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self._size = source.seek(0, os.SEEK_END)
        told = self._ask(None, None)
        self.nrows: int
        self.nstripes: int
        self.nrows, self.nstripes = PLACE.unpack(told.slice(0, PLACE.size))
        self.schema: pa.Schema = pa.ipc.read_schema(told.slice(PLACE.size))

    def read_stripe(self, number: int, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """The rows of a stripe, with these columns in the file's order (None: all)."""
        return pa.ipc.open_stream(self._ask(number, columns)).read_next_batch()

    def _ask(self, stripe: int | None, columns: Sequence[str] | None) -> pa.Buffer:
        """The decoder opens the file anew for each request, so that it remembers nothing and any decoder may answer."""
        return answer_to(json.dumps([self._size, stripe, columns]).encode(), self._source)
