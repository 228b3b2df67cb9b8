"""Live files of snapshots: what the tables of real writers hold, and what happens when files go missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from paimon_cli.commit.committer import Committer
from paimon_cli.commit.identity import CommitIdentity
from paimon_cli.errors import DamagedFile, NotFound
from paimon_cli.history.manifest_reader import ManifestReader, live
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.commit_message import CommitMessage
from paimon_cli.metadata.data_file import ADD, DELETE, EMPTY_ROW, ManifestEntry
from tests.commit.commit_tables import data_file, live_names, make_table
from tests.goldens import GOLDENS, Golden, golden_table

ME = CommitIdentity("me")


@pytest.mark.parametrize("table", GOLDENS, ids=str)
def test_live_files_of_every_snapshot_of_real_writers(table: Golden, tmp_path: Path) -> None:
    context = TableContext.open(str(golden_table(table.writer, table.name, tmp_path)))
    for snapshot in context.snapshots.newest_first():
        entries = context.manifests.live_entries(snapshot)
        assert sum(entry.file.row_count for entry in entries) == snapshot.total_record_count
        for entry in entries:
            path = Path(context.data_file_path(entry.partition, entry.bucket, entry.file))
            assert path.stat().st_size == entry.file.file_size
            if context.schema.primary_keys and not entry.is_postponed:
                assert context.key_of(entry.file.min_key) <= context.key_of(entry.file.max_key)
        for index in context.manifests.index_entries(snapshot):
            assert Path(context.layout.index(index.index_file.file_name)).stat().st_size == index.index_file.file_size


def entry(kind: int, name: str, level: int = 0) -> ManifestEntry:
    return ManifestEntry(kind, EMPTY_ROW, 0, 2, data_file(name, level=level))


def test_the_fold_is_set_wise() -> None:
    batches = [[entry(DELETE, "a"), entry(ADD, "a", 5)], [entry(ADD, "a"), entry(ADD, "b")], [entry(DELETE, "gone")]]
    assert live(batches) == [entry(ADD, "a", 5), entry(ADD, "b")]
    assert live(batches, lambda e: e.file.level == 0) == [entry(ADD, "b")], "a filter on ADDs never brings a file back"


def commits(tmp_path: Path, count: int) -> TableContext:
    context = make_table(tmp_path)
    for number in range(count):
        message = CommitMessage(EMPTY_ROW, number % 2, 2, new_files=(data_file(f"f{number:02}"),))
        Committer(context).commit([message], ME)
    return context


def test_many_manifests_are_read_in_order(tmp_path: Path) -> None:
    context = commits(tmp_path, 12)
    snapshot = context.snapshots.get(12)
    for threads in (1, 8):
        reader = ManifestReader(context.storage, context.layout, threads)
        assert [e.file.file_name for e in reader.live_entries(snapshot)] == [f"f{number:02}" for number in range(12)]


def test_manifests_are_pruned_before_they_are_read(tmp_path: Path) -> None:
    context = commits(tmp_path, 4)
    snapshot = context.snapshots.get(4)
    for meta in context.manifests.manifests_of(snapshot):
        if meta.min_bucket == 0:
            (tmp_path / "manifest" / meta.file_name).unlink()
    entries = context.manifests.live_entries(snapshot, keep_manifest=lambda meta: meta.max_bucket == 1)
    assert [e.file.file_name for e in entries] == ["f01", "f03"]


def test_a_manifest_of_another_size_is_damaged(tmp_path: Path) -> None:
    context = commits(tmp_path, 2)
    snapshot = context.snapshots.get(2)
    for name in (context.manifests.manifest_list(snapshot.delta_manifest_list)[0].file_name, snapshot.delta_manifest_list):
        path = tmp_path / "manifest" / name
        path.write_bytes(path.read_bytes()[:-1])
        with pytest.raises(DamagedFile, match="bytes where"):
            make_table(tmp_path).manifests.live_entries(snapshot)


def test_a_missing_manifest_is_damage_but_not_if_its_snapshot_expired(tmp_path: Path) -> None:
    context = commits(tmp_path, 3)
    snapshot = context.snapshots.get(3)
    for meta in context.manifests.manifest_list(snapshot.delta_manifest_list):
        (tmp_path / "manifest" / meta.file_name).unlink()
    with pytest.raises(DamagedFile, match="is missing"):
        context.manifests.live_entries(snapshot)
    (tmp_path / "snapshot" / "snapshot-3").unlink()
    with pytest.raises(NotFound, match="probably expired"):
        context.manifests.live_entries(snapshot)
    assert live_names(context) == ["f00@0", "f01@0"]
