"""The trash: a drop is one step, what it takes can be brought back, and nothing that is acknowledged is lost in between."""

from __future__ import annotations

import functools
import json
import os
import shutil
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import pytest

from paimon_cli.api.catalog import Catalog
from paimon_cli.api.runtime import Runtime
from paimon_cli.api.table import Table
from paimon_cli.api.trash import PartlyEmptied, empty_expired
from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import CommitIdentity
from paimon_cli.errors import (
    BeingDropped,
    CommitUnknown,
    DamagedFile,
    NotFound,
    NotSupported,
    PaimonError,
    Refused,
    StorageUnavailable,
    UsageError,
)
from paimon_cli.history.snapshot_history import SnapshotHistory
from paimon_cli.history.table_context import TableContext
from paimon_cli.maintain.branches import create_branch
from paimon_cli.maintain.expire_snapshots import expire_snapshots
from paimon_cli.maintain.retention import Retention, write_consumer
from paimon_cli.maintain.tags import create_tag
from paimon_cli.maintain.trash import Trash, empty_trash
from paimon_cli.metadata.data_file import EMPTY_ROW, CommitMessage, FileChanges
from paimon_cli.storage.capabilities import WrappedStorage
from paimon_cli.storage.confined_storage import ConfinedStorage
from paimon_cli.storage.local_storage import LocalStorage
from paimon_cli.storage.storage import FileStatus, PutOutcome, Storage
from tests.commit.commit_tables import SteppingClock, data_file
from tests.jobs.backups import Dying, Killed
from tests.maintain.versions import check_versions
from tests.tables import make_table, rows, write

LOCAL = Runtime(engine="local")


def new_table(tmp_path: Path, name: str = "t", commits: int = 2) -> TableContext:
    table = make_table(tmp_path / "wh/shop.db" / name, {"k": "INT NOT NULL", "v": "STRING"}, ["k"])
    for number in range(commits):
        write(table, [{"k": number, "v": name}])
    return table


def catalog(tmp_path: Path, **options: str) -> Catalog:
    return Catalog(str(tmp_path / "wh"), options, runtime=LOCAL)


def trash_of(tmp_path: Path) -> Trash:
    return Trash(LocalStorage(), str(tmp_path / "wh"), lambda url: ConfinedStorage(url))


