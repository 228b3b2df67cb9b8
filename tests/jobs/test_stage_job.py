"""The two phases of a write as separate commands: staged rows are invisible, committed once, and can be aborted before."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paimon_cli.commit.commit_records import CommitIntents
from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import CommitIdentity
from paimon_cli.commit.outcome import CommitResult
from paimon_cli.errors import BadInput, Conflict, DamagedFile, DataConflict, NotFound, Refused, StorageUnavailable, UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.row_sources import FileRows
from paimon_cli.inspect.staged_report import staged_details
from paimon_cli.invariants.check import check_table
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.staging import stage_job
from paimon_cli.jobs.staging.stage_commit import StagedWrite, StageSummary, Together, abort_stage, commit_and_compact
from paimon_cli.jobs.staging.stage_job import StageFile, check_stage, stage_write
from paimon_cli.jobs.write_request import WriteRequest
from paimon_cli.maintain.expire_snapshots import expire_snapshots
from paimon_cli.maintain.retention import Retention
from paimon_cli.metadata.data_file import HASH, FileChanges, IndexFileMeta
from paimon_cli.metadata.staged_commit import ABORTED, COMMITTED, STAGED, StagedCommit
from paimon_cli.options.choices import CompactionMode, WriterOrder
from tests.rivals import beside, files_of
from tests.tables import commit_stage, compact, data_files, live_files, make_table, rows, write

COLUMNS = {"dt": "STRING NOT NULL", "id": "INT NOT NULL", "v": "INT"}


@pytest.fixture
def table(tmp_path: Path) -> TableContext:
    context = make_table(tmp_path / "t", COLUMNS, ["dt", "id"], ["dt"], bucket=2)
    write(context, [row(1, 10), row(2, 20)])
    return context


def row(number: int, value: int, day: str = "a") -> dict[str, Any]:
    return {"dt": day, "id": number, "v": value}


def stage(context: TableContext, name: str, content: list[dict[str, Any]], **request: Any) -> StageFile:
    folder = Path(context.url).parent
    (folder / f"{name}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in content))
    file = StageFile(str(folder / name))
    rows = FileRows((str(folder / f"{name}.jsonl"),), "json")
    stage_write(context, WriteRequest(rows, **request), file, LocalEngine(), NoProgress())
    return file


def commit(context: TableContext, file: StageFile) -> CommitResult:
    return commit_stage(context, file)


def abort(context: TableContext, file: StageFile) -> int:
    return abort_stage(context, StagedWrite(file, file.read()))


def values(context: TableContext) -> list[tuple[Any, ...]]:
    return [tuple(one.values()) for one in rows(context)]


def test_nothing_is_visible_before_the_commit(table: TableContext) -> None:
    before = files_of(table)
    file = stage(table, "f", [row(1, 11), row(3, 30), row(4, 40, "b")])
    assert (table.snapshots.latest_id(), values(table)) == (1, [("a", 1, 10), ("a", 2, 20)])
    staged = file.read()
    assert (staged.state, staged.table, staged.schema_id, staged.read_snapshot_id) == (STAGED, table.url, 0, 1)
    new = files_of(table) - before
    assert {
        f"{table.partition_path_of(m.partition)}bucket-{m.bucket}/{m.append.added[0].file_name}" for m in staged.messages
    } == new
    result = commit(table, file)
    assert [(s.id, s.commit_user, s.commit_identifier) for s in result.snapshots] == [(2, staged.commit_user, 0)]
    assert values(table) == [("a", 1, 11), ("a", 2, 20), ("a", 3, 30), ("b", 4, 40)]
    assert (file.read().state, file.read().snapshot_ids) == (COMMITTED, (2,))


def others_commit_and_all_else_expires(context: TableContext) -> None:
    """As other tools commit: without the record of users."""
    for number in range(3):
        write(context, [row(100 + number, 1)])
    for number in context.snapshots.ids():
        snapshot = replace(context.snapshots.get(number), properties=None)
        Path(context.layout.snapshot(number)).write_text(snapshot.to_json())
    expire_snapshots(context, Retention(at_least=1, at_most=1, millis=0, limit=None))


@pytest.mark.parametrize("request_", [{}, {"commit_user": "nightly", "commit_id": 3}])
def test_a_commit_is_made_once_where_other_tools_commit_and_snapshots_expire(
    table: TableContext, request_: dict[str, Any]
) -> None:
    others_commit_and_all_else_expires(table)
    file = stage(table, "f", [row(1, 11)], **request_)
    staged = file.read()
    others_commit_and_all_else_expires(table)
    assert not commit(table, file).already_committed
    others_commit_and_all_else_expires(table)
    assert Committer(table).is_committed(CommitIdentity(staged.commit_user, staged.commit_identifier))
    file.write(staged)  # as if the process had died before it could note that
    assert commit(table, file).already_committed


def test_what_to_do_if_nothing_tells_whether_it_was_committed(table: TableContext) -> None:
    """`stage commit` has no --assume-new."""
    file = stage(table, "f", [row(1, 11)])
    staged = file.read()
    begun = CommitIntents(table, [(staged.commit_user, staged.commit_identifier)])
    begun.announce(table.snapshots.latest())
    others_commit_and_all_else_expires(table)
    with pytest.raises(Refused, match="cannot determine") as refusal:
        commit(table, file)
    assert refusal.value.hint == "look for its rows; if they are not there, abort it and write them again"
    assert abort(table, file) > 0


def test_a_commit_is_made_once(table: TableContext) -> None:
    file = stage(table, "f", [row(1, 11)])
    staged = file.read()
    assert [commit(table, file).already_committed for _ in range(3)] == [False, True, True]
    file.write(staged)  # as if the process had died before it could note that
    assert commit(table, file).already_committed
    assert (file.read().state, file.read().snapshot_ids) == (COMMITTED, (2,))
    assert table.snapshots.latest_id() == 2


def test_a_commit_is_recognised_by_its_files_when_its_snapshot_has_expired(table: TableContext) -> None:
    file = stage(table, "f", [row(1, 11)])
    staged = file.read()
    commit(table, file)
    write(table, [row(5, 5)])
    for number in (1, 2):
        (Path(table.url) / "snapshot" / f"snapshot-{number}").unlink()
    file.write(staged)
    assert commit(table, file).already_committed
    with pytest.raises(Refused):
        abort(table, file)
    assert table.snapshots.latest_id() == 3 and ("a", 1, 11) in values(table)


def test_twins_commit_once(table: TableContext) -> None:
    file = stage(table, "f", [row(1, 11)])
    assert commit(beside(table, lambda: commit(table, file)), file).already_committed
    assert file.read().snapshot_ids == (2,)
    assert values(table) == [("a", 1, 11), ("a", 2, 20)] and data_files(table) == live_files(table)


def test_many_at_once_commit_once(table: TableContext) -> None:
    file = stage(table, "f", [row(1, 11)])
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: commit_stage(TableContext.open(table.url), file), range(4)))
    assert sum(bool(result.snapshots) for result in results) == 1
    assert table.snapshots.latest_id() == 2


def test_an_abort_deletes_what_was_written_and_nothing_else(table: TableContext) -> None:
    before = files_of(table)
    file = stage(table, "f", [row(1, 11), row(3, 30), row(4, 40, "b")])
    assert abort(table, file) == len(file.read().messages) >= 2
    assert files_of(table) == before
    assert file.read().state == ABORTED
    abort(table, file)
    with pytest.raises(Refused, match="was aborted"):
        commit(table, file)
    assert files_of(table) == before


@pytest.mark.parametrize("noted", [True, False])
def test_an_abort_after_the_commit_is_refused(table: TableContext, noted: bool) -> None:
    file = stage(table, "f", [row(1, 11)])
    staged = file.read()
    commit(table, file)
    if not noted:
        file.write(staged)
    before = files_of(table)
    with pytest.raises(Refused, match="was committed") as failure:
        abort(table, file)
    assert failure.value.exit_code == 7
    assert files_of(table) == before


def test_a_conflict_ends_it_and_removes_its_files(tmp_path: Path, table: TableContext) -> None:
    file = stage(TableContext.open(table.url, {"commit.data-conflict-check": "bucket"}), "f", [row(1, 11)])
    write(table, [row(1, 99)])
    with pytest.raises(DataConflict, match="after snapshot 1"):
        commit(table, file)
    assert data_files(table) == live_files(table)
    with pytest.raises(Refused):
        commit(table, file)


def test_spent_retries_do_not_end_it(table: TableContext) -> None:
    file = stage(table, "f", [row(1, 11)])
    hurried = beside(table, lambda: write(table, [row(9, 9, "z")]), options={"commit.max-retries": "0"})
    with pytest.raises(StorageUnavailable):
        commit(hurried, file)
    assert commit(table, file).snapshots[0].id == 3


@pytest.mark.parametrize(
    ("partition", "dynamic", "left"),
    [(None, "true", "abc"), (None, "false", "b"), ({"dt": "b"}, "false", "abc")],
)
def test_a_staged_overwrite_replaces_what_lives_when_it_is_committed(
    table: TableContext, partition: dict[str, str] | None, dynamic: str, left: str
) -> None:
    write(table, [row(5, 5, "c")])
    context = TableContext.open(table.url, {"dynamic-partition-overwrite": dynamic})
    file = stage(context, "f", [row(7, 7, "b")], overwrite=True, partition=partition)
    write(table, [row(8, 8, "b")])
    commit(table, file)
    assert {one["dt"] for one in rows(table)} == set(left)
    assert [one["id"] for one in rows(table) if one["dt"] == "b"] == [7]


def test_rows_outside_of_a_staged_overwrite_are_refused_at_once(table: TableContext) -> None:
    before = files_of(table)
    with pytest.raises(BadInput, match="outside the partition"):
        stage(table, "f", [row(7, 7, "b")], overwrite=True, partition={"dt": "a"})
    assert files_of(table) == before and not StageFile(str(Path(table.url).parent / "f")).exists()


def test_identities(table: TableContext) -> None:
    one = stage(table, "one", [row(1, 11)], commit_user="job", commit_id=1)
    two = stage(table, "two", [row(1, 12)], commit_user="job", commit_id=2)
    commit(table, two)
    with pytest.raises(Conflict, match="user job has already committed a higher identifier than 1"):
        commit(table, one)
    assert one.read().state == STAGED
    abort(table, one)
    assert ("a", 1, 12) in values(table) and data_files(table) == live_files(table)
    for request in ({"commit_user": "job"}, {"commit_id": 3}):
        with pytest.raises(UsageError, match="or neither"):
            stage(table, "three", [row(1, 11)], **request)
    with pytest.raises(UsageError, match="was already made"):
        stage(table, "three", [row(1, 11)], commit_user="job", commit_id=2)
    assert data_files(table) == live_files(table)


def test_a_file_is_never_overwritten(table: TableContext) -> None:
    stage(table, "f", [row(1, 11)])
    before = files_of(table)
    with pytest.raises(UsageError, match="exists"):
        stage(table, "f", [row(1, 12)])
    assert files_of(table) == before


def test_files_that_are_missing_or_damaged(table: TableContext) -> None:
    file = stage(table, "f", [row(1, 11)])
    (name,) = data_files(table) - live_files(table)
    path = Path(table.url) / name
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(DamagedFile, match="it has"):
        commit(table, file)
    path.unlink()
    with pytest.raises(DamagedFile, match="is missing"):
        commit(table, file)
    assert table.snapshots.latest_id() == 1
    with pytest.raises(NotFound):
        StageFile(str(path)).read()


def test_a_file_for_another_table(tmp_path: Path, table: TableContext) -> None:
    file = stage(table, "f", [row(1, 11)])
    other = make_table(tmp_path / "other", COLUMNS, ["dt", "id"], ["dt"], bucket=2)
    check_stage(table, file, file.read())
    with pytest.raises(UsageError, match="was staged for"):
        check_stage(other, file, file.read())
    schema = Path(table.url) / "schema" / "schema-0"
    schema.write_text(schema.read_text().replace('"timeMillis" : 0', '"timeMillis" : 5'))
    again = TableContext.open(table.url)
    with pytest.raises(UsageError, match="another table at"):
        check_stage(again, file, file.read())
    shutil.rmtree(schema.parent)
    with pytest.raises(UsageError, match="another table at"):
        check_stage(table, file, replace(file.read(), schema_id=1))


def test_a_directory_is_not_a_stage_file(tmp_path: Path) -> None:
    (tmp_path / "landing").mkdir()
    with pytest.raises(UsageError, match="is not a stage file: it is a directory") as refused:
        StageFile(str(tmp_path / "landing")).read()
    assert "stage commit --watch" in refused.value.hint and refused.value.exit_code == 2


def test_no_rows_make_no_snapshot(table: TableContext) -> None:
    file = stage(table, "f", [])
    assert commit(table, file) == CommitResult()
    assert file.read().state == COMMITTED and table.snapshots.latest_id() == 1


def test_staged_rows_outlive_a_compaction(table: TableContext) -> None:
    file = stage(table, "f", [row(1, 11)])
    write(table, [row(2, 21)])
    compact(table)
    commit(table, file)
    assert values(table) == [("a", 1, 11), ("a", 2, 21)]


def test_a_stage_file_from_outside_cannot_name_files_of_the_table(table: TableContext) -> None:
    """Whatever a stage file claims to have read, live files are found to be live."""
    file = stage(table, "f", [row(1, 11)])
    staged = file.read()
    commit(table, file)
    write(table, [row(1, 12)])
    forged = [replace(message, read_snapshot_id=3) for message in staged.messages]
    file.write(replace(staged, messages=tuple(forged), commit_user="nobody", read_snapshot_id=3))
    before = files_of(table)
    with pytest.raises(Refused):
        abort(table, file)
    assert files_of(table) == before
    assert isinstance(file.read(), StagedCommit)


def test_a_stage_file_that_is_too_large_is_not_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_job, "_MAX_BYTES", 100)
    (tmp_path / "f").write_bytes(b"[" * 101)
    with pytest.raises(DamagedFile, match="too large: it has 101 bytes"):
        StageFile(str(tmp_path / "f")).read()


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 2**80, 10**400])
def test_numbers_that_no_snapshot_can_hold_are_refused(table: TableContext, number: int) -> None:
    """A snapshot that cannot be read would end the table for readers and writers."""
    file = stage(table, "f", [row(1, 11)])
    messages = file.read().messages
    file.write(replace(file.read(), commit_identifier=number))
    with pytest.raises(DamagedFile, match="a whole number of more than 64 bits"):
        commit(table, file)
    before = files_of(table)
    with pytest.raises(UsageError, match=r"nothing was committed: the snapshot could not be read|too long for the file system"):
        Committer(table).commit(messages, CommitIdentity("u", number))
    assert files_of(table) == before


def test_an_extra_file_that_is_missing_is_damage(table: TableContext) -> None:
    file = stage(table, "f", [row(1, 11)])
    staged = file.read()
    (message, *others) = staged.messages
    first = replace(
        message,
        append=replace(
            message.append, added=(replace(message.append.added[0], extra_files=("gone.index",)), *message.append.added[1:])
        ),
    )
    file.write(replace(staged, messages=(first, *others)))
    with pytest.raises(DamagedFile, match=r"gone.index of .* is missing"):
        commit(table, file)


@pytest.mark.parametrize("half", ["append", "compact"])
def test_both_halves_of_a_staged_commit_are_looked_at(table: TableContext, half: str) -> None:
    file = stage(table, "f", [row(1, 11)])
    staged = file.read()
    (message,) = staged.messages

    def holding(content: FileChanges) -> StagedCommit:
        append, compact = (content, FileChanges()) if half == "append" else (FileChanges(), content)
        return replace(staged, messages=(replace(message, append=append, compact=compact),))

    figures = staged_details(table, "f", staged)
    assert staged_details(table, "f", holding(message.append)) == figures and (figures.rows, figures.files) == (1, 1)
    file.write(holding(replace(message.append, added_indexes=(IndexFileMeta(HASH, "index-gone", 4, 1),))))
    with pytest.raises(DamagedFile, match=r"index-gone of .* is missing"):
        commit(table, file)


@pytest.mark.parametrize(("bucket", "total"), [(0, -1), (0, 0), (7, 2)])
def test_buckets_that_the_table_cannot_have_are_refused(table: TableContext, bucket: int, total: int) -> None:
    """The commit would be readable, and every later write refused."""
    file = stage(table, "f", [row(1, 11)])
    staged = file.read()
    messages = tuple(replace(message, bucket=bucket, total_buckets=total) for message in staged.messages)
    file.write(replace(staged, messages=messages))
    with pytest.raises(DamagedFile, match=r"buckets that the table cannot have|is damaged: its record"):
        check_stage(table, file, file.read())


HIDDEN = [{"deletion-vectors.enabled": "true"}, {"merge-engine": "first-row"}]


def committed_together(context: TableContext, *files: StageFile) -> StageSummary:
    writes = [StagedWrite(file, file.read()) for file in files]
    return commit_and_compact(context, writes, Together(WriterOrder.GIVEN), CompactionMode.AFTER, LocalEngine(), NoProgress())


def keyed_table(folder: Path, **options: str) -> TableContext:
    context = make_table(folder / "t", {"id": "INT NOT NULL", "v": "INT"}, ["id"], options=options)
    write(context, [{"id": number, "v": 0} for number in range(5)])
    compact(context)
    return context


@pytest.mark.parametrize("options", HIDDEN, ids=["vectors", "first-row"])
def test_a_staged_overwrite_shows_its_rows_in_the_snapshot_that_hides_the_old_ones(
    tmp_path: Path, options: dict[str, str]
) -> None:
    """Between two snapshots, one for the rows and one for their compaction, readers saw an empty table."""
    context = keyed_table(tmp_path, **options)
    file = stage(context, "f", [{"id": 3, "v": 1}, {"id": 9, "v": 1}], overwrite=True)
    named = {file.file_name for message in file.read().messages for file in message.created_files()}
    assert {Path(path).name for path in data_files(context) - live_files(context)} >= named
    before = context.snapshots.latest_id() or 0
    done = committed_together(context, file)
    assert [snapshot.id for snapshot in done.snapshots] == [before + 1] == [context.snapshots.latest_id()]
    assert rows(context) == [{"id": 3, "v": 1}, {"id": 9, "v": 1}] and done.waiting_records == 0
    assert not list(check_table(context, rows=True))


def test_the_files_that_a_staged_overwrite_has_compacted_are_gone(tmp_path: Path) -> None:
    context = keyed_table(tmp_path, **HIDDEN[0])
    before = data_files(context)
    file = stage(context, "f", [{"id": 3, "v": 1}], overwrite=True)
    (message,) = file.read().messages
    assert len(data_files(context) - before) == len(message.append.added) == 1 and not message.compact
    assert message.append.added[0].level > 0
    assert abort(context, file) == 1 and data_files(context) == before


def test_staged_overwrites_of_one_bucket_get_their_order(tmp_path: Path) -> None:
    context = keyed_table(tmp_path, **HIDDEN[0])
    files = [stage(context, name, [{"id": 3, "v": v}, {"id": 6 + v, "v": v}], overwrite=True) for name, v in (("f", 1), ("g", 2))]
    committed_together(context, *files)
    assert rows(context) == [{"id": 3, "v": 2}, {"id": 7, "v": 1}, {"id": 8, "v": 2}]
    assert not list(check_table(context, rows=True))


def test_a_staged_overwrite_leaves_compactions_with_a_changelog_to_another_snapshot(tmp_path: Path) -> None:
    context = keyed_table(tmp_path, **HIDDEN[0], **{"changelog-producer": "lookup"})
    file = stage(context, "f", [{"id": 3, "v": 1}], overwrite=True)
    assert len(committed_together(context, file).snapshots) == 2 and rows(context) == [{"id": 3, "v": 1}]
