"""`version`: versions of paimon-cli and of the libraries that it uses."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from importlib import metadata

import typer

from paimon_cli import __version__
from paimon_cli.cli.command import Call, command
from paimon_cli.cli.results import Column, Item
from paimon_cli.errors import UsageError

LIBRARIES = ("pyarrow", "numpy", "pandas", "pyspark", "fastavro", "fsspec", "typer")
COLUMNS = tuple(Column(name, name) for name in ("paimon_cli", "python", *LIBRARIES, "java"))


@dataclass(frozen=True)
class Versions:
    """The version of each component as text; None if it is not installed."""

    paimon_cli: str
    python: str
    pyarrow: str | None
    numpy: str | None
    pandas: str | None
    pyspark: str | None
    fastavro: str | None
    fsspec: str | None
    typer: str | None
    java: str | None


def register(app: typer.Typer, panel: str) -> None:
    command(app, "version", rich_help_panel=panel)(version)


def version(call: Call) -> None:
    """Print the versions of paimon-cli and its dependencies."""
    libraries = {name: _installed(name) for name in LIBRARIES}
    call.show(Item("Version", None, COLUMNS, Versions(__version__, platform.python_version(), **libraries, java=_java())))


def _java() -> str | None:
    """The version and home of the Java that Spark would use."""
    from paimon_cli.jobs.spark.java_runtime import find_java

    try:
        java = find_java(os.environ)
    except UsageError:
        return None
    return f"{java.version} at {java.home}"


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
