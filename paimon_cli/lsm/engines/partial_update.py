"""The merge engine partial-update: values that are not null replace older ones (FORMAT.md, section 11.3).

The columns of a sequence group take the row that is newest by fields of the group. Java: PartialUpdateMergeFunction.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from paimon_cli.datatypes.key_order import null_first_words, stable_order
from paimon_cli.errors import BadInput, UsageError
from paimon_cli.lsm.aggregators.aggregator import (
    ADD,
    RETRACT,
    REVERSED,
    SET,
    SKIP,
    Aggregator,
    ColumnHistory,
    column_history,
    no_retraction,
)
from paimon_cli.lsm.aggregators.builder import ignores_retractions
from paimon_cli.lsm.aggregators.catalog import aggregator_of, function_of
from paimon_cli.lsm.aggregators.chosen_values import LAST_NON_NULL, LastNonNullValue, LastValue
from paimon_cli.lsm.sorted_rows import SortedRows, check_order
from paimon_cli.metadata.data_file_schema import SEQUENCE_NUMBER, VALUE_KIND, RowKind
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.table_options import TableOptions


@dataclass(frozen=True)
class PartialUpdate:
    """The merge engine partial-update.

    `functions`: aggregated columns; `ignore_retract`: columns that ignore retractions; `column_order`: all columns of the table.
    """

    groups: tuple[SequenceGroup, ...] = ()
    functions: Mapping[str, Aggregator] = dataclasses.field(default_factory=dict)
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

    def refusal_of_values(self, rows: pa.RecordBatch) -> BadInput | None:
        """Retractions of a group that has a column without an inverse, unless they have no sequence or remove the row."""
        without = [name for name, function in self.functions.items() if not function.retracts and name not in self.ignore_retract]
        if self.ignore_delete or not without:
            return None
        retractions = rows.filter(pa.array((rows.column(VALUE_KIND).to_numpy() & 1) == 1))
        each = np.arange(retractions.num_rows)
        work = Operations.of(SortedRows(retractions, each, each, merge_lone=True))
        verdicts = judge(self.groups, retractions, work.order, work.starts, work.kinds, np.ones(len(work.order), dtype=bool))
        removed = verdicts.removed & work.retracts
        for group, verdict in zip(self.groups, verdicts.of_group, strict=True):
            for name in group.names.intersection(without):
                if self._cannot_retract(name, self._codes(name, work, verdict), work, removed):
                    return no_retraction(name)
        return None

    def merge(self, rows: SortedRows) -> pa.RecordBatch:
        work = Operations.of(rows)
        names = frozenset(rows.rows.schema.names)
        groups = [group for group in self.groups if names.issuperset(group.fields)]
        refused = self.refusal(RowKind.DELETE)
        if refused is not None and work.retracts.any():
            raise refused
        effective = ~work.retracts if self.ignore_delete else np.ones(len(work.order), dtype=bool)
        verdicts = judge(groups, rows.rows, work.order, work.starts, work.kinds, effective)
        removed = verdicts.removed & work.retracts
        if self.remove_record_on_delete:
            removed = work.retracts & (work.kinds == RowKind.DELETE)
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
        codes = self._codes(name, work, verdict)
        if self._cannot_retract(name, codes, work, removed):
            raise no_retraction(name)
        return self.functions[name].merge(column, work.history(codes, removed | work.replaces))

    def _codes(self, name: str, work: Operations, verdict: np.ndarray) -> np.ndarray:
        codes = np.select([verdict == ALL_NULL, verdict == OLDER], [SKIP, REVERSED], ADD)
        return np.where(work.retracts & (verdict != ALL_NULL), SKIP if name in self.ignore_retract else RETRACT, codes)

    def _cannot_retract(self, name: str, codes: np.ndarray, work: Operations, removed: np.ndarray) -> bool:
        """Whether an operation retracts the column, whose function has no inverse."""
        if self.functions[name].retracts:
            return False
        refused = (codes == RETRACT) & ~work.replaces
        return bool((refused if self._stands_before_removal(name) else refused & ~removed).any())

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
    merged = np.where(removed[last] | ~added, RowKind.DELETE, RowKind.INSERT)
    return np.where(rows.passes_unmerged, work.kinds[last], merged).astype(np.int8)


def _sequence_numbers(rows: SortedRows, work: Operations, counted: np.ndarray) -> pa.Array:
    """The sequence number of each key's last operation that is not ignored; 0 if there is none."""
    positions = np.where(counted, np.arange(len(counted)), -1)
    last = np.maximum.reduceat(positions, work.starts) if len(work.starts) else positions
    numbers = rows.rows.column(SEQUENCE_NUMBER).to_numpy()
    return pa.array(np.where(last >= 0, numbers[work.order[last]], 0), pa.int64())


def engine(schema: TableSchema, options: TableOptions) -> PartialUpdate:
    for key, (fields, _) in options.sequence_groups.items():
        check_order(schema, key, fields)
    groups = sequence_groups(schema, options)
    _check_removal(groups, options)
    ordering = {name for group in groups for name in group.fields}
    protected = {name for group in groups for name in group.columns}
    functions: dict[str, Aggregator] = {}
    for field in schema.fields:
        function = function_of(field.name, options)
        if function is None or field.name in ordering or field.name in schema.fixed_columns:
            continue
        if function != LAST_NON_NULL and field.name not in protected:
            raise UsageError(
                f"column {field.name} has the aggregate function {function}, but no sequence group",
                "partial-update aggregates columns of sequence groups only",
                f"add it to a group: fields.<sequence field>.sequence-group={field.name}",
            )
        functions[field.name] = aggregator_of(function, field, options)
    return PartialUpdate(
        groups,
        functions,
        frozenset(name for name in functions if ignores_retractions(schema.field(name), options)),
        schema.fixed_columns,
        schema.field_names,
        options.ignore_delete,
        options.partial_update_remove_record_on_delete,
        options.sequence_fields,
        options.sequence_descending,
    )


def _check_removal(groups: tuple[SequenceGroup, ...], options: TableOptions) -> None:
    on_delete, removing = options.partial_update_remove_record_on_delete, options.partial_update_remove_record_on_sequence_group
    on_group = "partial-update.remove-record-on-sequence-group"
    for option, is_set in (("partial-update.remove-record-on-delete", on_delete), (on_group, bool(removing))):
        if is_set and options.ignore_delete:
            raise UsageError(f"ignore-delete and {option} contradict each other", "a -D row either is ignored or removes the row")
    if on_delete and groups:
        raise UsageError(
            "sequence groups and partial-update.remove-record-on-delete contradict each other",
            "each group decides what a -D row does to its columns",
            f"use {on_group}",
        )
    unknown = set(removing) - {name for group in groups for name in group.fields}
    if unknown:
        raise UsageError(f"{on_group} names '{min(unknown)}'", "it is not a sequence field of a sequence group")


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
