"""Rows of a write wait until their keys are looked up: all of them, those of a key in the order of arrival."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from paimon_cli.pieces import PIECES
from paimon_cli.write.key_placement import Arrivals
from tests.tables import make_table


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
