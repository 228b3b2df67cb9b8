"""The terminal browser through Textual's pilot, and `watch`."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from textual.pilot import Pilot
from textual.widgets import DataTable, Footer, Static

from paimon_cli import Table
from paimon_cli.api.catalog import Catalog
from paimon_cli.cli import browse_commands
from paimon_cli.cli.browser import Browser, Lines, Page, snapshots_level, tables_level
from paimon_cli.cli.browser_dialogs import KEYS, cut, fitting
from paimon_cli.storage.injected import SystemClock
from tests.cli.calling import Run

Visit = Callable[[Pilot[None]], Awaitable[None]]


def write(table: Table, ids: range) -> None:
    table.write(pa.table({"id": list(ids), "v": [f"[b]{n}" for n in ids]}), commit_user="etl")


@pytest.fixture
def table(tmp_path: Path) -> Table:
    columns = ["id BIGINT NOT NULL", "v STRING"]
    options = {"bucket": "2", "write-only": "true"}
    table = Table.create(str(tmp_path / "wh" / "shop.db" / "orders"), columns=columns, primary_key=["id"], options=options)
    write(table, range(10))
    write(table, range(5, 15))
    table.compact(strategy="full")
    write(table, range(3))
    return table


def visit(browser: Browser, steps: Visit, width: int = 240) -> None:
    async def run() -> None:
        async with browser.run_test(size=(width, 30)) as pilot:
            await settled(pilot)
            await steps(pilot)

    asyncio.run(run())


async def settled(pilot: Pilot[None]) -> None:
    await pilot.pause()
    await pilot.app.workers.wait_for_complete()
    await pilot.pause()


async def press(pilot: Pilot[None], *keys: str) -> None:
    for key in keys:
        await pilot.press(key)
        await settled(pilot)


def cells(pilot: Pilot[None]) -> list[list[str]]:
    shown: DataTable[Any] = pilot.app.screen.query_one(DataTable)
    return [[cell.plain for cell in shown.get_row_at(row)] for row in range(shown.row_count)]


def status(pilot: Pilot[None]) -> str:
    return str(pilot.app.screen.query_one("#status", Static).render())


def test_a_directory_leads_to_its_tables_whatever_the_catalog_is(table: Table, tmp_path: Path) -> None:
    browser = Browser(tables_level(Catalog(), str(tmp_path / "wh")), 60)

    async def steps(pilot: Pilot[None]) -> None:
        await press(pilot, "enter")
        assert list(browser.titles)[-1] == f"{table.url}: snapshots" and len(cells(pilot)) == 4

    visit(browser, steps)


def test_from_tables_to_rows_and_back(table: Table, tmp_path: Path) -> None:
    browser = Browser(tables_level(Catalog(str(tmp_path / "wh")), None), 60)

    async def steps(pilot: Pilot[None]) -> None:
        assert cells(pilot)[0][0] == "shop.orders"
        await press(pilot, "enter")
        assert [row[0] for row in cells(pilot)] == ["4", "3", "2", "1"]
        await press(pilot, "enter", "enter")
        assert [row[1] for row in cells(pilot)] == ["L0", "L5"]
        await press(pilot, "down", "enter")
        files = [file for file in table.files(level=5) if file.bucket == 0]
        assert [row[3] for row in cells(pilot)] == [file.file for file in files]
        await press(pilot, "enter", "enter")
        stored = [row for row in cells(pilot) if row[0] == row[3]]
        assert len(stored) == files[0].rows and stored[0][-1].startswith("[b]")
        assert [title.rpartition(": ")[2] for title in browser.titles] == [
            f"tables of {tmp_path}/wh".rpartition(": ")[2],
            *("snapshots", "buckets", "sorted runs", "files of run 2", "row groups", "stored rows of row group 0"),
        ]
        await press(pilot, *["escape"] * 9)
        assert len(list(browser.titles)) == 1

    visit(browser, steps)


def test_the_files_of_two_snapshots(table: Table) -> None:
    browser = Browser(snapshots_level(table), 60)

    async def steps(pilot: Pilot[None]) -> None:
        await press(pilot, "d")
        assert "marked snapshot 4" in status(pilot)
        await press(pilot, "down", "d")
        assert list(browser.titles)[-1].endswith("files from snapshot 3 to 4")
        assert [row[0] for row in cells(pilot)] == [change.change for change in table.file_changes(3, 4)]

    visit(browser, steps)


def test_new_commits_appear_while_it_is_live(table: Table) -> None:
    browser = Browser(snapshots_level(table), 0.05)

    async def steps(pilot: Pilot[None]) -> None:
        write(table, range(2))
        for _ in range(2400):
            await pilot.pause(0.05)
            if len(cells(pilot)) == 5:
                break
        assert cells(pilot)[0][0] == "5"
        await press(pilot, "l")
        write(table, range(2))
        await pilot.pause(0.3)
        await settled(pilot)
        assert len(cells(pilot)) == 5
        await press(pilot, "r")
        assert len(cells(pilot)) == 6

    visit(browser, steps)


def test_the_footer_shows_the_keys_that_lead_somewhere(table: Table) -> None:
    browser = Browser(snapshots_level(table), 60)

    def keys(pilot: Pilot[None]) -> set[str]:
        assert pilot.app.screen.query_one(Footer).is_mounted
        return {binding.description for _, binding, enabled, _ in pilot.app.screen.active_bindings.values() if enabled}

    async def steps(pilot: Pilot[None]) -> None:
        assert {"Open", "Back", "Mark, then diff", "Reload", "Live on/off", "Quit"} <= keys(pilot)
        await press(pilot, "enter")
        assert "Open" in keys(pilot) and not {"Mark, then diff", "Live on/off"} & keys(pilot)
        await press(pilot, *["enter"] * 4)
        assert list(browser.titles)[-1].endswith("stored rows of row group 0") and "Open" not in keys(pilot)

    visit(browser, steps)


def drawn(pilot: Pilot[None]) -> list[str]:
    """The screen as text, line by line."""
    return ["".join(segment.text for segment in strip) for strip in pilot.app.screen._compositor.render_strips()]


def titles(pilot: Pilot[None]) -> list[str]:
    shown: DataTable[Any] = pilot.app.screen.query_one(DataTable)
    return [str(column.label) for column in shown.ordered_columns]


def test_80_columns_show_whole_columns_and_say_what_is_hidden(table: Table) -> None:
    browser = Browser(snapshots_level(table), 60)

    async def steps(pilot: Pilot[None]) -> None:
        narrow = titles(pilot)
        assert "ID" in narrow and "User" not in narrow
        shown: DataTable[Any] = pilot.app.screen.query_one(DataTable)
        assert shown.virtual_size.width <= 80
        hidden = len(table_titles) - len(narrow)
        assert f"{hidden} columns hidden (v: this row, w: all)" in status(pilot)
        await press(pilot, "w")
        assert titles(pilot) == table_titles and "hidden" not in status(pilot)
        await press(pilot, "w")
        assert titles(pilot) == narrow
        await pilot.resize_terminal(200, 30)
        await settled(pilot)
        assert titles(pilot) == table_titles, "a wider terminal shows more"

    table_titles = list(snapshots_level(table).load().titles)
    visit(browser, steps, width=80)


def test_the_row_under_the_cursor_is_shown_whole(table: Table) -> None:
    table.write(pa.table({"id": list(range(9)), "v": ["long " * 40] * 9}))
    browser = Browser(snapshots_level(table), 60)

    async def steps(pilot: Pilot[None]) -> None:
        await press(pilot, "v")
        assert dict(pilot.app.screen.pairs)["ID"] == "5"  # type: ignore[attr-defined]
        assert "User" in " ".join(drawn(pilot))
        await press(pilot, "escape")
        assert len(list(browser.titles)) == 1
        await press(pilot, "enter", "enter", "enter", "enter", "enter")
        (cell,) = {row[-1] for row in cells(pilot) if row[-1].startswith("long")}
        assert cell.endswith("…") and len(cell) <= 60
        await press(pilot, "space")
        assert ("v", "long " * 40) in pilot.app.screen.pairs  # type: ignore[attr-defined]

    visit(browser, steps, width=80)


def test_a_filter_leaves_rows_with_its_text(table: Table) -> None:
    browser = Browser(snapshots_level(table), 60)

    async def steps(pilot: Pilot[None]) -> None:
        await press(pilot, "slash", *"comp")
        assert [row[0] for row in cells(pilot)] == ["3"] and "1 of 4 lines" in status(pilot)
        await press(pilot, "enter", "enter")
        assert list(browser.titles)[-1].endswith("@ snapshot 3: buckets"), "the row that is shown is opened"
        await press(pilot, "escape")
        assert len(cells(pilot)) == 1, "the filter is kept"
        await press(pilot, "escape")
        assert len(cells(pilot)) == 4 and len(list(browser.titles)) == 1
        await press(pilot, "slash", *"nothing", "enter", "enter", "v", "d")
        assert cells(pilot) == [] and len(list(browser.titles)) == 1

    visit(browser, steps)


def test_a_question_mark_shows_the_keys(table: Table) -> None:
    browser = Browser(snapshots_level(table), 60)

    async def steps(pilot: Pilot[None]) -> None:
        footer = drawn(pilot)[-1]
        assert "? Keys" in footer and "/ Filter" in footer and "q Quit" in footer, "the footer is whole at 80 columns"
        await press(pilot, "question_mark")
        text = " ".join(drawn(pilot))
        assert all(key in text for key in ("enter", "/", "show all values of the row", "quit"))
        bound = {binding.key for binding in (*Page.BINDINGS, *Lines.BINDINGS) for binding in binding.make_bindings([binding])}  # type: ignore[union-attr]
        told = {name for keys, _ in KEYS for name in keys.split(", ")}
        spelled = {"slash": "/", "question_mark": "?"}
        assert {spelled.get(key, key) for key in bound} - told == {"left", "?"}
        await press(pilot, "question_mark")
        assert len(list(browser.titles)) == 1 and isinstance(pilot.app.screen, Page)

    visit(browser, steps, width=80)


@pytest.mark.parametrize("width", [20, 40, 80, 120])
def test_columns_fit_any_width(width: int) -> None:
    titles, hides = ["id", "name", "note", "size"], [0, 0, 0, 1]
    rows = [["1", "n" * 30, "o" * 200, "12 kB"]]
    found = fitting(titles, rows, hides, width)
    assert sum(size + 2 for _, size in found) <= width and found[0] == (0, 2)
    assert fitting(titles, rows, hides, None) == [(0, 2), (1, 30), (2, 60), (3, 5)]
    assert cut("漢字漢字", 5) == "漢字…" and cut("abc", 3) == "abc"


def test_failures_are_shown_and_do_not_end_the_browser(table: Table, tmp_path: Path) -> None:
    browser = Browser(snapshots_level(table), 60)

    async def steps(pilot: Pilot[None]) -> None:
        for file in (tmp_path / "wh" / "shop.db" / "orders" / "manifest").iterdir():
            file.write_bytes(b"x")
        await press(pilot, "enter")
        assert "manifest" in status(pilot)
        await press(pilot, "escape")
        assert len(cells(pilot)) == 4

    visit(browser, steps)


def test_append_tables_have_no_runs(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "events"), columns=["id BIGINT", "v STRING"], options={"file.format": "orc"})
    write(table, range(3))
    browser = Browser(snapshots_level(table), 60)

    async def steps(pilot: Pilot[None]) -> None:
        await press(pilot, "enter", "enter", "enter")
        assert "is not a Parquet file" in status(pilot)

    visit(browser, steps)


def test_the_place_may_be_a_table_or_a_directory(table: Table, tmp_path: Path) -> None:
    from paimon_cli.cli.command import Call

    call = Call()
    assert browse_commands._first_level(call, table.url).title.endswith(": snapshots")
    assert browse_commands._first_level(call, str(tmp_path / "wh")).title == f"tables of {tmp_path}/wh"


def test_the_browser_needs_a_terminal(table: Table, run: Run) -> None:
    assert "tui needs a terminal" in run("tui", table.url, code=2).err


def test_watch_prints_a_line_per_poll(table: Table, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def sleep(_: SystemClock, seconds: float) -> None:
        if seconds == 77:  # others who wait meanwhile write nothing
            write(table, range(2))

    monkeypatch.setattr(SystemClock, "sleep", sleep)
    watched = "watch", table.url, "--interval", "77s", "--rounds", 2
    lines = run(*watched).out.splitlines()
    assert [line.partition(" snapshot ")[2].partition(":")[0] for line in lines] == ["4", "5"]
    looks = run(*watched, "-o", "ndjson").lines
    assert [(look["snapshot_id"], look["most_runs"]) for look in looks] == [(5, 3), (6, 4)]
    assert run("watch", table.url, "--rounds", 1, "-o", "csv", "--fields", "snapshot_id,due").out == "snapshot_id,due\n6,0\n"
    assert "no field nothing" in run("watch", table.url, "--rounds", 1, "--fields", "nothing", code=2).err
    assert "the interval must be longer than 0" in run("watch", table.url, "--interval", "0s", code=2).err


def test_watch_draws_commits_buckets_and_changes(table: Table) -> None:
    from rich.console import Console

    before = table.state()
    write(table, range(10))
    console = Console(width=100, no_color=True, record=True, file=io.StringIO())
    console.print(browse_commands._screen(table.state(), before, "orders"))
    drawn = console.export_text()
    assert "orders" in drawn and "2 -> 3" in drawn and "L5:1" in drawn and "COMPACT" in drawn
    assert max(len(line) for line in drawn.splitlines()) <= 100
