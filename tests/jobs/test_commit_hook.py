"""Hooks of the service: what they receive, what they cannot do to it, and what they cost if they hang."""

from __future__ import annotations

import json
import os
import stat
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, cast

import pytest

from paimon_cli import Table, processor
from paimon_cli.errors import UsageError
from paimon_cli.jobs.service.commit_hook import (
    MOST_EVENT_BYTES,
    CommandHook,
    CommitHook,
    HookFailed,
    HookTarget,
    close_all,
    events_of,
)
from paimon_cli.jobs.service.service_metrics import ServiceMetrics
from paimon_cli.jobs.service.table_round import RoundState, ServiceWatcher, TableRound
from tests.jobs.test_leases import HandClock

EVENT = {"event": "commit", "id": "t@1", "table": "t", "snapshot": 1}


class Target(HookTarget):
    """Notes the events, after failures as given; `held` makes it wait."""

    shown = "target"

    def __init__(self, *failures: Exception, held: threading.Event | None = None) -> None:
        self.is_stopped = False
        self.failures, self.held, self.events = list(failures), held, list[Any]()

    def deliver(self, event: bytes) -> None:
        if self.held is not None:
            self.held.wait(30)
        if self.failures:
            raise self.failures.pop(0)
        self.events.append(json.loads(event))

    def stop(self) -> None:
        self.is_stopped = True


def told(target: HookTarget, *events: dict[str, Any], most_queued: int = 1000) -> tuple[list[str], CommitHook]:
    """The warnings after all events were delivered or given up."""
    warnings: list[str] = []
    hook = CommitHook(target, warnings.append, pauses=(0.01, 0.01), most_queued=most_queued)
    for event in events:
        hook.offer(event)
    hook.close(30)
    return warnings, hook


def test_an_event_is_delivered_once() -> None:
    target = Target()
    assert told(target, EVENT, {**EVENT, "snapshot": 2})[0] == []
    assert [event["snapshot"] for event in target.events] == [1, 2]


def test_a_failure_is_tried_again_a_few_times_and_then_said() -> None:
    target = Target(HookFailed("no"), HookFailed("no"))
    assert told(target, EVENT)[0] == [] and len(target.events) == 1
    target = Target(*[HookFailed("it answered with status 503")] * 3)
    warnings, hook = told(target, EVENT, {**EVENT, "snapshot": 2})
    assert warnings[0] == "hook target: snapshot 1 of t was not delivered: it answered with status 503 (3 attempts)"
    assert (hook.delivered, hook.dropped) == (1, 1) and "1 event not delivered" in warnings[-1]


def test_the_metrics_count_what_was_delivered_and_what_was_not() -> None:
    clock = HandClock()
    _, hook = told(Target(HookFailed("no", may_pass=False)), EVENT, {**EVENT, "snapshot": 2}, {**EVENT, "snapshot": 3})
    families = {family.name: family for family in ServiceMetrics(cast(ServiceWatcher, None), clock, hooks=[hook]).collect()}
    samples = families["paimon_cli_hook_events"].samples
    assert {sample.labels["outcome"]: sample.value for sample in samples} == {"delivered": 2, "dropped": 1}
    both = ServiceMetrics(cast(ServiceWatcher, None), clock, hooks=[hook, hook]).collect()
    (of_both,) = (family for family in both if family.name == "paimon_cli_hook_events")
    assert [sample.value for sample in of_both.samples] == [4, 2]
    without = [family.name for family in ServiceMetrics(cast(ServiceWatcher, None), clock).collect()]
    assert "paimon_cli_hook_events" not in without


def test_what_cannot_pass_is_tried_once_and_bugs_of_libraries_end_nothing() -> None:
    target = Target(HookFailed("it answered with status 404", may_pass=False), RuntimeError("https://token@host"))
    warnings, _ = told(target, EVENT, EVENT, {**EVENT, "snapshot": 3})
    assert "(1 attempt)" in warnings[0] and "RuntimeError" in warnings[1]
    assert not any("token" in warning for warning in warnings)
    assert [event["snapshot"] for event in target.events] == [3]


def test_a_hook_that_hangs_holds_nothing_up_and_its_queue_is_bounded() -> None:
    held = threading.Event()
    target, warnings = Target(held=held), list[str]()
    hook = CommitHook(target, warnings.append, most_queued=10)
    began = time.monotonic()
    for number in range(5000):
        hook.offer({**EVENT, "snapshot": number})
    hook.close(0.1)
    assert time.monotonic() - began < 3
    assert target.is_stopped and hook.dropped >= 4989 and len(warnings) < 20 and "not delivered" in warnings[-1]
    held.set()


