"""How much an Avro file may claim to hold: small files that unfold without end are refused before memory is taken."""

from __future__ import annotations

from typing import Any

SMALL_BLOCK_BYTES = 16 << 20
"""Every block may become so big."""
MOST_TIMES = 256
"""Bigger ones only so many times their compressed size: statistics of real files compress some 30 times."""
MOST_BLOCK_BYTES = 1 << 30


def most_bytes(compressed: int) -> int:
    """What a block of so many bytes may unfold to."""
    return min(MOST_BLOCK_BYTES, max(SMALL_BLOCK_BYTES, MOST_TIMES * compressed))


def refuse_endless(schema: Any) -> None:
    """`ValueError` for an array or map whose items take no bytes: its count, eight bytes long, could be any number."""
    _least_bytes(schema, {}, 0)


def _least_bytes(schema: Any, named: dict[str, int], depth: int) -> int:
    """Bytes that a value takes at least."""
    if depth > 100:
        raise ValueError("its schema is nested too deeply")
    if isinstance(schema, list):
        for part in schema:
            _least_bytes(part, named, depth + 1)
        return 1
    if isinstance(schema, str):
        # A name that is still being declared can only be met inside of a union or array, which take a byte anyway.
        return 0 if schema == "null" else named.get(schema, 1)
    kind = schema["type"]
    if kind in ("record", "error"):
        named[schema["name"]] = sum(_least_bytes(field["type"], named, depth + 1) for field in schema["fields"])
        return named[schema["name"]]
    if kind == "fixed":
        named[schema["name"]] = int(schema["size"])
        return named[schema["name"]]
    if kind == "array":
        if _least_bytes(schema["items"], named, depth + 1) < 1:
            raise ValueError("its schema has an array of items that take no bytes")
        return 1
    if kind == "map":
        _least_bytes(schema["values"], named, depth + 1)
        return 1
    return _least_bytes(kind, named, depth + 1) if isinstance(kind, (dict, list)) or kind == "null" else 1
