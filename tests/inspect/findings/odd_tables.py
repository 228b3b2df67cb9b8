"""Tables in odd states, each made by the engine itself and then, if need be, damaged by hand."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from paimon_cli import Table
from paimon_cli.history.table_context import TableContext
from paimon_cli.maintain.end_of_history import EndOfHistory
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_layout import TableLayout
from tests.goldens import golden_table
from tests.jobs.test_stale_buckets import KEYS, made, prepared, rescale, row
from tests.tables import compact, make_table, write

COLUMNS = {"id": "INT NOT NULL", "v": "STRING"}
PARTED = {"dt": "STRING NOT NULL", **COLUMNS}
WRITE_ONLY = {"write-only": "true"}
VECTORS = {"deletion-vectors.enabled": "true"}
OLD = (0, 0)

BUILDERS: dict[str, Callable[[Path], TableContext]] = {}
"""How to make each table in a folder."""


def odd(build: Callable[[Path], TableContext]) -> Callable[[Path], TableContext]:
    BUILDERS[build.__name__] = build
    return build


def keyed(folder: Path, commits: int, options: Mapping[str, str] | None = None, bucket: int = 1, **request: Any) -> TableContext:
    """A table with a key whose commits overlap. `request`: of the writes."""
    context = make_table(folder, COLUMNS, ["id"], bucket=bucket, options=options)
    for number in range(commits):
        write(context, [{"id": key, "v": str(number)} for key in range(number, number + 20)], **request)
    return context


def appended(folder: Path, commits: int, options: Mapping[str, str] | None = None, bucket: int = -1) -> TableContext:
    context = make_table(folder, {"n": "INT"}, [], bucket=bucket, options=options)
    for number in range(commits):
        write(context, [{"n": number}])
    return context


def with_options(context: TableContext, **options: str) -> TableContext:
    """The table after its newest schema file was edited by hand."""
    path = Path(context.layout.schema(context.schemas.newest_id()))
    content = json.loads(path.read_text())
    content["options"].update(options)
    path.write_text(json.dumps(content))
    return TableContext.open(context.url)


def latest_of(context: TableContext) -> Snapshot:
    latest = context.snapshots.latest()
    assert latest is not None
    return latest


@odd
def no_snapshot(folder: Path) -> TableContext:
    return make_table(folder, COLUMNS, ["id"])


@odd
def emptied(folder: Path) -> TableContext:
    context = keyed(folder, 2)
    write(context, [], overwrite=True, allow_empty=True)
    return context


@odd
def tiny(folder: Path) -> TableContext:
    return keyed(folder, 1, bucket=4)


@odd
def at_the_trigger(folder: Path) -> TableContext:
    return keyed(folder, 5, WRITE_ONLY)


@odd
def seven_runs_over_five(folder: Path) -> TableContext:
    return keyed(folder, 7, WRITE_ONLY)


@odd
def at_the_stop_trigger(folder: Path) -> TableContext:
    return keyed(folder, 9, compact="none")


@odd
def write_only_beyond_the_stop_trigger(folder: Path) -> TableContext:
    return keyed(folder, 9, WRITE_ONLY)


@odd
def at_a_stop_trigger_where_nothing_is_picked(folder: Path) -> TableContext:
    """Runs that each are much larger than all newer ones, as many as the trigger."""
    options = {**WRITE_ONLY, "num-sorted-run.compaction-trigger": "3", "num-sorted-run.stop-trigger": "3"}
    context = make_table(folder, COLUMNS, ["id"], options=options)
    for size in (60_000, 3_000, 1):
        write(context, [{"id": key, "v": f"{key * key}"} for key in range(size)])
    return context


@odd
def nothing_compacts(folder: Path) -> TableContext:
    return keyed(folder, 20, WRITE_ONLY)


@odd
def nothing_compacts_and_few_snapshots_are_kept(folder: Path) -> TableContext:
    context = keyed(folder, 22, WRITE_ONLY)
    Table.open(context.url).expire(retain_max=5, retain_min=5)
    return context


@odd
def writers_compact(folder: Path) -> TableContext:
    return keyed(folder, 12)


@odd
def first_row(folder: Path) -> TableContext:
    return keyed(folder, 2, {"merge-engine": "first-row", **WRITE_ONLY})


@odd
def gentle_first_row(folder: Path) -> TableContext:
    return keyed(folder, 2, {"merge-engine": "first-row", "lookup-compact": "gentle", **WRITE_ONLY})


@odd
def vectors_with_waiting_records(folder: Path) -> TableContext:
    return keyed(folder, 3, {**VECTORS, **WRITE_ONLY})


@odd
def vectors(folder: Path) -> TableContext:
    return keyed(folder, 4, VECTORS)


@odd
def lookup_changelog_with_level_0(folder: Path) -> TableContext:
    return keyed(folder, 3, {"changelog-producer": "lookup", **WRITE_ONLY})


@odd
def total_size_threshold(folder: Path) -> TableContext:
    """Two small runs, far below the trigger, but all of them are compacted early."""
    return keyed(folder, 2, {"compaction.total-size-threshold": "1 gb", **WRITE_ONLY})


@odd
def partitions_about_to_expire(folder: Path) -> TableContext:
    options = {**WRITE_ONLY, "partition.expiration-time": "7 d", "partition.timestamp-formatter": "yyyy-MM-dd"}
    context = make_table(folder, PARTED, ["dt", "id"], ["dt"], options=options)
    for number in range(7):
        write(context, [{"dt": "2020-01-01", "id": number, "v": "x"}])
    return context


@odd
def some_partitions_due(folder: Path) -> TableContext:
    context = make_table(folder, PARTED, ["dt", "id"], ["dt"], bucket=2, options=WRITE_ONLY)
    for number in range(6):
        write(context, [{"dt": "a", "id": key, "v": str(number)} for key in range(9)])
    write(context, [{"dt": "b", "id": key, "v": "x"} for key in range(9)])
    return context


@odd
def small_files_in_append(folder: Path) -> TableContext:
    return appended(folder, 12)


@odd
def small_files_in_append_buckets(folder: Path) -> TableContext:
    return appended(folder, 14, {"bucket-key": "n"}, bucket=2)


@odd
def append_with_deleted_rows(folder: Path) -> TableContext:
    context = make_table(folder, {"n": "INT"}, [], bucket=-1, options=VECTORS)
    write(context, [{"n": number} for number in range(10)])
    Table.open(context.url).delete(where="n < 8")
    return context


@odd
def after_rescale(folder: Path) -> TableContext:
    context = keyed(folder, 1)
    Table.open(context.url).rescale(3)
    return TableContext.open(context.url)


@odd
def another_count_than_the_option(folder: Path) -> TableContext:
    return with_options(keyed(folder, 2), bucket="3")


@odd
def stale_buckets(folder: Path) -> TableContext:
    context = made(folder)
    late = prepared(context, [row(k, "late") for k in range(KEYS)])
    rescale(context)
    late()
    return TableContext.open(context.url)


@odd
def postponed_buckets(folder: Path) -> TableContext:
    context = make_table(folder, COLUMNS, ["id"], bucket=-2, options={"postpone.batch-write-fixed-bucket": "false"})
    write(context, [{"id": key, "v": "x"} for key in range(9)])
    return context


@odd
def dynamic_buckets(folder: Path) -> TableContext:
    return keyed(folder, 6, WRITE_ONLY, bucket=-1)


@odd
def cross_partition(folder: Path) -> TableContext:
    context = make_table(folder, PARTED, ["id"], ["dt"], bucket=-1)
    for dt in "ab":
        write(context, [{"dt": dt, "id": key, "v": "x"} for key in range(9)])
    return context


@odd
def expired(folder: Path) -> TableContext:
    context = keyed(folder, 8, WRITE_ONLY)
    Table.open(context.url).expire(retain_max=1, retain_min=1)
    return context


@odd
def a_missing_snapshot(folder: Path) -> TableContext:
    context = keyed(folder, 4, WRITE_ONLY)
    os.unlink(context.layout.snapshot(2))
    return context


@odd
def a_damaged_older_snapshot(folder: Path) -> TableContext:
    context = keyed(folder, 7, WRITE_ONLY)
    Path(context.layout.snapshot(2)).write_text("{")
    return context


@odd
def a_damaged_snapshot_before_a_compaction(folder: Path) -> TableContext:
    context = keyed(folder, 4, WRITE_ONLY)
    compact(context, strategy="full")
    write(context, [{"id": 1, "v": "x"}])
    Path(context.layout.snapshot(5)).write_text("{")
    return context


@odd
def a_damaged_latest_snapshot(folder: Path) -> TableContext:
    context = keyed(folder, 3, WRITE_ONLY)
    Path(context.layout.snapshot(3)).write_text("{")
    return context


@odd
def a_missing_manifest(folder: Path) -> TableContext:
    context = keyed(folder, 3, WRITE_ONLY)
    (meta,) = context.manifests.delta_manifests(latest_of(context))
    os.unlink(context.layout.manifest(meta.file_name))
    return TableContext.open(context.url)


@odd
def a_missing_list_of_an_older_snapshot(folder: Path) -> TableContext:
    context = keyed(folder, 7, WRITE_ONLY)
    os.unlink(context.layout.manifest(context.snapshots.get(3).delta_manifest_list))
    return TableContext.open(context.url)


@odd
def a_trigger_that_is_no_number(folder: Path) -> TableContext:
    return with_options(keyed(folder, 3, WRITE_ONLY), **{"num-sorted-run.compaction-trigger": "many"})


@odd
def a_stop_trigger_that_is_no_number(folder: Path) -> TableContext:
    return with_options(keyed(folder, 7, WRITE_ONLY), **{"num-sorted-run.stop-trigger": "²"})


@odd
def an_append_trigger_that_is_no_number(folder: Path) -> TableContext:
    return with_options(appended(folder, 3), **{"compaction.min.file-num": "few"})


@odd
def a_delay_of_tags_that_is_their_period(folder: Path) -> TableContext:
    return with_options(keyed(folder, 1), **{"tag.automatic-creation": "process-time", "tag.creation-delay": "1 d"})


@odd
def an_unknown_option(folder: Path) -> TableContext:
    return with_options(keyed(folder, 1), **{"snapshot.num-retianed.max": "3"})


@odd
def retention_that_contradicts_itself(folder: Path) -> TableContext:
    return with_options(keyed(folder, 3), **{"snapshot.num-retained.max": "3", "snapshot.time-retained": "1 s"})


@odd
def too_many_snapshots(folder: Path) -> TableContext:
    return with_options(keyed(folder, 4), **{"snapshot.num-retained.max": "3", "snapshot.num-retained.min": "1"})


@odd
def a_tag_and_a_branch(folder: Path) -> TableContext:
    context = keyed(folder, 6, WRITE_ONLY)
    table = Table.open(context.url)
    table.tags.create("kept", snapshot=2)
    table.branches.create("side", tag="kept")
    table.expire(retain_max=1, retain_min=1)
    return context


@odd
def a_damaged_tag(folder: Path) -> TableContext:
    context = keyed(folder, 2)
    for name in ("kept", "t1"):
        Table.open(context.url).tags.create(name)
    Path(context.layout.tag("t1")).write_text("{")
    return context


def with_branch(folder: Path) -> tuple[TableContext, TableLayout]:
    """A table with a branch, and where the files of the branch are."""
    context = keyed(folder, 2)
    table = Table.open(context.url)
    table.tags.create("kept")
    table.branches.create("side", tag="kept")
    return context, context.layout.of_branch("side")


@odd
def a_damaged_schema_of_a_branch(folder: Path) -> TableContext:
    context, side = with_branch(folder)
    Path(side.schema(0)).write_text("{")
    return context


@odd
def a_lost_schema_of_a_branch(folder: Path) -> TableContext:
    context, side = with_branch(folder)
    os.unlink(side.schema(0))
    return context


@odd
def a_damaged_snapshot_of_a_branch(folder: Path) -> TableContext:
    context, side = with_branch(folder)
    Path(side.snapshot(2)).write_text("{")
    return context


@odd
def a_damaged_tag_of_a_branch(folder: Path) -> TableContext:
    context, side = with_branch(folder)
    Path(side.tag("kept")).write_text("{")
    return context


@odd
def a_damaged_changelog(folder: Path) -> TableContext:
    options = {"changelog-producer": "input", "changelog.num-retained.max": "40", "snapshot.num-retained.max": "3"}
    context = keyed(folder, 4, {**options, "snapshot.num-retained.min": "1"})
    Table.open(context.url).expire(retain_max=1, retain_min=1)
    Path(context.layout.changelog(2)).write_text("{")
    return context


@odd
def lost_snapshots(folder: Path) -> TableContext:
    context, _ = with_branch(folder)
    shutil.rmtree(context.layout.snapshot_directory)
    return context


@odd
def lost_snapshots_but_hints(folder: Path) -> TableContext:
    context = appended(folder, 4)
    for path in Path(context.layout.snapshot_directory).glob("snapshot-*"):
        path.unlink()
    return context


@odd
def an_old_hint_of_a_new_table(folder: Path) -> TableContext:
    context = appended(folder, 0)
    Path(context.layout.snapshot_directory).mkdir()
    Path(context.layout.latest_hint).write_text("7")
    return context


@odd
def manifests_without_a_snapshot(folder: Path) -> TableContext:
    context = keyed(folder, 2)
    shutil.rmtree(context.layout.snapshot_directory)
    return context


@odd
def a_lost_newest_schema(folder: Path) -> TableContext:
    """The latest snapshot was written under it."""
    context = keyed(folder, 2)
    Table.open(context.url).alter.set({"snapshot.num-retained.min": "3"})
    write(TableContext.open(context.url), [{"id": 1, "v": "x"}])
    os.unlink(context.layout.schema(1))
    return TableContext.open(context.url)


@odd
def a_lost_older_schema(folder: Path) -> TableContext:
    """Files are of it."""
    context = keyed(folder, 2)
    Table.open(context.url).alter.set({"snapshot.num-retained.min": "3"})
    os.unlink(context.layout.schema(0))
    return TableContext.open(context.url)


@odd
def on_a_branch(folder: Path) -> TableContext:
    context = keyed(folder, 6, WRITE_ONLY)
    Table.open(context.url).branches.create("side", snapshot=6)
    return TableContext.open(context.url, branch="side")


@odd
def a_lagging_consumer(folder: Path) -> TableContext:
    context = keyed(folder, 2)
    path = Path(context.layout.consumer("gone"))
    path.parent.mkdir()
    path.write_text('{"nextSnapshot": 1}')
    os.utime(path, OLD)
    return context


@odd
def a_hint_ahead(folder: Path) -> TableContext:
    context = keyed(folder, 2)
    Path(context.layout.latest_hint).write_text("7")
    return context


@odd
def orphan_files(folder: Path) -> TableContext:
    context = keyed(folder, 1)
    path = Path(context.url) / "bucket-0" / "data-lost-0.parquet"
    path.write_bytes(b"12345")
    os.utime(path, OLD)
    return context


@odd
def dropped_half_way(folder: Path) -> TableContext:
    context = keyed(folder, 2)
    EndOfHistory(context.storage, context.layout).begin()
    os.unlink(context.layout.snapshot(1))
    return context


@odd
def compacted_after_all(folder: Path) -> TableContext:
    context = keyed(folder, 9, WRITE_ONLY)
    compact(context, strategy="full")
    return context


@odd
def compactions_by_two_users(folder: Path) -> TableContext:
    context = make_table(folder, COLUMNS, ["id"], options={"num-sorted-run.compaction-trigger": "1"})
    for number in range(6):
        write(context, [{"id": number, "v": "x"}], commit_user=f"etl-{number % 2}")
    return context


@odd
def written_by_java(folder: Path) -> TableContext:
    return TableContext.open(str(golden_table("java-0.9", "dynamic_bucket", folder)))


def postponed(folder: Path, batches: Sequence[int], **options: str) -> TableContext:
    """A table with postponed buckets, which a compaction distributes after each batch of so many keys."""
    own = {
        "postpone.batch-write-fixed-bucket": "false",
        **{f"postpone.{name.replace('_', '-')}": v for name, v in options.items()},
    }
    context = make_table(folder, COLUMNS, ["id"], bucket=-2, options=own)
    for keys in batches:
        write(context, [{"id": key, "v": str(key)} for key in range(keys)])
        compact(context, strategy="full")
    return context


@odd
def a_postponed_bucket_that_has_grown(folder: Path) -> TableContext:
    return postponed(folder, (10, 90), target_row_num_per_bucket="20")


@odd
def a_postponed_table_with_good_buckets(folder: Path) -> TableContext:
    return postponed(folder, (40,), target_row_num_per_bucket="20")
