"""Buckets of tables of other writers, and the storage calls that reading them takes."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import CommitIdentity
from paimon_cli.errors import DamagedFile, NotFound
from paimon_cli.history import snapshot_history
from paimon_cli.history.live_files import CommittedState, bucket_files, committed_state, expect_buckets, live_files_of_buckets
from paimon_cli.history.schema_history import SchemaHistory
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.tags_and_branches import TagHistory
from paimon_cli.metadata.data_file import EMPTY_ROW, CommitMessage, EntryKind, FileChanges, FileFilter
from paimon_cli.metadata.table_layout import TableLayout
from paimon_cli.pieces import PIECES
from paimon_cli.storage.local_storage import LocalStorage
from tests.commit.commit_tables import data_file, make_table
from tests.goldens import GOLDENS, Golden, golden_table
from tests.history.plain_fold import plain_live
from tests.history.test_schema_history import SCHEMA
from tests.history.test_snapshot_history import history

TABLES = [golden for golden in GOLDENS if golden.name.startswith(("dv_", "deletion", "dynamic", "dedup_", "overwrite", "append"))]


@pytest.mark.in_part(5)
@pytest.mark.parametrize("many", [0, 3, 10**9])
@pytest.mark.parametrize("golden", TABLES, ids=str)
def test_the_first_access_reads_every_manifest(
    golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    """By a process that has not read any manifest, and again by the same process."""
    monkeypatch.setattr(PIECES, "many_entries", many)
    monkeypatch.setattr(PIECES, "many_in_total", many)
    url = str(golden_table(golden.writer, golden.name, tmp_path))
    for snapshot in TableContext.open(url).snapshots.newest_first(3):
        context = TableContext.open(url)
        buckets = bucket_files(context, snapshot)
        for places in (list(buckets), list(buckets)[:1]):
            found = live_files_of_buckets(context, snapshot, places)
            assert {(e.partition, e.bucket, e.file.file_name) for e in found.entries} == {
                (*place, file.file_name) for place in places for file in buckets[place].files
            }
            partitions = {partition for partition, _ in places}
            found_counts = {(partition, count) for partition, counts in found.bucket_counts.items() for count in counts}
            assert found_counts == {(b.partition, b.total_buckets) for b in buckets.values() if b.partition in partitions}


@pytest.mark.in_part(3)
@pytest.mark.parametrize("golden", TABLES, ids=str)
def test_buckets_hold_the_live_entries(golden: Golden, tmp_path: Path) -> None:
    context = TableContext.open(str(golden_table(golden.writer, golden.name, tmp_path)))
    for snapshot in context.snapshots.newest_first(4):
        batches = list(context.manifests.entries(context.manifests.manifests_of(snapshot)))
        live = plain_live(batches)
        assert context.manifests.live_entries(snapshot) == live
        wanted = CountingFilter()
        found = bucket_files(context, snapshot, wanted)
        assert list(found) == list(dict.fromkeys(entry.bucket_id for entry in live)) and len(found) == len(list(found))
        for bucket_id, bucket in found.items():
            here = [entry for entry in live if entry.bucket_id == bucket_id]
            indexes = [e.index_file for e in context.manifests.index_entries(snapshot) if e.bucket_id == bucket_id]
            expected = (here[-1].total_buckets, tuple(entry.file for entry in here), tuple(indexes))
            assert (bucket.bucket_id, bucket.total_buckets, bucket.files, bucket.index_files) == (bucket_id, *expected)
        signs = [(entry.partition, 1 if entry.kind == EntryKind.ADD else -1) for batch in batches for entry in batch]
        assert wanted.counts == {name: sum(sign for where, sign in signs if where == name) for name, _ in signs}
        state = committed_state(found)
        assert state.total_buckets == {bucket_id: bucket.total_buckets for bucket_id, bucket in found.items()}
        assert state.max_sequences == {i: max(file.max_sequence_number for file in b.files) for i, b in found.items()}
        nothing = committed_state(bucket_files(context, snapshot, FileFilter(lambda partition: False)))
        assert nothing == CommittedState({}, {}) == committed_state(bucket_files(context, None))


class CountingFilter(FileFilter):
    """A filter that accepts everything, and counts the files of each partition."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[bytes] = Counter()

    def count_files(self, partition: bytes, files: int) -> None:
        self.counts[partition] += files


def test_a_schema_that_vanishes_is_passed_over(tmp_path: Path) -> None:
    """It was listed; earlier ones are read instead."""

    class Vanishing(LocalStorage):
        def read_bytes(self, path: str) -> bytes:
            if path.endswith("schema-1"):
                raise FileNotFoundError(path)
            return super().read_bytes(path)

    past = SchemaHistory(LocalStorage(), TableLayout(str(tmp_path)))
    assert past.commit(SCHEMA)
    (tmp_path / "schema/schema-1").write_text("{}")
    (tmp_path / "schema/schema-2").write_text("no schema")
    found = SchemaHistory(Vanishing(), TableLayout(str(tmp_path))).newest_readable()
    assert found is not None and found.id == 0
    with pytest.raises(NotFound):
        SchemaHistory(Vanishing(), TableLayout(str(tmp_path))).get(1)


