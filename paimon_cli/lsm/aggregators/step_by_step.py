"""Functions whose values are collections: a loop over the operations of each key that has more than one.

They are rare and their values are objects anyway; keys that pass untouched are not looked at.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from paimon_cli.lsm.aggregators.aggregator import picked
from paimon_cli.lsm.column_history import RETRACT, REVERSED, SET, ColumnHistory

Step = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class StepByStep:
    """`add(held, value)`, `older` (default: the two in other order) and `take_back` on Python values, None for null."""

    add: Step
    older: Step | None = None
    take_back: Step | None = None

    @property
    def retracts(self) -> bool:
        return self.take_back is not None

    def merge(self, column: pa.Array, history: ColumnHistory) -> pa.Array:
        untouched = history.untouched
        chosen = np.full(history.keys, -1)
        chosen[untouched] = history.rows[history.starts[:-1][untouched]]
        worked = history.only(~untouched[history.key_of_operation])
        values = column.take(pa.array(worked.rows)).to_pylist()
        codes = worked.codes.tolist()
        results: list[Any] = []
        for key, (low, high) in enumerate(itertools.pairwise(worked.starts.tolist())):
            if not untouched[key]:
                chosen[key] = len(column) + len(results)
                results.append(self._result(values[low:high], codes[low:high]))
        if not results:
            return picked(column, chosen)
        return picked(pa.concat_arrays([column, pa.array(results, column.type)]), chosen)

    def _result(self, values: list[Any], codes: list[int]) -> Any:
        held = None
        for value, code in zip(values, codes, strict=True):
            if code == SET:
                held = value
            elif code == REVERSED:
                held = self.add(value, held) if self.older is None else self.older(held, value)
            elif code == RETRACT and self.take_back is not None:
                held = self.take_back(held, value)
            else:
                held = self.add(held, value)
        return held
