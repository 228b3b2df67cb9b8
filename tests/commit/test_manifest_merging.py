"""Merged manifests mean the same as those they replace."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import CommitIdentity
from paimon_cli.commit.prepared_snapshot import MetadataWriter, merge_manifests
from paimon_cli.history.file_table import FileTable
from paimon_cli.metadata.data_file import EMPTY_ROW, CommitMessage, DataFileMeta, EntryKind, FileChanges, ManifestEntry
from paimon_cli.metadata.manifest_table import ManifestTable
from paimon_cli.metadata.snapshot import COMPACT
from paimon_cli.pieces import PIECES
from tests.commit.commit_tables import data_file, live_names, make_table, partition
from tests.rivals import beside

ME = CommitIdentity("me")


def entry(kind: int, name: str, level: int = 0) -> ManifestEntry:
    return ManifestEntry(kind, EMPTY_ROW, 0, 2, data_file(name, level=level))


def test_a_fold_drops_pairs_and_keeps_deletes_of_older_files() -> None:
    entries = [
        entry(EntryKind.ADD, "a"),
        entry(EntryKind.ADD, "b"),
        entry(EntryKind.DELETE, "a"),
        entry(EntryKind.ADD, "a", 5),
        entry(EntryKind.DELETE, "older"),
    ]
    table = FileTable.of([ManifestTable.of(entries)])
    assert table.net().entries() == [entry(EntryKind.ADD, "b"), entry(EntryKind.ADD, "a", 5), entry(EntryKind.DELETE, "older")]


def test_many_small_manifests_are_folded_at_the_minimum_count(tmp_path: Path) -> None:
    context = make_table(tmp_path, {"manifest.merge-min-count": "5"})
    counts = []
    for number in range(12):
        message = CommitMessage(EMPTY_ROW, 0, 2, append=FileChanges(added=(data_file(f"f{number:02}"),)))
        (snapshot,) = Committer(context).commit([message], ME).snapshots
        counts.append(len(context.manifests.manifest_list(snapshot.base_manifest_list)))
    assert counts == [0, 1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3]
    assert live_names(context) == [f"f{number:02}@0" for number in range(12)]


def test_a_large_manifest_stays_until_later_ones_have_half_its_entries(tmp_path: Path) -> None:
    """A commit of one file then costs the same in a large table as in a small one."""
    context = make_table(tmp_path, {"manifest.merge-min-count": "5"})
    committer = Committer(context)
    many = tuple(data_file(f"old{number:03}") for number in range(100))
    committer.commit([CommitMessage(EMPTY_ROW, 0, 2, append=FileChanges(added=many))], ME)
    names, behind = [], []
    for number in range(120):
        message = CommitMessage(EMPTY_ROW, 0, 2, append=FileChanges(added=(data_file(f"new{number:03}"),)))
        (snapshot,) = committer.commit([message], ME).snapshots
        heavy, *light = context.manifests.manifest_list(snapshot.base_manifest_list)
        assert len(light) <= 8
        names.append(heavy.file_name)
        behind.append(sum(meta.num_added_files for meta in light))
    rewritten = [place for place in range(1, 120) if names[place] != names[place - 1]]
    assert len(rewritten) == 1
    assert 50 <= behind[rewritten[0] - 1] + 1 <= 75
    assert len(live_names(context)) == 220


def compactions(tmp_path: Path, options: dict[str, str]) -> tuple[list[int], int]:
    """Forty commits and compactions in four partitions.

    Returns the number of manifests of each snapshot, and the remaining DELETEs.
    """
    context = make_table(tmp_path, options, partitioned=True)
    committer = Committer(context)
    counts = []
    newest: dict[bytes, DataFileMeta] = {}
    for number in range(40):
        where = partition(f"2024-01-0{number % 4 + 1}")
        file = data_file(f"f{number:02}")
        message = CommitMessage(where, 0, 2, append=FileChanges(added=(file,)))
        if where in newest:
            merged = data_file(f"m{number:02}", level=5)
            message = CommitMessage(
                where,
                0,
                2,
                append=FileChanges(added=(file,)),
                compact=FileChanges(removed=(newest[where], file), added=(merged,)),
            )
            newest[where] = merged
        else:
            newest[where] = file
        snapshot = committer.commit([message], ME).snapshots[-1]
        counts.append(len(context.manifests.manifests_of(snapshot)))
        assert {name.partition("@")[0] for name in live_names(context)} == {file.file_name for file in newest.values()}
        assert snapshot.total_record_count == 10 * len(newest)
    entries = [e for batch in context.manifests.entries(context.manifests.manifests_of(snapshot)) for e in batch]
    return counts, sum(e.kind == EntryKind.DELETE for e in entries)


def test_minor_merges_of_compacted_tables(tmp_path: Path) -> None:
    counts, _ = compactions(tmp_path, {"manifest.merge-min-count": "6"})
    assert max(counts) <= 7


def test_full_merges_drop_every_delete_that_came_before(tmp_path: Path) -> None:
    options = {"manifest.merge-min-count": "99", "manifest.full-compaction-threshold-size": "20 kb"}
    counts, deletes = compactions(tmp_path, options)
    assert max(counts) < 15
    assert deletes < 15


def test_merges_of_manifests_at_their_target_size(tmp_path: Path) -> None:
    """Every manifest counts as large: only those with deletes, or with the partition of a delete, are rewritten."""
    options = {
        "manifest.target-file-size": "1 b",
        "manifest.full-compaction-threshold-size": "1 b",
        "manifest.merge-min-count": "99",
    }
    _, deletes = compactions(tmp_path, options)
    assert deletes <= 2


def test_a_full_merge_leaves_big_manifests_of_other_partitions_alone(tmp_path: Path) -> None:
    context = make_table(tmp_path, {"manifest.target-file-size": "1 b", "manifest.full-compaction-threshold-size": "1 b"}, True)
    committer = Committer(context)
    one, two = partition("2024-01-01"), partition("2024-01-02")
    a, b = data_file("a"), data_file("b")
    first = committer.commit([CommitMessage(one, 0, 2, append=FileChanges(added=(a,)))], ME).snapshots[0]
    committer.commit([CommitMessage(two, 0, 2, append=FileChanges(added=(b,)))], ME)
    committer.commit([CommitMessage(two, 0, 2, compact=FileChanges(removed=(b,), added=(b.upgraded(5),)))], ME)
    last = committer.commit([CommitMessage(one, 1, 2, append=FileChanges(added=(data_file("c"),)))], ME).snapshots[0]
    kept = context.manifests.manifest_list(first.delta_manifest_list)[0].file_name
    base = context.manifests.manifest_list(last.base_manifest_list)
    assert kept in {meta.file_name for meta in base}
    assert sum(meta.num_deleted_files for meta in base) == 0
    assert live_names(context) == ["a@0", "b@5", "c@0"]


def test_delta_manifests_roll_and_their_list_entries_are_right(tmp_path: Path) -> None:
    context = make_table(tmp_path, {"manifest.target-file-size": "1 kb"}, partitioned=True)
    messages = [
        CommitMessage(
            partition(f"2024-01-{day:02}"),
            day % 2,
            2,
            append=FileChanges(added=tuple(data_file(f"{day}-{n}", level=day % 3) for n in range(250))),
        )
        for day in range(1, 11)
    ]
    (snapshot,) = Committer(context).commit(messages, ME).snapshots
    metas = context.manifests.manifest_list(snapshot.delta_manifest_list)
    assert [meta.num_added_files for meta in metas] == [1000, 1000, 500]
    for meta in metas:
        entries = context.manifests.manifest(meta.file_name)
        days = [context.partition_values(e.partition)[0] for e in entries]
        assert context.partition_values(meta.partition_stats.min_values) == (min(days),)
        assert context.partition_values(meta.partition_stats.max_values) == (max(days),)
        assert meta.partition_stats.null_counts == (0,)
        assert (meta.min_bucket, meta.max_bucket) == (0, 1)
        levels = [e.file.level for e in entries]
        assert (meta.min_level, meta.max_level, meta.num_deleted_files) == (min(levels), max(levels), 0)
        assert meta.file_size == (tmp_path / "manifest" / meta.file_name).stat().st_size


SMALL_MANIFESTS = {"manifest.target-file-size": "3 kb", "manifest.full-compaction-threshold-size": "9 kb"}


@pytest.mark.parametrize("options", [{}, SMALL_MANIFESTS])
@pytest.mark.in_part(2)
def test_copied_entries_equal_encoded_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, str]) -> None:
    """Manifests are the same, byte by byte, whether entries are decoded one by one or copied as columns."""
    tables = []
    for number, fewest in enumerate((10**9, 0)):
        monkeypatch.setattr(PIECES, "min_column_blocks", fewest)
        compactions(tmp_path / str(number), {"manifest.merge-min-count": "7", **options})
        context = make_table(tmp_path / str(number), partitioned=True)
        newest = context.snapshots.latest()
        assert newest is not None
        manifests = context.manifests.manifests_of(newest)
        contents = [(tmp_path / str(number) / "manifest" / meta.file_name).read_bytes() for meta in manifests]
        assert all(piece.records.is_ours == (fewest == 0) for piece in context.manifests.tables(manifests))
        tables.append([(replace(meta, file_name=""), content) for meta, content in zip(manifests, contents, strict=True)])
    assert tables[0] == tables[1]


def test_a_manifest_of_the_target_size_does_not_count_as_small(tmp_path: Path) -> None:
    """The two small ones after it weigh less than a full compaction must gain; one that is a byte below it counts, too."""
    context = make_table(tmp_path)
    many = tuple(data_file(f"{number * 7919 % 65537:05}") for number in range(3000))
    for files in (many, (data_file("b"),), (data_file("c"),)):
        Committer(context).commit([CommitMessage(EMPTY_ROW, 0, 2, append=FileChanges(added=files))], ME)
    latest = context.snapshots.latest()
    assert latest is not None
    manifests = context.manifests.manifests_of(latest)
    size = manifests[0].file_size
    assert sum(meta.file_size for meta in manifests[1:]) < size
    for target, is_rewritten in ((size, False), (size + 1, True)):
        options = {"manifest.target-file-size": f"{target} b", "manifest.full-compaction-threshold-size": f"{size} b"}
        asked = context.with_options(options)
        assert (merge_manifests(asked, manifests, MetadataWriter(asked)) != manifests) == is_rewritten


def test_a_compaction_of_manifests_keeps_the_files_and_everything_else_of_the_snapshot(tmp_path: Path) -> None:
    context = make_table(tmp_path, partitioned=True)
    committer = Committer(context)
    old = data_file("old")
    for file in (old, data_file("new", 20, 29)):
        message = CommitMessage(partition("2024-01-01"), 0, 2, append=FileChanges(added=(file,)))
        committer.commit([message], CommitIdentity("writer"), watermark=7)
    gone = CommitMessage(partition("2024-01-01"), 0, 2, compact=FileChanges(removed=(old,), added=(replace(old, level=5),)))
    committer.commit([gone], ME)
    before, names = context.snapshots.latest(), live_names(context)
    (snapshot,) = committer.compact_manifests(ME).snapshots
    assert before is not None
    (manifest,) = context.manifests.manifests_of(snapshot)
    assert (manifest.num_added_files, manifest.num_deleted_files) == (2, 0)
    assert (snapshot.id, snapshot.commit_kind, snapshot.delta_record_count) == (before.id + 1, COMPACT, 0)
    assert (snapshot.total_record_count, snapshot.watermark) == (before.total_record_count, 7)
    assert live_names(context) == names
    assert committer.compact_manifests(ME).snapshots == ()


def test_a_compaction_of_manifests_starts_again_on_top_of_another_commit(tmp_path: Path) -> None:
    context = make_table(tmp_path)
    committer = Committer(context)

    def write(name: str) -> None:
        committer.commit([CommitMessage(EMPTY_ROW, 0, 2, append=FileChanges(added=(data_file(name),)))], CommitIdentity("writer"))

    write("a")
    write("b")
    result = Committer(beside(context, lambda: write("c"))).compact_manifests(ME)
    assert result.attempts == 2 and [s.id for s in result.snapshots] == [4]
    assert len(context.manifests.manifests_of(result.snapshots[0])) == 1
    assert live_names(context) == ["a@0", "b@0", "c@0"]
    used = {meta.file_name for s in context.snapshots.newest_first() for meta in context.manifests.manifests_of(s)}
    assert {path.name for path in (tmp_path / "manifest").glob("manifest-????????-*")} == used


def test_manifests_of_the_full_size_are_not_copied_for_nothing(tmp_path: Path) -> None:
    context = make_table(tmp_path, {"manifest.target-file-size": "4 kb"})
    committer = Committer(context)
    for number in range(20):
        committer.commit([CommitMessage(EMPTY_ROW, 0, 2, append=FileChanges(added=(data_file(f"f{number:02}"),)))], ME)
    assert committer.compact_manifests(ME).snapshots
    names = live_names(context)
    assert committer.compact_manifests(ME).snapshots == ()
    assert live_names(context) == names


def test_entries_of_removed_files_are_worth_a_rewrite_however_large_the_manifests_are(tmp_path: Path) -> None:
    context = make_table(tmp_path, {"manifest.target-file-size": "1 b", "manifest.full-compaction-threshold-size": "1 gb"})
    committer = Committer(context)
    a, b = data_file("a"), data_file("b", 20, 29)
    for message in (
        CommitMessage(EMPTY_ROW, 0, 2, append=FileChanges(added=(a,))),
        CommitMessage(EMPTY_ROW, 0, 2, append=FileChanges(added=(b,))),
        CommitMessage(EMPTY_ROW, 0, 2, compact=FileChanges(removed=(b,), added=(b.upgraded(5),))),
    ):
        committer.commit([message], ME)
    (snapshot,) = committer.compact_manifests(ME).snapshots
    manifests = context.manifests.manifests_of(snapshot)
    assert [meta.num_deleted_files for meta in manifests] == [0] and live_names(context) == ["a@0", "b@5"]
    assert committer.compact_manifests(ME).snapshots == ()
