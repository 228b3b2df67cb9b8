"""Parts of VARIANTs as values of a type: what Spark 4.3 gives for `try_variant_get(parse_json(d), '$', t)`, in time zone UTC."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest

from paimon_cli.datatypes.cast_to_text import text_of
from paimon_cli.datatypes.field_types import parse_sql_type
from paimon_cli.datatypes.variant_building import variants_of_texts
from paimon_cli.datatypes.variant_path import variant_get

TYPES = ("INT", "BIGINT", "DOUBLE", "FLOAT", "DECIMAL(10, 2)", "STRING", "BOOLEAN", "DATE", "TIMESTAMP_LTZ(6)", "TIMESTAMP(6)")
OF_SPARK = {
    "1": ("1", "1", "1.0", "1.0", "1.00", "1", "true", None, "1970-01-01 00:00:01", None),
    "1.5": ("1", "1", "1.5", "1.5", "1.50", "1.5", "true", None, "1970-01-01 00:00:01.5", None),
    "1e-42": ("0", "0", "1.0E-42", "1.0E-42", "0.00", "1.0E-42", "true", None, "1970-01-01 00:00:00", None),
    "-0.5": ("0", "0", "-0.5", "-0.5", "-0.50", "-0.5", "true", None, "1969-12-31 23:59:59.5", None),
    "1e10": (None, "10000000000", "1.0E10", "1.0E10", None, "1.0E10", "true", None, "2286-11-20 17:46:40", None),
    "9223372036854775808": (
        None,
        None,
        "9.223372036854776E18",
        "9.223372E18",
        None,
        "9223372036854775808",
        "true",
        None,
        None,
        None,
    ),
    '"5"': ("5", "5", "5.0", "5.0", "5.00", "5", None, None, None, None),
    '" 5 "': ("5", "5", "5.0", "5.0", "5.00", " 5 ", None, None, None, None),
    '"5.7"': (None, None, "5.7", "5.7", "5.70", "5.7", None, None, None, None),
    '"1e3"': (None, None, "1000.0", "1000.0", "1000.00", "1e3", None, None, None, None),
    "true": ("1", "1", "1.0", "1.0", "1.00", "true", "true", None, None, None),
    '"true"': (None, None, None, None, None, "true", "true", None, None, None),
    '"t"': (None, None, None, None, None, "t", "true", None, None, None),
    "[1]": (None, None, None, None, None, "[1]", None, None, None, None),
    '"2026-01-01"': (
        None,
        None,
        None,
        None,
        None,
        "2026-01-01",
        None,
        "2026-01-01",
        "2026-01-01 00:00:00",
        "2026-01-01 00:00:00",
    ),
    '"2026-01-01 10:00"': (
        None,
        None,
        None,
        None,
        None,
        "2026-01-01 10:00",
        None,
        "2026-01-01",
        "2026-01-01 10:00:00",
        "2026-01-01 10:00:00",
    ),
    '""': (None, None, None, None, None, "", None, None, None, None),
    '"NaN"': (None, None, "NaN", "NaN", None, "NaN", None, None, None, None),
    '"inf"': (None, None, "Infinity", "Infinity", None, "inf", None, None, None, None),
    "1.999999999999999999999": (
        "2",
        "1",
        "2.0",
        "2.0",
        "2.00",
        "1.999999999999999999999",
        "true",
        None,
        "1970-01-01 00:00:01.999999",
        None,
    ),
    "1e39": (None, None, "1.0E39", "Infinity", None, "1.0E39", "true", None, None, None),
    "1.005": ("1", "1", "1.005", "1.005", "1.01", "1.005", "true", None, "1970-01-01 00:00:01.005", None),
    "1767261600": (
        "1767261600",
        "1767261600",
        "1.7672616E9",
        "1.76726157E9",
        None,
        "1767261600",
        "true",
        None,
        "2026-01-01 10:00:00",
        None,
    ),
    '"2026-1"': (None, None, None, None, None, "2026-1", None, "2026-01-01", "2026-01-01 00:00:00", "2026-01-01 00:00:00"),
    '"2026-01-01T10:00:00+02:00"': (
        None,
        None,
        None,
        None,
        None,
        "2026-01-01T10:00:00+02:00",
        None,
        "2026-01-01",
        "2026-01-01 08:00:00",
        "2026-01-01 10:00:00",
    ),
    '"12026-01-01"': (
        None,
        None,
        None,
        None,
        None,
        "12026-01-01",
        None,
        "+12026-01-01",
        "+12026-01-01 00:00:00",
        "+12026-01-01 00:00:00",
    ),
    '"2026-02-30"': (None, None, None, None, None, "2026-02-30", None, None, None, None),
    '"2026-01-01x"': (None, None, None, None, None, "2026-01-01x", None, None, None, None),
    '"2026-01-01 x"': (None, None, None, None, None, "2026-01-01 x", None, "2026-01-01", None, None),
    "-9223372036854775808.5": (
        None,
        "-9223372036854775808",
        "-9.223372036854776E18",
        "-9.223372E18",
        None,
        "-9223372036854775808.5",
        "true",
        None,
        None,
        None,
    ),
    "2147483647.9": (
        "2147483647",
        "2147483647",
        "2.1474836479E9",
        "2.14748365E9",
        None,
        "2147483647.9",
        "true",
        None,
        "2038-01-19 03:14:07.9",
        None,
    ),
    "9.223372036854775807e18": (
        None,
        "9223372036854775807",
        "9.223372036854776E18",
        "9.223372E18",
        None,
        "9.223372036854776E18",
        "true",
        None,
        None,
        None,
    ),
    '"2026-01-01 10:00:00+18:30"': (None, None, None, None, None, "2026-01-01 10:00:00+18:30", None, "2026-01-01", None, None),
    '"2026-01-01T"': (None, None, None, None, None, "2026-01-01T", None, "2026-01-01", None, None),
    '"1D"': (None, None, "1.0", "1.0", None, "1D", None, None, None, None),
    '"-0"': ("0", "0", "-0.0", "-0.0", "0.00", "-0", None, None, None, None),
    '"1e400"': (None, None, "Infinity", "Infinity", None, "1e400", None, None, None, None),
}
"""Of each document, its value as each of the types, as text."""


@pytest.mark.parametrize("t", TYPES)
def test_parts_are_those_of_spark(t: str) -> None:
    kind, place = parse_sql_type(t), TYPES.index(t)
    documents, wrong = variants_of_texts(pa.array(list(OF_SPARK)))
    texts = text_of(variant_get(documents, (), kind, tries=True), kind).to_pylist()
    if t.startswith(("DATE", "TIMESTAMP")):
        texts = [None if text is None else re.sub(r"\.(.*?)0*$", r".\1", text).rstrip(".") for text in texts]
    assert not wrong
    assert dict(zip(OF_SPARK, texts, strict=True)) == {document: values[place] for document, values in OF_SPARK.items()}


def test_a_time_without_a_date_is_none_of_today() -> None:
    """Spark takes the day on which the query runs."""
    documents, _ = variants_of_texts(pa.array(['"10:00"', '"T10:00"']))
    assert variant_get(documents, (), parse_sql_type("TIMESTAMP_LTZ(6)"), tries=True).null_count == 2
