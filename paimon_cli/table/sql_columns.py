"""Columns spelled in SQL: `id BIGINT NOT NULL COMMENT 'x'`. Types are left to `datatypes`; field ids mean nothing yet."""

from __future__ import annotations

from dataclasses import dataclass

from paimon_cli.datatypes.data_type import DataField
from paimon_cli.datatypes.field_types import parse_sql_type
from paimon_cli.table.sql_tokens import END, NUMBER, STRING, WORD, SqlTokens

_BEHIND_TYPE = ("NOT", "NULL", "COMMENT", "PRIMARY", "AS", "METADATA", "GENERATED", "DEFAULT")


@dataclass(frozen=True)
class SqlColumn:
    """A column as declared; `is_key` for a PRIMARY KEY behind it, `declared_null` when NULL was written out.

    `nullable` is None when neither NULL nor NOT NULL was.
    """

    field: DataField
    is_key: bool = False
    declared_null: bool = False
    nullable: bool | None = None


def parse_column(text: str) -> SqlColumn:
    """One `-C` argument. UsageError with the position of what does not fit."""
    tokens = SqlTokens(text, f"column '{text}'")
    column = read_column(tokens)
    _expect_end(tokens)
    return column


def parse_path(text: str) -> tuple[str, ...]:
    """`a` or, inside of a column, `a.b.c`; names with other signs stand in backticks."""
    tokens = SqlTokens(text, f"column '{text}'")
    path = _path(tokens)
    _expect_end(tokens)
    return path


def parse_nested_column(text: str) -> tuple[tuple[str, ...], SqlColumn]:
    """Path and declaration of `a.b TYPE ...`."""
    tokens = SqlTokens(text, f"column '{text}'")
    path = _path(tokens)
    column = read_declaration(tokens, path[-1])
    _expect_end(tokens)
    return path, column


def parse_declaration(text: str, name: str) -> SqlColumn:
    """`TYPE ...`, a declaration without its name."""
    tokens = SqlTokens(text, f"type '{text}'")
    column = read_declaration(tokens, name)
    _expect_end(tokens)
    return column


def _path(tokens: SqlTokens) -> tuple[str, ...]:
    names = [tokens.name("a column name")]
    while tokens.accept("."):
        names.append(tokens.name("a field name"))
    return tuple(names)


def _expect_end(tokens: SqlTokens) -> None:
    if tokens.peek.kind != END:
        raise tokens.unexpected("NOT NULL, DEFAULT value, COMMENT 'text' or the end of the column")


def read_column(tokens: SqlTokens) -> SqlColumn:
    """`name type` and the constraints behind it, in any order."""
    return read_declaration(tokens, tokens.name("a column name"))


def read_declaration(tokens: SqlTokens, name: str) -> SqlColumn:
    """`type` and the constraints behind it, in any order."""
    data_type = parse_sql_type(_type_text(tokens))
    nullable: bool | None = None
    is_key, comment, default = False, None, None
    while True:
        if tokens.accept("NOT", "NULL"):
            nullable = False
        elif tokens.accept("NULL"):
            nullable = True
        elif tokens.accept("PRIMARY", "KEY"):
            is_key = True
            tokens.accept("NOT", "ENFORCED")
        elif tokens.accept("COMMENT"):
            comment = tokens.string("a comment")
        elif tokens.accept("DEFAULT"):
            default = _default(tokens)
        else:
            break
    data_type = data_type.with_nullable(nullable is not False)
    return SqlColumn(DataField(0, name, data_type, comment, default), is_key, nullable is True, nullable)


def _default(tokens: SqlTokens) -> str | None:
    """A literal as schemas keep it: its text. NULL is no default."""
    token = tokens.take()
    if token.kind not in (NUMBER, STRING, WORD):
        raise tokens.unexpected("a value, text in single quotes", token)
    if token.is_word("NULL"):
        return None
    quoted = len(token.text) > 1 and token.text.startswith("'") and token.text.endswith("'")
    return f"'{token.text}'" if quoted else token.text


def _type_text(tokens: SqlTokens) -> str:
    """The source from here to what cannot belong to the type: a constraint, or a comma or bracket of the list around."""
    first = last = tokens.peek
    if first.kind != WORD:
        raise tokens.unexpected("a type")
    depth = 0
    while (token := tokens.peek).kind != END:
        if depth == 0 and (token.is_sign(",", ")", ";") or token.is_word(*_BEHIND_TYPE)):
            break
        depth += token.is_sign("<", "(") - token.is_sign(">", ")")
        last = tokens.take()
    return tokens.source[first.start : last.end]
