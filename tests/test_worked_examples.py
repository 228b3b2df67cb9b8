"""The hardest places of the code have a worked example in their docstring, and each is what the code does."""

from __future__ import annotations

import doctest
import io
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paimon_cli import Table
from paimon_cli.bucket import deletion_vectors, key_blocks, merged_rows, stitched_files
from paimon_cli.bucket.key_blocks import RunBlocks, RunSearch
from paimon_cli.bucket.merged_rows import merge_columns, merge_section
from paimon_cli.bucket.parquet_pages import Blocks
from paimon_cli.bucket.stitched_files import StitchedFile, StoredGroups
from paimon_cli.commit import data_conflict, files_conflict, snapshot_publish
from paimon_cli.commit.commit_messages import SnapshotChanges
from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import CommitIdentity
from paimon_cli.commit.files_conflict import _check_vectors
from paimon_cli.commit.snapshot_publish import publish
from paimon_cli.compact import lookup_merge
from paimon_cli.errors import CommitUnknown, DataConflict, FilesConflict
from paimon_cli.history.live_files import bucket_files
from paimon_cli.history.manifest_reader import ManifestReader
from paimon_cli.history.table_context import TableContext
from paimon_cli.lsm import universal_compaction
from paimon_cli.lsm.key_search import ABSENT, Indices, SortedKeys
from paimon_cli.lsm.sorted_runs import key_sections
from paimon_cli.metadata.data_file import (
    DELETION_VECTORS,
    EMPTY_ROW,
    BucketId,
    CommitMessage,
    DeletionVectorRange,
    EntryKind,
    FileChanges,
    IndexFileMeta,
    IndexManifestEntry,
    ManifestEntry,
)
from paimon_cli.metadata.data_file_schema import SEQUENCE_NUMBER, VALUE_KIND, FileLayout
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.requests import upkeep
from paimon_cli.storage.storage import PutOutcome
from paimon_cli.write import bucket_assigner
from tests.commit.commit_tables import LyingStorage, data_file
from tests.commit.commit_tables import make_table as commit_table
from tests.tables import compact, make_table, write

EXAMPLES = [deletion_vectors, bucket_assigner, universal_compaction, upkeep]
"""Modules whose examples are run as they are."""


def shown(place: Any) -> list[list[str]]:
    """The rows of the table in a docstring, without its title."""
    lines = [line.strip() for line in place.__doc__.splitlines() if line.strip().startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in rows[1:] if not row[0].startswith("---")]


@pytest.mark.parametrize("module", EXAMPLES, ids=lambda module: module.__name__)
def test_examples_run(module: Any) -> None:
    tests = [test for test in doctest.DocTestFinder(exclude_empty=True).find(module) if test.examples]
    report = io.StringIO()
    results = [doctest.DocTestRunner().run(test, out=report.write) for test in tests]
    assert results and all(not result.failed for result in results), report.getvalue()


def vectors(name: str, *files: str) -> IndexManifestEntry:
    ranges = tuple(DeletionVectorRange(file, 1, 22, 1) for file in files)
    return IndexManifestEntry(EntryKind.ADD, EMPTY_ROW, 0, IndexFileMeta(DELETION_VECTORS, name, 22, len(files), ranges))


def entry(kind: int, name: str) -> ManifestEntry:
    return ManifestEntry(kind, EMPTY_ROW, 0, 1, data_file(name))


def test_vectors_that_fit_and_those_that_do_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context, bucket = commit_table(tmp_path / "t"), BucketId(EMPTY_ROW, 0)
    snapshot = cast(Any, object())
    for compaction, current, files, outcome in shown(_check_vectors):
        [name, marked] = re.findall(r"dv-\d|\(.*?\)", current)
        live = vectors(name, *marked.strip("()").split(", "))
        monkeypatch.setattr(ManifestReader, "index_entries", lambda self, latest, live=live: [live])
        writes = compaction.startswith("writes")
        changes = SnapshotChanges(
            "COMPACT",
            (entry(EntryKind.DELETE, "a"), entry(EntryKind.ADD, "c")),
            new_indexes=(vectors("dv-2", "b"),) if writes else (),
            deleted_indexes=(IndexManifestEntry(EntryKind.DELETE, EMPTY_ROW, 0, vectors("dv-1", "a", "b").index_file),)
            if writes
            else (),
            check_files=True,
            read_vectors=((bucket, ("dv-1",)),),
        )
        left = {bucket: set(files.split(", "))}
        if outcome == "fits":
            _check_vectors(context, snapshot, changes, left)
        else:
            reason = "have changed" if "dv-3" in current else "rows of a missing file"
            with pytest.raises(FilesConflict, match=reason):
                _check_vectors(context, snapshot, changes, left)


