"""Marking partitions as done: success files as Java writes and reads them, reports over HTTP, and what only a catalog can do."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from paimon_cli.api.runtime import Runtime
from paimon_cli.api.table import Table
from paimon_cli.cli.app import app
from paimon_cli.errors import NotFound, NotSupported, PartialSuccess, Refused, StorageUnavailable, UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.inspect.bucket_report import partition_rows
from paimon_cli.jobs.write_job import WriteSummary
from paimon_cli.maintain.mark_done import DonePartition, mark_done, plan_marks
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


def mark(context: TableContext, *partitions: dict[str, str | None], actions: tuple[str, ...] = ()) -> list[str]:
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


def test_odd_values_and_nulls_are_marked_in_their_directories(context: TableContext) -> None:
    assert mark(context, {"p": "b/c=d é", "q": "2"}, {"p": None}) == [
        "p=__DEFAULT_PARTITION__/q=1",
        "p=__DEFAULT_PARTITION__/q=2",
        "p=b/c=d é/q=2",
    ]
    assert sorted(marks(context)) == ["p=__DEFAULT_PARTITION__/q=1", "p=__DEFAULT_PARTITION__/q=2", "p=b%2Fc%3Dd é/q=2"]
    done = {row.partition: row.done for row in partition_rows(context, context.snapshots.latest())}
    assert [name for name, time in done.items() if time is None] == ["p=a/q=1", "p=a/q=2", "p=b/c=d é/q=1"]
    assert done["p=b/c=d é/q=2"] == marks(context)["p=b%2Fc%3Dd é/q=2"]["modificationTime"]


def test_a_catalog_marks_each_partition_by_each_action(context: TableContext) -> None:
    marked: list[tuple[str, str]] = []

    def of(action: str) -> Callable[[DonePartition], None]:
        return lambda done: marked.append((action, done.url.removeprefix(context.url)))

    actions = ("done-partition", "success-file", "mark-event")
    mark_done(context, plan_marks(context, ({"p": "a"},), ("success-file",)), actions, {name: of(name) for name in actions[::2]})
    assert [(action, "q=1" in url, "q=2" in url) for action, url in marked] == [
        (action, partition == 1, partition == 2) for partition in (1, 2) for action in actions[::2]
    ]
    assert len(marks(context)) == 2


OTHERS = ["", "[]", "{}", '{"creationTime": "x", "modificationTime": 1}', '{"modificationTime": 1}', "[" * 9_999]


@pytest.mark.parametrize("content", OTHERS, ids=range(len(OTHERS)))
def test_a_success_file_of_another_tool_is_replaced(context: TableContext, content: str) -> None:
    (Path(context.url) / "p=a" / "q=1" / "_SUCCESS").write_text(content)
    assert partition_rows(context, context.snapshots.latest())[2].done is None
    mark(context, {"p": "a", "q": "1"})
    assert marks(context)["p=a/q=1"] == dict.fromkeys(("creationTime", "modificationTime"), context.clock.now_millis())


def test_only_partitions_of_the_table_are_marked(context: TableContext) -> None:
    with pytest.raises(NotFound, match="no partition p=z,q=1"):
        mark(context, {"p": "a"}, {"p": "z", "q": "1"})
    with pytest.raises(UsageError, match="no partition is named"):
        mark(context)
    unnamed = CliRunner().invoke(app, ["partitions", "mark-done", context.url])
    assert unnamed.exit_code == 2 and "add --partition KEY=VALUE" in unnamed.output
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
        thread = Thread(target=server.serve_forever, args=(0.02,))
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
        "http-report.allowed-hosts": url.split("/")[2],
    }
    table = Table.open(context.url, options)
    assert [row.partition for row in table.mark_done({"p": "b/c=d é", "q": "1"})] == ["p=b/c=d é/q=1"]
    assert received.bodies == [{"params": "team=a", "table": "shop.t", "path": context.url, "partition": "p=b%2Fc%3Dd é/q=1"}]
    assert list(marks(context)) == ["p=b%2Fc%3Dd é/q=1"]
    for answer in (b'{"result": "failed"}', b"[]", b"?"):
        received.answer = answer
        with pytest.raises(StorageUnavailable, match="could not be reported"):
            table.mark_done({"p": "a", "q": "1"})


def test_a_host_that_leads_to_a_metadata_service_gets_no_report(context: TableContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has the name may let it lead anywhere after the user has allowed it."""
    options = {
        "partition.mark-done-action": "http-report",
        "partition.mark-done-action.http.url": "http://reports.example.com/done",
        "http-report.allowed-hosts": "reports.example.com",
    }
    connected = list[Any]()
    monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: [(2, 1, 6, "", ("169.254.169.254", 80))])
    monkeypatch.setattr("socket.socket.connect", lambda _, where: connected.append(where))
    with pytest.raises(StorageUnavailable, match="could not be reported"):
        Table.open(context.url, options).mark_done({"p": "a", "q": "1"})
    assert not connected


