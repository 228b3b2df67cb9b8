"""The images of the rows of events."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from paimon_cli.ingest.changes.event_images import Images, rounded_rows

LARGE = float(1 << 53)


@pytest.mark.parametrize("names", ["abc", "bca", "cab"])
def test_a_row_with_a_rounded_number_in_any_column_is_found(names: str) -> None:
    columns = {
        "a": pa.array([LARGE, 1.0, None, 0.5, -1.0]),
        "b": pa.array(["9007199254740993", "x", None, "", "y"]),
        "c": pa.array([1.0, None, -LARGE, LARGE - 1, float("nan")]),
    }
    found = rounded_rows(Images(np.ones(5, bool), {name: columns[name] for name in names}))
    assert found.tolist() == [True, False, True, False, False]
