"""Two faults in one run, or one in a run and one in its repetition, drawn with a fixed seed: what single faults cannot show.

    python -m scripts.nightly.pairs_of_faults --pairs 100000 --jobs 4

Prints a JSON line. The exit code is 1 if something was lost, duplicated or left half done. Each failure names the command that
repeats it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from scripts.nightly.pool import each
from tests.faults.figures import Figures
from tests.faults.operations import OPERATIONS
from tests.faults.runs import Pairs, memory_runs
from tests.simulation.quick_metadata import quick_metadata

PORTION = 2000
"""Pairs of one task."""


def try_pairs(task: tuple[str, int, int]) -> Figures:
    """Try pairs of faults. `task`: the operation, the seed, and the number of pairs."""
    name, seed, pairs = task
    with tempfile.TemporaryDirectory(prefix="pairs-") as folder, quick_metadata():
        runs = memory_runs(OPERATIONS[name], Path(folder))
        drawn = Pairs(runs, seed)
        for _ in range(pairs):
            drawn.try_one()
    return runs.figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=4)
    arguments = parser.parse_args()
    begun = time.monotonic()
    names = sorted(OPERATIONS)
    portions = [min(PORTION, arguments.pairs - done) for done in range(0, arguments.pairs, PORTION)]
    tasks = [(names[i % len(names)], arguments.seed * 1_000_000 + i, size) for i, size in enumerate(portions)]
    figures = Figures()
    for found in each(arguments.jobs, try_pairs, tasks):
        figures.add(found)
    seconds = round(time.monotonic() - begun, 1)
    line = {"measure": "pairs_of_faults", "operations": len(names), "seed": arguments.seed, **figures.as_json()}
    print(json.dumps({**line, "seconds": seconds}))
    for failure in figures.failures[:20]:
        print(failure, file=sys.stderr)
    return 1 if figures.failures else 0


if __name__ == "__main__":
    sys.exit(main())
