"""Random steps of the library on tables of all kinds, with crashes and rivals, beside a model of what they must hold.

    python -m scripts.nightly.model --steps 50000 --jobs 2 --seed 7

The last line is a JSON object with the number of steps made. Each difference is printed with its story and the seed of its table,
which `--table KIND:SEED` replays. The exit code is 1 if there was a difference.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from scripts.nightly.pool import each
from tests.model.play import KINDS, STEPS_OF_A_TABLE, play

TABLES_OF_A_TASK = 10


def play_many(task: tuple[str, str]) -> tuple[Counter[str], list[tuple[str, str]]]:
    """What came to pass, and the differences by `KIND:SEED`."""
    kind, seed = task
    counted, differences = Counter[str](), []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(TABLES_OF_A_TASK):
            counted["steps"] += STEPS_OF_A_TABLE
            try:
                world = play(Path(folder), kind, f"{seed}-{number}")
            except AssertionError as difference:
                differences.append((f"{kind}:{seed}-{number}", str(difference)))
                continue
            counted.update(
                crashes=world.crashes, rivals=world.rivals, thirds=world.thirds, refusals=world.refusals, clones=world.clones
            )
    return counted, differences


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--table", help="KIND:SEED of a difference")
    arguments = parser.parse_args()
    if arguments.table:
        kind, _, seed = arguments.table.partition(":")
        with tempfile.TemporaryDirectory() as folder:
            play(Path(folder), kind, seed)
        print("no difference")
        return 0
    begun = time.monotonic()
    count = -(-arguments.steps // (STEPS_OF_A_TABLE * TABLES_OF_A_TASK))
    tasks = [(KINDS[number % len(KINDS)], f"{arguments.seed}-{number}") for number in range(count)]
    counted, found = Counter[str](), 0
    for more, differences in each(arguments.jobs, play_many, tasks):
        counted += more
        found += len(differences)
        for name, story in differences:
            print(f"difference in {name}\n{story}\n", flush=True)
    line = {"measure": "model", **counted, "differences": found, "seed": arguments.seed}
    print(json.dumps({**line, "seconds": round(time.monotonic() - begun, 1)}))
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main())
