"""Tables for people: aligned by what a terminal shows, cut only where somebody looks."""

from __future__ import annotations

import os

import pytest

from paimon_cli.cli import text_view
from paimon_cli.cli.text_view import print_table

HEADERS = [("Name", False), ("Rows", True)]


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_view, "is_terminal", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((30, 20)))


def test_columns_are_aligned_and_lines_have_no_trailing_space(capsys: pytest.CaptureFixture[str]) -> None:
    assert print_table(HEADERS, [["a", "1"], ["longer", "1,000"]]) == 2
    assert lines(capsys) == ["Name     Rows", "a           1", "longer  1,000"]
    print_table([("Rows", True), ("Name", False)], [["1", "a"], ["2", ""]])
    assert lines(capsys) == ["Rows  Name", "   1  a", "   2"]


def test_wide_characters_take_two_columns(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(HEADERS, [["数据", "1"], ["abcd", "2"]])
    assert lines(capsys)[1:] == ["数据     1", "abcd     2"]


def test_a_pipe_gets_everything(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(HEADERS, [["x" * 500, "1"]])
    assert lines(capsys)[1] == "x" * 500 + "     1"


@pytest.mark.usefixtures("terminal")
def test_a_terminal_cuts_text_but_never_figures(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(HEADERS, [["x" * 500, "1,000,000"]])
    assert lines(capsys)[1] == "x" * 18 + "…  1,000,000"
    print_table([("Rows", True)] * 5, [["1,000,000"] * 5])
    assert lines(capsys)[1] == "  ".join(["1,000,000"] * 5)


@pytest.mark.usefixtures("terminal")
def test_colour_unless_unwanted(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    print_table(HEADERS, [])
    assert "\x1b" not in capsys.readouterr().out
    monkeypatch.delenv("NO_COLOR")
    print_table(HEADERS, [])
    assert capsys.readouterr().out.startswith("\x1b[1mName")


def test_rows_behind_the_sample_are_not_lost(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_view, "WIDTH_SAMPLE_ROWS", 1)
    assert print_table(HEADERS, (["x" * n, str(n)] for n in (1, 9))) == 2
    assert lines(capsys)[2] == "xxxxxxxxx     9"
