"""The buckets that a writer owns, where several writers share a table: one of them for each bucket (`write --bucket`)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from paimon_cli.datatypes.bucket_functions import row_buckets
from paimon_cli.errors import BadInput, NotSupported, UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.faults import Tally
from paimon_cli.ingest.source_files import SourceSplit
from paimon_cli.metadata.data_file_schema import SEQUENCE_NUMBER
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.choices import OtherBuckets
from paimon_cli.options.option_text import counted

Buckets = tuple[int | range, ...]


@dataclass(frozen=True)
class OwnBuckets:
    """Buckets of a table with a fixed number of them, `total`. Rows of others are an error, or left out if `skips`. Picklable."""

    schema: TableSchema
    total: int
    function: str
    buckets: Buckets
    skips: bool

    @staticmethod
    def of(context: TableContext, buckets: Buckets, others: str) -> OwnBuckets:
        """Raises `NotSupported` for tables in which the key alone does not decide the bucket, `UsageError` for a bucket that the
        table does not have.
        """
        mode, total = context.mode, context.options.bucket
        if empty := [part for part in buckets if isinstance(part, range) and not part]:
            raise UsageError(f"--bucket {empty[0]} is empty", "it names no bucket", "name buckets by their numbers")
        if not mode.bucket_mode.follows_from_row:
            raise NotSupported(
                f"--bucket for {context.address}, which has {mode.bucket_mode.text}",
                "a row's bucket must follow from the row alone, so that each row has one writer",
                "leave it out, or use a table with a fixed number of buckets",
            )
        highest = max(part[-1] if isinstance(part, range) else part for part in buckets)
        lowest = min(part[0] if isinstance(part, range) else part for part in buckets)
        if lowest < 0 or highest >= total:
            wrong = lowest if lowest < 0 else highest
            has = f"the table has {counted(total, 'bucket')}, numbered from 0"
            raise UsageError(f"there is no bucket {wrong} in {context.address}", has)
        return OwnBuckets(context.schema, total, context.options.bucket_function, buckets, others == OtherBuckets.SKIP)

    def accepted(self, rows: pa.RecordBatch, split: SourceSplit, tally: Tally) -> pa.RecordBatch:
        """The rows of the buckets. Others are counted in `tally`, or raise a `BadInput` that names the first one."""
        keys = self.schema.bucket_key_names
        columns = [rows.column(name) for name in keys]
        buckets = row_buckets(columns, self.schema.types_of(keys), self.total, self.function)
        owned = self._is_own[buckets]
        others = rows.num_rows - int(np.count_nonzero(owned))
        if not others:
            return rows
        if not self.skips:
            first = int(np.argmin(owned))
            number = rows.column(SEQUENCE_NUMBER)[first].as_py() - split.order_base + split.first_row + 1
            raise BadInput(
                f"{split.name}: row {number} belongs to bucket {buckets[first]}",
                f"this writer only writes bucket {self._text}",
                "nothing was committed; give the row to the writer of its bucket, or leave such rows out: --other-buckets skip",
                source=split.name,
                bucket=int(buckets[first]),
            )
        tally.rows -= others
        tally.other_bucket_rows += others
        return rows.filter(pa.array(owned))

    @cached_property
    def _is_own(self) -> np.ndarray:
        own = np.zeros(self.total, bool)
        for part in self.buckets:
            own[list(part) if isinstance(part, range) else part] = True
        return own

    @property
    def _text(self) -> str:
        return ", ".join(f"{part[0]}-{part[-1]}" if isinstance(part, range) else str(part) for part in self.buckets)
