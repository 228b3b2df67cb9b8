"""Rows of a table on stdout, streamed batch by batch: as a table, JSON, JSON lines or CSV, values in canonical form."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from paimon_cli.cli.data_view import csv_line, json_line
from paimon_cli.cli.messages import say
from paimon_cli.cli.results import OutputFormat, envelope
from paimon_cli.cli.value_kinds import cell_text, counted
from paimon_cli.datatypes.canonical_form import canonical_rows
from paimon_cli.datatypes.data_type import FLOATING_ROOTS, INTEGER_ROOTS
from paimon_cli.datatypes.row_kind import SHORT
from paimon_cli.metadata.data_file_schema import VALUE_KIND

if TYPE_CHECKING:
    import pyarrow as pa

    from paimon_cli.datatypes.field_types import DataField
    from paimon_cli.table.row_scan import RowScan

NULL = "NULL"
ROW_KIND = "rowkind"
"""Name of the kind in the output: Paimon reserves it, so no column of the table is called so."""


def print_rows(scan: RowScan, table: str, output: OutputFormat) -> None:
    """All rows of the scan; in text followed by their number."""
    fields = scan.context.schema.fields_of(scan.columns)
    names = [*([ROW_KIND] if scan.request.keep_kinds else []), *scan.columns]
    rows = (row for batch in scan.batches() for row in _rows(batch, fields, scan.request.keep_kinds))
    if output is OutputFormat.TABLE:
        _print_text(names, fields, rows)
    elif output is OutputFormat.JSON:
        _print_json(table, rows)
    elif output is OutputFormat.NDJSON:
        sys.stdout.writelines(json_line(row) + "\n" for row in rows)
    else:
        sys.stdout.write(csv_line(names))
        sys.stdout.writelines(csv_line(row.values()) for row in rows)


def _rows(batch: pa.RecordBatch, fields: Sequence[DataField], with_kinds: bool) -> Iterator[dict[str, Any]]:
    rows = canonical_rows(batch, fields)
    if not with_kinds:
        return rows
    kinds = batch.column(VALUE_KIND).to_pylist()
    return ({ROW_KIND: SHORT[kind], **row} for kind, row in zip(kinds, rows, strict=True))


def _print_json(table: str, rows: Iterable[dict[str, Any]]) -> None:
    """The envelope by hand, so that the rows need not fit the memory."""
    head = json.dumps(envelope("RowList", table), ensure_ascii=False, indent=2).removesuffix("\n}")
    sys.stdout.write(f'{head},\n  "items": [')
    separator = "\n"
    for row in rows:
        sys.stdout.write(f"{separator}    {json_line(row)}")
        separator = ",\n"
    sys.stdout.write("]\n}\n" if separator == "\n" else "\n  ]\n}\n")


def _print_text(names: Sequence[str], fields: Sequence[DataField], rows: Iterable[dict[str, Any]]) -> None:
    from paimon_cli.cli.text_view import print_table

    numeric = INTEGER_ROOTS | FLOATING_ROOTS | {"DECIMAL"}
    rights = [False] * (len(names) - len(fields)) + [field.type.root in numeric for field in fields]
    count = print_table(
        list(zip(names, rights, strict=True)),
        ([NULL if value is None else cell_text(value) for value in row.values()] for row in rows),
    )
    say(counted(count, "row"))
