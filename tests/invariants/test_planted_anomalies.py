"""What anomalies leave behind in real tables is found in their rows, and what only looks like one is not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from paimon_cli import Table
from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import fresh_identity
from paimon_cli.errors import UsageError
from paimon_cli.history.live_files import bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants.anomalies import LIKELY, PROVEN, UNTOLD, Anomaly
from paimon_cli.invariants.past_commits import PastCommits
from paimon_cli.invariants.past_questions import CompactionChain, in_groups
from paimon_cli.invariants.past_rows import KeyTally
from paimon_cli.metadata.data_file import CommitMessage, FileChanges
from paimon_cli.pieces import PIECES
from paimon_cli.storage.injected import SystemClock
from tests.commit.commit_tables import SteppingClock
from tests.jobs.test_snapshot_ordering import row, written
from tests.tables import Row, compact, make_table, write

COLUMNS = {"k": "INT NOT NULL", "v": "INT", "w": "INT"}


def table(folder: Path, **options: str) -> TableContext:
    return make_table(folder / "t", COLUMNS, ["k"], options={"write-only": "true", **options})


def commit(context: TableContext, messages: Sequence[CommitMessage]) -> None:
    Committer(context).commit(messages, fresh_identity(context))


def found(context: TableContext, **options: Any) -> dict[str, Anomaly]:
    """The findings, by rule: one of each."""
    told = [a for a in Table.open(context.url).history_check(**options) if a.certainty != UNTOLD]
    by_rule = {anomaly.rule: anomaly for anomaly in told}
    assert len(by_rule) == len(told), told
    return by_rule


def beside_each_other(context: TableContext, folder: Path, one: Sequence[Row], other: Sequence[Row]) -> None:
    """Two commits that begin from the same version."""
    first, second = written(context, one, folder), written(context, other, folder)
    commit(context, first)
    commit(context, second)


def removed(context: TableContext, *levels: int) -> None:
    """A compaction that loses the newest file of each of these levels."""
    (bucket,) = bucket_files(context, context.snapshots.latest()).values()
    files = tuple([file for file in bucket.files if file.level == level][-1] for level in levels)
    commit(context, [CommitMessage(bucket.partition, 0, 1, compact=FileChanges(removed=files))])


def test_a_lost_update(tmp_path: Path) -> None:
    context = table(tmp_path)
    write(context, [row(0, 0)])
    beside_each_other(context, tmp_path, [row(1, 1), row(3, 1)], [row(2, 2), row(3, 2), row(4, 2)])
    lost = found(context)["lost-update"]
    assert (lost.certainty, lost.key, lost.snapshots, len(set(lost.users))) == (PROVEN, "k = 3", (2, 3), 2)
    assert "lost-update" in found(context, key={"k": 3}) and not found(context, key={"k": 0})
    assert "lost-update" not in found(context, key={"k": 2})


def test_keys_that_are_null(tmp_path: Path) -> None:
    """Their ranges in manifests begin with null, which is less than all values."""
    context = make_table(tmp_path / "t", {"k": "INT", "v": "INT"}, ["k"], bucket=2, options={"primary-key.nullable": "true"})
    write(context, [{"k": k, "v": 0} for k in (None, *range(6))])
    write(context, [{"k": k, "v": 1} for k in (None, 3)])
    assert not found(context) and not found(context, key={"k": None})


def test_ranges_that_overlap_share_no_key(tmp_path: Path) -> None:
    context = table(tmp_path)
    beside_each_other(context, tmp_path, [row(1, 1), row(3, 1)], [row(2, 2), row(4, 2)])
    assert set(found(context)) == {"writers-beside-each-other"}
    assert found(context, level="meta")["lost-update"].certainty == LIKELY


def test_what_happened_before_a_point_in_time_is_left_out(tmp_path: Path) -> None:
    clock = SteppingClock(SystemClock().now_millis() - 10 * 86_400_000)
    context = replace(table(tmp_path), clock=clock)
    beside_each_other(context, tmp_path, [row(1, 1)], [row(1, 2)])
    assert "lost-update" in found(context)
    write(context, [row(2, 1)])
    for age, is_told in (("1 d", False), ("30 d", True)):
        assert ("lost-update" in found(context, since=age)) == is_told


def test_a_slow_writer_is_compared_with_all_commits_since(tmp_path: Path) -> None:
    context = table(tmp_path)
    slow = written(context, [row(1, 9)], tmp_path)
    for value in (1, 2):
        write(context, [row(5, value), *([row(1, 0)] if value == 1 else [])])
    commit(context, slow)
    told = Table.open(context.url).history_check(rule=["lost-update", "writers-beside-each-other"])
    assert [(a.rule, a.snapshots) for a in told] == [
        ("lost-update", (1, 3)),
        ("writers-beside-each-other", (1, 3)),
        ("writers-beside-each-other", (2, 3)),
    ]


@pytest.mark.parametrize("number", [0, 1])
def test_merge_disorder(tmp_path: Path, number: int) -> None:
    """The row that was there has this sequence number, and the new one 0: not even an equal one replaces it for sure."""
    context = table(tmp_path)
    there = [row(1, 2), row(0, 0)] if number == 0 else [row(0, 0), row(1, 2)]
    early, late = written(context, [row(1, 1)], tmp_path), written(context, there, tmp_path)
    commit(context, late)
    commit(context, early)
    disorder = found(context)["merge-disorder"]
    assert (disorder.certainty, disorder.key, disorder.snapshots) == (PROVEN, "k = 1", (1, 2))


def test_a_deletion_that_another_writer_had_not_read(tmp_path: Path) -> None:
    context = table(tmp_path)
    write(context, [row(1, 0)])
    upsert = written(context, [row(1, 5)], tmp_path)
    write(context, [{"k": 1}], op="delete")
    commit(context, upsert)
    back = found(context)["row-came-back"]
    assert (back.certainty, back.key, back.snapshots) == (LIKELY, "k = 1", (2, 3))


def test_a_row_that_a_compaction_brought_back(tmp_path: Path) -> None:
    context = table(tmp_path)
    write(context, [row(1, 1), row(2, 2)])
    compact(context, strategy="full")
    write(context, [{"k": 1}], op="delete")
    assert not found(context)
    removed(context, 0)
    (only,) = found(context).values()
    assert (only.rule, only.certainty, only.key, only.snapshots) == ("row-came-back", PROVEN, "k = 1", (4,))
    assert found(context, key={"k": 1}) and not found(context, key={"k": 2})


def test_a_compaction_that_changed_rows(tmp_path: Path) -> None:
    context = table(tmp_path)
    write(context, [row(1, 1), row(2, 2), row(3, 3)])
    compact(context, strategy="full")
    write(context, [row(1, 9)])
    removed(context, 0)
    assert found(context)["compaction-changed-rows"].key == "k = 1"
    write(context, [row(7, 7)])
    removed(context, 0)
    told = Table.open(context.url).history_check()
    assert [(a.rule, a.key, a.snapshots) for a in told] == [
        ("compaction-changed-rows", "k = 1", (4,)),
        ("compaction-changed-rows", "k = 7", (6,)),
    ]


def test_without_rows_what_a_compaction_did_is_untold(tmp_path: Path) -> None:
    context = table(tmp_path)
    for value in range(2):
        write(context, [row(1, value)])
    assert Table.open(context.url).history_check(level="meta") == []
    compact(context, strategy="full")
    told = Table.open(context.url).history_check(level="meta")
    assert {(a.rule, a.certainty) for a in told} == {("row-came-back", UNTOLD), ("compaction-changed-rows", UNTOLD)}
    assert Table.open(context.url).history_check() == []


def test_compactions_of_a_long_history_are_compared_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = table(tmp_path)
    for number in range(9):
        write(context, [row(k, number) for k in (number, 50)])
        if number == 6:
            write(context, [row(99, 1)])
            removed(context, 0)
        compact(context, strategy="full")
    alone = Table.open(context.url).history_check()
    assert [(a.rule, a.key) for a in alone] == [("compaction-changed-rows", "k = 99")]
    monkeypatch.setattr(PIECES, "compactions_one_by_one", 0)
    monkeypatch.setattr(PIECES, "compactions_together", 4)
    walked = list(PastCommits(TableContext.open(context.url)).findings())
    groups = in_groups([each for each in walked if not isinstance(each, Anomaly)])
    assert [len(group.members) for group in groups if isinstance(group, CompactionChain)] == [4, 4, 2]
    assert Table.open(context.url).history_check() == alone


@pytest.mark.parametrize("vectors", ["true", "false"])
def test_right_compactions(tmp_path: Path, vectors: str) -> None:
    context = table(tmp_path, **{"deletion-vectors.enabled": vectors, "num-sorted-run.compaction-trigger": "2"})
    for number in range(6):
        write(context, [row(k, number) for k in range(number, number + 4)])
        write(context, [{"k": number}], op="delete")
        compact(context, strategy="minor" if number % 3 else "full")
    assert not found(context)


def test_a_rescale_moves_rows_and_changes_none(tmp_path: Path) -> None:
    context = table(tmp_path)
    for value in range(2):
        write(context, [{"k": key, "v": value, "w": 0} for key in range(20)])
    for buckets in (4, 2, 1):
        Table.open(context.url).rescale(buckets)
    assert not found(context)


def test_rows_that_a_compaction_of_an_append_table_lost(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, [], bucket=-1)
    write(context, [row(1, 1), row(2, 2)])
    removed(context, 0)
    assert found(context)["compaction-changed-rows"].snapshots == (2,)


@pytest.mark.parametrize(("key", "bucket"), [([], -1), (["k"], 1)])
def test_vectors_that_a_compaction_alone_changed(tmp_path: Path, key: list[str], bucket: int) -> None:
    context = make_table(tmp_path / "t", COLUMNS, key, bucket=bucket, options={"deletion-vectors.enabled": "true"})
    write(context, [row(k, k) for k in range(9)])
    Table.open(context.url).delete("k = 0")
    other = TableContext.open(str(shutil.copytree(tmp_path / "t", tmp_path / "other")))
    Table.open(other.url).delete("k = 1")
    shutil.copytree(tmp_path / "other" / "index", tmp_path / "t" / "index", dirs_exist_ok=True)
    (marked,), (hidden,) = (bucket_files(each, each.snapshots.latest()).values() for each in (context, other))
    change = FileChanges(added_indexes=hidden.index_files, removed_indexes=marked.index_files)
    commit(context, [CommitMessage(marked.partition, marked.bucket, 1, compact=change)])
    assert found(context)["compaction-changed-rows"].snapshots == (context.snapshots.latest_id(),)


def test_a_file_that_is_live_again(tmp_path: Path) -> None:
    context = table(tmp_path)
    write(context, [row(1, 1)])
    ((bucket_id, bucket),) = bucket_files(context, context.snapshots.latest()).items()
    write(context, [row(1, 1)])
    compact(context, strategy="full")
    write(context, [row(1, 2)])
    write(context, [{"k": 1}], op="delete")
    compact(context, strategy="full")
    commit(context, [CommitMessage(*bucket_id, 1, append=FileChanges(added=bucket.files))])
    again = found(context, rule="row-came-back")["row-came-back"]
    assert (again.certainty, again.snapshots, again.files) == (PROVEN, (3, 7), (bucket.files[0].file_name,))


def test_a_file_that_is_added_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of files is committed again, which is no lost update: nobody wrote beside another."""
    context = table(tmp_path)
    write(context, [row(1, 1)])
    ((bucket_id, bucket),) = bucket_files(context, context.snapshots.latest()).items()
    monkeypatch.setattr(Committer, "_check", lambda *_: None)
    commit(context, [CommitMessage(*bucket_id, 1, append=FileChanges(added=bucket.files))])
    (only,) = found(context).values()
    names = tuple(file.file_name for file in bucket.files)
    assert (only.rule, only.certainty, only.snapshots, only.files) == ("shared-file", PROVEN, (1, 2), names)
    assert found(context, key={"k": 1}) and not found(context, key={"k": 2})


