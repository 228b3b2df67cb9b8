"""Keeps credentials out of every text that a user may see."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

_USER_INFO = re.compile(r"(?<=://)[^/@\s]+@")
_QUERY = re.compile(r"(://[^\s?]+)\?\S+")
_SECRET_KEY = re.compile(r"secret|password|passwd|token|key|credential|account|sas|signature|auth", re.IGNORECASE)


def without_user_info(url: str) -> str:
    """The URL without `user:password@` and without its query."""
    return _QUERY.sub(r"\1", _USER_INFO.sub("", url))


def redact(text: str, options: Mapping[str, Any]) -> str:
    """The text without user info, queries and the values of secret storage options, however deeply they are nested."""
    for secret in sorted(_secrets(options), key=len, reverse=True):
        text = text.replace(secret, "***")
    return without_user_info(text)


def _secrets(options: Mapping[str, Any]) -> Iterator[str]:
    for key, value in options.items():
        if isinstance(value, Mapping):
            yield from _secrets(value)
        elif isinstance(value, str) and value and _SECRET_KEY.search(str(key)):
            yield value
