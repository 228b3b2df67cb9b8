"""What `update` and `delete` make of the rows that match: new values for some of their columns, or nothing at all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from paimon_cli.casts.column_cast import with_default
from paimon_cli.errors import BadInput
from paimon_cli.ingest.faults import BadCells, shown
from paimon_cli.ingest.typed_columns import CastRules, cast_column
from paimon_cli.metadata.data_file import CommitMessage
from paimon_cli.metadata.data_file_schema import DELETE, UPDATE_AFTER
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.sql.clauses import Assignment, BadRow, SetClause
from paimon_cli.sql.predicate import Predicate

HINT = "nothing was committed; change the expression or the condition"

NameRow = Callable[[int], str]
"""What to call a row of a batch in a message, by its place in the batch: `the row with id = 7`."""


@dataclass(frozen=True)
class RowChange:
    """What happens to rows that match: they get new values, or (`new_values` None) they are deleted. Picklable."""

    where: Predicate
    new_values: SetClause | None

    @property
    def kind(self) -> int:
        return DELETE if self.new_values is None else UPDATE_AFTER

    @property
    def assignments(self) -> tuple[Assignment, ...]:
        return self.new_values.assignments if self.new_values else ()

    def columns(self, schema: TableSchema, batch: pa.RecordBatch, name_row: NameRow) -> dict[str, pa.Array]:
        """All columns of rows that match, with their new values. `BadInput` names the first row that cannot have them."""
        columns = {name: batch.column(name) for name in schema.field_names}
        for assignment in self.assignments:
            columns[assignment.column.name] = _assigned(assignment, batch, name_row)
        return {name: with_default(values, schema.field(name)) for name, values in columns.items()}


@dataclass(frozen=True)
class ChangedBucket:
    """How many rows of a bucket matched, and what to commit; None when none did."""

    rows: int
    message: CommitMessage | None


def _assigned(assignment: Assignment, batch: pa.RecordBatch, name_row: NameRow) -> pa.Array:
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


def _bad_row(assignment: Assignment, row: str, why: str) -> BadInput:
    column = assignment.column.name
    return BadInput(f"SET {column} = {assignment.sql} fails for {row}", why, HINT, column=column, row=row)
