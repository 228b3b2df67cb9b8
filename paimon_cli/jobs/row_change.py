"""The change that `update`, `delete` or `merge` makes to matching rows: new values for some columns, or their deletion.

In a table whose merge engine combines old and new rows, the effect of the change is checked before anything is written.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.datatypes.column_cast import with_default
from paimon_cli.errors import BadInput
from paimon_cli.history.live_files import BucketFiles
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.faults import BadCells, shown
from paimon_cli.ingest.typed_columns import CastRules, cast_column
from paimon_cli.lsm.changelog import ChangedKeys
from paimon_cli.lsm.merge_engine import merge_engine
from paimon_cli.lsm.sort_merge import sorted_rows
from paimon_cli.metadata.data_file import CommitMessage
from paimon_cli.metadata.data_file_schema import SEQUENCE_NUMBER, TRACKING_COLUMNS, VALUE_KIND, RowKind, merge_rows
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.sql.clauses import BadRow, SetClause, SetItem
from paimon_cli.sql.predicate import Predicate

HINT = "nothing was committed; change the expression or the condition"

NameRow = Callable[[int], str]
"""How messages name a row, by its position in the batch: `the row with id = 7`."""


class Matches(NamedTuple):
    """Which `rows` of a batch an edit changes (bool), and which rows of the source of a merge have met one (`sources`, int64)."""

    rows: np.ndarray
    sources: np.ndarray


class EditedRows(NamedTuple):
    """Rows with their new values, in all columns; those that `is_deleted` (bool) marks are deleted instead."""

    columns: dict[str, pa.Array]
    is_deleted: np.ndarray


class Edit(ABC):
    """What happens to the rows of a table. Picklable. `where`: selects the rows that may change."""

    where: Predicate

    @property
    @abstractmethod
    def set_columns(self) -> Collection[str]:
        """The columns that get new values."""

    @property
    @abstractmethod
    def drops_all(self) -> bool:
        """Whether each row that `where` selects is deleted."""

    narrows = False
    """Whether only some of the rows that `where` selects change."""

    def matches(self, batch: pa.RecordBatch) -> Matches:
        """The rows of a batch that change, among those that `where` selects."""
        return Matches(np.ones(batch.num_rows, bool), np.empty(0, np.int64))

    def for_bucket(self, bucket: BucketFiles) -> Edit:
        """The same for the rows of one bucket."""
        return self

    @abstractmethod
    def read_columns(self, schema: TableSchema) -> Collection[str]:
        """The columns that decide whether a row changes."""

    @property
    @abstractmethod
    def tracking_columns(self) -> Collection[str]:
        """The columns of row tracking that conditions and new values read."""

    @abstractmethod
    def edited(self, schema: TableSchema, batch: pa.RecordBatch, name_row: NameRow) -> EditedRows:
        """The rows of a batch in which all rows change. Raises `BadInput` naming the first row that cannot."""


@dataclass(frozen=True)
class RowEdit(Edit):
    """Matching rows get new values or, if `new_values` is None, they are deleted."""

    where: Predicate
    new_values: SetClause | None

    @property
    def assignments(self) -> tuple[SetItem, ...]:
        return self.new_values.assignments if self.new_values else ()

    @property
    def set_columns(self) -> Collection[str]:
        return [assignment.column.name for assignment in self.assignments]

    @property
    def drops_all(self) -> bool:
        return self.new_values is None

    def read_columns(self, schema: TableSchema) -> Collection[str]:
        return self.where.columns

    @property
    def tracking_columns(self) -> Collection[str]:
        read = {*self.where.columns, *(name for assignment in self.assignments for name in assignment.columns())}
        return [name for name in TRACKING_COLUMNS if name in read]

    def edited(self, schema: TableSchema, batch: pa.RecordBatch, name_row: NameRow) -> EditedRows:
        columns = {name: batch.column(name) for name in schema.field_names}
        columns |= new_columns(self.assignments, batch, name_row)
        with_defaults = {name: with_default(values, schema.field(name)) for name, values in columns.items()}
        return EditedRows(with_defaults, np.full(batch.num_rows, self.drops_all))


def new_columns(assignments: Iterable[SetItem], batch: pa.RecordBatch, name_row: NameRow) -> dict[str, pa.Array]:
    """The columns that get new values. Raises `BadInput` naming the first row that cannot have them."""
    return {assignment.column.name: _assigned(assignment, batch, name_row) for assignment in assignments}


@dataclass(frozen=True)
class ChangedBucket:
    """How many rows of a bucket matched, and the message to commit; None if no row matched.

    `unseen_records`: stored records in the files that were read which ordinary reads do not show yet. `compaction_lost`: why the
    compaction of the bucket was dropped, if it was. `deleted`: how many of the rows were deleted; `sources`: which rows of
    the source of a merge have met a row of the table (int64 array); `moved`: changed rows that belong to another partition.
    """

    rows: int
    message: CommitMessage | None
    unseen_records: int = 0
    compaction_lost: str | None = None
    deleted: int = 0
    sources: Any = None
    moved: tuple[pa.RecordBatch, ...] = ()


@dataclass
class MetRows:
    """Counts the rows that one task changes, and notes which rows of the source of a merge it has met."""

    rows: int = 0
    deleted: int = 0
    moved: list[pa.RecordBatch] = field(default_factory=list)
    _sources: list[np.ndarray] = field(default_factory=list)

    def of(self, change: Edit, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a batch that change, among those that the condition of the change selects."""
        if not change.narrows:
            return batch
        found = change.matches(batch)
        self.meet(found.sources)
        return batch if found.rows.all() else batch.filter(pa.array(found.rows))

    def meet(self, sources: np.ndarray) -> None:
        self._sources.append(sources)

    def count(self, changed: pa.RecordBatch) -> None:
        self.rows += changed.num_rows
        self.deleted += int((changed.column(VALUE_KIND).to_numpy() == RowKind.DELETE).sum())

    def staying(
        self, schema: TableSchema, before: pa.RecordBatch, changed: pa.RecordBatch
    ) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """The rows, before and after, that stay in their partition; the others are kept as `moved`."""
        stays = np.ones(changed.num_rows, bool)
        for name in schema.partition_keys:
            old, new = before.column(name), changed.column(name)
            same = pc.fill_null(pc.equal(old, new), pc.and_(old.is_null(), new.is_null()))
            stays &= same.to_numpy(zero_copy_only=False)
        stays |= changed.column(VALUE_KIND).to_numpy() == RowKind.DELETE
        if stays.all():
            return before, changed
        self.moved.append(changed.filter(pa.array(~stays)).select(list(schema.field_names)))
        return before.filter(pa.array(stays)), changed.filter(pa.array(stays))

    @property
    def sources(self) -> np.ndarray | None:
        return np.unique(np.concatenate(self._sources)) if self._sources else None


