"""`scripts/smoke.sh`, what a user's CI would run, passes without a JVM and fails when the program does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def run_smoke(program: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PAIMON_CLI": str(program), "ENGINE": "local", "JAVA_HOME": "/nowhere", "PYTHONPATH": str(ROOT)}
    return subprocess.run([ROOT / "scripts" / "smoke.sh"], capture_output=True, text=True, env=environment)


def program(folder: Path, script: str) -> Path:
    path = folder / "paimon-cli"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_create_write_compact_and_read_give_the_expected_rows(tmp_path: Path) -> None:
    done = run_smoke(program(tmp_path, f'exec {sys.executable} -m paimon_cli "$@"'))
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith('{"id":3,"item":"bread","amount":"2.80"}\nsmoke test passed\n')
    assert "COMPACT" in done.stdout


def test_wrong_rows_and_failing_commands_fail(tmp_path: Path) -> None:
    lost = program(tmp_path, f'[ "$1" = write ] && [ "$3" = tuesday.json ] || exec {sys.executable} -m paimon_cli "$@"')
    assert run_smoke(lost).returncode != 0
    assert run_smoke(program(tmp_path, "exit 5")).returncode == 5
