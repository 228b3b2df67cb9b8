"""Ranges of keys: which row groups and rows are in them."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paimon_cli.bucket.key_range import KeyRange, RangeReader, first_key
from paimon_cli.datatypes.binary_row import serialize_row
from paimon_cli.history.live_files import bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.lsm.key_search import SortedKeys
from tests.tables import make_table, write

Key = tuple[int, ...]


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> TableContext:
    columns = {"a": "INT NOT NULL", "b": "INT NOT NULL", "v": "INT"}
    return make_table(tmp_path_factory.mktemp("ranges") / "t", columns, ["a", "b"])


def reader(context: TableContext, low: Key | None, high: Key | None) -> RangeReader:
    least, greatest = (None if key is None else serialize_row(key, context.key_types) for key in (low, high))
    return RangeReader(context, KeyRange(least, greatest, size=1))


def keys(*values: Key) -> SortedKeys:
    columns = [pa.array(column, pa.int32()) for column in zip(*values, strict=True)]
    names = ["a", "b"][: len(columns)]
    return SortedKeys.of(pa.record_batch(columns, names), names)


@pytest.mark.parametrize(
    ("low", "high", "group", "ends_below", "inside"),
    [
        (None, None, ((0,), (9,)), False, True),
        ((3, 5), None, ((4,), (9,)), False, True),
        ((3, 5), None, ((3,), (9,)), False, False),  # it may begin with (3, 4)
        ((3, 5), None, ((3, 5), (9, 0)), False, True),
        ((3, 5), None, ((3, 4), (9, 0)), False, False),
        (None, (3, 5), ((0,), (2,)), False, True),
        (None, (3, 5), ((0,), (3,)), False, False),  # it may end with (3, 5)
        (None, (3, 5), ((0,), (3,)), True, True),
        (None, (3, 5), ((0, 0), (3, 4)), False, True),
        (None, (3, 5), ((0, 0), (3, 5)), False, False),
        (None, (3, 5), ((0, 0), (3, 5)), True, True),
        (None, (3, 5), ((0, 0), (3, 6)), True, False),
        ((1, 0), (3, 5), ((2,), (2,)), False, True),
    ],
)
def test_a_group_is_inside_whatever_its_further_columns_are(
    context: TableContext, low: Key | None, high: Key | None, group: tuple[Key, Key], ends_below: bool, inside: bool
) -> None:
    least, greatest = map(keys, group)
    assert reader(context, low, high).holds(least, greatest, np.array([ends_below])).tolist() == [inside]


def test_rows_of_a_range_are_from_its_least_key_to_below_its_greatest(context: TableContext) -> None:
    found = reader(context, (1, 2), (2, 1))
    batch = pa.record_batch([pa.array([1, 1, 1, 2, 2], pa.int32()), pa.array([1, 2, 3, 0, 1], pa.int32())], ["a", "b"])
    rows = found._cut("file", batch)
    assert list(zip(*rows.to_pydict().values(), strict=True)) == [(1, 2), (1, 3), (2, 0)]
    assert found._cut("file", batch.slice(4)).num_rows == 0 and found.counts == {"file": 3}
    assert reader(context, None, None)._cut("file", batch).num_rows == 5


@pytest.mark.parametrize(
    ("low", "high", "several", "alone"),
    [
        (None, None, [0, 1, 2, 3], [0, 1, 2, 3]),
        ((3, 5), None, [1, 2, 3], [1, 2, 3]),
        ((4, 0), None, [2, 3], [2, 3]),
        ((7, 0), None, [], []),
        (None, (5, 5), [0, 1, 2, 3], [0, 1, 2]),  # a group that begins with 5 may hold (5, 4)
        (None, (3, 0), [0, 1, 2], [0, 1]),
        (None, (2, 0), [0, 1], [0]),
        ((3, 0), (5, 0), [1, 2, 3], [1, 2]),
    ],
)
def test_row_groups_that_may_hold_keys_of_a_range(
    tmp_path: Path, context: TableContext, low: Key | None, high: Key | None, several: list[int], alone: list[int]
) -> None:
    """Statistics tell the first key column only. `alone`: if it is the whole key."""
    sink = io.BytesIO()
    groups = pa.table({"_KEY_a": pa.array([0, 1, 2, 3, 3, 4, 5, 6], pa.int32())})
    pq.write_table(groups, sink, row_group_size=2)
    assert reader(context, low, high).row_groups().groups(pq.ParquetFile(sink)) == several
    single = make_table(tmp_path / "single", {"a": "INT NOT NULL", "v": "INT"}, ["a"])
    cut = [None if key is None else key[:1] for key in (low, high)]
    assert reader(single, *cut).row_groups().groups(pq.ParquetFile(sink)) == alone
    pq.write_table(groups, without := io.BytesIO(), row_group_size=2, write_statistics=False)
    assert reader(context, low, high).row_groups().groups(pq.ParquetFile(without)) == [0, 1, 2, 3]


def test_the_first_key_of_each_row_group(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"a": "INT NOT NULL", "b": "INT NOT NULL"}, ["a", "b"])
    write(context, [{"a": n // 4, "b": n} for n in range(9)])
    (bucket,) = bucket_files(context, context.snapshots.latest()).values()
    (file,) = bucket.files
    path = context.data_file_path(*bucket.bucket_id, file)
    pq.write_table(pq.read_table(path), path, row_group_size=3)
    found = [first_key(context, bucket.bucket_id, file, group) for group in range(3)]
    assert found == [serialize_row(key, context.key_types) for key in ((0, 0), (0, 3), (1, 6))]
