"""Texts of statements as others read them: as DuckDB does, and as our own conditions and expressions do."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import Token, TokenType

from paimon_cli.sql.parameters import is_list
from paimon_cli.sql.statements import CLOSING_SIGNS, Words, is_name, is_word, quoted

_ENDS_A_VALUE = {*CLOSING_SIGNS, TokenType.STRING, TokenType.NUMBER, TokenType.IDENTIFIER, TokenType.VAR}
"""A colon right after one of these separates parts of a value, as in `a[1:n]`; it begins no parameter."""


def rewritten(words: Words, replaced: Mapping[int, str]) -> str:
    """The text of the tokens, with other texts in place of some, by the positions at which they start."""
    position, texts = words.tokens[0].start, list[str]()
    for token in words.tokens:
        if token.start in replaced:
            texts += [words.between(position, token.start), replaced[token.start]]
            position = token.end + 1
    return "".join([*texts, words.between(position, words.tokens[-1].end + 1)])


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


def duckdb_text(words: Words, params: Mapping[str, Any]) -> str:
    """The text as DuckDB reads it: `name` is "name", and `:id` a variable of its session, if it is one of `params`.

    `IN (:ids)` with a list is `IN getvariable('ids')`, without its brackets, as a list in brackets would be one value of them.
    `VERSION AS OF 3` and `TIMESTAMP AS OF '...'`, with or without FOR, are AT (VERSION => 3) and AT (TIMESTAMP => '...').
    """
    replaced = {token.start: quoted(token.text) for token in words.tokens if _is_in_backticks(words, token)}
    replaced |= _versions(words)
    for colon, name in parameters_of(words):
        if name in params:
            replaced |= {colon.start: "", colon.end + 1: f"getvariable('{name}')"}
            if is_list(params[name]):
                replaced |= {bracket.start: " " for bracket in _brackets_around(words.tokens, colon)}
    return rewritten(words, replaced) if words.tokens else ""


def _brackets_around(tokens: Sequence[Token], colon: Token) -> Sequence[Token]:
    """Those of `IN (:name)`, which are the tokens before and after a parameter; none for other places and longer lists."""
    number = tokens.index(colon)
    around = (*tokens[number - 1 : number], *tokens[number + 2 : number + 3])
    is_whole = [token.token_type for token in around] == [TokenType.L_PAREN, TokenType.R_PAREN]
    return around if is_whole and number > 1 and is_word(tokens[number - 2], "IN") else ()


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


def columns_in(words: Words, side: JoinedSide, names: Collection[str]) -> set[str]:
    """The columns of a side that the text may read; as `side` writes them. `names`: what they may be qualified with.

    Columns of a subquery that are named alike count, too, unless they are qualified there, or AS gives the name.
    """
    tokens, own, found = words.tokens, {name.lower() for name in names}, set[str]()
    for number, token in enumerate(tokens):
        column = side.columns.get(token.text.lower()) if is_name(token) else None
        if column is None or (number and is_word(tokens[number - 1], "AS")):
            continue
        is_qualified = number > 1 and tokens[number - 1].token_type == TokenType.DOT
        if not is_qualified or tokens[number - 2].text.lower() in own:
            found.add(column)
    return found


def reads_whole_rows(words: Words, names: Collection[str]) -> bool:
    """Whether the text may read all columns of a table without naming them: the table as a value, `t.*` or `COLUMNS(...)`.

    `names`: of the table. The star of a subquery has only columns of its own tables.
    """
    tokens, own = words.tokens, {name.lower() for name in names}
    for number, token in enumerate(tokens):
        after = [following.token_type for following in tokens[number + 1 : number + 3]]
        if is_word(token, "COLUMNS") and after[:1] == [TokenType.L_PAREN]:
            return True
        is_qualified = number > 0 and tokens[number - 1].token_type == TokenType.DOT
        if not is_name(token) or is_qualified or token.text.lower() not in own or after[:1] == [TokenType.L_PAREN]:
            continue
        if after[:1] != [TokenType.DOT] or after == [TokenType.DOT, TokenType.STAR]:
            return True
    return False


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
        unit = next((unit for unit, spellings in _AS_OF.items() if any(is_word(token, one) for one in spellings)), None)
        if unit is None:
            continue
        rest = words.after_tokens(number + 1)
        if not rest.accept("AS", "OF"):
            continue
        rest.accept("TIMESTAMP")
        literal = rest.rest.first(1).tokens
        if not literal or literal[0].token_type not in (TokenType.NUMBER, TokenType.STRING):
            continue
        if number and is_word(words.tokens[number - 1], "FOR"):
            replaced[words.tokens[number - 1].start] = ""
        replaced |= {words.tokens[number + 1].start: "", words.tokens[number + 2].start: ""}
        if len(words.tokens) > number + 3 and is_word(words.tokens[number + 3], "TIMESTAMP"):
            replaced[words.tokens[number + 3].start] = ""
        alias = _alias_after(words.tokens, literal[0])
        replaced |= {one.start: "" for one in alias}
        replaced[token.start] = f"{'AS ' + words.part(alias[-1]) + ' ' if alias else ''}AT ({unit} =>"
        replaced[literal[0].start] = f"{words.part(literal[0])})"
    return replaced


def _alias_after(tokens: Sequence[Token], literal: Token) -> Sequence[Token]:
    """The alias of a table behind its version, where DuckDB wants it before."""
    after = [token for token in tokens if token.start > literal.start][:2]
    if len(after) == 2 and is_word(after[0], "AS") and is_name(after[1]):
        return after
    return after[:1] if after and is_name(after[0]) and not any(is_word(after[0], word) for word in _AFTER_A_TABLE) else []


def _is_in_backticks(words: Words, token: Token) -> bool:
    return token.token_type == TokenType.IDENTIFIER and words.part(token)[0] == "`"
