"""A REST catalog: names, commits through the server, lost responses, and what bypasses the server."""

from __future__ import annotations

import json
import pickle
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from paimon_cli.catalog.metastore.rest_client import RestClient
from paimon_cli.catalog.metastore.settings import find_metastore
from paimon_cli.catalog.table_location import locate_table
from paimon_cli.errors import CommitUnknown, NotFound, NotSupported, PaimonError, StorageUnavailable, UsageError
from paimon_cli.storage.capabilities import publish_snapshot
from paimon_cli.storage.local_storage import LocalStorage
from paimon_cli.storage.storage import PutOutcome
from tests.catalog.metastore.rest_server import TOKEN, WAREHOUSE, RestServer
from tests.cli.calling import Answer, Run

COLUMNS = ("-C", "id BIGINT NOT NULL", "-C", "v STRING", "--primary-key", "id", "--bucket", "1")
Call = Callable[..., Answer]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RestServer]:
    with RestServer(tmp_path / "wh") as running:
        yield running


@pytest.fixture
def options(server: RestServer) -> dict[str, str]:
    return {"metastore": "rest", "uri": server.uri, "token.provider": "bear", "token": TOKEN}


@pytest.fixture
def call(run: Run, options: dict[str, str]) -> Call:
    """Runs a command in the catalog, which holds the table `shop.orders`."""
    flags = ["--warehouse", WAREHOUSE, *(word for pair in options.items() for word in ("--option", "=".join(pair)))]

    def called(*arguments: object, **settings: Any) -> Answer:
        return run(*arguments, *flags, **settings)

    called("db", "create", "shop")
    called("create", "shop.orders", *COLUMNS)
    return called


def write(call: Call, value: str, **settings: Any) -> Answer:
    row = json.dumps({"id": 1, "v": value})
    return call("write", "shop.orders", "-", "--format", "json", "--engine", "local", stdin=row, **settings)


def values(call: Call) -> list[str]:
    return [json.loads(line)["v"] for line in call("read", "shop.orders", "-o", "ndjson").out.splitlines()]


def ids(call: Call) -> list[int]:
    return [item["id"] for item in call("snapshots", "ls", "shop.orders", "-o", "json").json["items"]]


