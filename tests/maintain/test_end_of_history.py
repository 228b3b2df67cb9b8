"""A drop ends the history first: no commit is acknowledged in a table that is being deleted, and the drop can be repeated."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from paimon_cli.api.catalog import Catalog
from paimon_cli.api.table import Table
from paimon_cli.catalog.alter_table import alter_table
from paimon_cli.catalog.column_changes import SetOption
from paimon_cli.commit.commit_messages import removed_on_refusal
from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import CommitIdentity
from paimon_cli.errors import BeingDropped, CommitUnknown, Conflict
from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants.check import check_table
from paimon_cli.lab.simulation.exploration import explain, explore
from paimon_cli.maintain.branches import create_branch, remove_branch, rename_branch
from paimon_cli.maintain.drop_table import drop_table
from paimon_cli.maintain.end_of_history import EndOfHistory
from paimon_cli.metadata.data_file import EMPTY_ROW, CommitMessage, FileChanges
from paimon_cli.metadata.table_layout import TableLayout
from paimon_cli.storage.capabilities import WrappedStorage
from paimon_cli.storage.local_storage import LocalStorage
from paimon_cli.storage.storage import FileStatus, PutOutcome
from tests.commit.commit_tables import data_file
from tests.simulation.conftest import _quick_metadata as _quick_metadata
from tests.simulation.scenarios import scenario
from tests.tables import make_table, rows, write

COLUMNS = {"k": "INT NOT NULL", "v": "STRING"}


class Interposed(LocalStorage):
    """Lets others work right before, or right after, the put of a snapshot."""

    def __init__(self, before: Callable[[], None] = lambda: None, after: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self._before, self._after = before, after

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        if "/snapshot/" not in path:
            return super().put_if_absent(path, data)
        before, self._before = self._before, lambda: None
        before()
        outcome = super().put_if_absent(path, data)
        after, self._after = self._after, lambda: None
        after()
        return outcome


class FirstFile(LocalStorage):
    """Lets others work right before the first file is written."""

    def __init__(self, before: Callable[[], None]) -> None:
        super().__init__()
        self._before = before

    def open_output(self, path: str) -> BinaryIO:
        before, self._before = self._before, lambda: None
        before()
        return super().open_output(path)


def table_of(folder: Path, snapshots: int = 1) -> TableContext:
    context = make_table(folder / "t", COLUMNS, ["k"])
    for number in range(snapshots):
        write(context, [{"k": number, "v": "old"}])
    return context


def drop(context: TableContext) -> None:
    drop_table(LocalStorage(), context.layout, context.schema)


def commit(context: TableContext, storage: LocalStorage) -> None:
    message = CommitMessage(EMPTY_ROW, 0, 1, append=FileChanges(added=(data_file("new"),)))
    Committer(replace(context, storage=storage)).commit([message], CommitIdentity("late"))


def test_snapshots_go_by_their_numbers_and_not_by_their_names(tmp_path: Path) -> None:
    """A number that is free while its predecessor exists would take a commit that is lost with the table."""
    gone: list[str] = []

    class Named(LocalStorage):
        def list_directory(self, path: str) -> list[FileStatus]:
            return sorted(super().list_directory(path), key=lambda status: status.name)

        def delete(self, path: str) -> None:
            gone.append(path.rpartition("-")[2])
            super().delete(path)

    layout = TableLayout(str(tmp_path / "t"))
    for number in (8, 9, 10, 11):
        LocalStorage().overwrite(layout.snapshot(number), b"{}")
    EndOfHistory(Named(), layout).remove_snapshots()
    assert gone == ["8", "9", "10", "11"]


def test_a_drop_that_another_one_has_overtaken_spares_a_new_table(tmp_path: Path) -> None:
    """Between two directories, the other drop ends, and a table of the same name is made."""
    context = make_table(tmp_path / "t", COLUMNS, ["k"])
    write(context, [{"k": 1, "v": "old"}])

    class Overtaken(LocalStorage):
        count = 0

        def delete_directory(self, path: str) -> None:
            super().delete_directory(path)
            self.count += 1
            if self.count == 1:
                drop(context)
                write(make_table(tmp_path / "t", COLUMNS, ["k"]), [{"k": 1, "v": "new"}])

    slow = Overtaken()
    drop_table(slow, context.layout, context.schema)
    assert slow.count == 1 and rows(TableContext.open(context.url)) == [{"k": 1, "v": "new"}]


@pytest.mark.parametrize("snapshots", [0, 1, 3])
def test_a_commit_after_a_whole_drop_is_refused_and_leaves_nothing(tmp_path: Path, snapshots: int) -> None:
    """The committer was suspended right before its put."""
    context = table_of(tmp_path, snapshots)
    storage = Interposed(before=lambda: drop(context))
    with pytest.raises(BeingDropped) as refused, removed_on_refusal(context, []):
        commit(context, storage)
    assert refused.value.exit_code == 3 and not Path(context.url).exists()


@pytest.mark.parametrize("snapshots", [0, 2])
def test_a_commit_to_a_table_that_was_dropped_and_created_again_is_refused(tmp_path: Path, snapshots: int) -> None:
    """Also if the new table has as many snapshots as the old one."""
    context = table_of(tmp_path, snapshots)

    def replaced() -> None:
        drop(context)
        schema = replace(context.schema, time_millis=1)
        assert context.schemas.commit(schema)
        write(TableContext.open(context.url), [{"k": 7, "v": "new"}])

    with pytest.raises(BeingDropped, match="dropped while the job ran"):
        commit(context, Interposed(before=replaced))
    assert rows(TableContext.open(context.url)) == [{"k": 7, "v": "new"}]


def test_a_commit_right_before_a_drop_is_not_taken_for_a_failure(tmp_path: Path) -> None:
    """The drop has deleted the snapshot together with all others, so nothing shows whether it was part of the table."""
    context = table_of(tmp_path, 2)
    with pytest.raises(CommitUnknown, match="dropped or renamed"):
        commit(context, Interposed(after=lambda: drop(context)))


def test_nothing_can_be_read_or_written_once_a_drop_has_begun(tmp_path: Path) -> None:
    context = table_of(tmp_path, 2)
    EndOfHistory(LocalStorage(), context.layout).begin()
    table = Table.open(context.url)
    for work in (lambda: table.write(rows_file(tmp_path)), lambda: table.scan().to_arrow(), table.compact, table.describe):
        with pytest.raises(BeingDropped, match="is being dropped") as refused:
            work()
        assert refused.value.hint.endswith(f"paimon-cli drop {context.url}")
    with pytest.raises(BeingDropped):
        alter_table(table.context, [SetOption("num-levels", "3")])
    assert Table.open(context.url).context.schemas.ids() == [0]
    assert [path.name for path in Path(context.url).glob("bucket-0/*")] == [Path(p).name for p in data_of(context)]
    with pytest.raises(BeingDropped):
        table.verify()
    with pytest.raises(BeingDropped):
        table.plan_repair()


def rows_file(folder: Path) -> str:
    (folder / "rows.ndjson").write_text('{"k": 1, "v": "x"}\n')
    return str(folder / "rows.ndjson")


def data_of(context: TableContext) -> list[Path]:
    return list(Path(context.url).glob("bucket-0/*"))


class Dying(WrappedStorage):
    """Dies at the call with this number that changes something."""

    def __init__(self, left: int) -> None:
        super().__init__(LocalStorage())
        self.left = left

    def before(self, call: str, path: str) -> None:
        if call in ("put_if_absent", "overwrite", "delete", "delete_directory"):
            self.left -= 1
            if not self.left:
                raise KeyboardInterrupt


def test_a_drop_that_dies_anywhere_can_be_repeated(tmp_path: Path) -> None:
    number, died = 0, True
    while died:
        number += 1
        context = table_of(tmp_path / str(number), 2)
        create_branch(context, "b", None, 1)
        try:
            drop_table(Dying(number), context.layout, context.schema)
            died = False
        except KeyboardInterrupt:
            has_begun = number > 1
            (listed,) = Catalog().tables(str(tmp_path / str(number)))
            assert ("is being dropped" in str(listed.problem)) == has_begun
            if has_begun:
                with pytest.raises(BeingDropped, match="is being dropped"):
                    Table.open(context.url).scan().to_arrow()
            Catalog().drop_table(context.url)
        assert not Path(context.url).exists()
    assert number > 8


def test_a_symbolic_link_goes_and_its_table_stays(tmp_path: Path) -> None:
    context = table_of(tmp_path)
    link = tmp_path / "link"
    link.symlink_to(context.url)
    dropped = Catalog().drop_table(str(link))
    assert dropped.link_to == context.url and not os.path.lexists(link)
    assert rows(context) == [{"k": 0, "v": "old"}]


def test_a_commit_beside_the_deletion_of_its_branch_is_refused(tmp_path: Path) -> None:
    context = table_of(tmp_path)
    create_branch(context, "b", None, 1)
    branch = context.at_branch("b")
    with pytest.raises(BeingDropped):
        commit(branch, Interposed(before=lambda: remove_branch(context, "b")))
    assert rows(context) == [{"k": 0, "v": "old"}]


def test_a_branch_to_which_others_commit_is_not_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit comes after its files were copied, right before the old branch is ended."""
    context = table_of(tmp_path)
    create_branch(context, "b", None, 1)
    begin = EndOfHistory.begin

    def late(self: EndOfHistory, **after: Any) -> None:
        if after:
            write(context.at_branch("b"), [{"k": 9, "v": "late"}])
        begin(self, **after)

    monkeypatch.setattr(EndOfHistory, "begin", late)
    with pytest.raises(Conflict, match="another job committed to it meanwhile"):
        rename_branch(context, "b", "c")
    assert {row["k"] for row in rows(context.at_branch("b"))} == {0, 9} and context.branches.directories() == ["b"]


