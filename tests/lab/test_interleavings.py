"""`lab check`: nothing in safe configurations, the known anomalies in unsafe ones, and replay lines that show them again."""

from __future__ import annotations

import json
import shlex
from itertools import pairwise
from typing import Any

import pytest
from typer.testing import CliRunner

from paimon_cli.cli.app import app
from paimon_cli.lab.cast import ACTOR_KINDS
from paimon_cli.lab.interleavings import CheckReport, CheckRequest, ReplayedSchedule, check_interleavings, replay_schedule


def checked(actors: str, **request: Any) -> CheckReport:
    return check_interleavings(CheckRequest(tuple(actors.split(",")), **request), lambda: True)


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["lab", "check", *arguments])


@pytest.mark.parametrize("store", ["put-if-absent", "lock"])
@pytest.mark.parametrize(("actors", "check"), [("writer,writer", "off"), ("rival,rival", "bucket"), ("rival,rival", "range")])
def test_safe_configurations_are_clean_in_every_order(actors: str, check: str, store: str) -> None:
    report = checked(actors, store=store, data_conflict_check=check)
    assert report.is_safe and report.is_complete and report.finds == [] and report.states > 150


@pytest.mark.parametrize(
    ("actors", "request_", "sign"),
    [
        ("writer,writer", {"store": "unsafe"}, "snapshot 3 was published twice: that of writer-"),
        ("rival,rival", {}, "rows at snapshot 4 are"),
        ("counter,counter", {}, "lost update: 2 increments were acknowledged, the counter is 1"),
        ("overwriter,rival", {"store": "unsafe", "data_conflict_check": "bucket"}, "was published twice"),
    ],
)
def test_unsafe_configurations_show_their_anomaly_and_replay_it(actors: str, request_: dict[str, Any], sign: str) -> None:
    report = checked(actors, **request_)
    (find,) = report.finds
    assert not report.is_safe and sign in find.violations[0]
    replayed = replay_schedule(CheckRequest(tuple(actors.split(",")), **request_), find.schedule)
    assert replayed.violations == find.violations and len(replayed.steps) >= find.schedule.count(",") + 1
    again = run(*shlex.split(find.replay)[3:], "-o", "json")
    assert again.exit_code == 4 and json.loads(again.stdout)["item"]["violations"] == find.violations


def test_every_kind_of_actor_beside_faults() -> None:
    """With JSON files; `test_cast` has those that need Parquet files."""
    kinds = [kind for kind in ACTOR_KINDS if kind not in ("counter", "marker", "assigner", "rescaler")]
    for first in range(0, len(kinds), 2):
        actors = ",".join(["writer", "compactor", *kinds[first : first + 2]])
        report = checked(actors, seed=7, schedules=12, faults=1, data_conflict_check="bucket")
        assert report.is_safe and report.finds == [] and report.schedules >= 10, actors


def test_a_tag_whose_put_is_not_answered_is_no_find() -> None:
    """The command says that the outcome is unknown, and does not put again."""
    report = checked("writer,tagger", faults=1, depth=0)
    assert report.is_complete and report.finds == []


def test_a_crashed_holder_of_the_lock_is_followed() -> None:
    report = checked("writer,writer", store="lock", faults=1, depth=1)
    assert report.is_complete and report.finds == [] and report.schedules > 100


def test_the_seed_decides() -> None:
    one, same, other = (checked("rival,rival,compactor", seed=seed, schedules=40, finds=3) for seed in (1, 1, 2))
    assert one == same and one != other


@pytest.mark.parametrize(
    ("actors", "request_"),
    [
        ("writer,writer", {"store": "unsafe"}),
        ("counter,counter", {}),
        ("rival,rival,compactor", {"seed": 5}),
        ("writer,writer", {"store": "unsafe", "faults": 1, "seed": 2}),
    ],
)
def test_a_minimized_schedule_fails_and_loses_its_violation_with_any_step(actors: str, request_: dict[str, Any]) -> None:
    (find,), (shrunk,) = (checked(actors, **request_, minimize=minimize).finds for minimize in (False, True))
    assert len(shrunk.schedule.split(",")) < len(find.schedule.split(",")) and not find.story
    request = CheckRequest(tuple(actors.split(",")), **request_)
    assert replay_schedule(request, shrunk.schedule).violations == shrunk.violations != []
    steps, switches = shrunk.schedule.split(","), switches_of(replay_schedule(request, shrunk.schedule))
    for without in range(len(steps)):
        shorter = replay_schedule(request, ",".join(steps[:without] + steps[without + 1 :]))
        assert not shorter.violations or switches_of(shorter) > switches


