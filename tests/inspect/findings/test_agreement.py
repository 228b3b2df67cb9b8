"""All commands that judge a table are compared with each other, on tables in odd states: no two may disagree."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from paimon_cli import Table
from paimon_cli.cli.app import app
from paimon_cli.errors import DamagedFile, PaimonError
from paimon_cli.history.table_context import TableContext
from paimon_cli.inspect.findings.finding import LISTING, Code
from paimon_cli.inspect.findings.runner import RULES
from paimon_cli.jobs.compact_request import CompactRequest
from paimon_cli.jobs.service.service_turn import NO_UPKEEP, look
from paimon_cli.maintain.branches import create_branch
from paimon_cli.maintain.end_of_history import EndOfHistory
from tests.cli.calling import Answer
from tests.inspect.findings.odd_tables import BUILDERS, seven_runs_over_five

OF_COMPACTIONS = {Code.DUE, Code.HIDDEN, Code.POSTPONED, Code.STALLED}
OF_LISTINGS = {code for rule in RULES if rule.cost == LISTING for code in rule.codes}
SOUND = {
    *("tiny", "no_snapshot", "writers_compact", "vectors", "emptied", "after_rescale", "compacted_after_all", "cross_partition"),
    *("at_a_stop_trigger_where_nothing_is_picked", "written_by_java", "a_postponed_table_with_good_buckets"),
}
"""Tables of which nothing is to be done."""


def call(*words: str) -> Answer:
    result = CliRunner().invoke(app, words)
    return Answer(result.exit_code, result.stdout, result.stderr)


@dataclass(frozen=True)
class Judged:
    """What each command says about one table."""

    name: str
    context: TableContext
    heard: dict[tuple[str, ...], Answer] = field(default_factory=dict, compare=False, repr=False)

    def ask(self, command: str, *options: str) -> Answer:
        """The answer to a command, in JSON unless told otherwise; no command changes anything."""
        asked = (*command.split(), self.context.url, "--branch", self.context.branch, *(options or ("-o", "json")))
        if asked not in self.heard:
            self.heard[asked] = call(*asked)
        return self.heard[asked]

    @property
    def health(self) -> dict[str, Any]:
        (row,) = self.ask("health").json["items"]
        return dict(row)

    @property
    def plan(self) -> Answer:
        return self.ask("compact --dry-run --strategy minor --engine local")

    @property
    def due(self) -> set[tuple[str, int]]:
        """The buckets that `compact --dry-run` would change."""
        return {(row["partition"], row["bucket"]) for row in self.plan.json["items"] if row["output_level"] is not None}


@pytest.fixture(scope="module", params=BUILDERS)
def judged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Judged:
    return Judged(request.param, BUILDERS[request.param](tmp_path_factory.mktemp("odd") / request.param))


def codes(findings: Iterable[dict[str, Any]]) -> list[str]:
    return sorted(finding["code"] for finding in findings)


def of_table(findings: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without what `doctor` says about the machine."""
    return [finding for finding in findings if not re.fullmatch(r"PD00\d|PD010|PD033", finding["code"])]


def commands(findings: Iterable[dict[str, Any]]) -> dict[str, set[str]]:
    given: dict[str, set[str]] = {}
    for finding in findings:
        given.setdefault(finding["code"], set()).add(finding["command"])
    return given


@pytest.mark.in_part(18)
def test_every_command_has_the_same_findings(judged: Judged, tmp_path: Path) -> None:
    found = judged.health["findings"]
    answer = judged.ask("doctor")
    assert commands(of_table(answer.json["items"])) == commands(found)
    assert codes(of_table(answer.json["items"])) == codes(found)
    advised = [finding for finding in judged.ask("advise").json["items"] if finding["severity"] != "ok"]
    (with_advice,) = judged.ask("health --advice").json["items"]
    assert codes(advised) == codes(with_advice["findings"])
    grave = [finding for finding in advised if finding["severity"] != "advice"]
    assert [codes(grave), commands(grave)] == [codes(found), commands(found)]
    assert with_advice["verdict"] == judged.health["verdict"]
    page = tmp_path / "page.html"
    reported = judged.ask(f"report --html {page} --force")
    described = judged.ask("describe")
    assert reported.code == described.code
    if described.code:
        stops = {10: "PD030", 3: "PD028"}
        assert stops[described.code] in codes(found), "only a latest state that cannot be read, or a drop, stops them"
        return
    assert reported.json["item"]["verdict"] == judged.health["verdict"]
    assert sorted(re.findall(r"</b> <code>(\w+)</code>", page.read_text())) == codes(found)
    to_do = described.json["item"]["health"]
    seen = [finding for finding in found if finding["code"] not in OF_LISTINGS]
    assert [codes(to_do), commands(to_do)] == [codes(seen), commands(seen)]
    assert (described.json["item"]["files"], described.json["item"]["sorted_runs"]) == (
        judged.health["files"],
        judged.health["most_runs"],
    )


