"""What only a JDBC catalog does: its rows, several catalogs in one database, views, and creations and drops that die halfway."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paimon_cli import Catalog
from paimon_cli.catalog.metastore.filesystem import FileSystemMetastore
from paimon_cli.catalog.metastore.jdbc import JdbcMetastore
from paimon_cli.catalog.metastore.metastore import TableIdentifier
from paimon_cli.errors import NotFound, NotSupported, Refused, StorageUnavailable, UsageError
from paimon_cli.storage.local_storage import LocalStorage
from tests.cli.calling import Answer, Run

COLUMNS = ("-C", "id BIGINT NOT NULL", "-C", "v STRING", "--primary-key", "id", "--bucket", "1")
Call = Callable[..., Answer]


@pytest.fixture
def call(run: Run, tmp_path: Path) -> Call:
    """Runs a command in the catalog, which holds the table `shop.orders`."""
    flags = ["--warehouse", f"{tmp_path}/wh", "--option", "metastore=jdbc", "--option", f"uri=jdbc:sqlite:{tmp_path}/c.db"]

    def called(*arguments: object, **settings: Any) -> Answer:
        return run(*arguments, *flags, **settings)

    called("db", "create", "shop")
    called("create", "shop.orders", *COLUMNS)
    return called


def query(tmp_path: Path, statement: str) -> list[tuple[Any, ...]]:
    with sqlite3.connect(tmp_path / "c.db") as database:
        return sorted(database.execute(statement).fetchall())


def names(call: Call, *flags: str) -> list[str]:
    return [item["table"] for item in call("tables", "ls", "-o", "json", *flags).json["items"]]


def test_the_rows_are_those_of_java(call: Call, tmp_path: Path) -> None:
    assert query(tmp_path, "SELECT * FROM paimon_tables") == [("jdbc", "shop", "orders")]
    place = f"{tmp_path}/wh/shop.db"
    assert query(tmp_path, "SELECT * FROM paimon_database_properties") == [
        ("jdbc", "shop", "exists", "true"),
        ("jdbc", "shop", "location", place),
    ]
    call("alter", "shop.orders", "set", "snapshot.num-retained.max=15")
    rows = query(tmp_path, "SELECT property_key, property_value FROM paimon_table_properties WHERE table_name = 'orders'")
    expected = {"bucket": "1", "primary-key": "id", "bucket-key": "id", "snapshot.num-retained.max": "15"}
    assert dict(rows).items() >= expected.items()
    call("tables", "rename", "shop.orders", "shop.sales")
    assert set(query(tmp_path, "SELECT table_name FROM paimon_table_properties")) == {("sales",)}
    call("drop", "shop.sales", "-y")
    assert query(tmp_path, "SELECT * FROM paimon_table_properties") == []


def test_options_are_not_copied_where_that_is_off(call: Call, tmp_path: Path) -> None:
    call("create", "shop.plain", *COLUMNS, "--option", "sync-all-properties=false")
    assert query(tmp_path, "SELECT * FROM paimon_table_properties WHERE table_name = 'plain'") == []
    assert names(call) == ["shop.orders", "shop.plain"]


def test_catalogs_in_one_database_do_not_see_each_other(call: Call) -> None:
    other = ("--option", "catalog-key=other")
    assert names(call, *other) == []
    assert "there is no database shop" in call("read", "shop.orders", *other, code=3).err
    call("db", "create", "shop", *other)
    assert names(call, *other) == [] and names(call) == ["shop.orders"]


def test_a_creation_that_died_before_its_entry_is_completed(call: Call, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "c.db") as database:
        database.execute("DELETE FROM paimon_tables")
    assert "there is no table shop.orders" in call("read", "shop.orders", code=3).err
    other = ("-C", "id INT", "--bucket", "-1")
    assert "contains a table that the jdbc catalog does not know" in call("create", "shop.orders", *other, code=2).err
    call("create", "shop.orders", *COLUMNS)
    assert names(call) == ["shop.orders"]


def test_files_that_are_not_registered_are_never_taken_over(call: Call, tmp_path: Path) -> None:
    call("write", "shop.orders", "-", "--format", "json", "--engine", "local", stdin='{"id": 1, "v": "a"}')
    with sqlite3.connect(tmp_path / "c.db") as database:
        database.execute("DELETE FROM paimon_tables")
    assert "does not know" in call("create", "shop.orders", *COLUMNS, code=2).err
    assert call("read", f"{tmp_path}/wh/shop.db/orders", "--count").out == "1\n"


def test_a_drop_that_fails_can_be_repeated(tmp_path: Path, call: Call) -> None:
    catalog = JdbcMetastore(f"{tmp_path}/wh", {"metastore": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/c.db"})
    orders = TableIdentifier("shop", "orders")

    def fail() -> None:
        raise StorageUnavailable("the disk is gone")

    with pytest.raises(StorageUnavailable, match="the disk is gone"):
        catalog.drop_table(orders, fail)
    assert names(call) == ["shop.orders"]
    assert ("primary-key",) in query(tmp_path, "SELECT property_key FROM paimon_table_properties")
    call("drop", "shop.orders", "-y")
    assert names(call) == []


def test_a_rename_whose_move_fails_keeps_the_name(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise StorageUnavailable("the disk is gone")

    monkeypatch.setattr("paimon_cli.storage.local_storage.LocalStorage.move_directory", fail)
    assert "the disk is gone" in call("tables", "rename", "shop.orders", "shop.sales", code=6).err
    assert names(call) == ["shop.orders"]
    assert call("read", "shop.orders", "--count").out == "0\n"


def test_a_rename_that_dies_after_its_move_can_be_repeated(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files are where the new name will be, and the catalog still has the old one."""
    move = LocalStorage.move_directory

    def moved(*given: Any) -> None:
        move(*given)
        raise StorageUnavailable("the database is gone")

    with monkeypatch.context() as dying:
        dying.setattr(LocalStorage, "move_directory", moved)
        assert "the database is gone" in call("tables", "rename", "shop.orders", "shop.sales", code=6).err
    assert "has lost its files" in call("tables", "rename", "shop.orders", "shop.others", code=3).err
    call("tables", "rename", "shop.orders", "shop.sales")
    assert names(call) == ["shop.sales"]
    assert call("read", "shop.sales", "--count").out == "0\n"
    with sqlite3.connect(tmp_path / "c.db") as database:
        query = "SELECT count(*) FROM paimon_table_properties WHERE property_key LIKE 'paimon-cli.%' OR table_name = 'orders'"
        assert database.execute(query).fetchone() == (0,)


