"""Statements that change rows, read into their parts: INSERT, UPDATE, DELETE, MERGE and TRUNCATE."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from sqlglot import TokenType

from paimon_cli.errors import NotSupported, UsageError
from paimon_cli.sql.statements import Words, is_name, is_word

_QUERIES = ("SELECT", "FROM", "VALUES", "TABLE", "(", "WITH")
_RETURNING = "RETURNING"
_LOOK_AFTER = "read the table after the statement"
_STRINGS = (TokenType.STRING, TokenType.BYTE_STRING, TokenType.HEREDOC_STRING)
"""Texts in quotes, with escapes (`e'a'`, for sqlglot one of bytes) and in dollar quotes."""
_TYPES_OF_LITERALS = (
    *("BOOLEAN", "TINYINT", "SMALLINT", "INT", "INTEGER", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL", "NUMERIC"),
    *("CHAR", "VARCHAR", "STRING", "TEXT", "DATE", "TIME"),
    *("TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "DATETIME"),
    "TIMESTAMPTZ_NS",
)
"""Not every word: the text of `x'41'` is not 41."""


@dataclass(frozen=True)
class Insert:
    """INSERT INTO or OVERWRITE. `columns`: where the columns of the query go, by position; None for all, or `by_name`.

    `partition`: values of columns that the query does not have (PARTITION (dt = '2026-11-20')).
    """

    table: tuple[str, ...]
    query: tuple[Words, ...]
    columns: tuple[str, ...] | None = None
    by_name: bool = False
    overwrite: bool = False
    partition: dict[str, Words] = field(default_factory=dict)


@dataclass(frozen=True)
class UpdateOrDelete:
    """UPDATE, or DELETE without `assignments`. `names`: what columns of the table may be qualified with.

    `source`: what follows FROM or USING: other tables, whose columns conditions and expressions may read.
    """

    table: tuple[str, ...]
    names: tuple[str, ...]
    assignments: tuple[tuple[str, Words], ...] = ()
    where: Words | None = None
    source: Words | None = None
    preamble: Words | None = None


@dataclass(frozen=True)
class WhenClause:
    """A clause of a merge. `values`: the columns that are set, with their expressions; None for all that both sides have.

    Without a name, values go to all columns of the table in their order.
    """

    when: Literal["matched", "not_matched", "not_matched_by_source"]
    action: Literal["update", "delete", "insert", "nothing"]
    condition: Words | None = None
    values: tuple[tuple[str | None, Words], ...] | None = None


@dataclass(frozen=True)
class MergeInto:
    """MERGE. `names`, `source_name`: qualifiers of the columns of either side; `source`: what follows USING, without an alias.

    `source_columns`: names for its columns, as in `AS s(id, name)`. `on`: the condition, or `using` the columns that both sides
    have.
    """

    table: tuple[str, ...]
    names: tuple[str, ...]
    source: Words
    source_name: str
    on: Words | None
    using: tuple[str, ...]
    clauses: tuple[WhenClause, ...]
    preamble: Words | None = None
    source_columns: tuple[str, ...] = ()


def read_insert(words: Words, preamble: Words | None) -> Insert:
    """Read what follows INSERT."""
    if words.peeks("OR"):
        raise NotSupported(
            "INSERT OR REPLACE, INSERT OR IGNORE",
            "in a table with a primary key a row replaces the one with its key, as the merge engine says",
            "leave out OR REPLACE; to keep rows that exist: MERGE INTO ... WHEN NOT MATCHED THEN INSERT *",
        )
    overwrite = words.accept("OVERWRITE")
    if not overwrite:
        words.expect("INTO")
    elif words.accept("INTO"):
        pass
    words.accept("TABLE")
    table = words.path("the name of a table")
    partition = _partition(words) if words.accept("PARTITION") else {}
    if words.peeks("REPLACE", "WHERE"):
        raise NotSupported("INSERT ... REPLACE WHERE", "an overwrite replaces partitions", "DELETE FROM ... WHERE, then INSERT")
    words.alias(*_QUERIES, "BY", "DEFAULT", "IF")
    columns: tuple[str, ...] | None = None
    if words.peeks("(") and not _is_query_in_brackets(words):
        columns = words.in_brackets().names("a column")
    by_name = words.accept("BY", "NAME")
    if not by_name:
        words.accept("BY", "POSITION")
    elif columns is not None:
        raise UsageError(
            "BY NAME with a list of columns", "the columns of the query say by their names where they go", "leave one out"
        )
    if words.peeks("DEFAULT", "VALUES"):
        raise NotSupported("INSERT ... DEFAULT VALUES", "a row needs at least one value", "name a column: (id) VALUES (1)")
    if not any(words.peeks(word) for word in _QUERIES):
        raise words.unexpected("SELECT, VALUES, FROM or a list of columns")
    query = words.until((_RETURNING,), ("ON", "CONFLICT"))
    if words.peeks("ON"):
        why = "in a table with a primary key a row replaces the one with its key, as the merge engine says"
        raise NotSupported("INSERT ... ON CONFLICT", why, "leave it out, or use MERGE INTO")
    _refuse_returning(words)
    parts = (query,) if preamble is None else (preamble, query)
    return Insert(table, parts, columns, by_name, overwrite, partition)


def _is_query_in_brackets(words: Words) -> bool:
    inner = words.rest
    while inner.accept("("):
        pass
    return any(inner.peeks(word) for word in ("SELECT", "FROM", "VALUES", "WITH"))


def _partition(words: Words) -> dict[str, Words]:
    """`(dt = '2026-11-20', hr)`: the values; columns without a value are in the query."""
    return {name: part.rest for name, part in partition_columns(words) if part.accept("=")}


def partition_columns(words: Words) -> Iterator[tuple[str, Words]]:
    """The columns in brackets after PARTITION, with the words behind each. Raises `UsageError` for a column that is named twice:
    of two values one would be forgotten.
    """
    names = set[str]()
    for part in words.in_brackets().parts():
        name = part.name("a partition column")
        if name.lower() in names:
            why = "a partition has one value per column"
            raise UsageError(f"PARTITION names column '{name}' twice", why, "name each partition in a statement of its own")
        names.add(name.lower())
        yield name, part


def partition_value(words: Words, name: str, *, may_be_name: bool = False) -> str | None:
    """The value of a partition column as a text; None for NULL. Raises `NotSupported` for what is neither a literal nor NULL.

    `may_be_name`: a bare word or a name in double quotes is a text, too, as where no query computes the value.
    """
    if words.rest.accept("NULL") and len(words.rest.tokens) == 1:
        return None
    text = _literal_text(words.rest, may_be_name)
    if text is None:
        raise NotSupported(
            f"PARTITION ({name} = {words.rest.text})", "the value of a partition is a literal or NULL", "write it out"
        )
    return text


def _literal_text(words: Words, may_be_name: bool) -> str | None:
    """The text of `'a'`, `DATE '2026-11-20'`, `-5` or `TRUE`; None for other expressions."""
    before, last = words.tokens[:-1], words.tokens[-1] if words.tokens else None
    if last is None or len(before) > 1:
        return None
    if not before:
        is_literal = last.token_type in (*_STRINGS, TokenType.NUMBER) or is_word(last, "TRUE") or is_word(last, "FALSE")
        return str(last.text) if is_literal or (may_be_name and is_name(last)) else None
    if last.token_type == TokenType.NUMBER:
        return f"-{last.text}" if words.accept("-") else str(last.text) if words.accept("+") else None
    has_type = last.token_type in _STRINGS and any(is_word(before[0], word) for word in _TYPES_OF_LITERALS)
    return str(last.text) if has_type else None


def read_update(words: Words, preamble: Words | None) -> UpdateOrDelete:
    """Read what follows UPDATE."""
    table, names = _named(words, "SET")
    words.expect("SET")
    assignments = _assignments(words.until(("FROM",), ("WHERE",), (_RETURNING,)), names)
    source = words.until(("WHERE",), (_RETURNING,)) if words.accept("FROM") else None
    return UpdateOrDelete(table, names, assignments, _where(words), source, preamble)


def read_delete(words: Words, preamble: Words | None) -> UpdateOrDelete:
    """Read what follows DELETE."""
    words.expect("FROM")
    table, names = _named(words, "USING", "WHERE", _RETURNING)
    source = words.until(("WHERE",), (_RETURNING,)) if words.accept("USING") else None
    return UpdateOrDelete(table, names, (), _where(words), source, preamble)


def read_truncate(words: Words) -> tuple[str, ...]:
    """The table after TRUNCATE."""
    words.accept("TABLE")
    table = words.path("the name of a table")
    words.expect_end("the end")
    return table


def _named(words: Words, *ends: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """A table, and the names with which its columns may be qualified."""
    parts = words.path("the name of a table")
    alias = words.alias(*ends)
    return parts, (alias,) if alias is not None else (parts[-1],)


def _where(words: Words) -> Words | None:
    where = words.until((_RETURNING,)) if words.accept("WHERE") else None
    if where is not None and not where.tokens:
        raise words.unexpected("a condition")
    if where is not None and len(where.until(("LIMIT",), ("ORDER", "BY")).tokens) < len(where.tokens):
        raise NotSupported(
            "UPDATE or DELETE with LIMIT or ORDER BY", "all rows that meet the condition change", "narrow the WHERE"
        )
    _refuse_returning(words)
    return where


def _refuse_returning(words: Words) -> None:
    if words.peeks(_RETURNING):
        raise NotSupported("RETURNING", "a change answers with its summary", _LOOK_AFTER)
    words.expect_end("the end of the statement")


def _assignments(words: Words, names: tuple[str, ...]) -> tuple[tuple[str, Words], ...]:
    """`a = 1, t.b = 2` as columns and expressions."""
    found: list[tuple[str, Words]] = []
    for part in words.parts():
        if part.peeks("("):
            raise NotSupported("SET (a, b) = ...", "each column is set by itself", "SET a = ..., b = ...")
        *qualifier, name = part.path("a column")
        if qualifier and [one.lower() for one in qualifier][-1:] != [names[0].lower()]:
            raise NotSupported(
                f"SET {'.'.join([*qualifier, name])}", "a field of a nested column cannot be set", "set the whole column"
            )
        part.expect("=")
        if part.is_at_end:
            raise part.unexpected("an expression")
        if any(name.lower() == other.lower() for other, _ in found):
            raise UsageError(f"column '{name}' is set twice", "each column can be assigned only once")
        found.append((name, part.rest))
    return tuple(found)


def read_merge(words: Words, preamble: Words | None) -> MergeInto:
    """Read what follows MERGE."""
    if words.peeks("WITH", "SCHEMA", "EVOLUTION"):
        raise NotSupported("MERGE WITH SCHEMA EVOLUTION", "a MERGE adds no columns", "ALTER TABLE ... ADD COLUMN before it")
    words.expect("INTO")
    table, names = _named(words, "USING")
    words.expect("USING")
    start = words.rest
    if words.peeks("("):
        words.in_brackets()
        default = "source"
    else:
        default = words.path("a table or a query in brackets")[-1]
        if words.peeks("("):  # a function such as read_csv('x.csv')
            words.in_brackets()
    source = start.first(len(start.tokens) - len(words.rest.tokens))
    alias = words.alias("ON", "USING") or default
    columns = words.in_brackets().names("a column") if words.peeks("(") else ()
    on: Words | None = None
    using: tuple[str, ...] = ()
    if words.accept("USING"):
        using = words.in_brackets().names("a column")
    else:
        words.expect("ON")
        on = words.until(("WHEN",))
    clauses = []
    while words.accept("WHEN"):
        clauses.append(_when(words, names))
    _refuse_returning(words)
    if not clauses:
        raise words.unexpected("WHEN")
    return MergeInto(table, names, source, alias, on, using, tuple(clauses), preamble, columns)


def _when(words: Words, names: tuple[str, ...]) -> WhenClause:
    if words.accept("MATCHED"):
        when: Literal["matched", "not_matched", "not_matched_by_source"] = "matched"
    else:
        words.expect("NOT", "MATCHED")
        when = "not_matched_by_source" if words.accept("BY", "SOURCE") else "not_matched"
        if when == "not_matched":
            words.accept("BY", "TARGET")
    condition = words.until(("THEN",)) if words.accept("AND") else None
    words.expect("THEN")
    body = words.until(("WHEN", "MATCHED"), ("WHEN", "NOT", "MATCHED"), (_RETURNING,))
    if body.accept("DELETE"):
        clause = WhenClause(when, "delete", condition)
    elif body.accept("DO", "NOTHING"):
        clause = WhenClause(when, "nothing", condition)
    elif body.accept("UPDATE"):
        clause = WhenClause(when, "update", condition, _set_values(body, names))
    else:
        body.expect("INSERT")
        clause = WhenClause(when, "insert", condition, _inserted_values(body, names))
    body.expect_end("WHEN or the end of the statement")
    if (clause.action == "insert") != (when == "not_matched") and clause.action != "nothing":
        raise UsageError(
            f"{clause.action.upper()} in a clause WHEN {when.upper().replace('_', ' ')}",
            "rows of the source that meet none are inserted, rows of the table are updated or deleted",
        )
    return clause


def _set_values(body: Words, names: tuple[str, ...]) -> tuple[tuple[str, Words], ...] | None:
    """The assignments of an UPDATE; None for all columns: `*`, `SET *`, `BY NAME` or nothing."""
    has_set = body.accept("SET")
    if body.accept("*") or (not has_set and (body.accept("BY", "NAME") or body.is_at_end)):
        return None
    values = _assignments(body.until(("WHERE",)), names)
    if body.peeks("WHERE"):
        raise NotSupported("WHERE in a clause of a merge", "a clause has its condition before THEN", "WHEN MATCHED AND ... THEN")
    return values


def _own_column(part: Words, names: tuple[str, ...]) -> str:
    """A column of the table, which may be qualified."""
    *qualifier, name = part.path("a column")
    part.expect_end("a comma")
    if qualifier and qualifier[-1].lower() != names[0].lower():
        raise UsageError(f"INSERT of the column {'.'.join([*qualifier, name])}", f"rows are inserted into {names[0]}")
    return name


def _inserted_values(body: Words, names: tuple[str, ...]) -> tuple[tuple[str | None, Words], ...] | None:
    """The columns and expressions of an INSERT; None for all columns: `*`, `BY NAME` or nothing."""
    if body.accept("*") or body.accept("BY", "NAME") or body.is_at_end:
        return None
    columns = [_own_column(part, names) for part in body.in_brackets().parts()] if body.peeks("(") else None
    lowered = [name.lower() for name in columns or ()]
    if twice := [name for name in columns or () if lowered.count(name.lower()) > 1]:
        raise UsageError(f"column '{twice[-1]}' is named twice in an INSERT of the merge", "a row has one value for it")
    body.expect("VALUES")
    values = body.in_brackets().parts()
    if columns is None:
        return tuple((None, value) for value in values)
    if len(values) != len(columns):
        raise UsageError(f"{len(columns)} columns and {len(values)} values in an INSERT of the merge")
    return tuple(zip(columns, values, strict=True))
