"""Functions that collect values: listagg, collect, merge_map, merge_map_with_keytime, nested_update and nested_partial_update.

Java classes: FieldListaggAgg, FieldCollectAgg, FieldMergeMapAgg, FieldNestedUpdateAgg and others.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.datatypes.arrow_types import arrow_type
from paimon_cli.datatypes.data_type import (
    NEWER_ROOTS,
    SPATIAL_ROOTS,
    STRING,
    ArrayType,
    DataField,
    MapType,
    StringType,
    fields_of,
)
from paimon_cli.datatypes.key_order import NULL_PART, comparable_key
from paimon_cli.errors import BadInput, UsageError
from paimon_cli.lsm.aggregators.aggregator import (
    REVERSED,
    SET,
    Aggregator,
    ColumnHistory,
    StepByStep,
    last_position,
    picked,
    rows_at,
)
from paimon_cli.lsm.aggregators.builder import Builder, expect, flag, ignores_retractions, names_in, setting
from paimon_cli.options import option_text as read
from paimon_cli.options.table_options import TableOptions


def identity(value: Any, t: pa.DataType) -> Hashable:
    """A hashable object for a value of the type; equal values have equal objects."""
    if value is None:
        return None
    if pa.types.is_floating(t):
        return "NaN" if math.isnan(value) else (value, math.copysign(1.0, value))
    if pa.types.is_list(t):
        return tuple(identity(item, t.value_type) for item in value)
    if pa.types.is_map(t):
        return frozenset((identity(k, t.key_type), identity(v, t.item_type)) for k, v in value)
    if pa.types.is_struct(t):
        return tuple(identity(value[field.name], field.type) for field in t)
    return value


def rank(value: Any, t: pa.DataType) -> Any:
    """An object that compares like values of the type in Java: null is the smallest, NaN the greatest, -0.0 less than 0.0."""
    if value is None:
        return NULL_PART
    if pa.types.is_list(t):
        return tuple(rank(item, t.value_type) for item in value)
    if pa.types.is_map(t):
        keys, items = tuple(rank(k, t.key_type) for k, _ in value), tuple(rank(v, t.item_type) for _, v in value)
        return len(keys), keys, items
    if pa.types.is_struct(t):
        return tuple(rank(value[field.name], field.type) for field in t)
    return comparable_key([value])


JAVA_BLANK = r"^[\t-\r\x1c-\x20\x{1680}\x{2000}-\x{2006}\x{2008}-\x{200a}\x{2028}\x{2029}\x{205f}\x{3000}]*$"
"""Matches strings of characters for which Java's `Character.isWhitespace` is true, which excludes no-break spaces (U+00A0)."""


@dataclass(frozen=True)
class JoinedText:
    """The function listagg: joins strings, without null and blank ones. The string of a row that arrived late comes first."""

    delimiter: str = ","
    retracts: bool = False

    def merge(self, column: pa.Array, history: ColumnHistory) -> pa.Array:
        taken = column.take(pa.array(history.rows))
        filled = pc.invert(pc.match_substring_regex(taken, JAVA_BLANK)).fill_null(False).to_numpy(zero_copy_only=False)
        texts = history.only(filled)
        order = np.arange(len(texts.rows))
        if texts.has_reversed:
            older = texts.codes == REVERSED
            order = np.lexsort((np.where(older, -order, order), ~older, texts.key_of_operation))
        pieces = taken.filter(pa.array(filled)).take(pa.array(order))
        lists = pa.ListArray.from_arrays(pa.array(texts.starts, pa.int32()), pieces)
        joined = pc.binary_join(lists, self.delimiter)
        # without other strings, the value of a SET or of a row that arrived late is kept, even if it is blank
        blank = rows_at(history, last_position(history, (history.codes == SET) | (history.codes == REVERSED)))
        return pc.if_else(pa.array(texts.sizes > 0), joined, picked(column, blank)).cast(column.type)


def distinct_text(delimiter: str) -> StepByStep:
    """listagg with `distinct`: pieces of a new string that are blank, or already present, are left out."""
    return StepByStep(("listagg", delimiter), lambda held, text: _joined_distinct(held, text, delimiter))


def _joined_distinct(held: Any, text: Any, delimiter: str) -> Any:
    if text is None or _is_blank(text):
        return held
    if held is None or _is_blank(held):
        return text
    seen = set(_split(held, delimiter))
    result = held
    for piece in _split(text, delimiter):
        if not _is_blank(piece) and piece not in seen:
            seen.add(piece)
            result += delimiter + piece
    return result


def _split(text: str, delimiter: str) -> list[str]:
    return text.split(delimiter) if delimiter else text.split()


def _is_blank(text: str) -> bool:
    return all(letter in _BLANKS for letter in text)


_BLANKS = frozenset(
    "\t\n\v\f\r\x1c\x1d\x1e\x1f \u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2008\u2009\u200a\u2028\u2029\u205f\u3000"
)