def test_an_event_that_is_too_large_is_dropped() -> None:
    target = Target()
    warnings, _ = told(target, {**EVENT, "table": "t" * MOST_EVENT_BYTES}, EVENT)
    assert len(target.events) == 1 and warnings


def script(tmp_path: Path, text: str) -> str:
    file = tmp_path / "hook.py"
    file.write_text(f"#!{sys.executable}\nimport json, os, sys, time\n{text}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return str(file)


def test_a_command_gets_the_event_on_standard_input_without_shell_and_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "swordfish")
    monkeypatch.setenv("HARMLESS", "yes")
    monkeypatch.setattr(processor, "_set_here", set())
    monkeypatch.setenv("OURS", "given by the user")
    monkeypatch.setenv("ONLY_OURS", "")
    monkeypatch.delenv("ONLY_OURS")
    processor.set_for_this_process({"OURS": "a default", "ONLY_OURS": "1"})
    assert os.environ["OURS"] == "given by the user" and os.environ["ONLY_OURS"] == "1"
    out = tmp_path / "out"
    program = script(
        tmp_path, f"json.dump([json.load(sys.stdin), sys.argv[1:], dict(os.environ)], open({str(out)!r}, 'w')); print('noise')"
    )
    warnings, _ = told(CommandHook.parse(f"{program} '$(touch {tmp_path}/pwned)' ';' \"a b\""), EVENT)
    assert warnings == []
    event, arguments, environment = json.loads(out.read_text())
    assert event == EVENT and arguments == [f"$(touch {tmp_path}/pwned)", ";", "a b"]
    assert "AWS_SECRET_ACCESS_KEY" not in environment and environment["HARMLESS"] == "yes"
    assert "ONLY_OURS" not in environment and environment["OURS"] == "given by the user"
    assert not (tmp_path / "pwned").exists()


def test_a_command_that_fails_or_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    failing = CommandHook.parse(script(tmp_path, "sys.exit(3)"))
    with pytest.raises(HookFailed, match="code 3"):
        failing.deliver(b"{}")
    killed = CommandHook.parse(script(tmp_path, "os.kill(os.getpid(), 9)"))
    with pytest.raises(HookFailed, match="code -9"):
        killed.deliver(b"{}")
    beats = tmp_path / "beats"
    program = script(tmp_path, f"os.fork()\nwhile True: open({str(beats)!r}, 'a').write('x'); time.sleep(0.02)")
    hanging = CommandHook(CommandHook.parse(program).arguments, "x", seconds=1.0)
    began = time.monotonic()
    with pytest.raises(HookFailed, match="longer than 1 s"):
        hanging.deliver(b"{}")
    assert time.monotonic() - began < 10
    time.sleep(0.2)
    before = beats.stat().st_size
    time.sleep(0.2)
    assert before and beats.stat().st_size == before


def test_a_command_that_does_not_read_takes_no_time(tmp_path: Path) -> None:
    CommandHook.parse(script(tmp_path, "os.close(0)")).deliver(b"x" * MOST_EVENT_BYTES)


@contextmanager
def server(*statuses: int) -> Iterator[tuple[str, list[Any]]]:
    received: list[Any] = []
    left = list(statuses)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.append((self.path, self.headers["Content-Type"], json.loads(body)))
            self.send_response(left.pop(0) if left else 204)
            self.send_header("Location", "http://127.0.0.1:9/elsewhere")
            self.end_headers()

        def log_message(self, *arguments: Any) -> None:
            pass

    found = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=found.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{found.server_port}", received
    finally:
        found.shutdown()
        found.server_close()


def test_an_event_is_posted_and_tried_again_after_503() -> None:
    with server(503, 200) as (url, received):
        warnings, hook = told(HookTarget.parse(f"{url}/hooks/T0KEN?channel=x"), EVENT)
    assert (warnings, hook.delivered) == ([], 1)
    assert received == [("/hooks/T0KEN?channel=x", "application/json", EVENT)] * 2


