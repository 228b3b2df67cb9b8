"""Live files of snapshots: those of other writers' tables, and what happens when files go missing."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import CommitIdentity
from paimon_cli.commit.prepared_snapshot import MetadataWriter
from paimon_cli.errors import DamagedFile, NotFound
from paimon_cli.history import manifest_reader
from paimon_cli.history.file_table import FileTable
from paimon_cli.history.manifest_reader import ManifestReader, SnapshotGone
from paimon_cli.history.schema_history import SchemaHistory
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import EMPTY_ROW, CommitMessage, EntryKind, FileChanges, FileFilter, ManifestEntry
from paimon_cli.metadata.manifest_table import ManifestTable
from paimon_cli.pieces import PIECES
from paimon_cli.storage.local_storage import LocalStorage
from tests.commit.commit_tables import data_file, live_names, make_table, partition
from tests.goldens import GOLDENS, Golden, golden_table

ME = CommitIdentity("me")


@pytest.mark.in_part(6)
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
    batches = [
        [entry(EntryKind.DELETE, "a"), entry(EntryKind.ADD, "a", 5)],
        [entry(EntryKind.ADD, "a"), entry(EntryKind.ADD, "b")],
        [entry(EntryKind.DELETE, "gone"), entry(EntryKind.ADD, "gone")],
    ]
    assert FileTable.of(map(ManifestTable.of, batches)).live().entries() == [
        entry(EntryKind.ADD, "a", 5),
        entry(EntryKind.ADD, "b"),
    ]


def commits(tmp_path: Path, count: int) -> TableContext:
    context = make_table(tmp_path)
    for number in range(count):
        message = CommitMessage(EMPTY_ROW, number % 2, 2, append=FileChanges(added=(data_file(f"f{number:02}"),)))
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
    entries = context.manifests.live_entries(snapshot, FileFilter(buckets=[1]))
    assert [e.file.file_name for e in entries] == ["f01", "f03"]


def test_a_manifest_of_another_size_is_damaged(tmp_path: Path) -> None:
    context = commits(tmp_path, 2)
    snapshot = context.snapshots.get(2)
    for name in (context.manifests.manifest_list(snapshot.delta_manifest_list)[0].file_name, snapshot.delta_manifest_list):
        path = tmp_path / "manifest" / name
        path.write_bytes(path.read_bytes()[:-1])
        with pytest.raises(DamagedFile, match="bytes, but"):
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


class Counting(LocalStorage):
    """Records which files are read, and by which threads."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.threads: set[int] = set()

    def read_bytes(self, path: str) -> bytes:
        self.names.append(path.rpartition("/")[2])
        self.threads.add(threading.get_ident())
        return super().read_bytes(path)


def test_what_a_commit_added_and_deleted(tmp_path: Path) -> None:
    context = commits(tmp_path, 3)
    old = data_file("f00")
    message = CommitMessage(EMPTY_ROW, 0, 2, compact=FileChanges(removed=(old,), added=(data_file("g", level=5),)))
    Committer(context).commit([message], ME)
    changes = [(entry.kind, entry.file.file_name) for entry in context.manifests.delta_entries(context.snapshots.get(4))]
    assert sorted(changes) == [(EntryKind.ADD, "g"), (EntryKind.DELETE, "f00")]
    assert [e.file.file_name for e in context.manifests.delta_entries(context.snapshots.get(2))] == ["f01"]


@pytest.mark.parametrize("threads", [1, 8])
@pytest.mark.parametrize("how", ["entries", "tables", "tables_of_each"])
def test_a_manifest_of_another_size_is_damaged_whichever_way_it_is_read(tmp_path: Path, how: str, threads: int) -> None:
    context = commits(tmp_path, 6)
    snapshot = context.snapshots.get(6)
    reader = ManifestReader(context.storage, context.layout, threads)
    *whole, last = reader.manifests_of(snapshot)
    longer = replace(last, file_size=last.file_size + 1)
    assert len(list(getattr(reader, how)([*whole, last]))) >= 1
    with pytest.raises(DamagedFile, match=f"it has {last.file_size} bytes, but {longer.file_size} were written") as damaged:
        list(getattr(reader, how)([*whole, longer]))
    assert damaged.value.details["path"] == context.layout.manifest(last.file_name)