ENDING = {"partition.end-input-to-done": "true", "dynamic-bucket.target-row-num": "10"}


def ending_table(tmp_path: Path, options: Mapping[str, str] | None = None, *, keyed: bool = True) -> Table:
    columns = {"p": "STRING NOT NULL", "k": "INT NOT NULL", "v": "INT"}
    keys = ["p", "k"] if keyed else []
    made = make_table(tmp_path / "shop.db" / "t", columns, keys, ["p"], 1 if keyed else -1, {**ENDING, **(options or {})})
    return Table.open(made.url)


def given(*cells: tuple[str, int]) -> pa.Table:
    keys = pa.array([k for _, k in cells], pa.int32())
    return pa.table({"p": pa.array([p for p, _ in cells], pa.string()), "k": keys, "v": pa.nulls(len(cells), pa.int32())})


def test_a_write_marks_its_partitions_when_it_ends(tmp_path: Path) -> None:
    table = ending_table(tmp_path)
    table.write(given(("a", 1), ("b,c 1/é", 1)))
    assert sorted(marks(table.context)) == ["p=a", "p=b,c 1%2Fé"]
    before = marks(table.context)["p=a"]
    table.write(given(("z", 1)))
    assert marks(table.context)["p=a"] == before, "only partitions of this write"
    table.write(given())
    assert sorted(marks(table.context)) == ["p=a", "p=b,c 1%2Fé", "p=z"]


@pytest.mark.parametrize("options", [{}, {"deletion-vectors.enabled": "true"}])
@pytest.mark.parametrize("keyed", [True, False])
def test_updates_and_deletes_mark_what_they_change(keyed: bool, options: dict[str, str], tmp_path: Path) -> None:
    table = ending_table(tmp_path, options, keyed=keyed)
    table.write(given(("a", 1), ("b", 1), ("c", 1)))
    for path in Path(table.context.url).rglob("_SUCCESS"):
        path.unlink()
    table.delete("p = 'a'")
    assert sorted(marks(table.context)) == ["p=a"]
    table.update({"v": "7"}, "p = 'b'")
    assert sorted(marks(table.context)) == ["p=a", "p=b"]


def test_a_staged_write_marks_when_it_is_committed(tmp_path: Path) -> None:
    table, file = ending_table(tmp_path), str(tmp_path / "s.json")
    table.write(given(("a", 1)), stage=file)
    assert marks(table.context) == {}
    table.stage.commit(file)
    assert list(marks(table.context)) == ["p=a"]


def test_a_repeated_commit_marks_what_it_may_not_have_marked_before(tmp_path: Path) -> None:
    table = ending_table(tmp_path)
    for _ in range(2):
        table.write(given(("a", 1)), commit_user="u", commit_id=1)
        (Path(table.context.url) / "p=a" / "_SUCCESS").unlink()
    assert len(table.context.snapshots.ids()) == 1


def test_a_repeated_delete_that_only_marked_rows_marks_its_partition_again(tmp_path: Path) -> None:
    table = ending_table(tmp_path, {"deletion-vectors.enabled": "true"}, keyed=False)
    table.write(given(("a", 1), ("a", 2), ("b", 1)))
    for path in Path(table.context.url).rglob("_SUCCESS"):
        path.unlink()
    for _ in range(2):
        table.delete("p = 'a' AND k = 1", commit_user="u", commit_id=1)
        (Path(table.context.url) / "p=a" / "_SUCCESS").unlink()
    assert len(table.context.snapshots.ids()) == 2 and marks(table.context) == {}


