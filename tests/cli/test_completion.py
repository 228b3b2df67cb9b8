"""Completion of a user's own names, through the shells' protocol and in the shells that are installed."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from paimon_cli import Table
from paimon_cli.cli import completion, first_word
from paimon_cli.cli.app import app
from paimon_cli.cli.terminal import COMPLETION_VARIABLE

SHELLS = [shell for shell in ("bash", "zsh", "fish") if shutil.which(shell)]
PATIENCE = 120
"""Seconds, which are enough on any machine."""
PROGRAM = f"""#!{sys.executable}
from paimon_cli.cli import completion
completion.SECONDS = {PATIENCE}
from paimon_cli.__main__ import main
main()
"""
Complete = Callable[[str], list[str]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("completion")
    options = {"bucket": "1", "write-only": "true"}
    columns = ["dt STRING NOT NULL", "id INT NOT NULL", "item STRING"]
    path = str(folder / "wh" / "shop.db" / "orders")
    table = Table.create(path, columns=columns, primary_key=["dt", "id"], partition_by=["dt"], options=options)
    for number in range(3):
        table.write(pa.table({"dt": [f"d{number}"], "id": [number], "item": ["x"]}), commit_user=f"etl-{number}", commit_id=1)
    table.tags.create("daily", snapshot=2)
    table.branches.create("dev", tag="daily")
    (folder / "wh" / "shop.db" / "odd $(touch hacked) 'name'").mkdir()
    (folder / ".hidden").mkdir()
    (folder / ".bin").mkdir()
    (folder / ".bin" / "paimon-cli").write_text(PROGRAM)
    (folder / ".bin" / "paimon-cli").chmod(0o755)
    return folder


def test_profiles_and_their_tables(complete: Complete, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(f"profiles:\n  prod:\n    warehouse: {folder / 'wh'}\n  test: {{}}\n")
    monkeypatch.setenv("PAIMON_CLI_CONFIG", str(own))
    assert complete("paimon-cli read @") == ["@prod/", "@test/"]
    assert complete("paimon-cli read @prod/sh") == ["@prod/shop.orders"]
    assert complete("paimon-cli read @prod/shop.orders --tag ") == ["daily"]
    assert complete("paimon-cli read shop.orders --profile p") == ["prod"]


def test_points_in_time(complete: Complete) -> None:
    assert complete("paimon-cli read wh/shop.db/orders --as-of ") == ["1h", "1d", "7d", "30d", "today", "yesterday", "daily"]
    assert complete("paimon-cli expire wh/shop.db/orders --older-than y") == ["yesterday"]
    assert complete("paimon-cli files ls wh/shop.db/orders --snapshot ") == ["3", "2", "1", "daily"]
    assert complete("paimon-cli compact wh/shop.db/orders --if-snapshot ") == ["3", "2", "1"]


@pytest.fixture
def complete(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Complete:
    """The words that complete a command line, as a shell asks for them; however long they take on a busy machine."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(completion, "_SECONDS", PATIENCE)

    def ask(line: str) -> list[str]:
        asks = {COMPLETION_VARIABLE: "complete_fish", "_TYPER_COMPLETE_FISH_ACTION": "get-args", "_TYPER_COMPLETE_ARGS": line}
        answer = CliRunner().invoke(app, [], env=asks, prog_name="paimon-cli")
        assert not answer.stderr
        return [word.split("\t")[0] for word in answer.stdout.splitlines() if word]

    return ask


