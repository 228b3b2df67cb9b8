"""Which parts of JSON documents DuckDB writes just as we write the VARIANT: then nothing has to be made of the document.

DuckDB keeps the order of names, and reads each fraction as a DOUBLE. We write names in the order of their bytes, and decimals as
they are.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.options.option_text import TERMINAL_CONTROLS

_CHANGED_NUMBERS = r"(?:^|[:\[,])\s*(?:-?(?:[0-9.]{17,}|[0-9][0-9.]*[eE]|[0-9]+\.[0-9]+0(?:[,\]}\s]|$))|-0(?:[,\]}\s]|$))"
"""Where a value can begin, a number with an exponent, with more digits than a DOUBLE keeps, or with zeros at its end, or -0."""
_CHANGED_TEXTS = rf"[\\{TERMINAL_CONTROLS}]"
"""What is escaped; we also escape what controls a terminal."""
_QUOTE, _COLON, _SPACE = ord('"'), ord(":"), ord(" ")


def has_changed_numbers(texts: pa.StringArray) -> pa.BooleanArray:
    """Which texts of JSON may hold numbers that DuckDB writes otherwise; some others, too. Nulls remain null."""
    return pc.match_substring_regex(texts, _CHANGED_NUMBERS)


def is_nested(parts: pa.StringArray) -> pa.BooleanArray:
    """Which parts are objects or arrays. Nulls remain null."""
    return pc.or_(pc.starts_with(parts, "{"), pc.starts_with(parts, "["))


def is_written_alike(parts: pa.StringArray, documents: pa.StringArray) -> pa.BooleanArray:
    """For objects and arrays: whether our text of the part is that of DuckDB. `documents`: where the parts are from.

    False if that would take a closer look.
    """
    has_numbers = pc.or_(has_changed_numbers(documents), has_changed_numbers(parts))
    changed = pc.or_(has_numbers, pc.match_substring_regex(parts, _CHANGED_TEXTS))
    alike = ~np.asarray(changed.fill_null(True).to_numpy(zero_copy_only=False), bool)
    rows = np.flatnonzero(alike)
    alike[rows] = _has_names_in_order(parts.take(pa.array(rows)))
    return pa.array(alike)


def _has_names_in_order(texts: pa.StringArray) -> np.ndarray:
    """Which objects and arrays have no blanks between their tokens and, at any depth, the names of each object in the order of
    their bytes, each only once. `texts`: whole JSON without escapes or nulls.
    """
    ordered = np.ones(len(texts), bool)
    bounds = (
        np.frombuffer(texts.buffers()[1], np.int32, len(texts) + 1, texts.offset * 4) if len(texts) else np.zeros(1, np.int32)
    )
    first, end = int(bounds[0]), int(bounds[-1])
    if first == end:
        return ordered
    data = np.frombuffer(texts.buffers()[2], np.uint8, end - first, first)

    def row_of(places: np.ndarray) -> np.ndarray:
        return np.searchsorted(bounds - first, places, "right") - 1

    quotes = data == _QUOTE
    outside = np.cumsum(quotes) % 2 == 0
    ordered[row_of(np.flatnonzero(outside & (data <= _SPACE)))] = False
    begins = outside & np.isin(data, list(b"{["))
    depths = np.cumsum(begins.astype(np.int32) - (outside & np.isin(data, list(b"}]"))))
    places = np.flatnonzero(quotes)
    names, ends = places[0::2], places[1::2]
    is_name = data[ends + 1] == _COLON  # a bracket follows at the latest
    names, ends = names[is_name], ends[is_name]
    brackets = np.flatnonzero(begins)
    found = np.concatenate([brackets, names])
    order = np.lexsort((found, depths[found]))
    objects = np.cumsum(order < len(brackets))  # by depth: names belong to the last bracket before them
    by_object = np.flatnonzero(order >= len(brackets))
    sorted_names = order[by_object] - len(brackets)
    written = _slices(data, names + 1, ends).take(pa.array(sorted_names))
    if len(written) > 1:
        rises = pc.less(written.slice(0, len(written) - 1), written.slice(1)).to_numpy(zero_copy_only=False)
        is_same = np.diff(objects[by_object]) == 0
        ordered[row_of(names[sorted_names[1:][is_same & ~rises]])] = False
    return ordered


def _slices(data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> pa.BinaryArray:
    lengths = ends - starts
    bounds = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    places = np.repeat(starts - bounds[:-1], lengths) + np.arange(bounds[-1])
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data[places])]
    return pa.Array.from_buffers(pa.binary(), len(lengths), buffers)
