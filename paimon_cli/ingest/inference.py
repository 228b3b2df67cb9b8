"""Infers the columns of a table from existing files, for `create --from-file`. A write with the same options accepts those
files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from itertools import count
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from paimon_cli.bucket.orc_file import OrcFile
from paimon_cli.datatypes.arrow_types import type_from_arrow
from paimon_cli.datatypes.data_type import BOOLEAN, STRING, ArrayType, DataField, DataType, MapType, RowType, TimestampType
from paimon_cli.errors import BadInput
from paimon_cli.ingest.bad_cells import converted
from paimon_cli.ingest.csv_and_columnar import csv_batches
from paimon_cli.ingest.json_rows import json_blocks, parsed_line
from paimon_cli.ingest.rejects import Fault, cure
from paimon_cli.ingest.sources import text_stream
from paimon_cli.ingest.splits import SourceSplit, arrow_file, line_bounds, plan_sources
from paimon_cli.ingest.text_evidence import NUMBERS, TIMES, TextEvidence, described
from paimon_cli.ingest.text_form import TEXT, TextForm
from paimon_cli.ingest.text_values import PLAIN, text_of_cells
from paimon_cli.storage.storage_for_url import storage_for_url

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
    source: str, format: str | None = None, form: TextForm = PLAIN, storage_options: Mapping[str, str] | None = None
) -> InferredColumns:
    """Infer columns, with the names in the files. All rows of text files are read, so that the types can hold each of them.

    `source`: a file, glob or directory, as for a write. Raises `NotFound`, `UsageError`, `BadInput`.
    """
    splits = plan_sources([source], format, storage_options, form)
    formats = {split.format for split in splits}
    if len(formats) > 1 or (len({split.path for split in splits}) > 1 and not formats <= set(TEXT)):
        raise BadInput(f"{source} is several files", "columns are taken from one, or from text files of one format")
    reading = _Reading(form, storage_options)
    for split in splits:
        reading.add(split)
    return reading.columns()


class _Reading:
    """What has been seen in the files so far."""

    def __init__(self, form: TextForm, storage_options: Mapping[str, str] | None) -> None:
        self._form = form
        self._options = storage_options
        self._shapes: dict[str, Shape] = {}
        self._typed: pa.Schema | None = None
        self._rows = 0

    def add(self, split: SourceSplit) -> None:
        storage, path = storage_for_url(split.path, self._options)

        def open_source() -> BinaryIO:
            return storage.open_input(path)

        if split.format == "csv":
            self._add_csv(split, open_source)
            return
        with open_source() as stream:
            if split.format == "json":
                encoding = None if self._form.is_utf8 else self._form.encoding
                self._add_json(split, text_stream(stream, split.path, split.name, encoding))
            else:
                self._typed = _typed_schema(split, stream)

    def _add_csv(self, split: SourceSplit, open_source: Any) -> None:
        for raw in csv_batches(open_source, split, self._form):
            if raw.faults:
                raise _bad_row(raw.faults[0])
            self._rows += raw.batch.num_rows
            for name, cells in zip(raw.batch.schema.names, raw.batch.columns, strict=True):
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
                    self._shape(key, in_json=True).add(found)
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
        named = [(name, shape.conclusion(name, warnings, ids)) for name, shape in self._shapes.items()]
        times = [name for name, t in named if isinstance(t, TimestampType)]
        if any(isinstance(t, TimestampType) and t.precision == NANOSECONDS for _, t in named):
            named = [(name, self._with_nanoseconds(name, t, times, warnings)) for name, t in named]
        return InferredColumns(tuple(DataField(0, name, t) for name, t in named), self._rows, tuple(warnings))

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
