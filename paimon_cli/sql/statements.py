"""Scripts of SQL: cut into statements, and each into words.

sqlglot finds the tokens, so that a semicolon or a keyword within quotes, dollar quotes or comments is none. What a
statement hands to others, a query to DuckDB or a condition to our parser, is its text as it was written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from sqlglot import Token, TokenType
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import TokenError

from paimon_cli.errors import UsageError
from paimon_cli.options.option_text import shortened

_OPENING = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE}
CLOSING_SIGNS = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE}


class ScriptSql(DuckDB):
    """The tokens of DuckDB, and names in backticks. Keywords are words like others: what they mean depends on the statement."""

    class Tokenizer(DuckDB.Tokenizer):
        IDENTIFIERS: ClassVar[list[Any]] = ['"', "`"]
        KEYWORDS: ClassVar[dict[str, Any]] = {}
        COMMANDS: ClassVar[set[Any]] = set()  # sqlglot would take the text after COPY or SHOW up to the next `;` as one token


def quoted(name: str) -> str:
    """The name as SQL, in double quotes."""
    return '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True)
class Statement:
    """One statement of a script: its tokens, whose positions are those in `script`."""

    script: str
    tokens: tuple[Token, ...]

    @property
    def text(self) -> str:
        return self.script[self.tokens[0].start : self.tokens[-1].end + 1]

    @property
    def line(self) -> int:
        return self.script.count("\n", 0, self.tokens[0].start) + 1

    @property
    def shown(self) -> str:
        """The statement in one short line."""
        return shortened(" ".join(self.text.split()))

    def words(self) -> Words:
        return Words(self.script, self.tokens)


def statements_of(script: str) -> list[Statement]:
    """The statements of a script, without empty ones. Raises `UsageError` for a quote or a comment that is not closed."""
    try:
        tokens = ScriptSql().tokenize(script)
    except TokenError as error:
        raise UsageError("cannot read the SQL", "a quote or a comment is not closed", "write ' within a text as ''") from error
    parts: list[list[Token]] = [[]]
    for token in tokens:
        if token.token_type == TokenType.SEMICOLON:
            parts.append([])
        else:
            parts[-1].append(token)
    return [Statement(script, tuple(part)) for part in parts if part]


def is_complete(script: str) -> bool:
    """Whether the text ends with a semicolon that ends a statement, or holds none."""
    try:
        tokens = ScriptSql().tokenize(script)
    except TokenError:
        return False
    return not tokens or tokens[-1].token_type == TokenType.SEMICOLON


class Words:
    """A cursor over tokens. Callers name keywords in upper case; a name in quotes is no keyword."""

    def __init__(self, script: str, tokens: Sequence[Token]) -> None:
        self._script = script
        self.tokens = tokens
        self._next = 0

    @property
    def is_at_end(self) -> bool:
        return self._next == len(self.tokens)

    @property
    def rest(self) -> Words:
        """The tokens that are left."""
        return Words(self._script, self.tokens[self._next :])

    @property
    def text(self) -> str:
        """All tokens, as they were written."""
        return self._script[self.tokens[0].start : self.tokens[-1].end + 1] if self.tokens else ""

    def peeks(self, *words: str) -> bool:
        """Whether these keywords or signs are the next tokens."""
        ahead = self.tokens[self._next : self._next + len(words)]
        return len(ahead) == len(words) and all(is_word(token, word) for token, word in zip(ahead, words, strict=True))

    def accept(self, *words: str) -> bool:
        """Take these keywords or signs, if they are next."""
        if not self.peeks(*words):
            return False
        self._next += len(words)
        return True

    def expect(self, *words: str) -> None:
        if not self.accept(*words):
            raise self.unexpected(" ".join(words))

    def expect_end(self, meaning: str) -> None:
        """Raise `UsageError` if anything is left. `meaning`: what might have come."""
        if not self.is_at_end:
            raise self.unexpected(meaning)

    def unexpected(self, expected: str) -> UsageError:
        found = "the end of the statement" if self.is_at_end else f"'{shortened(self.rest.text)}'"
        at = len(self._script) if self.is_at_end else self.tokens[self._next].start
        line = self._script.count("\n", 0, at) + 1
        return UsageError(f"cannot read the statement: {expected} is expected before {found}", f"in line {line}")

    def name(self, meaning: str) -> str:
        """A name, without its quotes."""
        if self.is_at_end or not is_name(self.tokens[self._next]):
            raise self.unexpected(meaning)
        self._next += 1
        return str(self.tokens[self._next - 1].text)

    def path(self, meaning: str) -> tuple[str, ...]:
        """The parts of a name such as `db.table`. A path may be in single quotes, too, as in queries."""
        if not self.is_at_end and self.tokens[self._next].token_type == TokenType.STRING:
            self._next += 1
            return (self.tokens[self._next - 1].text,)
        parts = [self.name(meaning)]
        while self.accept("."):
            parts.append(self.name(meaning))
        check_names(parts)
        return tuple(parts)

    def table_name(self) -> str:
        """The name of a table, as `Catalog.table` takes it."""
        return ".".join(self.path("the name of a table"))

    def database_name(self) -> str:
        name = self.name("the name of a database")
        check_names([name], may_be_path=False)
        return name

    def alias(self, *keywords: str) -> str | None:
        """`AS name` or a bare name; None before one of these keywords, or at the end."""
        if self.accept("AS"):
            return self.name("an alias")
        if self.is_at_end or any(self.peeks(word) for word in keywords) or not is_name(self.tokens[self._next]):
            return None
        return self.name("an alias")

    def until(self, *ends: tuple[str, ...]) -> Words:
        """The tokens before the first of these sequences of keywords outside of brackets and CASE, or all that are left."""
        begin, depth = self._next, 0
        while not self.is_at_end:
            token = self.tokens[self._next]
            if depth == 0 and any(self.peeks(*end) for end in ends) and not self._is_distinct_from():
                break
            depth += _depth_of(token, self.tokens[self._next - 1] if self._next > begin else None)
            self._next += 1
        return Words(self._script, self.tokens[begin : self._next])

    def _is_distinct_from(self) -> bool:
        return self.peeks("FROM") and self._next > 0 and is_word(self.tokens[self._next - 1], "DISTINCT")

    def first(self, count: int) -> Words:
        """The next tokens, this many."""
        return Words(self._script, self.tokens[self._next : self._next + count])

    def after(self, part: Words) -> Words:
        """The tokens behind a part at the beginning of what is left."""
        return Words(self._script, self.tokens[self._next + len(part.tokens) :])

    def after_tokens(self, count: int) -> Words:
        """The tokens behind the first ones."""
        return Words(self._script, self.tokens[count:])

    def part(self, token: Token) -> str:
        """A token as it was written."""
        return self._script[token.start : token.end + 1]

    def between(self, begin: int, end: int) -> str:
        """The script between two positions."""
        return self._script[begin:end]

    def in_brackets(self) -> Words:
        """The tokens within brackets, which are next."""
        self.expect("(")
        inner = self.until((")",))
        self.expect(")")
        return inner

    def parts(self, separator: str = ",") -> list[Words]:
        """The tokens cut at each such sign or keyword outside of brackets."""
        whole, found = self.rest, []
        while True:
            found.append(whole.until((separator,)))
            if not whole.accept(separator):
                return found

    def names(self, meaning: str) -> tuple[str, ...]:
        """Names that are separated by commas."""
        found = []
        for part in self.parts():
            found.append(part.name(meaning))
            part.expect_end("a comma")
        return tuple(found)


def check_names(parts: Sequence[str], *, may_be_path: bool = True) -> None:
    """Raise `UsageError` if `db.table` would lead out of the warehouse. A single name of a table may be a path."""
    is_path = not (may_be_path and len(parts) == 1) and any(part in (".", "..") or {"/", "\\"} & set(part) for part in parts)
    if is_path or any("\0" in part for part in parts):
        shown = shortened(".".join(map(quoted, parts)).replace("\0", "\\0"))
        why = "the parts of a name have no /, \\ or NUL, and are not . or .."
        raise UsageError(f"{shown} is not a name", why, "the path of a table is a single name, in double quotes")


def is_word(token: Token, word: str) -> bool:
    return token.token_type not in (TokenType.STRING, TokenType.IDENTIFIER) and token.text.upper() == word


def is_name(token: Token) -> bool:
    return token.token_type in (TokenType.VAR, TokenType.IDENTIFIER)


def _depth_of(token: Token, before: Token | None) -> int:
    """How a token changes the depth of nesting: brackets and CASE do."""
    if token.token_type in _OPENING:
        return 1
    if token.token_type in CLOSING_SIGNS:
        return -1
    if before is not None and before.token_type == TokenType.DOT:  # a column of this name
        return 0
    return 1 if is_word(token, "CASE") else -1 if is_word(token, "END") else 0
