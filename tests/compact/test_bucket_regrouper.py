"""Splitting and merging buckets: no row changes, no run either, and what is still due afterwards comes to the same results."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paimon_cli import Table
from paimon_cli.bucket.data_file_reader import read_data_file
from paimon_cli.bucket.stamped_files import new_stamp
from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import fresh_identity
from paimon_cli.compact import bucket_regrouper
from paimon_cli.compact.bucket_regrouper import RegroupTask, regroup_buckets, regroup_tasks
from paimon_cli.datatypes.bucket_functions import row_buckets
from paimon_cli.errors import DamagedFile, FilesConflict, PaimonError
from paimon_cli.history.live_files import BucketFiles, bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants.check import check_table
from paimon_cli.jobs.bucket_regroup import can_regroup, regroup
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.table_change import NewFiles
from paimon_cli.lsm.sort_merge import merge_sorted_runs
from paimon_cli.metadata.data_file import EMPTY_ROW, BucketId, CommitMessage
from paimon_cli.metadata.data_file_schema import SEQUENCE_NUMBER, VALUE_KIND
from paimon_cli.metadata.snapshot import Snapshot
from tests.nightly import at_night
from tests.pieces import injected
from tests.tables import Row, compact, data_files, make_table, named_files, rows, write

COLUMNS = {"k": "INT NOT NULL", "n": "INT", "v": "STRING"}
POSTPONED = {"postpone.batch-write-fixed-bucket": "false", "postpone.default-bucket-num": "2"}
KINDS: list[dict[str, str]] = [
    {},
    {"sequence.field": "n"},
    {"merge-engine": "partial-update", "ignore-delete": "true"},
    {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"},
    {"merge-engine": "first-row", "ignore-delete": "true"},
    {"deletion-vectors.enabled": "true"},
    {"changelog-producer": "input"},
    {"changelog-producer": "lookup"},
    {"changelog-producer": "full-compaction"},
    {"file.format": "orc", "file.format.per.level": "0:avro"},
    {"file-index.bloom-filter.columns": "n", "file.compression": "zstd"},
]


def table(folder: Path, options: Mapping[str, str], bucket: int = -2) -> TableContext:
    own = {**(POSTPONED if bucket == -2 else {}), "num-sorted-run.compaction-trigger": "3", **options}
    return make_table(folder, COLUMNS, ["k"], bucket=bucket, options=own)


def put(context: TableContext, seed: int, commits: int = 4, **request: Any) -> None:
    draw = random.Random(seed)
    deletes = context.options.raw.get("merge-engine") not in ("first-row", "partial-update", "aggregation")
    for number in range(commits):
        given = [
            {"k": draw.randrange(60), "n": number, "v": draw.choice([None, f"{number}"])}
            | ({"_op": draw.choice(["+I", "+I", "-D"])} if deletes else {})
            for _ in range(25)
        ]
        write(context, given, **request)


def state(context: TableContext) -> dict[BucketId, BucketFiles]:
    return {key: bucket for key, bucket in bucket_files(context, context.snapshots.latest()).items() if bucket.bucket >= 0}


def stored(context: TableContext) -> Counter[tuple[Any, ...]]:
    """All stored rows with their level, file source, number and kind, in whichever buckets."""
    found: Counter[tuple[Any, ...]] = Counter()
    for bucket in state(context).values():
        for file in bucket.files:
            for batch in read_data_file(context, bucket.bucket_id, file, [SEQUENCE_NUMBER, VALUE_KIND, "k", "n", "v"], 1000):
                found.update((file.level, file.file_source, *map(str, row.values())) for row in batch.to_pylist())
    return found


def change(context: TableContext, count: int, merges: bool = False, engine: LocalEngine | None = None) -> Snapshot:
    new_files, latest = NewFiles(context, new_stamp(context)), context.snapshots.latest()
    assert latest is not None
    found = regroup(new_files, latest, {EMPTY_ROW: count}, engine or LocalEngine(2), NoProgress(), merges)
    messages = [message for of_partition in found.values() for message in of_partition]
    publish = Committer(context).commit
    (snapshot,) = new_files.commit(messages, lambda: publish(messages, fresh_identity(context))).snapshots
    return snapshot


@pytest.mark.in_part(12)
@pytest.mark.parametrize("options", KINDS, ids=lambda options: ",".join(options.values()) or "plain")
@pytest.mark.parametrize("seed", [1, at_night(2)])
def test_no_row_and_no_run_changes(options: dict[str, str], seed: int, tmp_path: Path) -> None:
    context, other = table(tmp_path / "t", options), table(tmp_path / "u", options)
    for one in (context, other):
        for commits in (2, 2):
            put(one, seed, commits)
            compact(one)
        put(one, seed + 9, 1)
    counts = [8, 4, 1, 3]
    for count in counts:
        before, runs, vectors = rows(context), stored(context), context.mode.deletion_vectors
        snapshot = change(context, count)
        assert rows(context) == before
        assert stored(context) <= runs if vectors else stored(context) == runs, "only what vectors mark is left out"
        assert snapshot.commit_kind == "COMPACT" and snapshot.changelog_manifest_list is None
        assert {bucket.total_buckets for bucket in state(context).values()} == {count}
        assert data_files(context) >= named_files(context)
    assert not list(check_table(context, rows=True))
    for one in (context, other):  # the rows that wait, and what is due, come to the same
        compact(one, strategy="full")
    assert rows(context) == rows(other)
    assert not list(check_table(context, rows=True))


def test_a_stream_and_a_difference_see_nothing(tmp_path: Path) -> None:
    context = table(tmp_path / "t", {"changelog-producer": "lookup"})
    put(context, 3)
    compact(context)
    reader = Table.open(context.url)
    before = context.snapshots.latest_id()
    assert before is not None
    reader.tags.create("before")
    seen = reader.scan().to_arrow().sort_by("k")
    after = change(context, 8).id
    assert Table.open(context.url).changelog(after).to_arrow().num_rows == 0
    assert Table.open(context.url).scan(incremental=f"{before}..{after}").to_arrow().num_rows == 0
    assert Table.open(context.url).scan(tag="before").to_arrow().sort_by("k") == seen


@pytest.mark.parametrize(
    "engine", [{}, {"sequence.field": "n"}, {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}]
)
def test_what_is_due_is_merged_on_the_way(engine: dict[str, str], tmp_path: Path) -> None:
    context = table(tmp_path / "t", {"write-only": "true", **engine}, bucket=1)
    put(context, 5, 5)
    before, count = rows(context), sum(stored(context).values())
    change(context, 4, merges=True)
    assert rows(context) == before and sum(stored(context).values()) < count
    assert {file.level for bucket in state(context).values() for file in bucket.files} == {context.options.num_levels - 1}
    assert not list(check_table(context, rows=True))


def test_merges_are_left_to_compactions_that_report_them(tmp_path: Path) -> None:
    context = table(tmp_path / "t", {"write-only": "true", "changelog-producer": "lookup"}, bucket=1)
    put(context, 5, 5)
    runs = stored(context)
    change(context, 2, merges=True)
    assert stored(context) == runs


def test_flushes_of_one_commit_keep_their_order(tmp_path: Path) -> None:
    """With `sequence.snapshot-ordering` the names of the files say which flush came later."""
    context = table(tmp_path / "t", {"sequence.snapshot-ordering": "true", "write-only": "true"}, bucket=1)
    for number in range(3):
        write(context, [{"k": k, "n": number, "v": "x"} for k in range(20)])
    write(context, [{"k": k, "n": -1, "v": "x"} for k in range(5)])
    before = rows(context)
    for count in (4, 2):
        change(context, count)
        assert rows(context) == before
    compact(context, strategy="full")
    assert rows(context) == before and not list(check_table(context, rows=True))


def test_files_keep_their_age(tmp_path: Path) -> None:
    context = table(tmp_path / "t", {}, bucket=1)
    write(context, [{"k": k, "n": 1, "v": "x"} for k in range(9)])
    ages = {file.creation_time_millis for bucket in state(context).values() for file in bucket.files}
    change(context, 2)
    assert {file.creation_time_millis for bucket in state(context).values() for file in bucket.files} == ages


@pytest.mark.parametrize("pieces", [3, at_night(1)])
def test_small_pieces(pieces: int, tmp_path: Path) -> None:
    context = table(tmp_path / "t", {"target-file-size": "2 kb"}, bucket=2)
    put(context, 7, 3)
    before, runs = rows(context), stored(context)
    with injected(pieces):
        change(context, 16)
        change(context, 2)
    assert (rows(context), stored(context)) == (before, runs)


@pytest.mark.parametrize(("present", "wanted", "fits"), [(2, 6, True), (6, 2, True), (4, 6, False), (-1, 4, False), (1, 5, True)])
def test_one_count_must_divide_the_other(present: int, wanted: int, fits: bool, tmp_path: Path) -> None:
    context = table(tmp_path / "t", {}, bucket=2)
    assert can_regroup(context, present, wanted) == fits
    held = [BucketFiles(EMPTY_ROW, number, present, ()) for number in range(abs(present))]
    if fits:
        tasks = regroup_tasks(held, wanted, 1, "")
        assert len(tasks) == min(present, wanted)
        assert sorted(target for task in tasks for target in task.targets) == list(range(wanted))
    elif present > 0:
        with pytest.raises(ValueError, match="4 buckets cannot be split or merged into 6"):
            regroup_tasks(held, wanted, 1, "")


def test_keyless_tables_are_routed_anew(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, [], bucket=2, options={"bucket-key": "k"})
    assert not can_regroup(context, 2, 4)


def task_of(context: TableContext, count: int) -> RegroupTask:
    latest = context.snapshots.latest()
    assert latest is not None
    (task,) = regroup_tasks(list(state(context).values()), count, latest.id, new_stamp(context), merges=False)
    return task


def test_a_task_that_fails_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = table(tmp_path / "t", {}, bucket=1)
    put(context, 2, 2)
    files, calls = data_files(context), iter(range(100))
    with pytest.raises(CancelledError):
        regroup_buckets(context, task_of(context, 4), lambda: next(calls) > 0)
    assert data_files(context) == files
    real = row_buckets
    monkeypatch.setattr(bucket_regrouper, "row_buckets", lambda *given: np.where(real(*given) == 1, 7, real(*given)))
    with pytest.raises(DamagedFile, match="holds rows of other buckets"):
        regroup_buckets(context, task_of(context, 4))
    assert data_files(context) == files


def test_rows_of_other_buckets_are_noticed_where_buckets_become_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = table(tmp_path / "t", {}, bucket=4)
    put(context, 2, 1)
    _, odd = regroup_tasks(list(state(context).values()), 2, 1, new_stamp(context), merges=False)
    files = data_files(context)
    monkeypatch.setattr(bucket_regrouper, "row_buckets", lambda *given: np.minimum(row_buckets(*given), 0))
    with pytest.raises(DamagedFile, match="holds rows of other buckets"):
        regroup_buckets(context, odd)
    assert data_files(context) == files


def test_a_lost_row_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = table(tmp_path / "t", {}, bucket=1)
    put(context, 2, 2)
    files = data_files(context)
    real = merge_sorted_runs
    monkeypatch.setattr(bucket_regrouper, "merge_sorted_runs", lambda *given: (batch.slice(1) for batch in real(*given)))
    with pytest.raises(PaimonError, match="rows became"):
        regroup_buckets(context, task_of(context, 2))
    assert data_files(context) == files


def committed(context: TableContext, messages: list[CommitMessage]) -> None:
    Committer(context).commit(messages, fresh_identity(context))


@pytest.mark.parametrize("beside", ["write", "delete", "compact"])
def test_a_commit_to_the_old_buckets_is_a_conflict(beside: str, tmp_path: Path) -> None:
    context = table(tmp_path / "t", {"deletion-vectors.enabled": "true"}, bucket=2)
    put(context, 2, 2)
    compact(context, strategy="full")
    latest = context.snapshots.latest()
    assert latest is not None
    tasks = regroup_tasks(list(state(context).values()), 4, latest.id, new_stamp(context))
    messages = [message for task in tasks for message in regroup_buckets(context, task)]
    given: list[Row] = [{"k": 1, "n": 5, "v": "new"}]
    if beside == "compact":
        write(context, given)
        compact(context, strategy="full")
    else:
        write(context, given, op="upsert" if beside == "write" else "delete")
    before = rows(context)
    with pytest.raises(FilesConflict):
        committed(context, messages)
    assert rows(context) == before, json.dumps(before)