def test_names_that_nearly_match_are_named_by_one_page(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    call("db", "create", "zoo")
    assert "did you mean 'shop.orders'?" in call("read", "shop.oders", code=3).err
    assert "did you mean 'shop'?" in call("tables", "ls", "shp", code=3).err
    assert "did you mean 'shop.orders'?" in call("read", "shp.orders", code=3).err
    assert "did you mean shop.orders?" in call("describe", "oders", code=3).err

    def refused(self: RestClient, *path: str, items: str, kind: type) -> list[Any]:
        raise StorageUnavailable("the listing is refused")

    monkeypatch.setattr(RestClient, "first_page", refused)
    assert "there is no table shop.oders" in call("read", "shop.oders", code=3).err, "the first error stays"


def test_names(call: Call) -> None:
    for name in ("b", "a"):
        call("create", f"shop.{name}", *COLUMNS)
    call("db", "create", "empty")
    assert "already exists" in call("db", "create", "empty", code=2).err
    items = call("db", "ls", "-o", "json").json["items"]
    assert [(item["database"], item["tables"]) for item in items] == [("empty", 0), ("shop", 3)]
    assert [item["table"] for item in call("tables", "ls", "-o", "json").json["items"]] == ["shop.a", "shop.b", "shop.orders"]
    call("tables", "rename", "shop.a", "empty.c")
    assert "answered 409" in call("tables", "rename", "shop.b", "empty.c", code=2).err
    assert "there is no table shop.a" in call("read", "shop.a", code=3).err
    assert call("read", "empty.c", "--count").out == "0\n"
    assert "--purge" in call("drop", "empty.c", "-y", code=7).err, "the server deletes files by itself"
    call("drop", "empty.c", "--purge", "-y")
    call("db", "drop", "empty", "-y")
    assert "there is no database empty" in call("create", "empty.c", *COLUMNS, code=3).err
    call("db", "drop", "shop", "--cascade", "-y")
    assert call("db", "ls", "-o", "json").json["items"] == []


def test_a_table_that_exists(call: Call) -> None:
    assert "already exists" in call("create", "shop.orders", *COLUMNS, code=2).err
    assert "nothing was changed" in call("create", "shop.orders", *COLUMNS, "--if-not-exists").out


def test_the_server_publishes_with_the_table_and_the_snapshot_before(call: Call, server: RestServer) -> None:
    for value in ("a", "b"):
        write(call, value)
    call("compact", "shop.orders", "--engine", "local")
    assert values(call) == ["b"] and ids(call) == [3, 2, 1]
    assert call("verify", "shop.orders", "--level", "full", "--engine", "local", "-o", "json").code == 0
    uuids = [commit["snapshot"]["uuid"] for commit in server.commits]
    assert [commit["baseSnapshotUuid"] for commit in server.commits] == [None, *uuids[:2]]
    assert {commit["tableId"] for commit in server.commits} == {server.databases["shop"]["orders"]["id"]}
    (item,) = call("locks", "ls", "shop.orders", "-o", "json").json["items"]
    assert item["mechanism"] == "server"


@pytest.mark.parametrize("fault", ["lost", "late", "cut", 409, 412, 429, 500, 502, 503, 504])
@pytest.mark.in_part(2)
def test_a_commit_whose_answer_is_wrong_or_lost_counts_once(call: Call, server: RestServer, fault: str) -> None:
    write(call, "a")
    server.faults = [fault]
    write(call, "b")
    assert values(call) == ["b"] and ids(call) == [2, 1] and len(server.commits) == 2


@pytest.mark.parametrize(("status", "code"), [(400, 2), (401, 6), (403, 6), (404, 3)])
def test_a_commit_that_is_refused_leaves_nothing(call: Call, server: RestServer, tmp_path: Path, status: int, code: int) -> None:
    server.faults = [status]
    assert f"answered {status}" in write(call, "a", code=code).err
    assert not list(tmp_path.glob("wh/shop.db/orders-*/bucket-0/*")) and server.commits == []


def test_a_commit_that_was_not_carried_out_is_tried_again(call: Call, server: RestServer) -> None:
    server.faults = ["refused"]
    write(call, "a")
    assert values(call) == ["a"] and ids(call) == [1]


def test_without_any_clear_answer_the_outcome_is_unknown_and_nothing_is_deleted(
    call: Call, server: RestServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paimon_cli.storage.injected.SystemClock.sleep", lambda *_: None)
    server.faults = ["refused"] * 50
    answer = write(call, "a", code=CommitUnknown.exit_code)
    assert "may or may not have been committed" in answer.err
    assert list(tmp_path.glob("wh/shop.db/orders-*/bucket-0/data-*"))


def test_another_commit_in_between_is_a_lost_race(call: Call, server: RestServer, options: dict[str, str]) -> None:
    write(call, "a")
    storage, root = locate_table("shop.orders", WAREHOUSE, options).open_storage()
    own = pickle.loads(pickle.dumps(storage))
    path = f"{root}/snapshot/snapshot-1"
    theirs = storage.read_bytes(path)
    named = json.loads(theirs)["deltaManifestList"].encode()
    assert publish_snapshot(own, path, theirs, None) is PutOutcome.CREATED
    assert publish_snapshot(own, path, theirs.replace(named, b"manifest-list-other"), None) is PutOutcome.EXISTS
    second = f"{root}/snapshot/snapshot-2"
    other = json.dumps({**json.loads(theirs), "id": 2, "deltaManifestList": "manifest-list-other"}).encode()
    assert publish_snapshot(own, second, other, "the uuid of a snapshot that was rolled back") is PutOutcome.EXISTS
    assert not storage.exists(second)


def test_files_on_their_way_are_stored_before_the_server_is_asked(
    call: Call, server: RestServer, options: dict[str, str]
) -> None:
    order: list[str] = []

    class Late(LocalStorage):
        """Records when it was asked to wait for its files."""

        def settle(self) -> None:
            order.append(f"settled before commit {len(server.commits) + 1}")

    write(call, "a")
    location = locate_table("shop.orders", WAREHOUSE, options)
    _, root = location.open_storage()
    assert location.metastore is not None
    guarded = location.metastore.guarded(Late(), root, location.identifier)
    snapshot = json.loads(guarded.read_bytes(f"{root}/snapshot/snapshot-1"))
    second = json.dumps({**snapshot, "id": 2}).encode()
    assert publish_snapshot(guarded, f"{root}/snapshot/snapshot-2", second, snapshot["uuid"]) is PutOutcome.CREATED
    assert order == ["settled before commit 2"]


ALTERED = [
    ("set snapshot.num-retained.max=50", [{"action": "setOption", "key": "snapshot.num-retained.max", "value": "50"}]),
    ("unset bucket-key", [{"action": "removeOption", "key": "bucket-key"}]),
    ("comment 'all of them'", [{"action": "updateComment", "comment": "all of them"}]),
    (
        "add-column 'w INT' --after id --comment why",
        [
            {
                "action": "addColumn",
                "fieldNames": ["w"],
                "dataType": "INT",
                "comment": "why",
                "move": {"fieldName": "w", "referenceFieldName": "id", "type": "AFTER"},
            }
        ],
    ),
    (
        "add-column 'a ARRAY<INT>'",
        [
            {
                "action": "addColumn",
                "fieldNames": ["a"],
                "dataType": {"type": "ARRAY", "element": "INT"},
                "comment": None,
                "move": None,
            }
        ],
    ),
    ("rename-column v text", [{"action": "renameColumn", "newName": "text", "fieldNames": ["v"]}]),
    ("drop-column v", [{"action": "dropColumn", "fieldNames": ["v"]}]),
    (
        "alter-column n BIGINT --default 7 --first --comment ''",
        [
            {"action": "updateColumnType", "newDataType": "BIGINT", "keepNullability": True, "fieldNames": ["n"]},
            {"action": "updateColumnComment", "newComment": None, "fieldNames": ["n"]},
            {"action": "updateColumnDefaultValue", "newDefaultValue": "7", "fieldNames": ["n"]},
            {"action": "updateColumnPosition", "move": {"fieldName": "n", "referenceFieldName": None, "type": "FIRST"}},
        ],
    ),
]
"""Commands, and what Paimon's interface wants for them (Java SchemaChange)."""


@pytest.mark.in_part(2)
@pytest.mark.parametrize(("command", "steps"), ALTERED, ids=[command.split()[0] for command, _ in ALTERED])
def test_the_server_changes_schemas(call: Call, server: RestServer, command: str, steps: list[dict[str, Any]]) -> None:
    columns = ("-C", "id BIGINT NOT NULL", "-C", "v STRING", "-C", "n INT COMMENT 'a number'")
    call("create", "shop.wide", *columns, "--primary-key", "id", "--bucket", "1", "--option", "bucket-key=id")
    verb, *rest = shlex.split(command)
    call("alter", "shop.wide", verb, *rest)
    assert server.requests == [("POST", "", {"changes": steps})]
    fields = call("schemas", "show", "shop.wide", "latest", "-o", "json").json["item"]["fields"]
    names = [field["name"] for field in fields]
    after = {"add-column": len(names) == 4, "rename-column": "text" in names, "drop-column": "v" not in names}
    assert after.get(verb, True) and (verb != "alter-column" or names[0] == "n")


@pytest.mark.parametrize(("fault", "code"), [("lost", 11), ("refused", 11), (409, 2)])
def test_a_change_of_a_schema_whose_answer_is_missing_is_unknown(
    call: Call, server: RestServer, fault: str | int, code: int
) -> None:
    server.faults = [fault]
    answer = call("alter", "shop.orders", "add-column", "n INT", code=code)
    assert code != 11 or "paimon-cli schemas ls shop.orders" in answer.err
    assert len(call("schemas", "ls", "shop.orders", "-o", "json").json["items"]) == (2 if fault == "lost" else 1)


def test_tags(call: Call, server: RestServer) -> None:
    for value in ("a", "b"):
        write(call, value)
    call("tags", "create", "shop.orders", "first", "--snapshot", 1, "--time-retained", "7d")
    call("tags", "create", "shop.orders", "second")
    assert server.requests == [
        ("POST", "tags", {"tagName": "first", "snapshotId": 1, "timeRetained": "604800000 ms"}),
        ("POST", "tags", {"tagName": "second", "snapshotId": 2, "timeRetained": None}),
    ]
    call("expire", "shop.orders", "--retain-max", 1, "--retain-min", 1, "-y")
    assert ids(call) == [2] and call("read", "shop.orders", "--tag", "first", "--count").out == "1\n"
    call("tags", "rm", "shop.orders", "first", "-y")
    assert [tag["name"] for tag in call("tags", "ls", "shop.orders", "-o", "json").json["items"]] == ["second"]
    assert values(call) == ["b"] and call("verify", "shop.orders", "--level", "full", "--engine", "local").code == 0


def test_branches(call: Call, server: RestServer) -> None:
    write(call, "a")
    call("tags", "create", "shop.orders", "start")
    call("branches", "create", "shop.orders", "try", "--tag", "start")
    call("branches", "create", "shop.orders", "empty")
    row = json.dumps({"id": 1, "v": "tried"})
    call("write", "shop.orders", "-", "--branch", "try", "--format", "json", "--engine", "local", stdin=row)
    call("alter", "shop.orders$branch_try", "add-column", "n INT")
    assert values(call) == ["a"]
    assert call("read", "shop.orders", "--branch", "try", "-o", "ndjson").lines == [{"id": 1, "v": "tried", "n": None}]
    call("branches", "rm", "shop.orders", "empty", "-y")
    call("branches", "fast-forward", "shop.orders", "try", "-y")
    assert values(call) == ["tried"]
    assert [(method, path) for method, path, _ in server.requests] == [
        ("POST", "tags"),
        ("POST", "branches"),
        ("POST", "branches"),
        ("POST", ""),
        ("DELETE", "branches/empty"),
        ("POST", "branches/try/forward"),
    ]
    assert "makes branches from tags" in call("branches", "create", "shop.orders", "b", "--snapshot", 1, code=8).err


def test_rollback(call: Call, server: RestServer) -> None:
    for value in ("a", "b", "c"):
        write(call, value)
    call("rollback", "shop.orders", "--to", 2, "-y")
    assert values(call) == ["b"] and ids(call) == [2, 1]
    call("tags", "create", "shop.orders", "held", "--snapshot", 1)
    call("expire", "shop.orders", "--retain-max", 1, "--retain-min", 1, "-y")
    call("rollback", "shop.orders", "--to", "held", "-y")
    sent = [content for _, path, content in server.requests if path == "rollback"]
    assert sent == [
        {"instant": {"type": "snapshot", "snapshotId": 2}, "fromSnapshot": 3},
        {"instant": {"type": "tag", "tagName": "held"}, "fromSnapshot": 2},
    ]
    assert values(call) == ["a"] and ids(call) == [1]
    write(call, "d")
    assert values(call) == ["d"] and ids(call) == [2, 1]


@pytest.mark.parametrize(
    "command",
    [
        "tags replace shop.orders kept --snapshot 2",
        "tags rename shop.orders kept other",
        "branches rename shop.orders line other",
        "tables clone shop.orders shop.copy",
    ],
)
def test_what_would_go_past_the_server_is_refused(call: Call, command: str) -> None:
    for value in ("a", "b"):
        write(call, value)
    call("tags", "create", "shop.orders", "kept", "--snapshot", 1)
    call("branches", "create", "shop.orders", "line", "--tag", "kept")
    assert "in a rest catalog" in call(*shlex.split(command), code=8).err
    assert values(call) == ["b"] and ids(call) == [2, 1]
    write(call, "c")
    assert values(call) == ["c"]


def test_a_path_is_read_but_not_written(call: Call, server: RestServer) -> None:
    write(call, "a")
    path = server.databases["shop"]["orders"]["path"].removeprefix("file:")
    assert call("read", path, "--count").out == "1\n"
    row = '{"id": 2, "v": "x"}'
    answer = call("write", path, "-", "--format", "json", "--engine", "local", stdin=row, code=7)
    assert "publishes snapshots of tables that are named db.table" in answer.err
    assert ids(call) == [1]


def test_tables_of_other_kinds(call: Call, server: RestServer) -> None:
    server.databases["shop"]["csv"] = {
        **server.databases["shop"]["orders"],
        "name": "csv",
        "schema": {"options": {"type": "format-table"}},
    }
    assert "its type is format-table" in call("read", "shop.csv", code=8).err
    assert [item["table"] for item in call("tables", "ls", "-o", "json").json["items"]] == ["shop.orders"]


def test_the_token_is_never_shown(run: Run, server: RestServer, options: dict[str, str]) -> None:
    flags = ["--warehouse", WAREHOUSE, "--option", "metastore=rest", "--option", f"uri={server.uri}"]
    answer = run("db", "ls", *flags, "--option", "token=hunter2", code=6)
    assert "answered 401" in answer.err and "hint: check token" in answer.err and "hunter2" not in answer.err
    assert "hunter2" not in run("config", "show", *flags, "--option", "token=hunter2").out
    assert "hunter2" not in repr(find_metastore(WAREHOUSE, {**options, "token": "hunter2"}))


def test_the_configuration_of_the_server_overrides_the_own(server: RestServer, options: dict[str, str]) -> None:
    server.overrides = {"data-token.enabled": "true"}
    with pytest.raises(NotSupported, match=r"data-token\.enabled"):
        find_metastore(WAREHOUSE, options).databases()
    with pytest.raises(NotFound, match="answered 404"):
        find_metastore("nowhere", options).databases()


def test_an_answer_changes_neither_where_requests_go_nor_with_which_credentials(
    server: RestServer, options: dict[str, str]
) -> None:
    """The token of another would be refused, and another server would not answer."""
    others = {"token": "of-another", "uri": "http://127.0.0.1:1", "token.provider": "dlf", "warehouse": "/etc"}
    server.overrides = {**others, "header.Authorization": "Bearer other", "header.Host": "other", "allow-plain-http": "true"}
    assert find_metastore(WAREHOUSE, options).databases() == []
    server.overrides = {"prefix": "elsewhere"}
    with pytest.raises(NotFound, match="answered 404"):
        find_metastore(WAREHOUSE, options).databases()


@pytest.mark.parametrize("prefix", ["..", ".", "x" * 256, "a\nb", "a\0", "\x9b"])
def test_a_prefix_is_one_name(server: RestServer, options: dict[str, str], prefix: str) -> None:
    server.overrides = {"prefix": prefix}
    with pytest.raises(StorageUnavailable, match="invalid prefix"):
        find_metastore(WAREHOUSE, options).databases()


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"uri": ""}, UsageError, "no server"),
        ({"token.provider": "dlf"}, NotSupported, "only bearer tokens"),
        ({"token": ""}, UsageError, "there is no token"),
        ({"uri": "http://127.0.0.1:1"}, StorageUnavailable, "does not answer"),
    ],
)
def test_what_cannot_work(options: dict[str, str], changed: dict[str, str], error: type[PaimonError], message: str) -> None:
    with pytest.raises(error, match=message):
        find_metastore(WAREHOUSE, {**options, **changed}).databases()


