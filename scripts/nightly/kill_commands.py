"""Kills expire, orphans rm, rollback, tags, branches, drop-partition, truncate, compact and repair at random moments.

    python -m scripts.nightly.kill_commands --kills 280

Prints a JSON line. The exit code is 1 if a table could not be read afterwards, `verify` found something, or a command could not
be repeated.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from tests.processes.killed_commands import kill_commands


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=280)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kills-") as folder:
        figures = kill_commands(Path(folder), arguments.kills, arguments.seed)
    print(json.dumps({"measure": "kill_commands", **figures.as_json()}))
    for complaint in figures.wrong[:20]:
        print(complaint, file=sys.stderr)
    return 1 if figures.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
