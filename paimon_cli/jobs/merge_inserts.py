"""The rows that a merge inserts: those of the source that have met no row of the table, by the first insert clause that holds.

Tasks of the write path make them of the source, portion by portion. Before, their keys are checked: a key has one row.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from paimon_cli.datatypes.arrow_types import arrow_type
from paimon_cli.datatypes.bucket_hash import hash_rows
from paimon_cli.datatypes.data_type import DataField
from paimon_cli.errors import BadInput, UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.json_rows import Needed
from paimon_cli.ingest.row_sources import ARROW, ArrowRows, RowSource
from paimon_cli.ingest.source_files import RawRows, SourceSplit
from paimon_cli.ingest.text_form import TextForm
from paimon_cli.jobs.engine import Engine, Progress, phase
from paimon_cli.jobs.key_index import NO_ROW, KeyIndex
from paimon_cli.jobs.merge_edit import SOURCE, Clause, chosen_clauses, source_schema
from paimon_cli.jobs.merge_source import MemorySource, MergeSource, rows_of
from paimon_cli.jobs.row_change import ChangedBucket, new_columns
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.pieces import PIECES
from paimon_cli.read.scan_plan import plan_scan
from paimon_cli.read.split_reader import read_split
from paimon_cli.sql.expressions import ColumnValue, Expression

ROWS_TO_INSERT = "the rows to insert"


class NewPart(NamedTuple):
    """Rows that one clause inserts: their new values, the rows of the source that they come from, and the numbers of these."""

    rows: pa.RecordBatch
    origins: pa.RecordBatch
    numbers: np.ndarray


@dataclass(frozen=True)
class NewRows(RowSource):
    """The rows that a merge inserts, with `moved` ones. `is_new`: one bit for each row of the source; whether it has met none."""

    schema: TableSchema
    source: MergeSource
    inserts: tuple[Clause, ...]
    is_new: np.ndarray
    moved: pa.Table = field(default_factory=lambda: pa.table({}))

    @staticmethod
    def of(source: MergeSource, inserts: tuple[Clause, ...], schema: TableSchema, changed: Sequence[ChangedBucket]) -> NewRows:
        """`changed`: the rows of the table that have met rows of the source."""
        is_new = np.ones(source.row_count, bool)
        for bucket in changed:
            if bucket.sources is not None:
                is_new[bucket.sources] = False
        return NewRows(schema, source, inserts, np.packbits(is_new, bitorder="little"))

    def with_moved(self, moved: pa.Table) -> RowSource:
        """The rows and the moved ones. Rows of a source in memory are made now, so that tasks get no others."""
        if not isinstance(self.source, MemorySource):
            return replace(self, moved=moved)
        parts = [pa.Table.from_batches([part.rows]) for portion in self.portions for part in self.parts(portion)]
        every = [*parts, *([moved] if moved.num_rows else [])]
        if not every:
            return replace(self, inserts=())
        return ArrowRows(pa.concat_tables(every, promote_options="default"), ROWS_TO_INSERT)

    @property
    def paths(self) -> tuple[str, ...]:
        return ()

    @property
    def form(self) -> TextForm:
        return TextForm()

    def plan(self, *, allow_empty: bool = False) -> list[SourceSplit]:
        """A split for each portion with rows that have met none, and one for the moved rows."""
        parts = [(portion.start, len(portion)) for portion in self.portions]
        count = self.source.row_count
        parts += [(count, self.moved.num_rows)] if self.moved.num_rows else []
        size = PIECES.routed_bytes  # about that of a portion
        return [SourceSplit("", ARROW, start, rows, start, start, ROWS_TO_INSERT, size, rows) for start, rows in parts]

    def raw_rows(self, split: SourceSplit, columns: Sequence[DataField], keys: Needed) -> Iterator[RawRows]:
        assert split.length is not None
        if split.start >= self.source.row_count:
            start = 0
            for batch in self.moved.to_batches():  # one alone might not hold all texts
                yield RawRows(batch, np.arange(start, start + batch.num_rows))
                start += batch.num_rows
            return
        for part in self.parts(range(split.start, split.start + split.length)):
            yield RawRows(part.rows, part.numbers - split.start)

    @property
    def portions(self) -> list[range]:
        """The portions of the source with rows that have met none; none if the merge inserts nothing."""
        inserts = any(clause.new_values is not None for clause in self.inserts)
        return [portion for portion in self.source.portions if inserts and len(portion) and self._new(portion).any()]

    def keeps_known_keys(self, keys: Sequence[str]) -> bool:
        """Whether it is known without a look at the keys that each is new, and no two are equal.

        So it is if the columns of the merge are part of the key, different in all rows, and inserted as they are. Null met no
        row, but where keys may be null the table may have it.
        """
        on = self.source.on
        if not set(on) <= set(keys) or not self.source.is_indexed or not self.source.index.is_unique:
            return False
        if self.schema.typed_options.primary_key_nullable and _has_null(self.source.batch, on):
            return False
        for clause in (clause.new_values for clause in self.inserts if clause.new_values is not None):
            given = {item.column.name: item.expression for item in clause.assignments}
            if not set(keys) <= given.keys() or not all(_is_column(given[name], name) for name in on):
                return False
        return True

    def _new(self, portion: range) -> np.ndarray:
        first = portion.start // 8
        bits = np.unpackbits(self.is_new[first : -(-portion.stop // 8)], bitorder="little")
        return bits[portion.start - 8 * first :][: len(portion)].astype(bool)

    def parts(self, portion: range) -> Iterator[NewPart]:
        """The rows to insert of a portion of the source. Raises `BadInput`, which names a row that cannot be inserted."""
        new = np.flatnonzero(self._new(portion))
        origins = self.source.read(portion).take(pa.array(new, pa.int64()))
        batch = _joined(self.schema, self.source, origins)
        chosen = chosen_clauses(self.inserts, batch)
        for number, clause in enumerate(self.inserts):
            rows = np.flatnonzero(chosen == number)
            if clause.new_values is None or not len(rows):
                continue
            numbers = portion.start + new[rows]

            def name_row(row: int, at: np.ndarray = numbers) -> str:
                return f"row {at[row] + 1} of the source"

            values = new_columns(clause.new_values.assignments, batch.take(pa.array(rows)), name_row)
            made = pa.RecordBatch.from_arrays(list(values.values()), names=list(values))
            yield NewPart(made, origins.take(pa.array(rows)), numbers)


def _has_null(rows: pa.RecordBatch, names: Sequence[str]) -> bool:
    return any(rows.column(name).null_count for name in names)


def _is_column(expression: Expression, name: str) -> bool:
    """Whether it is this column of the source."""
    return isinstance(expression, ColumnValue) and (expression.name, *expression.path) in ((name,), (SOURCE, name))


def _joined(schema: TableSchema, source: MergeSource, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of the source with the columns of `source_schema`."""
    of_source = source_schema(schema, source)
    columns = {name: rows.column(name) for name in rows.schema.names}
    columns |= {"source": rows_of(rows, source.row_type, np.arange(rows.num_rows))}
    target = pa.schema([pa.field(column.name, arrow_type(column.type)) for column in of_source.fields])
    arrays = [columns.get(column.name, pa.nulls(rows.num_rows, column.type)) for column in target]
    return pa.RecordBatch.from_arrays(arrays, schema=target)


