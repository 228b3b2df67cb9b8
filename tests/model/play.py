"""One table under random steps. A seed gives the same table, steps, crashes and rivals each time."""

from __future__ import annotations

import random
from pathlib import Path

from paimon_cli.lab.simulation.actor import IN_TURN
from paimon_cli.storage.threads import running_by
from tests.model.steps import Steps
from tests.model.world import World
from tests.properties.shapes import APPEND, ENGINES, random_layout

KINDS = (*ENGINES, APPEND)
STEPS_OF_A_TABLE = 40


def play(folder: Path, kind: str, seed: str) -> World:
    """A table of this kind under `STEPS_OF_A_TABLE` steps.

    Raises `AssertionError`, with its story, where it is not as it must be.
    """
    dice = random.Random(f"{kind}-{seed}")
    world = World(folder, random_layout(kind, dice), seed)
    steps = Steps(world, dice)
    try:
        with running_by(IN_TURN):
            for _ in range(STEPS_OF_A_TABLE):
                steps.random_step()
            world.check()
            world.check_files()
    except AssertionError:
        raise
    except Exception as failure:  # whatever fails, the steps that led to it must be told
        raise AssertionError(world.story(repr(failure))) from failure
    finally:
        world.close()
    return world
