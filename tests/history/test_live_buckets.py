"""A commit is checked against the live files of its buckets, whichever manifests were cached before."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from paimon_cli.commit.commit_messages import CommitKind
from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import CommitIdentity
from paimon_cli.commit.prepared_snapshot import MetadataWriter
from paimon_cli.errors import DamagedFile
from paimon_cli.history.live_files import LiveBuckets, live_files_of_buckets
from paimon_cli.history.manifest_reader import ManifestReader, SnapshotGone
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import BucketId, CommitMessage, EntryKind, FileChanges, ManifestEntry, ManifestFileMeta
from paimon_cli.metadata.snapshot import APPEND, Snapshot
from paimon_cli.pieces import PIECES
from tests.commit.commit_tables import FaultyStorage, data_file, make_table, partition
from tests.history.plain_fold import missing_adds

DAYS = [partition(f"2024-01-0{day}") for day in range(1, 5)]
SELDOM = [{"extra_files": ("x",)}, {"embedded_file_index": b"\0\1"}, {"external_path": "else"}]


@dataclass
class History:
    """Manifests are added and merged; each snapshot names some of them. Deleted files may never have been added."""

    context: TableContext
    source: random.Random

    def snapshots(self, count: int) -> Iterator[Snapshot]:
        manifests: list[ManifestFileMeta] = []
        for number in range(count):
            writer = MetadataWriter(self.context)
            size = self.source.choice([1, 2, 5, 60])
            new = writer.manifests([self._entry() for _ in range(size)])
            if self.source.random() < 0.2:
                self.source.shuffle(manifests)
                del manifests[2:]
            held = [entry for batch in self.context.manifests.entries([*manifests, *new]) for entry in batch]
            manifests = [*writer.manifests(missing_adds(held)), *manifests]
            (base, base_size), (delta, delta_size) = writer.manifest_list(manifests, "base"), writer.manifest_list(new, "delta")
            manifests += new
            yield Snapshot(number + 1, 0, base, delta, "me", 1, APPEND, 1, 0, 0, base_size, delta_size)

    def _entry(self) -> ManifestEntry:
        dice = self.source
        file = data_file(f"f{dice.randrange(60):02}", level=dice.choice([0, 0, 5]))
        if dice.random() < 0.1:
            file = replace(file, **dice.choice(SELDOM))  # type: ignore[arg-type]
        day = dice.randrange(4)
        return ManifestEntry(
            dice.choice([EntryKind.ADD, EntryKind.ADD, EntryKind.DELETE]),
            DAYS[day],
            dice.randrange(3),
            3 + (day == dice.randrange(9)),
            file,
        )


def plainly(context: TableContext, snapshot: Snapshot, places: list[BucketId]) -> LiveBuckets:
    """The live files if all entries are read: an ADD without a DELETE of its identity anywhere."""
    entries = [e for batch in context.manifests.entries(context.manifests.manifests_of(snapshot)) for e in batch]
    deleted = {entry.identity for entry in entries if entry.kind == EntryKind.DELETE}
    alive = [entry for entry in entries if entry.kind == EntryKind.ADD and entry.identity not in deleted]
    partitions = {where for where, _ in places}
    counts = {where: {e.total_buckets for e in alive if e.partition == where} for where in partitions}
    return LiveBuckets([e for place in places for e in alive if e.bucket_id == place], counts)


def assert_counts(found: LiveBuckets, expected: LiveBuckets) -> None:
    """Check the reported bucket counts: those of all ADDs, whether their files are still live or not."""
    for day, counts in expected.bucket_counts.items():
        found_counts = set(found.bucket_counts.get(day, ()))
        assert found_counts == counts or (not counts and len(found_counts) == 1)


@pytest.mark.in_part(3)
@pytest.mark.parametrize("few", [10**9, 100, 0])
@pytest.mark.parametrize("max_bytes", [1 << 20, 60_000])
def test_the_live_files_of_some_buckets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int, max_bytes: int) -> None:
    """However manifests are read, and however many of them are cached."""
    monkeypatch.setattr(PIECES, "many_entries", few)
    monkeypatch.setattr(PIECES, "many_in_total", few)
    monkeypatch.setattr(PIECES, "entry_cache_bytes", max_bytes)
    monkeypatch.setattr(PIECES, "entry_cache_objects", 20)
    monkeypatch.setattr(PIECES, "min_column_blocks", 0 if few == 0 else 16)
    source = random.Random(few + max_bytes)
    context = make_table(tmp_path, partitioned=True)
    for snapshot in History(context, source).snapshots(20):
        places = source.sample([BucketId(day, bucket) for day in DAYS for bucket in range(3)], source.randrange(1, 4))
        found, expected = live_files_of_buckets(context, snapshot, places), plainly(context, snapshot, places)
        assert_counts(found, expected)
        for place in places:
            assert [e for e in found.entries if e.bucket_id == place] == [e for e in expected.entries if e.bucket_id == place]
        assert len(found.entries) == len(expected.entries)


def test_of_very_many_partitions_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PIECES, "cached_partitions", 1)
    asked: list[set[bytes]] = []
    tables = ManifestReader.tables

    def noted(self: ManifestReader, manifests: Any, partitions: Any = None) -> Any:
        asked.append(set(partitions))
        return tables(self, manifests, partitions)

    monkeypatch.setattr(ManifestReader, "tables", noted)
    context = make_table(tmp_path, partitioned=True)
    for snapshot in History(context, random.Random(5)).snapshots(10):
        places, written = [BucketId(day, bucket) for bucket in (1, 0) for day in DAYS], set(context.manifest_cache._cached)
        found, expected = live_files_of_buckets(context, snapshot, places), plainly(context, snapshot, places)
        assert found.entries == expected.entries, "bucket by bucket, the files of each oldest first"
        assert_counts(found, expected)
        assert set(context.manifest_cache._cached) == written and asked[-1] == set(DAYS), "others are not decoded"


@pytest.mark.parametrize("few", [10**9, 0])
def test_the_newest_bucket_count_of_a_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    monkeypatch.setattr(PIECES, "many_entries", few)
    monkeypatch.setattr(PIECES, "many_in_total", few)
    context = make_table(tmp_path, partitioned=True)
    for snapshot in History(context, random.Random(9)).snapshots(8):
        (meta,) = context.manifests.manifest_list(snapshot.delta_manifest_list)
        (known,) = context.manifest_cache.get([meta], DAYS, lambda meta: True)
        for day in DAYS:
            added = [e for e in context.manifests.manifest(meta.file_name) if e.kind == EntryKind.ADD and e.partition == day]
            part = known.entries(day)
            assert (part.newest_bucket_count if part else 0) == (added[-1].total_buckets if added else 0)
            assert (part.bucket_counts if part else frozenset()) == {entry.total_buckets for entry in added}


def commit_one(context: TableContext, name: str) -> Snapshot:
    messages = [CommitMessage(DAYS[0], 0, 2, append=FileChanges(added=(data_file(name),)), read_snapshot_id=None)]
    return Committer(context).commit(messages, CommitIdentity("me"), CommitKind.REPAIR).snapshots[0]


class NotedReads(FaultyStorage):
    def __init__(self) -> None:
        super().__init__()
        self.paths: list[str] = []

    def read_bytes(self, path: str) -> bytes:
        self.paths.append(path)
        return super().read_bytes(path)


def manifest_reads(storage: NotedReads, context: TableContext, name: str) -> int:
    before = len(storage.paths)
    commit_one(context, name)
    return sum("/manifest/manifest-" in path and "manifest-list" not in path for path in storage.paths[before:])


def test_a_commit_reads_the_manifests_that_are_new(tmp_path: Path) -> None:
    storage = NotedReads()
    context = make_table(tmp_path, {"manifest.merge-min-count": "100"}, partitioned=True, storage=storage)
    commit_one(context, "first")
    assert [manifest_reads(storage, context, f"f{number}") for number in range(10)] == [0] * 10, "its own it has written"
    other = TableContext.open(context.url, storage=storage)
    assert manifest_reads(storage, other, "g") == 11
    assert manifest_reads(storage, context, "h") == 1
    assert manifest_reads(storage, other, "i") == 1


def test_what_was_read_does_not_travel(tmp_path: Path) -> None:
    context = make_table(tmp_path, partitioned=True)
    snapshot = commit_one(context, "first")
    live_files_of_buckets(context, snapshot, [BucketId(DAYS[0], 0)])
    assert context.manifest_cache._cached
    carried = pickle.loads(pickle.dumps(context))
    assert not carried.manifest_cache._cached
    assert live_files_of_buckets(carried, snapshot, [BucketId(DAYS[0], 0)]) == live_files_of_buckets(
        context, snapshot, [BucketId(DAYS[0], 0)]
    )


@pytest.mark.parametrize("few", [10**9, 0])
def test_a_manifest_that_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    monkeypatch.setattr(PIECES, "many_entries", few)
    monkeypatch.setattr(PIECES, "many_in_total", few)
    context = make_table(tmp_path, partitioned=True)
    snapshot = commit_one(context, "first")
    context = TableContext.open(context.url)
    (meta,) = context.manifests.manifests_of(snapshot)
    Path(context.layout.manifest(meta.file_name)).unlink()
    with pytest.raises(DamagedFile):
        live_files_of_buckets(context, snapshot, [BucketId(DAYS[0], 0)])
    Path(context.layout.snapshot(snapshot.id)).unlink()
    with pytest.raises(SnapshotGone):
        live_files_of_buckets(context, snapshot, [BucketId(DAYS[0], 0)])


def test_what_a_process_has_written_it_does_not_read(tmp_path: Path) -> None:
    """The cached manifests of its own commits have the same entries as those that others read."""
    context, compared = make_table(tmp_path, partitioned=True), 0
    for snapshot in History(context, random.Random(6)).snapshots(12):
        for meta in context.manifests.manifests_of(snapshot):
            known = context.manifest_cache._cached[meta.file_name, meta.file_size]
            tables = [part.table for part in known.partitions.values() if part is not None]
            entries = [entry for table in tables for entry in table.entries()]
            assert sorted(entries, key=str) == sorted(context.manifests.manifest(meta.file_name), key=str)
            compared += len(entries)
    assert compared > 300
