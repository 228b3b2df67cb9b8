"""Sequence groups of partial-update: which rows are newer than what a group of columns holds (format section 11.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from paimon_cli.datatypes.key_order import null_first_words
from paimon_cli.datatypes.row_kind import DELETE
from paimon_cli.datatypes.stable_order import stable_order

ABSENT, OLDER, ACCEPTED = 0, 1, 2
"""All sequence fields of the row are null | the group holds a newer row | the row is the group's newest so far."""


@dataclass(frozen=True)
class SequenceGroup:
    """Columns that change together, when `fields` do not fall. `removes`: a -D that is accepted removes the whole row."""

    fields: tuple[str, ...]
    columns: tuple[str, ...]
    removes: bool = False

    @property
    def names(self) -> frozenset[str]:
        return frozenset((*self.fields, *self.columns))


@dataclass(frozen=True)
class Verdicts:
    """Per group one verdict per operation; `removed`: operations that remove their row."""

    of_group: tuple[np.ndarray, ...]
    removed: np.ndarray


def judge(
    groups: Sequence[SequenceGroup],
    rows: pa.RecordBatch,
    order: np.ndarray,
    starts: np.ndarray,
    kinds: np.ndarray,
    heard: np.ndarray,
) -> Verdicts:
    """`order`: operations as row numbers, key by key from `starts` on; `heard`: operations that are not ignored."""
    ranks = [np.where(heard, _ranks(rows, group, order), 0) for group in groups]
    deletes = heard & (kinds == DELETE)
    if any(group.removes for group in groups) and deletes.any():
        return _judge_in_steps(groups, ranks, starts, deletes)
    return Verdicts(tuple(_verdicts(rank, starts) for rank in ranks), np.zeros(len(order), dtype=bool))


def _ranks(rows: pa.RecordBatch, group: SequenceGroup, order: np.ndarray) -> np.ndarray:
    """Numbers from 1 on in the order of the group's fields; 0 where all are null."""
    columns = [rows.column(name) for name in group.fields]
    words = [word for column in columns for word in null_first_words(column)]
    ascending = stable_order(words)
    changed = np.zeros(rows.num_rows, dtype=bool)
    for word in words:
        changed[1:] |= word[ascending][1:] != word[ascending][:-1]
    ranks = np.empty(rows.num_rows, dtype=np.int64)
    ranks[ascending] = np.cumsum(changed) + 1
    absent = np.ones(rows.num_rows, dtype=bool)
    for column in columns:
        absent &= column.is_null().to_numpy(zero_copy_only=False)
    ranks[absent] = 0
    return ranks[order]


def _verdicts(ranks: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """A row is accepted when no row of its key before it ranks higher."""
    key = np.zeros(len(ranks), dtype=np.int64)
    key[starts[1:]] = 1
    base = np.cumsum(key) * (int(ranks.max(initial=0)) + 1)
    highest = np.maximum.accumulate(ranks + base) - base
    return np.where(ranks == 0, ABSENT, np.where(ranks >= highest, ACCEPTED, OLDER)).astype(np.int8)


def _judge_in_steps(
    groups: Sequence[SequenceGroup], ranks: Sequence[np.ndarray], starts: np.ndarray, deletes: np.ndarray
) -> Verdicts:
    """A removal resets every group to its own row: all keys advance together, one operation of each key at a time."""
    ends = np.append(starts[1:], len(deletes))
    held = np.zeros((len(groups), len(starts)), dtype=np.int64)
    verdicts = tuple(np.zeros(len(deletes), dtype=np.int8) for _ in groups)
    removed = np.zeros(len(deletes), dtype=bool)
    for step in range(int((ends - starts).max(initial=0))):
        keys = np.flatnonzero(starts + step < ends)
        at = starts[keys] + step
        for number, group in enumerate(groups):
            rank = ranks[number][at]
            verdict = np.where(rank == 0, ABSENT, np.where(rank >= held[number, keys], ACCEPTED, OLDER))
            verdicts[number][at] = verdict
            if group.removes:
                removed[at] |= (verdict == ACCEPTED) & deletes[at]
        for number in range(len(groups)):
            accepted = (verdicts[number][at] == ACCEPTED) | removed[at]
            held[number, keys] = np.where(accepted, ranks[number][at], held[number, keys])
    return Verdicts(verdicts, removed)
