"""`-v`, `-q`, `--no-pager` and colours: what each changes, before and after the command, and that results stay the same."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

from paimon_cli.cli.results import Verbosity, coloured, has_colours, note, speaking
from tests.cli.calling import Run
from tests.tables import make_table, write

COST = re.compile(r"^took \d+\.\d\d s; (.*)$", re.MULTILINE)


@pytest.fixture
def table(tmp_path: Path) -> str:
    context = make_table(tmp_path / "t", {"k": "INT NOT NULL", "v": "STRING"}, ["k"])
    write(context, [{"k": 1, "v": "a"}])
    return str(tmp_path / "t")


@pytest.mark.parametrize("words", [("-v", "snapshots", "ls"), ("snapshots", "-v", "ls"), ("snapshots", "ls", "--verbose")])
def test_verbose_says_the_cost_after_the_result(run: Run, table: str, words: tuple[str, ...]) -> None:
    plain, told = run("snapshots", "ls", table), run(*words, table)
    assert told.out == plain.out and not plain.err
    (asked,) = COST.findall(told.err)
    assert re.search(r"files read: [1-9]", asked) and "directories listed" in asked and ": 0" not in asked


def test_flags_may_precede_a_command_of_a_group_with_a_default(run: Run, table: str, tmp_path: Path) -> None:
    run("backup", "-q", table, tmp_path / "copy")
    assert run("backup", "-v", "ls", tmp_path / "copy").out == run("backup", "ls", tmp_path / "copy").out


def test_verbose_says_the_cost_of_a_failure(run: Run, table: str) -> None:
    assert COST.search(run("read", table, "--snapshot", "9", "-v", code=3).err)


def test_verbose_says_why_an_engine_was_chosen(run: Run, table: str, tmp_path: Path) -> None:
    rows = tmp_path / "rows.json"
    rows.write_text('{"k":2,"v":"b"}\n')
    assert run("write", table, rows).out.endswith(" s on local\n")
    told = run("-v", "write", table, rows)
    assert re.search(r" on local \(auto: \d+ B < 1\.0 GB\)\n$", told.out) and "files written" in told.err
    assert run("write", table, rows, "-o", "json").json["item"]["engine_reason"].startswith("auto: ")


@pytest.mark.parametrize("words", [("-q", "files", "ls"), ("files", "--quiet", "ls"), ("files", "ls", "-q")])
def test_quiet_leaves_the_result(run: Run, table: str, words: tuple[str, ...]) -> None:
    plain, quiet = run("files", "ls", table), run(*words, table)
    assert plain.out.startswith(quiet.out) and plain.out.splitlines()[-1].startswith("1 file")
    assert len(quiet.out.splitlines()) == 2 and quiet.err == ""


def test_quiet_leaves_errors_and_drops_notes(run: Run, table: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "error: no snapshot 9" in run("-q", "read", table, "--snapshot", "9", code=3).err
    warned = run("read", table, "--option", "no.such.option=1")
    assert "warning:" in warned.err and run("-q", "read", table, "--option", "no.such.option=1").err == ""
    planned = run("expire", table, "--retain-max", "1", "-n").out
    assert run("-q", "expire", table, "--retain-max", "1", "-n").out in planned
    with speaking(Verbosity.QUIET):
        note("note: lost")
    note("note: kept")
    assert capsys.readouterr().err == "note: kept\n"


def test_quiet_and_verbose_contradict_each_other(run: Run, table: str) -> None:
    for words in (("-q", "-v", "ls"), ("-q", "ls", "-v"), ("ls", "-q", "-v")):
        assert "-v cannot be combined with -q" in run(*words, code=2).err


def test_the_verbosity_ends_with_the_command(run: Run, table: str) -> None:
    run("-q", "ls", Path(table).parent)
    assert "1 file" in run("files", "ls", table).out


class Screen:
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True


def test_colours_are_for_terminals_unless_the_environment_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR")
    assert has_colours(Screen()) and not has_colours(io.StringIO())
    monkeypatch.setenv("TERM", "dumb")
    assert not has_colours(Screen())
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert has_colours(io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not has_colours(Screen()), "NO_COLOR is stronger"


@pytest.mark.parametrize(("label", "colour"), [("ERROR", "1;31"), ("WARNING", "1;33"), ("ok", "32")])
def test_only_the_severity_is_coloured(label: str, colour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert coloured(f"  {label}  PV001 ERROR", label, Screen()) == f"  \x1b[{colour}m{label}\x1b[0m  PV001 ERROR"
    assert coloured("a file called ERROR", label, Screen()) == "a file called ERROR"


def test_errors_and_findings_have_colours_and_data_has_not(run: Run, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert run("read", table, "--snapshot", "9", code=3).err.startswith("\x1b[1;31merror\x1b[0m: no snapshot 9")
    next(Path(table).glob("bucket-0/data-*")).unlink()
    assert re.search(r"^\x1b\[1;31mERROR\x1b\[0m  ", run("verify", table, code=4).out, re.MULTILINE)
    for output in ("json", "ndjson", "csv"):
        assert "\x1b" not in run("verify", table, "-o", output, code=4).out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in run("verify", table, code=4).out


def test_columns_without_a_value_are_left_out_of_a_pipe(run: Run, table: str) -> None:
    shown, wide = run("files", "ls", table).out, run("files", "ls", table, "--wide").out
    assert len(shown.splitlines()[0]) < len(wide.splitlines()[0])
    assert "-" not in shown.splitlines()[1].split(), "what is shown has a value"
