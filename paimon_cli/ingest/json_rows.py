"""Reads JSON, one object per row, as lines or as one array. Values are plain JSON or the canonical form of `read -o ndjson`."""

from __future__ import annotations

import codecs
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence, Set
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
    VariantType,
)
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.datatypes.variant_building import NoNumber, whole_number, why_no_json
from paimon_cli.errors import BadInput, NotSupported
from paimon_cli.ingest.faults import (
    KEY_IS_MISSING,
    NO_OBJECT,
    NOT_JSON,
    TOO_DEEP,
    BadCell,
    BadCells,
    Fault,
    change_event,
    format_of_event,
    shown,
)
from paimon_cli.ingest.source_files import RawRows, SourceSplit
from paimon_cli.ingest.text_blocks import BYTE_ORDER_MARK, NotAnArray, array_blocks, begins_array, line_bounds
from paimon_cli.ingest.text_form import TextForm
from paimon_cli.ingest.text_values import CALENDAR_ROOTS, check_calendar_text
from paimon_cli.pieces import PIECES

MAX_WHOLE_DIGITS = 20
"""More than any integer type holds."""
ARROW_JSON_TYPES = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int64(),
    "SMALLINT": pa.int64(),
    "INT": pa.int64(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float64(),
    "DOUBLE": pa.float64(),
}
"""Types that pyarrow's reader parses exactly; it reads every other atomic type as text."""
NUMBER_ROOTS = INTEGER_ROOTS | FLOATING_ROOTS | {"DECIMAL"}
LONE_SURROGATE = re.compile("[\ud800-\udfff]")
MISFITS = (pa.ArrowException, ValueError, TypeError, OverflowError, NotSupported)
"""What Arrow and `values_to_arrow` raise for a value that is too large or of another type."""


def json_batches(stream: BinaryIO, split: SourceSplit, fields: Sequence[DataField], keys: Needed) -> Iterator[RawRows]:
    """All `fields` as columns, null where a row lacks the key. Atomic types come as text or as parsed numbers.

    Faults of rows: a malformed line, an unknown key, a missing key of `keys.required`, a value of another JSON type.
    """
    row = 0
    for block in json_blocks(stream, split):
        starts, ends = line_bounds(block)
        table = _parsed_by_arrow(block, starts, ends, fields)
        missing = set() if table is None else _missing_keys(table, block, keys)
        if table is not None and not missing & keys.required:
            keys.missing |= missing
            for batch in table.to_batches(max_chunksize=PIECES.batch_rows):
                yield RawRows(batch, np.arange(row, row + batch.num_rows))
                row += batch.num_rows
            continue
        for first in range(0, len(starts), PIECES.batch_rows):
            lines = [
                block[s:e] for s, e in zip(starts[first:][: PIECES.batch_rows], ends[first:][: PIECES.batch_rows], strict=True)
            ]
            yield _parsed_by_line(lines, split, row + first, fields, keys)
        row += len(starts)


@dataclass
class Needed:
    """The keys that every row of JSON must have, or should have.

    `required`: a row without one of them is a fault. `optional`: a row may lack them. `missing` collects the optional keys that
    some rows lacked.
    """

    required: frozenset[str] = frozenset()
    optional: frozenset[str] = frozenset()
    missing: set[str] = field(default_factory=set)


def _missing_keys(table: pa.Table, block: bytes, keys: Needed) -> set[str]:
    """Keys that some lines lack. No text can be mistaken for a key, because quotes inside texts are escaped."""
    unresolved = (keys.required | keys.optional) - keys.missing
    return {
        name
        for name in unresolved & set(table.column_names)
        if table[name].null_count and _key_count(block, name, table.num_rows) < table.num_rows
    }


def _key_count(block: bytes, name: str, rows: int) -> int:
    """How often the key occurs in the block; counting ends early once every row may have it."""
    plain = block.count(json.dumps(name, ensure_ascii=False).encode() + b":")
    if plain >= rows:
        return plain
    spellings = {json.dumps(name, ensure_ascii=False).encode(), json.dumps(name).encode()}
    return len(re.findall(b"(?:" + b"|".join(map(re.escape, spellings)) + rb")\s*:", block))


