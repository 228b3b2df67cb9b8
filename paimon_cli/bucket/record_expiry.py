"""Rows that are too old: compactions leave them out, reads still show them until then.

Java's RecordLevelExpire wraps the readers of compactions alone, in the newest version too; so which rows a query shows does
not depend on the clock of who asks.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.errors import UsageError
from paimon_cli.history.table_context import TableContext

FIRST_MILLIS = 1_000_000_000_000
"""A BIGINT from here on counts millis, below it seconds."""


@dataclass(frozen=True)
class RecordExpiry:
    """Rows whose `column` is more than `seconds` before `now` (epoch seconds) go; rows with null stay."""

    column: str
    seconds: int
    now: int

    @staticmethod
    def of(context: TableContext) -> RecordExpiry | None:
        """None without `record-level.expire-time`."""
        millis, column = context.options.record_level_expire_time, context.options.record_level_time_field
        if millis is None:
            return None
        if column is None:
            raise UsageError("record-level.expire-time needs record-level.time-field", "it determines the age of a row")
        return RecordExpiry(column, millis // 1000, context.clock.now_millis() // 1000)

    def kept(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that are young enough."""
        old = pc.less(_epoch_seconds(rows.column(self.column)), self.now - self.seconds).fill_null(False)
        return rows.filter(pc.invert(old))


def _epoch_seconds(column: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(column.type):
        ticks = column.view(pa.int64())
        return pc.divide(ticks, {"ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}[column.type.unit])
    seconds = column.cast(pa.int64())
    return pc.if_else(pc.greater_equal(seconds, FIRST_MILLIS), pc.divide(seconds, 1000), seconds)