def switches_of(replayed: ReplayedSchedule) -> int:
    return sum(one.actor != other.actor for one, other in pairwise(replayed.steps))


def test_a_minimized_find_is_told_in_words() -> None:
    (find,) = checked("writer,writer", store="unsafe", minimize=True).finds
    assert find.story == [
        "writer 1 looks at the newest snapshot",
        "writer 2 looks at the newest snapshot",
        "writer 2 writes snapshot-3, whatever is there",
        "writer 2 writes the hint LATEST",
        "writer 1 writes snapshot-3, whatever is there",
    ]


class TestCommand:
    def test_a_find_is_printed_with_its_replay_line(self) -> None:
        done = run("--actors", "writer,writer", "--store", "unsafe")
        assert done.exit_code == 4 and "finds are expected" in done.stdout
        line = next(line for line in done.stdout.splitlines() if line.startswith("replay: "))
        again = run(*shlex.split(line)[4:])
        assert again.exit_code == 4 and "VIOLATION snapshot 3 was published twice" in again.stdout
        assert "overwrite snapshot/snapshot-3" in again.stdout

    def test_nothing_found_is_exit_0(self) -> None:
        done = run("--actors", "twin,twin", "--depth", "1", "-o", "json")
        item = json.loads(done.stdout)["item"]
        assert done.exit_code == 0 and item["is_complete"] and item["finds"] == [] and item["is_safe"]

    def test_it_ends_within_its_time(self) -> None:
        done = run("--actors", "writer,writer,writer,compactor", "--time-limit", "1 ms", "-o", "json")
        assert done.exit_code == 0 and json.loads(done.stdout)["item"]["is_complete"] is False

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("--actors", "nobody"), "unknown actor 'nobody'"),
            (("--actors", ""), "0 actors"),
            (("--data-conflict-check", "key"), "is not one of"),
            (("--option", "merge-engine=first-row"), "--option merge-engine is not supported here"),
            (("--option", "commit.nonsense=1"), "--option commit.nonsense is not supported here"),
            (("--option", "s3.endpoint=x"), "--option s3.endpoint is not supported here"),
            (("--depth", "1", "--seed", "1"), "--depth cannot be combined with --seed"),
            (("--replay", "0,1x"), "not a schedule"),
            (("--replay", "0,1,3"), "step 3 is of actor 3, and the actors are numbered 0 to 2"),
            (("--replay", "0,1", "--seed", "1"), "--seed cannot be combined with --replay"),
            (("--replay", "0,1", "--finds", "2"), "--finds cannot be combined with --replay"),
            (("--replay", "0,1", "--time-limit", "9 s"), "--time-limit cannot be combined with --replay"),
            (("--replay", "0,1", "--minimize"), "--minimize cannot be combined with --replay"),
            (("--option", "commit.max-retries=many"), "option 'commit.max-retries' cannot be 'many'"),
            (("--option", "num-levels=1"), "option 'num-levels' cannot be '1'"),
            (("--option", "snapshot.num-retained.min=0"), "option 'snapshot.num-retained.min' cannot be '0'"),
            (("--actors", "compactor,tagger", "--rounds", "2"), "--rounds does not apply to these actors"),
            (("--actors", "counter,overwriter"), "counter and overwriter cannot be combined"),
            (("--actors", "restorer,counter"), "counter and restorer cannot be combined"),
        ],
    )
    def test_what_cannot_be_honoured_is_an_error(self, arguments: tuple[str, ...], message: str) -> None:
        done = run(*arguments)
        assert done.exit_code == 2 and message in done.stderr

    @pytest.mark.parametrize("option", ["manifest.format=orc", "commit.callbacks=java.Class"])
    def test_what_no_actor_could_do_is_refused_at_once(self, option: str) -> None:
        done = run("--actors", "writer,compactor", "--option", option)
        assert done.exit_code == 8 and option in done.stderr and "bug" not in done.stderr

    def test_a_minimized_find_is_printed_as_a_story(self) -> None:
        done = run("--actors", "counter,counter", "--minimize")
        assert done.exit_code == 4 and "   1  counter 1 looks at the newest snapshot\n" in done.stdout
        line = next(line for line in done.stdout.splitlines() if line.startswith("replay: "))
        assert "lost update" in run(*shlex.split(line)[4:]).stdout

    def test_options_are_honoured(self) -> None:
        """A commit that may not be tried again loses against any other one."""
        done = run("--actors", "writer,writer", "--option", "commit.max-retries=0", "-o", "json")
        assert "StorageUnavailable" in json.loads(done.stdout)["item"]["finds"][0]["violations"][0]
