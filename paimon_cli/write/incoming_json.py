"""JSON lines: the canonical form that `read -o ndjson` prints, and natural JSON; one object a line."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any, BinaryIO, cast

import numpy as np
import pyarrow as pa
import pyarrow.json as pajson

from paimon_cli.datatypes.data_type import NESTED_ROOTS
from paimon_cli.datatypes.field_types import DataField
from paimon_cli.errors import BadInput
from paimon_cli.write.incoming_cells import BadCell, shown
from paimon_cli.write.incoming_json_values import nested_column, text_column
from paimon_cli.write.incoming_lines import line_bounds
from paimon_cli.write.incoming_sources import is_gzipped
from paimon_cli.write.incoming_splits import SourceSplit

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
