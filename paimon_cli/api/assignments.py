"""What `set=` takes in the library: assignments in SQL, or a mapping of columns to expressions."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, time
from numbers import Number
from typing import Any

from paimon_cli.errors import UsageError

_NUMBER = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?(e[-+]?[0-9]+)?", re.IGNORECASE | re.ASCII)
"""Not NaN and infinity, nor complex numbers."""
_WORDS = {"None": "NULL", "True": "TRUE", "False": "FALSE"}


def assignments_of(given: str | Sequence[str] | Mapping[str, Any]) -> Iterable[str]:
    """The assignments as `column = expression` texts."""
    if isinstance(given, str):
        return [given]
    if not isinstance(given, Mapping):
        return given
    from paimon_cli.sql.clauses import one_assignment

    return [one_assignment(name, _expression(name, value)) for name, value in given.items()]


def _expression(name: str, value: Any) -> str:
    """A SQL expression as it is, another value as a literal. Raises `UsageError` for values that have no literal."""
    from paimon_cli.sql.literals import Literal

    text = str(value)
    if isinstance(value, str):
        return text
    if isinstance(value, (datetime, date, time)):
        keyword = "TIMESTAMP" if isinstance(value, datetime) else "DATE" if isinstance(value, date) else "TIME"
        return str(Literal(value.isoformat(), keyword))
    if isinstance(value, bytes):
        return str(Literal(value))
    if text in _WORDS:
        return _WORDS[text]
    if not isinstance(value, Number) or not _NUMBER.fullmatch(text) or not math.isfinite(float(text)):
        why = f"a value is an expression, a number, a boolean, a date, a time, bytes or None, not {type(value).__name__}"
        raise UsageError(f"cannot set column '{name}' to {text}", why)
    return text
