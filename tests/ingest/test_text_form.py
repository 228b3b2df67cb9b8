"""How text may be written: delimiters, quotes, headers, nulls, encodings, archives, JSON arrays, formats and zones of times."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from paimon_cli.errors import BadInput, UsageError
from paimon_cli.ingest.csv_rows import csv_batches
from paimon_cli.ingest.row_sources import FileRows
from paimon_cli.ingest.rows import IncomingRows
from paimon_cli.ingest.source_files import SourceSplit
from paimon_cli.ingest.text_form import FORMATS_OF, TextForm, given_form, pattern_of, text_form
from paimon_cli.ingest.text_values import in_iso_form
from paimon_cli.pieces import PIECES
from tests.ingest.input_files import one_column, rows_of, text_file

LTZ = "TIMESTAMP(6) WITH LOCAL TIME ZONE"


def values(type_text: Any, source: Path, **form: Any) -> list[Any]:
    asked = text_form(**form)
    return [row["v"] for row in rows_of(IncomingRows(one_column(type_text), source=FileRows(form=asked)), source, form=asked)]


@pytest.mark.parametrize(
    ("name", "content", "form", "expected"),
    [
        ("a.csv", "k;v\n1;a,b\n", {"delimiter": ";"}, ["a,b"]),
        ("a.csv", "k\tv\n1\ta,b\n", {"delimiter": "tab"}, ["a,b"]),
        ("a.csv", "k\tv\n1\ta,b\n", {"delimiter": r"\t"}, ["a,b"]),
        ("a.tsv", "k\tv\n1\ta,b\n", {}, ["a,b"]),
        ("a.csv", "k,v\n1,'a,''b'\n", {"quote": "'"}, ["a,'b"]),
        ("a.csv", 'k,v\n1,"a"\n', {"quote": "none"}, ['"a"']),
        ("a.csv", 'k,v\n1,"a\\"b"\n', {"escape": "\\"}, ['a"b']),
        ("a.csv", "1,a\n2,b\n", {"header": False}, ["a", "b"]),
        ("a.csv", f"1,{'a' * 200_000}", {"header": False}, ["a" * 200_000]),
        ("a.csv", "k,v", {}, []),
        ("a.csv", '\ufeff\n"k",v', {}, []),
        ("a.csv", "a,1\n", {"header": False, "column_names": "v,k"}, ["a"]),
        ("a.csv", "K,V\n1,a\n", {"column_names": "k,v"}, ["a"]),
        ("a.csv", "v,v\n1,a\n", {"column_names": "k,v"}, ["a"]),
        ("a.csv", 'k,v\n1,NA\n2,"NA"\n3,\n4,""\n5,-\n', {"null_values": ["NA", "-"]}, [None, "NA", None, "", None]),
        ("a.json", '{"k":1,"v":"NA"}\n{"k":2,"v":"x"}\n', {"null_values": ["NA"]}, [None, "x"]),
        ("a.json", '\ufeff{"k":1,"v":"x"}\n', {}, ["x"]),
        ("a.json", '\ufeff [{"k":1,"v":"a,]\\"[{"}\n,{"k":2,\n"v":null}]\n', {}, ['a,]"[{', None]),
        ("a.json", "[]", {}, []),
    ],
)
def test_forms(name: str, content: str, form: dict[str, Any], expected: list[Any], tmp_path: Path) -> None:
    assert values("STRING", text_file(tmp_path, content, name), **form) == expected


@pytest.mark.parametrize("content", ['[{"k":1},]', '[{"k":1},,{"k":2}]', '[{"k":1}', '[{"k":1}] {"k":2}', "[,]", '[{"k":1}}'])
def test_text_that_is_not_an_array(content: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot read"):
        values("STRING", text_file(tmp_path, content, "a.json"))


def test_an_array_in_small_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PIECES, "json_block_bytes", 7)
    content = [{"k": n, "v": "\\" * (n % 4) + '"],[{' * (n % 3)} for n in range(50)]
    assert values("STRING", text_file(tmp_path, json.dumps(content, indent=1), "a.json")) == [row["v"] for row in content]
    bad = json.dumps(content).replace('"k": 40', '"k": "x"')
    with pytest.raises(BadInput, match="row 41, column 'k'"):
        values("STRING", text_file(tmp_path, bad, "a.json"))


def test_bad_rows_between_blocks_keep_their_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PIECES, "csv_block_bytes", 200)
    lines = [f"{n}" if n % 7 == 3 else f"{n},{'x' if n % 11 else 'y,y'}" for n in range(300)]
    source = text_file(tmp_path, "k,v\n" + "\n".join(lines), "a.csv")
    with pytest.raises(BadInput) as caught:
        values("STRING", source)
    assert caught.value.details["row"] == 1
    from paimon_cli.ingest.source_files import plan_sources

    incoming = IncomingRows(one_column("STRING"))
    (split,) = plan_sources([str(source)], None)
    tally = incoming.find_faults(split)
    wrong = [n + 1 for n in range(300) if n % 7 == 3 or n % 11 == 0]
    assert [fault.row for fault in tally.first] == wrong[:20]
    assert tally.bad_rows == len(wrong) and tally.rows == 300 - len(wrong)


class _Endless(io.RawIOBase):
    """Cells without a line end, of which nobody should want many."""

    def __init__(self, cell: bytes) -> None:
        self.cell, self.read_bytes = cell, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        size = len(memoryview(buffer))
        self.read_bytes += size
        assert self.read_bytes < 1 << 20, "it is all read"
        memoryview(buffer)[:] = (self.cell * size)[:size]
        return size


@pytest.mark.parametrize("cell", [b"a", b"a,", b'"a\n",'])
def test_a_first_row_without_end_is_not_held_in_memory(cell: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small archive may hold gigabytes of such text."""
    monkeypatch.setattr(PIECES, "csv_block_bytes", 1000)
    streams: list[Any] = [io.BytesIO(), _Endless(cell)]
    split = SourceSplit("a.csv", "csv", 0, None, 0, 0, "a.csv")
    with pytest.raises(BadInput, match=r"cannot read the header of a\.csv"):
        next(csv_batches(lambda: streams.pop(), split, TextForm()))


