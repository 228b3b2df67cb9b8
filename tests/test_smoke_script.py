"""`scripts/smoke.sh`, what a user's CI would run, passes without a JVM and fails when the program does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def run_smoke(program: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PAIMON_CLI": str(program), "ENGINE": "local", "JAVA_HOME": "/nowhere", "PYTHONPATH": str(ROOT)}
    return subprocess.run([ROOT / "scripts" / "smoke.sh"], capture_output=True, text=True, env=environment)


def program(folder: Path, script: str) -> Path:
    path = folder / "paimon-cli"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.mark.nightly
def test_each_step_gives_what_it_must(tmp_path: Path) -> None:
    done = run_smoke(program(tmp_path, f'exec {sys.executable} -m paimon_cli "$@"'))
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("2,oat milk,1.90\n3,bread,2.80\nsmoke test passed\n")
    for checked in ("snapshots ls", "manifests ls: ", "expire leaves the live files", "verify"):
        assert f"\nok: {checked}" in done.stdout


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("broken", "found"),
    [
        ('[ "$1$3" = writetuesday.csv ] && set -- write "$2" monday.csv --stage tuesday.stage', "reads merge the runs"),
        ('[ "$1" = verify ] && { echo "1 errors, 0 warnings in 0.0 s"; exit 0; }', "verify"),
    ],
)
def test_a_step_that_does_not_do_its_work_is_found(tmp_path: Path, broken: str, found: str) -> None:
    done = run_smoke(program(tmp_path, f'{broken}\nexec {sys.executable} -m paimon_cli "$@"'))
    assert done.returncode == 1
    assert f"smoke test FAILED: {found}" in done.stderr


def test_a_command_that_fails_fails_the_test(tmp_path: Path) -> None:
    assert run_smoke(program(tmp_path, "exit 5")).returncode == 5
