"""The page of stories: a lane for each actor, conflicts marked, nothing that is loaded, and every text escaped."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from paimon_cli.cli.app import app
from paimon_cli.lab.case_catalog import CASES, Case
from paimon_cli.lab.interleavings import CheckRequest, check_interleavings, story_of
from paimon_cli.lab.story import Story
from paimon_cli.lab.story_page import MAX_WIDE_LANES, story_page
from tests.lab.test_cases import stories_of

VOID = {"meta", "br"}
HOSTILE = "<script>alert(1)</script>\"'&\x1b[31m"


class Parsed(HTMLParser):
    """The elements of a page; an end tag that does not fit, or an attribute that loads something, is an error."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.rows: list[dict[str, Any]] = []
        self.heads: list[list[str]] = []
        self.texts: list[str] = []
        self.policy = ""
        self.is_lane = False
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        assert tag not in ("script", "link", "img", "iframe", "object") and not {"src", "href", "srcset"} & set(named)
        assert not any(name.startswith("on") for name in named)
        if named.get("http-equiv") == "Content-Security-Policy":
            self.policy = str(named["content"])
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append({"conflict": named.get("class") == "conflict", "lanes": [], "text": ""})
        if tag == "td":
            self.is_lane = named.get("class") == "lane"
            self.rows[-1]["lanes"] += [""] if self.is_lane else []
        if tag == "thead":
            self.heads.append([])
        if tag == "th":
            self.heads[-1].append("")
        if named.get("class") in ("dot", "call") and self.is_lane:
            self.rows[-1]["lanes"][-1] += "*"

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        if "th" in self.open:
            self.heads[-1][-1] += data
        if self.rows and "td" in self.open:
            self.rows[-1]["text"] += data


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["lab", *arguments])


@pytest.mark.in_part(12)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_each_step_is_in_the_lane_of_its_actor(case: Case) -> None:
    stories = stories_of(case.name)
    parsed = Parsed(story_page(case.name, "", stories))
    assert parsed.policy == "default-src 'none'; style-src 'unsafe-inline'"
    rows = [row for row in parsed.rows if row["lanes"]]
    steps = [(number, step) for number, story in enumerate(stories) for step in story.steps]
    assert len(rows) == len(steps) and len(parsed.heads) == len(stories)
    for row, (number, step) in zip(rows, steps, strict=True):
        lanes = parsed.heads[number][1:-1]
        assert lanes[row["lanes"].index("*")] == step.who and row["lanes"].count("*") == 1
        assert row["conflict"] == step.is_conflict and ("conflict:" in row["text"]) == step.is_conflict
        assert step.what in row["text"] and step.outcome in row["text"] and step.call in row["text"]


@pytest.mark.in_part(4)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_refused_put_and_an_aborted_job_are_conflicts(case: Case) -> None:
    told = [step for story in stories_of(case.name) for step in story.steps]
    signs = ("the number is taken", "is overwritten", "which it has not read, is replaced")
    for step in told:
        is_bad = any(sign in step.outcome for sign in signs) or step.what.startswith(("aborts, exit 5", "fails"))
        assert not is_bad or step.is_conflict, step
    assert case.name not in ("snapshot-conflict", "files-conflict", "lost-lock") or any(step.is_conflict for step in told)


def test_every_call_of_a_commit_is_in_its_order() -> None:
    """The calls of a step, and those before it, are what the storage saw."""
    (story,) = stories_of("single-committer")
    (put,) = [step for step in story.steps if step.call.startswith("put_if_absent")]
    assert put.call == "put_if_absent snapshot-1" and put.call not in put.calls_before
    kinds = [call.split()[0] for call in put.calls_before]
    assert kinds.count("write_new") + kinds.count("open_output") >= 3 and any("manifest" in call for call in put.calls_before)


def test_lanes_stand_in_the_order_of_names_within_a_kind() -> None:
    (story,) = [story for story in stories_of("lost-deletion-vectors") if "off" in story.checks]
    assert story.steps[0].who == "compactor 2"
    assert Parsed(story_page("", "", [story])).heads[0][1:-1] == ["compactor 1", "compactor 2"]


def test_calls_stand_in_front_of_the_sentence_where_lanes_are_narrow() -> None:
    story = Story("many", ("off",))
    for number in range(MAX_WIDE_LANES + 1):
        story.record(f"writer {number}", "puts it", call=f"put_if_absent snapshot-{number}")
    parsed = Parsed(story_page("", "", [story]))
    assert [row["lanes"].index("*") for row in parsed.rows[1:]] == list(range(MAX_WIDE_LANES + 1))
    assert parsed.rows[1]["text"].startswith("1put_if_absent snapshot-0 writer 0 puts it")


