"""Which type may become which (FORMAT.md, section 2.3; Java DataTypeCasts)."""

from __future__ import annotations

from paimon_cli.datatypes.data_type import (
    BINARY_ROOTS,
    FLOATING_ROOTS,
    INTEGER_ROOTS,
    NEWER_ROOTS,
    STRING_ROOTS,
    TIMESTAMP_ROOTS,
    DataType,
)

NUMERIC_ROOTS = INTEGER_ROOTS | FLOATING_ROOTS | {"DECIMAL"}
DATETIME_ROOTS = TIMESTAMP_ROOTS | {"DATE", "TIME"}
CONSTRUCTED_ROOTS = frozenset({"ARRAY", "MAP", "MULTISET", "ROW"})
PREDEFINED_ROOTS = NUMERIC_ROOTS | DATETIME_ROOTS | STRING_ROOTS | BINARY_ROOTS | {"BOOLEAN"}
_TO_NUMBER = NUMERIC_ROOTS | STRING_ROOTS | TIMESTAMP_ROOTS | {"BOOLEAN"}

_IMPLICIT: dict[str, frozenset[str]] = {
    "VARCHAR": STRING_ROOTS,
    "VARBINARY": BINARY_ROOTS,
    "DECIMAL": NUMERIC_ROOTS,
    "SMALLINT": frozenset({"TINYINT"}),
    "INT": frozenset({"TINYINT", "SMALLINT"}),
    "BIGINT": frozenset({"TINYINT", "SMALLINT", "INT"}),
    "FLOAT": INTEGER_ROOTS | {"DECIMAL"},
    "DOUBLE": NUMERIC_ROOTS,
    "DATE": frozenset({"TIMESTAMP"}),
    "TIME": frozenset({"TIMESTAMP"}),
    "TIMESTAMP": TIMESTAMP_ROOTS,
    "TIMESTAMP_LTZ": TIMESTAMP_ROOTS,
}
_EXPLICIT: dict[str, frozenset[str]] = {
    "CHAR": PREDEFINED_ROOTS | CONSTRUCTED_ROOTS,
    "VARCHAR": PREDEFINED_ROOTS | CONSTRUCTED_ROOTS,
    "BOOLEAN": STRING_ROOTS | INTEGER_ROOTS,
    "BINARY": STRING_ROOTS | {"VARBINARY"},
    "VARBINARY": STRING_ROOTS | {"BINARY"},
    **{root: _TO_NUMBER for root in NUMERIC_ROOTS},
    "DATE": TIMESTAMP_ROOTS | STRING_ROOTS,
    "TIME": TIMESTAMP_ROOTS | STRING_ROOTS,
    "TIMESTAMP": DATETIME_ROOTS | STRING_ROOTS | NUMERIC_ROOTS,
    "TIMESTAMP_LTZ": DATETIME_ROOTS | STRING_ROOTS | NUMERIC_ROOTS,
}


def may_cast(source: DataType, target: DataType, *, explicit: bool) -> bool:
    """Whether a column may change its type; with `explicit` also where values can be lost.

    A type that may be cast needs not have a cast: see `column_cast.cast_of`.
    """
    if source.nullable and not target.nullable and not explicit:
        return False
    if same_type(source, target):
        return True
    if source.root in NEWER_ROOTS or target.root in NEWER_ROOTS:
        return source.root == target.root
    if source.root == target.root or source.root in _IMPLICIT.get(target.root, ()):
        return True
    return explicit and source.root in _EXPLICIT.get(target.root, ())


def same_type(a: DataType, b: DataType) -> bool:
    """Equal but for whether null is allowed at the top."""
    return a.with_nullable(True) == b.with_nullable(True)


def keeps_values(source: DataType, target: DataType) -> bool:
    """Whether a cast leaves every value what it is, so that bounds of the old type hold for the new one."""
    if same_type(source, target):
        return True
    if source.root in INTEGER_ROOTS and target.root in INTEGER_ROOTS:
        return source.root in _IMPLICIT.get(target.root, ())
    if target.root == "VARCHAR" and source.root in STRING_ROOTS:
        return (target.length or 0) >= (source.length or 0)
    if source.root != target.root or source.root not in TIMESTAMP_ROOTS | {"DECIMAL"}:
        return False
    scale, digits = _scale_and_digits(source)
    new_scale, new_digits = _scale_and_digits(target)
    return new_scale >= scale and new_digits >= digits


def _scale_and_digits(t: DataType) -> tuple[int, int]:
    """Digits behind and before the point; those of a TIMESTAMP before it are always enough."""
    precision, scale = t.precision or 0, t.scale or 0
    return (scale, precision - scale) if t.root == "DECIMAL" else (precision, 0)