def _compressed_by_arrow(codec: str) -> Callable[[bytes], bytes]:
    def compress(content: bytes) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, codec) as stream:
            stream.write(content)
        return bytes(sink.getvalue())

    return compress


@pytest.mark.parametrize(
    ("ending", "compress"),
    [
        (".gz", gzip.compress),
        (".bz2", bz2.compress),
        (".xz", lzma.compress),
        (".zst", _compressed_by_arrow("zstd")),
        (".lz4", _compressed_by_arrow("lz4")),
    ],
)
def test_compressed_text(ending: str, compress: Callable[[bytes], bytes], tmp_path: Path) -> None:
    many = b"k,v\n" + b"".join(b"%d,x\n" % n for n in range(5000))
    for name, content in (("a.csv", many), ("a.json", b'{"k":1,"v":"x"}\n{"k":2,"v":"y"}\n'), ("a.tsv", b"k\tv\n1\tx\n")):
        source = text_file(tmp_path, compress(content), name + ending)
        assert values("STRING", source)[0] == "x"
        cut = text_file(tmp_path, compress(content)[:-5], "cut" + name + ending)
        with pytest.raises(BadInput, match="cannot read"):
            values("STRING", cut)


@pytest.mark.parametrize("encoding", ["latin1", "cp1252", "utf-16", "utf-16-le", "shift_jis"])
def test_encodings(encoding: str, tmp_path: Path) -> None:
    text = "日本" if encoding == "shift_jis" else "Größe"
    for name, content in (
        ("a.csv", f"k,v\n1,{text}\n"),
        ("a.json", f'{{"k":1,"v":"{text}"}}\n'),
        ("b.json", f'[{{"k":1,"v":"{text}"}}]'),
    ):
        source = text_file(tmp_path, content.encode(encoding), name)
        assert values("STRING", source, encoding=encoding) == [text]
        with pytest.raises(BadInput, match=r"UTF-8|UTF-16|header|JSON") as caught:
            values("STRING", source)
        assert "--encoding" in f"{caught.value.why} {caught.value.hint}" or name != "a.csv"