def graft(source: TableContext, target: TableContext, monkeypatch: pytest.MonkeyPatch, buckets: int | None = None) -> None:
    """Commit the newest files of one table to another, as a job that checks nothing would."""
    monkeypatch.setattr(Committer, "_check", lambda *_: None)
    newest = source.snapshots.latest()
    assert newest is not None
    for entry in source.manifests.delta_entries(newest):
        path = Path(target.data_file_path(entry.partition, entry.bucket, entry.file))
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source.data_file_path(entry.partition, entry.bucket, entry.file), path)
        message = CommitMessage(*entry.bucket_id, buckets or entry.total_buckets, append=FileChanges(added=(entry.file,)))
        commit(target, [message])


def test_a_key_in_two_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = make_table(tmp_path / "t", {"p": "STRING", "k": "INT NOT NULL"}, ["k"], ["p"], -1)
    write(context, [{"p": "a", "k": 1}, {"p": "a", "k": 2}])
    assert not found(context)
    copy = TableContext.open(str(shutil.copytree(context.url, tmp_path / "copy")))
    write(copy, [{"p": "a", "k": 7}])
    write(context, [{"p": "b", "k": 7}])
    graft(copy, context, monkeypatch)
    two = found(context)["key-in-two-places"]
    assert (two.certainty, two.key) == (PROVEN, "k = 7")
    assert "key-in-two-places" in found(context, key={"k": 7}) and not found(context, key={"k": 1})