def json_blocks(stream: BinaryIO, split: SourceSplit) -> Iterator[bytes]:
    """The split's text in blocks of whole lines, with the elements of an array as lines. Raises `BadInput` for a damaged file."""
    try:
        if split.start:
            stream.seek(split.start)
        left, is_first = split.length, not split.start
        while block := stream.read(PIECES.json_block_bytes if left is None else min(PIECES.json_block_bytes, left)):
            if is_first:
                if block.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                    raise BadInput(f"{split.name} is UTF-16", "it was read as UTF-8", "--encoding utf-16", source=split.name)
                if begins_array(block):
                    yield from array_blocks(stream, block, PIECES.json_block_bytes)
                    return
            if not block.endswith(b"\n"):
                block += stream.readline()
            left = None if left is None else max(0, left - len(block))
            yield block.removeprefix(BYTE_ORDER_MARK) if is_first else block
            is_first = False
    except (OSError, EOFError, LZMAError, NotAnArray) as problem:
        raise BadInput(f"cannot read {split.name}", str(problem), source=split.name) from problem


def _parsed_by_arrow(block: bytes, starts: np.ndarray, ends: np.ndarray, fields: Sequence[DataField]) -> pa.Table | None:
    """Parse a block with pyarrow. None if anything is unusual: Python's parser then decides, and reports the fault exactly."""
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


def _parsed_by_line(
    lines: Sequence[bytes], split: SourceSplit, first_row: int, fields: Sequence[DataField], keys: Needed
) -> RawRows:
    """Parse line by line with Python's parser, which reads maps as lists of pairs and numbers of any length."""
    columns_of_table = {column.name for column in fields}
    objects: list[dict[str, Any]] = []
    rows: list[int] = []
    faults: list[Fault] = []
    for row, line in enumerate(lines, first_row):
        parsed, problem = parsed_line(line)
        problem = problem or _key_problem(parsed.keys(), columns_of_table, keys)
        if problem:
            faults.append(split.fault(row, problem, value=line.decode(errors="backslashreplace")))
        else:
            objects.append(parsed)
            rows.append(row)
    columns = []
    for column in fields:
        values = [parsed.get(column.name) for parsed in objects]
        cells, bad = _column(values, column.type, missing_are_null=column.name not in keys.required)
        columns.append(cells)
        faults += (split.fault(rows[cell.row], cell.why, column.name, cell.value) for cell in bad)
    batch = pa.RecordBatch.from_arrays(columns, names=[column.name for column in fields])
    return RawRows(batch, np.array(rows, np.int64), faults)


def _key_problem(found: Set[str], columns: set[str], keys: Needed) -> str:
    """What is wrong with the keys of a row, or ''; optional keys that it lacks are recorded in `keys.missing`."""
    unknown = found - columns
    if unknown:
        if (events := format_of_event(found)) is not None:
            return change_event(events)
        return f"key {shown(min(unknown))} is not a column of the table (columns: {', '.join(sorted(columns))})"
    missing = keys.required - found
    if missing:
        return f"key {shown(min(missing))}{KEY_IS_MISSING}"
    keys.missing |= keys.optional - found
    return ""


def parsed_line(line: bytes, parse_constant: Callable[[str], Any] = NoNumber) -> tuple[dict[str, Any], str]:
    """The line's object and '', or an empty object and what is wrong with the line.

    Fractions and very long numbers become `Decimal`; `parse_constant` converts NaN and Infinity.
    """
    try:
        text = line.decode("utf-8")
        parsed = json.loads(
            text, parse_float=Decimal, parse_int=whole_number, parse_constant=parse_constant, object_pairs_hook=_object
        )
    except RecursionError:
        return {}, TOO_DEEP
    except ValueError as problem:
        return {}, f"{NOT_JSON}{problem}"
    return (parsed, "") if isinstance(parsed, dict) else ({}, f"{NO_OBJECT}{shown(parsed)}")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    parsed = dict(pairs)
    if len(parsed) < len(pairs):
        raise ValueError("a key appears twice")
    return parsed


def _column(values: Sequence[Any], t: DataType, *, missing_are_null: bool) -> tuple[pa.Array, list[BadCell]]:
    """Parsed JSON values as a column (values of an atomic type as text), and the bad cells, which are null in it.

    Values are converted one by one, because they are Python objects already.
    """
    if isinstance(t, NestedType):
        return nested_column(values, t, missing_are_null=missing_are_null)
    texts, cells = _one_by_one(values, lambda value: _text(value, t))
    try:
        return pa.array(texts, pa.string()), cells
    except UnicodeEncodeError:
        lone = [row for row, text in enumerate(texts) if text is not None and LONE_SURROGATE.search(text)]
        for row in lone:
            cells.append(BadCell(row, texts[row], "it is not valid Unicode"))
            texts[row] = None
        return pa.array(texts, pa.string()), cells


def _one_by_one(values: Sequence[Any], convert: Callable[[Any], Any]) -> tuple[list[Any], list[BadCell]]:
    """The converted values, None for null; cells for which `convert` raises `ValueError` are None, too, and bad."""
    results: list[Any] = []
    cells: list[BadCell] = []
    for row, value in enumerate(values):
        try:
            results.append(None if value is None else convert(value))
        except ValueError as problem:
            results.append(None)
            cells.append(BadCell(row, _compact(value), str(problem)))
    return results, cells