ORDERS = "wh/shop.db/orders"
ENGINES = ("deduplicate", "partial-update", "aggregation", "first-row")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("read w", ["wh/"]),
        ("read wh/shop.db/o", ["wh/shop.db/odd $(touch hacked) 'name'/", ORDERS]),
        (f"read '{ORDERS}$", [f"{ORDERS}$ro", f"{ORDERS}$branch_dev"]),
        ("read --warehouse wh sh", ["shop.orders"]),
        ("compact --warehouse wh --database s", ["shop"]),
        (f"snapshots show {ORDERS} ", ["latest", "earliest", "3", "2", "1", "daily"]),
        (f"read {ORDERS} --snapshot ", ["3", "2", "1", "daily"]),
        (f"read {ORDERS} --snapshot=2", ["2"]),
        (f"rollback {ORDERS} --to ", ["3", "2", "1", "daily"]),
        (f"read {ORDERS} --tag d", ["daily"]),
        (f"tags rm {ORDERS} ", ["daily"]),
        (f"read {ORDERS} --branch ", ["dev"]),
        (f"branches rm {ORDERS} ", ["dev"]),
        (f"read {ORDERS} -s ", ["dt", "id", "item"]),
        (f"read {ORDERS} -s id,", ["id,dt", "id,item"]),
        (f"read {ORDERS} -s id,it", ["id,item"]),
        (f"blame {ORDERS} --key i", ["id=", "item="]),
        (f"files ls {ORDERS} --partition dt=", ["dt=d0", "dt=d1", "dt=d2"]),
        (f"alter {ORDERS} drop-column it", ["item"]),
        (f"alter {ORDERS} unset w", ["write-only"]),
        (f"alter {ORDERS} set num-sorted-run.s", ["num-sorted-run.stop-trigger="]),
        (f"schemas show {ORDERS} ", ["latest", "0"]),
        (f"snapshots ls {ORDERS} --user ", ["etl-0", "etl-1", "etl-2"]),
        (
            "create t --option merge-engine=",
            [f"merge-engine={name}" for name in ENGINES],
        ),
        ("create t --option write-only=", ["write-only=true", "write-only=false"]),
        ("options explain sequence.f", ["sequence.field", "sequence.field.sort-order"]),
        ("snap", ["snapshots"]),
        ("help snap", ["snapshots"]),
        ("help tags cr", ["create"]),
        ("verify --level f", ["files", "full"]),
    ],
)
def test_words(complete: Complete, line: str, words: list[str]) -> None:
    assert complete(f"paimon-cli {line}") == words


@pytest.mark.parametrize(
    "line",
    ["read s3://bucket/", "snapshots show nothing/here ", f"read {ORDERS} --branch=x --tag ", "read --snapshot ", "read 'open"],
)
def test_nothing_to_choose_from_is_not_an_error(complete: Complete, line: str) -> None:
    assert complete(f"paimon-cli {line}") == []


def test_a_slow_storage_is_not_waited_for(complete: Complete, monkeypatch: pytest.MonkeyPatch) -> None:
    answers, is_complete = threading.Event(), threading.Event()

    def slow(context: Any, incomplete: str) -> Iterator[completion.Choice]:
        answers.wait(PATIENCE)
        is_complete.set()
        yield completion.Choice("late")

    monkeypatch.setitem(completion.OF_OPTIONS, "tag", slow)
    monkeypatch.setattr(completion, "_SECONDS", 0.05)
    assert complete(f"paimon-cli read {ORDERS} --tag ") == []
    assert not is_complete.is_set()
    answers.set()


STARTED = {"bash": ["bash", "--norc", "-i"], "zsh": ["zsh", "-f", "-i"]}
FIRST_LINES = {"bash": [], "zsh": ["autoload -Uz compinit; compinit -u"]}


class Terminal:
    """A shell on a terminal of its own, with the completion script sourced."""

    def __init__(self, shell: str, folder: Path) -> None:
        environment = {**os.environ, "PATH": f"{folder}/.bin:{os.environ['PATH']}", "HOME": str(folder)}
        self._pid, self._terminal = pty.fork()
        if self._pid == 0:
            os.chdir(folder)
            os.execvpe(shell, STARTED[shell], environment | {"TERM": "dumb", "COLUMNS": "200"})
        for line in [*FIRST_LINES[shell], f"source <(paimon-cli --show-completion {shell})", "echo re''ady"]:
            os.write(self._terminal, f"{line}\n".encode())
        self.wait_for("ready")

    def type(self, keys: str) -> None:
        os.write(self._terminal, keys.encode())

    def wait_for(self, text: str, seconds: float = PATIENCE) -> str:
        shown, end = "", time.monotonic() + seconds
        while text not in shown and time.monotonic() < end:
            if select.select([self._terminal], [], [], 0.2)[0]:
                shown += os.read(self._terminal, 65536).decode(errors="replace").replace("\r", "").replace("\a", "")
        assert text in shown, shown
        return shown

    def close(self) -> None:
        os.close(self._terminal)  # the shell is hung up
        os.waitpid(self._pid, 0)


