"""The logical types of Paimon columns as immutable values (FORMAT.md, section 2.2; Java DataType, DataField)."""

from __future__ import annotations

from dataclasses import dataclass, replace

MAX_LENGTH = 2147483647
"""Length of STRING and BYTES."""

MAX_DECIMAL_PRECISION = 38
MAX_TIME_PRECISION = 9

STRING_ROOTS = frozenset({"CHAR", "VARCHAR"})
BINARY_ROOTS = frozenset({"BINARY", "VARBINARY"})
INTEGER_ROOTS = frozenset({"TINYINT", "SMALLINT", "INT", "BIGINT"})
FLOATING_ROOTS = frozenset({"FLOAT", "DOUBLE"})
TIMESTAMP_ROOTS = frozenset({"TIMESTAMP", "TIMESTAMP_LTZ"})
NESTED_ROOTS = frozenset({"ARRAY", "MAP", "MULTISET", "ROW", "VECTOR"})
NEWER_ROOTS = frozenset({"VARIANT", "BLOB", "VECTOR", "GEOMETRY", "GEOGRAPHY"})
"""Types that schemas may name but this engine neither reads nor writes."""


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
    """A logical type: `root` names it, the other attributes are set only where the root has them.

    STRING is VARCHAR and BYTES is VARBINARY of length `MAX_LENGTH`. `element` belongs to ARRAY, MULTISET and VECTOR, `key` and
    `value` to MAP, `fields` to ROW; `arguments` is the text between the parentheses of GEOMETRY and GEOGRAPHY.
    """

    root: str
    nullable: bool = True
    length: int | None = None
    precision: int | None = None
    scale: int | None = None
    element: DataType | None = None
    key: DataType | None = None
    value: DataType | None = None
    fields: tuple[DataField, ...] | None = None
    arguments: str | None = None

    def with_nullable(self, nullable: bool) -> DataType:
        """This type, made nullable or NOT NULL."""
        return self if self.nullable == nullable else replace(self, nullable=nullable)

    @property
    def is_nested(self) -> bool:
        return self.root in NESTED_ROOTS

    @property
    def is_compact(self) -> bool:
        """Whether a DECIMAL fits an int64 (p <= 18), or a TIMESTAMP is plain millis (p <= 3); true for all other types."""
        if self.root == "DECIMAL":
            return (self.precision or 0) <= 18
        return self.root not in TIMESTAMP_ROOTS or (self.precision or 0) <= 3

    def entry_types(self) -> tuple[DataType, DataType]:
        """Key and value type of a MAP or MULTISET; a MULTISET counts its elements in an INT NOT NULL."""
        if self.root == "MULTISET" and self.element is not None:
            return self.element, DataType("INT", nullable=False)
        if self.key is None or self.value is None:
            raise ValueError(f"{self.root} has no entries")
        return self.key, self.value

    def element_type(self) -> DataType:
        """Element type of an ARRAY, MULTISET or VECTOR."""
        if self.element is None:
            raise ValueError(f"{self.root} has no elements")
        return self.element

    def row_fields(self) -> tuple[DataField, ...]:
        """Fields of a ROW."""
        if self.fields is None:
            raise ValueError(f"{self.root} has no fields")
        return self.fields
