"""JSON lines: the canonical form that `read -o ndjson` prints, and natural JSON; one object a line."""

from __future__ import annotations

import gzip
import io
import json
import re
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any, BinaryIO, cast

import numpy as np
import pyarrow as pa
import pyarrow.json as pajson

from paimon_cli.datatypes.arrow_types import arrow_type
from paimon_cli.datatypes.canonical_form import from_canonical
from paimon_cli.datatypes.data_type import FLOATING_ROOTS, INTEGER_ROOTS, NESTED_ROOTS
from paimon_cli.datatypes.field_types import DataField, DataType, type_to_sql
from paimon_cli.datatypes.values import values_to_arrow
from paimon_cli.errors import BadInput, NotSupported
from paimon_cli.ingest.bad_cells import BadCell, shown
from paimon_cli.ingest.sources import is_gzipped
from paimon_cli.ingest.splits import SourceSplit, line_bounds
from paimon_cli.ingest.text_values import CALENDAR_ROOTS, check_calendar_text

BLOCK_BYTES = 8 << 20
BATCH_ROWS = 65536
ARROW_JSON_TYPES = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int64(),
    "SMALLINT": pa.int64(),
    "INT": pa.int64(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float64(),
    "DOUBLE": pa.float64(),
}
"""What pyarrow's reader parses exactly; every other atomic type comes as text."""


def json_batches(stream: BinaryIO, split: SourceSplit, fields: Sequence[DataField]) -> Iterator[pa.RecordBatch]:
    """All `fields` as columns, a missing key as null; atomic types as text or as parsed numbers.

    Raises BadInput that names the line's row number: malformed line, unknown key, value of another JSON kind.
    """
    row = 0
    for block in _blocks(stream, split):
        starts, ends = line_bounds(block)
        table = _parsed_by_arrow(block, starts, ends, fields)
        if table is not None:
            yield from table.to_batches(max_chunksize=BATCH_ROWS)
        else:
            for first in range(0, len(starts), BATCH_ROWS):
                lines = [block[s:e] for s, e in zip(starts[first:][:BATCH_ROWS], ends[first:][:BATCH_ROWS], strict=True)]
                yield from _parsed_by_line(lines, split, row + first, fields)
        row += len(starts)


def _blocks(stream: BinaryIO, split: SourceSplit) -> Iterator[bytes]:
    """The split's bytes in pieces that end with a line."""
    try:
        source = io.BufferedReader(cast(io.RawIOBase, gzip.GzipFile(fileobj=stream))) if is_gzipped(split.path) else stream
        if split.start:
            source.seek(split.start)
        left = split.length
        while block := source.read(BLOCK_BYTES if left is None else min(BLOCK_BYTES, left)):
            if not block.endswith(b"\n"):
                block += source.readline()
            left = None if left is None else max(0, left - len(block))
            yield block
    except (OSError, EOFError) as problem:
        raise BadInput(f"cannot read {split.name}", str(problem), source=split.name) from problem


def _parsed_by_arrow(block: bytes, starts: np.ndarray, ends: np.ndarray, fields: Sequence[DataField]) -> pa.Table | None:
    """The fast way; None when anything is odd: the slow way then decides and words the error."""
    if not len(starts) or any(field.type.root in NESTED_ROOTS for field in fields):
        return None
    text = np.frombuffer(block, np.uint8)
    # pyarrow takes objects wherever they begin and end; only lines of the form {...} make its rows the file's lines.
    if not (np.all(text[starts] == ord("{")) and np.all(text[ends - 1] == ord("}"))):
        return None
    schema = pa.schema([pa.field(f.name, ARROW_JSON_TYPES.get(f.type.root, pa.string())) for f in fields])
    try:
        table = pajson.read_json(
            pa.BufferReader(block),
            read_options=pajson.ReadOptions(use_threads=False, block_size=len(block) + 1),
            parse_options=pajson.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error"),
        )
    except pa.ArrowInvalid:
        return None
    return table if table.num_rows == len(starts) else None


def _parsed_by_line(
    lines: Sequence[bytes], split: SourceSplit, row: int, fields: Sequence[DataField]
) -> Iterator[pa.RecordBatch]:
    """The exact way: Python's parser line by line, since maps as lists of pairs and numbers of any length need it.

    Rows before a fault still come out, so that the first fault of the file is the one that is told.
    """
    known = {field.name for field in fields}
    objects: list[dict[str, Any]] = []
    fault: BadInput | None = None
    for number, line in enumerate(lines):
        problem = _line_problem(line, known, objects)
        if problem:
            fault = split.bad_row(row + number, problem)
            break
    try:
        batch = _columns(objects, fields)
    except _Fault as first:
        fault = split.bad_row(row + first.cell.row, first.cell.why, column=first.column, value=str(first.cell.value))
        batch = _columns(objects[: first.cell.row], fields)
    yield batch
    if fault is not None:
        raise fault


class _Fault(Exception):
    def __init__(self, cell: BadCell, column: str) -> None:
        super().__init__(cell, column)
        self.cell = cell
        self.column = column


def _line_problem(line: bytes, known: set[str], objects: list[dict[str, Any]]) -> str:
    """Append the line's object to `objects`; '' or what is wrong with the line."""
    try:
        parsed = json.loads(line.decode("utf-8"), parse_float=Decimal, parse_constant=str, object_pairs_hook=_object)
    except (ValueError, RecursionError) as problem:
        return f"the line is not JSON: {problem}"
    if not isinstance(parsed, dict):
        return f"the line is not a JSON object but {shown(parsed)}"
    unknown = parsed.keys() - known
    if unknown:
        return f"key {shown(min(unknown))} is no column of the table (columns: {', '.join(sorted(known))})"
    objects.append(parsed)
    return ""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key appears twice")
    return found


def _columns(objects: Sequence[dict[str, Any]], fields: Sequence[DataField]) -> pa.RecordBatch:
    columns, faults = [], []
    for field in fields:
        values = [found.get(field.name) for found in objects]
        try:
            nested = field.type.root in NESTED_ROOTS
            columns.append(nested_column(values, field.type) if nested else text_column(values, field.type))
        except BadCell as problem:
            faults.append(_Fault(problem, field.name))
    if faults:
        raise min(faults, key=lambda fault: fault.cell.row)
    return pa.RecordBatch.from_arrays(columns, names=[field.name for field in fields])


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
