"""Parses SQL column definitions such as `id BIGINT NOT NULL COMMENT 'x'`."""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import dataclass

from paimon_cli.datatypes.data_type import DataField
from paimon_cli.datatypes.field_types import parse_sql_type
from paimon_cli.errors import UsageError


class TokenKind:
    """Kinds of tokens, as messages name them."""

    WORD = "word"
    QUOTED = "quoted name"
    STRING = "string"
    NUMBER = "number"
    SIGN = "sign"
    END = "end"


_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*|/\*.*?\*/)
      | `(?P<tick>(?:[^`]|``)*)`
      | "(?P<double>(?:[^"]|"")*)"
      | '(?P<string>(?:[^']|'')*)'
      | (?P<number>[+-]?\d+(?:\.\d+)?)
      | (?P<word>[^\W\d]\w*)
      | (?P<sign>[(),.<>=:;])""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True)
class Token:
    """A token of a column definition. `text` is unquoted; `start` and `end` are offsets into the source."""

    kind: str
    text: str
    start: int
    end: int

    def is_word(self, *words: str) -> bool:
        return self.kind == TokenKind.WORD and self.text.upper() in words

    def is_sign(self, *signs: str) -> bool:
        return self.kind == TokenKind.SIGN and self.text in signs


class SqlTokens:
    """A cursor over the tokens of `source`, which messages call `what`. Callers pass keywords in upper case."""

    def __init__(self, source: str, what: str) -> None:
        self.source = source
        self._what = what
        self._tokens = self._split()
        self._next = 0

    @property
    def peek(self) -> Token:
        return self._tokens[self._next]

    def take(self) -> Token:
        token = self.peek
        if token.kind != TokenKind.END:
            self._next += 1
        return token

    def accept(self, *words: str) -> bool:
        """Consume these keywords or symbols if they are the next tokens."""
        ahead = self._tokens[self._next : self._next + len(words)]
        if len(ahead) < len(words) or not all(_matches(token, word) for token, word in zip(ahead, words, strict=True)):
            return False
        self._next += len(words)
        return True

    def expect(self, *words: str) -> None:
        if not self.accept(*words):
            raise self.unexpected(f"'{' '.join(words)}'")

    def expect_once(self, seen: set[str], *words: str) -> None:
        """Raise `UsageError` if the next of these words is among those that were seen: the last one would hide the first."""
        token = self.peek
        if token.is_word(*words):
            if token.text.upper() in seen:
                raise self.unexpected("each clause once")
            seen.add(token.text.upper())

    def name(self, meaning: str) -> str:
        token = self.take()
        if token.kind not in (TokenKind.WORD, TokenKind.QUOTED) or not token.text:
            raise self.unexpected(meaning, token)
        return token.text

    def string(self, meaning: str) -> str:
        token = self.take()
        if token.kind != TokenKind.STRING:
            raise self.unexpected(f"{meaning} in single quotes", token)
        return token.text

    def names_in_parentheses(self, meaning: str) -> tuple[str, ...]:
        self.expect("(")
        names = [self.name(meaning)]
        while self.accept(","):
            names.append(self.name(meaning))
        self.expect(")")
        return tuple(names)

    def unexpected(self, expected: str, token: Token | None = None) -> UsageError:
        """The error for an unexpected token; it gives the line and column."""
        found = token or self.peek
        line = self.source.count("\n", 0, found.start) + 1
        column = found.start - (self.source.rfind("\n", 0, found.start) + 1) + 1
        shown = "the end" if found.kind == TokenKind.END else f"'{self.source[found.start : found.end]}'"
        return UsageError(f"cannot read {self._what}", f"expected {expected} but found {shown} at line {line}, column {column}")

    def _split(self) -> list[Token]:
        tokens, position = [], 0
        while position < len(self.source):
            match = _TOKEN.match(self.source, position)
            if match is None:
                raise self.unexpected("SQL (quote names with other characters in backticks)", self._character(position))
            if match.lastgroup != "space":
                tokens.append(_token(match))
            position = match.end()
        return [*tokens, Token(TokenKind.END, "", position, position)]

    def _character(self, position: int) -> Token:
        return Token(TokenKind.SIGN, self.source[position], position, position + 1)


def _token(match: re.Match[str]) -> Token:
    group, start, end = str(match.lastgroup), match.start(), match.end()
    text = match[group]
    if group == "tick":
        return Token(TokenKind.QUOTED, text.replace("``", "`"), start, end)
    if group == "double":
        return Token(TokenKind.QUOTED, text.replace('""', '"'), start, end)
    if group == "string":
        return Token(TokenKind.STRING, text.replace("''", "'"), start, end)
    return Token(group, text, start, end)


def _matches(token: Token, word: str) -> bool:
    return token.is_word(word) or token.is_sign(word)