def test_views_accept_names(call: Call, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "c.db") as database:
        database.execute("CREATE TABLE paimon_views (catalog_key TEXT, database_name TEXT, view_name TEXT, view_schema TEXT)")
        database.execute("INSERT INTO paimon_views VALUES ('jdbc', 'shop', 'report', '{}'), ('jdbc', 'views', 'v', '{}')")
    assert "it is a view" in call("create", "shop.report", *COLUMNS, code=2).err
    call("create", "shop.mine", *COLUMNS)
    assert "is a view" in call("tables", "rename", "shop.mine", "shop.report", code=2).err
    with sqlite3.connect(tmp_path / "c.db") as database:
        query = "SELECT count(*) FROM paimon_table_properties WHERE property_key LIKE 'paimon-cli.%'"
        assert database.execute(query).fetchone() == (0,), "what is refused leaves nothing"
    call("drop", "shop.mine", "--yes")
    assert "it has views" in call("db", "drop", "shop", "--cascade", "-y", code=2).err
    call("create", "views.t", *COLUMNS)
    assert names(call) == ["views.t"]


def test_the_lock_of_the_catalog_is_taken_by_commits(call: Call, tmp_path: Path) -> None:
    from paimon_cli.storage.catalog_options import LockSettings
    from paimon_cli.storage.commit_lock import CommitLock

    row = '{"id": 1, "v": "a"}'
    held = CommitLock(LockSettings(f"jdbc:sqlite:{tmp_path}/c.db"), f"{tmp_path}/wh/shop.db/orders")
    write = ("write", "shop.orders", "-", "--format", "json", "--engine", "local", "--option", "lock.enabled=true")
    with held.held():
        answer = call(*write, "--option", "lock-acquire-timeout=1 s", stdin=row, code=6)
    assert "could not acquire the commit lock jdbc.shop.orders" in answer.err
    call(*write, stdin=row)


