"""JSON text in the layout of Java's pretty printer, which schema, snapshot and tag files have (FORMAT.md, section 2.1)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal

_LOWER_ESCAPE = re.compile(r"(\\\\)|\\u00([01][0-9a-f])")


def dump_java_json(obj: object) -> str:
    """`obj` (dicts, lists, texts, numbers, bools, None) as text: `"key" : value`, indent 2, `[ {`, `{ }`, no final newline."""
    return _render(obj, "\n")


def _render(obj: object, newline: str) -> str:
    if isinstance(obj, str):
        return _text(obj)
    if obj is None or isinstance(obj, (bool, int)):
        return json.dumps(obj)
    if isinstance(obj, Decimal):
        return str(obj)
    if isinstance(obj, Mapping):
        if not obj:
            return "{ }"
        inner = newline + "  "
        members = ",".join(f"{inner}{_text(key)} : {_render(value, inner)}" for key, value in obj.items())
        return "{" + members + newline + "}"
    if isinstance(obj, Sequence):
        # a list does not indent: objects inside of it start on the line of the bracket
        return f"[ {', '.join(_render(item, newline) for item in obj)} ]" if obj else "[ ]"
    raise TypeError(f"cannot write {type(obj).__name__} as JSON")


def _text(text: str) -> str:
    """Java writes the digits of escaped control characters in upper case."""
    quoted = json.dumps(text, ensure_ascii=False)
    return _LOWER_ESCAPE.sub(lambda match: match[1] or "\\u00" + match[2].upper(), quoted)