def test_mixed_numbers_of_buckets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = table(tmp_path)
    write(context, [row(k, 1) for k in range(8)])
    more = make_table(tmp_path / "more", COLUMNS, ["k"], bucket=3)
    write(more, [row(k, 2) for k in range(8)])
    graft(more, context, monkeypatch)
    told = Table.open(context.url).history_check()
    assert {"bucket-counts-mixed", "key-in-two-places"} <= {a.rule for a in told if a.certainty == PROVEN}


def test_rows_of_another_bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["k"], bucket=2)
    write(context, [row(k, 1) for k in range(8)])
    one = make_table(tmp_path / "one", COLUMNS, ["k"])
    write(one, [row(k, 2) for k in range(20, 28)])
    graft(one, context, monkeypatch, buckets=2)
    elsewhere = found(context, rule="key-in-two-places")["key-in-two-places"]
    assert elsewhere.certainty == LIKELY and elsewhere.files


def test_a_snapshot_that_another_one_replaced(tmp_path: Path) -> None:
    """Two writers publish snapshot 2, and the second replaces that of the first, as a rename does."""
    context = table(tmp_path)
    write(context, [row(1, 1)])
    assert not found(context)
    other = TableContext.open(str(shutil.copytree(context.url, tmp_path / "copy")))
    write(context, [row(2, 2)])
    write(other, [row(3, 3)])
    shutil.copytree(other.url, context.url, dirs_exist_ok=True)
    replaced = found(context)["snapshot-overwritten"]
    published = (Path(context.url) / "snapshot/snapshot-2").stat().st_mtime  # not before the commit that it replaced
    assert other.snapshots.get(2).time_millis <= 1000 * published
    assert replaced.certainty == LIKELY and "1 row was" in replaced.message
    write(context, [row(4, 4)])
    assert set(found(context)) == {"snapshot-overwritten"}


