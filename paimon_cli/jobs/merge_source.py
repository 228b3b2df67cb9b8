"""The rows of a merge, typed as the columns of the table that have their names: in memory, or in temporary files of the table.

Rows in files do not come to the process that commits. Where the columns of the merge say in which bucket a row is stored, a task
reads only the rows for its own bucket.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from paimon_cli.datatypes.arrow_types import arrow_type, type_from_arrow
from paimon_cli.datatypes.bucket_functions import row_buckets
from paimon_cli.datatypes.data_type import FLOATING_ROOTS, DataField, NestedType, RowType
from paimon_cli.datatypes.type_text import quoted_name
from paimon_cli.errors import BadInput, DamagedFile, NotSupported, UsageError
from paimon_cli.history.live_files import BucketFiles
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.faults import BadCells, WrongType, shown
from paimon_cli.ingest.typed_columns import CastRules, cast_column
from paimon_cli.jobs.key_index import NO_ROW, KeyIndex, RowIndex
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.option_text import did_you_mean
from paimon_cli.pieces import PIECES
from paimon_cli.sql.predicate import Predicate, parse_predicate
from paimon_cli.write.routers import Routed, UnawareRouter

_PRUNED_ROOTS = {"TINYINT", "SMALLINT", "INT", "BIGINT", "DATE", "CHAR", "VARCHAR", "STRING"}


@dataclass(frozen=True)
class KnownValues:
    """The values of a column but null, ascending: all of them, or, if they are too many, the least and the greatest."""

    values: pa.Array
    is_complete: bool

    @staticmethod
    def of(values: pa.Array, is_complete: bool = True) -> KnownValues:
        distinct = values.unique().drop_null().sort()
        if is_complete and len(distinct) <= PIECES.max_bucket_keys:
            return KnownValues(distinct, True)
        return KnownValues(distinct.take(pa.array([0, len(distinct) - 1])), False)

    @staticmethod
    def joined(parts: Sequence[KnownValues]) -> KnownValues:
        return KnownValues.of(pa.concat_arrays([part.values for part in parts]), all(part.is_complete for part in parts))


def known_values(batch: pa.RecordBatch, fields: Sequence[DataField], on: Sequence[str]) -> dict[str, KnownValues]:
    """The values of the columns of a merge by which files of the table can be skipped."""
    roots = {field.name: field.type.root for field in fields}
    return {name: KnownValues.of(batch.column(name)) for name in on if roots[name] in _PRUNED_ROOTS}


class MergeSource(ABC):
    """The rows to merge, numbered from 0. Picklable. `on`: the columns that must be equal."""

    fields: tuple[DataField, ...]
    on: tuple[str, ...]

    @property
    @abstractmethod
    def row_count(self) -> int:
        """The number of all rows."""

    is_indexed = True
    """Whether `index` has all rows, or can have them in this process."""

    @property
    @abstractmethod
    def batch(self) -> pa.RecordBatch:
        """The rows among which a row of the table is looked up."""

    @property
    @abstractmethod
    def known(self) -> Mapping[str, KnownValues]:
        """Values of all rows; see `known_values`."""

    @property
    @abstractmethod
    def portions(self) -> Sequence[range]:
        """The numbers of all rows, in portions that `read` reads."""

    @abstractmethod
    def read(self, portion: range) -> pa.RecordBatch:
        """The rows of a portion."""

    def numbers(self, positions: np.ndarray) -> np.ndarray:
        """The numbers of rows of `batch`."""
        return positions

    def for_bucket(self, bucket: BucketFiles) -> MergeSource:
        """The source with only those rows in `batch` that can meet rows of a bucket."""
        return self

    @cached_property
    def index(self) -> RowIndex:
        return KeyIndex([self.batch.column(name) for name in self.on])

    def column(self, name: str, positions: np.ndarray) -> pa.Array:
        """The values of a column in these rows of `batch`."""
        return self.batch.column(name).take(pa.array(positions))

    @property
    def row_type(self) -> RowType:
        return RowType(self.fields)

    def rows(self, positions: np.ndarray) -> pa.StructArray:
        """The rows of `batch` at these positions, as values of one column; null for `NO_ROW`."""
        return rows_of(self.batch, self.row_type, positions)

    def condition(self, schema: TableSchema, null_is_value: bool = False) -> Predicate:
        """A condition that holds for all rows of the table that meet a row of the source, to skip files.

        `null_is_value`: null meets null, too.
        """
        texts, params = list[str](), dict[str, object]()
        for number, (name, known) in enumerate(self.known.items()):
            if not len(known.values):
                text = "FALSE"
            elif known.is_complete:
                params[f"p{number}"] = known.values
                text = f"{quoted_name(name)} IN :p{number}"
            else:
                params |= {f"low{number}": known.values[0], f"high{number}": known.values[1]}
                text = f"{quoted_name(name)} BETWEEN :low{number} AND :high{number}"
            texts.append(f"({text} OR {quoted_name(name)} IS NULL)" if null_is_value else text)
        return parse_predicate(" AND ".join(texts) or "TRUE", schema, params)


def rows_of(batch: pa.RecordBatch, row_type: RowType, positions: np.ndarray) -> pa.StructArray:
    """Rows of a batch as values of one column; null for `NO_ROW`."""
    chosen = pa.array(np.maximum(positions, 0), mask=positions == NO_ROW)
    columns = [column.take(chosen) for column in batch.columns]
    return pa.StructArray.from_arrays(columns, fields=list(arrow_type(row_type)), mask=pa.array(positions == NO_ROW))


@dataclass(frozen=True)
class MemorySource(MergeSource):
    """Rows in memory."""

    data: pa.RecordBatch
    fields: tuple[DataField, ...]
    on: tuple[str, ...]

    @property
    def batch(self) -> pa.RecordBatch:
        return self.data

    @staticmethod
    def of(data: pa.Table, schema: TableSchema, on: Sequence[str], timezone: str | None) -> MemorySource:
        """Raises `BadInput` for rows that do not fit, `UsageError` for wrong columns in `on`."""
        fields = source_fields(data.schema, schema, on)
        return MemorySource(typed_rows(data, fields, timezone), fields, tuple(on))

    @property
    def row_count(self) -> int:
        return int(self.data.num_rows)

    @property
    def known(self) -> Mapping[str, KnownValues]:
        return known_values(self.data, self.fields, self.on)

    @property
    def portions(self) -> Sequence[range]:
        return [range(self.data.num_rows)]

    def read(self, portion: range) -> pa.RecordBatch:
        return self.data.slice(portion.start, len(portion))


class SourceRows(ABC):
    """The rows that a caller gives to a merge, before they are typed."""

    @property
    @abstractmethod
    def columns(self) -> pa.Schema:
        """Their columns, which are known before the rows."""

    @abstractmethod
    def opened(self, context: TableContext, on: Sequence[str], timezone: str | None) -> AbstractContextManager[MergeSource]:
        """The rows, for the time of a merge. Raises `BadInput` for rows that do not fit, `UsageError` for wrong columns."""


@dataclass(frozen=True)
class RowsInMemory(SourceRows):
    data: pa.Table

    @property
    def columns(self) -> pa.Schema:
        return self.data.schema

    @contextmanager
    def opened(self, context: TableContext, on: Sequence[str], timezone: str | None) -> Iterator[MergeSource]:
        yield MemorySource.of(self.data, context.readable_schema, on, timezone)


def source_fields(columns: pa.Schema, schema: TableSchema, on: Sequence[str]) -> tuple[DataField, ...]:
    """The columns of the source with the types of the table, `schema` as queries see it.

    Raises `BadInput`, or `UsageError` for wrong columns in `on`.
    """
    for name in columns.names:
        if columns.names.count(name) > 1:
            raise BadInput(f"the source has two columns '{name}'", column=name)
    _check_on(on, columns.names, schema)
    fields = []
    for number, column in enumerate(columns):
        known = schema.find(column.name)
        t = (type_from_arrow(column.type) if known is None else known.type).with_nullable(True)
        fields.append(DataField(number, column.name, t))
    return tuple(fields)


def typed_rows(
    data: pa.Table | pa.RecordBatch,
    fields: Sequence[DataField],
    timezone: str | None,
    first_row: int = 0,
    name: str = "the source",
) -> pa.RecordBatch:
    """The rows in these types. Raises `BadInput`, which names the row and `name`."""
    columns = [column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column for column in data.columns]
    typed = [_typed(values, field, timezone, first_row, name) for values, field in zip(columns, fields, strict=True)]
    return pa.RecordBatch.from_arrays(typed, names=[field.name for field in fields])


def _check_on(on: Sequence[str], names: Sequence[str], schema: TableSchema) -> None:
    if not on:
        raise UsageError("no columns to merge on", "they say which rows are the same", "such as on=['id']")
    for name in on:
        known = schema.find(name)
        if known is None or name not in names:
            where, found = ("source", names) if known is not None else ("table", schema.field_names)
            what = f"no column '{name}' in the {where}"
            raise UsageError(
                what, "a merge is on columns that both have", f"{did_you_mean(name, found)}columns: {', '.join(found)}"
            )
        if isinstance(known.type, NestedType) or known.type.root in FLOATING_ROOTS:
            raise NotSupported(
                f"a merge on column '{name}'", "nested values and floating-point numbers have no exact equality here"
            )


def _typed(values: pa.Array, field: DataField, timezone: str | None, first_row: int, name: str) -> pa.Array:
    try:
        return cast_column(values, field.type, CastRules(timezone=timezone))
    except BadCells as problem:
        first = problem.first
        row = first_row + first.row + 1
        what = f"row {row} of {name}, column {field.name}: {shown(first.value)}"
        raise BadInput(what, first.why, column=field.name, row=row) from problem
    except WrongType as problem:
        why = problem.why or f"{values.type} cannot become {field.type.root}"
        raise BadInput(f"column '{field.name}' of the source does not fit", why, column=field.name) from problem


@dataclass(frozen=True)
class StagedPiece:
    """Rows in a temporary file: its record batch `number`. `partition`, `bucket`: where rows that they meet are stored, if the
    columns of the merge say it.
    """

    path: str
    number: int
    rows: int
    partition: bytes | None = None
    bucket: int | None = None


@dataclass(frozen=True)
class Placement:
    """Says where the rows of the table are stored that rows of the source meet. `total_buckets`: None if they say no bucket."""

    router: UnawareRouter | None
    schema: TableSchema
    function: str
    total_buckets: int | None

    @staticmethod
    def of(context: TableContext, on: Sequence[str]) -> Placement:
        schema, options = context.schema, context.options
        router = UnawareRouter(schema) if set(schema.partition_keys) <= set(on) else None
        says_bucket = options.bucket > 0 and set(schema.bucket_key_names) <= set(on)
        return Placement(router, schema, options.bucket_function, options.bucket if says_bucket else None)

    def pieces(self, rows: pa.RecordBatch) -> Iterator[tuple[bytes | None, int | None, pa.RecordBatch]]:
        """The rows that meet rows of each place, with its partition and bucket."""
        buckets = np.zeros(rows.num_rows, np.int32)
        if self.total_buckets is not None:
            names = self.schema.bucket_key_names
            keys = [rows.column(name) for name in names]
            buckets = row_buckets(keys, self.schema.types_of(names), self.total_buckets, self.function)
        if self.router is None:
            routed = Routed(rows, pa.array([b""], pa.binary()), np.zeros(rows.num_rows, np.int32), buckets)
        else:
            routed = replace(self.router.route(rows), buckets=buckets)
        for (partition, bucket), part in routed.pieces():
            yield None if self.router is None else partition, None if self.total_buckets is None else bucket, part


@dataclass(frozen=True)
class StagedSource(MergeSource):
    """Rows in temporary Arrow files of the table, which all tasks can read. `chosen`: the pieces in `batch`; None for all."""

    context: TableContext
    pieces: tuple[StagedPiece, ...]
    fields: tuple[DataField, ...]
    on: tuple[str, ...]
    values: Mapping[str, KnownValues]
    total_buckets: int | None = None
    chosen: tuple[int, ...] | None = None
    is_indexed = False

    @property
    def known(self) -> Mapping[str, KnownValues]:
        return self.values

    @property
    def row_count(self) -> int:
        return sum(piece.rows for piece in self.pieces)

    @property
    def portions(self) -> Sequence[range]:
        ends = np.cumsum([piece.rows for piece in self.pieces], dtype=np.int64).tolist()
        return [range(end - piece.rows, end) for piece, end in zip(self.pieces, ends, strict=True)]

    def read(self, portion: range) -> pa.RecordBatch:
        return self._read([self.portions.index(portion)])

    @cached_property
    def batch(self) -> pa.RecordBatch:
        return self._read(self._chosen)

    @property
    def _chosen(self) -> Sequence[int]:
        return range(len(self.pieces)) if self.chosen is None else self.chosen

    def numbers(self, positions: np.ndarray) -> np.ndarray:
        portions = self.portions
        chosen = [np.arange(portions[number].start, portions[number].stop) for number in self._chosen]
        return np.concatenate([np.empty(0, np.int64), *chosen])[positions]

    def for_bucket(self, bucket: BucketFiles) -> MergeSource:
        partition, number = bucket.bucket_id
        says_bucket = bucket.total_buckets == self.total_buckets

        def may_meet(piece: StagedPiece) -> bool:
            is_there = piece.partition is None or piece.partition == partition
            return is_there and (not says_bucket or piece.bucket is None or piece.bucket == number)

        return replace(self, chosen=tuple(n for n, piece in enumerate(self.pieces) if may_meet(piece)))

    def _read(self, numbers: Sequence[int]) -> pa.RecordBatch:
        columns = pa.schema([pa.field(field.name, arrow_type(field.type)) for field in self.fields])
        by_path: dict[str, list[StagedPiece]] = {}
        for number in numbers:
            by_path.setdefault(self.pieces[number].path, []).append(self.pieces[number])
        parts = [part for path, pieces in by_path.items() for part in self._read_file(path, pieces, columns)]
        return pa.concat_batches(parts) if parts else pa.RecordBatch.from_pylist([], schema=columns)

    def _read_file(self, path: str, pieces: Sequence[StagedPiece], columns: pa.Schema) -> Iterator[pa.RecordBatch]:
        try:
            with self.context.storage.open_input(path) as stream, pa.ipc.open_file(stream) as file:
                for piece in pieces:
                    rows = file.get_batch(piece.number)
                    rows.validate(full=True)  # others may write to the table's directory
                    if rows.num_rows != piece.rows or rows.schema.types != columns.types:
                        raise DamagedFile(f"{path} has changed", "it holds rows of this merge", "merge them again")
                    yield pa.RecordBatch.from_arrays(rows.columns, schema=columns)
        except pa.ArrowInvalid as problem:
            raise DamagedFile(f"{path} cannot be read", str(problem), "merge the rows again") from problem
