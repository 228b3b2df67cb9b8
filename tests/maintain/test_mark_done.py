"""Marks of done partitions: success files as Java writes and reads them, reports over HTTP, and what only a catalog can do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from paimon_cli.api.table import Table
from paimon_cli.errors import NotFound, NotSupported, StorageUnavailable, UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.inspect.bucket_report import partition_rows
from paimon_cli.maintain.mark_done import mark_done, plan_marks
from tests.commit.commit_tables import SteppingClock
from tests.tables import make_table, write


@pytest.fixture
def context(tmp_path: Path) -> TableContext:
    made = make_table(tmp_path / "shop.db" / "t", {"p": "STRING", "q": "INT", "v": "INT"}, [], ["p", "q"], bucket=-1)
    write(made, [{"p": p, "q": q, "v": 1} for p in ("a", "b/c=d é", None) for q in (1, 2)])
    return replace(made, clock=SteppingClock(1_000_000))


def marks(context: TableContext) -> dict[str, dict[str, int]]:
    root = Path(context.url)
    return {str(path.parent.relative_to(root)): json.loads(path.read_text()) for path in root.rglob("_SUCCESS")}


def mark(context: TableContext, *partitions: dict[str, str], actions: tuple[str, ...] = ()) -> list[str]:
    return [row.partition for row in mark_done(context, plan_marks(context, partitions, actions), actions)]


def test_success_files_keep_their_first_time(context: TableContext) -> None:
    assert mark(context, {"p": "a"}) == ["p=a/q=1", "p=a/q=2"]
    first = marks(context)
    assert {path: set(times) for path, times in first.items()} == {
        "p=a/q=1": {"creationTime", "modificationTime"},
        "p=a/q=2": {"creationTime", "modificationTime"},
    }
    context.clock.sleep(1)
    mark(context, {"p": "a", "q": "1"})
    again = marks(context)["p=a/q=1"]
    assert again["creationTime"] == first["p=a/q=1"]["creationTime"] < again["modificationTime"]


def test_odd_values_and_nulls_are_marked_where_their_files_lie(context: TableContext) -> None:
    assert mark(context, {"p": "b/c=d é", "q": "2"}, {"p": "__DEFAULT_PARTITION__"}) == [
        "p=__DEFAULT_PARTITION__/q=1",
        "p=__DEFAULT_PARTITION__/q=2",
        "p=b/c=d é/q=2",
    ]
    assert sorted(marks(context)) == ["p=__DEFAULT_PARTITION__/q=1", "p=__DEFAULT_PARTITION__/q=2", "p=b%2Fc%3Dd é/q=2"]
    done = {row.partition: row.done for row in partition_rows(context, context.snapshots.latest())}
    assert [name for name, time in done.items() if time is None] == ["p=a/q=1", "p=a/q=2", "p=b/c=d é/q=1"]
    assert done["p=b/c=d é/q=2"] == marks(context)["p=b%2Fc%3Dd é/q=2"]["modificationTime"]


def test_a_success_file_of_another_tool_is_replaced(context: TableContext) -> None:
    (Path(context.url) / "p=a" / "q=1" / "_SUCCESS").write_text("")
    assert partition_rows(context, context.snapshots.latest())[2].done is None
    mark(context, {"p": "a", "q": "1"})
    assert marks(context)["p=a/q=1"].keys() == {"creationTime", "modificationTime"}


def test_only_partitions_of_the_table_are_marked(context: TableContext) -> None:
    with pytest.raises(NotFound, match="no partition p=z,q=1"):
        mark(context, {"p": "a"}, {"p": "z", "q": "1"})
    with pytest.raises(UsageError, match="no partition is named"):
        mark(context)
    with pytest.raises(UsageError, match="not a partition key"):
        mark(context, {"v": "1"})
    assert marks(context) == {}


@pytest.mark.parametrize(
    ("actions", "error"),
    [
        (("done-partition",), NotSupported),
        (("success-file", "mark-event"), NotSupported),
        (("custom",), NotSupported),
        (("http-report",), UsageError),
        (("nothing",), UsageError),
    ],
)
def test_what_is_refused_marks_nothing(context: TableContext, actions: tuple[str, ...], error: type[Exception]) -> None:
    with pytest.raises(error):
        mark(context, {"p": "a"}, actions=actions)
    with pytest.raises(error):
        Table.open(context.url, {"partition.mark-done-action": ",".join(actions)}).mark_done({"p": "a"})
    assert marks(context) == {}


class Receiver(BaseHTTPRequestHandler):
    bodies: list[dict[str, Any]]
    answer: bytes

    def do_POST(self) -> None:
        type(self).bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(type(self).answer)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


@pytest.fixture
def receiver() -> Iterator[tuple[type[Receiver], str]]:
    Receiver.bodies, Receiver.answer = [], b'{"result": "success", "more": 1}'
    with HTTPServer(("127.0.0.1", 0), Receiver) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield Receiver, f"http://127.0.0.1:{server.server_port}/done"
        server.shutdown()
        thread.join()


def test_reports_over_http(context: TableContext, receiver: tuple[type[Receiver], str]) -> None:
    received, url = receiver
    options = {
        "partition.mark-done-action": "http-report,success-file",
        "partition.mark-done-action.http.url": url,
        "partition.mark-done-action.http.params": "team=a",
    }
    table = Table.open(context.url, options)
    assert [row.partition for row in table.mark_done({"p": "b/c=d é", "q": "1"})] == ["p=b/c=d é/q=1"]
    assert received.bodies == [{"params": "team=a", "table": "shop.t", "path": context.url, "partition": "p=b%2Fc%3Dd é/q=1"}]
    assert list(marks(context)) == ["p=b%2Fc%3Dd é/q=1"]
    for answer in (b'{"result": "failed"}', b"[]", b"?"):
        received.answer = answer
        with pytest.raises(StorageUnavailable, match="could not be reported"):
            table.mark_done({"p": "a", "q": "1"})
