"""What `create --from-file` infers, `write` takes: for made-up CSV and JSON files of all kinds of values, and without loss."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.errors import BadInput
from paimon_cli.ingest.faults import USUAL_NULLS, Tally
from paimon_cli.ingest.inference import columns_of_file
from paimon_cli.ingest.row_sources import FileRows
from paimon_cli.ingest.rows import IncomingRows
from paimon_cli.ingest.source_files import plan_sources
from paimon_cli.ingest.text_form import TextForm
from paimon_cli.metadata.table_schema import TableSchema
from tests.ingest.input_files import rows_of, text_file

KINDS: list[st.SearchStrategy[str]] = [
    st.integers(-(2**70), 2**70).map(str),
    st.integers(-1000, 1000).map(str),
    st.floats().map(repr),
    st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**20), max_value=10**20).map(str),
    st.sampled_from(["", "NA", "null", "true", "FALSE", "007", "-0", "+5", ".5", "5.", "1e5", "1e999", "inf"]),
    st.sampled_from(["2024-01-31", "2024-02-30", "10:20", "10:20:30.123", "10:20:30.1234", "0000-00-00", "+12024-01-01"]),
    st.datetimes().map(str),
    st.datetimes().map(lambda d: d.isoformat() + "Z"),
    st.datetimes().map(lambda d: f"{d}+00"),
    st.sampled_from(["2013-01-01 10:00:00+05:30", "2013-01-01T10:00-0200", "2013-01-01 10:00:00.123456789", "2013-01-01T24:00Z"]),
    st.text(max_size=5),
    st.sampled_from(['{"k": 1}', "[1, 2]", "a,b", 'say "x"', "two\nlines"]),
]
CELLS = st.one_of(KINDS)
VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**70), 2**70),
        st.integers(-5, 5),
        st.floats(allow_nan=False, allow_infinity=False),
        CELLS,
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["k", "z", "", "long"]), inner, max_size=3),
    max_leaves=6,
)
FORMS = st.builds(
    lambda signs, **form: TextForm(decimal=signs[0], thousands=signs[1], **form),
    st.sampled_from([(".", ""), (",", "."), (",", ""), (".", "'")]),
    null_values=st.sampled_from([(), ("NA",), ("NA", "null", "-0")]),
    timezone=st.sampled_from([None, "UTC", "Asia/Kolkata"]),
    timestamp_formats=st.sampled_from([(), ("%Y-%m-%d",), ("%Y-%m-%d %H:%M:%S%z", "%H:%M %Y-%m-%d")]),
)
SETTINGS = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


def table_of(source: Path, form: TextForm) -> TableSchema:
    fields = columns_of_file(str(source), None, form).fields
    return TableSchema(0, fields, len(fields) - 1, (), (), {"bucket": "-1"}, None, 0)


def taken(source: Path, form: TextForm) -> tuple[TableSchema, list[dict[str, Any]]]:
    schema = table_of(source, form)
    return schema, rows_of(IncomingRows(schema, source=FileRows(form=form)), source, form=form)


@SETTINGS
@given(data=st.data(), form=FORMS)
def test_csv(data: st.DataObject, form: TextForm, tmp_path: Path) -> None:
    kinds = data.draw(st.lists(st.sampled_from([CELLS, *KINDS]), min_size=1, max_size=4))
    rows = data.draw(st.lists(st.tuples(*kinds), min_size=1, max_size=12))
    text = io.StringIO()
    writer = csv.writer(text, quoting=data.draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])))
    writer.writerows([[f"c{n}" for n in range(len(kinds))], *rows])
    try:
        source = text_file(tmp_path, text.getvalue().encode(), "a.csv")
    except UnicodeEncodeError:
        return
    schema, found = taken(source, form)
    # An empty line is no row, and a carriage return may be a line end: text that came back is the text that was there.
    texts = [field.name for field in schema.fields if field.type.root == "VARCHAR"]
    if len(found) == len(rows):
        for row, given_row in zip(found, rows, strict=True):
            for name in texts:
                cell = given_row[int(name[1:])]
                assert row[name] in (cell, None if cell in ("", *form.null_values) else cell), (name, cell)


@SETTINGS
@given(
    rows=st.lists(st.dictionaries(st.sampled_from("abcd"), VALUES, min_size=1), min_size=1, max_size=8),
    form=FORMS.map(TextForm.with_plain_numbers),
)
def test_json(rows: list[dict[str, Any]], form: TextForm, tmp_path: Path) -> None:
    _check_json(rows, form, tmp_path)


@SETTINGS
@given(data=st.data(), form=FORMS.map(TextForm.with_plain_numbers))
def test_json_columns_of_one_kind(data: st.DataObject, form: TextForm, tmp_path: Path) -> None:
    kinds = data.draw(st.lists(st.sampled_from([CELLS, *KINDS, st.integers(), st.floats()]), min_size=1))
    rows = data.draw(st.lists(st.tuples(*(st.none() | kind for kind in kinds)), min_size=1, max_size=8))
    _check_json([{f"c{n}": value for n, value in enumerate(row)} for row in rows], form, tmp_path)


def _check_json(rows: list[dict[str, Any]], form: TextForm, folder: Path) -> None:
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    source = text_file(folder, lines, "a.jsonl")
    try:
        schema = table_of(source, form)
    except BadInput as error:
        assert "holds" in error.what  # values of two kinds in one column, or text that is not Unicode
        return
    found = rows_of(IncomingRows(schema, source=FileRows(form=form)), source, form=form)
    array = text_file(folder, "[" + ",\n".join(json.dumps(row, indent=1) for row in rows) + "]", "b.json")
    assert len(found) == len(rows)
    assert table_of(array, form).fields == schema.fields
    assert repr(rows_of(IncomingRows(schema, source=FileRows(form=form)), array, form=form)) == repr(found)


FLIGHTS = """year,month,dep_time,arr_delay,carrier,tailnum,time_hour,zip,tz
2013,1,517,11,UA,N14228,2013-01-01 05:00:00+00,01234,2013-01-01T05:00:00Z
2013,1,NA,NA,B6,NA,2013-01-01 06:00:00+00,99501,2013-01-01T06:00:00+01:00
"""


def test_flights_as_r_and_duckdb_write_them(tmp_path: Path) -> None:
    source = text_file(tmp_path, FLIGHTS, "flights.csv")
    plain = {field.name: type_to_sql(field.type) for field in columns_of_file(str(source)).fields}
    assert plain["dep_time"] == plain["tailnum"] == plain["zip"] == "STRING"
    assert plain["time_hour"] == plain["tz"] == "TIMESTAMP(6) WITH LOCAL TIME ZONE"
    form = TextForm(null_values=("NA",))
    schema, rows = taken(source, form)
    assert type_to_sql(schema.field("dep_time").type) == "BIGINT"
    assert rows[1]["dep_time"] is rows[1]["tailnum"] is None and rows[0]["zip"] == "01234"
    assert rows[1]["tz"] == "2013-01-01T05:00:00Z"


@pytest.mark.parametrize(
    ("cells", "type_text", "warning"),
    [
        (["01234", "99"], "STRING", "leading zeros or signs, such as '01234'"),
        (["12345678901234567890"], "DECIMAL(38, 0)", "more digits"),
        (["9007199254740993", "0.5"], "DECIMAL(38, 1)", "more digits"),
        (["9" * 40], "STRING", "more digits than any"),
        (["0.30000000000000004", "1e300"], "DOUBLE", ""),
        (["5", "NA", "7"], "STRING", "--null-value 'NA'"),
        (["5", "NULL", "-"], "STRING", "if '-' and 'NULL' may become null: --null-value '-' --null-value 'NULL'"),
        (["5", "won't say"], "STRING", "besides numbers it holds 'won't say'"),
        (
            ['"1.234,50"', '"12,00"', "n/a", "5"],
            "STRING",
            "--decimal , --thousands .; if 'n/a' may become null: --null-value 'n/a'",
        ),
        ([f'"{n}.234,50"' for n in range(1, 99)], "STRING", "like '1.234,50'; to read them as numbers: --decimal , --thou"),
        (['"1,234.50"', "5.25"], "STRING", "to read them as numbers: --thousands ,"),
        (['"1,234"'], "STRING", "to read them as numbers: --decimal , or --thousands ,"),
        (["1 234.5"], "STRING", "to read them as numbers: --thousands space"),
        (["31.12.2024", "01.02.2025"], "STRING", "it holds '01.02.2025'; if these are dates: --timestamp-format '%d.%m.%Y'"),
        (["5 %", "7"], "STRING", "it holds '5 %'; a number has no percent sign"),
        (["€ 5", "7"], "STRING", "it holds '€ 5'; a number has no currency sign"),
        (["2024-01-01 10:00:00", "2024-01-01 10:00:00Z"], "STRING", "--timezone"),
        (["2024-01-01 10:00:00.123456789"], "TIMESTAMP(9)", ""),
        (["", ""], "STRING", "no values"),
        (["true", "False"], "BOOLEAN", ""),
        (["2024-01-01", "2024-01-01 10:00"], "TIMESTAMP(6)", ""),
    ],
)
def test_the_inferred_types_and_messages(cells: list[str], type_text: str, warning: str, tmp_path: Path) -> None:
    source = text_file(tmp_path, "k,v\n" + "".join(f"1,{cell}\n" for cell in cells), "a.csv")
    inferred = columns_of_file(str(source))
    assert type_to_sql(inferred.fields[1].type) == type_text and inferred.rows == len(cells)
    assert [w for w in inferred.warnings if warning in w] if warning else not inferred.warnings
    if not {cell.lower() for cell in cells} & USUAL_NULLS:
        assert "--null-value" not in "".join(inferred.warnings)


def test_a_later_row_counts_as_the_first_does(tmp_path: Path) -> None:
    source = text_file(tmp_path, "k,v\n" + "1,1\n" * 200_000 + "1,x\n", "a.csv")
    assert type_to_sql(columns_of_file(str(source)).fields[1].type) == "STRING"
    (split,) = plan_sources([str(source)], None)
    assert IncomingRows(table_of(source, TextForm())).find_faults(split) == Tally(rows=200_001)
