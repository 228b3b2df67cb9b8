"""Results for machines: JSON in its envelope, JSON lines and CSV without one."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable
from typing import Any

from paimon_cli.cli.result_view import Item, Listing, OutputFormat, envelope, json_item


def show(result: Listing | Item, output: OutputFormat) -> None:
    """Print on stdout in one of the formats that are not `table`."""
    rows = result.rows if isinstance(result, Listing) else [result.row]
    items = [json_item(result.columns, row) for row in rows]
    if output is OutputFormat.CSV:
        print_csv([column.name for column in result.columns], (item.values() for item in items))
    elif output is OutputFormat.NDJSON:
        print_lines(items)
    elif isinstance(result, Listing):
        print_json(envelope(result.kind, result.table, items=items))
    else:
        print_json(envelope(result.kind, result.table, item=items[0]))


def print_json(document: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(document, ensure_ascii=False, indent=2) + "\n")


def print_lines(items: Iterable[dict[str, Any]]) -> None:
    for item in items:
        sys.stdout.write(json_line(item) + "\n")


def print_csv(names: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
    """Null is an empty cell, nested values are JSON."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([csv_cell(value) for value in row] for row in rows)


def csv_cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return json_line(value) if isinstance(value, (list, dict)) else value


def json_line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
