"""Casts against the answers of Paimon's own classes; main's rules win where 0.9 differs (FORMAT.md, section 2.3)."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from paimon_cli.datatypes.arrow_types import values_from_arrow, values_to_arrow
from paimon_cli.datatypes.canonical_form import canonical_json, from_canonical
from paimon_cli.datatypes.column_cast import cast_column, cast_of, default_column, keeps_values, may_cast, with_default
from paimon_cli.datatypes.data_type import DataField, DataType, DecimalType, StringType, TimestampType
from paimon_cli.datatypes.field_types import parse_type
from paimon_cli.datatypes.internal_values import decimal_of
from paimon_cli.errors import NotSupported, UsageError
from tests.vectors import load

LINES = [*load("casts_head"), *load("casts")]
BEYOND_9999 = re.compile(r"[+-]?[0-9]{5,}-")
FAILS = "fails"


def _pair(line: dict[str, Any]) -> tuple[DataType, DataType]:
    return parse_type(line["in"]["from"]), parse_type(line["in"]["to"])


def test_permissions() -> None:
    for line in LINES:
        source, target = _pair(line)
        found = {
            "implicit": may_cast(source, target, explicit=False),
            "explicit": may_cast(source, target, explicit=True),
            "resolved": cast_of(source, target) is not None,
        }
        assert found == {key: line["out"][key] for key in found}, line["in"]


def _cast(value: Any, source: DataType, target: DataType) -> Any:
    """The cast value, FAILS, or None where the engine cannot hold one of the two timestamps."""
    try:
        column = values_to_arrow([from_canonical(value, source), None], source)
        found, null = values_from_arrow(cast_column(column, source, target), target)
    except NotSupported:
        return None
    except UsageError:
        return FAILS
    assert null is None
    return canonical_json(found, target)


def _only_in_0_9(value: Any, source: DataType, target: DataType) -> bool:
    """Answers of 0.9 that main does not give any more."""
    roots = source.root, target.root
    before_1970 = source.root == "TIMESTAMP" and str(value) < "1970"
    if roots in (("TIMESTAMP", "DATE"), ("TIMESTAMP", "TIME")) and before_1970:
        return True
    if isinstance(source, StringType) and target.root in ("DATE", "TIME") and re.fullmatch("-[0-9]+", str(value)):
        return True
    if isinstance(source, StringType) and target.root.startswith("TIMESTAMP"):
        return str(value).isdigit() or "T" in str(value)
    lost_nanos = (
        isinstance(source, TimestampType)
        and source.precision == 9
        and target.root.startswith("TIMESTAMP")
        and ".00000000" in str(value)
    )
    return lost_nanos or (roots == ("BIGINT", "BOOLEAN") and value % 2**32 == 0)


@pytest.mark.parametrize(("name", "unlike"), [("casts_head", 0), ("casts", 30)])
def test_values(name: str, unlike: int) -> None:
    compared = left_out = differing = 0
    for line in load(name):
        source, target = _pair(line)
        for value, expected in zip(line["in"]["values"], line["out"].get("values", ()), strict=False):
            found = _cast(value, source, target)
            wanted = FAILS if isinstance(expected, dict) and "error" in expected else expected
            if (found is None and wanted is not None) or BEYOND_9999.match(str(wanted)):
                left_out += 1  # beyond 64-bit micros or nanos, or years that are printed in several ways
                continue
            compared += 1
            if (repr(found) != repr(wanted) and found != wanted) or str(found) == "-0.0" != str(wanted):
                assert name == "casts" and _only_in_0_9(value, source, target), (line["in"], value, found, wanted)
                differing += 1
    assert (differing, left_out < 60, compared > 600) == (unlike, True, True)


@pytest.mark.parametrize(
    ("text", "target", "expected"),
    [
        ("-00", "DATE", "1970-01-01"),
        ("-5", "DATE", "1969-12-27"),
        ("000000000000", "DATE", "1970-01-01"),
        ("-2147483649", "DATE", FAILS),
        ("-", "DATE", FAILS),
        ("-5", "TIME(3)", {"raw_millis": -5}),
        ("-1", "TIMESTAMP(6)", "1969-12-31T23:59:59.999999"),
        ("-1", "TIMESTAMP(3) WITH LOCAL TIME ZONE", FAILS),
        ("9" * 5000, "TIMESTAMP(3)", FAILS),
        ("9" * 5000, "DATE", FAILS),
    ],
)
def test_whole_numbers_as_text(text: str, target: str, expected: Any) -> None:
    assert _cast(text, parse_type("STRING"), parse_type(target)) == expected


@pytest.mark.parametrize(("target", "bits"), [("INT", 32), ("BIGINT", 64)])
@pytest.mark.parametrize("source", ["FLOAT", "DOUBLE"])
def test_fractions_around_the_bounds_of_whole_numbers_stay_within_them(source: str, target: str, bits: int) -> None:
    """2^63 is a DOUBLE, and one more than the greatest BIGINT."""
    kind = np.float32 if source == "FLOAT" else np.float64
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    bounds, ends = [kind(bound) for bound in (low, high)], (kind(-np.inf), kind(np.inf))
    values = [float(one) for bound in bounds for one in (bound, *(np.nextafter(bound, end) for end in ends))]
    found = [_cast(value, parse_type(source), parse_type(target)) for value in values]
    assert found == [max(low, min(high, int(value))) for value in values]


DECIMALS = [f"DECIMAL({precision}, {scale})" for precision in range(1, 5) for scale in range(precision + 1)]


@pytest.mark.parametrize("source", DECIMALS)
def test_casts_of_decimals_keep_values_if_that_with_all_digits_stays(source: str) -> None:
    wide = parse_type(source)
    assert isinstance(wide, DecimalType)
    greatest = decimal_of(10**wide.precision - 1, wide.scale)
    for text in DECIMALS:
        target = parse_type(text)
        found = cast_column(values_to_arrow([greatest], wide), wide, target)
        assert keeps_values(wide, target) == (values_from_arrow(found, target) == [greatest]), text


ROUNDED = {
    "10:20:30.1234": "10:20:30.123",
    "10:20:30.1235": "10:20:30.124",
    "10:20:30.12349": "10:20:30.123",
    "1:2:3.9996": "01:02:04",
}


@pytest.mark.parametrize(("text", "time"), ROUNDED.items())
def test_the_fourth_digit_of_a_second_rounds_a_time(text: str, time: str) -> None:
    assert _cast(text, parse_type("STRING"), parse_type("TIME(3)")) == time


NO_CASTS = {
    "BOOLEAN": ["BOOLEAN", "DATE", "TIMESTAMP(3)", "BYTES"],
    "TINYINT": ["TIMESTAMP(3)", "TIMESTAMP(6) WITH LOCAL TIME ZONE", "DATE"],
    "DOUBLE": ["BOOLEAN", "TIMESTAMP(3)", "BYTES"],
    "DATE": ["DATE", "TIME(3)", "INT", "CHAR(10)", "VARCHAR(10)", "BYTES"],
    "TIME(3)": ["DATE", "BIGINT", "VARCHAR(8)"],
    "TIMESTAMP(3)": ["BOOLEAN", "SMALLINT", "DOUBLE", "VARCHAR(30)", "BYTES"],
    "BYTES": ["INT", "TIMESTAMP(3)", "BOOLEAN"],
}


@pytest.mark.parametrize("source", NO_CASTS)
def test_a_cast_that_paimon_does_not_have_is_refused(source: str) -> None:
    kind = parse_type(source)
    for text in NO_CASTS[source]:
        target = parse_type(text)
        assert cast_of(kind, target) is None
        with pytest.raises(NotSupported, match="there is no cast from"):
            cast_column(values_to_arrow([None], kind), kind, target)


def test_lengths_of_texts_and_bytes() -> None:
    """Bytes are cut and padded, also those of texts; what is not a text itself is cut, but for bytes."""
    found = {
        ("BYTES", "VARBINARY(2)", "616263"): "6162",
        ("BYTES", "BINARY(4)", "616263"): "61626300",
        ("STRING", "VARBINARY(2)", "abc"): "6162",
        ("STRING", "BINARY(4)", "abc"): "61626300",
        ("BYTES", "VARCHAR(2)", "616263"): "abc",
        ("BYTES", "CHAR(4)", "616263"): "abc",
        ("INT", "VARCHAR(2)", 123): "12",
        ("INT", "CHAR(4)", 123): "123 ",
        ("STRING", "VARCHAR(2)", "äöü"): "äö",
        ("TIMESTAMP(6)", "TIMESTAMP(3)", "2024-01-01T00:00:00.123456"): "2024-01-01T00:00:00.123",
        ("TIMESTAMP(6)", "TIMESTAMP(4)", "2024-01-01T00:00:00.123456"): "2024-01-01T00:00:00.1234",
    }
    for (source, target, value), expected in found.items():
        assert _cast(value, parse_type(source), parse_type(target)) == expected


def test_what_may_become_not_null_or_lose_values_is_asked_for() -> None:
    for source, target in (("INT", "INT NOT NULL"), ("INT", "BIGINT NOT NULL"), ("BIGINT", "INT"), ("STRING", "INT")):
        kinds = parse_type(source), parse_type(target)
        assert may_cast(*kinds, explicit=True) and not may_cast(*kinds, explicit=False)
    assert may_cast(parse_type("INT NOT NULL"), parse_type("INT"), explicit=False)


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [("'it''s'", "STRING", "it''s"), ("''x''", "STRING", "'x'"), ("'", "STRING", "'"), ("''", "STRING", ""), ("", "STRING", "")],
)
def test_a_default_is_in_quotes_or_not(text: str, kind: str, value: str) -> None:
    """Also the empty text is a default."""
    t = parse_type(kind)
    assert default_column(text, t).to_pylist() == [value]
    column = DataField(0, "v", t, default_value=text)
    assert with_default(values_to_arrow(["a", None], t), column).to_pylist() == ["a", value]
    untouched = values_to_arrow(["a", None], t)
    assert with_default(untouched, DataField(0, "v", t)) is untouched
