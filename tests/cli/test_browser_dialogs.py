"""What the browser shows of names, values and columns, in any terminal."""

from __future__ import annotations

import asyncio

import pytest
from rich.cells import cell_len
from textual.app import App

from paimon_cli.cli.browser_dialogs import NARROWEST, WIDEST, Dialog, cut, fitting


def test_a_dialog_shows_all_of_the_values_and_none_steers_the_terminal() -> None:
    long = "".join(f"<{number}>" for number in range(100))
    pairs = [("[b]na\x1b[2Jme", "[red]va\x1b[2Jlue"), ("long", long)]

    async def drawn() -> list[str]:
        app = App[None]()
        async with app.run_test(size=(80, 30)) as pilot:
            app.push_screen(Dialog("[i]ti\x1b[2Jtle", pairs))
            await pilot.pause()
            lines = ["".join(part.text for part in strip) for strip in app.screen._compositor.render_strips()]
            await pilot.press("enter")
            assert len(app.screen_stack) == 1
            return lines

    lines = [line.strip(" │╭╮╰╯─") for line in asyncio.run(drawn())]
    text = " ".join(lines)
    assert "\x1b" not in text and all(part in text for part in ("[i]ti", "tle", "[b]na", "me", "[red]va", "lue"))
    assert long in "".join(line.removeprefix("long").strip() for line in lines)


ROW = ["1", "n" * 30, "o" * 200, "12 kB", "漢" * 10]
TITLES, HIDES = ["id", "name", "note", "size", "kanji"], [0, 0, 2, 1, 0]


@pytest.mark.parametrize(
    ("width", "columns"),
    [
        (None, [(0, 2), (1, 30), (2, WIDEST), (3, 5), (4, 20)]),
        (127, [(0, 2), (1, 30), (2, WIDEST), (3, 5), (4, 20)]),
        (126, [(0, 2), (1, 30), (2, WIDEST), (4, 20)]),
        (120, [(0, 2), (1, 30), (2, WIDEST), (4, 20)]),
        (119, [(0, 2), (1, 30), (4, 20)]),
        (58, [(0, 2), (1, 30), (4, 20)]),
        (55, [(0, 2), (1, 27), (4, 20)]),
        (40, [(0, 2), (1, NARROWEST), (4, 20)]),
        (39, [(0, 2), (1, NARROWEST), (4, 19)]),
        (32, [(0, 2), (1, NARROWEST), (4, NARROWEST)]),
        (31, [(0, 2), (1, NARROWEST)]),
        (4, [(0, 2)]),
        (0, [(0, 2)]),
    ],
)
def test_columns_make_room_in_their_order(width: int | None, columns: list[tuple[int, int]]) -> None:
    """First those that may go, by their rank, then a part of the widest, then the last ones."""
    assert fitting(TITLES, [["0"] * 5, ROW], HIDES, width) == columns


@pytest.mark.parametrize("text", ["漢字漢字", "abcdef", "a漢b字", "a\x1b[2Jb", ""])
def test_a_value_is_cut_to_its_column(text: str) -> None:
    for width in range(1, 12):
        shown = cut(text, width)
        assert cell_len(shown) <= width and "\x1b" not in shown
        assert shown.endswith("…") or width >= cell_len(shown) == cell_len(cut(text, 99))
    assert cut("abc", 3) == "abc" and cut("abcd", 3) == "ab…" and cut("漢字漢字", 5) == "漢字…"
