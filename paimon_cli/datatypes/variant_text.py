"""VARIANT values as JSON text, a column at a time (Java GenericVariant.toJson; FORMAT.md, section 2.4).

Fractions have no trailing zeros. Dates and times are texts, bytes are Base64, NaN and infinite numbers are texts, as in Java.
"""

from __future__ import annotations

import contextlib
import json
import sys
from decimal import Decimal
from typing import Any

import pyarrow as pa

from paimon_cli.datatypes.variant_columns import of_variants
from paimon_cli.datatypes.variant_shapes import shaped_texts
from paimon_cli.errors import NotSupported
from paimon_cli.options.option_text import TERMINAL_CONTROLS, json_text, without_controls

ODD_JSON = rf"(?i)[\x00-\x1f{TERMINAL_CONTROLS}]|nan|inf|,\s*[\]}}]"
"""What `shown_json` may change in a text that DuckDB takes for JSON."""
_LINE_ENDS = dict.fromkeys(range(0x20), " ")


def variant_texts(column: pa.StructArray) -> pa.StringArray:
    """Each VARIANT as JSON text; nulls remain null. `column`: of `arrow_type(VARIANT)`.

    Raises `DamagedFile` for bytes that are no VARIANT, `NotSupported` for a value whose text would be too large.
    """
    return of_variants(column, pa.string(), shaped_texts)


def check_variants(column: pa.StructArray) -> None:
    """Raise `DamagedFile` for bytes that are no VARIANT. A value whose text would be too large is not looked at."""
    with contextlib.suppress(NotSupported):
        variant_texts(column)


def variant_text(value: tuple[bytes, bytes]) -> str:
    """One VARIANT as JSON text, given as its value and metadata. Raises what `variant_texts` does."""
    column = pa.StructArray.from_arrays([pa.array([part], pa.binary()) for part in value], names=["value", "metadata"])
    return str(variant_texts(column)[0].as_py())


def variant_value(value: tuple[bytes, bytes]) -> Any:
    """The JSON of one VARIANT, as `parsed` makes it."""
    return parsed(variant_text(value))


def parsed(text: str) -> Any:
    """The JSON of a VARIANT. Fractions are floats, or texts if they have digits that floats do not keep."""
    return json.loads(text, parse_float=_fraction)


def shown_json(text: str) -> str:
    """A JSON text of DuckDB on one line, with characters that control a terminal escaped. DuckDB also takes NaN and commas before
    a closing bracket for JSON; such a text becomes a string.
    """
    try:
        json.loads(text, parse_constant=_refused)
    except (ValueError, RecursionError):
        return json_text(text)
    return without_controls(text.translate(_LINE_ENDS))  # there are none in the strings of JSON


def _refused(constant: str) -> None:
    raise ValueError(constant)


def _fraction(text: str) -> float | str:
    number, digits = float(text), Decimal(text)
    return number if len(digits.as_tuple().digits) <= sys.float_info.dig or digits == Decimal(repr(number)) else text
