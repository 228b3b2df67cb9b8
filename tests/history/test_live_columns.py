"""Files that are alive by columns are those of the plain fold over entries."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from paimon_cli.commit.manifest_merging import fold
from paimon_cli.history import known_manifests, table_state
from paimon_cli.history.live_columns import deleted_partitions, folded_columns, live_columns
from paimon_cli.history.live_places import live_at
from paimon_cli.history.manifest_reader import live
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.table_state import bucket_files, committed_state
from paimon_cli.metadata import manifest_columns
from paimon_cli.metadata.data_file import ADD, DELETE, DataFileMeta, ManifestEntry, SimpleStats
from paimon_cli.metadata.manifest_columns import columns_of, decode_manifest_columns
from paimon_cli.metadata.manifest_file import encode_manifest
from tests.tables import make_table, write

PARTITIONS = [bytes([number]) * size for number, size in ((1, 20), (2, 20), (3, 28))]


def random_entries(source: random.Random, count: int, names: int) -> list[ManifestEntry]:
    """Few names, so that DELETEs meet ADDs; some with what seldom belongs to an identity."""
    entries = []
    for number in range(count):
        name = f"data-{source.randrange(names):05}.parquet"
        file = DataFileMeta(name, 7, 1, b"", b"", SimpleStats(), SimpleStats(), 0, 9, 0, 0)
        file = replace(file, level=source.choice([0, 0, 5]), max_sequence_number=number)
        if source.random() < 0.2:
            more = {"extra_files": ("x",), "embedded_file_index": b"\0\1", "external_path": "else"}
            chosen = source.choice(list(more))
            file = replace(file, **{chosen: more[chosen]})
        kind = source.choice([ADD, ADD, DELETE])
        entries.append(ManifestEntry(kind, source.choice(PARTITIONS), source.randrange(2), 2, file))
    return entries


@pytest.mark.parametrize("seed", range(30))
def test_the_fold_is_that_of_entries(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_columns, "_FEWEST_BLOCKS", 0)
    source = random.Random(seed)
    count = source.choice([0, 1, 5, 40, 400])
    batches = [random_entries(source, count, source.choice([2, 30, 500])) for _ in range(source.randrange(4))]
    pieces = [columns_of(batch) for batch in batches]
    if seed % 2:
        files = [(f"m{number}", encode_manifest(batch)) for number, batch in enumerate(batches)]
        pieces = [piece for file in files for piece in decode_manifest_columns([file])]
    keep, bucket = source.choice([None, PARTITIONS[0], PARTITIONS[2]]), source.choice([None, 1])
    seen: dict[bytes, int] = {}
    asked: list[bytes] = []
    found = live_columns(
        pieces,
        None if keep is None else lambda partition: not asked.append(partition) and partition == keep,
        None if bucket is None else [bucket],
        lambda partition, files: seen.update({partition: seen.get(partition, 0) + files}),
    )
    expected = [e for e in live(batches) if keep in (None, e.partition) and bucket in (None, e.bucket)]
    assert [found.entry(row) for row in range(len(found))] == expected
    assert [found.partitions[code] for code in found.codes] == [entry.partition for entry in expected]
    assert found.numbers("levels").tolist() == [entry.file.level for entry in expected]
    assert len(asked) == len(set(asked))
    added = [entry.partition for batch in batches for entry in batch if entry.kind == ADD]
    assert {p: n for p, n in seen.items() if n} == {p: added.count(p) for p in set(added)}
    places = {entry.bucket_id: None for entry in expected}
    assert list(found.rows_by_place) == list(places)
    assert found.greatest_by_place("max_sequences") == {
        place: max(e.file.max_sequence_number for e in expected if e.bucket_id == place) for place in places
    }


@pytest.mark.parametrize("seed", range(20))
def test_folding_keeps_deletes_of_older_files(seed: int) -> None:
    source = random.Random(seed)
    batches = [random_entries(source, source.choice([0, 1, 40]), source.choice([2, 30])) for _ in range(source.randrange(1, 4))]
    found = folded_columns(map(columns_of, batches))
    assert [found.entry(row) for row in range(len(found))] == fold(entry for batch in batches for entry in batch)
    deletes = {entry.partition for batch in batches for entry in batch if entry.kind == DELETE}
    assert deleted_partitions(map(columns_of, batches)) == deletes


def test_what_a_commit_is_checked_against(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = make_table(tmp_path / "t", {"dt": "STRING NOT NULL", "k": "INT NOT NULL"}, ("dt", "k"), ("dt",), 2)
    for _ in range(3):
        write(context, [{"dt": f"{k % 3}", "k": k} for k in range(20)])
    snapshot = context.snapshots.latest()
    assert snapshot is not None
    places = list(bucket_files(context, snapshot))[1:3]
    found = []
    for many in (10**9, 0):
        monkeypatch.setattr(known_manifests, "MANY_ENTRIES", many)
        monkeypatch.setattr(known_manifests, "_FEW_BESIDE_MANY", 0)
        context = TableContext.open(context.url)
        monkeypatch.setattr(table_state, "MANY_ENTRIES", many)
        found.append((live_at(context, snapshot, places), committed_state(bucket_files(context, snapshot))))
    assert found[0] == found[1]
    at_places = found[0][0]
    assert {entry.bucket_id for entry in at_places.entries} == set(places) and len(at_places.entries) == 6
    assert at_places.totals == {(partition, 2) for partition, _ in places}
    assert live_at(context, snapshot, [(places[0][0], 7)]).entries == []


def test_equal_hashes_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    from paimon_cli.history import live_columns as module

    monkeypatch.setattr(module, "_identity_hashes", lambda columns: columns.buckets * 0)
    batch = random_entries(random.Random(1), 200, 30)
    found = live_columns([columns_of(batch)])
    assert [found.entry(row) for row in range(len(found))] == live([batch])
