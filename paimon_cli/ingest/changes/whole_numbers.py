"""Tells whole numbers from others where both were read as DOUBLE and become text.

A column without a declared type is text: of the numbers 2 and 2.0 in JSON it takes `2` and `2.0`. Arrow reads both as the same
DOUBLE if the column has a fraction anywhere in a block. The text of the event decides instead, so that it makes no difference
where a stream is cut.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.ingest.changes.double_text import double_texts
from paimon_cli.ingest.changes.event_images import Flags, Images, Indices
from paimon_cli.ingest.changes.event_lines import EventLines
from paimon_cli.ingest.changes.json_shapes import cell_text

_WHOLE = r"-?[0-9]+[ \t\r\n]*[,}\]]"
_NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_POINTED = r"[.eE]"
_ESCAPED_KEY = r"""[{,][ \t\r\n]*"(?:[^"\\]|\\.)*\\[^"\\](?:[^"\\]|\\.)*"[ \t\r\n]*:"""
"""A key with an escape, for which `_key` may expect another spelling; not with the short ones of a quote and a backslash."""
MAX_NAME_CHARACTERS = 100_000
"""Names of columns that are looked for in texts have at most this many characters together: the pattern takes memory."""


def rows_in_doubt(images: Iterable[Images], names: Sequence[str], count: int) -> Flags:
    """The rows whose number in one of these columns is whole, however it was written."""
    found = np.zeros(count, bool)
    for image in images:
        for name in names:
            cells = image.columns.get(name)
            if cells is not None and pa.types.is_float64(cells.type):
                numbers = cells.to_numpy(zero_copy_only=False)
                found |= numbers == np.floor(numbers)
    return found


def with_quoted_numbers(texts: pa.Array, names: Sequence[str]) -> pa.Array | None:
    """The events, in which these columns have texts for numbers. No string of JSON holds the quote before such a key. None if
    there are too many names to look for, or keys that may be written in another way.
    """
    key = _key(names)
    if key is None or pc.any(pc.match_substring_regex(texts, _ESCAPED_KEY)).as_py():
        return None
    try:
        return pc.replace_substring_regex(texts, f"({key})({_NUMBER})", r'\1"\2"')
    except pa.ArrowInvalid:  # the pattern is larger than RE2 takes
        return None


def number_texts(literals: pa.Array) -> pa.Array:
    """Numbers of JSON as texts: whole ones as they are written, and others as Java prints a DOUBLE."""
    is_pointed = pc.match_substring_regex(literals, _POINTED)
    rows = np.flatnonzero(pc.fill_null(is_pointed, False).to_numpy(zero_copy_only=False))
    whole = pc.if_else(pc.equal(literals, "-0"), "0", literals)
    if not len(rows):
        return whole
    pointed = literals.take(pa.array(rows))
    numbers = pointed.cast(pa.float64())
    texts = double_texts(numbers)
    if len(huge := np.flatnonzero(~np.isfinite(numbers.to_numpy()))):
        exact = [cell_text(Decimal(pointed[int(row)].as_py())) for row in huge]
        texts = pc.replace_with_mask(texts, pa.array(np.isin(np.arange(len(texts)), huge)), pa.array(exact, pa.string()))
    return pc.replace_with_mask(whole, pc.fill_null(is_pointed, False), texts)


def events_with_whole_numbers(lines: EventLines, event: Indices, in_doubt: Flags, names: Sequence[str]) -> Indices:
    """Of the events of rows in doubt, those that may have a whole number. `event`: of each row."""
    events = np.unique(event[in_doubt])
    if not len(events):
        return events
    key = _key(names)
    if key is None:
        return events
    texts = lines.sharing(events).texts
    try:
        has_whole = pc.match_substring_regex(texts, f"{key}{_WHOLE}")
    except pa.ArrowInvalid:  # the pattern is larger than RE2 takes
        return events
    is_in_doubt = pc.or_(has_whole, pc.match_substring_regex(texts, _ESCAPED_KEY))
    return events[is_in_doubt.to_numpy(zero_copy_only=False)]


def _key(names: Sequence[str]) -> str | None:
    """A pattern for one of these names as a key, and what stands between it and its value; None if they are too long for one."""
    if sum(map(len, names)) > MAX_NAME_CHARACTERS:
        return None
    quoted = "|".join(re.escape(json.dumps(name, ensure_ascii=False)) for name in names)
    return rf"[{{,][ \t\r\n]*(?:{quoted})[ \t\r\n]*:[ \t\r\n]*"
