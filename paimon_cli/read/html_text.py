"""What notebooks show: small tables in HTML. Every text is escaped, whatever cells and names hold, and everything is bounded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import MISSING, fields, is_dataclass
from html import escape
from itertools import islice
from typing import Any

from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.options.option_text import printable

_MAX_CELL = 100
"""Characters of a cell that are shown."""
_MAX_ROWS, _MAX_COLUMNS = 50, 30
"""The most rows and columns of a table."""
_MAX_ITEMS = 10
"""The most items of a list in a cell."""


def text_of(value: Any) -> str:
    """The value as escaped text, shortened. Nothing of it is markup, and no character controls anything."""
    if isinstance(value, (list, tuple)):
        items = ", ".join(_plain(item) for item in value[:_MAX_ITEMS])
        text = f"[{items}{', ...' if len(value) > _MAX_ITEMS else ''}]"
    else:
        text = _plain(value)
    return escape(printable(text if len(text) <= _MAX_CELL else f"{text[: _MAX_CELL - 3]}..."))


def _plain(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, Snapshot):
        return f"snapshot {value.id}"
    if isinstance(value, (str, bytes, bytearray)):
        value = value[: 2 * _MAX_CELL]
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() < 63:
        return f"{value:,}"
    return str(value)


def table_of(head: Sequence[Any], rows: Iterable[Sequence[Any]], caption: str = "", note: str = "") -> str:
    """A table with these column names and rows. `caption`, `note`: plain texts above and below it."""
    names = [text_of(name) for name in head[:_MAX_COLUMNS]]
    every = list(islice(rows, _MAX_ROWS + 1))
    lines = ["".join(f"<td>{text_of(value)}</td>" for value in row[:_MAX_COLUMNS]) for row in every[:_MAX_ROWS]]
    left_out = [f"the first {_MAX_ROWS} rows"] if len(every) > _MAX_ROWS else []
    left_out += [f"the first {_MAX_COLUMNS} of {len(head)} columns"] if len(head) > _MAX_COLUMNS else []
    notes = "; ".join(filter(None, [note, *left_out]))
    return (
        "<div><table>"
        + (f"<caption>{text_of(caption)}</caption>" if caption else "")
        + f"<thead><tr>{''.join(f'<th>{name}</th>' for name in names)}</tr></thead>"
        + f"<tbody>{''.join(f'<tr>{line}</tr>' for line in lines)}</tbody></table>"
        + (f"<small>{text_of(notes)}</small>" if notes else "")
        + "</div>"
    )


class ShownAsTable:
    """A dataclass that notebooks show as a table of its `telling_fields`."""

    def _repr_html_(self) -> str:
        return table_of_fields(self)


def table_of_fields(result: Any) -> str:
    """A result with its `telling_fields`. Those that hold several results, such as findings, are tables of their own."""
    if not is_dataclass(result):
        return table_of([type(result).__name__], [[result]])
    told = telling_fields(result)
    inner = [(name, value) for name, value in told if _holds_results(value)]
    own = [(name.replace("_", " "), value) for name, value in told if not _holds_results(value)]
    return table_of([type(result).__name__, ""], own) + "".join(table_of_results(name, value) for name, value in inner)


def _holds_results(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and bool(value) and is_dataclass(value[0]) and not isinstance(value[0], Snapshot)


def table_of_results(name: str, results: Sequence[Any]) -> str:
    """The first results, with the fields of the first one. `name` is their caption."""
    if not results:
        return table_of([name.replace("_", " ")], [["none"]])
    names = [field.name for field in fields(results[0]) if field.repr]
    note = f"the first {_MAX_ITEMS} of {len(results):,}" if len(results) > _MAX_ITEMS else ""
    rows = [[getattr(result, column, None) for column in names] for result in results[:_MAX_ITEMS]]
    return table_of([column.replace("_", " ") for column in names], rows, caption=name.replace("_", " "), note=note)


def telling_fields(result: Any) -> list[tuple[str, Any]]:
    """The fields of a dataclass that say something: they differ from their default or, without one, are not empty."""
    return [
        (field.name, value)
        for field in fields(result)
        if field.repr and (value := getattr(result, field.name)) != field.default and (field.default is not MISSING or value)
    ]


def bars(title: str, named: Sequence[tuple[str, int, str]]) -> str:
    """A small drawing: a bar for each (name, length, text), scaled to the longest."""
    longest = max((length for _, length, _ in named), default=0) or 1
    drawn = "".join(
        f"<tr><td>{text_of(name)}</td><td><div style='background:#4c78a8;height:0.8em;width:{max(1, 120 * length // longest)}px'>"
        f"</div></td><td>{text_of(text)}</td></tr>"
        for name, length, text in named[:_MAX_ROWS]
    )
    return f"<div><table><caption>{text_of(title)}</caption><tbody>{drawn}</tbody></table></div>" if named else ""
