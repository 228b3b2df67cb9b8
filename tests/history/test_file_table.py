"""The live files of a file table are those of a plain fold over its entries."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("other", [{"level": 5}, {"file_name": "b"}, {"extra_files": ("x",)}, {"embedded_file_index": b"1"}])
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