class SecondBlock(RunSearch):
    """A search in which the second block of the first file was decoded."""

    def _keys_of(self, blocks: Indices) -> SortedKeys:
        assert blocks.tolist() == [1]
        return SortedKeys((pa.array([40, 50, 60]),))


def test_keys_among_the_rows_that_were_read() -> None:
    blocks = Blocks(np.array([0, 3, 6]), np.array([3, 6, 8]), np.array([0, 0, 1]), 100)
    run = RunBlocks(
        *((), np.array([0, 1]), (), cast(Any, None), cast(Any, None)),
        first_blocks=np.array([0, 2, 3]),
        first_rows=np.array([0, 6, 8]),
        bounds=cast(Any, None),
        blocks=blocks,
    )
    search = SecondBlock(cast(Any, None), BucketId(EMPTY_ROW, 0), run)
    for key, row, before, after, follows in shown(RunSearch._rows_among):
        keys = SortedKeys((pa.array([int(key)]),))
        found = search._rows_among(keys, np.array([0]), np.array([1]))
        assert [int(part[0]) for part in found] == [ABSENT if row == "-" else int(row), int(before), int(after)], key
        is_sure = int(found[0][0]) != ABSENT or int(found[2][0] - found[1][0]) == 1
        assert is_sure == (not follows.startswith("unsure")), key


def test_commits_that_conflict_by_granularity(tmp_path: Path) -> None:
    columns = {"p": "STRING NOT NULL", "k": "INT NOT NULL", "v": "INT"}
    options = {"bucket-function.type": "mod", "bucket-key": "k"}
    make_table(tmp_path / "t", columns, ["p", "k"], ["p"], bucket=2, options=options)
    table = Table.open(str(tmp_path / "t"))

    def write_keys(partition: str, *keys: int, **how: Any) -> None:
        table.write(pa.table({"p": [partition] * len(keys), "k": pa.array(keys, pa.int32())}), compact="none", **how)

    write_keys("x", 10, 20)
    for commit, *answers in shown(data_conflict):
        read = table.snapshots()[0].id
        if commit.startswith("compaction"):
            table.compact(partition={"p": "x"})
        else:
            keys = [int(number) for number in re.findall(r"\d+", commit.partition(" into ")[0])]
            write_keys(commit.rpartition(" of ")[2], *keys)
            assert f"bucket {keys[0] % 2} " in commit
        for granularity, answer in zip(("partition", "bucket", "range", "key"), answers, strict=True):
            if answer == "no":
                write_keys("x", 10, 20, data_conflict_check=granularity, read_snapshot=read)
                table.rollback(table.snapshots()[1].id)
            else:
                with pytest.raises(DataConflict):
                    write_keys("x", 10, 20, data_conflict_check=granularity, read_snapshot=read)


