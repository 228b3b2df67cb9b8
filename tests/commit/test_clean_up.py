"""A clean-up that fails: the error that led to it is reported, and a valid commit does not become a failure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from paimon_cli.errors import BadInput, DataConflict, FilesConflict, PaimonError, StorageUnavailable
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.row_sources import FileRows
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.export_job import ExportRequest, run_export
from paimon_cli.jobs.staging.stage_job import StageFile, stage_write
from paimon_cli.jobs.update_job import UpdateRequest, run_update
from paimon_cli.jobs.write_request import WriteRequest
from paimon_cli.read.scan_plan import plan_scan
from paimon_cli.read.selection import selected
from paimon_cli.storage.local_storage import LocalStorage
from tests.rivals import RivalStorage
from tests.tables import commit_stage, compact, make_table, rows, write

BY_BUCKET = {"commit.data-conflict-check": "bucket"}


class KeepsAll(RivalStorage):
    """Deletes no data file and lists no bucket, from the first publication on or from the beginning."""

    def __init__(self, *acts: Callable[[], object], from_the_start: bool = False) -> None:
        super().__init__(*acts)
        self.from_the_start = from_the_start

    def delete(self, path: str) -> None:
        if "/bucket-" in path and (self.from_the_start or self.puts):
            raise StorageUnavailable(f"cannot delete {path}", "on purpose")
        super().delete(path)


@pytest.fixture
def table(tmp_path: Path) -> TableContext:
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL", "v": "INT"}, ["k"], options={"write-only": "true"})
    write(context, [{"k": number, "v": number} for number in range(4)])
    write(context, [{"k": 1, "v": 7}])
    return context


def stubborn(
    table: TableContext, *acts: Callable[[], object], start: bool = False, options: Mapping[str, str] | None = None
) -> TableContext:
    return TableContext.open(table.url, options, storage=KeepsAll(*acts, from_the_start=start))


def test_bad_input_of_a_write_is_reported_with_row_and_column(table: TableContext) -> None:
    lines = [{"k": number, "v": number} for number in range(50)] + [{"k": 50, "v": "no number"}]
    context = stubborn(table, start=True, options={"write-buffer-size": "1 kb", "write-buffer-spillable": "false"})
    with pytest.raises(BadInput, match="v") as failure:
        write(context, lines)
    assert failure.value.exit_code == 2 and "51" in str(failure.value)


def test_a_conflict_of_a_write_stays_a_conflict(table: TableContext) -> None:
    rival = lambda: write(table, [{"k": 9, "v": 9}])  # noqa: E731
    with pytest.raises(DataConflict) as failure:
        write(stubborn(table, rival, options=BY_BUCKET), [{"k": 1, "v": 1}])
    assert failure.value.exit_code == 5 and "on purpose" in failure.value.details["clean_up_failed"]


def test_an_update_tries_again_although_its_clean_up_failed(table: TableContext) -> None:
    rival = lambda: write(table, [{"k": 1, "v": 100}])  # noqa: E731
    context = stubborn(table, rival)
    done = run_update(context, UpdateRequest("k = 1", ("v = v + 1",)), LocalEngine(), NoProgress())
    assert (done.conflicts, done.attempts) == (1, 2)
    assert {row["k"]: row["v"] for row in rows(table)}[1] == 101


def test_an_update_that_fails_reports_why(table: TableContext) -> None:
    with pytest.raises(PaimonError) as failure:
        run_update(stubborn(table, start=True), UpdateRequest("true", ("v = v * 2000000000",)), LocalEngine(), NoProgress())
    assert failure.value.exit_code == 2


def test_a_compaction_keeps_its_conflict_and_tries_again(table: TableContext) -> None:
    assert compact(stubborn(table, lambda: compact(table))).conflicts == 1
    write(table, [{"k": 2, "v": 7}])
    with pytest.raises(FilesConflict):
        compact(stubborn(table, lambda: compact(table)), on_conflict="fail")


def test_a_repetition_is_a_success_although_our_files_stay(table: TableContext) -> None:
    row = [{"k": 1, "v": 5}]
    twin = lambda: write(table, row, commit_user="job", commit_id=1)  # noqa: E731
    assert write(stubborn(table, twin), row, commit_user="job", commit_id=1).already_committed


def test_a_staged_commit_keeps_its_conflict(table: TableContext, tmp_path: Path) -> None:
    source = tmp_path / "rows.jsonl"
    source.write_text('{"k": 1, "v": 5}\n')
    file = StageFile(str(tmp_path / "f.stage"))
    checked = TableContext.open(table.url, BY_BUCKET)
    stage_write(checked, WriteRequest(FileRows((str(source),), "json")), file, LocalEngine(), NoProgress())
    write(table, [{"k": 1, "v": 6}])
    with pytest.raises(DataConflict):
        commit_stage(stubborn(table, start=True), file)


def test_an_export_reports_why_it_failed(table: TableContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for file in (Path(table.url) / "bucket-0").iterdir():
        file.write_bytes(b"damage")

    def refuse(self: LocalStorage, path: str) -> None:
        if Path(path).exists():
            raise StorageUnavailable(f"cannot delete {path}", "on purpose")

    latest = table.snapshots.latest()
    assert latest is not None
    plan = plan_scan(table, latest)
    monkeypatch.setattr(LocalStorage, "delete", refuse)
    request = ExportRequest(str(tmp_path / "out"), selected(table.schema, None))
    with pytest.raises(PaimonError) as failure:
        run_export(table, plan, request, LocalEngine(), NoProgress())
    assert failure.value.exit_code == 10


def test_one_stubborn_file_does_not_stop_the_others(table: TableContext) -> None:
    from paimon_cli.storage.deletions import delete_all

    class OneStays(LocalStorage):
        gone: list[str] = []  # noqa: RUF012

        def delete(self, path: str) -> None:
            if path == "b":
                raise StorageUnavailable("b stays")
            self.gone.append(path)

    with pytest.raises(StorageUnavailable, match="b stays"):
        delete_all(OneStays(), ["a", "b", "c"])
    assert OneStays.gone == ["a", "c"]
