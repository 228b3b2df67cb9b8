"""The results of commands, as listings or single items, and their output for programs: JSON, JSON lines or CSV."""

from __future__ import annotations

import enum
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from paimon_cli.cli.columns import Column, columns_of
from paimon_cli.errors import UsageError
from paimon_cli.options.option_text import json_text
from paimon_cli.storage.redaction import without_login

API_VERSION = "paimon-cli/v1"


class OutputFormat(str, enum.Enum):
    """Choices of `-o`."""

    TABLE = "table"
    JSON = "json"
    NDJSON = "ndjson"
    CSV = "csv"


@dataclass(frozen=True)
class Listing:
    """Rows of a dataclass, or of chosen columns; `heading` and `footer` are for people only.

    `summary`: what JSON says in addition about all rows, by name.
    """

    kind: str
    table: str | None
    shape: type | Sequence[Column]
    rows: Sequence[Any]
    heading: str = ""
    footer: str = ""
    summary: Mapping[str, Any] = field(default_factory=dict)

    @property
    def columns(self) -> Sequence[Column]:
        return columns_of(self.shape) if isinstance(self.shape, type) else self.shape


@dataclass(frozen=True)
class Item:
    """A single item: one line per column in text, a header and one line in CSV. `shape`: its columns, by default of its type."""

    kind: str
    table: str | None
    row: Any
    shape: Sequence[Column] = ()

    @property
    def columns(self) -> Sequence[Column]:
        return self.shape or columns_of(type(self.row))


def records(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Results as objects in JSON, for the summary of a listing."""
    return [{column.name: column.kind.json(getattr(row, column.name)) for column in columns_of(type(row))} for row in rows]


def with_fields(result: Listing | Item, names: Sequence[str]) -> Listing | Item:
    """The result with only these columns, in this order, including those that text tables omit. Raises `UsageError`."""
    columns = {column.name: column for column in result.columns}
    check_fields(names, list(columns))
    return replace(result, shape=[columns[name].shown() for name in names])


def check_fields(names: Sequence[str], known: Sequence[str]) -> None:
    """Raise `UsageError` for a name that is unknown or given twice."""
    for number, name in enumerate(names):
        if name not in known:
            raise UsageError(f"--fields: there is no field '{name}'", f"the fields are {', '.join(known)}")
        if name in names[:number]:
            raise UsageError(f"--fields names '{name}' twice", "each field can be shown only once")


def envelope(kind: str, table: str | None, **content: Any) -> dict[str, Any]:
    """`table`: as the user named it, perhaps by a URL with a password, which is left out."""
    return {"apiVersion": API_VERSION, "kind": kind, "table": table and without_login(table), **content}


def show_data(result: Listing | Item, output: OutputFormat) -> None:
    """Print the result on stdout in a format for programs."""
    columns = result.columns
    rows = result.rows if isinstance(result, Listing) else [result.row]
    items = [{column.name: column.kind.json(getattr(row, column.name)) for column in columns} for row in rows]
    if output is OutputFormat.CSV:
        sys.stdout.write(csv_line(column.name for column in columns))
        sys.stdout.writelines(csv_line(item.values()) for item in items)
    elif output is OutputFormat.NDJSON:
        sys.stdout.writelines(json_line(item) + "\n" for item in items)
    else:
        content: dict[str, Any] = {**result.summary, "items": items} if isinstance(result, Listing) else {"item": items[0]}
        print(json_text(envelope(result.kind, result.table, **content), indent=2))


def csv_line(values: Iterable[Any]) -> str:
    """A line of CSV: null is an empty cell, an empty string a quoted one, nested values are JSON."""
    return ",".join(map(_csv_cell, values)) + "\n"


def _csv_cell(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json_line(value)
    quoted = text.replace('"', '""')
    return f'"{quoted}"' if not text or any(sign in text for sign in ',"\r\n') else text


def json_line(value: Any) -> str:
    return json_text(value, separators=(",", ":"))
