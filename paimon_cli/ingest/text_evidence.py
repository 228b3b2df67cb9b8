"""Infers the type of a column of texts: the types that can hold all of them, checked by the functions that a write uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.datatypes.data_type import (
    BIGINT,
    DATE,
    DOUBLE,
    MAX_DECIMAL_PRECISION,
    STRING,
    DataType,
    DecimalType,
    TimestampType,
    TimeType,
)
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.ingest.bad_cells import BadCells, shown
from paimon_cli.ingest.text_form import TextForm, null_value_flag
from paimon_cli.ingest.text_values import NOT_FINITE, NUMBER, TIMESTAMP, parse_text

NUMBERS = (BIGINT, DOUBLE)
TIMES = (
    DATE,
    TimeType(3),
    *(TimestampType(root, digits) for digits in (6, 9) for root in ("TIMESTAMP", "TIMESTAMP_LTZ")),
)
SPELLED_AS: dict[DataType, str] = {
    BIGINT: r"^-?(0|[1-9][0-9]*)$",
    DOUBLE: r"(?i)^(-?(0|[1-9][0-9]*|)(\.[0-9]*)?(e[+-]?[0-9]+)?|[+-]?inf(inity)?|nan)$",
}
"""Narrower than what a write takes: leading zeros and plus signs, as of post codes and telephone numbers, would be lost."""
LEADING_ZERO = r"^[+-]?0[0-9]"
EXACT_DIGITS = 15
"""A DOUBLE keeps that many digits of any number."""
MOST_ODD = 3


class TextEvidence:
    """What has been seen in the texts of one column so far."""

    def __init__(self, form: TextForm, candidates: Sequence[DataType]) -> None:
        self._form = form
        self._left = list(candidates)
        self._absent = pa.array(["", *form.null_values])
        self._whole_digits = self._scale = 0
        self._in_exact_form = True
        self._too_wide: str | None = None
        self._odd: set[str] = set()
        self._some_numbers = False
        self._leading_zero: str | None = None
        self._all_times = True
        self.seen = False

    def add(self, texts: pa.Array) -> None:
        texts = texts.drop_null()
        texts = texts.filter(pc.invert(pc.is_in(texts, self._absent)))
        if not len(texts):
            return
        self._look(texts)
        self._left = [t for t in self._left if self._takes(t, texts)]
        if DOUBLE in self._left:
            self._measure(texts)
        self.seen = True

    def _takes(self, t: DataType, texts: pa.Array) -> bool:
        form = replace(self._form, timezone=None) if t.root == "TIMESTAMP" else self._form
        spelled = SPELLED_AS.get(t)
        try:
            parse_text(texts.slice(0, 1), t, form)  # most types are ruled out by the first text
            if spelled is not None and not pc.all(pc.match_substring_regex(texts, spelled)).as_py():
                return False
            parse_text(texts, t, form)
        except BadCells:
            return False
        return True

    def _measure(self, texts: pa.Array) -> None:
        """Record how many digits the numbers have, and whether a DOUBLE preserves them."""
        parts = pc.extract_regex(texts, r"^-?(?P<whole>[0-9]*)\.?(?P<fraction>[0-9]*)$").drop_null()
        self._in_exact_form &= len(parts) == len(texts)
        if len(parts):
            whole, fraction = (pc.utf8_length(parts.field(name)) for name in ("whole", "fraction"))
            self._whole_digits = max(self._whole_digits, pc.max(whole).as_py())
            self._scale = max(self._scale, pc.max(fraction).as_py())
        digits = pc.utf8_ltrim(pc.replace_substring_regex(texts, r"(?i)[-.]|e.*$", ""), "0")
        long = texts.filter(pc.greater(pc.utf8_length(digits), EXACT_DIGITS))
        for text in long.to_pylist() if self._too_wide is None else ():
            if _rounded(text):
                self._too_wide = text
                break

    def _look(self, texts: pa.Array) -> None:
        """Record what explains to the user why a column is text."""
        if self._all_times:
            self._all_times = bool(pc.all(pc.match_substring_regex(texts, TIMESTAMP)).as_py())
        if len(self._odd) <= MOST_ODD:
            numbers = pc.or_(pc.match_substring_regex(texts, NUMBER), pc.match_substring_regex(texts, NOT_FINITE))
            self._some_numbers |= bool(pc.any(numbers).as_py())
            odd = texts.filter(pc.invert(numbers)).unique().slice(0, MOST_ODD + 1)
            zeros = texts.filter(pc.match_substring_regex(texts, LEADING_ZERO)).slice(0, 1)
            self._leading_zero = self._leading_zero or (zeros[0].as_py() if len(zeros) else None)
            self._odd |= set(odd.to_pylist())

    def conclusion(self) -> tuple[DataType, str]:
        """The inferred type, and what the user should know about it, or ''."""
        if not self.seen:
            return STRING, "it has no values"
        if not self._left:
            return STRING, self._why_text()
        best = self._left[0]
        if best == DOUBLE and self._too_wide is not None:
            return self._exact_number()
        return best, ""

    @property
    def takes_nanoseconds(self) -> bool:
        """Whether all times fit a column with nine digits, too."""
        return not self.seen or TimestampType(self._left[0].root, 9) in self._left

    def _exact_number(self) -> tuple[DataType, str]:
        example = shown(self._too_wide)
        if self._in_exact_form and self._whole_digits + self._scale <= MAX_DECIMAL_PRECISION:
            t = DecimalType(MAX_DECIMAL_PRECISION, self._scale)
            return t, f"{example} has more digits than BIGINT and DOUBLE hold"
        return STRING, f"{example} has more digits than any type of numbers here holds"

    def _why_text(self) -> str:
        if self._all_times:
            return "some of its times have an offset and some have none; --timezone gives the zone of the latter"
        if self._some_numbers and not self._odd:
            return f"its numbers have leading zeros or signs, such as {shown(self._leading_zero)}" if self._leading_zero else ""
        if self._some_numbers and len(self._odd) <= MOST_ODD:
            nulls = " ".join(map(null_value_flag, sorted(self._odd)))
            return f"beside numbers it holds {', '.join(map(shown, sorted(self._odd)))}; if that is null: {nulls}"
        return ""


def _rounded(text: str) -> bool:
    """Whether a DOUBLE cannot represent the number."""
    return Decimal(repr(float(text))) != Decimal(text)


def described(name: str, t: DataType, why: str) -> str:
    return f"column '{name}' is {type_to_sql(t)}: {why}"