@pytest.mark.in_part(4)
def test_every_command_knows_the_same_compactions(judged: Judged) -> None:
    buckets = judged.ask("buckets ls")
    found = {finding["code"]: finding for finding in judged.health["findings"]}
    if judged.plan.code not in (0, 4):
        assert {"PD030", "PD028", "PD018"} & found.keys() and not OF_COMPACTIONS & found.keys(), "neither healthy nor due"
        assert not {row["code"] for row in buckets.json["items"]} & OF_COMPACTIONS if not buckets.code else True
        return
    advised = {
        (row["partition"], row["bucket"]): finding
        for row in buckets.json["items"]
        for finding in row["findings"]
        if finding["code"] in OF_COMPACTIONS
    }
    hidden = {place for place, finding in advised.items() if finding["code"] == Code.HIDDEN}
    assert judged.due <= advised.keys() <= judged.due | hidden
    assert {finding["code"] for finding in advised.values()} == OF_COMPACTIONS & found.keys()
    assert all(finding == found[finding["code"]] for finding in advised.values())
    if judged.context.schema.primary_keys:
        shown = judged.ask("lsm show").json["items"]
        picking = {(row["partition"], row["bucket"]) for row in shown if row["output_level"] is not None or row["bucket"] == -2}
        assert picking == judged.due
        assert max((row["read_amplification"] for row in shown if row["bucket"] != -2), default=0) == judged.health["most_runs"]
    assert Table.open(judged.context.url, branch=judged.context.branch).state().due == len(judged.due)


OF_COUNTS = {Code.OTHER_COUNT, Code.MIXED_COUNTS}


@pytest.mark.in_part(3)
def test_every_command_on_buckets_has_the_findings_about_them(judged: Judged) -> None:
    buckets, plan, found = judged.ask("buckets ls"), judged.plan, judged.health["findings"]
    if buckets.code or plan.code not in (0, 4):
        return
    about = {
        finding["code"]: finding
        for finding in found
        if finding["code"] in OF_COMPACTIONS | OF_COUNTS | {Code.CROWDED, Code.TOO_FULL}
    }
    rows = buckets.json["items"]
    assert {finding["code"]: finding for row in rows for finding in row["findings"]} == about
    assert all(row["code"] == (row["findings"][0]["code"] if row["findings"] else None) for row in rows)
    shown = judged.ask("buckets ls", "-o", "table").out
    assert all(finding["command"] in shown for finding in about.values())
    for answer in (plan, *([judged.ask("lsm show")] if judged.context.schema.primary_keys else [])):
        warned = [line for line in answer.err.splitlines() if line.startswith("warning: ")]
        told = [finding for code, finding in about.items() if code in OF_COUNTS]
        told += [finding for finding in found if finding["code"] == Code.UNREADABLE and judged.name == "a_lost_older_schema"]
        assert warned == [f"warning: {f['message']}; run: {f['command']}" for f in told]


@pytest.mark.in_part(2)
def test_what_keeps_commands_from_judging_is_said_alike(judged: Judged) -> None:
    """An option or a file that cannot be read: one message, and one command, wherever a compaction would be judged."""
    plan = judged.plan
    if plan.code in (0, 4):
        return
    grave = {finding["message"]: finding for finding in judged.health["findings"] if finding["severity"] == "error"}
    (finding,) = [found for said, found in grave.items() if said.startswith(plan.error["message"])]
    assert any(
        command in plan.error["hint"] for command in (finding["command"], finding["command"].replace(" --branch main", ""))
    )
    shows = ["buckets ls", *(["lsm show"] if judged.context.schema.primary_keys else [])]
    if finding["code"] != "PD018":  # a drop is hinted at with all flags of the call
        stopped = [judged.ask(command) for command in ("describe", *shows)]
        assert all((answer.code, answer.error["hint"]) == (plan.code, plan.error["hint"]) for answer in stopped)
        return
    buckets = judged.ask("buckets ls").json["items"]
    assert {(row["code"], row["reason"], row["advice"]) for row in buckets} == {("PD018", finding["message"], finding["command"])}
    for tree in judged.ask("lsm show").json["items"] if len(shows) > 1 else ():
        assert finding["message"] in tree["would_compact"] and finding["command"] in tree["would_compact"]
        assert tree["output_level"] is None


