"""max, min and, as max and min of BOOLEAN, bool_or and bool_and (Java FieldMaxAgg, FieldMinAgg, FieldBoolOrAgg ...)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from paimon_cli.datatypes.key_order import order_words
from paimon_cli.lsm.aggregators.aggregator import picked, validity
from paimon_cli.lsm.column_history import ColumnHistory


@dataclass(frozen=True)
class Extreme:
    """The greatest (`greatest`) or smallest value that is not null, in the order of keys (format section 7.3)."""

    greatest: bool
    retracts: bool = False

    def merge(self, column: pa.Array, history: ColumnHistory) -> pa.Array:
        valued = history.only(validity(column)[history.rows])
        chosen = np.full(history.keys, -1)
        filled = valued.sizes > 0
        if filled.any():
            starts = valued.starts[:-1][filled]
            words = order_words([column.take(pa.array(valued.rows))])[0]
            words = words if self.greatest else ~words
            best = np.maximum.reduceat(words, starts)
            is_best = words == np.repeat(best, valued.sizes[filled])
            positions = np.where(is_best, np.arange(len(words)), -1)
            chosen[filled] = valued.rows[np.maximum.reduceat(positions, starts)]
        return picked(column, chosen)