_AFTER_TYPE = ("NOT", "NULL", "COMMENT", "PRIMARY", "AS", "METADATA", "GENERATED", "DEFAULT", "FIRST", "AFTER")


@dataclass(frozen=True)
class SqlColumn:
    """A column as declared. `is_key`: it has PRIMARY KEY; `declared_null`: NULL was written explicitly.

    `nullable` is None if neither NULL nor NOT NULL was written.
    """

    field: DataField
    is_key: bool = False
    declared_null: bool = False
    nullable: bool | None = None


def parse_column(text: str) -> SqlColumn:
    """Parse one `-C` argument. Raises `UsageError` with the position of the first unexpected token."""
    tokens = SqlTokens(text, f"column '{text}'")
    column = read_column(tokens)
    _expect_end(tokens)
    return column


def parse_path(text: str) -> tuple[str, ...]:
    """Parse `a` or, for a nested column, `a.b.c`; names with other characters are quoted in backticks."""
    tokens = SqlTokens(text, f"column '{text}'")
    path = _path(tokens)
    _expect_end(tokens)
    return path


def parse_nested_column(text: str) -> tuple[tuple[str, ...], SqlColumn]:
    """Parse `a.b TYPE ...` into its path and its declaration."""
    tokens = SqlTokens(text, f"column '{text}'")
    path = _path(tokens)
    column = read_declaration(tokens, path[-1])
    _expect_end(tokens)
    return path, column


@dataclass(frozen=True)
class PlacedColumn:
    """One column of ALTER TABLE ... ADD COLUMNS: its declaration as text, and where it goes."""

    declared: str
    first: bool = False
    after: str | None = None


def split_placed_columns(text: str) -> list[PlacedColumn]:
    """Split `a INT FIRST, b MAP<STRING, INT> AFTER a`, with or without brackets around it all."""
    tokens = SqlTokens(text, "the columns to add")
    in_brackets = tokens.accept("(")
    found = [_placed_column(tokens)]
    while tokens.accept(","):
        found.append(_placed_column(tokens))
    if in_brackets:
        tokens.expect(")")
    _expect_end(tokens)
    return found


def _placed_column(tokens: SqlTokens) -> PlacedColumn:
    start = tokens.peek.start
    read_declaration(tokens, _path(tokens)[-1])
    declared = tokens.source[start : tokens.peek.start].rstrip()
    first = tokens.accept("FIRST")
    return PlacedColumn(declared, first, tokens.name("a column") if tokens.accept("AFTER") else None)


def parse_declaration(text: str, name: str) -> SqlColumn:
    """Parse a declaration without its name: `TYPE ...`."""
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
    if tokens.peek.kind != TokenKind.END:
        raise tokens.unexpected("NOT NULL, DEFAULT value, COMMENT 'text' or the end of the column")


def read_column(tokens: SqlTokens) -> SqlColumn:
    """Read `name type` and the constraints after it, in any order."""
    return read_declaration(tokens, tokens.name("a column name"))


def read_declaration(tokens: SqlTokens, name: str) -> SqlColumn:
    """Read `type` and the constraints after it, in any order."""
    data_type = parse_sql_type(_type_text(tokens))
    nullable: bool | None = None
    is_key, comment, default, seen = False, None, None, set[str]()
    while True:
        tokens.expect_once(seen, "COMMENT", "DEFAULT")
        if nullable is not None and tokens.peek.is_word("NOT", "NULL"):
            raise tokens.unexpected("NULL or NOT NULL once")
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


def check_named_once(key: str, options: Container[str]) -> None:
    """Raise `UsageError` for an option that a statement has given already."""
    if key in options:
        raise UsageError(f"option '{key}' is given twice", "one of its values would hide the other", "give it once")


def _default(tokens: SqlTokens) -> str | None:
    """The literal as text, which is how schemas store defaults. DEFAULT NULL is the same as no default."""
    token = tokens.take()
    if token.kind not in (TokenKind.NUMBER, TokenKind.STRING, TokenKind.WORD):
        raise tokens.unexpected("a value (strings in single quotes)", token)
    if token.is_word("NULL"):
        return None
    quoted = len(token.text) > 1 and token.text.startswith("'") and token.text.endswith("'")
    return f"'{token.text}'" if quoted else token.text


def _type_text(tokens: SqlTokens) -> str:
    """The source text of the type, which ends at a constraint, or at the comma or parenthesis of the enclosing list."""
    first = last = tokens.peek
    if first.kind != TokenKind.WORD:
        raise tokens.unexpected("a type")
    depth = 0
    while (token := tokens.peek).kind != TokenKind.END:
        if depth == 0 and (token.is_sign(",", ")", ";") or token.is_word(*_AFTER_TYPE)):
            break
        depth += token.is_sign("<", "(") - token.is_sign(">", ")")
        last = tokens.take()
    return tokens.source[first.start : last.end]