def test_requested_buckets(tmp_path: Path) -> None:
    context = TableContext.open(str(golden_table("java-0.9", "dedup_partitioned", tmp_path)))
    found = list(bucket_files(context, context.snapshots.latest()).values())
    expect_buckets(context, [bucket.bucket for bucket in found], found)
    count = max(context.options.bucket, *(bucket.total_buckets for bucket in found))
    expect_buckets(context, [count - 1, 0], [])
    for unknown in (count, -1):
        with pytest.raises(Exception, match=f"has no bucket {unknown}"):
            expect_buckets(context, [0, unknown], found)


@pytest.mark.parametrize("seed", range(20))
def test_snapshots_that_a_listing_may_hide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """All numbers of a short range; of a long one, those listed, and those in gaps that are not too long."""
    monkeypatch.setattr(snapshot_history, "LONGEST_GAP", 3)
    dice = random.Random(seed)
    listed = sorted(dice.sample(range(1, 40), dice.randint(1, 12)))
    past = history(tmp_path, listed)
    first, last = sorted(dice.sample(range(1, 42), 2))
    known = sorted({first, last, *(number for number in listed if first < number < last)})
    expected = set(known)
    for below, above in pairwise(known):
        if above - below - 1 <= 3 or last - first <= 3:
            expected |= set(range(below, above))
    assert past.likely_ids(first, last) == sorted(expected)


def test_what_is_known_has_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The size of columns or objects is known, so that the cache stays within its limit."""
    url = str(golden_table("java-0.9", "dedup_partitioned", tmp_path))
    for many in (0, 10**9):
        monkeypatch.setattr(PIECES, "many_entries", many)
        monkeypatch.setattr(PIECES, "many_in_total", many)
        context = TableContext.open(url)
        snapshot = context.snapshots.latest()
        assert snapshot is not None
        live_files_of_buckets(context, snapshot, list(bucket_files(context, snapshot)))
        kept = context.manifest_cache._cached
        assert kept and all(known.size > 0 for known in kept.values())
        monkeypatch.setattr(PIECES, "entry_cache_bytes", 0)
        live_files_of_buckets(context, snapshot, list(bucket_files(context, snapshot)))
        assert not context.manifest_cache._cached
        monkeypatch.undo()


def test_a_limited_number_of_entries_is_kept_as_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the objects of the buckets that were read last are cached; others are created again."""
    context = make_table(tmp_path, {"bucket": "4"})
    messages = [CommitMessage(EMPTY_ROW, bucket, 4, append=FileChanges(added=(data_file(f"f{bucket}"),))) for bucket in range(4)]
    Committer(context).commit(messages, CommitIdentity("me"))
    monkeypatch.setattr(PIECES, "entry_cache_objects", 2)
    snapshot = context.snapshots.get(1)
    (cached,) = context.manifest_cache.get(context.manifests.manifests_of(snapshot), [EMPTY_ROW], lambda _: True)
    part = cached.entries(EMPTY_ROW)
    assert part is not None and part.in_bucket(4) is None
    kept = []
    for bucket in (0, 1, 2, 3, 0):
        table = part.in_bucket(bucket)
        assert table is not None and [entry.file.file_name for entry in table.entries()] == [f"f{bucket}"]
        assert part.in_bucket(bucket) is table
        kept.append(sorted(part._by_bucket))
    assert kept == [[0], [0, 1], [0, 1, 2], [3], [0, 3]]


def test_a_walk_ends_where_it_was_asked_to(tmp_path: Path) -> None:
    past = history(tmp_path, [1, 2, 3, 4, 5])
    for limit in range(7):
        assert [snapshot.id for snapshot in past.newest_first(limit)] == [5, 4, 3, 2, 1][:limit]


def test_a_stale_hint_above_a_gap_does_not_make_snapshots_resurrected(tmp_path: Path) -> None:
    past = history(tmp_path, [1, 5, 6, 7], earliest="7")
    assert (past.resurrected_ids(), past.ids()) == ([1], [5, 6, 7])
    assert past.in_history(1) is None and past.in_history(2) is None
    found = [past.in_history(number) for number in (5, 6, 7)]
    assert [snapshot.id for snapshot in found if snapshot is not None] == [5, 6, 7]


def test_tags_beside_foreign_files(tmp_path: Path) -> None:
    past = history(tmp_path, [1])
    tags = TagHistory(past.storage, past.layout)
    (tmp_path / "tag/tag-folder").mkdir(parents=True)
    (tmp_path / "tag/other").write_text("")
    (tmp_path / "tag/tag-one").write_bytes((tmp_path / "snapshot/snapshot-1").read_bytes())
    assert tags.names() == ["one"] and list(tags.all()) == ["one"]
    (tmp_path / "tag/tag-one").write_text("{")
    with pytest.raises(DamagedFile, match="tag-one"):
        tags.find("one")
