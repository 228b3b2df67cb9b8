"""Failures: three lines or a JSON object on stderr, the exit code that scripts rely on, never a traceback unasked."""

from __future__ import annotations

import errno
import io
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from paimon_cli.cli.app import report_failure
from paimon_cli.cli.output import OutputFormat
from paimon_cli.cli.results import warn
from paimon_cli.cli.service_log import JsonLog, RoundLines, ServiceLog
from paimon_cli.cli.terminal import has_lost_reader
from paimon_cli.errors import (
    CommitUnknown,
    Conflict,
    DamagedFile,
    NotFound,
    NotSupported,
    PaimonError,
    PartialSuccess,
    Refused,
    StorageUnavailable,
    UsageError,
    if_damaged,
)
from tests.cli.calling import Run
from tests.goldens import golden_table
from tests.tables import make_table, write


def raising(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr("paimon_cli.api.table.open_table", fail)


def test_an_error_says_what_why_and_what_next(run: Run) -> None:
    answer = run("snapshots", "ls", "a.b", code=2)
    what, why, hint = answer.err.splitlines()
    assert what == "error: no warehouse to look for database a in"
    assert "PAIMON_WAREHOUSE" in why
    assert hint.startswith("hint: ")
    assert answer.out == ""


def test_json_error(run: Run, tmp_path: Path) -> None:
    answer = run("snapshots", "ls", tmp_path, "-o", "json", code=3)
    assert answer.error["code"] == "PC-NOT-FOUND"
    assert str(tmp_path) in answer.error["message"]
    assert answer.error["hint"]
    assert "details" in answer.error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense"], "nonsense"),
        (["snapshots", "ls"], "TABLE"),
        (["snapshots", "ls", "t", "--frobnicate"], "frobnicate"),
        (["snapshots", "ls", "t", "--limit", "many"], "--limit"),
        (["snapshots", "ls", "t", "--limit", "0"], "--limit"),
        (["snapshots", "ls", "t", "-o", "xml"], "xml"),
        (["snapshots", "lss", "t"], "ls"),
        (["files", "ls", "./t", "--columns", "nope"], "nope"),
        (["snapshots", "ls", "./t", "--option", "broken"], "broken"),
    ],
)
def test_wrong_command_lines(run: Run, arguments: list[str], message: str) -> None:
    answer = run(*arguments, code=2)
    assert message in answer.err
    assert answer.err.startswith("error: ")
    assert answer.out == ""


def test_a_wrong_command_line_is_json_too(run: Run) -> None:
    answer = run("snapshots", "ls", "t", "--frobnicate", "-o", "json", code=2)
    assert answer.error["code"] == "PC-USAGE"
    assert answer.error["hint"] == "paimon-cli snapshots ls --help"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Conflict("x"), 5),
        (StorageUnavailable("x"), 6),
        (Refused("x"), 7),
        (NotSupported("x"), 8),
        (PartialSuccess("x"), 9),
        (DamagedFile("x"), 10),
        (CommitUnknown("x"), 11),
        (KeyboardInterrupt(), 130),
    ],
)
def test_exit_codes(run: Run, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int) -> None:
    raising(monkeypatch, error)
    run("snapshots", "ls", "./t", code=code)


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (UsageError("x"), "paimon-cli snapshots ls --help"),
        (NotFound("x"), "paimon-cli snapshots ls --help"),
        (Conflict("x"), "run the job again: it will start from the latest snapshot"),
        (NotSupported("x"), "what this version does not support is listed in README.md, under Limits"),
        (DamagedFile("x"), if_damaged("'./my t' --branch dev")),
        (StorageUnavailable("x"), "paimon-cli doctor './my t' --branch dev"),
        (StorageUnavailable("x", hint="wait"), "wait"),
    ],
)
def test_every_error_says_what_next(run: Run, monkeypatch: pytest.MonkeyPatch, error: PaimonError, hint: str) -> None:
    raising(monkeypatch, error)
    command = ("snapshots", "ls", "./my t", "--branch", "dev")
    assert run(*command, code=error.exit_code).err.splitlines()[-1] == f"hint: {hint}"
    assert run(*command, "-o", "json", code=error.exit_code).error["hint"] == hint


