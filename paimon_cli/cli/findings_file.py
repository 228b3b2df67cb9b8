"""Findings as a file for CI servers: JUnit XML or SARIF (`--report`)."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from paimon_cli import __version__
from paimon_cli.cli.command_groups import RAW_ARGUMENTS
from paimon_cli.errors import UsageError

SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
FORMS = JUNIT, SARIF = "junit", "sarif"
FAILING = ("error",)
"""The severities that are failures unless a command says otherwise."""
SARIF_LEVELS = {"advice": "note"}
"""SARIF's words for severities, where they are others."""
SIGNS_OF_PATHS = "/:@$=,+"
"""What a URI need not escape in the path of a file or the name of a table."""


def _given_once(context: typer.Context, parameter: typer.CallbackParam, report: Any) -> Any:
    """Refuse a second `--report`, of which the parser would keep only the last without a word."""
    _, _, order = context.command.make_parser(context).parse_args(list(context.meta[RAW_ARGUMENTS]))
    if sum(given.name == parameter.name for given in order) > 1:
        raise UsageError("--report was given several times", "a run writes one report", "give --report once")
    return report


ReportFile = Annotated[
    tuple[str, Path] | None,
    typer.Option(
        "--report", metavar="junit|sarif FILE", help="Also write the findings to FILE, for CI servers.", callback=_given_once
    ),
]


NotRun = Mapping[tuple[str, str], str]
"""Why a check could not run, by table and code."""
NO_REASONS: NotRun = {}


@dataclass(frozen=True)
class ReportedFinding:
    """A finding in such a file. `place`: the path or the subject in `table` that it is about."""

    table: str
    code: str
    severity: str
    place: str
    message: str
    path: str


def check_form(report: tuple[str, Path] | None) -> None:
    """Raise `UsageError` for another form than these two, or a file that cannot be written, before anything is done.

    The file is not made yet: an empty one would look like a report of a run that fails.
    """
    if report is None:
        return
    form, path = report
    if form not in FORMS:
        raise UsageError(f"--report {form} is neither junit nor sarif", hint="--report junit FILE")
    hint = "name a file in a directory that exists and can be written"
    if path.is_dir():
        raise UsageError(f"cannot write {path}", "it is a directory", hint)
    if not path.parent.is_dir():
        raise UsageError(f"cannot write {path}", f"there is no directory {path.parent}", hint)
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UsageError(f"cannot write {path}", "permission denied", hint)


def write_report(
    report: tuple[str, Path],
    command: str,
    tables: Sequence[str],
    rules: Mapping[str, str],
    findings: Sequence[ReportedFinding],
    failing: Sequence[str] = FAILING,
    not_run: NotRun = NO_REASONS,
) -> None:
    """Write what `command` has found in tables. `rules`: meanings by code; `failing`: the severities that exit with 4.

    What `not_run` names is not reported as passed.
    """
    form, path = report
    content = _junit(command, tables, rules, findings, failing, not_run) if form == JUNIT else _sarif(rules, findings, not_run)
    try:
        path.write_bytes(content)
    except OSError as error:
        raise UsageError(f"cannot write {path}", error.strerror or str(error)) from error


def _junit(
    command: str,
    tables: Sequence[str],
    rules: Mapping[str, str],
    findings: Sequence[ReportedFinding],
    failing: Sequence[str],
    not_run: NotRun,
) -> bytes:
    """One test case per table and rule; findings that do not fail are output of theirs. A check that found something has run."""
    from xml.etree import ElementTree as Xml

    def plain(text: str) -> str:
        """Replace control characters, most of which XML cannot represent."""
        return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)

    of_case: dict[tuple[str, str], list[ReportedFinding]] = {}
    for finding in findings:
        of_case.setdefault((finding.table, finding.code), []).append(finding)
    failed = {key for key, found in of_case.items() if key[1] in rules and any(one.severity in failing for one in found)}
    skipped = {key: why for key, why in not_run.items() if key not in of_case and key[0] in tables and key[1] in rules}
    suites = Xml.Element("testsuites")
    counts = {"tests": len(rules) * len(tables), "failures": len(failed), "errors": 0, "skipped": len(skipped)}
    suite = Xml.SubElement(suites, "testsuite", {"name": f"paimon-cli {command}", **{key: str(n) for key, n in counts.items()}})
    for table in tables:
        for code, meaning in rules.items():
            case = Xml.SubElement(suite, "testcase", {"classname": plain(table), "name": f"{code} {meaning}"})
            for finding in of_case.get((table, code), ()):
                text = plain(f"{finding.place}: {finding.message}")
                if finding.severity in failing:
                    Xml.SubElement(case, "failure", {"type": code, "message": text})
                else:
                    Xml.SubElement(case, "system-out").text = f"{finding.severity}: {text}"
            if (why := skipped.get((table, code))) is not None:
                Xml.SubElement(case, "skipped", {"message": plain(why)})
    Xml.indent(suites)
    return bytes(Xml.tostring(suites, encoding="utf-8", xml_declaration=True)) + b"\n"


def _sarif(rules: Mapping[str, str], findings: Sequence[ReportedFinding], not_run: NotRun) -> bytes:
    described = [{"id": code, "shortDescription": {"text": meaning}} for code, meaning in rules.items()]
    results: list[dict[str, Any]] = [
        {
            "ruleId": finding.code,
            "level": SARIF_LEVELS.get(finding.severity, finding.severity),
            "message": {"text": finding.message},
            "locations": [{"physicalLocation": {"artifactLocation": {"uri": quote(finding.path, safe=SIGNS_OF_PATHS)}}}],
        }
        for finding in findings
    ]
    uri = "https://paimon.apache.org/"
    driver = {"name": "paimon-cli", "version": __version__, "informationUri": uri, "rules": described}
    notifications = [
        {"level": "warning", "message": {"text": f"{table}: could not be checked: {why}"}, "associatedRule": {"id": code}}
        for (table, code), why in not_run.items()
        if code in rules
    ]
    told = {"invocations": [{"executionSuccessful": True, "toolExecutionNotifications": notifications}]} if notifications else {}
    run = {"tool": {"driver": driver}, **told, "results": results}
    report = {"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(report, indent=2).encode() + b"\n"
