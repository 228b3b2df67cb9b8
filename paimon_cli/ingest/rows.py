"""Input files -> validated batches in the table's own columns, each row with its kind and its place in the order of arrival."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from difflib import get_close_matches
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.casts.default_value import with_default
from paimon_cli.datatypes.arrow_types import arrow_type
from paimon_cli.datatypes.data_type import BINARY_ROOTS, FLOATING_ROOTS, NESTED_ROOTS, NEWER_ROOTS, STRING_ROOTS, TIMESTAMP_ROOTS
from paimon_cli.datatypes.field_types import DataField, DataType, type_to_sql
from paimon_cli.datatypes.row_kind import DELETE, INSERT, SHORT, UPDATE_BEFORE
from paimon_cli.datatypes.values import Timestamp, values_to_arrow
from paimon_cli.errors import BadInput, NotSupported, UsageError
from paimon_cli.ingest.bad_cells import BadCell, WrongType, attempt, bad_cell
from paimon_cli.ingest.columnar import columnar_batches
from paimon_cli.ingest.csv_rows import csv_batches
from paimon_cli.ingest.json_rows import json_batches, nested_from_text
from paimon_cli.ingest.sources import TEXT_FORMATS
from paimon_cli.ingest.splits import SourceSplit, plan_sources
from paimon_cli.ingest.text_values import parse_text
from paimon_cli.ingest.typed_columns import cast_column
from paimon_cli.lsm.merge_engine import merge_engine
from paimon_cli.metadata.data_file_schema import VALUE_KIND, merge_schema
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.table_options import TableOptions
from paimon_cli.storage.storage_for_url import storage_for_url

__all__ = ["IncomingRows", "SourceSplit", "plan_sources"]

KIND_TYPE = DataType("VARCHAR", nullable=False, length=2147483647)


@dataclass(frozen=True)
class RowKindFilter:
    """`dropped`: kinds that the table ignores; `refused`: why it takes none of a kind that it does not ignore."""

    dropped: frozenset[int] = frozenset()
    refused: tuple[tuple[int, BadInput], ...] = ()

    @staticmethod
    def of(schema: TableSchema, options: TableOptions) -> RowKindFilter:
        """`ignore-delete` drops both kinds, `ignore-update-before` drops -U; the rest is for the merge engine to say."""
        dropped = {UPDATE_BEFORE, DELETE} if options.ignore_delete else {UPDATE_BEFORE} if options.ignore_update_before else set()
        engine = merge_engine(schema, options)
        asked = [(kind, engine.refusal(kind)) for kind in (UPDATE_BEFORE, DELETE) if kind not in dropped]
        return RowKindFilter(frozenset(dropped), tuple((kind, refusal) for kind, refusal in asked if refusal is not None))

    def kept(self, rows: pa.RecordBatch, source: str) -> pa.RecordBatch:
        """The rows to write. BadInput that names `source` for a kind that the table does not take."""
        kinds = rows.column(VALUE_KIND).to_numpy()
        if not (kinds & 1).any():
            return rows
        for kind, refusal in self.refused:
            if (kinds == kind).any():
                raise BadInput(f"{source}: {refusal.what}", refusal.why, refusal.hint, source=source)
        unwanted = np.isin(kinds, list(self.dropped))
        return rows.filter(pa.array(~unwanted)) if unwanted.any() else rows


@dataclass(frozen=True)
class IncomingRows:
    """How input becomes rows of `schema`; picklable, so that Spark tasks can read their splits.

    `kind`: what every row is (0 upsert, 3 delete). `kind_column`: an input column, not one of the table, whose cells say
    +I, +U, -U or -D instead. A table with option `rowkind.field` takes the kind from that column of its own.
    """

    schema: TableSchema
    kind: int = INSERT
    kind_column: str | None = None
    csv_delimiter: str = ","
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    kind_filter: RowKindFilter = field(default_factory=RowKindFilter)

    def __post_init__(self) -> None:
        for column in self.schema.fields:
            check_writable(column.name, column.type)
        if self.kind_column is not None and self.kind_column in self.schema.field_names:
            raise UsageError(f"'{self.kind_column}' is a column of the table", "row kinds come from an input column beside them")
        own = self.schema.options.get("rowkind.field")
        if own is not None and self.kind_column is not None:
            raise UsageError(
                f"row kinds come from the table's column '{own}' and from '{self.kind_column}'",
                "the table has rowkind.field, which says what each of its rows does",
                f"put +I, +U, -U or -D into '{own}' and leave --op-column out",
            )
        if not self.schema.primary_keys and (self.kind != INSERT or self.kind_column is not None):
            raise UsageError("this table takes no deletes", "it has no primary key that could name the rows")

    def read(self, split: SourceSplit) -> Iterator[pa.RecordBatch]:
        """The split's rows in `merge_schema(schema)`, at most ~64K a batch; `_SEQUENCE_NUMBER` is the order of arrival.

        Raises BadInput that names source, row (from 1) and column of the first bad row.
        """
        row = 0
        for batch in self._raw_batches(split):
            rows = self.kind_filter.kept(self.conform(batch, split, row), split.name)
            row += batch.num_rows
            if rows.num_rows:
                yield rows

    def _raw_batches(self, split: SourceSplit) -> Iterator[pa.RecordBatch]:
        storage, path = storage_for_url(split.path, self.storage_options)

        def open_source() -> BinaryIO:
            return storage.open_input(path)

        if split.format == "csv":
            yield from csv_batches(open_source, split, self.csv_delimiter)
            return
        with open_source() as stream:
            if split.format == "json":
                kinds = [] if self.kind_column is None else [DataField(-1, self.kind_column, KIND_TYPE)]
                yield from json_batches(stream, split, [*self.schema.fields, *kinds])
            else:
                yield from columnar_batches(stream, split)

    def conform(self, batch: pa.RecordBatch, split: SourceSplit, row_offset: int) -> pa.RecordBatch:
        """The batch (rows `row_offset`.. of the split) with exact types, validated, as `read` gives it."""
        self._check_columns(batch.schema.names, split)
        faults: list[tuple[BadCell, str]] = []
        columns: list[pa.Array] = []
        for column in self.schema.fields:
            given = column.name in batch.schema.names
            raw = batch.column(column.name) if given else pa.nulls(batch.num_rows)
            if given or column.default_value is None:
                columns.append(with_default(self._column(raw, column, split, faults), column))
            else:
                columns.append(with_default(pa.nulls(batch.num_rows, arrow_type(column.type)), column))
        kinds = self._kinds(batch, columns, faults)
        if faults:
            cell, name = min(faults, key=lambda fault: fault[0].row)
            raise split.bad_row(row_offset + cell.row, cell.why, column=name, value=str(cell.value))
        first = split.order_base + row_offset
        order = pa.array(np.arange(first, first + batch.num_rows, dtype=np.int64))
        return pa.RecordBatch.from_arrays([order, kinds, *columns], schema=merge_schema(self.schema))

    def _check_columns(self, names: list[str], split: SourceSplit) -> None:
        expected = [*self.schema.field_names, *([self.kind_column] if self.kind_column is not None else [])]
        repeated = [name for name in names if names.count(name) > 1]
        if repeated:
            raise BadInput(f"{split.name}: column '{repeated[0]}' appears twice", source=split.name, column=repeated[0])
        unknown = [name for name in names if name not in expected]
        missing = [name for name in expected if name not in names and self._is_needed(name)]
        if unknown or missing:
            name = missing[0] if missing else unknown[0]
            near = _nearest(name, unknown if missing else expected)
            what = f"{split.name}: column '{name}' is missing" if missing else f"{split.name}: the table has no column '{name}'"
            why = (
                "every column of the table without a default must be in the input"
                if missing
                else f"its columns are {', '.join(expected)}"
            )
            raise BadInput(what, why, f"did you mean '{near}'?" if near else "", source=split.name, column=name)

    def _is_needed(self, name: str) -> bool:
        if name in self.schema.field_names and self.schema.field(name).default_value is not None:
            return False
        return self.kind != DELETE or name == self.kind_column or self._is_key(name) or self.kind_column is not None

    def _is_key(self, name: str) -> bool:
        return name in self.schema.primary_keys or name in self.schema.partition_keys

    def _column(self, raw: pa.Array, column: DataField, split: SourceSplit, faults: list[tuple[BadCell, str]]) -> pa.Array:
        """The column in its exact type; what is wrong with it goes to `faults`."""
        try:
            converted = _converted(raw, column.type, split.format in TEXT_FORMATS)
        except BadCell as problem:
            faults.append((problem, column.name))
            converted = pa.nulls(len(raw), arrow_type(column.type))
        except WrongType as problem:
            why = problem.why or "only casts that lose nothing are done"
            what = f"{split.name}: column '{column.name}' has type {problem.found}, the table's is {type_to_sql(column.type)}"
            raise BadInput(what, why, source=split.name, column=column.name) from problem
        if column.type.nullable and column.name not in self.schema.primary_keys:
            return converted
        if self.kind == DELETE and self.kind_column is None and not self._is_key(column.name):
            # A row that only deletes its key is never shown, but the file's NOT NULL column has to hold something.
            return _filled(converted, column.type)
        missing = raw.is_null().to_numpy(zero_copy_only=False)
        if missing.any():
            row = int(np.argmax(missing))
            faults.append((bad_cell(raw, row, "the column is NOT NULL"), column.name))
        return converted

    def _kinds(self, batch: pa.RecordBatch, columns: list[pa.Array], faults: list[tuple[BadCell, str]]) -> pa.Array:
        """`_VALUE_KIND` of each row."""
        own = self.schema.options.get("rowkind.field") if self.kind != DELETE else None
        source = self.kind_column or own
        if source is None:
            return pa.array(np.full(batch.num_rows, self.kind, np.int8))
        texts = _text(batch.column(source)) if source == self.kind_column else columns[self.schema.field_names.index(source)]
        codes = pc.index_in(texts, pa.array(SHORT)) if pa.types.is_string(texts.type) else pa.nulls(len(texts), pa.int32())
        unknown = codes.is_null().to_numpy(zero_copy_only=False)
        if unknown.any():
            row = int(np.argmax(unknown))
            faults.append((bad_cell(texts, row, f"a row kind is one of {', '.join(SHORT)}"), source))
        return codes.fill_null(0).cast(pa.int8())


def _converted(raw: pa.Array, t: DataType, from_text: bool) -> pa.Array:
    column = _text(raw) if from_text else raw
    if from_text and pa.types.is_string(column.type):
        return nested_from_text(column, t) if t.root in NESTED_ROOTS else parse_text(column, t)
    return cast_column(column, t, may_round=from_text)


def _text(raw: pa.Array) -> pa.Array:
    """CSV cells come as bytes: checked only here, so that a bad one is told with its row."""
    if pa.types.is_binary(raw.type):
        return attempt(raw, lambda part: part.cast(pa.string()), "it is not valid UTF-8")
    if pa.types.is_dictionary(raw.type):
        return raw.dictionary_decode()
    return raw.cast(pa.string()) if pa.types.is_large_string(raw.type) or pa.types.is_string_view(raw.type) else raw


def _filled(column: pa.Array, t: DataType) -> pa.Array:
    if not column.null_count:
        return column
    zeros = values_to_arrow([zero_value(t)], t).take(pa.array(np.zeros(len(column), np.int64)))
    return zeros if column.null_count == len(column) else pc.if_else(column.is_valid(), column, zeros)


def _nearest(name: str, candidates: list[str]) -> str | None:
    same = [candidate for candidate in candidates if candidate.lower() == name.lower()]
    return next(iter(same or get_close_matches(name, candidates, 1)), None)


def check_writable(column: str, t: DataType) -> None:
    """Raise NotSupported when the column's type, or a type inside it, cannot be written so that every reader reads it."""
    if t.root in NEWER_ROOTS:
        raise NotSupported(f"cannot write column '{column}'", f"{t.root} is only read by the newest versions of Paimon")
    inner = [t.element, t.key, t.value, *(field.type for field in t.fields or ())]
    for part in inner:
        if part is not None:
            check_writable(column, part)


def zero_value(t: DataType) -> Any:
    """Some value of the type, as an internal value."""
    if t.root == "BOOLEAN":
        return False
    if t.root == "DECIMAL":
        return Decimal(0)
    if t.root in STRING_ROOTS:
        return ""
    if t.root in BINARY_ROOTS:
        return b""
    if t.root in TIMESTAMP_ROOTS:
        return Timestamp(0, 0)
    if t.root in ("ARRAY", "MAP", "MULTISET"):
        return []
    if t.root == "ROW":
        return tuple(None if f.type.nullable else zero_value(f.type) for f in t.fields or ())
    return 0.0 if t.root in FLOATING_ROOTS else 0