@pytest.mark.parametrize("shell", SHELLS)
def test_in_a_shell(folder: Path, shell: str) -> None:
    (completes_in_fish if shell == "fish" else completes_in_terminal)(folder, shell)


def completes_in_terminal(folder: Path, shell: str) -> None:
    terminal = Terminal(shell, folder)
    try:
        for typed, completed in [
            ("paimon-cli read wh/shop.db/or", f"{ORDERS} "),
            (f"paimon-cli read {ORDERS}\\$b", f"{ORDERS}\\$branch_dev "),
            (f"paimon-cli alter {ORDERS} set merge-engine=p", "merge-engine=partial-update "),
            (f"paimon-cli files ls {ORDERS} --partition dt=d", "d"),
            ("paimon-cli read wh/shop.db/od", "touch"),
        ]:
            terminal.type(f"{typed}\t")
            terminal.wait_for(completed)
            terminal.type("\x15\n")
    finally:
        terminal.close()
    assert not list(folder.rglob("hacked"))


def completes_in_fish(folder: Path, shell: str) -> None:
    asked = [f"read {ORDERS} --tag ", f"alter {ORDERS} set merge-engine=p", "write t wh/sho"]
    lines = "; ".join(f"complete -C 'paimon-cli {line}'" for line in asked)
    environment = {**os.environ, "PATH": f"{folder}/.bin:{os.environ['PATH']}", "HOME": str(folder)}
    script = f"paimon-cli --show-completion fish | source; {lines}"
    done = subprocess.run([shell, "-c", script], cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.stdout.splitlines() == ["daily\ttag", "merge-engine=partial-update", "wh/shop.db/"]


def test_cases_of_the_lab(complete: Complete) -> None:
    from paimon_cli.lab.case_catalog import CASES

    assert complete("paimon-cli lab run ") == [case.name for case in CASES]
    assert complete("paimon-cli lab run topology-") == ["topology-1", "topology-2"]


ASKS_FOR_MODULES = """
import sys
from paimon_cli.cli.app import app
try:
    app()
except SystemExit:
    print(*(name for name in ("rich", "pyarrow", "numpy") if name in sys.modules), file=sys.stderr)
"""


@pytest.mark.parametrize("line", ["snap", "verify --level f", f"read {ORDERS} --profile "])
def test_a_tab_does_not_load_what_only_output_needs(folder: Path, line: str) -> None:
    asks = {COMPLETION_VARIABLE: "complete_fish", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    environment = os.environ | asks | {"_TYPER_COMPLETE_ARGS": f"paimon-cli {line}"}
    done = subprocess.run([sys.executable, "-c", ASKS_FOR_MODULES], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.stderr.strip() == ""


def test_help_in_completions_is_as_rich_would_show_it() -> None:
    from typer.rich_utils import rich_render_text

    for text in (
        "Only the newest N; default 1000.",
        r"Needs `pip install 'paimon-cli\[sql]'`.",
        "[bold]x[/bold] and [dim italic]y[/]",
    ):
        assert completion.without_markup(text) == rich_render_text(text)


@pytest.mark.parametrize("begin", ["", "s", "snapshots", "list", "nothing"])
def test_the_first_word_is_completed_as_by_typer(
    folder: Path, begin: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asks = {COMPLETION_VARIABLE: "complete_fish", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    environment = asks | {"_TYPER_COMPLETE_ARGS": f"paimon-cli {begin}"}
    answered = first_word.answer(environment)
    quick = capsys.readouterr().out
    monkeypatch.setattr(first_word, "answer", lambda environment: False)
    typers = CliRunner().invoke(app, env=environment).stdout
    assert quick.strip() == typers.strip()
    assert answered == bool(quick)


@pytest.mark.parametrize("line", ["paimon-cli", "paimon-cli --v", "paimon-cli -q s", "paimon-cli snapshots ", "paimon-cli 's"])
def test_other_words_are_left_to_typer(line: str) -> None:
    asks = {COMPLETION_VARIABLE: "complete_fish", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    assert not first_word.answer(asks | {"_TYPER_COMPLETE_ARGS": line})
    assert not first_word.answer({COMPLETION_VARIABLE: "complete_bash", "_TYPER_COMPLETE_ARGS": "paimon-cli s"})