def test_text_that_is_not_of_its_encoding(tmp_path: Path) -> None:
    source = text_file(tmp_path, b"k,v\n1,\x81\n", "a.csv")
    with pytest.raises(BadInput, match="is not cp1252 text"):
        values("STRING", source, encoding="cp1252")


@pytest.mark.parametrize(
    ("type_text", "text", "form", "expected"),
    [
        ("TIMESTAMP(3)", "31/01/2024 7:05", {"timestamp_formats": ["%d/%m/%Y %H:%M"]}, "2024-01-31T07:05:00"),
        (
            "TIMESTAMP(3)",
            "Jan 31, 2024 12:30:01.5 AM",
            {"timestamp_formats": ["%b %d, %Y %I:%M:%S.%f %p"]},
            "2024-01-31T00:30:01.5",
        ),
        ("TIMESTAMP(3)", "2024-01-31", {"timestamp_formats": ["%d/%m/%Y"]}, "2024-01-31T00:00:00"),
        ("DATE", "31.1.24", {"timestamp_formats": ["%d.%m.%Y %H:%M", "%d.%m.%y"]}, "2024-01-31"),
        (LTZ, "2024-01-31 10:00:00 UTC", {"timestamp_formats": ["%Y-%m-%d %H:%M:%S %Z"]}, "2024-01-31T10:00:00Z"),
        (LTZ, "20240131T100000+0200", {"timestamp_formats": ["%Y%m%dT%H%M%S%z"]}, "2024-01-31T08:00:00Z"),
        (LTZ, "2024-01-31 10:00:00", {"timezone": "Asia/Kolkata"}, "2024-01-31T04:30:00Z"),
        (LTZ, "2024-01-31 10:00:00+00", {"timezone": "Asia/Kolkata"}, "2024-01-31T10:00:00Z"),
        (LTZ, "2024-10-27 02:30:00", {"timezone": "Europe/Berlin"}, "2024-10-27T00:30:00Z"),
        ("TIMESTAMP(0)", "2013-01-01 10:00:00+00", {"timezone": "UTC"}, "2013-01-01T10:00:00"),
        ("TIMESTAMP(0)", "2013-07-01 10:00:00Z", {"timezone": "Europe/Berlin"}, "2013-07-01T12:00:00"),
        ("TIMESTAMP(0)", "2013-07-01 10:00:00", {"timezone": "+05:00"}, "2013-07-01T10:00:00"),
    ],
)
def test_times(type_text: str, text: str, form: dict[str, Any], expected: str, tmp_path: Path) -> None:
    for source in (
        text_file(tmp_path, f'k,v\n1,"{text}"\n2,\n', "a.csv"),
        text_file(tmp_path, f'{{"k":1,"v":"{text}"}}\n{{"k":2}}', "a.json"),
    ):
        assert values(type_text, source, **form) == [expected, None]


