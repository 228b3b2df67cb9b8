"""MERGE INTO: the source is a query of DuckDB, and the clauses are those of `Table.merge`.

DuckDB also computes the conditions and values that read the source alone, as further columns of it. What reads rows of the table
is computed while they are merged, by our own SQL; if that lacks something or means something else, and the rows are found by
their key, by DuckDB, which joins both at the snapshot of a transaction.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from paimon_cli.api.merging import Merge
from paimon_cli.api.sql_changes import column_of
from paimon_cli.api.sql_computed import committed, viewed
from paimon_cli.api.sql_context import SqlContext
from paimon_cli.api.sql_dataset import TableDataset
from paimon_cli.api.sql_names import check_columns_differ, check_sides_differ
from paimon_cli.api.sql_query import OpenTable, columns_without_qualifier
from paimon_cli.api.sql_result import SqlResult, changed
from paimon_cli.api.sql_rows import assigned
from paimon_cli.datatypes.data_type import BOOLEAN, DataType
from paimon_cli.errors import NotSupported, UsageError
from paimon_cli.metadata.data_file import ROW_ID
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.option_text import counted
from paimon_cli.sql.changes import MergeInto, WhenClause
from paimon_cli.sql.statement_text import JoinedSide, reads, resolved
from paimon_cli.sql.statements import Words, is_name, quoted

if TYPE_CHECKING:
    from paimon_cli.api.table import Table
    from paimon_cli.jobs.merge_job import MergeSummary

_NULLS = '"NULL"'
"""What DuckDB calls the type of a column that holds nothing but NULL."""
_HOW_ON = "ON compares columns: t.id = s.id AND t.dt = s.dt"
_COMPUTED = "__computed_{}"


def merge(context: SqlContext, asked: MergeInto) -> SqlResult:
    """Merge the rows of the source into the table.

    If the source reads the table itself, that is at the snapshot of a transaction, so that the commit is checked from there on.
    """
    check_sides_differ(asked)
    table = context.table(asked.table)
    check_columns_differ(table.name, table.context.readable_schema, context.written)
    plan = _Plan.of(context, asked, table)
    result = plan.source()
    rows = result.to_arrow()
    reads_itself = any(isinstance(dataset, TableDataset) and dataset.is_of(table) for dataset in result.datasets)
    try:
        if not reads_itself:
            plan.check_agreement(rows.schema)
            return changed("merged", table.name, plan.clauses_of(table.merge(rows, on=plan.on, params=plan.params)).execute())
    except (UsageError, _OtherMeaning) as error:
        keys = {ROW_ID} if table.context.mode.tracks_rows else set(table.primary_keys)
        if not keys or not keys <= set(plan.on) or "column" in error.details:
            raise
    return changed("merged", table.name, _in_a_transaction(context, asked, table, with_both=not reads_itself))


def _in_a_transaction(context: SqlContext, asked: MergeInto, table: Table, with_both: bool) -> MergeSummary:
    """Merge in a transaction, again after a conflict. `with_both`: DuckDB computes all values and conditions from both sides."""
    from paimon_cli.jobs.table_change import again_on_conflict

    def attempt() -> MergeSummary:
        transaction = table.transaction()
        with transaction:
            plan = _Plan.of(context, asked, table, with_both)
            rows = plan.source(viewed(context, asked.table, transaction)).to_arrow()
            plan.check_agreement(rows.schema)
            done = plan.clauses_of(transaction.merge(rows, on=plan.on, params=plan.params)).execute()
        return committed(done, transaction.summary)

    hint = "run it again, or keep other writers away from this table for a while"
    summary, attempts = again_on_conflict(table.context, attempt, hint)
    return replace(summary, attempts=attempts, conflicts=attempts - 1)


def _texts(asked: MergeInto) -> list[Words]:
    """All parts of the statement that may have parameters."""
    found = [asked.source, *([asked.preamble] if asked.preamble else [])]
    for clause in asked.clauses:
        found += [*([clause.condition] if clause.condition else []), *(words for _, words in clause.values or ())]
    return found


class _OtherMeaning(NotSupported):
    """An expression or a condition for which DuckDB and our own SQL do not give the same."""

    def __init__(self, words: Words) -> None:
        why = "a query would not give the same for it: division, NaN, functions and FLOAT differ"
        hint = "compute it in the source, or find the rows by the whole key; for NaN, add AND NOT isnan(column)"
        super().__init__(f"{words.text} in a MERGE that computes it while it merges", why, hint)


@dataclass
class _Plan:
    """What the merge reads and sets; known when the columns of the source are.

    `readable`: the schema as queries see it. `on`: the columns that are equal. `native`: the texts that our own SQL computes,
    with their clauses and the columns that they set. `computed`: expressions that DuckDB computes, by their
    columns of the source.
    """

    context: SqlContext
    asked: MergeInto
    schema: TableSchema
    readable: TableSchema
    with_both: bool = False
    on: tuple[str, ...] = ()
    native: list[tuple[WhenClause, Words, str | None]] = field(default_factory=list)
    computed: dict[str, str] = field(default_factory=dict)
    types: dict[str, DataType] = field(default_factory=dict)
    _columns: dict[str, str] = field(default_factory=dict)
    _names: dict[int, str] = field(default_factory=dict)

    @staticmethod
    def of(context: SqlContext, asked: MergeInto, table: Table, with_both: bool = False) -> _Plan:
        return _Plan(context, asked, table.context.schema, table.context.readable_schema, with_both)

    @property
    def params(self) -> dict[str, Any]:
        """The values of the parameters that our own SQL has."""
        return self.context.values_in(*(words for _, words, _ in self.native))

    def source(self, open_table: OpenTable | None = None) -> SqlResult:
        """The rows of the source, with what DuckDB computes."""
        asked, context = self.asked, self.context
        preamble = "" if asked.preamble is None else f"{context.duckdb_text(asked.preamble)}\n"
        names = f"({', '.join(map(quoted, asked.source_columns))})" if asked.source_columns else ""
        text = f"{preamble}SELECT * FROM {context.duckdb_text(asked.source)} AS {quoted(asked.source_name)}{names}"
        values = context.values_in(*_texts(asked))
        return context.query(text, values, wraps=(self.wrapped, self.typed), open_table=open_table)

    def clauses_of(self, begun: Merge) -> Merge:
        for clause in self.asked.clauses:
            begun = self.added(begun, clause)
        return begun

    def check_agreement(self, source: pa.Schema) -> None:
        """Raise `_OtherMeaning` if a query would give something else for what our own SQL computes. `source`: its columns."""
        from paimon_cli.jobs.merge_edit import joined_schema, source_schema
        from paimon_cli.jobs.merge_source import MemorySource
        from paimon_cli.sql.agreement import chooses_same_rows, sets_same_values
        from paimon_cli.sql.clauses import parse_set_clause
        from paimon_cli.sql.predicate import parse_predicate

        rows = MemorySource.of(source.empty_table(), self.readable, self.on, None)
        for clause, words, column in self.native:
            own = source_schema(self.schema, rows) if clause.when == "not_matched" else joined_schema(self.readable, rows)
            text, params = self._text(clause, words), self.context.values_in(words)
            with self._errors_as_written(words):
                if column is None:
                    agrees = chooses_same_rows(parse_predicate(text, own, params).condition, words.text)
                else:
                    agrees = sets_same_values(parse_set_clause([f"{quoted(column)} = {text}"], own, params))
            if not agrees:
                raise _OtherMeaning(words)

    @contextlib.contextmanager
    def _errors_as_written(self, words: Words) -> Iterator[None]:
        """Let errors name the sides of the merge as the statement does."""
        try:
            yield
        except UsageError as error:
            names = {"target": self.asked.names[0], "source": self.asked.source_name}
            side = re.compile(r"\b(target|source)\b(?=[.:]|$)")
            what, why = (side.sub(lambda found: names[found[1]], text) for text in (error.what, error.why))
            why = why.replace("the ROW has no such field", "there is no such column")
            raise UsageError(
                what, f"{why}\nin: {words.text}" if why else f"in: {words.text}", error.hint, **error.details
            ) from None

    def wrapped(self, text: str, found: Sequence[tuple[str, str]]) -> str:
        """The query for the source: its columns with the names that the table has for them, and what DuckDB computes."""
        columns = [name for name, _ in found]
        for name in columns:
            if [other.lower() for other in columns].count(name.lower()) > 1:
                raise UsageError(f"the source has two columns '{name}'", hint="give one of them another name: a.id AS other_id")
        of_table = {name.lower(): name for name in self.readable.field_names}
        self._columns = {name: of_table.get(name.lower(), name) for name in columns}
        equal = self._equal_columns()
        self.on = tuple(equal)
        for clause in self.asked.clauses:
            self._compute(clause)
        alias = quoted(self.asked.source_name)
        selected = [f"{alias}.{quoted(name)} AS {quoted(new)}" for name, new in self._columns.items()]
        selected += [
            f"{alias}.{quoted(name)} AS {quoted(target)}" for target, name in equal.items() if self._columns[name] != target
        ]
        selected += [f"({expression}) AS {name}" for name, expression in self.computed.items()]
        both = ""
        if self.with_both:
            target = quoted(self.asked.names[0])
            equals = [f"{target}.{quoted(column)} = {alias}.{quoted(name)}" for column, name in equal.items()]
            both = f" LEFT JOIN {'.'.join(map(quoted, self.asked.table))} AS {target} ON {' AND '.join(equals)}"
        return f"SELECT {', '.join(selected)} FROM ({text}\n) AS {alias}{both}"

    def typed(self, text: str, found: Sequence[tuple[str, str]]) -> str:
        """The same query, with what is computed, and columns of nulls, as values of the columns to which they go."""
        nulls = {name: self.readable.field(name).type for name, given in found if given == _NULLS and self.readable.find(name)}
        types = {**nulls, **self.types}
        values = [
            f"{assigned(quoted(name), types[name], given)} AS {quoted(name)}" if name in types else quoted(name)
            for name, given in found
        ]
        return f"SELECT {', '.join(values)} FROM ({text}\n) AS computed"

    def _equal_columns(self) -> dict[str, str]:
        """The columns of the source by those of the table that they are compared with."""
        if self.asked.using:
            return {column_of(self.readable, name): self._source_column(name) for name in self.asked.using}
        found = {}
        for part in (self.asked.on or self.asked.source).parts("AND"):
            part = part.in_brackets() if part.peeks("(") else part
            left = part.path("a column")
            if not part.accept("="):
                raise NotSupported(
                    f"ON {self.asked.on.text if self.asked.on else ''}", _HOW_ON, "other conditions: WHEN MATCHED AND ..."
                )
            right = part.path("a column")
            part.expect_end("AND or WHEN")
            target, source = (left, right) if self._is_target(left) else (right, left)
            if not self._is_target(target) or self._is_target(source):
                raise NotSupported(
                    f"ON {self.asked.on.text if self.asked.on else ''}", _HOW_ON, "qualify the columns of both sides"
                )
            name, other = column_of(self.readable, target[-1]), self._source_column(source[-1])
            if self._columns[other] != name and name in self._columns.values():
                what = f"ON {'.'.join(left)} = {'.'.join(right)}, where the source has another column '{name}'"
                raise NotSupported(what, "columns that are compared have one name", f"USING (SELECT {source[-1]} AS {name}, ...)")
            found[name] = other
        return found

    def _is_target(self, path: Sequence[str]) -> bool:
        """Whether a column in ON is one of the table: by its qualifier, else because only the table has it."""
        if len(path) > 1:
            return path[-2].lower() == self.asked.names[0].lower()
        return path[0].lower() not in {name.lower() for name in self._columns}

    def _source_column(self, name: str) -> str:
        for column in self._columns:
            if column.lower() == name.lower():
                return column
        raise UsageError(f"the source has no column '{name}'", f"columns: {', '.join(self._columns)}")

    def _compute(self, clause: WhenClause) -> None:
        """Let DuckDB compute what reads the source alone."""
        if clause.condition is not None:
            self._add(clause, clause.condition, None)
        for column, words in self._values(clause).items():
            self._add(clause, words, column)

    def _values(self, clause: WhenClause) -> dict[str, Words]:
        """The expressions of a clause by the columns of the table that they set."""
        values = clause.values or ()
        names = [name for name, _ in values if name is not None]
        if len(names) < len(values):
            if len(values) != len(self.schema.fields):
                what = (
                    f"{counted(len(values), 'value')} for {counted(len(self.schema.fields), 'column')} in an INSERT of the merge"
                )
                columns = f"columns: {', '.join(self.schema.field_names)}"
                raise UsageError(what, columns, "name the columns: INSERT (a, b) VALUES (s.a, s.b)")
            names = list(self.schema.field_names)
        return {column_of(self.schema, name): words for name, (_, words) in zip(names, values, strict=True)}

    def _add(self, clause: WhenClause, words: Words, column: str | None) -> None:
        """Note a text with the column that it sets; None for a condition."""
        if clause.when == "matched":
            self._refuse_ambiguous(words)
        own = {name.lower() for name in self.readable.field_names} if clause.when != "not_matched" else set[str]()
        if clause.when == "not_matched_by_source" or (
            not self.with_both and reads(words, self.asked.names[0], own, self.asked.source_name)
        ):
            self.native.append((clause, words, column))
            return
        name = _COMPUTED.format(len(self.computed))
        self._names[id(words)] = name
        t = BOOLEAN if column is None else self.schema.field(column).type
        self.computed[name], self.types[name] = self.context.duckdb_text(words), t

    def _refuse_ambiguous(self, words: Words) -> None:
        """Raise `UsageError` for a name without a qualifier that both sides have, unless they are equal in it."""
        of_source = {name.lower() for name in self._columns.values()} - {name.lower() for name in self.on}
        both = of_source & {name.lower() for name in self.readable.field_names}
        if not any(is_name(token) and token.text.lower() in both for token in words.tokens):
            return
        for name in columns_without_qualifier(self.context.duckdb_text(words)):
            if name.lower() in both:
                sides = f"{self.asked.names[0]}.{name} or {self.asked.source_name}.{name}"
                raise UsageError(f"'{name}' is a column of both sides of the MERGE", f"in: {words.text}", f"write {sides}")

    def _text(self, clause: WhenClause, words: Words) -> str:
        """An expression or a condition as the merge reads it."""
        if id(words) in self._names:
            return f"source.{self._names[id(words)]}"
        target, source = JoinedSide.of("target.", self.readable.field_names), JoinedSide.of("source.", self._columns.values())
        sides = {self.asked.names[0].lower(): target, self.asked.source_name.lower(): source}
        if clause.when == "not_matched_by_source":  # all columns of the source would be null
            return resolved(words, {self.asked.names[0].lower(): target}, [target])
        return resolved(words, sides, [source] if clause.when == "not_matched" else [target, source])

    def added(self, begun: Merge, clause: WhenClause) -> Merge:
        """The merge with this clause."""
        condition = None
        if clause.condition is not None:
            condition = self._text(clause, clause.condition)
            condition = f"{condition} = TRUE" if id(clause.condition) in self._names else condition
        if clause.action == "nothing":
            later = self.asked.clauses[self.asked.clauses.index(clause) + 1 :]
            if any(other.when == clause.when for other in later):
                raise NotSupported(
                    "DO NOTHING before another clause", "the first clause that holds counts", "put its condition into the others"
                )
            return begun
        if clause.action == "delete":
            is_matched = clause.when == "matched"
            return (begun.when_matched_delete if is_matched else begun.when_not_matched_by_source_delete)(condition=condition)
        if clause.values is None:
            if clause.when == "not_matched_by_source":
                raise UsageError(
                    "UPDATE * in a clause WHEN NOT MATCHED BY SOURCE", "there is no row of the source", "name the columns"
                )
            every = begun.when_matched_update_all if clause.action == "update" else begun.when_not_matched_insert_all
            return every(condition=condition)
        values = {column: self._text(clause, words) for column, words in self._values(clause).items()}
        if clause.action == "insert":
            return begun.when_not_matched_insert(values, condition=condition)
        is_matched = clause.when == "matched"
        return (begun.when_matched_update if is_matched else begun.when_not_matched_by_source_update)(values, condition=condition)
