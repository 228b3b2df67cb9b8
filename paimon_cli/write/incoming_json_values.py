"""Parsed JSON values -> columns: atomic ones as text for `incoming_text_values`, nested ones through the canonical form.

Values are taken one by one here: they are Python objects already, and nested values have no vectorised parser.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from paimon_cli.datatypes.arrow_types import arrow_type
from paimon_cli.datatypes.canonical_form import from_canonical
from paimon_cli.datatypes.data_type import FLOATING_ROOTS, INTEGER_ROOTS
from paimon_cli.datatypes.field_types import DataType, type_to_sql
from paimon_cli.datatypes.values import values_to_arrow
from paimon_cli.errors import NotSupported
from paimon_cli.write.incoming_cells import BadCell, shown
from paimon_cli.write.incoming_text_values import CALENDAR_ROOTS, check_calendar_text

NUMBER_ROOTS = INTEGER_ROOTS | FLOATING_ROOTS | {"DECIMAL"}

LONE_SURROGATE = re.compile("[\ud800-\udfff]")
UNFIT = (pa.ArrowException, ValueError, TypeError, OverflowError, NotSupported)
"""What Arrow and `values_to_arrow` raise for a value that is too large or of another kind."""


def text_column(values: Sequence[Any], t: DataType) -> pa.Array:
    """JSON scalars as the text that they stand for. BadCell: a list, an object, or a number where the type is written as text."""
    texts, fault = _until_fault(values, lambda row, value: value if isinstance(value, str) else _text(row, value, t))
    try:
        column = pa.array(texts, pa.string())
    except UnicodeEncodeError as problem:
        row = next(row for row, text in enumerate(texts) if text is not None and LONE_SURROGATE.search(text))
        raise BadCell(row, shown(texts[row]), "it is not valid Unicode") from problem
    if fault is not None:
        raise fault
    return column


def _until_fault(values: Sequence[Any], convert: Callable[[int, Any], Any]) -> tuple[list[Any], BadCell | None]:
    """Converted values up to the first that does not convert, and what is wrong with that one."""
    converted: list[Any] = []
    for row, value in enumerate(values):
        try:
            converted.append(None if value is None else convert(row, value))
        except BadCell as fault:
            return converted, fault
    return converted, None


def _text(row: int, value: Any, t: DataType) -> str:
    if isinstance(value, bool):
        if t.root == "BOOLEAN":
            return "true" if value else "false"
    elif isinstance(value, (int, Decimal)) and t.root in NUMBER_ROOTS:
        return str(value)
    raise BadCell(row, shown(value), f"{type_to_sql(t)} is not written like this in JSON")


def nested_column(values: Sequence[Any], t: DataType) -> pa.Array:
    """ARRAY, MAP, MULTISET and ROW values; BadCell for the first that does not fit."""
    internal, fault = _until_fault(values, lambda row, value: _nested(row, value, t))
    try:
        column = values_to_arrow(internal, t)
    except UNFIT:
        for row, value in enumerate(internal):
            _alone(row, value, values[row], t)
        raise
    if fault is not None:
        raise fault
    return column


def _alone(row: int, internal: Any, value: Any, t: DataType) -> None:
    try:
        values_to_arrow([internal], t)
    except UNFIT as problem:
        raise BadCell(row, shown(_compact(value)), str(problem)) from problem


def _nested(row: int, value: Any, t: DataType) -> Any:
    try:
        return from_canonical(_canonical(value, t), t)
    except ValueError as problem:
        raise BadCell(row, shown(_compact(value)), str(problem)) from problem


def _canonical(value: Any, t: DataType) -> Any:
    """Natural JSON in the canonical form: numbers of DECIMAL as text, objects of MAP and MULTISET as lists of pairs."""
    if value is None:
        return None
    if t.root == "DECIMAL":
        return str(value) if isinstance(value, (int, Decimal)) and not isinstance(value, bool) else value
    if t.root in FLOATING_ROOTS:
        return float(value) if isinstance(value, (int, Decimal)) and not isinstance(value, bool) else value
    if t.root in CALENDAR_ROOTS and isinstance(value, str):
        check_calendar_text(value, t)
        return value
    if t.root == "ARRAY" and t.element is not None and isinstance(value, list):
        return [_canonical(item, t.element) for item in value]
    if t.root in ("MAP", "MULTISET"):
        return _pairs(value, t)
    if t.root == "ROW" and t.fields is not None and isinstance(value, dict):
        types = {field.name: field.type for field in t.fields}
        if value.keys() != types.keys():
            raise ValueError(f"its fields are {', '.join(types)}")
        return {name: _canonical(item, types[name]) for name, item in value.items()}
    return value


def _pairs(value: Any, t: DataType) -> Any:
    key = t.key if t.root == "MAP" else t.element
    item = t.value if t.root == "MAP" else DataType("INT", nullable=False)
    if isinstance(value, dict):
        value = [[k, v] for k, v in value.items()]
    if key is None or item is None or not isinstance(value, list) or any(not isinstance(p, list) or len(p) != 2 for p in value):
        raise ValueError("a map is an object or a list of [key, value] pairs")
    return [[_canonical(k, key), _canonical(v, item)] for k, v in value]


def _compact(value: Any) -> str:
    return json.dumps(value, default=str, ensure_ascii=False)


def nested_from_text(texts: pa.Array, t: DataType) -> pa.Array:
    """JSON text in a CSV cell -> nested values."""
    values = []
    for row, text in enumerate(texts.to_pylist()):
        try:
            values.append(None if text is None else json.loads(text, parse_float=Decimal, parse_constant=str))
        except (ValueError, RecursionError) as problem:
            raise BadCell(row, shown(text), f"{type_to_sql(t)} is written as JSON in a CSV cell: {problem}") from problem
    return nested_column(values, t) if len(values) else pa.array([], arrow_type(t))
