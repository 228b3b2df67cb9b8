"""Writers of tables without `write-only` compact what their flushes have grown, and wait when there are too many runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from paimon_cli.commit.committer import Committer
from paimon_cli.compact.bucket_compactor import WriterCompaction
from paimon_cli.errors import DamagedFile, StorageUnavailable
from paimon_cli.history.live_files import BucketFiles, bucket_files
from paimon_cli.history.snapshot_history import SnapshotHistory
from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants.check import check_table
from paimon_cli.maintain.expire_snapshots import expire_snapshots
from paimon_cli.maintain.orphans import find_orphans
from paimon_cli.maintain.retention import Retention
from paimon_cli.metadata.data_file import CommitMessage, DataFileMeta
from paimon_cli.metadata.snapshot import Snapshot
from tests.tables import compact, data_files, live_files, make_table, named_files, rows, write

COLUMNS = {"k": "INT NOT NULL", "v": "STRING"}
TINY_BUFFER = {"write-buffer-size": "4 kb", "write-buffer-spillable": "false"}


def live(context: TableContext) -> list[DataFileMeta]:
    return [f for bucket in bucket_files(context, context.snapshots.latest()).values() for f in bucket.files]


def kinds(context: TableContext) -> list[str]:
    return [snapshot.commit_kind for snapshot in context.snapshots.newest_first()][::-1]


def test_the_fifth_run_brings_a_compaction(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["k"])
    for number in range(5):
        summary = write(context, [{"k": k, "v": f"{number}"} for k in range(10)])
    assert kinds(context) == ["APPEND"] * 5 + ["COMPACT"]
    assert summary.compacted == 1 and len(summary.snapshots) == 2
    assert [(f.level, f.row_count) for f in live(context)] == [(5, 10)]
    assert rows(context) == [{"k": k, "v": "4"} for k in range(10)]
    assert data_files(context) == named_files(context)


@pytest.mark.parametrize("quiet", [{"write-only": "true"}, {}])
def test_write_only_tables_are_not_compacted(tmp_path: Path, quiet: dict[str, str]) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["k"], options=quiet)
    for number in range(7):
        write(context, [{"k": number, "v": ""}], compact="inline" if quiet else "none")
    assert kinds(context) == ["APPEND"] * 7


@pytest.mark.nightly
def test_back_pressure_bounds_the_runs_of_one_write(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["k"], options={**TINY_BUFFER, "num-sorted-run.stop-trigger": "6"})
    given = [{"k": k % 900, "v": f"value {k}"} for k in range(40_000)]
    summary = write(context, given)
    assert summary.stalls > 3
    assert kinds(context) == ["APPEND", "COMPACT"]
    levels = [f.level for f in live(context)]
    assert levels.count(0) <= 6
    assert sorted(rows(context), key=lambda row: row["k"]) == sorted(given[-900:], key=lambda row: row["k"])  # type: ignore[arg-type,return-value]
    append = context.snapshots.get(1)
    flushed = {entry.file.file_name for entry in context.manifests.delta_entries(append)}
    on_disk = {Path(name).name for name in data_files(context)}
    assert on_disk == flushed | {f.file_name for f in live(context)}, "what was made and consumed in between is gone"


def test_rows_outlive_a_compaction_that_was_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The write succeeds even if its snapshot cannot be read again."""
    context = make_table(tmp_path / "t", COLUMNS, ["k"])
    for number in range(4):
        write(context, [{"k": number, "v": "old"}])
    real = Committer.commit
    rivals: list[int] = []

    def behind_a_rival(self: Committer, *args: object, **named: object) -> object:
        if not rivals:
            rivals.append(1)
            compact(TableContext.open(context.layout.root), strategy="full")
        return real(self, *args, **named)  # type: ignore[arg-type]

    def unreadable(self: SnapshotHistory, snapshot_id: int) -> Snapshot:
        raise StorageUnavailable(f"cannot read snapshot {snapshot_id}", "on purpose")

    with monkeypatch.context() as during_the_write:
        during_the_write.setattr(Committer, "commit", behind_a_rival)
        during_the_write.setattr(SnapshotHistory, "get", unreadable)
        summary = write(context, [{"k": 9, "v": "new"}])
    assert summary.compaction_lost is not None and summary.compacted == 0
    assert [snapshot.id for snapshot in summary.snapshots] == [6]
    assert rows(context) == [{"k": k, "v": "old"} for k in range(4)] + [{"k": 9, "v": "new"}]
    assert kinds(context) == ["APPEND"] * 4 + ["COMPACT", "APPEND"]
    named = {e.file.file_name for s in context.snapshots.newest_first() for e in context.manifests.delta_entries(s)}
    assert {Path(name).name for name in data_files(context)} <= named, "the lost compaction's files are removed"


