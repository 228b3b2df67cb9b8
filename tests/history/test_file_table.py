"""The live files of a file table are those of a plain fold over its entries."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paimon_cli.datatypes.binary_row import deserialize_row, serialize_row
from paimon_cli.datatypes.field_types import parse_type
from paimon_cli.errors import DamagedFile
from paimon_cli.history.file_table import FileTable, deleted_partitions
from paimon_cli.history.live_files import bucket_files, committed_state, live_files_of_buckets
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import BucketId, DataFileMeta, EntryKind, FileFilter, ManifestEntry, SimpleStats
from paimon_cli.metadata.manifest_table import ManifestTable, decode_manifests
from paimon_cli.pieces import PIECES
from tests.history.plain_fold import missing_adds, plain_live, plain_net
from tests.metadata.one_manifest import encode_manifest
from tests.tables import make_table, write

PARTITIONS = [bytes([number]) * size for number, size in ((1, 20), (2, 20), (3, 28))]


def random_entries(source: random.Random, count: int, names: int) -> list[ManifestEntry]:
    """Random entries with few names, so that DELETEs match ADDs, of many lengths; some with rare parts of an identity."""
    entries = []
    for number in range(count):
        chosen = source.randrange(names)
        name = f"data-{chosen:05}{'-' * (chosen % 30)}.parquet"
        file = DataFileMeta(name, 7, 1, b"", b"", SimpleStats(), SimpleStats(), 0, 9, 0, 0)
        file = replace(file, level=source.choice([0, 0, 5]), max_sequence_number=number)
        if source.random() < 0.2:
            indexed = replace(file, embedded_file_index=b"\0\1")
            file = source.choice([replace(file, extra_files=("x",)), indexed, replace(file, external_path="else")])
        kind = source.choice([EntryKind.ADD, EntryKind.ADD, EntryKind.DELETE])
        entries.append(ManifestEntry(kind, source.choice(PARTITIONS), source.randrange(2), 2, file))
    return entries


class Counting(FileFilter):
    """Accepts one partition, and records its calls."""

    def __init__(self, partition: bytes | None, buckets: list[int] | None) -> None:
        super().__init__(None, buckets)
        self.partition = partition
        self.asked: list[bytes] = []
        self.seen: dict[bytes, int] = {}

    def keeps_partition(self, partition: bytes) -> bool:
        self.asked.append(partition)
        return self.partition in (None, partition)

    def count_files(self, partition: bytes, files: int) -> None:
        self.seen[partition] = self.seen.get(partition, 0) + files


@pytest.mark.parametrize("seed", range(30))
def test_the_fold_is_that_of_entries(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PIECES, "min_column_blocks", 0)
    source = random.Random(seed)
    count = source.choice([0, 1, 5, 40, 400])
    batches = [random_entries(source, count, source.choice([2, 30, 500])) for _ in range(source.randrange(4))]
    batches.append(missing_adds(entry for batch in batches for entry in batch))
    pieces = [ManifestTable.of(batch) for batch in batches]
    if seed % 2:
        files = [(f"m{number}", encode_manifest(batch)) for number, batch in enumerate(batches)]
        pieces = [piece for file in files for piece in decode_manifests([file])]
    keep, bucket = source.choice([None, PARTITIONS[0], PARTITIONS[2]]), source.choice([None, 1])
    wanted = Counting(keep, None if bucket is None else [bucket])
    found = FileTable.of(pieces, wanted).live()
    asked, seen = wanted.asked, wanted.seen
    expected = [e for e in plain_live(batches) if keep in (None, e.partition) and bucket in (None, e.bucket)]
    assert [found.entry(row) for row in range(len(found))] == expected == found.entries()
    assert FileTable.of(pieces, Counting(keep, None if bucket is None else [bucket])).live_entries() == expected
    of_each = {partition: [e for e in expected if e.partition == partition] for partition in {e.partition for e in expected}}
    assert {partition: part.entries() for partition, part in found.by_partition().items()} == of_each
    assert [found.partitions[code] for code in found.codes] == [entry.partition for entry in expected]
    assert found.numbers("levels").tolist() == [entry.file.level for entry in expected]
    assert len(asked) == len(set(asked))
    counts = Counter(entry.partition for batch in batches for entry in batch if entry.kind == EntryKind.ADD)
    counts.subtract(entry.partition for batch in batches for entry in batch if entry.kind == EntryKind.DELETE)
    assert {p: n for p, n in seen.items() if n} == {p: n for p, n in counts.items() if n}
    places = {entry.bucket_id: None for entry in expected}
    assert list(found.rows_by_bucket) == list(places)
    assert found.greatest_by_bucket("max_sequences") == {
        place: max(e.file.max_sequence_number for e in expected if e.bucket_id == place) for place in places
    }


@pytest.mark.parametrize(
    "other",
    [{"level": 5}, {"file_name": "b"}, {"extra_files": ("x",)}, {"embedded_file_index": b"1"}, {"external_path": "s3://b/a"}],
)
@pytest.mark.parametrize("count", [1, 400])
def test_a_delete_that_no_entry_adds_is_damage(other: dict[str, object], count: int) -> None:
    """Whatever part of its identity is false, and also if DELETEs are repeated, which does no harm."""
    files = [DataFileMeta(f"a{n}", 7, 1, b"", b"", SimpleStats(), SimpleStats(), 0, 9, 0, 0) for n in range(count)]
    adds = [ManifestEntry(EntryKind.ADD, PARTITIONS[0], 0, 2, file) for file in files]
    deletes = [replace(entry, kind=EntryKind.DELETE) for entry in adds]
    sound = FileTable.of(map(ManifestTable.of, [adds, deletes, deletes[:1]]))
    assert sound.live().entries() == sound.live_entries() == []
    stray = replace(deletes[-1], file=replace(files[-1], **other))  # type: ignore[arg-type]
    for some in ([adds, deletes, [stray]], [adds, [*deletes[:-1], stray]], [deletes[:1]]):
        damaged = FileTable.of(map(ManifestTable.of, some))
        for read in (damaged.live, damaged.live_entries):
            with pytest.raises(DamagedFile, match="where none adds it"):
                read()
        assert damaged.net().entries(), "a merge of some manifests keeps it for the next reader"


@pytest.mark.parametrize("seed", range(20))
def test_folding_keeps_deletes_of_older_files(seed: int) -> None:
    source = random.Random(seed)
    batches = [random_entries(source, source.choice([0, 1, 40]), source.choice([2, 30])) for _ in range(source.randrange(1, 4))]
    found = FileTable.of(map(ManifestTable.of, batches)).net()
    assert [found.entry(row) for row in range(len(found))] == plain_net(entry for batch in batches for entry in batch)
    deletes = {entry.partition for batch in batches for entry in batch if entry.kind == EntryKind.DELETE}
    assert deleted_partitions(map(ManifestTable.of, batches)) == deletes


def test_what_a_commit_is_checked_against(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = make_table(tmp_path / "t", {"dt": "STRING NOT NULL", "k": "INT NOT NULL"}, ("dt", "k"), ("dt",), 2)
    for _ in range(3):
        write(context, [{"dt": f"{k % 3}", "k": k} for k in range(20)])
    snapshot = context.snapshots.latest()
    assert snapshot is not None
    bucket_ids = list(bucket_files(context, snapshot))[1:3]
    for many in (10**9, 0):
        monkeypatch.setattr(PIECES, "many_entries", many)
        monkeypatch.setattr(PIECES, "many_in_total", 0)
        context = TableContext.open(context.url)
        found = live_files_of_buckets(context, snapshot, bucket_ids)
        assert {entry.bucket_id for entry in found.entries} == set(bucket_ids) and len(found.entries) == 6
        assert found.bucket_counts == {partition: {2} for partition, _ in bucket_ids}
        assert live_files_of_buckets(context, snapshot, [BucketId(bucket_ids[0].partition, 7)]).entries == []
    everything = bucket_files(context, snapshot)
    state = committed_state(everything)
    assert state.total_buckets == dict.fromkeys(everything, 2)
    assert state.max_sequences == {i: max(f.max_sequence_number for f in b.files) for i, b in everything.items()}


def test_entries_of_unknown_kinds_are_not_live() -> None:
    (entry,) = random_entries(random.Random(1), 1, 1)
    odd = [replace(entry, kind=kind) for kind in (EntryKind.ADD, 2)]
    assert FileTable.of([ManifestTable.of(odd)]).live().entries() == plain_live([odd]) == odd[:1]


def test_entries_with_equal_hashes_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    from paimon_cli.history import file_table as module

    monkeypatch.setattr(module, "_identity_hashes", lambda columns: columns.buckets * 0)
    batch = random_entries(random.Random(1), 200, 30)
    batch += missing_adds(batch)
    found = FileTable.of([ManifestTable.of(batch)]).live()
    assert [found.entry(row) for row in range(len(found))] == plain_live([batch])


def plain_file(name: str, **fields: Any) -> DataFileMeta:
    return replace(DataFileMeta(name, 7, 1, b"", b"", SimpleStats(), SimpleStats(), 0, 9, 0, 0), **fields)


def entry(name: str, partition: int = 0, bucket: int = 0, kind: int = EntryKind.ADD, **fields: Any) -> ManifestEntry:
    return ManifestEntry(kind, PARTITIONS[partition], bucket, 4, plain_file(name, **fields))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"extra_files": ("x",)}, {"extra_files": ("y",)}),
        ({"embedded_file_index": b"1"}, {"embedded_file_index": b"2"}),
        ({"external_path": "s3://a"}, {"external_path": "s3://b"}),
    ],
)
@pytest.mark.parametrize("many", [0, 10**9])
def test_files_that_differ_in_a_rare_part_are_two(
    one: dict[str, Any], other: dict[str, Any], many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a name that was written to two places, the one that was deleted is gone, and only that."""
    monkeypatch.setattr(PIECES, "max_compared_objects", many)
    kept, gone = entry("a", **one), entry("a", **other)
    deletion = replace(gone, kind=EntryKind.DELETE)
    for order in ([kept, gone, deletion], [gone, kept, deletion], [deletion, gone, kept]):
        found = FileTable.of(ManifestTable.of([each]) for each in order)
        assert found.live().entries() == found.live_entries() == [kept]
    damaged = FileTable.of([ManifestTable.of([kept, kept, deletion])])
    with pytest.raises(DamagedFile, match="where none adds it"):
        damaged.live()


