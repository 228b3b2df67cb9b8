"""Compares the rows of two tables, versions of tables, or files: by key, or as whole rows that are counted.

Each side is sorted into runs, on disk where memory is too small, and the runs of both are merged. Values are equal as in Java:
NaN equals NaN, null equals null, and -0.0 is not 0.0.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from paimon_cli.bucket.spilled_runs import SPILLED_BATCH_BYTES, OpenRun, SpillDirectory, merge_in_passes
from paimon_cli.casts.column_cast import cast_column, keeps_values
from paimon_cli.datatypes.arrow_types import arrow_type
from paimon_cli.datatypes.canonical_form import canonical_column, canonical_rows
from paimon_cli.datatypes.data_type import DataField, DataType, NestedType
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.datatypes.key_order import group_starts, order_words
from paimon_cli.errors import UsageError
from paimon_cli.ingest.faults import Tally
from paimon_cli.ingest.json_rows import Needed
from paimon_cli.ingest.row_sources import FileRows
from paimon_cli.ingest.rows import IncomingRows
from paimon_cli.jobs.row_scan import ReadRequest, plan_rows
from paimon_cli.lsm.row_difference import differing
from paimon_cli.lsm.sort_merge import sorted_rows
from paimon_cli.lsm.sorted_rows import KeepAllVersions, MergeEngine, SortedRows, WholeRowEngine
from paimon_cli.metadata.data_file_schema import SEQUENCE_NUMBER, VALUE_KIND
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.sql.predicate import parse_predicate

if TYPE_CHECKING:
    from paimon_cli.catalog.table import CatalogTable

RUN_BYTES = 96 << 20
"""Bytes of the rows that are sorted in memory at a time, without the copies made while they are sorted."""
MOST_RUNS = 32
HERE, THERE = 0, 1
"""The side that a row belongs to, where a merge expects its sequence number."""
COUNT = "_COUNT"
SORTED_AS = "_SORTED_AS_"
"""Prefix of the columns that hold nested values as text, because nested values have no order."""
ONLY_HERE, ONLY_THERE, DIFFERENT = "only here", "only there", "different"


class Side(Protocol):
    """One side of a comparison. `key`: the columns that identify a row; none if there are none."""

    @property
    def name(self) -> str: ...
    @property
    def fields(self) -> Sequence[DataField]: ...
    @property
    def key(self) -> Sequence[str]: ...
    def batches(self, fields: Sequence[DataField], where: str | None) -> Iterator[pa.RecordBatch]:
        """The rows that match, with columns of these names and types."""
        ...


@dataclass(frozen=True)
class TableSide:
    """A table at one of its versions, which `request` names."""

    name: str
    table: CatalogTable
    request: ReadRequest

    @functools.cached_property
    def _schema(self) -> TableSchema:
        return plan_rows(self.table, replace(self.request, limit=0)).context.schema

    @property
    def fields(self) -> Sequence[DataField]:
        return self._schema.fields

    @property
    def key(self) -> Sequence[str]:
        return self._schema.primary_keys

    def batches(self, fields: Sequence[DataField], where: str | None) -> Iterator[pa.RecordBatch]:
        select = ",".join("`" + field.name.replace("`", "``") + "`" for field in fields)
        own = self._schema.fields_of([field.name for field in fields])
        for batch in plan_rows(self.table, replace(self.request, select=select, where=where)).rows():
            columns = [_as_type(c, f.type, wanted.type) for c, f, wanted in zip(batch.columns, own, fields, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


@dataclass(frozen=True)
class FileSide:
    """Files, read as a write reads them. `fields` are its columns, with the types of the table that it is compared with."""

    name: str
    source: FileRows
    fields: Sequence[DataField]
    key: Sequence[str] = ()

    def batches(self, fields: Sequence[DataField], where: str | None) -> Iterator[pa.RecordBatch]:
        schema = TableSchema(0, tuple(_nullable(field) for field in self.fields), 0, (), (), {}, None, 0)
        predicate = None if where is None else parse_predicate(where, schema)
        wanted = {field.name for field in fields} | set(predicate.columns if predicate else ())
        read = replace(schema, fields=tuple(field for field in schema.fields if field.name in wanted))
        rows, tally, names = IncomingRows(read, source=self.source), Tally(), [field.name for field in fields]
        for split in self.source.plan():
            for raw in self.source.raw_rows(split, schema.fields, Needed()):
                kept = raw.batch.select([name for name in raw.batch.schema.names if name in wanted])
                batch = rows.conform(raw._replace(batch=kept), split, tally)
                yield (batch if predicate is None else predicate.filtered(batch)).select(names)


def _nullable(field: DataField) -> DataField:
    return DataField(field.id, field.name, field.type.with_nullable(True))


def _as_type(column: pa.Array, own: DataType, wanted: DataType) -> pa.Array:
    if own == wanted or isinstance(own, NestedType):
        return column
    return cast_column(column, own, wanted)


@dataclass(frozen=True)
class RowDifference:
    """A row that the sides do not share, `count` times; `columns` are those whose values differ.

    `here` and `there` are the rows without their key, None where a side lacks the row.
    """

    kind: str
    count: int
    key: Mapping[str, Any] | None
    columns: Sequence[str]
    here: Mapping[str, Any] | None
    there: Mapping[str, Any] | None


@dataclass
class Comparison:
    """How two sides differ: numbers of rows, and the first differences of each kind in the order of keys.

    `columns_only_here` and `columns_only_there` were not compared; they count as a difference unless columns were chosen.
    `differing_columns`: how many of the different rows differ in each column.
    """

    here: str
    there: str
    key: Sequence[str]
    columns: Sequence[str]
    columns_only_here: Sequence[str]
    columns_only_there: Sequence[str]
    rows_here: int = 0
    rows_there: int = 0
    equal: int = 0
    only_here: int = 0
    only_there: int = 0
    different: int = 0
    differing_columns: dict[str, int] = field(default_factory=dict)
    differences: list[RowDifference] = field(default_factory=list)

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
    where: str | None = None,
    limit: int = 10,
    advance: Callable[[int], object] = lambda rows: None,
) -> Comparison:
    """Compare all rows that match `where`, in bounded memory.

    `key`: default that of either side, empty for whole rows; `columns`: default all that both have; `limit`: how many differences
    of each kind are kept.
    Raises `UsageError` for a key that repeats, and for columns that cannot be compared.
    """
    key = _shared_key(here, there) if key is None else tuple(key)
    result, fields = _compared_columns(here, there, key, columns)
    work = _Work(result, fields, limit)
    with SpillDirectory() as spill:
        runs = [run for number, side in ((HERE, here), (THERE, there)) for run in work.runs(side, number, where, spill, advance)]
        for rows in merge_in_passes(runs, work.sort_columns, KeepAllVersions(), MOST_RUNS, keys_repeat=True):
            work.judge(rows)
    return result


def _shared_key(here: Side, there: Side) -> tuple[str, ...]:
    """The key of one side, whose columns the other must have, too; none if neither has a key."""
    keys = [tuple(side.key) for side in (here, there) if side.key]
    if not keys:
        return ()
    if len(set(map(frozenset, keys))) > 1:
        why = f"{', '.join(keys[0])} and {', '.join(keys[1])}"
        raise UsageError("the tables have different primary keys", why, "name the columns of one with --key")
    missing = [name for name in keys[0] for side in (here, there) if name not in _names(side)]
    if missing:
        raise UsageError(f"column '{missing[0]}' of the primary key is not on both sides", hint="name other columns with --key")
    return keys[0]


def _names(side: Side) -> list[str]:
    return [field.name for field in side.fields]


def _compared_columns(here: Side, there: Side, key: Sequence[str], columns: Sequence[str]) -> tuple[Comparison, list[DataField]]:
    """The columns of the comparison, the key first, with types that hold the values of both sides."""
    sides = [{field.name: field.type for field in side.fields} for side in (here, there)]
    for name in (*key, *columns):
        for side, known in zip((here, there), sides, strict=True):
            if name not in known:
                raise UsageError(f"{side.name} has no column '{name}'", f"its columns are {', '.join(known)}")
    chosen = [name for name in (columns or sides[0]) if name in sides[1] and name not in key]
    if not chosen and not key:
        raise UsageError("there is nothing to compare", f"{here.name} and {there.name} have no column in common")
    only_here, only_there = ([name for name in mine if name not in other] for mine, other in (sides, sides[::-1]))
    fields = [DataField(0, name, _common_type(name, *(side[name] for side in sides))) for name in (*key, *chosen)]
    nested = next((one for one in fields[: len(key)] if isinstance(one.type, NestedType)), None)
    if nested is not None:
        raise UsageError(f"column '{nested.name}' cannot be a key", f"{type_to_sql(nested.type)} has no order")
    return Comparison(here.name, there.name, key, chosen, *(([], []) if columns else (only_here, only_there))), fields


def _common_type(name: str, here: DataType, there: DataType) -> DataType:
    if isinstance(here, NestedType) or isinstance(there, NestedType):
        same = _plain(arrow_type(here)).equals(_plain(arrow_type(there)))
        wanted = here if same else None
    else:
        wanted = here if keeps_values(there, here) else there if keeps_values(here, there) else None
    if wanted is None:
        what = f"column '{name}' is {type_to_sql(here)} on one side and {type_to_sql(there)} on the other"
        raise UsageError(what, "no type holds the values of both", "choose other columns with --select")
    return wanted.with_nullable(True)


def _plain(t: pa.DataType) -> pa.DataType:
    """The type with nulls allowed everywhere."""
    if pa.types.is_struct(t):
        return pa.struct([pa.field(inner.name, _plain(inner.type)) for inner in t])
    if pa.types.is_map(t):
        return pa.map_(_plain(t.key_type), _plain(t.item_type))
    if pa.types.is_list(t):
        return pa.list_(pa.field("element", _plain(t.value_type)))
    return t


@dataclass(frozen=True)
class Counted(WholeRowEngine):
    """A `MergeEngine` that makes one row of equal ones and adds up their counts."""

    def merge(self, rows: SortedRows) -> pa.RecordBatch:
        counts = np.add.reduceat(rows.rows.column(COUNT).to_numpy()[rows.order], rows.starts)
        merged = rows.rows.take(pa.array(rows.order[rows.starts]))
        return merged.set_column(merged.schema.get_field_index(COUNT), COUNT, pa.array(counts))


class _Work:
    """One comparison. Without a key whole rows are the key, and equal ones are counted."""

    def __init__(self, result: Comparison, fields: Sequence[DataField], limit: int) -> None:
        self.result = result
        self._fields = fields
        self._left = dict.fromkeys((ONLY_HERE, ONLY_THERE, DIFFERENT), limit)
        keyed = fields[: len(result.key)] or fields
        self._nested = [] if result.key else [field for field in fields if isinstance(field.type, NestedType)]
        self.sort_columns = [SORTED_AS + field.name if field in self._nested else field.name for field in keyed]
        self._engine: MergeEngine = KeepAllVersions() if result.key else Counted()

    def runs(
        self, side: Side, number: int, where: str | None, spill: SpillDirectory, advance: Callable[[int], object]
    ) -> Iterator[OpenRun]:
        """Sorted runs of one side: the last one stays in memory if it is the only one."""
        held: list[pa.RecordBatch] = []
        size = 0
        spilled = False
        for batch in side.batches(self._fields, where):
            advance(batch.num_rows)
            held.append(self._prepared(batch, number))
            size += held[-1].nbytes
            if size > RUN_BYTES:
                yield self._spilled(held, side, spill)
                held, size, spilled = [], 0, True
        if held and spilled:
            yield self._spilled(held, side, spill)
        elif held:
            rows = list(self._sorted(held, side))
            yield lambda: iter(rows)

    def _spilled(self, held: Sequence[pa.RecordBatch], side: Side, spill: SpillDirectory) -> OpenRun:
        return spill.write(self._sorted(held, side), held[0].schema).read

    def _sorted(self, held: Sequence[pa.RecordBatch], side: Side) -> Iterator[pa.RecordBatch]:
        rows = sorted_rows(pa.concat_batches(held), self.sort_columns, self._engine)
        if self.result.key and len(rows.starts) < len(rows.order):
            repeated = int(np.flatnonzero(~rows.is_lone)[0])
            self._refuse_repeated(rows.rows.slice(int(rows.order[rows.starts[repeated]]), 1), side.name)
        for piece in rows.pieces_of(SPILLED_BATCH_BYTES):
            yield self._engine.merge(piece)

    def _refuse_repeated(self, row: pa.RecordBatch, side: str) -> None:
        keys = self._fields[: len(self.result.key)]
        (values,) = canonical_rows(row.select([field.name for field in keys]), keys)
        text = ", ".join(f"{name}={value}" for name, value in values.items())
        hint = "name a key that identifies each row with --key, or compare whole rows with --key ''"
        raise UsageError(f"the key {text} is not unique in {side}", "rows are paired by their key", hint)

    def _prepared(self, batch: pa.RecordBatch, number: int) -> pa.RecordBatch:
        count = batch.num_rows
        columns = {
            field.name: _cast(column, _plain(arrow_type(field.type)))
            for field, column in zip(self._fields, batch.columns, strict=True)
        }
        columns |= {SORTED_AS + field.name: _sortable(columns[field.name], field.type) for field in self._nested}
        columns[SEQUENCE_NUMBER] = pa.array(np.full(count, number, np.int64))
        columns[VALUE_KIND] = pa.array(np.zeros(count, np.int8))
        columns[COUNT] = pa.array(np.ones(count, np.int64))
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    def judge(self, rows: pa.RecordBatch) -> None:
        """Count what is equal and what is not among rows that hold all versions of their keys, in order."""
        if not rows.num_rows:
            return
        starts = group_starts(order_words([rows.column(name) for name in self.sort_columns]))
        ends = np.append(starts[1:], rows.num_rows)
        is_here = rows.column(SEQUENCE_NUMBER).to_numpy() == HERE
        counts = rows.column(COUNT).to_numpy()
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
            unlike = np.stack([differing(rows, first, last, [name]) for name in self.result.columns], axis=1)
        changed = unlike.any(axis=1)
        for name, number in zip(self.result.columns, unlike.sum(axis=0).tolist(), strict=True):
            if number:
                self.result.differing_columns[name] = self.result.differing_columns.get(name, 0) + number
        self.result.equal += int((~changed).sum())
        self._add(ONLY_HERE, rows, starts[(here == 1) & (there == 0)])
        self._add(ONLY_THERE, rows, starts[(here == 0) & (there == 1)])
        self._add_changed(rows, first[changed], last[changed], unlike[changed])

    def _add(self, kind: str, rows: pa.RecordBatch, places: np.ndarray, counts: np.ndarray | None = None) -> None:
        """Rows of one side alone."""
        number = len(places) if counts is None else int(counts.sum())
        if kind == ONLY_HERE:
            self.result.only_here += number
        else:
            self.result.only_there += number
        shown = places[: self._left[kind]]
        self._left[kind] -= len(shown)
        for place, (key, values) in enumerate(self._rows(rows, shown)):
            sides = (values, None) if kind == ONLY_HERE else (None, values)
            count = 1 if counts is None else int(counts[place])
            self.result.differences.append(RowDifference(kind, count, key, (), *sides))

    def _add_changed(self, rows: pa.RecordBatch, first: np.ndarray, last: np.ndarray, unlike: np.ndarray) -> None:
        self.result.different += len(first)
        most = self._left[DIFFERENT]
        self._left[DIFFERENT] -= min(most, len(first))
        pairs = zip(self._rows(rows, first[:most]), self._rows(rows, last[:most]), unlike[:most], strict=True)
        for (key, here), (_, there), flags in pairs:
            names = [name for name, flag in zip(self.result.columns, flags.tolist(), strict=True) if flag]
            self.result.differences.append(RowDifference(DIFFERENT, 1, key, names, here, there))

    def _rows(self, rows: pa.RecordBatch, places: np.ndarray) -> Iterator[tuple[dict[str, Any] | None, dict[str, Any]]]:
        """Key and other values of chosen rows, in canonical form."""
        chosen = rows.select([field.name for field in self._fields]).take(pa.array(places, pa.int64()))
        for row in canonical_rows(chosen, self._fields):
            key = {name: row.pop(name) for name in self.result.key}
            yield key or None, row


def _cast(column: pa.Array, t: pa.DataType) -> pa.Array:
    return column if column.type.equals(t) else column.cast(t)


def _sortable(column: pa.Array, t: DataType) -> pa.Array:
    """Texts that are equal where nested values are."""
    texts = [None if value is None else json.dumps(value) for value in canonical_column(column, t)]
    return pa.array(texts, pa.string())
