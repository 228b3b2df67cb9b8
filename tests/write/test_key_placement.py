"""Rows of a write wait until their keys are looked up: all of them, those of a key in the order of arrival."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from paimon_cli.history.live_files import BucketFiles, bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.pieces import PIECES
from paimon_cli.write.key_placement import Arrivals
from tests.tables import make_table, rows, write


@pytest.mark.parametrize("rows", [1, 29, 30, 31, 100])
@pytest.mark.parametrize("portion", [1, 1 << 20])
def test_every_row_that_arrives_is_in_one_portion(
    tmp_path: Path, rows: int, portion: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In memory, on disk, or some in each. A key is in one portion."""
    monkeypatch.setattr(PIECES, "placed_bytes", portion)
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL"}, ["k"], options={"write-buffer-size": "480 b"})
    given = [(7 * row % 20, row) for row in range(rows)]
    with Arrivals(context, ["k"]) as arrivals:
        for start in range(0, rows, 3):
            keys, places = zip(*given[start : start + 3], strict=True)
            arrivals.add(pa.record_batch([pa.array(keys, pa.int32()), pa.array(places, pa.int32())], ["k", "place"]))
        portions = [[tuple(row.values()) for batch in part for row in batch.to_pylist()] for part in arrivals.portions()]
    assert sorted(row for part in portions for row in part) == sorted(given)
    for key in range(20):
        (held,) = [mine for part in portions if (mine := [row for row in part if row[0] == key])] or [[]]
        assert held == sorted(held)


ACROSS = {"p": "STRING NOT NULL", "k": "INT NOT NULL", "v": "INT"}


@pytest.mark.parametrize("producer", ["none", "input"])
def test_a_retraction_goes_where_the_key_lives(tmp_path: Path, producer: str) -> None:
    """Its own partition may be another, as that of the row that was read last."""
    context = make_table(tmp_path / "t", ACROSS, ["k"], ["p"], -1, {"changelog-producer": producer})
    write(context, [{"p": "a", "k": key, "v": 0} for key in (1, 2)])
    write(context, [{"p": "b", "k": 1, "v": 0, "_op": "-D"}])
    assert rows(context) == [{"p": "a", "k": 2, "v": 0}]


def test_the_keys_of_all_files_fill_a_bucket(tmp_path: Path) -> None:
    options = {"dynamic-bucket.target-row-num": "4", "write-only": "true"}
    context = make_table(tmp_path / "t", ACROSS, ["k"], ["p"], -1, options)
    for begin in (0, 2, 4):
        write(context, [{"p": "a", "k": key, "v": 0} for key in (begin, begin + 1)])
    held = {bucket.bucket: sum(file.row_count for file in bucket.files) for bucket in buckets_of(context)}
    assert held == {0: 4, 1: 2}


def buckets_of(context: TableContext) -> list[BucketFiles]:
    return list(bucket_files(context, context.snapshots.latest()).values())