@pytest.mark.parametrize("other", [{"level": 3}, {"external_path": "s3://a"}])
def test_each_of_two_deletes_of_one_name_needs_its_file(other: dict[str, Any]) -> None:
    first, second = entry("a"), entry("a", **other)
    deletes = [replace(each, kind=EntryKind.DELETE) for each in (first, second)]
    assert FileTable.of([ManifestTable.of([first, second, *deletes])]).live_entries() == []
    for there in (first, second):
        with pytest.raises(DamagedFile, match="where none adds it"):
            FileTable.of([ManifestTable.of([there, *deletes])]).live()


def test_a_filter_of_no_bucket_finds_nothing() -> None:
    entries = [entry("a", 0, 0), entry("b", 1, 0), entry("c", 1, 1)]
    pieces = [ManifestTable.of(entries)]
    assert FileTable.of(pieces, FileFilter(None, [])).entries() == []
    assert FileTable.of(pieces, FileFilter(None, None)).entries() == entries
    assert FileTable.of(pieces, FileFilter(lambda partition: partition == PARTITIONS[1], [0])).entries() == entries[1:2]


def test_partitions_and_schemas_of_live_files_only() -> None:
    entries = [
        entry("a", 0, schema_id=3),
        entry("b", 1),
        entry("a", 0, kind=EntryKind.DELETE, schema_id=3),
        entry("c", 2, schema_id=1),
    ]
    live = FileTable.of([ManifestTable.of(entries)]).live()
    assert live.held_partitions == PARTITIONS[1:] and live.schema_ids == [0, 1]
    assert set(live.partitions) == set(PARTITIONS)


