"""Sort compaction: the same rows in sorted files, most of which a filter on one column skips."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from paimon_cli.bucket.data_file_reader import read_data_file
from paimon_cli.errors import FilesConflict, NotSupported, UsageError
from paimon_cli.history.live_files import bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants.check import check_table
from paimon_cli.jobs.compact_job import run_compact
from paimon_cli.jobs.compact_request import CompactRequest
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.round_plan import plan_compaction
from paimon_cli.jobs.update_job import UpdateRequest, run_update
from paimon_cli.metadata.data_file import DataFileMeta
from paimon_cli.pieces import PIECES
from paimon_cli.read.scan_plan import plan_scan
from paimon_cli.sql.predicate import parse_predicate
from paimon_cli.write.sorted_write import STRATEGIES, SortOrder
from tests.rivals import beside
from tests.tables import compact, data_files, make_table, named_files, rows, write

COLUMNS = {"a": "INT", "b": "BIGINT", "s": "STRING", "dt": "STRING", "tags": "ARRAY<INT>"}
SMALL = {"target-file-size": "8 kb", "source.split.target-size": "12 kb", "write-buffer-size": "40 kb"}


def rows_of_commit(wanted: int) -> int:
    """Fewer if pieces are small, because files have far more bytes for each row then."""
    return min(wanted, 100 * PIECES.batch_rows)


def made(folder: Path, times: int = 4, options: Mapping[str, str] | None = None, **table: Any) -> TableContext:
    """`times` files of up to 600 rows for each of two days, in no order."""
    chance = random.Random(7)
    context = make_table(folder / "t", COLUMNS, [], ["dt"], bucket=-1, options={**SMALL, **(options or {})}, **table)
    for _ in range(times):
        write(context, [any_row(chance, "xy"[number % 2]) for number in range(rows_of_commit(1200))])
    return context


def any_row(chance: random.Random, day: str) -> dict[str, Any]:
    def maybe(value: Any) -> Any:
        return None if chance.random() < 0.01 else value

    text = "".join(chance.choice("abcdefgh") for _ in range(chance.randrange(12)))
    return {"a": maybe(chance.randrange(10_000)), "b": maybe(chance.randrange(10_000)), "s": maybe(text), "dt": day, "tags": [1]}


def ordered(columns: str, strategy: Any = None, **more: Any) -> CompactRequest:
    return CompactRequest(order_by=columns, order_strategy=strategy, **more)


def files(context: TableContext, place: str = "dt=x") -> list[DataFileMeta]:
    found = bucket_files(context, context.snapshots.latest()).values()
    return [f for b in found for f in b.files if context.bucket_path(*b.bucket_id).startswith(place)]


def texts(context: TableContext) -> Counter[str]:
    return Counter(map(str, rows(context)))


@pytest.mark.in_part(2)
@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
@pytest.mark.parametrize("columns", ["a", "s,b"])
def test_rows_are_sorted_within_and_across_files(
    tmp_path: Path, columns: str, file_format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PIECES, "merged_piece_rows", 50)  # several of each file
    whole = made(tmp_path, options={"file.format": file_format})
    size = sum(file.file_size for file in files(whole))
    context = TableContext.open(whole.url, {"target-file-size": f"{size // 8} b", "source.split.target-size": f"{size // 5} b"})
    before = texts(context)
    summary = run_compact(context, ordered(columns), LocalEngine(2), NoProgress())
    assert (summary.buckets, len(summary.snapshots), summary.snapshots[0].commit_kind) == (2, 1, "COMPACT")
    assert texts(context) == before
    names = columns.split(",")
    for bucket in bucket_files(context, context.snapshots.latest()).values():
        bounds = []
        for file in bucket.files:
            read = [batch for batch in read_data_file(context, bucket.bucket_id, file, names, 500)]
            keys = [tuple((v is not None, v) for v in key.values()) for batch in read for key in batch.to_pylist()]
            assert all(_not_after(one, other) for one, other in pairwise(keys))
            assert (file.max_sequence_number - file.min_sequence_number + 1, file.file_source) == (file.row_count, 1)
            bounds.append((keys[0], keys[-1]))
        assert len(bounds) > 2 and all(_not_after(one[1], other[0]) for one, other in pairwise(sorted(bounds, key=str_key)))
    assert [finding for finding in check_table(context, rows=True)] == []


def str_key(bounds: tuple[Any, Any]) -> list[Any]:
    return [(present, "" if value is None else value) for present, value in bounds[0]]


def _not_after(one: Any, other: Any) -> bool:
    for (here, value), (there, limit) in zip(one, other, strict=True):
        if here != there or (here and value != limit):
            return bool(here < there or (here == there and value < limit))
    return True


@pytest.mark.in_part(3)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_filter_on_a_column_of_the_order_touches_fewer_files(tmp_path: Path, strategy: str) -> None:
    context = made(tmp_path, times=8, options={"target-file-size": "2 kb"})
    before = texts(context)
    run_compact(context, ordered("a,b", strategy), LocalEngine(2), NoProgress())
    assert texts(context) == before
    total = len(files(context)) + len(files(context, "dt=y"))
    touched = {name: _touched(context, f"{name} between 3000 and 3100") for name in ("a", "b")}
    assert total >= 40
    if strategy == "order":
        assert touched["a"] <= total / 4 and touched["b"] == total
    else:
        assert max(touched.values()) <= 0.7 * total


def _touched(context: TableContext, where: str) -> int:
    splits = plan_scan(context, context.snapshots.latest(), parse_predicate(where, context.schema)).splits
    return sum(len(split.files) for split in splits)


def test_equal_keys_stay_in_order_and_do_not_need_memory(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"a": "INT", "n": "INT"}, [], bucket=-1, options=SMALL)
    count = rows_of_commit(5000)
    for time in range(3):
        write(context, [{"a": 1, "n": count * time + number} for number in range(count)])
    run_compact(context, ordered("a", memory=1 << 20), LocalEngine(), NoProgress())
    found = [number for file in files(context, "") for number in _column(context, file, "n")]
    assert found == list(range(3 * count))


def _column(context: TableContext, file: DataFileMeta, name: str) -> list[Any]:
    (bucket_id,) = bucket_files(context, context.snapshots.latest())
    return [value for batch in read_data_file(context, bucket_id, file, [name], 1000) for value in batch.column(0).to_pylist()]


def test_marked_rows_are_removed_with_their_vectors(tmp_path: Path) -> None:
    context = made(tmp_path, options={"deletion-vectors.enabled": "true"})
    run_update(context, UpdateRequest("a < 1000"), LocalEngine(), NoProgress())
    before = texts(context)
    run_compact(context, ordered("a,s", "zorder", partition=({"dt": "x"},)), LocalEngine(), NoProgress())
    assert texts(context) == before
    marked = [bucket for bucket in bucket_files(context, context.snapshots.latest()).values() if bucket.index_files]
    assert [context.bucket_path(*bucket.bucket_id) for bucket in marked] == ["dt=y/bucket-0"]
    assert [finding for finding in check_table(context)] == []


def test_what_others_append_meanwhile_stays(tmp_path: Path) -> None:
    context = made(tmp_path, times=2)
    before = texts(context)
    more = any_row(random.Random(1), "x")
    summary = run_compact(beside(context, lambda: write(context, [more])), ordered("a"), LocalEngine(), NoProgress())
    assert summary.conflicts == 0 and texts(context) == before + Counter([str(more)])


def test_what_others_delete_meanwhile_stays_deleted(tmp_path: Path) -> None:
    context = made(tmp_path, times=2, options={"deletion-vectors.enabled": "true"})
    delete = UpdateRequest("a < 5000")
    busy = beside(context, lambda: run_update(context, delete, LocalEngine(), NoProgress()))
    summary = run_compact(busy, ordered("b"), LocalEngine(), NoProgress())
    assert summary.conflicts == 1 and all(row["a"] is None or row["a"] >= 5000 for row in rows(context))
    before = texts(context)
    busy = beside(context, lambda: compact(context, partition=({"dt": "x"},)))
    with pytest.raises(FilesConflict):
        run_compact(busy, ordered("b", on_conflict="fail", partition=({"dt": "x"},)), LocalEngine(), NoProgress())
    assert texts(context) == before and data_files(context) == named_files(context)


@pytest.mark.parametrize(
    ("order", "message"),
    [
        (SortOrder(("nope",)), "no column 'nope'"),
        (SortOrder(("dt",)), "it is a partition column"),
        (SortOrder(("tags",)), "ARRAY<INT> have no order"),
        (SortOrder(("a", "a")), "named twice"),
        (SortOrder(("a",), "hilbert"), "at least two columns"),
        (SortOrder(()), "no column to sort by"),
    ],
)
def test_orders_that_rows_do_not_have(tmp_path: Path, order: SortOrder, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        plan_compaction(made(tmp_path, times=0), ordered(",".join(order.columns), order.strategy))


@pytest.mark.parametrize(("key", "bucket"), [(["a"], 1), ([], 2)])
def test_tables_with_an_order_of_their_own_are_not_sorted(tmp_path: Path, key: list[str], bucket: int) -> None:
    columns = {"a": "INT NOT NULL", "b": "INT"}
    context = make_table(tmp_path / "t", columns, key, bucket=bucket, options={} if key else {"bucket-key": "b"})
    with pytest.raises(NotSupported, match="has its own order"):
        plan_compaction(context, ordered("a"))


def test_samples_must_be_large_enough(tmp_path: Path) -> None:
    context = made(tmp_path, times=0, options={"sort-compaction.local-sample.magnification": "19"})
    with pytest.raises(UsageError, match=r"magnification=19 is too small"):
        plan_compaction(context, ordered("a"))


@pytest.mark.parametrize("strategy", ["size", "quantity"])
def test_ranges_are_of_about_the_same_size(tmp_path: Path, strategy: str) -> None:
    context = made(tmp_path, times=6, options={"sort-compaction.range-strategy": strategy})
    run_compact(context, ordered("a,b"), LocalEngine(), NoProgress())
    counts = [file.row_count for file in files(context)]
    assert len(counts) >= 3 and max(counts) < 2 * min(counts)


def test_the_plan_shows_what_would_be_sorted(tmp_path: Path) -> None:
    context = made(tmp_path, times=1, options={"target-file-size": "128 mb"})
    (first, _) = plan_compaction(context, ordered("a,b", "zorder")).tasks
    assert (first.reason, first.arithmetic) == ("sort", f"{len(first.files)} file by a, b (zorder)")
    assert (first.output_level, first.runs_after, first.bucket_size) == (0, 1, sum(file.file_size for file in first.files))
