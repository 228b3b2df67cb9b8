"""No secret is in what a command prints, whatever it contains and wherever it was given."""

from __future__ import annotations

import base64
import html
import io
import json
import shlex
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import urlopen

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paimon_cli.bucket.orc_file import OrcProcess
from paimon_cli.cli.terminal import paged
from paimon_cli.jobs.service.metrics_server import listening
from paimon_cli.jobs.spark.java_runtime import probe_java
from tests.catalog.metastore.hostile_servers import answering
from tests.cli.calling import Run
from tests.cli.planted_secrets import Place, Planted, secrets_of, shown_forms
from tests.hostile.false_fields import CHANGING, READING
from tests.invariants.damaged_tables import keyed_table
from tests.storage.test_redaction import ADDRESSES, PASSWORDS, assert_hidden

KEYS = ("header.Cookie", "header.Authorization", "jdbc.password", "s3.secret-key", "token")
COMMANDS = [
    ("config", "show"),
    ("config", "show", "-o", "json"),
    ("db", "ls", "--trace"),
    ("db", "ls", "-o", "json", "--trace"),
    ("drop", "shop.orders"),
    ("compact", "shop.orders", "--print-spark-submit"),
    ("ls", "--nonsense"),
]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    PASSWORDS,
    st.sampled_from(ADDRESSES),
    st.sampled_from(KEYS),
    st.sampled_from(COMMANDS),
    st.sampled_from(["jdbc", "hive", "filesystem"]),
)
def test_no_output_of_a_command_has_a_secret(
    run: Run, password: str, form: str, key: str, command: tuple[str, ...], kind: str
) -> None:
    options = {"metastore": kind, "uri": form.format(password), key: password, "jdbc.user": "u"}
    words = (*command, "--warehouse", f"s3://u:{password}@bucket/wh") if command[0] == "config" else command
    answer = run(*words, *(word for pair in options.items() for word in ("--option", "=".join(pair))), code=None)
    assert_hidden(password, answer.out, answer.err)


def test_a_command_to_repeat_has_no_secret(run: Run, tmp_path: Path) -> None:
    (tmp_path / "rows.json").write_text('{"id": 1}\n')
    table = str(tmp_path / "t")
    run("create", table, "-C", "id INT")
    run("write", table, str(tmp_path / "rows.json"))
    answer = run("truncate", table, "--dry-run", "--option", "s3.secret-key=HUN@TER2")
    assert "run: paimon-cli truncate" in answer.out
    assert not {"HUN", "TER2"} & set(shlex.split(answer.out.replace("=", " ").replace("@", " ")))