def test_a_name_in_another_bucket_is_misplaced() -> None:
    table = FileTable.of(
        ManifestTable.of([each]) for each in (entry("a", 0, 0), entry("b", 1, 1), entry("a", 1, 1), entry("c", 2, 0))
    )
    place = [[BucketId(partition, bucket) for bucket in range(3)] for partition in PARTITIONS]
    elsewhere = BucketId(b"\x09" * 20, 0)
    sound = [(place[0][0], "a"), (place[1][1], "a"), (place[1][1], "b"), (place[0][0], "gone"), (elsewhere, "gone")]
    assert table.misplaced(sound) is None and table.misplaced([]) is None
    assert table.misplaced([*sound, (place[0][1], "b")]) == (place[0][1], place[1][1], "b")
    assert table.misplaced([*sound, (place[0][1], "c")]) == (place[0][1], place[2][0], "c"), "a bucket of another partition"
    assert table.misplaced([*sound, (place[1][0], "c")]) == (place[1][0], place[2][0], "c"), "a bucket of the same number"
    assert table.misplaced([*sound, (elsewhere, "c")]) == (elsewhere, place[2][0], "c"), "a partition without files"
    assert FileTable.of([]).misplaced(sound) is None


def test_the_newest_entry_tells_the_bucket_count_and_the_greatest_its_number() -> None:
    entries = [replace(entry(f"f{n}", n % 2, 0, max_sequence_number=9 - n), total_buckets=n + 1) for n in range(5)]
    table = FileTable.of(ManifestTable.of([each]) for each in entries)
    first, second = (BucketId(partition, 0) for partition in PARTITIONS[:2])
    assert table.newest_by_bucket("total_buckets") == {first: 5, second: 4}
    assert table.greatest_by_bucket("max_sequences") == {first: 9, second: 8}
    assert table.bucket_counts() == {PARTITIONS[0]: {1, 3, 5}, PARTITIONS[1]: {2, 4}}
    assert FileTable.of([]).newest_by_bucket("total_buckets") == {} == FileTable.of([]).bucket_counts()