def test_a_snapshot_file_that_is_missing_or_holds_another_snapshot(tmp_path: Path) -> None:
    context = table(tmp_path)
    for number in range(1, 5):
        write(context, [row(number, number)])
    assert not found(context)
    third = Path(context.url, "snapshot/snapshot-3")
    text = third.read_text()
    third.unlink()
    untold = [each for each in Table.open(context.url).history_check() if each.certainty == UNTOLD]
    assert len(untold) == 12 and {each.message for each in untold} == {"1 snapshot from 3 on, between others, cannot be found"}
    third.write_text(Path(context.url, "snapshot/snapshot-2").read_text())
    untold = [each for each in Table.open(context.url).history_check() if each.certainty == UNTOLD]
    assert len(untold) == 12 and all(f"{third} cannot be read" in each.message for each in untold)
    third.write_text(text)
    assert not found(context)


def test_what_changelogs_still_tell(tmp_path: Path) -> None:
    """A changelog keeps the commit of a snapshot that has expired, so its time and identifier."""
    context = table(tmp_path, **{"changelog-producer": "input"})
    root = Path(context.url)
    for number in range(4):
        write(context, [row(number, number)])
    (root / "changelog").mkdir()
    for number in (1, 2):
        facts = json.loads((root / f"snapshot/snapshot-{number}").read_text())
        (root / f"changelog/changelog-{number}").write_text(json.dumps({**facts, "timeMillis": 10 - number}))
        (root / f"snapshot/snapshot-{number}").unlink()
    (root / "snapshot/EARLIEST").write_text("3")
    told = Table.open(context.url).history_check()
    assert [(a.rule, a.snapshots) for a in told if a.certainty != UNTOLD] == [("clock-ran-back", (1, 2))]
    untold = {a.rule: a for a in told if a.certainty == UNTOLD}
    assert "clock-ran-back" not in untold and "lost-update" in untold
    facts = json.loads((root / "changelog/changelog-2").read_text())
    (root / "changelog/changelog-2").write_text(json.dumps({**facts, "timeMillis": 10**14}))
    told = Table.open(context.url).history_check(rule="clock-ran-back")
    assert [(a.rule, a.snapshots) for a in told] == [("clock-ran-back", (2, 3))]
    assert "snapshot.num-retained.min" in untold["lost-update"].prevention


