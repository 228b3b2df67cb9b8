"""Scripts of SQL: cut into statements, and each into words.

sqlglot finds the tokens, so that a semicolon or a keyword within quotes, dollar quotes or comments is none. What a
statement hands to others, a query to DuckDB or a condition to our parser, is its text as it was written.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from sqlglot import Token, TokenType
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import TokenError

from paimon_cli.errors import UsageError
from paimon_cli.options.option_text import shortened

_OPENING = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE}
_CLOSING = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE}
_ENDS_A_VALUE = {*_CLOSING, TokenType.STRING, TokenType.NUMBER, TokenType.IDENTIFIER, TokenType.VAR}
"""A colon right after one of these separates parts of a value, as in `a[1:n]`; it begins no parameter."""


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
        return len(ahead) == len(words) and all(_is(token, word) for token, word in zip(ahead, words, strict=True))

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
        return tuple(parts)

    def table_name(self) -> str:
        """The name of a table, as `Catalog.table` takes it."""
        return ".".join(self.path("the name of a table"))

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
        return self.peeks("FROM") and self._next > 0 and _is(self.tokens[self._next - 1], "DISTINCT")

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


def _is(token: Token, word: str) -> bool:
    return token.token_type not in (TokenType.STRING, TokenType.IDENTIFIER) and token.text.upper() == word


def is_name(token: Token) -> bool:
    return token.token_type in (TokenType.VAR, TokenType.IDENTIFIER)


def _depth_of(token: Token, before: Token | None) -> int:
    """How a token changes the depth of nesting: brackets and CASE do."""
    if token.token_type in _OPENING:
        return 1
    if token.token_type in _CLOSING:
        return -1
    if before is not None and before.token_type == TokenType.DOT:  # a column of this name
        return 0
    return 1 if _is(token, "CASE") else -1 if _is(token, "END") else 0


def rewritten(words: Words, replaced: Mapping[int, str]) -> str:
    """The text of the tokens, with other texts in place of some, by the positions at which they start."""
    script, position, texts = words._script, words.tokens[0].start, list[str]()
    for token in words.tokens:
        if token.start in replaced:
            texts += [script[position : token.start], replaced[token.start]]
            position = token.end + 1
    return "".join([*texts, script[position : words.tokens[-1].end + 1]])


def parameters_of(words: Words) -> Iterator[tuple[Token, str]]:
    """The colons that begin parameters such as `:id`, with the names after them."""
    for number, token in enumerate(words.tokens[:-1]):
        name, before = words.tokens[number + 1], words.tokens[number - 1] if number else None
        if token.token_type != TokenType.COLON or name.token_type != TokenType.VAR or name.start != token.end + 1:
            continue
        is_within = (
            before is not None and before.end + 1 == token.start and before.token_type in {*_ENDS_A_VALUE, TokenType.COLON}
        )
        if not is_within:
            yield token, name.text


def duckdb_text(words: Words, params: Collection[str]) -> str:
    """The text as DuckDB reads it: `name` is "name", and `:id` a variable of its session, if it is one of `params`.

    `VERSION AS OF 3` and `TIMESTAMP AS OF '...'`, with or without FOR, are AT (VERSION => 3) and AT (TIMESTAMP => '...').
    """
    replaced = {token.start: quoted(token.text) for token in words.tokens if _is_in_backticks(words, token)}
    replaced |= _versions(words)
    for colon, name in parameters_of(words):
        if name in params:
            replaced |= {colon.start: "", colon.end + 1: f"getvariable('{name}')"}
    return rewritten(words, replaced) if words.tokens else ""


_AS_OF = {"VERSION": ("VERSION", "SYSTEM_VERSION"), "TIMESTAMP": ("TIMESTAMP", "SYSTEM_TIME")}
"""Words before AS OF, by the unit that DuckDB has for them."""
_AFTER_A_TABLE = (
    *("WHERE", "JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "NATURAL", "SEMI", "ANTI", "ASOF", "POSITIONAL", "ON", "USING"),
    *(
        "GROUP",
        "ORDER",
        "HAVING",
        "LIMIT",
        "OFFSET",
        "QUALIFY",
        "WINDOW",
        "UNION",
        "INTERSECT",
        "EXCEPT",
        "SELECT",
        "TABLESAMPLE",
    ),
)


@dataclass(frozen=True)
class JoinedSide:
    """What names of columns become in the text of a condition or an expression. `prefix`: what stands in place of `o.`.

    `columns`: the columns by their names in lower case, as names in SQL are the same in upper and lower case.
    """

    prefix: str
    columns: Mapping[str, str]

    @staticmethod
    def of(prefix: str, names: Iterable[str]) -> JoinedSide:
        return JoinedSide(prefix, {name.lower(): quoted(name) for name in names})


def resolved(words: Words, sides: Mapping[str, JoinedSide], plain: Sequence[JoinedSide]) -> str:
    """The text with the qualifiers and names of columns that our own expressions have.

    `sides`: by the names before a dot, in lower case. `plain`: where names without one are looked up; those of the first side
    keep their form. A name before a bracket or a text is a function or a type.
    """
    tokens, replaced = words.tokens, dict[int, str]()
    for number, token in enumerate(tokens):
        if not is_name(token) or (number and tokens[number - 1].token_type == TokenType.DOT):
            continue
        if (whole := _with_database(tokens, number)) in sides:
            replaced |= {one.start: "" for one in tokens[number : number + 2]}
            replaced |= {tokens[number + 2].start: sides[whole].prefix, tokens[number + 3].start: ""}
            continue
        known, after = token.text.lower(), [following.token_type for following in tokens[number + 1 : number + 3]]
        side = sides.get(known) if after[:1] == [TokenType.DOT] and len(after) == 2 else None
        if side is not None:
            replaced |= {token.start: side.prefix, tokens[number + 1].start: ""}
            column = tokens[number + 2]
            if (name := side.columns.get(column.text.lower(), "")) not in ("", quoted(column.text)):
                replaced[column.start] = name
        elif after[:1] not in ([TokenType.L_PAREN], [TokenType.STRING]):
            for place, other in enumerate(plain):
                if (name := other.columns.get(known, "")) and (place or name != quoted(token.text)):
                    replaced[token.start] = f"{other.prefix if place else ''}{name}"
                if name:
                    break
    return rewritten(words, replaced) if tokens else ""


def _with_database(tokens: Sequence[Token], number: int) -> str:
    """`db.table` before a dot, in lower case; empty if there is none here."""
    signs = [token.token_type for token in tokens[number + 1 : number + 4]]
    if signs != [TokenType.DOT, TokenType.VAR, TokenType.DOT]:
        return ""
    return f"{tokens[number].text}.{tokens[number + 2].text}".lower()


def columns_in(words: Words, side: JoinedSide) -> set[str]:
    """The columns of a side that occur in the text, whatever they belong to there; as `side` writes them."""
    return {side.columns[token.text.lower()] for token in words.tokens if is_name(token) and token.text.lower() in side.columns}


def reads(words: Words, qualifier: str, columns: Collection[str], other: str) -> bool:
    """Whether the text may read a column of a side, by its name or without one. `other`: the name of the other side."""
    for number, token in enumerate(words.tokens):
        if not is_name(token) or (number and words.tokens[number - 1].token_type == TokenType.DOT):
            continue
        known, after = token.text.lower(), words.tokens[number + 1 : number + 2]
        is_qualified = bool(after) and after[0].token_type == TokenType.DOT
        if is_qualified and known in (qualifier.lower(), other.lower()):
            if known == qualifier.lower():
                return True
        elif known in columns:
            return True
    return False


def _versions(words: Words) -> dict[int, str]:
    replaced: dict[int, str] = {}
    for number, token in enumerate(words.tokens):
        unit = next((unit for unit, spellings in _AS_OF.items() if any(_is(token, one) for one in spellings)), None)
        rest = words.after_tokens(number + 1)
        if unit is None or not rest.accept("AS", "OF"):
            continue
        rest.accept("TIMESTAMP")
        literal = rest.rest.first(1).tokens
        if not literal or literal[0].token_type not in (TokenType.NUMBER, TokenType.STRING):
            continue
        if number and _is(words.tokens[number - 1], "FOR"):
            replaced[words.tokens[number - 1].start] = ""
        replaced |= {words.tokens[number + 1].start: "", words.tokens[number + 2].start: ""}
        if len(words.tokens) > number + 3 and _is(words.tokens[number + 3], "TIMESTAMP"):
            replaced[words.tokens[number + 3].start] = ""
        alias = _alias_after(words.tokens, literal[0])
        replaced |= {one.start: "" for one in alias}
        replaced[token.start] = f"{'AS ' + words.part(alias[-1]) + ' ' if alias else ''}AT ({unit} =>"
        replaced[literal[0].start] = f"{words.part(literal[0])})"
    return replaced


def _alias_after(tokens: Sequence[Token], literal: Token) -> Sequence[Token]:
    """The alias of a table behind its version, where DuckDB wants it before."""
    after = [token for token in tokens if token.start > literal.start][:2]
    if len(after) == 2 and _is(after[0], "AS") and is_name(after[1]):
        return after
    return after[:1] if after and is_name(after[0]) and not any(_is(after[0], word) for word in _AFTER_A_TABLE) else []


def _is_in_backticks(words: Words, token: Token) -> bool:
    return token.token_type == TokenType.IDENTIFIER and words._script[token.start] == "`"
