"""Turns the rows of a source into validated batches in the table's own columns, with row kinds and the order of arrival."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.datatypes.arrow_types import arrow_type, values_to_arrow
from paimon_cli.datatypes.column_cast import with_default
from paimon_cli.datatypes.data_type import (
    FLOATING_ROOTS,
    STRING,
    ArrayType,
    BinaryType,
    DataField,
    DataType,
    DecimalType,
    MapType,
    MultisetType,
    NestedType,
    RowType,
    StringType,
    TimestampType,
)
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.datatypes.internal_values import Timestamp
from paimon_cli.datatypes.type_text import quoted_name
from paimon_cli.errors import BadInput, UsageError
from paimon_cli.ingest.faults import BadCell, Fault, Tally, WrongType, bad_cells, converted
from paimon_cli.ingest.json_rows import Needed, nested_from_text
from paimon_cli.ingest.own_buckets import OwnBuckets
from paimon_cli.ingest.row_sources import FileRows, RowSource
from paimon_cli.ingest.source_files import RawRows, SourceSplit
from paimon_cli.ingest.text_form import TEXT_FORMATS
from paimon_cli.ingest.text_values import parse_text, text_of_cells, with_nulls
from paimon_cli.ingest.typed_columns import CastRules, cast_column
from paimon_cli.lsm.merge_engine import merge_engine
from paimon_cli.lsm.sorted_rows import MergeEngine
from paimon_cli.metadata.data_file_schema import KIND_TEXTS, VALUE_KIND, RowKind, merge_schema
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.option_text import nearest
from paimon_cli.options.table_options import TableOptions

KIND_TYPE = STRING.with_nullable(False)
INSERTS_ONLY = "write rows of kind +I only; `paimon-cli delete` removes rows by a condition"
HOLDS_KINDS, NULLABLE = "the column that holds the row kinds", "nullable, but --missing-columns error requires all columns"


@dataclass(frozen=True)
class RowKindFilter:
    """Row kinds that a write does not take. `dropped`: kinds that the table ignores; `refused`: (kind, error) for the others."""

    dropped: frozenset[int] = frozenset()
    refused: tuple[tuple[int, BadInput], ...] = ()

    @staticmethod
    def of(schema: TableSchema, options: TableOptions) -> RowKindFilter:
        """The filter of a table: `ignore-delete` drops -U and -D, `ignore-update-before` drops -U; its merge engine refuses
        kinds that it cannot merge.
        """
        dropped = (
            {RowKind.UPDATE_BEFORE, RowKind.DELETE}
            if options.ignore_delete
            else {RowKind.UPDATE_BEFORE}
            if options.ignore_update_before
            else set()
        )
        if not schema.primary_keys:
            kinds = {RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER, RowKind.DELETE} - dropped
            return RowKindFilter(frozenset(dropped), tuple((kind, _append_refusal(kind)) for kind in sorted(kinds)))
        engine = merge_engine(schema, options)
        refusals = [(kind, engine.refusal(kind)) for kind in (RowKind.UPDATE_BEFORE, RowKind.DELETE) if kind not in dropped]
        return RowKindFilter(frozenset(dropped), tuple((kind, refusal) for kind, refusal in refusals if refusal is not None))

    def accepted(self, rows: pa.RecordBatch, source: str, engine: MergeEngine | None) -> pa.RecordBatch:
        """The rows to write. Raises `BadInput`, which names `source`, for a kind that the table refuses, and for a retraction
        that the merge `engine` cannot merge (None: the table does not merge).
        """
        kinds = rows.column(VALUE_KIND).to_numpy()
        if not kinds.any():
            return rows
        for kind, refusal in self.refused:
            if (kinds == kind).any():
                raise BadInput(f"{source}: {refusal.what}", refusal.why, refusal.hint, source=source)
        is_dropped = np.isin(kinds, list(self.dropped))
        rows = rows.filter(pa.array(~is_dropped)) if is_dropped.any() else rows
        if engine is not None and (impossible := engine.refusal_of_values(rows)) is not None:
            raise BadInput(f"{source}: {impossible.what}", impossible.why, impossible.hint, source=source)
        return rows


def _append_refusal(kind: int) -> BadInput:
    why = "rows of a table without a primary key are inserted and never replaced"
    return BadInput(f"an append table takes no {KIND_TEXTS[kind]} rows", why, INSERTS_ONLY)


@dataclass(frozen=True)
class IncomingRows:
    """Reads rows of a source as rows of `schema`. Picklable, so that Spark tasks can read their splits.

    `kind`: the kind of every row (`RowKind.INSERT` or `RowKind.DELETE`). `kind_column`: an additional input column that holds +I,
    +U, -U or -D for each row instead. A table with option `rowkind.field` takes the kind from that column. `skips_bad_rows`:
    invalid rows are counted and left out; else the first one is an error. `missing_are_null`: a nullable column that the input
    lacks is null; else it is an error. `table`: the table as an argument of commands in hints; empty if columns cannot be added.
    `own_buckets`: the buckets that this writer owns; None if it writes all.
    """

    schema: TableSchema
    kind: int = RowKind.INSERT
    kind_column: str | None = None
    source: RowSource = field(default_factory=FileRows)
    kind_filter: RowKindFilter = field(default_factory=RowKindFilter)
    skips_bad_rows: bool = False
    missing_are_null: bool = True
    table: str = ""
    own_buckets: OwnBuckets | None = None

    def __post_init__(self) -> None:
        if self.kind_column is not None and self.kind_column in self.schema.field_names:
            raise UsageError(f"'{self.kind_column}' is a column of the table", "row kinds come from an additional input column")
        rowkind_field = self.schema.options.get("rowkind.field")
        if rowkind_field is not None and self.kind_column is not None:
            raise UsageError(
                f"row kinds come from the table's column '{rowkind_field}' and from '{self.kind_column}'",
                "the table's rowkind.field column already holds the row kinds",
                f"put +I, +U, -U or -D into '{rowkind_field}' and leave --op-column out",
            )
        if not self.schema.primary_keys and self.kind != RowKind.INSERT:
            raise UsageError("an append table takes no deletes", "without a primary key no row can be identified", INSERTS_ONLY)

    def read(self, split: SourceSplit, tally: Tally) -> Iterator[pa.RecordBatch]:
        """The split's rows in `merge_schema(schema)`, about 64K per batch; `_SEQUENCE_NUMBER` is the order of arrival.

        Counts them in `tally`. Raises `BadInput`, which names source, row (from 1) and column, for the first bad row, unless bad
        rows are skipped.
        """
        optional = self._optional
        if self.missing_are_null:
            keys = Needed(optional=optional, missing=tally.missing_columns)
        else:
            keys = Needed(required=optional, missing=tally.missing_columns)
        kind_fields = [] if self.kind_column is None else [DataField(-1, self.kind_column, KIND_TYPE)]
        engine = merge_engine(self.schema, self.schema.typed_options) if self.schema.primary_keys else None
        for raw in self.source.raw_rows(split, [*self.schema.fields, *kind_fields], keys):
            rows = self.kind_filter.accepted(self.conform(raw, split, tally), split.name, engine)
            if rows.num_rows and self.own_buckets is not None:
                rows = self.own_buckets.accepted(rows, split, tally)
            if rows.num_rows:
                yield rows

    def find_faults(self, split: SourceSplit, tally: Tally | None = None) -> Tally:
        """Read the whole split and return the tally with all its faults."""
        tally = Tally() if tally is None else tally
        for _ in replace(self, skips_bad_rows=True).read(split, tally):
            pass
        return tally

    def conform(self, raw: RawRows, split: SourceSplit, tally: Tally) -> pa.RecordBatch:
        """The rows with exact types, validated, in the columns that `read` returns. Faulty rows are left out, or an error."""
        batch, rows = raw.batch, raw.rows
        names = set(batch.schema.names)
        self._check_columns(batch.schema.names, split)
        if batch.num_rows:
            split.check_room(int(rows[-1]) + 1)
            tally.missing_columns |= self._optional - names
        bad: list[tuple[BadCell, str]] = []
        columns: list[pa.Array] = []
        without_sequence = np.zeros(batch.num_rows, bool)
        for column in self.schema.fields:
            if column.name in names or column.default_value is None:
                cells = batch.column(column.name) if column.name in names else pa.nulls(batch.num_rows)
                cells = self._column(cells, column, split, bad)
            else:
                cells = pa.nulls(batch.num_rows, arrow_type(column.type))
            cells = cells if column.default_value is None else with_default(cells, column)
            if column.name == self._ordered_by and cells.null_count:
                without_sequence = cells.is_null().to_numpy(zero_copy_only=False)
            columns.append(self._filled(cells, column))
        kinds = self._kinds(batch, columns, bad)
        arrival = pa.array(rows + split.order_base)
        result = pa.RecordBatch.from_arrays([arrival, kinds, *columns], schema=self._merge_schema)
        parsed = self._parsed_columns if split.format in TEXT_FORMATS else frozenset()
        cells = ((int(rows[cell.row]), cell.why, name, cell.value, name in parsed) for cell, name in bad)
        faults = [*raw.faults, *(split.fault(*cell) for cell in cells)]
        if faults:
            result = self._without_faulty(result, rows + split.first_row + 1, faults, tally)
        tally.rows += result.num_rows
        if without_sequence.any():
            deleted = result.filter(pa.array(result.column(VALUE_KIND).to_numpy() == RowKind.DELETE))
            tally.unordered_deletes += int(np.isin(arrival.filter(pa.array(without_sequence)), deleted.column(0)).sum())
        return result

    @cached_property
    def _ordered_by(self) -> str | None:
        """The first sequence field, if it decides whether a deletion removes the row of its key: a null is older than any value.

        Of two rows that have the same value there, further fields decide: a null in these does not say what a deletion removes.
        """
        options = self.schema.typed_options
        removes = options.partial_update_remove_record_on_delete or options.aggregation_remove_record_on_delete
        if not self.schema.primary_keys or RowKind.DELETE in self.kind_filter.dropped:
            return None
        return next(iter(options.sequence_fields), None) if options.merge_engine.newest_wins or removes else None

    def _filled(self, cells: pa.Array, column: DataField) -> pa.Array:
        """The cells of a deletion with the key alone: a NOT NULL column of the file must hold some value."""
        of_key = self.kind == RowKind.DELETE and self.kind_column is None and not self._is_key(column.name)
        return _nulls_as_zeros(cells, column.type) if of_key and not column.type.nullable else cells

    def _without_faulty(self, batch: pa.RecordBatch, numbers: np.ndarray, faults: list[Fault], tally: Tally) -> pa.RecordBatch:
        """The batch without the rows that have faults. `numbers`: the row numbers of the batch, as faults count them."""
        faults.sort(key=lambda fault: fault.row)
        if not self.skips_bad_rows:
            raise Tally(bad_rows=1, bad_cells=1, first=faults[:1]).error()
        tally.note(faults)
        return batch.filter(pa.array(~np.isin(numbers, [fault.row for fault in faults])))

    def _check_columns(self, names: list[str], split: SourceSplit) -> None:
        """Raise `BadInput` for columns of the input that are unknown, missing or repeated."""
        known = list(self._requirements)
        repeated = [name for name in names if names.count(name) > 1]
        if repeated:
            raise BadInput(f"{split.name}: column '{repeated[0]}' appears twice", source=split.name, column=repeated[0])
        unknown = [name for name in names if name not in known]
        may_be_missing = self._optional if self.missing_are_null else frozenset()
        missing = [name for name, why in self._requirements.items() if why and name not in names and name not in may_be_missing]
        if not unknown and not missing:
            return
        name = missing[0] if missing else unknown[0]
        similar = nearest(name, unknown if missing else [column for column in known if column not in names])
        if missing:
            why = f"it is {self._requirements[name]}; the input has {', '.join(names) or 'no columns'}; names are case-sensitive"
            null = "--missing-columns null makes it null" if name in self._optional else ""
            hint = f"rename column '{similar}' of the input to '{name}'" if similar else null
            raise BadInput(f"{split.name}: column '{name}' is missing", why, hint, source=split.name, column=name)
        others = f" (nor {', '.join(unknown[1:])})" if unknown[1:] else ""
        hint = "leave it out of the input"
        if self.table:
            added = shlex.quote(f"{quoted_name(name)} STRING")
            hint += f", or add it with its type, such as: paimon-cli alter {self.table} add-column {added}"
        raise BadInput(
            f"{split.name}: the table has no column '{name}'{others}",
            f"its columns are {', '.join(known)}; names are case-sensitive",
            f"rename it to '{similar}' in the input" if similar else hint,
            source=split.name,
            column=name,
        )

    @cached_property
    def _merge_schema(self) -> pa.Schema:
        return merge_schema(self.schema)

    @cached_property
    def _requirements(self) -> dict[str, str]:
        """For each column that an input may have: why it must have it, or ''."""
        requirements = {column.name: self._requirement(column) for column in self.schema.fields}
        return requirements if self.kind_column is None else {**requirements, self.kind_column: HOLDS_KINDS}

    @cached_property
    def _parsed_columns(self) -> frozenset[str]:
        """The columns of text formats whose cells are parsed; those of text are taken as they are."""
        return frozenset(column.name for column in self.schema.fields if not isinstance(column.type, StringType))

    @cached_property
    def _optional(self) -> frozenset[str]:
        """The columns that become null if the input lacks them."""
        return frozenset(name for name, why in self._requirements.items() if why == NULLABLE)

    def _requirement(self, column: DataField) -> str:
        if column.name == self.schema.options.get("rowkind.field") and self.kind != RowKind.DELETE:
            return HOLDS_KINDS
        if self._is_key(column.name):
            return "part of the key"
        if column.default_value is not None or (self.kind == RowKind.DELETE and self.kind_column is None):
            return ""
        return NULLABLE if column.type.nullable else "NOT NULL"

    @cached_property
    def _keys_may_be_null(self) -> bool:
        return self.schema.typed_options.primary_key_nullable

    def _is_key(self, name: str) -> bool:
        """Whether the column identifies the row. A delete in a table whose rows may move needs no partition: it looks keys up."""
        looks_up = self.kind == RowKind.DELETE and self.kind_column is None and self.schema.has_movable_rows
        return name in self.schema.primary_keys or (name in self.schema.partition_keys and not looks_up)

    def _column(self, raw: pa.Array, column: DataField, split: SourceSplit, bad: list[tuple[BadCell, str]]) -> pa.Array:
        """The column in its exact type. Cells that it cannot hold become null and are added to `bad` with the column's name."""
        try:
            result, cells = converted(raw, lambda part: self._converted(part, column.type, split.format))
        except WrongType as problem:
            why = problem.why or "a write casts only without loss"
            what = f"{split.name}: column '{column.name}' has type {problem.found}, the table's is {type_to_sql(column.type)}"
            hint = "" if problem.why else "cast the column in the source"
            raise BadInput(what, why, hint, source=split.name, column=column.name) from problem
        bad += ((cell, column.name) for cell in cells)
        if column.type.nullable and (column.name not in self.schema.primary_keys or self._keys_may_be_null):
            return result
        if self.kind == RowKind.DELETE and self.kind_column is None and not self._is_key(column.name):
            return result  # see `_filled`
        if result.null_count:
            nulls = np.setdiff1d(np.flatnonzero(result.is_null().to_numpy(zero_copy_only=False)), [cell.row for cell in cells])
            bad += ((BadCell(int(row), None, "the column is NOT NULL"), column.name) for row in nulls)
        return result

    def _converted(self, raw: pa.Array, t: DataType, format: str) -> pa.Array:
        from_text = format in TEXT_FORMATS
        column = text_of_cells(raw) if from_text else raw
        if from_text and pa.types.is_string(column.type):
            if isinstance(t, NestedType):
                return nested_from_text(column, t, self.source.form, missing_are_null=self.missing_are_null)
            # The CSV reader has already replaced null texts, unless they were quoted.
            form = self.source.form
            if format == "json":
                column = with_nulls(column, form.null_values) if form.null_values else column
                form = form.with_plain_numbers()
            return parse_text(column, t, form)
        rules = CastRules(may_round=from_text, timezone=self.source.form.timezone, missing_are_null=self.missing_are_null)
        return cast_column(column, t, rules)

    def _kinds(self, batch: pa.RecordBatch, columns: list[pa.Array], bad: list[tuple[BadCell, str]]) -> pa.Array:
        """The `_VALUE_KIND` of each row. Cells that hold no row kind are added to `bad`."""
        rowkind_field = self.schema.options.get("rowkind.field") if self.kind != RowKind.DELETE else None
        name = self.kind_column or rowkind_field
        if name is None:
            return pa.array(np.full(batch.num_rows, self.kind, np.int8))
        texts = batch.column(name) if name == self.kind_column else columns[self.schema.field_names.index(name)]
        texts, cells = converted(texts, text_of_cells)
        codes = pc.index_in(texts, pa.array(KIND_TEXTS)) if pa.types.is_string(texts.type) else pa.nulls(len(texts), pa.int32())
        unknown = np.flatnonzero(codes.is_null().to_numpy(zero_copy_only=False))
        if len(unknown):
            decoded = np.setdiff1d(unknown, [cell.row for cell in cells])
            wrong = bad_cells(texts, decoded, f"a row kind is one of {', '.join(KIND_TEXTS)}")
            bad += ((cell, name) for cell in [*cells, *wrong.cells])
        return codes.fill_null(0).cast(pa.int8())


def _nulls_as_zeros(column: pa.Array, t: DataType) -> pa.Array:
    if not column.null_count:
        return column
    zeros = values_to_arrow([zero_value(t)], t).take(pa.array(np.zeros(len(column), np.int64)))
    return zeros if column.null_count == len(column) else pc.if_else(column.is_valid(), column, zeros)


def zero_value(t: DataType) -> Any:
    """Zero, false or an empty value of the type, as an internal value."""
    if t.root == "BOOLEAN":
        return False
    if isinstance(t, DecimalType):
        return Decimal(0)
    if isinstance(t, StringType):
        return ""
    if isinstance(t, BinaryType):
        return b""
    if isinstance(t, TimestampType):
        return Timestamp(0, 0)
    if isinstance(t, (ArrayType, MapType, MultisetType)):
        return []
    if isinstance(t, RowType):
        return tuple(None if f.type.nullable else zero_value(f.type) for f in t.fields or ())
    return 0.0 if t.root in FLOATING_ROOTS else 0
