"""Data evolution: the columns of a row are put together from several files, of which the newest with a column counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from paimon_cli import Table
from paimon_cli.bucket import combined_columns
from paimon_cli.bucket.combined_columns import row_ranges
from paimon_cli.bucket.deletion_vectors import ChangedVectors
from paimon_cli.cli.scan_view import headline
from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import fresh_identity
from paimon_cli.errors import DamagedFile, NotSupported
from paimon_cli.history.live_files import bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.inspect.bucket_report import partition_rows, visible_rows
from paimon_cli.invariants.check import check_table
from paimon_cli.invariants.foreign_reads import foreign_read_report
from paimon_cli.invariants.known_readers import judged
from paimon_cli.jobs.row_scan import Increment, ReadRequest, plan_rows
from paimon_cli.metadata.data_file import CommitMessage, DataFileMeta, FileChanges
from paimon_cli.metadata.index_files import DeletionVector
from paimon_cli.metadata.snapshot import Snapshot
from tests.commit.commit_tables import data_file
from tests.pieces import injected
from tests.tables import make_table, write

COLUMNS = {"id": "INT", "v": "STRING", "n": "BIGINT"}
EVOLVES = '"data-evolution.enabled" : "true", '
TRACKED = {"row-tracking.enabled": "true"}


def add_column(context: TableContext, name: str, values: list[Any], first: int = 0) -> None:
    """Commit a file with one column of the rows from the id `first` on, as other writers do."""
    number = (context.snapshots.latest_id() or 0) + 1
    part = make_table(Path(context.url).parent / f"part-{number}", {name: COLUMNS[name]}, [], bucket=-1)
    write(part, [{name: value} for value in values])
    snapshot = part.snapshot()
    assert snapshot is not None
    (entry,) = part.manifests.live_entries(snapshot)
    target = Path(context.bucket_directory(*entry.bucket_id)) / entry.file.file_name
    Path(part.data_file_path(*entry.bucket_id, entry.file)).rename(target)
    file = replace(entry.file.numbered(number), first_row_id=first, write_cols=(name,))
    message = CommitMessage(*entry.bucket_id, entry.total_buckets, append=FileChanges(added=(file,)))
    Committer(context).commit([message], fresh_identity(context))


@pytest.fixture
def evolved(tmp_path: Path) -> TableContext:
    context = make_table(tmp_path / "t", COLUMNS, [], bucket=-1, options=TRACKED)
    write(context, [{"id": n, "v": f"v{n}", "n": n} for n in range(5)])
    write(context, [{"id": n, "v": f"v{n}", "n": n} for n in range(5, 7)])
    add_column(context, "v", [f"w{n}" for n in range(5)])
    add_column(context, "n", [10 * n for n in range(5)])
    add_column(context, "v", [f"x{n}" for n in range(5)])
    path = tmp_path / "t/schema/schema-0"
    path.write_text(path.read_text().replace('"row-tracking', f'{EVOLVES}"row-tracking', 1))
    return TableContext.open(context.url)


def read(context: TableContext, **request: Any) -> list[dict[str, Any]]:
    return [row for batch in plan_rows(context, ReadRequest(**request)).rows() for row in batch.to_pylist()]


ROWS = [{"id": n, "v": f"x{n}" if n < 5 else f"v{n}", "n": 10 * n if n < 5 else n} for n in range(7)]


def test_the_newest_file_with_a_column_counts(evolved: TableContext) -> None:
    assert read(evolved) == ROWS
    assert read(evolved, columns=["n", "_ROW_ID"]) == [{"n": row["n"], "_ROW_ID": row["id"]} for row in ROWS]
    assert plan_rows(evolved, ReadRequest()).count() == 7
    assert read(evolved, snapshot=3)[0] == {"id": 0, "v": "w0", "n": 0}


def test_rows_are_counted_once_for_all_their_files(evolved: TableContext) -> None:
    (bucket,) = bucket_files(evolved, evolved.snapshots.latest()).values()
    assert visible_rows(evolved, bucket) == 7
    assert [row.visible_rows for row in partition_rows(evolved, evolved.snapshots.latest())] == [7]
    longer = replace(bucket.files[0], row_count=bucket.files[0].row_count + 1)
    assert visible_rows(evolved, replace(bucket, files=(longer, *bucket.files[1:]))) is None


def test_conditions_are_met_by_whole_rows(evolved: TableContext) -> None:
    """The bounds of the file with the first values of a column must not rule out its rows."""
    assert read(evolved, where="n = 40 AND v = 'x4'") == [ROWS[4]]
    assert read(evolved, where="v = 'v4'") == [] and read(evolved, where="n = 4") == []
    assert plan_rows(evolved, ReadRequest(where="v LIKE 'x%'")).count() == 5


def test_files_in_pieces_of_different_length_stay_side_by_side(evolved: TableContext) -> None:
    with injected(2):
        assert read(evolved) == ROWS


def test_such_tables_are_sound_and_only_read(evolved: TableContext) -> None:
    assert list(check_table(evolved)) == []
    with pytest.raises(NotSupported, match=r"data-evolution\.enabled"):
        write(evolved, [{"id": 1}])
    with pytest.raises(NotSupported, match="cannot tell the changes"):
        plan_rows(evolved, ReadRequest(increment=Increment("1", "3")))
    report = foreign_read_report(evolved, evolved.snapshot())
    assert not report.is_safe and [finding.code for finding in report.findings] == ["columns-in-several-files"]


def test_what_cannot_be_done_is_said_without_hints_that_do_not_help(evolved: TableContext) -> None:
    table = Table.open(evolved.url)
    plan = table.scan().explain()
    assert (plan.splits_to_combine, plan.splits_to_merge, plan.most_runs_merged, plan.rows) == (1, 0, 0, 7)
    assert headline(plan, "t")[1] == ""
    before = sorted(Path(evolved.url).rglob("*"))
    for refused in (table.analyze, table.plan_analyze, table.export_iceberg):
        with pytest.raises(NotSupported, match=r"data-evolution\.enabled") as refusal:
            refused()
        assert "compact" not in refusal.value.hint
    assert sorted(Path(evolved.url).rglob("*")) == before, "no empty directory of statistics"


def test_maintenance_does_what_it_can(evolved: TableContext) -> None:
    Table.open(evolved.url).alter.set({"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "2"})
    table = Table.open(evolved.url)
    planned, done = table.plan_maintenance(), table.maintain()
    assert planned.snapshots_expired == done.snapshots_expired == 3
    assert planned.error is None and done.error is None
    assert "data-evolution.enabled" in planned.uncompacted and done.uncompacted == planned.uncompacted
    assert "/" not in done.uncompacted, "the reason, without the table that it is said of"
    assert read(TableContext.open(evolved.url)) == ROWS
    with pytest.raises(NotSupported):
        table.compact()


def mark(evolved: TableContext, name: str, positions: list[int]) -> None:
    """Commit a deletion vector of a data file, as pypaimon does."""
    path = Path(evolved.url) / "schema/schema-0"
    schema = path.read_text()
    path.write_text(schema.replace(EVOLVES, ""))
    context = TableContext.open(evolved.url)
    (bucket,) = bucket_files(context, latest(context)).values()
    vectors = ChangedVectors(context, bucket, "stamp-0")
    vectors.mark(name, np.array(positions))
    removed, added = vectors.write(frozenset(file.file_name for file in bucket.files))
    changes = FileChanges(removed_indexes=removed, added_indexes=added)
    Committer(context).commit([CommitMessage(*bucket.bucket_id, -1, append=changes)], fresh_identity(context))
    path.write_text(schema)


def latest(context: TableContext) -> Snapshot:
    found = context.snapshot()
    assert found is not None
    return found


def range_of(context: TableContext, first: int) -> list[str]:
    """The files with the rows from an id on, the newest first."""
    found = row_ranges(entry.file for entry in context.manifests.live_entries(latest(context)))
    return next([file.file_name for file in members] for members in found if members[0].first_row_id == first)


def test_vectors_of_the_oldest_file_mark_the_rows_of_all(evolved: TableContext) -> None:
    for first, positions in ((0, [1, 2]), (5, [0]), (0, [4])):
        mark(evolved, range_of(evolved, first)[-1], positions)
    left = [row for row in ROWS if row["id"] not in (1, 2, 4, 5)]
    assert read(evolved) == left
    assert read(evolved, columns=["n", "_ROW_ID"]) == [{"n": row["n"], "_ROW_ID": row["id"]} for row in left]
    assert read(evolved, where="v = 'x3'") == [ROWS[3]] and read(evolved, where="v = 'x4'") == []
    assert plan_rows(evolved, ReadRequest()).count() == 3
    assert read(evolved, snapshot=5) == ROWS
    with injected(2):
        assert read(evolved) == left
    assert list(check_table(evolved)) == []
    explained = Table.open(evolved.url).scan().explain()
    assert (explained.vector_rows, explained.rows) == (4, 7)


def test_a_vector_of_a_newer_file_is_damage(evolved: TableContext) -> None:
    mark(evolved, range_of(evolved, 0)[0], [1])
    with pytest.raises(DamagedFile, match="no reader looks at"):
        read(evolved)
    assert [violation.code for violation in check_table(evolved, rows=True)] == ["PV040"]


def test_which_readers_do_not_combine(evolved: TableContext) -> None:
    report = foreign_read_report(evolved, evolved.snapshot())
    results = {engine: [reader.result for reader in judged(report, engine).readers] for engine in ("clickhouse", "polars")}
    assert results == {"clickhouse": ["wrong", "wrong"], "polars": ["wrong"]}


def files(*ranges: tuple[int | None, int, int]) -> list[DataFileMeta]:
    made = ((data_file(f"f{number}", rows=rows), begin, newest) for number, (begin, rows, newest) in enumerate(ranges))
    return [replace(file, first_row_id=begin, max_sequence_number=newest) for file, begin, newest in made]


def test_ranges_of_ids() -> None:
    found = row_ranges(files((5, 2, 1), (0, 5, 1), (0, 5, 3), (None, 4, 1)))
    assert [[file.file_name for file in members] for members in found] == [["f3"], ["f2", "f1"], ["f0"]]
    for wrong in (files((0, 5, 1), (0, 4, 2)), files((0, 5, 1), (4, 2, 2))):
        with pytest.raises(DamagedFile, match="overlaps"):
            row_ranges(wrong)


def test_ranges_that_overlap_are_damage_even_if_each_split_is_small(tmp_path: Path) -> None:
    """Otherwise two splits would show the rows that are in both."""
    small = {"source.split.target-size": "1 b", "source.split.open-file-cost": "1 b"}
    context = make_table(tmp_path / "t", COLUMNS, [], bucket=-1, options=TRACKED | small)
    for begin, end in ((0, 4), (4, 5), (5, 9)):
        write(context, [{"id": n, "v": f"v{n}", "n": n} for n in range(begin, end)])
    add_column(context, "v", ["x4"], first=4)
    path = tmp_path / "t/schema/schema-0"
    path.write_text(path.read_text().replace('"row-tracking', f'{EVOLVES}"row-tracking', 1))
    sound = TableContext.open(context.url)
    assert [len(split.files) for split in plan_rows(sound, ReadRequest()).plan.splits] == [1, 2, 1]
    assert [row["v"] for row in read(sound)] == ["v0", "v1", "v2", "v3", "x4", "v5", "v6", "v7", "v8"]
    add_column(context, "v", ["y3", "y4"], first=3)
    with pytest.raises(DamagedFile, match="overlaps"):
        read(TableContext.open(context.url))


def test_marked_rows_are_counted_through_all_batches() -> None:
    rows = pa.record_batch({"n": list(range(9))})
    batches = [rows.slice(0, 2), rows.slice(2, 3), rows.slice(5, 1), rows.slice(6, 3)]
    live = combined_columns._live(iter(batches), DeletionVector.marking([1, 4, 7], bitmap64=False))
    assert [number for batch in live for number in batch["n"].to_pylist()] == [0, 2, 3, 5, 6, 8]
