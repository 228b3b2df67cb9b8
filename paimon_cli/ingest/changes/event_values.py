"""Values of events as values of columns: how each form of a value is written in JSON, and which type Java's CDC gives it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.datatypes.arrow_types import arrow_type
from paimon_cli.datatypes.cast_to_text import text_of
from paimon_cli.datatypes.data_type import (
    BIGINT,
    BINARY_ROOTS,
    BOOLEAN,
    BYTES,
    DATE,
    INTEGER_ROOTS,
    MAX_LENGTH,
    STRING,
    STRING_ROOTS,
    TIMESTAMP_ROOTS,
    DataType,
    DecimalType,
    NestedType,
    StringType,
    TimestampType,
    TimeType,
)
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.ingest.changes.base64_cells import bytes_of, decimals_of, reversed_bytes_of
from paimon_cli.ingest.changes.double_text import double_texts
from paimon_cli.ingest.changes.geometry_text import geometry_texts, mysql_geometry_texts
from paimon_cli.ingest.changes.json_shapes import EXACT_INTEGER
from paimon_cli.ingest.changes.mysql_values import bytes_of_bits, bytes_of_characters, enum_members, set_members
from paimon_cli.ingest.faults import BadCell, WrongType, attempt, bad_cells, converted
from paimon_cli.ingest.json_rows import nested_from_text
from paimon_cli.ingest.text_form import TextForm
from paimon_cli.ingest.text_values import parse_text
from paimon_cli.ingest.typed_columns import CastRules, cast_column

UTC_FORM = TextForm(timezone="UTC")
ROUNDING = CastRules(may_round=True, timezone="UTC")
_UNITS = {"millis": "ms", "micros": "us", "nanos": "ns"}
_MILLIS_OF_DAY = 86_400_000
_MAX_SCALE = 16_383
"""The largest scale of a number in PostgreSQL, and in any database that Debezium reads."""
POINTED = r"^-?[0-9]*\.[0-9]*([eE][+-]?[0-9]+)?$"
"""A number with a point, which is no base64."""
_ENCODED = frozenset(("decimal text", "base64", "bits"))
"""Forms whose texts are base64, of which a number must not be taken for one."""
_MORE_THAN_MICROS = r"(\.[0-9]{6})[0-9]+"


@dataclass(frozen=True)
class ValueForm:
    """A type as an event declares it. `type`: that of the column that is made for it. `form`: how its values are written, a key
    of `_DECODERS`. `scale`: of decimals. `members`: of an ENUM or SET, in order. `is_declared`: False where an event does not say
    what its texts and numbers mean: then the column of an existing table does.
    """

    type: DataType
    form: str = "plain"
    scale: int = 0
    members: tuple[str, ...] = ()
    is_declared: bool = True

    @property
    def numbers(self) -> pa.DataType | None:
        """The Arrow type of its values that are JSON numbers, where its texts mean something else; None elsewhere."""
        if self.form == "decimal":
            return pa.decimal128(38, self.scale)
        return pa.string() if self.form in _ENCODED else None


UNDECLARED = ValueForm(STRING, "plain", is_declared=False)
"""The form of all columns where an event declares no types. Java's CDC makes STRING columns of them."""
UNDECLARED_BY_CONNECT = ValueForm(STRING, "days", is_declared=False)
"""The same where Debezium leaves the schema part out: a number in a DATE counts days since 1970, whatever its settings are. What
it counts in a time depends on them, and on the precision of the source's column.
"""


def as_column(raw: pa.Array, form: ValueForm, target: DataType) -> tuple[pa.Array, list[BadCell]]:
    """Values as `arrow_type(target)`, null for those that do not fit, and these. Raises `WrongType` if none can fit."""

    def convert(cells: pa.Array) -> pa.Array:
        if pa.types.is_null(cells.type) or cells.null_count == len(cells):
            return pa.nulls(len(cells), arrow_type(target))
        if not form.is_declared:
            return _meant_by_column(cells, form, target)
        seen = _seen_by(form, target)
        if seen.form in _TEXTS and not pa.types.is_string(cells.type):
            raise bad_cells(cells, np.flatnonzero(cells.is_valid().to_numpy(zero_copy_only=False)), "it is not a text")
        return _fitted(_DECODERS[seen.form](cells, seen), seen, target)

    return converted(raw, convert)