def test_a_section_is_merged(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL", "v": "STRING"}, ["k"])

    def numbered(batch: pa.RecordBatch) -> list[str]:
        rows = zip(*(batch.column(name).to_pylist() for name in ("k", VALUE_KIND, "v", SEQUENCE_NUMBER)), strict=True)
        return [f"{key}:{'x' if kind & 1 else value}@{number}" for key, kind, value, number in rows]

    newest, first, oldest, merged = shown(merge_section)
    for _, rows in (oldest, first, newest):
        parts = [re.fullmatch(r"(\d):(\w)@\d", row) for row in rows.split()]
        cells = [{"k": int(part[1]), "v": part[2], "_op": "-D" if part[2] == "x" else "+I"} for part in parts if part]
        write(context, cells, compact="none")
        if rows == oldest[1]:
            compact(context)
    (bucket,) = bucket_files(context, context.snapshots.latest()).values()
    (section,) = key_sections(bucket.files, context.key_of)
    columns = merge_columns(context, ["k", "v"])
    for _, rows in (newest, first, oldest):
        (alone,) = (run for run in section if run.files[0].max_sequence_number == int(rows[-1]))
        found = merge_section(context, bucket, [alone], columns)
        assert [row for batch in found for row in numbered(batch)] == rows.split()
    assert [row for batch in merge_section(context, bucket, section, columns) for row in numbered(batch)] == merged[1].split()


def test_what_an_answer_to_a_put_means(tmp_path: Path) -> None:
    said = {"created": PutOutcome.CREATED, "exists": PutOutcome.EXISTS, "none": PutOutcome.UNKNOWN}
    for number, (answer, holds, outcome) in enumerate(shown(publish)):
        storage = LyingStorage([(holds == "ours", said[answer.split(",")[0]])] * (99 if "five" in answer else 1))
        context = commit_table(tmp_path / f"{number}", storage=storage)
        snapshot = _snapshot(context)
        if holds == "another commit":
            path = Path(context.layout.snapshot(1))
            path.parent.mkdir(exist_ok=True)
            path.write_text(snapshot.to_json().replace("me", "they"))
        if outcome == "`CommitUnknown`":
            with pytest.raises(CommitUnknown):
                publish(context, snapshot)
            assert storage.puts == 5
        else:
            assert publish(context, snapshot) == (not outcome.startswith("false")), (answer, holds)
            assert storage.puts == (2 if outcome == "the put is repeated" else 1)


def _snapshot(context: TableContext) -> Snapshot:
    """A snapshot that was not published in this table yet."""
    made = commit_table(Path(context.layout.root).with_name("made-" + Path(context.layout.root).name))
    message = CommitMessage(EMPTY_ROW, 0, 2, append=FileChanges(added=(data_file("a"),)))
    return Committer(made).commit([message], CommitIdentity("me")).snapshots[0]


def test_a_row_group_is_copied(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", {"k": "INT"}, [], bucket=-1)
    layout = FileLayout.of(context.schema)
    pages, offsets, number, indexes = shown(StitchedFile.copy)

    def encoded(count: int) -> io.BytesIO:
        buffer = io.BytesIO()
        rows = pa.table({"k": pa.array(range(count), pa.int32())}, schema=layout.physical)
        pq.write_table(rows, buffer, write_page_index=True, compression="none", use_dictionary=False, store_schema=False)
        return buffer

    first, second = StoredGroups(encoded(500)), StoredGroups(encoded(300))
    sink = io.BytesIO()
    stitched = StitchedFile(sink, first.frame, layout, context.options, 0)
    stitched.copy(first, first.groups[0], ())
    begin = sink.tell()
    stitched.copy(second, second.groups[0], ())
    end = sink.tell()
    stitched.close()
    chunk = second.groups[0].chunks[0]
    distance = begin - chunk.begin
    assert (pages[1].split()[0], offsets[1:], number[1:]) == ("4", ["n", "n + 1,000"], ["0", "1"]) and chunk.begin == 4
    assert b"".join(bytes(piece) for piece in second.pieces(chunk.begin, chunk.end)) == sink.getvalue()[begin:end]
    old = pq.ParquetFile(encoded(300)).metadata.row_group(0).column(0)
    new = pq.ParquetFile(io.BytesIO(sink.getvalue())).metadata.row_group(1).column(0)
    assert new.data_page_offset == old.data_page_offset + distance
    assert "behind all row groups" in indexes[2] and new.has_offset_index and new.has_column_index
    assert pq.read_table(io.BytesIO(sink.getvalue())).column("k").to_pylist() == [*range(500), *range(300)]


@pytest.mark.parametrize("row", shown(lookup_merge.LookupMerge._resolved), ids=" ".join)
def test_a_changelog_by_lookup(tmp_path: Path, row: Sequence[str]) -> None:
    level_0, picked, looked_up, merged, changelog = row
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL", "v": "STRING"}, ["k"], options={"changelog-producer": "lookup"})
    if picked or looked_up:
        write(context, [{"k": 1, "v": picked or looked_up}], compact="none")
        compact(context)
    write(context, [{"k": 2, "v": "another key"}], compact="none")
    for value in filter(None, level_0.split(", then ")):
        write(context, [{"k": 1, "v": "b", "_op": "-D"} if value == "deleted" else {"k": 1, "v": value}], compact="none")
    compact(context, strategy="full" if picked else "minor")
    last = context.snapshots.latest_id()
    assert last is not None
    table = Table.open(str(tmp_path / "t"))
    rows = table.changelog(last - 1, last).to_arrow().to_pylist()
    assert [f"{one['rowkind']} {one['v']}" for one in rows if one["k"] == 1] == list(filter(None, changelog.split(", ")))
    values = [one["v"] for one in table.scan(where="k = 1").to_arrow().to_pylist()]
    assert values == ([] if merged == "deleted" else [merged])


PLACES: Sequence[Callable[..., Any]] = (
    files_conflict._check_vectors,
    key_blocks.RunSearch._rows_among,
    bucket_assigner.PartitionAssigner._assign,
    universal_compaction.UniversalCompaction.pick,
    merged_rows.merge_section,
    snapshot_publish.publish,
    stitched_files.StitchedFile.copy,
    lookup_merge.LookupMerge._resolved,
)


@pytest.mark.parametrize("place", [*PLACES, data_conflict, deletion_vectors], ids=lambda place: place.__name__)
def test_the_hardest_places_have_an_example(place: Any) -> None:
    assert shown(place) or ">>> " in place.__doc__
