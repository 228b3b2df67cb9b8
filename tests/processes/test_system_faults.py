"""A few of the faults of `scripts.nightly.system_faults`, whose program says so where it cannot run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.processes.system_faults import compiler

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "scripts.nightly.system_faults"]


def test_commands_whose_system_calls_fail_report_what_is_true() -> None:
    command = [*COMMAND, "--faults", "2", "--only", "drop-partition"]
    synced = {name: value for name, value in os.environ.items() if name != "TEST_UNSYNCED"}  # its syncs fail, too
    done = subprocess.run(command, cwd=ROOT, env=synced, capture_output=True, text=True)
    figures = json.loads(done.stdout)
    if not sys.platform.startswith("linux") or compiler() is None:
        assert done.returncode == 77 and "compiler" in figures["cannot_run"]
        return
    assert done.returncode == 0, done.stderr
    assert figures["faults"] == 2 and figures["calls"] > 50 and figures["wrong"] == 0


def test_without_a_compiler_it_is_reported(tmp_path: Path) -> None:
    done = subprocess.run(COMMAND, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "PATH": str(tmp_path)})
    assert done.returncode == 77 and "compiler" in json.loads(done.stdout)["cannot_run"]