class TestDropAndUndrop:
    def test_everything_comes_back(self, tmp_path: Path) -> None:
        table = new_table(tmp_path)
        content = {n: rows(table, snapshot_id=n) for n in table.snapshots.ids()}
        files = {path.relative_to(table.url): path.read_bytes() for path in Path(table.url).rglob("*") if path.is_file()}
        dropped = catalog(tmp_path).drop_table("shop.t")
        assert dropped.kept == sum(map(len, files.values())) and dropped.until is not None
        assert not Path(table.url).exists() and not catalog(tmp_path).tables()
        with pytest.raises(NotFound):
            Table.open(table.url)
        assert catalog(tmp_path).undrop("shop.t").snapshots == 2
        after = {path.relative_to(table.url): path.read_bytes() for path in Path(table.url).rglob("*") if path.is_file()}
        assert after == files
        back = TableContext.open(table.url)
        assert {n: rows(back, snapshot_id=n) for n in back.snapshots.ids()} == content
        check_versions(back)
        write(back, [{"k": 9, "v": "goes on"}])
        assert not (tmp_path / "wh/.paimon-cli").exists()

    def test_by_path(self, tmp_path: Path) -> None:
        table = new_table(tmp_path)
        Table.open(table.url, runtime=LOCAL).drop()
        Catalog(runtime=LOCAL).undrop(table.url)
        assert rows(TableContext.open(table.url))

    def test_purge_deletes_at_once(self, tmp_path: Path) -> None:
        table = new_table(tmp_path)
        dropped = Table.open(table.url, runtime=LOCAL).drop(purge=True)
        assert dropped.kept == 0 and dropped.until is None
        assert not Path(table.url).exists() and not (tmp_path / "wh/.paimon-cli").exists()
        with pytest.raises(NotFound, match="trash"):
            catalog(tmp_path).undrop("shop.t")

    def test_a_retention_of_nothing_purges(self, tmp_path: Path) -> None:
        new_table(tmp_path)
        assert catalog(tmp_path, **{"trash-retention": "0 s"}).drop_table("shop.t").until is None
        assert not catalog(tmp_path).trash.ls()

    def test_outside_of_a_warehouse_there_is_no_trash(self, tmp_path: Path) -> None:
        table = make_table(tmp_path / "t", {"k": "INT NOT NULL"}, ["k"])
        assert Table.open(table.url, runtime=LOCAL).drop().until is None
        with pytest.raises(NotSupported):
            Catalog(runtime=LOCAL).undrop(table.url)
        with pytest.raises(NotSupported):
            Catalog(runtime=LOCAL).trash.ls()

    def test_the_name_may_be_used_again(self, tmp_path: Path) -> None:
        old = new_table(tmp_path)
        expected = rows(old)
        catalog(tmp_path).drop_table("shop.t")
        new = new_table(tmp_path, commits=1)
        with pytest.raises(Refused):
            catalog(tmp_path).undrop("shop.t")
        assert rows(new) == [{"k": 0, "v": "t"}]
        catalog(tmp_path).undrop("shop.t", new_name="shop.of_monday")
        assert rows(TableContext.open(str(tmp_path / "wh/shop.db/of_monday"))) == expected

    def test_the_last_drop_of_a_name_counts(self, tmp_path: Path) -> None:
        for commits in (1, 2, 3):
            new_table(tmp_path, commits=commits)
            catalog(tmp_path).drop_table("shop.t")
        assert [row.snapshots for row in catalog(tmp_path).trash] == [3, 2, 1]
        assert catalog(tmp_path).undrop("shop.t").snapshots == 3
        assert len(catalog(tmp_path).trash.ls()) == 2

    def test_foreign_files_stay_where_they_are(self, tmp_path: Path) -> None:
        table = new_table(tmp_path)
        mine = Path(table.url) / "mine/notes"
        mine.parent.mkdir()
        mine.write_text("mine")
        dropped = catalog(tmp_path).drop_table("shop.t")
        assert dropped.left == ["mine/"] and mine.read_text() == "mine"
        catalog(tmp_path).trash.empty()
        assert mine.read_text() == "mine"

    def test_all_foreign_files_stay_where_they_are(self, tmp_path: Path) -> None:
        table = new_table(tmp_path)
        expected = rows(table)
        foreign = [Path(table.url, name) for name in ("notes.txt", "mine/deep/notes", "bucket-0/notes.txt", "other/notes")]
        for path in foreign:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("mine")
        catalog(tmp_path).drop_table("shop.t")
        assert [path.read_text() for path in foreign] == ["mine"] * 4
        catalog(tmp_path).undrop("shop.t", new_name="shop.u")
        assert rows(TableContext.open(str(tmp_path / "wh/shop.db/u"))) == expected
        assert [path.read_text() for path in foreign] == ["mine"] * 4

    def test_only_the_link_to_a_table_goes(self, tmp_path: Path) -> None:
        table = new_table(tmp_path)
        link = tmp_path / "wh/shop.db/link"
        link.symlink_to(table.url)
        catalog(tmp_path).drop_table("shop.link")
        assert rows(table) and not link.exists() and not catalog(tmp_path).trash.ls()

    def test_a_database_with_its_tables(self, tmp_path: Path) -> None:
        new_table(tmp_path)
        catalog(tmp_path).drop_database("shop", cascade=True)
        assert not (tmp_path / "wh/shop.db").exists()
        catalog(tmp_path).undrop("shop.t")
        assert rows(TableContext.open(str(tmp_path / "wh/shop.db/t")))

    def test_another_file_system(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        table = new_table(tmp_path)

        def refuse(self: LocalStorage, path: str, target: str) -> None:
            raise OSError(18, "Invalid cross-device link")

        monkeypatch.setattr(LocalStorage, "move_directory", refuse)
        with pytest.raises(Refused, match="purge"):
            catalog(tmp_path).drop_table("shop.t")
        assert rows(table) and not catalog(tmp_path).trash.ls()

    def test_empty_directories_of_late_writers_do_not_keep_a_table_away(self, tmp_path: Path) -> None:
        table = new_table(tmp_path)
        catalog(tmp_path).drop_table("shop.t")
        (Path(table.url) / "bucket-0").mkdir(parents=True)
        catalog(tmp_path).undrop("shop.t")
        assert rows(TableContext.open(table.url))

    def test_a_move_that_is_made_but_not_confirmed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Such as a rename whose directory cannot be synced: the table must not be in the trash without its entry."""
        table = new_table(tmp_path)
        expected, move = rows(table), LocalStorage.move_directory

        def unclear(self: LocalStorage, path: str, target: str) -> None:
            move(self, path, target)
            raise StorageUnavailable("no answer")

        with monkeypatch.context() as patched:
            patched.setattr(LocalStorage, "move_directory", unclear)
            with pytest.raises(CommitUnknown):
                catalog(tmp_path).drop_table("shop.t")
        catalog(tmp_path).undrop("shop.t")
        assert rows(TableContext.open(table.url)) == expected


class TestKilledWithoutRenames:
    """On a store that cannot move directories, a drop and its undoing have many steps: one that was killed is done again."""

    @staticmethod
    def new_table() -> Table:
        url = f"memory://{uuid.uuid4()}/shop.db/t"
        table = Table.create(url, columns=["k INT NOT NULL", "v STRING"], primary_key="k", bucket=1, runtime=LOCAL)
        for number in range(3):
            table.write([{"k": number, "v": "a"}])
            if number == 1:
                table.alter.set({"snapshot.num-retained.min": "5"})
                table = Table.open(url, runtime=LOCAL)
        create_branch(table.context, "try", None, 2)
        hint = table.context.layout.latest_hint
        table.context.storage.overwrite(hint, b"1")  # a hint may be out of date
        return Table.open(url, runtime=LOCAL)

    @staticmethod
    def trash(table: Table, changes: int | None = None) -> Trash:
        inner = table.context.storage
        storage = inner if changes is None else Dying(inner, changes)
        return Trash(storage, table.url.rpartition("/shop.db/")[0], lambda url: storage)

    @staticmethod
    def content(url: str) -> list[object]:
        found = TableContext.open(url)
        return [{n: rows(each, snapshot_id=n) for n in each.snapshots.ids()} for each in (found, found.at_branch("try"))]

    def files(self, storage: Storage, directory: str) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        for entry in storage.list_directory(directory):
            below = self.files(storage, entry.path) if entry.is_directory else {entry.path: storage.read_bytes(entry.path)}
            found.update(below)
        return found

    def test_every_file_comes_back(self) -> None:
        """Of all kinds of versions, also those of branches."""
        url = f"memory://{uuid.uuid4()}/shop.db/t"
        options = {"changelog-producer": "input", "changelog.num-retained.max": "100", "changelog.time-retained": "2 h"}
        table = Table.create(url, columns=["k INT NOT NULL"], primary_key="k", bucket=1, options=options, runtime=LOCAL)
        for number in range(4):
            table.write([{"k": number}])
        main = table.context
        create_tag(main, "kept", 2)
        create_branch(main, "try", "kept")
        branch = main.at_branch("try")
        create_tag(branch, "there")
        expire_snapshots(main, Retention(2, 2, 0, None))
        for context in (main, branch):
            write_consumer(context, "reader", 2)
        before = self.files(main.storage, url)
        for name in ("/changelog/changelog-1", "/tag/tag-kept", "/branch/branch-try/tag/tag-there", "/consumer/consumer-reader"):
            assert f"{url}{name}" in before
        table.drop()
        Catalog(self.trash(table).root, runtime=LOCAL).undrop("shop.t")
        assert self.files(main.storage, url) == before

    @pytest.mark.parametrize("days", [0, 2])
    def test_a_drop(self, days: int) -> None:
        for changes in range(100):
            table = self.new_table()
            expected, context = self.content(table.url), table.context
            trash = self.trash(table, changes)
            try:
                trash.take(trash.storage, context.layout, trash.new_entry("shop.t", table.url, 10**9, 3, 1, 1), ())
                break
            except Killed:
                pass
            whole = self.trash(table)
            replace(whole, clock=SteppingClock(whole.clock.now_millis() + days * 86_400_000)).tidy()
            catalog = Catalog(self.trash(table).root, runtime=LOCAL)
            with suppress(NotFound):  # it is in the trash already
                if changes % 2:
                    catalog.drop_table("shop.t")
                else:
                    Table.open(table.url, runtime=LOCAL).drop()
            catalog.undrop("shop.t")
            assert self.content(table.url) == expected
        assert 10 < changes < 99

    def test_a_drop_for_good_leaves_nothing_to_the_next_table(self) -> None:
        """A drop into the trash is killed, then the table is dropped for good: its copies are not those of a later table."""
        seen = 0
        for changes in range(100):
            table = self.new_table()
            context, trash = table.context, self.trash(table, changes)
            with suppress(Killed):
                trash.take(trash.storage, context.layout, trash.new_entry("shop.t", table.url, 10**9, 3, 1, 1), ())
            whole = self.trash(table)
            if whole.at(table.url) is not None:
                break
            seen += bool(whole.storage.list_directory(whole.directory))
            table = Table.open(table.url, runtime=LOCAL)
            if not table.context.snapshots.is_ended():
                continue
            table.drop(purge=True)
            assert not self.files(whole.storage, whole.directory)
            new = Table.create(table.url, columns=["k INT NOT NULL"], primary_key="k", bucket=1, runtime=LOCAL)
            new.write([{"k": 9}])
            trash = self.trash(new, 3)
            with suppress(Killed):
                trash.take(trash.storage, new.context.layout, trash.new_entry("shop.t", new.url, 10**9, 1, 1, 1), ())
            Table.open(new.url, runtime=LOCAL).drop()
            Catalog(whole.root, runtime=LOCAL).undrop("shop.t")
            back = TableContext.open(new.url)
            assert rows(back) == [{"k": 9}] and back.snapshots.ids() == [1] and not back.branches.names()
        assert 5 < seen < 99

    @pytest.mark.parametrize("then", ["undrop", "empty"])
    def test_an_undrop(self, then: str) -> None:
        for changes in range(100):
            table = self.new_table()
            expected = self.content(table.url)
            table.drop()
            trash = self.trash(table, changes)
            try:
                trash.give_back(trash.find("shop.t", table.url), table.url)
                break
            except Killed:
                pass
            is_back = not SnapshotHistory(table.context.storage, table.context.layout).is_ended()
            whole = self.trash(table)
            if then == "empty":
                empty_trash(whole, whole.overdue(everything=True))
                assert is_back or not whole.storage.list_directory(table.url)
            elif whole.entries():
                whole.give_back(whole.find("shop.t", table.url), table.url)
            if is_back or then == "undrop":
                assert self.content(table.url) == expected
            assert not whole.entries()
        assert 10 < changes < 99

    @pytest.mark.parametrize("is_going", [False, True])
    @pytest.mark.parametrize("new_rows", [[], [{"k": 9, "v": "new"}]])
    def test_another_table_is_not_deleted_with_the_entry(self, is_going: bool, new_rows: list[dict[str, object]]) -> None:
        """Nor by the repetition of a command that was killed while it deleted."""
        table = self.new_table()
        table.drop()
        trash = self.trash(table)
        entry = replace(trash.find("shop.t", table.url), is_going=is_going)
        trash.storage.overwrite(f"{trash.directory}/{entry.id}/entry", entry.to_json().encode())
        trash.storage.delete_directory(table.url)
        columns = ["k INT NOT NULL", "v STRING"]
        new = Table.create(table.url, columns=columns, primary_key="k", bucket=1, runtime=LOCAL)
        if new_rows:
            new.write(new_rows)
        with pytest.raises(Refused):
            trash.give_back(entry, table.url)
        empty_trash(trash, trash.overdue(everything=True))
        assert rows(TableContext.open(table.url)) == new_rows

    def test_a_table_that_shares_only_its_oldest_schema_is_another_one(self) -> None:
        """Such as one that was restored from an older backup: the entry is all that is left of the newer versions."""
        table = self.new_table()
        table.drop()
        trash = self.trash(table)
        entry = trash.find("shop.t", table.url)
        schemas = {
            path: text for path, text in self.files(trash.storage, trash.table_directory(entry)).items() if "schema-" in path
        }
        trash.storage.delete_directory(table.url)
        oldest = next(path for path in schemas if path.endswith("/table/schema/schema-0"))
        trash.storage.overwrite(f"{table.url}/schema/schema-0", schemas[oldest])
        with pytest.raises(Refused, match="another table is there"):
            trash.give_back(entry, table.url)
        assert trash.find("shop.t", table.url) == entry and len(schemas) >= 3


class TestEmpty:
    def test_only_what_is_old(self, tmp_path: Path) -> None:
        for name in ("a", "b"):
            new_table(tmp_path, name)
        catalog(tmp_path, **{"trash-retention": "1 ms"}).drop_table("shop.a")
        catalog(tmp_path).drop_table("shop.b")
        assert catalog(tmp_path).trash.empty(expired=True).table_names == ("shop.a",)
        assert [row.table for row in catalog(tmp_path).trash] == ["shop.b"]
        planned = catalog(tmp_path).trash.plan_empty()
        assert [row.table for row in planned.plan] == ["shop.b"] and len(catalog(tmp_path).trash.ls()) == 1
        assert planned.run().tables == 1
        assert not (tmp_path / "wh/.paimon-cli").exists()

    def test_a_table_that_is_dropped_after_the_plan_stays(self, tmp_path: Path) -> None:
        for name in ("a", "b"):
            new_table(tmp_path, name)
        catalog(tmp_path).drop_table("shop.a")
        planned = catalog(tmp_path).trash.plan_empty()
        catalog(tmp_path).drop_table("shop.b")
        assert planned.run().table_names == ("shop.a",)
        assert [row.table for row in catalog(tmp_path).trash] == ["shop.b"]

    def test_a_table_that_was_brought_back_after_the_plan_does_not_keep_the_others(self, tmp_path: Path) -> None:
        tables = {name: new_table(tmp_path, name) for name in ("a", "b", "c")}
        for name in tables:
            catalog(tmp_path).drop_table(f"shop.{name}")
        planned = catalog(tmp_path).trash.plan_empty()
        catalog(tmp_path).undrop(f"{planned.plan[0].table}")
        assert planned.run().tables == 2 and not catalog(tmp_path).trash.ls()
        assert rows(TableContext.open(planned.plan[0].path))

    def test_what_an_interrupted_drop_has_left(self, tmp_path: Path) -> None:
        left = tmp_path / "wh/.paimon-cli/trash/1000-abcdef12"
        left.mkdir(parents=True)
        (left / "entry").write_text("{}")
        now = trash_of(tmp_path).clock.now_millis()
        young = tmp_path / f"wh/.paimon-cli/trash/{now - 3_600_000}-abcdef12"
        young.mkdir()
        with pytest.raises(DamagedFile):
            trash_of(tmp_path).entries()
        (left / "entry").unlink()
        others = [tmp_path / f"wh/.paimon-cli/trash/{number}-abcdef12" for number in (999, 1001)]
        for other in others:
            other.mkdir()
        (left / "table").mkdir()
        (left / "table/file").touch()

        class Sorted(LocalStorage):
            def list_directory(self, path: str) -> list[FileStatus]:
                return sorted(super().list_directory(path), key=lambda status: status.name.zfill(30))

        empty_trash(replace(trash_of(tmp_path), storage=Sorted()), [])
        assert left.exists() and young.exists() and not any(other.exists() for other in others), "each is looked at"
        shutil.rmtree(left / "table")
        empty_trash(trash_of(tmp_path), [])
        assert not left.exists() and young.exists()

    def test_a_table_that_cannot_be_deleted_does_not_keep_the_others(self, tmp_path: Path) -> None:
        for name in ("a", "b", "c"):
            new_table(tmp_path, name)
            catalog(tmp_path).drop_table(f"shop.{name}")
        trash = trash_of(tmp_path)
        refused = trash.find("shop.b", "")

        class Refusing(LocalStorage):
            def overwrite(self, path: str, data: bytes) -> None:
                if refused.id in path:
                    raise StorageUnavailable("no", "")
                super().overwrite(path, data)

        deleted, failed = empty_trash(replace(trash, storage=Refusing()), trash.overdue(everything=True))
        assert {entry.table for entry in deleted} == {"shop.a", "shop.c"}
        assert [(entry.table, error.what) for entry, error in failed] == [("shop.b", "no")]
        assert [entry.table for entry in trash.entries()] == ["shop.b"]


class TestHostileEntries:
    """Others may write to a warehouse: an entry leads nowhere else."""

    @pytest.fixture
    def entry(self, tmp_path: Path) -> Path:
        new_table(tmp_path)
        catalog(tmp_path).drop_table("shop.t")
        (tmp_path / "elsewhere/schema").mkdir(parents=True)
        (tmp_path / "elsewhere/schema/schema-0").write_text("precious")
        return next((tmp_path / "wh/.paimon-cli/trash").iterdir())

    @pytest.mark.parametrize(
        "lie",
        [
            {"url": "ELSEWHERE", "is_moved": False},
            {"url": "WAREHOUSE/../elsewhere", "is_moved": False},
            {"id": "../../../elsewhere"},
            {"id": "another"},
            {"version": 2},
            {"dropped": -1},
            {"until": "tomorrow"},
            {"size": True},
            {"table": ""},
        ],
    )
    def test_an_entry_that_lies(self, tmp_path: Path, entry: Path, lie: dict[str, object]) -> None:
        places = {"ELSEWHERE": str(tmp_path / "elsewhere"), "WAREHOUSE": str(tmp_path / "wh")}
        told = {key: _placed(value, places) for key, value in lie.items()}
        (entry / "entry").write_text(json.dumps(json.loads((entry / "entry").read_text()) | told))
        for work in (lambda: catalog(tmp_path).trash.empty(), lambda: catalog(tmp_path).undrop("shop.t")):
            with pytest.raises((PartlyEmptied, NotFound)):
                work()
        assert list(entry.rglob("*.parquet"))
        assert (tmp_path / "elsewhere/schema/schema-0").read_text() == "precious"

    def test_a_link_in_the_place_of_a_table(self, tmp_path: Path, entry: Path) -> None:
        shutil.rmtree(entry / "table")
        (entry / "table").symlink_to(tmp_path / "elsewhere")
        with pytest.raises(PartlyEmptied, match="link"):
            catalog(tmp_path).trash.empty()
        assert (tmp_path / "elsewhere/schema/schema-0").read_text() == "precious"

    def test_a_link_in_a_table(self, tmp_path: Path, entry: Path) -> None:
        bucket = next((entry / "table").glob("bucket-*"))
        shutil.rmtree(bucket)
        bucket.symlink_to(tmp_path / "elsewhere")
        catalog(tmp_path).trash.empty()
        assert (tmp_path / "elsewhere/schema/schema-0").read_text() == "precious"

    def test_a_link_to_the_history_of_another_table(self, tmp_path: Path, entry: Path) -> None:
        """A drop would end that history."""
        other = new_table(tmp_path, "other")
        shutil.rmtree(entry / "table/snapshot")
        (entry / "table/snapshot").symlink_to(Path(other.url) / "snapshot")
        with pytest.raises(PartlyEmptied, match="link"):
            catalog(tmp_path).trash.empty()
        assert sorted(path.name for path in Path(other.url, "snapshot").glob("snapshot-*")) == ["snapshot-1", "snapshot-2"]


def _placed(value: object, places: dict[str, str]) -> object:
    if not isinstance(value, str):
        return value
    for name, place in places.items():
        value = value.replace(name, place)
    return value


class Interposed(LocalStorage):
    """Lets others work before, or after, the put of a snapshot."""

    def __init__(self, before: Callable[[], None], after: Callable[[], None]) -> None:
        super().__init__()
        self.before, self.after = before, after

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        before, self.before = self.before, lambda: None
        before()
        outcome = super().put_if_absent(path, data)
        after, self.after = self.after, lambda: None
        after()
        return outcome


def commit(table: TableContext, storage: LocalStorage) -> None:
    context = TableContext.open(table.url, storage=storage)
    context.snapshots.latest()
    message = CommitMessage(EMPTY_ROW, 0, 1, append=FileChanges(added=(data_file("late"),)))
    Committer(context).commit([message], CommitIdentity("late"))


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("then", ["nothing", "undrop", "create"])
@pytest.mark.parametrize("commits", [0, 2])
def test_a_commit_beside_a_drop(tmp_path: Path, when: str, then: str, commits: int) -> None:
    """It is part of the table that comes back, or it is not acknowledged; it never gets into another table."""
    table = new_table(tmp_path, commits=commits)
    made: list[TableContext] = []

    def drop() -> None:
        catalog(tmp_path).drop_table("shop.t")
        if then == "undrop":
            catalog(tmp_path).undrop("shop.t")
        elif then == "create":
            columns = ["k INT NOT NULL", "v STRING"]
            made.append(Table.create(table.url, columns=columns, primary_key="k", bucket=1, runtime=LOCAL).context)
            write(made[0], [{"k": 0, "v": "new"}])

    storage = Interposed(drop if when == "before" else lambda: None, drop if when == "after" else lambda: None)
    outcome: PaimonError | None = None
    try:
        commit(table, storage)
    except (BeingDropped, CommitUnknown) as error:
        outcome = error
    if then == "create":
        assert made[0].snapshots.ids() == [1] and rows(made[0]) == [{"k": 0, "v": "new"}]
    shutil.rmtree(table.url, ignore_errors=True) if then != "undrop" else None
    if then != "undrop":
        catalog(tmp_path).undrop("shop.t")
    users = [snapshot.commit_user for snapshot in TableContext.open(table.url).snapshots.newest_first()]
    if outcome is None:
        assert "late" in users
    elif isinstance(outcome, BeingDropped):
        assert "late" not in users


def test_a_reader_never_sees_half_a_table(tmp_path: Path) -> None:
    """A rename: before it all is there, after it nothing."""
    table = new_table(tmp_path)
    expected = rows(table)
    for _ in range(3):
        catalog(tmp_path).drop_table("shop.t")
        assert not os.path.exists(table.url)
        catalog(tmp_path).undrop("shop.t")
        assert rows(TableContext.open(table.url)) == expected


def test_undrop_outside_of_the_warehouse(tmp_path: Path) -> None:
    new_table(tmp_path)
    catalog(tmp_path).drop_table("shop.t")
    with pytest.raises((Refused, NotSupported, UsageError)):
        catalog(tmp_path).undrop("shop.t", new_name=str(tmp_path / "elsewhere"))
    with pytest.raises(Refused):
        catalog(tmp_path).undrop("shop.t", new_name=str(tmp_path / "other/shop.db/t"))


class DyingAtDeletion(WrappedStorage):
    """Dies at the deletion with this number."""

    def __init__(self, left: int, inner: Storage | None = None) -> None:
        super().__init__(inner or LocalStorage())
        self.left = left

    def before(self, call: str, path: str) -> None:
        if call in ("overwrite", "delete", "delete_directory"):
            self.left -= 1
            if not self.left:
                raise KeyboardInterrupt


def always(storage: Storage, url: str) -> Storage:
    return storage


def test_a_table_of_which_files_are_gone_does_not_come_back(tmp_path: Path) -> None:
    """Emptying the trash dies at each step: the table is whole and comes back, or cannot, and is deleted the next time."""
    number, died, outcomes = 0, True, set[str]()
    while died:
        number += 1
        folder = tmp_path / str(number)
        table = new_table(folder)
        expected = rows(table)
        catalog(folder).drop_table("shop.t")
        dying = DyingAtDeletion(number)
        trash = Trash(dying, str(folder / "wh"), functools.partial(always, dying))
        try:
            empty_trash(trash, trash.overdue(everything=True))
            died = False
        except KeyboardInterrupt:
            try:
                catalog(folder).undrop("shop.t")
            except NotFound as error:
                outcomes.add(error.what.split(" is ")[-1])
                catalog(folder).trash.empty()
            else:
                outcomes.add("back")
                assert rows(TableContext.open(table.url)) == expected
                continue
        assert not (folder / "wh/.paimon-cli").exists() and not Path(table.url).exists()
    assert number > 8 and outcomes == {"back", "being deleted for good"}


def test_an_entry_that_cannot_be_read_stands_in_nobodys_way(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        new_table(tmp_path, name)
        catalog(tmp_path).drop_table(f"shop.{name}")
    (bad,) = (row.id for row in catalog(tmp_path).trash if row.table == "shop.a")
    (tmp_path / "wh/.paimon-cli/trash" / bad / "entry").write_text("{")
    catalog(tmp_path).undrop("shop.b")
    for name in ("shop.a", "shop.never"):  # nothing says which of them it is
        with pytest.raises(NotFound, match=rf"nothing is known of 1 of its entries: cannot read .*{bad}"):
            catalog(tmp_path).undrop(name)
    with pytest.raises(PartlyEmptied, match=bad) as partly:
        catalog(tmp_path).trash.empty()
    assert partly.value.emptied.table_names == ("shop.c",) and partly.value.details["deleted"] == ["shop.c"]
    assert "its table may be whole" in partly.value.hint
    assert rows(TableContext.open(str(tmp_path / "wh/.paimon-cli/trash" / bad / "table")))
    assert [path.name for path in (tmp_path / "wh/.paimon-cli/trash").iterdir()] == [bad], "the others are deleted"


@pytest.mark.parametrize("at", [".paimon-cli", ".paimon-cli/trash"])
def test_a_trash_that_is_elsewhere_is_not_used(tmp_path: Path, at: str) -> None:
    table = new_table(tmp_path)
    (tmp_path / "elsewhere/trash").mkdir(parents=True)
    (tmp_path / "wh/.paimon-cli").parent.mkdir(exist_ok=True)
    if at != ".paimon-cli":
        (tmp_path / "wh/.paimon-cli").mkdir()
    (tmp_path / "wh" / at).symlink_to(tmp_path / "elsewhere")
    for use in (lambda: catalog(tmp_path).drop_table("shop.t"), catalog(tmp_path).trash.empty, catalog(tmp_path).trash.ls):
        with pytest.raises(DamagedFile, match="is a link"):
            use()
    assert rows(table) and [path.name for path in (tmp_path / "elsewhere").rglob("*")] == ["trash"]


def deletion_begun(tmp_path: Path, name: str) -> Path:
    """Drop a table, and die while its entry in the trash is deleted; returns the directory of the entry."""
    new_table(tmp_path, name)
    catalog(tmp_path).drop_table(f"shop.{name}")
    (id_,) = (row.id for row in catalog(tmp_path).trash if row.table == f"shop.{name}")
    dying = DyingAtDeletion(3)
    trash = Trash(dying, str(tmp_path / "wh"), functools.partial(always, dying))
    with pytest.raises(KeyboardInterrupt):
        trash.delete(trash.find(f"shop.{name}", ""))
    return tmp_path / "wh/.paimon-cli/trash" / id_


def test_a_table_whose_deletion_begins_meanwhile_does_not_come_back(tmp_path: Path) -> None:
    """Another job empties the trash just before the table is moved."""
    table = new_table(tmp_path)
    catalog(tmp_path).drop_table("shop.t")

    class Late(LocalStorage):
        def move_directory(self, path: str, target: str) -> None:
            if target == table.url:
                dying = DyingAtDeletion(3)
                with pytest.raises(KeyboardInterrupt):
                    other = Trash(dying, str(tmp_path / "wh"), functools.partial(always, dying))
                    other.delete(other.find("shop.t", ""))
            super().move_directory(path, target)

    trash = Trash(Late(), str(tmp_path / "wh"), lambda url: ConfinedStorage(url))
    with pytest.raises(NotFound, match="is being deleted for good"):
        trash.give_back(trash.find("shop.t", table.url), table.url)
    assert not Path(table.url).exists() and [row.state for row in catalog(tmp_path).trash] == ["going"]
    assert catalog(tmp_path).trash.empty().tables == 1 and not (tmp_path / "wh/.paimon-cli").exists()


def test_a_deletion_that_has_begun_is_finished(tmp_path: Path) -> None:
    """Nobody can bring the table back, so what is left of it need not stay until its time is over."""
    entry = deletion_begun(tmp_path, "a")
    new_table(tmp_path, "b")
    catalog(tmp_path).drop_table("shop.b")
    assert {row.table: row.state for row in catalog(tmp_path).trash} == {"shop.a": "going", "shop.b": "kept"}
    assert catalog(tmp_path).trash.empty(expired=True).table_names == ("shop.a",)
    assert not entry.exists() and [row.table for row in catalog(tmp_path).trash] == ["shop.b"]


def test_a_listing_names_what_cannot_be_read(tmp_path: Path) -> None:
    for name in ("a", "b"):
        new_table(tmp_path, name)
        catalog(tmp_path).drop_table(f"shop.{name}")
    (bad,) = (row.id for row in catalog(tmp_path).trash if row.table == "shop.a")
    directory = tmp_path / "wh/.paimon-cli/trash"
    (directory / bad / "entry").write_text("{")
    (tmp_path / "elsewhere").mkdir()
    (directory / "1000-link").symlink_to(tmp_path / "elsewhere")
    rows = {row.id: row for row in catalog(tmp_path).trash}
    assert len(rows) == 3 and sorted(row.state for row in rows.values()) == ["damaged", "damaged", "kept"]
    assert "is a link" in rows["1000-link"].problem and "is not what a drop writes" in rows[bad].problem
    assert rows[bad].path == str(directory / bad)


def test_what_is_left_goes_though_an_entry_cannot_be_read(tmp_path: Path) -> None:
    directory = tmp_path / "wh/.paimon-cli/trash"
    for name in ("1000-a", "1001-b"):
        (directory / name).mkdir(parents=True)
    (directory / "1000-a/entry").write_text("{")
    (directory / "0999-link").symlink_to(tmp_path)
    (directory / "²-c").mkdir()  # a digit to Python, and no number
    empty_trash(trash_of(tmp_path), [])
    assert sorted(path.name for path in directory.iterdir()) == ["0999-link", "1000-a", "²-c"]


def test_expired_tables_are_deleted_beside_what_cannot_be_read(tmp_path: Path) -> None:
    """What the service does once an hour: it says what stays, and counts what went."""
    for name in ("a", "b", "kept"):
        new_table(tmp_path, name)
    catalog(tmp_path, **{"trash-retention": "1 ms"}).drop_table("shop.a")
    catalog(tmp_path).drop_table("shop.b")
    catalog(tmp_path).drop_table("shop.kept")
    (bad,) = (row.id for row in catalog(tmp_path).trash if row.table == "shop.b")
    (tmp_path / "wh/.paimon-cli/trash" / bad / "entry").write_text("{")
    warned: list[str] = []
    emptied = empty_expired(catalog(tmp_path)._metastore, warned.append)
    assert emptied.table_names == ("shop.a",) and len(warned) == 1 and bad in warned[0]
    assert catalog(tmp_path).undrop("shop.kept").snapshots == 2  # its time is not over


def test_a_warehouse_that_was_moved_as_a_whole(tmp_path: Path) -> None:
    """An entry says where its table was, which may be written in any way: the table itself lies in the trash."""
    table = new_table(tmp_path)
    expected = rows(table)
    catalog(tmp_path).drop_table("shop.t")
    entry = next((tmp_path / "wh/.paimon-cli/trash").iterdir()) / "entry"
    entry.write_text(json.dumps(json.loads(entry.read_text()) | {"url": "/old//place/../wh/./shop.db/t"}))
    (tmp_path / "wh").rename(tmp_path / "moved")
    moved = Catalog(str(tmp_path / "moved"), runtime=LOCAL)
    assert [(row.state, row.path) for row in moved.trash] == [("kept", str(tmp_path / "moved/shop.db/t"))]
    moved.undrop("shop.t")
    assert rows(TableContext.open(str(tmp_path / "moved/shop.db/t"))) == expected
    moved.drop_table("shop.t")
    assert moved.trash.empty().tables == 1 and not (tmp_path / "moved/.paimon-cli").exists()


class StopsTwice(LocalStorage):
    """Calls `first` before a commit writes its first manifest, and `second` before it puts the snapshot."""

    def __init__(self, first: Callable[[], object], second: Callable[[], object]) -> None:
        super().__init__()
        self.steps = [("/manifest/", first), ("/snapshot/snapshot-", second)]

    def at(self, path: str) -> None:
        if self.steps and self.steps[0][0] in path:
            self.steps.pop(0)[1]()

    def write_new(self, path: str, data: bytes) -> None:
        self.at(path)
        super().write_new(path, data)

    def open_output(self, path: str) -> BinaryIO:
        self.at(path)
        return super().open_output(path)

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        self.at(path)
        return super().put_if_absent(path, data)


def test_files_of_a_commit_on_its_way_are_not_moved_away(tmp_path: Path) -> None:
    """They lie where the table was. Were it brought back without them, the commit would name files that are not there."""
    table = new_table(tmp_path)
    refused: list[str] = []

    def bring_back() -> None:
        with pytest.raises(Refused, match="writers") as error:
            catalog(tmp_path).undrop("shop.t")
        refused.append(error.value.hint)

    with pytest.raises(PaimonError):
        commit(table, StopsTwice(lambda: catalog(tmp_path).drop_table("shop.t"), bring_back))
    assert refused and "--as NEW" in refused[0]
    back = TableContext.open(catalog(tmp_path).undrop("shop.t", new_name="shop.u").path)
    assert back.snapshots.ids() == [1, 2]
    check_versions(back)