def test_partitions_are_reported_to_the_server(call: Call, server: RestServer) -> None:
    columns = ("-C", "d STRING", "-C", "v INT", "--partition-by", "d", "--bucket", "-1")
    call("create", "shop.days", *columns)
    call("write", "shop.days", "-", "--format", "json", "--engine", "local", stdin='{"d": "a/b=1", "v": 1}')
    marked = ("partitions", "mark-done", "shop.days", "--partition", "d=a/b=1")
    assert "metastore.partitioned-table is not true" in call(*marked, "--action", "mark-event", code=2).err
    registered = (*marked, "--option", "metastore.partitioned-table=true")
    assert "Hive metastore" in call(*registered, "--action", "mark-event", "--action", "done-partition", code=8).err
    assert server.marks == []
    call(*registered, "--action", "mark-event")
    assert server.marks == [("days", [{"d": "a/b=1"}])]
    place = server.databases["shop"]["days"]["path"].removeprefix("file:")
    by_path = call("partitions", "mark-done", place, "--partition", "d=a/b=1", "--action", "mark-event", code=8)
    assert "opened by its name" in by_path.err and len(server.marks) == 1


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("token", "H€NTER", "token cannot be sent"),
        ("header.X-A", "HUN\nTER: x", "header.X-A cannot be sent"),
        ("header.X\nA", "x", r"header.X\\nA does not name a header"),
        ("header.X€", "x", "header.X€ does not name a header"),
        ("header.", "x", "header. does not name a header"),
    ],
)
def test_headers_that_cannot_be_sent_are_named_without_their_values(key: str, value: str, why: str) -> None:
    with pytest.raises(UsageError, match=why) as caught:
        RestClient.of(None, {"uri": "https://127.0.0.1:1", key: value})
    assert "NTER" not in str(caught.value) and "HUN" not in str(caught.value)


