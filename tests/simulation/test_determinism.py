"""The same schedule makes the same bytes: else a replay line would be worth nothing."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from paimon_cli.lab.simulation import script
from paimon_cli.lab.simulation.actor import Actor
from paimon_cli.lab.simulation.actor_jobs import rows, writer
from paimon_cli.lab.simulation.exploration import Result, explore
from paimon_cli.lab.simulation.real_files import forget
from paimon_cli.lab.simulation.run import Run, replay
from paimon_cli.lab.simulation.scenario import Scenario
from paimon_cli.lab.simulation.schedule import ScheduledStep, parse_schedule, schedule_text
from tests.simulation.scenarios import scenario

ROOT = Path(__file__).parents[2]


def _random_schedule(name: str, seed: int) -> tuple[list[ScheduledStep], str]:
    """A schedule to its end, and the digest of the disk that it leaves."""
    chance = random.Random(seed)
    run = Run(scenario(name))
    while not run.is_over:
        run.take(chance.choice(run.choices() if chance.random() < 0.05 else run.calls()))
    run.discard()
    return run.steps, run.disk.image()


def test_a_hundred_schedules_twice() -> None:
    images = set()
    for seed in range(100):
        name = ("writers-compactor", "writer-compactor-expiry", "checked-counter", "twins")[seed % 4]
        steps, image = _random_schedule(name, seed)
        assert replay(scenario(name), steps).disk.image() == image
        images.add(image)
    assert len(images) > 50, "the schedules are not all alike"


def test_real_parquet_twice() -> None:
    steps, image = _random_schedule("real-writers-compactor", 3)
    assert replay(scenario("real-writers-compactor"), steps).disk.image() == image


def _explored(name: str) -> tuple[Result, set[str]]:
    """All that a search finds, and the disks at its ends."""
    ends = set[str]()
    return explore(scenario(name), on_end=lambda run: ends.add(run.disk.image())), ends


@pytest.mark.parametrize("name", ["checked-writers", "compactor-expiry", "vectors-levels"])
def test_jobs_that_run_again_follow_their_scripts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    forget()
    with_scripts = _explored(name)
    monkeypatch.setattr(script, "_MAX_LINES", 20)
    assert _explored(name) == with_scripts
    assert with_scripts[0].complete and with_scripts[0].states > 200


def test_a_job_that_follows_from_more_than_its_answers_is_found() -> None:
    """Its second process does not do what its script says."""
    processes = 0

    def moody(actor: Actor) -> None:
        nonlocal processes
        processes += 1
        storage, layout = actor.context.storage, actor.context.layout
        storage.exists(f"{layout.root}/mood-{processes}")
        storage.list_directory(layout.snapshot_directory)

    jobs = (moody, writer("a", rows(0, 1)))
    with pytest.raises(RuntimeError, match="after the same answers"):
        explore(Scenario("moody", jobs))


def test_another_process_with_other_hashes() -> None:
    steps, image = _random_schedule("writer-compactor-expiry", 5)
    command = [
        sys.executable,
        "scripts/replay_schedule.py",
        "writer-compactor-expiry",
        "--schedule",
        schedule_text(steps),
        "--image",
    ]
    done = subprocess.run(
        command, cwd=ROOT, env={"PYTHONHASHSEED": "12345", "PATH": ""}, capture_output=True, text=True, check=True
    )
    assert done.stdout.split()[-1] == image


@pytest.mark.parametrize("text", ["", "0", "0,1,1c,0c3,2u,1n,0o,1e,2r"])
def test_schedules_as_text(text: str) -> None:
    assert schedule_text(parse_schedule(text)) == text


def test_no_schedule() -> None:
    with pytest.raises(ValueError, match="'1x' is not a step"):
        parse_schedule("0,1x")
