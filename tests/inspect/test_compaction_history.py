"""The history of compactions, of real writers and of this engine; compactions of manifests are listed separately."""

from __future__ import annotations

from pathlib import Path

from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import fresh_identity
from paimon_cli.history.table_context import TableContext
from paimon_cli.inspect.compaction_history import DATA_FILES, MANIFESTS, POSTPONED_ROWS, compacted_buckets, compaction_rows
from paimon_cli.inspect.compaction_report import guards
from paimon_cli.inspect.findings.examined_table import ExaminedTable
from paimon_cli.inspect.health_report import health_of
from paimon_cli.metadata.snapshot import COMPACT
from tests.goldens import golden_table
from tests.tables import compact, make_table, write

COLUMNS = {"id": "INT NOT NULL", "dt": "STRING NOT NULL", "n": "INT"}


def test_a_compaction_reports_what_it_merged_in_which_buckets(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["id", "dt"], ["dt"], bucket=1, options={"write-only": "true"})
    for number in range(3):
        write(context, [{"id": 1, "dt": "a", "n": number}])
    write(context, [{"id": 1, "dt": "b", "n": 0}])
    done = compact(context, strategy="full")
    (row,) = compaction_rows(context)
    assert (row.snapshot_id, row.what, row.partitions, row.buckets) == (5, DATA_FILES, ("dt=a", "dt=b"), 2)
    assert (row.files_before, row.files_after, row.upgraded) == (3, 1, 1), "the upgraded file was neither read nor written"
    assert (row.rows_before, row.rows_after, row.levels) == (3, 1, "0 -> 5")
    kept = sum(task.size for task in done.plan.tasks if len(task.files) == 1)
    assert kept and (row.bytes_before, row.bytes_after) == (done.bytes_before - kept, done.bytes_after - kept)
    assert row.seconds is not None and 0 <= row.seconds < 600
    (snapshot,) = done.snapshots
    first, second = compacted_buckets(context, snapshot)
    assert (first.partition, first.files_before, first.files_after, first.upgraded) == ("dt=a", 3, 1, 0)
    assert (second.partition, second.files_before, second.files_after, second.upgraded) == ("dt=b", 0, 0, 1)


def test_compactions_of_java_are_listed_without_their_time(tmp_path: Path) -> None:
    context = make_table(tmp_path / "ours", COLUMNS, ["id", "dt"])
    assert compaction_rows(context) == []
    java = TableContext.open(str(golden_table("java-0.9", "dv_dedup", tmp_path)))
    rows = compaction_rows(java)
    assert rows and all(row.seconds is None and row.files_before + row.upgraded for row in rows)
    kinds = [s.id for s in java.snapshots.newest_first() if s.commit_kind == COMPACT]
    assert [row.snapshot_id for row in rows] == kinds
    assert compaction_rows(java, limit=1) == rows[:1] and compaction_rows(java, user="nobody") == []


def test_rows_that_got_their_buckets_and_rewritten_manifests_are_named_so(tmp_path: Path) -> None:
    options = {"postpone.batch-write-fixed-bucket": "false"}
    context = make_table(tmp_path / "t", COLUMNS, ["id", "dt"], bucket=-2, options=options)
    write(context, [{"id": 1, "dt": "a", "n": 1}])
    write(context, [{"id": 2, "dt": "a", "n": 1}])
    compact(context, strategy="full")
    Committer(context).compact_manifests(fresh_identity(context))
    newest, *older = compaction_rows(context)
    assert (newest.what, newest.files_before, newest.buckets, newest.levels) == (MANIFESTS, 0, 0, "")
    assert newest.manifests_before is not None and (newest.manifests_before > 1, newest.manifests_after) == (True, 1)
    assert POSTPONED_ROWS in {row.what for row in older} and {row.manifests_after for row in older} == {None}
    context.storage.delete(context.layout.snapshot(newest.snapshot_id - 1))
    expired, *_ = compaction_rows(context)
    assert (expired.manifests_before, expired.manifests_after) == (None, 1)


def test_a_compaction_of_manifests_does_not_count_as_one_of_files(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["id", "dt"], options={"write-only": "true"})
    for number in range(2):
        write(context, [{"id": 1, "dt": "a", "n": number}])
    Committer(context).compact_manifests(fresh_identity(context))
    assert guards(context).compactors == ()
    assert health_of(ExaminedTable(context, "t"), "t").uncompacted_seconds is not None
