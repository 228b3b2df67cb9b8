"""Metadata that claims huge counts, nests deeply or expands without end, read by commands in processes of their own.

    python -m scripts.nightly.manifest_bombs

Prints a JSON line. The exit code is 1 if a command crashed, printed a traceback, did not end, or allocated what the bomb claims.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from tests.hostile.bombs import COMMANDS, bombs, meet


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="bombs whose name contains this")
    parser.add_argument("--commands", type=int, default=len(COMMANDS), help="number of commands")
    arguments = parser.parse_args()
    begun, met = time.monotonic(), []
    with tempfile.TemporaryDirectory(prefix="bombs-") as folder:
        for name, root in bombs(Path(folder)):
            if arguments.only in name:
                met += [meet(root, name, command) for command in COMMANDS[: arguments.commands]]
    if not met:
        parser.error(f"no bomb has {arguments.only!r} in its name, or no command is left")
    wrong = [one for one in met if one.complaint]
    line = {"measure": "manifest_bombs", "bombs": len({one.bomb for one in met}), "commands": len(met), "wrong": len(wrong)}
    most = {"most_megabytes": max(one.memory for one in met) >> 20, "most_cpu_seconds": round(max(one.seconds for one in met), 1)}
    print(json.dumps({**line, **most, "seconds": round(time.monotonic() - begun, 1)}))
    for one in wrong[:20]:
        print(f"{one.bomb}, {one.command}: {one.complaint}", file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
