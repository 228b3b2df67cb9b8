"""What a write is planned to build on, and what an overwrite replaces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from paimon_cli.compact.bucket_compactor import WriterCompaction
from paimon_cli.errors import BadInput, NotFound, NotSupported, Refused, SnapshotNotFound
from paimon_cli.history.live_files import bucket_files
from paimon_cli.history.partition_spec import PartitionSpec
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.row_sources import ArrowRows
from paimon_cli.ingest.rows import IncomingRows
from paimon_cli.jobs.write_request import WriteRequest, overwritten, plan_write
from paimon_cli.metadata.data_file import CommitMessage, FileChanges
from paimon_cli.metadata.data_file_schema import RowKind
from paimon_cli.write.write_plan import IndexAssignment, LookupAssignment, WritePlan
from tests.commit.commit_tables import data_file
from tests.tables import make_table, write

COLUMNS = {"p": "STRING NOT NULL", "k": "INT NOT NULL"}
FULL = {"full-compaction.delta-commits": "2"}


def made(folder: Path, kind: str = "fixed", options: Mapping[str, str] | None = None) -> TableContext:
    """A table with rows in partitions a, b and c."""
    keys = ["k"] if kind == "cross" else ["p", "k"]
    context = make_table(folder / "t", COLUMNS, keys, ["p"], 2 if kind == "fixed" else -1, options)
    write(context, [{"p": p, "k": number} for number, p in enumerate("aabbcc")], compact="none")
    return context


def plan(context: TableContext, **request: Any) -> WritePlan:
    given = WriteRequest(ArrowRows(pa.table({"p": ["a"], "k": pa.array([1], pa.int32())})), **request)
    return plan_write(context, given, "me")


def partitions(context: TableContext) -> dict[str, bytes]:
    found = {bucket.partition for bucket in bucket_files(context, context.snapshots.latest())}
    return {name: one for name in "abc" for one in found if PartitionSpec.parse(context, {"p": name}).matches(one)}


def test_an_upsert_continues_and_an_overwrite_begins_anew(tmp_path: Path) -> None:
    context = made(tmp_path)
    live, wider = bucket_files(context, context.snapshots.latest()), TableContext.open(context.url, {"bucket": "4"})
    upsert, over = plan(context), plan(context, overwrite=True)
    assert (upsert.replaces_rows, over.replaces_rows) == (False, True) and upsert.planned_at == over.planned_at == 1
    assert set(upsert.first_sequences) == set(live) and min(upsert.first_sequences.values()) > 0 and not over.first_sequences
    assert upsert.compaction is not None and set(upsert.compaction.existing) == set(live)
    assert over.compaction is not None and not set(over.compaction.existing)
    assert upsert.postponing_writer.commit_user == "me" and not upsert.buckets.others
    assert plan(wider).buckets.others == dict.fromkeys(partitions(context).values(), 2)
    assert not plan(wider, overwrite=True).buckets.others


def test_which_rows_a_request_takes(tmp_path: Path) -> None:
    context = made(tmp_path, options={"ignore-delete": "true"})

    def incoming(**request: Any) -> IncomingRows:
        rows = plan(context, **request).incoming
        assert isinstance(rows, IncomingRows)
        return rows

    assert (incoming().kind, incoming(op="delete").kind) == (RowKind.INSERT, RowKind.DELETE)
    skips = [incoming(on_error=on_error).skips_bad_rows for on_error in ("fail", "skip", str(tmp_path / "bad.csv"))]
    assert skips == [False, True, True]
    assert incoming().kind_filter.dropped and [incoming(missing_columns=m).missing_are_null for m in ("error", "null")] == [
        False,
        True,
    ]


def test_how_writers_compact(tmp_path: Path) -> None:
    context, cross = made(tmp_path, options=FULL), made(tmp_path / "cross", "cross")

    def how(context: TableContext, **request: Any) -> tuple[str, int, bool] | None:
        found = plan(context, **request).compaction
        if found is None:
            return None
        assert isinstance(found.compact_bucket, WriterCompaction)
        return (found.compact_bucket.strategy, found.compact_bucket.read_snapshot_id, found.beside)

    assert how(context) == how(context, compact="inline") == ("full", 1, False) and how(context, compact="async") == (
        "full",
        1,
        True,
    )
    assert how(context, commit_user="u", commit_id=3) == ("minor", 1, False)
    assert how(context, compact="none") is None and how(context, compact="after") is None
    assert how(TableContext.open(context.url, {"write-only": "true"})) is None
    assert how(cross) == ("minor", 1, False) and how(cross, overwrite=True) is None, "what it replaces is not known yet"


def test_keys_are_looked_up_where_they_will_still_be(tmp_path: Path) -> None:
    context, dynamic = made(tmp_path, "cross"), made(tmp_path / "dynamic", "dynamic")
    by_name = {one: name for name, one in partitions(context).items()}

    def looked_at(context: TableContext, **request: Any) -> str:
        found = plan(context, **request).assignment
        assert isinstance(found, LookupAssignment) and found.read_at == 1
        return "".join(sorted(by_name[bucket.partition] for bucket in found.buckets))

    assert looked_at(context) == looked_at(context, overwrite=True) == "abc"
    assert looked_at(context, overwrite=True, partition=({"p": "b"},)) == "ac"
    assert looked_at(TableContext.open(context.url, {"dynamic-partition-overwrite": "false"}), overwrite=True) == ""
    assert set(plan(context, overwrite=True).first_sequences) == set(bucket_files(context, context.snapshots.latest()))
    for request, known in (({}, 3), ({"overwrite": True}, 0)):
        assignment = plan(dynamic, **request).assignment
        assert isinstance(assignment, IndexAssignment)
        assert len(assignment.indexes.files) == len(assignment.indexes.with_rows) == known
    patched = make_table(tmp_path / "patched", COLUMNS, ["k"], ["p"], -1, {"merge-engine": "partial-update"})
    write(patched, [{"p": "a", "k": 1}])
    with pytest.raises(NotSupported, match="not known in advance"):
        plan(patched, overwrite=True)
    assert plan(patched, overwrite=True, partition=({"p": "a"},)).replaces_rows


def test_what_a_write_has_read(tmp_path: Path) -> None:
    context, empty = made(tmp_path), make_table(tmp_path / "empty", COLUMNS, ["p", "k"], ["p"])
    write(context, [{"p": "a", "k": 9}])
    assert [plan(context, read_snapshot=given).read_snapshot_id for given in (None, 0, 1, 2)] == [2, 0, 1, 2]
    assert plan(empty).read_snapshot_id is None and plan(empty).planned_at is None
    for table, given in ((context, 3), (empty, 1)):
        with pytest.raises(SnapshotNotFound):
            plan(table, read_snapshot=given)


def test_what_is_refused_before_any_work(tmp_path: Path) -> None:
    context = made(tmp_path)
    tiered = TableContext.open(context.url, {"fluss.table.datalake.enabled": "true"})
    assert plan(tiered).splits
    with pytest.raises(Refused, match="cannot replace rows of"):
        plan(tiered, overwrite=True)
    gone = make_table(tmp_path / "gone", COLUMNS, ["p", "k"], ["p"])
    assert gone.schema.fields
    Path(gone.layout.schema(0)).unlink()
    with pytest.raises(NotFound):
        plan(gone)


def test_which_partitions_an_overwrite_replaces(tmp_path: Path) -> None:
    context = made(tmp_path, "cross")
    names = partitions(context)

    def message(name: str, deletes: int = 0) -> CommitMessage:
        file = replace(data_file("f", rows=2), delete_row_count=deletes)
        return CommitMessage(names[name], 0, -1, append=FileChanges(added=(file,)))

    def replaced(given: list[CommitMessage], static: dict[str, str] | None, is_dynamic: bool = True) -> str:
        covered = overwritten(context, given, static, is_dynamic)
        return "".join(name for name, one in names.items() if covered.matches(one))

    moved = [message("a"), message("b", deletes=2)]
    assert replaced(moved, None) == "a", "keys only moved away from b"
    assert replaced([message("a"), message("b", deletes=1)], None) == "ab"
    assert replaced(moved, None, is_dynamic=False) == "abc" and replaced([], None) == ""
    assert replaced(moved, {"p": "a"}) == "a"
    for outside in ([message("c"), message("a")], [message("a"), message("c")]):
        with pytest.raises(BadInput, match="outside the partition"):
            replaced(outside, {"p": "a"})
