"""Reads JSON lines and arrays, one object per row: natural JSON, or the canonical form that `read -o ndjson` prints."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from lzma import LZMAError
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.json as pajson

from paimon_cli.datatypes.arrow_types import values_to_arrow
from paimon_cli.datatypes.canonical_form import from_canonical
from paimon_cli.datatypes.data_type import (
    FLOATING_ROOTS,
    INTEGER_ROOTS,
    ArrayType,
    DataField,
    DataType,
    DecimalType,
    MapType,
    MultisetType,
    NestedType,
    RowType,
)
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.errors import BadInput, NotSupported
from paimon_cli.ingest.faults import KEY_IS_MISSING, NO_OBJECT, NOT_JSON, BadCell, BadCells, Fault, shown
from paimon_cli.ingest.source_files import RawRows, SourceSplit
from paimon_cli.ingest.text_blocks import BYTE_ORDER_MARK, NotAnArray, array_blocks, begins_array, line_bounds
from paimon_cli.ingest.text_form import TextForm
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
NUMBER_ROOTS = INTEGER_ROOTS | FLOATING_ROOTS | {"DECIMAL"}
LONE_SURROGATE = re.compile("[\ud800-\udfff]")
UNFIT = (pa.ArrowException, ValueError, TypeError, OverflowError, NotSupported)
"""What Arrow and `values_to_arrow` raise for a value that is too large or of another kind."""


def json_batches(stream: BinaryIO, split: SourceSplit, fields: Sequence[DataField], needed: Needed) -> Iterator[RawRows]:
    """All `fields` as columns, a missing key as null; atomic types as text or as parsed numbers.

    Faults of rows: a malformed line, an unknown key, a missing key of `needed`, a value of another JSON type.
    """
    row = 0
    for block in json_blocks(stream, split):
        starts, ends = line_bounds(block)
        table = _parsed_by_arrow(block, starts, ends, fields)
        lacking = set() if table is None else _lacking(table, block, needed)
        if table is not None and not lacking & needed.strictly:
            needed.lacked |= lacking
            for batch in table.to_batches(max_chunksize=BATCH_ROWS):
                yield RawRows(batch, np.arange(row, row + batch.num_rows))
                row += batch.num_rows
            continue
        for first in range(0, len(starts), BATCH_ROWS):
            lines = [block[s:e] for s, e in zip(starts[first:][:BATCH_ROWS], ends[first:][:BATCH_ROWS], strict=True)]
            yield _parsed_by_line(lines, split, row + first, fields, needed)
        row += len(starts)


@dataclass
class Needed:
    """The keys that rows must have (`strictly`); of those in `noticed`, `lacked` collects the ones that some rows did not
    have.
    """

    strictly: frozenset[str] = frozenset()
    noticed: frozenset[str] = frozenset()
    lacked: set[str] = field(default_factory=set)


def _lacking(table: pa.Table, block: bytes, needed: Needed) -> set[str]:
    """Columns whose key is not in every line. A text cannot look like a key, because its quotes are escaped."""
    wanted = (needed.strictly | needed.noticed) - needed.lacked
    return {
        name
        for name in wanted & set(table.column_names)
        if table[name].null_count and _key_count(block, name, table.num_rows) < table.num_rows
    }


def _key_count(block: bytes, name: str, rows: int) -> int:
    plain = block.count(json.dumps(name, ensure_ascii=False).encode() + b":")
    if plain >= rows:
        return plain
    spellings = {json.dumps(name, ensure_ascii=False).encode(), json.dumps(name).encode()}
    return len(re.findall(b"(?:" + b"|".join(map(re.escape, spellings)) + rb")\s*:", block))


def json_blocks(stream: BinaryIO, split: SourceSplit) -> Iterator[bytes]:
    """The split's bytes in blocks that end at the end of a line."""
    try:
        if split.start:
            stream.seek(split.start)
        left = split.length
        while block := stream.read(BLOCK_BYTES if left is None else min(BLOCK_BYTES, left)):
            if not split.start and left == split.length:
                if block.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                    raise BadInput(f"{split.name} is UTF-16", "it was read as UTF-8", "--encoding utf-16", source=split.name)
                if begins_array(block):
                    yield from array_blocks(stream, block, BLOCK_BYTES)
                    return
            if not block.endswith(b"\n"):
                block += stream.readline()
            size = len(block)
            yield block.removeprefix(BYTE_ORDER_MARK) if not split.start and left == split.length else block
            left = None if left is None else max(0, left - size)
    except (OSError, EOFError, LZMAError, NotAnArray) as problem:
        raise BadInput(f"cannot read {split.name}", str(problem), source=split.name) from problem


