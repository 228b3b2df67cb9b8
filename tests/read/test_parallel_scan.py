"""A scan into memory: the same rows in the same order, however many threads read."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from paimon_cli.history.table_context import TableContext
from paimon_cli.read.scan_plan import plan_scan
from paimon_cli.read.split_reader import read_split
from paimon_cli.sql.predicate import parse_predicate
from tests.tables import make_table, scan_to_arrow, write


@pytest.fixture
def context(tmp_path: Path) -> TableContext:
    table = make_table(tmp_path / "t", {"k": "INT NOT NULL", "v": "STRING"}, ("k",), bucket=5)
    write(table, [{"k": k, "v": f"v{k}"} for k in range(200)])
    write(table, [{"k": k, "v": "new"} for k in range(0, 200, 7)])
    return table


def test_threads_change_nothing(context: TableContext) -> None:
    splits = plan_scan(context, context.snapshots.latest()).splits
    assert len(splits) == 5
    one_by_one = [batch for split in splits for batch in read_split(context, split, ["v", "k"])]
    for threads in (1, 3):
        rows = scan_to_arrow(context, splits, ["v", "k"], threads=threads)
        assert rows.equals(pa.Table.from_batches(one_by_one).cast(rows.schema))
    assert not rows.schema.field("k").nullable


def test_an_empty_scan_still_has_its_columns(context: TableContext) -> None:
    splits = plan_scan(context, context.snapshots.latest()).splits
    none = scan_to_arrow(context, splits, ["k", "_VALUE_KIND"], parse_predicate("k < 0", context.schema), threads=2)
    assert none.num_rows == 0
    assert none.schema.names == ["k", "_VALUE_KIND"]