ONLY_ONE_IS_RIGHT = {
    **{"merge-engine": "deduplicate", "bucket": "1", "changelog-producer": "none"},
    "deletion-vectors.enabled": "false",
}


@pytest.mark.parametrize("key", ["target-file-size", "num-levels", *ONLY_ONE_IS_RIGHT])
def test_a_value_that_keeps_a_table_from_being_opened_is_mended_by_the_command_of_the_hint(key: str, tmp_path: Path) -> None:
    context = seven_runs_over_five(tmp_path / "t")
    path = Path(context.layout.schema(0))
    path.write_text(json.dumps(json.loads(path.read_text()) | {"options": {**context.schema.options, key: "x"}}))
    (row,) = call("health", context.url, "-o", "json").json["items"]
    (finding,) = [found for found in row["findings"] if found["severity"] == "error"]
    stopped = call("compact", context.url, "--dry-run", "-o", "json")
    assert (finding["code"], stopped.code) == ("PD018", 2) and stopped.error["message"] in finding["message"]
    command = stopped.error["hint"].partition("paimon-cli ")[2]
    if key in ONLY_ONE_IS_RIGHT:
        assert not finding["command"] and call("alter", context.url, "unset", key).code == 2, "the default may be wrong"
        assert stopped.error["hint"] in finding["message"]
        command = stopped.error["hint"].split("`")[1].replace(f"{key}=...", f"{key}={ONLY_ONE_IS_RIGHT[key]}")
    else:
        assert finding["command"] == f"paimon-cli {command}"
    assert call(*shlex.split(command)).code == 0
    assert call("compact", context.url, "--dry-run").code == 0


def test_a_table_that_cannot_be_opened_is_one_finding_of_all_that_judge(tmp_path: Path) -> None:
    context = seven_runs_over_five(tmp_path / "t")
    path = Path(context.layout.schema(0))
    bad_option = json.dumps(json.loads(path.read_text()) | {"options": {"merge-engine": "zorks"}})
    for content, code, stops in (("{", "PD030", 10), (bad_option, "PD018", 2), (None, "PD030", 10), ("drop", "PD028", 3)):
        if content == "drop":
            EndOfHistory(context.storage, context.layout).begin()
        elif content is None:
            path.unlink()
        else:
            path.write_text(content)
        (row,) = call("health", context.url, "-o", "json").json["items"]
        assert codes(row["findings"]) == [code] and call("describe", context.url).code == stops
        for command in ("doctor", "advise"):
            answer = call(command, context.url, "-o", "json")
            found = of_table(answer.json["items"])
            assert (answer.code, commands(found)) == (4, commands(row["findings"]))
            assert found[0]["message"] == row["findings"][0]["message"]


def test_a_branch_that_is_half_deleted_never_means_the_table(tmp_path: Path) -> None:
    """The command of the finding deletes the rest of the branch, whether the table or the branch is looked at."""
    context = seven_runs_over_five(tmp_path / "t")
    create_branch(context, "b")
    EndOfHistory(context.storage, context.layout.of_branch("b")).begin()
    for name in (context.url, f"{context.url}$branch_b"):
        (row,) = call("health", name, "-o", "json").json["items"]
        (found,) = [finding for finding in row["findings"] if finding["code"] == "PD028"]
        assert found["command"] == f"paimon-cli branches rm {context.url} b"
    assert call("branches", "rm", context.url, "b", "--yes").code == 0
    assert "PD028" not in codes(call("health", context.url, "-o", "json").json["items"][0]["findings"])


def test_a_call_that_means_no_table_is_no_finding_about_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for command in ("health", "doctor", "advise"):
        assert [call(command, name).code for name in ("shop.orders", str(tmp_path / "none"))] == [2, 3]


