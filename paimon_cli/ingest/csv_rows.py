"""CSV input (RFC 4180, header required): every cell as raw text, so that errors can name row and column."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Callable, Iterator
from typing import BinaryIO, cast

import pyarrow as pa
import pyarrow.csv as pacsv

from paimon_cli.errors import BadInput
from paimon_cli.ingest.sources import is_gzipped
from paimon_cli.ingest.splits import SourceSplit

BLOCK_BYTES = 8 << 20
"""A CSV row may not be longer."""
BATCH_ROWS = 65536


def csv_batches(open_source: Callable[[], BinaryIO], split: SourceSplit, delimiter: str) -> Iterator[pa.RecordBatch]:
    """Binary columns with the cells' UTF-8 text; an empty cell is null, a quoted empty one the empty text.

    The first batch has no rows, so that the header is checked even if none follow. `open_source` is called twice: for the
    header and for the rows. Raises BadInput: no usable header, a row with too few or too many cells.
    """
    names = _header(open_source, split, delimiter)
    yield pa.RecordBatch.from_arrays([pa.array([], pa.binary()) for _ in names], names=names)
    faulty: list[pacsv.InvalidRow] = []
    row = 0
    for batch in _parsed(open_source, split, names, delimiter, faulty):
        sound = batch.slice(0, max(0, _data_row(faulty[0]) - row)) if faulty else batch
        for start in range(0, sound.num_rows, BATCH_ROWS):
            yield sound.slice(start, BATCH_ROWS)
        if sound.num_rows < batch.num_rows:
            break
        row += batch.num_rows
    if faulty:
        first = faulty[0]
        raise split.bad_row(_data_row(first), f"it has {first.actual_columns} cells, the header has {first.expected_columns}")


def _data_row(faulty: pacsv.InvalidRow) -> int:
    """0-based data row; pyarrow counts from 1 and takes the header for a row."""
    return int(faulty.number) - 2


def _unpacked(stream: BinaryIO, split: SourceSplit) -> BinaryIO:
    return cast(BinaryIO, gzip.GzipFile(fileobj=stream)) if is_gzipped(split.path) else stream


def _header(open_source: Callable[[], BinaryIO], split: SourceSplit, delimiter: str) -> list[str]:
    try:
        with open_source() as stream:
            # The text reader looks ahead: bytes of later rows that are not UTF-8 are told with their row.
            text = io.TextIOWrapper(_unpacked(stream, split), encoding="utf-8-sig", errors="surrogateescape", newline="")
            names = next(csv.reader(text, delimiter=delimiter), [])
            "".join(names).encode()
    except (UnicodeEncodeError, csv.Error, OSError, EOFError) as problem:
        raise BadInput(f"cannot read the header of {split.name}", str(problem), source=split.name) from problem
    repeated = sorted({name for name in names if names.count(name) > 1})
    if not names or repeated:
        why = f"column '{repeated[0]}' appears twice" if repeated else "the file is empty"
        raise BadInput(f"{split.name} has no usable header", why, "the first row must name the columns", source=split.name)
    return names


def _parsed(
    open_source: Callable[[], BinaryIO], split: SourceSplit, names: list[str], delimiter: str, faulty: list[pacsv.InvalidRow]
) -> Iterator[pa.RecordBatch]:
    """Rows with the right number of cells; the others are noted in `faulty`, at the latest with the batch they belong to."""

    def note(row: pacsv.InvalidRow) -> str:
        faulty.append(row)
        return "skip"

    try:
        with open_source() as stream:
            yield from pacsv.open_csv(
                _unpacked(stream, split),
                read_options=pacsv.ReadOptions(use_threads=False, block_size=BLOCK_BYTES),
                parse_options=pacsv.ParseOptions(delimiter=delimiter, newlines_in_values=True, invalid_row_handler=note),
                convert_options=pacsv.ConvertOptions(
                    column_types={name: pa.binary() for name in names},
                    null_values=[""],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
    except (pa.ArrowInvalid, OSError, EOFError) as problem:
        raise BadInput(f"cannot read {split.name} as CSV", str(problem), source=split.name) from problem