def check_new_keys(context: TableContext, snapshot: Snapshot | None, rows: NewRows, engine: Engine, progress: Progress) -> None:
    """Raise `BadInput` if two rows to insert have the same key, or one has the key of a row of the table.

    Keys are checked in shares, so that a task holds a bounded number of them.
    """
    if not context.schema.primary_keys or rows.keeps_known_keys(context.schema.primary_keys):
        return
    portions = rows.portions
    shares = -(-sum(len(portion) for portion in portions) // PIECES.inserted_keys)
    if not shares:
        return
    check = functools.partial(_check_share, context, snapshot, rows, shares)
    if isinstance(rows.source, MemorySource):
        for share in range(shares):
            check(share)
        return
    with phase(progress, "Comparing keys", shares) as done:
        engine.run_tasks(check, range(shares), done)


def _check_share(context: TableContext, snapshot: Snapshot | None, new: NewRows, shares: int, share: int) -> None:
    """The check of the keys with one of the hashes.

    The table has no such key if the columns of the merge are part of it, not null, and are inserted as they are: the row would
    have met the row of the source.
    """
    schema, on = context.schema, new.source.on
    null_is_value = schema.typed_options.primary_key_nullable  # elsewhere the write path refuses it
    names, keys, keeps = schema.primary_keys, list[pa.RecordBatch](), set(on) <= set(schema.primary_keys)
    for part in (part for portion in new.portions for part in new.parts(portion)):
        if missing := next((name for name in names if name not in part.rows.schema.names), None):
            why = "each row that is inserted needs its key"
            raise UsageError(f"key column '{missing}' is not set", why, "set it in the insert")
        keeps = keeps and all(part.rows.column(name).equals(part.origins.column(name)) for name in on)
        keeps = keeps and not (null_is_value and _has_null(part.rows, on))
        own = part.rows.select(list(names))
        mine = hash_rows(own.columns, schema.types_of(names)) % shares == share
        keys.append(own.filter(pa.array(mine)))
    if not keys:
        return
    rows = pa.concat_batches(keys)
    index = KeyIndex(rows.columns, null_is_value)
    hint = "nothing was committed; merge on the key, or leave the row out of the source"
    if not index.is_unique:
        raise BadInput(f"two rows to insert have {_key_text(rows, index.first_repeated())}", "a key has one row", hint)
    if snapshot is None or keeps:
        return
    seen = context.with_level_0()
    where = MemorySource(rows, schema.fields_of(names), tuple(names)).condition(schema, null_is_value)
    for split in plan_scan(seen, snapshot, where).splits:
        for batch in read_split(seen, split, list(names), where):
            met = index.rows_of([batch.column(name) for name in names])
            if (met != NO_ROW).any():
                what = f"a row to insert has the key of a row of the table: {_key_text(rows, int(met.max()))}"
                why = f"its row of the source differs in {', '.join(on)}, or has a null there, which equals nothing in a merge"
                raise BadInput(what, why, hint)


def _key_text(rows: pa.RecordBatch, row: int) -> str:
    values = {name: rows.column(name)[row] for name in rows.schema.names}
    return ", ".join(f"{name} = {value if value.is_valid else 'NULL'}" for name, value in values.items())
