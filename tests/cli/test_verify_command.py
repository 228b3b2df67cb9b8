"""`verify` as a user runs it: text, JSON, reports, exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.cli.calling import Run
from tests.goldens import golden_table
from tests.invariants.damaged_tables import keyed_table


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return keyed_table(tmp_path)


def test_a_sound_table(run: Run, table: Path) -> None:
    text = run("verify", table, "--level", "full").out
    assert "0 errors, 0 warnings" in text and "sorted-runs   ok" in text
    assert run("verify", table, "-o", "json").json["items"] == []


def test_a_damaged_table(run: Run, table: Path) -> None:
    victim = next(table.glob("dt=a/bucket-0/*"))
    victim.unlink()
    text = run("verify", table, code=4).out
    assert f"PV012  {victim}" in text and "hint: paimon-cli repair" in text
    items = run("verify", table, "--only", "PV012", "-o", "json", code=4).json["items"]
    assert {key: items[0][key] for key in ("code", "severity", "path")} == {
        "code": "PV012",
        "severity": "error",
        "path": str(victim),
    }
    assert run("verify", table, "--level", "meta").code == 0, "metadata alone does not show it"
    assert run("verify", table, "--only", "chain,hints").code == 0


def test_warnings_fail_only_when_asked(run: Run, tmp_path: Path) -> None:
    table = golden_table("pypaimon-2.1", "rowkind_deletes", tmp_path)
    assert "PV044" in run("verify", table, "--level", "full").out
    run("verify", table, "--level", "full", "--fail-on", "warn", code=4)


def test_reports(run: Run, table: Path, tmp_path: Path) -> None:
    (table / "snapshot/LATEST").write_text("99")
    junit, sarif = tmp_path / "j.xml", tmp_path / "s.json"
    run("verify", table, "--report", "junit", junit, code=4)
    suite = ElementTree.parse(junit).getroot()[0]
    assert suite.attrib["failures"] == "1" and len(suite.findall("testcase/failure")) == 1
    run("verify", table, "--report", "sarif", sarif, code=4)
    done = json.loads(sarif.read_text())["runs"][0]
    assert [result["ruleId"] for result in done["results"]] == ["PV003"]
    assert "PV003" in {rule["id"] for rule in done["tool"]["driver"]["rules"]}
    run("verify", table, "--report", "html", tmp_path / "x", code=2)
    run("verify", table, "--report", "junit", tmp_path / "no" / "where", code=2)


def test_single_snapshots(run: Run, table: Path) -> None:
    assert "@ snapshot 2 " in run("verify", table, "--snapshot", 2).out
    run("verify", table, "--snapshot", 9, code=3)
    run("verify", table, "--snapshot", 2, "--all-snapshots", code=2)


def test_the_catalogue(run: Run) -> None:
    items = run("verify", "--list", "-o", "json").json["items"]
    assert len(items) >= 45 and items[0]["code"] == "PV001"
    run("verify", code=2)


def test_unknown_checks(run: Run, table: Path) -> None:
    assert "no check 'chains'" in run("verify", table, "--only", "chains", code=2).err