def _assigned(assignment: SetItem, batch: pa.RecordBatch, name_row: NameRow) -> pa.Array:
    column = assignment.column
    try:
        values = cast_column(assignment.evaluate(batch), column.type, CastRules(may_round=True))
    except BadRow as problem:
        raise _bad_row(assignment, name_row(problem.row), problem.why) from problem
    except BadCells as problem:
        first = problem.first
        raise _bad_row(assignment, name_row(first.row), f"{shown(first.value)}: {first.why}") from problem
    if values.null_count and not column.type.nullable:
        row = int(np.argmax(values.is_null().to_numpy(zero_copy_only=False)))
        raise _bad_row(assignment, name_row(row), "the column is NOT NULL")
    return values


def _bad_row(assignment: SetItem, row: str, why: str) -> BadInput:
    column = assignment.column.name
    return BadInput(f"SET {column} = {assignment.sql} fails for {row}", why, HINT, column=column, row=row)


def changelog_rows(context: TableContext, batch: pa.RecordBatch, changed: pa.RecordBatch) -> pa.RecordBatch:
    """The changelog of an update: `-U` and `+U` pairs with the sequence number of the new row, or `-D`.

    `batch`: the rows as read; `changed`: the result of `changed_rows`.
    """
    first = int(changed.column(SEQUENCE_NUMBER)[0].as_py())
    before = merge_rows(context.schema, _columns(context, batch), RowKind.INSERT, first)
    rows = np.arange(batch.num_rows)
    return ChangedKeys().rows(before, rows, changed, rows)


