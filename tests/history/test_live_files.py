"""Buckets picked by partition and bucket from manifests decoded side by side are those of a plain fold."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import CommitIdentity
from paimon_cli.commit.prepared_snapshot import MetadataWriter
from paimon_cli.errors import DamagedFile, NotFound, UsageError
from paimon_cli.history.file_table import FileTable
from paimon_cli.history.live_files import BucketFiles, CommittedState, bucket_files, committed_state, expect_buckets
from paimon_cli.history.manifest_reader import SnapshotGone
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import EMPTY_ROW, BucketId, CommitMessage, FileChanges, FileFilter, ManifestFileMeta
from paimon_cli.pieces import PIECES
from tests import tables
from tests.commit import commit_tables
from tests.tables import make_table, write

COLUMNS = {"dt": "STRING NOT NULL", "k": "INT NOT NULL", "v": "INT"}


@pytest.fixture
def table(tmp_path: Path) -> TableContext:
    context = make_table(tmp_path / "t", COLUMNS, ["dt", "k"], ["dt"], 2)
    for commit in range(3):
        write(context, [{"dt": f"{number % 3}", "k": number + commit, "v": commit} for number in range(24)])
    return context


@pytest.mark.parametrize("fewest", [0, 10**9])
def test_picked_buckets_are_those_of_all(table: TableContext, monkeypatch: pytest.MonkeyPatch, fewest: int) -> None:
    monkeypatch.setattr(PIECES, "min_column_blocks", fewest)
    snapshot = table.snapshots.latest()
    everything = bucket_files(table, snapshot)
    assert len(everything) == 6 and all(len(bucket.files) == 3 for bucket in everything.values())
    chosen = next(iter(everything))[0]
    asked: list[bytes] = []

    def is_chosen(partition: bytes) -> bool:
        asked.append(partition)
        return partition == chosen

    found = bucket_files(table, snapshot, FileFilter(is_chosen))
    assert found == {place: bucket for place, bucket in everything.items() if place[0] == chosen} and len(asked) == 3
    assert bucket_files(table, snapshot, FileFilter(buckets=[1])) == {p: bucket for p, bucket in everything.items() if p[1] == 1}


def test_missing_buckets_are_distinguished_from_empty_ones(tmp_path: Path) -> None:
    def buckets(*numbers: int, total: int = 2) -> list[BucketFiles]:
        return [BucketFiles(b"", number, total, ()) for number in numbers]

    fixed = make_table(tmp_path / "fixed", COLUMNS, ["dt", "k"], ["dt"], 2)
    expect_buckets(fixed, [0, 1], [])
    expect_buckets(fixed, [], buckets(0))
    expect_buckets(fixed, [2, 3], buckets(0, total=4))
    expect_buckets(fixed, [7], buckets(7))
    for number in (-1, 2):
        with pytest.raises(UsageError, match=f"has no bucket {number}: its buckets are 0 to 1") as wrong:
            expect_buckets(fixed, [0, number, 9], buckets(1))
        assert wrong.value.hint == f"paimon-cli buckets ls {fixed.layout.argument}"
    own = make_table(tmp_path / "own", COLUMNS, ["dt", "k"], ["dt"], -1)
    expect_buckets(own, [3, 0], buckets(3, 0, total=-1))
    with pytest.raises(NotFound, match="has no bucket 2: its buckets are 0, 3"):
        expect_buckets(own, [2], buckets(3, 0, total=-1))
    with pytest.raises(NotFound, match="has no bucket 0: its buckets are none yet"):
        expect_buckets(own, [0], [])


class NotingFilter(FileFilter):
    """A filter that records the files reported to it, and keeps only the named manifest, if there is one."""

    def __init__(self, buckets: list[int] | None = None, manifest: str | None = None) -> None:
        super().__init__(buckets=buckets)
        self.manifest = manifest
        self.heard: list[tuple[bytes, int]] = []

    def keeps_manifest(self, manifest: ManifestFileMeta) -> bool:
        return super().keeps_manifest(manifest) and self.manifest in (None, manifest.file_name)

    def count_files(self, partition: bytes, files: int) -> None:
        self.heard.append((partition, files))


def test_manifests_of_other_buckets_are_not_read(tmp_path: Path) -> None:
    """Files in dropped manifests are not reported to the filter."""
    context = commit_tables.make_table(tmp_path / "t")
    for number in range(4):
        message = CommitMessage(EMPTY_ROW, number, 4, append=FileChanges(added=(commit_tables.data_file(f"f{number}"),)))
        Committer(context).commit([message], CommitIdentity("me"))
    snapshot = context.snapshots.latest()
    assert snapshot is not None
    names = {meta.min_bucket: meta.file_name for meta in context.manifests.manifests_of(snapshot)}
    for number in (0, 3):
        Path(context.layout.manifest(names[number])).unlink()
    wanted = NotingFilter([1, 2])
    found = bucket_files(context, snapshot, wanted)
    assert {place: [f.file_name for f in found[place].files] for place in found} == {
        (EMPTY_ROW, 1): ["f1"],
        (EMPTY_ROW, 2): ["f2"],
    }
    assert sum(count for _, count in wanted.heard) == 2
    only = bucket_files(context, snapshot, NotingFilter(manifest=names[1]))
    assert list(only) == [(EMPTY_ROW, 1)] and len(only) == 1
    with pytest.raises(DamagedFile):
        bucket_files(context, snapshot)
    Path(context.layout.snapshot(snapshot.id)).unlink()
    with pytest.raises(SnapshotGone):
        bucket_files(context, snapshot)
    assert committed_state(found) == CommittedState(
        {BucketId(EMPTY_ROW, 1): 9, BucketId(EMPTY_ROW, 2): 9}, {BucketId(EMPTY_ROW, 1): 4, BucketId(EMPTY_ROW, 2): 4}
    )


def test_offsets_of_words_are_one_for_all_or_one_an_entry(tmp_path: Path) -> None:
    context = commit_tables.make_table(tmp_path / "t")
    names = ["abcdefgh12345678", "ABCDEFGHabcdefgh", "0123456789012345"]
    for number, name in enumerate(names):
        message = CommitMessage(EMPTY_ROW, number % 2, 2, append=FileChanges(added=(commit_tables.data_file(name),)))
        Committer(context).commit([message], CommitIdentity("me"))
    snapshot = context.snapshots.latest()
    assert snapshot is not None
    pieces = context.manifests.tables_of_each(context.manifests.manifests_of(snapshot))
    columns = FileTable.of(piece for some in pieces for piece in some)
    assert len(columns.pieces) == 3

    def expected(*offsets: int) -> list[int]:
        parts = [name[offset : offset + 8].encode() for name, offset in zip(names, offsets, strict=True)]
        return [int.from_bytes(part, "little", signed=True) for part in parts]

    assert columns.words("names", 0).tolist() == expected(0, 0, 0)
    assert columns.words("names", 8).tolist() == expected(8, 8, 8)
    assert columns.words("names", np.array([8, 0, 3])).tolist() == expected(8, 0, 3)
    assert list(columns.lengths("names")) == [16, 16, 16]


@pytest.mark.parametrize("has_files", [True, False])
@pytest.mark.parametrize("partition", [False, True])
def test_vectors_of_files_that_live_elsewhere_are_damage(tmp_path: Path, has_files: bool, partition: bool) -> None:
    """Readers would show the marked rows again, whether or not the bucket that is said to be theirs has files of its own."""
    options = {"deletion-vectors.enabled": "true"}
    context = tables.make_table(tmp_path / "t", {"p": "INT NOT NULL", "k": "INT NOT NULL"}, ["p", "k"], ["p"], 4, options)
    tables.write(context, [{"p": p, "k": k} for k in range(20) for p in range(3)])
    tables.write(context, [{"p": 1, "k": 2, "_op": "-D"}])
    assert len(tables.rows(context)) == 59
    latest = context.snapshots.latest()
    assert latest is not None
    (marked,) = (entry for entry in context.manifests.index_entries(latest) if entry.index_file.row_count)
    others = [
        i for i in bucket_files(context, latest) if (i.partition != marked.partition) == partition and i != marked.bucket_id
    ]
    other = others[0] if has_files else BucketId(others[0].partition, 7)
    name = MetadataWriter(context).index_manifest([replace(marked, partition=other.partition, bucket=other.bucket)])
    Path(context.layout.snapshot(latest.id)).write_text(replace(latest, index_manifest=name).to_json())
    with pytest.raises(DamagedFile, match=f"in bucket {other.bucket} of .*but that file is in bucket {marked.bucket} of"):
        tables.rows(TableContext.open(context.url))


@pytest.mark.parametrize("false", [b"", bytes(20), bytes(11)])
def test_a_partition_that_is_written_in_two_ways_is_damage(tmp_path: Path, false: bytes) -> None:
    """Its bucket would be read as two, so that both versions of a row are shown."""
    context = tables.make_table(tmp_path / "t", {"k": "INT NOT NULL", "v": "STRING"}, ["k"])
    for value in ("old", "new"):
        tables.write(context, [{"k": 1, "v": value}])
    latest = context.snapshots.latest()
    assert latest is not None
    entries = [replace(entry, partition=false) for entry in context.manifests.delta_entries(latest)]
    written = MetadataWriter(context).manifests(entries)
    name, size = MetadataWriter(context).manifest_list(written, "delta")
    changed = replace(latest, delta_manifest_list=name, delta_manifest_list_size=size)
    Path(context.layout.snapshot(latest.id)).write_text(changed.to_json())
    with pytest.raises(DamagedFile):
        tables.rows(TableContext.open(context.url))


def test_vectors_of_files_that_are_gone_do_no_harm(tmp_path: Path) -> None:
    """Java leaves them."""
    options = {"deletion-vectors.enabled": "true"}
    context = tables.make_table(tmp_path / "t", {"k": "INT NOT NULL"}, ["k"], options=options)
    tables.write(context, [{"k": k} for k in range(5)])
    tables.write(context, [{"k": 2, "_op": "-D"}])
    latest = context.snapshots.latest()
    assert latest is not None
    (entry,) = context.manifests.index_entries(latest)
    (vector,) = entry.index_file.deletion_vector_ranges or ()
    stray = replace(
        entry, bucket=7, index_file=replace(entry.index_file, deletion_vector_ranges=(replace(vector, data_file_name="gone"),))
    )
    name = MetadataWriter(context).index_manifest([entry, stray])
    Path(context.layout.snapshot(latest.id)).write_text(replace(latest, index_manifest=name).to_json())
    assert len(tables.rows(TableContext.open(context.url))) == 4


def test_buckets_that_are_read_at_once_are_those_that_are_read_one_by_one(tmp_path: Path) -> None:
    """With their index files."""
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL"}, ["k"], bucket=2, options={"deletion-vectors.enabled": "true"})
    write(context, [{"k": key} for key in range(4000)])
    tables.compact(context, strategy="full")
    write(context, [{"k": key} for key in range(3)])
    buckets = bucket_files(context, context.snapshots.latest())
    assert buckets.whole() == [buckets[bucket_id] for bucket_id in buckets] and any(one.index_files for one in buckets.whole())


@pytest.mark.parametrize("keyed", [0, 2])
def test_a_table_without_keys_whose_files_have_some_is_damaged(tmp_path: Path, keyed: int) -> None:
    """Whichever file it is that has a key."""
    context = commit_tables.make_table(tmp_path / "t", primary_key=False)
    files = [commit_tables.data_file(f"f{number}") for number in range(3)]
    plain = [replace(file, min_key=EMPTY_ROW, max_key=EMPTY_ROW) for file in files]
    plain[keyed] = files[keyed]
    message = CommitMessage(EMPTY_ROW, 0, 2, append=FileChanges(added=tuple(plain)))
    Committer(context).commit([message], CommitIdentity("me"))
    with pytest.raises(DamagedFile, match=f"it has no primary key, but the manifest record of f{keyed} has"):
        bucket_files(context, context.snapshots.latest())


def test_the_next_row_of_a_bucket_follows_its_newest_one() -> None:
    first, second = BucketId(EMPTY_ROW, 0), BucketId(EMPTY_ROW, 1)
    assert CommittedState({first: 0, second: 41}, {}).next_sequences == {first: 1, second: 42}
