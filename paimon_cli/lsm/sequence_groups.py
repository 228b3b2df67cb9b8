"""Sequence groups of partial-update: columns whose newest row is decided by fields of their own (FORMAT.md, section 11.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from paimon_cli.datatypes.key_order import null_first_words, stable_order
from paimon_cli.errors import UsageError
from paimon_cli.metadata.data_file_schema import RowKind
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.table_options import TableOptions

ALL_NULL, OLDER, ACCEPTED = 0, 1, 2
"""Verdicts on a row: all of its sequence fields are null, the group already has a newer row, or the row is the newest so far."""


@dataclass(frozen=True)
class SequenceGroup:
    """Columns that a row sets unless its sequence `fields` are lower than those of an earlier row.

    `removes`: an accepted -D removes the whole row.
    """

    fields: tuple[str, ...]
    columns: tuple[str, ...]
    removes: bool = False

    @property
    def names(self) -> frozenset[str]:
        return frozenset((*self.fields, *self.columns))


@dataclass(frozen=True)
class Verdicts:
    """The verdict on each operation, by group; `removed`: whether the operation removes its row (bool)."""

    of_group: tuple[np.ndarray, ...]
    removed: np.ndarray


def judge(
    groups: Sequence[SequenceGroup],
    rows: pa.RecordBatch,
    order: np.ndarray,
    starts: np.ndarray,
    kinds: np.ndarray,
    effective: np.ndarray,
) -> Verdicts:
    """Decide for each operation and sequence group whether it is accepted.

    `order`: the row number of each operation, key by key; `starts`: index of each key's first operation; `effective`: operations
    that are not ignored (bool).
    """
    ranks = [np.where(effective, _ranks(rows, group, order), 0) for group in groups]
    deletes = effective & (kinds == RowKind.DELETE)
    if any(group.removes for group in groups) and deletes.any():
        return _judge_in_steps(groups, ranks, starts, deletes)
    return Verdicts(tuple(_verdicts(rank, starts) for rank in ranks), np.zeros(len(order), dtype=bool))


def _ranks(rows: pa.RecordBatch, group: SequenceGroup, order: np.ndarray) -> np.ndarray:
    """The rank of each operation by the group's fields, from 1; 0 if all fields are null."""
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
    """The verdict on each operation: it is accepted if no earlier operation of its key ranks higher."""
    key = np.zeros(len(ranks), dtype=np.int64)
    key[starts[1:]] = 1
    base = np.cumsum(key) * (int(ranks.max(initial=0)) + 1)
    highest = np.maximum.accumulate(ranks + base) - base
    return np.where(ranks == 0, ALL_NULL, np.where(ranks >= highest, ACCEPTED, OLDER)).astype(np.int8)


def _judge_in_steps(
    groups: Sequence[SequenceGroup], ranks: Sequence[np.ndarray], starts: np.ndarray, deletes: np.ndarray
) -> Verdicts:
    """`judge` for groups that may remove a row, which resets all groups. All keys advance in parallel, one operation per step."""
    ends = np.append(starts[1:], len(deletes))
    highest = np.zeros((len(groups), len(starts)), dtype=np.int64)
    verdicts = tuple(np.zeros(len(deletes), dtype=np.int8) for _ in groups)
    removed = np.zeros(len(deletes), dtype=bool)
    for step in range(int((ends - starts).max(initial=0))):
        keys = np.flatnonzero(starts + step < ends)
        operations = starts[keys] + step
        for number, group in enumerate(groups):
            rank = ranks[number][operations]
            verdict = np.where(rank == 0, ALL_NULL, np.where(rank >= highest[number, keys], ACCEPTED, OLDER))
            verdicts[number][operations] = verdict
            if group.removes:
                removed[operations] |= (verdict == ACCEPTED) & deletes[operations]
        for number in range(len(groups)):
            accepted = (verdicts[number][operations] == ACCEPTED) | removed[operations]
            highest[number, keys] = np.where(accepted, ranks[number][operations], highest[number, keys])
    return Verdicts(verdicts, removed)


def sequence_groups(schema: TableSchema, options: TableOptions) -> tuple[SequenceGroup, ...]:
    """The groups of `fields.<s1,s2>.sequence-group=<c1,c2>`. A column may be in one group only, and not in the primary key."""
    groups: list[SequenceGroup] = []
    seen: set[str] = set()
    removing = options.partial_update_remove_record_on_sequence_group
    for key, (fields, columns) in sorted(options.sequence_groups.items()):
        for name in (*fields, *columns):
            schema.field(name)
            if name in schema.primary_keys:
                raise UsageError(f"{key} names the primary-key column '{name}'", "a key column never changes")
        repeated = seen.intersection(columns)
        if repeated:
            raise UsageError(f"column {min(repeated)} is in two sequence groups", f"the second is {key}")
        seen.update(columns)
        groups.append(SequenceGroup(fields, tuple(c for c in columns if c not in fields), not set(removing).isdisjoint(fields)))
    return tuple(groups)
