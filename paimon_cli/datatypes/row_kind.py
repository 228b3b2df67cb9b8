"""The four kinds of a row, as stored in `_VALUE_KIND` and in byte 0 of a BinaryRow (Java RowKind)."""

from __future__ import annotations

INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = 0, 1, 2, 3

SHORT = ("+I", "-U", "+U", "-D")
"""Text of each kind, by its number."""
