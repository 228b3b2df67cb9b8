"""Columns of text in canonical form (see `canonical_form`), made by Arrow: plain for CSV and tables, as JSON for JSON lines."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.datatypes.canonical_json import calendar_texts, canonical_json
from paimon_cli.datatypes.data_type import (
    FLOATING_ROOTS,
    INTEGER_ROOTS,
    BinaryType,
    DataType,
    DecimalType,
    NestedType,
    StringType,
    TimeType,
)
from paimon_cli.datatypes.values import values_from_arrow

CONTROL = r'[\x00-\x1f"\\]'
"""What JSON texts spell out."""
_ESCAPES = (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\t", "\\t"), ("\r", "\\r"))
_HEX = np.frombuffer("".join(f"{byte:02x}" for byte in range(256)).encode(), dtype=np.uint16)
_SHORTEST_PLAIN = 1e-4
"""Python writes smaller numbers with an exponent, Arrow those below 1e-5."""
_NON_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def canonical_texts(array: pa.Array, t: DataType) -> pa.Array:
    """Each value as one text, null for null: what canonical JSON has as a text stands without quotes, nested values are JSON."""
    if isinstance(t, StringType):
        return array
    if t.root in INTEGER_ROOTS or t.root == "BOOLEAN":
        return array.cast(pa.string())
    if t.root in FLOATING_ROOTS:
        return _floats(array.cast(pa.float64()))
    if isinstance(t, DecimalType):
        texts = array.cast(pa.string())
        return _mended(texts, pc.match_substring(texts, "E"), lambda found: [format(Decimal(x), "f") for x in found.to_pylist()])
    if isinstance(t, BinaryType):
        return _hex(array.cast(pa.binary()))
    found = calendar_texts(array, t)
    if found is not None:
        return found
    values = (canonical_json(value, t) for value in values_from_arrow(array, t))
    return pa.array([value if value is None or isinstance(value, str) else compact_json(value) for value in values], pa.string())


def json_texts(array: pa.Array, t: DataType) -> tuple[pa.Array, bool]:
    """Each value as JSON, no nulls among them; whether quotes around every one are still missing."""
    if isinstance(t, (NestedType, TimeType)):
        return pa.array([compact_json(canonical_json(v, t)) for v in values_from_arrow(array, t)], pa.string()), False
    texts = canonical_texts(array, t)
    if isinstance(t, StringType):
        texts = _escaped(texts)
    if t.root in INTEGER_ROOTS or t.root == "BOOLEAN":
        return texts.fill_null("null"), False
    if t.root in FLOATING_ROOTS:
        quoted = pc.if_else(pc.is_finite(array), texts, _quoted(texts))
        return quoted.fill_null("null"), False
    return (_quoted(texts).fill_null("null"), False) if texts.null_count else (texts, True)


def compact_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _quoted(texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', texts, '"', "")


def _mended(texts: pa.Array, wrong: pa.Array, mend: Callable[[pa.Array], Sequence[str]]) -> pa.Array:
    """The texts that are wrong made anew."""
    wrong = wrong.fill_null(False)
    if not wrong.true_count:
        return texts
    return pc.replace_with_mask(texts, wrong, pa.array(mend(texts.filter(wrong)), pa.string()))


def _escaped(texts: pa.Array) -> pa.Array:
    marks = pc.match_substring_regex(texts, CONTROL)
    if not marks.true_count:
        return texts
    found = texts.filter(marks.fill_null(False))
    for sign, spelled in _ESCAPES:
        found = pc.replace_substring(found, sign, spelled)
    rare = pc.match_substring_regex(found, r"[\x00-\x1f]")
    if rare.true_count:
        originals = texts.filter(marks.fill_null(False)).filter(rare).to_pylist()
        found = pc.replace_with_mask(found, rare, pa.array([compact_json(text)[1:-1] for text in originals], pa.string()))
    return pc.replace_with_mask(texts, marks.fill_null(False), found)


def _floats(array: pa.Array) -> pa.Array:
    """As Python's repr has them: Arrow leaves out `.0`, and begins with exponents elsewhere."""
    texts = array.cast(pa.string())
    exponents, finite = pc.match_substring(texts, "e"), pc.is_finite(array)
    bare = pc.and_not(pc.and_(pc.equal(pc.floor(array), array), finite), exponents).fill_null(False)
    if bare.true_count:
        whole = pc.binary_join_element_wise(texts.filter(bare), ".0", "")
        texts = pc.replace_with_mask(texts, bare, whole)
    if finite.false_count:
        texts = _mended(texts, pc.invert(finite), lambda found: [_NON_FINITE[text] for text in found.to_pylist()])
    small = pc.and_(pc.less(pc.abs(array), _SHORTEST_PLAIN), pc.not_equal(array, 0.0))
    unlike = pc.and_(pc.or_(exponents, small), finite).fill_null(False)
    if not unlike.true_count:
        return texts
    return pc.replace_with_mask(texts, unlike, pa.array(list(map(repr, array.filter(unlike).to_pylist())), pa.string()))


def _hex(array: pa.Array) -> pa.Array:
    if not len(array):
        return pa.array([], pa.string())
    offsets = np.frombuffer(array.buffers()[1], dtype=np.int32)[array.offset : array.offset + len(array) + 1]
    data = np.frombuffer(array.buffers()[2] or b"\0", dtype=np.uint8)[offsets[0] : offsets[-1]]
    ends = (offsets.astype(np.int64) - offsets[0]) * 2
    texts = pa.LargeStringArray.from_buffers(len(array), pa.py_buffer(ends), pa.py_buffer(_HEX[data])).cast(pa.string())
    return pc.if_else(array.is_valid(), texts, None)
