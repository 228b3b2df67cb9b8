"""Another number of buckets: the same rows, no commit lost, and a table that can still be written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paimon_cli.api.table import Table
from paimon_cli.catalog.alter_table import alter_table
from paimon_cli.catalog.column_changes import SetOption
from paimon_cli.catalog.open_table import open_table
from paimon_cli.catalog.table_location import locate_table
from paimon_cli.datatypes.binary_row import serialize_row
from paimon_cli.errors import Conflict, DataConflict, NotFound, NotSupported, PaimonError, StorageUnavailable, UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.unfinished_rescale import rescale_record
from paimon_cli.invariants.check import check_table
from paimon_cli.jobs import rescale_job, write_job
from paimon_cli.jobs.engine import Engine, LocalEngine, NoProgress
from paimon_cli.jobs.rescale_job import RescaleSummary, plan_rescale, run_rescale
from paimon_cli.jobs.spark.engine import SparkEngine
from paimon_cli.maintain.orphans import find_orphans
from paimon_cli.metadata.data_file import DataFileMeta
from paimon_cli.metadata.snapshot import COMPACT, OVERWRITE, Snapshot
from paimon_cli.requests.maintenance import RescaleOptions
from tests.goldens import golden_table
from tests.rivals import RivalStorage
from tests.tables import compact, data_files, make_table, named_files, write
from tests.tables import rows as rows_of

COLUMNS = {"p": "STRING NOT NULL", "k": "INT NOT NULL", "n": "BIGINT"}


def live_data_files(context: TableContext) -> list[DataFileMeta]:
    latest = context.snapshots.latest()
    return [] if latest is None else [entry.file for entry in context.manifests.live_entries(latest)]


def table_of(context: TableContext) -> TableContext:
    return open_table(locate_table(context.url))


def rescale(context: TableContext, buckets: int, engine: Engine | None = None) -> RescaleSummary:
    table = table_of(context)
    return run_rescale(table, plan_rescale(table, RescaleOptions(buckets)), engine or LocalEngine(2), NoProgress())


@pytest.fixture
def context(tmp_path: Path) -> TableContext:
    made = make_table(tmp_path / "t", COLUMNS, ["p", "k"], ["p"], bucket=2)
    write(made, [{"p": p, "k": k, "n": k} for p in "ab" for k in range(60)])
    write(made, [{"p": "a", "k": k, "n": -k} for k in range(20, 90)])
    write(made, [{"p": p, "k": 7, "n": 7} for p in "ab"], op="delete")
    return made


@pytest.mark.parametrize("buckets", [1, 3, 4, 7])
def test_rows_stay_and_buckets_change(context: TableContext, buckets: int) -> None:
    before = rows_of(context)
    done = rescale(context, buckets)
    after = TableContext.open(context.url)
    stays = buckets in (1, 4)
    assert (done.partitions, done.option_changed) == (2, True)
    assert done.rows == (sum(file.row_count for file in live_data_files(after)) if stays else len(before))
    assert after.options.bucket == buckets
    assert sorted(map(str, rows_of(after))) == sorted(map(str, before))
    assert [snapshot.commit_kind for snapshot in done.snapshots] == [COMPACT if stays else OVERWRITE]
    assert not list(check_table(after, rows=True))
    entries = after.manifests.live_entries(done.snapshots[-1])
    assert {entry.total_buckets for entry in entries} == {buckets}
    assert {entry.bucket for entry in entries} == set(range(buckets))


def test_the_table_can_be_continued(context: TableContext) -> None:
    rescale(context, 5)
    after = TableContext.open(context.url)
    write(after, [{"p": "a", "k": 1, "n": 1000}, {"p": "c", "k": 1, "n": 1}])
    compact(after)
    rows = {(row["p"], row["k"]): row["n"] for row in rows_of(after)}
    assert rows["a", 1] == 1000 and rows["c", 1] == 1 and rows["b", 1] == 1
    assert not list(check_table(after, rows=True))


def test_what_others_commit_meanwhile_is_not_lost(context: TableContext) -> None:
    table = table_of(context)
    plan = plan_rescale(table, RescaleOptions(4))
    write(context, [{"p": "a", "k": 1, "n": 12345}])
    files = sorted(path for path in Path(context.url).rglob("data-*"))
    with pytest.raises(DataConflict) as refused:
        run_rescale(table, plan, LocalEngine(), NoProgress())
    assert str(refused.value.hint).startswith("stop the writers")
    assert sorted(path for path in Path(context.url).rglob("data-*")) == files
    assert TableContext.open(context.url).options.bucket == 2
    assert {"p": "a", "k": 1, "n": 12345} in rows_of(context)


def test_a_compaction_meanwhile_does_no_harm(context: TableContext) -> None:
    table = table_of(context)
    before = rows_of(context)
    plan = plan_rescale(table, RescaleOptions(4))
    compact(context, strategy="full")
    run_rescale(table, plan, LocalEngine(), NoProgress())
    after = TableContext.open(context.url)
    assert sorted(map(str, rows_of(after))) == sorted(map(str, before))
    assert not list(check_table(after, rows=True))


def test_a_writer_of_the_old_number_is_refused(context: TableContext) -> None:
    rescale(context, 4)
    with pytest.raises(UsageError, match="4 buckets"):
        write(context, [{"p": "a", "k": 1, "n": 1}])


def test_run_again_when_the_option_did_not_follow(context: TableContext) -> None:
    rescale(context, 4)
    alter_table(table_of(context), [SetOption("bucket", "2")])
    again = rescale(context, 4)
    assert (again.partitions, again.snapshots, again.option_changed) == (0, (), True)
    assert TableContext.open(context.url).options.bucket == 4
    assert replace(rescale(context, 4), seconds=0.0) == RescaleSummary(4, engine="local", seconds=0.0)


def test_partitions_one_by_one_after_the_option(context: TableContext) -> None:
    table = table_of(context)
    before = rows_of(context)
    alter_table(table, [SetOption("bucket", "3")])
    table = table_of(context)
    with pytest.raises(NotFound, match="no partition p=z"):
        plan_rescale(table, RescaleOptions(3, partition=[{"p": "a"}, {"p": "z"}]))
    plan = plan_rescale(table, RescaleOptions(3, partition=[{"p": "a"}]))
    assert [partition.partition for partition in plan.partitions] == ["p=a"]
    run_rescale(table, plan, LocalEngine(), NoProgress())
    assert [partition.partition for partition in plan_rescale(table, RescaleOptions(3)).partitions] == ["p=b"]
    assert sorted(map(str, rows_of(table))) == sorted(map(str, before))


def test_a_table_whose_rows_are_all_deleted(tmp_path: Path) -> None:
    made = make_table(tmp_path / "t", {"k": "INT NOT NULL", "n": "INT"}, ["k"], bucket=2)
    write(made, [{"k": 1, "n": 1}])
    write(made, [{"k": 1, "n": 1}], op="delete")
    done = rescale(made, 3)
    assert (done.rows, done.files, done.option_changed) == (0, 0, True)
    assert rows_of(TableContext.open(made.url)) == []


def test_an_empty_table_only_changes_its_option(tmp_path: Path) -> None:
    made = make_table(tmp_path / "t", {"k": "INT NOT NULL"}, ["k"], bucket=2)
    assert rescale(made, 3).snapshots == ()
    assert TableContext.open(made.url).options.bucket == 3


@pytest.mark.parametrize(
    "options",
    [
        {"deletion-vectors.enabled": "true"},
        {"deletion-vectors.enabled": "true", "changelog-producer": "lookup"},
        {"merge-engine": "first-row"},
        {"changelog-producer": "lookup"},
        {"changelog-producer": "lookup", "lookup-wait": "false"},
        {"changelog-producer": "full-compaction", "full-compaction.delta-commits": "1"},
    ],
)
@pytest.mark.in_part(2)
def test_no_reader_sees_a_change(tmp_path: Path, options: dict[str, str]) -> None:
    made = make_table(tmp_path / "t", {"k": "INT NOT NULL", "n": "INT"}, ["k"], bucket=2, options=options)
    for first in (0, 3):
        write(made, [{"k": k, "n": first} for k in range(first, first + 9)])
    compact(made, strategy="full")  # reports what waits
    before = sorted(map(str, rows_of(made)))
    done = rescale(made, 3)
    after = TableContext.open(made.url)
    assert [snapshot.commit_kind for snapshot in done.snapshots] == [OVERWRITE]
    assert done.snapshots[0].changelog_manifest_list is None, "no row has changed"
    assert sorted(map(str, rows_of(after))) == before and len(before) == done.rows == 12
    assert {entry.file.level for entry in after.manifests.live_entries(done.snapshots[0])} != {0}
    assert not list(check_table(after, rows=True))
    assert not find_orphans(after, after.clock.now_millis() + 1000, True).files
    if after.mode.changelog_producer.reports_compactions:
        compact(after, strategy="full")
        assert Table.open(made.url).changelog(done.snapshots[0].id).to_arrow().num_rows == 0


@pytest.mark.parametrize("options", [{"deletion-vectors.enabled": "true"}, {"merge-engine": "first-row"}])
def test_rows_that_readers_do_not_see_yet_are_not_lost(tmp_path: Path, options: dict[str, str]) -> None:
    made = make_table(tmp_path / "t", {"k": "INT NOT NULL", "n": "INT"}, ["k"], bucket=2, options=options)
    write(made, [{"k": k, "n": 0} for k in range(9)])
    compact(made, strategy="full")
    write(made, [{"k": k, "n": 1} for k in range(9, 15)], compact="none")
    rescale(made, 3)
    after = TableContext.open(made.url)
    compact(after, strategy="full")
    assert sorted(row["k"] for row in rows_of(after)) == list(range(15))


@pytest.mark.parametrize("difference", [-1, 1])
def test_other_rows_than_there_were_are_not_committed(
    context: TableContext, monkeypatch: pytest.MonkeyPatch, difference: int
) -> None:
    before, shown = rows_of(context), rescale_job._shown_rows
    monkeypatch.setattr(rescale_job, "_shown_rows", lambda *given: shown(*given) + difference)
    with pytest.raises(PaimonError, match="rows became"):
        rescale(context, 5)
    after = TableContext.open(context.url)
    assert rows_of(after) == before and after.options.bucket == 2
    assert not find_orphans(after, after.clock.now_millis() + 1000, True).files


def test_sums_are_not_added_twice(tmp_path: Path) -> None:
    options = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}
    made = make_table(tmp_path / "t", {"k": "INT NOT NULL", "n": "INT"}, ["k"], bucket=2, options=options)
    for _ in range(3):
        write(made, [{"k": k, "n": 1} for k in range(10)])
    rescale(made, 3)
    after = TableContext.open(made.url)
    write(after, [{"k": 0, "n": 1}])
    assert sorted(row["n"] for row in rows_of(after)) == [3] * 9 + [4]


def test_one_partition_may_have_a_number_of_its_own(context: TableContext) -> None:
    """Like Paimon's own rescale; writers refuse that partition until it agrees with the option again."""
    before = rows_of(context)
    table = table_of(context)
    plan = plan_rescale(table, RescaleOptions(5, partition=[{"p": "a"}]))
    assert (plan.changes_option, plan.differs_from_option) == (False, True)
    done = run_rescale(table, plan, LocalEngine(), NoProgress())
    after = TableContext.open(context.url)
    assert (done.option_changed, after.options.bucket) == (False, 2)
    assert sorted(map(str, rows_of(after))) == sorted(map(str, before)) and not list(check_table(after, rows=True))
    write(after, [{"p": "b", "k": 1, "n": 1}])
    with pytest.raises(UsageError, match="written with 5 buckets"):
        write(after, [{"p": "a", "k": 1, "n": 1}])
    run_rescale(table, plan_rescale(table, RescaleOptions(None, partition=[{"p": "a"}])), LocalEngine(), NoProgress())
    write(after, [{"p": "a", "k": 1, "n": 1}])


