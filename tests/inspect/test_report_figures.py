"""The figures of `report` and `watch`: the state at each snapshot of the history, and the current one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from paimon_cli import Table
from paimon_cli.errors import DamagedFile, NotFound, UsageError
from paimon_cli.history.live_files import BucketFiles
from paimon_cli.inspect import report_figures as module
from paimon_cli.inspect.report_figures import _bucket_name, _debt, _history, _is_random, _levels, _State, table_state
from paimon_cli.metadata.data_file import EMPTY_ROW, DataFileMeta, EntryKind, ManifestEntry
from paimon_cli.metadata.table_layout import POSTPONE_BUCKET
from tests.commit.commit_tables import data_file
from tests.tables import make_table, write

ADD, DELETE = EntryKind.ADD, EntryKind.DELETE


def file(name: str, level: int, size: int, sequence: int = 0) -> DataFileMeta:
    return replace(data_file(name, level=level), file_size=size, min_sequence_number=sequence)


def entry(kind: int, of: DataFileMeta, bucket: int = 0) -> ManifestEntry:
    return ManifestEntry(kind, EMPTY_ROW, bucket, 1, of)


def bucket(number: int, *files: DataFileMeta) -> BucketFiles:
    return BucketFiles(EMPTY_ROW, number, 1, files)


def snapshot(number: int) -> Any:
    return SimpleNamespace(id=number, time_millis=10 * number, commit_kind="APPEND")


def figures(state: _State) -> tuple[Any, ...]:
    found = state.moment(snapshot(1))
    return found.files, found.size, found.most_runs, found.mean_runs, found.space_percent


OLD, TOP = file("old", 0, 40, sequence=1), file("top", 5, 100)
NEW = file("new", 0, 10, sequence=9)


def test_the_state_before_a_commit_is_that_without_its_changes() -> None:
    waiting = bucket(POSTPONE_BUCKET, file("waits", 0, 1000))
    state = _State([bucket(0, TOP, file("mid", 4, 20), OLD, NEW), bucket(1, OLD, NEW), waiting], has_keys=True)
    assert figures(state) == (7, 1220, 4, 3.0, (220 - 140) * 100 // 140)
    state.undo([entry(ADD, NEW), entry(ADD, NEW, 1)])
    assert figures(state) == (5, 1200, 3, 2.0, (200 - 140) * 100 // 140)
    state.undo([entry(DELETE, file("gone", 5, 60), 2), entry(ADD, OLD, 1)])
    assert figures(state) == (5, 1220, 3, 2.0, (220 - 160) * 100 // 160), "a bucket has come, and another one has gone"
    state.undo([entry(ADD, file("waits", 0, 1000), POSTPONE_BUCKET), entry(ADD, file("unknown", 0, 7))])
    assert figures(state) == (4, 220, 3, 2.0, 37)


def test_a_file_that_changed_its_level_is_counted_once() -> None:
    upgraded = replace(OLD, level=5)
    state = _State([bucket(0, upgraded)], has_keys=True)
    state.undo([entry(DELETE, OLD), entry(ADD, upgraded)])
    assert figures(state) == (1, 40, 1, 1.0, 0)
    state.undo([entry(DELETE, OLD), entry(DELETE, NEW)])
    state.undo([entry(DELETE, OLD)])
    assert figures(state) == (2, 50, 2, 2.0, 25), "a file that is there does not return twice"
    state.undo([entry(ADD, OLD), entry(ADD, NEW)])
    assert figures(state) == (0, 0, 0, 0.0, 0)


def test_the_oldest_run_is_the_whole_highest_level_or_the_first_file() -> None:
    levels = [bucket(number, TOP, file("next", 5, 30, sequence=2), file("mid", 4, 20, sequence=5), NEW) for number in (0, 1)]
    assert figures(_State(levels, has_keys=True)) == (8, 320, 3, 3.0, (160 - 130) * 100 // 130)
    assert figures(_State([bucket(0, NEW, OLD)], has_keys=True)) == (2, 50, 2, 2.0, 25)


def test_changes_are_undone_from_the_last_to_the_first() -> None:
    state = _State([], has_keys=True)
    state.undo([entry(DELETE, OLD), entry(ADD, OLD)])
    assert figures(state)[:2] == (1, 40)
    state.undo([entry(ADD, OLD), entry(DELETE, OLD)])
    assert figures(state)[:2] == (0, 0)


def test_append_tables_have_no_sorted_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert figures(_State([bucket(0, OLD, NEW)], has_keys=False)) == (2, 50, None, None, None)
    context: Any = SimpleNamespace()
    monkeypatch.setattr(module, "partition_text", lambda context, partition: "")
    found = _levels(context, bucket(3, OLD, NEW, TOP, file("more", 5, 1)), False)
    assert (found.bucket, found.runs, found.files, found.size) == ("bucket 3", None, 4, 151)
    assert (found.size_by_level, found.files_by_level) == ({0: 50, 5: 101}, {0: 2, 5: 2})
    assert _levels(context, bucket(POSTPONE_BUCKET, OLD), True).runs is None
    assert _levels(context, bucket(0, OLD, NEW, TOP), True).runs == 3


def test_buckets_are_named_by_partition_and_number(monkeypatch: pytest.MonkeyPatch) -> None:
    context: Any = SimpleNamespace()
    monkeypatch.setattr(module, "partition_text", lambda context, partition: "dt=a" if partition else "")
    named = [replace(bucket(number), partition=partition) for number in (7, POSTPONE_BUCKET) for partition in (b"x", b"")]
    assert [_bucket_name(context, each) for each in named] == [
        "dt=a / bucket 7",
        "bucket 7",
        "dt=a / waiting for buckets",
        "waiting for buckets",
    ]


def history_of(changes: dict[int, Any], *ids: int) -> tuple[list[tuple[Any, ...]], str]:
    """The history of snapshots with these ids, newest first, whose changes are entries or an error."""

    def delta_entries(of: Any) -> list[ManifestEntry]:
        found = changes[of.id]
        if isinstance(found, Exception):
            raise found
        return list(found)

    context: Any = SimpleNamespace(manifests=SimpleNamespace(delta_entries=delta_entries))
    moments, ends = _history(context, [snapshot(one) for one in ids], [bucket(0, TOP, NEW)], True)
    return [(one.snapshot_id, one.files, one.written_rows, one.written_bytes, one.millis) for one in moments], ends


COMPACT = [entry(DELETE, OLD), entry(DELETE, file("b", 0, 5)), entry(ADD, TOP)]


def test_history_is_oldest_first_with_what_each_commit_wrote() -> None:
    changes = {4: [entry(ADD, NEW)], 3: COMPACT, 2: [entry(ADD, OLD), entry(ADD, file("b", 0, 5))]}
    assert history_of(changes, 4, 3, 2) == ([(2, 2, 20, 45, 20), (3, 1, 10, 100, 30), (4, 2, 10, 10, 40)], "")
    assert history_of({}) == ([], "")


@pytest.mark.parametrize("problem", [DamagedFile("it is cut"), NotFound("it is gone")])
def test_a_history_ends_at_changes_that_cannot_be_read(problem: Exception) -> None:
    shown, ends = history_of({4: [entry(ADD, NEW)], 3: problem, 2: []}, 4, 3, 2)
    assert [one[:4] for one in shown] == [(3, 1, None, None), (4, 2, 10, 10)]
    assert ends.startswith("only snapshots from 3 on; the changes of snapshot 3 cannot be read: it is")


def test_a_history_ends_before_a_gap_and_after_so_many_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    changes = {4: [entry(ADD, NEW)], 3: COMPACT, 1: []}
    shown, ends = history_of(changes, 4, 3, 1)
    assert [one[0] for one in shown] == [3, 4]
    assert ends == "only snapshots after snapshot 2, which is missing or damaged"
    monkeypatch.setattr(module, "MAX_CHANGES", 1)
    assert history_of(changes, 4, 3, 1) == ([(4, 2, 10, 10, 40)], "the newest 1 of 3 snapshots")


def test_the_current_state_counts_all_buckets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_BUCKETS", 1)
    options = {"bucket": "2", "write-only": "true", "num-sorted-run.compaction-trigger": "2"}
    keyed = make_table(tmp_path / "keyed", {"id": "INT NOT NULL"}, ["id"], options=options)
    empty = table_state(keyed)
    assert (empty.snapshot_id, empty.files, empty.buckets, empty.most_runs, empty.due, empty.levels) == (None, 0, 0, 0, 0, ())
    for number in range(3):
        write(keyed, [{"id": one} for one in range(20)] if number else [{"id": 1}])
    found = table_state(Table.open(str(tmp_path / "keyed")).context, commits=2)
    files = Table.open(str(tmp_path / "keyed")).files()
    assert (found.snapshot_id, found.buckets, found.most_runs, found.due) == (3, 2, 3, 2)
    assert (found.files, found.size) == (len(files), sum(one.size for one in files)) == (5, found.size)
    assert len(found.levels) == 1 and [one.id for one in found.commits] == [3, 2]
    (tmp_path / "keyed" / "snapshot" / "snapshot-2").write_text("{")
    assert [one.id for one in table_state(Table.open(str(tmp_path / "keyed")).context, commits=9).commits] == [3, 1]
    append = Table.create(str(tmp_path / "append"), schema=pa.schema([("a", pa.int64())]))
    append.write(pa.table({"a": [1]}))
    assert table_state(append.context).most_runs is None


def row(read: int) -> Any:
    return SimpleNamespace(read_bytes=read, write_bytes=2 * read)


def test_debt_is_that_of_all_due_buckets_and_lists_the_largest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_BUCKETS", 2)
    monkeypatch.setattr(module, "decision_rows", lambda context, due: due)
    states = [bucket(0, TOP, NEW), bucket(1, OLD)]
    table: Any = SimpleNamespace(all_buckets=[*states, bucket(POSTPONE_BUCKET, OLD)], buckets=states, context=None)
    table.why_not_compactable, table.decisions, table.due = "it is an external table", [], {}
    found = _debt(table)
    assert (found.refusal, found.due, found.buckets, found.level_0_bytes, found.rows) == ("it is an external table", 0, 3, 50, ())
    table.why_not_compactable, table.decisions = None, ["some"]
    table.due = {number: row(size) for number, size in enumerate((5, 9, 7))}
    found = _debt(table)
    assert (found.due, found.buckets, found.read_bytes, found.write_bytes, found.refusal) == (3, 3, 21, 42, None)
    assert [each.read_bytes for each in found.rows] == [9, 7]


def test_an_option_that_cannot_be_read_is_why_there_is_no_debt() -> None:
    class Unreadable(SimpleNamespace):
        @property
        def why_not_compactable(self) -> str:
            raise UsageError("num-levels=x", "it is no number")

    table: Any = Unreadable(all_buckets=[bucket(0, NEW)], buckets=[bucket(0, NEW)], context=None)
    assert (_debt(table).refusal, _debt(table).level_0_bytes) == ("num-levels=x: it is no number", 10)


def test_random_users_are_uuids_as_jobs_write_them() -> None:
    text = "ed59034d-5efa-4d57-a716-acd8d604b8ef"
    assert [_is_random(user) for user in (text, text.upper(), text.replace("-", ""), "nightly", "")] == [True] + [False] * 4