def test_a_missing_delta_is_damage_but_not_if_its_snapshot_expired(tmp_path: Path) -> None:
    context = commits(tmp_path, 2)
    snapshot = context.snapshots.get(2)
    (meta,) = context.manifests.manifest_list(snapshot.delta_manifest_list)
    Path(context.layout.manifest(meta.file_name)).unlink()
    with pytest.raises(DamagedFile, match="is missing: a snapshot refers to it"):
        context.manifests.delta_entries(snapshot)
    Path(context.layout.snapshot(2)).unlink()
    with pytest.raises(SnapshotGone, match="probably expired"):
        context.manifests.delta_entries(snapshot)


@pytest.mark.parametrize(("count", "threads", "alone"), [(4, 8, True), (5, 8, False), (5, 2, False), (9, 1, True)])
def test_few_manifests_are_read_one_after_the_other(tmp_path: Path, count: int, threads: int, alone: bool) -> None:
    context = commits(tmp_path, count)
    storage = Counting()
    reader = ManifestReader(storage, context.layout, threads)
    manifests = reader.manifests_of(context.snapshots.get(count))
    storage.threads.clear()
    assert [e.file.file_name for some in reader.entries(manifests) for e in some] == [f"f{n:02}" for n in range(count)]
    assert (storage.threads == {threading.get_ident()}) == alone


def test_lists_are_kept_and_given_away_as_copies(tmp_path: Path) -> None:
    context = commits(tmp_path, 9)
    storage = Counting()
    reader = ManifestReader(storage, context.layout)
    names = [context.snapshots.get(number).delta_manifest_list for number in range(1, 10)]
    for name in (*names[:8], *names[:8]):
        reader.manifest_list(name).clear()
    assert storage.names == names[:8], "each is read once, and callers cannot empty the cache"
    assert [len(reader.manifest_list(name)) for name in names] == [1] * 9
    assert storage.names == names, "the ninth makes room"
    reader.manifest_list(names[0])
    assert storage.names == [*names, names[0]]


def test_groups_of_manifests_are_of_a_certain_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = commits(tmp_path, 5)
    manifests = context.manifests.manifests_of(context.snapshots.get(5))
    for limit, sizes in ((10, [1, 1, 1, 1, 1]), (11, [2, 2, 1]), (20, [2, 2, 1]), (21, [3, 2]), (1000, [5])):
        monkeypatch.setattr(PIECES, "manifest_group_bytes", limit)
        groups = manifest_reader._groups([replace(meta, file_size=10) for meta in manifests])
        assert [len(group) for group in groups] == sizes
    assert manifest_reader._groups([]) == []


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_columns_come_in_the_order_of_their_manifests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    monkeypatch.setattr(PIECES, "manifest_group_bytes", 1)
    context, storage = commits(tmp_path, 7), Counting()
    reader = ManifestReader(storage, context.layout, threads)
    manifests = reader.manifests_of(context.snapshots.get(7))
    names = [f"f{number:02}" for number in range(7)]
    assert [piece.entry(row).file.file_name for piece in reader.tables(manifests) for row in range(len(piece))] == names
    each = [[piece.entry(0).file.file_name for piece in pieces] for pieces in reader.tables_of_each(manifests)]
    assert each == [[name] for name in names] and list(reader.tables([])) == []
    storage.threads.clear()
    list(ManifestReader(storage, context.layout, threads).tables(manifests))
    assert (storage.threads == {threading.get_ident()}) == (threads == 1)