def test_a_catalog_without_its_database() -> None:
    with pytest.raises(UsageError, match="has no database"):
        JdbcMetastore("/wh", {"metastore": "jdbc"}).databases()
    with pytest.raises(StorageUnavailable, match="the database of the jdbc catalog does not answer"):
        JdbcMetastore("/wh", {"uri": "jdbc:sqlite:/nowhere/at/all.db"}).databases()
    with pytest.raises(NotSupported, match="the jdbc catalog in oracle"):
        JdbcMetastore("/wh", {"uri": "jdbc:oracle://h/db"}).databases()


def test_a_store_without_directories_moves_none_and_holds_no_empty_database() -> None:
    from paimon_cli.storage.memory_storage import MemoryStorage

    catalog = FileSystemMetastore("memory://catalog/wh", flags=" --warehouse memory://catalog/wh")
    MemoryStorage().write_new("memory://catalog/wh/shop.db/orders/schema/schema-0", b"{}")
    with pytest.raises(Refused, match="cannot move a directory atomically") as failure:
        catalog.rename_table(TableIdentifier("shop", "orders"), TableIdentifier("shop", "sales"))
    assert failure.value.hint.endswith("paimon-cli tables clone shop.orders shop.sales --warehouse memory://catalog/wh")
    with pytest.raises(NotSupported, match="an empty database on memory"):
        catalog.create_database("other")
    with pytest.raises(NotFound):
        catalog.rename_table(TableIdentifier("shop", "nope"), TableIdentifier("shop", "sales"))


@pytest.mark.parametrize(
    ("column", "name"),
    [("table_name", "../../outside/t"), ("table_name", ".."), ("table_name", ""), ("database_name", "../outside")],
)
def test_names_in_its_rows_lead_nowhere_else(call: Call, run: Run, tmp_path: Path, column: str, name: str) -> None:
    """Whoever can write rows into the database of the catalog cannot have files deleted that are none of the warehouse's."""
    outside = tmp_path / "outside"
    run("create", outside / "t", *COLUMNS)
    kept = sorted(outside.rglob("*"))
    row = {"catalog_key": "jdbc", "database_name": "shop", "table_name": "t"} | {column: name}
    query(tmp_path, f"INSERT INTO paimon_tables VALUES {tuple(row.values())}")
    database = row["database_name"]
    for words in (["db", "drop", database, "--cascade", "-y"], ["health", "--database", database]):
        answer = call(*words, code=None)
        assert answer.code not in (0, 1) and "Traceback" not in answer.err
    assert sorted(outside.rglob("*")) == kept
    if column == "table_name":
        assert f"the jdbc catalog has an entry '{name}'" in call("db", "drop", "shop", "--cascade", "-y", code=10).err


@pytest.mark.parametrize(
    ("value", "said"), [("x'00ff'", "bytes where a text belongs"), (f"'{'n' * 10_001}'", "10,001 characters")]
)
def test_rows_that_are_no_texts_are_named(call: Call, tmp_path: Path, value: str, said: str) -> None:
    """SQLite keeps what it is given, whatever the type of the column."""
    query(tmp_path, f"INSERT INTO paimon_tables VALUES ('jdbc', 'shop', {value})")
    assert said in call("db", "drop", "shop", "--cascade", "-y", code=10).err
    for words in (["tables", "ls", "shop"], ["ls"], ["db", "ls"]):
        assert said in call(*words).err


