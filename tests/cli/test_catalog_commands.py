"""`tables ls`, `db ls`, `ls` and `describe`."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from tests.cli.calling import Answer, Run


@pytest.fixture
def warehouse(tmp_path: Path, run: Run) -> Path:
    """shop.orders with two commits, shop.returns without any, and an empty database."""
    columns = ("-C", "id BIGINT NOT NULL", "-C", "dt STRING NOT NULL", "-C", "v INT", "--primary-key", "id,dt")
    orders = tmp_path / "shop.db" / "orders"
    run("create", orders, *columns, "--partition-by", "dt", "--bucket", "2", "--option", "write-only=true")
    run("create", tmp_path / "shop.db" / "returns", *columns, "--bucket", "1")
    (tmp_path / "empty.db").mkdir()
    for value in (1, 2):
        row = json.dumps({"id": 7, "dt": "mon", "v": value})
        run("write", orders, "-", "--format", "json", "--engine", "local", stdin=row)
    return tmp_path


@pytest.mark.parametrize(
    "words, end",
    [
        ((), "will be dropped"),
        (("--purge",), "will be deleted for good"),
        (("--option", "trash-retention=0"), "will be deleted for good"),
    ],
)
def test_dropping_a_database_asks_whether_its_tables_may_be_lost(
    tmp_path: Path, run: Run, words: tuple[str, ...], end: str
) -> None:
    there = ("--warehouse", tmp_path / "wh")
    run("create", "shop.orders", "-C", "id INT NOT NULL", "--primary-key", "id", *there)
    asked = run("db", "drop", "shop", "--cascade", *words, *there, code=7).err
    assert f"database shop with 1 table (shop.orders) {end}" in asked
    dropped = run("db", "drop", "shop", "--cascade", *words, "-y", "-o", "json", *there).json["item"]
    assert dropped == {"database": "shop", "table_names": ["shop.orders"]}
    assert len(run("trash", "ls", *there, "-o", "json").json["items"]) == (end == "will be dropped")


def test_the_trash_is_listed_beside_an_entry_that_cannot_be_read(tmp_path: Path, run: Run) -> None:
    there = ("--warehouse", tmp_path / "wh")
    for name in ("shop.orders", "shop.returns"):
        run("create", name, "-C", "id INT NOT NULL", "--primary-key", "id", *there)
    said = run("drop", "shop.orders", "-y", "--option", "trash-retention=7d", *there).err
    assert "undrop shop.orders" in said and "trash-retention" not in said
    run("drop", "shop.returns", "-y", *there)
    entries = {row["table"]: row["id"] for row in run("trash", "ls", *there, "-o", "json").json["items"]}
    (tmp_path / "wh/.paimon-cli/trash" / entries["shop.orders"] / "entry").write_text("{")
    answer = run("trash", "ls", *there, code=9)
    assert "shop.returns" in answer.out and entries["shop.orders"] in answer.out and "1 dropped table," in answer.out
    assert "is not what a drop writes" in answer.err
    (kept, bad) = run("trash", "ls", *there, "-o", "json", code=9).json["items"]
    assert kept["state"] == "kept" and (bad["state"], bad["id"]) == ("damaged", entries["shop.orders"])
    assert "cannot read" in run("trash", "empty", "--dry-run", *there, code=9).err
    planned = run("trash", "empty", "--dry-run", *there, "-o", "json", code=9).json["items"]
    assert [row["state"] for row in planned] == ["kept", "damaged"]
    emptied = run("trash", "empty", *there, "-y", "-o", "json", code=9)
    assert emptied.json["item"]["table_names"] == [kept["table"]], "what was deleted is said though an entry stays"
    assert "1 of the entries of the trash could not be deleted" in emptied.err
    assert "nothing to delete" in run("trash", "empty", *there, "-y", code=9).out
    run("trash", "ls", *there, code=9)


def test_hints_about_tables_and_databases_work_when_pasted(tmp_path: Path, run: Run) -> None:
    there = ("--warehouse", tmp_path / "my lake")
    run("create", "the shop.orders", "-C", "id INT NOT NULL", "--primary-key", "id", *there)

    def pasted(*words: object, code: int = 3) -> Answer:
        hint = run(*words, *there, code=code).err.splitlines()[-1]
        return run(*shlex.split(hint.partition("paimon-cli ")[2]), code=None)

    assert pasted("read", "the shop.order").out.splitlines()[-2].startswith("the shop.orders ")
    assert "1 table" in pasted("db", "drop", "the shop", code=2).err
    assert pasted("schemas", "show", "the shop.orders", 7).out.splitlines()[-1] == "1 schema"
    assert pasted("read", "the pub.beer").out.splitlines()[-1] == "1 database"
    run("db", "drop", "the pub", *there, code=3)
    assert "did you mean 'the shop'? paimon-cli db ls" in run("ls", "the shpo", *there, code=3).err
    wrong = run("tables", "rename", tmp_path / "my lake" / "the shop.db" / "orders", "the shop.x", code=2).err
    assert wrong.splitlines()[0].endswith("is a path, and tables are renamed by their names in a catalog")
    assert "paimon-cli tables clone" in wrong
    assert "exactly one dot" in run("tables", "rename", "orders", "the shop.x", code=2).err


def test_a_database_that_a_new_table_needs_is_created_by_the_hint(tmp_path: Path, run: Run) -> None:
    catalog = ("--option", "metastore=jdbc", "--option", f"uri=jdbc:sqlite:{tmp_path}/c.sqlite", "--warehouse", tmp_path / "w")
    hint = run("create", "pub.beer", "-C", "id INT", *catalog, code=3).err.splitlines()[-1]
    assert hint.startswith("hint: paimon-cli db create pub")
    assert "db create" not in run("ls", "pub", *catalog, code=3).err


def test_a_warehouse_that_is_not_there_is_not_one_without_the_database(tmp_path: Path, run: Run) -> None:
    for command in (("read", "shop.orders"), ("tables", "ls"), ("db", "drop", "shop", "-y")):
        assert f"nothing exists at {tmp_path}/nowhere" in run(*command, "--warehouse", tmp_path / "nowhere", code=3).err
    assert "there is no database shop" in run("read", "shop.orders", "--warehouse", tmp_path, code=3).err


def test_tables_of_a_warehouse_are_named_as_commands_take_them(warehouse: Path, run: Run) -> None:
    listed = json.loads(run("tables", "ls", "--warehouse", warehouse, "-o", "json").out)
    assert listed["kind"] == "TableList"
    assert [item["table"] for item in listed["items"]] == ["shop.orders", "shop.returns"]
    orders, returns = listed["items"]
    assert (orders["records"], orders["snapshot_id"], orders["primary_keys"], orders["partition_keys"]) == (
        2,
        2,
        ["id", "dt"],
        ["dt"],
    )
    assert (returns["records"], returns["snapshot_id"], returns["time"], returns["problem"]) == (0, None, None, None)
    assert run("read", orders["table"], "--warehouse", warehouse, "--count").out == "1\n"


def test_ls_lists_a_directory_and_a_database(warehouse: Path, run: Run) -> None:
    below = run("ls", warehouse).out
    assert f"{warehouse}/shop.db/orders" in below and below.endswith("2 tables\n")
    for arguments in (("shop",), ("--database", "shop")):
        assert "shop.returns" in run("ls", *arguments, "--warehouse", warehouse).out
    assert run("ls", "empty", "--warehouse", warehouse).out.endswith("0 tables\n")
    assert run("health", "--database", "empty", "--warehouse", warehouse, "-o", "json").json["items"] == []
    assert "there is no database nope" in run("ls", "nope", "--warehouse", warehouse, code=3).err
    for command in (("compact",), ("compact", "-n"), ("maintain", "-y"), ("maintain", "-n")):
        assert run(*command, "--database", "empty", "--warehouse", warehouse).out == "0 tables: nothing to do\n"
        assert run(*command, "--database", "empty", "--warehouse", warehouse, "-o", "json").json["items"] == []
        assert "there is no database nope" in run(*command, "--database", "nope", "--warehouse", warehouse, code=3).err
    assert "cannot be combined with --database" in run("ls", "shop", "--database", "x", "--warehouse", warehouse, code=2).err
    assert "paimon-cli ls" not in run("ls", code=2).out


def test_databases_with_their_number_of_tables(warehouse: Path, run: Run) -> None:
    items = json.loads(run("db", "ls", "--warehouse", warehouse, "-o", "json").out)["items"]
    assert [(item["database"], item["tables"]) for item in items] == [("empty", 0), ("shop", 2)]


def test_describe_shows_what_the_table_is_and_holds(warehouse: Path, run: Run) -> None:
    table = warehouse / "shop.db" / "orders"
    item = json.loads(run("describe", table, "-o", "json").out)["item"]
    assert [(column["name"], column["type"], column["key"]) for column in item["columns"]] == [
        ("id", "BIGINT NOT NULL", "primary"),
        ("dt", "STRING NOT NULL", "primary, partition"),
        ("v", "INT", ""),
    ]
    assert (item["snapshots"], item["records"], item["files"], item["sorted_runs"], item["bucket"]) == (2, 2, 2, 2, "2")
    assert item["health"] == []
    text = run("describe", table).out
    assert "Primary key         id, dt" in text and "To do: none" in text


def test_describe_names_the_command_for_what_should_be_done(warehouse: Path, run: Run) -> None:
    table = warehouse / "shop.db" / "orders"
    run("alter", table, "set", "snapshot.time-retained=1 s")
    finding = json.loads(run("describe", table, "-o", "json").out)["item"]["health"][0]
    assert finding["code"] == "PD018"
    assert finding["command"].startswith(f"paimon-cli alter {table} set ")
