"""Results for machines: JSON in its envelope, JSON lines and CSV without one."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any

from paimon_cli.cli.results import Item, Listing, OutputFormat, envelope, json_item


def show(result: Listing | Item, output: OutputFormat) -> None:
    """Print on stdout in one of the formats that are not `table`."""
    rows = result.rows if isinstance(result, Listing) else [result.row]
    items = [json_item(result.columns, row) for row in rows]
    if output is OutputFormat.CSV:
        sys.stdout.write(csv_line(column.name for column in result.columns))
        sys.stdout.writelines(csv_line(item.values()) for item in items)
    elif output is OutputFormat.NDJSON:
        sys.stdout.writelines(json_line(item) + "\n" for item in items)
    elif isinstance(result, Listing):
        print_json(envelope(result.kind, result.table, items=items))
    else:
        print_json(envelope(result.kind, result.table, item=items[0]))


def print_json(document: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(document, ensure_ascii=False, indent=2) + "\n")


def csv_line(values: Iterable[Any]) -> str:
    """Null is an empty cell, the empty text a quoted one; nested values are JSON."""
    return ",".join(map(_csv_cell, values)) + "\n"


def _csv_cell(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json_line(value)
    quoted = text.replace('"', '""')
    return f'"{quoted}"' if not text or any(sign in text for sign in ',"\r\n') else text


def json_line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
