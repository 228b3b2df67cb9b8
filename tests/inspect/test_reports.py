"""Reports for the command line on tables of real writers and of this engine."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from paimon_cli import Table
from paimon_cli.api.runtime import Runtime
from paimon_cli.catalog.open_table import open_table
from paimon_cli.catalog.table_location import locate_table
from paimon_cli.errors import DamagedFile, NotFound
from paimon_cli.history.live_files import bucket_files
from paimon_cli.history.partition_spec import PartitionSpec, partition_text
from paimon_cli.history.table_context import TableContext
from paimon_cli.inspect.bucket_report import bucket_rows
from paimon_cli.inspect.compaction_history import RewrittenFiles
from paimon_cli.inspect.daily_growth import GrowthRow, growth_by_day
from paimon_cli.inspect.file_report import file_details, file_rows
from paimon_cli.inspect.lsm_report import lsm_rows
from paimon_cli.inspect.stored_bytes import SEVERAL, bytes_by_kind
from paimon_cli.inspect.version_report import read_tag, snapshot_rows, tag_rows
from paimon_cli.maintain.owners import LIVE, TAG, Group, OwnedFiles, Owner
from paimon_cli.metadata.data_file import FileFilter
from tests.goldens import golden_table
from tests.tables import compact, make_table, write


def opened(path: Path) -> TableContext:
    return open_table(locate_table(str(path)))


def test_opening_a_path_that_is_not_a_table(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        opened(tmp_path)


def test_partitions_are_named_by_canonical_values_not_by_directories(tmp_path: Path) -> None:
    columns = {"id": "INT NOT NULL", "dt": "DATE NOT NULL", "ok": "BOOLEAN NOT NULL"}
    context = make_table(tmp_path / "t", columns, ["id", "dt", "ok"], ["dt", "ok"])
    write(context, [{"id": 1, "dt": "2024-01-01", "ok": True}])
    latest = context.snapshots.latest()
    assert latest is not None
    (entry,) = context.manifests.live_entries(latest)
    assert partition_text(context, entry.partition) == "dt=2024-01-01/ok=true"
    assert "dt=19723" in context.partition_path_of(entry.partition)
    spec = PartitionSpec.parse(context, {"dt": "2024-01-01"})
    states = bucket_files(context, latest, FileFilter(spec.matches)).values()
    assert [row.partition for row in bucket_rows(context, states)] == ["dt=2024-01-01/ok=true"]


def test_deletion_vector_cardinality_is_at_its_file(tmp_path: Path) -> None:
    table = opened(golden_table("java-0.9", "dv_dedup", tmp_path))
    vectors = {
        vector.data_file_name: vector.cardinality
        for snapshot in table.snapshots.newest_first()
        for entry in table.manifests.index_entries(snapshot)
        for vector in entry.index_file.deletion_vector_ranges or ()
    }
    for snapshot in table.snapshots.newest_first():
        for row in file_rows(table, snapshot):
            assert row.dv_cardinality in (None, vectors.get(row.file))


def test_each_file_has_the_number_of_its_own_deleted_rows(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"id": "INT"}, [], bucket=-1, options={"deletion-vectors.enabled": "true"})
    for first in (0, 10, 20):
        write(context, [{"id": first + number} for number in range(10)])
    Table(context, Runtime()).delete("id IN (1, 2, 3, 14)")
    rows = sorted(file_rows(context, context.snapshots.latest()), key=lambda row: row.max_seq or 0)
    assert sorted((row.dv_cardinality for row in rows), key=str) == [1, 3, None]


def test_statistics_of_a_file(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"id": "INT NOT NULL", "v": "STRING", "d": "DECIMAL(5, 2)"}, ["id"])
    write(context, [{"id": 2, "v": "b", "d": "1.50"}, {"id": 1, "v": None, "d": "-2.00"}])
    snapshot = context.snapshots.latest()
    (row,) = file_rows(context, snapshot)
    details = file_details(context, snapshot, row.file)
    assert (details.min_key, details.max_key, details.rows, details.level) == ([1], [2], 2, 0)
    found = {c.column: (c.min, c.max, c.null_count) for c in details.columns}
    assert found == {"id": (1, 2, 0), "v": ("b", "b", 1), "d": ("-2.00", "1.50", 0)}


def test_runs_show_where_they_overlap(tmp_path: Path) -> None:
    options = {"num-sorted-run.compaction-trigger": "3", "write-only": "true"}
    context = make_table(tmp_path / "t", {"id": "INT NOT NULL"}, ["id"], options=options)
    for keys in ([0, 100], [25, 50], [75, 80]):
        write(context, [{"id": key} for key in keys])
    (bucket,) = lsm_rows(context, context.snapshots.latest())
    newest, middle, oldest = bucket.runs
    assert (newest.span, middle.span, oldest.span) == ((0.75, 0.8), (0.25, 0.5), (0.0, 1.0))
    assert (newest.overlap, middle.overlap, oldest.overlap) == (2, 2, 3)
    assert (bucket.read_amplification, bucket.compaction_trigger, bucket.stop_trigger) == (3, 3, 6)


def test_last_full_compaction_of_each_bucket(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"id": "INT NOT NULL"}, ["id"], bucket=2)

    def last_full() -> list[tuple[int, int | None]]:
        rows = lsm_rows(context, context.snapshots.latest())
        return [(row.bucket, row.last_full_snapshot) for row in rows]

    write(context, [{"id": key} for key in range(20)])
    assert [row.last_full for row in lsm_rows(context, context.snapshots.latest())] == [None, None]
    compact(context, strategy="full", bucket=(0,))
    compact(context, strategy="full", bucket=(1,))
    write(context, [{"id": key} for key in range(20)])
    assert last_full() == [(0, 2), (1, 3)]
    assert [row.last_full_snapshot for row in lsm_rows(context, context.snapshots.get(2))] == [2, None]
    compact(context, strategy="full", bucket=(0,))
    assert last_full() == [(0, 5), (1, 3)]
    for number in (3, 4):
        then = [row.last_full_snapshot for row in lsm_rows(context, context.snapshots.get(number))]
        assert then == [2, 3], "an older snapshot knows nothing of later compactions"
    times = {snapshot.id: snapshot.time_millis for snapshot in context.snapshots.newest_first()}
    assert [row.last_full for row in lsm_rows(context, context.snapshots.latest())] == [times[5], times[3]]


def test_last_full_compaction_after_its_snapshot_expired(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"id": "INT NOT NULL"}, ["id"])
    write(context, [{"id": 1}])
    write(context, [{"id": 2}])
    compact(context, strategy="full")
    (row,) = lsm_rows(context, context.snapshots.latest())
    write(context, [{"id": 3}])
    for number in (1, 2, 3):
        Path(context.layout.snapshot(number)).unlink()
    (later,) = lsm_rows(context, context.snapshots.latest())
    assert row.last_full_snapshot == 3 and later.last_full_snapshot is None
    assert row.last_full is not None and later.last_full is not None and 0 <= row.last_full - later.last_full < 60_000


def test_snapshot_rows_read_only_what_they_show(tmp_path: Path) -> None:
    path = golden_table("java-0.9", "dedup_partitioned", tmp_path)
    table = opened(path)
    oldest = table.snapshots.get(1)
    (path / "manifest" / oldest.delta_manifest_list).unlink()
    assert len(snapshot_rows(table, limit=3)) == 3
    with pytest.raises(DamagedFile, match=oldest.delta_manifest_list):
        snapshot_rows(table)


def test_tags_with_times(tmp_path: Path) -> None:
    path = golden_table("java-0.9", "tags_and_expire", tmp_path)
    tag = path / "tag" / "tag-t2"
    body = tag.read_text().rstrip().removesuffix("}")
    tag.write_text(body + ', "tagCreateTime": [2026, 11, 21, 1, 2, 3, 500000000], "tagTimeRetained": 5.000000000 }')
    row = read_tag(opened(path), "t2")
    assert (row.created, row.time_retained) == (1795222923500, 5.0)
    tag.write_text(body + ', "tagCreateTime": [2026, 11, 21, 1, 2] }')
    assert read_tag(opened(path), "t2").created == 1795222920000
    tag.write_text(body + ', "tagCreateTime": "yesterday" }')
    with pytest.raises(DamagedFile, match="tagCreateTime"):
        tag_rows(opened(path))


def test_secrets_in_properties_of_a_snapshot_are_not_shown(tmp_path: Path) -> None:
    """Another writer may have put its options there."""
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL"}, ["k"])
    write(context, [{"k": 1}])
    path = Path(context.layout.snapshot(1))
    content = json.loads(path.read_text())
    content["properties"] = {"s3.secret-key": "HUNTER2", "url": "https://u:HUNTER2@h/x?sig=HUNTER2", "plain": "shown"}
    path.write_text(json.dumps(content))
    shown = Table.open(context.url).snapshot(1).properties
    assert shown is not None and shown["plain"] == "shown" and "HUNTER2" not in str(shown)


def test_bytes_by_kind_are_those_of_all_owners_of_a_kind() -> None:
    groups = [
        ([Owner(LIVE)], 1),
        ([Owner(TAG, "a")], 20),
        ([Owner(TAG, "b")], 300),
        ([Owner(LIVE), Owner(TAG, "a")], 4_000),
        ([Owner(TAG, "a"), Owner(TAG, "b")], 50_000),
    ]
    owned = OwnedFiles(tuple(Group(frozenset(owners), 1, size) for owners, size in groups), 1, {})
    assert bytes_by_kind(owned) == {LIVE: 1, TAG: 320, SEVERAL: 54_000}


def test_growth_is_that_of_all_commits_of_a_day(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"id": "INT NOT NULL"}, ["id"])
    write(context, [{"id": 1}])
    latest = context.snapshots.latest()
    assert latest is not None
    changes = RewrittenFiles("", 0, 1, 0, 0, 1, 10, 200)
    commits = [(0, "APPEND"), (86_399_999, "COMPACT"), (86_400_000, "APPEND"), (0, "APPEND")]
    retained = [(replace(latest, time_millis=time, commit_kind=kind), changes) for time, kind in commits]
    assert growth_by_day(retained, "t") == [
        GrowthRow("t", "1970-01-01", 3, 600, 200, 30),
        GrowthRow("t", "1970-01-02", 1, 200, 0, 10),
    ]
