"""The columns of data files, and of the rows that a merge reads (FORMAT.md, section 7.1).

A merge reads `_SEQUENCE_NUMBER`, `_VALUE_KIND` and the table's columns; a data file also stores the trimmed primary key,
in front as `_KEY_*`, which old readers need.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.datatypes.arrow_types import arrow_field, identified_schema, values_from_arrow, without_hidden_nulls
from paimon_cli.datatypes.binary_row import serialize_row
from paimon_cli.datatypes.data_type import DataField, PlainType
from paimon_cli.metadata.data_file import AFTER_ALL_NUMBERS, ROW_ID
from paimon_cli.metadata.table_schema import TableSchema

KEY_PREFIX = "_KEY_"
SEQUENCE_NUMBER = "_SEQUENCE_NUMBER"
VALUE_KIND = "_VALUE_KIND"


class RowKind:
    """The kind of a row, as stored in `_VALUE_KIND` and in byte 0 of a BinaryRow; plain numbers, for arrays."""

    INSERT = 0
    UPDATE_BEFORE = 1
    UPDATE_AFTER = 2
    DELETE = 3


KIND_TEXTS = ("+I", "-U", "+U", "-D")
"""The text of each row kind; its index is the kind's number."""

KEY_ID_OFFSET = 1073741823
SEQUENCE_NUMBER_ID = 2147483646
VALUE_KIND_ID = 2147483645
ROW_ID_ID = 2147483642

SYSTEM_FIELDS = {
    SEQUENCE_NUMBER: pa.field(SEQUENCE_NUMBER, pa.int64(), nullable=False),
    VALUE_KIND: pa.field(VALUE_KIND, pa.int8(), nullable=False),
    ROW_ID: pa.field(ROW_ID, pa.int64(), nullable=False),
}
TRACKING_FIELDS = (
    DataField(ROW_ID_ID, ROW_ID, PlainType("BIGINT", nullable=False)),
    DataField(SEQUENCE_NUMBER_ID, SEQUENCE_NUMBER, PlainType("BIGINT")),
)
"""What tables with row tracking know of each row: its id, and the snapshot that wrote or last changed it."""
TRACKING_COLUMNS = tuple(field.name for field in TRACKING_FIELDS)
UNNUMBERED = 0
"""In memory, the sequence number of a new or changed row, which the commit numbers; in files it is null."""


def merge_schema(schema: TableSchema) -> pa.Schema:
    """The schema of a primary-key table's rows in memory: sequence number, row kind, then every table column."""
    system = SYSTEM_FIELDS[SEQUENCE_NUMBER], SYSTEM_FIELDS[VALUE_KIND]
    return pa.schema([*system, *(arrow_field(field) for field in schema.fields)])


def with_tracking_columns(schema: TableSchema) -> TableSchema:
    """The schema as queries of a table with row tracking see it."""
    return replace(schema, fields=(*schema.fields, *TRACKING_FIELDS))


def fields_of_star(schema: TableSchema) -> tuple[DataField, ...]:
    """The columns that `*` stands for: all but those of row tracking."""
    return tuple(field for field in schema.fields if field.name not in TRACKING_COLUMNS)


