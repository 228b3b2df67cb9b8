"""Jobs that read and change rows of tables whose readers wait for a compaction of level 0."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest

from paimon_cli.api.table import Table
from paimon_cli.errors import FilesConflict, PartialSuccess
from paimon_cli.history.live_files import bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.waiting_records import waiting_text
from paimon_cli.invariants.check import check_table
from paimon_cli.jobs.engine import LocalEngine, NoProgress, run_traced
from paimon_cli.jobs.metadata_jobs import RolledBack, run_restore
from paimon_cli.jobs.update_job import UpdateRequest, UpdateSummary, run_update
from paimon_cli.jobs.write_job import WriteSummary
from paimon_cli.options.choices import CompactionMode
from paimon_cli.pieces import PIECES
from paimon_cli.storage.local_storage import LocalStorage
from tests.faults.fault_kinds import Fault, Kind
from tests.faults.fault_storage import FaultStorage
from tests.rivals import beside, files_of
from tests.tables import compact, make_table, rows, write

COLUMNS = {"k": "INT NOT NULL", "n": "INT"}
VECTORS = {"deletion-vectors.enabled": "true"}


def update(context: TableContext, where: str, *assignments: str) -> UpdateSummary:
    return run_update(context, UpdateRequest(where, assignments), LocalEngine(), NoProgress())


def table_with_hidden_rows(folder: Path, **options: str) -> TableContext:
    """Rows 1 and 2 are shown with n = 1; n = 10 of row 2 and row 3 wait at level 0."""
    context = make_table(folder / "t", COLUMNS, ["k"], options={**VECTORS, **options})
    write(context, [{"k": 1, "n": 1}, {"k": 2, "n": 1}])
    compact(context, strategy="minor")
    write(context, [{"k": 2, "n": 10}, {"k": 3, "n": 10}], compact="none")
    assert rows(context) == [{"k": 1, "n": 1}, {"k": 2, "n": 1}]
    return context


def test_an_update_sees_what_readers_do_not_see_yet(tmp_path: Path) -> None:
    context = table_with_hidden_rows(tmp_path)
    done = update(context, "k >= 2", "n = n + 1")
    assert (done.rows, done.compaction_lost) == (2, None)
    assert rows(context) == [{"k": 1, "n": 1}, {"k": 2, "n": 11}, {"k": 3, "n": 11}]
    assert update(context, "k = 3").rows == 1
    assert rows(context) == [{"k": 1, "n": 1}, {"k": 2, "n": 11}]
    assert not list(check_table(context, rows=True))


def test_an_update_of_a_write_only_table_waits_for_its_compaction(tmp_path: Path) -> None:
    context = table_with_hidden_rows(tmp_path, **{"write-only": "true"})
    assert update(context, "k = 1", "n = 5").rows == 1
    assert rows(context)[0] == {"k": 1, "n": 1}
    compact(context, strategy="minor")
    assert rows(context) == [{"k": 1, "n": 5}, {"k": 2, "n": 10}, {"k": 3, "n": 10}]


@pytest.mark.parametrize("options", [VECTORS, {"merge-engine": "first-row"}, {**VECTORS, "write-only": "true"}])
def test_a_rescale_keeps_and_shows_rows_that_were_hidden(tmp_path: Path, options: dict[str, str]) -> None:
    context = make_table(tmp_path / "t", COLUMNS, ["k"], bucket=2, options=options)
    write(context, [{"k": number, "n": 1} for number in range(20)])
    compact(context, strategy="minor")
    write(context, [{"k": number, "n": 2} for number in range(10, 30)], compact="none")
    first_row = "merge-engine" in options
    expected = {number: 1 if number < (20 if first_row else 10) else 2 for number in range(30)}
    Table.open(context.url).plan_rescale(3).run()
    again = TableContext.open(context.url)
    assert {one["k"]: one["n"] for one in rows(again)} == expected
    assert {bucket.total_buckets for bucket in bucket_files(again, again.snapshots.latest()).values()} == {3}
    assert not list(check_table(again, rows=True))


SMALL_FILES = {**VECTORS, "target-file-row-num": "5", "compaction.small-file-ratio": "0"}


def marked_table(folder: Path, **options: str) -> TableContext:
    """Keys 0 to 19 in four files at the top level, two of them marked in the first."""
    context = make_table(folder / "t", COLUMNS, ["k"], options={**SMALL_FILES, **options})
    write(context, [{"k": number, "n": 0} for number in range(20)])
    compact(context)
    write(context, [{"k": 0, "n": 1}, {"k": 1, "n": 1}])
    return context


def upsert(context: TableContext, *keys: int, compaction: str = "inline") -> None:
    write(context, [{"k": key, "n": 2} for key in keys], compact=compaction)


def shown(context: TableContext) -> dict[int, int]:
    return {row["k"]: row["n"] for row in rows(context)}


def index_files(context: TableContext) -> set[str]:
    return {name for name in files_of(context) if name.startswith("index/")}


def named_index_files(context: TableContext) -> set[str]:
    versions = (context.snapshots.get(number) for number in context.snapshots.ids())
    return {f"index/{entry.index_file.file_name}" for version in versions for entry in context.manifests.index_entries(version)}


EXPECTED = {**dict.fromkeys(range(20), 0), 0: 1, 1: 1}


def test_a_full_compaction_that_a_new_vector_overtakes_plans_again(tmp_path: Path) -> None:
    context = marked_table(tmp_path)
    summary = compact(beside(context, lambda: upsert(context, 7, 13)))
    assert (summary.conflicts, summary.buckets) == (1, 1)
    assert shown(context) == {**EXPECTED, 7: 2, 13: 2}
    assert not list(check_table(context, rows=True)) and index_files(context) == named_index_files(context)


def test_a_compaction_of_other_files_is_refused_with_exit_code_5_and_leaves_nothing(tmp_path: Path) -> None:
    context = marked_table(tmp_path)
    before = files_of(context)
    upsert(context, 7, compaction="none")
    rival = beside(context, lambda: compact(context, bucket=(0,)))
    with pytest.raises(FilesConflict) as conflict:
        compact(rival, strategy="minor", on_conflict="fail")
    assert conflict.value.exit_code == 5 and shown(context) == {**EXPECTED, 7: 2}
    assert index_files(context) == named_index_files(context) and before <= files_of(context)


def test_a_write_whose_compaction_is_overtaken_compacts_again(tmp_path: Path) -> None:
    """Otherwise its rows would stay hidden until another job compacts their buckets."""
    context = marked_table(tmp_path)
    summary = write(beside(context, lambda: upsert(context, 9)), [{"k": 9, "n": 3}, {"k": 10, "n": 3}])
    assert summary.compaction_repeated and (summary.compaction_lost, summary.compacted) == (None, 1)
    assert [one.id for one in summary.snapshots] == context.snapshots.ids()[-2:], "that of its rows, and that of the compaction"
    assert shown(context)[10] == 3 and index_files(context) == named_index_files(context)
    # two writers at a time number their rows alike
    assert {found.code for found in check_table(context, rows=True)} == {"PV023"}


def test_a_change_that_another_run_has_made_meanwhile_is_finished(tmp_path: Path) -> None:
    """That run may be killed before it compacts; until then nobody sees the rows."""
    context = table_with_hidden_rows(tmp_path)

    def change(where: TableContext, compaction: Literal["none", "inline"], number: int) -> UpdateSummary:
        request = UpdateRequest("k = 1", (f"n = {number}",), commit_user="u", commit_id=number, compact=compaction)
        return run_update(where, request, LocalEngine(), NoProgress())

    done = change(beside(context, lambda: change(context, "none", 5)), "none", 5)
    assert done.already_committed and done.waiting_records == 3
    done = change(beside(context, lambda: change(context, "none", 6)), "inline", 6)
    assert done.already_committed and (done.compacted, done.waiting_records) == (1, 0)
    assert shown(context) == {1: 6, 2: 10, 3: 10}


def test_several_compactions_of_one_write_leave_one_file_of_vectors(tmp_path: Path) -> None:
    """Each flush is compacted; only the last index file is committed, the others are deleted."""
    context = marked_table(
        tmp_path, **{"write-buffer-size": "1 kb", "num-sorted-run.stop-trigger": "1", "write-buffer-spillable": "false"}
    )
    before = index_files(context)
    summary = write(context, [{"k": number % 20, "n": number} for number in range(2000)])
    assert summary.flushes > 2 and summary.compacted == 1
    assert shown(context) == {key: 1980 + key for key in range(20)}
    assert len(index_files(context) - before) <= 1 and index_files(context) == named_index_files(context)
    assert not list(check_table(context, rows=True))


def test_a_compaction_that_fails_leaves_no_index_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = marked_table(tmp_path)
    upsert(context, 7, compaction="none")
    before = files_of(context)

    def interrupted(*given: Any, **named: Any) -> None:
        run_traced(*given, **named)
        raise KeyboardInterrupt

    monkeypatch.setattr("paimon_cli.jobs.bucket_tasks.run_traced", interrupted)
    with pytest.raises(KeyboardInterrupt):
        compact(context, strategy="minor")
    assert files_of(context) == before


def outage_after_the_commit(context: TableContext) -> TableContext:
    """The table on a storage that answers no more once a commit is complete: its last call writes the hint."""
    published = False

    def fault_of(call: int, name: str, path: str) -> Fault | None:
        nonlocal published
        was_published, published = published, published or (name == "overwrite" and path.endswith("/LATEST"))
        return Fault(call, Kind.OUTAGE) if was_published else None

    return TableContext.open(context.url, storage=FaultStorage(LocalStorage(), fault_of))


def _write(context: TableContext) -> WriteSummary:
    return write(context, [{"k": 4, "n": 4}], compact="none")


def _overwrite(context: TableContext) -> WriteSummary:
    return write(context, [{"k": 4, "n": 4}], compact="none", overwrite=True)


def _update(context: TableContext) -> UpdateSummary:
    return update(context, "k = 1", "n = 5")


def _restore(context: TableContext) -> RolledBack:
    return run_restore(context, context.snapshots.get(1), LocalEngine(), NoProgress(), CompactionMode.NONE)


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize(("change", "waiting"), [(_write, 3), (_overwrite, 1), (_update, 3), (_restore, 2)])
def test_an_outage_after_the_commit_does_not_deny_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[TableContext], WriteSummary | UpdateSummary | RolledBack],
    waiting: int | None,
    keeps: bool,
) -> None:
    """How many records wait is asked after the commit. Only manifests that are kept since before it can tell."""
    if not keeps:
        monkeypatch.setattr(PIECES, "many_entries", 1)
        waiting = waiting if change is _restore else None
    context = table_with_hidden_rows(tmp_path, **{"write-only": "true"})
    before = context.snapshots.latest_id()
    done = change(outage_after_the_commit(context))
    assert done.waiting_records == waiting
    assert context.snapshots.latest_id() == (before or 0) + 1
    assert ("not known" in waiting_text("t", done.waiting_records)) == (waiting is None)


def test_a_compaction_that_fails_after_the_commit_does_not_deny_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = table_with_hidden_rows(tmp_path, **{"write-only": "true"})
    table, new = Table.open(context.url), pa.table({"k": pa.array([4], pa.int32()), "n": pa.array([4], pa.int32())})
    table.context = outage_after_the_commit(context)
    with pytest.raises(PartialSuccess, match="the rows are committed as snapshot 4, but the compaction") as caught:
        table.write(new, compact="after")
    assert caught.value.exit_code == 9 and caught.value.details["snapshot_id"] == 4
    assert context.snapshots.latest_id() == 4
