"""The rows of overlapping files that are not superseded are those that a merge returns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from paimon_cli.bucket.data_file_reader import read_data_file
from paimon_cli.bucket.merged_rows import read_bucket, without_retractions
from paimon_cli.bucket.superseded_rows import merge_chooses_rows, superseded_rows
from paimon_cli.errors import DamagedFile
from paimon_cli.history.live_files import BucketFiles, bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.lsm.sorted_runs import key_sections
from paimon_cli.metadata.data_file_schema import VALUE_KIND
from paimon_cli.pieces import PIECES
from tests.goldens import GOLDENS, Golden, golden_table
from tests.tables import compact, make_table, write

ENGINES: dict[str, dict[str, str]] = {
    "newest": {},
    "newest, deletes ignored": {"ignore-delete": "true"},
    "oldest": {"merge-engine": "first-row", "ignore-delete": "true"},
    "greatest version": {"sequence.field": "v,k"},
    "smallest version": {"sequence.field": "v", "sequence.field.sort-order": "descending"},
    "by snapshot": {"sequence.snapshot-ordering": "true"},
}
BATCH = 1000


def shown(context: TableContext, bucket: BucketFiles, columns: list[str]) -> list[str]:
    """The rows that a reader of single files sees, which leaves out superseded rows and retractions."""
    superseded = superseded_rows(context, bucket)
    return sorted(row for file in bucket.files for row in _current(context, bucket, file.file_name, superseded, columns))


def _current(
    context: TableContext, bucket: BucketFiles, name: str, superseded: dict[str, np.ndarray], columns: list[str]
) -> Iterator[str]:
    (file,) = (file for file in bucket.files if file.file_name == name)
    batches = list(read_data_file(context, bucket.bucket_id, file, [*columns, VALUE_KIND], BATCH))
    rows = pa.Table.from_batches(batches)
    if name in superseded:
        return _texts(rows.filter(pa.array(~superseded[name])).select(columns))
    return _texts(pa.Table.from_batches([without_retractions(batch) for batch in batches]).select(columns))


def _texts(rows: pa.Table) -> Iterator[str]:
    return (repr(list(row.values())) for row in rows.to_pylist())


def merged(context: TableContext, bucket: BucketFiles, columns: list[str]) -> list[str]:
    return sorted(text for batch in read_bucket(context, bucket, columns) for text in _texts(pa.Table.from_batches([batch])))


@pytest.mark.in_part(2)
@pytest.mark.parametrize("passes", [False, True])
@pytest.mark.parametrize("options", ENGINES.values(), ids=ENGINES.keys())
def test_each_engine_that_chooses_rows(
    tmp_path: Path, options: dict[str, str], passes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random upserts and deletes in six files, small batches; also where not all runs are open at once."""
    monkeypatch.setattr(PIECES, "batch_rows", 64)
    monkeypatch.setattr(PIECES, "smallest_batch_rows", 16)
    options = {"write-only": "true", "num-levels": "3", **options, **({"sort-spill-threshold": "2"} if passes else {})}
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL", "v": "INT", "s": "STRING"}, ["k"], options=options)
    random = np.random.default_rng(11)
    for round_number in range(6):
        keys = random.choice(300, 150, replace=False).tolist()
        kinds = random.choice(["+I", "+U", "-D"], 150, p=[0.5, 0.4, 0.1]).tolist()
        versions = random.integers(0, 4, 150).tolist()
        rows = [
            {"k": k, "v": v, "s": f"{round_number}-{k}", "_op": kind} for k, v, kind in zip(keys, versions, kinds, strict=True)
        ]
        write(context, rows)
        if round_number == 2:
            compact(context)
    (bucket,) = bucket_files(context, context.snapshots.latest()).values()
    assert merge_chooses_rows(context, bucket)
    assert len(superseded_rows(context, bucket)) > 3
    assert shown(context, bucket, ["k", "v", "s"]) == merged(context, bucket, ["k", "v", "s"])


@pytest.mark.in_part(8)
@pytest.mark.parametrize("golden", [golden for golden in GOLDENS if golden.schema["primaryKeys"]], ids=str)
def test_tables_of_other_writers(golden: Golden, tmp_path: Path) -> None:
    context = TableContext.open(str(golden_table(golden.writer, golden.name, tmp_path)))
    columns = list(context.schema.field_names)
    for number in context.snapshots.ids():
        for bucket in bucket_files(context, context.snapshots.get(number)).values():
            if bucket.bucket >= 0 and merge_chooses_rows(context, bucket) and context.mode.reads_merge:
                assert shown(context, bucket, columns) == merged(context, bucket, columns)


@pytest.mark.parametrize("wrong", [0, 1])
def test_a_file_of_more_rows_than_its_manifest_says_is_damage(tmp_path: Path, wrong: int) -> None:
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL"}, ["k"], options={"write-only": "true"})
    for _ in range(2):
        write(context, [{"k": k} for k in range(10)])
    (bucket,) = bucket_files(context, context.snapshots.latest()).values()
    files = tuple(replace(file, row_count=3 if number == wrong else 10) for number, file in enumerate(bucket.files))
    with pytest.raises(DamagedFile, match="manifest says"):
        superseded_rows(context, replace(bucket, files=files))


def test_files_that_overlap_no_other_are_not_read(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL"}, ["k"], options={"write-only": "true"})
    for first in (0, 5, 100):
        write(context, [{"k": k} for k in range(first, first + 10)])
    (bucket,) = bucket_files(context, context.snapshots.latest()).values()
    alone = key_sections(bucket.files, context.key_of)[-1][0].files[0]
    Path(context.data_file_path(*bucket.bucket_id, alone)).unlink()
    assert alone.file_name not in superseded_rows(context, bucket)
    Path(context.data_file_path(*bucket.bucket_id, bucket.files[0])).unlink()
    with pytest.raises(DamagedFile, match="is missing"):
        superseded_rows(context, bucket)


@pytest.mark.parametrize("engine", ["aggregation", "partial-update"])
def test_engines_that_compute_rows_are_left_to_the_merge(tmp_path: Path, engine: str) -> None:
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL", "v": "INT"}, ["k"], options={"merge-engine": engine})
    write(context, [{"k": 1, "v": 2}])
    (bucket,) = bucket_files(context, context.snapshots.latest()).values()
    assert not merge_chooses_rows(context, bucket)
