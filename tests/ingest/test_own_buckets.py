"""`write --bucket`: a writer that owns some buckets refuses rows of others, or leaves them out and counts them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from paimon_cli import Table
from paimon_cli.errors import BadInput, NotSupported, UsageError
from paimon_cli.pieces import PIECES
from tests.tables import data_files, live_files, make_table

COLUMNS = {"id": "INT NOT NULL", "v": "INT"}
ROWS = pa.table({"id": pa.array(range(100), pa.int32()), "v": pa.array(range(100), pa.int32())})


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table.open(make_table(tmp_path / "t", COLUMNS, ["id"], bucket=8).url)


def buckets_of(table: Table) -> dict[int, int]:
    """How many rows each bucket has."""
    return {row.bucket: row.rows for row in table.buckets()}


def test_the_writers_of_all_buckets_write_each_row_once(table: Table) -> None:
    shares: list[Any] = [[0, 3, range(5, 8)], 1, [2, 4]]
    done = [table.write(ROWS, bucket=share, other_buckets="skip") for share in shares]
    assert sum(one.rows for one in done) == 100 and table.scan().count() == 100
    assert (
        [one.rows + one.other_bucket_rows for one in done] == [100] * 3 == [one.rows_read + one.other_bucket_rows for one in done]
    )
    assert [len(one.touched) for one in done] == [5, 1, 2]
    assert buckets_of(table) == buckets_of_a_whole_write(table)


def buckets_of_a_whole_write(table: Table) -> dict[int, int]:
    whole = Table.open(make_table(Path(table.url).parent / "whole", COLUMNS, ["id"], bucket=8).url)
    whole.write(ROWS)
    return buckets_of(whole)


def test_a_row_of_another_bucket_is_named_and_nothing_is_written(table: Table) -> None:
    table.write(ROWS, bucket=2, other_buckets="skip")
    first = table.scan(["id"]).to_arrow().column("id").to_pylist()
    mixed = pa.concat_tables([ROWS.filter(pa.array([id in first for id in range(100)])), ROWS.slice(0, 100)])
    wrong = next(number for number in range(100) if number not in first)
    with pytest.raises(BadInput, match=rf"row {len(first) + wrong + 1} belongs to bucket \d") as refusal:
        table.write(mixed, bucket=2)
    assert "--other-buckets skip" in refusal.value.hint and refusal.value.exit_code == 2
    assert data_files(table.context) == live_files(table.context) and len(table.snapshots()) == 1
    assert table.write(ROWS.filter(pa.array([id in first for id in range(100)])), bucket=2).rows == len(first)


def test_nothing_is_left_of_an_input_of_other_buckets(table: Table) -> None:
    table.write(ROWS, bucket=range(0, 4), other_buckets="skip")
    mine = table.scan(["id"]).to_arrow().column("id").to_pylist()
    done = table.write(ROWS.filter(pa.array([id in mine for id in range(100)])), bucket=[5, 6], other_buckets="skip")
    assert (done.snapshots, done.rows, done.other_bucket_rows) == ((), 0, len(mine))


def test_rows_of_others_are_counted_in_all_batches(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PIECES, "batch_rows", 10)
    done = table.write(ROWS, bucket=[0, 1], other_buckets="skip")
    assert done.rows + done.other_bucket_rows == 100 == done.rows_read + done.other_bucket_rows


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"bucket": 8}, "there is no bucket 8"),
        ({"bucket": [3, -1]}, "there is no bucket -1"),
        ({"bucket": range(3, 3)}, "is empty"),
        ({"bucket": []}, "no bucket is named"),
        ({"other_buckets": "skip"}, "no bucket is named"),
        ({"bucket": 1, "other_buckets": "drop"}, "other_buckets"),
        ({"bucket": 1, "overwrite": True}, "cannot be combined with overwrite"),
    ],
)
def test_buckets_that_cannot_be_owned(table: Table, given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        table.write(ROWS, **given)
    assert table.snapshots() == []


@pytest.mark.parametrize(
    ("keys", "bucket"), [(["id"], -1), (["id"], -2), ([], -1)], ids=["dynamic buckets", "postponed buckets", "no buckets"]
)
def test_only_fixed_buckets_have_owners(tmp_path: Path, keys: list[str], bucket: int) -> None:
    table = Table.open(make_table(tmp_path / "t", COLUMNS, keys, bucket=bucket).url)
    with pytest.raises(NotSupported, match="bucket for") as refusal:
        table.write(ROWS, bucket=0)
    assert refusal.value.exit_code == 8


def test_buckets_of_an_append_table(tmp_path: Path) -> None:
    table = Table.open(make_table(tmp_path / "t", COLUMNS, [], bucket=3, options={"bucket-key": "v"}).url)
    done = [table.write(ROWS, bucket=bucket, other_buckets="skip") for bucket in range(3)]
    assert sum(one.rows for one in done) == 100 and sorted(table.scan().to_arrow().column("id").to_pylist()) == list(range(100))


def test_bad_rows_and_rows_of_others_are_counted_apart(table: Table, tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("id,v\n" + "".join(f"{n},{'x' if n % 10 == 0 else n}\n" for n in range(100)))
    rejects = tmp_path / "bad.csv"
    done = table.write([str(tmp_path / "r.csv")], bucket=range(0, 4), other_buckets="skip", on_error=str(rejects))
    assert (done.skipped_rows, done.rows + done.other_bucket_rows) == (10, 90)
    assert len(rejects.read_text().splitlines()) == 11