def collected(element: pa.DataType, distinct: bool, reversible: bool) -> StepByStep:
    """collect: concatenates arrays, or with `distinct` collects the set of their items.

    `reversible`: the array of a row that arrived late comes first, as in Java with ignore-retract.
    """
    # Java uses a set for plain items. Other items it compares one by one, and never those of the first array among themselves.
    keeps_held = pa.types.is_nested(element) or pa.types.is_binary(element)

    def add(held: Any, items: Any) -> Any:
        if held is None and items is None:
            return None
        if not distinct:
            return [*(held or ()), *(items or ())]
        result = list(held or ()) if keeps_held else []
        seen = {identity(item, element) for item in result}
        for item in (items or ()) if keeps_held else [*(held or ()), *(items or ())]:
            mark = identity(item, element)
            if mark not in seen:
                seen.add(mark)
                result.append(item)
        return result

    def take_back(held: Any, items: Any) -> Any:
        if held is None or not items:
            return held
        missing = Counter(identity(item, element) for item in items)
        left = []
        for item in held:
            mark = identity(item, element)
            if missing[mark]:
                missing[mark] -= 1
            else:
                left.append(item)
        return left

    return StepByStep(("collect", element, distinct, reversible), add, None if reversible else add, take_back)


def merged_map(key: pa.DataType) -> StepByStep:
    """merge_map: combines the entries of maps, the newer value of a key wins. A retraction removes its keys."""

    def add(held: Any, entries: Any) -> Any:
        if held is None or entries is None:
            return entries if held is None else held
        return list({identity(k, key): (k, v) for k, v in [*held, *entries]}.values())

    def take_back(held: Any, entries: Any) -> Any:
        if held is None or not entries:
            return held
        removed = {identity(k, key) for k, _ in entries}
        return [(k, v) for k, v in held if identity(k, key) not in removed]

    return StepByStep(("merge_map", key), add, None, take_back)


def timed_map(key: pa.DataType, time_field: str) -> StepByStep:
    """merge_map_with_keytime: of two ROWs of a key, the one with the greater text in `time_field` wins; null removes the key."""

    def add(held: Any, entries: Any) -> Any:
        if held is None or entries is None:
            return entries if held is None else held
        result = {identity(k, key): (k, v) for k, v in held}
        for k, row in entries:
            mark = identity(k, key)
            if row is None:
                result.pop(mark, None)
            elif row[time_field] is not None:
                old = result.get(mark, (k, None))[1]
                if old is None or old[time_field] is None or _utf16(row[time_field]) > _utf16(old[time_field]):
                    result[mark] = (k, row)
        return list(result.values())

    return StepByStep(("merge_map_with_keytime", key, time_field), add)


def _utf16(text: str) -> bytes:
    """The string as bytes that compare as in Java, by UTF-16 code units."""
    return text.encode("utf-16-be", "surrogatepass")


_NO_LIMIT = 2**31 - 1
NULL_KEYS = ("merge", "ignore", "error")


@dataclass(frozen=True)
class NestedTable:
    """An array of rows, used as a table within a column. `null_key`: what to do with rows whose key has a null."""

    column: str
    row_type: pa.DataType
    key: tuple[str, ...] = ()
    sequence: tuple[str, ...] = ()
    null_key: str = "merge"
    count_limit: int = _NO_LIMIT

    def updated(self) -> StepByStep:
        """nested_update: rows are appended, or replace the row with their key; a retraction removes equal rows or keys."""
        return StepByStep(("nested_update", self), self._upserted if self.key else self._appended, None, self._without)

    def partially_updated(self) -> StepByStep:
        """nested_partial_update: the fields of a row that are not null replace those of the row with its key."""
        return StepByStep(("nested_partial_update", self), self._filled)

    def _mark(self, row: Any) -> Hashable:
        """The key of the row; None if the row is to be ignored."""
        if any(row[name] is None for name in self.key):
            if self.null_key == "error":
                raise BadInput(
                    f"a row in column {self.column} has a null in its nested-key",
                    f"fields.{self.column}.nested-key-null-strategy is error",
                    column=self.column,
                )
            if self.null_key == "ignore":
                return None
        return self._key(row)

    def _key(self, row: Any) -> Hashable:
        return tuple(identity(row[name], self.row_type.field(name).type) for name in self.key)

    def _newer(self, row: Any, old: Any) -> bool:
        return self._rank(row) >= self._rank(old)

    def _rank(self, row: Any) -> tuple[Any, ...]:
        """The values of the row's sequence fields as a comparable tuple."""
        return tuple(rank(row[name], self.row_type.field(name).type) for name in self.sequence)

    def _put(self, table: dict[Hashable, Any], rows: Any, limited: bool) -> None:
        for row in _present(rows):
            mark = self._mark(row)
            if mark is None:
                continue
            if mark in table:
                if self._newer(row, table[mark]):
                    table[mark] = row
            elif not limited or len(table) < self.count_limit:
                table[mark] = row

    def _upserted(self, held: Any, rows: Any) -> Any:
        if rows is None:
            return held
        table: dict[Hashable, Any] = {}
        self._put(table, held, limited=False)
        self._put(table, rows, limited=True)
        return list(table.values())

    def _appended(self, held: Any, rows: Any) -> Any:
        if rows is None:
            return held
        if held is not None and len(held) >= self.count_limit:
            return held
        room = max(0, self.count_limit - len(held or ()))
        return [*_present(held), *_present(rows)[:room]]

    def _without(self, held: Any, rows: Any) -> Any:
        if held is None or rows is None:
            return held
        if not self.key:
            removed = {identity(row, self.row_type) for row in _present(rows)}
            return [row for row in _present(held) if identity(row, self.row_type) not in removed]
        table = {self._key(row): row for row in _present(held)}  # whatever `null_key` is: such rows may be older than the option
        for row in _present(rows):
            table.pop(self._key(row), None)
        return list(table.values())

    def _filled(self, held: Any, rows: Any) -> Any:
        if rows is None:
            return held
        table: dict[Hashable, Any] = {}
        for row in [*_present(held), *_present(rows)]:
            mark = self._mark(row)
            if mark is not None:
                known = table.setdefault(mark, dict.fromkeys(row))
                known.update({name: value for name, value in row.items() if value is not None})
        return list(table.values())


