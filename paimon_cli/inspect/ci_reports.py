"""Findings in formats that build servers read: JUnit XML and SARIF 2.1.0."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape, quoteattr

from paimon_cli.invariants.violation import ERROR, Violation

TOOL, TOOL_URI = "paimon-cli", "https://paimon.apache.org/"
SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
JUNIT, SARIF = "junit", "sarif"


def document(form: str, table: str, rules: Mapping[str, str], findings: Sequence[Violation], version: str) -> str:
    """The report as text. `form`: junit or sarif. `rules`: the rules that were checked, by code."""
    return _junit(table, rules, findings) if form == JUNIT else _sarif(rules, findings, version)


def _junit(table: str, rules: Mapping[str, str], findings: Sequence[Violation]) -> str:
    """One test case for each rule; warnings are not failures."""
    by_code: dict[str, list[Violation]] = {}
    for finding in findings:
        by_code.setdefault(finding.code, []).append(finding)
    failed = sum(any(f.severity == ERROR for f in by_code.get(code, ())) for code in rules)
    head = f'<testsuite name="{TOOL} verify" tests="{len(rules)}" failures="{failed}" errors="0" skipped="0">'
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', "<testsuites>", f"  {head}"]
    for code, meaning in rules.items():
        lines.append(f"    <testcase classname={quoteattr(table)} name={quoteattr(f'{code} {meaning}')}>")
        for finding in by_code.get(code, ()):
            text = f"{finding.path}: {finding.message}"
            if finding.severity == ERROR:
                lines.append(f"      <failure type={quoteattr(code)} message={quoteattr(_plain(text))}/>")
            else:
                lines.append(f"      <system-out>{escape(_plain(f'warning: {text}'))}</system-out>")
        lines.append("    </testcase>")
    return "\n".join([*lines, "  </testsuite>", "</testsuites>", ""])


def _plain(text: str) -> str:
    """The text without control characters, most of which XML cannot represent."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def _sarif(rules: Mapping[str, str], findings: Sequence[Violation], version: str) -> str:
    described = [{"id": code, "shortDescription": {"text": meaning}} for code, meaning in rules.items()]
    results = [
        {
            "ruleId": finding.code,
            "level": finding.severity,
            "message": {"text": finding.message},
            "locations": [{"physicalLocation": {"artifactLocation": {"uri": finding.path}}}],
        }
        for finding in findings
    ]
    driver = {"name": TOOL, "version": version, "informationUri": TOOL_URI, "rules": described}
    run = {"tool": {"driver": driver}, "results": results}
    return json.dumps({"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2, ensure_ascii=False) + "\n"