@pytest.mark.parametrize(
    "options",
    [
        {"deletion-vectors.enabled": "true", "write-only": "true"},
        {"merge-engine": "first-row", "write-only": "true"},
        {"bucket": "-2", "postpone.batch-write-fixed-bucket": "false"},
    ],
)
def test_partitions_whose_rows_wait_for_a_compaction_are_not_done(options: dict[str, str], tmp_path: Path) -> None:
    said: list[str] = []
    table = ending_table(tmp_path, options)
    waiting = Table.open(table.context.url, runtime=Runtime(warn=said.append))
    waiting.write(given(("b,c 1/é", 1)))
    assert marks(table.context) == {}
    (warning,) = said
    command = shlex.split(warning.partition("run: ")[2])
    assert command[:3] == ["paimon-cli", "partitions", "mark-done"] and command[-1] == "p=b,c 1/é"
    Table.open(table.context.url, {"write-only": "false"}).compact(strategy="full")
    assert CliRunner().invoke(app, command[1:]).exit_code == 0
    assert list(marks(table.context)) == ["p=b,c 1%2Fé"]


def test_what_only_a_metastore_can_mark_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    table = ending_table(tmp_path, {"partition.mark-done-action": "success-file,mark-event"})
    with pytest.raises(NotSupported, match="by mark-event") as refused:
        table.write(given(("a", 1)))
    assert "partition.end-input-to-done" in refused.value.why and refused.value.hint.endswith("mark-done-action=success-file")
    assert list(Path(table.context.url).iterdir()) == [Path(table.context.url) / "schema"]


def test_rows_are_committed_although_the_mark_could_not_be_made(tmp_path: Path) -> None:
    actions = {"partition.mark-done-action": "http-report", "partition.mark-done-action.http.url": "http://127.0.0.1:1/x"}
    table = ending_table(tmp_path, actions)
    with pytest.raises(PartialSuccess, match="rows are committed") as problem:
        Table.open(table.url, {"http-report.allowed-hosts": "127.0.0.1:1"}).write(given(("a b", 1)))
    assert len(table.context.snapshots.ids()) == 1
    assert shlex.split(problem.value.hint)[-1] == "p=a b"


def test_partitions_are_marked_although_the_compaction_after_the_write_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*given: object) -> None:
        raise StorageUnavailable("no answer", "", "")

    table, told = ending_table(tmp_path), list[WriteSummary]()
    monkeypatch.setattr("paimon_cli.jobs.compact_job.run_compact", fails)
    with pytest.raises(PartialSuccess, match="committed as snapshot 1, but the compaction after it failed: no answer") as problem:
        table.write(given(("a", 1), ("b", 1)), compact="after", on_written=told.append)
    assert problem.value.details["snapshot_id"] == 1 and [summary.snapshots[-1].id for summary in told] == [1]
    assert sorted(marks(table.context)) == ["p=a", "p=b"]


def test_a_report_that_the_user_does_not_allow_is_said_in_one_line(tmp_path: Path, receiver: tuple[type[Receiver], str]) -> None:
    received, url = receiver
    actions = {"partition.mark-done-action": "success-file,http-report", "partition.mark-done-action.http.url": url}
    table, said = ending_table(tmp_path, actions), list[str]()
    silent = Table.open(table.url, runtime=Runtime(warn=said.append))
    silent.write(given(("a", 1)))
    silent.write(given(("a", 2)), stage=str(tmp_path / "s.json"))
    silent.stage.commit(str(tmp_path / "s.json"))
    silent.delete("k = 1")
    assert received.bodies == [] and list(marks(table.context)) == ["p=a"]
    host = url.split("/")[2]
    of_reports = [text for text in said if "not reported" in text]
    assert len(of_reports) == 3 and not any("\n" in text for text in of_reports)
    assert f"--option http-report.allowed-hosts={host}" in of_reports[0]
    with pytest.raises(Refused, match=r"http-report\.allowed-hosts does not allow it"):
        silent.mark_done({"p": "a"})
    row = '{"p": "z", "k": 1}'
    command = ["write", table.url, "-", "--format", "json", "--engine", "local"]
    answer = CliRunner().invoke(app, command, input=row)
    assert answer.exit_code == 0 and received.bodies == [] and "not reported" in answer.stderr
    allowed = CliRunner().invoke(app, [*command, "--option", f"http-report.allowed-hosts={host}"], input=row)
    assert allowed.exit_code == 0 and [body["partition"] for body in received.bodies] == ["p=z"]


