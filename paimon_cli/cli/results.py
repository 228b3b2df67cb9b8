"""The results of commands: a list or a single item, with columns that have a JSON name and a title."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from paimon_cli.cli.value_kinds import TEXT, Kind

API_VERSION = "paimon-cli/v1"


class OutputFormat(str, enum.Enum):
    """Choices of `-o`."""

    TABLE = "table"
    JSON = "json"
    NDJSON = "ndjson"
    CSV = "csv"


@dataclass(frozen=True)
class Column:
    """`name` is the attribute of a row and its JSON name; a column without `title` is not in the text table.

    `hide`: on a narrow terminal, columns are hidden in this order, the lowest first; 0 is never hidden.
    """

    name: str
    title: str | None = None
    kind: Kind = TEXT
    hide: int = 0


@dataclass(frozen=True)
class Listing:
    """Rows with one attribute per column; `heading` and `footer` are for people only."""

    kind: str
    table: str | None
    columns: Sequence[Column]
    rows: Sequence[Any]
    heading: str = ""
    footer: str = ""


@dataclass(frozen=True)
class Item:
    """A single item: one line per column in text, a header and one line in CSV. `footer`: text below it."""

    kind: str
    table: str | None
    columns: Sequence[Column]
    row: Any
    footer: str = ""


def json_item(columns: Sequence[Column], row: Any) -> dict[str, Any]:
    return {column.name: column.kind.json(getattr(row, column.name)) for column in columns}


def envelope(kind: str, table: str | None, **content: Any) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": kind, "table": table, **content}
