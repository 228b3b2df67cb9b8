"""Commands whose system calls fail with EIO, ENOSPC, EROFS or EACCES, once or from then on, at a random call.

    python -m scripts.nightly.system_faults --faults 2000

The program compiles a small library and starts itself again with that library loaded before the C library; without a C compiler
it cannot run (exit code 77). Prints a JSON line. The exit code is 1 if a command reported something false, ended with a
traceback, or left a table that could not be used.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from scripts.nightly.run_all import CANNOT_RUN
from tests.processes.system_faults import compiled, compiler, try_faults

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="commands whose text contains this")
    arguments = parser.parse_args()
    if not sys.platform.startswith("linux") or compiler() is None:
        print(
            json.dumps(
                {"measure": "system_faults", "faults": 0, "cannot_run": "it takes Linux and a C compiler (cc, gcc, clang)"}
            )
        )
        return CANNOT_RUN
    if "LD_PRELOAD" not in os.environ:
        with tempfile.TemporaryDirectory(prefix="library-") as folder:
            environment = {**os.environ, "LD_PRELOAD": str(compiled(Path(folder)))}
            command = [sys.executable, "-m", "scripts.nightly.system_faults", *sys.argv[1:]]
            return subprocess.run(command, env=environment, cwd=ROOT).returncode
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        library = Path(os.environ["LD_PRELOAD"])
        figures = try_faults(Path(folder), library, arguments.faults, arguments.seed, arguments.only)
    print(json.dumps({"measure": "system_faults", **figures.as_json(), "wrong": len(figures.wrong)}))
    for complaint in figures.wrong[:20]:
        print(complaint, file=sys.stderr)
    return 1 if figures.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
