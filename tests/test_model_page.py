"""Each row of the page about the model runs and prints what it promises; tables of other pages hold what the code computes."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from paimon_cli.cli.demo_command import inside
from paimon_cli.lab.case_catalog import find_case
from paimon_cli.lab.granularity import compare_granularities
from paimon_cli.lab.lab_table import LabSetting
from paimon_cli.lsm.universal_compaction import RunSize, UniversalCompaction
from paimon_cli.requests.lab import GranularityOptions
from scripts.run_snippets import PROGRAM, ROOT, Session
from tests.lsm.slow_picks import SlowStrategy

PAGE = (ROOT / "docs/model.md").read_text(encoding="utf-8")
CODE = re.compile(r"`([^`]+)`")
FINDS = 4
"""The exit code of a search that finds what it is asked to find."""


@dataclass(frozen=True)
class Row:
    number: str
    mechanism: str
    use: list[str]
    reproduce: list[str]
    prints: list[str]
    link: str


def rows_of(page: str, columns: int) -> list[list[str]]:
    """The rows of the tables of a page that have so many columns, without their titles."""
    lines = [line.strip().strip("|").split("|") for line in page.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in cells] for cells in lines if len(cells) == columns and not cells[0].startswith("---")]


def model() -> list[Row]:
    found = [cells for cells in rows_of(PAGE, 6) if cells[0].isdigit()]
    return [
        Row(n, what, CODE.findall(use), CODE.findall(again), CODE.findall(said), link)
        for n, what, use, again, said, link in found
    ]


def anchors(page: str) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    [setup] = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    session = Session(folder)
    with inside(folder):
        for line in setup.splitlines():
            said = session.run(line)
            assert session.last_code == 0, said
    return folder


def test_the_page_has_a_row_for_each_mechanism() -> None:
    assert [row.number for row in model()] == [str(number) for number in range(1, 33)]
    assert all(row.use and row.reproduce and row.prints for row in model())


@pytest.mark.in_part(24)
@pytest.mark.parametrize("row", model(), ids=lambda row: f"{row.number}")
def test_a_row_prints_what_it_promises(row: Row, prepared: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(prepared, tmp_path / "model"))
    session, said, codes = Session(folder), "", []
    with inside(folder):
        for command in row.use + row.reproduce:
            said += session.run(PROGRAM + command)
            codes.append(session.last_code)
    promised = [text for text in row.prints if not text.startswith("exit ")]
    assert [text for text in promised if text not in said] == [], said
    ends = [int(text.removeprefix("exit ")) for text in row.prints if text.startswith("exit ")]
    searches = [FINDS for command in row.reproduce if "--finds" in command]
    assert sorted(code for code in codes if code) == sorted(ends + searches), said


@pytest.mark.parametrize("row", model(), ids=lambda row: f"{row.number}")
def test_the_link_of_a_row_leads_to_a_section(row: Row) -> None:
    [(page, anchor)] = re.findall(r"\]\(([\w.]+)#([\w-]+)\)", row.link)
    assert anchor in anchors((ROOT / "docs" / page).read_text(encoding="utf-8"))


def test_the_picks_of_the_page_about_compaction() -> None:
    page = (ROOT / "docs/compaction.md").read_text(encoding="utf-8")
    picks = [cells for cells in rows_of(page, 5) if cells[0].startswith("`L0:")]
    for shown, reason, count, level, figures in picks:
        runs = [RunSize(int(run[1:2]), int(run[3:])) for run in CODE.findall(shown)[0].split()]
        picked = UniversalCompaction(max_level=5).pick(runs)
        found = (
            ("none", "0", "", "")
            if picked is None
            else (
                picked.reason,
                str(picked.run_count),
                f"L{picked.output_level}",
                f"`{picked.arithmetic}`",
            )
        )
        assert found == (reason, count, level, figures), shown
    assert len(picks) == 5
    older = SlowStrategy({"num_levels": 6, "run_trigger": 5, "max_size_amp": 200, "size_ratio": 1}, main=False)
    third = [(int(run[1:2]), int(run[3:])) for run in CODE.findall(picks[2][0])[0].split()]
    assert older.pick(third, 0) == (4, 4), "the output level and the runs of release 0.9"


SHAPES = [(2, 2), *(pytest.param(*shape, marks=pytest.mark.nightly) for shape in ((4, 2), (8, 1), (8, 2), (8, 8), (8, 32)))]


@pytest.mark.parametrize(("writers", "buckets"), SHAPES)
def test_the_abort_rates_of_the_page_about_concurrency(writers: int, buckets: int) -> None:
    page = (ROOT / "docs/concurrency.md").read_text(encoding="utf-8")
    [shown] = [cells for cells in rows_of(page, 7) if cells[:2] == [str(writers), str(buckets)]]
    off, *rest = compare_granularities(GranularityOptions(writers=writers, rounds=5, buckets=buckets), LabSetting(seed=0))
    assert shown[2:] == [f"{off.lost_updates} of {off.commits}", *(f"{100 * row.abort_rate:.1f}%" for row in rest)]


@pytest.mark.parametrize("page", ["concurrency", "compaction"])
def test_every_test_that_the_pages_name_exists(page: str) -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)`", (ROOT / f"docs/{page}.md").read_text(encoding="utf-8"))
    assert len(named) > 10
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_every_lab_case_that_the_pages_name_exists() -> None:
    named = [
        name
        for page in ("concurrency", "compaction", "model")
        for name in re.findall(r"lab run ([a-z][\w-]+)", (ROOT / f"docs/{page}.md").read_text())
    ]
    assert len(set(named)) > 10
    assert [name for name in named if find_case(name).name != name] == []
