"""Looking at snapshots is quick because it loads no engine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.goldens import golden_table

HEAVY = ("pyarrow", "pyspark", "pandas", "numpy", "sqlglot", "fsspec", "yaml")
PROGRAM = """
import sys
from paimon_cli.cli.app import app
try:
    app({arguments!r})
except SystemExit as end:
    assert not end.code, end.code
loaded = [name for name in {heavy!r} if name in sys.modules]
sys.exit(f"loaded {{loaded}}" if loaded else 0)
"""


@pytest.mark.parametrize(
    "command",
    [
        "snapshots ls",
        "snapshots ls -o json",
        "snapshots show",
        "manifests ls",
        "schemas ls",
        "schemas show",
        "options ls",
        "tags ls",
    ],
)
def test_metadata_commands_load_no_engine(tmp_path: Path, command: str) -> None:
    table = golden_table("java-0.9", "tags_and_expire", tmp_path)
    noun, verb, *options = command.split()
    program = PROGRAM.format(arguments=[noun, verb, str(table), *options], heavy=HEAVY)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_help_and_version_load_no_engine() -> None:
    for arguments in (["--version"], ["--help"], ["write", "--help"]):
        program = PROGRAM.format(arguments=arguments, heavy=HEAVY)
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
