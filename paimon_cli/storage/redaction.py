"""Keeps credentials out of every text that a user may see, and out of what is stored for others to read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

_USER_INFO = re.compile(r"(?<=://)[^/@\s]+@")
_QUERY = re.compile(r"(://[^\s?]+)\?\S+")
_SECRET_KEY = re.compile(
    r"secret|passw|passphrase|token|credential|connection[-_.]?string|signature|\bsas\b|(?<![a-z])(pwd|auth)(?![a-z])"
    r"|authori[sz]ation|bearer|(access|account|api|private|storage|shared|encryption)[-_.]?key|^key$",
    re.IGNORECASE,
)
_WORD = re.compile(r"[A-Za-z]+|[0-9]+")


def names_secret(key: str) -> bool:
    """Whether an option of this name holds a secret."""
    return _SECRET_KEY.search(key) is not None


def without_user_info(url: str) -> str:
    """The URL without `user:password@` and without its query."""
    return _QUERY.sub(r"\1", _USER_INFO.sub("", url))


def redact(text: str, options: Mapping[str, Any]) -> str:
    """The text without user info, queries and the values of secret storage options, however deeply they are nested.

    A secret that looks like a word or a number is taken out only where it stands alone, never from the middle of another word.
    """
    for secret in sorted(_secrets(options), key=len, reverse=True):
        pattern = re.escape(secret)
        text = re.sub(rf"(?<!\w){pattern}(?!\w)" if _WORD.fullmatch(secret) else pattern, "***", text)
    return without_user_info(text)


def _secrets(options: Mapping[str, Any]) -> Iterator[str]:
    for key, value in options.items():
        if isinstance(value, Mapping):
            yield from _secrets(value)
        elif isinstance(value, str) and value and names_secret(str(key)):
            yield value
