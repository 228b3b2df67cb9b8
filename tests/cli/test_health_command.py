"""`health`: figures, a verdict, and commands that mend what is found; a warehouse by how much care its tables need."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

import pytest

from paimon_cli import Catalog, Table
from paimon_cli.api.definition import Alter
from paimon_cli.api.maintenance import Maintenance
from paimon_cli.errors import CommitUnknown, StorageUnavailable
from paimon_cli.history.table_context import TableContext
from paimon_cli.inspect.findings import history_rules
from paimon_cli.inspect.findings.examined_table import ExaminedTable
from paimon_cli.inspect.findings.runner import findings_of
from tests.cli.calling import Run
from tests.rivals import beside
from tests.tables import make_table, write

COLUMNS = {"id": "INT NOT NULL", "n": "INT"}


@pytest.fixture
def warehouse(tmp_path: Path) -> str:
    """A table with more sorted runs than its writers bear, a sound one, and one whose schema is damaged."""
    for name, commits in (("crowded", 9), ("sound", 2), ("broken", 1)):
        table = make_table(tmp_path / "shop.db" / name, COLUMNS, ["id"], options={"write-only": "true"})
        for number in range(commits):
            write(table, [{"id": 1, "n": number}])
    (tmp_path / "shop.db" / "broken" / "schema" / "schema-0").write_text("{")
    return str(tmp_path)


def test_a_warehouse_is_sorted_by_urgency(run: Run, warehouse: str) -> None:
    shown = run("health", "--warehouse", warehouse, "-o", "json", code=4)
    assert [(row["table"], row["verdict"]) for row in shown.json["items"]] == [
        ("shop.broken", "unreadable"),
        ("shop.crowded", "needs care"),
        ("shop.sound", "healthy"),
    ]
    broken, crowded, sound = shown.json["items"]
    assert [finding["code"] for finding in broken["findings"]] == ["PD030"]
    assert (crowded["files"], crowded["most_runs"], crowded["snapshots"]) == (9, 9, 9)
    assert sound["findings"] == []
    assert run("health", "--database", "shop", "--warehouse", warehouse, "-o", "json", code=4).json["items"][0] == broken


def test_the_branch_of_a_call_is_that_of_each_listed_table(run: Run, tmp_path: Path) -> None:
    """The tables of a warehouse used to be examined, and mended, at their main branches."""
    context = make_table(tmp_path / "shop.db" / "t", COLUMNS, ["id"], options={"write-only": "true"})
    write(context, [{"id": 1, "n": 1}])
    table = Table.open(str(tmp_path / "shop.db" / "t"))
    table.branches.create("b", snapshot=1)
    for number in range(8):
        write(context.at_branch("b"), [{"id": 1, "n": number}])
    at_branch = ("--branch", "b", "--warehouse", tmp_path)
    (row,) = run("health", *at_branch, "-o", "json", code=4).json["items"]
    assert (row["table"], row["files"], [finding["code"] for finding in row["findings"]]) == ("shop.t$branch_b", 9, ["PD027"])
    assert {row["table"] for row in run("cost", *at_branch, "-o", "json").json["items"]} == {"shop.t$branch_b"}
    run("health", *at_branch, "--fix", "--yes", "--option", "write-only=false")
    assert [len(list(Table.open(str(table.url), branch=name).files())) for name in ("main", "b")] == [1, 1]
    assert run("health", "--database", "shop", "--branch", "none", "--warehouse", tmp_path, "-o", "json", code=4).json["items"]


def test_the_command_of_a_finding_mends_it(run: Run, warehouse: str) -> None:
    (row,) = run("health", "shop.crowded", "--warehouse", warehouse, "-o", "json", code=4).json["items"]
    (finding,) = row["findings"]
    assert finding["code"] == "PD027"
    program, *words = shlex.split(finding["command"])
    assert program == "paimon-cli"
    run(*words, "--engine", "local")
    mended = run("health", "shop.crowded", "--warehouse", warehouse)
    assert "shop.crowded" in mended.out and "healthy" in mended.out


def test_nothing_is_written(run: Run, warehouse: str) -> None:
    def everything() -> dict[str, int]:
        return {os.path.join(d, f): os.stat(os.path.join(d, f)).st_mtime_ns for d, _, fs in os.walk(warehouse) for f in fs}

    before = everything()
    run("health", "--warehouse", warehouse, code=4)
    assert everything() == before


def test_an_unknown_field_is_an_error_unless_something_was_mended(run: Run, warehouse: str) -> None:
    asked = ("health", "shop.crowded", "--warehouse", warehouse, "--fields", "mood")
    assert "error: --fields: there is no field 'mood'" in run(*asked, code=2).err
    assert "warning: --fields: there is no field 'mood'" in run(*asked, "--fix", "--yes").err


def test_a_table_that_is_not_there(run: Run, warehouse: str) -> None:
    run("health", "shop.none", "--warehouse", warehouse, code=3)
    run("health", "shop.sound", "--database", "shop", "--warehouse", warehouse, code=2)


def test_the_topology_is_told_on_request(run: Run, tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", COLUMNS, ["id"], options={"write-only": "true"})
    write(beside(table, lambda: write(table, [{"id": 1, "n": 1}])), [{"id": 1, "n": 2}])
    assert "PD029" not in run("health", table.url).out
    shown = run("health", table.url, "--topology", code=4).out
    command = f"paimon-cli alter {table.url} set commit.data-conflict-check=bucket"
    assert "PD029  topology: in the last 2 snapshots, 2 users wrote and committed" in shown and f"run: {command}" in shown
    run(*shlex.split(command)[1:])
    (row,) = run("health", table.url, "--topology", "-o", "json").json["items"]
    assert [(found["severity"], found["figures"]["unseen_commits"]) for found in row["findings"]] == [("ok", 1)]
    assert "OK" in run("health", table.url, "--topology").out


TRIGGER = "num-sorted-run.compaction-trigger"


def test_commands_of_findings_keep_the_options_of_the_call(run: Run, tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", COLUMNS, ["id"], options={"write-only": "true"})
    for number in range(3):
        write(table, [{"id": 1, "n": number}])
    (row,) = run("health", table.url, "--option", f"{TRIGGER}=3", "-o", "json", code=4).json["items"]
    (command,) = (finding["command"] for finding in row["findings"] if finding["code"] == "PD027")
    assert f"--option {TRIGGER}=3" in command
    assert "nothing to compact" not in run(*shlex.split(command)[1:], "--engine", "local").out
    assert "healthy" in run("health", table.url, "--option", f"{TRIGGER}=3").out


def test_commands_of_findings_keep_the_options_of_the_catalog(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    catalog = ("--option", "metastore=jdbc", "--option", "uri=jdbc:sqlite:c.db", "--warehouse", "jw")
    run("db", "create", "s", *catalog)
    run("create", "s.o", "-C", "id INT NOT NULL", "--primary-key", "id", "--bucket", "1", "--option", "write-only=true", *catalog)
    Path("rows.json").write_text('{"id": 1}')
    for _ in range(5):
        run("write", "s.o", "rows.json", *catalog)
    login = ("--option", "jdbc.password=hunter2")
    (row,) = run("health", "s.o", *catalog, *login, "-o", "json", code=4).json["items"]
    command = row["findings"][0]["command"]
    assert "--option metastore=jdbc --option uri=jdbc:sqlite:c.db" in command and "password" not in command
    run(*shlex.split(command)[1:], "--engine", "local")
    assert "healthy" in run("health", "s.o", *catalog).out


def test_a_misspelt_option_is_told_with_the_known_one(run: Run, tmp_path: Path) -> None:
    misspelt = TRIGGER.replace("trigger", "triger")
    stored = make_table(tmp_path / "t", COLUMNS, ["id"], options={misspelt: "3"})
    (found,) = run("health", stored.url, "-o", "json", code=4).json["items"][0]["findings"]
    assert f"did you mean '{TRIGGER}'?" in found["message"]
    run(*shlex.split(found["command"])[1:])
    assert "healthy" in run("health", stored.url).out
    (found,) = run("health", stored.url, "--option", f"{misspelt}=3", "-o", "json", code=4).json["items"][0]["findings"]
    assert "is an option of this call" in found["message"] and found["command"] == ""


@pytest.mark.parametrize("command", ["health", "describe"])
def test_an_option_of_the_call_that_cannot_be_read_is_one_finding(run: Run, tmp_path: Path, command: str) -> None:
    table = make_table(tmp_path / "t", COLUMNS, ["id"])
    write(table, [{"id": 1, "n": 1}])
    shown = run(command, table.url, "--option", f"{TRIGGER}=abc", code=0 if command == "describe" else 4).out
    assert shown.count("cannot be 'abc'") == 1 and "it is an option of this call" in shown
    assert "PD030" not in shown and "run: paimon-cli" not in shown


NONE: Mapping[str, str] = {}


def due(folder: Path, commits: int = 9, options: Mapping[str, str] = NONE) -> str:
    """A table with compactions that are due, and as many snapshots as its options do not keep."""
    kept = {"snapshot.num-retained.max": "10", "snapshot.num-retained.min": "2"}
    table = make_table(folder / "t", COLUMNS, ["id"], options={"write-only": "true", **kept, **options})
    for number in range(commits):
        write(table, [{"id": 1, "n": number}])
    return table.url


CROSSED = {"snapshot.num-retained.max": "2", "snapshot.num-retained.min": "5"}


def test_fix_runs_what_discards_nothing_and_shows_the_rest(run: Run, tmp_path: Path) -> None:
    url = due(tmp_path, 12, {"snapshot.num-retained.max": "3"})
    codes = {found["code"] for found in run("health", url, "-o", "json", code=4).json["items"][0]["findings"]}
    assert codes == {"PD011", "PD015", "PD027"}
    before = run("read", url, "-o", "ndjson").out
    done = run("health", url, "--fix", "--yes", code=4)
    assert f"done: paimon-cli compact {url} --strategy full" in done.out
    assert f"run: paimon-cli expire {url} --retain-max 3 --yes" in done.out and "left to you" in done.out
    assert run("snapshots", "ls", url, "-o", "json").json["items"][0]["kind"] == "COMPACT"
    assert len(run("snapshots", "ls", url, "-o", "json").json["items"]) == 13, "nothing has expired"
    assert run("read", url, "-o", "ndjson").out == before
    left = run("health", url, "--fix", "--yes", "-o", "json", code=4).json
    assert [found["code"] for found in left["items"][0]["findings"]] == ["PD015"] and left["fixes"] == []


def test_fix_does_not_compact_a_table_whose_old_rows_would_go(run: Run, tmp_path: Path) -> None:
    url = due(tmp_path, options={"record-level.expire-time": "1 d", "record-level.time-field": "n"})
    before = run("read", url, "-o", "ndjson").out
    answer = run("health", url, "--fix", "--yes", code=4)
    assert "--fix has nothing to do: what the findings propose discards something" in answer.out
    assert before and run("read", url, "-o", "ndjson").out == before


def test_fix_ends_with_0_if_nothing_is_left(run: Run, tmp_path: Path) -> None:
    url = due(tmp_path)
    answer = run("health", url, "--fix", "-y", "-o", "json").json
    assert [row["verdict"] for row in answer["items"]] == ["healthy"]
    assert [(step["state"], step["codes"], step["command"]) for step in answer["fixes"]] == [
        ("done", ["PD027"], f"paimon-cli compact {url} --strategy minor")
    ]


def test_fix_sets_options_before_it_compacts(run: Run, tmp_path: Path) -> None:
    url = due(tmp_path, options=CROSSED)
    answer = run("health", url, "--fix", "--yes", "-o", "json", code=4).json
    assert [step["command"] for step in answer["fixes"]] == [
        f"paimon-cli alter {url} set snapshot.num-retained.max=5",
        f"paimon-cli compact {url} --strategy minor",
    ]
    assert "5" in run("options", "ls", url, "--fields", "key,value").out.split("snapshot.num-retained.max")[1].split("\n")[0]
    assert [found["code"] for found in answer["items"][0]["findings"]] == ["PD015"]


def test_fix_does_not_remove_what_somebody_chose(run: Run, tmp_path: Path) -> None:
    """An unknown option may be a misspelt one: its value is lost if it is removed."""
    table = make_table(tmp_path / "t", COLUMNS, ["id"], options={TRIGGER.replace("trigger", "triger"): "3"})
    answer = run("health", table.url, "--fix", "--yes", "-o", "json", code=4).json
    assert answer["fixes"] == [] and answer["items"][0]["findings"][0]["command"].startswith("paimon-cli alter")
    assert "--fix has nothing to do" in run("health", table.url, "--fix", code=4).out


def test_fix_asks_once_and_a_dry_run_changes_nothing(run: Run, tmp_path: Path) -> None:
    url = due(tmp_path)

    def snapshots() -> int:
        return len(run("snapshots", "ls", url, "-o", "json").json["items"])

    before = snapshots()
    shown = run("health", url, "--fix", "--dry-run", code=4)
    assert f"run: paimon-cli health {url} --fix --yes" in shown.out
    planned = run("health", url, "--fix", "-n", "-o", "json", code=4).json
    assert [step["state"] for step in planned["fixes"]] == ["planned"]
    refused = run("health", url, "--fix", "-o", "json", code=7).error["message"]
    assert "without a terminal only --yes confirms it" in refused and f"(paimon-cli compact {url} --strategy minor)" in refused
    assert snapshots() == before
    for flag in ("--yes", "--dry-run"):
        assert f"{flag} needs --fix" in run("health", url, flag, code=2).err


def test_fix_of_a_warehouse(run: Run, warehouse: str) -> None:
    answer = run("health", "--warehouse", warehouse, "--fix", "--yes", "-o", "json", code=4).json
    assert [(row["table"], row["verdict"]) for row in answer["items"]] == [
        ("shop.broken", "unreadable"),
        ("shop.sound", "healthy"),
        ("shop.crowded", "healthy"),
    ]
    assert [(step["table"], step["state"]) for step in answer["fixes"]] == [("shop.crowded", "done")]


def test_a_fix_that_fails_does_not_stop_the_others(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = due(tmp_path, options=CROSSED)

    def fails(*given: object, **named: object) -> None:
        raise StorageUnavailable("the disk is full")

    monkeypatch.setattr(Alter, "set", fails)
    answer = run("health", url, "--fix", "--yes", "-o", "json", code=9)
    assert [(step["state"], step["message"]) for step in answer.json["fixes"]] == [("failed", "the disk is full"), ("done", "")]
    assert "1 of 2 steps failed" in answer.err
    monkeypatch.undo()
    monkeypatch.setattr(Maintenance, "compact", fails)
    run("health", due(tmp_path / "other"), "--fix", "--yes", code=6)

    def is_unclear(*given: object, **named: object) -> None:
        raise CommitUnknown("nobody knows")

    monkeypatch.setattr(Maintenance, "compact", is_unclear)
    run("health", due(tmp_path / "third", options=CROSSED), "--fix", "--yes", code=11)


@pytest.mark.parametrize("of_catalog", [False, True])
def test_damage_that_a_fix_meets_is_a_finding(tmp_path: Path, of_catalog: bool) -> None:
    """The rules read no data files, so the compaction is the first to miss one; to propose it again would help nobody."""
    url = due(tmp_path, 12, {"snapshot.num-retained.max": "3"})
    lost = min(Path(url).glob("bucket-0/data-*"))
    lost.unlink()
    planned = Catalog().plan_fixes([url]) if of_catalog else Table.open(url).plan_fix(argument=url)
    assert "PD030" not in {found.code for found in planned.plan.rows[0].findings}
    fixed = planned.run()
    (row,) = fixed.rows
    assert [step.state for step in fixed.steps] == ["failed"] and row.verdict == "critical"
    (damage,) = (found for found in row.findings if found.code == "PD030")
    assert lost.name in damage.message and damage.severity == "error"
    assert damage.command == f"paimon-cli verify {url} --level files"
    due_or_crowded = [found for found in row.findings if found.code in ("PD011", "PD027")]
    assert len(due_or_crowded) == 2 and not any(found.command or found.remedy for found in due_or_crowded)


def test_advice_is_mended_on_request(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_rules, "MANY_MANIFESTS", 4)
    table = make_table(tmp_path / "t", COLUMNS, ["id"], options={"write-only": "true", "manifest.merge-min-count": "99"})
    for number in range(8):
        write(table, [{"id": 1, "n": number}])
    run("compact", table.url)
    Table.open(table.url).alter.set({"manifest.merge-min-count": "2"})
    sarif = tmp_path / "advice.sarif"
    run("health", table.url, "--advice", "--report", "sarif", sarif)
    (result,) = json.loads(sarif.read_text())["runs"]
    assert {found["level"] for found in result["results"]} == {"note"}, "SARIF has no level for advice"
    assert run("health", table.url, "--fix", "-y", "-o", "json").json["fixes"] == []
    (fixed,) = run("health", table.url, "--fix", "--advice", "-y", "-o", "json").json["fixes"]
    assert (fixed["codes"], fixed["state"]) == (["PA004"], "done")
    assert run("health", table.url, "--advice", "-o", "json").json["items"][0]["findings"] == []


def test_the_library_fixes_too(tmp_path: Path) -> None:
    table = Table.open(due(tmp_path))
    planned = table.plan_fix(argument="t")
    assert [step.command for step in planned.plan.steps] == ["paimon-cli compact t --strategy minor"]
    assert table.health().verdict == "needs care"
    assert table.health(fix=True).verdict == "healthy" == table.health().verdict
    (row,) = Catalog().health([due(tmp_path / "other")], fix=True)
    assert row.verdict == "healthy"


def test_each_remedy_is_the_command_of_its_finding(tmp_path: Path) -> None:
    """`--fix` shows a command, and does what the remedy says."""
    table = TableContext.open(due(tmp_path, 12, CROSSED))
    found = [each for each in findings_of(ExaminedTable(table, "T")) if each.remedy is not None]
    assert {each.code for each in found} == {"PD011", "PD018", "PD027"}
    for each in found:
        remedy = each.remedy
        assert remedy is not None and remedy.command == each.command
        if remedy.strategy is not None:
            assert remedy.command == f"paimon-cli compact T --strategy {remedy.strategy}"
        else:
            assert remedy.command == "paimon-cli alter T set " + " ".join(f"{k}={v}" for k, v in remedy.options.items())


def test_reports_for_ci_servers(run: Run, warehouse: str, tmp_path: Path) -> None:
    junit, sarif = tmp_path / "health.xml", tmp_path / "health.sarif"
    run("health", "--warehouse", warehouse, "--report", "junit", junit, code=4)
    suite = ElementTree.parse(junit).getroot()[0]
    failed = {(case.get("classname"), (case.get("name") or "").split()[0]) for case in suite if case.find("failure") is not None}
    assert failed == {("shop.broken", "PD030"), ("shop.crowded", "PD027")} and suite.get("failures") == "2"
    assert int(suite.get("tests") or 0) == len(suite) and not any("PA0" in (case.get("name") or "") for case in suite)
    run("health", "--warehouse", warehouse, "--report", "sarif", sarif, code=4)
    (result,) = json.loads(sarif.read_text())["runs"]
    assert [(found["ruleId"], found["level"]) for found in result["results"]] == [("PD030", "error"), ("PD027", "warning")]
    assert {found["ruleId"] for found in result["results"]} <= {rule["id"] for rule in result["tool"]["driver"]["rules"]}
    run("health", "--warehouse", warehouse, "--report", "html", junit, code=2)
    run("health", "shop.crowded", "--warehouse", warehouse, "--fix", "-y", "--report", "junit", junit)
    assert ElementTree.parse(junit).getroot()[0].get("failures") == "0", "it is about what is left"


def test_checks_that_could_not_run_are_not_reported_as_passed(run: Run, warehouse: str, tmp_path: Path) -> None:
    junit, sarif = tmp_path / "health.xml", tmp_path / "health.sarif"
    crowded = Path(warehouse) / "shop.db" / "crowded"
    next((crowded / "manifest").glob("manifest-list-*")).write_bytes(b"damaged")
    run("health", "--warehouse", warehouse, "--report", "junit", junit, code=4)
    suite = ElementTree.parse(junit).getroot()[0]
    skipped = {(case.get("classname"), (case.get("name") or "")[:5]) for case in suite if case.find("skipped") is not None}
    assert suite.get("skipped") == str(len(skipped))
    for table, ran in (("shop.broken", set[str]()), ("shop.sound", None), ("shop.crowded", {"PD030"})):
        cases = {(case.get("name") or "")[:5] for case in suite if case.get("classname") == table}
        codes = {code for name, code in skipped if name == table}
        assert codes == set() if ran is None else codes and not codes & (ran | {"PD030"}) and codes < cases
    reasons = [told.get("message") or "" for told in suite.iter("skipped")]
    assert all("cannot be opened" in reason or "could not run" in reason for reason in reasons)
    run("health", "--warehouse", warehouse, "--report", "sarif", sarif, code=4)
    (done,) = json.loads(sarif.read_text())["runs"]
    told = done["invocations"][0]["toolExecutionNotifications"]
    assert {one["associatedRule"]["id"] for one in told if "shop.broken" in one["message"]["text"]} == {
        code for name, code in skipped if name == "shop.broken"
    }


def test_commands_of_the_library_find_the_table(run: Run, warehouse: str) -> None:
    rows = Catalog(warehouse).health()
    commands = [finding.command for row in rows for finding in row.findings]
    assert len(commands) == 2 and all(f"--warehouse {shlex.quote(warehouse)}" in command for command in commands)
    for command in commands:
        _, *words = shlex.split(command)
        run(*words, *(["--engine", "local"] if words[0] == "compact" else []), code=0 if words[0] == "compact" else 4)
    assert not any("shop.crowded" in finding.command for row in Catalog(warehouse).health() for finding in row.findings)


def test_a_report_that_cannot_be_written_is_refused_before_a_fix(run: Run, tmp_path: Path) -> None:
    url = due(tmp_path)
    before = len(run("snapshots", "ls", url, "-o", "json").json["items"])
    for path in (tmp_path / "no" / "where.xml", tmp_path):
        assert f"cannot write {path}" in run("health", url, "--fix", "--yes", "--report", "junit", path, code=2).err
    assert len(run("snapshots", "ls", url, "-o", "json").json["items"]) == before
    run("health", url, "--fix", "--dry-run", "--report", "junit", tmp_path / "health.xml", code=4)


@pytest.mark.parametrize("command", ["health", "verify"])
def test_a_second_report_is_refused(run: Run, tmp_path: Path, command: str) -> None:
    first, second = tmp_path / "a.xml", tmp_path / "b.json"
    answer = run(command, due(tmp_path), "--report", "junit", first, "--report", "sarif", second, code=2)
    assert "give --report once" in answer.err and not first.exists() and not second.exists()