@pytest.mark.parametrize(
    ("type_text", "text", "form", "why"),
    [
        (LTZ, "2024-03-31 02:30:00", {"timezone": "Europe/Berlin"}, "there is no such time in Europe/Berlin"),
        ("TIMESTAMP(3)", "13:00 PM 31/01/2024", {"timestamp_formats": ["%I:%M %p %d/%m/%Y"]}, "no such time"),
        ("TIMESTAMP(3)", "31/13/2024", {"timestamp_formats": ["%d/%m/%Y"]}, "no such time"),
        ("TIMESTAMP(3)", "2013-01-01 10:00:00+00", {}, "--timezone"),
        (LTZ, "2013-01-01 10:00:00", {}, "--timezone"),
        ("INT", "-", {"null_values": ["NA"]}, "whole number"),
    ],
)
def test_invalid_times(type_text: str, text: str, form: dict[str, Any], why: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        values(type_text, text_file(tmp_path, f"k,v\n2,\n1,{text}\n", "a.csv"), **form)
    assert why in caught.value.why and caught.value.details["value"] == text


@pytest.mark.parametrize(
    "form",
    [
        {"delimiter": "ab"},
        {"delimiter": ""},
        {"delimiter": "ß"},
        {"quote": ","},
        {"column_names": "a,a"},
        {"column_names": "a,,b"},
        {"timezone": "Mars/Olympus"},
        {"timezone": "../etc/passwd"},
        {"encoding": "rot13"},
        {"encoding": "nonsense"},
        {"timestamp_formats": ["%Q"]},
        {"timestamp_formats": ["%H:%M"]},
        {"timestamp_formats": ["%d/%m/%Y %d"]},
    ],
)
def test_forms_that_mean_nothing(form: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        text_form(**form)


def test_a_wrong_delimiter_is_guessed(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        values("STRING", text_file(tmp_path, "k;v\n1;2\n", "a.csv"))
    assert caught.value.hint.startswith("--delimiter ';'")
    with pytest.raises(BadInput, match="'k' is missing"):
        values("STRING", text_file(tmp_path, "k;v\n1;2\n", "a.csv"), delimiter=",")
    with pytest.raises(BadInput, match="1 column, the table has 2") as caught:
        values("STRING", text_file(tmp_path, "1;2\n", "a.csv"), header=False)
    assert caught.value.hint.startswith("--delimiter ';'")


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ({"null_values": "NA"}, "null_value 'NA': it must be a list of strings"),
        ({"columns": "a,b"}, "columns 'a,b': it must be a list of strings"),
        ({"columns": ["a", "a"]}, "'a' appears twice"),
        ({"timestamp_formats": "%d.%m.%Y"}, "it must be a list of strings"),
        ({"timestamp_formats": ["%Q"]}, "unknown directive"),
        ({"delimiter": ";;"}, "is not one ASCII character"),
        ({"delimiter": ";", "quote": ";"}, "must differ"),
        ({"timezone": "Mars/Olympus"}, "no time zone"),
        ({"encoding": "nonsense"}, "no encoding"),
        ({"encoding": "a\0b"}, "no encoding"),
        ({"encoding": "\udcff"}, "no encoding"),
        ({"encoding": None}, "encoding None: it must be a string"),
        ({"timezone": 2}, "timezone 2: it must be a string"),
        ({"header": "no"}, "header 'no': it must be True or False"),
        ({"null_values": ["\udcff"]}, "not valid Unicode"),
        ({"columns": ["\udcff"]}, "not valid Unicode"),
        ({"timestamp_formats": ["%Y-%m-%d\udcff"]}, "not valid Unicode"),
        ({"timestamp_formats": ["%Y-%m-%d %H %I %p"]}, "%H and %I say the same"),
        ({"timestamp_formats": ["%m-%d-%y (%Y)"]}, "%Y and %y say the same"),
        ({"timestamp_formats": ["%Y-%m-%d %b"]}, "%m and %b say the same"),
    ],
)
def test_a_form_made_in_python_is_checked_when_it_is_made(form: dict[str, Any], message: str) -> None:
    """Otherwise the characters of a single text would each be a null value, and a wrong encoding would fail in a job."""
    with pytest.raises(UsageError, match=message):
        TextForm(**form)


def test_a_form_made_in_python_takes_lists_and_names_of_characters(tmp_path: Path) -> None:
    form = TextForm(delimiter="tab", null_values=["NA", "-", "NA"])
    assert form == text_form(delimiter=r"\t", null_values=["NA", "-"]) and hash(form)
    source = text_file(tmp_path, "k\tv\n1\tNA\n2\t-\n3\tx\n", "a.csv")
    incoming = IncomingRows(one_column("STRING"), source=FileRows(form=form))
    assert [row["v"] for row in rows_of(incoming, source, form=form)] == [None, None, "x"]


EUROPEAN = {"decimal": ",", "thousands": ".", "delimiter": ";"}


@pytest.mark.parametrize(
    ("type_text", "cell", "form", "expected"),
    [
        ("DECIMAL(10, 2)", "1.234,50", EUROPEAN, "1234.50"),
        ("DECIMAL(20, 2)", "-1.234.567,5", EUROPEAN, "-1234567.50"),
        ("DECIMAL(10, 2)", "1234,5", EUROPEAN, "1234.50"),
        ("DOUBLE", "1.234,50", EUROPEAN, 1234.5),
        ("DOUBLE", ",5e3", EUROPEAN, 500.0),
        ("DOUBLE", "-inf", EUROPEAN, "-Infinity"),
        ("FLOAT", "12,5", EUROPEAN, 12.5),
        ("INT", "1.234", EUROPEAN, 1234),
        ("BIGINT", "+12.345.678", EUROPEAN, 12345678),
        ("DOUBLE", "1,234.5", {"thousands": ",", "delimiter": ";"}, 1234.5),
        ("DOUBLE", "1\u202f234,5", {"thousands": "\u202f", "decimal": ",", "delimiter": ";"}, 1234.5),
        ("INT", "1 234", {"thousands": "space", "delimiter": ";"}, 1234),
        ("DOUBLE", '"9,5"', {"decimal": ","}, 9.5),  # the decimal sign may be the delimiter
        ("STRING", "1.234,50", EUROPEAN, "1.234,50"),
    ],
)
def test_numbers_as_people_write_them(type_text: str, cell: str, form: dict[str, str], expected: Any, tmp_path: Path) -> None:
    delimiter = form.get("delimiter", ",")
    assert values(type_text, text_file(tmp_path, f"k{delimiter}v\n1{delimiter}{cell}\n", "a.csv"), **form) == [expected]


@pytest.mark.parametrize("cell", ["1.23,4", "1234.567,0", "1.5", ".123", "1..234", "1,2,3", "1.234,", "12,00", ",", "1,234.5"])
@pytest.mark.parametrize("type_text", ["INT", "BIGINT"])
def test_whole_numbers_with_wrong_groups_are_bad_cells(type_text: str, cell: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=re.escape(f"cannot take '{cell}'")):
        values(type_text, text_file(tmp_path, f"k;v\n1;{cell}\n", "a.csv"), **EUROPEAN)


@pytest.mark.parametrize("cell", ["1.23,4", "1234.567,0", "1.5", ".123", "1..234", "1,2,3", ",", "1,234.5", "1.234.56"])
@pytest.mark.parametrize("type_text", ["DECIMAL(10, 2)", "DOUBLE", "FLOAT"])
def test_numbers_with_wrong_groups_are_bad_cells(type_text: str, cell: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=re.escape(f"cannot take '{cell}'")) as refused:
        values(type_text, text_file(tmp_path, f"k;v\n1;{cell}\n", "a.csv"), **EUROPEAN)
    assert "',' for decimals and '.' between groups of three digits" in refused.value.why


def test_amounts_that_do_not_fit_name_the_options(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=re.escape("cannot take '1.234,50'")) as refused:
        values("DOUBLE", text_file(tmp_path, "k;v\n1;1.234,50\n", "a.csv"), delimiter=";")
    assert "--decimal , --thousands ." in refused.value.hint and "null" not in refused.value.hint


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"decimal": ",", "thousands": ","}, "must differ"),
        ({"thousands": "."}, "must differ"),
        ({"decimal": "1"}, "cannot be told"),
        ({"decimal": ""}, "not one ASCII character"),
        ({"thousands": "-"}, "cannot be told"),
        ({"thousands": ".."}, "not one character"),
        ({"thousands": 3}, "must be a string"),
    ],
)
def test_signs_that_cannot_be_used(form: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        TextForm(**form)


def test_number_signs_have_no_effect_on_json() -> None:
    with pytest.raises(UsageError, match="decimal has no effect on json input"):
        TextForm(decimal=",").check_used_by({"json"})


FITS = {
    "%d.%m.%Y": ("31.01.2024", ["31.01.2024x", "x31.01.2024", "31/01/2024", "31.01.202", "31.01.2024 10:00"]),
    "%Y%m%d%%(%H)": ("20240131%(10)", ["20240131%%(10)", "20240131%10", "20240131%(10"]),
    "%b %e, %y": ("January  1, 24", ["Januar 1, 24", "Jan 1, 2024", "Jan 1. 24"]),
    "%D %R": ("1/2/24 3:4", ["1/2/2024 3:4", "1/2/24 3:4:5"]),
    "%F%%T%T": ("2024-01-31%T1:2:3", ["2024-01-31%1:2:3"]),
    "%A, %Y-%m-%dT%I.%M %p%z": ("WED, 2024-01-31T1.00 a.m.+01", ["2024-01-31T1.00 am+01", "Wed, 2024-01-31T1:00 am+01"]),
}


@pytest.mark.parametrize("format", FITS)
def test_a_format_takes_whole_texts_as_they_are_written(format: str) -> None:
    fits, others = FITS[format]
    pattern, names = pattern_of(format)
    assert re.search(pattern, fits) and {"d", "m", "y"} <= {name.lower() if name != "b" else "m" for name in names}
    assert not [text for text in others if re.search(pattern, text)]
    assert in_iso_form(pa.array([fits, *others]), [format], dates_only=False).to_pylist()[1:] == others


@pytest.mark.parametrize(
    "format", ["%d.%m.", "%Y-%d", "%Y-%m", "%Y-%m-%d %I", "%Y-%m-%d %H %p", "%Y-%m-%d %p", "%Y-%m-%d %", "%Y-%m-%d %T%S"]
)
def test_a_format_says_each_part_of_a_time_once(format: str) -> None:
    with pytest.raises(UsageError, match="timestamp_format"):
        TextForm(timestamp_formats=[format])


def test_empty_texts_of_options_are_given() -> None:
    """`--quote ''` is no quote, and not the usual one; `--columns ''` is a name that is empty."""
    assert text_form(quote="", escape="", thousands="").quote == ""
    assert text_form() == TextForm() and given_form(None) == TextForm()
    empty: list[dict[str, Any]] = [{"delimiter": ""}, {"column_names": ""}, {"timezone": ""}, {"encoding": ""}, {"decimal": ""}]
    for given in empty:
        with pytest.raises(UsageError):
            text_form(**given)
    with pytest.raises(UsageError, match="TextForm"):
        given_form({"delimiter": ";"})  # type: ignore[arg-type]


@pytest.mark.parametrize("format", ["csv", "json", "parquet", "orc", "arrow"])
def test_an_option_that_has_no_effect_is_refused(format: str) -> None:
    given: dict[str, Any] = {"delimiter": ";", "quote": "", "escape": "^", "header": False, "columns": ["a"], "decimal": ","}
    given |= {"thousands": "'", "null_values": [""], "timestamp_formats": ["%Y%m%d"], "encoding": "utf-16", "timezone": "Z"}
    assert given.keys() == {one.name for one in fields(TextForm)}
    for name, value in given.items():
        form = TextForm(**{name: value})
        form.check_used_by({"csv", format})
        if format in FORMATS_OF[name]:
            form.check_used_by({format})
            continue
        with pytest.raises(UsageError, match=f"has no effect on {format} input"):
            form.check_used_by({format})


@pytest.mark.parametrize(
    "form, found",
    [
        ({"timezone": "z"}, "UTC"),
        ({"timezone": "-23:59"}, "-23:59"),
        ({"timezone": "+02:00:30"}, None),
        ({"timezone": "+2:00"}, None),
        ({"timezone": "+24:00"}, None),
        ({"encoding": "UTF8"}, "utf-8"),
        ({"encoding": "us-ascii"}, "utf-8"),
        ({"encoding": "utf-8-sig"}, "utf-8"),
        ({"encoding": "U16"}, "utf-16"),
        ({"encoding": "utf-32-le"}, "utf-32-le"),
        ({"encoding": "hex"}, None),
        ({"columns": ["a", " a"]}, None),
        ({"columns": [" a ", "b"]}, ("a", "b")),
        ({"escape": '"'}, None),
        ({"quote": ";", "delimiter": ";"}, None),
        ({"escape": ","}, None),
        ({"delimiter": "\n"}, None),
        ({"quote": "\r"}, None),
        ({"delimiter": "\0"}, None),
        ({"delimiter": "\u2028"}, None),
        ({"thousands": "0"}, None),
        ({"thousands": "+"}, None),
        ({"thousands": '"'}, None),
        ({"decimal": "-"}, None),
        ({"decimal": "tab"}, None),
        ({"thousands": "\u200b"}, None),
        ({"thousands": "\xa0"}, "\xa0"),
    ],
)
def test_what_is_made_of_an_option(form: dict[str, Any], found: Any) -> None:
    (name,) = list(form)[:1]
    if found is not None:
        assert getattr(TextForm(**form), name) == found
        return
    with pytest.raises(UsageError):
        TextForm(**form)
