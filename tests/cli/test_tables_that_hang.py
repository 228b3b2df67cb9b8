"""Commands that go over many tables: one whose storage hangs costs its own time, is named, and the others are answered."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from paimon_cli.storage.local_storage import LocalStorage
from tests.catalog.metastore.hostile_servers import answering, drop_by_drop
from tests.cli.calling import Run
from tests.tables import make_table, write
from tests.threads import busy_threads

COLUMNS = {"id": "INT NOT NULL", "n": "INT"}
SLOW = "--option", "table-timeout=1s"
DID_NOT = "did not answer in 1 s"


@contextmanager
def in_time(seconds: float = 60) -> Iterator[None]:
    begin = time.monotonic()
    yield
    assert time.monotonic() - begin < seconds


def three_tables(folder: Path) -> None:
    for name in ("a", "slow", "z"):
        table = make_table(folder / "shop.db" / name, COLUMNS, ["id"], options={"write-only": "true"})
        for number in range(2):
            write(table, [{"id": 1, "n": number}])


@pytest.fixture(params=["read_bytes", "list_directory"])
def warehouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[str]:
    """Tables `a`, `slow` and `z`; one kind of call to the storage of `slow` hangs until the test ends."""
    three_tables(tmp_path)
    over, original = threading.Event(), getattr(LocalStorage, request.param)

    def hangs(storage: LocalStorage, path: str) -> Any:
        if "/slow/" in f"{path}/":
            over.wait(120)
        return original(storage, path)

    monkeypatch.setattr(LocalStorage, request.param, hangs)
    yield str(tmp_path)
    over.set()


def by_name(items: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {item["table"].rpartition("/")[2].rpartition(".")[2]: item for item in items}


def test_a_listing(run: Run, warehouse: str) -> None:
    for place in (("--warehouse", warehouse), (f"{warehouse}/shop.db",), ("shop", "--warehouse", warehouse)):
        with in_time():
            rows = by_name(run("ls", *place, *SLOW, "-o", "json", code=9).json["items"])
        assert [rows[name]["problem"] for name in ("a", "z")] == [None, None]
        assert DID_NOT in rows["slow"]["problem"] and rows["slow"]["problem_code"] == "PC-TIMEOUT"


@pytest.mark.in_part(2)
def test_health(run: Run, warehouse: str) -> None:
    for choice in (("--database", "shop"), (), ("shop.a", "shop.slow", "shop.z")):
        with in_time():
            shown = run("health", *choice, "--warehouse", warehouse, *SLOW, "-o", "json", code=9)
        rows = by_name(shown.json["items"])
        assert {name: row["verdict"] for name, row in rows.items()} == {"a": "healthy", "slow": "no answer", "z": "healthy"}
        (finding,) = rows["slow"]["findings"]
        assert finding["code"] == "PD031" and DID_NOT in finding["message"] and "table-timeout=10min" in finding["command"]


@pytest.mark.in_part(2)
def test_compaction(run: Run, warehouse: str) -> None:
    several = "compact", "--database", "shop", "--warehouse", warehouse, "--engine", "local", *SLOW, "-o", "json"
    with in_time():
        planned = run(*several, "--dry-run", code=9)
    assert set(by_name(planned.json["items"])) == {"a", "z"}
    assert DID_NOT in planned.error["message"] and planned.error["code"] == "PC-PARTIAL"
    with in_time():
        done = run(*several, code=9)
    assert {name: row["buckets"] for name, row in by_name(done.json["items"]).items()} == {"a": 1, "z": 1}
    assert "1 of 3 tables could not be compacted" in done.error["message"] and DID_NOT in done.error["message"]


def test_the_service(run: Run, warehouse: str, tmp_path: Path) -> None:
    """Every round serves the others, and asks the table that hangs once, not with one more thread in each round."""
    metrics = tmp_path / "metrics"
    service = (
        "compact",
        "--database",
        "shop",
        "--warehouse",
        warehouse,
        "--engine",
        "local",
        "--watch",
        "--strategy",
        "full",
        *SLOW,
    )
    before = len(busy_threads())
    with in_time(120):
        done = run(*service, "--interval", "1ms", "--max-rounds", 6, "--metrics-file", metrics, "-o", "ndjson", code=9)
    rounds = [by_name(line["tables"]) for line in done.lines]
    assert len(rounds) == 6 and {row["state"] for row in (each["slow"] for each in rounds)} == {"try again"}
    assert [each["a"]["state"] for each in rounds][:1] == ["compacted"] == [each["z"]["state"] for each in rounds][:1]
    assert "slow" in metrics.read_text()
    deadline = time.monotonic() + 30  # threads whose call has ended are still busy for a moment
    while len(busy_threads()) - before >= 6 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(busy_threads()) - before < 6


def test_pipes_in_the_place_of_metadata(run: Run, tmp_path: Path) -> None:
    """Opening one would wait for its writer; anyone who may create files in a table can put one there."""
    three_tables(tmp_path)
    for path in ("schema/schema-0", "snapshot/LATEST", "snapshot/snapshot-2"):
        named = tmp_path / "shop.db" / "slow" / path
        named.unlink(missing_ok=True)
        os.mkfifo(named)
        with in_time():
            rows = by_name(run("ls", "--warehouse", tmp_path, "-o", "json").json["items"])
            shown = by_name(run("health", "--warehouse", tmp_path, "-o", "json", code=4).json["items"])
        assert [rows[name]["problem"] for name in ("a", "z")] == [None, None]
        assert "named pipe" in rows["slow"]["problem"]
        assert shown["a"]["verdict"] == "healthy" != shown["slow"]["verdict"]
    for path in ("schema/schema-0", "snapshot/snapshot-2"):
        (tmp_path / "shop.db" / "slow" / path).unlink()
    with in_time():
        rows = by_name(run("ls", "--warehouse", tmp_path, "-o", "json").json["items"])
    assert {name: row["problem"] is None for name, row in rows.items()} == {"a": True, "slow": False, "z": True}, "no schemas"


def test_a_catalog_that_is_slow_to_say_where_one_table_is(run: Run, tmp_path: Path) -> None:
    three_tables(tmp_path)

    def answers(connection: socket.socket, stop: threading.Event) -> Iterator[bytes]:
        while not stop.is_set() and (request := connection.recv(65536)):
            name = request.split(b" ")[1].rpartition(b"/")[2].decode()
            if name == "slow":
                yield b"HTTP/1.1 200 OK\r\n\r\n"
                yield from drop_by_drop(stop)
            known = {"name": name, "path": str(tmp_path / "shop.db" / name), "schema": {}}
            text = json.dumps(known if "/tables/" in request.decode() else {}).encode()
            yield f"HTTP/1.1 200 OK\r\nContent-Length: {len(text)}\r\n\r\n".encode() + text

    with answering(answers) as port:
        rest = "--option", "metastore=rest", "--option", f"uri=http://127.0.0.1:{port}", *SLOW
        with in_time():
            rows = by_name(run("health", "shop.slow", "shop.a", *rest, "-o", "json", code=9).json["items"])
        assert {name: row["verdict"] for name, row in rows.items()} == {"slow": "no answer", "a": "healthy"}
        with in_time():
            planned = run("compact", "shop.slow", "shop.a", "--dry-run", *rest, "-o", "json", code=9)
    assert set(by_name(planned.json["items"])) == {"a"} and DID_NOT in planned.error["message"]
