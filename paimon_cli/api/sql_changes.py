"""INSERT, UPDATE, DELETE and TRUNCATE: each is one commit, by the method of `Table` that does the same, with its checks.

Conditions and expressions that mean the same in our own SQL as in a SELECT (`sql/agreement`) are given to `update` and `delete`
as they are; others DuckDB computes (`sql_computed`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from paimon_cli.api.sql_computed import computed_change
from paimon_cli.api.sql_context import SqlContext
from paimon_cli.api.sql_dataset import TableDataset
from paimon_cli.api.sql_names import check_columns_differ
from paimon_cli.api.sql_result import SqlResult, changed
from paimon_cli.api.sql_rows import assigned, assigned_alone, rows_of, values_text
from paimon_cli.errors import UsageError
from paimon_cli.metadata.data_file_schema import TRACKING_COLUMNS
from paimon_cli.options.choices import ConflictCheck
from paimon_cli.options.option_text import counted, did_you_mean
from paimon_cli.sql.changes import Insert, UpdateOrDelete, partition_value
from paimon_cli.sql.statement_text import JoinedSide, resolved
from paimon_cli.sql.statements import Words, quoted

if TYPE_CHECKING:
    from paimon_cli.api.table import Table
    from paimon_cli.datatypes.data_type import DataField
    from paimon_cli.jobs.update_job import UpdateSummary
    from paimon_cli.metadata.table_schema import TableSchema


def insert(context: SqlContext, asked: Insert) -> SqlResult:
    """Write the rows of a query. Columns that it does not have get their default, or null."""
    table = context.table(asked.table)
    table.check_commit()
    schema, names = table.context.schema, list[str]()
    fixed = {column_of(schema, name): words for name, words in asked.partition.items()}

    def wrap(text: str, columns: Sequence[tuple[str, str]]) -> str:
        found = _targets(schema, asked, [name for name, _ in columns], list(fixed))
        of_query = [of_type for _, of_type in columns]
        given = [assigned(f"c{number}", field.type, of_query[number]) for number, field in enumerate(found)]
        constants = [assigned_alone(words, schema.field(name).type, context.duckdb_text) for name, words in fixed.items()]
        names.extend([*(field.name for field in found), *fixed])
        sources = ", ".join(f"c{number}" for number in range(len(columns)))
        return f"SELECT {', '.join([*given, *constants])} FROM ({text}\n) AS q({sources})"

    params = context.values_in(*asked.query, *asked.partition.values())
    *before, query = asked.query
    text = _values(context, schema, asked, list(fixed)) if query.peeks("VALUES") else None
    text = " ".join([*map(context.duckdb_text, before), text or context.duckdb_text(query)])
    result = context.query(text, params, wraps=(wrap,))
    how: dict[str, Any] = {"overwrite": True, "allow_empty": True} if asked.overwrite else {}
    if fixed and asked.overwrite:
        how["partition"] = {name: partition_value(words, name) for name, words in fixed.items()}
    with rows_of(result, names) as rows:
        summary = table.write(rows, **how, read_snapshot=_read_snapshot(result, table))
    return changed("overwritten" if asked.overwrite else "inserted", table.name, summary)


def _values(context: SqlContext, schema: TableSchema, asked: Insert, fixed: Sequence[str]) -> str | None:
    """The rows after VALUES with the types of their columns; None if they are not a list of rows, or do not fit."""
    *_, query = asked.query
    first = query.rest.after_tokens(1).parts()[0]
    if asked.by_name or not first.peeks("("):
        return None
    columns = ["" for _ in first.in_brackets().parts()]
    types = [column.type for column in _targets(schema, asked, columns, fixed)]
    return values_text(query.rest, types, context.duckdb_text)


def _targets(schema: TableSchema, asked: Insert, columns: Sequence[str], fixed: Sequence[str]) -> list[DataField]:
    """The columns of the table to which those of the query go."""
    if asked.by_name:
        return [schema.field(column_of(schema, name)) for name in columns]
    names = [name for name in schema.field_names if name not in fixed]
    if asked.columns is not None:
        names = [column_of(schema, name) for name in asked.columns]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"column '{name}' is named twice", "a row has one value for it")
    if len(names) != len(columns):
        query = counted(len(columns), "column")
        raise UsageError(
            f"the query has {query}, and {counted(len(names), 'column')} {'is' if len(names) == 1 else 'are'} to be written",
            f"columns go by their position to: {', '.join(names)}",
            "name the columns, INSERT INTO t (a, b) ..., or INSERT INTO t BY NAME SELECT ...",
        )
    return [schema.field(name) for name in names]


def column_of(schema: TableSchema, name: str) -> str:
    """The column with this name; in SQL, upper and lower case are the same. Raises `UsageError` if there is none."""
    if schema.find(name) is not None:
        return name
    alike = [column for column in schema.field_names if column.lower() == name.lower()]
    if len(alike) != 1:
        if name.upper() in TRACKING_COLUMNS and schema.typed_options.row_tracking_enabled:
            why = "each row gets its id and number from a commit, and keeps the id for life"
            raise UsageError(f"column '{name}' cannot be set", why, "leave it out", column=name)
        hint = f"{did_you_mean(name, schema.field_names)}columns: {', '.join(schema.field_names)}"
        raise UsageError(f"no column '{name}'", "the table does not have it", hint, column=name)
    return alike[0]


def _read_snapshot(result: SqlResult, table: Table) -> int | None:
    """The oldest snapshot of the table itself that the query has read, for the data conflict check; None if it has not."""
    if table.context.options.commit_data_conflict_check == ConflictCheck.OFF:
        return None
    own = [dataset for dataset in result.datasets if isinstance(dataset, TableDataset) and dataset.is_of(table)]
    return min((dataset.snapshot_id for dataset in own), default=None)


def update(context: SqlContext, asked: UpdateOrDelete) -> SqlResult:
    """Change the rows that match, or all."""
    table = context.table(asked.table)
    check_columns_differ(table.name, table.context.readable_schema, context.written)
    schema = table.context.schema
    given = [(column_of(schema, name), words) for name, words in asked.assignments]
    side = JoinedSide.of("", table.context.readable_schema.field_names)
    texts = [f"{quoted(name)} = {resolved(words, _sides(asked, side), [side])}" for name, words in given]
    params = context.values_in(*(words for _, words in given), *((asked.where,) if asked.where else ()))

    def natively(where: str) -> UpdateSummary:
        return table.update(set=texts, where=where, params=params)

    return changed("updated", table.name, _changed(context, table, asked, given, params, natively))


def _sides(asked: UpdateOrDelete, side: JoinedSide) -> dict[str, JoinedSide]:
    """What columns may be qualified with: the alias, else the table, also with its database."""
    has_alias = asked.names[0] != asked.table[-1]
    return {asked.names[0].lower(): side} | ({} if has_alias else {".".join(asked.table[-2:]).lower(): side})


def delete(context: SqlContext, asked: UpdateOrDelete) -> SqlResult:
    """Delete the rows that match, or all."""
    table = context.table(asked.table)
    check_columns_differ(table.name, table.context.readable_schema, context.written)
    params = context.values_in(*((asked.where,) if asked.where else ()))

    def natively(where: str) -> UpdateSummary:
        return table.delete(where=where, params=params)

    return changed("deleted", table.name, _changed(context, table, asked, [], params, natively))


def truncate(context: SqlContext, parts: tuple[str, ...]) -> SqlResult:
    """Delete all rows, after a confirmation."""
    table = context.table(parts)
    table.check_commit()
    planned = table.plan_truncate()
    if planned.plan.files and context.confirm is not None:
        what = f"{counted(planned.plan.rows, 'stored record')} in {counted(planned.plan.files, 'file')}"
        context.confirm(f"{what} of {table.name} will be deleted")
    return changed("truncated", table.name, planned.run())


def _changed(
    context: SqlContext,
    table: Table,
    asked: UpdateOrDelete,
    given: Sequence[tuple[str, Words]],
    params: Mapping[str, Any],
    natively: Callable[[str], UpdateSummary],
) -> UpdateSummary:
    """Change the rows by our own SQL if it has all that the statement says, and DuckDB would do the same; else by DuckDB's."""
    from paimon_cli.sql.agreement import chooses_same_rows, sets_same_values
    from paimon_cli.sql.clauses import parse_set_clause
    from paimon_cli.sql.predicate import parse_predicate

    schema = table.context.readable_schema
    side = JoinedSide.of("", schema.field_names)
    sides = _sides(asked, side)
    where = "TRUE" if asked.where is None else resolved(asked.where, sides, [side])
    texts = [f"{quoted(name)} = {resolved(words, sides, [side])}" for name, words in given]
    if asked.source is None and asked.preamble is None:
        try:
            agrees = chooses_same_rows(parse_predicate(where, schema, params).condition, where)
            if texts:
                agrees = sets_same_values(parse_set_clause(texts, schema, params)) and agrees
        except UsageError as error:
            if "column" in error.details:
                raise
        else:
            if agrees:
                return natively(where)
    return computed_change(context, table, asked, given)
