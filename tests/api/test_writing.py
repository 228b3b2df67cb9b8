"""What a write, an update, a delete, a merge and a truncation ask of their jobs, before one of these begins."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from paimon_cli import Table
from paimon_cli.errors import DataConflict, NotSupported, PartialSuccess, Refused, StorageUnavailable, UsageError
from paimon_cli.ingest.text_form import TextForm
from paimon_cli.jobs.compact_summary import CompactSummary
from paimon_cli.jobs.merge_job import MergeSummary
from paimon_cli.jobs.update_job import UpdateSummary
from paimon_cli.jobs.write_job import WriteSummary
from paimon_cli.metadata.data_file import BucketId

JOBS = {
    "write": "paimon_cli.jobs.write_job.run_write",
    "stage": "paimon_cli.jobs.staging.stage_job.stage_write",
    "update": "paimon_cli.jobs.update_job.run_update",
    "merge": "paimon_cli.jobs.merge_job.run_merge",
    "compact": "paimon_cli.jobs.compact_job.run_compact",
}
ROWS = pa.table({"k": pa.array([1, 2], pa.int32())})


class Asked(Exception):
    """A job was asked for; `given`: its arguments."""

    def __init__(self, *given: Any) -> None:
        super().__init__()
        self.given = given

    @property
    def check(self) -> str:
        """The data conflict check of the table that it got."""
        return str(self.given[0].options.commit_data_conflict_check)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return table_in(tmp_path / "t")


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs that only say what they were asked for."""

    def asked(*given: Any) -> None:
        raise Asked(*given)

    for job in JOBS.values():
        monkeypatch.setattr(job, asked)


def table_in(path: Path, **options: str) -> Table:
    settings = {name.replace("_", "-").replace("--", "."): value for name, value in options.items()}
    return Table.create(str(path), columns=["k INT NOT NULL", "v INT"], primary_key="k", bucket=1, options=settings)


def asked_by(call: Callable[[], Any]) -> Asked:
    with pytest.raises(Asked) as found:
        call()
    return found.value


CHANGES: dict[str, Callable[..., Any]] = {
    "write": lambda table, **options: table.write(ROWS, **options),
    "stage": lambda table, **options: table.write(ROWS, stage="s.json", **options),
    "update": lambda table, **options: table.update("v = 1", "k = 1", **options),
    "delete": lambda table, **options: table.delete("k = 1", **options),
    "merge": lambda table, **options: table.merge(ROWS, on=["k"], **options).when_matched_delete().execute(),
}

