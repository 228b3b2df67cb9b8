"""What all kinds of catalogs have in common: databases, tables, names, drops, renames, copies."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from paimon_cli.catalog.metastore.hive_client import HiveAddress
from tests.catalog.metastore.hive_server import HiveServer
from tests.cli.calling import Answer, Run
from tests.storage.postgres_server import IS_HERE, USER, PostgresServer

COLUMNS = ("-C", "id BIGINT NOT NULL", "-C", "v STRING", "--primary-key", "id", "--bucket", "1")
HIVE = pytest.param("hive", marks=pytest.mark.xdist_group("hive"))
KINDS = ["filesystem", "sqlite", *(["postgresql"] if IS_HERE else []), HIVE]


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture(params=KINDS)
def flags(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """The flags that lead to an empty catalog."""
    options: dict[str, str] = {}
    if request.param == "sqlite":
        options = {"metastore": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/catalog.db"}
    elif request.param == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres")
        login = {"jdbc.user": USER, "jdbc.password": server.password}
        options = {"metastore": "jdbc", "uri": server.new_database(), **login}
    elif request.param == "hive":
        server_of_hive: HiveServer = request.getfixturevalue("hive")
        clear(server_of_hive)
        options = {"metastore": "hive", "uri": server_of_hive.uri, "lock.enabled": "true"}
    return ["--warehouse", f"{tmp_path}/wh", *(word for key, value in options.items() for word in ("--option", f"{key}={value}"))]


def clear(server: HiveServer) -> None:
    """Forget the databases of the test before."""
    with HiveAddress.of({"uri": server.uri}, {}).connected() as client:
        for name in set(client.get_all_databases()) - {"default"}:
            client.drop_database(name, False, True)


Call = Callable[..., Answer]


@pytest.fixture
def call(run: Run, flags: list[str]) -> Call:
    """Runs a command in the catalog, in which there is a database `shop`."""

    def called(*arguments: object, **settings: Any) -> Answer:
        return run(*arguments, *flags, **settings)

    called("db", "create", "shop")
    return called


def write(call: Call, table: str, *rows: dict[str, object]) -> None:
    call("write", table, "-", "--format", "json", "--engine", "local", stdin="\n".join(map(json.dumps, rows)))


def databases(call: Call) -> list[dict[str, Any]]:
    """All databases except the one that each Hive metastore has."""
    return [item for item in call("db", "ls", "-o", "json").json["items"] if item["database"] != "default"]


def names(call: Call) -> list[str]:
    return [item["table"] for item in call("tables", "ls", "-o", "json").json["items"]]


def rows(call: Call, table: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in call("read", table, "-o", "ndjson").out.splitlines()]


def test_databases(call: Call) -> None:
    assert "already exists" in call("db", "create", "shop", code=2).err
    assert "nothing was changed" in call("db", "create", "shop", "--if-not-exists").out
    call("db", "create", "empty", "--if-not-exists")
    call("create", "shop.orders", *COLUMNS)
    items = databases(call)
    assert [(item["database"], item["tables"]) for item in items] == [("empty", 0), ("shop", 1)]
    assert items[1]["path"].endswith("/wh/shop.db")
    call("db", "drop", "empty", "-y")
    assert "there is no database empty" in call("db", "drop", "empty", "-y", code=3).err
    assert "it has 1 table: shop.orders" in call("db", "drop", "shop", "-y", code=2).err
    assert "not confirmed" in call("db", "drop", "shop", "--cascade", code=7).err
    assert "nothing was changed" in call("db", "drop", "shop", "--cascade", "--dry-run").out
    assert call("db", "drop", "shop", "--cascade", "-y", "-o", "json").json["item"]["table_names"] == ["shop.orders"]
    assert databases(call) == []


@pytest.mark.in_part(2)
def test_every_command_takes_the_name_of_a_table(call: Call, tmp_path: Path) -> None:
    call("create", "shop.orders", *COLUMNS)
    assert "already exists" in call("create", "shop.orders", *COLUMNS, code=2).err
    assert "nothing was changed" in call("create", "shop.orders", *COLUMNS, "--if-not-exists").out
    write(call, "shop.orders", {"id": 1, "v": "a"})
    write(call, "shop.orders", {"id": 1, "v": "b"})
    call("compact", "shop.orders", "--engine", "local")
    call("alter", "shop.orders", "set", "snapshot.num-retained.max=17")
    call("tags", "create", "shop.orders", "first", "--snapshot", "1")
    assert rows(call, "shop.orders") == [{"id": 1, "v": "b"}]
    assert call("verify", "shop.orders", "-o", "json").code == 0
    assert [item["id"] for item in call("snapshots", "ls", "shop.orders", "-o", "json").json["items"]] == [3, 2, 1]
    (item,) = call("ls", "shop", "-o", "json").json["items"]
    assert (item["table"], item["path"], item["snapshot_id"]) == ("shop.orders", f"{tmp_path}/wh/shop.db/orders", 3)
    assert "shop.orders" in call("health", "--database", "shop", code=None).out
    call("drop", "shop.orders", "-y")
    assert names(call) == []
    assert call("read", "shop.orders", code=3).err
    call("create", "shop.orders", *COLUMNS)
    assert rows(call, "shop.orders") == []


@pytest.mark.in_part(2)
def test_a_dropped_table_comes_back_with_its_entry(call: Call, tmp_path: Path) -> None:
    call("create", "shop.orders", *COLUMNS)
    write(call, "shop.orders", {"id": 1, "v": "a"})
    call("drop", "shop.orders", "-y")
    assert names(call) == [] and (tmp_path / "wh/.paimon-cli").exists()
    (item,) = call("trash", "ls", "-o", "json").json["items"]
    assert (item["table"], item["snapshots"]) == ("shop.orders", 1)
    call("create", "shop.orders", *COLUMNS)
    assert "--as NEW" in call("undrop", "shop.orders", code=7).err
    call("undrop", "shop.orders", "--as", "shop.old")
    assert names(call) == ["shop.old", "shop.orders"] and rows(call, "shop.old") == [{"id": 1, "v": "a"}]
    call("drop", "shop.orders", "-y")
    call("undrop", "shop.orders")
    write(call, "shop.orders", {"id": 2, "v": "b"})
    assert rows(call, "shop.orders") == [{"id": 2, "v": "b"}]
    call("drop", "shop.old", "-y", "--purge")
    assert call("trash", "empty", "-y").out and call("undrop", "shop.old", code=3).err


@pytest.mark.in_part(2)
def test_entries_with_missing_files_can_be_dropped(call: Call, tmp_path: Path) -> None:
    """A file system catalog has no entries: there the table is gone as well."""
    for name in ("one", "two", "odd"):
        call("create", f"shop.{name}", *COLUMNS)
        shutil.rmtree(tmp_path / f"wh/shop.db/{name}")
    assert "shop.one" in call("tables", "rename", "shop.one", "shop.new", code=3).err
    if names(call):
        assert "table shop.one has lost its files" in call("describe", "shop.one", code=3).err
        planned = call("drop", "shop.one", "--dry-run")
        assert "the entry of table shop.one" in planned.out and names(call) == ["shop.odd", "shop.one", "shop.two"]
        assert call("drop", "shop.one", "-y", "-o", "json").json["item"]["only_entry"] is True
        (tmp_path / "wh/shop.db/odd").mkdir()
        (tmp_path / "wh/shop.db/odd/notes.txt").write_text("x")
        assert "notes.txt" in call("drop", "shop.odd", "-y").err
        assert (tmp_path / "wh/shop.db/odd/notes.txt").exists() and names(call) == ["shop.two"]
        shutil.rmtree(tmp_path / "wh/shop.db/odd")
        call("create", "shop.one", *COLUMNS)
        call("db", "drop", "shop", "--cascade", "-y")
        assert databases(call) == []
    assert call("drop", "shop.one", "-y", code=3).err


def test_a_table_that_lost_only_its_schemas_keeps_its_entry(call: Call, tmp_path: Path) -> None:
    call("create", "shop.orders", *COLUMNS)
    write(call, "shop.orders", {"id": 1, "v": "a"})
    shutil.rmtree(tmp_path / "wh/shop.db/orders/schema")
    before = names(call)
    call("drop", "shop.orders", "-y", code=10)
    assert names(call) == before and (tmp_path / "wh/shop.db/orders/snapshot").is_dir()


def test_what_is_not_there(call: Call) -> None:
    assert call("read", "shop.nope", code=3).err.startswith("error: ")
    assert call("drop", "shop.nope", "-y", code=3).err.startswith("error: ")
    assert "there is no table shop.nope" in call("tables", "rename", "shop.nope", "shop.x", code=3).err
    call("tables", "clone", "shop.nope", "shop.x", code=3)


@pytest.mark.in_part(2)
def test_rename(call: Call, tmp_path: Path) -> None:
    call("create", "shop.orders", *COLUMNS)
    call("create", "shop.taken", *COLUMNS)
    call("db", "create", "archive")
    write(call, "shop.orders", {"id": 1, "v": "a"})
    assert "cannot rename shop.orders to shop.taken" in call("tables", "rename", "shop.orders", "shop.taken", code=2).err
    call("tables", "rename", "shop.orders", "archive.orders_2026")
    assert names(call) == ["archive.orders_2026", "shop.taken"]
    assert rows(call, "archive.orders_2026") == [{"id": 1, "v": "a"}]
    assert not (tmp_path / "wh/shop.db/orders").exists()
    call("create", "shop.orders", *COLUMNS)
    for name in ("orders", "a.b.c", "../x.y"):
        call("tables", "rename", "shop.orders", name, code=2)


@pytest.mark.in_part(2)
def test_clone(call: Call) -> None:
    call("create", "shop.orders", *COLUMNS, "--option", "deletion-vectors.enabled=true", "--option", "changelog-producer=lookup")
    for value in ("a", "b"):
        write(call, "shop.orders", {"id": 1, "v": value}, {"id": 2, "v": "x"})
    call("alter", "shop.orders", "add-column", "n INT")
    call("delete", "shop.orders", "-w", "id = 2", "--engine", "local")
    call("compact", "shop.orders", "--engine", "local", "--strategy", "minor")
    latest = call("snapshots", "show", "shop.orders", "latest", "-o", "json").json["item"]["id"]
    done = call("tables", "clone", "shop.orders", "shop.copy", "-o", "json").json["item"]
    assert (done["snapshot_id"], done["table"]) == (latest, "shop.copy")
    assert call("verify", "shop.copy", "--level", "full", "-o", "json", "--engine", "local").code == 0
    call("drop", "shop.orders", "-y")
    assert rows(call, "shop.copy") == [{"id": 1, "v": "b", "n": None}]
    write(call, "shop.copy", {"id": 1, "v": "c", "n": 7})
    assert rows(call, "shop.copy") == [{"id": 1, "v": "c", "n": 7}]
    call("tables", "clone", "shop.copy", "shop.copy", code=2)
    assert rows(call, "shop.copy") == [{"id": 1, "v": "c", "n": 7}]


@pytest.mark.in_part(2)
def test_a_table_without_a_snapshot_is_cloned_as_such(call: Call) -> None:
    call("create", "shop.orders", *COLUMNS)
    assert "cloned an empty table" in call("tables", "clone", "shop.orders", "shop.copy").out
    assert rows(call, "shop.copy") == []


@pytest.mark.in_part(2)
def test_names_that_nearly_match_are_named(call: Call) -> None:
    call("create", "shop.orders", *COLUMNS)
    for command in ("read", "describe", "health", "drop"):
        for name in ("shop.oders", "shp.orders", "orders", "oders"):
            assert re.search(r"did you mean ('shop.orders'|shop.orders)\?", call(command, name, code=3).err), (command, name)
    lines = ("compare oders orders", "compare shop.oders shop.orders", "tables rename oders shop.x", "sql 'SELECT * FROM oders'")
    for line in lines:
        assert re.search(r"did you mean ('shop.orders'|shop.orders)\?", call(*shlex.split(line), code=None).err), line
    assert "did you mean 'shop'?" in call("tables", "ls", "shp", code=3).err


def test_a_database_that_is_a_link_is_not_emptied(run: Run, tmp_path: Path) -> None:
    elsewhere, here = tmp_path / "elsewhere", tmp_path / "here"
    run("create", elsewhere / "shop.db" / "orders", "-C", "id INT")
    here.mkdir()
    (here / "shop.db").symlink_to(elsewhere / "shop.db")
    assert "is a link to" in run("db", "drop", "shop", "--cascade", "-y", "--warehouse", here, code=7).err
    assert (elsewhere / "shop.db" / "orders" / "schema" / "schema-0").exists()