def _present(rows: Any) -> list[Any]:
    return [row for row in rows or () if row is not None]


def _listagg(field: DataField, options: TableOptions) -> Aggregator:
    expect("listagg", field, field.type.with_nullable(True) == STRING, "STRING")
    delimiter = setting(field, options, "list-agg-delimiter", read.text, ",")
    return distinct_text(delimiter) if flag(field, options, "distinct") else JoinedText(delimiter)


def _collect(field: DataField, options: TableOptions) -> Aggregator:
    expect("collect", field, isinstance(field.type, ArrayType), "ARRAY")
    element = arrow_type(field.type).value_type
    return collected(element, flag(field, options, "distinct"), ignores_retractions(field, options))


def _merge_map(field: DataField, options: TableOptions) -> Aggregator:
    expect("merge_map", field, isinstance(field.type, MapType), "MAP")
    return merged_map(arrow_type(field.type).key_type)


def _timed_map(field: DataField, options: TableOptions) -> Aggregator:
    t = field.type
    types = {inner.name: inner.type for inner in fields_of(t.value)} if isinstance(t, MapType) else {}
    expect("merge_map_with_keytime", field, len(types) > 1, "MAP of ROW with two fields or more")
    wanted = options.column_option(field.name, "ts-field") or [*types][-1]
    expect("merge_map_with_keytime", field, wanted in types, f"a ROW with the field {wanted}")
    expect("merge_map_with_keytime", field, isinstance(types[wanted], StringType), f"a ROW whose field {wanted} is a text")
    return timed_map(arrow_type(t).key_type, wanted)


_UNORDERED = NEWER_ROOTS | SPATIAL_ROOTS | {"VARIANT"}
"""Types that Java compares neither alone nor within others; it does compare the rest, such as ROW field by field."""


def _nested_table(function: str, field: DataField, options: TableOptions) -> NestedTable:
    types = {inner.name: inner.type for inner in fields_of(field.type.element)} if isinstance(field.type, ArrayType) else {}
    expect(function, field, bool(types), "ARRAY of ROW")
    row_type = arrow_type(field.type).value_type
    key = names_in(field, options, "nested-key")
    sequence = names_in(field, options, "nested-sequence-field")
    for name in (*key, *sequence):
        expect(function, field, name in types, f"rows with the field {name}")
    for name in sequence:
        has_order = _UNORDERED.isdisjoint(part.root for part in types[name].parts())
        expect(function, field, has_order, f"a nested-sequence-field with an order, which {name} does not have")
    for option in ("nested-key-null-strategy", "nested-sequence-field"):
        if options.column_option(field.name, option) and not key:
            raise UsageError(f"fields.{field.name}.{option} needs fields.{field.name}.nested-key")
    null_key = setting(field, options, "nested-key-null-strategy", read.one_of(*NULL_KEYS), "merge")
    limit = setting(field, options, "count-limit", read.integer(0), _NO_LIMIT)
    return NestedTable(field.name, row_type, key, sequence, null_key, limit)


def _nested_partial(field: DataField, options: TableOptions) -> Aggregator:
    table = _nested_table("nested_partial_update", field, options)
    if not table.key:
        raise UsageError(f"nested_partial_update of column {field.name} needs fields.{field.name}.nested-key")
    return table.partially_updated()


FUNCTIONS: dict[str, Builder] = {
    "listagg": _listagg,
    "collect": _collect,
    "merge_map": _merge_map,
    "merge_map_with_keytime": _timed_map,
    "nested_update": lambda field, options: _nested_table("nested_update", field, options).updated(),
    "nested_partial_update": _nested_partial,
}
