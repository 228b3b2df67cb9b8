"""The type that fits all values of a column: what was observed in texts and in parsed JSON, and the type concluded from it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import count
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.datatypes.data_type import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    MAX_DECIMAL_PRECISION,
    STRING,
    ArrayType,
    DataField,
    DataType,
    DecimalType,
    MapType,
    RowType,
    TimestampType,
    TimeType,
)
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.errors import BadInput
from paimon_cli.ingest.faults import USUAL_NULLS, BadCells, shown
from paimon_cli.ingest.number_form import PLAIN_NUMBERS, USUAL_FORMS, flags_of
from paimon_cli.ingest.text_form import TextForm, null_value_flag
from paimon_cli.ingest.text_values import NOT_FINITE, NUMBER, TIMESTAMP, parse_text

_NUMBERS = (BIGINT, DOUBLE)
TIMES = (
    DATE,
    TimeType(3),
    *(TimestampType(root, digits) for digits in (6, 9) for root in ("TIMESTAMP", "TIMESTAMP_LTZ")),
)
UNAMBIGUOUS_NUMBERS: dict[DataType, str] = {
    BIGINT: r"^-?(0|[1-9][0-9]*)$",
    DOUBLE: r"(?i)^(-?(0|[1-9][0-9]*|)(\.[0-9]*)?(e[+-]?[0-9]+)?|[+-]?inf(inity)?|nan)$",
}
"""Narrower than what a write accepts: as numbers, post codes and telephone numbers would lose leading zeros and plus signs."""
LEADING_ZERO = r"^[+-]?0[0-9]"
EXACT_DIGITS = 15
"""A DOUBLE preserves any number of up to this many significant digits."""
MAX_LISTED_TEXTS = 3
NO_NUMBER = pa.scalar("-", pa.string())
LIKE_NUMBERS = (
    (r"^[0-9]{1,2}\.[0-9]{1,2}\.[0-9]{4}$", "if these are dates: --timestamp-format '%d.%m.%Y'"),
    (r"^[+-]?[0-9][0-9.,' ]*\s?%$", "a number has no percent sign: remove it in the source, and divide by 100"),
    (r"^[+-]?[$€£¥₹]\s?[0-9]|[0-9]\s?([$€£¥₹]|EUR|USD|GBP|CHF|JPY)$", "a number has no currency sign: remove it in the source"),
)
"""Texts that stand for numbers or dates, but are read as text, and what to do."""
MAX_ROW_FIELDS = 200
"""An object with more keys, all of one type, becomes a MAP: its keys are data, not names of columns."""


class TextEvidence:
    """The types that fit all texts of a column observed so far, and why others do not.

    `candidates`: possible types, the preferred one first. A type that one text does not fit is dropped for good.
    """

    def __init__(self, form: TextForm, candidates: Sequence[DataType]) -> None:
        self._form = form
        self._candidates = list(candidates)
        self._null_texts = pa.array(["", *form.null_values])
        self._whole_digits = self._scale = 0
        self._fits_decimal_syntax = True
        self._inexact_number: str | None = None
        self._other_texts: set[str] = set()
        self._has_numbers = self._has_amounts = False
        self._number_forms = list(USUAL_FORMS) if form.numbers == PLAIN_NUMBERS else []
        """Forms of numbers that all texts have, apart from words that usually mean null."""
        self._leading_zero: str | None = None
        self._all_times = True
        self.has_values = False

    def add(self, texts: pa.Array) -> None:
        """Observe an array of strings; those that mean null are ignored."""
        texts = texts.drop_null()
        texts = texts.filter(pc.invert(pc.is_in(texts, self._null_texts)))
        if not len(texts):
            return
        self._collect_reasons(texts)
        self._candidates = [t for t in self._candidates if self._fits(texts, t)]
        if DOUBLE in self._candidates:
            self._measure_digits(self._plain(texts))
        self.has_values = True

    def _fits(self, texts: pa.Array, t: DataType) -> bool:
        form = replace(self._form, timezone=None) if t.root == "TIMESTAMP" else self._form
        syntax = UNAMBIGUOUS_NUMBERS.get(t)
        try:
            parse_text(texts.slice(0, 1), t, form)  # the first text rules out most types
            if syntax is not None and not pc.all(pc.match_substring_regex(self._plain(texts), syntax)).as_py():
                return False
            parse_text(texts, t, form)
        except BadCells:
            return False
        return True

    def _plain(self, texts: pa.Array) -> pa.Array:
        """The texts with numbers in their plain form, and other texts as ones that are no numbers."""
        form = self._form.numbers
        if form == PLAIN_NUMBERS:
            return texts
        special = pc.match_substring_regex(texts, NOT_FINITE)
        return pc.if_else(form.matches(texts), form.plain(texts), pc.if_else(special, texts, NO_NUMBER))

    def _measure_digits(self, texts: pa.Array) -> None:
        """Record how many digits the numbers have, and a number that a DOUBLE cannot represent exactly."""
        parts = pc.extract_regex(texts, r"^-?(?P<whole>[0-9]*)\.?(?P<fraction>[0-9]*)$").drop_null()
        self._fits_decimal_syntax &= len(parts) == len(texts)
        if len(parts):
            whole, fraction = (pc.utf8_length(parts.field(name)) for name in ("whole", "fraction"))
            self._whole_digits = max(self._whole_digits, pc.max(whole).as_py())
            self._scale = max(self._scale, pc.max(fraction).as_py())
        if self._inexact_number is None:
            digits = pc.utf8_ltrim(pc.replace_substring_regex(texts, r"(?i)[-.]|e.*$", ""), "0")
            long = texts.filter(pc.greater(pc.utf8_length(digits), EXACT_DIGITS))
            self._inexact_number = next((text for text in long.to_pylist() if not _fits_double(text)), None)

    def _collect_reasons(self, texts: pa.Array) -> None:
        """Record what explains to the user why the column is text."""
        if self._all_times:
            self._all_times = bool(pc.all(pc.match_substring_regex(texts, TIMESTAMP)).as_py())
        if self._number_forms:
            amounts = texts.filter(pc.invert(pc.is_in(pc.utf8_lower(texts), pa.array(sorted(USUAL_NULLS)))))
            self._has_amounts |= len(amounts) > 0
            self._number_forms = [form for form in self._number_forms if pc.all(form.matches(amounts), min_count=0).as_py()]
        if len(self._other_texts) <= MAX_LISTED_TEXTS:
            plain = self._plain(texts)
            numbers = pc.or_(pc.match_substring_regex(plain, NUMBER), pc.match_substring_regex(plain, NOT_FINITE))
            self._has_numbers |= bool(pc.any(numbers).as_py())
            others = texts.filter(pc.invert(numbers)).unique().slice(0, MAX_LISTED_TEXTS + 1)
            self._other_texts |= set(others.to_pylist())
            zeros = texts.filter(pc.match_substring_regex(plain, LEADING_ZERO)).slice(0, 1)
            self._leading_zero = self._leading_zero or (zeros[0].as_py() if len(zeros) else None)

    def conclusion(self) -> tuple[DataType, str]:
        """The inferred type, and the reason if the user should know it; else ''."""
        if not self.has_values:
            return STRING, "it has no values"
        if not self._candidates:
            return STRING, self._reason_for_text()
        if self._candidates[0] == DOUBLE and self._inexact_number is not None:
            return self._exact_number()
        return self._candidates[0], ""

    @property
    def accepts_nanoseconds(self) -> bool:
        """Whether the timestamps also fit a column with nine digits, whose years are limited."""
        return not self.has_values or TimestampType(self._candidates[0].root, 9) in self._candidates

    def _exact_number(self) -> tuple[DataType, str]:
        example = shown(self._inexact_number)
        if self._fits_decimal_syntax and self._whole_digits + self._scale <= MAX_DECIMAL_PRECISION:
            t = DecimalType(MAX_DECIMAL_PRECISION, self._scale)
            return t, f"{example} has more digits than BIGINT and DOUBLE hold"
        return STRING, f"{example} has more digits than any numeric type holds"

    def _reason_for_text(self) -> str:
        if self._all_times:
            return "some of its times have an offset and some have none; --timezone gives the zone of the latter"
        if self._has_numbers and not self._other_texts:
            return f"its numbers have leading zeros or signs, such as {shown(self._leading_zero)}" if self._leading_zero else ""
        others = sorted(self._other_texts)
        nulls = [text for text in others if text.lower() in USUAL_NULLS]
        if self._number_forms and self._has_amounts and len(nulls) < len(others):
            example = next(text for text in others if text not in nulls)
            readings = " or ".join(flags_of(self._number_forms))
            return f"its numbers are written like {shown(example)}; to read them as numbers: {readings}{_null_hint(nulls)}"
        for pattern, advice in LIKE_NUMBERS:
            alike = [text for text in others if re.search(pattern, text)]
            if alike and len(alike) + len(nulls) == len(others):
                return f"it holds {shown(alike[0])}; {advice}"
        if self._has_numbers and len(others) <= MAX_LISTED_TEXTS:
            hint = _null_hint(nulls) if len(nulls) == len(others) else ""
            return f"besides numbers it holds {', '.join(map(shown, others))}{hint}"
        return ""


def _null_hint(texts: Sequence[str]) -> str:
    """The options that make these texts null, and what they do; '' for none."""
    if not texts:
        return ""
    return f"; if {' and '.join(map(shown, texts))} may become null: {' '.join(map(null_value_flag, texts))}"


def _fits_double(text: str) -> bool:
    return Decimal(repr(float(text))) == Decimal(text)


def type_note(name: str, t: DataType, reason: str) -> str:
    """A note for the user on the inferred type of a column."""
    return f"column '{name}' is {type_to_sql(t)}: {reason}"


class ValueEvidence:
    """What was observed in the values of a column, of an array's elements or of a field.

    Cells of a CSV file go to `texts`; parsed JSON values to `add`.
    """

    def __init__(self, form: TextForm, candidates: tuple[DataType, ...]) -> None:
        self._form = form
        self.texts = TextEvidence(form, candidates)
        self._numbers = TextEvidence(form, _NUMBERS)
        self._has_booleans = False
        self._element: ValueEvidence | None = None
        self._fields: dict[str, ValueEvidence] | None = None

    @staticmethod
    def of_csv(form: TextForm) -> ValueEvidence:
        return ValueEvidence(form, (BOOLEAN, *_NUMBERS, *TIMES))

    @staticmethod
    def of_json(form: TextForm) -> ValueEvidence:
        return ValueEvidence(form.with_plain_numbers(), TIMES)

    def add(self, values: list[Any]) -> None:
        """Observe parsed JSON values. Strings inside arrays and objects are always text, never times."""
        self._has_booleans |= any(isinstance(value, bool) for value in values)
        self.texts.add(pa.array([value for value in values if isinstance(value, str)], pa.string()))
        numbers = [_number_text(value) for value in values if isinstance(value, (int, Decimal)) and not isinstance(value, bool)]
        self._numbers.add(pa.array(numbers, pa.string()))
        lists = [value for value in values if isinstance(value, list)]
        if lists:
            self._element = self._element or ValueEvidence(self._form, ())
            self._element.add([item for value in lists for item in value])
        objects = [value for value in values if isinstance(value, dict)]
        if objects:
            self._fields = {} if self._fields is None else self._fields
            for key, items in values_by_key(objects).items():
                self._fields.setdefault(key, ValueEvidence(self._form, ())).add(items)

    def conclusion(self, name: str, notes: list[str], ids: count[int]) -> DataType:
        """The inferred type; notes for the user are added to `notes`. `ids` gives the fields of rows their ids.

        Raises `BadInput` if no type fits all values.
        """
        presence = {
            "texts": self.texts.has_values,
            "numbers": self._numbers.has_values,
            "true and false": self._has_booleans,
            "lists": self._element is not None,
            "objects": self._fields is not None,
        }
        present = [json_type for json_type, is_present in presence.items() if is_present]
        if len(present) > 1:
            what = f"column '{name}' holds {' as well as '.join(present)}"
            raise BadInput(what, "no column type fits both", "use one JSON type in the input, or declare the columns with -C")
        if self._has_booleans:
            return BOOLEAN
        if self._element is not None:
            return ArrayType(self._element.conclusion(f"{name}[]", notes, ids))
        if self._fields is not None:
            return self._object_type(name, notes, ids)
        t, reason = (self._numbers if self._numbers.has_values else self.texts).conclusion()
        if self._numbers.has_values and t == STRING:
            what = f"column '{name}' holds numbers that no column type fits"
            hint = "write them as strings in the input, or declare the columns with -C"
            raise BadInput(what, reason or "some are outside the range of DOUBLE", hint)
        if reason:
            notes.append(type_note(name, t, reason))
        return t

    def _object_type(self, name: str, notes: list[str], ids: count[int]) -> DataType:
        """A ROW, or a MAP if keys are empty or too many to be fields."""
        fields = self._fields or {}
        types = {key: evidence.conclusion(f"{name}.{key}", notes, ids) for key, evidence in fields.items()}
        distinct = set(types.values())
        if types and "" not in types and (len(types) <= MAX_ROW_FIELDS or len(distinct) > 1):
            return RowType(tuple(DataField(next(ids), key, t) for key, t in types.items()))
        if len(distinct) > 1:
            why = "no field of a ROW has an empty name, and values of a MAP have one type"
            raise BadInput(f"column '{name}' holds objects with an empty key", why, "declare the columns with -C")
        return MapType(STRING.with_nullable(False), next(iter(distinct), STRING))


def values_by_key(objects: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    """The values of parsed JSON objects by key, keys in order of appearance."""
    values: dict[str, list[Any]] = {}
    for parsed in objects:
        for key, value in parsed.items():
            values.setdefault(key, []).append(value)
    return values


def _number_text(number: int | Decimal) -> str:
    """The number as text. One that was written with a fraction or an exponent is not a BIGINT, even if it is whole."""
    text = str(number)
    return f"{text}.0" if isinstance(number, Decimal) and text.lstrip("-").isdigit() else text
