"""Increments of random histories (`read --incremental`, each mode), compared with what commits added and what versions held.

    python -m scripts.nightly.increments --tables 400 --jobs 2 --seed 7

Prints a JSON line. Each difference names the seed of its table, which `--table SEED` replays; the exit code is 1 if there is one.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from scripts.nightly.pool import each
from tests.properties.increments import play

STEPS = 40


def try_one(seed: str) -> tuple[str, int, str]:
    """Try the table of this seed. Returns the seed, the number of ranges that were read, and what differed."""
    with tempfile.TemporaryDirectory(prefix="increments-") as folder:
        try:
            return seed, play(Path(folder), seed, STEPS), ""
        except AssertionError as difference:
            return seed, 0, str(difference)
        except Exception as failure:  # whatever fails, the seed that reproduces it must be printed
            return seed, 0, f"{type(failure).__name__}: {failure}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=400)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--table", help="the seed of a table that differed")
    arguments = parser.parse_args()
    if arguments.table:
        print(try_one(arguments.table)[2] or "no difference")
        return 0
    begun = time.monotonic()
    seeds = [f"{arguments.seed}-{number}" for number in range(arguments.tables)]
    done = list(each(arguments.jobs, try_one, seeds))
    differences = [(seed, text) for seed, _, text in done if text]
    line = {"measure": "increments", "tables": len(done), "ranges": sum(ranges for _, ranges, _ in done)}
    seconds = round(time.monotonic() - begun, 1)
    print(json.dumps({**line, "differences": len(differences), "seed": arguments.seed, "seconds": seconds}))
    for seed, text in differences[:20]:
        print(f"table {seed}: {text}", file=sys.stderr)
    return int(bool(differences))


if __name__ == "__main__":
    sys.exit(main())