ODD_URLS = [
    "",
    "nonsense",
    "http://",
    "http://[::1/x",
    "http://[x]/",
    "http://h:99999/x",
    "http://h:x/x",
    "http://a b/x",
    "http://:80",
]
ODD_URLS += ["http:///x", "ftp://h/x", "http://a..b/x", "http://u:geheim@[::1/x", "http://b\u00fccher.example/\u00e4 b"]
ODD_URLS += ["http://" + "x" * 300, "http://u:geheim@h:0/x", "http://a\0b/x", "http://a\nb/x", "http://$(id)/", "http://h/?a b#c"]


def test_an_address_that_nobody_can_report_to_stops_no_write(tmp_path: Path) -> None:
    table = ending_table(tmp_path, {"partition.mark-done-action": "success-file,http-report"}, keyed=False)
    for number, url in enumerate(ODD_URLS):
        said = list[str]()
        odd = Table.open(table.url, {"partition.mark-done-action.http.url": url}, runtime=Runtime(warn=said.append))
        odd.write(given((f"{number}", 1)))
        if number == 0:
            odd.write(given(("s", 2)), stage=str(tmp_path / "s.json"))
            odd.stage.commit(str(tmp_path / "s.json"))
            odd.delete("p = 's'")
        of_reports = [text for text in said if "are not reported" in text]
        assert len(of_reports) == (1 if number else 3), url
        assert not any("\n" in text or "geheim" in text for text in of_reports)
        with pytest.raises((UsageError, Refused), match="partitions are not reported"):
            odd.mark_done({"p": f"{number}"})
    numbers = range(len(ODD_URLS))
    assert sorted(marks(table.context)) == sorted(["p=s", *(f"p={number}" for number in numbers)])
    assert table.scan().to_arrow().num_rows == len(ODD_URLS)


def test_what_fails_after_the_commit_says_that_the_rows_are_committed(tmp_path: Path) -> None:
    table = ending_table(tmp_path)
    table.write(given(("a", 1)), stage=str(tmp_path / "s.json"))
    wrong = Table.open(table.url, {"partition.mark-done-action": "nothing"})
    with pytest.raises(PartialSuccess, match="the rows are committed"):
        wrong.stage.commit(str(tmp_path / "s.json"))
    assert table.scan().to_arrow().num_rows == 1


def test_odd_paths_of_a_host_that_is_allowed_are_reported(tmp_path: Path, receiver: tuple[type[Receiver], str]) -> None:
    received, url = receiver
    base, table = url.removesuffix("/done"), ending_table(tmp_path, {"partition.mark-done-action": "http-report"}, keyed=False)
    paths = ["/\u00e4 b", "/a%20b?c d=\u00fc", "//x", "/%", "/a\tb", "/{x}|^`\x01\x7f"]
    for path in paths:
        options = {"http-report.allowed-hosts": base.split("/")[2], "partition.mark-done-action.http.url": f"{base}{path}"}
        Table.open(table.url, options).write(given(("a", 1)))
    assert [body["partition"] for body in received.bodies] == ["p=a"] * len(paths)


def test_tables_without_partitions_have_nothing_to_mark(tmp_path: Path) -> None:
    made = make_table(
        tmp_path / "t", {"k": "INT NOT NULL"}, ["k"], options={**ENDING, "partition.mark-done-action": "mark-event"}
    )
    Table.open(made.url).write(pa.table({"k": pa.array([1], pa.int32())}))
    assert marks(made) == {}