def test_an_unreadable_configuration_is_not_quoted(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for text in ("s3.secret-key: *HUNTER2", "s3.secret-key: !HUNTER2 x", "s3.secret-key: [HUNTER2", "s3.secret-key: @HUNTER2"):
        Path("paimon.yaml").write_text(f"metastore: filesystem\n{text}\n")
        answer = run("config", "show", "--trace", code=2)
        assert "HUNTER2" not in answer.err and "not YAML" in answer.err and "line " in answer.err


@pytest.mark.parametrize(
    "words",
    [
        ("s3://k:HUNTER2@bucket/t",),
        ("t", "--warehouse", "s3://k:HUNTER2@bucket/wh"),
        ("t", "--option", "uri=jdbc:postgresql://u:HUNTER2@h/db"),
        ("t", "--option", "header.Cookie=HUNTER2"),
        ("t", "--spark-conf", "spark.hadoop.fs.s3a.secret.key=HUNTER2"),
    ],
)
def test_a_line_for_spark_submit_never_has_a_secret(run: Run, words: tuple[str, ...]) -> None:
    answer = run("compact", *words, "--master", "yarn", "--print-spark-submit", code=2)
    assert "would print" in answer.err and "HUNTER2" not in answer.out + answer.err


def test_json_errors_stay_json(run: Run) -> None:
    answer = run("files", "ls", "/nowhere/http://u:HUNTER2@h/x?y", "-o", "json", code=2)
    assert "HUNTER2" not in answer.err and json.loads(answer.err)["error"]["code"]


OTHERS = (
    "alter {t} set metastore.uri=x",
    "alter {t} set s3.secret-key={secret}",
    "alter {t} unset s3.secret-key",
    "blame {t} --key zz=1",
    "bisect {t} -w {secret}=1",
    "changelog read {t}",
    "compact --watch --max-rounds 1 --warehouse {w} --metrics-file {out}/m.prom --log-format json --engine local -o ndjson",
    "compact --watch --max-rounds 1 --warehouse {w} --metrics-file {out}/m.prom --engine local",
    "compact {t} --watch --max-rounds 1 --metrics-file {out}/m.prom --log-format json --engine local -o ndjson",
    "compact {t} {none} --metrics-file {out}/m.prom --engine local",
    "compact {t} --engine spark --remote sc://127.0.0.1:1/;token={secret}",
    "compact {t} --engine spark --remote sc://u:{secret}@127.0.0.1:1/;token={secret}",
    "compact {t} --remote http://u:{secret}@h",
    "compact {t} --print-spark-submit",
    "compact {t} --print-spark-submit --master yarn --warehouse {w}",
    "compact {t} --print-spark-submit --spark-conf spark.hadoop.fs.s3a.secret.key={secret}",
    "compare {t} {none}",
    "config show",
    "config show -o json",
    "config show --profile p",
    "create {none}",
    "create {w}/new -C id",
    "db ls",
    "db create x",
    "db ls --warehouse {w}",
    *(f"{words} --profile p --option metastore={kind}" for words in ("db ls", "read a.b") for kind in ("jdbc", "hive", "rest")),
    "describe file://u:{secret}@localhost{path}",
    "drop {t}",
    "drop {t} -n",
    "drop-partition {t} dt=a -n",
    "expire {t} -n --retain-max 1 --retain-min 1 --older-than 0s",
    "export iceberg {t} --output-path {out}/ice",
    "files show {t} x",
    "health {t} {none}",
    "locks ls {t}",
    "options ls {t} --all",
    "options explain bucket {t}",
    *(f"read {scheme}://u:{{secret}}@127.0.0.1:1/t" for scheme in ("http", "ftp", "hdfs", "nix", "oss", "memory", "abfss", "az")),
    "read gs://u:{secret}@b/t --option gs.endpoint=http://127.0.0.1:1",
    "read s3://u:{secret}@b/t --option s3.endpoint=http://127.0.0.1:1",
    "read s3://b/t --option s3.endpoint=http://u:{secret}@127.0.0.1:1",
    "read {none} -o json",
    "read {t} --nonsense",
    "read {t} --option {secret}",
    "read {t} --output-path {url}/copy --engine local",
    "read {t} --output-path {url}/copy.json --engine local",
    "report {t} --html {url}/r.html",
    "read {t} -w nonsense",
    "sql SELECT_NOTHING",
    "tables clone {t} {none}",
    "tables clone {t} {url}/clone",
    "db drop x --warehouse {none}",
    "tables rename a.b c.d",
    "truncate {t} -n",
    "watch {t} --rounds 1",
    "watch {t} --rounds 1 -o json",
    "write {t} http://u:{secret}@127.0.0.1:1/x.csv",
    "write {t} {none}",
    "write {t} {rows} --engine local --stage {out}/staged",
    "write {t} {rows} --engine local --stage {url}/staged",
    "export iceberg {t} --output-path {url}/ice",
    "write {t} {rows} --option partition.mark-done-action=http-report"
    " --option partition.mark-done-action.http.url=http://u:{secret}@127.0.0.1:1/x?token={secret}",
)
"""Commands that also fail, warn, log, write files, or connect to servers that are not there."""
MORE = ((), ("--trace",), ("-o", "json"))


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return keyed_table(tmp_path_factory.mktemp("sound"))


@pytest.mark.in_part(10)
@pytest.mark.parametrize("command", dict.fromkeys((*READING, *CHANGING, *OTHERS)))
@settings(max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(Planted.any(), st.sampled_from(MORE))
def test_nothing_that_a_command_leaves_has_a_secret(
    run: Run, sound: Path, command: str, planted: Planted, more: tuple[str, ...]
) -> None:
    """Secrets in the URL of the table, options, configuration file, environment and the table; all output and all files."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        place = Place(Path(folder), sound, planted, patch)
        words = place.words_of(command)
        answer = run(*words, *planted.words, *(() if "-o" in words else more), code=None)
        assert planted.found_in(answer.out) == [], answer.out
        assert planted.found_in(answer.err) == [], answer.err
        assert place.found_in_files() == {}


@given(Planted.any())
@settings(max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_the_metrics_listener_answers_has_no_secret(run: Run, sound: Path, planted: Planted) -> None:
    answers: list[str] = []

    @contextmanager
    def scraped(*arguments: Any) -> Iterator[str]:
        with listening(*arguments) as url:
            yield url
            for path in ("metrics", "readyz", "healthz", "other"):
                with suppress(HTTPError), urlopen(url.replace("metrics", path), timeout=20) as answer:
                    answers.append(answer.read().decode())

    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        place = Place(Path(folder), sound, planted, patch)
        patch.setattr("paimon_cli.jobs.service.metrics_server.listening", scraped)
        service = "compact {t} --watch --max-rounds 1 --metrics-listen 127.0.0.1:0 --engine local"
        answer = run(*place.words_of(service), *planted.words)
    assert "paimon_cli_rounds_total 1.0" in answers[0] and 'table="' in answers[0]
    assert planted.found_in("".join(answers) + answer.out + answer.err) == []


SENT = [str, quote, repr, json.dumps, html.escape, lambda text: base64.b64encode(text.encode()).decode(), str.lower]


@pytest.mark.parametrize("output", ["table", "json"])
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(secrets_of("QXZ"), secrets_of("JKV"), st.sampled_from(SENT))
def test_a_server_that_quotes_credentials_is_not_shown_quoting(
    run: Run, output: str, given_by_user: str, given_by_server: str, spelled: Callable[[str], str]
) -> None:
    """Those that it was sent, and a token that it has handed out itself."""
    answers = iter(
        [
            (200, {"overrides": {"token": given_by_server}}),
            (403, {"message": f"refused {spelled(given_by_user)} and {spelled(given_by_server)}"}),
        ]
    )

    def answer(connection: socket.socket, stop: Event) -> Iterator[bytes]:
        while not stop.is_set() and connection.recv(65536):
            code, content = next(answers)
            text = json.dumps(content).encode()
            yield f"HTTP/1.1 {code} x\r\nContent-Length: {len(text)}\r\n\r\n".encode() + text

    with answering(answer) as port:
        flags = ["--option", "metastore=rest", "--option", f"uri=http://127.0.0.1:{port}"]
        said = run("db", "ls", *flags, "--option", f"header.X-Key={given_by_user}", "--trace", "-o", output, code=6).err
    assert "answered 403" in said
    forms = (form for secret in (given_by_user, given_by_server) for form in shown_forms(secret))
    assert [form for form in forms if form.casefold() in said.casefold()] == [], said


def test_completions_show_no_secret(run: Run, sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "t"
    shutil.copytree(sound, table)
    schema = json.loads((table / "schema/schema-0").read_text())
    schema["options"] |= {"s3.secret-key": "HUNTER2", "s3.endpoint": "http://u:HUNTER2@h:1"}
    (table / "schema/schema-0").write_text(json.dumps(schema))
    monkeypatch.setenv("_PAIMON_CLI_COMPLETE", "complete_fish")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", f"paimon-cli alter {table} unset s3")
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    shown = run(code=None).out
    assert "s3.secret-key" in shown and "HUNTER2" not in shown


@pytest.mark.parametrize(
    "words",
    [
        ("s3://b c/t",),
        ("s3://b/t", "--option", "s3.endpoint=http://u:HUNTER2@127.0.0.1:1"),
        ("s3://b/t", "--option", "s3.endpoint=http://127.0.0.1:x"),
        ("gs://b/t", "--option", "gs.endpoint=http://127.0.0.1:1:2"),
    ],
)
def test_an_address_on_which_a_library_would_panic(run: Run, words: tuple[str, ...]) -> None:
    answer = run("read", *words, "--trace", code=2)
    assert "cannot open" in answer.err and "HUNTER2" not in answer.err


def test_a_panic_of_a_library_is_an_error_without_secrets(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    panic = type("PanicException", (BaseException,), {})

    def fail(*_: Any) -> None:
        raise panic("called `unwrap()` on HUNTER2")

    monkeypatch.setattr("paimon_cli.api.table.open_table", fail)
    answer = run("describe", "/t", "--option", "token=HUNTER2", code=1)
    assert answer.err.startswith("error: a library has failed") and "HUNTER2" not in answer.err


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def test_child_processes_that_log_in_nowhere_get_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "HUNTER2")
    monkeypatch.setenv("HTTPS_PROXY", "http://u:HUNTER2@proxy:1")
    monkeypatch.setenv("SEEN_BY_CHILDREN", "CANARY")
    decoder = OrcProcess()
    of_decoder = Path(f"/proc/{decoder._child.pid}")
    for _ in range(100):  # until it runs the program
        environment = (of_decoder / "environ").read_bytes()
        if b"orc_decoder" in (of_decoder / "cmdline").read_bytes() and environment:
            break
        time.sleep(0.05)
    decoder.end()
    (tmp_path / "java").write_text(f"#!/bin/sh\nenv > {tmp_path}/of-java\n")
    (tmp_path / "java").chmod(0o755)
    assert probe_java(tmp_path / "java") is None
    monkeypatch.delenv("NO_PAGER", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("PAIMON_PAGER", f"env > {tmp_path}/of-pager; cat > /dev/null")
    monkeypatch.setattr("sys.stdout", Terminal())
    with paged(1000):
        print("a line")
    for found in (environment, (tmp_path / "of-java").read_bytes(), (tmp_path / "of-pager").read_bytes()):
        assert b"CANARY" in found and b"HUNTER2" not in found
