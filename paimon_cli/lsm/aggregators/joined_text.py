"""listagg: texts joined by a delimiter (Java FieldListaggAgg)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.lsm.aggregators.aggregator import last_position, picked, rows_at
from paimon_cli.lsm.aggregators.step_by_step import StepByStep
from paimon_cli.lsm.column_history import REVERSED, SET, ColumnHistory

JAVA_BLANK = r"^[\t-\r\x1c-\x20\x{1680}\x{2000}-\x{2006}\x{2008}-\x{200a}\x{2028}\x{2029}\x{205f}\x{3000}]*$"
"""Java's `Character.isWhitespace` only: U+00A0 and its like are text."""


@dataclass(frozen=True)
class JoinedText:
    """Null and blank texts are left out; an older row's text goes in front."""

    delimiter: str = ","
    retracts: bool = False

    def merge(self, column: pa.Array, history: ColumnHistory) -> pa.Array:
        taken = column.take(pa.array(history.rows))
        filled = pc.invert(pc.match_substring_regex(taken, JAVA_BLANK)).fill_null(False).to_numpy(zero_copy_only=False)
        texts = history.only(filled)
        order = np.arange(len(texts.rows))
        if texts.has_reversed:
            older = texts.codes == REVERSED
            order = np.lexsort((np.where(older, -order, order), ~older, texts.key_of_operation))
        pieces = taken.filter(pa.array(filled)).take(pa.array(order))
        lists = pa.ListArray.from_arrays(pa.array(texts.starts, pa.int32()), pieces)
        joined = pc.binary_join(lists, self.delimiter)
        # without any text the value is what a SET or an older row left, be it blank
        blank = rows_at(history, last_position(history, (history.codes == SET) | (history.codes == REVERSED)))
        return pc.if_else(pa.array(texts.sizes > 0), joined, picked(column, blank)).cast(column.type)


def distinct_text(delimiter: str) -> StepByStep:
    """listagg with `distinct`: pieces of a new text that are there already, or blank, are left out."""
    return StepByStep(lambda held, text: _joined_distinct(held, text, delimiter))


def _joined_distinct(held: Any, text: Any, delimiter: str) -> Any:
    if text is None or _is_blank(text):
        return held
    if held is None or _is_blank(held):
        return text
    seen = set(_split(held, delimiter))
    result = held
    for piece in _split(text, delimiter):
        if not _is_blank(piece) and piece not in seen:
            seen.add(piece)
            result += delimiter + piece
    return result


def _split(text: str, delimiter: str) -> list[str]:
    return text.split(delimiter) if delimiter else text.split()


def _is_blank(text: str) -> bool:
    return all(letter in _BLANKS for letter in text)


_BLANKS = frozenset(
    "\t\n\v\f\r\x1c\x1d\x1e\x1f \u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2008\u2009\u200a\u2028\u2029\u205f\u3000"
)