def test_every_text_is_escaped() -> None:
    story = Story(HOSTILE, (HOSTILE,), HOSTILE, rows=[HOSTILE], violations=[HOSTILE])
    story.bucket_before, story.bucket_after = [HOSTILE], [HOSTILE]
    story.called(HOSTILE, HOSTILE)
    story.record(HOSTILE, HOSTILE, HOSTILE, call=f"{HOSTILE} 2", is_conflict=True)
    story.end(False, HOSTILE)
    page = story_page(HOSTILE, HOSTILE, [story])
    texts = "".join(Parsed(page).texts)
    assert "<script" not in page and "\x1b" not in page and texts.count("<script>alert(1)</script>\"'&") >= 13


class TestCommands:
    def test_a_case_is_written_once(self, tmp_path: Path) -> None:
        target = tmp_path / "story.html"
        done = run("run", "lost-deletion-vectors", "--html", str(target))
        assert done.exit_code == 0 and "2 runs, 1 with an anomaly" in done.stdout
        page = target.read_text()
        assert "<h1>lost-deletion-vectors: " in page and "A deletion vector says" in page
        again = run("run", "lost-deletion-vectors", "--html", str(target))
        assert again.exit_code == 2 and "exists" in again.stderr and target.read_text() == page
        forced = run("run", "merge-disorder", "--html", str(target), "--force", "-o", "json")
        item = json.loads(forced.stdout)["item"]
        assert item == {"html": str(target), "size": len(target.read_bytes()), "runs": 2, "anomalies": 1}

    def test_a_refused_case_leaves_no_file(self, tmp_path: Path) -> None:
        done = run("run", "crush", "--html", str(tmp_path / "story.html"))
        assert done.exit_code == 2 and list(tmp_path.iterdir()) == []

    def test_a_minimized_find_and_its_replay(self, tmp_path: Path) -> None:
        found, again = tmp_path / "find.html", tmp_path / "replay.html"
        done = run("check", "--actors", "writer,writer", "--store", "unsafe", "--minimize", "--html", str(found))
        assert done.exit_code == 4 and f"wrote {found}: 1 run, 1 with an anomaly" in done.stdout
        replayed = run("check", "--actors", "writer,writer", "--store", "unsafe", "--replay", "0,0,0,0,0,1", "--html", str(again))
        assert replayed.exit_code == 4
        sections = [re.search("<section>.*</section>", path.read_text(), re.DOTALL) for path in (found, again)]
        assert sections[0] and sections[1] and sections[0][0] == sections[1][0]
        (conflict,) = [row for row in Parsed(found.read_text()).rows if row["conflict"]]
        assert "overwrite snapshot-3" in conflict["text"] and "writer 1 writes snapshot-3" in conflict["text"]

    def test_a_replay_without_a_page_ends_as_one_with_it(self) -> None:
        safe = run("check", "--actors", "writer,writer", "--replay", "0,0,0,0,0,1")
        unsafe = run("check", "--actors", "writer,writer", "--store", "unsafe", "--replay", "0,0,0,0,0,1")
        assert (safe.exit_code, unsafe.exit_code) == (0, 4)

    def test_nothing_found_is_said_on_the_page(self, tmp_path: Path) -> None:
        target = tmp_path / "find.html"
        assert run("check", "--actors", "twin", "--minimize", "--html", str(target)).exit_code == 0
        assert "nothing found; no finds are expected" in target.read_text()

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("run", "crash", "--force"), "--force without --html"),
            (("check", "--force"), "--force without --html"),
            (("check", "--html", "x.html"), "--html needs --minimize or --replay"),
            (("run", "granularity", "--html", "x.html"), "--html with the case granularity"),
        ],
    )
    def test_what_cannot_be_honoured_is_an_error(self, arguments: tuple[str, ...], message: str) -> None:
        done = run(*arguments)
        assert done.exit_code == 2 and message in done.stderr


def test_a_schedule_as_a_story_says_what_it_found() -> None:
    request = CheckRequest(("counter", "counter"), minimize=True)
    (find,) = check_interleavings(request, lambda: True).finds
    story = story_of(request, find.schedule)
    assert story.violations == find.violations and not story.is_correct and find.replay in story.verdict
    assert [f"{s.who} {s.what}{f': {s.outcome}' if s.outcome else ''}" for s in story.steps] == find.story