def tracked_rows(schema: TableSchema, columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """A batch of rows with their ids and sequence numbers (`UNNUMBERED` if changed), for files that store them."""
    system = pa.schema([SYSTEM_FIELDS[name] for name in TRACKING_COLUMNS])
    fields = pa.schema([*system, *(arrow_field(field) for field in schema.fields)])
    return pa.RecordBatch.from_arrays([columns[name] for name in fields.names], schema=fields)


def merge_rows(
    schema: TableSchema, columns: Mapping[str, pa.Array], kind: int | np.ndarray, first_sequence: int
) -> pa.RecordBatch:
    """A batch in `merge_schema` of rows of one kind, or one for each row, with consecutive sequence numbers from
    `first_sequence`.
    """
    fields = merge_schema(schema)
    rows = len(columns[schema.field_names[0]])
    sequence = pa.array(np.arange(first_sequence, first_sequence + rows, dtype=np.int64))
    kinds = pa.array(np.full(rows, kind, np.int8))
    return pa.RecordBatch.from_arrays([sequence, kinds, *(columns[name] for name in schema.field_names)], schema=fields)


def read_schema(schema: TableSchema, columns: Sequence[str]) -> pa.Schema:
    """The Arrow schema of a read of `columns`: table columns, `_SEQUENCE_NUMBER` or `_VALUE_KIND`, in the given order."""
    return pa.schema([SYSTEM_FIELDS.get(name) or arrow_field(schema.field(name)) for name in columns])


@dataclass(frozen=True)
class FileLayout:
    """The columns of a table's data files, and what their metadata records of the rows.

    Files of a table with a primary key are sorted by `keys` and store a sequence number and a kind with each row. Files of an
    append table, whose `keys` are empty, store only the table's columns: every row is an insert. `tracks_rows`: they also store
    the id and the sequence number of each row, because their rows are not new (FORMAT.md, section 7.5).
    """

    schema: TableSchema
    keys: tuple[DataField, ...]
    tracks_rows: bool = False

    @staticmethod
    def of(schema: TableSchema) -> FileLayout:
        return FileLayout(schema, schema.fields_of(schema.trimmed_primary_keys) if schema.primary_keys else ())

    @cached_property
    def fields(self) -> list[DataField]:
        """The columns of a file, those of the keys first, with the reserved field ids of system columns."""
        if not self.keys:
            return [*self.schema.fields, *(TRACKING_FIELDS if self.tracks_rows else ())]
        sequence = DataField(SEQUENCE_NUMBER_ID, SEQUENCE_NUMBER, PlainType("BIGINT", nullable=False))
        kind = DataField(VALUE_KIND_ID, VALUE_KIND, PlainType("TINYINT", nullable=False))
        keys = [replace(f, id=f.id + KEY_ID_OFFSET, name=KEY_PREFIX + f.name) for f in self.keys]
        return [*keys, sequence, kind, *self.schema.fields]

    @cached_property
    def physical(self) -> pa.Schema:
        """The Arrow schema of a file, with Parquet field ids."""
        return identified_schema(self.fields)

    def stored(self, rows: pa.Table) -> pa.Table:
        """Rows in `merge_schema` converted to the schema of a file."""
        columns = [without_hidden_nulls(rows.column(name.removeprefix(KEY_PREFIX))) for name in self.physical.names]
        if self.tracks_rows:
            numbers = columns[-1]
            columns[-1] = pc.if_else(pc.equal(numbers, UNNUMBERED), None, numbers)
        return pa.table(columns, schema=self.physical)

    def totals_of(self, rows: pa.RecordBatch) -> tuple[int, int, int]:
        """The least and greatest sequence number of the rows, and the number of retractions (-U and -D) among them.

        Where rows are tracked, one without a number counts as newer than all others.
        """
        numbers = rows.column(SEQUENCE_NUMBER).to_numpy()
        if self.tracks_rows:
            numbers = np.where(numbers == UNNUMBERED, AFTER_ALL_NUMBERS, numbers)
        retractions = np.count_nonzero(rows.column(VALUE_KIND).to_numpy() & 1) if self.keys else 0
        return int(numbers.min()), int(numbers.max()), int(retractions)

    def recorded(self, sequences: tuple[int, int]) -> tuple[int, int]:
        """The sequence numbers in the metadata of a file whose rows have these `totals_of`: 0 is for the commit to replace."""
        low, high = sequences
        return (low % AFTER_ALL_NUMBERS, high % AFTER_ALL_NUMBERS) if self.tracks_rows else sequences

    def keys_of(self, rows: pa.RecordBatch) -> list[bytes]:
        """The serialised key of each row."""
        types = [field.type for field in self.keys]
        columns = [values_from_arrow(rows.column(field.name), field.type) for field in self.keys]
        return [serialize_row([values[row] for values in columns], types) for row in range(rows.num_rows)]