def before_a_compaction(monkeypatch: pytest.MonkeyPatch, what: Callable[[BucketFiles], None]) -> None:
    """Runs `what` once, when a writer's compaction has been offered a bucket."""
    real = WriterCompaction.__call__
    done: list[int] = []

    def behind_it(
        self: WriterCompaction, context: TableContext, bucket: BucketFiles, is_given_up: Callable[[], bool]
    ) -> CommitMessage | None:
        if not done:
            done.append(1)
            what(bucket)
        return real(self, context, bucket, is_given_up)

    monkeypatch.setattr(WriterCompaction, "__call__", behind_it)


@pytest.mark.parametrize("compaction", ["inline", "async"])
def test_rows_outlive_files_that_expired_under_the_compaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compaction: str
) -> None:
    """A rival has compacted them, and an expiry deleted them, before the writer's compaction has read them."""
    context = make_table(tmp_path / "t", COLUMNS, ["k"], options={**TINY_BUFFER, "num-sorted-run.stop-trigger": "6"})
    for number in range(4):
        write(context, [{"k": number, "v": "old"}], compact="none")

    def rival(bucket: BucketFiles) -> None:
        compact(TableContext.open(context.layout.root), strategy="full")
        expire_snapshots(context, Retention(at_least=1, at_most=1, millis=0, limit=None))

    before_a_compaction(monkeypatch, rival)
    given = [{"k": k % 500 + 4, "v": f"value {k}"} for k in range(5_000)]
    summary = write(context, given, compact=compaction)
    assert summary.compaction_lost is not None and "replaced and expired" in summary.compaction_lost
    assert summary.compacted == 0 and summary.stalls <= 1
    expected = [{"k": k, "v": "old"} for k in range(4)] + given[-500:]
    assert sorted(rows(context), key=lambda row: row["k"]) == sorted(expected, key=lambda row: row["k"])  # type: ignore[arg-type,return-value]
    assert kinds(context) == ["COMPACT", "APPEND"]
    assert data_files(context) == live_files(context)


@pytest.mark.parametrize("of_this_write", [False, True])
def test_a_file_that_only_vanished_is_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of_this_write: bool) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["k"])
    for number in range(4):
        write(context, [{"k": number, "v": "old"}])

    def vanish(bucket: BucketFiles) -> None:
        file = bucket.files[-1 if of_this_write else 0]
        context.storage.delete(context.data_file_path(bucket.partition, bucket.bucket, file))

    before_a_compaction(monkeypatch, vanish)
    with pytest.raises(DamagedFile, match="is missing"):
        write(context, [{"k": 9, "v": "new"}])
    assert kinds(context) == ["APPEND"] * 4


@pytest.mark.parametrize(
    "options",
    [
        {"deletion-vectors.enabled": "true"},
        {"deletion-vectors.enabled": "true", "bucket": "-1", "dynamic-bucket.target-row-num": "900"},
        {"merge-engine": "first-row"},
    ],
)
def test_an_overwrite_is_one_snapshot_where_readers_skip_level_0(tmp_path: Path, options: dict[str, str]) -> None:
    """Between two of them, readers would see neither the old rows nor the new ones."""
    context = make_table(tmp_path / "t", COLUMNS, ["k"], options={**options, **TINY_BUFFER})
    write(context, [{"k": k, "v": "old"} for k in range(2000)])
    write(context, [{"k": k, "v": "new"} for k in range(1000, 3000)], overwrite=True)
    assert kinds(context) == ["APPEND", "COMPACT", "OVERWRITE"]
    assert sorted(row["k"] for row in rows(context)) == list(range(1000, 3000))
    assert {row["v"] for row in rows(context)} == {"new"}
    assert not list(check_table(context, rows=True))
    assert not find_orphans(context, context.clock.now_millis() + 1000, True).files


def test_overwrites_compact_only_what_they_wrote(tmp_path: Path) -> None:
    options = {**TINY_BUFFER, "num-sorted-run.stop-trigger": "5"}
    context = make_table(tmp_path / "t", COLUMNS, ["k"], options=options)
    write(context, [{"k": k, "v": "old"} for k in range(2000)])
    write(context, [{"k": k, "v": "new"} for k in range(1000, 3000)], overwrite=True)
    assert sorted(row["k"] for row in rows(context)) == list(range(1000, 3000))
    assert kinds(context)[-2:] == ["OVERWRITE", "COMPACT"]