def test_the_hint_of_an_unknown_commit_is_another_command(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    raising(monkeypatch, CommitUnknown("x"))
    assert "hint: paimon-cli snapshots ls t\n" in run("tags", "create", "t", "v", code=11).err
    raising(monkeypatch, CommitUnknown("x"))
    assert "hint" not in run("snapshots", "ls", "t", code=11).err


def test_hints_name_commands_as_they_are_typed(run: Run) -> None:
    answer = run("alter", "t", "add-column", "note", "STRING", code=2)
    assert answer.err.splitlines()[-1] == "hint: paimon-cli alter t add-column --help"


@pytest.mark.parametrize("command", [("version",), ("read", "t"), ("snapshots", "ls", "t")])
def test_who_asks_for_json_as_elsewhere_is_shown_the_option(run: Run, command: tuple[str, ...]) -> None:
    lines = ["error: No such option: --json", "hint: -o json prints the result as JSON"]
    assert run(*command, "--json", code=2).err.splitlines() == lines


def test_a_bug_is_one_line_without_trace(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    raising(monkeypatch, ValueError("odd\nthing"))
    answer = run("snapshots", "ls", "./t", code=1)
    assert answer.err.splitlines() == ["error: ValueError: odd", "this is a bug of paimon-cli", "hint: --trace for details"]


def test_credentials_never_get_out(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    raising(monkeypatch, ValueError("cannot reach s3://me:hunter2@host/wh"))
    for options in ([], ["-o", "json"], ["--trace"]):
        answer = run("snapshots", "ls", "s3://me:hunter2@host/wh/t", *options, code=1)
        assert "s3://host/wh" in answer.err
        assert "hunter2" not in answer.err


def test_trace_shows_the_traceback(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    raising(monkeypatch, ValueError("odd"))
    assert "Traceback" in run("snapshots", "ls", "./t", "--trace", code=1).err
    monkeypatch.setenv("PAIMON_CLI_TRACE", "1")
    assert "Traceback" in run("snapshots", "ls", "./t", code=1).err


def test_a_closed_pipe_is_not_a_failure(tmp_path: Path) -> None:
    table = golden_table("java-0.9", "sixty_commits", tmp_path)
    command = f"{sys.executable} -m paimon_cli snapshots ls {table} -o ndjson | head -1"
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, text=True)
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""
    assert done.returncode == 0


def test_another_pipe_that_breaks_is_a_failure(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """It used to count as that of the output, so that work that had come to nothing ended with 0."""
    raising(monkeypatch, BrokenPipeError(errno.EPIPE, "Broken pipe"))
    assert "Broken pipe" in run("snapshots", "ls", "./t", code=6).err


def test_only_a_pipe_without_a_reader_has_lost_it() -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream:
        assert not has_lost_reader(stream)
        os.close(reading)
        assert has_lost_reader(stream)


def test_the_reader_is_asked_for_with_an_event(monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS tells nothing to those who ask for no event."""
    asked = list[int]()

    class Poll:
        def register(self, _: int, events: int) -> None:
            asked.append(events)

        def poll(self, _: int) -> list[tuple[int, int]]:
            return [(1, select.POLLHUP)] if asked[-1] else []

    monkeypatch.setattr(select, "poll", Poll)
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream, os.fdopen(reading):
        assert has_lost_reader(stream)


def test_what_cannot_be_said_on_stderr_stops_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """A warning into a closed pipe used to end a write before its commit, and the command with 0."""
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb", buffering=0) as raw:
        monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(raw, write_through=True))
        with pytest.raises(BrokenPipeError):
            print("is broken", file=sys.stderr)
        warn("a table has damage")
        report_failure(StorageUnavailable("x"), ())
        lines = RoundLines(OutputFormat.TABLE)
        ServiceLog(lines).say("started")
        JsonLog(lines).warn("a table has damage")


def test_help_into_a_closed_pipe_is_not_a_failure() -> None:
    command = f"{sys.executable} -m paimon_cli read --help | true"
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("redirected", "code", "out", "err"),
    [
        (">/dev/full", 6, "", "error: cannot write or read the output, or a temporary file\nNo space left on device\n"),
        (">/dev/full 2>&1", 6, "", ""),
        (">&-", 0, "", ""),
        ("<&- 2>&-", 0, "id\nty\\n\u2603\n1 row\n", ""),
    ],
)
def test_streams_that_are_full_closed_or_of_another_encoding(
    tmp_path: Path, redirected: str, code: int, out: str, err: str
) -> None:
    context = make_table(tmp_path / "t", {"id": "STRING NOT NULL"}, ["id"])
    write(context, [{"id": "ty\n\u2603"}])
    command = f"PYTHONIOENCODING=latin-1 {sys.executable} -m paimon_cli read {tmp_path}/t {redirected}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, encoding="utf-8")
    assert (done.returncode, done.stdout) == (code, out)
    assert done.stderr.startswith(err) and bool(done.stderr) == bool(err)


@pytest.mark.parametrize(
    ("identity", "message"),
    [
        (["--commit-user", "me", "--commit-id", 2**63], "too large"),
        (["--commit-user", "me", "--commit-id=-5"], "a number greater than or equal to 0 is expected"),
        (["--commit-user", "", "--commit-id", 1], "--commit-user is empty"),
        (["--commit-user", ""], "--commit-user is empty"),
    ],
)
def test_commits_have_identities_that_java_can_read(run: Run, tmp_path: Path, identity: list[object], message: str) -> None:
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL"}, ["k"])
    (tmp_path / "rows.csv").write_text("k\n1\n")
    for more in (["--stage", tmp_path / "staged"], []):
        arguments = ["write", context.url, tmp_path / "rows.csv", "--engine", "local", *identity, *more]
        assert message in run(*arguments, code=2).err or more
    assert context.snapshots.ids() == []


def test_names_of_a_table_do_not_steer_the_terminal(run: Run, tmp_path: Path) -> None:
    columns = {"p": "STRING NOT NULL", "k": "INT NOT NULL"}
    context = make_table(tmp_path / "t", columns, ["p", "k"], ["p"])
    write(context, [{"p": "\x1b[31m\nred", "k": 1}])
    assert "p=\\x1b[31m\\nred / bucket 0" in run("lsm", "show", context.url).out
    assert "\x1b" not in run("read", f"{tmp_path}/\x1b[31m", code=3).err


def test_an_interrupt_while_the_program_loads_is_quiet() -> None:
    program = """
import sys
class Interrupt:
    def find_spec(self, name, path, target=None):
        if name == "paimon_cli.cli.app":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupt())
from paimon_cli.__main__ import main
main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr, done.stdout) == (130, "interrupted\n", "")


@pytest.mark.parametrize(("number", "code", "said"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 0, "stopped")])
def test_signals_end_a_watch(tmp_path: Path, number: signal.Signals, code: int, said: str) -> None:
    table = golden_table("java-0.9", "write_only_never_compacted", tmp_path)
    command = [sys.executable, "-m", "paimon_cli", "compact", str(table), "--engine", "local", "--watch", "--interval", "1 h"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ})
    try:
        assert process.stderr is not None and "started" in process.stderr.readline(), "before the first round has ended"
        assert "snapshot" in process.stderr.readline()
        time.sleep(0.1)
        process.send_signal(number)
        _, errors = process.communicate(timeout=600)
    finally:
        process.kill()
    assert process.returncode == code
    assert errors.strip() == said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_write_without_temporary_files(tmp_path: Path, number: signal.Signals) -> None:
    table, scratch = tmp_path / "t", tmp_path / "scratch"
    make_table(table, {"k": "INT NOT NULL"}, ["k"])
    scratch.mkdir()
    command = [sys.executable, "-m", "paimon_cli", "write", str(table), "-", "--format", "json"]
    environment = {**os.environ, "TMPDIR": str(scratch)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as process:
        while not list(scratch.glob("paimon-cli-stdin-*")) and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(number)
        assert process.stderr is not None and process.stderr.read() == "interrupted\n"
    assert process.returncode == 130
    assert list(scratch.iterdir()) == [] and not (table / "snapshot").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_a_write_without_leaving_files(run: Run, tmp_path: Path, number: signal.Signals) -> None:
    table, source = tmp_path / "t", tmp_path / "rows.jsonl"
    source.write_text('{"id": 1}\n')
    run("create", table, "-C", "id INT NOT NULL", "--primary-key", "id", "--bucket", 1)
    program = f"""
import os, sys
from paimon_cli.commit.committer import Committer
from paimon_cli.__main__ import main
def check(*arguments):
    assert os.listdir({str(table / "bucket-0")!r})
    os.kill(os.getpid(), {number.value})
Committer._check = check
sys.argv[1:] = ["write", {str(table)!r}, {str(source)!r}, "--engine", "local"]
main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr.strip(), done.stdout) == (130, "interrupted", "")
    assert not list(table.glob("bucket-0/*")) and not list(table.glob("snapshot/*"))


def test_groups_show_their_help_when_called_bare(run: Run) -> None:
    assert "show" in run("snapshots").out
    assert "Create, write, read" in run().out


def test_kind_is_read_in_any_case(run: Run, tmp_path: Path) -> None:
    table = golden_table("java-0.9", "dedup_partitioned", tmp_path)
    kinds = {item["kind"] for item in run("snapshots", "ls", table, "--kind", "compact", "-o", "json").json["items"]}
    assert kinds == {"COMPACT"}


def test_options_of_one_call_cannot_go_against_the_table(run: Run, tmp_path: Path) -> None:
    table, source = tmp_path / "t", tmp_path / "rows.jsonl"
    source.write_text('{"id": 1, "a": 5}\n')
    run("create", table, "-C", "id INT NOT NULL", "-C", "a INT", "--primary-key", "id", "--bucket", 1)
    write = ("write", table, source, "--engine", "local", "--option")
    assert "did you mean 'write-buffer-size'" in run(*write, "write-bufer-size=1 mb").err
    assert "option merge-engine cannot be changed" in run(*write, "merge-engine=aggregation", code=2).err
    run(*write, "merge-engine=deduplicate")


def test_an_incomplete_condition_is_reported_without_names_of_the_parser(run: Run, tmp_path: Path) -> None:
    table = golden_table("java-0.9", "dedup_partitioned", tmp_path)
    answer = run("read", table, "-w", "id =", code=2)
    assert "something is missing" in answer.err and "sqlglot" not in answer.err


def test_blame_names_its_own_flag(run: Run, tmp_path: Path) -> None:
    table = golden_table("java-0.9", "dedup_partitioned", tmp_path)
    assert "--key 3 is not KEY=VALUE" in run("blame", table, "--key", "3", code=2).err


@pytest.mark.parametrize(
    "arguments",
    [
        ("compact", "--interval", "\u00b2"),
        ("expire", "-n", "--spark-threshold", "\u00b2"),
        ("compact", "--spark-threshold", "1d"),
    ],
)
def test_values_are_read_even_where_nothing_asks_for_them(run: Run, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    make_table(tmp_path / "t", {"k": "INT NOT NULL"}, ["k"])
    command, *options = arguments
    assert run(command, tmp_path / "t", *options, code=2).err.startswith("error: ")


@pytest.mark.parametrize("refusal", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_an_input_that_may_not_be_read_is_no_failure_of_the_storage(
    refusal: int, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, secret = make_table(tmp_path / "t", {"id": "BIGINT NOT NULL"}, ["id"]).url, tmp_path / "in.csv"
    secret.write_text("id\n1\n")

    def opened(path: str, *arguments: Any, **more: Any) -> Any:
        if str(path) == str(secret):
            raise OSError(refusal, os.strerror(refusal), path)
        return open(path, *arguments, **more)

    monkeypatch.setattr("paimon_cli.storage.local_storage.open", opened, raising=False)
    for command in (("write", table, secret), ("create", tmp_path / "new", "--from-file", secret)):
        answer = run(*command, code=2)
        assert str(secret) in answer.err and os.strerror(refusal) in answer.err
        assert answer.err.splitlines()[-1].startswith("hint: check the permissions")


def test_a_table_that_may_not_be_created_is_no_failure_of_the_storage(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: str, *_: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(os, "mkdir", refused)
    answer = run("create", tmp_path / "ro" / "t", "-C", "id INT", code=2)
    assert "Permission denied" in answer.err and "doctor" not in answer.err


def test_a_new_table_is_not_examined(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(path: str, *_: Any) -> None:
        raise OSError(errno.EIO, "Input/output error", path)

    monkeypatch.setattr(os, "mkdir", broken)
    answer = run("create", tmp_path / "ro" / "t", "-C", "id INT", code=6)
    assert answer.err.splitlines()[-1] == "hint: check the address, and that you may write there"


def test_events_of_a_stream_of_changes_are_not_left_out(run: Run, tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", {"id": "BIGINT NOT NULL", "v": "STRING"}, ["id"]).url
    event = {"before": None, "after": {"id": 1, "v": "a"}, "op": "c"}
    for content in (event, {"schema": {}, "payload": event}):
        (tmp_path / "in.json").write_text(json.dumps(content))
        answer = run("write", table, tmp_path / "in.json", code=2)
        assert (
            "a stream of changes" in answer.err
            and "`ingest` applies such events" in answer.err
            and "--on-error" not in answer.err
        )
    (tmp_path / "in.csv").write_text("id,v\nx,a\n")
    assert "--on-error" not in run("write", table, tmp_path / "in.csv", code=2).err, "no row would be left"
    (tmp_path / "in.csv").write_text("id,v\nx,a\n1,b\n2,c\n")
    assert "or lose 1 row of 3: --on-error skip" in run("write", table, tmp_path / "in.csv", code=2).err


def test_a_table_in_memory_is_gone(run: Run) -> None:
    assert "gone now" in run("create", "memory://w/gone", "-C", "id INT").err
    assert run("create", "memory://w/gone too", "-C", "id INT", "-o", "json").err == ""


def test_columns_that_are_not_declared(run: Run, tmp_path: Path) -> None:
    assert run("create", tmp_path / "t", code=2).err.startswith("error: the table has no columns")
    both = run("create", tmp_path / "t", "-C", "id INT", "--ddl", "x.sql", code=2)
    assert "single source" in both.err and "-C and --ddl" in both.err


def test_a_query_with_an_error_shows_where(run: Run) -> None:
    lines = run("sql", "SELCT 1", code=2).err.splitlines()
    assert lines[1].startswith("LINE 1: SELCT 1") and lines[2].strip().startswith("^")
