"""What a Spark task does with rows of a DataFrame: check them against the table, and write those of its buckets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from paimon_cli.datatypes.data_type import DataField
from paimon_cli.ingest.faults import Tally
from paimon_cli.ingest.json_rows import Needed
from paimon_cli.ingest.row_sources import ARROW
from paimon_cli.ingest.rows import IncomingRows
from paimon_cli.ingest.source_files import RawRows, SourceSplit
from paimon_cli.ingest.text_form import TextForm
from paimon_cli.metadata.data_file_schema import SEQUENCE_NUMBER
from paimon_cli.write.table_writer import TableWriter, Written
from paimon_cli.write.write_plan import WritePlan

NAME = "the DataFrame"
ROWS_OF_PARTITION = 1 << 40
"""Numbers of arrival that a partition has: more than it can hold rows."""


@dataclass(frozen=True)
class FrameRows:
    """Rows that reach a task as Arrow batches; the job itself has none of them, and so no splits to plan.

    `timezone`: in which columns without zone show instants.
    """

    timezone: str | None = None
    batches: Iterable[pa.RecordBatch] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        return ()

    @property
    def form(self) -> TextForm:
        return TextForm(timezone=self.timezone)

    def plan(self, *, may_be_none: bool = False) -> list[SourceSplit]:
        return []

    def raw_rows(self, split: SourceSplit, columns: Sequence[DataField], needed: Needed) -> Iterator[RawRows]:
        row = 0
        for batch in self.batches:
            yield RawRows(batch, np.arange(row, row + batch.num_rows))
            row += batch.num_rows


def checked_rows(plan: WritePlan, batches: Iterable[pa.RecordBatch], partition: int, tally: Tally) -> Iterator[pa.RecordBatch]:
    """The rows of one partition of the DataFrame as the table takes them. Raises `BadInput`."""
    incoming = plan.incoming
    assert isinstance(incoming, IncomingRows)
    assert isinstance(incoming.source, FrameRows)
    split = SourceSplit("", ARROW, 0, None, 0, partition * ROWS_OF_PARTITION, NAME, arrivals=ROWS_OF_PARTITION)
    return replace(incoming, source=replace(incoming.source, batches=batches)).read(split, tally)


def write_in_turn(plan: WritePlan, rows: Iterable[pa.RecordBatch]) -> Written:
    """Write rows as they come. They are numbered from 0: numbers that tell partitions apart would use up those of the table."""
    count = 0
    with TableWriter(plan) as writer:
        for batch in rows:
            numbers = pa.array(np.arange(count, count + batch.num_rows))
            writer.write(
                batch.set_column(batch.schema.get_field_index(SEQUENCE_NUMBER), batch.schema.field(SEQUENCE_NUMBER), numbers)
            )
            count += batch.num_rows
        return writer.finish()