def _fitted(cells: pa.Array, form: ValueForm, target: DataType) -> pa.Array:
    """Decoded values in the type of a column that may be wider, or that the table's owner has chosen."""
    if isinstance(target, StringType) and not pa.types.is_string(cells.type):
        cells = (
            text_of_json(cells) if form.type.root in STRING_ROOTS else text_of(cast_column(cells, form.type, ROUNDING), form.type)
        )
    if pa.types.is_string(cells.type) and isinstance(target, NestedType):
        return _nested(cells, target)
    if pa.types.is_string(cells.type) and not isinstance(target, StringType):
        if form.type.root in STRING_ROOTS and target.root not in TIMESTAMP_ROOTS:
            raise WrongType(type_to_sql(form.type))
        return parse_text(cells, target, UTC_FORM)
    if pa.types.is_boolean(cells.type) and target.root in INTEGER_ROOTS:
        return cells.cast(arrow_type(target))
    return cast_column(_exact(cells, target), target, ROUNDING)


def _meant_by_column(cells: pa.Array, form: ValueForm, target: DataType) -> pa.Array:
    """Values without a declared type, as the column takes them: a text, or a value of JSON."""
    if isinstance(target, StringType):
        return _as_text(cells, target)
    if pa.types.is_string(cells.type):
        if target.root in BINARY_ROOTS:
            return cast_column(bytes_of(cells), target)
        if isinstance(target, NestedType):
            return _nested(cells, target)
        return parse_text(cells, target, UTC_FORM)
    if isinstance(target, DecimalType) and pa.types.is_floating(cells.type):
        return parse_text(double_texts(cells), target, UTC_FORM)
    if target.root == "BOOLEAN" and pa.types.is_integer(cells.type):
        return _booleans(cells, UNDECLARED)
    if form.form == "days" and target.root == DATE.root and pa.types.is_integer(cells.type):
        return _days(cells, form)
    return cast_column(_exact(cells, target), target, ROUNDING)


def _as_text(cells: pa.Array, target: StringType) -> pa.Array:
    """Values of JSON, whose texts are valid Unicode, as texts of this length."""
    texts = text_of_json(cells)
    return texts if target.length == MAX_LENGTH else cast_column(texts, target)


def _exact(cells: pa.Array, target: DataType) -> pa.Array:
    """The same cells. Raises `BadCells` for numbers that a column of whole numbers must not take, because they may be rounded."""
    if pa.types.is_floating(cells.type) and target.root in INTEGER_ROOTS:
        large = np.flatnonzero(np.abs(cells.to_numpy(zero_copy_only=False)) >= EXACT_INTEGER)
        if len(large):
            raise bad_cells(cells, large, "with a point or an exponent, a number is exact only below 2^53: write all its digits")
    return cells


def _nested(cells: pa.Array, target: DataType) -> pa.Array:
    """Lists and objects of JSON in a column of lists, maps or rows."""
    if len(empty := np.flatnonzero(pc.fill_null(pc.equal(cells, ""), False).to_numpy(zero_copy_only=False))):
        raise bad_cells(cells, empty, "it is not JSON")
    return nested_from_text(cells, target, UTC_FORM)


def text_of_json(cells: pa.Array) -> pa.Array:
    if pa.types.is_floating(cells.type):
        return double_texts(cells)
    if pa.types.is_boolean(cells.type):
        return text_of(cells, BOOLEAN)
    return cells if pa.types.is_string(cells.type) else cells.cast(pa.string())