def test_what_a_plan_has_read_is_not_read_again_by_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context, storage = commits(tmp_path, 7), Counting()
    reader = ManifestReader(storage, context.layout, threads=1)
    manifests = reader.manifests_of(context.snapshots.get(7))
    assert sum(map(len, reader.tables(manifests))) == 7
    storage.threads.clear()
    assert [len(table) for tables in reader.tables_of_each(manifests) for table in tables] == [1] * 7
    assert not storage.threads
    monkeypatch.setattr(PIECES, "many_in_total", 5)
    monkeypatch.setattr(PIECES, "many_entries", 9)
    groups = ManifestReader(storage, context.layout, threads=1)
    storage.threads.clear()
    list(groups.tables(manifests[:4]))
    assert storage.threads
    storage.threads.clear()
    list(groups.tables(manifests[:4]))
    assert not storage.threads, "a group of many is kept as a whole"
    list(groups.tables(manifests[4:]))
    assert sum(len(table) for tables in groups._decoded.values() for table in tables) < 9, "they are bounded"


def test_a_missing_index_manifest_is_damage_but_not_if_its_snapshot_expired(tmp_path: Path) -> None:
    context = commits(tmp_path, 2)
    snapshot = context.snapshots.get(2)
    assert context.manifests.index_entries(snapshot) == []
    named = replace(snapshot, index_manifest="index-manifest-none")
    with pytest.raises(DamagedFile, match="index-manifest-none is missing"):
        context.manifests.index_entries(named)
    Path(context.layout.snapshot(2)).unlink()
    with pytest.raises(SnapshotGone):
        context.manifests.index_entries(named)
    Path(context.layout.manifest(snapshot.base_manifest_list)).unlink()
    with pytest.raises(SnapshotGone, match="no longer exists"):
        ManifestReader(context.storage, context.layout).manifests_of(snapshot)


@pytest.mark.in_part(2)
@pytest.mark.parametrize("threads", [1, 8])
@pytest.mark.parametrize("how", ["tables", "tables_of_each"])
def test_of_other_partitions_most_entries_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, threads: int
) -> None:
    monkeypatch.setattr(PIECES, "min_column_blocks", 0)
    context = make_table(tmp_path, partitioned=True)
    days = [partition(f"2024-{month:02}-01") for month in range(1, 13)]
    entries = [ManifestEntry(EntryKind.ADD, day, 0, 2, data_file(f"{number:04}")) for day in days for number in range(400)]
    metas = MetadataWriter(context).manifests(entries)
    reader = ManifestReader(context.storage, context.layout, threads)

    def found(partitions: list[bytes] | None) -> list[bytes]:
        pieces = [some if isinstance(some, list) else [some] for some in getattr(reader, how)(metas, partitions)]
        return [piece.entry(row).partition for some in pieces for piece in some for row in range(len(piece))]

    assert len(found(None)) == len(entries)
    some = found(days[3:5])
    assert len(some) < len(entries) / 2 and [some.count(day) for day in days[3:5]] == [400, 400]


def test_what_was_read_for_some_partitions_is_not_kept_as_the_whole(tmp_path: Path) -> None:
    context = make_table(tmp_path, partitioned=True)
    days = [partition(f"2024-{month:02}-01") for month in (1, 2, 3)]
    entries = [ManifestEntry(EntryKind.ADD, day, 0, 2, data_file(f"{number:04}")) for day in days for number in range(150)]
    metas = MetadataWriter(context).manifests(entries)
    reader = ManifestReader(context.storage, context.layout, threads=1)
    assert 150 <= sum(map(len, reader.tables(metas, [days[1]]))) < 450
    assert sum(map(len, reader.tables(metas))) == 450


def test_caches_do_not_affect_equality_of_readers(tmp_path: Path) -> None:
    context = commits(tmp_path, 1)
    readers = [ManifestReader(context.storage, context.layout) for _ in range(2)]
    schemas = [SchemaHistory(context.storage, context.layout) for _ in range(2)]
    readers[0].manifests_of(context.snapshots.get(1))
    schemas[0].get(0)
    assert readers[0] == readers[1] and schemas[0] == schemas[1]
    assert repr(readers[0]) == repr(readers[1]) and repr(schemas[0]) == repr(schemas[1])
    assert readers[0] != ManifestReader(context.storage, context.layout, 3)
