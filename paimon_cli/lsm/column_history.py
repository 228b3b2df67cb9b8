"""What happens to one column, key by key: the operations that a merge engine derives from the rows of each key."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

SKIP, ADD, REVERSED, RETRACT, SET = -1, 0, 1, 2, 3
"""The row says nothing | is aggregated | is aggregated as the older one | is taken back | replaces all that was before."""


@dataclass(frozen=True)
class ColumnHistory:
    """Operations of all keys, key by key, oldest first.

    `rows`: row number of each operation; `starts`: first operation of each key, and the end of the last;
    `codes`: ADD, REVERSED or RETRACT, or SET as the first of a key;
    `whole`: the same with what a SET made invisible, if there is any (first_value remembers that it began).
    """

    rows: np.ndarray
    starts: np.ndarray
    codes: np.ndarray
    whole: ColumnHistory | None = None

    @property
    def keys(self) -> int:
        return len(self.starts) - 1

    @cached_property
    def sizes(self) -> np.ndarray:
        """Operations of each key."""
        return np.diff(self.starts)

    @cached_property
    def longest(self) -> int:
        return int(self.sizes.max(initial=0))

    @cached_property
    def has_retractions(self) -> bool:
        return bool((self.codes == RETRACT).any())

    @cached_property
    def has_reversed(self) -> bool:
        return bool((self.codes == REVERSED).any())

    @cached_property
    def key_of_operation(self) -> np.ndarray:
        return np.repeat(np.arange(self.keys), self.sizes)

    @cached_property
    def untouched(self) -> np.ndarray:
        """Keys whose value is the stored one, because their only operation is a SET."""
        lone = self.sizes == 1
        lone[lone] = self.codes[self.starts[:-1][lone]] == SET
        return lone

    def only(self, wanted: np.ndarray) -> ColumnHistory:
        """The history of the wanted operations."""
        if wanted.all():
            return self
        counted = np.concatenate(([0], np.cumsum(wanted)))
        return ColumnHistory(self.rows[wanted], counted[self.starts], self.codes[wanted], self.whole)


def column_history(order: np.ndarray, starts: np.ndarray, codes: np.ndarray) -> ColumnHistory:
    """The history from one code per row in `order`; `starts`: first row of each key."""
    history = ColumnHistory(order, np.append(starts, len(order)), codes)
    is_set = codes == SET
    is_set[starts] = False
    if not is_set.any():
        return history.only(codes != SKIP)
    positions = np.arange(len(order))
    last_set = np.maximum.accumulate(np.where(is_set, positions, -1))[history.starts[1:] - 1]
    hidden = positions < np.maximum(starts, last_set)[history.key_of_operation]
    return replace(history, whole=history.only(codes != SKIP)).only(~hidden & (codes != SKIP))