@pytest.mark.parametrize(("status", "attempts"), [(404, 1), (302, 1), (500, 3), (429, 3)])
def test_messages_name_the_host_and_no_token(status: int, attempts: int) -> None:
    with server(*[status] * 3) as (url, received):
        warnings, _ = told(HookTarget.parse(f"{url}/hooks/T0KEN?key=T0KEN"), EVENT)
    assert len(received) == attempts
    assert f"status {status}" in warnings[0] and url in warnings[0]
    assert not any("T0KEN" in warning for warning in warnings)
    target = HookTarget.parse(f"{url}/hooks/T0KEN")
    assert "T0KEN" not in repr(target) and "T0KEN" not in target.shown


def test_a_server_that_is_not_there_is_a_failure_without_its_address() -> None:
    warnings, _ = told(HookTarget.parse("http://127.0.0.1:9/T0KEN"), EVENT)
    assert "it was not reached (3 attempts)" in warnings[0] and "T0KEN" not in "".join(warnings)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "'open",
        "no-such-program-anywhere --x",
        "file:///etc/passwd",
        "ftp://host/x",
        "s3://bucket/x",
        "http://",
        "https://host:99999/",
        "https://user:password@host/x",
        "https://ho st/x",
        "https://host\\evil/x",
        "https://host/x\r\nX: y",
        "echo\0x",
    ],
)
def test_what_can_be_no_target_is_refused_without_quoting_a_password(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        HookTarget.parse(text)
    assert "password@" not in caught.value.message


def test_each_commit_of_a_turn_is_an_event(tmp_path: Path) -> None:
    table = Table.create(
        tmp_path / "t", columns=["id BIGINT NOT NULL"], primary_key="id", bucket=1, options={"write-only": "true"}
    )
    for number in range(3):
        table.write([{"id": number}])
    summary = table.compact()
    (event,) = events_of(TableRound("shop.t", RoundState.COMPACTED, summary), 0)
    assert event["id"] == "shop.t@4" and event["kind"] == "COMPACT" and event["time"].endswith("Z")
    assert (event["total_record_count"], event["turn"]["buckets"], event["turn"]["files_before"]) == (3, 1, 3)
    (event,) = events_of(TableRound("shop.t", RoundState.CLEANED, expired_by=(9,)), 0)
    assert (event["snapshot"], event["kind"]) == (9, "OVERWRITE")
    assert list(events_of(TableRound("shop.t", RoundState.NOTHING), 0)) == []


def is_running(number: int) -> bool:
    """Whether the process exists and is not merely to be waited for."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def test_a_command_that_still_runs_when_the_service_ends_is_ended_with_its_children(tmp_path: Path) -> None:
    out = tmp_path / "out"
    work = f"child = os.fork()\nif child: open({str(out)!r}, 'w').write(f'{{os.getpid()}} {{child}} ')\ntime.sleep(300)"
    warnings = list[str]()
    slow = CommandHook(CommandHook.parse(script(tmp_path, work)).arguments, "x", seconds=300)
    hook = CommitHook(slow, warnings.append)
    hook.offer(EVENT)
    ends = time.monotonic() + 30
    while not (out.exists() and out.read_text().endswith(" ")) and time.monotonic() < ends:
        time.sleep(0.05)
    numbers = [int(word) for word in out.read_text().split()]
    assert len(numbers) == 2 and all(is_running(number) for number in numbers)
    hook.close(0.1)
    while any(is_running(number) for number in numbers) and time.monotonic() < ends:
        time.sleep(0.05)
    assert not any(is_running(number) for number in numbers)
    assert "1 event not delivered" in warnings[0]


def test_no_command_starts_after_the_service_has_ended(tmp_path: Path) -> None:
    out = tmp_path / "out"
    target = CommandHook.parse(script(tmp_path, f"open({str(out)!r}, 'w')"))
    target.stop()
    with pytest.raises(HookFailed, match="the service has ended"):
        target.deliver(b"{}")
    assert not out.exists()


def test_all_hooks_share_the_time_at_the_end() -> None:
    class Asked:
        def __init__(self) -> None:
            self.seconds = list[float]()

        def close(self, seconds: float) -> None:
            self.seconds.append(seconds)

    moments, hooks = iter([100.0, 101.0, 109.0, 130.0]), [Asked(), Asked(), Asked()]
    close_all(cast(list[CommitHook], hooks), 10.0, lambda: next(moments))
    assert sorted(seconds for hook in hooks for seconds in hook.seconds) == [0.0, 1.0, 9.0]
