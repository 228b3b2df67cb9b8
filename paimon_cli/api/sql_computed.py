"""UPDATE and DELETE with what only DuckDB can compute: subqueries, CASE, functions, other tables.

A query selects the keys of the rows that match, and their new values, at the snapshot of a transaction. The transaction merges
them by the keys, and commits under the data conflict check. In a table without a primary key, the keys are the columns that the
statement reads: rows that are equal in them have the same outcome. Where it reads the ids of rows, these are the keys.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, TypeVar, cast

import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.api.sql_context import SqlContext
from paimon_cli.api.sql_query import OpenTable
from paimon_cli.api.sql_rows import assigned
from paimon_cli.errors import NotSupported
from paimon_cli.metadata.data_file import ROW_ID
from paimon_cli.metadata.data_file_schema import TRACKING_COLUMNS
from paimon_cli.sql.changes import UpdateOrDelete
from paimon_cli.sql.statement_text import JoinedSide, columns_in, reads_whole_rows
from paimon_cli.sql.statements import Words, quoted

if TYPE_CHECKING:
    from paimon_cli.api.table import Table
    from paimon_cli.api.transaction import Transaction
    from paimon_cli.jobs.transaction_job import TransactionSummary
    from paimon_cli.jobs.update_job import UpdateSummary
    from paimon_cli.metadata.table_schema import TableSchema

Changed = TypeVar("Changed", bound="UpdateSummary")
_NEW = "__new_{}"
"""The columns of new values, beside the keys."""
_ROWS = "__rows"
"""The column with how many rows of the table have these keys."""
Assigned = Sequence[tuple[str, Words]]


def computed_change(context: SqlContext, table: Table, asked: UpdateOrDelete, given: Assigned) -> UpdateSummary:
    """Change the rows that a query of DuckDB finds, in one commit; again after a conflict."""
    from paimon_cli.jobs.table_change import again_on_conflict

    hint = "run it again, or keep other writers away from this table for a while"
    attempt = functools.partial(_attempt, context, table, asked, given)
    summary, attempts = again_on_conflict(table.context, attempt, hint)
    return replace(summary, attempts=attempts, conflicts=attempts - 1)


def _attempt(context: SqlContext, table: Table, asked: UpdateOrDelete, given: Assigned) -> UpdateSummary:
    from paimon_cli.jobs.update_job import UpdateSummary

    schema = table.context.schema
    keys = list(schema.primary_keys) or _columns_read(schema, asked, given, table.context.mode.tracks_rows)
    transaction = table.transaction()
    with transaction:

        def typed(text: str, found: Sequence[tuple[str, str]]) -> str:
            of_given = [of_type for _, of_type in found[len(keys) : -1]]
            new = [
                f"{assigned(_NEW.format(number), schema.field(column).type, of_given[number])} AS {_NEW.format(number)}"
                for number, (column, _) in enumerate(given)
            ]
            return f"SELECT {', '.join([*map(quoted, keys), *new, _ROWS])} FROM ({text}\n) AS found"

        text, params = _selection(context, keys, asked, given), context.values_in(*_parts(asked, given))
        rows = context.query(text, params, wraps=(typed,), open_table=viewed(context, asked.table, transaction)).to_arrow()
        _refuse_nulls(rows, () if schema.primary_keys else keys)
        expected = rows.num_rows if asked.source is not None else pc.sum(rows.column(_ROWS)).as_py() or 0
        merge = transaction.merge(rows.drop_columns(_ROWS), on=keys)
        new = {column: f"source.{_NEW.format(number)}" for number, (column, _) in enumerate(given)}
        done = (merge.when_matched_update(new) if given else merge.when_matched_delete()).execute()
        if done.rows != expected and (asked.source is None or done.rows < expected):
            what = f"{expected:,} rows were to be changed, and {done.rows:,} were found by {', '.join(keys)}"
            raise NotSupported(what, "values of these columns are not the same in DuckDB; nothing was committed")
    return committed(
        UpdateSummary(**{field.name: getattr(done, field.name) for field in fields(UpdateSummary)}), transaction.summary
    )


def viewed(context: SqlContext, parts: Sequence[str], transaction: Transaction) -> OpenTable:
    """Opens tables; the one of the transaction as its steps see it."""
    name, view = context.name_of(parts), transaction.view

    def opened(other: str) -> Table:
        full = context.full_name(other)
        return cast("Table", view) if full == name else context.catalog.table(full)

    return opened


def committed(step: Changed, transaction: TransactionSummary | None) -> Changed:
    """The summary of the only step of a transaction, with what its commit did."""
    names = {field.name for field in fields(step)}
    return replace(step, **{one.name: getattr(transaction, one.name) for one in fields(transaction or step) if one.name in names})


def _parts(asked: UpdateOrDelete, given: Assigned) -> list[Words]:
    parts = (asked.preamble, asked.source, asked.where, *(words for _, words in given))
    return [words for words in parts if words is not None]


def _columns_read(schema: TableSchema, asked: UpdateOrDelete, given: Assigned, has_ids: bool) -> list[str]:
    """All columns of the table that the statement may read, or the ids of rows, if it reads them.

    A query that names the ids shows them in some values that are whole rows (`sql_row_tracking`), where a SELECT of the user
    would not. So they are not named without need.
    """
    own, parts = (asked.names[0], asked.table[-1]), _parts(asked, given)
    names_ids = any(columns_in(words, JoinedSide.of("", TRACKING_COLUMNS), own) for words in parts)
    is_whole = any(reads_whole_rows(words, own) for words in parts)
    if names_ids and has_ids:
        if is_whole:
            why = f"the statement also names {ROW_ID}, which the value would show"
            raise NotSupported(f"table {asked.table[-1]} as a value in it", why, "name the columns of the table")
        return [ROW_ID]
    side, names = JoinedSide.of("", schema.field_names), list(schema.field_names)
    if not is_whole:
        found = {name for words in parts for name in columns_in(words, side, own)}
        names = [name for name in names if quoted(name) in found]
    if not names:
        what = "an UPDATE or DELETE that reads no column of a table without a primary key"
        hint = (
            f"row-tracking.enabled of {asked.table[-1]} is not set, so its rows have no ids"
            if names_ids
            else "name a column in WHERE"
        )
        raise NotSupported(what, "its rows are found again by the columns that it reads", hint)
    return names


def _refuse_nulls(rows: pa.Table, keys: Sequence[str]) -> None:
    """Raise `NotSupported` if a row to be changed cannot be found again, because null equals nothing."""
    for name in keys:
        if rows.column(name).null_count:
            why = "a table without a primary key finds its rows again by the columns that the statement reads"
            hint = f"leave them out: {name} IS NOT NULL; or write the statement without subqueries and CASE"
            raise NotSupported(f"a row to be changed is null in column '{name}'", why, hint)


def _selection(context: SqlContext, keys: Sequence[str], asked: UpdateOrDelete, given: Assigned) -> str:
    """The query for the keys of the rows that match, and their new values."""
    alias = quoted(asked.names[0])
    selected = [f"{alias}.{quoted(key)} AS {quoted(key)}" for key in keys]
    selected += [f"({context.duckdb_text(words)}) AS {_NEW.format(number)}" for number, (_, words) in enumerate(given)]
    # Other tables may meet a row several times, with the same values.
    chosen = (
        f"{', '.join(selected)}, count(*) AS {_ROWS}" if asked.source is None else f"DISTINCT {', '.join(selected)}, 1 AS {_ROWS}"
    )
    named = "" if asked.names[0] == asked.table[-1] else f" AS {alias}"  # then columns may be qualified with the database, too
    text = f"SELECT {chosen} FROM {'.'.join(map(quoted, asked.table))}{named}"
    if asked.source is not None:
        text += f", {context.duckdb_text(asked.source)}"
    if asked.where is not None:
        text += f"\nWHERE {context.duckdb_text(asked.where)}"
    if asked.source is None:
        text += "\nGROUP BY ALL"
    return text if asked.preamble is None else f"{context.duckdb_text(asked.preamble)}\n{text}"
