"""Scans of tables with deletion vectors: conditions are pushed into the files, and files are read in parts, by position."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paimon_cli import Table
from paimon_cli.api.runtime import Runtime
from paimon_cli.bucket.data_file_reader import FilePart, read_part
from paimon_cli.bucket.data_file_writer import DataFileWriter
from paimon_cli.bucket.merged_rows import read_bucket
from paimon_cli.bucket.stamped_files import DataFileNames
from paimon_cli.history.live_files import BucketFiles, bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import EMPTY_ROW, SOURCE_COMPACT, BucketId, DataFileMeta
from paimon_cli.metadata.data_file_schema import VALUE_KIND, RowKind, merge_rows, read_schema
from paimon_cli.pieces import PIECES
from paimon_cli.read.scan_plan import plan_scan
from paimon_cli.read.split_reader import in_parts
from paimon_cli.sql.predicate import parse_predicate
from tests.pieces import injected
from tests.tables import compact, make_table, scan_to_arrow, write

COLUMNS = {
    "k": "INT NOT NULL",
    "near": "INT",  # rises with the key: row groups have narrow bounds
    "far": "BIGINT",
    "text": "STRING",
    "price": "DECIMAL(9, 2)",
    "x": "DOUBLE",
    "day": "DATE",
}
ROWS = 3000


def row(chance: random.Random, key: int, generation: int) -> dict[str, Any]:
    def maybe(value: Any) -> Any:
        return None if chance.random() < 0.1 else value

    return {
        "k": key,
        "near": maybe(key // 10),
        "far": maybe(chance.randrange(1000) + 1000 * generation),
        "text": maybe(f"t{key // 100:03d}"),
        "price": maybe(f"{key // 7}.25"),
        "x": maybe(key / 4),
        "day": maybe(f"2024-01-{1 + key * 28 // ROWS:02d}"),
    }


def table(folder: Path, seed: int, file_format: str = "parquet") -> TableContext:
    """Several levels and files, of many row groups each, with marked rows all over."""
    chance = random.Random(seed)
    options = {
        "deletion-vectors.enabled": "true",
        "file.format": file_format,
        "file.block-size": "8 kb",
        "target-file-row-num": str(chance.choice((700, 1300, 100_000))),
        "compaction.small-file-ratio": "0",
        "deletion-vectors.bitmap64": chance.choice(("true", "false")),
    }
    context = make_table(folder / "t", COLUMNS, ["k"], options=options)
    write(context, [row(chance, key, 0) for key in range(ROWS)])
    compact(context)
    for generation in range(1, 4):
        low = chance.randrange(ROWS)
        keys = {chance.randrange(ROWS) for _ in range(150)} | set(range(low, min(ROWS, low + chance.randrange(400))))
        kinds = chance.choices(("+I", "-D"), (4, 1), k=len(keys))
        write(context, [{**row(chance, key, generation), "_op": kind} for key, kind in zip(sorted(keys), kinds, strict=True)])
    return context


def scan(context: TableContext, condition: str | None = None, threads: int = 1) -> list[dict[str, Any]]:
    predicate = None if condition is None else parse_predicate(condition, context.schema)
    splits = plan_scan(context, context.snapshots.latest(), predicate).splits
    return scan_to_arrow(context, splits, list(COLUMNS), predicate, threads=threads).to_pylist()


CONDITIONS = (
    "near = {near}",
    "near < {near} AND far > 1000",
    "near BETWEEN {near} AND {near} + 3 OR text = 't011'",
    "far >= 2000",
    "text IN ('t000', 't017', 't029')",
    "text LIKE 't01%' AND near IS NOT NULL",
    "price > {near}",
    "x < {near} AND far IS NULL",
    "day = DATE '2024-01-09'",
    "k >= {key} AND k < {key} + 40",
    "NOT (near > 5)",
    "near IS NULL",
    "near = -5",
)


@pytest.mark.in_part(3)
@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
@pytest.mark.parametrize("seed", range(2))
def test_conditions_find_what_a_filter_of_all_rows_finds(tmp_path: Path, seed: int, file_format: str) -> None:
    context = table(tmp_path, seed, file_format)
    everything = {row["k"]: row for row in scan(context)}
    whole = pa.Table.from_pylist(list(everything.values()), read_schema(context.schema, list(COLUMNS)))
    assert 0 < len(everything) < ROWS
    chance = random.Random(seed)
    for text in CONDITIONS:
        condition = text.format(near=chance.randrange(ROWS // 10), key=chance.randrange(ROWS))
        (batch,) = whole.combine_chunks().to_batches()
        wanted = parse_predicate(condition, context.schema).filtered(batch).to_pylist()
        found = scan(context, condition, threads=chance.choice((1, 2)))
        assert sorted(found, key=lambda one: one["k"]) == sorted(wanted, key=lambda one: one["k"]), condition


def the_bucket(context: TableContext) -> BucketFiles:
    (bucket,) = bucket_files(context, context.snapshots.latest()).values()
    return bucket


def test_row_groups_that_cannot_match_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = table(tmp_path, 0)
    read: list[int] = []
    iter_batches = pq.ParquetFile.iter_batches

    def counted(file: pq.ParquetFile, rows: int, groups: list[int], **named: Any) -> Any:
        read.extend(groups)
        return iter_batches(file, rows, groups, **named)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", counted)
    scan(context)
    whole, read[:] = len(read), []
    scan(context, "near = 250")
    assert 1 <= len(read) < whole / 4


def test_parts_hold_each_row_once_at_its_position(tmp_path: Path) -> None:
    context = table(tmp_path, 1)
    bucket = the_bucket(context)
    file = max(bucket.files, key=lambda file: file.row_count)

    def keys_of(part: FilePart, batch_rows: int) -> dict[int, int]:
        read = read_part(context, bucket.bucket_id, file, ["k"], batch_rows, part)
        return {at: key for start, batch in read for at, key in enumerate(batch.column("k").to_pylist(), start)}

    whole = keys_of(FilePart(), 100)
    groups = pq.ParquetFile(context.data_file_path(*bucket.bucket_id, file)).num_row_groups
    assert len(whole) == file.row_count and groups > 2
    for parts in (2, 3, groups, groups + 3):
        found = [keys_of(FilePart(part, parts), 77) for part in range(parts)]
        assert sum(map(len, found)) == len(whole) and {at: key for one in found for at, key in one.items()} == whole
    odd = keys_of(FilePart(keeps=lambda content, group: group % 2 == 1), 50)
    assert 0 < len(odd) < len(whole) and odd.items() <= whole.items()


@pytest.mark.parametrize("ahead", [1, 3000, 16 << 20])
def test_a_file_read_alone_has_the_same_rows_at_the_same_positions(
    tmp_path: Path, ahead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PIECES, "row_groups_ahead_bytes", ahead)
    context = table(tmp_path, 1)
    bucket = the_bucket(context)

    def rows_of(file: DataFileMeta, part: FilePart) -> list[tuple[int, dict[str, Any]]]:
        read = read_part(context, bucket.bucket_id, file, list(COLUMNS), 77, part)
        return [(at, row) for start, batch in read for at, row in enumerate(batch.to_pylist(), start)]

    for file in bucket.files:
        beside = FilePart(keeps=lambda content, group: group % 3 > 0)
        assert rows_of(file, replace(beside, is_alone=True)) == rows_of(file, beside)
        assert rows_of(file, FilePart(is_alone=True)) == rows_of(file, FilePart()) != []


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_kinds_are_spared_only_where_no_row_is_a_retraction(tmp_path: Path, file_format: str) -> None:
    options = {"deletion-vectors.enabled": "true", "file.format": file_format, "file.block-size": "16 kb"}
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL", "v": "INT"}, ["k"], options=options)
    kinds = np.array(
        [RowKind.INSERT] * 1024
        + [RowKind.UPDATE_AFTER] * 1024
        + [RowKind.DELETE] * 1024
        + [RowKind.INSERT, RowKind.UPDATE_BEFORE] * 512,
        np.int8,
    )
    keys = pa.array(np.arange(len(kinds), dtype=np.int32))
    bucket_id = BucketId(EMPTY_ROW, 0)
    writer = DataFileWriter(context, bucket_id, level=1, source=SOURCE_COMPACT, names=DataFileNames(context))
    for start in range(0, len(kinds), 1024):
        rows = merge_rows(context.schema, {"k": keys[start : start + 1024], "v": keys[start : start + 1024]}, 0, start)
        here = pa.array(kinds[start : start + 1024])
        writer.write(rows.set_column(rows.schema.get_field_index(VALUE_KIND), VALUE_KIND, here))
    (file,) = writer.close()

    def read(omits_kinds: bool) -> list[pa.RecordBatch]:
        part = FilePart(omits_kinds=omits_kinds)
        return [batch for _, batch in read_part(context, bucket_id, file, [VALUE_KIND, "v"], 512, part)]

    assert [kind for batch in read(False) for kind in batch.column(VALUE_KIND).to_pylist()] == kinds.tolist()
    spared = [row for batch in read(True) if VALUE_KIND not in batch.schema.names for row in batch.column("v").to_pylist()]
    assert set(kinds[spared].tolist()) == ({RowKind.INSERT, RowKind.UPDATE_AFTER} if file_format == "parquet" else set())
    bucket = BucketFiles(*bucket_id, 1, (file,), ())
    shown = [key for batch in read_bucket(context, bucket, ["v"]) for key in batch.column("v").to_pylist()]
    assert shown == np.flatnonzero(kinds & 1 == 0).tolist()
    assert next(read_bucket(context, bucket, ["v", VALUE_KIND])).schema.names == ["v", VALUE_KIND]


def test_a_bucket_is_read_by_several_readers_in_the_same_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = table(tmp_path, 2)
    plan = plan_scan(context, context.snapshots.latest())
    assert len(plan.splits) == sum(file.level > 0 for file in the_bucket(context).files) > 1
    alone = scan(context)
    monkeypatch.setattr(PIECES, "file_part_bytes", 4000)
    parts = in_parts(context, plan.splits, 2)
    assert len(parts) > len(plan.splits) and in_parts(context, plan.splits, 1) is plan.splits
    assert scan(context, threads=2) == alone
    monkeypatch.setattr(PIECES, "file_part_bytes", 1000)
    monkeypatch.setattr(PIECES, "max_file_parts", 3)
    files = [file for split in plan.splits for file in split.bucket.files]
    assert [part.parts for part in in_parts(context, plan.splits, 2) if part.part == 0] == [
        max(1, min(3, file.file_size // 1000)) for file in files
    ]
    assert any(file.file_size >= 4 * 1000 for file in files), "the bound is met"


def test_many_files_are_put_together_into_splits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = table(tmp_path, 0)
    rows = scan(context)
    monkeypatch.setattr(PIECES, "max_single_file_splits", 1)
    assert len(plan_scan(context, context.snapshots.latest()).splits) == 1
    assert scan(context) == rows and scan(context, threads=2) == rows


def test_marked_rows_are_known_behind_row_groups_that_are_left_out(tmp_path: Path) -> None:
    options = {"deletion-vectors.enabled": "true"}
    context = make_table(tmp_path / "t", {"k": "INT", "v": "STRING"}, [], bucket=-1, options=options)
    with injected(3):
        write(context, [{"k": k, "v": f"v{k}"} for k in range(60)])
        Table(context, Runtime()).delete("k = 43")
        (file,) = the_bucket(context).files
        path = tmp_path / "t" / "bucket-0" / file.file_name
        assert pq.ParquetFile(path).num_row_groups > 3
        for first in range(30, 60):
            found = Table(context, Runtime()).scan(where=f"k >= {first}").to_arrow()["k"].to_pylist()
            assert found == [k for k in range(first, 60) if k != 43]