def _integers(cells: pa.Array) -> pa.Array:
    """Whole numbers, which may have been read as texts or as other numbers beside a value that is none."""
    if pa.types.is_integer(cells.type):
        return cells
    if pa.types.is_string(cells.type):
        return parse_text(cells, BIGINT, UTC_FORM)
    return cast_column(cells, BIGINT)


def _plain(cells: pa.Array, form: ValueForm) -> pa.Array:
    if not pa.types.is_string(cells.type) or form.type.root in STRING_ROOTS:
        return cells
    return parse_text(cells, form.type, UTC_FORM)


def _booleans(cells: pa.Array, form: ValueForm) -> pa.Array:
    """BOOLEAN of 0 and 1, as texts or numbers, and of true and false."""
    if pa.types.is_boolean(cells.type):
        return cells
    texts = pc.utf8_lower(cells.cast(pa.string()))
    places = pc.index_in(texts, pa.array(["0", "1", "false", "true"]))
    unknown = pc.and_(places.is_null(), texts.is_valid()).to_numpy(zero_copy_only=False)
    if unknown.any():
        raise bad_cells(cells, np.flatnonzero(unknown), "a BOOLEAN is 0 or 1, false or true")
    return pc.equal(pc.bit_wise_and(places, 1), 1)


def _numbers_of_booleans(cells: pa.Array, form: ValueForm) -> pa.Array:
    """Whole numbers, as which `true` and `false` are 1 and 0."""
    if not pa.types.is_string(cells.type):
        return cells
    places = pc.index_in(pc.utf8_lower(cells), pa.array(["false", "true"]))
    return _integers(pc.coalesce(places.cast(pa.string()), cells))


def _decimals(cells: pa.Array, form: ValueForm) -> pa.Array:
    """Numbers, and texts: a number with a point (`pointed_text`), otherwise the base64 that Kafka Connect writes."""
    if not pa.types.is_string(cells.type):
        kind = DecimalType(38, form.scale)
        return parse_text(double_texts(cells), kind, UTC_FORM) if pa.types.is_floating(cells.type) else cells
    texts = pc.match_substring_regex(cells, POINTED)
    if pc.any(texts).as_py():
        numbers = parse_text(pc.if_else(texts, cells, pa.scalar(None, pa.string())), DecimalType(38, form.scale), UTC_FORM)
        return pc.coalesce(numbers, decimals_of(pc.if_else(texts, pa.scalar(None, pa.string()), cells), form.scale))
    return decimals_of(cells, form.scale)


def _decimals_as_text(cells: pa.Array, form: ValueForm) -> pa.Array:
    """Decimals that are wider than any DECIMAL column: their numbers as text."""
    if not pa.types.is_string(cells.type):
        return text_of_json(cells)
    if abs(form.scale) > _MAX_SCALE:
        rows = np.flatnonzero(cells.is_valid().to_numpy(zero_copy_only=False))
        raise bad_cells(cells, rows, f"its scale is {form.scale}, and numbers have at most {_MAX_SCALE:,} digits after the point")
    import base64

    is_number = re.compile(POINTED).match

    def text(cell: str) -> str:
        if is_number(cell):
            return cell.rstrip(".")
        number = int.from_bytes(base64.b64decode(cell, validate=True), "big", signed=True)
        digits = str(abs(number)).rjust(form.scale + 1, "0")
        point = len(digits) - form.scale
        fraction = f".{digits[point:]}" if form.scale > 0 else "0" * -form.scale
        return f"{'-' if number < 0 else ''}{digits[:point]}{fraction}"

    texts, bad = list[str | None](), list[int]()
    for row, cell in enumerate(cells.to_pylist()):  # no Arrow type holds such numbers
        try:
            texts.append(None if cell is None else text(cell))
        except ValueError:
            texts.append(None)
            bad.append(row)
    if bad:
        raise bad_cells(cells, bad, "it is not base64")
    return pa.array(texts, pa.string())


