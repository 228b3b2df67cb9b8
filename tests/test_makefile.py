"""`make setup` takes a Python that paimon-cli can run on, or says which it needs; the checks of a commit run whole."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

MAKEFILE = Path(__file__).parent.parent / "Makefile"

PYTHON = f"""\
#!/bin/sh
case "$1" in
  -c) exec {sys.executable} -c 'import sys; sys.version_info = (VERSION); exec(sys.argv[1])' "$2" ;;
  *) mkdir -p "$3/bin" && echo 'echo "$@" >> installed' > "$3/bin/python" && chmod +x "$3/bin/python" && echo "$0" > chosen ;;
esac
"""
"""A program that takes itself for another version. Its virtual environments are empty."""


def set_up(folder: Path, versions: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `make setup` with these programs, and the versions that they have, as the only ones on the PATH."""
    programs = folder / "programs"
    programs.mkdir()
    for name in ("make", "sh", "mkdir", "chmod", "touch", "rm"):
        (programs / name).symlink_to(shutil.which(name) or pytest.fail(f"no {name}"))
    for name, version in versions.items():
        (programs / name).write_text(PYTHON.replace("VERSION", version.replace(".", ", ")))
        (programs / name).chmod(0o755)
    (folder / "Makefile").write_text(MAKEFILE.read_text())
    (folder / "pyproject.toml").touch()
    (folder / "requirements.lock").touch()
    environment = {
        name: value for name, value in os.environ.items() if name not in ("PYTHON", "MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    }
    command = ["make", "setup", *arguments]
    return subprocess.run(command, cwd=folder, env={**environment, "PATH": str(programs)}, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("versions", "chosen"),
    [
        ({"python3": "3.13", "python3.10": "3.10"}, "python3"),
        ({"python3": "3.9", "python3.10": "3.10", "python3.12": "3.12"}, "python3.12"),
        ({"python3.10": "3.10"}, "python3.10"),
    ],
)
def test_python3_is_taken_or_the_newest_if_it_is_too_old_or_missing(
    tmp_path: Path, versions: dict[str, str], chosen: str
) -> None:
    done = set_up(tmp_path, versions)
    assert done.returncode == 0, done.stderr
    assert Path((tmp_path / "chosen").read_text().strip()).name == chosen
    assert (tmp_path / ".venv" / ".installed").exists()


@pytest.mark.parametrize(
    ("versions", "arguments"), [({"python3": "3.9"}, ()), ({}, ()), ({"python3": "3.13", "old": "3.8"}, ("PYTHON=old",))]
)
def test_an_old_python_gets_no_environment(tmp_path: Path, versions: dict[str, str], arguments: tuple[str, ...]) -> None:
    """It would be taken for the finished one by the next `make`, with a better Python."""
    done = set_up(tmp_path, versions, *arguments)
    assert done.returncode != 0
    assert "paimon-cli needs Python 3.10 or newer with ensurepip and venv: make PYTHON=/path/to/python" in done.stderr
    assert not (tmp_path / ".venv").exists()


def test_locked_setup_installs_nothing_that_is_not_in_the_lock_file(tmp_path: Path) -> None:
    done = set_up(tmp_path, {"python3": "3.13"}, "LOCKED=1")
    assert done.returncode == 0, done.stderr
    packages, own = (tmp_path / "installed").read_text().splitlines()
    assert "--require-hashes --requirement requirements.lock" in packages
    assert {"--no-index", "--no-deps", "--no-build-isolation"} <= set(own.split())
    assert (tmp_path / ".venv" / ".installed-locked").exists() and not (tmp_path / ".venv" / ".installed").exists()


MAKE = """\
#!/bin/sh
echo "$1 ran"
case "$1" in
  setup) exit 0 ;;
  can-check) exit CAN ;;
  check) exit CHECK ;;
  test) echo "== 3 passed in 1.2s =="; echo "done"; exit TEST ;;
esac
"""
"""A `make` whose targets end with the given codes."""


@pytest.mark.parametrize(
    ("can", "check", "test", "code"), [(0, 0, 0, 0), (0, 2, 0, 2), (0, 0, 1, 1), (0, 2, 1, 1), (2, 0, 0, 0), (2, 0, 1, 1)]
)
def test_the_check_of_a_commit_checks_and_tests(tmp_path: Path, can: int, check: int, test: int, code: int) -> None:
    """The tests run whatever the check finds, and Python 3.10, which cannot check, is no failure."""
    program = tmp_path / "make"
    program.write_text(MAKE.replace("CAN", str(can)).replace("CHECK", str(check)).replace("TEST", str(test)))
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run([MAKEFILE.parent / ".ci" / "run"], env=environment, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert [line.removesuffix(" ran") for line in lines if line.endswith(" ran")] == [
        "setup",
        "can-check",
        *(["check"] if not can else []),
        "test",
    ]
    assert lines[-1] == "== 3 passed in 1.2s =="
    assert ("make check failed" in done.stdout) == bool(check)
    assert done.returncode == code


@pytest.mark.parametrize(("version", "able"), [("3.10", False), ("3.11", True), ("3.13", True)])
def test_a_python_that_cannot_check_says_why(tmp_path: Path, version: str, able: bool) -> None:
    """The version is asked before the other parts run."""
    made = set_up(tmp_path, {"python3": "3.13"})
    assert made.returncode == 0, made.stderr
    own = tmp_path / ".venv" / "bin" / "python"
    own.write_text(PYTHON.replace("VERSION", version.replace(".", ", ")))
    done = subprocess.run(["make", "can-check"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode == 0) == able
    assert ("make check needs Python 3.11 or newer" in done.stderr) == (not able)


def test_the_hooks_before_a_commit_run_what_the_check_runs() -> None:
    """Without a network: each hook uses what `make setup` has installed."""
    [repository] = yaml.safe_load((MAKEFILE.parent / ".pre-commit-config.yaml").read_text())["repos"]
    assert repository["repo"] == "local"
    assert [hook["id"] for hook in repository["hooks"]] == ["ruff", "ruff-format", "mypy", "lint-imports"]
    assert {hook["language"] for hook in repository["hooks"]} == {"system"}
    recipe = subprocess.run(["make", "-n", "check"], cwd=MAKEFILE.parent, capture_output=True, text=True).stdout
    for command in ("ruff check .", "ruff format --check .", "-m mypy", "lint-imports"):
        assert command in recipe
