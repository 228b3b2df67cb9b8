"""Selects the columns and fields that a read returns, and sorts its rows, in memory or in runs on local disk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.bucket.spilled_runs import SpillDirectory, SpilledRun
from paimon_cli.datatypes.data_type import DataField
from paimon_cli.datatypes.type_text import quoted_name, quoted_names
from paimon_cli.errors import UsageError
from paimon_cli.metadata.data_file_schema import fields_of_star
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.pieces import PIECES
from paimon_cli.sql.expressions import ColumnValue, SortKey

NESTED_NAME = "."
EVERY = "*"


@dataclass(frozen=True)
class Selection:
    """The selected values in output order: columns, or fields of columns, which are called `a.b`."""

    values: tuple[ColumnValue, ...]

    @property
    def fields(self) -> tuple[DataField, ...]:
        """Names and types of the output columns."""
        named = zip(self.names, self.values, strict=True)
        return tuple(DataField(n, name, value.type.with_nullable(True)) for n, (name, value) in enumerate(named))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(NESTED_NAME.join((value.name, *value.path)) for value in self.values)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the table that must be read, each once."""
        return tuple(dict.fromkeys(value.name for value in self.values))

    def of(self, batch: pa.RecordBatch) -> list[pa.Array]:
        return [value.stored(batch) for value in self.values]


def selected(schema: TableSchema, columns: str | Sequence[str] | None) -> Selection:
    """Parse column names: a text with commas, or a list (None: all columns). Raises `UsageError`.

    `a.b` is a field, and `*` all columns but those of row tracking, unless there is such a column. In a list, a name in quotes is
    read as one in a text, unless there is a column that is called so, quotes included.
    """
    if columns is None:
        return Selection(tuple(ColumnValue(field.name, field.type) for field in schema.fields))
    text = columns if isinstance(columns, str) else ",".join(_listed(name, schema) for name in columns)
    try:
        names = quoted_names(text)
    except UsageError:
        if NESTED_NAME not in text:
            raise
        names = ()
    if NESTED_NAME in text and not (names and all(map(schema.find, names))):
        from paimon_cli.sql.clauses import selected_values  # sqlglot is slow to import

        values = selected_values(text, schema)
    else:
        values = tuple(value for name in names for value in _named(name, schema))
    if not values:
        raise UsageError("no columns to read", hint=f"the columns are {', '.join(schema.field_names)}")
    selection = Selection(values)
    if len(set(selection.names)) < len(values):
        raise UsageError("a column is selected twice", ", ".join(selection.names))
    return selection


def _named(name: str, schema: TableSchema) -> tuple[ColumnValue, ...]:
    """The column, or all for `*`."""
    is_star = name == EVERY and schema.find(name) is None
    fields = fields_of_star(schema) if is_star else (schema.field(name),)
    return tuple(ColumnValue(field.name, field.type) for field in fields)


def _listed(name: str, schema: TableSchema) -> str:
    """An element of a list of names as text: quoted, unless it is a field (`a.b`) or in quotes already."""
    if name == EVERY:
        return name
    plain = name.replace(".", "").replace("_", "").isalnum() or name[:1] in ('"', "`")
    return name if plain and schema.find(name) is None else quoted_name(name)


