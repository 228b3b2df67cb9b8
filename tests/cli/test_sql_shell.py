"""The shell of `sql`: its commands, when a statement is complete, completion, the history, and a session on a terminal."""

from __future__ import annotations

import os
import pty
import select
import signal
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from paimon_cli import Catalog
from paimon_cli.api.sql_session import SqlSession
from paimon_cli.cli.command import Call
from paimon_cli.cli.sql_line_editor import SqlCompleter
from paimon_cli.cli.sql_shell import Shell, history_file, is_finished


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    catalog = Catalog(str(tmp_path / "wh"))
    catalog.sql(
        "CREATE DATABASE shop; CREATE TABLE shop.orders (id BIGINT NOT NULL, city STRING, PRIMARY KEY (id) NOT ENFORCED) "
        "WITH ('bucket' = '1'); INSERT INTO shop.orders VALUES (1, 'Rome')"
    )
    return Shell(Call(warehouse=str(tmp_path / "wh")), SqlSession(catalog))


@pytest.fixture
def says(shell: Shell, capsys: pytest.CaptureFixture[str]) -> Callable[[str], str]:
    """What the shell prints for a line."""

    def said(line: str) -> str:
        assert shell.take(line)
        captured = capsys.readouterr()
        return captured.out + captured.err

    return said


def test_commands(says: Callable[[str], str], shell: Shell, tmp_path: Path) -> None:
    assert ".mode MODE" in says(".help")
    assert "shop      orders" in says(".tables") == says("\\d") != ""
    assert "city         VARCHAR" in says("\\d shop.orders")
    assert "city         VARCHAR" in says(f"\\d {tmp_path}/wh/shop.db/orders")
    assert says("FROM shop.orders;").splitlines()[:2] == ["id  city", " 1  Rome"]
    says(".mode line")
    assert "the mode is line" in says(".mode")
    assert says("FROM shop.orders;").splitlines()[1:3] == ["id    1", "city  Rome"]
    says(".mode ndjson")
    assert says("FROM shop.orders;") == '{"id":1,"city":"Rome"}\n'
    says(".timer on")
    assert "took 0." in says("SELECT 1")
    (tmp_path / "my file.sql").write_text("USE shop; SELECT count(*) AS n FROM orders")
    assert '{"n":1}' in says(f".read '{tmp_path}/my file.sql'")
    assert '{"id":1,"city":"Rome"}\n' in says("FROM orders;"), "USE holds for later lines"
    assert not shell.take(".quit") and not shell.take("\\q")


@pytest.mark.parametrize(
    "line, message",
    [
        ("SELECT nope FROM shop.orders;", "nope"),
        (".mode xml", "it takes one of table, json, ndjson, csv, line"),
        (".timer", "it takes one of on, off"),
        (".timer on off", "it takes one of on, off"),
        (".nothing", "there is no command .nothing"),
        (".read", ".read needs one FILE"),
        (".read /no/such.sql", "no file"),
        (".read 'open", "cannot read"),
        ("DROP TABLE shop.nothing;", "no table"),
    ],
)
def test_an_error_does_not_end_the_shell(says: Callable[[str], str], line: str, message: str) -> None:
    answer = says(line)
    assert "error: " in answer and message in answer


def test_enter_runs_what_is_complete() -> None:
    for text in ("SELECT 1;", "", "  ", ".help", "\\d t", "SELECT ';';  ", "SELECT 1; -- done"):
        assert is_finished(text), text
    for text in ("SELECT 1", "SELECT 'a;", "SELECT 1; SELECT 2", "SELECT $$;", "-- a;\nSELECT", "/* ;"):
        assert not is_finished(text), text


def test_the_history_is_for_its_owner(tmp_path: Path) -> None:
    path = history_file({"XDG_STATE_HOME": str(tmp_path / "state")})
    path.chmod(0o644)
    assert history_file({"XDG_STATE_HOME": str(tmp_path / "state")}) == path
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError):
        history_file({"XDG_STATE_HOME": str(tmp_path / "state")})


def test_completion(shell: Shell) -> None:
    completer = SqlCompleter(shell.session.context)

    def choices(before: str, after: str = "") -> set[str]:
        document = Document(before + after, len(before))
        return {completion.text for completion in completer.get_completions(document, CompleteEvent())}

    assert choices("sel") == {"SELECT"}
    assert choices("SELECT * FROM sho") == {"SHOW", "shop.orders"}
    assert choices("SELECT ci", " FROM shop.orders") == {"city"}
    assert choices("SELECT ci", " FROM shop.nothing") == set()
    assert choices(".mo") == {".mode"}
    shell.session.run("USE shop", lambda result: None)
    assert "orders" in choices("SELECT * FROM ord")


class Terminal:
    """A shell in another process, on a terminal of its own."""

    def __init__(self, home: Path) -> None:
        environment = os.environ | {"XDG_STATE_HOME": str(home), "TERM": "xterm", "NO_PAGER": "1", "NO_COLOR": "1"}
        environment["PAIMON_WAREHOUSE"] = str(home / "wh")
        self.process, self._file = pty.fork()
        if self.process == 0:
            os.execve(sys.executable, [sys.executable, "-m", "paimon_cli", "sql"], environment)
        self.seen = ""

    def wait_for(self, text: str, seconds: float = 60) -> None:
        """Read until the text is there, and forget what came before it."""
        end = time.monotonic() + seconds
        while text not in self.seen:
            assert time.monotonic() < end, self.seen
            if select.select([self._file], [], [], 0.1)[0]:
                data = os.read(self._file, 1 << 16)
                if b"\x1b[6n" in data:  # where is the cursor?
                    os.write(self._file, b"\x1b[1;1R")
                self.seen += data.decode(errors="replace")
        self.seen = self.seen.partition(text)[2]

    def type(self, text: str) -> None:
        os.write(self._file, text.encode())

    def end(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])


def test_a_session_on_a_terminal(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path)
    try:
        terminal.wait_for("paimon>")
        terminal.type("SELECT 40 +\r")
        terminal.wait_for("...>")
        terminal.type("2 AS answer;\r")
        terminal.wait_for("1 row")
        terminal.wait_for("paimon>")
        terminal.type("SELECT count(*) FROM range(1000000000000);\r")
        time.sleep(1.5)
        terminal.type("\x03")
        terminal.wait_for("interrupted")
        terminal.wait_for("paimon>")
        terminal.type("SELECT 'still' || ' here';\r")
        terminal.wait_for("still here\r\n")
        terminal.wait_for("paimon>")
        terminal.type("\x04")
        assert terminal.end() == 0
    except BaseException:
        os.kill(terminal.process, signal.SIGKILL)
        raise
    history = (tmp_path / "paimon-cli" / "sql_history").read_text()
    assert "+SELECT 40 +\n+2 AS answer;\n" in history
