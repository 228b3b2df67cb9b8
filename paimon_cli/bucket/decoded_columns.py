"""Whether decoded columns hold what their types promise: decoders do not look at texts and decimals of hostile files."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def check_decoded(batch: pa.RecordBatch) -> None:
    """ArrowInvalid for texts that are no UTF-8, decimals with too many digits, nested values that lead nowhere."""
    for column in batch.columns:
        column.validate()
        if not (pa.types.is_string(column.type) and _is_ascii(column)):
            column.validate(full=True)


def _is_ascii(texts: pa.Array) -> bool:
    """Whether all bytes are ASCII: asked of all as of one long text, that is far quicker than of one by one.

    Nothing follows for texts that are not: a character might be cut between two of them.
    """
    _, offsets, data = texts.buffers()
    if data is None or len(texts) == 0:
        return True
    bounds = np.frombuffer(offsets, dtype=np.int32)[texts.offset : texts.offset + len(texts) + 1]
    begin, end = int(bounds[0]), int(bounds[-1])
    whole = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(np.array([0, end - begin], np.int32)), data.slice(begin)])
    return bool(pc.string_is_ascii(whole)[0].as_py())
