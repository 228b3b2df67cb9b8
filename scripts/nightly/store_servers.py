"""Runs the tests of Azure and Google Cloud Storage, and a race of processes, against Azurite and fake-gcs-server.

    python -m scripts.nightly.store_servers                                                # the programs on PATH
    python -m scripts.nightly.store_servers --azurite DIR/node_modules/.bin/azurite-blob --fake-gcs-server DIR/fake-gcs-server
    npm install azurite                                                                    # Node 20 or newer
    GOBIN=DIR go install github.com/fsouza/fake-gcs-server@latest                          # takes minutes

Prints a JSON line for each. The exit code is 1 if a test failed, or a round did not have exactly one winner; 77 if neither
program was found.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from scripts.nightly.kill_processes import PROGRAMS
from scripts.nightly.race_put_if_absent import race
from scripts.nightly.run_all import CANNOT_RUN
from tests.storage.store_servers import NotInstalled, StoreProgram
from tests.storage.test_other_object_stores import PROGRAMS as TESTED

ROOT = Path(__file__).resolve().parents[2]
TESTS = "tests/storage/test_other_object_stores.py"


def tests_pass(name: str, program: StoreProgram) -> bool:
    """Run the tests of a store: all outcomes of a put, lost responses, bodies that are cut off, whole commands."""
    environment = {**os.environ, TESTED[name][1]: program.path}
    words = [sys.executable, "-m", "pytest", "-q", "-m", "nightly or not nightly", "-k", name, TESTS]
    return subprocess.run(words, cwd=ROOT, env=environment, stdout=sys.stderr).returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in PROGRAMS:
        parser.add_argument(f"--{name}", dest=name, help="its path; default: the one on PATH")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--processes", type=int, default=8)
    arguments = parser.parse_args()
    ran, failed = 0, False
    for name, kind in PROGRAMS.items():
        try:
            program = kind(getattr(arguments, name))
        except NotInstalled as missing:
            print(missing, file=sys.stderr)
            continue
        with program:
            raced = race(program.new_bucket(), program.options(), arguments.processes, arguments.rounds)
        passed = tests_pass(name, program)
        print(json.dumps({"measure": f"store_servers {name}", **asdict(raced), "tests": "passed" if passed else "failed"}))
        ran, failed = ran + 1, failed or bool(raced.failures) or not passed
    return int(failed) if ran else CANNOT_RUN


if __name__ == "__main__":
    sys.exit(main())
