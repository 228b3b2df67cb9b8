"""`compare`: compares the rows of two tables, versions of tables, or files, by key or as counted whole rows.

Each side is sorted into runs, which spill to disk if memory is short, and the runs of both sides are merged. Equality is that of
Java: NaN equals NaN, null equals null, and -0.0 differs from 0.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from paimon_cli.bucket.spilled_runs import OpenRun, SpillDirectory, merge_in_passes
from paimon_cli.datatypes.arrow_types import arrow_type
from paimon_cli.datatypes.canonical_form import canonical_rows, canonical_texts
from paimon_cli.datatypes.data_type import DataField, NestedType
from paimon_cli.datatypes.key_order import group_starts, order_words
from paimon_cli.datatypes.variant_columns import holds_variants
from paimon_cli.errors import UsageError
from paimon_cli.jobs.comparison_sides import SharedColumns, Side, nullable_inside
from paimon_cli.lsm.row_difference import differing
from paimon_cli.lsm.sort_merge import sorted_rows
from paimon_cli.lsm.sorted_rows import KeepAllVersions, MergeEngine, SortedRows, WholeRowEngine
from paimon_cli.metadata.data_file_schema import SEQUENCE_NUMBER, VALUE_KIND
from paimon_cli.options.option_text import shortened
from paimon_cli.pieces import PIECES
from paimon_cli.read.html_text import ShownAsTable
from paimon_cli.requests.conditions import BoundSql

HERE, THERE = 0, 1
"""The side of a row, stored in the sequence number column of the merge."""
_COUNT = "_COUNT"
SORTED_AS = "_SORTED_AS_"
"""Prefix of columns that hold nested values as text: they have no order, and equal VARIANTs may differ in their bytes."""
ONLY_HERE, ONLY_THERE, DIFFERENT = "only here", "only there", "different"


@dataclass(frozen=True)
class RowDifference:
    """A row that differs between the sides. `columns`: those with different values; `count`: how often a whole row occurs.

    `here`, `there`: the row without its key; None if that side lacks it.
    """

    kind: str
    count: int
    key: Mapping[str, Any] | None
    columns: Sequence[str]
    here: Mapping[str, Any] | None
    there: Mapping[str, Any] | None


@dataclass
class Comparison(ShownAsTable):
    """How two sides differ: row counts, and the first differences of each kind in key order.

    `columns_only_here`, `columns_only_there`: not compared; they count as a difference unless the caller chose the columns.
    `differing_columns`: for each column, the number of rows whose values differ in it. `renamed_columns`: of versions of a table,
    the names there of compared columns that have another name here, by the latter; the results use the names there.
    """

    here: str
    there: str
    key: Sequence[str]
    columns: Sequence[str]
    columns_only_here: Sequence[str] = ()
    columns_only_there: Sequence[str] = ()
    rows_here: int = 0
    rows_there: int = 0
    equal: int = 0
    only_here: int = 0
    only_there: int = 0
    different: int = 0
    differing_columns: dict[str, int] = field(default_factory=dict)
    differences: list[RowDifference] = field(default_factory=list)
    renamed_columns: dict[str, str] = field(default_factory=dict)

    @property
    def is_equal(self) -> bool:
        rows = self.only_here + self.only_there + self.different
        return not (rows or self.columns_only_here or self.columns_only_there)


def compare(
    here: Side,
    there: Side,
    *,
    key: Sequence[str] | None = None,
    columns: Sequence[str] = (),
    where: BoundSql | None = None,
    limit: int = 10,
    advance: Callable[[int], object] = lambda rows: None,
) -> Comparison:
    """Compare all rows that match `where`, in bounded memory.

    `key`: default the primary key of either side; empty compares whole rows. `columns`: default all that both sides have.
    `limit`: how many differences of each kind to keep. Raises `UsageError` if the key is not unique or columns cannot be
    compared.
    """
    shared = SharedColumns.of(here, there)
    shared.check_condition(where)
    key = shared.primary_key() if key is None else tuple(map(shared.named, key))
    fields = shared.fields(key, [shared.named(name) for name in columns])
    result = Comparison(here.name, there.name, key, [field.name for field in fields[len(key) :]])
    compared = {field.name for field in fields}
    result.renamed_columns = {old: new for old, new in shared.renamed.items() if new in compared}
    if not columns:
        result.columns_only_here, result.columns_only_there = shared.only_here, shared.only_there
    work = _Work(result, fields, limit)
    sides = [(HERE, here, [replace(field, name=shared.names_here[field.name]) for field in fields]), (THERE, there, fields)]
    with SpillDirectory() as spill:
        runs = [
            run for number, side, own in sides for run in work.runs(number, side.name, side.batches(own, where), spill, advance)
        ]
        for rows in merge_in_passes(runs, work.sort_columns, KeepAllVersions(), PIECES.max_merged_runs, keys_repeat=True):
            work.judge(rows)
    return result


@dataclass(frozen=True)
class Counted(WholeRowEngine):
    """A `MergeEngine` that collapses equal rows into one and adds up their counts."""

    def merge(self, rows: SortedRows) -> pa.RecordBatch:
        counts = np.add.reduceat(rows.rows.column(_COUNT).to_numpy()[rows.order], rows.starts)
        merged = rows.taken(rows.order[rows.starts])
        return merged.set_column(merged.schema.get_field_index(_COUNT), _COUNT, pa.array(counts))


class _Work:
    """A comparison in progress. Without a key, the whole row is the key, and equal rows are counted."""

    def __init__(self, result: Comparison, fields: Sequence[DataField], limit: int) -> None:
        self.result = result
        self._fields = fields
        self._left = dict.fromkeys((ONLY_HERE, ONLY_THERE, DIFFERENT), limit)
        keyed = fields[: len(result.key)] or fields
        self._nested = [
            field for field in fields if holds_variants(field.type) or (not result.key and isinstance(field.type, NestedType))
        ]
        self._compared_as = {field.name: SORTED_AS + field.name for field in self._nested}
        self.sort_columns = [self._compared_as.get(field.name, field.name) for field in keyed]
        self._engine: MergeEngine = KeepAllVersions() if result.key else Counted()

    def runs(
        self,
        number: int,
        side: str,
        batches: Iterator[pa.RecordBatch],
        spill: SpillDirectory,
        advance: Callable[[int], object],
    ) -> Iterator[OpenRun]:
        """The sorted runs of the rows of one side; a single run stays in memory."""
        held: list[pa.RecordBatch] = []
        size = 0
        spilled = False
        for batch in batches:
            advance(batch.num_rows)
            held.append(self._prepared(batch, number))
            size += held[-1].nbytes
            if size > PIECES.comparison_run_bytes:
                yield self._spilled(held, side, spill)
                held, size, spilled = [], 0, True
        if held and spilled:
            yield self._spilled(held, side, spill)
        elif held:
            rows = list(self._sorted(held, side))
            yield lambda: iter(rows)

    def _spilled(self, held: Sequence[pa.RecordBatch], side: str, spill: SpillDirectory) -> OpenRun:
        return spill.write(self._sorted(held, side), held[0].schema).read

    def _sorted(self, held: Sequence[pa.RecordBatch], side: str) -> Iterator[pa.RecordBatch]:
        rows = sorted_rows(pa.concat_batches(held), self.sort_columns, self._engine)
        if self.result.key and len(rows.starts) < len(rows.order):
            repeated = int(np.flatnonzero(~rows.is_lone)[0])
            self._refuse_repeated(rows.rows.slice(int(rows.order[rows.starts[repeated]]), 1), side)
        for piece in rows.pieces_of(PIECES.spilled_batch_bytes):
            yield self._engine.merge(piece)

    def _refuse_repeated(self, row: pa.RecordBatch, side: str) -> None:
        keys = self._fields[: len(self.result.key)]
        (values,) = canonical_rows(row.select([field.name for field in keys]), keys)
        text = ", ".join(f"{name}={'NULL' if value is None else shortened(str(value))}" for name, value in values.items())
        hint = "name a key that identifies each row with --key, or compare whole rows with --key ''"
        raise UsageError(f"the key {text} is not unique in {side}", "rows are paired by their key", hint)

    def _prepared(self, batch: pa.RecordBatch, number: int) -> pa.RecordBatch:
        count = batch.num_rows
        columns = {
            field.name: column.cast(nullable_inside(arrow_type(field.type)))
            for field, column in zip(self._fields, batch.columns, strict=True)
        }
        columns |= {SORTED_AS + field.name: canonical_texts(columns[field.name], field.type) for field in self._nested}
        columns[SEQUENCE_NUMBER] = pa.array(np.full(count, number, np.int64))
        columns[VALUE_KIND] = pa.array(np.zeros(count, np.int8))
        columns[_COUNT] = pa.array(np.ones(count, np.int64))
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    def judge(self, rows: pa.RecordBatch) -> None:
        """Count equal and different rows. The batch is sorted and holds all rows of its keys, of both sides."""
        if not rows.num_rows:
            return
        starts = group_starts(order_words([rows.column(name) for name in self.sort_columns]))
        ends = np.append(starts[1:], rows.num_rows)
        is_here = rows.column(SEQUENCE_NUMBER).to_numpy() == HERE
        counts = rows.column(_COUNT).to_numpy()
        here = np.add.reduceat(np.where(is_here, counts, 0), starts)
        there = np.add.reduceat(np.where(is_here, 0, counts), starts)
        result = self.result
        result.rows_here += int(here.sum())
        result.rows_there += int(there.sum())
        if result.key:
            self._judge_keyed(rows, starts, ends, here, there)
            return
        result.equal += int(np.minimum(here, there).sum())
        for kind, surplus in ((ONLY_HERE, here - there), (ONLY_THERE, there - here)):
            surplus = np.maximum(surplus, 0)
            self._add(kind, rows, starts[surplus > 0], surplus[surplus > 0])

    def _judge_keyed(
        self, rows: pa.RecordBatch, starts: np.ndarray, ends: np.ndarray, here: np.ndarray, there: np.ndarray
    ) -> None:
        for number, side in ((here, self.result.here), (there, self.result.there)):
            if (number > 1).any():
                self._refuse_repeated(rows.slice(int(starts[np.flatnonzero(number > 1)[0]]), 1), side)
        both = (here == 1) & (there == 1)
        first, last = starts[both], ends[both] - 1
        unlike = np.zeros((len(first), 0), dtype=bool)
        if self.result.columns:
            compared = [self._compared_as.get(name, name) for name in self.result.columns]
            unlike = np.stack([differing(rows, first, last, [name]) for name in compared], axis=1)
        changed = unlike.any(axis=1)
        for name, number in zip(self.result.columns, unlike.sum(axis=0).tolist(), strict=True):
            if number:
                self.result.differing_columns[name] = self.result.differing_columns.get(name, 0) + number
        self.result.equal += int((~changed).sum())
        self._add(ONLY_HERE, rows, starts[(here == 1) & (there == 0)])
        self._add(ONLY_THERE, rows, starts[(here == 0) & (there == 1)])
        self._add_changed(rows, first[changed], last[changed], unlike[changed])

    def _add(self, kind: str, rows: pa.RecordBatch, positions: np.ndarray, counts: np.ndarray | None = None) -> None:
        """Count and keep rows that only one side has. `positions`: their positions in the batch."""
        count = len(positions) if counts is None else int(counts.sum())
        if kind == ONLY_HERE:
            self.result.only_here += count
        else:
            self.result.only_there += count
        shown = positions[: self._left[kind]]
        self._left[kind] -= len(shown)
        for index, (key, values) in enumerate(self._rows(rows, shown)):
            sides = (values, None) if kind == ONLY_HERE else (None, values)
            count = 1 if counts is None else int(counts[index])
            self.result.differences.append(RowDifference(kind, count, key, (), *sides))

    def _add_changed(self, rows: pa.RecordBatch, first: np.ndarray, last: np.ndarray, unlike: np.ndarray) -> None:
        self.result.different += len(first)
        most = self._left[DIFFERENT]
        self._left[DIFFERENT] -= min(most, len(first))
        pairs = zip(self._rows(rows, first[:most]), self._rows(rows, last[:most]), unlike[:most], strict=True)
        for (key, here), (_, there), flags in pairs:
            names = [name for name, flag in zip(self.result.columns, flags.tolist(), strict=True) if flag]
            self.result.differences.append(RowDifference(DIFFERENT, 1, key, names, here, there))

    def _rows(self, rows: pa.RecordBatch, positions: np.ndarray) -> Iterator[tuple[dict[str, Any] | None, dict[str, Any]]]:
        """The key and the other values of the rows at these positions, in canonical form."""
        chosen = rows.select([field.name for field in self._fields]).take(pa.array(positions, pa.int64()))
        for row in canonical_rows(chosen, self._fields):
            key = {name: row.pop(name) for name in self.result.key}
            yield key or None, row
