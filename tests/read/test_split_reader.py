"""Rows of a split: projection, filter after the merge, kinds, and counts that read as little as possible."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from paimon_cli import Table
from paimon_cli.bucket import data_file_reader
from paimon_cli.history.table_context import TableContext
from paimon_cli.read.difference import plan_difference
from paimon_cli.read.scan_plan import plan_scan
from paimon_cli.read.split_reader import count_split, read_split
from paimon_cli.sql.predicate import parse_predicate
from tests.goldens import golden_table
from tests.tables import make_table, write


@pytest.fixture
def context(tmp_path: Path) -> TableContext:
    table = make_table(tmp_path / "t", {"k": "INT NOT NULL", "v": "STRING", "w": "INT"}, ("k",))
    write(table, [{"k": k, "v": f"v{k}", "w": k} for k in range(6)])
    write(table, [{"k": 1, "v": None, "w": 10, "_op": "+U"}, {"k": 2, "v": "gone", "w": 2, "_op": "-D"}])
    return table


def test_projection_and_filter_after_the_merge(context: TableContext) -> None:
    (split,) = plan_scan(context, context.snapshots.latest()).splits
    predicate = parse_predicate("w > 3 OR k = 0", context.schema)
    rows = pa.Table.from_batches(read_split(context, split, ["v", "_SEQUENCE_NUMBER"], predicate))
    assert rows.to_pydict() == {"v": ["v0", None, "v4", "v5"], "_SEQUENCE_NUMBER": [0, 6, 4, 5]}
    assert split.needs_merge and split.row_count == 8


def test_deleted_keys_come_with_their_kind(context: TableContext) -> None:
    (split,) = plan_scan(context, context.snapshots.latest()).splits
    rows = pa.Table.from_batches(read_split(context, split, ["k", "_VALUE_KIND"], keep_kinds=True))
    assert rows.to_pydict() == {"k": [0, 1, 2, 3, 4, 5], "_VALUE_KIND": [0, 2, 3, 0, 0, 0]}
    (deleted,) = read_split(context, split, ["v"], parse_predicate("w = 2", context.schema), keep_kinds=True)
    assert deleted["v"].to_pylist() == ["gone"]


def test_counting_reads_no_values(context: TableContext, monkeypatch: pytest.MonkeyPatch) -> None:
    (split,) = plan_scan(context, context.snapshots.latest()).splits
    seen: set[str] = set()
    stored = data_file_reader._StoredRows

    def watched(context, path, file, physical, *how):  # type: ignore[no-untyped-def]
        seen.update(physical)
        return stored(context, path, file, physical, *how)

    monkeypatch.setattr(data_file_reader, "_StoredRows", watched)
    assert count_split(context, split) == 5
    assert not seen & {"v", "w"}
    assert count_split(context, split, parse_predicate("w >= 4", context.schema)) == 3
    assert "v" not in seen


def test_counting_append_tables(tmp_path: Path) -> None:
    for name in ("append_fixed", "append_unaware"):
        context = TableContext.open(str(golden_table("java-0.9", name, tmp_path)))
        plan = plan_scan(context, context.snapshots.latest())
        read = sum(b.num_rows for s in plan.splits for b in read_split(context, s, context.schema.field_names))
        assert sum(count_split(context, s) for s in plan.splits) == read > 0


def test_counting_what_differs_in_append_tables(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"n": "INT"}, [], bucket=-1)
    for rows in (5, 1):
        write(context, [{"n": number} for number in range(rows)])
    plan = plan_difference(context, context.snapshots.get(1), context.snapshots.get(2))
    assert [count_split(context, split) for split in plan.splits] == [1]


def test_counting_leaves_out_what_vectors_mark(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"n": "INT"}, [], bucket=-1, options={"deletion-vectors.enabled": "true"})
    write(context, [{"n": number} for number in range(5)])
    Table.open(context.url).delete("n = 3")
    assert [count_split(context, split) for split in plan_scan(context, context.snapshots.get(2)).splits] == [4]