OTHERS: dict[str, Callable[..., Any]] = {
    "plan_write": lambda table, **options: table.plan_write(ROWS, **options),
    "truncate": lambda table: table.plan_truncate().run(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_data_conflict_check_of_the_call_comes_before_that_of_the_table(jobs: None, tmp_path: Path, change: str) -> None:
    table = table_in(tmp_path / "t", commit__data_conflict_check="key")
    calls: list[tuple[dict[str, Any], str]] = [({}, "key"), ({"data_conflict_check": "range"}, "range")]
    for call, found in calls:
        assert asked_by(partial(CHANGES[change], table, **call)).check == found
    if change in ("write", "stage"):
        assert asked_by(lambda: CHANGES[change](table, data_conflict_check="off")).check == "off"
    else:
        for opened, options in ((table, {"data_conflict_check": "off"}), (table.with_options({OPTION: "OFF"}), {})):
            with pytest.raises(UsageError, match="always run with the data conflict check"):
                CHANGES[change](opened, **options)


OPTION = "commit.data-conflict-check"


def test_append_tables_may_be_changed_without_the_check(jobs: None, tmp_path: Path) -> None:
    """Their files and vectors are checked always."""
    table = Table.create(str(tmp_path / "t"), columns=["k INT", "v INT"], options={"deletion-vectors.enabled": "true"})
    for change in (lambda: table.delete("k = 1", data_conflict_check="off"), lambda: table.update("v = 1", "k = 1")):
        assert asked_by(change)


@pytest.mark.parametrize("change", [*CHANGES, "plan_write"])
def test_tasks_do_not_compact_write_only_tables(jobs: None, tmp_path: Path, change: str) -> None:
    table = table_in(tmp_path / "t", write_only="true")
    call = {**CHANGES, **OTHERS}[change]
    if change == "stage":  # which compacts nothing before its commit
        assert asked_by(lambda: call(table))
        return
    for way in ("inline", "async") if change.endswith("write") else ("inline",):
        with pytest.raises(UsageError, match=f"{way}.* on a write-only table"):
            call(table, compact=way)
    if change != "plan_write":
        assert asked_by(lambda: call(table, compact="after")).given[1].compact == "after"


@pytest.mark.parametrize("change", [*CHANGES, "truncate"])
def test_a_storage_without_safe_commits_is_refused_before_a_job_begins(
    jobs: None, table: Table, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*given: Any) -> None:
        raise Refused("no safe commits", "", "")

    monkeypatch.setattr("paimon_cli.storage.guarded_storage.check_commits", refuses)
    with pytest.raises(Refused, match="no safe commits"):
        {**CHANGES, **OTHERS}[change](table)


PLANS: list[Callable[[Table], Any]] = [
    lambda table: table.plan_write(ROWS),
    lambda table: table.plan_update("v = 1", "k = 1"),
    lambda table: table.plan_delete("k = 1"),
    lambda table: table.plan_truncate(),
]


@pytest.mark.parametrize("plan", PLANS)
def test_changes_of_views_are_not_even_planned(table: Table, plan: Callable[[Table], Any]) -> None:
    with pytest.raises(UsageError, match="is a view"):
        plan(Table.open(f"{table.url}$ro"))


def test_the_snapshot_of_a_scan_of_the_same_table_is_what_the_rows_were_read_from(
    jobs: None, table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = table_in(tmp_path / "other")

    def read_snapshot(source: Any, **options: Any) -> int | None:
        found: int | None = asked_by(lambda: table.write(source, **options)).given[1].read_snapshot
        return found

    assert read_snapshot(table.scan(where="k = 1")) == 0, "before the first snapshot, not at the latest one"
    monkeypatch.undo()
    for written in (table, other, other):
        written.write(ROWS)
    for job in JOBS.values():
        monkeypatch.setattr(job, lambda *given: (_ for _ in ()).throw(Asked(*given)))
    assert read_snapshot(table.scan(where="k = 1")) == 1
    assert read_snapshot(table.scan(where="k = 1"), read_snapshot=0) == 0, "the caller knows better"
    assert read_snapshot(other) is None and read_snapshot(ROWS) is None


BUCKETS = (BucketId(b"", 4), BucketId(b"", 2), BucketId(b"x", 4))


def test_a_compaction_after_a_write_is_one_of_all_its_buckets(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller is told of the commit before it; it may take hours, and fail."""
    events: list[Any] = []
    (snapshot,) = table.write(ROWS).snapshots
    written = WriteSummary(snapshots=(snapshot,), touched=BUCKETS, waiting_records=7)
    compacted = CompactSummary()

    def compact(context: Any, request: Any, *given: Any) -> CompactSummary:
        events.append(request)
        return compacted

    monkeypatch.setattr(JOBS["write"], lambda *given: written)
    monkeypatch.setattr(JOBS["compact"], compact)
    monkeypatch.setattr("paimon_cli.jobs.due_compaction.waiting_after", lambda context, *given: len(given[0]))
    done = table.write(ROWS, compact="after", on_written=events.append)
    told, request = events
    assert told is written and (request.strategy, request.bucket) == ("minor", (2, 4))
    assert (done.compaction, done.waiting_records, done.touched) == (compacted, 3, BUCKETS)

    def fails(*given: Any) -> None:
        raise StorageUnavailable("no answer", "", "")

    monkeypatch.setattr(JOBS["compact"], fails)
    with pytest.raises(
        PartialSuccess, match=f"committed as snapshot {snapshot.id}, but the compaction after it failed"
    ) as failure:
        table.write(ROWS, compact="after", on_written=events.append)
    assert events[2] is written and failure.value.details["snapshot_id"] == snapshot.id
    monkeypatch.setattr(JOBS["write"], lambda *given: WriteSummary(already_committed=True))
    assert table.write(ROWS, compact="after").compaction is None, "a repeated write touched nothing"


def test_a_planned_change_runs_only_if_nothing_was_committed_since(table: Table) -> None:
    table.write(ROWS)
    plans = [plan(table) for plan in PLANS[:3]]
    table.write(ROWS)
    for plan in plans:
        with pytest.raises(DataConflict):
            plan.run()
    batches = iter([ROWS.to_batches()[0].slice(at, 1) for at in (0, 1)])  # they can be read once
    assert table.plan_write(batches).run().rows == 2
    with pytest.raises(NotSupported, match="a staged write cannot be planned"):
        table.plan_write(ROWS, stage="s.json")
    with pytest.raises(NotSupported, match="an overwrite cannot be planned"):
        table.plan_write(ROWS, overwrite=True)


def test_a_truncation_is_of_the_partitions_and_the_commit_that_the_call_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table.create(str(tmp_path / "t"), columns=["p INT", "k INT"], partition_by=["p"])
    table.write(pa.table({"p": pa.array([1, 2, 3], pa.int32()), "k": pa.array([1, 2, 3], pa.int32())}))
    asked = list[Any]()
    monkeypatch.setattr("paimon_cli.jobs.metadata_jobs.run_drop", lambda context, *given: asked.append(given))
    chosen: Any = [{"p": 1}, {"p": 2}]
    identity: dict[str, Any] = {"commit_user": "u", "commit_id": 7, "assume_new": True}
    table.plan_truncate(partition=chosen, **identity).run()
    table.drop_partition(chosen, **identity)
    table.truncate(**identity)
    assert [([int(spec["p"]) for spec in specs], plan.rows) for specs, plan, _ in asked] == [([1, 2], 2), ([1, 2], 2), ([], 3)]
    assert {(commit.user, commit.identifier, commit.assume_new) for _, _, commit in asked} == {("u", 7, True)}
    without: list[Any] = [[], {}, [{}], [{"p": 1}, {}]]
    for empty in without:
        with pytest.raises(UsageError, match="no partition"):
            table.drop_partition(empty)


def test_a_merge_is_by_all_of_its_columns(jobs: None, table: Table) -> None:
    merge = table.merge(pa.table({"k": [1], "v": [2]}), on=["k", "v"]).when_matched_delete()
    assert asked_by(merge.execute).given[1].on == ("k", "v")


MARKED: dict[str, tuple[str, type[Any]]] = {
    "write": (JOBS["write"], WriteSummary),
    "update": (JOBS["update"], UpdateSummary),
    "delete": (JOBS["update"], UpdateSummary),
    "merge": (JOBS["merge"], MergeSummary),
}


@pytest.mark.parametrize("change", MARKED)
def test_the_partitions_of_a_change_are_marked(tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by a change that is repeated: the one before may have died between its commit and the marks."""
    table = table_in(tmp_path / "t", partition__end_input_to_done="true")
    snapshots, marked = table.write(ROWS).snapshots, list[Any]()
    job, summary = MARKED[change]
    monkeypatch.setattr(
        "paimon_cli.maintain.mark_done.mark_written", lambda context, partitions, *given: marked.append(partitions)
    )
    monkeypatch.setattr("paimon_cli.maintain.mark_done.partitions_of_commit", lambda context, user, number: {f"{user} {number}"})
    for done, found in (
        (summary(snapshots=snapshots, touched=BUCKETS), {b"", b"x"}),
        (summary(touched=BUCKETS), set()),
        (summary(already_committed=True), {"u 7"}),
    ):
        monkeypatch.setattr(job, lambda *given, done=done: done)
        CHANGES[change](table, commit_user="u", commit_id=7)
        assert marked.pop() == found
    for quiet in (table.with_options({"partition.end-input-to-done": "false"}), table):
        quiet._marks_partitions = quiet is not table  # as in a transaction, which is not committed yet
        CHANGES[change](quiet)
    assert not marked


def test_a_frame_of_spark_is_written_by_spark_with_all_options(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    given = dict[str, Any]()
    spark = SimpleNamespace(write=lambda frame, table, **options: given.update(options, frame=frame, table=table))
    monkeypatch.setattr("paimon_cli.api.writing.is_spark_frame", lambda data: True)
    monkeypatch.setattr("paimon_cli.api.writing.import_module", {"paimon_cli.spark": spark}.__getitem__)
    for option in ({"format": "csv"}, {"form": TextForm()}, {"timezone": "UTC"}):
        with pytest.raises(UsageError, match="are for other data"):
            table.write("frame", **option)
    table.write("frame", on_written=print, op="delete", commit_user="u", commit_id=7, compact="after", stage=None)
    assert given["frame"] == "frame" and given["table"] is table and given["on_written"] is print
    assert (given["op"], given["commit_user"], given["commit_id"], given["compact"]) == ("delete", "u", 7, "after")


def test_the_caller_is_told_of_a_staged_write(table: Table, tmp_path: Path) -> None:
    told = list[WriteSummary]()
    assert told == [] and [table.write(ROWS, stage=str(tmp_path / "s.json"), on_written=told.append)] == told
