"""Each case shows its anomaly with the check off and none with it on, the same in every run."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from paimon_cli.cli.app import app
from paimon_cli.errors import UsageError
from paimon_cli.lab.case_catalog import CASES, Case, run_case
from paimon_cli.lab.story import Story

HARMLESS = [case for case in CASES if case.anomaly == "none"]
CURED = [case for case in CASES if case.anomaly not in ("none", "lost snapshot")]


def only(stories: list[Story], check: str) -> Story:
    (story,) = [story for story in stories if check in story.checks]
    return story


@pytest.mark.parametrize("case", HARMLESS, ids=lambda case: case.name)
def test_no_anomaly_whatever_the_check(case: Case) -> None:
    stories = run_case(case.name)
    assert all(story.is_correct and story.steps and not story.violations for story in stories)


@pytest.mark.parametrize("case", CURED, ids=lambda case: case.name)
@pytest.mark.parametrize("check", ["bucket", "partition"])
def test_an_anomaly_that_the_check_cures(case: Case, check: str) -> None:
    stories = run_case(case.name, ("off", check))
    assert not only(stories, "off").is_correct and only(stories, "off").steps
    assert only(stories, check).is_correct


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_same_in_every_run(case: Case) -> None:
    assert run_case(case.name, seed=4) == run_case(case.name, seed=4)


def test_the_seed_decides_the_order() -> None:
    assert run_case("topology-1", ("off",), 1)[0].steps != run_case("topology-1", ("off",), 2)[0].steps


class TestStories:
    def test_merge_disorder(self) -> None:
        off, on = run_case("merge-disorder")
        assert off.rows[0] == "k=1, v=8" and off.violations[0].startswith("PV023 warning")
        assert on.rows[0] == "k=1, v=9" and not on.violations
        assert any("PC-CONFLICT-DATA" in step.what for step in on.steps)

    def test_lost_updates(self) -> None:
        off, on = run_case("lost-update-columns")
        assert off.rows == ["name=jack, fav_color=Red, fav_hobby=Cycling"]
        assert on.rows == ["name=jack, fav_color=Blue, fav_hobby=Cycling"]
        assert [story.rows for story in run_case("lost-update-counter")] == [["name=jack, points=2"], ["name=jack, points=3"]]

    def test_a_lost_race_rewrites_metadata_only(self) -> None:
        (story,) = run_case("snapshot-conflict")
        told = [(step.who, step.what) for step in story.steps]
        assert told.count(("writer A", "puts snapshot-1")) == 1 and ("writer A", "puts snapshot-2") in told
        assert sum("writes data file" in what for _, what in told) == 2, "one each, none for the second attempt"

    def test_files_conflict_names_file_and_remover(self) -> None:
        (story,) = run_case("files-conflict")
        (abort,) = [step for step in story.steps if "exit 5" in step.what]
        assert "data file W1 of bucket-0 is not in the table any more" in abort.outcome
        assert "user compactor 1" in abort.outcome
        assert any(step.what == "deletes data file C2" for step in story.steps)

    def test_a_store_that_overwrites_loses_a_snapshot(self) -> None:
        rename, conditional = run_case("unsafe-rename")
        assert (rename.store, rename.is_correct) == ("rename", False)
        assert (conditional.store, conditional.is_correct) == ("put-if-absent", True)

    def test_crashes_at_every_call(self) -> None:
        (story,) = run_case("crash")
        before, after = (sum(f"readers see {value}" in step.outcome for step in story.steps) for value in ("old", "new"))
        assert before > 10 and after >= 3 and len(story.steps) == before + after


class TestCommands:
    def run(self, *arguments: str) -> Any:
        return CliRunner().invoke(app, ["lab", *arguments], catch_exceptions=False)

    def test_ls(self) -> None:
        done = self.run("ls", "-o", "json")
        assert [item["name"] for item in json.loads(done.stdout)["items"]] == [case.name for case in CASES]

    @pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
    def test_run_as_text(self, case: Case) -> None:
        done = self.run("run", case.name)
        assert done.exit_code == 0
        assert done.stdout.startswith(case.name) and ("correct: " in done.stdout or "ANOMALY: " in done.stdout)

    def test_run_as_json(self) -> None:
        done = self.run("run", "merge-disorder", "-o", "json", "--data-conflict-check", "bucket")
        (item,) = json.loads(done.stdout)["items"]
        assert item["checks"] == ["bucket"] and item["is_correct"] is True
        assert item["steps"][0] == {"step": 1, "who": "writer A", "what": "writes data file A1", "outcome": "bucket-0"}

    def test_an_unknown_case(self) -> None:
        with pytest.raises(UsageError, match="no case 'nothing'"):
            run_case("nothing")