def test_keys_of_all_batches_are_counted() -> None:
    tally = KeyTally(["k"])
    for key in (3, 5, 7):
        tally.add(1, pa.record_batch([pa.array([key, 0])], ["k"]), np.array([True, False]))
    assert tally.text(1) == "3 keys, such as k = 3" and not tally.text(2)


def test_unknown_rules_and_keys(tmp_path: Path) -> None:
    context = table(tmp_path)
    write(context, [row(1, 1)])
    with pytest.raises(UsageError, match="there is no rule 'lost'"):
        Table.open(context.url).history_check(rule="lost")
    with pytest.raises(UsageError, match="'v' is not a key column"):
        Table.open(context.url).history_check(key={"v": 1})


def test_a_file_that_two_buckets_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its path, so that its rows are live twice although no bucket has it twice."""
    context = make_table(tmp_path / "t", COLUMNS, ["k"], bucket=2)
    write(context, [row(1, 1)])
    ((bucket_id, bucket),) = bucket_files(context, context.snapshots.latest()).items()
    (file,) = bucket.files
    again = replace(file, external_path=context.data_file_path(*bucket_id, file))
    monkeypatch.setattr(Committer, "_check", lambda *_: None)
    commit(context, [CommitMessage(bucket.partition, 1 - bucket.bucket, 2, append=FileChanges(added=(again,)))])
    shared = found(context, rule="shared-file")["shared-file"]
    assert (shared.certainty, shared.snapshots, shared.files) == (PROVEN, (1, 2), (file.file_name,))