@pytest.mark.parametrize("is_ours", [True, False], ids=["copied", "encoded"])
def test_each_manifest_says_what_it_holds(is_ours: bool) -> None:
    """Readers skip manifests by these figures: one that leaves out an entry hides its rows."""
    types = [parse_type("INT")]
    source, entries = random.Random(3), []
    for number in range(1100):
        kind = source.choice([EntryKind.ADD, EntryKind.ADD, EntryKind.DELETE])
        partition = serialize_row([source.randrange(9)], types)
        file = plain_file(f"f{number}", level=source.randrange(6), schema_id=source.randrange(4))
        entries.append(ManifestEntry(kind, partition, source.randrange(7), 7, file))
    pieces = [ManifestTable.of(entries[:500]), ManifestTable.of(entries[500:])]
    if is_ours:
        pieces = [piece for n in (0, 500) for piece in decode_manifests([(f"m{n}", encode_manifest(entries[n : n + 500 + n]))])]
    manifests = list(FileTable.of(pieces).encoded(1, types))
    assert len(manifests) > 1
    begin = 0
    for content, line in manifests:
        found = [each for piece in decode_manifests([("m", content)]) for each in piece.entries()]
        assert found == entries[begin : begin + len(found)]
        begin += len(found)
        added = sum(each.kind == EntryKind.ADD for each in found)
        assert (line.file_size, line.num_added_files, line.num_deleted_files) == (len(content), added, len(found) - added)
        days = [deserialize_row(each.partition, types)[0] for each in found]
        bounds = [deserialize_row(stat, types)[0] for stat in (line.partition_stats.min_values, line.partition_stats.max_values)]
        assert bounds == [min(days), max(days)]
        assert line.schema_id == max(each.file.schema_id for each in found)
        assert (line.min_bucket, line.max_bucket) == (min(e.bucket for e in found), max(e.bucket for e in found))
        assert (line.min_level, line.max_level) == (min(e.file.level for e in found), max(e.file.level for e in found))
    assert begin == len(entries)


def test_partitions_with_deletes() -> None:
    entries = [entry("a", 0), entry("b", 1, kind=EntryKind.DELETE), entry("c", 1), entry("d", 2)]
    assert deleted_partitions([ManifestTable.of(entries[:2]), ManifestTable.of(entries[2:])]) == {PARTITIONS[1]}
    assert deleted_partitions([ManifestTable.of(entries[2:])]) == set()
