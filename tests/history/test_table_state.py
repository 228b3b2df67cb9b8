"""Buckets picked by partition and bucket from manifests decoded side by side are those of a plain fold."""

from __future__ import annotations

import pytest

from paimon_cli.history.table_context import TableContext
from paimon_cli.history.table_state import bucket_files
from paimon_cli.metadata import manifest_columns
from tests.tables import make_table, write

COLUMNS = {"dt": "STRING NOT NULL", "k": "INT NOT NULL", "v": "INT"}


@pytest.fixture
def table(tmp_path) -> TableContext:
    context = make_table(tmp_path / "t", COLUMNS, ["dt", "k"], ["dt"], 2)
    for commit in range(3):
        write(context, [{"dt": f"{number % 3}", "k": number + commit, "v": commit} for number in range(24)])
    return context


@pytest.mark.parametrize("fewest", [0, 10**9])
def test_picked_buckets_are_those_of_all(table, monkeypatch, fewest):
    monkeypatch.setattr(manifest_columns, "_FEWEST_BLOCKS", fewest)
    snapshot = table.snapshots.latest()
    everything = bucket_files(table, snapshot)
    assert len(everything) == 6 and all(len(bucket.files) == 3 for bucket in everything.values())
    chosen = next(iter(everything))[0]
    asked: list[bytes] = []
    found = bucket_files(table, snapshot, lambda partition: not asked.append(partition) and partition == chosen)
    assert found == {place: bucket for place, bucket in everything.items() if place[0] == chosen} and len(asked) == 18
    assert bucket_files(table, snapshot, buckets=[1]) == {p: bucket for p, bucket in everything.items() if p[1] == 1}
