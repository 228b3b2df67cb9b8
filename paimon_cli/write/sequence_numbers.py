"""Places in the order of arrival -> sequence numbers of a bucket (format section 7.3)."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.metadata.data_file_schema import SEQUENCE_NUMBER


def numbered(batch: pa.RecordBatch, first_sequence: int) -> pa.RecordBatch:
    """The batch with `first_sequence` added to each row's place."""
    if first_sequence == 0:
        return batch
    index = batch.schema.get_field_index(SEQUENCE_NUMBER)
    sequence = pc.add(batch.column(index), pa.scalar(first_sequence, pa.int64()))
    return batch.set_column(index, batch.schema.field(index), sequence)
