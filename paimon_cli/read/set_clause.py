"""The SET of an update: expressions for some of the columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.read.assignment import Assignment


@dataclass(frozen=True)
class SetClause:
    """One assignment for each column that is set. Picklable by way of its texts."""

    texts: tuple[str, ...]
    schema: TableSchema
    assignments: tuple[Assignment, ...]

    def __reduce__(self) -> tuple[Any, ...]:
        return parse_set_clause, (self.texts, self.schema)


def parse_set_clause(texts: Sequence[str], schema: TableSchema) -> SetClause:
    """`column = expression` texts, each may hold several with commas between.

    Expressions: columns, fields (a.b), literals, NULL, + - * / %, ||, concat, upper, lower, length, coalesce, abs, round, floor,
    ceil. UsageError for other SQL, unknown columns, values of another type, and for key and partition columns.
    """
    from paimon_cli.read.assignment_sql import assignments_of  # sqlglot takes long to import, and few commands need it

    return SetClause(tuple(texts), schema, assignments_of(texts, schema))