def _parsed_by_arrow(block: bytes, starts: np.ndarray, ends: np.ndarray, fields: Sequence[DataField]) -> pa.Table | None:
    """Parse the fast way. None if anything is unusual: the slow way then decides and reports the error."""
    if not len(starts) or any(isinstance(field.type, NestedType) for field in fields):
        return None
    text = np.frombuffer(block, np.uint8)
    # pyarrow accepts objects anywhere; only if all lines have the form {...} do its rows correspond to lines.
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


def _parsed_by_line(lines: Sequence[bytes], split: SourceSplit, row: int, fields: Sequence[DataField], needed: Needed) -> RawRows:
    """Parse the exact way, with Python's parser line by line: maps as lists of pairs and numbers of any length need it."""
    known = {field.name for field in fields}
    objects: list[dict[str, Any]] = []
    rows: list[int] = []
    faults: list[Fault] = []
    for number, line in enumerate(lines, row):
        problem = _line_problem(line, known, needed, objects)
        if problem:
            faults.append(split.fault(number, problem, value=line.decode(errors="backslashreplace")))
        else:
            rows.append(number)
    columns = []
    for field_ in fields:
        values = [found.get(field_.name) for found in objects]
        strict = field_.name in needed.strictly
        column, cells = _column(values, field_.type, missing_are_null=not strict)
        columns.append(column)
        faults += (split.fault(rows[cell.row], cell.why, field_.name, cell.value) for cell in cells)
    batch = pa.RecordBatch.from_arrays(columns, names=[field_.name for field_ in fields])
    return RawRows(batch, np.array(rows, np.int64), faults)


def _line_problem(line: bytes, known: set[str], needed: Needed, objects: list[dict[str, Any]]) -> str:
    """Append the line's object to `objects`; returns '' or what is wrong with the line."""
    parsed, problem = parsed_line(line)
    if problem:
        return problem
    unknown = parsed.keys() - known
    if unknown:
        return f"key {shown(min(unknown))} is not a column of the table (columns: {', '.join(sorted(known))})"
    missing = needed.strictly - parsed.keys()
    if missing:
        return f"key {shown(min(missing))}{KEY_IS_MISSING}"
    needed.lacked |= needed.noticed - parsed.keys()
    objects.append(parsed)
    return ""


def parsed_line(line: bytes, parse_constant: Callable[[str], Any] = str) -> tuple[dict[str, Any], str]:
    """The line's object, or what is wrong with the line. Fractions become Decimals, NaN and Infinity `parse_constant`."""
    try:
        text = line.decode("utf-8")
        parsed = json.loads(text, parse_float=Decimal, parse_constant=parse_constant, object_pairs_hook=_object)
    except (ValueError, RecursionError) as problem:
        return {}, f"{NOT_JSON}{problem}"
    return (parsed, "") if isinstance(parsed, dict) else ({}, f"{NO_OBJECT}{shown(parsed)}")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key appears twice")
    return found


def _column(values: Sequence[Any], t: DataType, *, missing_are_null: bool) -> tuple[pa.Array, list[BadCell]]:
    """Parsed JSON values as a column, atomic ones as their text; cells that do not fit become null.

    Values are converted one by one: they are Python objects already, and there is no vectorised parser for nested values.
    """
    if isinstance(t, NestedType):
        return nested_column(values, t, missing_are_null=missing_are_null)
    texts, cells = _one_by_one(values, lambda value: value if isinstance(value, str) else _text(value, t))
    try:
        return pa.array(texts, pa.string()), cells
    except UnicodeEncodeError:
        lone = [row for row, text in enumerate(texts) if text is not None and LONE_SURROGATE.search(text)]
        for row in lone:
            cells.append(BadCell(row, texts[row], "it is not valid Unicode"))
            texts[row] = None
        return pa.array(texts, pa.string()), cells


