"""Parses types such as `DECIMAL(10, 2) NOT NULL` (FORMAT.md, section 2; Java DataTypeJsonParser), and quoted names."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import count
from typing import NamedTuple

from paimon_cli.datatypes.data_type import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    MAX_DECIMAL_PRECISION,
    MAX_LENGTH,
    MAX_TIME_PRECISION,
    SMALLINT,
    STRING,
    TINYINT,
    VARIANT,
    ArrayType,
    BinaryType,
    DataField,
    DataType,
    DecimalType,
    MapType,
    MultisetType,
    PlainType,
    RowType,
    SpatialType,
    StringType,
    TimestampType,
    TimeType,
    VectorType,
    check_field_names,
    is_java_whitespace,
)
from paimon_cli.errors import UsageError
from paimon_cli.options.option_text import did_you_mean

_QUOTED = re.compile(r"('(?:[^']|'')*'|`(?:[^`]|``)*`)")
_TOKEN = re.compile(r"'(?:[^']|'')*'|`(?:[^`]|``)*`|[(),<>:]|[^\s(),<>'`:]+|\S")
_PLAIN: dict[str, DataType] = {
    "BOOLEAN": BOOLEAN,
    "TINYINT": TINYINT,
    "SMALLINT": SMALLINT,
    "INT": INT,
    "INTEGER": INT,
    "BIGINT": BIGINT,
    "FLOAT": FLOAT,
    "DATE": DATE,
    "STRING": STRING,
    "BYTES": BYTES,
    "VARIANT": VARIANT,
    "BLOB": PlainType("BLOB"),
}
_SIZED = {"CHAR": StringType, "VARCHAR": StringType, "BINARY": BinaryType, "VARBINARY": BinaryType}
_OF_OTHERS = {
    **dict.fromkeys(("TEXT", "LONGTEXT", "MEDIUMTEXT", "TINYTEXT", "CLOB", "UUID", "JSON", "JSONB", "NVARCHAR"), "STRING"),
    **dict.fromkeys(("VARCHAR2", "NVARCHAR2", "STR", "ENUM"), "STRING"),
    **dict.fromkeys(("DATETIME", "DATETIME2", "TIMESTAMP_NTZ"), "TIMESTAMP"),
    **dict.fromkeys(("TIMESTAMPTZ", "TIMESTAMPLTZ", "TIMESTAMP_TZ", "DATETIMEOFFSET"), "TIMESTAMP_LTZ"),
    **dict.fromkeys(("LONG", "INT8", "INT64", "BIGSERIAL"), "BIGINT"),
    **dict.fromkeys(("INT4", "INT32", "SERIAL", "MEDIUMINT"), "INT"),
    **dict.fromkeys(("SHORT", "INT2", "INT16"), "SMALLINT"),
    **dict.fromkeys(("NUMBER", "MONEY"), "DECIMAL"),
    **dict.fromkeys(("REAL", "FLOAT4", "FLOAT32"), "FLOAT"),
    **dict.fromkeys(("FLOAT8", "FLOAT64"), "DOUBLE"),
    **dict.fromkeys(("BYTEA", "RAW"), "BYTES"),
    "BOOL": "BOOLEAN",
    "BYTE": "TINYINT",
}
"""What other databases call our types, for hints: a similar name may be another type."""

MAX_DEPTH, _SHOWN = 100, 60
"""Levels of nesting that are read, more than any file format can hold; characters of a long text in messages."""


class _Token(NamedTuple):
    text: str
    position: int


def parse_type_text(text: str, *, sql: bool = False) -> DataType:
    """Parse a type; keywords are case-insensitive. `sql` also allows `ARRAY<...>`, `MAP<...>` and `ROW<...>`.

    Raises `UsageError` that names the position and what was found there.
    """
    reader = _Reader(text, sql)
    result = reader.type()
    reader.expect_end()
    return result


class _Reader:
    """One pass over the tokens of a type text."""

    def __init__(self, text: str, sql: bool) -> None:
        parts = _QUOTED.split(text)  # each second one is a name or comment in quotes, which is taken as it is
        parts[::2] = ["".join(" " if is_java_whitespace(char) else char for char in part) for part in parts[::2]]
        self._text, self._sql = text, sql
        self._tokens = [_Token(match[0], match.start()) for match in _TOKEN.finditer("".join(parts))]
        self._next = self._depth = 0
        self._field_ids = count()

    def type(self) -> DataType:
        """Parse a type with its nullability, including Java's old suffix form `INT ARRAY`."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._error(f"it is nested more than {MAX_DEPTH} levels deep")
        result = self._nullability(self._bare_type())
        self._depth -= 1
        if self._take("ARRAY"):
            return self._nullability(ArrayType(result))
        return self._nullability(MultisetType(result)) if self._take("MULTISET") else result

    def expect_end(self) -> None:
        if self._next < len(self._tokens):
            raise self._error("unexpected text after the type")

    def _bare_type(self) -> DataType:
        word = self._peek().upper()
        if word in _PLAIN:
            self._advance()
            return _PLAIN[word]
        if word in _SIZED:
            self._advance()
            return _SIZED[word](word, self._argument(1, 1, MAX_LENGTH))
        special = self._special_types().get(word)
        if special is None:
            known = (*_PLAIN, *_SIZED, *self._special_types())
            meant = f"did you mean '{_OF_OTHERS[word]}'? " if word in _OF_OTHERS else did_you_mean(word, known)
            raise self._error("unknown type" if word else "a type is missing", meant)
        self._advance()
        return special()

    def _special_types(self) -> dict[str, Callable[[], DataType]]:
        types: dict[str, Callable[[], DataType]] = {
            "DOUBLE": self._double,
            "DECIMAL": self._decimal,
            "DEC": self._decimal,
            "NUMERIC": self._decimal,
            "TIME": self._time,
            "TIMESTAMP": self._timestamp,
            "TIMESTAMP_LTZ": lambda: TimestampType("TIMESTAMP_LTZ", self._argument(6, 0, MAX_TIME_PRECISION)),
            "GEOMETRY": lambda: SpatialType("GEOMETRY", arguments=self._raw_arguments()),
            "GEOGRAPHY": lambda: SpatialType("GEOGRAPHY", arguments=self._raw_arguments()),
        }
        if self._sql:
            types |= {
                "ARRAY": lambda: ArrayType(self._in_brackets()),
                "VECTOR": self._vector,
                "MULTISET": lambda: MultisetType(self._in_brackets()),
                **{"MAP": self._map, "ROW": self._row, "STRUCT": self._row},
            }
        return types

    def _double(self) -> DataType:
        self._take("PRECISION")
        return DOUBLE

    def _decimal(self) -> DataType:
        precision, scale = 10, 0
        if self._take("("):
            precision = self._integer(1, MAX_DECIMAL_PRECISION)
            if self._take(","):
                scale = self._integer(0, precision)
            self._expect(")")
        return DecimalType(precision, scale)

    def _time(self) -> DataType:
        precision = self._argument(0, 0, MAX_TIME_PRECISION)
        if self._take("WITHOUT"):
            self._expect("TIME", "ZONE")
        return TimeType(precision)

    def _timestamp(self) -> DataType:
        precision = self._argument(6, 0, MAX_TIME_PRECISION)
        if self._take("WITHOUT"):
            self._expect("TIME", "ZONE")
        elif self._take("WITH"):
            self._expect("LOCAL", "TIME", "ZONE")
            return TimestampType("TIMESTAMP_LTZ", precision)
        return TimestampType("TIMESTAMP", precision)

    def _in_brackets(self) -> DataType:
        self._expect("<")
        element = self.type()
        self._expect(">")
        return element

    def _vector(self) -> DataType:
        self._expect("<")
        element = self.type()
        self._expect(",")
        length = self._integer(1, MAX_LENGTH)
        self._expect(">")
        return VectorType(element, length)

    def _map(self) -> DataType:
        self._expect("<")
        key = self.type()
        self._expect(",")
        value = self.type()
        self._expect(">")
        return MapType(key, value)

    def _row(self) -> DataType:
        fields: list[DataField] = []
        self._expect("<")
        while not self._take(">"):
            if fields:
                self._expect(",")
            fields.append(self._row_field())
        check_field_names([field.name for field in fields])
        return RowType(tuple(fields))

    def _row_field(self) -> DataField:
        """Parse `name TYPE [COMMENT 'text']`; ids are numbered from 0, a field before its nested fields."""
        field_id, name = next(self._field_ids), self._peek()
        if not name or name[0] in "(),<>'":
            raise self._error("a field name is missing")
        self._advance()
        if name[0] == "`":
            name = name[1:-1].replace("``", "`")
        self._take(":")
        t = self.type()
        description = None
        if self._take("COMMENT"):
            quoted = self._peek()
            if quoted[:1] != "'":
                raise self._error("a quoted comment is missing")
            self._advance()
            description = quoted[1:-1].replace("''", "'")
        return DataField(field_id, name, t, description)

    def _nullability(self, t: DataType) -> DataType:
        if self._take("NOT"):
            self._expect("NULL")
            return t.with_nullable(False)
        self._take("NULL")
        return t

    def _argument(self, default: int, low: int, high: int) -> int:
        """Parse a number in parentheses; `default` if there are none."""
        if not self._take("("):
            return default
        number = self._integer(low, high)
        self._expect(")")
        return number

    def _integer(self, low: int, high: int) -> int:
        word = self._peek()
        if not (word.isascii() and word.isdigit()):
            raise self._error("a whole number is missing")
        digits = word.lstrip("0") or "0"  # Python converts only texts of some length
        if len(digits) > len(str(high)) or not low <= int(digits) <= high:
            raise self._error(f"a number from {low} to {high} is needed")
        self._advance()
        return int(digits)

    def _raw_arguments(self) -> str | None:
        if not self._take("("):
            return None
        parts = []
        while not self._take(")"):
            parts.append(self._peek())
            if not parts[-1]:
                raise self._error("')' is missing")
            self._advance()
        return "".join(parts).replace(",", ", ")

    def _peek(self) -> str:
        return self._tokens[self._next].text if self._next < len(self._tokens) else ""

    def _advance(self) -> None:
        self._next += 1

    def _take(self, word: str) -> bool:
        found = self._peek().upper() == word
        self._next += found
        return found

    def _expect(self, *words: str) -> None:
        for word in words:
            if not self._take(word):
                raise self._error(f"'{word}' is missing")

    def _error(self, why: str, question: str = "") -> UsageError:
        at_end = self._next >= len(self._tokens)
        position = len(self._text) if at_end else self._tokens[self._next].position
        found = "the end of the text" if at_end else f"'{self._tokens[self._next].text}'"
        shown = self._text if len(self._text) <= _SHOWN else f"{self._text[:_SHOWN]}..."
        return UsageError(
            f"cannot read the type '{shown}'",
            f"{why}: found {found} at position {position}",
            f"{question}write types like BIGINT NOT NULL, DECIMAL(10, 2), STRING or TIMESTAMP(3)",
            type=self._text,
            position=position,
        )


_NAME = re.compile(r'\s*(?:(?P<quoted>`(?:[^`]|``)+`|"(?:[^"]|"")+")\s*|(?P<plain>[^,`"\s][^,]*)?)(?:,|$)')


def quoted_name(name: str) -> str:
    """The name in backquotes, as conditions and `quoted_names` accept it."""
    return "`" + name.replace("`", "``") + "`"


def quoted_names(text: str) -> tuple[str, ...]:
    """Parse names separated by commas, plain, or in backquotes or double quotes (doubled inside).

    Raises `UsageError` if a quote is not closed.
    """
    names: list[str] = []
    position = 0
    while position < len(text):
        found = _NAME.match(text, position)
        if found is None:
            what = f"cannot read the names {text}"
            raise UsageError(what, "names are separated by commas, and quotes must be closed", 'such as id,`last name`,"a,b"')
        if found["quoted"]:
            quote = found["quoted"][0]
            names.append(found["quoted"][1:-1].replace(quote * 2, quote))
        elif found["plain"]:
            names.append(found["plain"].strip())
        position = found.end()
    return tuple(names)