def _days(cells: pa.Array, form: ValueForm) -> pa.Array:
    days = _integers(cells)
    return attempt(days, lambda part: part.cast(pa.int32()), "there is no such day").view(pa.date32())


def _epoch(cells: pa.Array, form: ValueForm) -> pa.Array:
    return _integers(cells).cast(pa.timestamp(_UNITS[form.form]))


def _zoned(cells: pa.Array, form: ValueForm) -> pa.Array:
    """Instants as the wall clock in UTC, as Java's CDC stores them."""
    micros = pc.replace_substring_regex(cells, _MORE_THAN_MICROS, r"\1")
    return attempt(micros, lambda part: part.cast(pa.timestamp("us", "UTC")), "it is not a time with a zone")


def _time_of_day(unit: int) -> Callable[[pa.Array, ValueForm], pa.Array]:
    """A time of day in parts of a millisecond; `unit`: how many these are. Columns hold milliseconds."""

    def decode(cells: pa.Array, form: ValueForm) -> pa.Array:
        ticks = _integers(cells)
        millis = pc.divide(ticks, unit)
        day = pc.and_(pc.greater_equal(ticks, 0), pc.less(millis, _MILLIS_OF_DAY))
        wrong = pc.fill_null(pc.invert(day), False).to_numpy(zero_copy_only=False)
        if wrong.any():
            raise bad_cells(cells, np.flatnonzero(wrong), "it is not a time of day")
        return millis.cast(pa.int32()).view(pa.time32("ms"))

    return decode


def _local_times(cells: pa.Array, form: ValueForm) -> pa.Array:
    return parse_text(cells, form.type, UTC_FORM)


_DECODERS: dict[str, Callable[[pa.Array, ValueForm], Any]] = {
    "plain": _plain,
    "boolean": _booleans,
    "boolean number": _numbers_of_booleans,
    "decimal": _decimals,
    "decimal text": _decimals_as_text,
    "days": _days,
    "millis": _epoch,
    "micros": _epoch,
    "nanos": _epoch,
    "zoned": _zoned,
    "time millis": _time_of_day(1),
    "time micros": _time_of_day(1_000),
    "time nanos": _time_of_day(1_000_000),
    "base64": lambda cells, form: bytes_of(cells),
    "bits": lambda cells, form: reversed_bytes_of(cells),
    "latin1": lambda cells, form: bytes_of_characters(cells),
    "bit number": lambda cells, form: bytes_of_bits(cells, form.type),
    "enum": lambda cells, form: enum_members(cells, form.members),
    "set": lambda cells, form: set_members(cells, form.members),
    "mysql geometry": lambda cells, form: mysql_geometry_texts(cells),
    "local time": _local_times,
    "geometry": lambda cells, form: geometry_texts(cells),
}
_TEXTS = frozenset(("zoned", "base64", "bits", "latin1", "bit number", "enum", "set", "local time", "geometry", "mysql geometry"))
"""Forms in which only texts are written."""
_MEANT: dict[str, DataType] = {
    "days": DATE,
    "millis": TimestampType("TIMESTAMP", 3),
    "micros": TimestampType("TIMESTAMP", 6),
    "nanos": TimestampType("TIMESTAMP", 9),
    "time millis": TimeType(3),
    "time micros": TimeType(3),
    "time nanos": TimeType(3),
    "base64": BYTES,
}


def _seen_by(form: ValueForm, target: DataType) -> ValueForm:
    """The form with which a column is filled that has another kind of type: a number of days stays one in a column of numbers,
    and so does that of a `tinyint(1)`, which need not be 0 or 1.
    """
    if form.form == "boolean" and target.root in INTEGER_ROOTS:
        return ValueForm(BIGINT, "boolean number")
    meant = _MEANT.get(form.form)
    if meant is None or meant.root == target.root or target.root not in INTEGER_ROOTS | STRING_ROOTS:
        return form
    return ValueForm(STRING if isinstance(target, StringType) else BIGINT)
