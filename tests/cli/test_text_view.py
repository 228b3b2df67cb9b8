"""Tables for people: aligned by what a terminal shows, and fitted to its width."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.cells import cell_len

from paimon_cli.cli import text_view
from paimon_cli.cli.columns import Column, columns_of
from paimon_cli.cli.output import Item, Listing
from paimon_cli.cli.results import View
from paimon_cli.cli.text_view import Header, print_table
from paimon_cli.inspect.health_report import HealthRow
from tests.cli.calling import Run
from tests.tables import make_table, write

HEADERS = [("Name", False), ("Rows", True)]
Width = Callable[[int], None]


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Width:
    monkeypatch.setattr(text_view, "is_terminal", lambda: True)
    monkeypatch.setenv("TERM", "dumb")

    def of(columns: int) -> None:
        monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((columns, 20)))

    of(30)
    return of


def test_columns_are_aligned_and_lines_have_no_trailing_space(capsys: pytest.CaptureFixture[str]) -> None:
    assert print_table(HEADERS, [["a", "1"], ["longer", "1,000"]]) == 2
    assert lines(capsys) == ["Name     Rows", "a           1", "longer  1,000"]
    print_table([("Rows", True), ("Name", False)], [["1", "a"], ["2", ""]])
    assert lines(capsys) == ["Rows  Name", "   1  a", "   2"]


def test_wide_characters_take_two_columns(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(HEADERS, [["数据", "1"], ["abcd", "2"]])
    assert lines(capsys)[1:] == ["数据     1", "abcd     2"]


def test_a_pipe_gets_everything(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    print_table([Header("Name", hide=1), Header("Rows", True)], [["x" * 500, "1"]])
    assert lines(capsys)[1] == "x" * 500 + "     1"


def test_columns_leave_in_their_order_and_are_named(capsys: pytest.CaptureFixture[str], terminal: Width) -> None:
    heads = [Header("ID", True), Header("User", hide=1), Header("Kind"), Header("Schema", True, hide=2), Header("Tags")]
    rows = [["1", "8f022cbc-73b7-42ee-a", "APPEND", "12", "daily"]]
    terminal(60)
    print_table(heads, rows)
    assert lines(capsys) == ["ID  User                  Kind    Schema  Tags", " 1  8f022cbc-73b7-42ee-a  APPEND      12  daily"]
    terminal(30)
    print_table(heads, rows)
    assert lines(capsys) == ["ID  Kind    Schema  Tags", " 1  APPEND      12  daily", "hidden: user (--wide shows", "  all)"]
    terminal(17)
    print_table(heads, rows)
    assert lines(capsys) == ["ID  Kind    Tags", " 1  APPEND  daily", "hidden: user,", "  schema (--wide", "  shows all)"]
    print_table(heads, rows, View(wide=True))
    assert lines(capsys)[1] == " 1  8f022cbc-73b7-42ee-a  APPEND      12  daily"


def test_columns_without_a_value_leave_first(capsys: pytest.CaptureFixture[str], terminal: Width) -> None:
    heads = [Header("ID", True), Header("User", hide=1), Header("Partition", hide=2)]
    terminal(20)
    print_table(heads, [["1", "somebody", "-"], ["2", "somebody", ""]])
    assert lines(capsys) == ["ID  User", " 1  somebody", " 2  somebody", "hidden: partition", "  (--wide shows all)"]


def test_texts_are_shortened_and_numbers_never(capsys: pytest.CaptureFixture[str], terminal: Width) -> None:
    print_table(HEADERS, [["x" * 500, "1,000,000"]])
    assert lines(capsys) == ["Name" + " " * 22 + "Rows", "x" * 18 + "…  1,000,000", "shortened: name (--wide shows", "  all)"]


def test_what_does_not_fit_is_shown_as_records(capsys: pytest.CaptureFixture[str], terminal: Width) -> None:
    assert print_table([Header(f"Rows {n}", True) for n in range(5)], [["1,000,000"] * 5, ["2"] * 5]) == 2
    assert lines(capsys)[:3] == ["-- 1 --", "Rows 0  1,000,000", "Rows 1  1,000,000"]
    print_table([Header("Key range", may_shorten=False), Header("Level")], [["=" * 29, "L0"]])
    assert lines(capsys) == ["-- 1 --", "Key range  " + "=" * 29, "Level      L0"]
    print_table(HEADERS, [["a", "1"]], View(vertical=True))
    assert lines(capsys) == ["-- 1 --", "Name  a", "Rows  1"]


@pytest.mark.parametrize("columns", range(20, 200, 7))
def test_no_line_is_wider_than_the_terminal(columns: int, capsys: pytest.CaptureFixture[str], terminal: Width) -> None:
    heads = [Header("ID", True), Header("User", hide=2), Header("Name"), Header("Path"), Header("Bytes", True, hide=1)]
    terminal(columns)
    rows = [[str(n), "u" * 36, "数据" * n, "p" * (n * 9), f"{n * 123456:,}"] for n in range(1, 9)]
    print_table(heads, rows)
    shown = lines(capsys)
    assert shown[0].startswith("--") or max(map(cell_len, shown)) <= columns


def test_heads_are_bold_where_colours_are_wanted(
    capsys: pytest.CaptureFixture[str], terminal: Width, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    print_table(HEADERS, [])
    assert lines(capsys) == ["\x1b[1mName  Rows\x1b[0m"]
    monkeypatch.setenv("NO_COLOR", "1")
    print_table(HEADERS, [])
    assert lines(capsys) == ["Name  Rows"]


def test_later_rows_may_be_wider_than_the_first(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_view, "WIDTH_SAMPLE_ROWS", 1)
    assert print_table(HEADERS, (["x" * n, str(n)] for n in (1, 9))) == 2
    assert lines(capsys) == ["Name  Rows", "x        1", "xxxxxxxxx     9"]


def test_a_warehouse_on_eighty_columns_keeps_one_line_per_table(
    capsys: pytest.CaptureFixture[str], terminal: Width, tmp_path: Path
) -> None:
    terminal(80)
    row = HealthRow("shop.customers", "needs care", 12_345, 987_654_321, 1_024, 25, 1_000, 86_400.0)
    text_view.show(Listing("HealthList", None, columns_of(HealthRow)[:-1], [row]))
    head, line, *_ = lines(capsys)
    assert head.startswith("Table           Verdict     ") and line.startswith("shop.customers  needs care  ")


@pytest.mark.parametrize(
    "arguments",
    [("ls", "WAREHOUSE"), ("schemas", "ls", "TABLE"), ("options", "ls", "TABLE", "--all"), ("compactions", "ls", "TABLE")],
)
def test_lists_on_eighty_columns_are_tables(run: Run, terminal: Width, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    terminal(80)
    table = make_table(tmp_path / "shop.db" / "customers", {"id": "INT NOT NULL", "d": "INT NOT NULL"}, ["id", "d"], ["d"])
    for number in range(5):
        write(table, [{"id": number, "d": 20_260_101}])
    run("compact", table.url, "--engine", "local")
    shown = run(*(word.replace("WAREHOUSE", str(tmp_path)).replace("TABLE", table.url) for word in arguments)).out.splitlines()
    assert shown and not shown[0].startswith("--")
    assert max(map(cell_len, shown)) <= 80
    if arguments[0] == "options":
        assert "write.data-evolution.update-conflict-retry.max-attempts" in "\n".join(shown), "keys are to be copied"


def test_commands_that_mend_are_never_cut(run: Run, terminal: Width, tmp_path: Path) -> None:
    terminal(80)
    table = make_table(tmp_path / "t", {"id": "INT NOT NULL"}, ["id"], options={"write-only": "true"})
    for number in range(9):
        write(table, [{"id": number}])
    command = f"paimon-cli compact {table.url} --strategy minor"
    assert f"         run: {command}" in run("describe", table.url).out.splitlines()


def test_long_texts_of_an_item_hang_and_long_words_stay(capsys: pytest.CaptureFixture[str], terminal: Width) -> None:
    item = SimpleNamespace(note="one two three four five six", path="x" * 40)
    text_view.show(Item("Thing", None, item, [Column("note", "Note"), Column("path", "Path")]))
    assert lines(capsys) == ["Note  one two three four five", "      six", "Path  " + "x" * 40]