def _one_by_one(values: Sequence[Any], convert: Callable[[Any], Any]) -> tuple[list[Any], list[BadCell]]:
    """Converted values; None for those that raise `ValueError`."""
    made: list[Any] = []
    cells: list[BadCell] = []
    for row, value in enumerate(values):
        try:
            made.append(None if value is None else convert(value))
        except ValueError as problem:
            made.append(None)
            cells.append(BadCell(row, _compact(value), str(problem)))
    return made, cells


def _text(value: Any, t: DataType) -> str:
    if isinstance(value, bool):
        if t.root == "BOOLEAN":
            return "true" if value else "false"
    elif isinstance(value, (int, Decimal)) and t.root in NUMBER_ROOTS:
        return str(value)
    raise ValueError(f"{type_to_sql(t)} is not written like this in JSON")


def nested_column(values: Sequence[Any], t: DataType, *, missing_are_null: bool = True) -> tuple[pa.Array, list[BadCell]]:
    """ARRAY, MAP, MULTISET and ROW values; cells that do not fit become null."""
    internal, cells = _one_by_one(values, lambda value: from_canonical(_canonical(value, t, missing_are_null), t))
    try:
        return values_to_arrow(internal, t), cells
    except UNFIT:
        for row, value in enumerate(internal):
            try:
                values_to_arrow([value], t)
            except UNFIT as problem:
                cells.append(BadCell(row, _compact(values[row]), str(problem)))
                internal[row] = None
        return values_to_arrow(internal, t), cells


def _canonical(value: Any, t: DataType, missing_are_null: bool) -> Any:
    """Natural JSON in canonical form: numbers of DECIMAL as text, objects of MAP and MULTISET as lists of pairs."""
    if value is None:
        return None
    if isinstance(t, DecimalType):
        return str(value) if isinstance(value, (int, Decimal)) and not isinstance(value, bool) else value
    if t.root in FLOATING_ROOTS:
        return float(value) if isinstance(value, (int, Decimal)) and not isinstance(value, bool) else value
    if t.root in CALENDAR_ROOTS and isinstance(value, str):
        check_calendar_text(value, t)
        return value
    if isinstance(t, ArrayType) and isinstance(value, list):
        return [_canonical(item, t.element, missing_are_null) for item in value]
    if isinstance(t, (MapType, MultisetType)):
        return _pairs(value, t, missing_are_null)
    if isinstance(t, RowType) and isinstance(value, dict):
        types = {field.name: field.type for field in t.fields}
        needed = {name for name, inner in types.items() if not (missing_are_null and inner.nullable)}
        if not needed <= value.keys() <= types.keys():
            raise ValueError(f"its fields are {', '.join(types)}")
        return {name: _canonical(value.get(name), inner, missing_are_null) for name, inner in types.items()}
    return value


def _pairs(value: Any, t: MapType | MultisetType, missing_are_null: bool) -> Any:
    if isinstance(value, dict):
        value = [[k, v] for k, v in value.items()]
    if not isinstance(value, list) or any(not isinstance(p, list) or len(p) != 2 for p in value):
        raise ValueError("a map is an object or a list of [key, value] pairs")
    return [[_canonical(k, t.key, missing_are_null), _canonical(v, t.value, missing_are_null)] for k, v in value]


def _compact(value: Any) -> object:
    """The value for messages: texts and numbers as they are, anything else as JSON."""
    plain = isinstance(value, (str, int, Decimal)) and not isinstance(value, bool)
    return value if plain else json.dumps(value, default=str, ensure_ascii=False)


def nested_from_text(texts: pa.Array, t: DataType, form: TextForm, *, missing_are_null: bool = True) -> pa.Array:
    """Parse the JSON text of CSV cells into nested values. Raises `BadCells`."""

    def parse(text: str) -> Any:
        try:
            return json.loads(text, parse_float=Decimal, parse_constant=str)
        except (ValueError, RecursionError) as problem:
            raise ValueError(f"{type_to_sql(t)} is written as JSON in a CSV cell: {problem}") from problem

    absent = {"", *form.null_values}
    given = [None if text in absent else text for text in texts.to_pylist()]
    values, cells = _one_by_one(given, parse)
    column, unfit = nested_column(values, t, missing_are_null=missing_are_null)
    if cells or unfit:
        raise BadCells(sorted([*cells, *unfit], key=lambda cell: cell.row))
    return column
