"""Reports for CI servers: what fails is counted, whatever else the same check has found."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from paimon_cli.cli.findings_file import JUNIT, SARIF, ReportedFinding, write_report

RULES = {"PV001": "one", "PV002": "two", "PV003": "three"}


def found(code: str, severity: str, table: str = "shop.t") -> ReportedFinding:
    return ReportedFinding(table, code, severity, "here", f"{code} is {severity}", "shop.db/t")


@pytest.mark.parametrize("order", [1, -1])
def test_a_check_fails_by_its_worst_finding(tmp_path: Path, order: int) -> None:
    """The count of failures is what servers read first."""
    findings = [found("PV001", "error"), found("PV001", "warning"), found("PV002", "warning")][::order]
    not_run = {("shop.t", "PV003"): "no time", ("shop.t", "PV001"): "it has found something", ("shop.u", "PV001"): "locked"}
    file = tmp_path / "report.xml"
    write_report((JUNIT, file), "verify", ["shop.t", "shop.u"], RULES, findings, not_run=not_run)
    (suite,) = ElementTree.parse(file).getroot()
    assert {name: suite.get(name) for name in ("tests", "failures", "skipped")} == {"tests": "6", "failures": "1", "skipped": "2"}
    cases = {(case.get("classname"), str(case.get("name"))[:5]): [part.tag for part in case] for case in suite}
    assert sorted(cases["shop.t", "PV001"]) == ["failure", "system-out"]
    assert cases["shop.t", "PV002"] == ["system-out"] and cases["shop.u", "PV002"] == []
    assert [key for key, tags in cases.items() if tags == ["skipped"]] == [("shop.t", "PV003"), ("shop.u", "PV001")]


def test_sarif_has_all_findings_and_what_was_not_checked(tmp_path: Path) -> None:
    file = tmp_path / "report.sarif"
    findings = [found("PV001", "error"), found("PV001", "advice"), found("PV002", "warning")]
    write_report((SARIF, file), "verify", ["shop.t"], RULES, findings, not_run={("shop.t", "PV003"): "no time"})
    (run,) = json.loads(file.read_text())["runs"]
    assert [(one["ruleId"], one["level"]) for one in run["results"]] == [
        ("PV001", "error"),
        ("PV001", "note"),
        ("PV002", "warning"),
    ]
    (notice,) = run["invocations"][0]["toolExecutionNotifications"]
    assert notice["associatedRule"] == {"id": "PV003"} and "no time" in notice["message"]["text"]
