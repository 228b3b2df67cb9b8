"""Columns of numbers, dates and bytes as text, and texts as JSON: by Arrow, a column at a time."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.datatypes.data_type import DataType, TimestampType, TimeType
from paimon_cli.datatypes.internal_values import MILLIS_OF_DAY, epoch_day
from paimon_cli.options.option_text import TERMINAL_CONTROLS, json_text

FIRST_DAY, LAST_DAY = epoch_day(1, 1, 1), epoch_day(9999, 12, 31)
_PER_DAY = {"ms": MILLIS_OF_DAY, "us": MILLIS_OF_DAY * 1_000, "ns": MILLIS_OF_DAY * 1_000_000}
_RARE = rf"\x00-\x1f{TERMINAL_CONTROLS}"
"""Control characters that JSON strings must escape, and those that `json_text` escapes."""
CONTROL = rf'[{_RARE}"\\]'
_CONTROL_STARTS = bytes(chr(code).encode()[0] for code in range(0x3000) if re.match(CONTROL, chr(code)))
"""The bytes with which the UTF-8 of these characters begins, and that of others."""
_SAMPLE = 4096
"""Bytes that are looked at first: where most texts have something to escape, it is soon found."""
_ESCAPES = (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\t", "\\t"), ("\r", "\\r"))
_HEX = np.frombuffer("".join(f"{byte:02x}" for byte in range(256)).encode(), dtype=np.uint16)
_SHORTEST_PLAIN = 1e-4
"""Python prints smaller numbers with an exponent, Arrow only those below 1e-5."""
_NON_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def calendar_texts(array: pa.Array | pa.ChunkedArray, t: DataType) -> pa.Array | None:
    """DATE, TIME and TIMESTAMP columns as canonical text; None for other types, or if values exceed what Arrow can print."""
    if t.root == "DATE":
        return array.cast(pa.string()) if _within(array, pa.int32(), FIRST_DAY, LAST_DAY) else None
    if isinstance(t, TimeType):
        if not _within(array, pa.int32(), 0, MILLIS_OF_DAY - 1):
            return None
        return without_zeros(array.cast(pa.string()))
    if isinstance(t, TimestampType):
        per_day = _PER_DAY[array.type.unit]
        if not _within(array, pa.int64(), FIRST_DAY * per_day, (LAST_DAY + 1) * per_day - 1):
            return None
        local = array.cast(pa.int64()).cast(pa.timestamp(array.type.unit)).cast(pa.string())
        texts = without_zeros(pc.replace_substring(local, " ", "T"))
        return pc.binary_join_element_wise(texts, "Z", "") if t.root == "TIMESTAMP_LTZ" else texts
    return None


def _within(array: pa.Array | pa.ChunkedArray, number: pa.DataType, low: int, high: int) -> bool:
    found = pc.min_max(array.cast(number)).as_py()
    return found["min"] is None or (found["min"] >= low and found["max"] <= high)


def without_zeros(texts: pa.Array) -> pa.Array:
    """Texts with a fraction, without the zeros at its end."""
    return pc.replace_substring_regex(texts, r"\.?0+$", "")


def quoted(texts: pa.Array) -> pa.Array:
    """The texts in double quotes."""
    return pc.binary_join_element_wise('"', texts, '"', "")


def replaced(texts: pa.Array, mask: pa.Array, replace: Callable[[pa.Array], Sequence[str]]) -> pa.Array:
    """The texts, with those where `mask` is true replaced by `replace` of them."""
    mask = mask.fill_null(False)
    if not mask.true_count:
        return texts
    return pc.replace_with_mask(texts, mask, pa.array(replace(texts.filter(mask)), pa.string()))


def escaped(texts: pa.Array) -> pa.Array:
    """The texts with what JSON strings must escape escaped, and control characters that terminals act on."""
    if _is_plain(text_bytes(texts)):
        return texts
    marks = pc.match_substring_regex(texts, CONTROL)
    if not marks.true_count:
        return texts
    found = texts.filter(marks.fill_null(False))
    for character, escape in _ESCAPES:
        found = pc.replace_substring(found, character, escape)
    rare = pc.match_substring_regex(found, f"[{_RARE}]")
    if rare.true_count:
        originals = texts.filter(marks.fill_null(False)).filter(rare).to_pylist()
        found = pc.replace_with_mask(found, rare, pa.array([json_text(text)[1:-1] for text in originals], pa.string()))
    return pc.replace_with_mask(texts, marks.fill_null(False), found)


def _is_plain(content: pa.Buffer) -> bool:
    """Whether nothing has to be escaped, by a look at single bytes, which takes a tenth of the time of a search in each text."""
    parts = (content.slice(0, min(_SAMPLE, content.size)), content.slice(min(_SAMPLE, content.size)))
    return all(len(part.to_pybytes().translate(None, _CONTROL_STARTS)) == part.size for part in parts)


def text_bytes(texts: pa.Array | pa.ChunkedArray) -> pa.Buffer:
    """All texts concatenated, as bytes."""
    texts = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    if not len(texts):
        return pa.py_buffer(b"")
    _, ends, content = texts.buffers()
    begin, end = (int.from_bytes(ends[4 * place : 4 * place + 4].to_pybytes(), "little") for place in _bounds(texts))
    return content.slice(begin, end - begin)


def _bounds(texts: pa.Array) -> tuple[int, int]:
    return texts.offset, texts.offset + len(texts)


def float_texts(array: pa.Array) -> pa.Array:
    """Numbers as Python's repr prints them; Arrow omits `.0` and uses exponents in another range."""
    texts = array.cast(pa.string())
    exponents, finite = pc.match_substring(texts, "e"), pc.is_finite(array)
    bare = pc.and_not(pc.and_(pc.equal(pc.floor(array), array), finite), exponents).fill_null(False)
    if bare.true_count:
        whole = pc.binary_join_element_wise(texts.filter(bare), ".0", "")
        texts = pc.replace_with_mask(texts, bare, whole)
    if finite.false_count:
        texts = replaced(texts, pc.invert(finite), lambda found: [_NON_FINITE[text] for text in found.to_pylist()])
    small = pc.and_(pc.less(pc.abs(array), _SHORTEST_PLAIN), pc.not_equal(array, 0.0))
    differs = pc.and_(pc.or_(exponents, small), finite).fill_null(False)
    if not differs.true_count:
        return texts
    return pc.replace_with_mask(texts, differs, pa.array(list(map(repr, array.filter(differs).to_pylist())), pa.string()))


def hex_texts(array: pa.Array) -> pa.Array:
    """Bytes as pairs of hex digits."""
    if not len(array):
        return pa.array([], pa.string())
    offsets = np.frombuffer(array.buffers()[1], dtype=np.int32)[array.offset : array.offset + len(array) + 1]
    data = np.frombuffer(array.buffers()[2] or b"\0", dtype=np.uint8)[offsets[0] : offsets[-1]]
    ends = (offsets.astype(np.int64) - offsets[0]) * 2
    texts = pa.LargeStringArray.from_buffers(len(array), pa.py_buffer(ends), pa.py_buffer(_HEX[data])).cast(pa.string())
    return pc.if_else(array.is_valid(), texts, None)
