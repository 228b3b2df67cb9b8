"""Columns inferred from data files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet
import pytest

from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.errors import BadInput, NotFound, UsageError
from paimon_cli.ingest.inference import columns_of_file


def columns(path: Path) -> dict[str, str]:
    return {field.name: type_to_sql(field.type) for field in columns_of_file(str(path)).fields}


def test_parquet(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("d", pa.decimal128(10, 2)),
            pa.field("t", pa.timestamp("ms", "UTC")),
            pa.field("s", pa.struct([pa.field("x", pa.list_(pa.int32()))])),
        ]
    )
    pa.parquet.write_table(schema.empty_table(), tmp_path / "a.parquet")
    assert columns(tmp_path / "a.parquet") == {
        "id": "BIGINT NOT NULL",
        "d": "DECIMAL(10, 2)",
        "t": "TIMESTAMP(3) WITH LOCAL TIME ZONE",
        "s": "ROW<`x` ARRAY<INT>>",
    }


def test_orc(tmp_path: Path) -> None:
    pa.orc.write_table(pa.table({"id": pa.array([1], pa.int32()), "v": ["x"]}), tmp_path / "a.orc")
    assert columns(tmp_path / "a.orc") == {"id": "INT", "v": "STRING"}


def test_csv_and_json_are_inferred(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,name,day\n1,a,2024-01-01\n")
    assert columns(tmp_path / "a.csv") == {"id": "BIGINT", "name": "STRING", "day": "DATE"}
    (tmp_path / "a.jsonl").write_text('{"id": 1, "ok": true, "more": {"x": 1.5}}\n')
    assert columns(tmp_path / "a.jsonl") == {"id": "BIGINT", "ok": "BOOLEAN", "more": "ROW<`x` DOUBLE>"}


def test_files_that_give_no_columns(tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()
    (tmp_path / "a.parquet").write_text("not parquet")
    (tmp_path / "nulls.csv").write_text("id,nothing\n1,\n")
    with pytest.raises(UsageError, match="format"):
        columns_of_file(str(tmp_path / "a.txt"))
    with pytest.raises(BadInput, match="parquet"):
        columns_of_file(str(tmp_path / "a.parquet"))
    (only_nulls,) = columns_of_file(str(tmp_path / "nulls.csv")).warnings
    assert "'nothing' is STRING: it has no values" in only_nulls
    with pytest.raises(NotFound):
        columns_of_file(str(tmp_path / "nope.csv"))


def test_columns_without_a_name_are_called_by_their_position(tmp_path: Path) -> None:
    """pandas and R write their index first, without a name."""
    (tmp_path / "a.csv").write_text(",id,\n0,5,\n1,6,\n")
    assert columns(tmp_path / "a.csv") == {"c1": "BIGINT", "id": "BIGINT", "c3": "STRING"}
    (tmp_path / "b.csv").write_text("c2,\n0,5\n")
    with pytest.raises(BadInput, match="usable header") as caught:
        columns(tmp_path / "b.csv")
    assert "--columns" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "content", "hint"),
    [
        ("a.csv", b"k;v\n1;2,5\n", "--delimiter ';'"),
        ("a.csv", b"k,v\n1,\xff\n", "--encoding latin1"),
        ("a.json", b'{\n  "k": 1\n}\n', "jq -c"),
        ("a.json", b"[[1, 2]]", "jq -c"),
        ("a.json", b'{"k": 1}\n{"k": 1e400}\n', "-C"),
        ("a.json", b'{"k": [1, %d]}\n' % (10**50 + 1), "-C"),
    ],
)
def test_what_helps_where_no_columns_are_found(name: str, content: bytes, hint: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadInput) as caught:
        columns(tmp_path / name)
    assert hint in caught.value.hint


def test_an_empty_key_makes_a_map_of_one_type(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"m": {"": 1, "k": 2}}\n')
    assert columns(tmp_path / "a.json") == {"m": "MAP<STRING NOT NULL, BIGINT>"}
    (tmp_path / "b.json").write_text('{"m": {"": true, "k": null}}\n')
    with pytest.raises(BadInput, match="'m' holds objects with an empty key"):
        columns(tmp_path / "b.json")


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("12345678901234567.25", "1.5", "DECIMAL(38, 2)"),
        ("1.5", "12345678901234567.25", "DECIMAL(38, 2)"),
        ("1e20", "12345678901234567.25", "STRING"),
        ("12345678901234567.25", "1e20", "STRING"),
    ],
)
def test_a_type_fits_the_numbers_of_all_files(first: str, second: str, expected: str, tmp_path: Path) -> None:
    """Whichever file has the longest fraction, or an exponent: a write of the files takes each of them."""
    for name, text in (("a", first), ("b", second)):
        (tmp_path / f"{name}.csv").write_text(f"n\n{text}\n")
    assert columns(tmp_path) == {"n": expected}


def test_rows_of_several_files_are_counted_and_numbered(tmp_path: Path) -> None:
    """A bad row has its number in its own file."""
    (tmp_path / "a.json").write_text('{"k": 1}\n{"k": 2}\n')
    (tmp_path / "b.json").write_text('{"k": 3}\n')
    assert columns_of_file(str(tmp_path)).rows == 3
    (tmp_path / "b.json").write_text('{"k": 3}\n{"k":\n')
    with pytest.raises(BadInput, match=r"b\.json: row 2"):
        columns_of_file(str(tmp_path))
    (tmp_path / "b.csv").write_text("k\n3\n")
    with pytest.raises(BadInput, match="several files"):
        columns_of_file(str(tmp_path / "[ab].*"))
