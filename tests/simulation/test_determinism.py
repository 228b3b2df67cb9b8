"""The same schedule makes the same bytes: else a replay line would be worth nothing."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from paimon_cli.lab.simulation.run import Run, replay
from paimon_cli.lab.simulation.schedule import GO, Step, parse_schedule, schedule_text
from tests.simulation.scenarios import scenario

ROOT = Path(__file__).parents[2]


def _random_schedule(name: str, seed: int) -> tuple[list[Step], str]:
    """A schedule to its end, and the digest of the disk that it leaves."""
    chance = random.Random(seed)
    run = Run(scenario(name))
    while not run.is_over:
        choices = list(run.choices())
        going = [step for step in choices if step.fault == GO]
        run.take(chance.choice(choices if chance.random() < 0.05 else going))
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
    with pytest.raises(ValueError, match="'1x' is no step"):
        parse_schedule("0,1x")
