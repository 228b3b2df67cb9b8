"""The plan of a write: how many assigners, which router, and what a writer of a bucket starts with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from paimon_cli.bucket.hash_index import HashIndexes
from paimon_cli.errors import UsageError
from paimon_cli.history.live_files import BucketFiles
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import EMPTY_ROW, BucketId
from paimon_cli.metadata.table_layout import POSTPONE_BUCKET
from paimon_cli.write.routers import (
    AssignedRouter,
    DynamicRouter,
    FixedRouter,
    PartitionCountRouter,
    PostponingRouter,
    TogetherRouter,
    UnawareRouter,
)
from paimon_cli.write.write_plan import (
    CompactionWhileWriting,
    IndexAssignment,
    LookupAssignment,
    PostponingWriter,
    TargetBuckets,
    WritePlan,
)
from tests.commit.commit_tables import data_file
from tests.tables import make_table

COLUMNS = {"p": "INT", "k": "INT NOT NULL", "v": "INT"}


def plan_of(
    folder: Path, bucket: int = -1, key: str = "k", parts: str = "", options: Mapping[str, str] | None = None
) -> WritePlan:
    context = make_table(folder / "t", COLUMNS, key.split(), parts.split(), bucket=bucket, options=options)
    return WritePlan(context, cast("Any", None), (), TargetBuckets(bucket), file_stamp="0123456789abcdef")


@pytest.fixture
def dynamic(tmp_path: Path) -> WritePlan:
    plan = plan_of(tmp_path)
    return replace(plan, assignment=IndexAssignment(indexes=HashIndexes({}, {EMPTY_ROW: {0: -1}})))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 8),
        ({"initial-buckets": "3"}, 3),
        ({"assigner-parallelism": "5"}, 5),
        ({"initial-buckets": "6", "assigner-parallelism": "5"}, 5),
        ({"initial-buckets": "3", "assigner-parallelism": "5"}, 3),
        ({"max-buckets": "2"}, 2),
        ({"initial-buckets": "4", "max-buckets": "2"}, 2),
        ({"initial-buckets": "4", "max-buckets": "-1"}, 4),
    ],
)
def test_how_many_assigners_share_the_keys(tmp_path: Path, options: dict[str, str], expected: int) -> None:
    plan = plan_of(tmp_path, options={f"dynamic-bucket.{name}": value for name, value in options.items()})
    assert plan.with_assigners(8).assignment is None
    found = replace(plan, assignment=LookupAssignment(buckets={}, read_at=4)).with_assigners(8)
    assert found.assignment == LookupAssignment(buckets={}, read_at=4, assigners=expected)


def test_the_router_is_that_of_the_buckets(tmp_path: Path, dynamic: WritePlan) -> None:
    fixed, postponed = plan_of(tmp_path / "f", 2), plan_of(tmp_path / "p", POSTPONE_BUCKET)
    assert isinstance(fixed.router(), FixedRouter) and isinstance(postponed.router(), PostponingRouter)
    counted = replace(postponed, buckets=TargetBuckets(POSTPONE_BUCKET, assigned={EMPTY_ROW: 3}))
    assert isinstance(counted.router(), PartitionCountRouter) and not counted.postpones
    assert isinstance(plan_of(tmp_path / "a", key="").router(), UnawareRouter)
    assert isinstance(dynamic.router(), DynamicRouter)
    assert isinstance(dynamic.with_assignment(is_done=True).router(), AssignedRouter)
    moving = replace(plan_of(tmp_path / "m", parts="p"), assignment=LookupAssignment(buckets={}, read_at=0))
    assert moving.context.mode.bucket_mode.moves_keys
    assert isinstance(moving.router(), AssignedRouter)
    assert isinstance(moving.postponing("feedfeedfeedfeed").router(), TogetherRouter), "what goes to one bucket goes to one task"


def test_rows_that_another_task_has_placed_stay_as_they_are(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    looked_up = replace(plan, assignment=LookupAssignment(buckets={}, read_at=0))
    batches = cast("Any", [object()])
    assert plan.placed(batches) is batches
    assert looked_up.with_assignment(is_done=True).placed(batches) is batches
    assert looked_up.placed(batches) is not batches


def test_temporary_files_are_postponed_uncompacted_and_named_anew(dynamic: WritePlan) -> None:
    writer = PostponingWriter("me", 3)
    plan = replace(dynamic, compaction=CompactionWhileWriting(cast("Any", None)), postponing_writer=writer, read_snapshot_id=7)
    found = plan.postponing("feedfeedfeedfeed")
    assert (found.compaction, found.assignment, found.file_stamp) == (None, None, "feedfeedfeedfeed")
    assert found.postpones and found.postponing_writer == PostponingWriter("me", 3, is_temporary=True)
    assert (found.read_snapshot_id, found.context) == (7, plan.context)


def test_what_replaces_all_rows_compares_no_index(dynamic: WritePlan) -> None:
    state = dynamic.hash_index_state(EMPTY_ROW)
    assert state == dynamic.assignment.indexes.state(EMPTY_ROW)  # type: ignore[union-attr]
    assert replace(dynamic, replaces_rows=True).hash_index_state(EMPTY_ROW) is None
    assert replace(dynamic, assignment=None).hash_index_state(EMPTY_ROW) is None


@pytest.mark.parametrize(
    ("option", "count", "hints"),
    [
        (2, 3, ["repeat it with --buckets 3", "rescale TABLE --buckets 2 --yes"]),
        (-1, 3, ["repeat it with --buckets 3", "rescale TABLE --buckets 3 --yes"]),
        (2, -1, ["maintain finishes it; otherwise run", "rescale TABLE --buckets 2 --yes"]),
    ],
)
def test_the_ways_out_of_a_bucket_count_that_differs(tmp_path: Path, option: int, count: int, hints: list[str]) -> None:
    plan = replace(plan_of(tmp_path, 2), buckets=TargetBuckets(option, {EMPTY_ROW: count}))
    for refused in (plan.check_bucket_count, lambda partition: plan.start_of(BucketId(partition, 0))):
        with pytest.raises(UsageError) as found:
            refused(EMPTY_ROW)
        assert all(hint.replace("TABLE", plan.context.layout.argument) in found.value.hint for hint in hints), found.value.hint


def test_what_a_writer_of_a_bucket_starts_with(tmp_path: Path) -> None:
    plan = replace(plan_of(tmp_path, 4), first_sequences={BucketId(EMPTY_ROW, 1): 12})
    files, sequence, names = plan.start_of(BucketId(EMPTY_ROW, 1))
    assert (files, sequence) == (BucketFiles(EMPTY_ROW, 1, 4, ()), 12)
    assert "0123456789abcdef" in names.next("parquet").replace("-", "")
    old = BucketFiles(EMPTY_ROW, 1, 4, (data_file("old", level=5),))
    compacting = replace(plan, compaction=CompactionWhileWriting(cast("Any", None), {BucketId(EMPTY_ROW, 1): old}))
    assert compacting.start_of(BucketId(EMPTY_ROW, 1))[0] is old
    assert compacting.start_of(BucketId(EMPTY_ROW, 2))[0] == BucketFiles(EMPTY_ROW, 2, 4, ())
    of_partition = replace(plan, buckets=TargetBuckets(POSTPONE_BUCKET, assigned={EMPTY_ROW: 9}))
    assert of_partition.start_of(BucketId(EMPTY_ROW, 3))[0].total_buckets == 9


def test_postponed_files_name_their_writer(tmp_path: Path) -> None:
    plan = replace(plan_of(tmp_path, POSTPONE_BUCKET), postponing_writer=PostponingWriter("me", 0)).by_writer(7)

    def prefix(of: WritePlan) -> tuple[str, str]:
        context: TableContext = of._level_0_context
        return context.options.data_file_prefix, context.options.file_format

    assert prefix(plan)[0].startswith("data--u-me-s-7-w-") and prefix(plan)[1] == "avro"
    assert prefix(replace(plan, postponing_writer=PostponingWriter("me", 7, is_temporary=True)))[1] == "parquet"
    fixed = plan_of(tmp_path / "f", 2)
    assert fixed._level_0_context is fixed.context
