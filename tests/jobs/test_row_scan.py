"""A planned read, cut into parts for the tasks of Spark."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from paimon_cli import Table
from paimon_cli.jobs.row_scan import RowScan


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """80 small buckets."""
    path = str(tmp_path_factory.mktemp("parts") / "t")
    table = Table.create(path, columns=["id BIGINT", "text STRING"], primary_key=["id"], bucket=80)
    table.write(pa.table({"id": range(2000), "text": ["some text"] * 2000}))
    return table


def parts_of(table: Table, options: Mapping[str, str]) -> tuple[RowScan, list[RowScan]]:
    scan = Table.open(table.url, options).scan().rows
    return scan, scan.parts()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 40),
        ({"source.split.open-file-cost": "1 gb"}, 80),
        ({"source.split.open-file-cost": "1 gb", "source.split.target-size": "8 gb"}, 40),
        ({"source.split.target-size": "1 b"}, 80),
    ],
)
def test_small_splits_share_parts(table: Table, options: dict[str, str], expected: int) -> None:
    scan, parts = parts_of(table, options)
    assert len(parts) == expected
    assert [split for part in parts for split in part.plan.splits] == list(scan.plan.splits)
    rows = [batch for part in parts for batch in pickle.loads(pickle.dumps(part)).rows()]
    assert pa.Table.from_batches(rows).equals(pa.Table.from_batches(scan.rows()))


def test_a_large_split_has_its_own_part(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = property(lambda split: 1 << 30 if split.bucket.bucket == 5 else 1 << 20)
    monkeypatch.setattr("paimon_cli.read.scan_plan.Split.size", sizes)
    buckets = [[split.bucket.bucket for split in part.plan.splits] for part in parts_of(table, {})[1]]
    assert [5] in buckets and [bucket for part in buckets for bucket in part] == list(range(80))
    assert max(map(len, buckets)) == 1340 // 32 // 4


def test_sizes_of_a_damaged_manifest(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paimon_cli.read.scan_plan.Split.size", property(lambda split: 1 << 62))
    assert len(parts_of(table, {})[1]) == 80


def test_a_version_that_is_named_counts_more_than_an_increment_of_the_options(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), columns=["id BIGINT"])
    for number in range(3):
        table.write(pa.table({"id": [number]}))
    table.tags.create("two", snapshot=2)
    limited = Table.open(table.url, {"incremental-between": "2,3"})
    assert [scan.count() for scan in (limited.scan(), limited.scan(tag="two"), limited.scan(snapshot=2))] == [1, 2, 2]


def test_a_scan_without_splits_has_no_parts(table: Table) -> None:
    assert table.scan(where="id < 0").rows.parts() == []