def changed_rows(context: TableContext, change: Edit, batch: pa.RecordBatch, first_sequence: int) -> pa.RecordBatch:
    """The rows of `batch` in `merge_schema` with their new values (or as deletions), numbered from `first_sequence`.

    Raises `BadInput` for a row that cannot have its new values, or whose change readers would not see.
    """
    edited = change.edited(context.schema, batch, lambda row: f"the row with {_key(context, batch, row)}")
    kinds = np.where(edited.is_deleted, RowKind.DELETE, RowKind.UPDATE_AFTER)
    changed = merge_rows(context.schema, edited.columns, kinds, first_sequence)
    deleted = int(edited.is_deleted.sum())
    if deleted in (0, batch.num_rows):
        _check(context, change, batch, changed)
        return changed
    for part in (pa.array(edited.is_deleted), pa.array(~edited.is_deleted)):
        _check(context, change, batch.filter(part), changed.filter(part))
    return changed


def _check(context: TableContext, change: Edit, before: pa.RecordBatch, after: pa.RecordBatch) -> None:
    """Raise `BadInput` for a row whose change readers would not see. All rows are changed, or all are deleted."""
    ordered_by = context.options.sequence_fields
    if any(name in ordered_by for name in change.set_columns) and after.column(VALUE_KIND)[0].as_py() != RowKind.DELETE:
        _check_winners(context, before, after)
    if not context.options.merge_engine.newest_wins:
        _check_effect(context, merge_rows(context.schema, _columns(context, before), RowKind.INSERT, 0), after)


def _columns(context: TableContext, batch: pa.RecordBatch) -> dict[str, pa.Array]:
    return {name: batch.column(name) for name in context.schema.field_names}


def _check_winners(context: TableContext, before: pa.RecordBatch, after: pa.RecordBatch) -> None:
    """Raise `BadInput` if an update lowers the sequence field, so that the older version of the row would win."""
    both = pa.concat_batches([merge_rows(context.schema, _columns(context, before), RowKind.INSERT, 0), after])
    engine = merge_engine(context.schema, context.options)
    kinds = engine.merge(sorted_rows(both, context.schema.trimmed_primary_keys, engine)).column(VALUE_KIND).to_numpy()
    if not (kinds == RowKind.UPDATE_AFTER).all():
        key = _key(context, before, int(np.argmax(kinds != RowKind.UPDATE_AFTER)))
        raise BadInput(
            f"the row with {key} would not change",
            f"readers see the version with the greatest {', '.join(engine.sequence_fields)}, and SET lowers it",
            HINT,
        )


def _key(context: TableContext, batch: pa.RecordBatch, row: int) -> str:
    cells = ((name, batch.column(name)[row]) for name in context.schema.primary_keys)
    return ", ".join(f"{name} = {cell if cell.is_valid else 'NULL'}" for name, cell in cells)


def _check_effect(context: TableContext, before: pa.RecordBatch, after: pa.RecordBatch) -> None:
    """Merge old and new rows; raise `BadInput` for the first key that would not get the requested values."""
    engine = merge_engine(context.schema, context.options)
    merged = engine.merge(sorted_rows(pa.concat_batches([before, after]), context.schema.trimmed_primary_keys, engine))
    deletes = int(after.column(VALUE_KIND)[0].as_py()) == RowKind.DELETE if after.num_rows else False
    if deletes:
        kinds = merged.column(VALUE_KIND).to_numpy()
        wrong = np.flatnonzero(kinds & 1 == 0)
        if len(wrong) or len(kinds) < after.num_rows:
            rules = context.options.merge_engine
            hint = f"set {rules.deleting_options}" if rules.deleting_options and not context.options.ignore_delete else ""
            what = f"merge-engine={rules.name} does not delete rows of this table"
            raise BadInput(what, "the row would remain, but without its values", hint)
        return
    for name in context.schema.field_names:
        merged_values, wanted = merged.column(name), after.column(name)
        if not merged_values.equals(wanted) and (different := _first_difference(merged_values, wanted)) is not None:
            key = ", ".join(f"{k} = {after.column(k)[different]}" for k in context.schema.primary_keys)
            raise BadInput(
                f"column {name} of the row with {key} would not become {_cell(wanted[different])}",
                f"merge-engine={context.options.merge_engine.name} would show {_cell(merged_values[different])}",
                "nothing was committed; write rows that the merge engine turns into the values you want",
                column=name,
                row=key,
            )


def _cell(value: pa.Scalar) -> str:
    return shown(value.as_py()) if value.is_valid else "NULL"


def _first_difference(shown: pa.Array, wanted: pa.Array) -> int | None:
    """The first position at which the columns differ; compared by text, so that NaN equals itself."""
    pairs = enumerate(zip(shown.to_pylist(), wanted.to_pylist(), strict=True))
    return next((row for row, (left, right) in pairs if repr(left) != repr(right)), None)
