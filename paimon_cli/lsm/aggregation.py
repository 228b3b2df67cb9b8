"""The merge engines aggregation and partial-update, which combine the rows of a key (FORMAT.md, section 11.3).

Java: AggregateMergeFunction, PartialUpdateMergeFunction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from paimon_cli.datatypes.key_order import null_first_words, stable_order
from paimon_cli.errors import BadInput
from paimon_cli.lsm.aggregators.aggregator import ADD, RETRACT, REVERSED, SET, SKIP, Aggregator, ColumnHistory, column_history
from paimon_cli.lsm.aggregators.chosen_values import LastNonNullValue, LastValue
from paimon_cli.lsm.sorted_rows import SortedRows
from paimon_cli.metadata.data_file_schema import DELETE, INSERT, SEQUENCE_NUMBER, VALUE_KIND


@dataclass(frozen=True)
class Aggregation:
    """The merge engine aggregation.

    `functions`: column -> aggregator, including sequence fields; `ignore_retract`: columns that ignore retractions.
    """

    functions: Mapping[str, Aggregator]
    ignore_retract: frozenset[str]
    fixed_columns: frozenset[str]
    remove_record_on_delete: bool = False
    sequence_fields: tuple[str, ...] = ()
    descending: bool = False

    def columns_for(self, columns: Sequence[str]) -> Sequence[str]:
        return ()

    def refusal(self, kind: int) -> BadInput | None:
        if kind == DELETE and self.remove_record_on_delete:
            return None
        without = [name for name, function in self.functions.items() if not function.retracts and name not in self.ignore_retract]
        return no_retraction(without[0]) if without else None

    def merge(self, rows: SortedRows) -> pa.RecordBatch:
        kinds = rows.rows.column(VALUE_KIND).to_numpy()[rows.order]
        codes = self._codes(rows, kinds)
        retractions = codes == RETRACT
        history = column_history(rows.order, rows.starts, codes)
        without_retractions = history
        if retractions.any():
            without_retractions = column_history(rows.order, rows.starts, np.where(retractions, SKIP, codes))
        newest = rows.last_of_each_key
        columns = []
        for name in rows.rows.schema.names:
            column = rows.rows.column(name)
            if name == VALUE_KIND:
                columns.append(pa.array(self._result_kinds(rows, kinds), pa.int8()))
            elif name == SEQUENCE_NUMBER or name in self.fixed_columns:
                columns.append(column.take(pa.array(newest)))
            else:
                function = self.functions[name]
                if retractions.any() and not function.retracts and name not in self.ignore_retract:
                    raise no_retraction(name)
                columns.append(function.merge(column, without_retractions if name in self.ignore_retract else history))
        return pa.RecordBatch.from_arrays(columns, schema=rows.rows.schema)

    def _codes(self, rows: SortedRows, kinds: np.ndarray) -> np.ndarray:
        codes = np.where((kinds & 1) == 1, RETRACT, ADD).astype(np.int8)
        if self.remove_record_on_delete:
            codes[kinds == DELETE] = SET
        codes[rows.starts[rows.passes_unmerged]] = SET
        return codes

    def _result_kinds(self, rows: SortedRows, kinds: np.ndarray) -> np.ndarray:
        last = kinds[rows.ends - 1]
        removed = self.remove_record_on_delete & (last == DELETE)
        return np.where(rows.passes_unmerged, last, np.where(removed, DELETE, INSERT)).astype(np.int8)


def no_retraction(column: str) -> BadInput:
    """The error for a row of kind -D or -U if the function of a column has no inverse."""
    return BadInput(
        f"column {column} cannot retract a row of kind -D or -U",
        "its aggregate function has no inverse",
        f"set fields.{column}.ignore-retract=true, or leave such rows out of the input",
        column=column,
    )


ABSENT, OLDER, ACCEPTED = 0, 1, 2
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
    deletes = effective & (kinds == DELETE)
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
    return np.where(ranks == 0, ABSENT, np.where(ranks >= highest, ACCEPTED, OLDER)).astype(np.int8)


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
            verdict = np.where(rank == 0, ABSENT, np.where(rank >= highest[number, keys], ACCEPTED, OLDER))
            verdicts[number][operations] = verdict
            if group.removes:
                removed[operations] |= (verdict == ACCEPTED) & deletes[operations]
        for number in range(len(groups)):
            accepted = (verdicts[number][operations] == ACCEPTED) | removed[operations]
            highest[number, keys] = np.where(accepted, ranks[number][operations], highest[number, keys])
    return Verdicts(verdicts, removed)


@dataclass(frozen=True)
class PartialUpdate:
    """The merge engine partial-update.

    `functions`: aggregated columns; `ignore_retract`: columns that ignore retractions; `column_order`: all columns of the table.
    """

    groups: tuple[SequenceGroup, ...] = ()
    functions: Mapping[str, Aggregator] = field(default_factory=dict)
    ignore_retract: frozenset[str] = frozenset()
    fixed_columns: frozenset[str] = frozenset()
    column_order: tuple[str, ...] = ()
    ignore_delete: bool = False
    remove_record_on_delete: bool = False
    sequence_fields: tuple[str, ...] = ()
    descending: bool = False

    def columns_for(self, columns: Sequence[str]) -> Sequence[str]:
        """The sequence fields of the groups of these columns, and of groups that may remove the row."""
        wanted = [group for group in self.groups if group.removes or not group.names.isdisjoint(columns)]
        return [name for group in wanted for name in group.fields]

    def refusal(self, kind: int) -> BadInput | None:
        if self.ignore_delete or self.remove_record_on_delete or self.groups:
            return None
        return BadInput(
            "merge-engine=partial-update does not accept rows of kind -D or -U",
            "a row combines several writes, and it is unknown which of them to retract",
            "set ignore-delete=true or partial-update.remove-record-on-delete=true, use sequence groups, or drop such rows",
        )

    def merge(self, rows: SortedRows) -> pa.RecordBatch:
        work = Operations.of(rows)
        names = frozenset(rows.rows.schema.names)
        groups = [group for group in self.groups if names.issuperset(group.fields)]
        refused = self.refusal(DELETE)
        if refused is not None and work.retracts.any():
            raise refused
        effective = ~work.retracts if self.ignore_delete else np.ones(len(work.order), dtype=bool)
        verdicts = judge(groups, rows.rows, work.order, work.starts, work.kinds, effective)
        removed = verdicts.removed & work.retracts
        if self.remove_record_on_delete:
            removed = work.retracts & (work.kinds == DELETE)
        columns = self._columns(rows, work, groups, verdicts, removed)
        counted = effective & ~work.fills if self.ignore_delete else effective
        columns[VALUE_KIND] = pa.array(_result_kinds(rows, work, removed), pa.int8())
        if SEQUENCE_NUMBER in names:
            columns[SEQUENCE_NUMBER] = _sequence_numbers(rows, work, counted)
        return pa.RecordBatch.from_arrays([columns[name] for name in rows.rows.schema.names], schema=rows.rows.schema)

    def _columns(
        self, rows: SortedRows, work: Operations, groups: Sequence[SequenceGroup], verdicts: Verdicts, removed: np.ndarray
    ) -> dict[str, pa.Array]:
        """All merged columns of the table."""
        replaced = removed | work.replaces
        plain = work.history(np.where(work.retracts, SKIP, ADD), replaced)
        newest = pa.array(rows.last_of_each_key)
        columns: dict[str, pa.Array] = {}
        for name in rows.rows.schema.names:
            if name in self.fixed_columns:
                columns[name] = rows.rows.column(name).take(newest)
            elif name not in (VALUE_KIND, SEQUENCE_NUMBER) and not any(name in group.names for group in groups):
                columns[name] = self.functions.get(name, LastNonNullValue()).merge(rows.rows.column(name), plain)
        for group, verdict in zip(groups, verdicts.of_group, strict=True):
            verdict = np.where(work.retracts & self.ignore_delete, ABSENT, verdict)
            taken = np.where(verdict == ACCEPTED, ADD, SKIP)
            follows = work.history(taken, replaced)
            cleared = work.history(np.where((verdict == ACCEPTED) & work.retracts, RETRACT, taken), replaced)
            for name in group.names.intersection(rows.rows.schema.names):
                column = rows.rows.column(name)
                if name in group.fields:
                    columns[name] = LastValue().merge(column, follows)
                elif name not in self.functions:
                    columns[name] = LastValue().merge(column, cleared)
                else:
                    columns[name] = self._aggregated(name, column, work, verdict, removed)
        return columns

    def _aggregated(self, name: str, column: pa.Array, work: Operations, verdict: np.ndarray, removed: np.ndarray) -> pa.Array:
        """The aggregated column of a sequence group. Older rows are added as REVERSED; retractions apply even if older."""
        codes = np.select([verdict == ABSENT, verdict == OLDER], [SKIP, REVERSED], ADD)
        codes = np.where(work.retracts & (verdict != ABSENT), SKIP if name in self.ignore_retract else RETRACT, codes)
        function = self.functions[name]
        if not function.retracts:
            refused = (codes == RETRACT) & ~work.replaces
            if (refused if self._stands_before_removal(name) else refused & ~removed).any():
                raise no_retraction(name)
        return function.merge(column, work.history(codes, removed | work.replaces))

    def _stands_before_removal(self, name: str) -> bool:
        """Whether Java, which works column by column, retracts this column before it reaches the field that removes the row."""
        position = {column: number for number, column in enumerate(self.column_order)}
        ends = [min(position[field] for field in group.fields) for group in self.groups if group.removes]
        return position[name] < min(ends, default=0)


@dataclass(frozen=True)
class Operations:
    """The operations of each key, oldest first: one per row. If the first row is a retraction, another operation precedes it.

    `fills`: these additional operations, which set the row to the values of the retraction. `replaces`: operations that replace
    the whole row: the additional ones, and those of keys with a single row that is not merged.
    """

    order: np.ndarray
    starts: np.ndarray
    kinds: np.ndarray
    retracts: np.ndarray
    fills: np.ndarray
    replaces: np.ndarray

    @staticmethod
    def of(rows: SortedRows) -> Operations:
        kinds = rows.rows.column(VALUE_KIND).to_numpy()[rows.order]
        retracts = (kinds & 1) == 1
        lone = rows.starts[rows.passes_unmerged]
        retracts[lone] = False
        replaces = np.zeros(len(kinds), dtype=bool)
        replaces[lone] = True
        filled = retracts[rows.starts]
        if not filled.any():
            return Operations(rows.order, rows.starts, kinds, retracts, np.zeros(len(kinds), dtype=bool), replaces)
        operations = rows.starts[filled]
        starts = rows.starts + np.cumsum(filled) - filled
        fills = np.insert(np.zeros(len(kinds), dtype=bool), operations, True)
        return Operations(
            np.insert(rows.order, operations, rows.order[operations]),
            starts,
            np.insert(kinds, operations, kinds[operations]),
            np.insert(retracts, operations, False),
            fills,
            np.insert(replaces, operations, True),
        )

    def history(self, codes: np.ndarray, replaced: np.ndarray) -> ColumnHistory:
        return column_history(self.order, self.starts, np.where(replaced, SET, codes).astype(np.int8))


def _result_kinds(rows: SortedRows, work: Operations, removed: np.ndarray) -> np.ndarray:
    """The kind of each merged row: -D if its last operation removes it, or if no row was added."""
    last = np.append(work.starts[1:], len(work.order)) - 1
    added = np.logical_or.reduceat(~work.retracts & ~work.fills, work.starts) if len(work.starts) else removed
    merged = np.where(removed[last] | ~added, DELETE, INSERT)
    return np.where(rows.passes_unmerged, work.kinds[last], merged).astype(np.int8)


def _sequence_numbers(rows: SortedRows, work: Operations, counted: np.ndarray) -> pa.Array:
    """The sequence number of each key's last operation that is not ignored; 0 if there is none."""
    positions = np.where(counted, np.arange(len(counted)), -1)
    last = np.maximum.reduceat(positions, work.starts) if len(work.starts) else positions
    numbers = rows.rows.column(SEQUENCE_NUMBER).to_numpy()
    return pa.array(np.where(last >= 0, numbers[work.order[last]], 0), pa.int64())