def _text(value: Any, t: DataType) -> str:
    if isinstance(value, str) and (t.root in FLOATING_ROOTS or not isinstance(value, NoNumber)):
        return value
    if isinstance(value, bool):
        if t.root == "BOOLEAN":
            return "true" if value else "false"
    elif isinstance(value, (int, Decimal)) and t.root in NUMBER_ROOTS:
        return str(_whole(value) if t.root in INTEGER_ROOTS else value)
    raise ValueError(f"it is not a JSON value for {type_to_sql(t)}")


def _whole(value: int | Decimal) -> int | Decimal:
    """`103.0` and `1e2` as integers, since JSON has one kind of number; others, and what no integer type holds, as is."""
    if not isinstance(value, Decimal) or not value.is_finite() or value.adjusted() >= MAX_WHOLE_DIGITS:
        return value
    return int(value) if value == value.to_integral_value() else value


def nested_column(values: Sequence[Any], t: DataType, *, missing_are_null: bool = True) -> tuple[pa.Array, list[BadCell]]:
    """ARRAY, MAP, MULTISET or ROW values as a column, and the bad cells, which are null in it.

    `missing_are_null`: a nullable field that a ROW value lacks is null; else the value is bad.
    """
    internal, cells = _one_by_one(values, lambda value: from_canonical(_canonical(value, t, missing_are_null), t))
    try:
        return values_to_arrow(internal, t), cells
    except MISFITS:
        for row, value in enumerate(internal):
            try:
                values_to_arrow([value], t)
            except MISFITS as problem:
                cells.append(BadCell(row, _compact(values[row]), str(problem)))
                internal[row] = None
        return values_to_arrow(internal, t), cells


def _floating(value: int | Decimal, t: DataType) -> float:
    """The number as a float. Raises `ValueError` for one that would become infinite in the type."""
    try:
        number = float(value)
    except OverflowError:  # of a whole number; a decimal becomes infinite
        number = math.inf
    with np.errstate(over="ignore"):
        is_infinite = np.isinf(np.float32(number) if t.root == "FLOAT" else number)
    if is_infinite:
        raise ValueError(f"it is outside the range of {t.root}")
    return number


def _canonical(value: Any, t: DataType, missing_are_null: bool) -> Any:
    """Plain JSON in canonical form: a DECIMAL number as text, an object for a MAP or MULTISET as a list of pairs."""
    if value is None or isinstance(t, VariantType):
        return value
    if isinstance(value, NoNumber) and t.root not in FLOATING_ROOTS:
        raise ValueError(f"it is not a JSON value for {type_to_sql(t)}")
    if isinstance(t, DecimalType):
        return str(value) if isinstance(value, (int, Decimal)) and not isinstance(value, bool) else value
    if t.root in INTEGER_ROOTS and isinstance(value, Decimal):
        return _whole(value)
    if t.root in FLOATING_ROOTS:
        return _floating(value, t) if isinstance(value, (int, Decimal)) and not isinstance(value, bool) else value
    if t.root in CALENDAR_ROOTS and isinstance(value, str):
        check_calendar_text(value, t)
        return value
    if isinstance(t, ArrayType) and isinstance(value, list):
        return [_canonical(item, t.element, missing_are_null) for item in value]
    if isinstance(t, (MapType, MultisetType)):
        return _pairs(value, t, missing_are_null)
    if isinstance(t, RowType) and isinstance(value, dict):
        types = {field.name: field.type for field in t.fields}
        required = {name for name, inner in types.items() if not (missing_are_null and inner.nullable)}
        if not required <= value.keys() <= types.keys():
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
    """Parse CSV cells that hold JSON into nested values; empty cells and `form.null_values` are null. Raises `BadCells`."""

    def parse(text: str) -> Any:
        try:
            return json.loads(text, parse_float=Decimal, parse_constant=NoNumber)
        except (ValueError, RecursionError) as problem:
            why = why_no_json(problem) if isinstance(problem, json.JSONDecodeError) else problem
            why = TOO_DEEP if isinstance(problem, RecursionError) else why
            raise ValueError(f"{type_to_sql(t)} is written as JSON: {why}") from problem

    null_texts = {"", *form.null_values}
    values, unparsed = _one_by_one([None if text in null_texts else text for text in texts.to_pylist()], parse)
    column, misfits = nested_column(values, t, missing_are_null=missing_are_null)
    if unparsed or misfits:
        raise BadCells(sorted([*unparsed, *misfits], key=lambda cell: cell.row))
    return column