def test_bad_rows_do_not_hide_the_good_ones(call: Call, tmp_path: Path) -> None:
    call("create", "shop.kept", *COLUMNS)
    call("write", "shop.kept", "-", "--format", "json", "--engine", "local", stdin='{"id": 1, "v": "x"}')
    bad = ["''", "'..'", "x'00ff'", "'../x'", f"'{'n' * 10_001}'", "'a/b'", r"'a\b'"]
    for value in bad:
        query(tmp_path, f"INSERT INTO paimon_tables VALUES ('jdbc', 'shop', {value})")
    query(tmp_path, "INSERT INTO paimon_tables VALUES ('jdbc', '../outside', 't')")
    shown = call("tables", "ls", "-o", "json")
    assert "shop.kept" in [item["table"] for item in shown.json["items"]]
    warned = [line for line in shown.err.splitlines() if line.startswith("warning: ")]
    assert len(warned) == 6 and warned[-1] == f"warning: {len(bad) + 1 - 5} more names of the catalog left out"
    listed = call("db", "ls", "-o", "json")
    assert [item["database"] for item in listed.json["items"]] == ["shop"] and "left out" in listed.err
    health = call("health", "--database", "shop", "-o", "json", code=4).json["items"]
    assert [row["verdict"] for row in health].count("unreadable") == len(bad)
    compacted = call("compact", "--database", "shop", "--engine", "local", code=9)
    assert f"{len(bad)} of " in compacted.err and "entry '..'" in compacted.err


def test_a_backup_names_the_entries_that_it_has_not_copied(call: Call, tmp_path: Path) -> None:
    query(tmp_path, "INSERT INTO paimon_tables VALUES ('jdbc', 'shop', '..')")
    failed = call("backup", "--database", "shop", tmp_path / "copy", "--engine", "local", code=9)
    assert "1 table of shop could not be backed up" in failed.err and "entry '..'" in failed.err
    assert (tmp_path / "copy/shop.db/orders/snapshot").parent.exists()


def test_a_dropped_database_leaves_no_directory_of_its_own_and_no_file_of_others_is_deleted(call: Call, tmp_path: Path) -> None:
    place = tmp_path / "wh" / "shop.db"
    assert place.is_dir()
    call("db", "drop", "shop", "--cascade", "-y")
    assert not place.exists()
    call("db", "create", "shop")
    place.mkdir(exist_ok=True)
    (place / "notes.txt").write_text("of somebody else")
    call("db", "drop", "shop", "-y")
    assert (place / "notes.txt").exists()


def test_a_nul_in_a_name_is_one_clear_line(tmp_path: Path) -> None:
    """SQLite would store it, and no directory could have the name."""
    catalog = Catalog(f"{tmp_path}/wh", {"metastore": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/catalog.db"})
    for call in (catalog.create_database, catalog.table, catalog.drop_table, lambda name: catalog.rename_table(name, "shop.t")):
        with pytest.raises(UsageError) as refused:
            call("a\0b")
        assert refused.value.message == "a name or path holds a NUL character: no file or directory can have such a name"
    assert catalog.databases() == []


def test_commands_of_the_library_go_through_the_catalog(tmp_path: Path) -> None:
    """The path alone would go round the catalog, and its lock."""
    options = {"metastore": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/catalog.db"}
    catalog = Catalog(f"{tmp_path}/wh", options)
    catalog.create_database("shop")
    catalog.create_table("shop.t", columns=["id INT NOT NULL"], primary_key="id", bucket=1, options={"write-only": "true"})
    table = catalog.table("shop.t")
    for number in range(9):
        table.write([{"id": number}])
    flags = f"--warehouse {tmp_path}/wh --option metastore=jdbc --option uri={options['uri']}"
    for row in (table.health(), *catalog.health()):
        assert [finding.command for finding in row.findings] == [f"paimon-cli compact shop.t {flags} --strategy minor"]
