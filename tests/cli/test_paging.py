"""Lists that are longer than the terminal go through a pager; nothing else does."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import struct
import sys
import termios
import time
from pathlib import Path

import pytest

from paimon_cli.cli.terminal import paged
from paimon_cli.errors import DamagedFile
from tests.goldens import golden_table

PAGER = "sed 's/^/page:/'"


def shown(*arguments: str, rows: int = 8, **environment: str) -> list[str]:
    """What a command prints on a terminal of that many lines."""
    pid, terminal = pty.fork()
    if pid == 0:
        plain = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "PAGER", "NO_PAGER")}
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, 100, 0, 0))
        os.execvpe(sys.executable, [sys.executable, "-m", "paimon_cli", *arguments], plain | {"TERM": "xterm"} | environment)
    output = b""
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:
            break
        if not part:
            break
        output += part
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, output
    return output.decode().replace("\r", "").splitlines()


@pytest.fixture
def table(tmp_path: Path) -> str:
    return str(golden_table("java-0.9", "tags_and_expire", tmp_path))


def test_a_long_list_is_paged(table: str) -> None:
    lines = shown("files", "ls", table, rows=2, PAIMON_PAGER=PAGER, PAGER="false")
    assert len(lines) >= 2 and all(line.startswith("page:") for line in lines)


@pytest.mark.in_part(2)
@pytest.mark.parametrize(
    "environment", [{"PAGER": PAGER, "NO_PAGER": "1"}, {"PAGER": ""}, {"PAGER": "cat"}, {"PAGER": PAGER, "TERM": "dumb"}]
)
def test_pagers_can_be_turned_off(table: str, environment: dict[str, str]) -> None:
    lines = shown("files", "ls", table, rows=2, **environment)
    assert lines and not any(line.startswith("page:") for line in lines)


@pytest.mark.parametrize("words", [("--no-pager", "files", "ls"), ("files", "ls", "--no-pager")])
def test_one_call_can_do_without(table: str, words: tuple[str, ...]) -> None:
    lines = shown(*words, table, rows=2, PAGER=PAGER)
    assert lines and not any(line.startswith("page:") for line in lines)


def test_a_short_list_is_not_paged(table: str) -> None:
    assert not any(line.startswith("page:") for line in shown("files", "ls", table, rows=60, PAGER=PAGER))


def test_rows_are_paged_and_keep_their_widths(table: str) -> None:
    lines = shown("read", table, rows=2, PAGER=PAGER)
    assert all(line.startswith("page:") for line in lines) and "row" in lines[-1]
    plain = shown("read", table, rows=60, PAGER=PAGER)
    assert [line.removeprefix("page:") for line in lines] == plain


def test_leaving_the_pager_early_is_not_an_error(table: str) -> None:
    assert shown("read", table, rows=2, PAGER="head -n 1 > /dev/null") == []


def test_json_is_never_paged(table: str) -> None:
    assert shown("files", "ls", table, "-o", "json", rows=2, PAGER=PAGER)[0] == "{"


class FakeTerminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stopped_by", [DamagedFile("a file is damaged"), KeyboardInterrupt(), BrokenPipeError()], ids=repr)
def test_a_pager_is_waited_for_when_its_command_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped_by: BaseException
) -> None:
    """Else it would go on reading from a terminal that the shell has taken back."""
    monkeypatch.setenv("PAIMON_PAGER", f"cat > {tmp_path}/seen; sleep 0.3; touch {tmp_path}/left")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_PAGER", raising=False)
    monkeypatch.setattr(sys, "stdout", FakeTerminal())
    with pytest.raises(type(stopped_by)), paged(10_000):
        print("a row")
        raise stopped_by
    assert (tmp_path / "left").exists()
    assert (tmp_path / "seen").read_text() == "a row\n"
    assert isinstance(sys.stdout, FakeTerminal)


def test_a_pager_that_was_left_hides_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAIMON_PAGER", "exec <&-; exit 0")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_PAGER", raising=False)
    monkeypatch.setattr(sys, "stdout", FakeTerminal())
    with pytest.raises(DamagedFile), paged(10_000):
        time.sleep(0.3)  # the pager ends
        print("a row")  # is written to it when it is closed
        raise DamagedFile("a file is damaged")
