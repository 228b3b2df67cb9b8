"""Random operations on tables of all merge engines and bucket modes, checked by a plain oracle, in several processes.

    python -m scripts.nightly.properties --steps 1000000 --jobs 2 --seed 7

The last line is a JSON object with the number of steps made. Each difference is printed with the seed of its table, which
`--table ENGINE:SEED` replays. The exit code is 1 if there was a difference.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from scripts.nightly.pool import each
from tests.properties.shapes import APPEND, ENGINES, random_layout
from tests.properties.trial import Trial

KINDS = (*ENGINES, APPEND)
STEPS_OF_A_TABLE = 50
TABLES_OF_A_TASK = 20


def play(engine: str, seed: str) -> tuple[str, int, str | None]:
    """Play one table. Returns its initial bucket mode, the number of steps made, and the story of a difference."""
    dice = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(Path(folder), random_layout(engine, dice))
        kind = trial.context.mode.bucket_mode.name
        try:
            for _ in range(STEPS_OF_A_TABLE):
                trial.random_step(dice)
            trial.check()
        except AssertionError as difference:
            return kind, len(trial.steps), str(difference)
        except Exception as failure:  # whatever fails, the seed that reproduces it must be printed
            return kind, len(trial.steps), trial.story(repr(failure))
        finally:
            trial.close()
    return kind, len(trial.steps), None


def play_many(task: tuple[str, str, int]) -> tuple[Counter[str], list[tuple[str, str]]]:
    """The number of steps made by engine and bucket mode, and the differences."""
    engine, seed, tables = task
    made, differences = Counter[str](), []
    for number in range(tables):
        kind, steps, story = play(engine, f"{seed}-{number}")
        made.update({engine: steps, f"{kind}_buckets": steps})
        if story is not None:
            differences.append((f"{engine}:{seed}-{number}", story))
    return made, differences


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--steps", type=int, default=1_000_000, help="steps to try on all engines and append tables; a few have no effect"
    )
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--table", help="ENGINE:SEED of a difference")
    arguments = parser.parse_args()
    if arguments.table:
        engine, _, seed = arguments.table.partition(":")
        print(play(engine, seed)[2] or "no difference")
        return 0
    begun = time.monotonic()
    of_a_task = STEPS_OF_A_TABLE * TABLES_OF_A_TASK
    tasks = [
        (KINDS[number % len(KINDS)], f"{arguments.seed}-{number}", TABLES_OF_A_TASK)
        for number in range(-(-arguments.steps // of_a_task))
    ]
    made: Counter[str] = Counter()
    found = 0
    for steps, differences in each(arguments.jobs, play_many, tasks):
        made += steps
        for name, story in differences:
            found += 1
            print(f"difference in {name}\n{story}\n", flush=True)
    figures = {f"steps_{engine}": steps for engine, steps in sorted(made.items())}
    seconds = round(time.monotonic() - begun, 1)
    line = {
        "measure": "properties",
        "steps": sum(made[engine] for engine in KINDS),
        **figures,
        "differences": found,
        "seed": arguments.seed,
    }
    print(json.dumps({**line, "seconds": seconds}))
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main())
