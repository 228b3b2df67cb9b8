"""Texts as columns, straight from the parser: what one cell may not change in others, forms of times, null values and limits."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from paimon_cli.datatypes.canonical_form import canonical_column
from paimon_cli.datatypes.field_types import parse_type
from paimon_cli.ingest.faults import BadCells, converted
from paimon_cli.ingest.text_form import TextForm
from paimon_cli.ingest.text_values import in_iso_form, parse_text, text_of_cells

LTZ = "TIMESTAMP(3) WITH LOCAL TIME ZONE"


def parsed(texts: list[str | None], type_text: str, **form: Any) -> list[Any]:
    t = parse_type(type_text)
    return canonical_column(parse_text(pa.array(texts, pa.string()), t, TextForm(**form)), t)


def bad_rows(texts: list[str | None], type_text: str, **form: Any) -> list[int]:
    with pytest.raises(BadCells) as caught:
        parse_text(pa.array(texts, pa.string()), parse_type(type_text), TextForm(**form))
    return [cell.row for cell in caught.value.cells]


@pytest.mark.parametrize(
    ("type_text", "texts", "timezone", "expected"),
    [
        (LTZ, ["2024-01-31T10:00:00+02:00", None], None, ["2024-01-31T08:00:00Z", None]),
        (LTZ, ["2024-01-31T10:00:00", "2024-01-31 10:00Z"], "+02:00", ["2024-01-31T08:00:00Z", "2024-01-31T10:00:00Z"]),
        ("TIMESTAMP(3)", ["2024-01-31T10:00:00Z"], "+02:00", ["2024-01-31T12:00:00"]),
        ("TIMESTAMP(9)", ["2024-01-31 10:00"], None, ["2024-01-31T10:00:00"]),
        ("DATE", ["2024-01-31", None], None, ["2024-01-31", None]),
    ],
)
@pytest.mark.parametrize("strange", ["-", "+", "+1-1-1", "-2024-13-31"])
def test_no_cell_decides_how_its_neighbours_are_read(
    type_text: str, texts: list[str | None], timezone: str | None, expected: list[str | None], strange: str
) -> None:
    """A cell that looks like a far year is refused alone, so that `--on-error` leaves out its row alone."""
    t, form = parse_type(type_text), TextForm(timezone=timezone)
    array, cells = converted(pa.array([*texts, strange, *texts], pa.string()), lambda part: parse_text(part, t, form))
    assert [(cell.row, cell.value) for cell in cells] == [(len(texts), strange)]
    assert canonical_column(array, t) == [*expected, None, *expected]


def test_far_years_beside_offsets_and_beside_times_that_do_not_exist() -> None:
    far, near = "+12024-01-31T10:00:00Z", "2024-01-31T10:00:00+02:00"
    assert parsed([far, None, near, far], LTZ) == [far, None, "2024-01-31T08:00:00Z", far]
    assert parsed(["2024-01-31", "+12024-01-31"], "DATE") == ["2024-01-31", "+12024-01-31"]
    assert bad_rows(["2024-02-30", "+12024-01-31", "+12024-02-30", "2024-01-31"], "DATE") == [0, 2]


def test_the_first_format_that_matches_counts() -> None:
    """A text that one format has put in the ISO form is not read again by the next."""
    days = ["04/03/2024", "2024-04-03", None, "2024-03-04T00:00:00"]
    assert in_iso_form(pa.array(days), ["%d/%m/%Y", "%Y-%d-%m"], dates_only=True).to_pylist() == [
        "2024-03-04",
        "2024-03-04",
        None,
        "2024-03-04T00:00:00",
    ]
    assert parsed(["2024-03-04"], "DATE", timestamp_formats=["%Y-%m-%d", "%Y-%d-%m"]) == ["2024-03-04"]
    assert parsed(["2024-03-04"], "DATE", timestamp_formats=["%Y-%d-%m", "%Y-%m-%d"]) == ["2024-04-03"]
    formats = ["%d/%m/%Y %H:%M", "%Y-%d-%mT%H:%M:%S"]
    assert parsed(["04/03/2024 10:20", "2024-04-03T10:20:00"], "TIMESTAMP(0)", timestamp_formats=formats) == [
        "2024-03-04T10:20:00",
        "2024-03-04T10:20:00",
    ]


def test_far_years_have_digits_and_zones_as_others() -> None:
    assert parsed(["+12024-01-31T10:20:30.500000"], "TIMESTAMP(1)") == ["+12024-01-31T10:20:30.5"]
    assert bad_rows(["+12024-01-31T10:20:30.12", "+12024-01-31T10:20:30.1", "+12024-01-31T10:20:30Z"], "TIMESTAMP(1)") == [0, 2]
    assert bad_rows(["+12024-01-31T10:20:30", "+12024-01-31T10:20:30Z"], LTZ) == [0]


@pytest.mark.parametrize("null", ["–", "N/A", "9", "nothing at all"])
@pytest.mark.parametrize("others", [["5"], ["12345"], ["5", "12345", "123"]])
def test_null_values_of_any_length_are_null(null: str, others: list[str | None]) -> None:
    """Also where all cells are shorter or longer than the others, and where a character has several bytes."""
    texts, numbers = [*others, null, None], [*(int(one or "") for one in others), None, None]
    assert parsed(texts, "INT", null_values=[null]) == numbers
    assert parsed(texts, "INT", null_values=["unknown", null, ""]) == numbers
    assert parsed([null], "INT", null_values=[null]) == [None]


def test_an_empty_cell_is_a_value_of_binary_columns_only() -> None:
    assert parsed(["", "00", "-"], "BYTES", null_values=["-"]) == ["", "00", None]
    assert parsed(["", "00"], "BYTES") == ["", "00"]
    assert parsed(["", "0"], "INT") == [None, 0]


@pytest.mark.parametrize(
    ("type_text", "texts", "bad"),
    [
        ("DOUBLE", ["1e308", "1e309", "inf", "-1e309"], [1, 3]),
        ("FLOAT", ["3e38", "4e38", "-Infinity", "-4e38", "nan"], [1, 3]),
        ("VARBINARY(2)", ["0001", "000102", "", "00010203"], [1, 3]),
        ("TIME(1)", ["10:20:30.5", "10:20:30.55", "10:20:30.50"], [1]),
        ("TIMESTAMP(1)", ["2024-01-31T10:20:30.5", "2024-01-31T10:20:30.55"], [1]),
        ("TIMESTAMP(4)", ["2024-01-31T10:20:30.1234", "2024-01-31T10:20:30.12345"], [1]),
        ("TIMESTAMP(9)", ["2262-01-01T00:00:00", "2263-01-01T00:00:00", "1600-01-01T00:00:00"], [1, 2]),
    ],
)
def test_values_beyond_the_type_are_bad_cells(type_text: str, texts: list[str | None], bad: list[int]) -> None:
    assert bad_rows(texts, type_text) == bad


def test_parts_of_a_format_are_where_they_belong() -> None:
    formats = ["%d/%m/%y %I:%M:%S %p", "%d.%m.%Y %H:%M:%S.%f %z"]
    texts: list[str | None] = ["1/2/69 12:03:04 AM", "1/2/68 12:03:04 p.m.", "1.2.2024 3:4:5.25 +02:00", None]
    assert parsed(texts[:2], "TIMESTAMP(2)", timestamp_formats=formats) == ["1969-02-01T00:03:04", "2068-02-01T12:03:04"]
    assert parsed(texts[1:], "TIMESTAMP(2) WITH LOCAL TIME ZONE", timestamp_formats=formats, timezone="-01:00") == [
        "2068-02-01T13:03:04Z",
        "2024-02-01T01:04:05.25Z",
        None,
    ]


def test_bytes_that_are_no_text_are_shown_as_they_are() -> None:
    with pytest.raises(BadCells) as caught:
        text_of_cells(pa.array([b"good", b"ba\xffd", b"\xfe"]))
    assert [(cell.row, cell.value) for cell in caught.value.cells] == [(1, "ba\\xffd"), (2, "\\xfe")]