def test_a_plan_reports_sizes_before_and_after(context: TableContext) -> None:
    one, other = plan_rescale(context, RescaleOptions(4)).partitions
    assert (one.partition, one.buckets, one.new_buckets, one.rows, one.files) == ("p=a", 2, 4, 131, 5)
    assert (one.files_after, one.bucket_size, one.bucket_size_after) == (4, -(-one.size // 2), -(-one.size // 4))
    assert other.rows == 61


@pytest.mark.parametrize(("writer", "name"), [("java-0.9", "dynamic_bucket"), ("java-1.4", "dynamic")])
def test_dynamic_buckets_become_a_fixed_number(tmp_path: Path, writer: str, name: str) -> None:
    """No hash index remains, the table continues with fixed buckets, and its older snapshots are read as before."""
    context = TableContext.open(str(golden_table(writer, name, tmp_path)))
    assert any(entry.index_file.index_type == "HASH" for entry in context.manifests.index_entries(latest(context)))
    before = rows_of(context)
    done = rescale(context, 3)
    after = TableContext.open(context.url)
    assert (done.rows, done.option_changed, after.options.bucket) == (len(before), True, 3)
    assert sorted(map(str, rows_of(after))) == sorted(map(str, before))
    assert not list(check_table(after, rows=True)) and not after.manifests.index_entries(latest(after))
    changed = {**before[0], next(field.name for field in after.schema.fields if field.type.nullable): None}
    write(after, [changed])
    compact(after, strategy="full")
    assert sorted(map(str, rows_of(after))) == sorted(map(str, [changed, *before[1:]]))
    with pytest.raises(UsageError, match="cannot change from 3 to -1"):
        alter_table(table_of(after), [SetOption("bucket", "-1")])


def test_a_writer_of_dynamic_buckets_that_was_overtaken_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its keys would be looked up in an index that is gone. It gets an error with the reason, and leaves nothing."""
    options = {"dynamic-bucket.target-row-num": "20"}
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL", "n": "INT"}, ["k"], bucket=-1, options=options)
    write(context, [{"k": k, "n": k} for k in range(60)])
    run = write_job.write_input
    moved: list[RescaleSummary] = []

    def overtaken(*arguments: Any) -> Any:
        written = run(*arguments)
        if not moved:
            moved.append(rescale(TableContext.open(context.url), 3))
        return written

    monkeypatch.setattr(write_job, "write_input", overtaken)
    for _ in range(2):
        with pytest.raises(Conflict, match="fixed number of 3 buckets"):
            write(context, [{"k": k, "n": -k} for k in range(50, 70)])
    after = TableContext.open(context.url)
    assert (after.options.bucket, len(rows_of(after))) == (3, 60)
    assert not list(check_table(after, rows=True))
    assert len(list(Path(context.url).rglob("data-*"))) == 6


def latest(context: TableContext) -> Snapshot:
    snapshot = context.snapshots.latest()
    assert snapshot is not None
    return snapshot


def test_only_the_whole_of_a_dynamic_table_gets_a_number(tmp_path: Path) -> None:
    made = make_table(tmp_path / "t", COLUMNS, ["p", "k"], ["p"], bucket=-1)
    for request in (RescaleOptions(3, partition=[{"p": "a"}]), RescaleOptions(3, online=True)):
        with pytest.raises(NotSupported, match="with bucket=-1 its writers choose") as refused:
            plan_rescale(made, request)
        assert refused.value.exit_code == 8 and "--buckets 3" in str(refused.value.hint)
    with pytest.raises(UsageError, match="no fixed bucket count"):
        plan_rescale(made, RescaleOptions())


def test_a_partition_that_appears_meanwhile_keeps_the_option(context: TableContext) -> None:
    table = table_of(context)
    plan = plan_rescale(table, RescaleOptions(4))
    write(context, [{"p": "new", "k": 1, "n": 1}])
    with pytest.raises(Conflict, match="p=new"):
        run_rescale(table, plan, LocalEngine(), NoProgress())
    assert TableContext.open(context.url).options.bucket == 2
    assert rescale(context, 4).partitions == 1
    assert TableContext.open(context.url).options.bucket == 4


@pytest.mark.in_part(2)
def test_on_spark(context: TableContext, any_spark_engine: SparkEngine) -> None:
    before = rows_of(context)
    done = rescale(context, 5, any_spark_engine)
    after = TableContext.open(context.url)
    assert done.rows == len(before)
    assert sorted(map(str, rows_of(after))) == sorted(map(str, before))
    assert not list(check_table(after, rows=True))


def test_rows_that_wait_for_a_bucket_are_no_part_of_a_rescale(tmp_path: Path) -> None:
    """Neither of its plan, nor of its commit; and the option of the table stays."""
    options = {"postpone.batch-write-fixed-bucket": "false", "postpone.default-bucket-num": "2"}
    made = make_table(tmp_path / "t", COLUMNS, ["p", "k"], ["p"], -2, options)
    write(made, [{"p": "a", "k": k, "n": 1} for k in range(40)])
    compact(made)
    write(made, [{"p": p, "k": k, "n": 2} for p in "ab" for k in range(30, 60)])
    for buckets in (4, 3):
        plan = plan_rescale(made, RescaleOptions(buckets))
        (one,) = plan.partitions
        assert (one.partition, one.rows, one.files) == ("p=a", 40, one.buckets) and one.buckets in (2, 4)
        assert (plan.changes_option, plan.differs_from_option, plan.record) == (False, False, (-2, -2))
        done = run_rescale(made, plan, LocalEngine(), NoProgress())
        assert (done.partitions, done.rows, done.option_changed) == (1, 40, False)
    compact(made)
    assert {(row["p"], row["k"]): row["n"] for row in rows_of(made)} == {
        **{("a", k): 1 for k in range(40)},
        **{(p, k): 2 for p in "ab" for k in range(30, 60)},
    }
    assert not list(check_table(made, rows=True))


@pytest.mark.parametrize("buckets", [4, 3])
def test_a_summary_has_the_new_files_and_the_snapshot_what_becomes_of_the_option(context: TableContext, buckets: int) -> None:
    done = rescale(context, buckets)
    live = live_data_files(context)
    assert (done.files, done.size) == (len(live), sum(file.file_size for file in live))
    assert dict([rescale_record(2, buckets)]).items() <= (done.snapshots[-1].properties or {}).items()
    table = table_of(context)
    part = run_rescale(table, plan_rescale(table, RescaleOptions(2, partition=[{"p": "b"}])), LocalEngine(), NoProgress())
    assert dict([rescale_record(buckets, buckets)]).items() <= (part.snapshots[-1].properties or {}).items()
    entries = context.manifests.live_entries(part.snapshots[-1])
    assert {(entry.partition == part_key(context, "b"), entry.total_buckets) for entry in entries} == {
        (True, 2),
        (False, buckets),
    }


def part_key(context: TableContext, p: str) -> bytes:
    return serialize_row([p], context.partition_types)


@pytest.mark.parametrize("act", ["compact", "write"])
def test_a_rescale_begins_again_after_a_compaction_only(context: TableContext, act: str) -> None:
    """The rival commits between the work of the rescale and its publication."""
    before, new = rows_of(context), {"p": "a", "k": 1, "n": 99}

    def rival() -> None:
        compact(context, strategy="full") if act == "compact" else write(context, [new])

    table = replace(table_of(context), storage=RivalStorage(rival))
    plan = plan_rescale(table, RescaleOptions(4))
    if act == "compact":
        done = run_rescale(table, plan, LocalEngine(), NoProgress())
        assert (done.option_changed, len(done.snapshots)) == (True, 1)
        assert sorted(map(str, rows_of(context))) == sorted(map(str, before))
    else:
        with pytest.raises(Conflict) as refused:
            run_rescale(table, plan, LocalEngine(), NoProgress())
        assert str(refused.value.hint).startswith("stop the writers") and new in rows_of(context)
    assert data_files(context) == named_files(context)
    assert TableContext.open(context.url).options.bucket == (4 if act == "compact" else 2)


def test_an_error_after_the_commit_of_a_rescale_names_its_snapshot(
    context: TableContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, buckets in (("_expect_nothing_left", 4), ("alter_table", 8), ("_stale_files", 16)):
        with monkeypatch.context() as broken, pytest.raises(StorageUnavailable) as failure:
            broken.setattr(rescale_job, name, fails)
            rescale(context, buckets)
        assert failure.value.details["published_snapshots"] == [context.snapshots.latest_id()]
        assert TableContext.open(context.url).options.bucket == (16 if name == "_stale_files" else 2)


def fails(*_: Any, **__: Any) -> None:
    raise StorageUnavailable("the store is away", "by a test")
