"""Dropped tables on an object store: the data stays in its place, nobody sees a table there, and nothing else can take it."""

from __future__ import annotations

import json
from functools import partial

import pytest

from paimon_cli.api.catalog import Catalog
from paimon_cli.api.runtime import Runtime
from paimon_cli.api.table import Table
from paimon_cli.errors import NotFound, Refused
from paimon_cli.history.schema_history import SchemaHistory
from paimon_cli.history.table_context import TableContext
from paimon_cli.maintain.trash import Trash
from paimon_cli.metadata.table_layout import TableLayout
from paimon_cli.storage.storage_for_url import storage_for_url
from tests.maintain.test_trash import DyingAtDeletion, always
from tests.nightly import at_night
from tests.storage.s3_server import S3Server
from tests.storage.test_s3_tables import create_and_fill, pairs, run
from tests.tables import rows

pytestmark = pytest.mark.xdist_group("s3")


@pytest.fixture
def bucket(s3_server: S3Server) -> str:
    return s3_server.new_bucket()


@pytest.fixture
def options(s3_server: S3Server) -> list[str]:
    return pairs(s3_server.options())


def objects(s3_server: S3Server, url: str) -> list[str]:
    """All objects below a URL."""
    storage, root = storage_for_url(url, s3_server.options())
    found, pending = [], [root]
    while pending:
        for entry in storage.list_directory(pending.pop()):
            if entry.is_directory:
                pending.append(entry.path)
            else:
                found.append(entry.path)
    return sorted(found)


def test_drop_and_undrop(s3_server: S3Server, bucket: str, options: list[str]) -> None:
    table, warehouse = f"{bucket}/wh/shop.db/orders", f"{bucket}/wh"
    create_and_fill(table, options)
    run("tags", "create", table, "t", *options)
    run("branches", "create", table, "dev", "--tag", "t", *options)
    before = {path: None for path in objects(s3_server, table)}
    context = TableContext.open(table, storage_options=s3_server.options())
    expected = rows(context)
    answer = run("drop", table, "--yes", "-o", "json", *options).json["item"]
    assert answer["kept"] > 0 and answer["until"]
    storage, root = storage_for_url(table, s3_server.options())
    assert not SchemaHistory(storage, TableLayout(root)).ids(), "no reader sees a table"
    assert any("/bucket-0/" in path for path in objects(s3_server, table)), "the data stays"
    run("read", table, *options, code=3)
    assert json.loads(run("tables", "ls", "--warehouse", warehouse, "-o", "json", *options).out)["items"] == []
    assert "trash" in run("create", table, "-C", "id INT", *options, code=7).err
    assert [row["table"] for row in run("trash", "ls", "--warehouse", warehouse, "-o", "json", *options).json["items"]] == [
        "shop.orders"
    ]
    run("undrop", table, *options)
    back = TableContext.open(table, storage_options=s3_server.options())
    assert rows(back) == expected and back.tags.names() == ["t"] and back.branches.names() == ["dev"]
    assert {path for path in objects(s3_server, table)} == set(before)
    assert not [path for path in objects(s3_server, warehouse) if ".paimon-cli" in path]
    run("verify", table, *options)
    run("write", table, "-", "--format", "json", "--engine", "local", *options, stdin='{"k": 77, "v": "on"}\n')


def test_it_cannot_come_back_elsewhere(s3_server: S3Server, bucket: str, options: list[str]) -> None:
    table = f"{bucket}/wh/shop.db/orders"
    create_and_fill(table, options)
    run("drop", table, "--yes", *options)
    assert "cannot move" in run("undrop", table, "--as", f"{bucket}/wh/shop.db/other", *options, code=Refused.exit_code).err
    run("undrop", table, *options)


def test_emptied(s3_server: S3Server, bucket: str, options: list[str]) -> None:
    table, warehouse = f"{bucket}/wh/shop.db/orders", f"{bucket}/wh"
    create_and_fill(table, options)
    run("drop", table, "--yes", *options)
    run("trash", "empty", "--warehouse", warehouse, "--expired", "--yes", *options)
    assert objects(s3_server, table)
    run("trash", "empty", "--warehouse", warehouse, "--yes", *options)
    assert objects(s3_server, warehouse) == []
    create_and_fill(table, options)
    run("drop", table, "--yes", *options)
    run("drop", table, "--purge", "--yes", *options)
    assert objects(s3_server, warehouse) == []
    create_and_fill(table, options)
    run("drop", table, "--purge", "--yes", *options)
    assert objects(s3_server, warehouse) == []


@pytest.mark.parametrize("step", [3, at_night(1)])
def test_death_while_emptying(step: int, s3_server: S3Server, bucket: str) -> None:
    """At each deletion, by day every third one: it comes back, or is deleted the next time, even before its time is over."""
    options, outcomes = s3_server.options(), set[str]()
    died, number = True, 1 - step
    while died:
        number += step
        warehouse = f"{bucket}/wh{number}"
        catalog = Catalog(warehouse, options, runtime=Runtime(engine="local"))
        columns = ["k INT NOT NULL", "v STRING"]
        table = Table.create("shop.t", columns=columns, primary_key="k", bucket=1, warehouse=warehouse, options=options)
        table.write([{"k": 1, "v": "a"}])
        catalog.drop_table("shop.t")
        storage, root = storage_for_url(warehouse, options)
        dying = DyingAtDeletion(number, storage)
        trash = Trash(dying, root, partial(always, dying))
        try:
            trash.delete(trash.find("shop.t", ""))
            died = False
        except KeyboardInterrupt:
            try:
                catalog.undrop("shop.t")
                outcomes.add("back")
                assert rows(TableContext.open(table.url, storage_options=options)) == [{"k": 1, "v": "a"}]
                continue
            except NotFound:
                outcomes.add("going")
            assert catalog.trash.empty(expired=True).table_names == ("shop.t",)
        left = objects(s3_server, warehouse)
        assert not [path for path in left if "/shop.db/" in path or ".paimon-cli" in path]
    assert number > 5 and outcomes == {"back", "going"}
