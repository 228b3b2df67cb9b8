"""Words, names, strings and signs of SQL text, read one after the other: what column lists and CREATE TABLE are parsed from."""

from __future__ import annotations

import re
from dataclasses import dataclass

from paimon_cli.errors import UsageError

WORD, QUOTED, STRING, NUMBER, SIGN, END = "word", "quoted name", "string", "number", "sign", "end"

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
    """`text` without quotes; `start` and `end` are offsets into the source."""

    kind: str
    text: str
    start: int
    end: int

    def is_word(self, *words: str) -> bool:
        return self.kind == WORD and self.text.upper() in words

    def is_sign(self, *signs: str) -> bool:
        return self.kind == SIGN and self.text in signs


class SqlTokens:
    """A cursor over the tokens of `source`; `what` names the text in messages. Keywords are given in upper case."""

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
        if token.kind != END:
            self._next += 1
        return token

    def accept(self, *words: str) -> bool:
        """Take these keywords or signs if they come next, all of them."""
        ahead = self._tokens[self._next : self._next + len(words)]
        if len(ahead) < len(words) or not all(_matches(token, word) for token, word in zip(ahead, words, strict=True)):
            return False
        self._next += len(words)
        return True

    def expect(self, *words: str) -> None:
        if not self.accept(*words):
            raise self.unexpected(f"'{' '.join(words)}'")

    def name(self, meaning: str) -> str:
        token = self.take()
        if token.kind not in (WORD, QUOTED) or not token.text:
            raise self.unexpected(meaning, token)
        return token.text

    def string(self, meaning: str) -> str:
        token = self.take()
        if token.kind != STRING:
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
        """The error for a token that does not fit; `hint` of the message shows where."""
        found = token or self.peek
        line = self.source.count("\n", 0, found.start) + 1
        column = found.start - (self.source.rfind("\n", 0, found.start) + 1) + 1
        shown = "the end" if found.kind == END else f"'{self.source[found.start : found.end]}'"
        return UsageError(f"cannot read {self._what}", f"expected {expected} but found {shown} at line {line}, column {column}")

    def _split(self) -> list[Token]:
        tokens, position = [], 0
        while position < len(self.source):
            match = _TOKEN.match(self.source, position)
            if match is None:
                raise self.unexpected("SQL (names with other signs stand in backticks)", self._character(position))
            if match.lastgroup != "space":
                tokens.append(_token(match))
            position = match.end()
        return [*tokens, Token(END, "", position, position)]

    def _character(self, position: int) -> Token:
        return Token(SIGN, self.source[position], position, position + 1)


def _token(match: re.Match[str]) -> Token:
    group, start, end = str(match.lastgroup), match.start(), match.end()
    text = match[group]
    if group == "tick":
        return Token(QUOTED, text.replace("``", "`"), start, end)
    if group == "double":
        return Token(QUOTED, text.replace('""', '"'), start, end)
    if group == "string":
        return Token(STRING, text.replace("''", "'"), start, end)
    return Token(group, text, start, end)


def _matches(token: Token, word: str) -> bool:
    return token.is_word(word) or token.is_sign(word)