def test_lists_name_what_is_damaged_and_show_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kind of file is called by its name, and the command in the warning names the table as the user did."""
    monkeypatch.chdir(tmp_path)
    for name, command, warning, shown in (
        ("a_damaged_older_snapshot", "snapshots ls", "cannot read snapshot file", [7, 6, 5, 4, 3, 1]),
        ("a_damaged_latest_snapshot", "snapshots ls", "cannot read snapshot file", [2, 1]),
        ("a_damaged_latest_snapshot", "branches ls", "cannot read snapshot file", []),
        ("a_damaged_latest_snapshot", "compactions ls", "cannot read snapshot file", []),
        ("a_damaged_tag", "snapshots ls", "cannot read tag file", [2, 1]),
        ("a_damaged_tag", "tags ls", "cannot read tag file", ["kept"]),
        ("a_damaged_schema_of_a_branch", "branches ls", "cannot read schema file", ["main"]),
        ("a_damaged_snapshot_of_a_branch", "branches ls", "cannot read snapshot file", ["main"]),
        ("a_lost_schema_of_a_branch", "branches ls", "the schema files of", ["main"]),
        ("lost_snapshots", "branches ls", "the snapshot files of", ["side"]),
        ("a_missing_list_of_an_older_snapshot", "manifests ls --snapshot 3", str(tmp_path), ["base"]),
    ):
        if not (tmp_path / name).exists():
            BUILDERS[name](tmp_path / name)
        answer = call(*command.split(), name, "-o", "json")
        assert answer.code == 0, f"{name}, {command}: {answer.err}"
        assert list(dict.fromkeys(row.get("name", row.get("id", row.get("list"))) for row in answer.json["items"])) == shown
        assert answer.err.startswith(f"warning: {warning}")
        named = f"{name} --branch side" if "_of_a_branch" in name else name
        words = shlex.split(answer.err.rpartition("paimon-cli ")[2])
        assert shlex.join(words) == f"verify {named} --all-snapshots" and call(*words).code == 4


def test_a_table_that_has_lost_its_schemas_is_no_place_for_a_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.rmtree(Path(BUILDERS["a_tag_and_a_branch"](tmp_path / "shop.db" / "t").url) / "schema")
    name = "shop.db/t"
    for left in ("snapshot", "tag", "branch"):
        for command in ("describe", "buckets ls", "lsm show", "compact --dry-run", "snapshots ls", "read", "drop --dry-run"):
            answer = call(*command.split(), name, "-o", "json")
            assert answer.code == 10 and "schema files" in answer.error["message"] and "restore " in answer.error["hint"]
            assert "create" not in answer.error["hint"]
        verified = call("verify", name)
        assert verified.code == 4 and "hint: restore the schema file from a backup" in verified.out
        for more in ([], ["--if-not-exists"]):
            refused = call("create", name, "-C", "x INT", *more, "-o", "json")
            assert refused.code == 2 and "schema files are lost" in refused.error["message"]
        (row,) = call("tables", "ls", "shop.db", "-o", "json").json["items"]
        assert "schema files" in row["problem"]
        shutil.rmtree(Path(name) / left)
    gone = call("health", name, "-o", "json")
    assert gone.code == 3 and "create" not in gone.error["hint"], "files without any version are no table"


def test_no_list_of_work_is_silent_about_a_lost_schema(tmp_path: Path) -> None:
    """Files of an older schema can be neither read nor compacted."""
    url = BUILDERS["a_lost_older_schema"](tmp_path / "t").url
    for command in ("compact --dry-run", "lsm show", "buckets ls"):
        answer = call(*command.split(), url)
        assert answer.code == 0 and f"run: paimon-cli verify {url}" in answer.err, command


def test_all_commands_name_a_damaged_changelog(tmp_path: Path) -> None:
    url = BUILDERS["a_damaged_changelog"](tmp_path / "t").url
    for command in ("describe", "health", "advise"):
        assert "changelog-2" in call(command, url, "-o", "json").out, command


def test_jobs_name_a_table_with_damage_as_the_user_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, command in (("a_damaged_tag", "expire --retain-max 1 --retain-min 1 --yes"), ("a_damaged_changelog", "orphans ls")):
        BUILDERS[name](tmp_path / name)
        answer = call(*command.split(), name, "-o", "json")
        assert answer.code == 10 and answer.error["hint"].endswith(f"paimon-cli verify {name} --all-snapshots"), (command, name)


def test_a_half_dropped_table_does_not_exist_for_create(tmp_path: Path) -> None:
    context = BUILDERS["dropped_half_way"](tmp_path / "t")
    assert call("branches", "ls", context.url).code == 3, "it has no history to list"
    for _ in range(2):
        for more in ([], ["--if-not-exists"]):
            refused = call("create", context.url, "-C", "x INT", *more, "-o", "json")
            assert refused.code == 2 and "drop" in refused.error["message"]
        shutil.rmtree(context.layout.schema_directory, ignore_errors=True)
    assert call("drop", context.url, "--yes").code == 0


@pytest.mark.parametrize("name", ["lost_snapshots", "lost_snapshots_but_hints", "a_lost_newest_schema"])
def test_nothing_is_written_over_lost_metadata(name: str, tmp_path: Path) -> None:
    """A new history, or another schema with the number of the lost one, would make live files orphans or change their columns."""
    context = BUILDERS[name](tmp_path / "t")
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    table, row = Table.open(context.url), pa.table({"id": pa.array([1], pa.int32()), "v": ["x"]})
    if name == "lost_snapshots_but_hints":
        row = pa.table({"n": pa.array([1], pa.int32())})
    jobs: list[Callable[[], object]] = [
        lambda: table.write(row),
        lambda: table.alter.set({"snapshot.num-retained.min": "2"}),
        lambda: table.delete(where=f"{row.column_names[0]} = 1"),
        lambda: table.compact(),
    ]
    if name.startswith("lost_snapshots"):
        jobs += [lambda: table.remove_orphans(), lambda: table.plan_repair()]
    for job in jobs:
        with pytest.raises(DamagedFile):
            job()
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before


@pytest.mark.in_part(3)
def test_nothing_is_called_well_that_another_finding_calls_due(judged: Judged) -> None:
    advised = judged.ask("advise").json["items"]
    if OF_COMPACTIONS & {finding["code"] for finding in advised}:
        assert not [found for found in advised if (found["severity"], found["subject"]) == ("ok", "compaction")]


def test_the_service_has_work_where_findings_say_so(judged: Judged) -> None:
    request = CompactRequest("minor")
    try:
        turn = look("t", lambda: judged.context, request, {}, NO_UPKEEP, False)
    except PaimonError:
        assert judged.plan.code not in (0, 4)
        return
    assert turn.figures.picked == len(judged.due) and turn.has_compaction == bool(judged.due)


@pytest.mark.in_part(18)
def test_people_and_programs_get_the_same_exit_code(judged: Judged) -> None:
    for command in ("health", "doctor", "describe", "advise", "buckets ls", "lsm show", "compact --dry-run"):
        assert judged.ask(command, "-o", "table").code == judged.ask(command).code != 1, command


def test_sound_tables_are_left_in_peace(judged: Judged) -> None:
    if judged.name in SOUND:
        assert codes(judged.health["findings"]) == [] and not judged.due
        assert not [row for row in judged.ask("buckets ls").json["items"] if row["advice"]]
    else:
        assert judged.health["findings"], "each of these tables is odd"


MENDING = ("compact", "alter", "repair", "rescale", "consumers", "orphans", "expire", "drop")
ON_ENGINES = {"compact", "rescale"}


@pytest.mark.in_part(6)
@pytest.mark.parametrize("name", [name for name in BUILDERS if name not in SOUND])
def test_the_command_of_a_finding_empties_it(name: str, tmp_path: Path) -> None:
    """Pasted as it is, once, without a terminal; only a drop asks. `verify` only finds out more, and a service runs on."""
    mended = Judged(name, BUILDERS[name](tmp_path / name))
    for finding in mended.health["findings"]:
        words = shlex.split(finding["command"])[1:]
        if words[0] not in MENDING or "--watch" in words:
            continue
        if words[0] == "drop":
            assert call(*words).code == 7, "by now a new table may have the name"
            words.append("--yes")
        done = call(*words, *(["--engine", "local"] if words[0] in ON_ENGINES else []))
        assert done.code == 0, f"{finding['command']}: {done.err}"
        mended.heard.clear()
        if words[0] == "drop":
            assert not Path(mended.context.url).exists()
            continue
        assert finding not in mended.health["findings"], finding["command"]
