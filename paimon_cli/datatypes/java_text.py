"""Where Java's idea of text differs from Python's: white space."""

from __future__ import annotations

import unicodedata

_CONTROL_SPACES = frozenset("\t\n\v\f\r\x1c\x1d\x1e\x1f")
_NO_BREAK_SPACES = frozenset("\u00a0\u2007\u202f")
_ASCII_PRINTABLE = frozenset(map(chr, range(0x21, 0x7F)))


def is_java_whitespace(char: str) -> bool:
    """Java's `Character.isWhitespace`: unlike Python's `isspace` without U+0085 and the no-break spaces."""
    if char in _ASCII_PRINTABLE:
        return False
    return char in _CONTROL_SPACES or (char not in _NO_BREAK_SPACES and unicodedata.category(char) in ("Zs", "Zl", "Zp"))


def is_java_blank(text: str) -> bool:
    """Whether `text` is empty or white space only, by Java's rule."""
    return all(map(is_java_whitespace, text))
