"""Columns spelled in SQL: `id BIGINT NOT NULL COMMENT 'x'`. Types are left to `datatypes`; field ids mean nothing yet."""

from __future__ import annotations

from dataclasses import dataclass

from paimon_cli.datatypes.field_types import DataField, parse_sql_type
from paimon_cli.table.sql_tokens import END, WORD, SqlTokens

_BEHIND_TYPE = ("NOT", "NULL", "COMMENT", "PRIMARY", "AS", "METADATA", "GENERATED", "DEFAULT")


@dataclass(frozen=True)
class SqlColumn:
    """A column as declared; `is_key` for a PRIMARY KEY behind it, `declared_null` when NULL was written out."""

    field: DataField
    is_key: bool = False
    declared_null: bool = False


def parse_column(text: str) -> SqlColumn:
    """One `-C` argument. UsageError with the position of what does not fit."""
    tokens = SqlTokens(text, f"column '{text}'")
    column = read_column(tokens)
    if tokens.peek.kind != END:
        raise tokens.unexpected("NOT NULL, COMMENT 'text' or the end of the column")
    return column


def read_column(tokens: SqlTokens) -> SqlColumn:
    """`name type` and the constraints behind it, in any order."""
    name = tokens.name("a column name")
    data_type = parse_sql_type(_type_text(tokens))
    nullable: bool | None = None
    is_key, comment = False, None
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
        else:
            break
    data_type = data_type.with_nullable(nullable is not False)
    return SqlColumn(DataField(0, name, data_type, comment), is_key, nullable is True)


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