def test_an_answer_without_a_list_is_no_empty_catalog(call: Call, server: RestServer, monkeypatch: pytest.MonkeyPatch) -> None:
    page = server._page
    for key in ("databases", "tableDetails"):
        for answer in ({key: None}, {}):
            monkeypatch.setattr(server, "_page", lambda k, *rest: answer if k == key else page(k, *rest))  # noqa: B023
            for command in ("db ls", "tables ls", "health"):
                shown = call(*command.split(), code=6).err
                assert f"the answer of the REST catalog has a wrong {key}: a list was expected" in shown


@pytest.mark.in_part(2)
@pytest.mark.parametrize("path", ["wh/shop.db/orders", "./orders", "~/orders", "", None])
def test_a_relative_path_leads_nowhere(call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, path: str | None) -> None:
    """It would mean a table in the working directory, and another one in each."""
    call("create", "shop.other", *COLUMNS)
    monkeypatch.chdir(tmp_path)
    request = RestClient._request

    def moved(self: RestClient, *arguments: Any, **settings: Any) -> dict[str, Any]:
        answer = request(self, *arguments, **settings)
        for table in (answer, *answer.get("tableDetails", [])):
            if table.get("name") == "orders":
                table["path"] = path
        return answer

    monkeypatch.setattr(RestClient, "_request", moved)
    for command in ("describe", "read", "drop -y"):
        shown = call(*command.split(), "shop.orders", code=6).err
        assert "location of table shop.orders" in shown or "no path for shop.orders" in shown
    listed = call("tables", "ls", "-o", "json")
    assert [item["table"] for item in listed.json["items"]] == ["shop.other"] and "left out" in listed.err
