"""Tables with one false field in one metadata file, met by every command.

    python -m scripts.nightly.false_fields --cases 20000

Prints a JSON line. The exit code is 1 if a command ended as a bug, with a traceback, after too long, showed or changed a file
outside of the table, or read other rows than the sound table has without an error. Fields that have that meaning are listed in
`tests/hostile/false_fields`.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

from tests.hostile.false_fields import Trial

IN_MEMORY = "/dev/shm"
"""Where there is such a file system: half of the time went into tables that were copied and deleted."""
MAX_ADDRESSES = 12 << 30
"""Bytes of memory that may be mapped; a claim of 2^40 bytes fails at once."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=45, help="begin no case after this time")
    arguments = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MAX_ADDRESSES, MAX_ADDRESSES))
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="false-fields-", dir=IN_MEMORY if os.path.isdir(IN_MEMORY) else None) as folder:
        trial = Trial(Path(folder))
        false_values = len(trial.all_lies())
        for lie, command in trial.pairs(arguments.cases, arguments.seed):
            if time.monotonic() - begun > arguments.minutes * 60:
                break
            known = len(trial.figures.faults)
            trial.run(lie, command)
            for fault in trial.figures.faults[known:]:
                print(fault, file=sys.stderr, flush=True)
            if trial.figures.cases % 1000 == 0:
                print(f"{trial.figures.cases} cases after {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
    figures = trial.figures
    codes = {f"exit_{code}": count for code, count in sorted(figures.codes.items())}
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    line = {
        "measure": "false_fields",
        "false_values": false_values,
        "cases": figures.cases,
        **codes,
        "faults": len(figures.faults),
    }
    print(json.dumps({**line, "megabytes": memory, "seed": arguments.seed, "seconds": round(time.monotonic() - begun, 1)}))
    return int(bool(figures.faults))


if __name__ == "__main__":
    sys.exit(main())