@dataclass(frozen=True)
class RowOrder:
    """An order of rows. `text`: as the user wrote it. Sorting is stable."""

    text: str
    keys: tuple[SortKey, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that must be read for the order, each once."""
        return tuple(dict.fromkeys(name for key in self.keys for name in key.value.columns()))

    def positions(self, rows: pa.RecordBatch | pa.Table) -> np.ndarray:
        """The row numbers in this order."""
        columns: list[pa.Array] = []
        directions: list[tuple[str, str]] = []
        for key in self.keys:
            values = self._values(key, rows)
            flags = pc.is_null(values).cast(pa.int8())
            for column, descending in ((flags, key.nulls_first), (values, key.descending)):
                directions.append((str(len(columns)), "descending" if descending else "ascending"))
                columns.append(column)
        table = pa.Table.from_arrays(columns, names=[name for name, _ in directions])
        return pc.sort_indices(table, sort_keys=directions).to_numpy()

    def _values(self, key: SortKey, rows: pa.RecordBatch | pa.Table) -> pa.Array:
        try:
            values = key.value.evaluate(rows)
        except pa.ArrowInvalid as problem:
            raise UsageError(f"the order {self.text} cannot be computed for every row", str(problem)) from problem
        return _ordered_floats(values) if pa.types.is_floating(values.type) else values


def parse_order(text: str, schema: TableSchema) -> RowOrder:
    """Parse an order such as `a, b DESC NULLS FIRST`; `a` and `b` are expressions as in conditions. Raises `UsageError`."""
    from paimon_cli.sql.clauses import sort_keys  # sqlglot is slow to import

    return RowOrder(text, sort_keys(text, schema))


def rows_in_order(batches: Iterable[pa.RecordBatch], order: RowOrder, limit: int | None = None) -> Iterator[pa.RecordBatch]:
    """The rows in this order, at most `limit`. Memory is bounded, however many rows there are."""
    if limit is None:
        yield from _sorted(batches, order)
        return
    held: list[pa.RecordBatch] = []
    batches = iter(batches)
    for batch in batches:
        held.append(batch)
        if sum(piece.num_rows for piece in held) >= limit + PIECES.top_rows:
            held = [_first_rows(held, order, limit)]
            if held[0].nbytes > PIECES.sort_bytes:
                break
    remaining = limit
    for batch in _sorted(chain(held, batches), order):
        yield batch.slice(0, remaining)
        remaining -= min(remaining, batch.num_rows)
        if remaining == 0:
            return


def _first_rows(batches: Sequence[pa.RecordBatch], order: RowOrder, limit: int) -> pa.RecordBatch:
    rows = pa.concat_batches(batches)
    return rows.take(pa.array(order.positions(rows)[:limit]))


def _sorted(batches: Iterable[pa.RecordBatch], order: RowOrder) -> Iterator[pa.RecordBatch]:
    """All rows in order, sorted in runs of `sort_bytes`, which are on disk if there is more than one."""
    with SpillDirectory() as spill:
        runs: list[SpilledRun] = []
        held: list[pa.RecordBatch] = []
        size = 0
        for batch in (batch for batch in batches if batch.num_rows):
            if held and size + batch.nbytes > PIECES.sort_bytes:
                runs.append(spill.write(_pieces(held, order), batch.schema))
                held, size = [], 0
            held.append(batch)
            size += batch.nbytes
        if not runs:
            yield from _pieces(held, order)
            return
        if held:
            runs.append(spill.write(_pieces(held, order), held[0].schema))
        while len(runs) > PIECES.max_merged_runs:
            groups = [runs[start : start + PIECES.max_merged_runs] for start in range(0, len(runs), PIECES.max_merged_runs)]
            runs = [_merged_run(group, order, spill) for group in groups]
        yield from _merged([run.read() for run in runs], order)


def _merged_run(runs: Sequence[SpilledRun], order: RowOrder, spill: SpillDirectory) -> SpilledRun:
    first = next(runs[0].read())
    merged = spill.write(_merged([run.read() for run in runs], order), first.schema)
    for run in runs:
        spill.remove(run)
    return merged


def _pieces(batches: Sequence[pa.RecordBatch], order: RowOrder) -> Iterator[pa.RecordBatch]:
    if not batches:
        return
    rows = pa.concat_batches(batches)
    positions = order.positions(rows)
    step = max(1, PIECES.spilled_batch_bytes * rows.num_rows // max(rows.nbytes, 1))
    for start in range(0, rows.num_rows, step):
        yield rows.take(pa.array(positions[start : start + step]))


def _merged(runs: Sequence[Iterator[pa.RecordBatch]], order: RowOrder) -> Iterator[pa.RecordBatch]:
    """Merge sorted runs: sort the current batches of all runs, and yield rows up to the first end of such a batch."""
    held: list[Any] = [next(run, None) for run in runs]
    while True:
        live = [number for number, batch in enumerate(held) if batch is not None]
        if not live:
            return
        if len(live) == 1:
            yield held[live[0]]
            yield from runs[live[0]]
            return
        live = _with_ready_rows([(number, batch) for number, batch in enumerate(held) if batch is not None], order)
        batches = [held[number] for number in live]
        rows = pa.concat_batches(batches)
        positions = order.positions(rows)
        ranks = np.empty(len(positions), dtype=np.int64)
        ranks[positions] = np.arange(len(positions))
        ends = np.cumsum([batch.num_rows for batch in batches])
        ready = positions[: int(ranks[ends - 1].min()) + 1]
        yield rows.take(pa.array(ready))
        taken = np.bincount(np.searchsorted(ends, ready, side="right"), minlength=len(live))
        for number, batch, count in zip(live, batches, taken.tolist(), strict=True):
            held[number] = batch.slice(count) if count < batch.num_rows else next(runs[number], None)


def _with_ready_rows(held: Sequence[tuple[int, pa.RecordBatch]], order: RowOrder) -> list[int]:
    """The runs with rows that come before the end of every current batch: only those rows can be yielded now."""
    edges = pa.concat_batches([edge for _, batch in held for edge in (batch.slice(0, 1), batch.slice(batch.num_rows - 1))])
    positions = order.positions(edges)
    ranks = np.empty(len(positions), dtype=np.int64)
    ranks[positions] = np.arange(len(positions))
    firsts, lasts = ranks[::2], ranks[1::2]
    return [number for (number, _), first in zip(held, firsts.tolist(), strict=True) if first <= int(lasts.min())]


def _ordered_floats(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Integers in the order of the floating-point numbers: both zeros are equal, NaN is the greatest."""
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    numbers = array.cast(pa.float64()).fill_null(0).to_numpy(zero_copy_only=False) + 0.0
    bits = np.where(np.isnan(numbers), np.int64(0x7FF8000000000000), numbers.view(np.int64))
    bits = np.where(bits < 0, bits ^ np.int64(0x7FFFFFFFFFFFFFFF), bits)
    return pc.if_else(array.is_valid(), pa.array(bits), None)
