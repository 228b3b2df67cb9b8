"""Translates filters that DuckDB passes to a scan into SQL conditions, by which files are skipped.

PyArrow exposes an expression only as text. Parts that cannot be parsed with certainty are left out, so that the condition keeps
more rows; the caller applies the original expression to the rows that it reads.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from paimon_cli.datatypes.data_type import INTEGER_ROOTS, BinaryType, DataType, DecimalType, StringType, TimestampType
from paimon_cli.datatypes.type_text import quoted_name
from paimon_cli.errors import UsageError
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.sql.predicate import parse_predicate

_OPERATORS = {"==": "=", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_COMPARED = re.compile(r' (==|!=|<=|>=|<|>) ("(?:[^"\\]|\\.)*"|[^()"]+)\)')
_NULL_TEST = " {nan_is_null=false}"
_ONE_OF = re.compile(r"\{value_set=\w+(?:\[\w+\])?:\[([^\[\]]*)\], null_matching_behavior=\w+\}\), null\[bool\]\)")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?Z?")


def pushed_condition(text: str, schema: TableSchema) -> str | None:
    """A SQL condition that is true for at least all rows that satisfy the expression with this text; None if there is none."""
    try:
        condition = _Reader(text, schema).whole()
        if condition is not None:
            parse_predicate(condition, schema)
    except (_Unreadable, UsageError):
        return None
    return condition


class _Unreadable(Exception):
    """The text of the expression has an unknown form."""


class _Reader:
    """Parses the text of an expression from left to right."""

    def __init__(self, text: str, schema: TableSchema) -> None:
        self._text = text
        self._position = 0
        names = sorted(schema.field_names, key=len, reverse=True)
        self._types: Mapping[str, DataType] = {name: schema.field(name).type for name in names}

    def whole(self) -> str | None:
        condition = self._expression()
        if self._position != len(self._text):
            raise _Unreadable
        return condition

    def _expression(self) -> str | None:
        if self._takes("is_null("):
            return self._tested("IS NULL", f",{_NULL_TEST})")
        if self._takes("is_valid("):
            return self._tested("IS NOT NULL", ")")
        if self._takes("invert(is_null("):
            return self._tested("IS NOT NULL", f",{_NULL_TEST}))")
        if self._takes("if_else(is_valid("):
            return self._one_of()
        self._expect("(")
        compared = self._compared()
        return self._joined() if compared is None else self._comparison(*compared)

    def _joined(self) -> str | None:
        """Two conditions joined by AND or OR. If one operand of an AND is unknown, the other still holds."""
        left = self._expression()
        is_and = self._takes(" and ")
        if not is_and:
            self._expect(" or ")
        right = self._expression()
        self._expect(")")
        if left is None or right is None:
            return (left or right) if is_and else None
        return f"({left} {'AND' if is_and else 'OR'} {right})"

    def _compared(self) -> tuple[str, re.Match[str]] | None:
        """The column name at the current position, with its operator and literal; None if another condition starts here."""
        for name in self._here():
            if found := _COMPARED.match(self._text, self._position + len(name)):
                return name, found
        return None

    def _here(self) -> list[str]:
        return [name for name in self._types if self._text.startswith(name, self._position)]

    def _comparison(self, name: str, found: re.Match[str]) -> str | None:
        self._position = found.end()
        literal = _literal(found[2], self._types[name])
        return None if literal is None else f"{quoted_name(name)} {_OPERATORS[found[1]]} {literal}"

    def _tested(self, test: str, end: str) -> str:
        name = self._name(end)
        self._expect(end)
        return f"{quoted_name(name)} {test}"

    def _one_of(self) -> str | None:
        name = self._name("), is_in(")
        self._expect(f"), is_in({name}, ")
        found = _ONE_OF.match(self._text, self._position)
        if found is None:
            raise _Unreadable
        self._position = found.end()
        literals = [_literal(item.strip(), self._types[name]) for item in found[1].split(",")]
        known = [literal for literal in literals if literal is not None]
        return f"{quoted_name(name)} IN ({', '.join(known)})" if len(known) == len(literals) else None

    def _name(self, end: str) -> str:
        for name in self._here():
            if self._text.startswith(end, self._position + len(name)):
                self._position += len(name)
                return name
        raise _Unreadable

    def _takes(self, word: str) -> bool:
        if not self._text.startswith(word, self._position):
            return False
        self._position += len(word)
        return True

    def _expect(self, word: str) -> None:
        if not self._takes(word):
            raise _Unreadable


def _literal(text: str, t: DataType) -> str | None:
    """The literal in SQL; None if its meaning is not certain."""
    if isinstance(t, StringType):
        return "'" + text[1:-1].replace("'", "''") + "'" if text[:1] == '"' and "\\" not in text else None
    if isinstance(t, BinaryType):
        return f"X'{text[1:-1]}'" if re.fullmatch('"(?:[0-9A-F]{2})+"', text) else None
    if t.root in INTEGER_ROOTS or isinstance(t, DecimalType):
        return text if _NUMBER.fullmatch(text) else None
    if t.root == "DATE":
        return f"DATE '{text}'" if _DAY.fullmatch(text) else None
    if isinstance(t, TimestampType):
        return f"TIMESTAMP '{text}'" if _MOMENT.fullmatch(text) else None
    return text if t.root == "BOOLEAN" and text in ("true", "false") else None
