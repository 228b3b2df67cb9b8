"""The logical types of Paimon columns as immutable values (FORMAT.md, section 2.2; Java DataType, DataField)."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from paimon_cli.errors import UsageError
from paimon_cli.options.option_text import is_utf8

MAX_LENGTH = 2147483647
"""Length of STRING and BYTES."""

MAX_DECIMAL_PRECISION = 38
MAX_TIME_PRECISION = 9

STRING_ROOTS = frozenset({"CHAR", "VARCHAR"})
BINARY_ROOTS = frozenset({"BINARY", "VARBINARY"})
INTEGER_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
INTEGER_ROOTS = frozenset(INTEGER_BITS)
FLOATING_ROOTS = frozenset({"FLOAT", "DOUBLE"})
TIMESTAMP_ROOTS = frozenset({"TIMESTAMP", "TIMESTAMP_LTZ"})
MAX_NESTING = 30
"""Levels of nesting that every file format can be read back with, whichever types are nested. Readers of ORC stop at 32 (MAP), of
Parquet at 50 (ARRAY and MAP), of Avro at about 50.
"""
NEWER_ROOTS = frozenset({"BLOB", "VECTOR"})
"""Types that may occur in schemas, but that this engine neither reads nor writes."""

SPATIAL_ROOTS = frozenset({"GEOMETRY", "GEOGRAPHY"})
UNORDERED_ROOTS = NEWER_ROOTS | SPATIAL_ROOTS | {"ARRAY", "MAP", "MULTISET", "ROW", "VARIANT"}
"""Types whose values cannot be compared as keys."""


@dataclass(frozen=True)
class DataField:
    """One column, or one field of a ROW; `id` is unique in the table and survives renames."""

    id: int
    name: str
    type: DataType
    description: str | None = None
    default_value: str | None = None


@dataclass(frozen=True)
class DataType:
    """A logical type. `root` is its name without parameters and nullability; subclasses add the parameters."""

    root: str
    nullable: bool = field(default=True, kw_only=True)

    def with_nullable(self, nullable: bool) -> DataType:
        """This type with the given nullability."""
        return self if self.nullable == nullable else replace(self, nullable=nullable)

    @property
    def is_compact(self) -> bool:
        """Whether a DECIMAL fits into an int64 (p <= 18), or a TIMESTAMP into millis (p <= 3); true for all other types."""
        return True

    @property
    def children(self) -> tuple[DataType, ...]:
        """The types directly inside this one."""
        return ()

    def parts(self) -> Iterator[DataType]:
        """This type and all types nested in it, depth-first."""
        yield self
        for child in self.children:
            yield from child.parts()

    @property
    def depth(self) -> int:
        """How many nested types lie within each other here; 0 for an atomic type."""
        return max((child.depth + 1 for child in self.children), default=0)


class PlainType(DataType):
    """A type without parameters: BOOLEAN, a number other than DECIMAL, DATE or BLOB."""


@dataclass(frozen=True)
class StringType(DataType):
    """CHAR or VARCHAR; STRING is VARCHAR of length `MAX_LENGTH`."""

    length: int


class JsonText(StringType):
    """A STRING of JSON in the result of a query, such as a VARIANT: as JSON, it is shown as the value that it holds."""


@dataclass(frozen=True)
class BinaryType(DataType):
    """BINARY or VARBINARY; BYTES is VARBINARY of length `MAX_LENGTH`."""

    length: int


@dataclass(frozen=True)
class DecimalType(DataType):
    root: str = field(default="DECIMAL", init=False)
    precision: int
    scale: int

    @property
    def is_compact(self) -> bool:
        return self.precision <= 18


@dataclass(frozen=True)
class TimeType(DataType):
    root: str = field(default="TIME", init=False)
    precision: int


@dataclass(frozen=True)
class TimestampType(DataType):
    """TIMESTAMP or TIMESTAMP_LTZ (WITH LOCAL TIME ZONE); `precision` is the number of fractional digits, 0 to 9."""

    precision: int

    @property
    def is_compact(self) -> bool:
        return self.precision <= 3


@dataclass(frozen=True)
class SpatialType(BinaryType):
    """GEOMETRY or GEOGRAPHY, whose values are bytes (WKB); `arguments` is the text between its parentheses."""

    length: int = field(default=MAX_LENGTH, init=False)
    arguments: str | None = None


class NestedType(DataType):
    """A type that contains other types."""


@dataclass(frozen=True)
class ArrayType(NestedType):
    root: str = field(default="ARRAY", init=False)
    element: DataType

    @property
    def children(self) -> tuple[DataType, ...]:
        return (self.element,)


@dataclass(frozen=True)
class VectorType(NestedType):
    root: str = field(default="VECTOR", init=False)
    element: DataType
    length: int

    @property
    def children(self) -> tuple[DataType, ...]:
        return (self.element,)


@dataclass(frozen=True)
class MapType(NestedType):
    root: str = field(default="MAP", init=False)
    key: DataType
    value: DataType

    @property
    def children(self) -> tuple[DataType, ...]:
        return self.key, self.value


@dataclass(frozen=True)
class MultisetType(NestedType):
    """A bag of elements, stored like a MAP from each element to its count."""

    root: str = field(default="MULTISET", init=False)
    element: DataType

    @property
    def key(self) -> DataType:
        return self.element

    @property
    def value(self) -> DataType:
        return _COUNT

    @property
    def children(self) -> tuple[DataType, ...]:
        return self.element, _COUNT


@dataclass(frozen=True)
class RowType(NestedType):
    root: str = field(default="ROW", init=False)
    fields: tuple[DataField, ...]

    @property
    def children(self) -> tuple[DataType, ...]:
        return tuple(one.type for one in self.fields)


@dataclass(frozen=True)
class VariantType(RowType):
    """A value of any type. It is stored as a ROW of two byte strings, whose fields are never shown."""

    root: str = field(default="VARIANT", init=False)
    fields: tuple[DataField, ...] = field(
        default=(
            DataField(0, "value", BinaryType("VARBINARY", MAX_LENGTH, nullable=False)),
            DataField(1, "metadata", BinaryType("VARBINARY", MAX_LENGTH, nullable=False)),
        ),
        init=False,
    )

    @property
    def children(self) -> tuple[DataType, ...]:
        return ()


BOOLEAN = PlainType("BOOLEAN")
TINYINT = PlainType("TINYINT")
SMALLINT = PlainType("SMALLINT")
INT = PlainType("INT")
BIGINT = PlainType("BIGINT")
FLOAT = PlainType("FLOAT")
DOUBLE = PlainType("DOUBLE")
DATE = PlainType("DATE")
STRING = StringType("VARCHAR", MAX_LENGTH)
BYTES = BinaryType("VARBINARY", MAX_LENGTH)
VARIANT = VariantType()
_COUNT = PlainType("INT", nullable=False)

_CONTROL_SPACES = frozenset("\t\n\v\f\r\x1c\x1d\x1e\x1f")
_NO_BREAK_SPACES = frozenset("\u00a0\u2007\u202f")
_ASCII_PRINTABLE = frozenset(map(chr, range(0x21, 0x7F)))


def is_java_whitespace(char: str) -> bool:
    """Java's `Character.isWhitespace`, which unlike Python's `isspace` excludes U+0085 and no-break spaces."""
    if char in _ASCII_PRINTABLE:
        return False
    return char in _CONTROL_SPACES or (char not in _NO_BREAK_SPACES and unicodedata.category(char) in ("Zs", "Zl", "Zp"))


def is_java_blank(text: str) -> bool:
    """Whether `text` is empty or consists of white space only, by Java's definition."""
    return all(map(is_java_whitespace, text))


def fields_of(t: DataType) -> tuple[DataField, ...]:
    """The fields of a ROW that a user can name; none of other types."""
    return t.fields if isinstance(t, RowType) and not isinstance(t, VariantType) else ()


def check_field_names(names: list[str]) -> None:
    """Raise `UsageError` unless the field names of a ROW or table are unique and not blank, as Java requires."""
    if any(is_java_blank(name) for name in names):
        raise UsageError("a field has a blank name", "field names need at least one character that is not white space")
    if odd := [name for name in names if not is_utf8(name)]:
        raise UsageError(f"the field name {odd[0]!r} is no text", "half of a surrogate pair is no character")
    doubles = sorted(name for name, times in Counter(names).items() if times > 1)
    if doubles:
        raise UsageError(f"field names are used twice: {', '.join(doubles)}", "field names must be unique", names=doubles)
