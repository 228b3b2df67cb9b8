"""Texts as columns, straight from the parser: what one cell may not change in others, forms of times, null values and limits."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from paimon_cli.datatypes.canonical_form import canonical_column
from paimon_cli.datatypes.field_types import parse_type
from paimon_cli.ingest.faults import BadCells, converted
from paimon_cli.ingest.text_form import TextForm
from paimon_cli.ingest.text_values import in_iso_form, parse_text

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
