"""Writers, compactions, expiries, tags and consumers whose clocks jump back and forth at every reading.

    python -m scripts.nightly.clock_jumps --tables 300 --seed 7

Prints a JSON line. Each failure names the seed of its table, which `--table SEED` replays; the exit code is 1 if there is one.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from scripts.nightly.pool import each
from tests.faults.clock_jumps import play

STEPS = 40


def try_one(seed: str) -> tuple[str, str]:
    """Try the table of this seed. Returns the seed and what went wrong."""
    with tempfile.TemporaryDirectory(prefix="clocks-") as folder:
        try:
            play(Path(folder), seed, STEPS)
        except Exception as failure:  # whatever fails, the seed that reproduces it must be printed
            return seed, f"{type(failure).__name__}: {failure}"
    return seed, ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=300)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--table", help="the seed of a table that failed")
    arguments = parser.parse_args()
    if arguments.table:
        print(try_one(arguments.table)[1] or "nothing wrong")
        return 0
    begun = time.monotonic()
    done = list(each(arguments.jobs, try_one, (f"{arguments.seed}-{number}" for number in range(arguments.tables))))
    wrong = [(seed, text) for seed, text in done if text]
    line = {
        "measure": "clock_jumps",
        "tables": len(done),
        "steps": len(done) * STEPS,
        "wrong": len(wrong),
        "seed": arguments.seed,
    }
    print(json.dumps({**line, "seconds": round(time.monotonic() - begun, 1)}))
    for seed, text in wrong[:20]:
        print(f"table {seed}: {text}", file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
