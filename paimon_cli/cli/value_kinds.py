"""How one value is shown: exact for machines (bytes, RFC 3339, long numbers as strings), readable for people."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

ABSENT = "-"
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


@dataclass(frozen=True)
class Kind:
    """`to_json` and `to_text` are never called with None: that is null, and `-`."""

    to_json: Callable[[Any], Any]
    to_text: Callable[[Any], str]
    right_aligned: bool = False

    def json(self, value: Any) -> Any:
        return None if value is None else self.to_json(value)

    def text(self, value: Any) -> str:
        return ABSENT if value is None else printable(self.to_text(value))


def printable(text: str) -> str:
    """Text whose control characters are spelled out: a table's values must not steer the terminal."""
    return text if text.isprintable() else "".join(c if c.isprintable() else _spelled(c) for c in text)


def human_size(size_bytes: int) -> str:
    """Decimal units with three digits at most: 14.2 MB, 410 kB."""
    size, unit = float(size_bytes), 0
    while size >= 999.5 and unit < len(_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    digits = 1 if unit and size < 99.95 else 0
    return f"{size:.{digits}f} {_UNITS[unit]}"


def rfc3339(millis: int) -> str:
    """Epoch millis as `2026-11-21T00:20:11.402Z`; years beyond 9999 as they are, in millis."""
    try:
        moment = _EPOCH + timedelta(milliseconds=millis)
    except OverflowError:
        return str(millis)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"


def _text_time(millis: int) -> str:
    return rfc3339(millis)[:19].replace("T", " ")


def _compact_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _spelled(character: str) -> str:
    return " " if character.isspace() and ord(character) > 127 else repr(character)[1:-1]


def _same(value: Any) -> Any:
    return value


TEXT = Kind(_same, str)
FLAG = Kind(_same, lambda value: "yes" if value else "no")
ID = Kind(_same, str, right_aligned=True)
COUNT = Kind(_same, lambda value: f"{value:,}", right_aligned=True)
CHANGE = Kind(_same, lambda value: f"{value:+,}" if value else "0", right_aligned=True)
LONG = Kind(str, str, right_aligned=True)
"""Sequence numbers and commit identifiers: above 2^53 a JSON number would be rounded by most readers."""
SIZE = Kind(_same, human_size, right_aligned=True)
TIME = Kind(rfc3339, _text_time)
NAMES = Kind(list, ", ".join)
JSON = Kind(_same, _compact_json)
KEY = Kind(list, lambda values: ", ".join(v if isinstance(v, str) else _compact_json(v) for v in values))
"""A key as the list of its columns' values in canonical form."""
