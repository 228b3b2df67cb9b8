"""Hypothesis strategies of values in canonical form, for any type."""

from __future__ import annotations

import json
from typing import Any, Literal

from hypothesis import strategies as st

from paimon_cli.datatypes.data_type import (
    ArrayType,
    BinaryType,
    DataType,
    DecimalType,
    RowType,
    StringType,
    TimestampType,
    TimeType,
)
from paimon_cli.datatypes.internal_values import Timestamp, date_text, epoch_day, time_text, timestamp_text

BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
FIRST, LAST = epoch_day(1678, 1, 1), epoch_day(2262, 1, 1)
"""Days that every format holds at every precision."""
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=4)


def values(t: DataType) -> st.SearchStrategy[Any]:
    """Canonical values of the type, null included where it is allowed."""
    plain = _values(t)
    return st.none() | plain if t.nullable else plain


def _values(t: DataType) -> st.SearchStrategy[Any]:
    if t.root in BITS:
        return st.integers(-(1 << BITS[t.root] - 1), (1 << BITS[t.root] - 1) - 1)
    if t.root == "BOOLEAN":
        return st.booleans()
    if t.root in ("FLOAT", "DOUBLE"):
        width: Literal[32, 64] = 32 if t.root == "FLOAT" else 64
        return st.floats(width=width, allow_nan=False, allow_infinity=False) | st.sampled_from(["NaN", "Infinity", "-Infinity"])
    if isinstance(t, DecimalType):
        return st.integers(-(10**t.precision) + 1, 10**t.precision - 1).map(lambda n: _decimal(n, t.scale))
    if isinstance(t, StringType):
        texts = TEXT.filter(lambda text: len(text) <= t.length)
        return texts.map(lambda text: text.rstrip(" ")) if t.root == "CHAR" else texts
    if isinstance(t, BinaryType):
        return st.binary(max_size=min(t.length, 5)).map(bytes.hex)
    if t.root == "DATE":
        return st.integers(epoch_day(1, 1, 1), epoch_day(9999, 12, 31)).map(date_text)
    if isinstance(t, TimeType):
        step = 10 ** (3 - min(3, t.precision))
        return st.integers(0, 86_400_000 // step - 1).map(lambda n: time_text(n * step))
    if isinstance(t, TimestampType):
        return _timestamps(t)
    return _nested(t)


def _decimal(unscaled: int, scale: int) -> str:
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    text = f"{digits[: len(digits) - scale]}.{digits[len(digits) - scale :]}" if scale else digits
    return f"-{text}" if unscaled < 0 else text


def _timestamps(t: TimestampType) -> st.SearchStrategy[str]:
    step = 10 ** (9 - t.precision)
    low, high = FIRST * 86_400 * 10**9 // step, LAST * 86_400 * 10**9 // step
    zone = "Z" if t.root == "TIMESTAMP_LTZ" else ""
    return st.integers(low, high).map(lambda n: timestamp_text(Timestamp(*divmod(n * step, 1_000_000))) + zone)


def _nested(t: DataType) -> st.SearchStrategy[Any]:
    if isinstance(t, ArrayType):
        return st.lists(values(t.element), max_size=3)
    if isinstance(t, RowType):
        return st.fixed_dictionaries({field.name: values(field.type) for field in t.fields})
    key, value = t.children
    entries = st.lists(st.tuples(_values(key), values(value)).map(list), max_size=3, unique_by=lambda entry: json.dumps(entry[0]))
    return entries.map(lambda pairs: sorted(pairs, key=_entry_order))


def _entry_order(pair: list[Any]) -> str:
    return json.dumps(pair[0], ensure_ascii=False, separators=(",", ":"))