def test_a_hint_that_was_written_after_a_drop_is_no_obstacle_to_a_new_table(tmp_path: Path) -> None:
    (tmp_path / "t" / "snapshot").mkdir(parents=True)
    (tmp_path / "t" / "snapshot" / "LATEST").write_text("5")
    Table.create(str(tmp_path / "t"), columns=["k INT"])
    assert not (tmp_path / "t" / "snapshot").exists()


def test_other_engines_do_not_know_the_kind_of_the_end(tmp_path: Path) -> None:
    """Java parses the kind as one of an enumeration, and refuses a snapshot of another one."""
    context = table_of(tmp_path)
    EndOfHistory(LocalStorage(), context.layout).begin()
    content = json.loads(Path(context.layout.snapshot(2)).read_text())
    assert (content["id"], content["commitKind"]) == (2, "DROP") and "baseManifestList" not in content
    shutil.rmtree(context.url)


@pytest.mark.parametrize("name", ["writer-drop", "writer-drop-later", "drop-drop"])
def test_every_order_of_a_drop_and_another_job(name: str) -> None:
    """With two interruptions and a crash at every call; three actors at night."""
    result = explore(scenario(name), private_faults=True, max_switches=1)
    assert not result.findings, explain(result.findings)
    assert result.complete


@pytest.mark.parametrize("newer", [1, 2, 3])
@pytest.mark.parametrize("moment", ["put", "plan"])
@pytest.mark.in_part(2)
def test_rows_of_a_write_do_not_get_into_a_new_table_of_the_same_name(tmp_path: Path, newer: int, moment: str) -> None:
    """It has fewer, as many, or more snapshots than the write has seen; the drop has deleted the files of the write."""
    context = table_of(tmp_path, 2)
    kept = [{"k": 7, "v": f"new {number}"} for number in range(newer)]

    def replaced() -> None:
        drop(context)
        assert context.schemas.commit(replace(context.schema, time_millis=1))
        for row in kept:
            write(TableContext.open(context.url), [row])

    storage = Interposed(before=replaced) if moment == "put" else FirstFile(replaced)
    with pytest.raises(BeingDropped, match="dropped while the job ran"):
        write(replace(context, storage=storage), [{"k": 8, "v": "late"}])
    again = TableContext.open(context.url)
    assert rows(again) == kept[-1:] and again.snapshots.latest_id() == newer
    write(again, [{"k": 9, "v": "next"}])
    assert not list(check_table(again, rows=True))
