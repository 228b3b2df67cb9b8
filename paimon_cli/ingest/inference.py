"""Infers the columns of a table from existing files, for `create --from-file`. A write with the same options accepts those files.

A column of texts gets the first type that can hold all of them, checked by the functions that a write uses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from itertools import count
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from paimon_cli.bucket.orc_file import OrcFile
from paimon_cli.datatypes.arrow_types import type_from_arrow
from paimon_cli.datatypes.data_type import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    MAX_DECIMAL_PRECISION,
    STRING,
    ArrayType,
    DataField,
    DataType,
    DecimalType,
    MapType,
    RowType,
    TimestampType,
    TimeType,
)
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.errors import BadInput
from paimon_cli.ingest.faults import BadCells, Fault, converted, cure, shown
from paimon_cli.ingest.json_rows import json_blocks, parsed_line
from paimon_cli.ingest.row_sources import csv_batches
from paimon_cli.ingest.source_files import SourceSplit, arrow_file, plan_sources
from paimon_cli.ingest.text_blocks import line_bounds, text_stream
from paimon_cli.ingest.text_form import PLAIN, TEXT, TextForm, null_value_flag
from paimon_cli.ingest.text_values import NOT_FINITE, NUMBER, TIMESTAMP, parse_text, text_of_cells
from paimon_cli.storage.storage_for_url import storage_for_url

NUMBERS = (BIGINT, DOUBLE)
TIMES = (
    DATE,
    TimeType(3),
    *(TimestampType(root, digits) for digits in (6, 9) for root in ("TIMESTAMP", "TIMESTAMP_LTZ")),
)
SPELLED_AS: dict[DataType, str] = {
    BIGINT: r"^-?(0|[1-9][0-9]*)$",
    DOUBLE: r"(?i)^(-?(0|[1-9][0-9]*|)(\.[0-9]*)?(e[+-]?[0-9]+)?|[+-]?inf(inity)?|nan)$",
}
"""Narrower than what a write takes: leading zeros and plus signs, as of post codes and telephone numbers, would be lost."""
LEADING_ZERO = r"^[+-]?0[0-9]"
EXACT_DIGITS = 15
"""A DOUBLE keeps that many digits of any number."""
MOST_ODD = 3


class TextEvidence:
    """What has been seen in the texts of one column so far."""

    def __init__(self, form: TextForm, candidates: Sequence[DataType]) -> None:
        self._form = form
        self._left = list(candidates)
        self._absent = pa.array(["", *form.null_values])
        self._whole_digits = self._scale = 0
        self._in_exact_form = True
        self._too_wide: str | None = None
        self._odd: set[str] = set()
        self._some_numbers = False
        self._leading_zero: str | None = None
        self._all_times = True
        self.seen = False

    def add(self, texts: pa.Array) -> None:
        texts = texts.drop_null()
        texts = texts.filter(pc.invert(pc.is_in(texts, self._absent)))
        if not len(texts):
            return
        self._look(texts)
        self._left = [t for t in self._left if self._takes(t, texts)]
        if DOUBLE in self._left:
            self._measure(texts)
        self.seen = True

    def _takes(self, t: DataType, texts: pa.Array) -> bool:
        form = replace(self._form, timezone=None) if t.root == "TIMESTAMP" else self._form
        spelled = SPELLED_AS.get(t)
        try:
            parse_text(texts.slice(0, 1), t, form)  # most types are ruled out by the first text
            if spelled is not None and not pc.all(pc.match_substring_regex(texts, spelled)).as_py():
                return False
            parse_text(texts, t, form)
        except BadCells:
            return False
        return True

    def _measure(self, texts: pa.Array) -> None:
        """Record how many digits the numbers have, and whether a DOUBLE preserves them."""
        parts = pc.extract_regex(texts, r"^-?(?P<whole>[0-9]*)\.?(?P<fraction>[0-9]*)$").drop_null()
        self._in_exact_form &= len(parts) == len(texts)
        if len(parts):
            whole, fraction = (pc.utf8_length(parts.field(name)) for name in ("whole", "fraction"))
            self._whole_digits = max(self._whole_digits, pc.max(whole).as_py())
            self._scale = max(self._scale, pc.max(fraction).as_py())
        digits = pc.utf8_ltrim(pc.replace_substring_regex(texts, r"(?i)[-.]|e.*$", ""), "0")
        long = texts.filter(pc.greater(pc.utf8_length(digits), EXACT_DIGITS))
        for text in long.to_pylist() if self._too_wide is None else ():
            if _rounded(text):
                self._too_wide = text
                break

    def _look(self, texts: pa.Array) -> None:
        """Record what explains to the user why a column is text."""
        if self._all_times:
            self._all_times = bool(pc.all(pc.match_substring_regex(texts, TIMESTAMP)).as_py())
        if len(self._odd) <= MOST_ODD:
            numbers = pc.or_(pc.match_substring_regex(texts, NUMBER), pc.match_substring_regex(texts, NOT_FINITE))
            self._some_numbers |= bool(pc.any(numbers).as_py())
            odd = texts.filter(pc.invert(numbers)).unique().slice(0, MOST_ODD + 1)
            zeros = texts.filter(pc.match_substring_regex(texts, LEADING_ZERO)).slice(0, 1)
            self._leading_zero = self._leading_zero or (zeros[0].as_py() if len(zeros) else None)
            self._odd |= set(odd.to_pylist())

    def conclusion(self) -> tuple[DataType, str]:
        """The inferred type, and what the user should know about it, or ''."""
        if not self.seen:
            return STRING, "it has no values"
        if not self._left:
            return STRING, self._why_text()
        best = self._left[0]
        if best == DOUBLE and self._too_wide is not None:
            return self._exact_number()
        return best, ""

    @property
    def takes_nanoseconds(self) -> bool:
        """Whether all times fit a column with nine digits, too."""
        return not self.seen or TimestampType(self._left[0].root, 9) in self._left

    def _exact_number(self) -> tuple[DataType, str]:
        example = shown(self._too_wide)
        if self._in_exact_form and self._whole_digits + self._scale <= MAX_DECIMAL_PRECISION:
            t = DecimalType(MAX_DECIMAL_PRECISION, self._scale)
            return t, f"{example} has more digits than BIGINT and DOUBLE hold"
        return STRING, f"{example} has more digits than any type of numbers here holds"

    def _why_text(self) -> str:
        if self._all_times:
            return "some of its times have an offset and some have none; --timezone gives the zone of the latter"
        if self._some_numbers and not self._odd:
            return f"its numbers have leading zeros or signs, such as {shown(self._leading_zero)}" if self._leading_zero else ""
        if self._some_numbers and len(self._odd) <= MOST_ODD:
            nulls = " ".join(map(null_value_flag, sorted(self._odd)))
            return f"beside numbers it holds {', '.join(map(shown, sorted(self._odd)))}; if that is null: {nulls}"
        return ""


def _rounded(text: str) -> bool:
    """Whether a DOUBLE cannot represent the number."""
    return Decimal(repr(float(text))) != Decimal(text)


def described(name: str, t: DataType, why: str) -> str:
    return f"column '{name}' is {type_to_sql(t)}: {why}"


NANOSECONDS = 9
DECLARE = "correct the input, or declare the columns with -C and write with --on-error skip"
MOST_FIELDS = 200
"""An object with more keys than a person would name columns is a map."""


@dataclass(frozen=True)
class InferredColumns:
    """Inferred columns, the number of rows examined (None: the file states its types), and notes for the user."""

    fields: tuple[DataField, ...]
    rows: int | None = None
    warnings: tuple[str, ...] = ()


def columns_of_file(
    source: str,
    format: str | None = None,
    form: TextForm = PLAIN,
    storage_options: Mapping[str, str] | None = None,
    declared: Mapping[str, DataType] | None = None,
) -> InferredColumns:
    """Infer columns, with the names in the files. All rows of text files are read, so that the types can hold each of them.

    `source`: a file, glob or directory, as for a write. Columns of text files that are `declared` have these types, whatever they
    hold. Raises `NotFound`, `UsageError`, `BadInput`.
    """
    splits = plan_sources([source], format, storage_options, form)
    formats = {split.format for split in splits}
    if len(formats) > 1 or (len({split.path for split in splits}) > 1 and not formats <= set(TEXT)):
        raise BadInput(f"{source} is several files", "columns are taken from one, or from text files of one format")
    reading = _Reading(form, storage_options, declared or {})
    for split in splits:
        reading.add(split)
    return reading.columns()


class _Reading:
    """What has been seen in the files so far."""

    def __init__(self, form: TextForm, storage_options: Mapping[str, str] | None, declared: Mapping[str, DataType]) -> None:
        self._form = form
        self._declared = declared
        self._options = storage_options
        self._shapes: dict[str, Shape] = {}
        self._typed: pa.Schema | None = None
        self._rows = 0

    def add(self, split: SourceSplit) -> None:
        storage, path = storage_for_url(split.path, self._options)
        open_source = partial(storage.open_input, path)
        if split.format == "csv":
            self._add_csv(split, open_source)
            return
        with open_source() as stream:
            if split.format == "json":
                self._add_json(split, text_stream(stream, split.path, split.name, self._form.encoding))
            else:
                self._typed = _typed_schema(split, stream)

    def _add_csv(self, split: SourceSplit, open_source: Callable[[], BinaryIO]) -> None:
        for raw in csv_batches(open_source, split, self._form):
            if raw.faults:
                raise _bad_row(raw.faults[0])
            self._rows += raw.batch.num_rows
            for name, cells in zip(raw.batch.schema.names, raw.batch.columns, strict=True):
                if name in self._declared:
                    self._shape(name)
                    continue
                texts, undecodable = converted(cells, text_of_cells)
                for cell in undecodable[:1]:
                    raise _bad_row(split.fault(int(raw.rows[cell.row]), cell.why, name, cell.value))
                self._shape(name).texts.add(texts)

    def _add_json(self, split: SourceSplit, stream: BinaryIO) -> None:
        for block in json_blocks(stream, split):
            values: dict[str, list[Any]] = {}
            for start, end in zip(*line_bounds(block), strict=True):
                parsed, problem = parsed_line(block[start:end], parse_constant=Decimal)
                if problem:
                    raise _bad_row(split.fault(self._rows, problem))
                for key, value in parsed.items():
                    values.setdefault(key, []).append(value)
                self._rows += 1
            for key, found in values.items():
                try:
                    self._shape(key, in_json=True).add([] if key in self._declared else found)
                except UnicodeEncodeError as problem:
                    what = f"{split.name}: column '{key}' holds text that is not valid Unicode"
                    raise BadInput(what, str(problem), DECLARE) from problem

    def _shape(self, name: str, *, in_json: bool = False) -> Shape:
        if name not in self._shapes:
            self._shapes[name] = Shape(self._form, TIMES if in_json else (BOOLEAN, *NUMBERS, *TIMES))
        return self._shapes[name]

    def columns(self) -> InferredColumns:
        warnings: list[str] = []
        ids = count()
        if self._typed is not None:
            return InferredColumns(tuple(_typed_field(column, warnings) for column in self._typed), None, tuple(warnings))
        if not self._shapes:
            raise BadInput("the input has no columns", "it is empty", "declare the columns with -C")
        known = self._declared
        types = {name: shape.conclusion(name, warnings, ids) for name, shape in self._shapes.items() if name not in known}
        times = [name for name, t in types.items() if isinstance(t, TimestampType)]
        if any(isinstance(t, TimestampType) and t.precision == NANOSECONDS for t in types.values()):
            types = {name: self._with_nanoseconds(name, t, times, warnings) for name, t in types.items()}
        fields = tuple(DataField(0, name, types.get(name) or known[name]) for name in self._shapes)
        return InferredColumns(fields, self._rows, tuple(warnings))

    def _with_nanoseconds(self, name: str, t: DataType, times: list[str], warnings: list[str]) -> DataType:
        """TIMESTAMP(9) for all timestamps with more than six digits, or for none: a parquet file stores them in one way."""
        if not isinstance(t, TimestampType):
            return t
        others = [other for other in times if not self._shapes[other].texts.takes_nanoseconds]
        if not others:
            return TimestampType(t.root, NANOSECONDS)
        if t.precision != NANOSECONDS:
            return t
        warnings.append(described(name, STRING, f"its nine digits cannot be combined with the years of '{others[0]}'"))
        return STRING


class Shape:
    """The values seen in a column, an element or a field."""

    def __init__(self, form: TextForm, candidates: tuple[DataType, ...]) -> None:
        self._form = form
        self.texts = TextEvidence(form, candidates)
        self._numbers = TextEvidence(form, NUMBERS)
        self._booleans = False
        self._element: Shape | None = None
        self._fields: dict[str, Shape] | None = None

    def add(self, values: list[Any]) -> None:
        """Add parsed JSON values. Values inside lists and objects are read as text or numbers, never as times."""
        self._booleans |= any(isinstance(value, bool) for value in values)
        self.texts.add(pa.array([value for value in values if isinstance(value, str)], pa.string()))
        numbers = [_number_text(value) for value in values if isinstance(value, (int, Decimal)) and not isinstance(value, bool)]
        self._numbers.add(pa.array(numbers, pa.string()))
        lists = [value for value in values if isinstance(value, list)]
        if lists:
            self._element = self._element or Shape(self._form, ())
            self._element.add([item for value in lists for item in value])
        objects = [value for value in values if isinstance(value, dict)]
        if objects:
            self._fields = {} if self._fields is None else self._fields
            inner: dict[str, list[Any]] = {}
            for value in objects:
                for key, item in value.items():
                    inner.setdefault(key, []).append(item)
            for key, items in inner.items():
                self._fields.setdefault(key, Shape(self._form, ())).add(items)

    def conclusion(self, name: str, warnings: list[str], ids: count[int]) -> DataType:
        """The inferred type. Raises `BadInput` if values of several kinds have no type in common."""
        kinds = {
            "texts": self.texts.seen,
            "numbers": self._numbers.seen,
            "true and false": self._booleans,
            "lists": self._element is not None,
            "objects": self._fields is not None,
        }
        found = [kind for kind, seen in kinds.items() if seen]
        if len(found) > 1:
            what = f"column '{name}' holds {' beside '.join(found)}"
            raise BadInput(what, "no column type takes both", "use one kind in the input, or declare the columns with -C")
        if self._booleans:
            return BOOLEAN
        if self._element is not None:
            return ArrayType(self._element.conclusion(f"{name}[]", warnings, ids))
        if self._fields is not None:
            return self._object(name, warnings, ids)
        t, why = (self._numbers if self._numbers.seen else self.texts).conclusion()
        if self._numbers.seen and t == STRING:
            what, why = f"column '{name}' holds numbers that no column type takes", why or "some are outside the range of DOUBLE"
            raise BadInput(what, why, "write them as texts in the input, or declare the columns with -C")
        if why:
            warnings.append(described(name, t, why))
        return t

    def _object(self, name: str, warnings: list[str], ids: count[int]) -> DataType:
        fields = self._fields or {}
        types = {key: shape.conclusion(f"{name}.{key}", warnings, ids) for key, shape in fields.items()}
        if not types or "" in types or (len(types) > MOST_FIELDS and len(set(types.values())) == 1):
            value = next(iter(types.values()), STRING)
            if set(types.values()) - {value}:
                why = "as a map it needs values of one type, and no field of a ROW has an empty name"
                raise BadInput(f"column '{name}' holds objects with an empty key", why, "declare the columns with -C")
            return MapType(STRING.with_nullable(False), value)
        return RowType(tuple(DataField(next(ids), key, t) for key, t in types.items()))


def _number_text(number: int | Decimal) -> str:
    """The number as text. A number with a fraction or an exponent is no BIGINT."""
    text = str(number)
    return f"{text}.0" if isinstance(number, Decimal) and text.lstrip("-").isdigit() else text


def _bad_row(fault: Fault) -> BadInput:
    return BadInput(fault.what, fault.why, cure([fault]) or DECLARE)


def _typed_schema(split: SourceSplit, stream: BinaryIO) -> pa.Schema:
    try:
        if split.format == "parquet":
            return pq.read_schema(stream).remove_metadata()
        return OrcFile(stream).schema if split.format == "orc" else arrow_file(stream)[0].remove_metadata()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        raise BadInput(f"cannot read {split.name} as {split.format}", str(error).split("\n")[0]) from error


def _typed_field(column: pa.Field, warnings: list[str]) -> DataField:
    if pa.types.is_null(column.type):
        warnings.append(described(column.name, STRING, "it has no values"))
        return DataField(0, column.name, STRING)
    return DataField(0, column.name, type_from_arrow(column.type, column.nullable))
