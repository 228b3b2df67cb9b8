"""Marks of deletion vectors that a commit has lost, and findings that concern a key only if files hold it."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from paimon_cli import Table
from paimon_cli.commit.committer import Committer
from paimon_cli.history.live_files import bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants.anomalies import LIKELY, PROVEN, UNTOLD
from paimon_cli.invariants.past_vectors import visible_rows
from paimon_cli.metadata.data_file import CommitMessage, FileChanges
from tests.invariants.test_planted_anomalies import COLUMNS, beside_each_other, commit, found, table
from tests.jobs.test_snapshot_ordering import row
from tests.tables import make_table, write


def marked(folder: Path, first: str, second: str, monkeypatch: pytest.MonkeyPatch) -> TableContext:
    """A table with two deletes of which the second, which checks nothing, had not read the vectors of the first."""
    context = make_table(folder / "t", COLUMNS, [], bucket=-1, options={"deletion-vectors.enabled": "true"})
    write(context, [row(k, k) for k in range(9)])
    other = TableContext.open(str(shutil.copytree(context.url, folder / "other")))
    Table.open(context.url).delete(first)
    Table.open(other.url).delete(second)
    shutil.copytree(folder / "other" / "index", folder / "t" / "index", dirs_exist_ok=True)
    (bucket,), (late,) = (bucket_files(each, each.snapshots.latest()).values() for each in (context, other))
    monkeypatch.setattr(Committer, "_check", lambda *_: None)
    change = FileChanges(added_indexes=late.index_files, removed_indexes=bucket.index_files)
    commit(context, [CommitMessage(bucket.partition, bucket.bucket, 1, append=change)])
    path = Path(context.layout.snapshot(3))  # as another writer, which names what it did, or does not have our properties
    path.write_text(path.read_text().replace('"paimon-cli.', '"other.'))
    return TableContext.open(context.url)


@pytest.mark.parametrize("first", ["k = 1", "k < 2", "k < 4"])
def test_marks_that_a_delete_had_not_read(first: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many rows, or more, may be marked before as after it: metadata does not say which."""
    context = marked(tmp_path, first, "k = 7", monkeypatch)
    (lost,) = found(context).values()
    assert (lost.rule, lost.certainty, lost.snapshots) == ("vector-lost", PROVEN, (3,))
    told = Table.open(context.url).history_check(level="meta")
    assert [(a.rule, a.certainty) for a in told] == [("vector-lost", UNTOLD)]


def test_vectors_that_grow_or_are_restored(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, [], bucket=-1, options={"deletion-vectors.enabled": "true"})
    opened = Table.open(context.url)
    write(context, [row(k, k) for k in range(9)])
    for key in range(3):
        opened.delete(f"k = {key}")
    opened.rollback(2, as_new=True)
    opened.delete("k = 8")
    assert not found(context)


def test_a_finding_concerns_a_key_that_both_commits_hold(tmp_path: Path) -> None:
    """By the ranges of their keys the files of both may hold 3 and 4."""
    context = table(tmp_path)
    beside_each_other(context, tmp_path, [row(1, 1), row(3, 1), row(9, 1)], [row(0, 2), row(3, 2), row(4, 2), row(8, 2)])
    assert found(context)["writers-beside-each-other"].key is None
    assert "writers-beside-each-other" in found(context, key={"k": 3})
    assert not found(context, key={"k": 4}) and not found(context, key={"k": 5})
    assert found(context, key={"k": 4}, level="meta")["writers-beside-each-other"].certainty == LIKELY


def test_marks_of_files_that_are_gone_hide_no_rows_of_others(tmp_path: Path) -> None:
    """Java leaves them in its index files."""
    context = make_table(tmp_path / "t", COLUMNS, [], bucket=-1, options={"deletion-vectors.enabled": "true"})
    write(context, [row(k, k) for k in range(9)])
    Table.open(context.url).delete("k < 4")
    (bucket,) = bucket_files(context, context.snapshots.latest()).values()
    assert visible_rows(bucket) == 5
    (index,) = bucket.index_files
    ranges = index.deletion_vector_ranges or ()
    left = replace(index, deletion_vector_ranges=(*ranges, replace(ranges[0], data_file_name="gone")))
    assert visible_rows(replace(bucket, index_files=(left,))) == 5
    unknown = replace(index, deletion_vector_ranges=(replace(ranges[0], cardinality=None),))
    assert visible_rows(replace(bucket, index_files=(unknown,))) is None
